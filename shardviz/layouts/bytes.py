"""What an array, or a whole tree of them, costs in bytes, and how much of that is copies and padding.

>>> cost = array_bytes(layout((1024, 512), ("data", None), {"data": 4, "model": 2}), "float32")
>>> cost.array, cost.per_device, cost.replication, cost.wasted
(2097152.0, 524288.0, 2, 2097152.0)

A tree's leaves that are less sharded than they could be:

>>> tree = tree_bytes({"w": ((1024, 512), "float32", ("data", None))}, {"data": 4, "model": 2})
>>> print(*tree.less_sharded())
w P('data', None): 'model' is not used; P('data', 'model') would take 262144 bytes per device, not 524288
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.layouts.layout import Layout, itemsize, layout
from shardviz.notation.spec import Axis, Spec, axis_name
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


@dataclass(frozen=True, kw_only=True)
class LessSharded:
    """A leaf that axes of the mesh could shard further.

    Attributes:
        name: the leaf's tree path.
        spec: how it is cut.
        axes: axes of the mesh that do nothing for it, and would divide a dimension.
        dimensions: the dimension that each of them would divide.
        better: a spec that uses them.
        bytes_per_device: what it takes now.
        better_bytes_per_device: what it would take.
    """

    name: str
    spec: Spec
    axes: tuple[str, ...]
    dimensions: tuple[int, ...]
    better: Spec
    bytes_per_device: float
    better_bytes_per_device: float

    @property
    def saved_bytes_per_device(self) -> float:
        """What each device would save."""
        return self.bytes_per_device - self.better_bytes_per_device

    def __str__(self) -> str:
        axes = " and ".join(map(repr, self.axes))
        return (
            f"{self.name} {self.spec}: {axes} {'is' if len(self.axes) == 1 else 'are'} not used; {self.better} would "
            f"take {self.better_bytes_per_device:.0f} bytes per device, not {self.bytes_per_device:.0f}"
        )


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

    def less_sharded(self) -> tuple[LessSharded, ...]:
        """The leaves that axes of the mesh could shard further, the one that would save most first."""
        improvable = [better for leaf in self.leaves if (better := less_sharded(leaf))]
        return tuple(sorted(improvable, key=lambda it: -it.saved_bytes_per_device))


def tree_bytes(leaves: Mapping[str, tuple[Sequence[int], Any, Any]], mesh: Any = None) -> TreeBytes:
    """The bytes of a tree of arrays, per device.

    Args:
        leaves: tree path → (global shape, dtype, sharding), the sharding in any form that `layout` reads.
        mesh: the mesh, where the shardings do not bring their own.

    Raises:
        SpecError: if a sharding does not fit its shape.
    """
    return add_up(
        Leaf.of(name, layout(shape, sharding, mesh), dtype) for name, (shape, dtype, sharding) in leaves.items()
    )


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


def less_sharded(leaf: Leaf) -> LessSharded | None:
    """How axes that do nothing for a leaf could shard it further; None where none would divide a dimension."""
    cut = leaf.layout
    if cut.spec is None or leaf.bytes is None:
        return None
    used = {axis_name(axis) for axis in (*cut.spec.axes, *cut.unreduced, *cut.manual)}
    free = sorted(
        (name for name, size in cut.mesh.shape.items() if size > 1 and name not in used),
        key=lambda name: -cut.mesh.shape[name],
    )
    dims: list[tuple[Axis, ...]] = list(cut.spec.dims)
    ways = list(cut.ways)
    taken: list[str] = []
    where: list[int] = []
    for name in free:
        fits = [d for d, size in enumerate(cut.shape) if size and size % (ways[d] * cut.mesh.shape[name]) == 0]
        if fits:
            # Dimensions that are not sharded come first, then the largest shard: the spec stays easy to read.
            best = max(fits, key=lambda d: (not dims[d], cut.shape[d] // ways[d]))
            dims[best] = (*dims[best], name)
            ways[best] *= cut.mesh.shape[name]
            taken.append(name)
            where.append(best)
    if not taken:
        return None
    better = cut.spec.with_dims(tuple(dims))
    after = layout(cut.shape, better, cut.mesh).bytes_per_device(leaf.dtype)
    return LessSharded(
        name=leaf.name,
        spec=cut.spec,
        axes=tuple(taken),
        dimensions=tuple(where),
        better=better,
        bytes_per_device=leaf.bytes.per_device,
        better_bytes_per_device=after,
    )
