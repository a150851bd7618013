"""A trace with marks at the values that a plan constrains.

The function is traced once more, with its code compiled again from its source: around each expression that a plan
constrains stands a call, which marks the value as if the person had written `with_sharding_constraint` there. The
trace is of one plan's places, whatever their specs: these are written into the lowered module for each plan
(`lower.edited`), so that a spec that is dragged needs no other trace.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from types import CodeType
from typing import Any

from shardviz import _jax
from shardviz.errors import SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.program.call import Call
from shardviz.program.intermediates import Extent, Intermediate, Target, located, python_of
from shardviz.program.trace import Placed, Traced, staged


def with_places(
    traced: Traced,
    call: Call,
    mesh: DeviceMesh,
    types: tuple[Spec, ...],
    places: frozenset[str],
    wanted: Sequence[Intermediate],
) -> Traced:
    """The trace of a call with a mark at each value that is to be constrained.

    Args:
        traced: the trace without them.
        call, mesh, types, places: what it was made of; see `trace`.
        wanted: the values.

    Raises:
        SpecError: if one of them is not there, or cannot be constrained; the message says why, and what there is.
        TraceError: if the program has no Python any more, or makes other values each time that it is traced.
    """
    if call.traced_for is not None or traced.closed is None:
        raise TraceError(
            f"{traced.name} was traced or lowered before it came here, so no line of it can be constrained; explore "
            "the function itself"
        )
    targets = [located(each, traced.lines) for each in wanted]

    def marked(chosen: Sequence[Collection[int] | None]) -> tuple[_jax.Marking, object, set[tuple[int, int]]]:
        names = [_name(target) for target in targets]
        marking = _jax.Marking({n: [i for i, name in enumerate(names) if name == n] for n in names}, chosen)
        again = staged(call, mesh, types, places, _jax.marked(marking, _codes_of(targets)))
        return marking, again.jaxpr, _jax.marks_in(again.jaxpr.jaxpr)

    marking, closed, in_program = marked([None] * len(wanted))
    kept = []
    for place, (each, target, values) in enumerate(zip(wanted, targets, marking.values, strict=True)):
        _check(each, target, values)
        numbers = [number for number in range(len(values)) if (place, number) in in_program]
        kept.append(_chosen(each, target, numbers))
    if any(each.occurrence is not None for each in wanted):
        again, closed, _ = marked(kept)
        if again.values != marking.values:
            raise TraceError(
                f"{traced.name} makes other values each time that it is traced, so that no single one can be found "
                "again to be constrained; constrain all of its line, or constrain it in the function itself"
            )
    rows = zip(wanted, targets, marking.values, kept, strict=True)
    placed = tuple(_placed(each, target, [values[n] for n in numbers]) for each, target, values, numbers in rows)
    return replace(traced, closed=closed, placed=placed)


def _check(wanted: Intermediate, target: Target, values: Sequence[_jax.MarkedValue]) -> None:
    """Refuses what cannot be constrained."""
    name = f"{target.label!r} at {target.frame.short}"
    if not values or any(row.shape is None and row.kind not in _SEVERAL for row in values):
        raise _refused(wanted, f"{name} makes no array of its own; constrain the value that it is")
    for row in values:
        if row.shape is None:
            one = "constrain one of them where it is used, by its expression"
            raise _refused(wanted, f"{name} makes several arrays ({row.kind}); {one}")
        if not row.whole:
            axes = ", ".join(map(repr, sorted(row.manual)))
            raise _refused(
                wanted,
                f"{name} is inside a shard_map over {axes}, where each device has an array of its own; constrain what "
                "goes into the shard_map or comes out of it",
            )


_SEVERAL = ("list", "tuple", "dict")


def _refused(wanted: Intermediate, why: str) -> SpecError:
    return SpecError(f"constrain {str(wanted)!r}: {why}", argument=wanted.name or wanted.line)


def _chosen(wanted: Intermediate, target: Target, numbers: list[int]) -> list[int]:
    """Those of the values that are meant, of those that are in the program that JAX keeps: it may trace a loop's body
    more than once."""
    if not numbers:
        makes = f"no result needs what {target.frame.short} makes, so it is not in the program"
        raise _refused(wanted, f"{makes}; take the constraint away")
    if wanted.occurrence is None:
        return numbers
    if not 0 <= wanted.occurrence < len(numbers):
        times = f"{target.frame.short} is run {len(numbers)} times"
        raise _refused(wanted, f"{times}, so occurrence is 0 to {len(numbers) - 1}, or None for all")
    return [numbers[wanted.occurrence]]


def _placed(wanted: Intermediate, target: Target, rows: Sequence[_jax.MarkedValue]) -> Placed:
    shapes = tuple(dict.fromkeys(row.shape or () for row in rows))
    if len({len(shape) for shape in shapes}) > 1:
        listed = ", ".join(map(str, shapes))
        raise _refused(wanted, f"{target.frame.short} makes arrays of shapes {listed}; say which with occurrence=")
    manual = frozenset().union(*(row.manual for row in rows))
    return Placed(wanted=wanted, target=target, shapes=shapes, dtype=rows[0].dtype, times=len(rows), manual=manual)


# The code with calls around expressions.


def _name(target: Target) -> str:
    return f"{target.file}:{target.expression}"


def _codes_of(targets: Sequence[Target]) -> dict[CodeType, CodeType]:
    """The code of each function around targets → the same with calls around them."""
    codes: dict[CodeType, CodeType] = {}
    for file in dict.fromkeys(target.file for target in targets):
        text = "".join(linecache.getlines(file))
        codes |= _codes(file, text, frozenset((t.expression, _name(t)) for t in targets if t.file == file))
    return codes


@lru_cache(maxsize=16)
def _codes(file: str, text: str, expressions: frozenset[tuple[Extent, str]]) -> dict[CodeType, CodeType]:
    plain, edited = (ast.parse(python_of(text)) for _ in range(2))
    edited = ast.fix_missing_locations(_Calls(dict(expressions)).visit(edited))
    return dict(_pairs(*(compile(tree, file, "exec", dont_inherit=True) for tree in (plain, edited))))


def _pairs(plain: CodeType, edited: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """A code and the codes in it, each with the other that stands in its place, where they differ."""
    if plain != edited:
        yield plain, edited
        inner = ([c for c in code.co_consts if isinstance(c, CodeType)] for code in (plain, edited))
        for pair in zip(*inner, strict=True):
            yield from _pairs(*pair)


class _Calls(ast.NodeTransformer):
    """Puts a call around each of some expressions, by where they stand."""

    def __init__(self, names: dict[Extent, str]):
        self.left = dict(names)

    def visit(self, node: ast.AST) -> Any:
        """The node, or the call of it."""
        is_value = isinstance(node, ast.expr | ast.AugAssign)
        name = self.left.pop(Extent.of(node), None) if is_value else None
        node = self.generic_visit(node)
        if name is None:
            return node
        call = lambda value: ast.Call(ast.Name(_jax.MARK, ast.Load()), [ast.Constant(name), value], [])  # noqa: E731
        if isinstance(node, ast.AugAssign):
            before = ast.parse(ast.unparse(node.target), mode="eval").body
            sum_ = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
            return ast.copy_location(ast.Assign([node.target], call(sum_)), node)
        assert isinstance(node, ast.expr)
        return ast.copy_location(call(node), node)
