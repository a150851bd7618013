"""The bytes of a tree of arrays, on each device and in total.

>>> from shardviz.layouts import layout
>>> w = TreeLeaf.of("w", layout((1024, 512), ("data", None), {"data": 4, "model": 2}), "float32")
>>> w.array, w.per_device, add_up([w]).total
(2097152.0, 524288.0, 4194304.0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.layouts.layout import Layout, dtype_name, itemsize


@dataclass(frozen=True, eq=False)
class TreeLeaf:
    """One array of a tree: its tree path, its layout, and its element type, None if unknown."""

    name: str
    layout: Layout
    dtype: str | None

    @classmethod
    def of(cls, name: str, layout: Layout, dtype: Any = None) -> TreeLeaf:
        return cls(name, layout, None if dtype is None else dtype_name(dtype))

    @property
    def array(self) -> float:
        """Bytes of the array, without copies; 0 if the type is unknown."""
        return 0.0 if self.dtype is None else math.prod(self.layout.shape) * itemsize(self.dtype)

    @property
    def per_device(self) -> float:
        """Bytes of one shard, including padding: the most that a device holds; 0 if the type is unknown."""
        return 0.0 if self.dtype is None else self.layout.bytes_per_device(self.dtype)


@dataclass(frozen=True, eq=False)
class TreeBytes:
    """Bytes of a tree of arrays on each device, including padding; arrays of unknown type count 0 bytes. Devices are in
    the mesh order of the first leaf, followed by other leaves' devices."""

    leaves: tuple[TreeLeaf, ...]
    device_ids: np.ndarray
    per_device: np.ndarray

    @property
    def array(self) -> float:
        """Bytes of all arrays, without copies."""
        return sum(leaf.array for leaf in self.leaves)

    @property
    def total(self) -> float:
        """Bytes on all devices together."""
        return float(self.per_device.sum())


def add_up(leaves: Iterable[TreeLeaf]) -> TreeBytes:
    """Sum the bytes of leaves on each device; leaves may be on different devices."""
    every = tuple(leaves)
    ids, totals = np.zeros(0, np.int64), np.zeros(0)
    for leaf in every:
        leaf_ids, places = leaf.layout.device_ids, slice(None)
        if not np.array_equal(leaf_ids, ids):
            new = leaf_ids[~np.isin(leaf_ids, ids)]
            ids, totals = np.concatenate([ids, new]), np.concatenate([totals, np.zeros(len(new))])
            order = np.argsort(ids)
            places = order[np.searchsorted(ids, leaf_ids, sorter=order)]
        totals[places] += leaf.layout.holds * leaf.per_device
    return TreeBytes(every, ids, totals)
