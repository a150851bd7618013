"""The slice of an array on every device, computed from a shape, a sharding and a mesh.

>>> rows = layout((8, 6), ("data", None), {"data": 4, "model": 2})
>>> rows.shard_shape, rows.index(3)
((2, 6), (slice(2, 4, None), slice(0, 6, None)))
>>> rows.replica_ids.tolist()
[0, 1, 0, 1, 0, 1, 0, 1]

Devices with the same slice may hold different numbers: partial sums over an unreduced axis, and separate arrays over a
manual axis. Neither counts as a copy:

>>> from shardviz.notation import Spec
>>> sums = layout((8, 6), Spec((("data",), ()), unreduced=("model",)), {"data": 4, "model": 2})
>>> sums.replicas, sums.partial_sums, sums.partial_ids.tolist()
(1, 2, [0, 1, 0, 1, 0, 1, 0, 1])

In a job of several processes (hosts), each process loads only the data of its own devices:

>>> tiles = layout((8, 6), ("data", "model"), {"data": 4, "model": 2}, processes=[0, 0, 0, 0, 1, 1, 1, 1])
>>> tiles.local(1).shape, tiles.local(1).index, tiles.local(1).parts
((4, 6), (slice(4, 8, None), slice(0, 6, None)), ((1, 2), (0, 1)))
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from shardviz.caching import cached_property
from shardviz.display import Displayed
from shardviz.errors import DtypeError, MeshError, SpecError, excerpt
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.read import sharding as read_sharding
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, Spec, axis_name, check_spec
from shardviz.notation.tiling import digits


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Layout(Displayed):
    """The slice of an array on every device of a mesh. Arrays over devices are in mesh order.

    Attributes:
        shape: the array's global shape. Over manual axes, the shape of one device's own array.
        spec: the spec, one entry per dimension; None if no PartitionSpec expresses the sharding (see `why`).
        mesh: the device mesh.
        shard_shape: the shape of one device's shard by XLA's rule, `ceil(size / tiles)`: all shards have this shape.
        tiles: integers, device x dimension: the tile along each dimension.
        starts: integers, device x dimension: where each device's slice begins.
        stops: integers, device x dimension: where the slice ends, within the array, so padding is excluded.
        replica_ids: integers, one per device: the number of its copy of the data, 0 for the first in mesh order, -1 if
            the device holds nothing. Different partial sums of a slice are not copies.
        device_ids: integers, one per device.
        padding: integers, device x dimension: elements of the shard beyond the array's end.
        tile_counts: the number of tiles along each dimension.
        partial_ids: integers, one per device: the number of its partial sum of the slice.
        manual_ids: integers, one per device: the number of its array over the manual axes.
        holds: booleans, one per device: False if the device holds nothing, as all but one in a maximal sharding.
        process_ids: integers, one per device: the process (host) that addresses it; all 0 if unknown.
        partial_sums: the number of partial sums of each slice; 1 if there is nothing to reduce.
        manual_count: the number of separate arrays over the manual axes; 1 without manual axes.
        unreduced: the axes over which the devices hold partial results.
        unreduced_kind: how partial results are reduced: `sum`, `max` or `min`.
        manual: the axes that are manual.
        open: for each dimension whether the compiler may shard it further (Shardy's `?`, `P.UNCONSTRAINED`); empty if
            it may shard none.
        why: the reason why no PartitionSpec expresses the sharding, or "".
    """

    shape: tuple[int, ...]
    spec: Spec | None
    mesh: DeviceMesh
    shard_shape: tuple[int, ...]
    tiles: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    replica_ids: np.ndarray
    device_ids: np.ndarray
    padding: np.ndarray
    tile_counts: tuple[int, ...]
    partial_ids: np.ndarray
    manual_ids: np.ndarray
    holds: np.ndarray
    process_ids: np.ndarray
    partial_sums: int = 1
    manual_count: int = 1
    unreduced: tuple[Axis, ...] = ()
    unreduced_kind: str = "sum"
    manual: tuple[Axis, ...] = ()
    open: tuple[bool, ...] = ()
    why: str = field(default="", repr=False)

    @property
    def replicas(self) -> int:
        """The number of devices that hold each slice, or each partial sum of a slice."""
        different = math.prod(self.tile_counts) * self.partial_sums * self.manual_count
        return int(np.count_nonzero(self.holds)) // different

    @property
    def maximal(self) -> bool:
        """Whether one device holds the full array and the others hold nothing."""
        return not self.holds.all()

    @property
    def divides(self) -> bool:
        """Whether every dimension divides into its tiles. JAX requires it of arguments; XLA pads otherwise."""
        return not any(size % tile_counts for size, tile_counts in zip(self.shape, self.tile_counts, strict=True))

    @property
    def elements(self) -> np.ndarray:
        """Elements of the array on each device, without padding: integers, one per device."""
        return np.prod(self.stops - self.starts, axis=1, dtype=np.int64) * self.holds

    def row(self, device: int) -> int:
        """Return the position in mesh order of the device with this id.

        Raises:
            KeyError: if the mesh has no such device.
        """
        rows = np.flatnonzero(self.device_ids == device)
        if not len(rows):
            raise KeyError(f"the mesh {self.mesh} has no device {device}")
        return int(rows[0])

    def index(self, device: int) -> tuple[slice, ...]:
        """Return the slice that the device with this id holds; empty slices if it holds nothing.

        Raises:
            KeyError: if the mesh has no such device.
        """
        row = self.row(device)
        return tuple(slice(int(a), int(b)) for a, b in zip(self.starts[row], self.stops[row], strict=True))

    def holders(self, device: int) -> tuple[int, ...]:
        """Return the ids of the devices that hold the same data as this device, including itself, in mesh order.

        Raises:
            KeyError: if the mesh has no such device.
        """
        keys = data_keys(self)
        return tuple(self.device_ids[(keys == keys[self.row(device)]) & self.holds].tolist())

    @cached_property
    def copies(self) -> dict[str, int]:
        """The number of devices along each mesh axis that hold the same data, for axes where it is above 1."""
        distinguished = {axis_name(a) for a in (*self.unreduced, *self.manual)}
        starts = np.asarray(self.starts).reshape(*self.mesh.sizes, -1)
        copies: dict[str, int] = {}
        for place, (name, size) in enumerate(self.mesh.shape.items()):
            if size > 1 and name not in distinguished and not self.maximal:
                copies[name] = size // len({each.tobytes() for each in np.moveaxis(starts, place, 0)})
        return {name: count for name, count in copies.items() if count > 1}

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes that address the devices, ascending."""
        return tuple(np.unique(self.process_ids).tolist())

    def local(self, process: int) -> Local:
        """Return the data of one process: its devices, and the data that it loads.

        Raises:
            KeyError: if no device belongs to this process.
        """
        mine = np.flatnonzero(self.process_ids == process)
        if not len(mine):
            raise KeyError(f"no process {process}; there are {', '.join(map(str, self.processes))}")
        rows, place = mine[self.holds[mine]], self.processes.index(process)
        shape, index, begins = [], [], np.zeros((len(rows), len(self.shape)), np.int64)
        for d, size in enumerate(self.shape):
            starts, first, which = np.unique(self.tiles[rows, d], return_index=True, return_inverse=True)
            lengths = (self.stops - self.starts)[rows[first], d] if len(starts) else starts
            begins[:, d] = (np.cumsum(lengths) - lengths)[which]
            shape.append(int(lengths.sum()))
            bounds = self.starts[rows, d].min(initial=size), self.stops[rows, d].max(initial=0)
            index.append(slice(*map(int, bounds)) if len(rows) else slice(0, 0))
        ends = begins + (self.stops - self.starts)[rows]
        _, different = np.unique(
            _keys(self.tiles, self.tile_counts, np.zeros_like(self.manual_ids))[rows], return_index=True
        )
        return Local(
            process=int(process),
            device_ids=tuple(self.device_ids[mine].tolist()),
            shape=tuple(shape),
            index=tuple(index),
            contiguous=math.prod(p.stop - p.start for p in index) == int(self.elements[rows[different]].sum()),
            slices={
                device: tuple(map(slice, low, high))
                for device, low, high in zip(
                    self.device_ids[rows].tolist(), begins.tolist(), ends.tolist(), strict=True
                )
            },
            parts=tuple(part and (int(part[1][place]), part[0]) for part in self._parts),
        )

    @cached_property
    def _parts(self) -> list[tuple[int, np.ndarray] | None]:
        """For each dimension, the number of parts that processes load, and each process's part; or None. By JAX's rule,
        every process must have as many tiles, and two processes the same tiles or none in common."""
        parts: list[tuple[int, np.ndarray] | None] = []
        owners = np.searchsorted(self.processes, self.process_ids)[self.holds]
        for tiles, tile_counts in zip(self.tiles[self.holds].T, self.tile_counts, strict=True):
            pairs = np.unique(owners * tile_counts + tiles)
            counts = np.bincount(pairs // tile_counts, minlength=len(self.processes))
            if (counts != counts[0]).any() or not counts[0]:
                parts.append(None)
                continue
            sets, which = np.unique((pairs % tile_counts).reshape(len(counts), -1), axis=0, return_inverse=True)
            parts.append((len(sets), which.ravel()) if sets.size == len(np.unique(pairs % tile_counts)) else None)
        return parts

    def bytes_per_device(self, dtype: Any) -> float:
        """Return the bytes of one shard, including padding. A 4-bit type has half a byte per element."""
        return math.prod(self.shard_shape) * itemsize(dtype)


@dataclass(frozen=True, kw_only=True)
class Local:
    """The data of an array that one of several processes addresses.

    Attributes:
        process: the process number.
        device_ids: its devices, in mesh order.
        shape: the shape of its own data, as `jax.make_array_from_process_local_data` and
            `multihost_utils.host_local_array_to_global_array` take them: along each dimension, all tiles that its
            devices hold, side by side.
        index: the smallest box of the array around its data.
        contiguous: whether its data fill this box.
        slices: device id → the slice of the process's own data that the device holds.
        parts: for each dimension (part, number of parts), counted over processes. None if processes hold different
            numbers of tiles or overlap in some, in which case JAX needs the global shape.
    """

    process: int
    device_ids: tuple[int, ...]
    shape: tuple[int, ...]
    index: tuple[slice, ...]
    contiguous: bool
    slices: dict[int, tuple[slice, ...]]
    parts: tuple[tuple[int, int] | None, ...]


def layout(shape: Sequence[int], sharding: Any, mesh: Any = None, processes: Sequence[int] | None = None) -> Layout:
    """Return the slice of an array on every device.

    Args:
        shape: the array's global shape.
        sharding: a PartitionSpec, a tuple such as `("data", None)`, a `Spec`, or anything that `sharding` of
            `shardviz.notation` reads, such as an HLO sharding's text.
        mesh: a mesh in any form that `DeviceMesh.of` reads; None if the sharding contains a mesh.
        processes: the process (host) of each device, in mesh order; None to read it from a `jax.sharding.Mesh` of
            devices.

    Returns:
        The `Layout`; arrays are in mesh order, vectorised over devices.

    Raises:
        SpecError: if the sharding does not fit the shape and mesh. Dimensions that do not divide are padded, as XLA
            does.
        ParseError: if `sharding` is text that is not a sharding.
        MeshError: if `mesh` does not describe a mesh, or `processes` does not have one number per device.

    Examples:
        >>> import shardviz as sv
        >>> layout = sv.layout((8, 6), ("data", None), {"data": 4})
        >>> layout.shard_shape, layout.index(1)
        ((2, 6), (slice(2, 4, None), slice(0, 6, None)))
    """
    shape = tuple(int(s) for s in shape)
    record = _record(shape, sharding, mesh)
    tiles, device_mesh = record.places(), record.mesh
    holds = np.ones(device_mesh.size, bool)
    if record.maximal is not None:
        holds, tiles = np.arange(device_mesh.size) == record.maximal, np.maximum(tiles, 0)
    tile_counts = record.tiles
    if wrong := [d for d in record.unstacked if shape[d] != tile_counts[d]]:
        raise SpecError(
            f"{record}: dimension {wrong[0]} is unstacked into {tile_counts[wrong[0]]}, but the array's has size "
            f"{shape[wrong[0]]}; the sizes must be equal, since each device has one element of the dimension"
        )
    shard_shape = tuple(-(-size // n) for size, n in zip(shape, tile_counts, strict=True))
    limit, shard = np.asarray(shape, np.int64), np.asarray(shard_shape, np.int64)
    starts = np.minimum(tiles * shard, limit)
    stops = np.minimum(starts + shard, limit)
    padding = shard - (stops - starts)
    partial_ids, partial_sums = _subgroup(record, "unreduced")
    manual_ids, manual_count = _subgroup(record, "manual")
    keys = _keys(tiles, tile_counts, manual_ids * partial_sums + partial_ids)
    replica_ids = ranks(keys)
    if not holds.all():
        replica_ids = np.where(holds, 0, -1)
        stops, padding = np.where(holds[:, None], stops, starts), np.where(holds[:, None], padding, 0)
    return Layout(
        shape=shape,
        spec=record.spec,
        mesh=device_mesh,
        shard_shape=shard_shape,
        tiles=tiles,
        starts=starts,
        stops=stops,
        replica_ids=replica_ids,
        device_ids=device_mesh.ids(),
        padding=padding,
        tile_counts=tile_counts,
        partial_ids=partial_ids,
        manual_ids=manual_ids,
        holds=holds,
        process_ids=_process_ids(device_mesh, _processes_of(sharding, mesh) if processes is None else processes),
        partial_sums=partial_sums,
        manual_count=manual_count,
        unreduced=record.unreduced,
        unreduced_kind=record.unreduced_kind,
        manual=record.manual,
        open=record.open if any(record.open) else (),
        why=record.why,
    )


def _processes_of(*values: Any) -> Sequence[int]:
    """Return the processes of the devices of a mesh, or of a sharding's mesh; empty without devices."""
    for mesh in (getattr(value, "mesh", value) for value in values):
        try:
            return [device.process_index for device in mesh.devices.flat]
        except (AttributeError, ValueError):  # an AbstractMesh has no devices
            continue
    return ()


def _process_ids(mesh: DeviceMesh, processes: Sequence[int]) -> np.ndarray:
    numbers = np.asarray(processes)
    if not numbers.size:
        return np.zeros(mesh.size, np.int64)
    if numbers.shape != (mesh.size,) or numbers.dtype.kind not in "iu":
        raise MeshError(
            f"processes: expected {mesh.size} whole numbers, one for each device of the mesh {mesh}, not "
            f"{numbers.dtype} of shape {numbers.shape}"
        )
    return numbers


def _record(shape: tuple[int, ...], sharding: Any, mesh: Any) -> Sharding:
    rank = len(shape)
    if is_plain(sharding):
        over = DeviceMesh.of(mesh)
        spec = Spec.of(sharding, rank=rank)
        check_spec("array", shape, spec, over, divide=False)
        return Sharding.from_spec(spec, over, rank, manual=over.manual)
    if not isinstance(sharding, Sharding):
        sharding = read_sharding(sharding, mesh, rank)
    elif mesh is not None:
        over, places = DeviceMesh.of(mesh), attrgetter("names", "sizes", "device_ids")  # the axes' types may differ
        if places(over) != places(sharding.mesh):
            raise SpecError(
                f"sharding {sharding}: it is over the mesh {sharding.mesh}, not {over} (axes or order of devices "
                "differ); leave out the mesh, which the sharding has"
            )
    return sharding.with_rank(rank)


def is_plain(sharding: Any) -> bool:
    """Return whether a value is a spec with only axes in it; any other sharding is read into a record first."""
    if sharding is None or isinstance(sharding, Spec | tuple | list):
        return True
    if type(sharding).__name__ not in ("P", "PartitionSpec"):  # tested by name, so that JAX is not imported
        return False
    return all(entry is None or isinstance(entry, str | tuple) for entry in getattr(sharding, "partitions", sharding))


def is_spec_entry(thing: Any) -> bool:
    """Return whether a node of a tree of specs is a spec, rather than a branch."""
    if type(thing) is tuple:
        return all(e is None or isinstance(e, str) or (type(e) is tuple and is_spec_entry(e)) for e in thing)
    return not isinstance(thing, dict | list)


def _subgroup(record: Sharding, kind: str) -> tuple[np.ndarray, int]:
    """Return for every position its number within the subgroups of one kind, and the count of numbers."""
    mesh, assignment = record.mesh, record.assignment
    if assignment is None:
        numbers = digits(record.unreduced if kind == "unreduced" else record.manual, mesh)
        return numbers, int(numbers.max()) + 1
    positions, first = assignment.positions(), len(assignment.tiles)
    numbers, count = np.zeros(mesh.size, np.int64), 1
    for column, (name, size) in enumerate(zip(assignment.kinds, assignment.dims[first:], strict=True), first):
        if name == kind:
            numbers, count = numbers * size + positions[:, column], count * size
    return numbers, count


def data_keys(layout: Layout) -> np.ndarray:
    """Return a number for the data of each device; it is equal only for copies."""
    return _keys(layout.tiles, layout.tile_counts, layout.manual_ids * layout.partial_sums + layout.partial_ids)


def _keys(tiles: np.ndarray, tile_counts: tuple[int, ...], keys: np.ndarray) -> np.ndarray:
    for dimension, count in enumerate(tile_counts):
        keys = keys * count + tiles[:, dimension]
    return keys


def ranks(keys: np.ndarray) -> np.ndarray:
    """Return the rank of each entry among equal entries, in order of position: [5, 7, 5, 5] → [0, 0, 1, 2]."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    count = np.arange(len(keys))
    first = np.ones(len(keys), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    ranked = np.empty(len(keys), np.int64)
    ranked[order] = count - np.maximum.accumulate(np.where(first, count, 0))
    return ranked


_BITS = {"bool": 8, "pred": 8, "token": 0}
_NUMBERS = re.compile(
    r"(?:[suc]|f(?!2$)|bf|bfloat|u?int|float|complex)(1|2|4|6|8|16|32|64|128)(?:_?e\dm\d\w{0,16})?", re.ASCII
)
"""Names of number types in NumPy, JAX and HLO, which end with their bits; a small float's format may follow."""
_KEY = re.compile(r"key<.{0,64}>(\d{0,9})", re.DOTALL)
"""Names of PRNG keys, see `_jax.dtype_name`."""
_NAME = re.compile(r"[A-Za-z][\w\[\]<>]{0,63}", re.ASCII)


def dtype_name(dtype: Any) -> str:
    """Return the name of an element type, from which `itemsize` derives the size."""
    name = getattr(dtype, "name", None) or str(dtype)
    if isinstance(dtype, str) or not _KEY.fullmatch(name):
        return name
    from shardviz import _jax  # already imported if the dtype is a PRNG key's

    return _jax.dtype_name(dtype)


def itemsize(dtype: Any) -> float:
    """Return the bytes of an element by its type's name in NumPy, JAX or HLO; a 4-bit type has half a byte. Raises
    DtypeError for an unknown type."""
    return _itemsize(dtype_name(dtype))


@lru_cache(maxsize=256)
def _itemsize(name: str) -> float:
    if number := _NUMBERS.fullmatch(name):
        return int(number[1]) / 8
    if name in _BITS:
        return _BITS[name] / 8
    if key := _KEY.fullmatch(name):
        from shardviz import _jax  # only JAX has the sizes of its PRNG keys

        if bits := int(key[1] or 0) or _jax.key_bits(name):
            return bits / 8
    try:
        if not _NAME.fullmatch(name):  # NumPy also accepts lists of fields with shapes of any size
            raise TypeError
        return float(np.dtype(name).itemsize)
    except (TypeError, ValueError):
        why = "unknown size; expected a type such as bfloat16"
        raise DtypeError(f"element type {excerpt(name)!r}: {why}") from None
