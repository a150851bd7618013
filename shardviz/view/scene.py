"""Which devices stand in which cell of which grid: a shard map before it is a picture.

An array of any rank becomes panels of rows x columns. The last two dimensions that are sharded are the rows and
columns, those before them number the panels, and dimensions that are not sharded are folded away.

>>> from shardviz.layouts import layout
>>> scene = build_scene(layout((8, 6), ("data", None), {"data": 4, "model": 2}))
>>> scene.devices.shape, scene.label(0, 1, 0), scene.rows.slice_text(1)
((1, 4, 1, 2), '2-3', '2:4')
>>> scene.rows.coordinates()
[('data', [('0', 1), ('1', 1), ('2', 1), ('3', 1)])]
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from shardviz.kept import cached_property
from shardviz.layouts import Layout, ProcessLayout
from shardviz.notation import Axis, DeviceMesh, axis_name
from shardviz.notation.spec import KINDS, axis_size, axis_text
from shardviz.records.amounts import format_shape, plural
from shardviz.view.ranges import device_ranges, together

MOST_LETTERS, MOST_LISTED = 40, 64
"""Letters of a cell's devices, of which more are only counted: where the cell is several tiles, or the devices many."""


@dataclass(frozen=True, eq=False)
class Side:
    """One dimension of the array as a side of the grid.

    Attributes:
        dimension: which dimension; None where the array has none for this side (a vector has no rows).
        size: its number of elements.
        shard: elements of one tile, padding included.
        axes: the mesh axes that it is sharded along, major to minor, with their sizes.
        starts, stops: integers, one a cell: where the slice begins and ends, padding left out.
        merged: how many neighbouring tiles one cell stands for.
        first, of: where only a part of the side is drawn: the tile at which it begins, and how many there are in all.
    """

    dimension: int | None
    size: int
    shard: int
    axes: tuple[tuple[Axis, int], ...]
    starts: np.ndarray
    stops: np.ndarray
    merged: int = 1
    first: int = 0
    of: int = 0

    @property
    def cells(self) -> int:
        """The number of cells along this side."""
        return len(self.starts)

    @property
    def ways(self) -> int:
        """The number of tiles along the whole of this side."""
        return self.of or self.cells * self.merged

    def padding(self, cell: int) -> int:
        """Elements of this cell that lie beyond the array's end."""
        return self.shard * self.merged - int(self.stops[cell] - self.starts[cell])

    @property
    def padded(self) -> bool:
        """Whether the last tiles hold padding."""
        return self.shard * self.ways > self.size

    def slice_text(self, cell: int) -> str:
        """The slice of a cell, `2:4`."""
        return f"{self.starts[cell]}:{self.stops[cell]}"

    @cached_property
    def padding_texts(self) -> list[str]:
        """For each cell `2 of dimension 0`, or nothing; empty where no cell holds padding."""
        many = [self.padding(cell) for cell in range(self.cells)] if self.padded else []
        return [f"{n} of dimension {self.dimension}" if n else "" for n in many]

    def coordinates(self) -> list[tuple[Axis, list[tuple[str, int]]]]:
        """For every axis, major to minor, its coordinates along the side as (text, number of cells that share it)."""
        bars, inner = [], self.ways
        for axis, size in self.axes:
            inner //= size
            spans: list[tuple[str, int]] = []
            last = None
            for cell in range(self.cells):
                start = self.first + cell * self.merged
                first, end = start // inner, (start + self.merged - 1) // inner
                if first == end == last:
                    spans[-1] = (spans[-1][0], spans[-1][1] + 1)
                    continue
                whole = end - first + 1 >= size or first % size > end % size
                text = f"{first % size}" if first == end else "all" if whole else f"{first % size}-{end % size}"
                spans.append((text, 1))
                last = first if first == end else None
            if all(text == "all" for text, _ in spans):
                spans = [("all", self.cells)]
            bars.append((axis, spans))
        return bars


def side_text(side: Side, cell: int) -> str:
    """The slice of a cell along a side; `:` where there is one."""
    return side.slice_text(cell) if side.ways > 1 else ":"


@dataclass(frozen=True, eq=False)
class Scene:
    """A shard map before it is painted.

    Attributes:
        layout: what it shows.
        depth: the sharded dimensions before rows and columns; panels run over them in row-major order.
        rows, columns: the sides of each panel.
        devices: integers, panel x row x column x device: the ids that hold each cell.
        folded: dimensions that are not sharded and not drawn.
        processes: integers, as `devices`: the process of each; None where there is one, or they are not known.
    """

    layout: Layout
    depth: tuple[Side, ...]
    rows: Side
    columns: Side
    devices: np.ndarray
    folded: tuple[int, ...]
    processes: np.ndarray | None = None

    @property
    def mesh(self) -> DeviceMesh:
        """The device mesh."""
        return self.layout.mesh

    @property
    def cells(self) -> int:
        """The number of cells in all panels."""
        return math.prod(self.devices.shape[:3])

    @property
    def merged(self) -> int:
        """How many tiles one cell stands for; 1 where every tile is drawn."""
        return math.prod(side.merged for side in (*self.depth, self.rows, self.columns))

    @property
    def stacked(self) -> bool:
        """Whether every cell is one tile that several devices hold alike: a stack of equal cards."""
        alike = self.layout.partial_sums == self.layout.manual_ways == 1
        return alike and self.merged == 1 and self.layout.replicas > 1

    @cached_property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Where processes meet: booleans, panel x (row - 1) x column, and panel x row x (column - 1).

        True between neighbouring cells that are not held by the same processes.
        """
        panels, rows, columns = self.devices.shape[:3]
        if self.processes is None:
            return np.zeros((panels, rows - 1, columns), bool), np.zeros((panels, rows, columns - 1), bool)
        ordered = np.sort(self.processes, axis=3)
        return (
            np.any(ordered[:, 1:] != ordered[:, :-1], axis=3),
            np.any(ordered[:, :, 1:] != ordered[:, :, :-1], axis=3),
        )

    def process_text(self, panel: int, row: int, column: int) -> str:
        """The processes that hold a cell: `process 1`, `processes 0-3`; empty where there is one, or none is known."""
        if self.processes is None:
            return ""
        numbers = sorted(set(self.processes[panel, row, column].tolist()))
        return f"process{'es' if len(numbers) > 1 else ''} {device_ranges(numbers)}"

    @property
    def aspect(self) -> float:
        """Height over width of a panel, compressed so that 1 x 1,000,000 still reads: between 1/4 and 4."""
        if self.rows.dimension is None or not self.rows.size or not self.columns.size:
            return 0.25
        return float(np.clip((self.rows.size / self.columns.size) ** 0.35, 0.25, 4.0))

    def label(self, panel: int, row: int, column: int) -> str:
        """The device numbers of a cell, `0-7,16-23`; `0 + 1` where they hold partial sums, `0 / 1` where manual."""
        return self._text_of(self.devices[panel, row, column].tolist())

    def labels(self) -> list[list[list[str]]]:
        """The device numbers of every cell, panel by panel, row by row."""
        return self._labels

    @cached_property
    def longest(self) -> int:
        """Letters of the longest label."""
        return max(len(text) for panel in self.labels() for row in panel for text in row)

    @cached_property
    def _labels(self) -> list[list[list[str]]]:
        if self.devices.shape[3] == 1:
            return [[[str(i) for i in row] for row in panel] for panel in self.devices[..., 0].tolist()]
        return [[[self._text_of(ids) for ids in row] for row in panel] for panel in self.devices.tolist()]

    def _text_of(self, ids: list[int]) -> str:
        """Devices stand by manual array, then by partial sum, then by copy in every cell that is one tile."""
        sums, arrays = self.layout.partial_sums, self.layout.manual_ways
        text = device_ranges(ids)
        if len(text) > MOST_LETTERS and (self.merged > 1 or len(ids) > MOST_LISTED):
            text = f"{len(ids)} from {min(ids)} to {max(ids)}"
        if sums == arrays == 1:
            return text
        if self.merged > 1:
            return f"{'+' * (sums > 1)}{'/' * (arrays > 1)} {text}"
        copies = len(ids) // (sums * arrays)
        parts = [ids[i : i + copies] for i in range(0, len(ids), copies)]
        return together(*(parts[i : i + sums] for i in range(0, len(parts), sums)))

    def index_text(self, panel: int, row: int, column: int) -> str:
        """The slice of the array that a cell is, `[0:2, :, 3:6]`; empty brackets for a scalar."""
        cells = (*zip(self.depth, self.place(panel), strict=True), (self.rows, row), (self.columns, column))
        texts = {side.dimension: side_text(side, cell) for side, cell in cells}
        return "[" + ", ".join(texts.get(d, ":") for d in range(len(self.layout.shape))) + "]"

    def index_texts(self, panel: int) -> list[str]:
        """The slice of the array that each cell of a panel is, row by row, and what of it is padding."""
        parts, extra = [":"] * len(self.layout.shape), []
        for side, cell in zip(self.depth, self.place(panel), strict=True):
            parts[side.dimension or 0] = side.slice_text(cell)
            extra += side.padding_texts[cell : cell + 1]
        across = [
            (side_text(self.columns, c), self.columns.padding_texts[c : c + 1]) for c in range(self.columns.cells)
        ]
        texts = []
        for r in range(self.rows.cells):
            if self.rows.dimension is not None:
                parts[self.rows.dimension] = side_text(self.rows, r)
            down = [*extra, *self.rows.padding_texts[r : r + 1]]
            for text, padding in across:
                if self.columns.dimension is not None:
                    parts[self.columns.dimension] = text
                more = " and ".join(filter(None, (*down, *padding)))
                texts.append(f"[{', '.join(parts)}]" + (f", padded by {more}," if more else ""))
        return texts

    def panel_text(self, panel: int) -> str:
        """Which part of the dimensions before its rows a panel is: `dimension 0, 2:4`; empty where there is one."""
        places = zip(self.depth, self.place(panel), strict=True)
        return "; ".join(f"dimension {side.dimension}, {side.slice_text(cell)}" for side, cell in places)

    def place(self, panel: int) -> tuple[int, ...]:
        """The cell of each side of `depth` that a panel is."""
        return tuple(int(i) for i in np.unravel_index(panel, tuple(s.cells for s in self.depth))) if self.depth else ()


def build_scene(layout: Layout, hosts: ProcessLayout | None = None) -> Scene:
    """The grid of distinct tiles of an array and the devices in each.

    Args:
        layout: where every slice lies.
        hosts: what each process holds, where processes are to be told apart.

    Returns:
        The `Scene`, one cell a tile; see `coarsen` for fewer.
    """
    rank, ways = len(layout.shape), layout.ways
    cut = [d for d in range(rank) if ways[d] > 1]
    if len(cut) >= 2:
        *depth, row, column = cut
    elif rank < 2:
        depth, row, column = [], None, rank - 1 if rank else None
    else:
        row, column = (cut[0], rank - 1) if cut and cut[0] < rank - 1 else (rank - 2, rank - 1)
        depth = []
    sides = [_side(layout, d) for d in (*depth, row, column)]
    drawn = [s.dimension for s in sides if s.dimension is not None]
    flat = np.zeros(layout.mesh.size, np.int64)
    for d in drawn:
        flat = flat * ways[d] + layout.tiles[:, d]
    flat = (flat * layout.manual_ways + layout.manual_ids) * layout.partial_sums + layout.partial_ids
    held = slice(None) if layout.holds.all() else layout.holds
    order = np.argsort(flat[held], kind="stable")
    grid = math.prod(s.cells for s in sides[:-2]), sides[-2].cells, sides[-1].cells, -1
    devices = layout.device_ids[held][order].reshape(grid)
    folded = tuple(d for d in range(rank) if d not in drawn)
    processes = None
    if hosts is not None and len(hosts.processes) > 1:
        processes = hosts.processes[hosts.process_of][held][order].reshape(grid)
    return Scene(layout, tuple(sides[:-2]), sides[-2], sides[-1], devices, folded, processes)


def _side(layout: Layout, dimension: int | None) -> Side:
    if dimension is None:
        return Side(None, 1, 1, (), np.zeros(1, np.int64), np.ones(1, np.int64))
    size, shard, ways = layout.shape[dimension], layout.shard_shape[dimension], layout.ways[dimension]
    dims = () if layout.spec is None else layout.spec.dims[dimension]
    axes = tuple((a, axis_size(a, layout.mesh)) for a in dims)
    starts = np.minimum(np.arange(ways) * shard, size)
    stops = np.minimum(starts + shard, size)
    return Side(dimension, size, shard, tuple((a, n) for a, n in axes if n > 1), starts, stops)


def coarsen(scene: Scene, *, rows: int, columns: int, panels: int) -> Scene:
    """A scene with at most so many cells each way: neighbouring tiles are merged where there are more.

    Args:
        scene: the scene with one cell a tile.
        rows, columns, panels: the most of each.

    Returns:
        The same scene if it is small enough; else one whose cells hold the devices of `Scene.merged` tiles.
    """
    _, r, c, n = scene.devices.shape
    by = [1] * len(scene.depth)
    for place in reversed(range(len(by))):  # the innermost first, so that what is merged lies close together
        left = math.prod(s.cells // k for s, k in zip(scene.depth, by, strict=True)) // scene.depth[place].cells
        by[place] = _factor(scene.depth[place].cells, max(1, panels // left))
    by += [_factor(r, rows), _factor(c, columns)]
    if all(k == 1 for k in by):
        return scene
    sides = (*scene.depth, scene.rows, scene.columns)
    *depth, row, column = (_merge(s, k) for s, k in zip(sides, by, strict=True))
    grid = math.prod(s.cells for s in depth), row.cells, column.cells, -1

    def merged(entries: np.ndarray) -> np.ndarray:
        blocks = entries.reshape(*(size for s, k in zip(sides, by, strict=True) for size in (s.cells // k, k)), n)
        count = 2 * len(sides)
        return blocks.transpose(*range(0, count, 2), *range(1, count, 2), count).reshape(grid)

    return dataclasses.replace(
        scene,
        depth=tuple(depth),
        rows=row,
        columns=column,
        devices=merged(scene.devices),
        processes=None if scene.processes is None else merged(scene.processes),
    )


def _factor(count: int, limit: int) -> int:
    return next(k for k in range(1, count + 1) if count % k == 0 and count // k <= limit)


def _merge(side: Side, by: int) -> Side:
    return dataclasses.replace(side, starts=side.starts[::by], stops=side.stops[by - 1 :: by], merged=by)


def near(fine: Scene, few: Scene, device: int) -> Scene:
    """The slices that the cell of a device stands for.

    >>> from shardviz.layouts import layout
    >>> fine = build_scene(layout((64, 64), ("x", "y"), {"x": 16, "y": 8}))
    >>> near(fine, coarsen(fine, rows=4, columns=4, panels=1), 27).devices[0, :, :, 0].tolist()
    [[2, 3], [10, 11], [18, 19], [26, 27]]

    Args:
        fine: the scene with one cell a tile, or what this gave of it.
        few: the same with several tiles a cell.
        device: the id of a device that holds a cell.
    """
    panel, r, c = np.argwhere((few.devices == device).any(axis=-1))[0].tolist()
    sides = (*fine.depth, fine.rows, fine.columns)
    merged = (*few.depth, few.rows, few.columns)
    parts = [
        slice(cell * side.merged, (cell + 1) * side.merged)
        for cell, side in zip((*few.place(panel), r, c), merged, strict=True)
    ]
    *depth, rows, columns = (
        dataclasses.replace(
            side, starts=side.starts[part], stops=side.stops[part], first=side.first + part.start, of=side.ways
        )
        for side, part in zip(sides, parts, strict=True)
    )

    def cut(entries: np.ndarray) -> np.ndarray:
        whole = entries.reshape(*(side.cells for side in sides), entries.shape[-1])[tuple(parts)]
        return whole.reshape(-1, rows.cells, columns.cells, entries.shape[-1])

    return dataclasses.replace(
        fine,
        depth=tuple(depth),
        rows=rows,
        columns=columns,
        devices=cut(fine.devices),
        processes=None if fine.processes is None else cut(fine.processes),
    )


# Who holds the same, and who stands in a line with whom.


def copies_along(cut: Layout) -> tuple[str, ...]:
    """The mesh axes along which devices hold the same data."""
    mesh, found = cut.mesh, []
    told_apart = {axis_name(a) for a in (*cut.unreduced, *cut.manual)}
    starts = np.asarray(cut.starts).reshape(*mesh.sizes, -1)
    for place, (name, size) in enumerate(mesh.shape.items()):
        alike = bool((starts == np.take(starts, [0], axis=place)).all())
        if size > 1 and alike and name not in told_apart and not cut.maximal:
            found.append(name)
    return tuple(found)


def group_along(cut: Layout, device: int, axis: int) -> list[int]:
    """The places in the mesh that differ from a device's in one axis alone, its own included."""
    sizes = cut.mesh.sizes
    at = list(np.unravel_index(device, sizes))
    return [int(np.ravel_multi_index([*at[:axis], k, *at[axis + 1 :]], sizes)) for k in range(sizes[axis])]


# A shard map in words.


def describe(scene: Scene) -> str:
    """The shard map in a sentence or two: the alt text of every picture of it.

    >>> from shardviz.layouts import layout
    >>> print(describe(build_scene(layout((8, 6), ("x",), {"x": 2, "y": 2}))).split(": ", 1)[1])
    sharded 2 ways into shards of [4, 6] (dimension 0 along x); each slice is on 2 devices.
    """
    layout = scene.layout
    cuts = [s for s in (*scene.depth, scene.rows, scene.columns) if s.ways > 1]
    mesh = f"mesh {layout.mesh}, {plural(layout.mesh.size, 'device')}" if layout.mesh.names else "one device"
    text = f"Array {format_shape(layout.shape)} on {mesh}: "
    if cuts:
        ways = " x ".join(str(s.ways) for s in cuts)
        by = ", ".join(f"dimension {s.dimension}{_over(s)}" for s in cuts)
        text += f"sharded {ways} ways into shards of {format_shape(layout.shard_shape)} ({by})"
    else:
        text += "not sharded"
    return f"{text}; {_held(layout, bool(cuts))}."


def _over(side: Side) -> str:
    return f" along {' and '.join(axis_text(a) for a, _ in side.axes)}" if side.axes else f" {side.ways} ways"


def _held(layout: Layout, cut: bool) -> str:
    """Who holds what: copies, partial sums, arrays of their own, or one device everything."""
    if layout.maximal:
        return f"device {_holder(layout)} holds all of it, the others nothing"
    if layout.partial_sums == layout.manual_ways == 1:
        return f"each slice is on {plural(layout.replicas, 'device')}" if cut else "every device holds all of it"
    parts = []
    if layout.manual_ways > 1:
        parts.append(f"{plural(layout.manual_ways, 'array')} kept apart along manual {_names(layout.manual)}")
    if layout.partial_sums > 1:
        parts.append(
            f"each {'slice' if cut else 'element'} is the {layout.unreduced_kind} of {layout.partial_sums} "
            f"partial {KINDS[layout.unreduced_kind]} along "
            f"{_names(layout.unreduced)}"
        )
    copies = f", each on {plural(layout.replicas, 'device')}" if layout.replicas > 1 else ""
    return "; ".join(parts) + copies


def _names(axes: tuple[Axis, ...]) -> str:
    return ", ".join(map(axis_text, axes)) or "no mesh axis"


def _holder(layout: Layout) -> int:
    return int(layout.device_ids[np.argmax(layout.holds)])


def notes(scene: Scene) -> list[str]:
    """What the grid itself does not show: folded dimensions, padding, replicas, merged cells, partial sums."""
    layout, lines = scene.layout, []
    if layout.why and not layout.maximal:
        lines.append(f"no PartitionSpec: {layout.why}")
    if layout.maximal:
        empty = layout.mesh.size - int(layout.holds.sum())
        lines.append(f"device {_holder(layout)} holds all of it; {plural(empty, 'other device')} hold nothing")
    if scene.folded:
        which = ", ".join(f"{d} (size {layout.shape[d]})" for d in scene.folded)
        noun = "dimension" if len(scene.folded) == 1 else "dimensions"
        lines.append(f"not sharded and not drawn: {noun} {which}")
    for side in (*scene.depth, scene.rows, scene.columns):
        if side.padded:
            extra = side.shard * side.ways - side.size
            empty = (side.ways * side.shard - side.size) // side.shard if side.shard else 0
            what = f"dimension {side.dimension} is {side.size}, {side.ways} shards of {side.shard} hold {extra} more"
            lines.append(f"padding: {what}" + (f"; {empty} of them nothing but padding" if empty else ""))
    if layout.replicas > 1:
        what = (
            f"partial {layout.unreduced_kind}"
            if layout.partial_sums > 1
            else "array's slice"
            if layout.manual_ways > 1
            else "slice"
        )
        lines.append(f"each {what} is on {layout.replicas} devices")
    if layout.partial_sums > 1:
        lines.append(
            f"unreduced: devices along {_names(layout.unreduced)} hold partial {KINDS[layout.unreduced_kind]} of a "
            "slice, not copies of it; + stands between them"
        )
    if layout.manual_ways > 1:
        lines.append(
            f"manual: devices along {_names(layout.manual)} hold arrays of their own, which the program keeps apart; "
            "/ stands between them"
        )
    if any(layout.open):
        which = ", ".join(str(d) for d, opened in enumerate(layout.open) if opened)
        noun = "dimension" if sum(layout.open) == 1 else "dimensions"
        lines.append(f"open: the compiler may shard {noun} {which} further than is drawn")
    if any(edges.any() for edges in scene.edges):
        lines.append("thick lines stand where processes meet")
    if scene.merged > 1:
        lines.append(f"each cell stands for {scene.merged} neighbouring shards")
    return lines
