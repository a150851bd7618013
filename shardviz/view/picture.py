"""A picture as plain geometry: shapes whose looks are roles, to be painted by any medium.

A role is a number, the place of a mesh axis in its mesh (each axis has one colour everywhere), or a word: `ink`,
`quiet`, `line`, `ground`, `tile`, `shade` (a tile of another host), `muted` (what belongs to no axis), a phase of the
step. A painter knows colours and fonts; a builder knows neither. Lengths are pixels of a page, y runs downwards.

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
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from shardviz.caching import cached_property
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.view.document import shorten

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
        selects: what a click on each does, as `Piece.selects`; empty for nothing.
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
    selects: tuple[tuple[str, str] | None, ...] = ()
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
        lines: the points of each.
        stroke: their colour.
        strength: how strong it is, 0 to 1.
        width: pixels.
        dash: the number of its dash; None for a full line.
        closed: whether the end is joined to the start.
        fill: what closed ones are filled with.
        tip: what is said when one is pointed at.
        layer: as of `Rects`.
    """

    lines: tuple[tuple[Point, ...], ...]
    stroke: Role | None = "line"
    strength: float = 1.0
    width: float = 1.0
    dash: int | None = None
    closed: bool = False
    fill: Role | None = None
    tip: str = ""
    layer: int = 0


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
        layer: as of `Rects`.
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
    layer: int = 0


@dataclass(frozen=True, kw_only=True)
class Head:
    """A band along a side of a `Grid`, the coordinates of a mesh axis: what each stretch says, and along how many cells
    it runs; its fill and hatch (`role`)."""

    spans: tuple[tuple[str, int], ...]
    role: int
    name: str

    @property
    def wide(self) -> float:
        """Pixels that it takes beside a grid, where its texts stand upright."""
        return max(_BAR, 6.2 * max(len(text) for text, _ in self.spans))


_BAR, _GAP = 19.0, 5.0  # the thickness of a head, and the space beside it
SMALLEST = 7.4
"""Pixels of the smallest letters in cells that can be read."""
LETTERS = 12.0
"""Pixels of the smallest letters on the explorer's page."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cells in rows and columns, with heads above and beside them: a table where a medium has tables.

    Attributes:
        texts: what each cell says, row by row.
        wide, high: of a cell.
        x, y: the left upper corner of the first cell.
        size: pixels of the letters in cells.
        stroke, dash: the cells' outlines.
        cards: what the cells behind each cell are filled with, which show beyond its right and lower edge.
        copies: how many cells stand in the place of each, where more than one.
        above, beside: the heads, from the outermost to the innermost.
        columns, rows: the names of the columns and rows, which drawings leave to the tips; may be empty.
        across, down: what runs along the columns, and along the rows; may be empty.
        caption: what the whole is; may be empty.
        past: the share of each column, and of each row, that lies beyond the end of things and is hatched.
        tip, told, select, keys: as of `Rects`, row by row; the first of the parts says most.
    """

    texts: tuple[tuple[str, ...], ...]
    wide: float
    high: float
    x: float = 0.0
    y: float = 0.0
    size: float = 9.0
    stroke: Role = "line"
    dash: int | None = None
    cards: tuple[Role, ...] = ()
    copies: int = 1
    above: tuple[Head, ...] = ()
    beside: tuple[Head, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    across: str = ""
    down: str = ""
    caption: str = ""
    past: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    tip: str = ""
    told: tuple[tuple[str, ...], ...] = ()
    select: str = ""
    keys: tuple[tuple[int, ...], ...] = ()
    layer: int = 1

    @property
    def left(self) -> float:
        """Pixels that the heads beside the cells take."""
        return 26.0 * bool(self.down) + sum(head.wide + _GAP for head in self.beside)

    @property
    def top(self) -> float:
        """Pixels that the heads above the cells take."""
        return 24.0 * bool(self.across) + (_BAR + _GAP) * len(self.above)

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Row and column of each cell, row by row."""
        return [(r, c) for r, row in enumerate(self.texts) for c in range(len(row))]

    @property
    def tips(self) -> list[str]:
        """What is said of each cell."""
        return [self.tip.format(*parts) for parts in self.told]

    @property
    def card(self) -> float:
        """Pixels by which each card shows beyond the one before it."""
        return min(5.0, 0.2 * min(self.wide, self.high) / len(self.cards)) if self.cards else 0.0

    @property
    def inner(self) -> tuple[float, float]:
        """Width and height of a cell without the room for its cards and between them."""
        spare = self.card * (len(self.cards) + 1) if self.cards else 0.0
        return self.wide - spare, self.high - spare

    @property
    def parts(self) -> Iterator[Rects | Lines | Labels]:
        """The same in rectangles, lines and texts, for a medium that draws."""
        for number, role in reversed(list(enumerate(self.cards, 1))):
            strength = 0.75 if isinstance(role, int) else 1.0
            yield dataclasses.replace(self._rects(number * self.card), fill=role, strength=strength)
        shared = {"tip": self.tip, "told": self.told, "select": self.select, "keys": self.keys}
        yield dataclasses.replace(self._rects(), fill="tile", **shared)
        yield from self._hatched()
        yield from self._texts()
        yield from self._heads(self.above, len(self.texts[0]), self.wide, self.across, upright=False)
        yield from self._heads(self.beside, len(self.texts), self.high, self.down, upright=True)
        if self.caption:
            at = self.x + len(self.texts[0]) * self.wide / 2, self.y + len(self.texts) * self.high + 14
            yield Labels(at=(at,), texts=(self.caption,), align="middle", ink="quiet")

    def _rects(self, off: float = 0.0) -> Rects:
        """The cells' outlines, so many pixels further right and down."""
        x, y = zip(*((self.x + c * self.wide + off, self.y + r * self.high + off) for r, c in self.cells), strict=True)
        wide, high = self.inner
        return Rects(x=x, y=y, wide=wide, high=high, stroke=self.stroke, dash=self.dash, layer=self.layer)

    def _hatched(self) -> Iterator[Rects]:
        """Hatches over what of the cells lies beyond the end."""
        (wide, high), across, down = self.inner, len(self.texts[0]), len(self.texts)
        look: dict[str, Any] = {"hatch": 0, "layer": self.layer + 1}
        for column, share in enumerate(self.past[0]):
            if share:
                x, y = self.x + column * self.wide + (1 - share) * wide, (self.y + r * self.high for r in range(down))
                yield Rects(x=(x,) * down, y=tuple(y), wide=share * wide, high=high, **look)
        for row, share in enumerate(self.past[1]):
            if share:
                y, x = self.y + row * self.high + (1 - share) * high, (self.x + c * self.wide for c in range(across))
                yield Rects(x=tuple(x), y=(y,) * across, wide=wide, high=share * high, **look)

    def _texts(self) -> Iterator[Labels]:
        """What the cells say."""
        (wide, high), kinds = self.inner, {}
        for r, c in self.cells:
            hatched = any(share[n] for share, n in zip(self.past, (c, r), strict=True) if share)
            at = self.x + c * self.wide + wide / 2, self.y + r * self.high + high / 2
            kinds.setdefault(hatched, []).append((at, self.texts[r][c]))
        for hatched, places in kinds.items():
            at, texts = zip(*places, strict=True)
            look = {"halo": hatched, "layer": self.layer + 2}
            yield Labels(at=at, texts=texts, align="middle", size=self.size, mono=True, **look)

    def _heads(
        self, heads: Sequence[Head], count: int, cell: float, name: str, *, upright: bool
    ) -> Iterator[Rects | Labels]:
        """Heads along a side of so many cells, the innermost nearest to them, and the side's name."""
        off, (x, y) = 0.0, (self.x, self.y)
        for head in reversed(heads):
            thick = head.wide if upright else _BAR
            off += thick + _GAP
            ends = [*itertools.accumulate((n for _, n in head.spans), initial=0)]
            along = [(start * cell + 1, (end - start) * cell - 2) for start, end in itertools.pairwise(ends)]
            boxes = [(x - off, y + a, thick, n) if upright else (x + a, y - off, n, thick) for a, n in along]
            xs, ys, wide, high = zip(*boxes, strict=True)
            labels = tuple(
                text if min(1.5 * box[2] / len(text), box[3]) >= SMALLEST else ""
                for box, (text, _) in zip(boxes, head.spans, strict=True)
            )
            look = {"fill": head.role, "hatch": head.role, "labels": labels, "layer": self.layer + 1}
            yield Rects(x=xs, y=ys, wide=wide, high=high, **look)
        if name:
            text = shorten(name, max(16, int(count * cell / text_wide("x"))))
            at = (x - off - 11, y + count * cell / 2) if upright else (x + count * cell / 2, y - off - 10)
            yield Labels(at=(at,), texts=(text,), align="middle", ink="quiet", turned=upright)


Drawn = Rects | Lines | Labels
"""What a medium that draws knows."""
Shape = Drawn | Grid


@dataclass(frozen=True, kw_only=True)
class LegendKey:
    """A line of the legend: a sample, a patch (`fill`, `hatch`) or a line (`stroke`, `dash`), and what it is."""

    text: str
    fill: Role | None = None
    hatch: int | None = None
    stroke: Role | None = None
    dash: int | None = None


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
        coarser: what gives the same with at most so many rows, columns and grids, where there is a `Grid` in it.
    """

    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str = ""
    alt: str = ""
    axes: tuple[str, ...] = ()
    keys: tuple[LegendKey, ...] = ()
    notes: tuple[str, ...] = ()
    coarser: Callable[[int, int, int], Picture] | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def grids(self) -> list[Grid]:
        return [shape for shape in self.shapes if isinstance(shape, Grid)]

    def fitted(self, fits: Callable[[Picture], bool]) -> Picture:
        """The finest of what `coarser` gives that fits; the coarsest where none does."""
        drawn = self
        for limits in LIMITS if self.coarser is not None else ():
            if fits(drawn):
                break
            drawn = self.coarser(*limits)  # type: ignore[misc]
        return drawn

    def within(self, room: tuple[float, float], letters: float = SMALLEST) -> Picture:
        """The finest whose cells have such letters at least where it is made to fit so many pixels across and down."""

        def reads(drawn: Picture) -> bool:
            scale = min(1.0, room[0] / drawn.width, room[1] / drawn.height)
            return (scale == 1 or letters < LETTERS) and all(grid.size * scale > letters - 0.01 for grid in drawn.grids)

        return self.fitted(reads)

    def over(self, other: Picture) -> Picture:
        """This picture with the shapes, keys and notes of another on it, layer by layer; of rectangles with the same
        key the last one stays."""
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
    def ordered(self) -> tuple[Drawn, ...]:
        """The shapes in the order in which they are drawn, grids in their parts."""
        shapes = (part for shape in self.shapes for part in (shape.parts if isinstance(shape, Grid) else (shape,)))
        return tuple(sorted(shapes, key=lambda shape: shape.layer))

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


LIMITS = tuple(
    (rows, columns, grids)
    for grids in (16, 4, 1)
    for rows, columns in (
        *((64, 32), (32, 32), (64, 16), (32, 16), (32, 8), (16, 8), (16, 4), (8, 4), (16, 2), (8, 2)),
        *((16, 1), (8, 1), (4, 2), (4, 1), (2, 1), (1, 1)),
    )
)
"""Rows, columns and grids, from many to few, that `Picture.coarser` is tried with."""


def group_along(mesh: DeviceMesh, place: int, axis: int) -> list[int]:
    """The places of a mesh that differ from this one along one axis only, and it."""
    at: list[Any] = list(np.unravel_index(place, mesh.sizes))
    at[axis] = slice(None)
    return np.arange(mesh.size).reshape(mesh.sizes)[tuple(at)].tolist()


def shifted(shape: Shape, dx: float, dy: float) -> Shape:
    """A shape so much further to the right and down."""
    if isinstance(shape, Rects):
        return dataclasses.replace(shape, x=tuple(x + dx for x in shape.x), y=tuple(y + dy for y in shape.y))
    if isinstance(shape, Grid):
        return dataclasses.replace(shape, x=shape.x + dx, y=shape.y + dy)
    if isinstance(shape, Lines):
        moved = tuple(tuple((x + dx, y + dy) for x, y in line) for line in shape.lines)
        return dataclasses.replace(shape, lines=moved)
    return dataclasses.replace(shape, at=tuple((x + dx, y + dy) for x, y in shape.at))


@singledispatch
def picture(subject: Any) -> Picture:
    """The Picture of a subject, by the builder that is registered for its type; a `ShardvizError` where there is
    none."""
    raise ShardvizError(f"shardviz cannot draw a {type(subject).__name__}")


def _fields(shape: Drawn | LegendKey) -> Json:
    """The fields of a shape that are not as by default; its dash and its hatch as what is drawn."""
    fields: Json = {"kind": type(shape).__name__.lower()}
    for field in dataclasses.fields(shape):
        value = getattr(shape, field.name)
        if value == field.default:
            continue
        if field.name == "dash":
            if DASHES[value]:
                fields["dash"] = " ".join(f"{n:g}" for n in DASHES[value])
        elif field.name == "hatch":
            fields["hatch"] = HATCHES[value % len(HATCHES)]
        elif field.name == "told":
            words = {word: n for n, word in enumerate(dict.fromkeys(word for parts in value for word in parts))}
            fields["words"], fields["told"] = list(words), [words[word] for parts in value for word in parts]
        elif field.name == "lines":
            fields["lines"] = [_short(sum(line, ())) for line in value]
        else:
            fields[field.name] = _short(value)
    return fields


def _short(value: Any) -> Any:
    """Numbers with one decimal, if any; all else as it is."""
    if isinstance(value, float):
        rounded = round(value, 1) if abs(value) > 1 else round(value, 3)
        return int(rounded) if rounded == int(rounded) else rounded
    return [_short(each) for each in value] if isinstance(value, tuple) else value
