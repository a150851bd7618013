"""The operations around a value of a propagated program: its maker and its readers.

Shardy's last pass inserts reshards (`sdy.all_gather`, `sdy.all_to_all`, ...) between a value's maker and its reader.
`surroundings` looks past them, to find the operations around a collective, and whether it is necessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from shardviz._jax.mlir import ir
from shardviz.graph import Block, Operation, Origins
from shardviz.graph.flops import ELEMENTWISE
from shardviz.graph.uses import Reader, casts, in_loop, is_invariant, maker, readers
from shardviz.notation import Axis, Spec
from shardviz.notation.sdy import axis_lists
from shardviz.records.source import Frame
from shardviz.stablehlo.graph import COLLECTIVES, CONSTRAINED, MlirGraph, MlirOperation
from shardviz.stablehlo.module import parse

_RESHARDS = frozenset((*COLLECTIVES, "sdy.all_slice", "sdy.sharding_constraint", "sdy.reshard"))
_PASSES = _RESHARDS | {"stablehlo.optimization_barrier", "stablehlo.convert"}
_GATHERS = frozenset(("sdy.all_gather", "stablehlo.all_gather"))
_SCALES = frozenset(("stablehlo.multiply", "stablehlo.divide"))
_MOVES = _PASSES | {"stablehlo.reshape", "stablehlo.transpose", "stablehlo.broadcast_in_dim"}


def surroundings(
    graph: MlirGraph, op: MlirOperation, calls: Sequence[MlirOperation], manual: Sequence[Axis], origins: Origins
) -> dict[str, Any]:
    """Return the operation that makes a collective's operand and those that read its result, behind other reshards, as
    fields of `Collective`."""
    reads = list(readers(op.result, calls, _passes))
    facts = ["loop-invariant"] if is_invariant(op, origins, calls) else []
    if slicing := _slicing(op, reads):
        facts.append(slicing)
    if op.name in _GATHERS or op.name == "stablehlo.all_reduce":
        facts += casts(op, sums=op.name not in _GATHERS)
    if op.name == "stablehlo.all_gather" and op.result.uses and all(_sums(user, op) for user, _ in op.result.uses):
        facts.append("summed")
    if op.name in COLLECTIVES and _is_undone(graph, op, manual):
        facts.append("undone")
    added = op.name == "sdy.all_reduce" or (op.name == "stablehlo.all_reduce" and _body(op) == "stablehlo.add")
    if added and all(map(_adds_to_a_total, readers(op.result, calls, _keeps_sums))):
        facts.append("accumulated")
    read_by = ("return" if r.op is None else _short(r.op) for r in reads)
    origin = maker(op.operands[0], _passes)
    made_by = "" if origin is None else _short(origin)
    return {"made_by": made_by, "read_by": tuple(dict.fromkeys(read_by)), "facts": tuple(facts)}


def constraint_behind(
    graph: MlirGraph, op: MlirOperation, calls: Sequence[MlirOperation], manual: Sequence[Axis]
) -> Frame | None:
    """Return the line of the sharding constraint that determines a collective's result, if propagation carried the
    constraint's sharding back to an earlier operation; None if there is none."""
    after = graph.spec_of(op.result, manual)

    def hands_on(user: MlirOperation) -> bool:
        return _passes(user) or (user.kind in ELEMENTWISE and _constrained(user) is None and alike(user))

    def alike(user: MlirOperation) -> bool:
        return user.result.shape == op.result.shape and graph.spec_of(user.result, manual) == after

    origin = maker(op.operands[0], _passes)
    if origin is not None and (frame := _constrained(origin)) is not None:
        return frame
    for user in (r.op for r in readers(op.result, calls, hands_on)):
        if user is not None and user.kind in ELEMENTWISE and alike(user) and (frame := _constrained(user)) is not None:
            return frame
    return None


def _constrained(op: MlirOperation) -> Frame | None:
    attributes = op.native.attributes
    return parse(ir.StringAttr(attributes[CONSTRAINED]).value).frame if CONSTRAINED in attributes else None


def _slicing(op: MlirOperation, reads: Sequence[Reader]) -> str:
    """Return `stack` if a loop slices the collective's result as the stack of its layers, `sliced` if the slices
    together are less than the result, and nothing if the whole result is read."""
    slices = [r for r in reads if r.op is not None and r.op.kind in ("slice", "dynamic-slice") and r.number == 0]
    if slices and len(slices) == len(reads):
        if all(r.entered for r in slices) and not in_loop(op):
            return "stack"
        if op.name == "stablehlo.all_gather" and not all(_keeps(r.op, op) for r in slices):
            return ""
        return "sliced" if sum(r.op.result.elements for r in slices) < op.result.elements else ""
    return ""


def _keeps(user: Any, gather: MlirOperation) -> bool:
    """Return whether a slice with computed starts takes the full gathered dimension."""
    at = ir.IntegerAttr(gather.native.attributes["all_gather_dim"]).value
    return user.kind == "dynamic-slice" and user.result.shape[at] == gather.result.shape[at]


def _sums(user: Any, gather: MlirOperation) -> bool:
    if isinstance(user, Block) or user.kind != "reduce":
        return False
    at = ir.IntegerAttr(gather.native.attributes["all_gather_dim"]).value
    dims = ir.DenseI64ArrayAttr(user.native.attributes["dimensions"])
    return at in list(dims) and _body(user) == "stablehlo.add"


def _body(op: MlirOperation) -> str:
    """Return the first operation of a reduction's body: what it reduces by."""
    return op.native.regions[0].blocks[0].operations[0].operation.name


def is_reshard(user: Operation | Block) -> bool:
    """Return whether an operation changes only the sharding of a value."""
    return isinstance(user, MlirOperation) and user.name in _RESHARDS


def _passes(op: MlirOperation) -> bool:
    return op.name in _PASSES


def _short(op: MlirOperation) -> str:
    return op.name.split(".", 1)[1]


def is_slice(user: Operation | Block) -> bool:
    """Return whether an operation of Shardy's takes each device's own slice of the array that the device has."""
    return isinstance(user, MlirOperation) and user.name == "sdy.all_slice"


def _is_undone(graph: MlirGraph, op: MlirOperation, manual: Sequence[Axis]) -> bool:
    """Return whether this is the first of several reshards that together leave the value's sharding unchanged."""
    start, value = op.operands[0], op.result
    if start.maker is not None and is_reshard(start.maker):
        return False
    before = graph.spec_of(start, manual) or Spec()
    while len(value.uses) == 1:
        user, place = value.uses[0]
        if isinstance(user, Block) and [caller.kind for caller in user.callers] == ["call"]:
            value = user.callers[0].results[place]
            continue
        if isinstance(user, Block) or not is_reshard(user):
            return False
        value = user.result
        after, rank = graph.spec_of(value, manual) or Spec(), len(value.shape)
        if Spec.of(after, rank) == Spec.of(before, rank) and after.unreduced == before.unreduced:
            return True
    return False


def _keeps_sums(op: MlirOperation) -> bool:
    """Return whether an operation is linear: applied to a sum it gives the sum of its results, if its other operands
    are equal on all devices."""
    if op.name in _MOVES:
        return True
    maker = op.operands[1].maker if op.name in _SCALES else None
    return maker is not None and (maker.kind == "constant" or not maker.operands[0].shape)


def _adds_to_a_total(reader: Reader) -> bool:
    """Return whether an addition adds a value to a total that a loop carries and that nothing else reads."""
    if reader.op is None or reader.op.kind != "add":
        return False
    total, result = reader.op.operands[1 - reader.number], reader.op.result
    while isinstance(block := total.owner, Block) and len(total.uses) == len(result.uses) == 1:
        ((end, number),) = result.uses
        if end is not block or len(block.callers) != 1:
            return False
        (caller,) = block.callers
        if caller.kind == "while":
            return block is caller.blocks[1] and number == total.index
        total, result = caller.operands[total.index], caller.results[number]
    return False


def moved_axes(op: MlirOperation, attribute: str) -> tuple[Axis, ...]:
    """Return the axes that one of Shardy's collectives names."""
    return tuple(dict.fromkeys(chain(*axis_lists(str(op.attributes[attribute])))))
