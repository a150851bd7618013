"""From a list of device places to the mesh axes that it runs along.

Devices are numbered in the mesh's row-major order, so an axis is a size and a stride: on `data=2,model=4`, `model` is
4 places 1 apart and `data` 2 places 4 apart. A list that counts through a product of axes therefore is a nest of sizes
and strides, and those name the axes, or parts of them (as (name, product of the sizes before it, size)):

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> axes_along([0, 4], mesh), axes_along([0, 4, 1, 5, 2, 6, 3, 7], mesh), axes_along([0, 2], mesh)
(('data',), ('model', 'data'), (('model', 1, 2),))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from shardviz.notation.iota import levels
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, axis_name, axis_part


def axes_along(places: np.ndarray | Iterable[int], mesh: DeviceMesh) -> tuple[Axis, ...] | None:
    """The mesh axes that a list of places counts through, major to minor.

    Args:
        places: places on the mesh, in row-major numbering; only differences matter.
        mesh: the mesh.

    Returns:
        Axes and parts of axes, major to minor; axes of size 1 are never named. None where the list is no such count.
    """
    offsets = np.asarray(places if isinstance(places, np.ndarray) else list(places), np.int64)
    offsets = offsets - offsets[0]
    nest = levels(offsets)
    if nest is None:
        return None
    found: list[tuple[str, int, int]] = []
    for size, stride in nest:
        parts = _parts(size, stride, mesh)
        if parts is None:
            return None
        found.extend(parts)
    if _overlap(found):
        return None
    return merge(found, mesh)


def merge(parts: Iterable[tuple[str, int, int]], mesh: DeviceMesh) -> tuple[Axis, ...]:
    """Parts of axes, major to minor, with neighbours that make a larger part joined, and whole axes by their name."""
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
    """Axes with neighbouring parts joined, whole axes by name; a whole axis of size 1 stays as it was written."""
    if all(isinstance(axis, str) for axis in dim):
        return tuple(dim)
    return merge((axis_part(axis, mesh) for axis in dim), mesh)


def ordered(axes: Sequence[Axis], mesh: DeviceMesh) -> tuple[Axis, ...]:
    """A set of axes in the mesh's order, as XLA and Shardy insist on, with neighbouring parts joined."""
    place = {name: i for i, name in enumerate(mesh.names)}
    return joined(sorted(axes, key=lambda axis: (place[axis_name(axis)], axis_part(axis, mesh)[1])), mesh)


def digits(axes: Iterable[Axis], mesh: DeviceMesh) -> np.ndarray:
    """The number that axes, major to minor, count on every place of the mesh: integers, one a place."""
    coordinates = mesh.coordinates()
    total = np.zeros(mesh.size, np.int64)
    for axis in axes:
        name, before, size = axis_part(axis, mesh)
        column = coordinates[:, mesh.names.index(name)]
        total = total * size + column // (mesh.shape[name] // (before * size)) % size
    return total


def places(axes: Iterable[Axis], mesh: DeviceMesh) -> np.ndarray:
    """The places that a count through axes visits, major to minor, all other axes at 0: the reverse of `axes_along`."""
    strides = dict(zip(mesh.names, np.cumprod((1, *mesh.sizes[:0:-1]))[::-1].tolist(), strict=False))
    result = np.zeros(1, np.int64)
    for axis in axes:
        name, before, size = axis_part(axis, mesh)
        stride = strides[name] * (mesh.shape[name] // (before * size))
        result = (result[:, None] + np.arange(size) * stride).ravel()
    return result


def _parts(size: int, stride: int, mesh: DeviceMesh) -> list[tuple[str, int, int]] | None:
    """The parts of axes, major to minor, that make up `size` places `stride` apart."""
    found: list[tuple[str, int, int]] = []
    below = 1
    for name, whole in zip(reversed(mesh.names), reversed(mesh.sizes), strict=True):
        above = below * whole
        if size > 1 and below <= stride < above:
            skipped, ragged = divmod(stride, below)
            if ragged or whole % skipped:
                return None
            room = whole // skipped
            taken = size if size <= room else room
            if room % taken or size % taken:
                return None
            found.append((name, room // taken, taken))
            size //= taken
            stride = stride * taken
        below = above
    return found[::-1] if size == 1 else None


def _overlap(parts: list[tuple[str, int, int]]) -> bool:
    """Whether two parts share digits of an axis."""
    for i, (name, before, size) in enumerate(parts):
        for other, start, length in parts[:i]:
            if name == other and before < start * length and start < before * size:
                return True
    return False
