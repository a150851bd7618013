"""Rules about work that devices repeat, and about sharded matrix products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from shardviz.costs.batch import inputs_of, samples_of
from shardviz.diagnose.case import Case, and_others, by_hand, moved_words, quoted_axes, severity
from shardviz.diagnose.policy import GRAVE, LARGE, REPEATED, SUMMED
from shardviz.diagnose.specs import divides, moved_off, suggest_specs
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_name
from shardviz.records import Finding, Frame, Product, Suggestion, Value
from shardviz.records.amounts import first_names, format_flops, format_seconds, plural
from shardviz.records.groups import grouped, summed
from shardviz.records.paths import segments
from shardviz.records.report import values_of

_LINES = 3


def idle_axes(case: Case) -> Iterator[Finding]:
    """Find mesh axes that shard nothing and that no collective spans: their devices repeat each other's work."""
    report = case.report
    unread = any(v.spec is None and not v.manual for v in values_of(report))
    if unread or any(c.axes is None for c in report.collectives):
        return  # a sharding or a collective is not expressible in axes
    for axis, size in report.mesh.shape.items():
        if size == 1 or axis in case.used_axes:
            continue
        lost = case.lost(report.products, [axis])
        yield Finding(
            f"idle-axis:{axis}",
            "warning",
            f"Nothing is sharded along the mesh axis {axis!r}: its {plural(size, 'device')} all hold the same arrays "
            "and repeat the same work.",
            why="no argument, output or constraint names it, so propagation has nothing to start from",
            axes=(axis,),
            numbers={"size": float(size), "bytes": case.argument_bytes, **(case.timed(lost) if lost else {})},
            suggestions=(*_batch_along(case, axis), *case.largest_over([axis])),
        )


def _batch_along(case: Case, axis: str) -> Iterator[Suggestion]:
    """Suggest the batch sharded along an axis too, then in place of axes that also shard other arrays."""
    report = case.report
    batch = [v for v in inputs_of(report) or samples_of(report) if v.spec is not None and v.shape and not v.manual]
    own = {v.name for v in batch}
    others = {axis_name(a) for v in case.arguments if v.name not in own and v.spec is not None for a in v.spec.axes}
    all_dims = [(v, Spec.of(v.spec, len(v.shape)).dims) for v in batch if not v.scanned]
    also = [(v, Spec(((*dims[0], axis), *dims[1:]))) for v, dims in all_dims]
    instead = [(v, Spec(((axis,), *dims[1:]))) for v, dims in all_dims if others & set(map(axis_name, dims[0]))]
    for specs in (also, instead):
        rows = [(v.name, spec) for v, spec in specs if divides(v, spec, report.mesh)]
        along = quoted_axes(rows[0][1].dims[0]) if rows else ""
        yield from suggest_specs("argument", rows, f"shard the batch of {plural(len(rows), 'argument')} along {along}")


def repeated_work(case: Case) -> Iterator[Finding]:
    """Find products that all devices along mesh axes repeat; products repeated along several axes are one warning."""
    report = case.report
    if case.spared_flops == math.inf:
        return
    every = report.cost.dot_flops if report.cost is not None else 0.0
    least = REPEATED if report.level == "propagated" else LARGE
    along = grouped((tuple(p for p in report.products if axis in p.repeated), axis) for axis in sorted(case.used_axes))
    for same, axes in along.items():
        flops = sum(p.step_flops for p in same) * case.share_left(same)
        lost, share = case.lost(same, axes), flops / every if every else 0.0
        numbers = {"flops": flops, "share_of_flops": share}
        numbers |= case.timed(lost) if lost else {}
        if share < least or numbers.get("share", 1.0) < GRAVE:
            continue
        lines, words = _lines(same), quoted_axes(axes)
        made = [report.value(p.value) for p in same if case.name_of(p.value)]
        inside = any(set(axes) & set(map(axis_name, v.manual)) for v in made)
        by_hand_text = f"{words} in the in_specs of the shard_map's batch and in the out_specs of its result"
        yield Finding(
            f"repeated-work:{', '.join(axes)}",
            "warning",
            f"The devices along {words} repeat the same matrix products at {_said(lines)}, {format_flops(flops)} on "
            f"each in a step{f': {format_seconds(lost)} of the step is repeated' if lost else ''}.",
            why=f"nothing that the shard_map there takes has {words} in its in_specs"
            if inside
            else f"neither operand nor the result is sharded along {words} there",
            source=lines[0] if lines else None,
            value=case.name_of(same[0].value),
            axes=tuple(axes),
            numbers=numbers,
            suggestions=(by_hand(lines[0] if lines else None, by_hand_text),)
            if inside
            else tuple(case.largest_over(axes)),
        )


def unfitting(case: Case) -> Iterator[Finding]:
    """Find products with operands whose shardings conflict, one finding per kind and axes."""
    for kind in _KINDS:
        faults = [(p, fault) for p in case.report.products if (fault := kind.of(p, case)) is not None]
        for rows in grouped((fault.axes, (p, fault)) for p, fault in faults).values():
            yield from _unfitting(case, kind, rows)


class _Fault(NamedTuple):
    """A conflict between a product's operands: the axes involved, and the arguments whose sharding should change."""

    axes: tuple[tuple[Axis, ...], ...]
    arguments: tuple[str, ...] = ()


def _unfitting(case: Case, kind: _Kind, rows: Sequence[tuple[Product, _Fault]]) -> Iterator[Finding]:
    report, (p, (axes, _)), products = case.report, rows[0], [p for p, _ in rows]
    names = {axis_name(a) for some in axes for a in some}
    at, lines = {(p.source, p.phase) for p in products}, _lines(products)
    sizes = {(p.phase, math.prod(p.whole[:3])) for p in products}
    sizes |= {(p.phase, p.whole[0] * p.whole[2] * p.whole[3]) for p in products}
    moved = [
        c
        for c in report.collectives
        if ((c.source, c.phase) in at or ("asked" in c.facts and (c.phase, math.prod(c.array or ())) in sizes))
        and c.origin == "partitioner"
        and "windowed" not in c.facts
        and names & {axis_name(a) for a in c.axes or ()}
        and ("dot_general" in c.read_by or (kind.sums and c.made_by == "dot_general"))
    ]
    if not moved:
        return
    numbers = case.moved(moved)
    if kind.sums and case.step:
        again = [q for q in report.products if q.source in lines and names & set(q.repeated)]
        numbers |= case.timed(numbers["seconds"] + case.lost(again, names))
    weights = [v for v in case.arguments if any(v.name in fault.arguments for _, fault in rows)]
    specs = [(v.name, [*kind.recut(v, axes, case)]) for v in weights]
    recut = [(name, spec) for name, better in specs for spec in better[:1]]
    first, spec = recut[0] if recut else ("", None)
    text = f"give {first} and {plural(len(recut) - 1, 'other argument')} specs such as {spec}"
    suggestions = [
        *suggest_specs("argument", recut, text),
        *(Suggestion(kind="argument", target=name, spec=spec) for name, better in specs for spec in better[1:]),
        *(s for c in moved if kind.constrains for s in case.constrained(c, c.after)),
    ]
    what = f"{weights[0].name}{and_others(weights)}" if weights else "the other operand"
    yield Finding(
        f"{kind.rule}:{lines[0].short if lines else p.value}",
        severity(case.grave(numbers)),
        kind.text.format(*map(quoted_axes, axes), line=_said(lines), weight=what) + f" {moved_words(numbers)}.",
        why=kind.why.format(*map(quoted_axes, axes), weight=what),
        source=p.source,
        value=case.name_of(p.value),
        axes=tuple(dict.fromkeys(axis for some in axes for axis in some)),
        numbers=numbers,
        suggestions=tuple(dict.fromkeys(suggestions)),
    )


def _batched_apart(p: Product, case: Case) -> _Fault | None:
    """Return a fault if both operands' batch dimensions are sharded. The arguments of the weight's tree change too that
    have a dimension of equal size sharded by the same axes."""
    if len(p.factors) != 2 or not all(factor.batch for factor in p.factors):
        return None
    mine, other = sorted(p.factors, key=lambda factor: not factor.argument)

    def batches(v: Value) -> set[tuple[str, int]]:
        dims = zip(v.shape, (v.spec or Spec()).dims, strict=False)
        return {(segments(v.name)[0], n) for n, dim in dims if set(mine.batch) & set(dim)}

    own = next((batches(v) for v in case.arguments if v.name == mine.argument), set[tuple[str, int]]())
    return _Fault((other.batch, mine.batch), tuple(v.name for v in case.arguments if own & batches(v)))


def _summed_by_one(p: Product, case: Case) -> _Fault | None:
    """Return a fault if the contracted dimension is sharded only in a weight.

    No fault if further axes shard that dimension of the weight: FSDP gathers it over all of them.
    """
    if len(p.factors) != 2 or p.phase != "forward" or bool(p.left_axes) is bool(p.right_axes):
        return None
    axes, factor = (p.left_axes, p.factors[0]) if p.left_axes else (p.right_axes, p.factors[1])
    weight = next((v for v in case.arguments if v.name == factor.argument), None)
    if weight is None or any(set(dim) & set(axes) and set(dim) - set(axes) for dim in (weight.spec or Spec()).dims):
        return None
    return _Fault((axes,), (factor.argument,))


def _columns_after_columns(p: Product, case: Case) -> _Fault | None:
    """Return a fault if the same axes shard the contracted dimension of one operand and the other dimension of the
    weight.

    Gathering the operand is no fault if that moves less than summing the result; an all-reduce moves its result twice.
    It is also none if another product needs the operand gathered anyway, like queries beside fewer keys and values.
    """
    for fault, sizes, _ in _crossed(p):
        every = itertools.chain.from_iterable(map(_crossed, case.report.products))
        return None if any(same == sizes and gathers for _, same, gathers in every) else fault
    return None


def _crossed(p: Product) -> Iterator[tuple[_Fault, tuple[int, int], bool]]:
    """Yield the fault of a forward product with one operand sharded in the contracted dimension and the weight in its
    other dimension; the operand's sizes; and whether gathering the operand moves less."""
    if len(p.factors) != 2 or p.phase != "forward":
        return
    _, rows, summed, columns = p.whole
    for factor, weight, own, free in ((*p.factors, rows, columns), (*p.factors[::-1], columns, rows)):
        if factor.crossed and not factor.argument and weight.argument:
            yield _Fault((factor.crossed,), (weight.argument,)), (own, summed), summed <= SUMMED * free


def _along_another(v: Value, axes: Sequence[tuple[Axis, ...]], case: Case) -> Iterator[Spec]:
    """Yield a weight's spec with its axes moved to another dimension, swapped with that dimension's axes."""
    names = {axis_name(a) for a in axes[0]}
    if v.spec is not None and (moved := moved_off(v, names, case.report.mesh)) is not None:
        was, now = (
            next(d for d, dim in enumerate(spec.dims) if names & set(map(axis_name, dim))) for spec in (v.spec, moved)
        )
        dims = [*v.spec.dims]
        dims[was], dims[now] = dims[now], dims[was]
        yield v.spec.with_dims(tuple(dims))


def _along_another_alone(v: Value, axes: Sequence[tuple[Axis, ...]], case: Case) -> Iterator[Spec]:
    """Yield the same, then with only the moved axes: it takes more memory, but the weight is not gathered."""
    for exchanged in _along_another(v, axes, case):
        yield exchanged
        names = {axis_name(a) for a in axes[0]}
        alone = exchanged.with_dims(tuple(tuple(a for a in dim if axis_name(a) in names) for dim in exchanged.dims))
        if alone != exchanged and divides(v, alone, case.report.mesh):
            yield alone


def _as_the_other(v: Value, axes: Sequence[tuple[Axis, ...]], case: Case) -> Iterator[Spec]:
    """Yield a weight's spec with its own axes and the other operand's axes swapped."""
    theirs, ours = axes
    other = {ours: theirs, theirs: ours}
    spec = v.spec or Spec()
    dims = [tuple(a for a in dim if a not in (*theirs, *ours)) for dim in spec.dims]
    for d, dim in enumerate(spec.dims):
        dims[d] += next((other[some] for some in (ours, theirs) if set(some) & set(dim)), ())
    spec = spec.with_dims(tuple(dims))
    if divides(v, spec, case.report.mesh):
        yield spec


class _Kind(NamedTuple):
    """A kind of conflict between operands.

    Attributes:
        rule, text, why: the finding's rule and texts.
        of: returns the fault of a product, if any.
        recut: returns an argument's better specs: one to change with the others', then alternatives.
        sums: whether to count the all-reduce of the result.
        constrains: whether to suggest constraints too.
    """

    rule: str
    of: Callable[[Product, Case], _Fault | None]
    text: str
    why: str
    recut: Callable[[Value, Sequence[tuple[Axis, ...]], Case], Iterable[Spec]]
    sums: bool = False
    constrains: bool = False


_KINDS = (
    _Kind(
        "conflict",
        lambda p, case: _Fault((p.left_axes, p.right_axes)) if p.left_axes and p.right_axes else None,
        "A matrix product contracts a dimension that is sharded along {0} in its left operand and along {1} in its "
        "right one, so one is resharded first:",
        "both operands must be sharded alike in the contracted dimension; then each device sums its part, and one "
        "all-reduce adds the parts",
        lambda v, axes, case: (),
        constrains=True,
    ),
    _Kind(
        "conflict",
        _batched_apart,
        "A batch dimension of the matrix products at {line} (experts, heads) is sharded along {0} in one operand and "
        "along {1} in the other, {weight}, so one is resharded first:",
        "both operands must have the batch dimension sharded alike; then each device multiplies its own part, and "
        "nothing moves",
        _as_the_other,
        constrains=True,
    ),
    _Kind(
        "partial-sums",
        _summed_by_one,
        "The matrix products at {line} sum over a dimension that {0} shards in {weight} alone: each device "
        "has a partial sum of the whole result, or gathers {weight}, and the devices along {0} repeat the rest:",
        "the other operand is replicated along {0}; with the other dimension of {weight} sharded along {0}, each "
        "device computes its own columns of the result, and nothing is summed",
        _along_another_alone,
        sums=True,
    ),
    _Kind(
        "unpaired",
        _columns_after_columns,
        "The matrix products at {line} sum over a dimension that is sharded along {0} in one operand, while {0} shards "
        "the other dimension of {weight}, so one of the two is resharded:",
        "a weight that follows one sharded by columns is sharded by rows: each device then multiplies what it has, and "
        "one sum over {0} adds the parts",
        _along_another,
    ),
)


def _lines(products: Iterable[Product]) -> list[Frame]:
    flops = summed((p.source, p.step_flops) for p in products if p.source is not None)
    return sorted(flops, key=lambda frame: -flops[frame])


def _said(lines: Sequence[Frame]) -> str:
    return first_names((line.short for line in lines), _LINES) or "lines not known"
