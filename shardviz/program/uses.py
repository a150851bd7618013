"""A value of a propagated module: how it is cut, what made it, what reads it.

Shardy's last pass puts reshards (`sdy.all_gather`, `sdy.all_to_all`, ...) between the operation that makes a value and
the one that reads it. `surroundings` looks past them, to say of a collective between which operations it stands, and
whether it need be there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardviz.notation import Axis, Spec
from shardviz.notation.sdy import axis_lists
from shardviz.notation.spec import axis_name
from shardviz.program.module import spec_of


def cut_of(value: Any, manual: Sequence[Axis] = ()) -> Spec | None:
    """The spec of any value; None for one that is whole on every device.

    Args:
        value: an operation's result, or an argument of a function, a loop or a manual computation.
        manual: the axes of the manual computations around it, which its spec leaves out.
    """
    owner = value.owner
    if isinstance(owner, ir.Block):
        return _of_argument(ir.BlockArgument(value), manual)
    attributes = owner.attributes
    for name in ("out_sharding", "sharding"):  # of a collective, and of a constraint
        if name in attributes:
            return spec_of(attributes[name])
    for name in ("sdy.sharding", "out_shardings"):
        if name in attributes:
            return _nth(attributes[name], ir.OpResult(value).result_number)
    return None


def _of_argument(value: Any, manual: Sequence[Axis]) -> Spec | None:
    parent, place = value.owner.owner.operation, value.arg_number
    attributes = parent.attributes
    if parent.name == "func.func":
        if "arg_attrs" not in attributes:
            return None
        known = ir.DictAttr(ir.ArrayAttr(attributes["arg_attrs"])[place])
        return spec_of(known["sdy.sharding"]) if "sdy.sharding" in known else None
    if parent.name == "stablehlo.while":
        return _nth(attributes["sdy.sharding"], place) if "sdy.sharding" in attributes else None
    if parent.name not in ("sdy.manual_computation", "sdy.named_computation"):
        return None
    dims = _nth(attributes["in_shardings"], place).dims
    return Spec(tuple(tuple(a for a in dim if axis_name(a) not in manual) for dim in dims))


def _nth(attribute: Any, place: int) -> Spec:
    """The spec of one of several values."""
    return spec_of(sdy.TensorShardingPerValueAttr(attribute).shardings[place])


KINDS = {
    "sdy.all_gather": ("all-gather", "gathering_axes"),
    "sdy.all_reduce": ("all-reduce", "reduction_axes"),
    "sdy.reduce_scatter": ("reduce-scatter", "reduce_scatter_axes"),
    "sdy.all_to_all": ("all-to-all", "params"),
    "sdy.collective_permute": ("collective-permute", ""),
}

RESHARDS = frozenset((*KINDS, "sdy.all_slice", "sdy.sharding_constraint", "sdy.reshard"))
"""Operations that change nothing but how a value is cut."""
_PASSES = RESHARDS | {"stablehlo.optimization_barrier", "stablehlo.convert"}
_MOVES = _PASSES | {"stablehlo.reshape", "stablehlo.transpose", "stablehlo.broadcast_in_dim"}
_SLICES = frozenset(("stablehlo.slice", "stablehlo.dynamic_slice"))
_MOST = 32


@dataclass(frozen=True)
class Surroundings:
    """Between which operations a collective stands; the fields are those of `Collective`."""

    made_by: str
    read_by: tuple[str, ...]
    facts: tuple[str, ...]


def surroundings(
    op: ir.Operation, calls: Sequence[ir.Operation], functions: Mapping[str, ir.Operation], manual: Sequence[Axis] = ()
) -> Surroundings:
    """What makes a collective's operand and what reads its result, past other reshards.

    Args:
        op: the collective.
        calls: the calls that lead to it, the outermost first.
        functions: the module's functions by their symbols.
        manual: the axes of the manual computations around it.
    """
    root = _root(op.operands[0], _PASSES)
    made_by = _maker(root, functions)
    readers = list(_readers(op.results[0], calls, functions, _PASSES))
    read_by = tuple(dict.fromkeys(_short(r.operation) for r in readers))
    facts = []
    if _is_invariant(op.operands[0], calls):
        facts.append("loop-invariant")
    slices = [r for r in readers if r.operation.name in _SLICES and r.number == 0]
    if slices and len(slices) == len(readers):
        if all(r.entered for r in slices) and not _in_loop(op):
            facts.append("stack")
        elif sum(_elements(r.operation.results[0]) for r in slices) < _elements(op.results[0]):
            facts.append("sliced")
    elif op.name == "sdy.all_reduce" and _only(op, "sdy.all_slice"):
        facts.append("scattered")
    if gathered := _dimensions(op):
        summed = [r for r in readers if r.operation.name == "stablehlo.reduce"]
        if summed and len(summed) == len(readers) and all(gathered <= _reduced(r.operation) for r in summed):
            facts.append("reduced")
    if _is_undone(op, manual):
        facts.append("undone")
    return Surroundings(made_by, read_by, tuple(facts))


@dataclass(frozen=True)
class _Reader:
    """An operation that reads a value: which operand it is there, and whether a loop was entered on the way."""

    operation: Any
    number: int
    entered: bool = False


def _short(op: Any) -> str:
    return op.name.split(".", 1)[1]


def _maker(value: Any, functions: Mapping[str, ir.Operation]) -> str:
    """The operation that makes a value, in the function that is called for it; empty for what a block is given."""
    for _ in range(_MOST):
        owner = value.owner
        if isinstance(owner, ir.Block):
            return ""
        if owner.name != "func.call":
            return _short(owner)
        block = functions[ir.FlatSymbolRefAttr(owner.attributes["callee"]).value].regions[0].blocks[0]
        made = block.operations[len(block.operations) - 1].operands[ir.OpResult(value).result_number]
        value = _root(made, _PASSES)
    return ""


def _root(value: Any, passes: frozenset[str]) -> Any:
    """The value before whatever only passes it on."""
    for _ in range(_MOST):
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name not in passes:
            break
        barrier = owner.name == "stablehlo.optimization_barrier"
        value = owner.operands[ir.OpResult(value).result_number if barrier else 0]
    return value


def _readers(
    value: Any, calls: Sequence[ir.Operation], functions: Mapping[str, ir.Operation], passes: frozenset[str]
) -> Iterator[_Reader]:
    """Every operation that reads a value, past what only passes it on; calls and loops are entered, and left."""
    waiting, seen = [(value, tuple(calls), False)], 0
    while waiting and seen < _MOST:
        value, calls, entered = waiting.pop(0)
        for use in value.uses:
            seen += 1
            op, number = use.owner.operation, use.operand_number
            if op.name == "stablehlo.optimization_barrier":
                waiting.append((op.results[number], calls, entered))
            elif op.name in passes:
                waiting.append((op.results[0], calls, entered))
            elif op.name == "func.call":
                block = functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value].regions[0].blocks[0]
                waiting.append((block.arguments[number], (*calls, op), entered))
            elif op.name == "func.return" and calls:
                waiting.append((calls[-1].results[number], calls[:-1], entered))
            elif op.name == "stablehlo.while":
                waiting.append((op.regions[1].blocks[0].arguments[number], calls, True))
            elif op.name == "stablehlo.return" and _hands_on(op, number, value):
                continue
            else:
                yield _Reader(op, number, entered)


def _hands_on(end: ir.Operation, number: int, value: Any) -> bool:
    """Whether a loop's body gives back an argument of its own as it got it."""
    around = end.operation.parent
    return around is not None and around.name == "stablehlo.while" and value.owner == around.regions[1].blocks[0]


def _is_invariant(value: Any, calls: Sequence[ir.Operation]) -> bool:
    """Whether a loop around is given the value from outside and hands it on unchanged: it is the same each time."""
    value, calls = _root(value, _MOVES), list(calls)
    while isinstance(value.owner, ir.Block) and value.owner.owner.operation.name == "func.func" and calls:
        value = _root(calls.pop().operands[ir.BlockArgument(value).arg_number], _MOVES)
    if not isinstance(value.owner, ir.Block):
        return False
    loop, number = value.owner.owner.operation, ir.BlockArgument(value).arg_number
    if loop.name != "stablehlo.while" or value.owner != loop.regions[1].blocks[0]:
        return False
    body = value.owner
    return body.operations[len(body.operations) - 1].operands[number] == body.arguments[number]


def _elements(value: Any) -> int:
    return math.prod(ir.RankedTensorType(value.type).shape)


def _in_loop(op: ir.Operation) -> bool:
    around = op.parent
    while around is not None:
        if around.name == "stablehlo.while":
            return True
        around = around.parent
    return False


def _only(op: ir.Operation, name: str) -> bool:
    users = [use.owner.operation.name for use in op.results[0].uses]
    return bool(users) and all(user == name for user in users)


def _dimensions(op: ir.Operation) -> set[int]:
    """The dimensions that an all-gather puts together."""
    if op.name != "sdy.all_gather":
        return set()
    return {d for d, axes in enumerate(axis_lists(str(op.attributes["gathering_axes"]))) if axes}


def _reduced(op: ir.Operation) -> set[int]:
    return set(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))


def _is_undone(op: ir.Operation, manual: Sequence[Axis]) -> bool:
    """Whether the reshards that follow bring the value back to how it was cut before this one, which is the first."""
    start = op.operands[0]
    owner = start.owner
    if not isinstance(owner, ir.Block) and owner.name in RESHARDS:
        return False
    before, value = cut_of(start, manual) or Spec(), op.results[0]
    for _ in range(_MOST):
        users = [use.owner.operation for use in value.uses]
        if len(users) != 1 or users[0].name not in RESHARDS:
            return False
        value = users[0].results[0]
        after = cut_of(value, manual) or Spec()
        rank = len(ir.RankedTensorType(value.type).shape)
        if Spec.of(after, rank) == Spec.of(before, rank) and after.unreduced == before.unreduced:
            return True
    return False


def met(op: ir.Operation, number: int, manual: Sequence[Axis] = ()) -> Spec | None:
    """How a product's factor was cut before it was brought into the cut that the product needs."""
    return cut_of(_root(op.operands[number], RESHARDS), manual)


def root_of(op: ir.Operation) -> Any:
    """What a collective moves, before whatever only passes it on."""
    return _root(op.operands[0], _MOVES)


def moved_axes(op: ir.Operation, attribute: str) -> tuple[Axis, ...]:
    """The axes that a collective of Shardy names."""
    return tuple(dict.fromkeys(chain(*axis_lists(str(op.attributes[attribute])))))
