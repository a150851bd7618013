"""What stands around a value: what makes it, what reads it, and whether a loop gets the same one in each run.

What only passes a value on (a conversion, a reshard) is looked past; the front end's reader says what that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from shardviz.graph.operations import Block, GraphValue, Operation
from shardviz.graph.origins import MOVES, At, Origins
from shardviz.layouts.layout import itemsize

Passes = Callable[[Any], bool]
SAME_EACH_RUN = (MOVES - {"dynamic-slice", "slice", "pad"}) | {"broadcast-in-dim", "all-slice"}
"""What an array may go through and still be the same in each run of a loop."""
FREE = frozenset(("transpose", "broadcast", "broadcast-in-dim", "convert"))
"""The operations that a product applies to its operands as it reads them, at no cost of memory."""
_MOST = 32


class Reader(NamedTuple):
    """A reader of a value (None for the end of a block), the operand's position, and whether a loop was entered on the
    way."""

    op: Any
    number: int
    entered: bool


def root(value: GraphValue, passes: Passes) -> GraphValue:
    """Return the value before all operations that only pass it on."""
    while (maker := value.maker) is not None and maker.operands and passes(maker):
        value = maker.operands[value.index if maker.kind == "opt-barrier" else 0]
    return value


def maker(value: GraphValue, passes: Passes) -> Any:
    """Return the operation that makes a value, also in a called function; None for a block's argument."""
    value = root(value, passes)
    while (op := value.maker) is not None and op.kind == "call":
        value = root(op.blocks[0].returned[value.index], passes)
    return op


def is_one(value: GraphValue) -> bool:
    """Return whether all elements of a value are 1."""
    one = root(value, lambda op: op.kind in FREE or op.kind == "reshape").maker
    if one is None or one.kind != "constant" or one.result.shape:
        return False
    try:
        return float(one.constant) == 1.0
    except ValueError:
        return False


def is_filled(value: GraphValue) -> bool:
    """Return whether a value is another value with parts of it written in place."""
    last = maker(value, lambda op: False)
    return last is not None and last.kind == "dynamic-update-slice"


def is_one_update(scatter: Operation) -> bool:
    """Return whether a scatter has one index, so that XLA replaces it by an update in place."""
    whole, index, *updates = scatter.operands
    return len(updates) == 1 and index.elements <= len(whole.shape)


def readers(value: GraphValue, calls: Sequence[Operation], passes: Passes) -> Iterator[Reader]:
    """Yield the readers of a value, past operations that only pass it on, into and out of calls and loops."""
    waiting, seen = [(value, tuple(calls), False)], 0
    while waiting and seen < _MOST:
        value, calls, entered = waiting.pop(0)
        for user, number in value.uses:
            seen += 1
            if isinstance(user, Block):
                if user.name and calls:  # a function's
                    waiting.append((calls[-1].results[number], calls[:-1], entered))
                elif not _hands_on(user, value):
                    yield Reader(None, number, entered)
            elif passes(user):
                waiting.append((user.results[number if user.kind == "opt-barrier" else 0], calls, entered))
            elif user.kind == "call":
                waiting.append((user.blocks[0].arguments[number], (*calls, user), entered))
            elif user.kind == "while":
                waiting.append((user.blocks[1].arguments[number], calls, True))
            else:
                yield Reader(user, number, entered)


def casts(op: Operation, sums: bool = False) -> tuple[str, ...]:
    """Return `narrowed` if a gather's result is only read element by element and then cast to a narrower type,
    `widened` if its operand was cast from a narrower type. If the first reader of a gather is a cast, compilers move it
    themselves. A sum's result may only be scaled before the cast, and its operand may have any type."""
    if len(op.results) != 1:
        return ()
    size = itemsize(op.results[0].dtype)
    users = [user for user, _ in op.results[0].uses]
    names = ["narrowed"] if users and all(_narrowed(user, size, sums) for user in users) else []
    return (*names, *(["widened"] if not sums and _widened(op.operands[0], size) else []))


def _narrowed(op: Any, size: float, sums: bool) -> bool:
    kinds = _ELEMENTWISE - {"add", "subtract"} if sums else _ELEMENTWISE
    for far in range(_FURTHEST):
        if isinstance(op, Block) or (op.kind == "convert" and itemsize(op.results[0].dtype) < size):
            return (sums or far > 0) and not isinstance(op, Block)
        users = [user for user, _ in op.results[0].uses] if op.kind in kinds else []
        if len(users) != 1:
            return False
        op = users[0]
    return False


def _widened(value: GraphValue, size: float) -> bool:
    for _ in range(_FURTHEST):
        op = value.maker
        if op is None or op.kind not in _ELEMENTWISE or not op.operands:
            return False
        value = max(op.operands, key=lambda each: root(each, lambda o: o.kind in FREE).elements)
        if op.kind == "convert" and itemsize(value.dtype) < size:
            return True
    return False


_ELEMENTWISE = frozenset(("convert", "multiply", "divide", "add", "subtract", "copy", "bitcast"))
_FURTHEST = 6
"""How many operations are looked at for another element type."""


def calls_around(block: Block) -> tuple[Operation, ...]:
    """Return the calls that run a block, the outermost first, up to a function that has several calls."""
    calls: list[Operation] = []
    while len(block.callers) == 1 and block.callers[0].kind == "call":
        calls.insert(0, block.callers[0])
        block = calls[0].block
    return tuple(calls)


def _hands_on(block: Block, value: GraphValue) -> bool:
    """Return whether a loop's body passes on one of its arguments unchanged."""
    loop = block.callers[0] if block.callers and not block.name else None
    return loop is not None and loop.kind == "while" and block is loop.blocks[1] and value.owner is block


def is_invariant(op: Operation, origins: Origins, calls: Sequence[Operation] = ()) -> bool:
    """Return whether an operation in a loop has the same first operand in each iteration."""
    value, inwards = origins(At(op.operands[0], tuple(calls)))
    home = inwards[len(calls)].block if len(inwards) > len(calls) else value.block
    loops = 0
    for block, around in _outwards(op.block, calls):
        if block is home:
            return loops > 0
        loops += around is not None and around.kind == "while"
    return False


def in_loop(op: Operation) -> bool:
    """Return whether an operation is inside a loop of its own function."""
    for block, around in _outwards(op.block, ()):
        if block.name or around is None:
            return False
        if around.kind == "while":
            return True
    return False


def _outwards(block: Block, calls: Sequence[Operation]) -> Iterator[tuple[Block, Operation | None]]:
    """Yield a block and those around it, each with the operation that runs it."""
    left = list(calls)
    while True:
        called = bool(left) and block in left[-1].blocks
        around = left.pop() if called else next(iter(block.callers), None)
        yield block, around
        if around is None:
            return
        block = around.block
