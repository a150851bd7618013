"""The grid of a shard map: which devices are in which cell.

An array of any rank becomes panels of rows x columns. The last two sharded dimensions are the rows and columns, earlier
sharded dimensions number the panels, and unsharded dimensions are folded away. Cells are numbered row by row, panel by
panel.

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
from shardviz.notation import Axis, DeviceMesh
from shardviz.notation.spec import KINDS, axis_size, axis_text
from shardviz.records.amounts import format_shape, plural
from shardviz.view.document import device_ranges

MOST_LETTERS, MOST_LISTED = 40, 64
"""Maximum letters of a cell's device list, for cells of several tiles, and maximum devices listed."""
SHORT = 24
"""Maximum letters to tell partial sums or manual arrays apart; longer lists only have their sign."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One dimension of the array as a side of the grid; None if the array has none for this side, like a vector's rows.

    Attributes:
        shard: elements of a tile, with padding.
        merged: number of neighbouring tiles per cell.
    """

    dimension: int | None = None
    size: int = 1
    shard: int = 1
    axes: tuple[tuple[Axis, int], ...] = ()
    cells: int = 1
    merged: int = 1

    @property
    def tiles(self) -> int:
        """Number of tiles along this side."""
        return self.cells * self.merged

    @cached_property
    def bounds(self) -> list[int]:
        """Start of each cell, and the end of the last, without padding."""
        return [min(k * self.merged * self.shard, self.size) for k in range(self.cells + 1)]

    def padding(self, cell: int) -> int:
        """Return the elements of a cell beyond the array's end."""
        return self.shard * self.merged - (self.bounds[cell + 1] - self.bounds[cell])

    @property
    def padded(self) -> bool:
        """Whether the last tiles have padding."""
        return self.shard * self.tiles > self.size

    @cached_property
    def slices(self) -> list[str]:
        """The slice of each cell, `2:4`."""
        return [f"{start}:{stop}" for start, stop in itertools.pairwise(self.bounds)]

    @property
    def texts(self) -> list[str]:
        """The slice of each cell; `:` if there is only one."""
        return self.slices if self.tiles > 1 else [":"]

    @property
    def padding_texts(self) -> list[str]:
        """`2 of dimension 0`, or empty, for each cell."""
        sizes = map(self.padding, range(self.cells)) if self.padded else [0] * self.cells
        return [f"{n} of dimension {self.dimension}" if n else "" for n in sizes]

    def coordinates(self) -> list[tuple[Axis, list[tuple[str, int]]]]:
        """Return each axis, major to minor, with its coordinates as (text, number of cells)."""
        bars, inner = [], self.tiles
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
    """The grid of a shard map.

    Its last two sides are the rows and columns of each panel. The device ids are an integer array with a dimension per
    side, then devices.
    """

    layout: Layout
    sides: tuple[Side, ...]
    ids: np.ndarray

    @property
    def mesh(self) -> DeviceMesh:
        return self.layout.mesh

    @property
    def depth(self) -> tuple[Side, ...]:
        """The sharded dimensions before rows and columns; panels enumerate them in row-major order."""
        return self.sides[:-2]

    @property
    def rows(self) -> Side:
        return self.sides[-2]

    @property
    def columns(self) -> Side:
        return self.sides[-1]

    @property
    def devices(self) -> np.ndarray:
        """The device ids by panel, row, column and device."""
        return self.ids.reshape(-1, *self.ids.shape[-3:])

    @property
    def cells(self) -> int:
        """Number of cells in all panels."""
        return math.prod(side.cells for side in self.sides)

    @property
    def merged(self) -> int:
        """Number of tiles per cell; 1 if every tile is drawn."""
        return math.prod(side.merged for side in self.sides)

    @property
    def folded(self) -> list[int]:
        """Unsharded dimensions, which are not drawn."""
        drawn = {side.dimension for side in self.sides}
        return [d for d in range(len(self.layout.shape)) if d not in drawn]

    @property
    def stacked(self) -> bool:
        """Whether every cell is one tile replicated on several devices, drawn as a stack of cards."""
        alike = self.layout.partial_sums == self.layout.manual_count == 1
        return alike and self.merged == 1 and self.layout.replicas > 1

    @cached_property
    def hosts(self) -> list[tuple[int, ...]]:
        """The processes (hosts) of each cell; empty if one host has all devices."""
        if len(self.layout.processes) == 1:
            return []
        process_of = np.zeros(int(self.layout.device_ids.max()) + 1, int)
        process_of[self.layout.device_ids] = self.layout.process_ids
        return [tuple(sorted(set(each))) for each in process_of[self.ids].reshape(self.cells, -1).tolist()]

    def edges(self, panel: int) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
        """Return two sets of cells (row, column): the lower neighbour is on other hosts; the right neighbour is on
        other hosts."""
        rows, columns = self.devices.shape[1:3]

        def host_at(r, c):
            return self.hosts[(panel * rows + r) * columns + c]

        every = list(itertools.product(range(rows), range(columns))) if self.hosts else []
        below = frozenset((r, c) for r, c in every if r + 1 < rows and host_at(r, c) != host_at(r + 1, c))
        return below, frozenset((r, c) for r, c in every if c + 1 < columns and host_at(r, c) != host_at(r, c + 1))

    @property
    def aspect(self) -> float:
        """Height over width of a panel, compressed to between 1/4 and 4."""
        if self.rows.dimension is None or not self.rows.size or not self.columns.size:
            return 0.25
        return float(np.clip((self.rows.size / self.columns.size) ** 0.35, 0.25, 4.0))

    @cached_property
    def labels(self) -> list[str]:
        """The device numbers of each cell: `0-7,16-23`; `0 + 1` for partial sums, `0 / 1` for manual arrays."""
        return list(map(self.label, self.ids.reshape(self.cells, -1).tolist()))

    def label(self, ids: list[int]) -> str:
        """Return device numbers; in a cell of one tile sorted by manual array, then partial sum, then copy."""
        if len(ids) == 1:
            return str(ids[0])
        sums, arrays = self.layout.partial_sums, self.layout.manual_count
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
        """The array's slice in each cell, `[0:2, :, 3:6]`; empty brackets for a scalar."""
        texts, parts = [], [":"] * len(self.layout.shape)
        for cell in itertools.product(*(side.texts for side in self.sides)):
            for side, text in zip(self.sides, cell, strict=True):
                if side.dimension is not None:
                    parts[side.dimension] = text
            texts.append(f"[{', '.join(parts)}]")
        return texts

    @property
    def paddings(self) -> list[str]:
        """The padding of each cell, `2 of dimension 0`; empty if there is none."""
        if not any(side.padded for side in self.sides):
            return [""] * self.cells
        return [" and ".join(filter(None, cell)) for cell in itertools.product(*(s.padding_texts for s in self.sides))]

    def panel_text(self, panel: int) -> str:
        """Return a panel's part of the dimensions before its rows: `dimension 0, 2:4`; empty if there is only one
        panel."""
        places = zip(self.depth, self.place(panel), strict=True)
        return "; ".join(f"dimension {side.dimension}, {side.slices[cell]}" for side, cell in places)

    def place(self, panel: int) -> tuple[int, ...]:
        """Return a panel's cell along each side of `depth`."""
        return tuple(map(int, np.unravel_index(panel, tuple(side.cells for side in self.depth)))) if self.depth else ()


def build_scene(layout: Layout) -> Scene:
    """Return the grid of an array's distinct tiles, one cell per tile; `coarsen` merges cells."""
    rank, tiles = len(layout.shape), layout.tile_counts
    sharded = [d for d in range(rank) if tiles[d] > 1]
    if len(sharded) >= 2:
        drawn = sharded
    elif rank < 2:
        drawn = [None, rank - 1 if rank else None]
    else:
        drawn = [sharded[0] if sharded and sharded[0] < rank - 1 else rank - 2, rank - 1]
    flat = np.zeros(layout.mesh.size, np.int64)
    for d in drawn:
        flat = flat if d is None else flat * tiles[d] + layout.tiles[:, d]
    flat = (flat * layout.manual_count + layout.manual_ids) * layout.partial_sums + layout.partial_ids
    order = np.argsort(flat[layout.holds], kind="stable")
    sides = tuple(_side(layout, d) for d in drawn)
    ids = layout.device_ids[layout.holds][order].reshape(*(side.cells for side in sides), -1)
    return Scene(layout, sides, ids)


def _side(layout: Layout, d: int | None) -> Side:
    if d is None:
        return Side()
    axes = () if layout.spec is None else tuple((axis, axis_size(axis, layout.mesh)) for axis in layout.spec.dims[d])
    axes = tuple((axis, size) for axis, size in axes if size > 1)
    return Side(dimension=d, size=layout.shape[d], shard=layout.shard_shape[d], axes=axes, cells=layout.tile_counts[d])


def coarsen(scene: Scene, rows: int, columns: int, panels: int) -> Scene:
    """Return a scene with at most so many rows, columns and panels; neighbouring tiles are merged."""
    counts = [side.cells for side in scene.sides]
    by = [1] * len(scene.depth)
    for place in reversed(range(len(by))):  # the innermost first, so that what is merged lies close together
        others = math.prod(n // k for n, k in zip(counts, by, strict=False)) // counts[place]
        by[place] = _factor(counts[place], max(1, panels // others))
    by += [_factor(counts[-2], rows), _factor(counts[-1], columns)]
    if all(k == 1 for k in by):
        return scene
    few, rank = [n // k for n, k in zip(counts, by, strict=True)], len(counts)
    blocks = scene.ids.reshape(*itertools.chain(*zip(few, by, strict=True)), -1)
    ids = blocks.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2), 2 * rank).reshape(*few, -1)
    sides = (dataclasses.replace(side, cells=n, merged=k) for side, n, k in zip(scene.sides, few, by, strict=True))
    return dataclasses.replace(scene, sides=tuple(sides), ids=ids)


def _factor(count: int, limit: int) -> int:
    return next(k for k in range(1, count + 1) if count % k == 0 and count // k <= limit)


def copies_along(layout: Layout) -> tuple[str, ...]:
    """Return the mesh axes along which the array is replicated."""
    return tuple(name for name, copies in layout.copies.items() if copies == layout.mesh.shape[name])


def _copies_words(layout: Layout) -> str:
    """Return `, along model and 2 of 4 along data`; empty if copies follow no mesh axes."""
    copies = layout.copies
    if math.prod(copies.values()) != layout.replicas:
        return ""
    sizes = layout.mesh.shape
    parts = [f"{many} of {sizes[name]} along {name}" for name, many in copies.items() if many < sizes[name]]
    whole = [f"along {' and '.join(axes)}"] if (axes := copies_along(layout)) else []
    return f", {' and '.join([*whole, *parts])}"


def describe(scene: Scene) -> str:
    """Return an array's sharding in a sentence: the alt text of its pictures. `notes` has the devices.

    >>> from shardviz.layouts import layout
    >>> print(describe(build_scene(layout((8, 6), ("x",), {"x": 2, "y": 2}))).split(": ", 1)[1])
    sharded 2 ways into shards of [4, 6] (dimension 0 along x).
    """
    layout, sides = scene.layout, [s for s in scene.sides if s.tiles > 1]
    mesh = f"mesh {layout.mesh.shown}, {plural(layout.mesh.size, 'device')}" if layout.mesh.names else "one device"
    along = (f" along {' and '.join(axis_text(a) for a, _ in s.axes)}" if s.axes else f" {s.tiles} ways" for s in sides)
    by = ", ".join(f"dimension {s.dimension}{words}" for s, words in zip(sides, along, strict=True))
    shards = f"sharded {' x '.join(str(s.tiles) for s in sides)} ways into shards of {format_shape(layout.shard_shape)}"
    return f"Array {format_shape(layout.shape)} on {mesh}: {f'{shards} ({by})' if sides else 'not sharded'}."


def _names(axes: tuple[Axis, ...]) -> str:
    return ", ".join(map(axis_text, axes)) or "no mesh axis"


def _dimensions(which: Iterable[object]) -> str:
    texts = list(map(str, which))
    return f"dimension{'s' * (len(texts) > 1)} {', '.join(texts)}"


def notes(scene: Scene) -> list[str]:
    """Return what the grid does not show: folded dimensions, padding, replicas, merged cells, partial sums."""
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
            extra = side.shard * side.tiles - side.size
            empty = extra // side.shard if side.shard else 0
            shards = f"{side.tiles} shards of {side.shard}" + (f", {empty} of them only padding" if empty else "")
            lines.append(f"padding: dimension {side.dimension} is {side.size}, padded to {side.size + extra}: {shards}")
    if layout.replicas > 1:
        what = "array's slice" if layout.manual_count > 1 else "slice"
        what = f"partial {layout.unreduced_kind}" if layout.partial_sums > 1 else what
        lines.append(f"each {what} is on {layout.replicas} devices{_copies_words(layout)}")
    if layout.partial_sums > 1:
        lines.append(
            f"unreduced: devices along {_names(layout.unreduced)} hold partial {KINDS[layout.unreduced_kind]} of a "
            "slice, not copies of it; + separates them"
        )
    if layout.manual_count > 1:
        lines.append(f"manual: devices along {_names(layout.manual)} hold separate arrays; / separates them")
    if any(layout.open):
        which = _dimensions(d for d, opened in enumerate(layout.open) if opened)
        lines.append(f"open: the compiler may shard {which} further than is drawn")
    if scene.hosts:
        each = np.unique(np.unique(layout.process_ids, return_counts=True)[1]).tolist()
        devices = plural(each[0], "device") if len(each) == 1 else f"{each[0]} to {each[-1]} devices"
        first, *_, last = layout.processes
        hosts = f"{len(layout.processes)} hosts (h{first} to h{last}), each a process of {devices}"
        lines.append(f"{hosts}; thick lines separate them")
    if scene.merged > 1:
        lines.append(f"each cell stands for {scene.merged} neighbouring shards")
    return lines
