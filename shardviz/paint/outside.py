"""Text from outside, made safe for every medium: names may be too long, control a terminal, or run from right to left.

>>> shown("a" * 1000) == "a" * 119 + "…", shown("a\\u202eb")
(True, 'a�b')
>>> isolated("w"), isolated("\\u05d0") == "\\u2068\\u05d0\\u2069"
('w', True)
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_WORD, LONGEST = 120, 4000
"""The most characters shown of a word, and of a text; a longer one ends in `…`."""

_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """Clip long words, and replace each character that controls a terminal or the direction of text by `�`."""
    if len(text) > LONGEST_WORD:
        text = _WORD.sub(lambda word: word[0][: LONGEST_WORD - 1] + "…", text)
        text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return uncontrolled(text)


def uncontrolled(text: str) -> str:
    """Replace each control character by `�`, without clipping."""
    return _CONTROL.sub("�", text)


def is_right_to_left(text: str) -> bool:
    """Return whether any of the text runs from right to left."""
    return not text.isascii() and any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text)


def isolated(text: str) -> str:
    """Return the text between Unicode's isolates if any of it runs from right to left."""
    return f"\u2068{text}\u2069" if is_right_to_left(text) else text
