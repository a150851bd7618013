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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.layout.dtypes import itemsize
from shardviz.layout.reading import Cut, read_cut

__all__ = ["Layout", "itemsize", "layout"]


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
