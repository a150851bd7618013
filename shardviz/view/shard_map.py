"""Shard maps: an array's cells and their devices, and a change of its sharding.

A cell is a slice, or several neighbouring slices if there are too many to read. Each panel is a `Grid`.

>>> from shardviz.layouts import layout
>>> drawn = shard_map_picture(Shown(layout((8, 6), ("data",), {"data": 2})))
>>> drawn.title, drawn.grids[0].texts, drawn.grids[0].tips[1]
("[8, 6]  P('data', None)", (('0',), ('1',)), '[4:8, :] on device 1 (data 1)')
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from shardviz.layouts import Layout
from shardviz.notation import axis_name
from shardviz.notation.spec import axis_text
from shardviz.records.amounts import format_shape, plural
from shardviz.view import document as doc
from shardviz.view import layouts
from shardviz.view import picture as pic
from shardviz.view.scene import Scene, Side, build_scene, coarsen, copies_along, describe, notes
from shardviz.view.show import Shown, ShownChange

MOST = 1280.0
"""Maximum width and height of a map in pixels."""
_LETTER = 0.66  # the width of a monospace character, as a share of its size
_LEAST, _LARGEST = 9.0, 13.3  # pixels of letters in cells
_BRIEF = 5  # letters of a cell that are kept where the room is given
_SIDE = 90.0  # about how many pixels the heads beside the cells take then
_MOST_KEYS = 4096  # devices of a mesh that can be picked one by one; in a larger one the first of each cell can be
_BETWEEN, _GAP, _FOOT, _CARD = 70.0, 28.0, 38.0, 5.0  # pixels


def shard_map(shown: Shown, room: float | None = None) -> pic.Picture:
    """Return the untitled map, the finest within 1,280 pixels each way; `coarser` gives maps with fewer cells.

    With `room` the letters are larger: a cell of many devices names the first, and its tip all.
    """
    fine = build_scene(shown.layout)
    pictures: dict[tuple[int, ...], pic.Picture] = {}  # many limits give the same cells

    def coarser(*limits: int) -> pic.Picture:
        few = coarsen(fine, *limits)
        if few.ids.shape not in pictures:
            pictures[few.ids.shape] = replace(_drawn(few, room), coarser=coarser, cells=cells)
        return pictures[few.ids.shape]

    def cells(*limits: int) -> int:
        return coarsen(fine, *limits).cells

    return coarser(*next((limits for limits in pic.LIMITS if _fits(coarsen(fine, *limits), room)), pic.LIMITS[-1]))


@pic.picture.register
def shard_map_picture(shown: Shown) -> pic.Picture:
    """Return the titled map."""
    return _titled(shard_map(shown), shown)


def _titled(drawn: pic.Picture, shown: Shown) -> pic.Picture:
    layout, coarser = shown.layout, drawn.coarser
    assert coarser is not None
    first = f"mesh {layout.mesh.shown} · shard {format_shape(layout.shard_shape)}"
    return replace(
        drawn,
        title="  ".join(filter(None, (shown.named, format_shape(layout.shape), layouts.spec_words(layout)))),
        notes=tuple(filter(None, (first, *drawn.notes, layouts.uneven_words(layout, shown.dtype)))),
        coarser=lambda *limits: _titled(coarser(*limits), shown),
    )


@pic.picture.register
def change_picture(shown: ShownChange) -> pic.Picture:
    """Return the maps before and after a change, side by side, with words on the data moved."""
    return _change(shown, *(shard_map(each) for _, each in shown.sides))


def _change(shown: ShownChange, before: pic.Picture, after: pic.Picture) -> pic.Picture:
    heads = [f"{word}: {layouts.spec_words(each.layout)}" for word, each in shown.sides]
    left, top = max(before.width, pic.text_wide(heads[0])) + _BETWEEN, 24.0
    shapes: list[pic.Shape] = [pic.Labels(at=((0.0, 8.0), (left, 8.0)), texts=tuple(heads), mono=True)]
    shapes += [pic.shifted(each, x, top) for x, drawn in ((0.0, before), (left, after)) for each in drawn.shapes]
    y, end = top + (before.grids[0].top + min(before.height, after.height)) / 2, left - 14
    shapes.append(pic.Lines(lines=(((left - _BETWEEN + 14, y), (end, y)),), stroke="quiet", width=2))
    tip = ((end, y), (end - 9, y - 5), (end - 9, y + 5))
    shapes.append(pic.Lines(lines=(tip,), closed=True, stroke="quiet", fill="quiet"))
    sentences = []
    for (word, each), drawn in zip(shown.sides, (before, after), strict=True):
        parts = [*filter(None, (*drawn.notes, layouts.uneven_words(each.layout, each.dtype)))]
        sentences += [f"{word}: {'; '.join(parts)}"] if parts else []
    layout = shown.before.layout
    return pic.Picture(
        width=left + max(after.width, pic.text_wide(heads[1])),
        height=max(before.height, after.height) + top,
        shapes=tuple(shapes),
        title="  ".join(filter(None, (shown.before.title, format_shape(layout.shape), f"mesh {layout.mesh.shown}"))),
        alt=f"Before: {before.alt} After: {after.alt}",
        axes=layout.mesh.names,
        notes=(*sentences, *layouts.kept_and_moved(shown.moves, shown.before.dtype)),
        coarser=lambda *limits: _change(shown, *(each.coarser(*limits) for each in (before, after))),  # type: ignore[misc]
        cells=lambda *limits: sum(each.cells(*limits) for each in (before, after)),  # type: ignore[misc]
    )


@doc.document.register
def of_shown(shown: Shown) -> doc.Document:
    """Return the map, JAX's treatment of an uneven sharding, and the slices that each host loads.

    >>> from shardviz.layouts import layout
    >>> Shown(layout((4, 2), ("x",), {"x": 2}), "w", "int8")
    w int8, 4 B per device
    [4, 2] P('x', None) · shard [2, 2] · mesh x=2, 2 devices
    rows: dimension 0, 4, along x, 2 each
    columns: dimension 1, 2, not sharded
    <BLANKLINE>
           0:2
         ┌─────┐
     0:2 │  0  │
     2:4 │  1  │
         └─────┘
    """
    return doc.Document(blocks=(*map_blocks(shown), *_besides(shown)), mesh=shown.layout.mesh)


def map_blocks(shown: Shown, wide: float = MOST) -> tuple[doc.Block, ...]:
    """Return the sharding in words, and the map, readable at this width in pixels."""
    layout, scene = shown.layout, build_scene(shown.layout)
    sharded = doc.shape(layout.shape), *layouts.spec_pieces(layout)
    shard = doc.words("· shard", quiet=True), doc.shape(layout.shard_shape)
    on = (doc.words("· mesh", quiet=True), doc.mesh_axes(layout.mesh)) if layout.mesh.names else None
    devices = f"{', ' if layout.mesh.names else '· '}{plural(layout.mesh.size, 'device')}"
    named = [*(("panels", side) for side in scene.depth), ("rows", scene.rows), ("columns", scene.columns)]
    sides = (doc.paragraph(*_side(side), label=name) for name, side in named if side.dimension is not None)
    name = doc.paragraph(doc.words(shown.title, strong=True), doc.words(shown.size, strong=True))
    head, drawn = doc.paragraph(sharded, shard, on, devices), shard_map(shown).within((wide, MOST))
    return doc.listed(name if shown.named else None, head, sides, doc.Figure(of=drawn))


def _side(side: Side) -> tuple[doc.Piece, ...]:
    first, each = f"dimension {side.dimension}, {side.size},", doc.words(f", {side.shard} each")
    if side.tiles == 1:
        return (doc.words(f"{first} not sharded"),)
    if not side.axes:
        return (doc.words(f"{first} sharded {side.tiles} ways"), each)
    return (doc.words(f"{first} along"), doc.axes(tuple(axis for axis, _ in side.axes)), each)


def _besides(shown: Shown, which: str = "") -> tuple[doc.Block, ...]:
    uneven = layouts.uneven_words(shown.layout, shown.dtype)
    refused = (doc.paragraph(uneven, label=which or "uneven"),) if uneven else ()
    return refused + layouts.process_blocks(shown.layout, which)


@doc.document.register
def of_change(shown: ShownChange) -> doc.Document:
    """Return both maps, the resharding, and the notes."""
    maps = doc.SideBySide(blocks=tuple(doc.section(word, *map_blocks(each, MOST / 2)) for word, each in shown.sides))
    more = (block for word, each in shown.sides for block in _besides(each, word))
    blocks = (maps, *layouts.move_blocks(shown.moves, shown.before.dtype), *more)
    return doc.Document(blocks=blocks, mesh=shown.before.layout.mesh)


def held_words(layout: Layout, device: int) -> tuple[doc.Paragraph, ...]:
    """Return the slice on a picked device (its position in the mesh; below 0 for none)."""
    mesh = layout.mesh
    if not 0 <= device < mesh.size:
        return ()
    at = ", ".join(f"{name} {i}" for name, i in zip(mesh.shown.names, mesh.shown.coordinates()[device], strict=True))
    who = doc.words(f"device {int(mesh.ids()[device])}", strong=True), doc.words(f"({at})", quiet=True)
    return (doc.paragraph(who, "holds", doc.code(layouts.slice_text(layout, device)), name="device-of"),)


def _drawn(scene: Scene, room: float | None) -> pic.Picture:
    """Draw all panels of a scene, arranged as nearly square as they fit."""
    texts = list(scene.labels)
    if room is not None:  # `0…` in place of `0-3,8-11`
        texts = [text if len(text) <= _BRIEF else f"{re.split('[-, ]', text)[0]}…" for text in texts]
    frame = _frame(scene, max(map(len, texts)), room)
    width, height, across = _arranged(scene, frame)
    step = (width + _GAP) / across, height / -(-len(scene.devices) // across)
    grids = tuple(
        pic.shifted(grid, n % across * step[0] + frame.left, n // across * step[1] + frame.top)
        for n, grid in enumerate(_panels(scene, frame, texts))
    )
    words = {"alt": describe(scene), "notes": tuple(notes(scene))}
    return pic.Picture(width=width, height=height, shapes=grids, axes=scene.mesh.names, **words)


def _arranged(scene: Scene, frame: pic.Grid) -> tuple[float, float, int]:
    """Return width and height of all panels, and the number of panels per line."""
    panels, rows, columns = scene.devices.shape[:3]
    wide = frame.left + columns * frame.wide + _GAP
    high = frame.top + rows * frame.high + _FOOT * bool(scene.depth)
    sizes = ((n * wide - _GAP, -(-panels // n) * high, n) for n in range(1, panels + 1))
    return min(sizes, key=lambda size: max(size[0], 1.5 * size[1]))


def _fits(scene: Scene, room: float | None) -> bool:
    """Return whether all panels fit the maximum size; often the first label alone is too wide."""

    def size(longest):
        return max(_arranged(scene, _frame(scene, longest, room))[:2])

    if room is not None:
        return size(_BRIEF) <= MOST
    first = scene.label(scene.devices[0, 0, 0].tolist())
    return size(len(first)) <= MOST and size(max(map(len, scene.labels))) <= MOST


def _frame(scene: Scene, longest: int, room: float | None) -> pic.Grid:
    """Return a panel without texts, for labels of so many letters, at the position of the first panel."""
    layout = scene.layout
    cards, size, wide, high = _cell(scene, longest, room)
    apart = layout.partial_sums * layout.manual_count > 1
    return pic.Grid(
        texts=(),
        wide=wide,
        high=high,
        size=size,
        stroke="quiet" if apart or layout.maximal else "line",
        dash=2 if apart else None,
        cards=cards,
        copies=layout.replicas if scene.stacked else 1,
        above=(*_own(scene, 0), *_heads(scene, scene.columns)),
        beside=_heads(scene, scene.rows),
        columns=_slices(scene.columns),
        rows=_slices(scene.rows),
        across=_named(scene.columns),
        down=_named(scene.rows),
        past=(_past(scene.columns), _past(scene.rows)),
        tip="{} on {}, {}" if scene.hosts else "{} on {}",
        select="cell",
    )


def _panels(scene: Scene, frame: pic.Grid, texts: list[str]) -> Iterator[pic.Grid]:
    mesh, (panels, rows, columns, many) = scene.mesh, scene.devices.shape
    places = np.zeros(int(mesh.ids().max()) + 1, int)
    places[mesh.ids()] = np.arange(mesh.size)
    ids = places[scene.ids].reshape(scene.cells, -1)
    keys = list(map(tuple, (ids if mesh.size <= _MOST_KEYS else ids[:, :1]).tolist()))
    who = [f"device{'s' * (many > 1)} {label}" for label in scene.labels]
    if many == 1 and mesh.names:
        along = [[f"{name} {i}" for i in range(size)] for name, size in mesh.shown.shape.items()]
        at = [", ".join(each) for each in itertools.product(*along)]
        who = [f"{device} ({at[place]})" for device, (place, *_) in zip(who, keys, strict=True)]
    slices = [
        f"{index}, padded by {padding}," if padding else index
        for index, padding in zip(scene.slices, scene.paddings, strict=True)
    ]
    named = {each: f"host{'s' * (len(each) > 1)} {doc.device_ranges(each)}" for each in set(scene.hosts)}
    hosts = [named[each] for each in scene.hosts]
    parts = list(zip(slices, who, *([hosts] if hosts else []), strict=True))
    heads = _heads(scene, scene.columns)
    for panel in range(panels):
        own = slice(panel * rows * columns, (panel + 1) * rows * columns)
        yield replace(
            frame,
            texts=tuple(tuple(texts[n : n + columns]) for n in range(own.start, own.stop, columns)),
            above=(*_own(scene, panel), *heads),
            caption=scene.panel_text(panel),
            edges=scene.edges(panel),
            marks=_marks(scene.hosts[own], columns),
            tip_parts=tuple(parts[own]),
            keys=tuple(keys[own]),
        )


def _marks(hosts: Sequence[tuple[int, ...]], columns: int) -> tuple[tuple[tuple[int, int], str], ...]:
    """Return marks such as `h0-1` for cells with hosts that no earlier cell has."""
    first = {each: divmod(place, columns) for place, each in reversed(list(enumerate(hosts)))}
    marks = tuple((at, f"h{doc.device_ranges(each)}") for each, at in reversed(first.items()))
    return marks if all(len(text) <= _BRIEF + 2 for _, text in marks) else ()


def _cell(scene: Scene, longest: int, room: float | None) -> tuple[tuple[pic.Role, ...], float, float, float]:
    """Return the cards behind each cell, the letter size, and the cell's width and height."""
    layout, (panels, rows, columns) = scene.layout, scene.devices.shape[:3]
    behind = (min(layout.replicas, 3) - 1) * scene.stacked
    along: list[pic.Role] = [scene.mesh.names.index(name) for name in copies_along(layout)] or ["tile"]
    cards = tuple(along[n % len(along)] for n in range(behind))
    least = (longest + 1.2) * _LETTER, 1.5
    spare = _CARD * (behind + 1) if behind else 0.0
    big = min(340.0 if panels == 1 else 190.0, math.inf if room is None else room - _SIDE)
    letters = _LEAST if room is None else pic.LETTERS
    wide = max(big * min(1, 1 / scene.aspect) / columns, letters * least[0] + spare)
    high = max(big * min(1, scene.aspect) / rows, letters * least[1] + spare)
    return cards, min(_LARGEST, (wide - spare) / least[0], (high - spare) / least[1]), wide, high


def _own(scene: Scene, panel: int) -> Iterator[pic.Head]:
    for side, cell in zip(scene.depth, scene.place(panel), strict=True):
        for axis, spans in side.coordinates():
            each = [text for text, count in spans for _ in range(count)]
            span = f"{axis_text(axis)} {each[cell]}", scene.columns.cells
            yield pic.Head(spans=(span,), role=scene.mesh.names.index(axis_name(axis)), name="")


def _heads(scene: Scene, side: Side) -> tuple[pic.Head, ...]:
    return tuple(
        pic.Head(spans=tuple(spans), role=scene.mesh.names.index(axis_name(axis)), name=axis_text(axis))
        for axis, spans in (side.coordinates() if side.tiles > 1 else ())
    )


def _slices(side: Side) -> tuple[str, ...]:
    return () if side.dimension is None else tuple(side.slices)


def _named(side: Side) -> str:
    if side.dimension is None:
        return ""
    return " · ".join((f"dim {side.dimension}", str(side.size), *(axis_text(axis) for axis, _ in side.axes)))


def _past(side: Side) -> tuple[float, ...]:
    """Return the share of padding in each cell along a side."""
    return tuple(side.padding(k) / (side.shard * side.merged) for k in range(side.cells)) if side.padded else ()
