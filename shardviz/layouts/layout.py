"""How large one element is, from NumPy's, JAX's or HLO's name of its type.

>>> itemsize("bfloat16"), itemsize("s4")
(2.0, 0.5)

A sharding of any notation as a cut: for every device of the mesh, which tile, which partial sum, which manual array.

>>> cut = read_cut((8, 6), ("model", None), {"data": 2, "model": 2})
>>> cut.tiles.tolist(), cut.ways
([[0, 0], [1, 0], [0, 0], [1, 0]], (2, 1))

From a shape, a sharding and a mesh to the slice that every device holds, as arrays.

>>> cut = layout((8, 6), ("data", None), {"data": 4, "model": 2})
>>> cut.shard_shape, cut.index(3)
((2, 6), (slice(2, 4, None), slice(0, 6, None)))
>>> cut.replica_ids.tolist()
[0, 1, 0, 1, 0, 1, 0, 1]

Devices with the same slice need not hold the same numbers. Over an unreduced axis they hold partial sums, and over a
manual axis arrays of their own; neither counts as a copy:

>>> from shardviz.notation import Spec
>>> cut = layout((8, 6), Spec((("data",), ()), unreduced=("model",)), {"data": 4, "model": 2})
>>> cut.replicas, cut.partial_sums, cut.partial_ids.tolist()
(1, 2, [0, 1, 0, 1, 0, 1, 0, 1])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardviz.errors import SpecError
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.read import sharding as read_sharding
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, Spec, axis_size, check_spec
from shardviz.notation.strides import digits
from shardviz.notation.tiling import Tiling

_BITS = {
    "bool": 8,
    "pred": 8,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
    "s4": 4,
    "u4": 4,
    "int1": 1,
    "uint1": 1,
    "s2": 2,
    "u2": 2,
    "s1": 1,
    "u1": 1,
    "bfloat16": 16,
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
    "s8": 8,
    "u8": 8,
    "s16": 16,
    "u16": 16,
    "s32": 32,
    "u32": 32,
    "s64": 64,
    "u64": 64,
    "token": 0,
    "key<fry>": 64,
    "key<rbg>": 128,
    "key<unsafe_rbg>": 128,
}


def itemsize(dtype: Any) -> float:
    """Bytes of one element, from NumPy's, JAX's or HLO's name of a type; half a byte for 4-bit types."""
    name = getattr(dtype, "name", None) or str(dtype)
    if name in _BITS:
        return _BITS[name] / 8
    if name.startswith(("float4", "f4")):
        return 0.5
    if name.startswith(("float8", "f8")):
        return 1.0
    if name.startswith(("float6_", "f6e")):  # float64 is none of them
        return 0.75
    return float(np.dtype(name).itemsize)


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout(Cut):
    """The slice of an array on every device of a mesh. Arrays over devices are in mesh order.

    Attributes:
        shape: the array's global shape. Over manual axes it is the shape of one device's own array.
        spec: how it is cut, one entry a dimension; None where no PartitionSpec says it (`why` tells why).
        mesh: the device mesh.
        shard_shape: the shape of one device's shard; XLA's rule, `ceil(size / ways)`, so that all shards are alike.
        tiles: integers, device x dimension: which tile along each dimension.
        starts: integers, device x dimension: where each device's slice begins.
        stops: integers, device x dimension: where it ends (within the array, so padding is left out).
        replica_ids: integers, one a device: which copy of its data it holds, 0 for the first in mesh order, -1 where
            it holds nothing. Another partial sum of the same slice is no copy.
        device_ids: integers, one a device.
        padding: integers, device x dimension: elements of the shard that lie beyond the array's end.
        ways: the number of tiles along each dimension.
        partial_ids: integers, one a device: which of the partial sums of its slice it holds.
        manual_ids: integers, one a device: which of the manual axes' arrays its data belong to.
        holds: booleans, one a device: False where the device holds nothing, as all but one in a maximal sharding.
        partial_sums: how many partial sums make up each slice; 1 where there is nothing to add up.
        manual_ways: how many arrays the manual axes tell apart; 1 where there are none.
        unreduced: the axes that the array is a partial sum over.
        manual: the axes that are manual.
        open: for each dimension whether the compiler may cut it further than said here (Shardy's `?`,
            `P.UNCONSTRAINED`); empty where it may not.
        why: why no PartitionSpec says it, or "".
    """

    shape: tuple[int, ...]
    shard_shape: tuple[int, ...]
    starts: np.ndarray
    stops: np.ndarray
    replica_ids: np.ndarray
    device_ids: np.ndarray
    padding: np.ndarray

    @property
    def replicas(self) -> int:
        """How many devices hold each slice; where partial sums are held, each partial sum of it."""
        different = math.prod(self.ways) * self.partial_sums * self.manual_ways
        return int(np.count_nonzero(self.holds)) // different

    @property
    def maximal(self) -> bool:
        """Whether one device holds the whole array and the others hold nothing."""
        return not self.holds.all()

    @property
    def divides(self) -> bool:
        """Whether every dimension divides, as JAX asks of arguments; XLA pads where one does not."""
        return not any(size % ways for size, ways in zip(self.shape, self.ways, strict=True))

    @property
    def elements(self) -> np.ndarray:
        """Elements of the array on each device, padding left out: integers, one a device."""
        return np.prod(self.stops - self.starts, axis=1, dtype=np.int64) * self.holds

    def index(self, device: int) -> tuple[slice, ...]:
        """The slice that the device with this id holds; empty slices where it holds nothing.

        Raises:
            KeyError: if the mesh has no such device.
        """
        places = np.flatnonzero(self.device_ids == device)
        if not len(places):
            raise KeyError(f"the mesh {self.mesh} has no device {device}")
        row = places[0]
        return tuple(slice(int(a), int(b)) for a, b in zip(self.starts[row], self.stops[row], strict=True))

    def holders(self, device: int) -> tuple[int, ...]:
        """The ids of the devices that hold the same data as this one, itself among them, in mesh order.

        Raises:
            KeyError: if the mesh has no such device.
        """
        places = np.flatnonzero(self.device_ids == device)
        if not len(places):
            raise KeyError(f"the mesh {self.mesh} has no device {device}")
        keys = data_keys(self)
        return tuple(self.device_ids[(keys == keys[places[0]]) & self.holds].tolist())

    def bytes_per_device(self, dtype: Any) -> float:
        """Bytes of one shard, padding included. A 4-bit type has half a byte an element."""
        return math.prod(self.shard_shape) * itemsize(dtype)


def data_keys(cut: Cut) -> np.ndarray:
    """A number for what each device holds, one a device: equal for copies, and only for these."""
    keys = cut.manual_ids * cut.partial_sums + cut.partial_ids
    for dimension, count in enumerate(cut.ways):
        keys = keys * count + cut.tiles[:, dimension]
    return keys


def layout(shape: Sequence[int], sharding: Any, mesh: Any = None) -> Layout:
    """Where every slice of an array lies.

    Args:
        shape: the array's global shape.
        sharding: a PartitionSpec, a tuple such as `("data", None)`, a `Spec`, or anything that `sharding` of
            `shardviz.notation.sharding` reads, such as an HLO sharding's text.
        mesh: a mesh in any form that `DeviceMesh.of` reads; None where the sharding has its own.

    Returns:
        The `Layout`; arrays are in mesh order, vectorised over devices.

    Raises:
        SpecError: if the sharding does not fit the shape and mesh. Dimensions that do not divide are padded, as XLA
            does.
        ParseError: if `sharding` is text that says no sharding.
        MeshError: if `mesh` is no mesh.
    """
    shape = tuple(int(s) for s in shape)
    return of_cut(shape, read_cut(shape, sharding, mesh))


def of_cut(shape: tuple[int, ...], cut: Cut) -> Layout:
    """The layout of an array of `shape` under a cut."""
    holds = cut.holds
    shard_shape = tuple(-(-size // n) for size, n in zip(shape, cut.ways, strict=True))
    limit, shard = np.asarray(shape, np.int64), np.asarray(shard_shape, np.int64)
    starts = np.minimum(cut.tiles * shard, limit)
    stops = np.minimum(starts + shard, limit)
    padding = shard - (stops - starts)
    keys = data_keys(cut)
    if not holds.all():
        stops = np.where(holds[:, None], stops, starts)
        padding = np.where(holds[:, None], padding, 0)
        keys = np.where(holds, keys, -1)
    return Layout(
        **vars(cut),
        shape=shape,
        shard_shape=shard_shape,
        starts=starts,
        stops=stops,
        replica_ids=np.where(holds, ranks(keys), -1),
        device_ids=cut.mesh.ids(),
        padding=padding,
    )


def ranks(keys: np.ndarray) -> np.ndarray:
    """The rank of each entry among those equal to it, in order of position: [5, 7, 5, 5] → [0, 0, 1, 2]."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    count = np.arange(len(keys))
    first = np.ones(len(keys), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    ranked = np.empty(len(keys), np.int64)
    ranked[order] = count - np.maximum.accumulate(np.where(first, count, 0))
    return ranked
