"""Numbers for people: bytes, counts, shapes, each with its unit and three significant digits.

Bytes are decimal (SI): 1 kB is 1000 bytes, 1 MB is 1000 kB.

>>> format_bytes(33_554_432), format_bytes(512), format_bytes(None)
('33.6 MB', '512 B', 'not known')
>>> format_count(1234567), format_flops(2.5e15), format_shape((8192, 64))
('1,234,567', '2.50 PFLOP', '[8192, 64]')
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from functools import cache

NOT_KNOWN = "not known"
COUNT_NOT_KNOWN = "count not known"
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


def _scaled(number: float, unit: str) -> str:
    power = 0
    while abs(number) >= 999.5 and power < len(_PREFIXES) - 1:
        number /= 1000
        power += 1
    if power == 0 and float(number).is_integer():
        return f"{number:.0f} {unit}"
    decimals = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{decimals}f} {_PREFIXES[power]}{unit}"


def format_bytes(nbytes: float | None) -> str:
    """A number of bytes with a decimal (SI) unit and three significant digits.

    Args:
        nbytes: bytes; None where they are not known.

    Returns:
        Text such as `33.6 MB`; below 1 kB the exact number.
    """
    return NOT_KNOWN if nbytes is None else _scaled(nbytes, "B")


def format_flops(flops: float | None) -> str:
    """A number of floating-point operations, such as `2.50 PFLOP`; `not known` for None."""
    return NOT_KNOWN if flops is None else _scaled(flops, "FLOP")


def format_seconds(seconds: float | None) -> str:
    """A time, such as `3.00 s`, `10.4 ms` or `5.20 µs`; `not known` for None."""
    if seconds is None:
        return NOT_KNOWN
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if seconds * factor >= 0.9995 or unit == "ns":
            value = seconds * factor
            decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{decimals}f} {unit}" if value else "0 s"
    raise AssertionError


def format_count(count: int | None) -> str:
    """A count with thousands marked, such as `1,280`; `count not known` for None."""
    return COUNT_NOT_KNOWN if count is None else f"{count:,}"


def format_shape(shape: Sequence[int] | None) -> str:
    """A shape, such as `[8192, 64]`; `not known` for None."""
    return NOT_KNOWN if shape is None else "[" + ", ".join(map(str, shape)) + "]"


def plural(count: int, noun: str) -> str:
    """`1 device`, `8 devices`, with thousands marked."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def clip(text: str, width: int) -> str:
    """The text on one line of at most `width` columns, its end replaced by `…` where it is longer."""
    text = " ".join(text.split())
    if text_width(text) <= width:
        return text
    while text and text_width(text) > width - 1:
        text = text[:-1]
    return text + "…" if width > 0 else ""


def text_width(text: str) -> int:
    """Columns of a terminal that the text takes: two for a wide character (Chinese, Japanese, Korean), none for marks.

    >>> text_width("data"), text_width("模型"), text_width("e\u0301")
    (4, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


@cache
def _columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, width: int, side: str = "left") -> str:
    """The text filled up with spaces to `width` columns, flush `left`, flush `right`, or in the `middle`."""
    room = max(0, width - text_width(text))
    before = {"left": 0, "right": room, "middle": room // 2}[side]
    return " " * before + text + " " * (room - before)


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines of at most `width` columns, those after the first with `indent` before them."""
    wide = {c for c in set(text) if not c.isascii() and _columns(c) == 2}
    if wide:  # each stands with a filler, so that textwrap counts two; a break between them costs a column
        text, width = "".join(c + _FILLER if c in wide else c for c in text), width - 1
    lines = textwrap.wrap(text, width, subsequent_indent=indent)
    return [line.replace(_FILLER, "") for line in lines] if wide else lines


_FILLER = "\ue000"
