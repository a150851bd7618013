"""The geometry of a shard map, shared by every painter: which devices stand in which cell of which grid.

An array of any rank becomes panels of rows x columns. The last two dimensions that are cut are the rows and columns,
those before them number the panels, and dimensions that are not cut are folded away.

>>> from shardviz.layout import layout
>>> scene = build_scene(layout((8, 6), ("data", None), {"data": 4, "model": 2}))
>>> scene.devices.shape, scene.label(0, 1, 0), scene.rows.slice_text(1)
((1, 4, 1, 2), '2-3', '2:4')
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shardviz.layout import Layout
from shardviz.notation import Axis, DeviceMesh
from shardviz.notation.spec import axis_size, axis_text
from shardviz.render.format import format_shape, plural


@dataclass(frozen=True, eq=False)
class Side:
    """One dimension of the array as a side of the grid.

    Attributes:
        dimension: which dimension; None where the array has none for this side (a vector has no rows).
        size: its number of elements.
        shard: elements of one tile, padding included.
        axes: the mesh axes that cut it, major to minor, with their sizes.
        starts, stops: integers, one a cell: where the slice begins and ends, padding left out.
        merged: how many neighbouring tiles one cell stands for.
    """

    dimension: int | None
    size: int
    shard: int
    axes: tuple[tuple[Axis, int], ...]
    starts: np.ndarray
    stops: np.ndarray
    merged: int = 1

    @property
    def cells(self) -> int:
        """The number of cells along this side."""
        return len(self.starts)

    @property
    def ways(self) -> int:
        """The number of tiles along this side."""
        return self.cells * self.merged

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

    def coordinates(self) -> list[tuple[Axis, list[tuple[str, int]]]]:
        """For every axis, major to minor, its coordinates along the side as (text, number of cells that share it)."""
        bars, inner = [], self.ways
        for axis, size in self.axes:
            inner //= size
            spans: list[tuple[str, int]] = []
            last = None
            for cell in range(self.cells):
                first, end = cell * self.merged // inner, ((cell + 1) * self.merged - 1) // inner
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

    def text(self) -> str:
        """In words: `dimension 0: 8192 by data=8, 1024 each`."""
        if self.dimension is None:
            return ""
        cut = " by " + " x ".join(f"{axis_text(a)}={n}" for a, n in self.axes) if self.axes else ", not cut"
        return f"dimension {self.dimension}: {self.size}{cut}" + (f", {self.shard} each" if self.ways > 1 else "")


@dataclass(frozen=True, eq=False)
class Scene:
    """A shard map before it is painted.

    Attributes:
        layout: what it shows.
        depth: the cut dimensions before rows and columns; panels run over them in row-major order.
        rows, columns: the sides of each panel.
        devices: integers, panel x row x column x device: the ids that hold each cell.
        folded: dimensions that are not cut and not drawn.
        merged_panels: how many neighbouring tiles of `depth` one panel stands for.
    """

    layout: Layout
    depth: tuple[Side, ...]
    rows: Side
    columns: Side
    devices: np.ndarray
    folded: tuple[int, ...]
    merged_panels: int = 1

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
        return self.rows.merged * self.columns.merged * self.merged_panels

    @property
    def aspect(self) -> float:
        """Height over width of a panel, compressed so that 1 x 1,000,000 still reads: between 1/4 and 4."""
        if self.rows.dimension is None or not self.rows.size or not self.columns.size:
            return 0.25
        return float(np.clip((self.rows.size / self.columns.size) ** 0.35, 0.25, 4.0))

    def label(self, panel: int, row: int, column: int) -> str:
        """The device numbers of a cell, `0-7,16-23`."""
        return device_ranges(self.devices[panel, row, column].tolist())

    def labels(self) -> list[list[list[str]]]:
        """The device numbers of every cell, panel by panel, row by row."""
        if self.devices.shape[3] == 1:
            return [[[str(i) for i in row] for row in panel] for panel in self.devices[..., 0].tolist()]
        return [[[device_ranges(ids) for ids in row] for row in panel] for panel in self.devices.tolist()]

    def index_text(self, panel: int, row: int, column: int) -> str:
        """The slice of the array that a cell is, `[0:2, :, 3:6]`; empty brackets for a scalar."""
        parts = [":"] * len(self.layout.shape)
        for side, cell in ((self.rows, row), (self.columns, column)):
            if side.dimension is not None and side.ways > 1:
                parts[side.dimension] = side.slice_text(cell)
        first = panel * self.merged_panels
        ends = zip(self._place(first), self._place(first + self.merged_panels - 1), self.depth, strict=True)
        for a, b, side in ends:
            if side.dimension is not None:
                parts[side.dimension] = f"{side.starts[a]}:{side.stops[b]}" if a <= b else ":"
        return "[" + ", ".join(parts) + "]"

    def panel_text(self, panel: int) -> str:
        """Which part of the leading cut dimensions a panel is: `dimension 0, 2:4`; empty where there is one panel."""
        first, last = panel * self.merged_panels, (panel + 1) * self.merged_panels - 1
        parts = []
        for a, b, side in zip(self._place(first), self._place(last), self.depth, strict=True):
            parts.append(
                f"dimension {side.dimension}, {side.starts[a]}:{side.stops[b]}"
                if a <= b
                else f"dimension {side.dimension}, :"
            )
        return "; ".join(parts)

    def _place(self, panel: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(panel, tuple(s.cells for s in self.depth))) if self.depth else ()


def build_scene(layout: Layout) -> Scene:
    """The grid of distinct tiles of an array and the devices in each.

    Args:
        layout: where every slice lies.

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
    panels = math.prod(s.cells for s in sides[:-2])
    devices = layout.device_ids[np.argsort(flat, kind="stable")]
    devices = devices.reshape(panels, sides[-2].cells, sides[-1].cells, -1)
    folded = tuple(d for d in range(rank) if d not in drawn)
    return Scene(layout, tuple(sides[:-2]), sides[-2], sides[-1], devices, folded)


def _side(layout: Layout, dimension: int | None) -> Side:
    if dimension is None:
        return Side(None, 1, 1, (), np.zeros(1, np.int64), np.ones(1, np.int64))
    size, shard, ways = layout.shape[dimension], layout.shard_shape[dimension], layout.ways[dimension]
    axes = tuple((a, axis_size(a, layout.mesh)) for a in layout.spec.dims[dimension])
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
    p, r, c, n = scene.devices.shape
    by_panel, by_row, by_column = _factor(p, panels), _factor(r, rows), _factor(c, columns)
    if by_panel == by_row == by_column == 1:
        return scene
    blocks = scene.devices.reshape(p // by_panel, by_panel, r // by_row, by_row, c // by_column, by_column, n)
    devices = blocks.transpose(0, 2, 4, 1, 3, 5, 6).reshape(p // by_panel, r // by_row, c // by_column, -1)
    return dataclasses.replace(
        scene,
        rows=_merge(scene.rows, by_row),
        columns=_merge(scene.columns, by_column),
        devices=devices,
        merged_panels=by_panel,
    )


def _factor(count: int, limit: int) -> int:
    return next(k for k in range(1, count + 1) if count % k == 0 and count // k <= limit)


def _merge(side: Side, by: int) -> Side:
    return dataclasses.replace(side, starts=side.starts[::by], stops=side.stops[by - 1 :: by], merged=by)


def device_ranges(devices: Iterable[int]) -> str:
    """Device numbers, ascending, as short as they can be said exactly.

    >>> device_ranges([0, 1, 2, 3, 16, 17]), device_ranges(range(0, 64, 8)), device_ranges([3])
    ('0-3,16-17', '0,8,…,56', '3')
    """
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and device == runs[-1][1] + 1:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    return _join(runs)


def _join(runs: list[list[int]]) -> str:
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    if len(runs) > 3:
        steps = {(b[0] - a[0], b[1] - b[0] - (a[1] - a[0])) for a, b in itertools.pairwise(runs)}
        if len(steps) == 1 and next(iter(steps))[1] == 0:
            return f"{texts[0]},{texts[1]},…,{texts[-1]}"
    return ",".join(texts)


def describe(scene: Scene) -> str:
    """The shard map in a sentence or two: the alt text of every picture of it."""
    layout = scene.layout
    cuts = [s for s in (*scene.depth, scene.rows, scene.columns) if s.ways > 1]
    mesh = f"mesh {layout.mesh}, {plural(layout.mesh.size, 'device')}" if layout.mesh.names else "one device"
    text = f"Array {format_shape(layout.shape)} on {mesh}: "
    if cuts:
        ways = " x ".join(str(s.ways) for s in cuts)
        by = ", ".join(f"dimension {s.dimension} over {' and '.join(axis_text(a) for a, _ in s.axes)}" for s in cuts)
        text += f"cut {ways} ways into shards of {format_shape(layout.shard_shape)} ({by})"
    else:
        text += "not cut"
    holders = "every device holds all of it" if not cuts else f"each slice is on {plural(layout.replicas, 'device')}"
    return f"{text}; {holders}."


def notes(scene: Scene) -> list[str]:
    """What the grid itself does not show: folded dimensions, padding, replicas, merged cells, partial sums."""
    layout, lines = scene.layout, []
    if scene.folded:
        which = ", ".join(f"{d} (size {layout.shape[d]})" for d in scene.folded)
        noun = "dimension" if len(scene.folded) == 1 else "dimensions"
        lines.append(f"not cut and not drawn: {noun} {which}")
    for side in (*scene.depth, scene.rows, scene.columns):
        if side.padded:
            extra = side.shard * side.ways - side.size
            empty = (side.ways * side.shard - side.size) // side.shard if side.shard else 0
            what = f"dimension {side.dimension} is {side.size}, {side.ways} shards of {side.shard} hold {extra} more"
            lines.append(f"padding: {what}" + (f"; {empty} of them nothing but padding" if empty else ""))
    if layout.replicas > 1:
        lines.append(f"each slice is on {layout.replicas} devices")
    if layout.spec.unreduced:
        axes = ", ".join(axis_text(a) for a in layout.spec.unreduced)
        lines.append(f"unreduced: devices along {axes} hold partial sums of a slice, not copies of it")
    if scene.merged > 1:
        lines.append(f"each cell stands for {scene.merged} neighbouring shards")
    return lines
