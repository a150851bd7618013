"""A picture as plain geometry: shapes with roles as looks, for any medium to paint.

A role is the position of a mesh axis in its mesh (each axis has one colour everywhere) or a word: `ink`, `quiet`,
`line`, `ground`, `tile`, `shade` (a tile of another host), `muted` (no axis), or a phase of the step. Painters know
colours and fonts; builders do not. Lengths are pixels, y runs downwards.

>>> tiles = Rects(x=(0, 20), y=(0, 0), wide=16, high=16, fill=0, hatch=0, labels=("0", "1"), tip="device {}",
...               tip_parts=(("0",), ("1",)), select="device", keys=((0,), (1,)))
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
"""Dash patterns (pixels drawn, pixels left out) by mesh axis: a cue besides colour."""

HATCHES = ("M0 6L6 0", "M0 0L6 6", "M3 1V2M3 4V5", "M0 0L6 6M0 6L6 0", "M3 0V6", "M0 3H6", "M3 0V6M0 3H6", "M1 3H5")
"""Hatch patterns by mesh axis, as SVG's `d` in a square of 6 pixels."""

SIZES = {"small": 9.5, "normal": 11.5, "head": 14.5}
"""Font sizes in pixels."""


def dash_of(place: int | None) -> int | None:
    """Return the dash of a mesh axis by its position; None, a solid line, for None."""
    return None if place is None else place % len(DASHES)


def pixels(size: str | float) -> float:
    return SIZES[size] if isinstance(size, str) else size


def text_wide(text: str, size: str = "normal") -> float:
    """Return the approximate width of a text in pixels."""
    return len(text) * SIZES[size] * 0.62


@dataclass(frozen=True, kw_only=True)
class Rects:
    """Rectangles of the same look: chips, cells, bars.

    Attributes:
        x, y: their upper left corners.
        wide, high: size of all, or of each.
        fill: fill role; None for no fill.
        strength: strength of the fill, 0 to 1.
        stroke: role of the outline; None for none.
        hatch: number of the hatch pattern, the second cue; None for none. Without a fill the hatch is quiet.
        dash: number of the outline's dash.
        corner: radius of the corners.
        labels: text in the middle of each; empty for none.
        tip: tooltip with `{}` for each of its parts; empty for none.
        tip_parts: the parts of each tooltip.
        select: what a click selects, such as `device`; empty for nothing.
        keys: the keys selected by each; repeated clicks cycle through them.
        selects: what a click on each does, as `Piece.selects`; empty for nothing.
        layer: higher layers cover lower ones.
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
    tip_parts: tuple[tuple[str, ...], ...] = ()
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
        """Return some of the rectangles."""
        each = {
            field.name: tuple(value[n] for n in numbers)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), tuple) and value
        }
        return dataclasses.replace(self, **each)

    @property
    def tips(self) -> list[str]:
        """The tooltip of each."""
        return [self.tip.format(*parts) for parts in self.tip_parts]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines of the same look: links, outlines, roofs.

    Attributes:
        lines: the points of each.
        stroke: colour role.
        strength: strength of the colour, 0 to 1.
        width: width in pixels.
        dash: number of the dash; None for a solid line.
        closed: whether the end joins the start.
        fill: fill role of closed lines.
        tip: tooltip.
        layer: as in `Rects`.
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
        at: the anchor of each: its start, middle or end, at half its height.
        texts: the texts.
        align: `start`, `middle` or `end`.
        size: `small`, `normal` or `head`, or pixels.
        ink: colour role.
        bold, mono: font style.
        turned: whether they read upwards.
        halo: whether a ground-coloured outline separates them from lines.
        layer: as in `Rects`.
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
    """A band along a side of a `Grid` with the coordinates of a mesh axis: the text and number of cells of each
    stretch, and its fill and hatch (`role`)."""

    spans: tuple[tuple[str, int], ...]
    role: int
    name: str

    @property
    def wide(self) -> float:
        """Width in pixels beside a grid, with horizontal texts."""
        return max(_BAR, 6.2 * max(len(text) for text, _ in self.spans))


_BAR, _GAP = 19.0, 5.0  # the thickness of a head, and the space beside it
SMALLEST = 7.4
"""Smallest readable font size in cells, in pixels."""
LETTERS = 12.0
"""Smallest font size on the explorer's page, in pixels."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cells in rows and columns with heads above and beside them: a table in media with tables.

    Attributes:
        texts: cell texts, row by row.
        wide, high: size of a cell.
        x, y: upper left corner of the first cell.
        size: font size of cells in pixels.
        stroke, dash: the cells' outlines.
        cards: fills of the cards behind each cell, which show at its right and lower edge.
        copies: number of cells stacked in the place of each, if more than one.
        above, beside: the heads, outermost first.
        columns, rows: names of columns and rows, which drawings show in tips only; may be empty.
        across, down: what runs along the columns, and along the rows; may be empty.
        caption: the subject; may be empty.
        past: hatched share of each column, and of each row, beyond the array's end.
        edges: cells (row, column) with a thick line below, and cells with a thick line at the right.
        marks: cells with a few letters at their left, drawn if there is room.
        tip, tip_parts, select, keys: as in `Rects`, row by row; the first part is the most important.
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
    edges: tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]] = (frozenset(), frozenset())
    marks: tuple[tuple[tuple[int, int], str], ...] = ()
    tip: str = ""
    tip_parts: tuple[tuple[str, ...], ...] = ()
    select: str = ""
    keys: tuple[tuple[int, ...], ...] = ()
    layer: int = 1

    @property
    def left(self) -> float:
        """Width in pixels of the heads beside the cells."""
        return 26.0 * bool(self.down) + sum(head.wide + _GAP for head in self.beside)

    @property
    def top(self) -> float:
        """Height in pixels of the heads above the cells."""
        return 24.0 * bool(self.across) + (_BAR + _GAP) * len(self.above)

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Row and column of each cell, row by row."""
        return [(r, c) for r, row in enumerate(self.texts) for c in range(len(row))]

    @property
    def tips(self) -> list[str]:
        """The tooltip of each cell."""
        return [self.tip.format(*parts) for parts in self.tip_parts]

    @property
    def card(self) -> float:
        """Pixels by which each card shows beyond the previous one."""
        return min(5.0, 0.2 * min(self.wide, self.high) / len(self.cards)) if self.cards else 0.0

    @property
    def inner(self) -> tuple[float, float]:
        """Width and height of a cell without its cards and gaps."""
        spare = self.card * (len(self.cards) + 1) if self.cards else 0.0
        return self.wide - spare, self.high - spare

    @property
    def parts(self) -> Iterator[Rects | Lines | Labels]:
        """Yield the grid as rectangles, lines and texts, for a drawing medium."""
        for number, role in reversed(list(enumerate(self.cards, 1))):
            strength = 0.75 if isinstance(role, int) else 1.0
            yield dataclasses.replace(self._rects(number * self.card), fill=role, strength=strength)
        shared = {"tip": self.tip, "tip_parts": self.tip_parts, "select": self.select, "keys": self.keys}
        yield dataclasses.replace(self._rects(), fill="tile", **shared)
        yield from self._hatched()
        yield from self._texts()
        yield from self._edges()
        yield from self._heads(self.above, len(self.texts[0]), self.wide, self.across, upright=False)
        yield from self._heads(self.beside, len(self.texts), self.high, self.down, upright=True)
        if self.caption:
            at = self.x + len(self.texts[0]) * self.wide / 2, self.y + len(self.texts) * self.high + 14
            yield Labels(at=(at,), texts=(self.caption,), align="middle", ink="quiet")

    def _rects(self, off: float = 0.0) -> Rects:
        """Return the cells' outlines, offset by so many pixels."""
        x, y = zip(*((self.x + c * self.wide + off, self.y + r * self.high + off) for r, c in self.cells), strict=True)
        wide, high = self.inner
        return Rects(x=x, y=y, wide=wide, high=high, stroke=self.stroke, dash=self.dash, layer=self.layer)

    def _hatched(self) -> Iterator[Rects]:
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
        (wide, high), kinds = self.inner, {}
        for r, c in self.cells:
            hatched = any(share[n] for share, n in zip(self.past, (c, r), strict=True) if share)
            at = self.x + c * self.wide + wide / 2, self.y + r * self.high + high / 2
            kinds.setdefault(hatched, []).append((at, self.texts[r][c]))
        for hatched, places in kinds.items():
            at, texts = zip(*places, strict=True)
            look = {"halo": hatched, "layer": self.layer + 2}
            yield Labels(at=at, texts=texts, align="middle", size=self.size, mono=True, **look)

    def _edges(self) -> Iterator[Lines | Labels]:
        w, h, x, y = self.wide, self.high, self.x, self.y
        lines = [((x + c * w, y + (r + 1) * h), (x + (c + 1) * w, y + (r + 1) * h)) for r, c in sorted(self.edges[0])]
        lines += [((x + (c + 1) * w, y + r * h), (x + (c + 1) * w, y + (r + 1) * h)) for r, c in sorted(self.edges[1])]
        if lines:
            yield Lines(lines=tuple(lines), stroke="ink", width=2.5, layer=self.layer + 3)
        (wide, high), letters = self.inner, max((len(text) for _, text in self.marks), default=0) * SIZES["small"]
        above = high > 2.2 * (self.size + SIZES["small"]) and wide > letters
        text_size = max(len(text) for row in self.texts for text in row) * self.size
        if self.marks and (above or wide > 0.62 * (2 * letters + text_size) + 6):  # 0.62: a letter's width in heights
            off = 9.0 if above else high / 2
            at = tuple((x + c * w + 3, y + r * h + off) for (r, c), _ in self.marks)
            texts = tuple(text for _, text in self.marks)
            yield Labels(at=at, texts=texts, size="small", ink="quiet", layer=self.layer + 3)

    def _heads(
        self, heads: Sequence[Head], count: int, cell: float, name: str, *, upright: bool
    ) -> Iterator[Rects | Labels]:
        """Yield the heads along a side of `count` cells, innermost next to the cells, and the side's name."""
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


Rect = tuple[float, float, float, float]
"""x, y, width and height in pixels."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A box that a device holds: its rectangles, from step `since` until step `until` (None: to the end).

    `role` is the mesh axis over which it came; None if the device had it before. `label` counts its partial sums.
    """

    rects: tuple[Rect, ...]
    since: int
    until: int | None
    role: Role | None = None
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Flight:
    """A message of a step: its rectangles at the sender, and its way to the receiver in pixels."""

    rects: tuple[Rect, ...]
    step: int
    way: Point
    role: Role


@dataclass(frozen=True, kw_only=True)
class Film:
    """An animation: tiles that hold patches, and flights between them, step by step.

    Attributes:
        title: the subject.
        axes: mesh axes that messages travel over: position → name.
        width, height: the size in pixels.
        tiles: device id → the rectangle of its map of the array.
        patches: the boxes on the devices; later ones are drawn over earlier ones.
        flights: the messages.
        captions: a sentence for each step; the first is the start.
        counts: the bytes that have travelled after each step.
        frames: each step in characters.
        legend: the meaning of the characters.
    """

    title: str
    axes: dict[int, str]
    width: float
    height: float
    tiles: dict[int, Rect]
    patches: tuple[Patch, ...]
    flights: tuple[Flight, ...]
    captions: tuple[str, ...]
    counts: tuple[str, ...]
    frames: tuple[str, ...]
    legend: str

    @property
    def filmstrip(self) -> str:
        """Every step in words and characters."""
        steps = zip(self.captions, self.frames, strict=True)
        return "\n\n".join([*(f"{n}. {words}\n{frame}" for n, (words, frame) in enumerate(steps)), self.legend])


Drawn = Rects | Lines | Labels
"""The shapes that a drawing medium supports."""
Shape = Drawn | Grid


@dataclass(frozen=True, kw_only=True)
class LegendKey:
    """A legend entry: a sample, a patch (`fill`, `hatch`) or a line (`stroke`, `dash`), and its meaning."""

    text: str
    fill: Role | None = None
    hatch: int | None = None
    stroke: Role | None = None
    dash: int | None = None


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Shapes with a title, a legend and notes, which each painter lays out.

    Attributes:
        width, height: size of the shapes.
        shapes: from lowest to highest within each layer.
        title: the subject.
        alt: the picture in words.
        axes: names of the mesh axes that roles count.
        keys: the legend.
        notes: sentences below.
        coarser: returns the picture with at most so many rows, columns and grids, if it has a `Grid`.
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
    cells: Callable[[int, int, int], int] | None = dataclasses.field(default=None, compare=False, repr=False)
    """The number of cells of `coarser` with these limits, without drawing it."""

    @property
    def grids(self) -> list[Grid]:
        return [shape for shape in self.shapes if isinstance(shape, Grid)]

    def fitted(self, fits: Callable[[Picture], bool]) -> Picture:
        """Return the finest picture of `coarser` that fits; the coarsest if none does."""
        drawn = self
        for limits in LIMITS if self.coarser is not None else ():
            if fits(drawn):
                break
            drawn = self.coarser(*limits)  # type: ignore[misc]
        return drawn

    def with_cells(self, most: int) -> Picture:
        """Return the finest picture of `coarser` with at most so many cells; the coarsest if none has so few."""
        if self.coarser is None or self.cells is None or sum(len(grid.cells) for grid in self.grids) <= most:
            return self
        limits = (each for each in LIMITS if self.cells(*each) <= most)  # type: ignore[misc]
        return self.coarser(*next(limits, LIMITS[-1]))

    def within(self, room: tuple[float, float], letters: float = SMALLEST) -> Picture:
        """Return the finest picture whose cells have at least this font size when scaled into a room."""

        def reads(drawn: Picture) -> bool:
            scale = min(1.0, room[0] / drawn.width, room[1] / drawn.height)
            return (scale == 1 or letters < LETTERS) and all(grid.size * scale > letters - 0.01 for grid in drawn.grids)

        return self.fitted(reads)

    def over(self, other: Picture) -> Picture:
        """Return this picture with another's shapes, keys and notes on top, layer by layer; of rectangles with equal
        keys the last stays."""
        seen: set[int] = set()
        shapes: list[Shape] = []
        for shape in reversed((*self.shapes, *other.shapes)):
            if isinstance(shape, Rects) and shape.keys:
                shown = [n for n, keys in enumerate(shape.keys) if keys[0] not in seen]
                seen |= {keys[0] for keys in shape.keys}
                shape = shape.only(shown)
            shapes.append(shape)
        return dataclasses.replace(
            self, shapes=tuple(reversed(shapes)), keys=(*self.keys, *other.keys), notes=(*self.notes, *other.notes)
        )

    @cached_property
    def ordered(self) -> tuple[Drawn, ...]:
        """The shapes in drawing order, grids as their parts."""
        shapes = (part for shape in self.shapes for part in (shape.parts if isinstance(shape, Grid) else (shape,)))
        return tuple(sorted(shapes, key=lambda shape: shape.layer))

    def to_json(self) -> Json:
        """Return JSON for the page: default fields are omitted, tooltips are numbers into a list of words."""
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
"""Limits of rows, columns and grids to try with `Picture.coarser`, from many to few."""


def group_along(mesh: DeviceMesh, place: int, axis: int) -> list[int]:
    """Return the mesh positions that differ from this one along one axis only, including it."""
    at: list[Any] = list(np.unravel_index(place, mesh.sizes))
    at[axis] = slice(None)
    return np.arange(mesh.size).reshape(mesh.sizes)[tuple(at)].tolist()


def shifted(shape: Shape, dx: float, dy: float) -> Shape:
    """Return a shape moved right and down."""
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
    """Return the Picture of a subject from the registered builder. Raises ShardvizError if there is none."""
    raise ShardvizError(f"shardviz cannot draw a {type(subject).__name__}")


def _fields(shape: Drawn | LegendKey) -> Json:
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
        elif field.name == "tip_parts":
            words = {word: n for n, word in enumerate(dict.fromkeys(word for parts in value for word in parts))}
            fields["words"], fields["tip_parts"] = list(words), [words[word] for parts in value for word in parts]
        elif field.name == "lines":
            fields["lines"] = [_short(sum(line, ())) for line in value]
        else:
            fields[field.name] = _short(value)
    return fields


def _short(value: Any) -> Any:
    """Return numbers with at most one decimal, anything else unchanged."""
    if isinstance(value, float):
        rounded = round(value, 1) if abs(value) > 1 else round(value, 3)
        return int(rounded) if rounded == int(rounded) else rounded
    return [_short(each) for each in value] if isinstance(value, tuple) else value
