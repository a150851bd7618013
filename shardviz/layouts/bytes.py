"""What an array, or a whole tree of them, costs in bytes, and how much of that is copies and padding.

>>> cost = array_bytes(layout((1024, 512), ("data", None), {"data": 4, "model": 2}), "float32")
>>> cost.array, cost.per_device, cost.replication, cost.wasted
(2097152.0, 524288.0, 2, 2097152.0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.layouts.layout import Layout, itemsize
from shardviz.visible import Visible


@dataclass(frozen=True, kw_only=True)
class ArrayBytes:
    """The bytes of one array on a mesh. `total == distinct + copies + padding`.

    Attributes:
        array: bytes of the array, once.
        per_device: bytes of one shard, padding included: the most that a device holds.
        total: bytes on all devices together.
        distinct: bytes that no other device has: the array, times its partial sums and its manual arrays.
        copies: bytes that another device has too, padding left out.
        padding: bytes beyond the array's end, on all devices together.
        replication: how many devices hold each slice (each partial sum of it, where it is unreduced).
    """

    array: float
    per_device: float
    total: float
    distinct: float
    copies: float
    padding: float
    replication: int

    @property
    def wasted(self) -> float:
        """Bytes of copies and padding on all devices together."""
        return self.copies + self.padding


def array_bytes(cut: Layout, dtype: Any) -> ArrayBytes:
    """The bytes that an array takes on each device and on all of them."""
    size, shard, elements = itemsize(dtype), math.prod(cut.shard_shape), cut.elements
    return ArrayBytes(
        array=math.prod(cut.shape) * size,
        per_device=shard * size,
        total=shard * int(np.count_nonzero(cut.holds)) * size,
        distinct=int(elements[cut.replica_ids == 0].sum()) * size,
        copies=int(elements[cut.replica_ids > 0].sum()) * size,
        padding=int((shard - elements[cut.holds]).sum()) * size,
        replication=cut.replicas,
    )


@dataclass(frozen=True, eq=False)
class Leaf:
    """One array of a tree: its tree path, its layout, the type of its elements, its bytes.

    `dtype` and `bytes` are None where the type is not known.
    """

    name: str
    layout: Layout
    dtype: str | None
    bytes: ArrayBytes | None

    @classmethod
    def of(cls, name: str, cut: Layout, dtype: Any = None) -> Leaf:
        """The leaf of this layout, its bytes reckoned where the type of its elements is given."""
        if dtype is None:
            return cls(name, cut, None, None)
        return cls(name, cut, str(getattr(dtype, "name", None) or dtype), array_bytes(cut, dtype))

    @property
    def per_device(self) -> float:
        """Bytes of one shard; 0 where the type is not known."""
        return self.bytes.per_device if self.bytes else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class TreeBytes(Visible):
    """The bytes of a tree of arrays; those whose type is not known count nothing.

    Attributes:
        leaves: its arrays, in the order given.
        device_ids: the devices: those of the first leaf in its mesh order, then those that only later ones are on.
        per_device: bytes on each of them, padding included.
    """

    leaves: tuple[Leaf, ...]
    device_ids: np.ndarray
    per_device: np.ndarray

    @property
    def array(self) -> float:
        """Bytes of all arrays, each once."""
        return sum(leaf.bytes.array for leaf in self.leaves if leaf.bytes)

    @property
    def total(self) -> float:
        """Bytes on all devices together."""
        return float(self.per_device.sum())

    @property
    def wasted(self) -> float:
        """Bytes of copies and padding on all devices together."""
        return sum(leaf.bytes.wasted for leaf in self.leaves if leaf.bytes)

    def heaviest(self, count: int = 10) -> tuple[Leaf, ...]:
        """The leaves that take most on a device, the heaviest first."""
        return tuple(sorted(self.leaves, key=lambda leaf: -leaf.per_device)[:count])


def add_up(leaves: Iterable[Leaf]) -> TreeBytes:
    """The bytes of leaves, which may lie on different devices, device by device."""
    every = tuple(leaves)
    ids, totals = np.zeros(0, np.int64), np.zeros(0)
    for leaf in every:
        theirs, places = leaf.layout.device_ids, slice(None)
        if not np.array_equal(theirs, ids):
            new = theirs[~np.isin(theirs, ids)]
            ids, totals = np.concatenate([ids, new]), np.concatenate([totals, np.zeros(len(new))])
            order = np.argsort(ids)
            places = order[np.searchsorted(ids, theirs, sorter=order)]
        totals[places] += leaf.layout.holds * leaf.per_device
    return TreeBytes(every, ids, totals)
