"""The tile at each position of a mesh, and the mesh axes along which a list of positions runs.

Devices are numbered in the mesh's row-major order, so an axis is a size and a stride: on `data=2,model=4`, `model` is
4 positions with stride 1 and `data` is 2 positions with stride 4. A list that counts through a product of axes is a
nest of sizes and strides. These identify the axes, or parts of axes (name, product of the sizes before it, size):

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> axes_along([0, 4], mesh), axes_along([0, 4, 1, 5, 2, 6, 3, 7], mesh), axes_along([0, 2], mesh)
(('data',), ('model', 'data'), (('model', 1, 2),))

A tile assignment can express every sharding, also shardings that no PartitionSpec expresses. It is a table of the
mesh's positions, with one dimension for each dimension of the array, followed by one for each subgroup. A subgroup has
copies of a tile (`replicated`), partial sums (`unreduced`) or arrays that the program handles itself (`manual`). XLA
writes it as `devices=[...]`.

>>> tiling = Tiling((2, 1, 2), ("replicated",), (0, 3, 2, 1))
>>> tiling.tiles, tiling.positions().tolist()
((2, 1), [[0, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1]])
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardviz.errors import ParseError
from shardviz.notation.bounds import MOST_CELLS, MOST_DIMENSIONS, check_size
from shardviz.notation.mesh import DeviceMesh, unravel
from shardviz.notation.scan import levels
from shardviz.notation.spec import Axis, axis_name, axis_part

KINDS = ("replicated", "manual", "unreduced")


def axes_along(places: np.ndarray | Iterable[int], mesh: DeviceMesh) -> tuple[Axis, ...] | None:
    """Return the mesh axes, or parts, that a list of row-major positions counts through; None if it does not count. The
    axes are major to minor, without axes of size 1. Only differences between positions matter."""
    offsets = np.asarray(places if isinstance(places, np.ndarray) else list(places), np.int64)
    offsets = offsets - offsets[0]
    nest = levels(offsets)
    if nest is None:
        return None
    each = [_parts(size, stride, mesh) for size, stride in nest]
    along = [part for parts in each for part in parts or ()]
    return None if None in each or _overlap(along) else merge(along, mesh)


def merge(parts: Iterable[tuple[str, int, int]], mesh: DeviceMesh) -> tuple[Axis, ...]:
    """Join adjacent parts of an axis, given major to minor; a full axis is returned by name."""
    merged: list[tuple[str, int, int]] = []
    for name, before, size in parts:
        if size == 1:
            continue
        if merged and merged[-1][0] == name and merged[-1][1] * merged[-1][2] == before:
            merged[-1] = (name, merged[-1][1], merged[-1][2] * size)
        else:
            merged.append((name, before, size))
    return tuple(name if size == mesh.shape[name] else (name, before, size) for name, before, size in merged)


def joined(dim: Sequence[Axis], mesh: DeviceMesh) -> tuple[Axis, ...]:
    """Join adjacent parts of axes; a full axis of size 1 is kept."""
    if all(isinstance(axis, str) for axis in dim):
        return tuple(dim)
    return merge((axis_part(axis, mesh) for axis in dim), mesh)


def ordered(axes: Sequence[Axis], mesh: DeviceMesh) -> tuple[Axis, ...]:
    """Sort a set of axes by the mesh's order, as XLA and Shardy require, and join adjacent parts."""
    place = {name: i for i, name in enumerate(mesh.names)}
    return joined(sorted(axes, key=lambda axis: (place[axis_name(axis)], axis_part(axis, mesh)[1])), mesh)


def digits(axes: Iterable[Axis], mesh: DeviceMesh) -> np.ndarray:
    """Return the number that axes, major to minor, count at every position of the mesh: one integer per position."""
    coordinates = mesh.coordinates()
    total = np.zeros(mesh.size, np.int64)
    for axis in axes:
        name, before, size = axis_part(axis, mesh)
        column = coordinates[:, mesh.names.index(name)]
        total = total * size + column // (mesh.shape[name] // (before * size)) % size
    return total


def places(axes: Iterable[Axis], mesh: DeviceMesh) -> np.ndarray:
    """Return the positions that a count through axes visits, all other axes at 0; the inverse of `axes_along`."""
    strides = dict(zip(mesh.names, np.cumprod((1, *mesh.sizes[:0:-1]))[::-1].tolist(), strict=False))
    result = np.zeros(1, np.int64)
    for axis in axes:
        name, before, size = axis_part(axis, mesh)
        stride = strides[name] * (mesh.shape[name] // (before * size))
        result = (result[:, None] + np.arange(size) * stride).ravel()
    return result


def _parts(size: int, stride: int, mesh: DeviceMesh) -> list[tuple[str, int, int]] | None:
    """Return the parts of axes, major to minor, that make up `size` positions with this stride."""
    parts: list[tuple[str, int, int]] = []
    below = 1
    for name, full in zip(reversed(mesh.names), reversed(mesh.sizes), strict=True):
        above = below * full
        if size > 1 and below <= stride < above:
            skipped, ragged = divmod(stride, below)
            if ragged or full % skipped:
                return None
            room = full // skipped
            taken = size if size <= room else room
            if room % taken or size % taken:
                return None
            parts.append((name, room // taken, taken))
            size //= taken
            stride = stride * taken
        below = above
    return parts[::-1] if size == 1 else None


def _overlap(parts: list[tuple[str, int, int]]) -> bool:
    pairs = itertools.combinations(parts, 2)
    return any(a[0] == b[0] and a[1] < b[1] * b[2] and b[1] < a[1] * a[2] for a, b in pairs)


@dataclass(frozen=True)
class Tiling:
    """A tile for each position of a mesh. `dims` are the tiles along each dimension, then the size of each subgroup;
    `kinds` are the subgroups' kinds. `devices` is the table of positions in row-major order; each of 0, 1, 2, ...
    occurs once."""

    dims: tuple[int, ...]
    kinds: tuple[str, ...]
    devices: tuple[int, ...] = field(repr=False)

    def __post_init__(self) -> None:
        check_size(self.dims, MOST_DIMENSIONS, "tile assignment", "dimensions")
        shape = ",".join(map(str, self.dims))
        if any(n < 1 for n in self.dims) or len(self.kinds) > len(self.dims):
            raise ParseError(f"tile assignment [{shape}]: expected 1 or more tiles a dimension, subgroups at the end")
        if any(kind not in KINDS for kind in self.kinds):
            raise ParseError(f"tile assignment [{shape}]: a subgroup is one of {', '.join(KINDS)}, not {self.kinds}")
        count = math.prod(self.dims)
        if count * len(self.dims) > MOST_CELLS:
            raise ParseError(
                f"tile assignment [{shape}]: {count} tiles, each with a place in {len(self.dims)} dimensions; at most "
                f"{MOST_CELLS:,} places are counted here"
            )
        if count != len(self.devices):
            raise ParseError(f"tile assignment [{shape}]: {count} tiles for {len(self.devices)} devices")
        if not np.array_equal(np.sort(np.asarray(self.devices, np.int64)), np.arange(count)):
            raise ParseError(f"tile assignment [{shape}]: expected each of the devices 0 to {count - 1} once")

    @property
    def tiles(self) -> tuple[int, ...]:
        """The number of tiles along each dimension of the array."""
        return self.dims[: len(self.dims) - len(self.kinds)]

    def positions(self) -> np.ndarray:
        """Return each position's index in the table: integers, position x (dimension, then subgroup)."""
        table = unravel(np.arange(len(self.devices)), self.dims)
        return table[np.argsort(self.devices)]

    def table(self) -> np.ndarray:
        """Return the positions as a table of shape `dims`."""
        return np.asarray(self.devices, np.int64).reshape(self.dims)

    def groups(self, *kinds: str) -> np.ndarray:
        """Return for each position the least position of its subgroup of these kinds, or its own without one."""
        along = tuple(len(self.tiles) + i for i, k in enumerate(self.kinds) if k in kinds)
        least = np.empty(len(self.devices), np.int64)
        least[np.asarray(self.devices)] = np.broadcast_to(
            self.table().min(axis=along, keepdims=True) if along else self.table(), self.dims
        ).ravel()
        return least

    def axes(self, mesh: DeviceMesh) -> tuple[tuple[Axis, ...] | None, ...]:
        """Return the mesh axes of each dimension and each subgroup, None if no axes fit. The order within a subgroup of
        partial sums does not matter. A replicated subgroup has an empty tuple."""
        table, count = self.table(), len(self.tiles)
        special = [i for i, kind in enumerate(self.kinds, count) if kind != "replicated" and self.dims[i] > 1]
        copies = tuple(i for i, kind in enumerate(self.kinds, count) if kind == "replicated")
        if len(special) == 1:  # sort by the first copy, so that copies remain copies of each other
            one = table[tuple(slice(1) if i in copies else slice(None) for i in range(table.ndim))]
            order = np.argsort(one, axis=special[0])
            table = np.take_along_axis(table, np.broadcast_to(order, table.shape), axis=special[0])
        where = unravel(np.arange(mesh.size), self.dims)[np.argsort(table, axis=None)].T
        first = table.min(axis=copies, keepdims=True) if copies else table
        along: list[tuple[Axis, ...] | None] = []
        for i, size in enumerate(self.dims):
            if i in copies or size == 1:
                along.append(())
                continue
            line = np.moveaxis(first, i, -1).reshape(-1, size)[0]
            axes = axes_along(line, mesh)
            along.append(axes if axes is not None and np.array_equal(digits(axes, mesh), where[i]) else None)
        return tuple(along)


def tiling_of(
    dims: Sequence[Sequence[Axis]], special: Sequence[tuple[str, Sequence[Axis]]], mesh: DeviceMesh
) -> Tiling:
    """Return the tile assignment of dimensions sharded along axes, major to minor. The copies follow the dimensions,
    then the `special` subgroups (`manual`, `unreduced`) with their axes. Subgroups of size 1 are left out."""
    columns = [digits(axes, mesh) for axes in dims]
    sizes = [len(places(axes, mesh)) for axes in dims]
    used = [axis for axes in dims for axis in axes] + [axis for _, axes in special for axis in axes]
    parts = math.prod(sizes) * math.prod(len(places(axes, mesh)) for _, axes in special)
    kinds: list[str] = []
    if mesh.size > parts:
        kinds.append("replicated")
        sizes.append(mesh.size // parts)
        columns.append(np.arange(mesh.size) - places(used, mesh)[digits(used, mesh)])
    for kind, axes in special:
        if (size := len(places(axes, mesh))) > 1:
            kinds.append(kind)
            sizes.append(size)
            columns.append(digits(axes, mesh))
    order = np.lexsort(columns[::-1]) if columns else np.arange(mesh.size)
    return Tiling(tuple(sizes), tuple(kinds), tuple(order.tolist()))
