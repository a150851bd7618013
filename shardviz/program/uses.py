"""A value of a propagated program: what made it, what reads it.

Shardy's last pass puts reshards (`sdy.all_gather`, `sdy.all_to_all`, ...) between the operation that makes a value and
the one that reads it. `surroundings` looks past them, to say of a collective between which operations it stands, and
whether it need be there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from jax.extend.mlir import ir

from shardviz.graph import Block, Value
from shardviz.notation import Axis, Spec
from shardviz.notation.sdy import axis_lists
from shardviz.program.graph import MlirGraph, MlirOperation

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
    graph: MlirGraph, op: MlirOperation, calls: Sequence[MlirOperation], manual: Sequence[Axis] = ()
) -> Surroundings:
    """What makes a collective's operand and what reads its result, past other reshards.

    Args:
        graph: the program.
        op: the collective.
        calls: the calls that lead to it, the outermost first.
        manual: the axes of the manual computations around it.
    """
    (made,) = op.results
    readers = list(_readers(made, calls))
    facts = []
    if _is_invariant(op.operands[0], calls):
        facts.append("loop-invariant")
    slices = [r for r in readers if r.name in _SLICES and r.number == 0]
    if slices and len(slices) == len(readers):
        if all(r.entered for r in slices) and not _in_loop(op):
            facts.append("stack")
        elif sum(math.prod(r.op.results[0].shape) for r in slices if r.op is not None) < math.prod(made.shape):
            facts.append("sliced")
    elif op.name == "sdy.all_reduce" and made.uses and all(_name(user) == "sdy.all_slice" for user, _ in made.uses):
        facts.append("scattered")
    if gathered := _dimensions(op):
        summed = [r.op for r in readers if r.op is not None and r.op.kind == "reduce"]
        if summed and len(summed) == len(readers) and all(gathered <= _reduced(each) for each in summed):
            facts.append("reduced")
    if _is_undone(graph, op, manual):
        facts.append("undone")
    read_by = tuple(dict.fromkeys(_short(r.name) for r in readers))
    return Surroundings(_maker(root(op.operands[0], _PASSES)), read_by, tuple(facts))


class _Reader(NamedTuple):
    """What reads a value: an operation, or None for the end of a block; its name; which operand the value is there; and
    whether a loop was entered on the way.
    """

    op: MlirOperation | None
    name: str
    number: int
    entered: bool


def _name(user: MlirOperation | Block) -> str:
    return "func.return" if isinstance(user, Block) else user.name


def _short(name: str) -> str:
    return name.split(".", 1)[1]


def _maker(value: Value) -> str:
    """The operation that makes a value, in the function that is called for it; empty for what a block is given."""
    while (maker := value.maker) is not None:
        if maker.kind != "call":
            return _short(maker.name)
        value = root(maker.blocks[0].returned[value.index], _PASSES)
    return ""


def root(value: Value, passes: frozenset[str] = RESHARDS) -> Value:
    """The value before whatever only passes it on; without `passes`, before what only changes how it is cut."""
    while (maker := value.maker) is not None and maker.name in passes:
        value = maker.operands[value.index if maker.kind == "opt-barrier" else 0]
    return value


def _readers(value: Value, calls: Sequence[MlirOperation]) -> Iterator[_Reader]:
    """What reads a value, past what only passes it on; calls and loops are entered, and left."""
    waiting, seen = [(value, tuple(calls), False)], 0
    while waiting and seen < _MOST:
        value, calls, entered = waiting.pop(0)
        for user, number in value.uses:
            seen += 1
            if isinstance(user, Block):
                if user.name and calls:  # a function's
                    waiting.append((calls[-1].results[number], calls[:-1], entered))
                elif not _hands_on(user, number, value):
                    yield _Reader(None, "func.return", number, entered)
            elif user.name in _PASSES:
                result = user.results[number if user.kind == "opt-barrier" else 0]
                waiting.append((result, calls, entered))
            elif user.kind == "call":
                waiting.append((user.blocks[0].arguments[number], (*calls, user), entered))
            elif user.kind == "while":
                waiting.append((user.blocks[1].arguments[number], calls, True))
            else:
                yield _Reader(user, user.name, number, entered)


def _hands_on(block: Block, number: int, value: Value) -> bool:
    """Whether a loop's body gives back an argument of its own as it got it."""
    loop = block.callers[0] if block.callers and not block.name else None
    return loop is not None and loop.kind == "while" and block is loop.blocks[1] and value.owner is block


def _is_invariant(value: Value, calls: Sequence[MlirOperation]) -> bool:
    """Whether a loop around is given the value from outside and hands it on unchanged: it is the same each time."""
    value, calls = root(value, _MOVES), list(calls)
    while isinstance(value.owner, Block) and value.owner.name and calls:
        value = root(calls.pop().operands[value.index], _MOVES)
    body = value.owner
    if not isinstance(body, Block) or body.name:
        return False
    (loop,) = body.callers
    return loop.kind == "while" and body is loop.blocks[1] and body.returned[value.index] is value


def _in_loop(op: MlirOperation) -> bool:
    block = op.block
    while not block.name:  # no function's
        (around,) = block.callers
        if around.kind == "while":
            return True
        block = around.block
    return False


def _dimensions(op: MlirOperation) -> set[int]:
    """The dimensions that an all-gather puts together."""
    if op.name != "sdy.all_gather":
        return set()
    return {d for d, axes in enumerate(axis_lists(str(op.attributes["gathering_axes"]))) if axes}


def _reduced(op: MlirOperation) -> set[int]:
    return set(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))


def _is_undone(graph: MlirGraph, op: MlirOperation, manual: Sequence[Axis]) -> bool:
    """Whether the reshards that follow bring the value back to how it was cut before this one, which is the first."""
    start, value = op.operands[0], op.results[0]
    if start.maker is not None and start.maker.name in RESHARDS:
        return False
    before = graph.cut(start, manual) or Spec()
    while len(value.uses) == 1 and _name(user := value.uses[0][0]) in RESHARDS:
        (value,) = user.results
        after, rank = graph.cut(value, manual) or Spec(), len(value.shape)
        if Spec.of(after, rank) == Spec.of(before, rank) and after.unreduced == before.unreduced:
            return True
    return False


def root_of(op: MlirOperation) -> Value:
    """What a collective moves, before whatever only passes it on."""
    return root(op.operands[0], _MOVES)


def moved_axes(op: MlirOperation, attribute: str) -> tuple[Axis, ...]:
    """The axes that a collective of Shardy names."""
    return tuple(dict.fromkeys(chain(*axis_lists(str(op.attributes[attribute])))))
