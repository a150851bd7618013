"""What is different between two texts of one program, line by line, whatever its values are numbered.

A pass that puts one operation in numbers all that follow anew, so lines are compared without their numbers. Where a
stretch is different, lines of the same operation stand for each other, and what is new within a line is marked.

>>> old = ["%0 = a.sine %x : f32", "%1 = a.add %0, %0 : f32"]
>>> new = ["%0 = a.sine %x : f32", "%1 = a.gather %x : f32", "%2 = a.add %0, %0 {cut} : f32"]
>>> [(c.kind, c.text[c.marked[0]:c.marked[1]] if c.marked else "") for c in changes(old, new)]
[('same', ''), ('new', ''), ('other', '{cut} ')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Literal

_NUMBER = re.compile(r"(%(?:arg|cst|c)?)_?\d+(?:#\d+)?|(?<=[\w\]])\.\d+\b")
_OPERATION = re.compile(r'= "?([\w.]+)"?(?=[ (<\[{])|^\s*"?([\w.]+)"?')
_HLO_OPERATION = re.compile(r"= (?:\([^=]*?\)|[a-z0-9]+\[[^ ]*) ([\w-]+)\(")


@dataclass(frozen=True)
class LineChange:
    """A line of either text.

    Attributes:
        kind: `same` on both; `new` only in the later one; `gone` only in the earlier one; `other`: changed.
        place: its number in the later text, from 0; of one that is gone, that of the line it stood before.
        text: the line, of the later text where it is there.
        marked: where what is new in it begins and ends; None where all of it is as new as the line.
        was: the earlier text's line, of one that is changed.
    """

    kind: Literal["same", "new", "gone", "other"]
    place: int
    text: str
    marked: tuple[int, int] | None = None
    was: str = ""


def unnumbered(line: str) -> str:
    """A line without the numbers of its values."""
    return _NUMBER.sub(lambda number: number[1] or "", line)


def operation(line: str) -> str:
    """What a line does: `stablehlo.add`, `all-reduce`; of a line that is no operation its first word."""
    of_hlo = _HLO_OPERATION.search(line)
    if of_hlo is not None:
        return of_hlo[1]
    named = _OPERATION.search(line)
    return "" if named is None else named[1] or named[2]


def changes(old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """Both texts in one, in order."""
    one, other = [unnumbered(line) for line in old], [unnumbered(line) for line in new]
    lines: list[LineChange] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, one, other, autojunk=len(one) > 4000).get_opcodes():
        if tag == "equal":
            lines.extend(LineChange("same", j, new[j]) for j in range(j1, j2))
        else:
            lines.extend(_stretch(old, new, (i1, i2), (j1, j2)))
    return lines


def _stretch(
    old: Sequence[str], new: Sequence[str], ours: tuple[int, int], theirs: tuple[int, int]
) -> Iterator[LineChange]:
    """A stretch that is different: lines of one operation are one that has changed."""
    i0, j0 = ours[0], theirs[0]
    one, other = [operation(old[i]) for i in range(*ours)], [operation(new[j]) for j in range(*theirs)]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, one, other, autojunk=len(one) > 4000).get_opcodes():
        if tag == "equal":
            for i, j in zip(range(i0 + i1, i0 + i2), range(j0 + j1, j0 + j2), strict=True):
                if unnumbered(old[i]) == unnumbered(new[j]):
                    yield LineChange("same", j, new[j])
                else:
                    yield LineChange("other", j, new[j], _marked(old[i], new[j]), old[i])
            continue
        yield from (LineChange("gone", j0 + j1, old[i]) for i in range(i0 + i1, i0 + i2))
        yield from (LineChange("new", j, new[j]) for j in range(j0 + j1, j0 + j2))


def _marked(old: str, new: str) -> tuple[int, int]:
    """The stretch of a line in which it is another one, word by word, as numbers of values do not count."""
    before, after = (re.findall(r"\S+\s*|^\s+", line) for line in (old, new))
    pair = [[unnumbered(word) for word in words] for words in (before, after)]
    first = _common(*pair)
    same = _common(*(words[first:][::-1] for words in pair))
    start = sum(map(len, after[:first]))
    return start, max(start, len(new) - sum(map(len, after[len(after) - same :])))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words two lines have in common from the first on."""
    return sum(1 for _ in takewhile(lambda words: words[0] == words[1], zip(one, other, strict=False)))
