"""The bytes that each instruction reads from and writes to main memory, by the conventions of XLA's `HloCostAnalysis`.

Every operand is read once and every result written once, by each instruction:

| instruction | bytes |
|---|---|
| fusion | its operands and results; what goes on inside stays in registers |
| ... of an operand that it only slices or gathers from | the slices |
| ... that updates a slice of an operand in place | the slice, not the array |
| ... that scatters into an operand, which is in place too | what is added, as often as a scatter counts it |
| slice, dynamic-slice, gather | the result, read and written, and the indices |
| dynamic-update-slice, scatter | the update, read and written (and what is there, for a scatter), and the indices |
| asynchronous: begun and ended by two instructions | once, where it begins |
| bitcast, tuple, parameter, loop, call, ... | none: they move nothing, or what they call is counted |

Values in on-chip memory (`S(1)`: a TPU's VMEM) and in the host's (`S(5)`) are not in main memory; a copy between two
memories counts only its end in main memory. A tiled layout (`T(8,128)`) counts its padding. A custom call counts its
operands and results, because its body is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from shardviz.compiler.graph import HloOperation, HloValue
from shardviz.compiler.shapes import HloShape
from shardviz.graph import Block, GraphValue

_ALIAS = re.compile(r"\{([\d,]*)\}: \(\d+, \{")
_FREE = frozenset(
    ("bitcast", "constant", "after-all", "add-dependency", "domain", "opt-barrier", "while", "conditional", "call",
     "async-start")
)  # fmt: skip
_FREE_CALLS = frozenset(("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound"))
_SLICES = frozenset(("slice", "dynamic-slice", "gather"))
_LARGE_CONSTANT = 8


def moved_bytes(op: HloOperation) -> float:
    """Return the bytes that one run of an operation outside fusions reads and writes; of its blocks, only a fusion's
    count."""
    kind = op.kind
    if kind in _FREE or kind.endswith("-done"):
        return 0.0
    if kind in ("fusion", "fusion-start"):
        return _FusionTraffic(op).bytes
    if kind in _SLICES:
        part = sum(_stored(value) for value in op.results)
        return _part_in_main(op.array(0), part) + _in_main(op.results) + _in_main(op.operands[1:2])
    if kind == "dynamic-update-slice":
        return _part_in_main(op.result, _stored(op.array(1))) + _in_main(op.operands[1:3])
    if kind == "scatter":
        many = len(op.operands) // 2
        return 3 * _in_main(op.operands[many + 1 :]) + _in_main(op.operands[many : many + 1])
    if kind == "send":
        return _in_main(op.operands[:1])
    if kind == "recv":
        return _in_main(op.results[:1])
    if kind == "custom-call" and op.target in _FREE_CALLS:
        return 0.0
    return _in_main(op.operands) + _in_main(op.results)


class _FusionTraffic:
    """The bytes that a fusion reads and writes at its boundary."""

    def __init__(self, op: HloOperation):
        (self.fused,) = op.blocks
        shape = op.native.shape if op.kind == "fusion" else op.native.shape[1]  # begun: operands, results, state
        self.op, self.is_array = op, isinstance(shape, HloShape)
        aliases = op.native.attributes.get("output_to_operand_aliasing", "")
        self.aliased = set(_ALIAS.findall(aliases))
        self._known: dict[GraphValue, tuple[bool, float]] = {}

    @property
    def bytes(self) -> float:
        constants = (operation.result for operation in self.fused.operations if operation.kind == "constant")
        return (
            math.fsum(map(self._read, self.fused.arguments))
            + self._written()
            + sum(_stored(value) for value in constants if value.elements > _LARGE_CONSTANT)
        )

    def _read(self, argument: HloValue) -> float:
        whole = _in_main((argument,))
        if not whole:
            return 0.0
        full, parts = self._uses(argument)
        return whole if full else min(whole, parts)

    def _uses(self, value: GraphValue) -> tuple[bool, float]:
        """Return whether all of a value is read, and the bytes that are read of its parts."""
        if value not in self._known:
            full, parts = False, 0.0
            for user, place in value.uses:
                also, part = self._use(value, user, place)
                full, parts = full or also, parts + part
            self._known[value] = full, parts
        return self._known[value]

    def _use(self, value: GraphValue, user: HloOperation | Block, place: int) -> tuple[bool, float]:
        if isinstance(user, Block):
            if user is not self.fused:
                return value.maker is not None or len(user.returned) > 1, 0.0
            return (value.maker is not None if self.is_array else not self._passes(place)), 0.0
        if user.kind == "bitcast":
            return self._uses(user.result)
        if user.kind in _SLICES and place == 0:
            return False, sum(_stored(each) for each in user.results)
        if user.kind == "dynamic-update-slice" and place == 0 and _is_in_place(user.result):
            return False, 0.0
        if user.kind == "scatter" and place == 0 and len(user.results) == 1 and _is_in_place(user.result):
            return False, _stored(user.array(2))
        if user.kind == "fusion":
            (inner,) = user.blocks
            argument = inner.arguments[place]
            passed = len(inner.returned) == 1 and _behind_bitcasts(inner.returned[0]) is argument
            return self._uses(user.result if passed else argument)
        return not user.goes_on, 0.0  # what goes on moves once, where it begins

    def _passes(self, index: int) -> bool:
        """Return whether a result is an operand handed on in its place."""
        return str(index) in self.aliased

    def _written(self) -> float:
        returned = self.fused.returned
        if self.is_array:
            return self._result(returned[0], "", self.op.results[0])
        maker = returned[0].maker if returned else None
        if maker is not None and len(returned) > 1 and maker.results == returned:  # no tuple of single results
            return math.fsum(_in_main((v,)) for i, v in enumerate(self.op.results) if not self._passes(i))
        return math.fsum(
            self._result(inside, str(i), value)
            for i, (inside, value) in enumerate(zip(returned, self.op.results, strict=False))
        )

    def _result(self, inside: GraphValue, index: str, outside: HloValue) -> float:
        size = _in_main((outside,))
        maker = _behind_bitcasts(inside).maker
        if size and maker is not None and maker.kind == "dynamic-update-slice":
            return _stored(maker.array(1))
        if size and maker is not None and maker.kind == "scatter" and len(maker.results) == 1:
            return min(size, _stored(maker.array(2)))
        handed_on = maker is None or maker.goes_on
        return 0.0 if handed_on and index in self.aliased else size


def _is_in_place(updated: GraphValue) -> bool:
    """Return whether an updated array is its block's result, so that it is updated in place."""
    return all(
        isinstance(user, Block) or (user.kind == "bitcast" and _is_in_place(user.result)) for user, _ in updated.uses
    )


def _behind_bitcasts(value: GraphValue) -> GraphValue:
    while (maker := value.maker) is not None and maker.kind == "bitcast":
        value = maker.array(0)
    return value


def _stored(value: HloValue) -> float:
    return value.array.stored_bytes


def _in_main(values: Iterable[HloValue]) -> float:
    return math.fsum(v.array.stored_bytes for v in values if v.array.is_in_main_memory)


def _part_in_main(value: HloValue, part: float) -> float:
    """Return `part` of an array's bytes if it is in main memory; otherwise 0."""
    return part if _in_main((value,)) else 0.0
