"""How many trips a loop makes, from the integer arithmetic of its counters.

A reader tells how each scalar is made (`Scalar`): a constant, an element that the loop carries, or an operation on
other scalars. From the loop's condition `trips_of` finds the elements that decide, and how a trip changes each. Here
elements 0 and 1 start at (1, 100); a trip doubles the one and counts the other down, while element 0 < element 1:

>>> program = {
...     "a": Scalar("element", "uint8", detail=0),
...     "b": Scalar("element", "uint8", detail=1),
...     "one": Scalar("constant", "uint8", detail=1),
...     "hundred": Scalar("constant", "uint8", detail=100),
...     "a+a": Scalar("add", "uint8", ("a", "a")),
...     "b-1": Scalar("subtract", "uint8", ("b", "one")),
...     "a<b": Scalar("compare", "bool", ("a", "b"), "LT"),
... }
>>> trips_of(program.get, "a<b", update={0: "a+a", 1: "b-1"}.get, start={0: "one", 1: "hundred"}.get)
7

Where one counter steps by a constant up or down to a constant, the number follows at once. Else the counters are run,
for some thousand trips at most. Integers wrap around as their type does. Floating-point counters, which may round
otherwise on another chip, are not followed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

_MOST_TRIPS = 8192  # that are run
_MOST_OPERATIONS = 128
_MOST_DIGITS = 30  # of a constant; what has more is beyond any type even if it is cut there
_FLIPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE", "EQ": "EQ"}
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """How a scalar is made.

    Attributes:
        op: `constant`, `element` (of what the loop carries), or one of HLO's opcodes, such as `shift-left`.
        dtype: NumPy's name of its type.
        operands: what the reader calls the operands.
        detail: a constant's number, or its text; which element; a comparison's direction.
    """

    op: str
    dtype: str
    operands: tuple[Hashable, ...] = ()
    detail: Any = None


def trips_of(
    scalar: Callable[[Any], Scalar | None],
    condition: Hashable,
    update: Callable[[Any], Hashable],
    start: Callable[[Any], Hashable],
) -> int | None:
    """How many trips a loop makes whose condition is asked before each.

    Args:
        scalar: what the reader calls a value → how it is made; None for what is data, or no scalar.
        condition: the condition's result.
        update: an element that the loop carries → its value after a trip.
        start: the element → its value before the first trip.

    Returns:
        The number; None where it depends on data or on floating-point numbers, where the loop does not end, or where
        the counters would have to be run for too long.
    """
    try:
        loop = _Loop(scalar, condition, update, start)
    except _Data:
        return None
    trips = loop.counted()
    return loop.ran() if trips is None else trips


class _Data(Exception):
    """A value that integer arithmetic on constants does not give."""


class _Range(NamedTuple):
    """The integers that a type has."""

    low: int
    high: int

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.low <= number <= self.high

    @property
    def bits(self) -> int:
        return (self.high - self.low).bit_length()

    def wrapped(self, number: int) -> int:
        return (number - self.low) % (self.high - self.low + 1) + self.low

    def read(self, constant: Any) -> int:
        """A constant of this type, from a number or HLO's text."""
        if isinstance(constant, str):
            constant = {"true": 1, "false": 0}.get(constant, constant[:_MOST_DIGITS])
        try:
            number = int(constant)
        except ValueError:
            raise _Data from None
        if number not in self:
            raise _Data
        return number


class _Node(NamedTuple):
    op: str
    range: _Range
    operands: tuple[int, ...]
    detail: Any


class _Affine(NamedTuple):
    """An element plus a constant, or a constant alone (`element` is None); and the types that it passes through."""

    element: Any
    offset: int
    ranges: tuple[_Range, ...]


class _Loop:
    """A loop's condition and the updates that it needs, in the order in which they are computed."""

    def __init__(self, scalar: Any, condition: Any, update: Any, start: Any):
        self._scalar, self._numbers = scalar, dict[Any, int]()
        self.nodes: list[_Node] = []
        self.updates: dict[Any, int] = {}
        self.starts: dict[Any, int] = {}
        self.condition = self._read(condition)
        while missing := [n.detail for n in self.nodes if n.op == "element" and n.detail not in self.updates]:
            for element in dict.fromkeys(missing):
                first = self.nodes[self._read(start(element))]
                if first.op != "constant":
                    raise _Data
                self.starts[element] = first.detail
                self.updates[element] = self._read(update(element))

    def _read(self, value: Any) -> int:
        if value in self._numbers:
            return self._numbers[value]
        made = None if value is None else self._scalar(value)
        if made is None or len(self._numbers) >= _MOST_OPERATIONS:
            raise _Data
        numbers = _range(made.dtype)
        operands = tuple(self._read(operand) for operand in made.operands)
        if numbers is None or (made.op in ("constant", "element")) != (not operands):
            raise _Data
        node = _Node(made.op, numbers, operands, numbers.read(made.detail) if made.op == "constant" else made.detail)
        if operands and all(self.nodes[i].op == "constant" for i in operands):
            node = _Node("constant", numbers, (), self._result(node, [self.nodes[i].detail for i in operands]))
            if node.detail is None:
                raise _Data
        self.nodes.append(node)
        self._numbers[value] = len(self.nodes) - 1
        return self._numbers[value]

    def ran(self) -> int | None:
        """The trips until the condition does not hold, by running the counters."""
        state = self.starts
        for trips in range(_MOST_TRIPS):
            values: list[int | None] = []
            for node in self.nodes:
                if node.op == "constant":
                    values.append(node.detail)
                elif node.op == "element":
                    values.append(state[node.detail])
                else:
                    values.append(self._result(node, [values[i] for i in node.operands]))
            if not values[self.condition]:
                return None if values[self.condition] is None else trips
            before, state = state, {element: values[i] for element, i in self.updates.items()}
            if state == before:
                return None
        return None

    def counted(self) -> int | None:
        """The trips where the condition compares one counter, that steps by a constant, with a constant."""
        test = self.nodes[self.condition]
        if test.op != "compare":
            return None
        left, right, direction = *map(self._affine, test.operands), test.detail
        if left is not None and left.element is None:
            left, right, direction = right, left, _FLIPPED[direction]
        if left is None or right is None or left.element is None or right.element is not None:
            return None
        change = self._affine(self.updates[left.element])
        if change is None or change.element != left.element or len(set(change.ranges)) > 1:
            return None
        numbers = next(n.range for n in self.nodes if n.op == "element" and n.detail == left.element)
        step, start = change.offset, self.starts[left.element]
        if not numbers.low and step > numbers.high // 2:
            step -= numbers.high + 1  # what an unsigned counter adds to count down
        trips = _distance(start + left.offset, right.offset, step, direction) if step else None
        if trips is None:
            return None
        ends = start, start + trips * step
        compared = (*ends, *(end + left.offset for end in ends))
        fits = all(end in numbers for end in ends) and all(end in r for r in left.ranges for end in compared)
        return trips if fits else None

    def _affine(self, at: int) -> _Affine | None:
        node = self.nodes[at]
        if node.op == "constant":
            return _Affine(None, node.detail, ())
        if node.op == "element":
            if self.nodes[self.updates[node.detail]] == node:  # it stays what it was
                return _Affine(None, self.starts[node.detail], ())
            return _Affine(node.detail, 0, (node.range,))
        if node.op == "convert":
            given = self._affine(node.operands[0])
            return None if given is None or node.range == _BOOL else given._replace(ranges=(*given.ranges, node.range))
        if node.op not in ("add", "subtract"):
            return None
        left, right = map(self._affine, node.operands)
        if left is None or right is None:
            return None
        if node.op == "add" and left.element is None:
            left, right = right, left
        if right.element is not None or left.element is None:
            return None
        step = right.offset if node.op == "add" else -right.offset
        return _Affine(left.element, left.offset + step, (*left.ranges, node.range))

    def _result(self, node: _Node, values: list[int | None]) -> int | None:
        """What an operation gives on numbers; None where that is not known."""
        op, numbers = node.op, node.range
        if None in values:
            return None
        if op == "select" and len(values) == 3:
            return values[1] if values[0] else values[2]
        if op == "compare" and len(values) == 2 and node.detail in _COMPARED:
            return int(_COMPARED[node.detail](*values))  # type: ignore[arg-type]
        if op == "convert" and len(values) == 1:
            return int(values[0] != 0) if numbers == _BOOL else numbers.wrapped(values[0])  # type: ignore[arg-type]
        if len(values) != _OPERANDS.get(op) or (numbers == _BOOL and op not in _LOGICAL):
            return None
        first, last = values[0], values[-1]
        if op in ("divide", "remainder") and not last:
            return None
        if op.startswith("shift-") and last not in _Range(0, numbers.bits - 1):
            return None
        if op == "shift-right-logical" and first is not None:
            values[0] = first % (1 << numbers.bits)
        if op == "shift-right-arithmetic" and not numbers.low and first is not None:
            values[0] = _Range(-(numbers.high // 2) - 1, numbers.high // 2).wrapped(first)
        return numbers.wrapped(_WHOLE[op](*values))


def _distance(start: int, limit: int, step: int, direction: str) -> int | None:
    """The steps from `start` until a comparison with `limit` does not hold; None where it always will."""
    distance = limit - start
    if direction == "NE":
        return distance // step if distance % step == 0 and distance // step >= 0 else None
    if direction == "EQ":
        return int(distance == 0)
    if direction in ("GT", "GE"):
        distance, step = -distance, -step
    holds = distance >= 0 if direction in ("LE", "GE") else distance > 0
    if not holds:
        return 0
    if step <= 0:
        return None
    return distance // step + 1 if direction in ("LE", "GE") else -(-distance // step)


_BOOL = _Range(0, 1)
_WIDTHS = frozenset(("2", "4", "8", "16", "32", "64"))


@lru_cache(maxsize=64)
def _range(dtype: str) -> _Range | None:
    if dtype == "bool":
        return _BOOL
    name = dtype.rstrip("0123456789")
    if name not in ("int", "uint") or dtype[len(name) :] not in _WIDTHS:
        return None
    bits = int(dtype[len(name) :])
    return _Range(-(1 << bits - 1), (1 << bits - 1) - 1) if name == "int" else _Range(0, (1 << bits) - 1)


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_WHOLE: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "minimum": min,
    "maximum": max,
    "negate": operator.neg,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "divide": _quotient,
    "remainder": lambda a, b: a - b * _quotient(a, b),
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "shift-left": operator.lshift,
    "shift-right-logical": operator.rshift,
    "shift-right-arithmetic": operator.rshift,
}
_LOGICAL = frozenset(("and", "or", "xor", "not", "minimum", "maximum"))
_OPERANDS = {op: 1 if op in ("negate", "abs", "sign", "not") else 2 for op in _WHOLE}
