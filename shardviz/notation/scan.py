"""A reader of text, one token at a time, that says where it stopped and what it wanted.

>>> it = Scanner("[{'a'}]", "HLO sharding")
>>> it.need("["), it.need("{"), it.quoted()
(None, None, 'a')
>>> it.need("]")
Traceback (most recent call last):
    ...
shardviz.errors.ParseError: HLO sharding "[{'a'}]": expected ']' at position 5, not '}]'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from shardviz.errors import ParseError

_SPACE = re.compile(r"(?:[ \t\r\n]|/\*.*?\*/)*", re.DOTALL)
_INTEGER = re.compile(r"[0-9]{1,18}(?![0-9])")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9.$-]*")
_QUOTED = re.compile(r"'([^'\n]*)'|\"((?:[^\"\\]|\\.)*)\"")
_BRACED = re.compile(rf"{_QUOTED.pattern}|[^{{}}'\"]+|.", re.DOTALL)
_SCALAR = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[-+.\w]+")
_HEX = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)

T = TypeVar("T")


class Scanner:
    """Text and a position in it. White space and `/* */` between tokens are passed over."""

    def __init__(self, text: str, what: str):
        self.text, self.what, self.at, self._last = text, what, 0, 0
        self._space()

    def _space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found is not None  # it matches nothing at all, too
        self.at = found.end()

    def fail(self, expected: str) -> NoReturn:
        """Raises a `ParseError` that says what was expected here."""
        rest = self.text[self.at : self.at + 20]
        given = self.text if len(self.text) <= 200 else self.text[:200] + "..."
        raise ParseError(
            f"{self.what} {given!r}: expected {expected} at position {self.at}, not {rest!r}"
            if rest
            else f"{self.what} {given!r}: expected {expected} at its end"
        )

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

    def takes(self, pattern: re.Pattern[str]) -> bool:
        """Passes over what the pattern finds here, if it finds anything."""
        found = pattern.match(self.text, self.at)
        if found is not None:
            self._last, self.at = self.at, found.end()
            self._space()
        return found is not None

    def need(self, literal: str) -> None:
        """Passes over this.

        Raises:
            ParseError: if the text goes on with something else.
        """
        if not self.take(literal):
            self.fail(repr(literal))

    def _match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        found = pattern.match(self.text, self.at)
        if found is None:
            self.fail(expected)
        self._last = self.at
        self.at = found.end()
        self._space()
        return found

    def integer(self) -> int:
        """A whole number."""
        return int(self._match(_INTEGER, "a whole number")[0])

    def word(self, expected: str = "a word") -> str:
        """A bare name."""
        return self._match(_WORD, expected)[0]

    def quoted(self) -> str:
        """A name in single quotes, or in double quotes with MLIR's escapes."""
        found = self._match(_QUOTED, "a name in quotes")
        name = found[1] if found[1] is not None else unescaped(found[2])
        if not name:
            self.fail("a name that is not empty")
        return name

    def integers(self, opened: str = "[", close: str = "]") -> tuple[int, ...]:
        """Whole numbers in brackets, with commas between them."""
        self.need(opened)
        return tuple(self.listed(self.integer, close))

    def scalar(self) -> str:
        """A bare word, number or quoted text, as it stands."""
        return self._match(_SCALAR, "a value")[0]

    def listed(self, item: Callable[[], T], close: str) -> list[T]:
        """Items with commas between them up to `close`, which is passed over."""
        found: list[T] = []
        if self.take(close):
            return found
        while True:
            found.append(item())
            if self.take(close):
                return found
            if not self.take(","):
                self.fail(f"',' or {close!r}")

    def balanced(self) -> str:
        """Text in braces, braces inside it and in quotes allowed for."""
        start, depth = self.at, 0
        for found in _BRACED.finditer(self.text, start) if self.sees("{") else ():
            depth += {"{": 1, "}": -1}.get(found[0], 0)
            if not depth:
                self.at = found.end()
                self._space()
                return self.text[start : found.end()]
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
