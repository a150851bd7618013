"""Shard maps: an array's cells and their devices, a change of its sharding, a sharding not known yet.

A cell is a slice; where there are too many to be read, it is several neighbouring ones. Each panel is a `Grid`.

>>> from shardviz.layouts import layout
>>> drawn = picture(Shown(layout((8, 6), ("data",), {"data": 2})))
>>> drawn.title, drawn.grids[0].texts, drawn.grids[0].tips[1]
("[8, 6]  P('data', None)", (('0',), ('1',)), '[4:8, :] on device 1 (data 1)')
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from shardviz.notation import Axis, axis_name
from shardviz.notation.spec import axis_text
from shardviz.records.amounts import format_shape, plural
from shardviz.view.contents import cell_lines, drawable
from shardviz.view.document import (
    Beside,
    Block,
    Document,
    Figure,
    Piece,
    Section,
    axes,
    code,
    document,
    mesh_axes,
    paragraph,
    shape,
    words,
)
from shardviz.view.layouts import (
    all_axes,
    kept_and_moved,
    move_blocks,
    process_blocks,
    spec_pieces,
    spec_words,
    tree_blocks,
    uneven_words,
)
from shardviz.view.picture import LIMITS, Grid, Head, Labels, Lines, Picture, Role, Shape, picture, shifted, text_wide
from shardviz.view.scene import Scene, Side, build_scene, coarsen, copies_along, describe, group_along, notes
from shardviz.view.shown import Shown, ShownChange, ShownTree, ShownUnknown

MOST = 1280.0
"""Pixels of a map each way."""
_LETTER = 0.66  # the width of a monospace character, as a share of its size
_LEAST, _LARGEST = 9.0, 13.3  # pixels of letters in cells
_MOST_KEYS = 4096  # devices of a mesh that can be picked one by one; in a larger one the first of each cell can be
_BETWEEN, _GAP, _FOOT, _CARD = 70.0, 28.0, 38.0, 5.0  # pixels
_OUTLINES = 5  # their layer
_INSETS = 1.4, 3.4
"""Pixels from a cell's edge to the outline of a picked device's own cell, and of those of its groups."""


def shard_map(shown: Shown, device: int = -1, scene: Scene | None = None) -> Picture:
    """Which device holds which slice, without a title.

    Args:
        shown: the array.
        device: the place in the mesh of a device that is picked, whose groups are outlined; below 0 for none.
        scene: the part of the array that is drawn, one cell a slice; None for all of it.

    Returns:
        The finest picture within 1,280 pixels each way; its `coarser` gives those with fewer cells.
    """
    fine = build_scene(shown.layout, shown.hosts) if scene is None else scene
    scenes: dict[tuple[int, ...], Scene] = {}  # many limits give the same cells
    pictures: dict[tuple[int, ...], Picture] = {}

    def merged(rows: int, columns: int, grids: int) -> Scene:
        few = coarsen(fine, rows=rows, columns=columns, panels=grids)
        return scenes.setdefault(few.devices.shape, few)

    def coarser(rows: int, columns: int, grids: int) -> Picture:
        few = merged(rows, columns, grids)
        size = few.devices.shape
        if size not in pictures:
            pictures[size] = dataclasses.replace(_drawn(few, device), coarser=coarser)
        return pictures[size]

    if shown.values is not None and drawable(fine):
        first = dataclasses.replace(_drawn(fine, device, shown.values), coarser=coarser)
        if max(first.width, first.height) <= MOST:
            return first
    return coarser(*next((limits for limits in LIMITS if _fits(merged(*limits))), LIMITS[-1]))


@picture.register
def shard_map_picture(shown: Shown, kind: str = "") -> Picture:
    """Which device holds which slice, titled."""
    return _titled(shard_map(shown), shown)


def _titled(drawn: Picture, shown: Shown) -> Picture:
    """A map with its title and all that there is to say, and so the coarser ones."""
    cut, coarser = shown.layout, drawn.coarser
    assert coarser is not None
    first = f"mesh {cut.mesh} · shard {format_shape(cut.shard_shape)}"
    return dataclasses.replace(
        drawn,
        title="  ".join(filter(None, (shown.named, format_shape(cut.shape), spec_words(cut)))),
        notes=tuple(filter(None, (first, *drawn.notes, uneven_words(cut, shown.dtype)))),
        coarser=lambda *limits: _titled(coarser(*limits), shown),
    )


@picture.register
def change_picture(shown: ShownChange, kind: str = "") -> Picture:
    """An array before and after a change of its sharding, side by side, with what moves in words."""
    heads = [f"{word}: {spec_words(each.layout)}" for word, each in shown.sides]
    return _change(shown, heads, *(shard_map(dataclasses.replace(each, values=None)) for _, each in shown.sides))


def _change(shown: ShownChange, heads: list[str], before: Picture, after: Picture) -> Picture:
    left, top = max(before.width, text_wide(heads[0])) + _BETWEEN, 24.0
    shapes: list[Shape] = [Labels(at=((0.0, 8.0), (left, 8.0)), texts=tuple(heads), mono=True)]
    shapes += [shifted(each, x, top) for x, drawn in ((0.0, before), (left, after)) for each in drawn.shapes]
    y, end = top + (before.grids[0].top + min(before.height, after.height)) / 2, left - 14
    shapes.append(Lines(lines=(((left - _BETWEEN + 14, y), (end, y)),), stroke="quiet", width=2))
    tip = ((end, y), (end - 9, y - 5), (end - 9, y + 5))
    shapes.append(Lines(lines=(tip,), closed=True, stroke="quiet", fill="quiet"))
    said = []
    for (word, each), drawn in zip(shown.sides, (before, after), strict=True):
        parts = [*drawn.notes, uneven_words(each.layout, each.dtype)]
        said += [f"{word}: {'; '.join(filter(None, parts))}"] if any(parts) else []
    cut = shown.before.layout

    def coarser(*limits: int) -> Picture:
        both = (each.coarser and each.coarser(*limits) for each in (before, after))
        return _change(shown, heads, *both)  # type: ignore[arg-type]

    return Picture(
        width=left + max(after.width, text_wide(heads[1])),
        height=max(before.height, after.height) + top,
        shapes=tuple(shapes),
        title="  ".join(filter(None, (shown.before.title, format_shape(cut.shape), f"mesh {cut.mesh}"))),
        alt=f"Before: {before.alt} After: {after.alt}",
        axes=cut.mesh.names,
        notes=(*said, *kept_and_moved(shown.moves, shown.before.dtype)),
        coarser=coarser,
    )


@picture.register
def unknown_picture(shown: ShownUnknown, kind: str = "") -> Picture:
    """An array of which nobody has said yet how it is sharded: a hatched box, and who decides."""
    box = Grid(
        texts=(("not known yet",),), wide=250.0, high=86.0, size=19.0, stroke="quiet", dash=1, past=((1.0,), (0.0,))
    )
    mesh = f"mesh {shown.mesh}" if shown.mesh is not None and shown.mesh.names else ""
    return Picture(
        width=250.0,
        height=86.0,
        shapes=(box,),
        title="  ".join(filter(None, (shown.title, shown.typed, "sharding not known yet"))),
        alt=shown.alt,
        notes=tuple(filter(None, (mesh, shown.why))),
    )


@picture.register
def _(shown: ShownTree, kind: str = "") -> Picture:
    return picture(shown.chosen, kind)


# What there is to say besides.


@document.register
def of_shown(shown: Shown) -> Document:
    """The map, what JAX does with a cut that does not divide, and what each process holds.

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
    return Document(blocks=(*_map_blocks(shown), *_besides(shown)), mesh=shown.layout.mesh)


def _map_blocks(shown: Shown, wide: float = MOST) -> tuple[Block, ...]:
    """What is sharded how, and the map, readable in so many pixels."""
    cut, scene = shown.layout, build_scene(shown.layout)
    head = (
        *(shape(cut.shape), *spec_pieces(cut), words("· shard", quiet=True), shape(cut.shard_shape)),
        *((words("· mesh", quiet=True), mesh_axes(cut.mesh)) if cut.mesh.names else ()),
        words(f"{', ' if cut.mesh.names else '· '}{plural(cut.mesh.size, 'device')}"),
    )
    named = [*(("panels", side) for side in scene.depth), ("rows", scene.rows), ("columns", scene.columns)]
    sides = (paragraph(*_side(side), label=name) for name, side in named if side.dimension is not None)
    name = (paragraph(words(shown.title, strong=True), words(shown.size, strong=True)),) if shown.named else ()
    return (*name, paragraph(*head), *sides, Figure(of=shard_map(shown).within((wide, MOST))))


def _side(side: Side) -> tuple[Piece, ...]:
    """`dimension 0, 8192, along data, 1024 each`."""
    first, each = f"dimension {side.dimension}, {side.size},", words(f", {side.shard} each")
    if side.ways == 1:
        return (words(f"{first} not sharded"),)
    if not side.axes:
        return (words(f"{first} sharded {side.ways} ways"), each)
    return (words(f"{first} along"), axes(tuple(axis for axis, _ in side.axes)), each)


def _besides(shown: Shown, which: str = "") -> tuple[Block, ...]:
    uneven = uneven_words(shown.layout, shown.dtype)
    said = (paragraph(uneven, label=which or "uneven"),) if uneven else ()
    return said + (process_blocks(shown.hosts, which) if shown.hosts is not None else ())


@document.register
def of_unknown(shown: ShownUnknown) -> Document:
    """A hatched box, and who decides.

    >>> print(ShownUnknown((8, 6), "the compiler decides", title="y", dtype="float32"))
    y float32 [8, 6] sharding not known yet
    <BLANKLINE>
    ┌───────────────┐
    │ not known yet │
    └───────────────┘
    the compiler decides
    """
    mesh = shown.mesh if shown.mesh is not None and shown.mesh.names else None
    over = () if mesh is None else (words("mesh"), mesh_axes(mesh), words(f"({plural(mesh.size, 'device')})"))
    head = (words(shown.title, strong=True), code(shown.typed), words("sharding not known yet", strong=True), *over)
    figure = Figure(of=dataclasses.replace(picture(shown), title="", notes=()))
    return Document(blocks=(paragraph(*head), figure, paragraph(shown.why, quiet=True)), mesh=mesh)


@document.register
def of_tree(shown: ShownTree) -> Document:
    """The table of the arrays, and the chosen one's map."""
    chosen = document(shown.chosen)
    mesh = all_axes(leaf.layout for leaf in shown.leaves)
    return Document(blocks=(*tree_blocks(shown.bytes, shown.left_out), *chosen.blocks), mesh=mesh)


@document.register
def of_change(shown: ShownChange) -> Document:
    """Both maps, what moves, and what there is to say of each."""
    maps = Beside(blocks=tuple(Section(title=word, blocks=_map_blocks(each, MOST / 2)) for word, each in shown.sides))
    more = (block for word, each in shown.sides for block in _besides(each, word))
    blocks = (maps, *move_blocks(shown.moves, shown.before.dtype), *more)
    return Document(blocks=blocks, mesh=shown.before.layout.mesh)


# The panels of a map.


def _drawn(scene: Scene, device: int, values: np.ndarray | None = None) -> Picture:
    """All panels of a scene, as nearly square as they can stand, with what is outlined of a picked device."""
    frame = _frame(scene, scene.longest, values)
    width, height, across = _arranged(scene, frame)
    step = (width + _GAP) / across, height / -(-len(scene.devices) // across)
    shapes: list[Shape] = [
        shifted(grid, n % across * step[0] + frame.left, n // across * step[1] + frame.top)
        for n, grid in enumerate(_panels(scene, frame, values))
    ]
    if 0 <= device < scene.mesh.size:
        shapes += list(_outlines(scene, shapes, device))  # type: ignore[arg-type]
    return Picture(
        width=width,
        height=height,
        shapes=tuple(shapes),
        alt=describe(scene),
        axes=scene.mesh.names,
        notes=tuple(notes(scene)),
    )


def _arranged(scene: Scene, frame: Grid) -> tuple[float, float, int]:
    """Width and height of all panels, and how many of them stand in a line."""
    panels, rows, columns = scene.devices.shape[:3]
    wide = frame.left + columns * frame.wide + _GAP
    high = frame.top + rows * frame.high + _FOOT * bool(scene.depth)
    sizes = ((n * wide - _GAP, -(-panels // n) * high, n) for n in range(1, panels + 1))
    return min(sizes, key=lambda size: max(size[0], 1.5 * size[1]))


def _fits(scene: Scene) -> bool:
    """Whether all panels are within the most pixels; mostly the first cell's label alone is too wide for that."""
    size = lambda longest: max(_arranged(scene, _frame(scene, longest))[:2])  # noqa: E731
    return size(len(scene.label(0, 0, 0))) <= MOST and size(scene.longest) <= MOST


def _frame(scene: Scene, longest: int, values: np.ndarray | None = None) -> Grid:
    """What all panels of a scene have in common, with labels of so many letters; where they stand is that of the
    first."""
    cut = scene.layout
    cards, size, wide, high = _cell(scene, longest, values)
    apart = cut.partial_sums * cut.manual_ways > 1
    return Grid(
        texts=(),
        wide=wide,
        high=high,
        size=size,
        stroke="quiet" if apart or cut.maximal else "line",
        dash=2 if apart else None,
        cards=cards,
        copies=cut.replicas if scene.stacked else 1,
        above=(*_own(scene, 0), *_heads(scene, scene.columns)),
        beside=_heads(scene, scene.rows),
        columns=_slices(scene.columns),
        rows=_slices(scene.rows),
        across=_named(scene.columns),
        down=_named(scene.rows),
        past=(_past(scene.columns), _past(scene.rows)),
        tip="{} on {}, {}" if scene.processes is not None else "{} on {}",
        select="cell",
    )


def _panels(scene: Scene, frame: Grid, values: np.ndarray | None) -> Iterator[Grid]:
    """The panels of a scene, each with its first cell at 0, 0."""
    mesh, (panels, rows, columns) = scene.mesh, scene.devices.shape[:3]
    labels, (below, right) = scene.labels(), scene.edges
    places = np.zeros(int(mesh.ids().max()) + 1, int)
    places[mesh.ids()] = np.arange(mesh.size)
    held = places[scene.devices] if mesh.size <= _MOST_KEYS else places[scene.devices[..., :1]]
    one = scene.devices.shape[3] == 1
    along = [[f"{name} {i}" for i in range(size)] for name, size in zip(mesh.names, mesh.sizes, strict=True)]
    names = [", ".join(each) for each in itertools.product(*along)] if one else []
    heads = frame.above[len(frame.above) - len(_heads(scene, scene.columns)) :]
    for panel in range(panels):
        keys = tuple(map(tuple, held[panel].reshape(rows * columns, -1).tolist()))
        said = [label for row in labels[panel] for label in row]
        texts, cells = said, list(np.ndindex(rows, columns))
        if values is not None:
            inside = (cell_lines(scene, values, panel, r, c) for r, c in cells)
            texts = ["\n".join((label, *lines)) for label, lines in zip(said, inside, strict=True)]
        who = [f"devices {label}" for label in said]
        if one:
            where = (f" ({names[place]})" if names[place] else "" for (place, *_) in keys)
            who = [f"device {label}{which}" for label, which in zip(said, where, strict=True)]
        processes = [] if scene.processes is None else [[scene.process_text(panel, r, c) for r, c in cells]]
        yield dataclasses.replace(
            frame,
            texts=tuple(tuple(texts[r * columns : (r + 1) * columns]) for r in range(rows)),
            above=(*_own(scene, panel), *heads) if scene.depth else heads,
            caption=scene.panel_text(panel),
            edges=(_cells(below[panel]), _cells(right[panel])),
            told=tuple(zip(scene.index_texts(panel), who, *processes, strict=True)),
            keys=keys,
        )


def _cells(where: np.ndarray) -> frozenset[tuple[int, int]]:
    return frozenset((int(r), int(c)) for r, c in np.argwhere(where))


def _cell(scene: Scene, longest: int, values: np.ndarray | None) -> tuple[tuple[Role, ...], float, float, float]:
    """The cards behind each cell, the size of its letters, and its width and height."""
    cut, (panels, rows, columns) = scene.layout, scene.devices.shape[:3]
    behind = (min(cut.replicas, 3) - 1) * scene.stacked
    along: list[Role] = [scene.mesh.names.index(name) for name in copies_along(cut)] or ["tile"]
    cards = tuple(along[n % len(along)] for n in range(behind))
    lines = 1
    if values is not None:
        inside = [cell_lines(scene, values, *place) for place in np.ndindex(*scene.devices.shape[:3])]
        longest = max(longest, *(len(line) for each in inside for line in each))
        lines = 1 + max(map(len, inside))
    least = (longest + 1.2) * _LETTER, 1.5 * lines
    spare = _CARD * (behind + 1) if behind else 0.0
    big = 340.0 if panels == 1 else 190.0
    wide = max(big * min(1, 1 / scene.aspect) / columns, _LEAST * least[0] + spare)
    high = max(big * min(1, scene.aspect) / rows, _LEAST * least[1] + spare)
    return cards, min(_LARGEST, (wide - spare) / least[0], (high - spare) / least[1]), wide, high


def _own(scene: Scene, panel: int) -> Iterator[Head]:
    """Where a panel stands along each mesh axis of the dimensions before its rows and columns."""
    for side, cell in zip(scene.depth, scene.place(panel), strict=True):
        for axis, spans in side.coordinates():
            each = [text for text, count in spans for _ in range(count)]
            span = f"{axis_text(axis)} {each[cell]}", scene.columns.cells
            yield Head(spans=(span,), role=_place(scene, axis), name="")


def _heads(scene: Scene, side: Side) -> tuple[Head, ...]:
    """The coordinates of each mesh axis along a side."""
    bars = side.coordinates() if side.ways > 1 else []
    return tuple(Head(spans=tuple(spans), role=_place(scene, axis), name=axis_text(axis)) for axis, spans in bars)


def _place(scene: Scene, axis: Axis) -> int:
    return scene.mesh.names.index(axis_name(axis))


def _slices(side: Side) -> tuple[str, ...]:
    return () if side.dimension is None else tuple(map(side.slice_text, range(side.cells)))


def _named(side: Side) -> str:
    """`dim 0 · 8192 · data`."""
    if side.dimension is None:
        return ""
    names = " · ".join(axis_text(axis) for axis, _ in side.axes)
    return f"dim {side.dimension} · {side.size}" + (f" · {names}" if names else "")


def _past(side: Side) -> tuple[float, ...]:
    """The share of each cell along a side that is padding."""
    return tuple(side.padding(k) / (side.shard * side.merged) for k in range(side.cells)) if side.padded else ()


def _outlines(scene: Scene, grids: Sequence[Grid], device: int) -> Iterator[Lines]:
    """The cell of a device, and those of its group along each axis; copies, all in its own cell, are outlined in it."""
    cut, mesh = scene.layout, scene.mesh
    groups = [(n, group_along(cut, device, n)) for n in range(len(mesh.names)) if mesh.sizes[n] > 1]
    own = np.asarray((scene.devices == mesh.ids()[device]).any(axis=-1))
    for axis, places in ((None, [device]), *groups):
        wanted = np.asarray(np.isin(scene.devices, mesh.ids()[places]).any(axis=-1))
        if axis is not None and (wanted & ~own).any():  # its own cell is outlined already
            wanted &= ~own
        look = {"stroke": "ink", "width": 2.6} if axis is None else {"stroke": axis, "width": 2.2, "dash": axis}
        name = "" if axis is None else mesh.names[axis]
        for grid, cells in zip(grids, wanted, strict=True):
            boxes = tuple(grid.box(r, c, _INSETS[axis is not None]) for r, c in np.argwhere(cells).tolist())
            if boxes:
                yield Lines(lines=boxes, closed=True, name=name, layer=_OUTLINES, **look)  # type: ignore[arg-type]
