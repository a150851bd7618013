"""Text from outside, as every medium shows it: names may be of any length, steer a terminal, or run from right to left.

>>> told("a" * 1000) == "a" * 119 + "…", told("a\\u202eb")
(True, 'a�b')
>>> isolated("w"), isolated("\\u05d0") == "\\u2068\\u05d0\\u2069"
('w', True)
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_WORD, LONGEST = 120, 4000
"""Characters of a word, and of a whole text, that are shown; a longer one ends in `…`."""

_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
_STEERING = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def told(text: str) -> str:
    """The text with long words clipped, and `�` for each character that steers a terminal or the direction of text."""
    if len(text) > LONGEST_WORD:
        text = _WORD.sub(lambda word: word[0][: LONGEST_WORD - 1] + "…", text)
        text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return steerless(text)


def steerless(text: str) -> str:
    """The whole text, with `�` for each character that steers."""
    return _STEERING.sub("�", text)


def is_turned(text: str) -> bool:
    """Whether some of it runs from right to left."""
    return not text.isascii() and any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text)


def isolated(text: str) -> str:
    """The text between Unicode's isolates where some of it runs from right to left."""
    return f"\u2068{text}\u2069" if is_turned(text) else text
