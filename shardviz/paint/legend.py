"""A Picture's legend and notes as wrapped lines of shapes below it, for media without a page around the Picture.

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
"""Pixels: the least width of a figure with a legend; the margin; the title's height; the gap before the legend."""
_LINE, _SAMPLE = 17.0, 42.0


def with_words(picture: Picture) -> tuple[list[Drawn], tuple[float, float]]:
    """Return the picture's shapes with its legend and notes below, and the total width and height."""
    least = LEAST_WIDE if picture.keys or picture.notes else 0.0
    wide = max(picture.width, least, text_wide(picture.title, "head"))
    shapes, y = list(picture.ordered), picture.height
    for number, (key, text, high) in enumerate(_lines(picture, wide)):
        y += 0 if number else GAP
        shapes += _line(key, text, y + high / 2)
        y += high
    return shapes, (wide, y)


def _lines(picture: Picture, wide: float) -> Iterator[tuple[LegendKey | None, Labels, float]]:
    """Yield (key, text, height) for each line of the legend and the notes; only the first line of a key has the key."""
    letter = text_wide("x")
    for key in picture.keys:
        most = int((wide - _SAMPLE) / letter)
        for number, text in enumerate(wrap(key.text, most) or [""]):
            yield None if number else key, Labels(at=((_SAMPLE, 0.0),), texts=(text,)), _LINE
    for note in picture.notes:
        for text in wrap(note, int(wide / letter)):
            yield None, Labels(at=((0.0, 0.0),), texts=(text,), ink="quiet"), _LINE


def _line(key: LegendKey | None, text: Labels, y: float) -> Iterator[Drawn]:
    if key is not None and key.fill is not None:
        yield Rects(x=(9,), y=(y - 6,), wide=12, high=12, fill=key.fill, hatch=key.hatch, stroke="line")
    if key is not None and key.stroke is not None:
        yield Lines(lines=(((0, y), (32, y)),), stroke=key.stroke, dash=key.dash, width=2.2)
    yield shifted(text, 0.0, y)  # type: ignore[misc]
