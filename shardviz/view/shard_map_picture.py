"""Pictures of shard maps: an array's cells and their devices, a change of its sharding, a sharding not known yet.

>>> from shardviz.layouts import layout
>>> shard_map_picture(Shown(layout((8, 6), ("data",), {"data": 2}))).title
"[8, 6]  P('data', None)"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardviz.layouts import Layout
from shardviz.notation import axis_name
from shardviz.notation.spec import axis_text
from shardviz.records.amounts import format_shape
from shardviz.view.contents import cell_lines, drawable
from shardviz.view.layouts import spec_words, uneven_words
from shardviz.view.picture import Labels, Lines, Picture, Point, Rects, Shape, picture, shifted, shortened, text_wide
from shardviz.view.scene import Scene, Side, build_scene, coarsen, describe, notes
from shardviz.view.shown import Shown, ShownChange, ShownTree, ShownUnknown

LETTER = 0.66
"""The width of a monospace character, as a share of its size."""
SMALLEST, LARGEST = 7.4, 13.3
"""Pixels of device numbers; neighbouring cells are merged instead of setting them smaller."""
BAR, GAP, CARD = 19.0, 5.0, 5.0
"""Pixels: the thickness of a coordinate bar, between bars, and by which the cards of a stack show."""
MOST = 1150.0
"""Pixels of a map each way, where there is no other limit."""
LEAST_WIDE = 620.0
_BETWEEN, _HEAD = 70.0, 24.0  # between the two maps of a change, and for the heads above them
_CELLS, _OVER, _TEXTS, _EDGES = 1, 2, 3, 4  # layers

_GRIDS = (
    *((64, 32), (32, 32), (64, 16), (32, 16), (32, 8), (16, 8), (16, 4), (8, 4), (16, 2), (8, 2)),
    *((16, 1), (8, 1), (4, 2), (4, 1), (2, 1), (1, 1)),
)

MOST_KEYS = 4096
"""Devices of a mesh that can be picked one by one; in a larger one the first of each cell can be."""

Room = tuple[float, float] | None
Texts = list[list[list[list[str]]]]


class Plan:
    """Pixels of all in a shard map: a cell, a panel with its bars, and the panels, `across` of them in a line.

    Attributes:
        texts: the lines of every cell, panel by panel, row by row: its devices, then its values.
        cell: width and height of a cell; `spare` of them is left for the `cards` behind it.
        letters: the size of the letters.
        step: from one panel to the next, across and down.
    """

    def __init__(self, scene: Scene, room: Room, across: int, texts: Texts, largest: float = LARGEST):
        self.scene, self.across, self.texts = scene, across, texts
        panels, rows, columns = scene.devices.shape[:3]
        cells = [text for panel in self.texts for row in panel for text in row]
        self.left = 26 * (scene.rows.dimension is not None) + sum(map(_thick, _bars(scene.rows)))
        self.top = 24 * (scene.columns.dimension is not None) + (BAR + GAP) * len(_bars(scene.columns))
        foot, gap, down = 38.0 if scene.depth else 0.0, 28.0, -(-panels // across)
        longest = max((len(line) for text in cells for line in text), default=0)
        least = (longest + 1.2) * LETTER, 1.5 * max(map(len, cells), default=1)
        self.cards = (min(scene.layout.replicas, 3) - 1) * scene.stacked
        spare = CARD * (self.cards + 1) * (self.cards > 0)
        if room is None:
            big, aspect = (340.0 if panels == 1 else 190.0), scene.aspect
            wide, high = big * min(1, 1 / aspect) / columns, big * min(1, aspect) / rows
            self.cell = max(wide, 9 * least[0] + spare), max(high, 9 * least[1] + spare)
        else:
            wide, high = (room[0] - gap * (across - 1)) / across - self.left, room[1] / down - self.top - foot
            self.cell = max(wide, 10) / columns, max(high, 10) / rows
        self.card = min(CARD, 0.2 * min(self.cell) / (self.cards + 1)) if self.cards else 0.0
        self.spare = self.card * (self.cards + 1)
        self.letters = min(largest, *((side - self.spare) / n for side, n in zip(self.cell, least, strict=True)))
        self.step = self.left + columns * self.cell[0] + gap, self.top + rows * self.cell[1] + foot
        self.width, self.height = across * self.step[0] - gap, down * self.step[1]


def plan_of(scene: Scene, room: Room = None, values: np.ndarray | None = None, shrunk: float = 1.0) -> Plan:
    """The finest drawing whose numbers can be read, as nearly square as its panels allow.

    Args:
        scene: what to draw, one cell a tile.
        room: width and height in pixels that there is; None for as much as it needs.
        values: the array's elements, which are left out where they would be too small.
        shrunk: the scale at which it will be drawn.
    """
    limit = MOST if room is None else float("inf")
    for given in (values, None) if values is not None else (None,):
        for panels in (16, 4, 1):
            for rows, columns in _GRIDS:
                merged = coarsen(scene, rows=rows, columns=columns, panels=panels)
                if given is not None and merged.merged > 1:
                    continue
                count = range(1, merged.devices.shape[0] + 1)
                texts = _texts(merged, given)
                plans = [Plan(merged, room, across, texts, LARGEST / shrunk) for across in count]
                found = [p for p in plans if p.letters >= SMALLEST / shrunk and max(p.width, p.height) <= limit]
                if found and room is None:
                    return min(found, key=lambda plan: max(plan.width, 1.5 * plan.height))
                if found:
                    return max(found, key=lambda plan: plan.letters)
    whole = coarsen(scene, rows=1, columns=1, panels=1)
    return Plan(whole, room, 1, _texts(whole, None), LARGEST / shrunk)


def shard_map_picture(shown: Shown, room: Room = None) -> Picture:
    """Which device holds which slice.

    Args:
        shown: the array.
        room: width and height in pixels that there is; None for as much as it needs. Where device numbers would be too
            small to read, neighbouring shards are drawn as one cell, and a note says so.
    """
    return drawn(shown, planned(shown, room))


def planned(shown: Shown, room: Room = None) -> Plan:
    """Where all stands in a shard map; as `shard_map_picture`."""
    inner, shrunk = _inner(room, 4)
    return plan_of(build_scene(shown.layout, shown.hosts), inner, shown.values, shrunk)


def drawn(shown: Shown, plan: Plan) -> Picture:
    """The shard map of a plan."""
    cut = shown.layout
    said = f"mesh {cut.mesh} · shard {format_shape(cut.shard_shape)}", *notes(plan.scene)
    return Picture(
        width=plan.width,
        height=plan.height,
        shapes=tuple(_map(plan)),
        title="  ".join(filter(None, (shown.named, format_shape(cut.shape), spec_words(cut)))),
        alt=describe(plan.scene),
        axes=cut.mesh.names,
        notes=tuple(filter(None, (*said, uneven_words(cut, shown.dtype)))),
    )


def change_picture(shown: ShownChange, room: Room = None, moves: tuple[str, ...] = ()) -> Picture:
    """An array before and after a change of its sharding, side by side, with what moves below.

    Args:
        shown: the change.
        room: as of `shard_map_picture`.
        moves: what moves, in lines of text whose columns stand below each other.
    """
    both = {"before": shown.before, "after": shown.after}
    inner, shrunk = _inner(room, len(moves) + 2)
    half = None if inner is None else ((inner[0] - _BETWEEN) / 2, inner[1] - _HEAD)
    plans = [plan_of(build_scene(each.layout), half, None, shrunk) for each in both.values()]
    words = [f"{word}: {spec_words(each.layout)}" for word, each in both.items()]
    left = max(plans[0].width, text_wide(words[0])) + _BETWEEN
    high = max(plan.height for plan in plans) + _HEAD
    shapes: list[Shape] = [Labels(at=((0.0, 8.0), (left, 8.0)), texts=tuple(words), mono=True)]
    for plan, x in zip(plans, (0.0, left), strict=True):
        shapes += [shifted(shape, x, _HEAD) for shape in _map(plan)]
    y = _HEAD + (plans[0].top + min(plan.height for plan in plans)) / 2
    end = left - 14
    shapes.append(Lines(lines=(((left - _BETWEEN + 14, y), (end, y)),), stroke="quiet", width=2))
    head = ((end, y), (end - 9, y - 5), (end - 9, y + 5))
    shapes.append(Lines(lines=(head,), closed=True, stroke="quiet", fill="quiet"))
    if moves:
        at = tuple((0.0, high + 20 + 14 * n) for n in range(len(moves)))
        shapes.append(Labels(at=at, texts=moves, size=10.5, mono=True, ink="quiet"))
    said = []
    for (word, each), plan in zip(both.items(), plans, strict=True):
        parts = [*notes(plan.scene), uneven_words(each.layout, each.dtype)]
        said += [f"{word}: {'; '.join(filter(None, parts))}"] if any(parts) else []
    cut = shown.before.layout
    return Picture(
        width=max(left + max(plans[1].width, text_wide(words[1])), 10.5 * LETTER * max(map(len, moves), default=0)),
        height=high + (14 * len(moves) + 20 if moves else 0),
        shapes=tuple(shapes),
        title="  ".join(filter(None, (shown.before.title, format_shape(cut.shape), f"mesh {cut.mesh}"))),
        alt=f"Before: {describe(plans[0].scene)} After: {describe(plans[1].scene)}",
        axes=cut.mesh.names,
        notes=tuple(said),
    )


@picture.register
def unknown_picture(shown: ShownUnknown, kind: str = "") -> Picture:
    """An array of which nobody has said yet how it is cut: a hatched box, and who decides."""
    box = Rects(x=(1.0,), y=(1.0,), wide=248.0, high=84.0, hatch=0, stroke="quiet", dash=1)
    mark = Labels(at=((125.0, 43.0),), texts=("?",), align="middle", size=19.0, halo=True, layer=1)
    mesh = f"mesh {shown.mesh}" if shown.mesh is not None and shown.mesh.names else ""
    return Picture(
        width=250.0,
        height=86.0,
        shapes=(box, mark),
        title="  ".join(filter(None, (shown.title, shown.typed, "sharding not known yet"))),
        alt=shown.alt,
        notes=tuple(filter(None, (mesh, shown.why))),
    )


@picture.register
def _(shown: Shown, kind: str = "") -> Picture:
    return shard_map_picture(shown)


@picture.register
def _(shown: ShownChange, kind: str = "") -> Picture:
    return change_picture(shown)


@picture.register
def _(shown: ShownTree, kind: str = "") -> Picture:
    return picture(shown.chosen, kind)


def _inner(room: Room, lines: int) -> tuple[Room, float]:
    """The room for a map above so many lines of words, and the scale at which a painter fits them in."""
    if room is None:
        return None, 1.0
    shrunk = min(1.0, room[0] / LEAST_WIDE)
    return (room[0] / shrunk, max(room[1] / shrunk - 17.0 * lines - 8, 60.0)), shrunk


def _bars(side: Side) -> list[tuple[Any, list[tuple[str, int]]]]:
    return side.coordinates() if side.ways > 1 else []


def _thick(bar: tuple[Any, list[tuple[str, int]]]) -> float:
    """How much an upright bar takes, with room for its texts."""
    return max(BAR, 6.2 * max(len(text) for text, _ in bar[1])) + GAP


def _texts(scene: Scene, values: np.ndarray | None) -> Texts:
    inside = values is not None and drawable(scene)
    return [
        [
            [[text, *(cell_lines(scene, values, p, r, c) if inside and values is not None else ())] for c, text in row]
            for r, row in ((r, enumerate(row)) for r, row in enumerate(panel))
        ]
        for p, panel in enumerate(scene.labels())
    ]


def _map(plan: Plan) -> Iterator[Shape]:
    for panel in range(plan.scene.devices.shape[0]):
        down, across = divmod(panel, plan.across)
        x, y = across * plan.step[0] + plan.left, down * plan.step[1] + plan.top
        for shape in _panel(plan, panel):
            yield shifted(shape, x, y)


def _panel(plan: Plan, panel: int) -> Iterator[Shape]:
    """A panel whose first cell stands at 0, 0; its bars are left of it and above."""
    scene, (w, h), spare = plan.scene, plan.cell, plan.spare
    rows, columns = scene.rows.cells, scene.columns.cells
    spots = [(c * w, r * h) for r in range(rows) for c in range(columns)]
    for card in reversed(range(plan.cards + 1)):
        corners = [(x + card * plan.card, y + card * plan.card) for x, y in spots]
        told = {} if card else _told(scene, panel)
        yield _rects(corners, w - spare, h - spare, fill="tile", layer=_CELLS, **_edge(scene.layout), **told)
    yield from _padding(plan)
    yield from _words(plan, panel)
    below, beside = (np.argwhere(edges[panel]).tolist() for edges in scene.edges)
    lines = [((c * w, (r + 1) * h), ((c + 1) * w, (r + 1) * h)) for r, c in below]
    lines += [(((c + 1) * w, r * h), ((c + 1) * w, (r + 1) * h)) for r, c in beside]
    if lines:
        yield Lines(lines=tuple(lines), stroke="quiet", width=3, name="processes", layer=_EDGES)
    yield from _side(scene, scene.columns, w, upright=False)
    yield from _side(scene, scene.rows, h, upright=True)
    if scene.depth:
        text = scene.panel_text(panel)
        yield Labels(at=((columns * w / 2, rows * h + 14),), texts=(text,), align="middle", ink="quiet")


def _rects(corners: list[Point], wide: float, high: float, **look: Any) -> Rects:
    return Rects(x=tuple(x for x, _ in corners), y=tuple(y for _, y in corners), wide=wide, high=high, **look)


def _told(scene: Scene, panel: int) -> dict[str, Any]:
    """What each cell of a panel holds, in words, and which places of the mesh do."""
    mesh, told, keys = scene.mesh, [], []
    places = {int(device): place for place, device in enumerate(mesh.ids())}
    for r, row in enumerate(scene.labels()[panel]):
        for c, text in enumerate(row):
            held = [places[int(device)] for device in scene.devices[panel, r, c]]
            at = ", ".join(f"{name} {i}" for name, i in zip(mesh.names, mesh.coordinates()[held[0]], strict=True))
            who = f"devices {text} hold" if len(held) > 1 else f"device {text} ({at}) holds" if at else "it holds"
            told.append((who, scene.index_text(panel, r, c), scene.process_text(panel, r, c)))
            keys.append(tuple(held if len(places) <= MOST_KEYS else held[:1]))
    process = ", {}" if scene.processes is not None else ""
    told = tuple(tuple(parts[:3] if process else parts[:2]) for parts in told)
    return {"tip": "{} {}" + process, "told": told, "select": "cell", "keys": tuple(keys)}


def _edge(layout: Layout) -> dict[str, Any]:
    """The cells' edges: dotted round partial sums and manual arrays, strong round the one device that holds all."""
    if layout.partial_sums * layout.manual_ways > 1:
        return {"stroke": "quiet", "dash": 2}
    return {"stroke": "quiet" if layout.maximal else "line"}


def _padding(plan: Plan) -> Iterator[Shape]:
    """Hatches over the part of the last cells that lies beyond the array's end."""
    (w, h), sides = plan.cell, (plan.scene.columns, plan.scene.rows)
    for place, side in enumerate(sides):
        for k in range(side.cells) if side.padded else ():
            share = side.padding(k) / (side.shard * side.merged)
            if share <= 0:
                continue
            size, others = [w - plan.spare, h - plan.spare], range(sides[1 - place].cells)
            start = (1 - share) * size[place]
            size[place] *= share
            corners = [(k * w + start, n * h) if place == 0 else (n * w, k * h + start) for n in others]
            yield _rects(corners, *size, hatch=0, layer=_OVER)


def _words(plan: Plan, panel: int) -> Iterator[Labels]:
    """The devices in the middle of each cell; where it has values, the devices above them, quietly."""
    scene, (w, h), size = plan.scene, plan.cell, plan.letters
    found: dict[tuple[str, bool], list[tuple[Point, str]]] = {}
    for r, row in enumerate(plan.texts[panel]):
        for c, lines in enumerate(row):
            padded = bool(scene.rows.padding(r) or scene.columns.padding(c))
            x, y = (c + 0.5) * w - plan.spare / 2, (r + 0.5) * h - plan.spare / 2
            for n, line in enumerate(lines):
                ink = "quiet" if len(lines) > 1 and n == 0 else "ink"
                at = x, y + (n - (len(lines) - 1) / 2) * 1.3 * size
                found.setdefault((ink, padded), []).append((at, line))
    for (ink, padded), words in found.items():
        at, texts = zip(*words, strict=True)
        yield Labels(at=at, texts=texts, align="middle", size=size, ink=ink, mono=True, halo=padded, layer=_TEXTS)


def _side(scene: Scene, side: Side, cell: float, *, upright: bool) -> Iterator[Shape]:
    """The coordinate bars of a side, minor axis nearest to the cells, and the dimension's name."""
    bars, off = _bars(side), 0.0
    for axis, spans in reversed(bars):
        thick = _thick((axis, spans)) - GAP if upright else BAR
        off += thick + GAP
        starts = np.cumsum([0, *(count for _, count in spans)]) * cell
        boxes = [
            (-off, a + 1, thick, b - a - 2) if upright else (a + 1, -off, b - a - 2, thick)
            for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
        x, y, wide, high = zip(*boxes, strict=True)
        sizes = zip(wide, high, strict=True)
        least = ((1.5 * across / len(text), high, text) for (across, high), (text, _) in zip(sizes, spans, strict=True))
        labels = tuple(text if min(room) >= SMALLEST else "" for *room, text in least)
        place = scene.mesh.names.index(axis_name(axis))
        yield Rects(x=x, y=y, wide=wide, high=high, fill=place, hatch=place, labels=labels, layer=_OVER)
    if side.dimension is None:
        return
    names = " · ".join(axis_text(a) for a, _ in side.axes)
    text = f"dim {side.dimension} · {side.size}" + (f" · {names}" if names else "")
    text = shortened(text, max(16, int(side.cells * cell / text_wide("x"))))
    middle = side.cells * cell / 2
    at = (-off - 11, middle) if upright else (middle, -off - 10)
    yield Labels(at=(at,), texts=(text,), align="middle", ink="quiet", turned=upright)
