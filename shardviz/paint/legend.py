"""What stands below a Picture in a medium without a page around it: its legend and its notes, wrapped.

>>> from shardviz.view.picture import Key, Picture
>>> picture = Picture(width=200, height=10, shapes=(), keys=(Key(text="data", fill=0),), notes=("a note",))
>>> [(row.text, row.left, row.key is not None) for row in rows_of(picture, 200)]
[('data', 42.0, True), ('a note', 0.0, False)]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shardviz.paint.columns import wrap
from shardviz.view.picture import Key, Picture, text_wide

LEAST_WIDE, PAD, HEAD, GAP = 620.0, 16.0, 34.0, 8.0
"""Pixels: the least width of a figure with words below it; around it, for its title, and before those words."""
_LINE, _SAMPLE = 17.0, 42.0


class Row(NamedTuple):
    """A line below the shapes: of the legend, with the key whose sample stands before it, or of a note."""

    height: float
    text: str
    left: float = 0.0
    quiet: bool = True
    key: Key | None = None


def rows_of(picture: Picture, wide: float) -> list[Row]:
    """The legend and the notes, in lines of at most so many pixels."""
    return list(_rows(picture, wide))


def width_of(picture: Picture) -> float:
    """Pixels across of the picture with its words."""
    least = LEAST_WIDE if picture.keys or picture.notes else 0.0
    return max(picture.width, least, text_wide(picture.title, "head"))


def size_of(picture: Picture) -> tuple[float, float]:
    """Pixels across and down of the picture with its words."""
    wide = width_of(picture)
    rows = rows_of(picture, wide)
    return wide, picture.height + sum(row.height for row in rows) + GAP * bool(rows)


def _rows(picture: Picture, wide: float) -> Iterator[Row]:
    letter = text_wide("x")
    for key in picture.keys:
        for number, text in enumerate(wrap(key.text, int((wide - _SAMPLE) / letter)) or [""]):
            yield Row(_LINE, text, _SAMPLE, quiet=False, key=None if number else key)
        for text in wrap(key.more, int((wide - _SAMPLE) / letter)):
            yield Row(_LINE - 2, text, _SAMPLE)
    for note in picture.notes:
        for text in wrap(note, int(wide / letter)):
            yield Row(_LINE, text)
