"""A scanner that reads text one token at a time and reports the position and the expected token in its errors.

>>> scan = Scanner("[{'a'}]", "HLO sharding")
>>> scan.need("["), scan.need("{"), scan.quoted()
(None, None, 'a')
>>> scan.need("]")
Traceback (most recent call last):
    ...
shardviz.errors.ParseError: HLO sharding "[{'a'}]": expected ']' at position 5, not '}]'

HLO's V2 shardings, replica groups and the device orders of meshes write a list of devices as an *iota*: a count,
reshaped and transposed:

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

# These expressions take linear time. `*+`, `++` and `(?>...)` never backtrack, and an unclosed quote or comment is read
# to the end of the text only once. A group is repeated inside `(?>...)`, not by `(...)*+`, because before Python 3.11.5
# `(...)*+` keeps the text that a failed iteration had read.
_SPACE = re.compile(r"(?>(?:[ \t\r\n]++|/\*.*?\*/)*)", re.DOTALL)
_INTEGER = re.compile(rf"[0-9]{{1,{MOST_DIGITS}}}(?![0-9])")
_INTEGERS = re.compile(rf"{_INTEGER.pattern}(?>(?:\s*+,\s*+{_INTEGER.pattern})*)", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9.$-]*+")
_QUOTED = re.compile(r"'([^'\n]*+)'|\"((?>(?:[^\"\\]++|\\.)*))\"")
_BRACED = re.compile(r"'[^'\n]*+'|\"(?>(?:[^\"\\]++|\\.)*)(?:\"|\\?\Z)|[^{}'\"]++|.", re.DOTALL)
_HEX = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)

T = TypeVar("T")


class Scanner:
    """A text of at most `most` characters (None: any number) and a position in it; `what` names the text in messages.
    White space and `/* */` between tokens are skipped. Raises ParseError for a longer text."""

    def __init__(self, text: str, what: str, most: int | None = MOST_CHARACTERS):
        if most is not None:
            check_size(text, most, what, "characters")
        self.text, self.what, self.at, self._last = text, what, 0, 0
        self._space()

    @property
    def subject(self) -> str:
        """The text's name and its beginning, for messages."""
        return f"{self.what} {excerpt(self.text)!r}"

    def _space(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None  # the pattern also matches the empty string
        self.at = space.end()

    def fail(self, expected: str) -> NoReturn:
        """Raise a ParseError that states the `expected` token at this position."""
        rest = self.text[self.at : self.at + 20]
        where = f"at position {self.at}, not {rest!r}" if rest else "at its end"
        raise ParseError(f"{self.subject}: expected {expected} {where}")

    def refuse(self, expected: str, at: int | None = None) -> NoReturn:
        """Raise a ParseError that states the `expected` token at `at`, or at the start of the last token."""
        self.at = self._last if at is None else at
        self.fail(expected)

    def sees(self, literal: str) -> bool:
        """Return whether the text continues with `literal`."""
        return self.text.startswith(literal, self.at)

    def take(self, literal: str) -> bool:
        """Skip `literal` if the text continues with it; return whether it does."""
        if not self.sees(literal):
            return False
        self._last = self.at
        self.at += len(literal)
        self._space()
        return True

    def token(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a pattern at this position and skip the match; return None if it does not match."""
        match = pattern.match(self.text, self.at)
        if match is not None:
            self._last, self.at = self.at, match.end()
            self._space()
        return match

    def need(self, literal: str) -> None:
        """Skip `literal`; raise ParseError if the text continues with something else."""
        if not self.take(literal):
            self.fail(repr(literal))

    def _match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = self.token(pattern)
        return self.fail(expected) if match is None else match

    def integer(self) -> int:
        """Read a whole number."""
        return int(self._match(_INTEGER, "a whole number")[0])

    def word(self, expected: str = "a word") -> str:
        """Read a bare name."""
        return self._match(_WORD, expected)[0]

    def quoted(self) -> str:
        """Read a name in single quotes, or in double quotes with MLIR's escapes."""
        match = self._match(_QUOTED, "a name in quotes")
        name = match[1] if match[1] is not None else unescaped(match[2])
        if not name:
            self.fail("a name that is not empty")
        return name

    def numbers(self) -> list[int]:
        """Read one or more whole numbers with commas between them, thousands at a time."""
        numbers: list[int] = []
        while True:
            numbers += map(int, self._match(_INTEGERS, "a whole number")[0].split(","))
            if len(numbers) > MOST_DEVICES:
                self.refuse(f"at most {MOST_DEVICES} numbers")
            if not self.take(","):
                return numbers

    def integers(self, opened: str = "[", close: str = "]") -> tuple[int, ...]:
        """Read whole numbers in brackets, with commas between them."""
        self.need(opened)
        if self.take(close):
            return ()
        numbers = self.numbers()
        if not self.take(close):
            self.fail(f"',' or {close!r}")
        return tuple(numbers)

    def listed(self, item: Callable[[], T], close: str, most: int | None = None) -> list[T]:
        """Read up to `most` items, each by calling `item`, with commas between them, and the closing `close`."""
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
        """Read text in braces, which may contain braces and quoted braces."""
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
        """Raise ParseError unless the text ends here."""
        if self.at < len(self.text):
            self.fail("the end")


def unescaped(text: str) -> str:
    """Undo MLIR's escapes in the text between double quotes."""
    if "\\" not in text:
        return text
    data = _HEX.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], text)
    try:
        return data.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return data


def escaped(name: str) -> str:
    """Quote a name with MLIR's escapes: bytes that are not printable ASCII become hexadecimal digits."""
    return '"' + "".join(map(_escaped, name)) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter.isascii() and letter.isprintable():
        return letter
    return "".join(f"\\{byte:02X}" for byte in letter.encode())


def iota(reshape: Sequence[int], transpose: Sequence[int] = ()) -> np.ndarray:
    """Return 0, 1, 2, ... in the shape `reshape`, transposed and flattened; raise ParseError for an invalid shape."""
    if wrong := _wrong_shape(reshape) or _wrong_order(reshape, transpose):
        raise ParseError(f"iota {list(reshape[:33])} T {list(transpose[:33])}: expected {wrong}")
    values = np.arange(math.prod(reshape)).reshape(reshape)
    return (values.transpose(transpose) if transpose else values).ravel()


def read_iota(scan: Scanner) -> np.ndarray:
    """Read the devices of `[2,4]T(1,0)`; raise ParseError for other text."""
    start = scan.at
    reshape, order = scan.integers(), ()
    if wrong := _wrong_shape(reshape):
        scan.refuse(wrong, start)
    if scan.take("T"):
        start = scan.at
        order = scan.integers("(", ")")
        if wrong := "an order of dimensions" if not order else _wrong_order(reshape, order):
            scan.refuse(wrong, start)
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
    """Return the reshape and transpose whose `iota` is this list, with the fewest dimensions; None if there is none."""
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
    """Write `[2,4]T(1,0)`."""
    return f"[{','.join(map(str, reshape))}]T({','.join(map(str, transpose))})"


def levels(values: np.ndarray) -> list[tuple[int, int]] | None:
    """Return (size, stride) pairs, major to minor, that count through `values` up to a constant; None if none do."""
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
