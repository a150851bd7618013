"""A trace with marks at the values that a plan constrains.

The function is traced twice more. The first trace records which source lines request which operation, so that a name in
the source becomes the number of an operation; it serves every plan. The second marks the results of these operations,
as if the user had written `with_sharding_constraint` there; it serves every plan that constrains the same values. The
specs are written into the lowered module for each plan (`lower.edited`), so that dragging a spec needs no new trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardviz import _jax
from shardviz._jax import Line
from shardviz.errors import SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.records.source import is_own
from shardviz.tracing.call import Call
from shardviz.tracing.intermediates import Intermediate, Target, located, runs
from shardviz.tracing.trace import Placed, Traced, staged

On = tuple[Call, DeviceMesh, tuple[Spec, ...], frozenset[str]]
"""The arguments of `trace.staged`: the call, the mesh, the types and the places."""


def operations(traced: Traced, on: On) -> tuple[_jax.Made, ...]:
    """Return the operations that the lines of a call's function request. Raises TraceError if it has no Python."""
    if on[0].kind in ("exported", "recorded") or traced.closed is None:
        raise TraceError(
            f"{traced.name} was {on[0].kind} before it came here, so no line of it can be constrained; explore "
            "the function itself"
        )
    watch = _jax.Watch(is_own)
    staged(*on, watch)
    return tuple(watch.made)


def with_places(traced: Traced, on: On, operations: Sequence[_jax.Made], wanted: Sequence[Intermediate]) -> Traced:
    """Return the trace of a call with a mark at each value to constrain. Raises SpecError if one does not exist or
    cannot be constrained; TraceError if each trace of the program has other operations."""
    targets = [located(each, operations) for each in wanted]
    value_runs = [_runs_of(each, target, operations) for each, target in zip(wanted, targets, strict=True)]
    closed, survived = _marked(traced, on, operations, targets, value_runs)
    kept = _surviving(wanted, targets, value_runs, survived)
    return replace(
        traced,
        closed=closed,
        placed=tuple(
            _placed(each, target, [operations[number] for number, _ in evaluations])
            for each, target, evaluations in zip(wanted, targets, kept, strict=True)
        ),
    )


_Runs = list[tuple[int, int]]


def _runs_of(wanted: Intermediate, target: Target, operations: Sequence[_jax.Made]) -> _Runs:
    """Return the runs of a value: for each, the number of the operation that makes it, and the index of the line among
    the operation's lines."""
    evaluations, name = runs(target, operations), f"{target.label!r} at {target.frame.short}"
    if not evaluations:
        raise _refused(wanted, f"{name} makes no array of its own; constrain the value that it is")
    for row in (operations[number] for number, _ in evaluations):
        if row.shape is None:
            one = "constrain one of them where it is used, by its expression"
            raise _refused(wanted, f"{name} makes several arrays ({row.op}); {one}")
        if not row.whole:
            axes = ", ".join(map(repr, sorted(row.manual)))
            raise _refused(
                wanted,
                f"{name} is inside a shard_map over {axes}, where each device has an array of its own; constrain what "
                "goes into the shard_map or comes out of it",
            )
    return evaluations


def _refused(wanted: Intermediate, why: str) -> SpecError:
    return SpecError(f"constrain {str(wanted)!r}: {why}", argument=wanted.name or wanted.line)


def _marked(
    traced: Traced, on: On, operations: Sequence[_jax.Made], targets: Sequence[Target], value_runs: Sequence[_Runs]
) -> tuple[object, set[tuple[int, int]]]:
    """Return the jaxpr with marks on these operations' results, and the (target, operation) of each mark that is still
    in it."""
    marks: dict[int, list[str]] = {}
    variables: dict[int, tuple[int, str]] = {}
    for place, (target, evaluations) in enumerate(zip(targets, value_runs, strict=True)):
        for number, level in evaluations:
            marks.setdefault(number, []).append(_jax.mark(place, number))
            if target.variable:
                variables[number] = level, target.variable
    watch = _jax.Watch(is_own, marks, variables)
    again = staged(*on, watch)
    if list(map(_place, watch.made)) != list(map(_place, operations)):
        raise TraceError(
            f"{traced.name} makes different operations each time it is traced, so they cannot be matched; constrain "
            "the value in the function itself"
        )
    for target, evaluations in zip(targets, value_runs, strict=True):
        if target.variable and any(number in watch.misses for number, _ in evaluations):
            raise SpecError(
                f"constrain {target.variable!r}: what {target.frame.short} assigns is not the one array that its last "
                "operation makes; constrain it in the function that makes it, or where it is used",
                argument=target.variable,
            )
    return again.jaxpr, _jax.marks_in(again.jaxpr.jaxpr)


def _place(row: _jax.Made) -> tuple[str, tuple[Line, ...]]:
    """Return an operation and its line, which are equal in every trace."""
    return row.op, tuple(replace(line, frame=0) for line in row.lines[:1])


def _surviving(
    wanted: Sequence[Intermediate],
    targets: Sequence[Target],
    value_runs: Sequence[_Runs],
    survived: set[tuple[int, int]],
) -> list[_Runs]:
    """Return the runs that are still in the program; JAX may trace a loop's body several times and keeps one of the
    traces."""
    kept = []
    for place, (each, target, evaluations) in enumerate(zip(wanted, targets, value_runs, strict=True)):
        survivors = [(number, level) for number, level in evaluations if (place, number) in survived]
        if not survivors:
            makes = f"no result needs what {target.frame.short} makes, so it is not in the program"
            raise _refused(each, f"{makes}; take the constraint away")
        kept.append(survivors)
    return kept


def _placed(wanted: Intermediate, target: Target, rows: Sequence[_jax.Made]) -> Placed:
    shapes = tuple(dict.fromkeys(row.shape or () for row in rows))
    if len({len(shape) for shape in shapes}) > 1:
        listed = ", ".join(map(str, shapes))
        raise _refused(wanted, f"{target.frame.short} makes arrays of shapes {listed}; constrain what each becomes")
    manual = frozenset().union(*(row.manual for row in rows))
    return Placed(wanted=wanted, target=target, shapes=shapes, dtype=rows[0].dtype, times=len(rows), manual=manual)
