"""Where a value really comes from: back through copies, calls and loops that only pass it on.

After the partitioner a gathered weight may be `convert(dynamic-slice(element 7 of the loop))`. A person wants to read
that it is the argument `params['wq']`:

    all-gather(squeeze) ← reshape ← dynamic-slice ← what the loop carries as its element 7, unchanged
                        ← what the loop is given as its element 7 ← parameter 4 of the entry

A value inside of a function is told apart by the calls that lead there: `At(value, calls)`, the outermost call first.
Where the calls are not known, a function's argument is followed only if all its callers hand over the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from shardviz.graph.operations import Block, GraphValue, Operation

MOVES = frozenset(
    ("convert", "copy", "bitcast", "bitcast-convert", "reshape", "transpose", "dynamic-slice", "slice", "pad",
     "reduce-precision", "copy-start", "copy-done", "all-gather", "all-to-all", "collective-permute",
     "collective-broadcast", "all-gather-start", "all-gather-done", "collective-permute-start",
     "collective-permute-done", "add-dependency")
)  # fmt: skip
"""Operations whose result is their first operand's values, or some of them, moved or converted."""

KEEPS = frozenset(
    ("copy", "bitcast", "reshape", "broadcast", "broadcast-in-dim", "copy-start", "copy-done", "add-dependency")
)
"""Operations that keep a scalar's value and type."""

_ENTERED = frozenset(("call", "fusion", "async-start", "manual-computation", "named-computation"))
_EACH = frozenset(("opt-barrier", "sharding", "async-done"))
"""Operations that hand on each operand as the result in its place."""


class At(NamedTuple):
    """A value, and the calls that lead to the function that it is in."""

    value: GraphValue
    calls: tuple[Operation, ...] = ()


class Origins:
    """Follows values of a graph back to where they are computed, through operations that pass on their first operand
    (the kinds `through`), calls, loops and barriers. With `first`, a value that a loop changes is followed to its value
    before the loop."""

    def __init__(self, through: Collection[str] = MOVES, *, first: bool = False):
        self.through, self.first = through, first
        self._unchanged: dict[tuple[Operation, int], bool] = {}

    def __call__(self, at: At, within: Collection[Block] = ()) -> At:
        """Return where a value is computed, without following it out of the blocks `within`."""
        while (before := self._before(at, within)) is not None:
            at = before
        return at

    def passes_on(self, loop: Operation, index: int) -> bool:
        """Return whether a loop's body passes on one of the carried values unchanged."""
        body, key = loop.blocks[1], (loop, index)
        if key not in self._unchanged:
            self._unchanged[key] = False  # while it is being found out
            self._unchanged[key] = self(At(body.returned[index]), (body,)).value is body.arguments[index]
        return self._unchanged[key]

    def _before(self, at: At, within: Collection[Block]) -> At | None:
        value, calls = at
        owner = value.owner
        if isinstance(owner, Block):
            return None if owner in within else self._outside(owner, value.index, calls)
        kind = owner.kind
        if kind == "while":
            return At(owner.operands[value.index], calls) if self.passes_on(owner, value.index) else None
        if kind in _ENTERED:
            (callee,) = owner.blocks
            return At(callee.returned[value.index], (*calls, owner)) if value.index < len(callee.returned) else None
        if kind in _EACH:
            return At(owner.operands[value.index], calls)
        if kind in self.through and owner.operands:
            return At(owner.operands[min(value.index, len(owner.operands) - 1)], calls)
        return None

    def _outside(self, block: Block, index: int, calls: tuple[Operation, ...]) -> At | None:
        """Return the value that a block's argument has outside, if all callers of the block pass the same."""
        if calls and block in calls[-1].blocks:
            return At(calls[-1].operands[index], calls[:-1])
        sources: set[At] = set()
        for caller in block.callers:
            if caller.kind == "while" and not self.first and not self.passes_on(caller, index):
                return None
            operands = caller.block_operands(block)
            if index >= len(operands):
                return None
            sources.add(At(operands[index], calls))
        return sources.pop() if len(sources) == 1 else None
