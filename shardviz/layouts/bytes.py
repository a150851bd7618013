"""What a tree of arrays costs in bytes, on each device and in all.

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

from shardviz.layouts.layout import Layout, itemsize


@dataclass(frozen=True, eq=False)
class TreeLeaf:
    """One array of a tree: its tree path, its layout, and the type of its elements, None where it is not known."""

    name: str
    layout: Layout
    dtype: str | None

    @classmethod
    def of(cls, name: str, cut: Layout, dtype: Any = None) -> TreeLeaf:
        """The leaf of this layout."""
        return cls(name, cut, None if dtype is None else str(getattr(dtype, "name", None) or dtype))

    @property
    def array(self) -> float:
        """Bytes of the array, once; 0 where the type is not known."""
        return 0.0 if self.dtype is None else math.prod(self.layout.shape) * itemsize(self.dtype)

    @property
    def per_device(self) -> float:
        """Bytes of one shard, padding included: the most that a device holds; 0 where the type is not known."""
        return 0.0 if self.dtype is None else self.layout.bytes_per_device(self.dtype)


@dataclass(frozen=True, eq=False)
class TreeBytes:
    """The bytes of a tree of arrays on each device (those of the first leaf in its mesh order, then those of later
    ones), padding included; arrays whose type is not known count nothing."""

    leaves: tuple[TreeLeaf, ...]
    device_ids: np.ndarray
    per_device: np.ndarray

    @property
    def array(self) -> float:
        """Bytes of all arrays, each once."""
        return sum(leaf.array for leaf in self.leaves)

    @property
    def total(self) -> float:
        """Bytes on all devices together."""
        return float(self.per_device.sum())


def add_up(leaves: Iterable[TreeLeaf]) -> TreeBytes:
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
