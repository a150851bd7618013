"""From a shape, a sharding and a mesh to the slice that every device holds, as arrays.

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
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from shardviz.display import Displayed
from shardviz.errors import DtypeError, SpecError, excerpt
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.read import sharding as read_sharding
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, Spec, check_spec
from shardviz.notation.tiling import digits


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Layout(Displayed):
    """The slice of an array on every device of a mesh. Arrays over devices are in mesh order.

    Attributes:
        shape: the array's global shape. Over manual axes it is the shape of one device's own array.
        spec: how it is sharded, one entry a dimension; None where no PartitionSpec says it (`why` tells why).
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
        unreduced: the axes over which the devices hold partial results.
        unreduced_kind: what reduces them: `sum`, `max` or `min`.
        manual: the axes that are manual.
        open: for each dimension whether the compiler may shard it further than said here (Shardy's `?`,
            `P.UNCONSTRAINED`); empty where it may not.
        why: why no PartitionSpec says it, or "".
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
    ways: tuple[int, ...]
    partial_ids: np.ndarray
    manual_ids: np.ndarray
    holds: np.ndarray
    partial_sums: int = 1
    manual_ways: int = 1
    unreduced: tuple[Axis, ...] = ()
    unreduced_kind: str = "sum"
    manual: tuple[Axis, ...] = ()
    open: tuple[bool, ...] = ()
    why: str = field(default="", repr=False)

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

    def row(self, device: int) -> int:
        """The place in mesh order of the device with this id.

        Raises:
            KeyError: if the mesh has no such device.
        """
        rows = np.flatnonzero(self.device_ids == device)
        if not len(rows):
            raise KeyError(f"the mesh {self.mesh} has no device {device}")
        return int(rows[0])

    def index(self, device: int) -> tuple[slice, ...]:
        """The slice that the device with this id holds; empty slices where it holds nothing.

        Raises:
            KeyError: if the mesh has no such device.
        """
        row = self.row(device)
        return tuple(slice(int(a), int(b)) for a, b in zip(self.starts[row], self.stops[row], strict=True))

    def holders(self, device: int) -> tuple[int, ...]:
        """The ids of the devices that hold the same data as this one, itself among them, in mesh order.

        Raises:
            KeyError: if the mesh has no such device.
        """
        keys = data_keys(self)
        return tuple(self.device_ids[(keys == keys[self.row(device)]) & self.holds].tolist())

    def bytes_per_device(self, dtype: Any) -> float:
        """Bytes of one shard, padding included. A 4-bit type has half a byte an element."""
        return math.prod(self.shard_shape) * itemsize(dtype)


def layout(shape: Sequence[int], sharding: Any, mesh: Any = None) -> Layout:
    """Where every slice of an array lies.

    Args:
        shape: the array's global shape.
        sharding: a PartitionSpec, a tuple such as `("data", None)`, a `Spec`, or anything that `sharding` of
            `shardviz.notation` reads, such as an HLO sharding's text.
        mesh: a mesh in any form that `DeviceMesh.of` reads; None where the sharding has its own.

    Returns:
        The `Layout`; arrays are in mesh order, vectorised over devices.

    Raises:
        SpecError: if the sharding does not fit the shape and mesh. Dimensions that do not divide are padded, as XLA
            does.
        ParseError: if `sharding` is text that says no sharding.
        MeshError: if `mesh` is no mesh.

    Examples:
        >>> import shardviz as sv
        >>> layout = sv.layout((8, 6), ("data", None), {"data": 4})
        >>> layout.shard_shape, layout.index(1)
        ((2, 6), (slice(2, 4, None), slice(0, 6, None)))
    """
    shape = tuple(int(s) for s in shape)
    record = _record(shape, sharding, mesh)
    tiles, where = record.places(), record.mesh
    holds = np.ones(where.size, bool)
    if record.maximal is not None:
        holds, tiles = np.arange(where.size) == record.maximal, np.maximum(tiles, 0)
    ways = record.tiles
    if wrong := [d for d in record.unstacked if shape[d] != ways[d]]:
        raise SpecError(
            f"{record}: dimension {wrong[0]} is unstacked into {ways[wrong[0]]}, and the array's is {shape[wrong[0]]}; "
            "each device has one element of it, so they must be the same"
        )
    shard_shape = tuple(-(-size // n) for size, n in zip(shape, ways, strict=True))
    limit, shard = np.asarray(shape, np.int64), np.asarray(shard_shape, np.int64)
    starts = np.minimum(tiles * shard, limit)
    stops = np.minimum(starts + shard, limit)
    padding = shard - (stops - starts)
    partial_ids, partial_sums = _subgroup(record, "unreduced")
    manual_ids, manual_ways = _subgroup(record, "manual")
    keys = _keys(tiles, ways, manual_ids * partial_sums + partial_ids)
    replica_ids = ranks(keys)
    if not holds.all():
        replica_ids = np.where(holds, 0, -1)
        stops, padding = np.where(holds[:, None], stops, starts), np.where(holds[:, None], padding, 0)
    return Layout(
        shape=shape,
        spec=record.spec,
        mesh=where,
        shard_shape=shard_shape,
        tiles=tiles,
        starts=starts,
        stops=stops,
        replica_ids=replica_ids,
        device_ids=where.ids(),
        padding=padding,
        ways=ways,
        partial_ids=partial_ids,
        manual_ids=manual_ids,
        holds=holds,
        partial_sums=partial_sums,
        manual_ways=manual_ways,
        unreduced=record.unreduced,
        unreduced_kind=record.unreduced_kind,
        manual=record.manual,
        open=record.open if any(record.open) else (),
        why=record.why,
    )


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
    """Whether it is a spec with nothing in it but axes; everything else is read into a record first."""
    if sharding is None or isinstance(sharding, Spec | tuple | list):
        return True
    if type(sharding).__name__ not in ("P", "PartitionSpec"):  # JAX's class is called either, and is not needed here
        return False
    return all(entry is None or isinstance(entry, str | tuple) for entry in getattr(sharding, "partitions", sharding))


def _subgroup(record: Sharding, kind: str) -> tuple[np.ndarray, int]:
    """For every place its number within the subgroups of one kind, and how many numbers there are."""
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


def data_keys(cut: Layout) -> np.ndarray:
    """A number for what each device holds, one a device: equal for copies, and only for these."""
    return _keys(cut.tiles, cut.ways, cut.manual_ids * cut.partial_sums + cut.partial_ids)


def _keys(tiles: np.ndarray, ways: tuple[int, ...], keys: np.ndarray) -> np.ndarray:
    for dimension, count in enumerate(ways):
        keys = keys * count + tiles[:, dimension]
    return keys


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


_BITS = {"bool": 8, "pred": 8, "token": 0, "key<fry>": 64, "key<rbg>": 128, "key<unsafe_rbg>": 128}
_NUMBERS = re.compile(
    r"(?:[suc]|f(?!2$)|bf|bfloat|u?int|float|complex)(1|2|4|6|8|16|32|64|128)(?:_?e\dm\d\w{0,16})?", re.ASCII
)
"""Names of numbers, in NumPy's, JAX's and HLO's words, end with their bits, but for how a small float has them."""
_NAME = re.compile(r"[A-Za-z][\w\[\]<>]{0,63}", re.ASCII)


def itemsize(dtype: Any) -> float:
    """Bytes of one element by NumPy's, JAX's or HLO's name of its type, half a byte of 4 bits; else a `DtypeError`."""
    name = getattr(dtype, "name", None) or str(dtype)
    if number := _NUMBERS.fullmatch(name):
        return int(number[1]) / 8
    if name in _BITS:
        return _BITS[name] / 8
    try:
        if not _NAME.fullmatch(name):  # NumPy also reads lists of fields, with shapes of any size
            raise TypeError
        return float(np.dtype(name).itemsize)
    except (TypeError, ValueError):
        why = "its size is not known; expected one such as bfloat16"
        raise DtypeError(f"element type {excerpt(name)!r}: {why}") from None
