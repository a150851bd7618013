"""A reader of text, one token at a time, that says where it stopped and what it wanted.

>>> it = Scanner("[{'a'}]", "HLO sharding")
>>> it.need("["), it.need("{"), it.quoted()
(None, None, 'a')
>>> it.need("]")
Traceback (most recent call last):
    ...
shardviz.errors.ParseError: HLO sharding "[{'a'}]": expected ']' at position 5, not '}]'

HLO's V2 shardings, replica groups and the device orders of meshes write a list of devices as a count, reshaped and
transposed, an *iota*:

>>> read_iota(Scanner("[2,4]T(1,0)", "devices")).tolist(), iota_of([0, 4, 1, 5, 2, 6, 3, 7])
([0, 4, 1, 5, 2, 6, 3, 7], ((2, 4), (1, 0)))
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import numpy as np

from shardviz.errors import ParseError, excerpt
from shardviz.notation.bounds import MOST_AXES, MOST_CHARACTERS, MOST_DEVICES, MOST_DIGITS, MOST_NESTED, check_size

# No expression here goes back over what it has read: `*+`, `++` and `(?>...)` give nothing up, and what is opened and
# not closed is read to the end of the text once, not again from each of its characters. A group is repeated inside
# `(?>...)`, never by `(...)*+`: before Python 3.11.5 that one keeps what the iteration that failed had read.
_SPACE = re.compile(r"(?>(?:[ \t\r\n]++|/\*.*?\*/)*)", re.DOTALL)
_INTEGER = re.compile(rf"[0-9]{{1,{MOST_DIGITS}}}(?![0-9])")
_INTEGERS = re.compile(rf"{_INTEGER.pattern}(?>(?:\s*+,\s*+{_INTEGER.pattern})*)", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9.$-]*+")
_QUOTED = re.compile(r"'([^'\n]*+)'|\"((?>(?:[^\"\\]++|\\.)*))\"")
_BRACED = re.compile(r"'[^'\n]*+'|\"(?>(?:[^\"\\]++|\\.)*)(?:\"|\\?\Z)|[^{}'\"]++|.", re.DOTALL)
_HEX = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)

T = TypeVar("T")


class Scanner:
    """Text, of at most so many characters (None: any number), and a position in it; `what` it should be is for
    messages. White space and `/* */` between tokens are passed over. A `ParseError` where it is longer."""

    def __init__(self, text: str, what: str, most: int | None = MOST_CHARACTERS):
        if most is not None:
            check_size(text, most, what, "characters")
        self.text, self.what, self.at, self._last = text, what, 0, 0
        self._space()

    @property
    def subject(self) -> str:
        """What the text should be, and its beginning, for messages."""
        return f"{self.what} {excerpt(self.text)!r}"

    def _space(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None  # it matches nothing at all, too
        self.at = space.end()

    def fail(self, expected: str) -> NoReturn:
        """Raises a `ParseError` that says what was expected here."""
        rest = self.text[self.at : self.at + 20]
        where = f"at position {self.at}, not {rest!r}" if rest else "at its end"
        raise ParseError(f"{self.subject}: expected {expected} {where}")

    def refuse(self, expected: str, at: int | None = None) -> NoReturn:
        """Raises a `ParseError` that says what was expected at `at`, or in place of the token that was read last."""
        self.at = self._last if at is None else at
        self.fail(expected)

    def sees(self, literal: str) -> bool:
        """Whether the text goes on with this."""
        return self.text.startswith(literal, self.at)

    def take(self, literal: str) -> bool:
        """Passes over this, if the text goes on with it."""
        if not self.sees(literal):
            return False
        self._last = self.at
        self.at += len(literal)
        self._space()
        return True

    def token(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What the pattern finds here, which is passed over; None if it finds nothing."""
        match = pattern.match(self.text, self.at)
        if match is not None:
            self._last, self.at = self.at, match.end()
            self._space()
        return match

    def need(self, literal: str) -> None:
        """Passes over this; a `ParseError` where the text goes on with something else."""
        if not self.take(literal):
            self.fail(repr(literal))

    def _match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = self.token(pattern)
        return self.fail(expected) if match is None else match

    def integer(self) -> int:
        """A whole number."""
        return int(self._match(_INTEGER, "a whole number")[0])

    def word(self, expected: str = "a word") -> str:
        """A bare name."""
        return self._match(_WORD, expected)[0]

    def quoted(self) -> str:
        """A name in single quotes, or in double quotes with MLIR's escapes."""
        match = self._match(_QUOTED, "a name in quotes")
        name = match[1] if match[1] is not None else unescaped(match[2])
        if not name:
            self.fail("a name that is not empty")
        return name

    def numbers(self) -> list[int]:
        """One or more whole numbers with commas between them, thousands at a time."""
        numbers: list[int] = []
        while True:
            numbers += map(int, self._match(_INTEGERS, "a whole number")[0].split(","))
            if len(numbers) > MOST_DEVICES:
                self.refuse(f"at most {MOST_DEVICES} numbers")
            if not self.take(","):
                return numbers

    def integers(self, opened: str = "[", close: str = "]") -> tuple[int, ...]:
        """Whole numbers in brackets, with commas between them."""
        self.need(opened)
        if self.take(close):
            return ()
        numbers = self.numbers()
        if not self.take(close):
            self.fail(f"',' or {close!r}")
        return tuple(numbers)

    def listed(self, item: Callable[[], T], close: str, most: int | None = None) -> list[T]:
        """Items, each read by `item`, with commas between them up to `close`, which is passed over; at most so many."""
        items: list[T] = []
        if self.take(close):
            return items
        while True:
            if len(items) == most:
                self.fail(f"at most {most} of these, and then {close!r}")
            items.append(item())
            if self.take(close):
                return items
            if not self.take(","):
                self.fail(f"',' or {close!r}")

    def balanced(self) -> str:
        """Text in braces, braces inside it and in quotes allowed for."""
        start, depth = self.at, 0
        for token in _BRACED.finditer(self.text, start) if self.sees("{") else ():
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            if depth > MOST_NESTED:
                self.refuse(f"braces at most {MOST_NESTED} deep", token.start())
            if not depth:
                self.at = token.end()
                self._space()
                return self.text[start : token.end()]
        self.fail("'{' with its '}'")

    def end(self) -> None:
        """The text has to end here."""
        if self.at < len(self.text):
            self.fail("the end")


def unescaped(text: str) -> str:
    """What stands between double quotes in MLIR's text, its escapes undone."""
    if "\\" not in text:
        return text
    data = _HEX.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], text)
    try:
        return data.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return data


def escaped(name: str) -> str:
    """A name in double quotes with MLIR's escapes: bytes that are no printable ASCII by their hexadecimal digits."""
    return '"' + "".join(map(_escaped, name)) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter.isascii() and letter.isprintable():
        return letter
    return "".join(f"\\{byte:02X}" for byte in letter.encode())


def iota(reshape: Sequence[int], transpose: Sequence[int] = ()) -> np.ndarray:
    """0, 1, 2, ... in the shape `reshape`, its dimensions in the order `transpose`, made flat; a `ParseError` where
    these make no devices, or too many."""
    if wrong := _wrong_shape(reshape) or _wrong_order(reshape, transpose):
        raise ParseError(f"iota {list(reshape[:33])} T {list(transpose[:33])}: expected {wrong}")
    values = np.arange(math.prod(reshape)).reshape(reshape)
    return (values.transpose(transpose) if transpose else values).ravel()


def read_iota(it: Scanner) -> np.ndarray:
    """The devices of `[2,4]T(1,0)`; a `ParseError` where the text goes on with something else."""
    start = it.at
    reshape, order = it.integers(), ()
    if wrong := _wrong_shape(reshape):
        it.refuse(wrong, start)
    if it.take("T"):
        start = it.at
        order = it.integers("(", ")")
        if wrong := "an order of dimensions" if not order else _wrong_order(reshape, order):
            it.refuse(wrong, start)
    return iota(reshape, order)


def _wrong_shape(reshape: Sequence[int]) -> str:
    if len(reshape) > MOST_AXES:
        return f"an iota of at most {MOST_AXES} dimensions"
    if not reshape or 0 in reshape or math.prod(reshape) > MOST_DEVICES:
        return f"an iota of 1 to {MOST_DEVICES} devices"
    return ""


def _wrong_order(reshape: Sequence[int], order: Sequence[int]) -> str:
    if not order or sorted(order) == list(range(len(reshape))):
        return ""
    return f"an order of the iota's {len(reshape)} dimensions, 0 to {len(reshape) - 1}"


def iota_of(devices: Sequence[int] | np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The fewest dimensions whose iota, transposed, is this list: reshape and transpose, as `iota` takes them; None for
    none."""
    values = np.asarray(devices, np.int64)
    if len(values) == 1:
        return (1,), (0,)
    nest = levels(values)
    if nest is None or values[0] != 0:
        return None
    order = sorted(range(len(nest)), key=lambda i: -nest[i][1])  # by stride, large to small: the reshape
    reshape = tuple(nest[i][0] for i in order)
    transpose = tuple(order.index(i) for i in range(len(nest)))
    again = np.arange(len(values)).reshape(reshape).transpose(transpose).ravel()
    return (reshape, transpose) if np.array_equal(again, values) else None


def iota_text(reshape: Sequence[int], transpose: Sequence[int]) -> str:
    """`[2,4]T(1,0)`."""
    return f"[{','.join(map(str, reshape))}]T({','.join(map(str, transpose))})"


def levels(values: np.ndarray) -> list[tuple[int, int]] | None:
    """(size, stride) pairs, major to minor, whose nested count makes `values` but for a constant; None where none."""
    nest: list[tuple[int, int]] = []
    rest = values - values[0]
    while len(rest) > 1:
        stride = int(rest[1])
        if stride <= 0:
            return None
        uneven = np.flatnonzero(rest != np.arange(len(rest)) * stride)
        size = int(uneven[0]) if len(uneven) else len(rest)
        if len(rest) % size:
            return None
        table = rest.reshape(-1, size)
        if not np.array_equal(table, table[:, :1] + np.arange(size) * stride):
            return None
        nest.append((size, stride))
        rest = table[:, 0]
    return nest[::-1]
