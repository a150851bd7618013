"""Text in columns of a terminal, where a wide character (Chinese, Japanese, Korean, an emoji) takes two columns.

>>> text_width("data"), text_width("模型"), text_width("e\u0301")
(4, 4, 1)
>>> clip("模型并行", 6), pad("模型", 6, "right"), wrap("模型 data", 5)
('模型…', '  模型', ['模型', 'data'])
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import wcwidth


def text_width(text: str) -> int:
    """Return the number of columns of a text: two for a wide character, none for a combining accent."""
    return len(text) if text.isascii() else wcwidth.width(text, control_codes="ignore")


def clip(text: str, width: int) -> str:
    """Return the text on one line of at most `width` columns; a clipped text ends in `…`."""
    line = " ".join(text.split()) if width > 0 else ""
    return line if text_width(line) <= width else wcwidth.clip(line, 0, width - 1, fillchar="") + "…"


def pad(text: str, width: int, side: str = "left") -> str:
    """Pad the text with spaces to `width` columns, flush `left`, flush `right`, or in the `middle`."""
    room = max(0, width - text_width(text))
    before = {"left": 0, "right": room, "middle": room // 2}[side]
    return " " * before + text + " " * (room - before)


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap the text into lines of at most `width` columns; `indent` precedes all lines but the first."""
    split = textwrap.wrap if text.isascii() else wcwidth.wrap
    return split(text, width, subsequent_indent=indent)


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows of text as lines with aligned columns; the columns in `right` are flush right."""
    if not rows:
        return []
    widths = [max(text_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    sides = ["right" if i in right else "left" for i in range(len(widths))]
    return ["  ".join(map(pad, row, widths, sides)).rstrip() for row in rows]
