"""From a shape, a spec and a mesh to the slice that every device holds, as arrays.

>>> cut = layout((8, 6), ("data", None), {"data": 4, "model": 2})
>>> cut.shard_shape, cut.index(3)
((2, 6), (slice(2, 4, None), slice(0, 6, None)))
>>> cut.replica_ids.tolist()
[0, 1, 0, 1, 0, 1, 0, 1]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axis_name, axis_size, check_spec


@dataclass(frozen=True, eq=False)
class Layout:
    """The slice of an array on every device of a mesh.

    Attributes:
        shape: the array's global shape.
        spec: how it is cut, one entry a dimension.
        mesh: the device mesh.
        shard_shape: the shape of one device's shard; XLA's rule, `ceil(size / ways)`, so that all shards are alike.
        tiles: integers, device x dimension: which tile along each dimension, in mesh order.
        starts: integers, device x dimension: where each device's slice begins.
        stops: integers, device x dimension: where it ends (within the array, so padding is left out).
        replica_ids: integers, one a device: which copy of its slice it holds, 0 for the first in mesh order.
        device_ids: integers, one a device, in mesh order.
        padding: integers, device x dimension: elements of the shard that lie beyond the array's end.
    """

    shape: tuple[int, ...]
    spec: Spec
    mesh: DeviceMesh
    shard_shape: tuple[int, ...]
    tiles: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    replica_ids: np.ndarray
    device_ids: np.ndarray
    padding: np.ndarray

    @property
    def ways(self) -> tuple[int, ...]:
        """The number of tiles along each dimension."""
        return tuple(math.prod(axis_size(a, self.mesh) for a in dim) for dim in self.spec.dims)

    @property
    def replicas(self) -> int:
        """How many devices hold each slice."""
        return self.mesh.size // math.prod(self.ways)

    def index(self, device: int) -> tuple[slice, ...]:
        """The slice that the device with this id holds.

        Raises:
            KeyError: if the mesh has no such device.
        """
        places = np.flatnonzero(self.device_ids == device)
        if not len(places):
            raise KeyError(f"the mesh {self.mesh} has no device {device}")
        row = places[0]
        return tuple(slice(int(a), int(b)) for a, b in zip(self.starts[row], self.stops[row], strict=True))

    def bytes_per_device(self, dtype: Any) -> float:
        """Bytes of one shard, padding included. A 4-bit type has half a byte an element."""
        return math.prod(self.shard_shape) * itemsize(dtype)


def layout(shape: Sequence[int], sharding: Any, mesh: Any) -> Layout:
    """Where every slice of an array lies.

    Args:
        shape: the array's global shape.
        sharding: a PartitionSpec, a tuple such as `("data", None)`, or a `Spec`.
        mesh: a mesh in any form that `DeviceMesh.of` reads.

    Returns:
        The `Layout`; arrays are in mesh order, vectorised over devices.

    Raises:
        SpecError: if the spec does not fit the shape and mesh. Dimensions that do not divide are padded, as XLA does.
        MeshError: if `mesh` is no mesh.
    """
    shape = tuple(int(s) for s in shape)
    mesh = DeviceMesh.of(mesh)
    spec = Spec.of(sharding, rank=len(shape))
    check_spec("array", shape, spec, mesh, divide=False)
    coordinates = mesh.coordinates()
    tiles = np.zeros((mesh.size, len(shape)), np.int64)
    for dimension, axes in enumerate(spec.dims):
        for axis in axes:
            tiles[:, dimension] = tiles[:, dimension] * axis_size(axis, mesh) + _place(axis, mesh, coordinates)
    ways = tuple(math.prod(axis_size(a, mesh) for a in dim) for dim in spec.dims)
    shard_shape = tuple(-(-size // n) for size, n in zip(shape, ways, strict=True))
    limit, shard = np.asarray(shape, np.int64), np.asarray(shard_shape, np.int64)
    starts = np.minimum(tiles * shard, limit)
    stops = np.minimum(starts + shard, limit)
    return Layout(
        shape,
        spec,
        mesh,
        shard_shape,
        tiles,
        starts,
        stops,
        _replica_ids(tiles, ways, mesh.size),
        mesh.ids(),
        shard - (stops - starts),
    )


def _place(axis: Axis, mesh: DeviceMesh, coordinates: np.ndarray) -> np.ndarray:
    column = coordinates[:, mesh.names.index(axis_name(axis))]
    if isinstance(axis, str):
        return column
    _, before, size = axis
    return column // (mesh.shape[axis[0]] // (before * size)) % size


def _replica_ids(tiles: np.ndarray, ways: tuple[int, ...], devices: int) -> np.ndarray:
    """The rank of each device among those that hold the same tile, in mesh order."""
    flat = np.ravel_multi_index(tuple(tiles.T), ways) if ways else np.zeros(devices, np.int64)
    order = np.argsort(flat, kind="stable")
    ranked = np.empty(devices, np.int64)
    ranked[order] = np.arange(devices) % (devices // max(1, math.prod(ways)))
    return ranked


_BITS = {
    "bool": 8,
    "pred": 8,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
    "s4": 4,
    "u4": 4,
    "s2": 2,
    "u2": 2,
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
    if name.startswith("float6"):
        return 0.75
    return float(np.dtype(name).itemsize)
