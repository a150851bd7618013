"""A sharding of any notation as a cut: for every device of the mesh, which tile, which partial sum, which manual array.

>>> cut = read_cut((8, 6), ("model", None), {"data": 2, "model": 2})
>>> cut.tiles.tolist(), cut.ways
([[0, 0], [1, 0], [0, 0], [1, 0]], (2, 1))
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardviz.errors import SpecError
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.sharding import sharding as read_sharding
from shardviz.notation.spec import Axis, Spec, axis_size, check_spec
from shardviz.notation.strides import digits
from shardviz.notation.tiling import Tiling


@dataclass(frozen=True, eq=False)
class Cut:
    """How a mesh cuts an array of some rank; the sizes of the array play no part in it.

    Attributes:
        mesh: the device mesh.
        spec: the same as a spec, or None where no PartitionSpec says it.
        ways: the number of tiles along each dimension.
        tiles: integers, device x dimension: the device's tile.
        partial_ids, manual_ids: integers, one a device: its partial sum, and its array among the manual ones.
        holds: booleans, one a device: whether it holds anything.
        partial_sums, manual_ways: how many of them there are.
        unreduced, manual: their axes, where they have names.
        open: for each dimension whether the compiler may cut it further; empty where it may not.
        why: why there is no spec, or "".
    """

    mesh: DeviceMesh
    spec: Spec | None
    ways: tuple[int, ...]
    tiles: np.ndarray
    partial_ids: np.ndarray
    manual_ids: np.ndarray
    holds: np.ndarray
    partial_sums: int = 1
    manual_ways: int = 1
    unreduced: tuple[Axis, ...] = ()
    manual: tuple[Axis, ...] = ()
    open: tuple[bool, ...] = ()
    why: str = field(default="", repr=False)


def read_cut(shape: tuple[int, ...], sharding: Any, mesh: Any = None) -> Cut:
    """Reads a sharding for an array of `shape`; see `layout` for what is taken and what is raised."""
    rank = len(shape)
    if is_plain(sharding):
        over = DeviceMesh.of(mesh)
        if not over.manual:  # which a record says, too
            return cut_of_spec(shape, Spec.of(sharding, rank=rank), over)
    if not isinstance(sharding, Sharding):
        sharding = read_sharding(sharding, mesh, rank)
    elif mesh is not None and not same_places(DeviceMesh.of(mesh), sharding.mesh):
        raise SpecError(
            f"sharding {sharding}: it is over the mesh {sharding.mesh}, not {DeviceMesh.of(mesh)} (axes or order of "
            "devices differ); leave out the mesh, which the sharding has"
        )
    return cut_of_record(shape, sharding.with_rank(rank))


def same_places(one: DeviceMesh, other: DeviceMesh) -> bool:
    """Whether two meshes have the same devices at the same places along the same axes; the axes' types may differ."""
    return (one.names, one.sizes, one.device_ids) == (other.names, other.sizes, other.device_ids)


def is_plain(sharding: Any) -> bool:
    """Whether it is a spec with nothing in it but axes; everything else is read into a record first."""
    if sharding is None or isinstance(sharding, Spec | tuple | list):
        return True
    if type(sharding).__name__ not in ("P", "PartitionSpec"):  # JAX's class is called either, and is not needed here
        return False
    return all(entry is None or isinstance(entry, str | tuple) for entry in getattr(sharding, "partitions", sharding))


def cut_of_record(shape: tuple[int, ...], record: Sharding) -> Cut:
    """The cut that a sharding's record says.

    Raises:
        SpecError: if it does not fit the shape, or if it is unknown.
    """
    opened = record.open if any(record.open) else ()
    if record.spec is not None:
        return replace(cut_of_spec(shape, record.spec, record.mesh, record.manual), open=opened)
    tiles = record.places()
    mesh, nothing = record.mesh, np.zeros(record.mesh.size, np.int64)
    holds = np.ones(mesh.size, bool)
    if record.maximal is not None:
        holds = np.arange(mesh.size) == record.maximal
        tiles = np.maximum(tiles, 0)
    partial_ids, manual_ids, partial_sums, manual_ways = nothing, nothing, 1, 1
    if record.assignment is not None:
        partial_ids, partial_sums = _subgroup(record.assignment, "unreduced")
        manual_ids, manual_ways = _subgroup(record.assignment, "manual")
    return Cut(
        mesh=mesh,
        spec=None,
        ways=record.tiles,
        tiles=tiles,
        partial_ids=partial_ids,
        manual_ids=manual_ids,
        holds=holds,
        partial_sums=partial_sums,
        manual_ways=manual_ways,
        unreduced=record.unreduced,
        manual=record.manual,
        open=opened,
        why=record.why,
    )


def _subgroup(assignment: Tiling, kind: str) -> tuple[np.ndarray, int]:
    """For every place its number within the subgroups of one kind, and how many numbers there are."""
    positions, first = assignment.positions(), len(assignment.tiles)
    numbers, count = np.zeros(len(positions), np.int64), 1
    for column, (name, size) in enumerate(zip(assignment.kinds, assignment.dims[first:], strict=True), first):
        if name == kind:
            numbers, count = numbers * size + positions[:, column], count * size
    return numbers, count


def cut_of_spec(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh, manual: tuple[Axis, ...] = ()) -> Cut:
    """The cut that a spec makes, with the axes in `manual` manual.

    Raises:
        SpecError: if the spec does not fit, or uses a part of the mesh for two things.
    """
    check_spec("array", shape, spec, mesh, divide=False)
    Sharding.from_spec(spec, mesh, len(shape), manual=manual)  # raises where a part of an axis does two things
    tiles = np.empty((mesh.size, len(shape)), np.int64)
    for dimension, axes in enumerate(spec.dims):
        tiles[:, dimension] = digits(axes, mesh)
    return Cut(
        mesh=mesh,
        spec=spec,
        ways=tuple(_count(axes, mesh) for axes in spec.dims),
        tiles=tiles,
        partial_ids=digits(spec.unreduced, mesh),
        manual_ids=digits(manual, mesh),
        holds=np.ones(mesh.size, bool),
        partial_sums=_count(spec.unreduced, mesh),
        manual_ways=_count(manual, mesh),
        unreduced=spec.unreduced,
        manual=manual,
    )


def _count(axes: tuple[Axis, ...], mesh: DeviceMesh) -> int:
    return math.prod(axis_size(axis, mesh) for axis in axes)
