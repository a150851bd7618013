"""How many trips a loop makes, from the integer arithmetic of its counters.

From the loop's condition follow the elements that decide, each of which must start at a constant, and how a trip
changes them. Here elements 0 and 1 start at (1, 100); a trip doubles the one and counts the other down:

    while (a, b) = (1, 100)    condition: a < b    body: (a + a, b - 1)        7 trips

Where one counter steps by a constant up or down to a constant, the number follows at once. Else the counters are run,
for some thousand trips at most. Integers wrap around as their type does. Floating-point counters, which may round
otherwise on another chip, are not followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shardviz.graph.operations import Block, Operation
from shardviz.graph.origins import KEEPS, At, Origins

_MOST_TRIPS = 8192  # that are run
_MOST_OPERATIONS = 128
_MOST_DIGITS = 30  # of a constant; what has more is beyond any type even if it is cut there
_TYPES = frozenset(("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))))
_FLIPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE", "EQ": "EQ"}
_COMPARED = {"LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal,
             "NE": np.not_equal}  # fmt: skip


def trip_count(loop: Operation, calls: tuple[Operation, ...] = (), origins: Origins | None = None) -> int | None:
    """Return the trips of a `while`, from the text or its counters; None if they depend on data or floats, do not end,
    or take too long to run. `calls` may be unknown; `origins`, an `Origins(KEEPS)`, keeps results for other loops."""
    if (stated := loop.known_trips) is not None:
        return stated
    try:
        with np.errstate(all="ignore"):
            counters = _Counters(loop, calls, origins or Origins(KEEPS))
            trips = counters.counted()
            return counters.ran() if trips is None else trips
    except _Data:
        return None


class _Data(Exception):
    """A value that is not computed from constants by integer arithmetic."""


class _Scalar(NamedTuple):
    """How a scalar is computed: HLO's opcode, or `element` for a value that the loop carries. `detail` is a constant's
    number, the position of a carried value, or a comparison's direction."""

    op: str
    dtype: np.dtype[Any]
    operands: tuple[int, ...]
    detail: Any


class _Affine(NamedTuple):
    """A carried value plus a constant, or a constant alone (`element` is None), with the element types that it is
    converted to."""

    element: int | None
    offset: int
    types: tuple[np.dtype[Any], ...]


class _Counters:
    """A loop's condition and the updates that it needs, in the order of computation."""

    def __init__(self, loop: Operation, calls: tuple[Operation, ...], origins: Origins):
        self._origins, self._loop = origins, loop
        self._numbers: dict[At, int] = {}
        self._affines: dict[int, _Affine | None] = {}
        self.nodes: list[_Scalar] = []
        self.updates: dict[int, int] = {}
        self.starts: dict[int, Any] = {}
        condition, body = loop.blocks
        self.condition = self._read(At(condition.returned[0], calls))
        while missing := [n.detail for n in self.nodes if n.op == "element" and n.detail not in self.updates]:
            for element in dict.fromkeys(missing):
                first = self.nodes[self._read(At(loop.operands[element], calls))]
                if first.op != "constant":
                    raise _Data
                self.starts[element] = first.detail
                self.updates[element] = self._read(At(body.returned[element], calls))

    def _read(self, at: At) -> int:
        value, calls = at = self._origins(at, self._loop.blocks)
        if at in self._numbers:
            return self._numbers[at]
        maker = value.owner
        if math.prod(value.shape) != 1 or value.dtype not in _TYPES or len(self._numbers) >= _MOST_OPERATIONS:
            raise _Data
        dtype = np.dtype(value.dtype)
        if isinstance(maker, Block):
            if maker not in self._loop.blocks:
                raise _Data
            node = _Scalar("element", dtype, (), value.index)
        elif maker.kind == "constant":
            node = _Scalar("constant", dtype, (), _number(maker.constant, dtype))
        else:
            operands = tuple(self._read(At(operand, calls)) for operand in maker.operands)
            node = _Scalar(maker.kind, dtype, operands, maker.direction if maker.kind == "compare" else None)
            values = [self.nodes[i] for i in operands]
            if not operands:
                raise _Data
            if all(each.op == "constant" for each in values):
                node = _Scalar("constant", dtype, (), _result(node, [each.detail for each in values]))
        self.nodes.append(node)
        self._numbers[at] = len(self.nodes) - 1
        return self._numbers[at]

    def ran(self) -> int | None:
        """Return the trips until the condition fails, by running the counters."""
        state = self.starts
        for trips in range(_MOST_TRIPS):
            values: list[Any] = []
            for node in self.nodes:
                if node.op in ("constant", "element"):
                    values.append(node.detail if node.op == "constant" else state[node.detail])
                else:
                    values.append(_result(node, [values[i] for i in node.operands]))
            if not values[self.condition]:
                return trips
            before, state = state, {element: values[i] for element, i in self.updates.items()}
            if state == before:
                return None
        return None

    def counted(self) -> int | None:
        """Return the trips if the condition compares one counter with a constant step to a constant."""
        test = self.nodes[self.condition]
        if test.op != "compare":
            return None
        left, right, direction = *map(self._affine, test.operands), test.detail
        if left is not None and left.element is None:
            left, right, direction = right, left, _FLIPPED[direction]
        if left is None or right is None or left.element is None or right.element is not None:
            return None
        change = self._affine(self.updates[left.element])
        if change is None or change.element != left.element or len(set(change.types)) > 1:
            return None
        step, start, own = change.offset, int(self.starts[left.element]), change.types[0]
        if own.kind == "u" and step > np.iinfo(own).max // 2:
            step -= int(np.iinfo(own).max) + 1  # what an unsigned counter adds to count down
        trips = _distance(start + left.offset, right.offset, step, direction) if step else None
        if trips is None:
            return None
        ends = start, start + trips * step
        compared = (*ends, *(end + left.offset for end in ends))
        fits = all(_fits(end, own) for end in ends) and all(_fits(end, t) for t in left.types for end in compared)
        return trips if fits else None

    def _affine(self, at: int) -> _Affine | None:
        """Return a node as a carried value plus a constant; None if it has another form."""
        if at not in self._affines:  # a node may be an operand of many
            self._affines[at] = self._affine_of(self.nodes[at])
        return self._affines[at]

    def _affine_of(self, node: _Scalar) -> _Affine | None:
        if node.op == "constant":
            return _Affine(None, int(node.detail), ())
        if node.op == "element":
            if self.nodes[self.updates[node.detail]] == node:  # it stays what it was
                return _Affine(None, int(self.starts[node.detail]), ())
            return _Affine(node.detail, 0, (node.dtype,))
        if node.dtype.kind == "b" or node.op not in ("convert", "add", "subtract"):
            return None
        parts = [self._affine(operand) for operand in node.operands]
        if node.op == "add" and parts[0] is not None and parts[0].element is None:
            parts.reverse()
        left, right = parts[0], parts[1] if len(parts) > 1 else _Affine(None, 0, ())
        if left is None or right is None or right.element is not None:
            return None
        if node.op != "convert" and left.element is None:
            return None
        step = -right.offset if node.op == "subtract" else right.offset
        return _Affine(left.element, left.offset + step, (*left.types, node.dtype))


def _number(constant: Any, dtype: np.dtype[Any]) -> Any:
    """Return a constant of a type, from a number or HLO's text."""
    if isinstance(constant, str):
        constant = {"true": 1, "false": 0}.get(constant, constant[:_MOST_DIGITS])
    try:
        number = int(constant)
    except ValueError:
        raise _Data from None
    if not _fits(number, dtype):
        raise _Data
    return dtype.type(number)


def _fits(number: int, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "b":
        return number in (0, 1)
    return np.iinfo(dtype).min <= number <= np.iinfo(dtype).max


def _result(node: _Scalar, values: Sequence[Any]) -> Any:
    if node.op == "select":
        return values[1] if values[0] else values[2]
    if node.op == "convert":
        return values[0].astype(node.dtype)
    run = _COMPARED.get(node.detail) if node.op == "compare" else _RUN.get(node.op)
    if run is None or (node.dtype.kind == "b" and node.op not in _LOGICAL):
        raise _Data
    if node.op in ("divide", "remainder") and not values[1]:
        raise _Data
    return run(*values)


def _distance(start: int, limit: int, step: int, direction: str) -> int | None:
    """Return the steps from `start` until a comparison with `limit` fails; None if it never does."""
    distance = limit - start
    if direction == "NE":
        return distance // step if distance % step == 0 and distance // step >= 0 else None
    if direction == "EQ":
        return int(distance == 0)
    if direction in ("GT", "GE"):
        distance, step = -distance, -step
    if direction in ("LE", "GE"):
        distance += 1
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None


def _shifted(kind: str, number: Any, by: Any) -> Any:
    """Return the bits shifted to the right as those of a signed (`i`) or unsigned (`u`) number, of any type."""
    bits = np.dtype(f"{kind}{number.dtype.itemsize}")
    return (number.view(bits) >> by.view(bits)).view(number.dtype)


_RUN: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "negate": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "divide": lambda a, b: (a - np.fmod(a, b)) // b,
    "remainder": np.fmod,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift-left": np.left_shift,
    "shift-right-logical": partial(_shifted, "u"),
    "shift-right-arithmetic": partial(_shifted, "i"),
}
_LOGICAL = frozenset(("compare", "and", "or", "xor", "not", "minimum", "maximum"))
