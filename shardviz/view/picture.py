"""A picture as plain geometry: shapes whose looks are roles, to be painted by any medium.

A role is a number, the place of a mesh axis in its mesh (each axis has one colour everywhere), or a word: `ink`,
`quiet`, `line`, `ground`, `tile`, `shade` (a tile of another host), `muted` (what belongs to no axis), `held0` to
`held7` (what of an array a device holds, from its first slice to its last), `more` and `less` (than another plan), a
phase of the step. A painter knows
colours and fonts; a builder knows neither. Lengths are pixels of a page, y runs downwards.

>>> tiles = Rects(x=(0, 20), y=(0, 0), wide=16, high=16, fill=0, hatch=0, labels=("0", "1"), tip="device {}",
...               told=(("0",), ("1",)), select="device", keys=((0,), (1,)))
>>> picture = Picture(width=36, height=16, shapes=(tiles,), title="two chips", alt="two chips", axes=("data",))
>>> tiles.tips
['device 0', 'device 1']
>>> picture.to_json()["shapes"][0]["fill"], picture.to_json()["shapes"][0]["x"]
(0, [0, 20])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from shardviz.errors import ShardvizError
from shardviz.kept import cached_property

Json = Any
Role = int | str
Point = tuple[float, float]

DASHES = ((), (5, 2.5), (1.5, 2.5), (8, 2.5, 1.5, 2.5), (2.5, 5), (11, 4))
"""Pixels drawn and left out, of the lines of the first mesh axis, the second and so on: the second cue."""

HATCHES = ("M0 6L6 0", "M0 0L6 6", "M3 1V2M3 4V5", "M0 0L6 6M0 6L6 0", "M3 0V6", "M0 3H6", "M3 0V6M0 3H6", "M1 3H5")
"""Strokes, as SVG's `d` in a square of 6 pixels, over the fill of the first mesh axis, the second and so on."""

SIZES = {"small": 9.5, "normal": 11.5, "head": 14.5}
"""Pixels of letters."""


def dash_of(place: int | None) -> int | None:
    """The dash of a mesh axis by its place in the mesh; None, a full line, for None."""
    return None if place is None else place % len(DASHES)


def pixels(size: str | float) -> float:
    """The pixels of letters of a size."""
    return SIZES[size] if isinstance(size, str) else size


def text_wide(text: str, size: str = "normal") -> float:
    """About how many pixels a text takes."""
    return len(text) * SIZES[size] * 0.62


@dataclass(frozen=True, kw_only=True)
class Rects:
    """Equal or like rectangles: chips, cells, bars.

    Attributes:
        x, y: their left upper corners.
        wide, high: of all, or of each.
        fill: what they are filled with; None for nothing.
        strength: how strong the fill is, 0 to 1.
        stroke: their outline; None for none.
        hatch: the number of the strokes over the fill, the second cue; None for none. Without a fill they are quiet.
        dash: the number of the outline's dash.
        corner: the radius of their corners.
        labels: what stands in the middle of each; empty for nothing in any.
        tip: what is said of each when it is pointed at, with `{}` for each of its parts; empty for nothing.
        told: the parts, for each.
        select: what clicking selects, such as `device`; empty for nothing.
        keys: which, for each; of several the next one with every click.
        layer: shapes of higher layers lie over those of lower ones.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    wide: float | tuple[float, ...]
    high: float | tuple[float, ...]
    fill: Role | None = None
    strength: float = 1.0
    stroke: Role | None = None
    hatch: int | None = None
    dash: int | None = None
    corner: float = 0.0
    labels: tuple[str, ...] = ()
    tip: str = ""
    told: tuple[tuple[str, ...], ...] = ()
    select: str = ""
    keys: tuple[tuple[int, ...], ...] = ()
    layer: int = 0

    @property
    def boxes(self) -> Iterable[tuple[float, float, float, float]]:
        """x, y, width and height of each."""
        wide = self.wide if isinstance(self.wide, tuple) else (self.wide,) * len(self.x)
        high = self.high if isinstance(self.high, tuple) else (self.high,) * len(self.x)
        return zip(self.x, self.y, wide, high, strict=True)

    def only(self, numbers: list[int]) -> Rects:
        """Some of them."""
        each = {
            field.name: tuple(value[n] for n in numbers)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), tuple) and value
        }
        return dataclasses.replace(self, **each)

    @property
    def tips(self) -> list[str]:
        """What is said of each."""
        return [self.tip.format(*parts) for parts in self.told]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines of the same look: links, outlines, roofs.

    Attributes:
        lines: the points of each; of a curved one four: the start, two that it bends towards, the end.
        stroke: their colour.
        strength: how strong it is, 0 to 1.
        width: pixels.
        dash: the number of its dash; None for a full line.
        closed: whether the end is joined to the start.
        curved: whether they are cubic curves.
        fill: what closed ones are filled with.
        tip: what is said when one is pointed at.
        name: the key of the legend that it belongs to.
        layer: as of `Rects`.
    """

    lines: tuple[tuple[Point, ...], ...]
    stroke: Role | None = "line"
    strength: float = 1.0
    width: float = 1.0
    dash: int | None = None
    closed: bool = False
    curved: bool = False
    fill: Role | None = None
    tip: str = ""
    name: str = ""
    layer: int = 0


@dataclass(frozen=True, kw_only=True)
class Marks:
    """Points with a mark: `circle`, `square`, `diamond`, `up`, `down`, `plus`.

    Attributes:
        at: their middles.
        mark: which.
        size: from one end to the other.
        fill, stroke: their looks.
        tip, name, layer: as of `Lines`.
    """

    at: tuple[Point, ...]
    mark: str = "circle"
    size: float = 10.0
    fill: Role | None = "ink"
    stroke: Role | None = None
    tip: str = ""
    name: str = ""
    layer: int = 0


MARKS = ("circle", "square", "diamond", "up", "down", "plus")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Texts.

    Attributes:
        at: where each begins, has its middle or ends, on the height of its middle.
        texts: what they say.
        align: `start`, `middle` or `end`.
        size: `small`, `normal` or `head`, or pixels.
        ink: their colour.
        bold, mono: the sort of letters.
        turned: whether they read upwards.
        halo: whether the ground shows around the letters, where they stand over lines.
        name, layer: as of `Lines`.
    """

    at: tuple[Point, ...]
    texts: tuple[str, ...]
    align: str = "start"
    size: str | float = "normal"
    ink: Role = "ink"
    bold: bool = False
    mono: bool = False
    turned: bool = False
    halo: bool = False
    name: str = ""
    layer: int = 0


Shape = Rects | Lines | Marks | Labels


@dataclass(frozen=True, kw_only=True)
class Key:
    """A line of the legend: a sample, and what it stands for.

    Attributes:
        text: what it stands for.
        more: what else is to be said, in quiet letters.
        fill, hatch: of a sample that is a patch.
        stroke, dash, mark: of a sample that is a line, with a mark on it.
        name: the shapes that it is the key of.
        title: what is said when it is pointed at.
    """

    text: str
    more: str = ""
    fill: Role | None = None
    hatch: int | None = None
    stroke: Role | None = None
    dash: int | None = None
    mark: str = ""
    name: str = ""
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Shapes, with a title, a legend and notes, which every painter sets in its own way.

    Attributes:
        width, height: of the room that the shapes take.
        shapes: from the lowest to the highest of each layer.
        title: what it shows.
        alt: the picture in words.
        axes: the names of the mesh axes, which roles count.
        keys: the legend.
        notes: sentences below.
    """

    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str = ""
    alt: str = ""
    axes: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    notes: tuple[str, ...] = ()

    def over(self, other: Picture) -> Picture:
        """This picture with the shapes of another on it, layer by layer, and its keys and notes.

        Of rectangles with the same key only the last one stays.
        """
        seen: set[int] = set()
        shapes: list[Shape] = []
        for shape in reversed((*self.shapes, *other.shapes)):
            if isinstance(shape, Rects) and shape.keys:
                shown = [n for n, keys in enumerate(shape.keys) if keys[0] not in seen]
                seen |= {keys[0] for keys in shape.keys}
                shape = shape.only(shown)
            shapes.append(shape)
        return dataclasses.replace(
            self,
            shapes=tuple(reversed(shapes)),
            keys=(*self.keys, *other.keys),
            notes=(*self.notes, *other.notes),
        )

    @cached_property
    def ordered(self) -> tuple[Shape, ...]:
        """The shapes in the order in which they are painted."""
        return tuple(sorted(self.shapes, key=lambda shape: shape.layer))

    def to_json(self) -> Json:
        """What the page paints: fields that are as by default left out, tips as numbers of words."""
        return {
            "width": _short(self.width),
            "height": _short(self.height),
            "title": self.title,
            "alt": self.alt,
            "axes": list(self.axes),
            "shapes": [_fields(shape) for shape in self.ordered],
            "keys": [_fields(key) for key in self.keys],
            "notes": list(self.notes),
        }


def shortened(text: str, most: int = 24) -> str:
    """A text of at most so many letters, the last of them `…` where it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def beside(pictures: Sequence[Picture], gap: float = 36.0) -> Picture:
    """Pictures side by side, each with its title above it."""
    shapes: list[Shape] = []
    x, top, high = 0.0, 24.0, 0.0
    for each in pictures:
        shapes.append(Labels(at=((x, 8.0),), texts=(each.title,)))
        shapes += [shifted(shape, x, top) for shape in each.shapes]
        x += max(each.width, text_wide(each.title)) + gap
        high = max(high, each.height)
    return Picture(width=max(x - gap, 1.0), height=top + high, shapes=tuple(shapes))


def shifted(shape: Shape, dx: float, dy: float) -> Shape:
    """A shape so much further to the right and down."""
    if isinstance(shape, Rects):
        return dataclasses.replace(shape, x=tuple(x + dx for x in shape.x), y=tuple(y + dy for y in shape.y))
    if isinstance(shape, Lines):
        moved = tuple(tuple((x + dx, y + dy) for x, y in line) for line in shape.lines)
        return dataclasses.replace(shape, lines=moved)
    return dataclasses.replace(shape, at=tuple((x + dx, y + dy) for x, y in shape.at))


@singledispatch
def picture(subject: Any, kind: str = "") -> Picture:
    """The Picture of a subject, by the builder that is registered for its type.

    Args:
        subject: what is shown.
        kind: which of its pictures, where it has several.

    Raises:
        ShardvizError: if there is no such picture.
    """
    raise ShardvizError(f"nothing here draws a {type(subject).__name__}")


def _fields(shape: Shape | Key) -> Json:
    """The fields of a shape that are not as by default; its dash and its hatch as what is drawn."""
    found: Json = {"kind": type(shape).__name__.lower()}
    for field in dataclasses.fields(shape):
        value = getattr(shape, field.name)
        if value == field.default:
            continue
        if field.name == "dash":
            if DASHES[value]:
                found["dash"] = " ".join(f"{n:g}" for n in DASHES[value])
        elif field.name == "hatch":
            found["hatch"] = HATCHES[value % len(HATCHES)]
        elif field.name == "told":
            words = {word: n for n, word in enumerate(dict.fromkeys(word for parts in value for word in parts))}
            found["words"], found["told"] = list(words), [words[word] for parts in value for word in parts]
        elif field.name == "lines":
            found["lines"] = [_short(sum(line, ())) for line in value]
        else:
            found[field.name] = _short(value)
    return found


def _short(value: Any) -> Any:
    """Numbers with one decimal, if any; all else as it is."""
    if isinstance(value, float):
        rounded = round(value, 1) if abs(value) > 1 else round(value, 3)
        return int(rounded) if rounded == int(rounded) else rounded
    return [_short(each) for each in value] if isinstance(value, tuple) else value
