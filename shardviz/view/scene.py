"""Which devices stand in which cell of which grid: a shard map before it is a picture.

An array of any rank becomes panels of rows x columns. The last two dimensions that are sharded are the rows and
columns, those before them number the panels, and dimensions that are not sharded are folded away. Cells are numbered
row by row, panel by panel.

>>> from shardviz.layouts import layout
>>> scene = build_scene(layout((8, 6), ("data", None), {"data": 4, "model": 2}))
>>> scene.devices.shape, scene.labels[1], scene.slices[1]
((1, 4, 1, 2), '2-3', '[2:4, :]')
>>> scene.rows.coordinates()
[('data', [('0', 1), ('1', 1), ('2', 1), ('3', 1)])]
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shardviz.caching import cached_property
from shardviz.layouts import Layout
from shardviz.notation import Axis, DeviceMesh, axis_name
from shardviz.notation.spec import KINDS, axis_size, axis_text
from shardviz.records.amounts import format_shape, plural
from shardviz.view.document import device_ranges

MOST_LETTERS, MOST_LISTED = 40, 64
"""Letters of a cell's devices, of which more are only counted: where the cell is several tiles, or the devices many."""
SHORT = 24
"""Letters; partial sums or manual arrays that need more to be told apart are only marked by their sign."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One dimension of the array (None where it has none for this side: a vector has no rows) as a side of the grid:
    its elements, those of one tile with padding (`shard`), its mesh axes, major to minor, with their sizes, and how
    many neighbouring tiles each cell stands for (`merged`)."""

    dimension: int | None = None
    size: int = 1
    shard: int = 1
    axes: tuple[tuple[Axis, int], ...] = ()
    cells: int = 1
    merged: int = 1

    @property
    def ways(self) -> int:
        """The number of tiles along this side."""
        return self.cells * self.merged

    @cached_property
    def bounds(self) -> list[int]:
        """Where the cells begin, and where the last one ends, padding left out."""
        return [min(k * self.merged * self.shard, self.size) for k in range(self.cells + 1)]

    def padding(self, cell: int) -> int:
        """Elements of this cell that lie beyond the array's end."""
        return self.shard * self.merged - (self.bounds[cell + 1] - self.bounds[cell])

    @property
    def padded(self) -> bool:
        """Whether the last tiles hold padding."""
        return self.shard * self.ways > self.size

    @cached_property
    def slices(self) -> list[str]:
        """The slice of each cell, `2:4`."""
        return [f"{start}:{stop}" for start, stop in itertools.pairwise(self.bounds)]

    @property
    def texts(self) -> list[str]:
        """The slice of each cell; `:` where there is one."""
        return self.slices if self.ways > 1 else [":"]

    @property
    def padding_texts(self) -> list[str]:
        """For each cell `2 of dimension 0`, or nothing."""
        sizes = map(self.padding, range(self.cells)) if self.padded else [0] * self.cells
        return [f"{n} of dimension {self.dimension}" if n else "" for n in sizes]

    def coordinates(self) -> list[tuple[Axis, list[tuple[str, int]]]]:
        """For every axis, major to minor, its coordinates along the side as (text, number of cells that share it)."""
        bars, inner = [], self.ways
        for axis, size in self.axes:
            inner //= size
            texts: list[tuple[int | None, str]] = []  # for each cell where it stands, if in one place, and in words
            for cell in range(self.cells):
                start = cell * self.merged
                first, end = start // inner, (start + self.merged - 1) // inner
                whole = end - first + 1 >= size or first % size > end % size
                text = f"{first % size}" if first == end else "all" if whole else f"{first % size}-{end % size}"
                texts.append((first if first == end else -1 - cell, text))
            if all(text == "all" for _, text in texts):
                texts = [(0, "all")] * self.cells
            bars.append((axis, [(key[1], len(list(same))) for key, same in itertools.groupby(texts)]))
        return bars


@dataclass(frozen=True, eq=False)
class Scene:
    """A shard map before it is painted: its sides, of which the last two are the rows and columns of each panel, and
    the ids that hold each cell: integers, an axis for each side, then devices."""

    layout: Layout
    sides: tuple[Side, ...]
    held: np.ndarray

    @property
    def mesh(self) -> DeviceMesh:
        return self.layout.mesh

    @property
    def depth(self) -> tuple[Side, ...]:
        """The sharded dimensions before rows and columns; panels run over them in row-major order."""
        return self.sides[:-2]

    @property
    def rows(self) -> Side:
        return self.sides[-2]

    @property
    def columns(self) -> Side:
        return self.sides[-1]

    @property
    def devices(self) -> np.ndarray:
        """The ids that hold each cell: panel x row x column x device."""
        return self.held.reshape(-1, *self.held.shape[-3:])

    @property
    def cells(self) -> int:
        """The number of cells in all panels."""
        return math.prod(side.cells for side in self.sides)

    @property
    def merged(self) -> int:
        """How many tiles one cell stands for; 1 where every tile is drawn."""
        return math.prod(side.merged for side in self.sides)

    @property
    def folded(self) -> list[int]:
        """Dimensions that are not sharded and not drawn."""
        drawn = {side.dimension for side in self.sides}
        return [d for d in range(len(self.layout.shape)) if d not in drawn]

    @property
    def stacked(self) -> bool:
        """Whether every cell is one tile that several devices hold alike: a stack of equal cards."""
        alike = self.layout.partial_sums == self.layout.manual_ways == 1
        return alike and self.merged == 1 and self.layout.replicas > 1

    @property
    def aspect(self) -> float:
        """Height over width of a panel, compressed so that 1 x 1,000,000 still reads: between 1/4 and 4."""
        if self.rows.dimension is None or not self.rows.size or not self.columns.size:
            return 0.25
        return float(np.clip((self.rows.size / self.columns.size) ** 0.35, 0.25, 4.0))

    @cached_property
    def labels(self) -> list[str]:
        """The device numbers of each cell, `0-7,16-23`; `0 + 1` where they hold partial sums, `0 / 1` where manual."""
        return list(map(self.label, self.held.reshape(self.cells, -1).tolist()))

    def label(self, ids: list[int]) -> str:
        """Device numbers; in a cell of one tile they are sorted by manual array, then by partial sum, then by copy."""
        if len(ids) == 1:
            return str(ids[0])
        sums, arrays = self.layout.partial_sums, self.layout.manual_ways
        text = device_ranges(ids)
        if len(text) > MOST_LETTERS and (self.merged > 1 or len(ids) > MOST_LISTED):
            text = f"{len(ids)} from {min(ids)} to {max(ids)}"
        if sums == arrays == 1:
            return text
        if self.merged == 1:
            parts = np.array(ids).reshape(arrays, sums, -1)
            apart = " / ".join(" + ".join(map(device_ranges, array)) for array in parts.tolist())
            if len(apart) <= SHORT:
                return apart
            text = device_ranges(ids)
        return f"{'+' * (sums > 1)}{'/' * (arrays > 1)} {text}"

    @cached_property
    def slices(self) -> list[str]:
        """The slice of the array that each cell is, `[0:2, :, 3:6]`; empty brackets for a scalar."""
        texts, parts = [], [":"] * len(self.layout.shape)
        for cell in itertools.product(*(side.texts for side in self.sides)):
            for side, text in zip(self.sides, cell, strict=True):
                if side.dimension is not None:
                    parts[side.dimension] = text
            texts.append(f"[{', '.join(parts)}]")
        return texts

    @property
    def paddings(self) -> list[str]:
        """What of each cell is padding, `2 of dimension 0`; empty where nothing is."""
        if not any(side.padded for side in self.sides):
            return [""] * self.cells
        return [" and ".join(filter(None, cell)) for cell in itertools.product(*(s.padding_texts for s in self.sides))]

    def panel_text(self, panel: int) -> str:
        """Which part of the dimensions before its rows a panel is: `dimension 0, 2:4`; empty where there is one."""
        places = zip(self.depth, self.place(panel), strict=True)
        return "; ".join(f"dimension {side.dimension}, {side.slices[cell]}" for side, cell in places)

    def place(self, panel: int) -> tuple[int, ...]:
        """The cell of each side of `depth` that a panel is."""
        return tuple(map(int, np.unravel_index(panel, tuple(side.cells for side in self.depth)))) if self.depth else ()


def build_scene(layout: Layout) -> Scene:
    """The grid of an array's distinct tiles, one cell a tile, and the devices in each; `coarsen` gives fewer cells."""
    rank, ways = len(layout.shape), layout.ways
    cut = [d for d in range(rank) if ways[d] > 1]
    if len(cut) >= 2:
        drawn = cut
    elif rank < 2:
        drawn = [None, rank - 1 if rank else None]
    else:
        drawn = [cut[0] if cut and cut[0] < rank - 1 else rank - 2, rank - 1]
    flat = np.zeros(layout.mesh.size, np.int64)
    for d in drawn:
        flat = flat if d is None else flat * ways[d] + layout.tiles[:, d]
    flat = (flat * layout.manual_ways + layout.manual_ids) * layout.partial_sums + layout.partial_ids
    order = np.argsort(flat[layout.holds], kind="stable")
    sides = tuple(_side(layout, d) for d in drawn)
    held = layout.device_ids[layout.holds][order].reshape(*(side.cells for side in sides), -1)
    return Scene(layout, sides, held)


def _side(cut: Layout, d: int | None) -> Side:
    if d is None:
        return Side()
    axes = () if cut.spec is None else tuple((axis, axis_size(axis, cut.mesh)) for axis in cut.spec.dims[d])
    axes = tuple((axis, size) for axis, size in axes if size > 1)
    return Side(dimension=d, size=cut.shape[d], shard=cut.shard_shape[d], axes=axes, cells=cut.ways[d])


def coarsen(scene: Scene, rows: int, columns: int, panels: int) -> Scene:
    """A scene with at most so many cells each way: neighbouring tiles are merged where there are more."""
    counts = [side.cells for side in scene.sides]
    by = [1] * len(scene.depth)
    for place in reversed(range(len(by))):  # the innermost first, so that what is merged lies close together
        others = math.prod(n // k for n, k in zip(counts, by, strict=False)) // counts[place]
        by[place] = _factor(counts[place], max(1, panels // others))
    by += [_factor(counts[-2], rows), _factor(counts[-1], columns)]
    if all(k == 1 for k in by):
        return scene
    few, rank = [n // k for n, k in zip(counts, by, strict=True)], len(counts)
    blocks = scene.held.reshape(*itertools.chain(*zip(few, by, strict=True)), -1)
    held = blocks.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2), 2 * rank).reshape(*few, -1)
    sides = (dataclasses.replace(side, cells=n, merged=k) for side, n, k in zip(scene.sides, few, by, strict=True))
    return dataclasses.replace(scene, sides=tuple(sides), held=held)


def _factor(count: int, limit: int) -> int:
    return next(k for k in range(1, count + 1) if count % k == 0 and count // k <= limit)


def copies_along(cut: Layout) -> tuple[str, ...]:
    """The mesh axes along which devices hold the same data."""
    told_apart = {axis_name(a) for a in (*cut.unreduced, *cut.manual)}
    starts = np.asarray(cut.starts).reshape(*cut.mesh.sizes, -1)
    return tuple(
        name
        for place, (name, size) in enumerate(cut.mesh.shape.items())
        if size > 1 and name not in told_apart and not cut.maximal
        if (starts == np.take(starts, [0], axis=place)).all()
    )


def describe(scene: Scene) -> str:
    """How an array is sharded, in a sentence: the alt text of every picture of it; who holds what is in `notes`.

    >>> from shardviz.layouts import layout
    >>> print(describe(build_scene(layout((8, 6), ("x",), {"x": 2, "y": 2}))).split(": ", 1)[1])
    sharded 2 ways into shards of [4, 6] (dimension 0 along x).
    """
    layout, cuts = scene.layout, [s for s in scene.sides if s.ways > 1]
    mesh = f"mesh {layout.mesh}, {plural(layout.mesh.size, 'device')}" if layout.mesh.names else "one device"
    along = (f" along {' and '.join(axis_text(a) for a, _ in s.axes)}" if s.axes else f" {s.ways} ways" for s in cuts)
    by = ", ".join(f"dimension {s.dimension}{how}" for s, how in zip(cuts, along, strict=True))
    shards = f"sharded {' x '.join(str(s.ways) for s in cuts)} ways into shards of {format_shape(layout.shard_shape)}"
    return f"Array {format_shape(layout.shape)} on {mesh}: {f'{shards} ({by})' if cuts else 'not sharded'}."


def _names(axes: tuple[Axis, ...]) -> str:
    return ", ".join(map(axis_text, axes)) or "no mesh axis"


def _dimensions(which: Iterable[object]) -> str:
    texts = list(map(str, which))
    return f"dimension{'s' * (len(texts) > 1)} {', '.join(texts)}"


def notes(scene: Scene) -> list[str]:
    """What the grid itself does not show: folded dimensions, padding, replicas, merged cells, partial sums."""
    layout, lines = scene.layout, []
    if layout.why and not layout.maximal:
        lines.append(f"no PartitionSpec: {layout.why}")
    if layout.maximal:
        empty = layout.mesh.size - int(layout.holds.sum())
        holder = int(layout.device_ids[np.argmax(layout.holds)])
        lines.append(f"device {holder} holds all of it; {plural(empty, 'other device')} hold nothing")
    if scene.folded:
        folded = _dimensions(f"{d} (size {layout.shape[d]})" for d in scene.folded)
        lines.append(f"not sharded and not drawn: {folded}")
    for side in scene.sides:
        if side.padded:
            extra = side.shard * side.ways - side.size
            empty = extra // side.shard if side.shard else 0
            shards = f"{side.ways} shards of {side.shard}" + (f", {empty} of them only padding" if empty else "")
            lines.append(f"padding: dimension {side.dimension} is {side.size}, padded to {side.size + extra}: {shards}")
    if layout.replicas > 1:
        what = "array's slice" if layout.manual_ways > 1 else "slice"
        what = f"partial {layout.unreduced_kind}" if layout.partial_sums > 1 else what
        along = f", along {' and '.join(axes)}" if (axes := copies_along(layout)) else ""
        lines.append(f"each {what} is on {layout.replicas} devices{along}")
    if layout.partial_sums > 1:
        lines.append(
            f"unreduced: devices along {_names(layout.unreduced)} hold partial {KINDS[layout.unreduced_kind]} of a "
            "slice, not copies of it; + stands between them"
        )
    if layout.manual_ways > 1:
        lines.append(f"manual: devices along {_names(layout.manual)} hold separate arrays; / stands between them")
    if any(layout.open):
        which = _dimensions(d for d, opened in enumerate(layout.open) if opened)
        lines.append(f"open: the compiler may shard {which} further than is drawn")
    if scene.merged > 1:
        lines.append(f"each cell stands for {scene.merged} neighbouring shards")
    return lines
