"""How many trips a loop makes, from the arithmetic of its counters; HLO and StableHLO share it.

A reader tells of each scalar how it is made (`Scalar`): a constant, an element of what the loop carries, or an
operation on other scalars. From the loop's condition `trips_of` finds the elements that decide, and how a trip changes
each. Here the elements 0 and 1 go from (1, 100) by doubling the one and counting the other down, while 0 < 1:

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

Where one counter goes by a constant to a constant, the number follows at once; else the counters alone are run, for
some thousand trips at most. Whole numbers wrap around as their type does. Of floating-point numbers only exact results
count: others may differ between chips, and with the precision that a compiler keeps.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

_MOST_TRIPS = 8192  # that are run
_MOST_OPERATIONS = 128
_FLIPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE", "EQ": "EQ"}
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}
_FLOATS = {"float16": (11, -14), "bfloat16": (8, -126), "float32": (24, -126), "float64": (53, -1022)}

Number = int | Fraction


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
        The number; None where it hangs on data, where the loop does not end, or where it cannot be told in bounds.
    """
    try:
        loop = _Loop(scalar, condition, update, start)
    except _Data:
        return None
    found = loop.counted()
    return loop.ran() if found is None else found


class _Data(Exception):
    """A value that arithmetic on constants does not give."""


class _Node(NamedTuple):
    op: str
    kind: _Kind
    operands: tuple[int, ...]
    detail: Any


class _Affine(NamedTuple):
    """An element plus a constant, or a constant alone; and the types in which it has to fit."""

    element: Any
    offset: Number
    kinds: tuple[_Kind, ...]
    added: tuple[Number, ...] = ()


class _Loop:
    """A loop's condition and the updates that it needs, in the order in which they are computed."""

    def __init__(self, scalar: Any, condition: Any, update: Any, start: Any):
        self._scalar, self._known = scalar, dict[Any, int]()
        self.nodes: list[_Node] = []
        self.updates: dict[Any, int] = {}
        self.starts: dict[Any, Number] = {}
        self.condition = self._read(condition)
        while missing := [n.detail for n in self.nodes if n.op == "element" and n.detail not in self.updates]:
            for element in missing:
                if element not in self.updates:
                    first = self.nodes[self._read(start(element))]
                    if first.op != "constant":
                        raise _Data
                    self.starts[element] = first.detail
                    self.updates[element] = self._read(update(element))

    def _read(self, value: Any) -> int:
        if value in self._known:
            return self._known[value]
        made = None if value is None else self._scalar(value)
        if made is None or len(self._known) >= _MOST_OPERATIONS:
            raise _Data
        kind = _kind(made.dtype)
        operands = tuple(self._read(operand) for operand in made.operands)
        if kind is None or (made.op in ("constant", "element")) != (not operands):
            raise _Data
        node = _Node(made.op, kind, operands, kind.read(made.detail) if made.op == "constant" else made.detail)
        given = [self.nodes[i] for i in operands]
        if operands and all(g.op == "constant" for g in given):
            node = _Node("constant", kind, (), _result(node, [g.kind for g in given], [g.detail for g in given]))
        if node.op == "constant" and node.detail is None:
            raise _Data
        self.nodes.append(node)
        self._known[value] = len(self.nodes) - 1
        return self._known[value]

    def ran(self) -> int | None:
        """The trips until the condition does not hold, by running the counters."""
        state = self.starts
        kinds = [[self.nodes[i].kind for i in node.operands] for node in self.nodes]
        for trips in range(_MOST_TRIPS):
            values: list[Number | None] = []
            for node, given in zip(self.nodes, kinds, strict=True):
                if node.op == "constant":
                    values.append(node.detail)
                elif node.op == "element":
                    values.append(state[node.detail])
                else:
                    values.append(_result(node, given, [values[i] for i in node.operands]))
            if not values[self.condition]:
                return None if values[self.condition] is None else trips
            before, state = state, {element: values[i] for element, i in self.updates.items()}
            if state == before:
                return None
        return None

    def counted(self) -> int | None:
        """The trips where the condition compares one counter, that goes by a constant, with a constant."""
        test = self.nodes[self.condition]
        if test.op != "compare":
            return None
        left, right, direction = *map(self._affine, test.operands), test.detail
        if left is not None and left.element is None:
            left, right, direction = right, left, _FLIPPED[direction]
        if left is None or right is None or left.element is None or right.element is not None:
            return None
        change = self._affine(self.updates[left.element])
        if change is None or change.element != left.element or len(set(change.kinds)) > 1:
            return None
        kind, step, start = self._kind(left.element), change.offset, self.starts[left.element]
        if not kind.precision and not kind.low and step > kind.high // 2:
            step -= kind.high + 1  # what an unsigned counter adds to count down
        trips = _distance(start + left.offset, right.offset, step, direction) if step else None
        if trips is None:
            return None
        ends = start, start + trips * step
        compared = tuple(e + left.offset for e in ends)
        steps = (*change.added, *left.added)
        fits = kind.spans(ends, steps) and all(k.spans((*ends, *compared), steps) for k in left.kinds)
        return trips if fits else None

    def _kind(self, element: Any) -> _Kind:
        return next(n.kind for n in self.nodes if n.op == "element" and n.detail == element)

    def _affine(self, at: int) -> _Affine | None:
        node = self.nodes[at]
        if node.op == "constant":
            return _Affine(None, node.detail, ())
        if node.op == "element":
            if self.nodes[self.updates[node.detail]] == node:  # it stays what it was
                return _Affine(None, self.starts[node.detail], ())
            return _Affine(node.detail, 0, (node.kind,))
        if node.op == "convert":
            found, given = self._affine(node.operands[0]), self.nodes[node.operands[0]].kind
            cuts = (given.precision and not node.kind.precision) or node.kind.is_bool
            return None if found is None or cuts else found._replace(kinds=(*found.kinds, node.kind))
        if node.op not in ("add", "subtract"):
            return None
        if (left := self._affine(node.operands[0])) is None or (right := self._affine(node.operands[1])) is None:
            return None
        if node.op == "add" and left.element is None:
            left, right = right, left
        if right.element is not None or left.element is None:
            return None
        sign = 1 if node.op == "add" else -1
        step = sign * right.offset
        return _Affine(left.element, left.offset + step, (*left.kinds, node.kind), (*left.added, step))


def _distance(start: Number, limit: Number, step: Number, direction: str) -> int | None:
    """The steps from `start` until a comparison with `limit` does not hold; None where it always will."""
    distance = limit - start
    if direction == "NE":
        return int(distance // step) if distance % step == 0 and distance // step >= 0 else None
    if direction == "EQ":
        return int(distance == 0)
    if direction in ("GT", "GE"):
        distance, step = -distance, -step
    holds = distance >= 0 if direction in ("LE", "GE") else distance > 0
    if not holds:
        return 0
    if step <= 0:
        return None
    return int(distance // step) + 1 if direction in ("LE", "GE") else -int(-distance // step)


class _Kind(NamedTuple):
    """A type: of whole numbers from `low` to `high`, or of floating-point ones with `precision` bits."""

    low: int
    high: int
    precision: int = 0
    least: int = 0

    @property
    def is_bool(self) -> bool:
        return (self.low, self.high) == (0, 1)

    @property
    def bits(self) -> int:
        return (self.high - self.low).bit_length()

    def read(self, given: Number | float | bool | str) -> Number | None:
        """A constant of this type, from a number or HLO's text."""
        try:
            if isinstance(given, str):
                given = {"true": "1", "false": "0"}.get(given, given)
                given = float(given) if self.precision else int(given) if len(given) < 30 else math.inf
            number = Fraction(given)
            _, power = math.frexp(number)
        except (ValueError, OverflowError):  # no number, none that is finite
            return None
        if not self.precision:
            return int(number) if number.denominator == 1 and self.low <= number <= self.high else None
        if not number:
            return number
        # the nearest that the type has: a text has as many digits as tell it apart from its neighbours
        unit = Fraction(2) ** (power - self.precision)
        return self.exact(round(number / unit) * unit)

    def exact(self, number: Number) -> Number | None:
        """The number, if the type has exactly that one, and no subnormal one."""
        if not self.precision:
            return number if self.low <= number <= self.high else None
        number = Fraction(number)
        return number if not number or self.spans((number, number), ()) else None

    def spans(self, ends: tuple[Number, ...], steps: tuple[Number, ...]) -> bool:
        """Whether all numbers from one end to another, by these steps, are exact; whole numbers may wrap between."""
        if not self.precision:
            return all(self.low <= e <= self.high for e in ends)
        parts = [Fraction(x) for x in (*ends, *steps) if x]
        if not parts:
            return True
        if any(x.denominator & (x.denominator - 1) for x in parts):
            return False
        unit = min(Fraction(x.numerator & -x.numerator, x.denominator) for x in parts)
        most = max(abs(x) for x in ends) + sum(abs(x) for x in steps)
        smallest = Fraction(2) ** self.least
        return unit >= smallest and most <= unit * 2**self.precision and most < 4 / smallest


@lru_cache(maxsize=64)
def _kind(dtype: str) -> _Kind | None:
    if dtype == "bool":
        return _Kind(0, 1)
    if dtype in _FLOATS:
        precision, power = _FLOATS[dtype]
        return _Kind(0, 0, precision, power)
    name = dtype.rstrip("0123456789")
    if name not in ("int", "uint") or not dtype[len(name) :].isascii() or dtype[len(name) :] not in _WIDTHS:
        return None
    bits = int(dtype[len(name) :])
    return _Kind(-(1 << bits - 1), (1 << bits - 1) - 1) if name == "int" else _Kind(0, (1 << bits) - 1)


_WIDTHS = ("2", "4", "8", "16", "32", "64")


def _result(node: _Node, kinds: list[_Kind], values: list[Any]) -> Number | None:
    """What an operation gives on constants; None where that is not exact, or not known."""
    op, kind = node.op, node.kind
    if None in values:
        return None
    if op == "select" and len(values) == 3:
        return values[1] if values[0] else values[2]
    if op == "compare" and len(values) == 2 and node.detail in _COMPARED:
        return int(_COMPARED[node.detail](*values))
    if op == "convert" and len(values) == 1:
        return _converted(values[0], kinds[0], kind)
    if len(values) != _OPERANDS.get(op):
        return None
    if kind.precision:
        return kind.exact(_FLOAT[op](*map(Fraction, values))) if op in _FLOAT and _divides(op, values) else None
    if kind.is_bool and op not in _LOGICAL:
        return None
    if op in ("divide", "remainder") and not values[1]:
        return None
    if op.startswith("shift-") and not 0 <= values[1] < kind.bits:
        return None
    if op == "shift-right-logical":
        values = [values[0] % (1 << kind.bits), values[1]]
    if op == "shift-right-arithmetic" and not kind.low:
        values = [_wrapped(values[0], _Kind(-(kind.high // 2) - 1, kind.high // 2)), values[1]]
    return _wrapped(_WHOLE[op](*values), kind)


def _wrapped(number: int, kind: _Kind) -> int:
    return (number - kind.low) % (kind.high - kind.low + 1) + kind.low


def _converted(number: Number, given: _Kind, wanted: _Kind) -> Number | None:
    if wanted.is_bool:
        return int(number != 0)
    if wanted.precision:
        return wanted.exact(Fraction(number))
    if given.precision:
        return wanted.exact(int(number))
    return _wrapped(int(number), wanted)


def _divides(op: str, values: list[Any]) -> bool:
    """Whether all chips agree: a division by a power of two is a product."""
    divisor = abs(Fraction(values[-1]))
    return op != "divide" or (
        bool(divisor)
        and not (divisor.numerator & (divisor.numerator - 1) or divisor.denominator & (divisor.denominator - 1))
    )


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _sign(a: Number) -> int:
    return (a > 0) - (a < 0)


_BOTH: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "minimum": min,
    "maximum": max,
    "negate": operator.neg,
    "abs": abs,
    "sign": _sign,
}
_FLOAT = _BOTH | {"divide": operator.truediv}
_WHOLE = _BOTH | {
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
_LOGICAL = ("and", "or", "xor", "not", "minimum", "maximum")
_OPERANDS = {op: 1 if op in ("negate", "abs", "sign", "not") else 2 for op in _WHOLE}
