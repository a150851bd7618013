"""What stands below a Picture in a medium without a page around it: its legend and its notes, wrapped, as more shapes.

>>> from shardviz.view.picture import LegendKey, Picture
>>> picture = Picture(width=200, height=10, shapes=(), keys=(LegendKey(text="data", fill=0),), notes=("a note",))
>>> shapes, size = with_words(picture)
>>> [shape.texts for shape in shapes if isinstance(shape, Labels)], size
([('data',), ('a note',)], (620.0, 52.0))
"""

from __future__ import annotations

from collections.abc import Iterator

from shardviz.paint.columns import wrap
from shardviz.view.picture import Drawn, Labels, LegendKey, Lines, Picture, Rects, shifted, text_wide

LEAST_WIDE, PAD, HEAD, GAP = 620.0, 16.0, 34.0, 8.0
"""Pixels: the least width of a figure with words below it; around it, for its title, and before those words."""
_LINE, _SAMPLE = 17.0, 42.0


def with_words(picture: Picture) -> tuple[list[Drawn], tuple[float, float]]:
    """The picture's shapes with its legend and notes below them, and the width and height of the whole."""
    least = LEAST_WIDE if picture.keys or picture.notes else 0.0
    wide = max(picture.width, least, text_wide(picture.title, "head"))
    shapes, y = list(picture.ordered), picture.height
    for number, (key, text, high) in enumerate(_lines(picture, wide)):
        y += 0 if number else GAP
        shapes += _line(key, text, y + high / 2)
        y += high
    return shapes, (wide, y)


def _lines(picture: Picture, wide: float) -> Iterator[tuple[LegendKey | None, Labels, float]]:
    """The lines of the legend, the first of each key with it, and of the notes; with how high each is."""
    letter = text_wide("x")
    for key in picture.keys:
        most = int((wide - _SAMPLE) / letter)
        for number, text in enumerate(wrap(key.text, most) or [""]):
            yield None if number else key, Labels(at=((_SAMPLE, 0.0),), texts=(text,)), _LINE
    for note in picture.notes:
        for text in wrap(note, int(wide / letter)):
            yield None, Labels(at=((0.0, 0.0),), texts=(text,), ink="quiet"), _LINE


def _line(key: LegendKey | None, text: Labels, y: float) -> Iterator[Drawn]:
    """A line at its height, with the sample of its key."""
    if key is not None and key.fill is not None:
        yield Rects(x=(9,), y=(y - 6,), wide=12, high=12, fill=key.fill, hatch=key.hatch, stroke="line")
    if key is not None and key.stroke is not None:
        yield Lines(lines=(((0, y), (32, y)),), stroke=key.stroke, dash=key.dash, width=2.2)
    yield shifted(text, 0.0, y)  # type: ignore[misc]
