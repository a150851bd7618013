"""The way from one sharding to another: what each device receives, keeps and drops, and the collectives that do it.

>>> way = moves((8, 8), ("data", None), (None, "data"), {"data": 4})
>>> way.keep.tolist(), way.receive.tolist(), way.drop.tolist()
([4, 4, 4, 4], [12, 12, 12, 12], [12, 12, 12, 12])
>>> for step in way.steps:
...     print(step)
all-to-all over data: dimension 0 becomes whole, dimension 1 is cut; P('data', None) → P(None, 'data'); 12 elements
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardviz.errors import MeshError, SpecError
from shardviz.layouts.layout import Layout, data_keys, itemsize, layout
from shardviz.layouts.reshard import Step, steps_between
from shardviz.visible import Visible

_MOST_PAIRS = 1 << 24


@dataclass(frozen=True, eq=False, repr=False)
class Moves(Visible):
    """What moves between two shardings of the same array.

    Counts are of elements, integers, one a device, in the mesh order of `before`; padding is not counted. An element of
    a partial sum is not yet the element, so none of it is kept where the sum is asked for.

    Attributes:
        before, after: the two layouts, both in the mesh order of `before`.
        keep: elements that the device has and still needs.
        receive: elements that it needs and does not have: `keep + receive` is what it holds afterwards.
        drop: elements that it has and no longer needs: `keep + drop` is what it holds before.
        steps: the collectives that do it, in order; empty where nothing changes.
        proved: whether no other collectives bring a device fewer elements; False where there were too many ways to try
            (see `reshard`), so that these may not be the cheapest.
    """

    before: Layout
    after: Layout
    keep: np.ndarray
    receive: np.ndarray
    drop: np.ndarray
    steps: tuple[Step, ...]
    proved: bool = True

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices that the counts are of."""
        return self.before.device_ids

    @property
    def free(self) -> bool:
        """Whether no device needs anything from another."""
        return not self.receive.any()

    def bytes(self, dtype: Any) -> dict[str, np.ndarray]:
        """`keep`, `receive` and `drop` in bytes."""
        size = itemsize(dtype)
        return {"keep": self.keep * size, "receive": self.receive * size, "drop": self.drop * size}

    def traffic(self) -> np.ndarray:
        """Who sends what: integers, rows of (sending device, receiving device, elements), by device id.

        Where several devices hold a slice, receivers take turns among them. Nothing in it is of partial sums.

        Raises:
            SpecError: if the array is a partial sum before and not after, or if the table is too large.
        """
        return _traffic(self.before, self.after)


def moves(shape: Sequence[int], before: Any, after: Any, mesh: Any = None) -> Moves:
    """What moves when an array changes its sharding.

    Args:
        shape: the array's global shape.
        before, after: the two shardings, in any form that `layout` reads.
        mesh: the mesh, where the shardings do not bring their own.

    Raises:
        SpecError: if a sharding does not fit, or the change cannot be made: from a sum to partial sums, or between
            different manual axes.
        MeshError: if the two are on different devices.
    """
    return moves_between(layout(shape, before, mesh), layout(shape, after, mesh))


def moves_between(before: Layout, after: Layout) -> Moves:
    """As `moves`, from two layouts of the same shape.

    Raises:
        SpecError, MeshError: as `moves` does.
    """
    if before.shape != after.shape:
        raise SpecError(f"layouts of shapes {before.shape} and {after.shape}: expected two of the same array")
    after = _in_order_of(before, after)
    _check(before, after)
    low, high = np.maximum(before.starts, after.starts), np.minimum(before.stops, after.stops)
    keep = np.prod(np.maximum(high - low, 0), axis=1, dtype=np.int64) * (before.holds & after.holds)
    if before.partial_sums != after.partial_sums:
        keep = np.zeros_like(keep)
    found = steps_between(before, after)
    return Moves(before, after, keep, after.elements - keep, before.elements - keep, found.steps, found.proved)


def _in_order_of(before: Layout, after: Layout) -> Layout:
    """`after` with its rows in the mesh order of `before`."""
    if np.array_equal(before.device_ids, after.device_ids):
        return after
    theirs = np.argsort(after.device_ids)
    ours = np.argsort(before.device_ids)
    if len(ours) != len(theirs) or not np.array_equal(before.device_ids[ours], after.device_ids[theirs]):
        raise MeshError(
            f"the meshes {before.mesh} and {after.mesh} have different devices; expected two shardings over the same"
        )
    rows = np.empty_like(theirs)
    rows[ours] = theirs
    names = ("tiles", "starts", "stops", "replica_ids", "device_ids", "padding", "partial_ids", "manual_ids", "holds")
    return replace(after, **{name: getattr(after, name)[rows] for name in names})


def _check(before: Layout, after: Layout) -> None:
    if before.manual_ways != after.manual_ways or not np.array_equal(before.manual_ids, after.manual_ids):
        raise SpecError(
            f"from {_said(before)} to {_said(after)}: they are manual over different axes; a shard_map's edge is no "
            "resharding, so compare shardings on the same side of it"
        )
    if before.partial_sums > 1 and after.partial_sums > 1 and before.unreduced_kind != after.unreduced_kind:
        kinds = f"partial results of a {before.unreduced_kind} become none of a {after.unreduced_kind}"
        raise SpecError(f"from {_said(before)} to {_said(after)}: {kinds}; leave out the unreduced axes of the second")
    pairs = before.partial_ids * after.partial_sums + after.partial_ids
    if after.partial_sums > 1 and len(np.unique(pairs)) > len(np.unique(before.partial_ids)):
        raise SpecError(
            f"from {_said(before)} to {_said(after)}: an array can go from partial sums to their sum, not back; leave "
            "out the unreduced axes of the second"
        )


def _said(cut: Layout) -> str:
    return str(cut.spec) if cut.spec is not None else f"a sharding with no spec ({cut.why})"


def _traffic(before: Layout, after: Layout) -> np.ndarray:
    if before.partial_sums != after.partial_sums:
        raise SpecError(f"from {_said(before)} to {_said(after)}: partial sums are added up on the way; see the steps")
    tiles = int(np.prod(before.ways, dtype=np.int64))
    count = len(before.device_ids)
    if tiles * count > _MOST_PAIRS:
        raise SpecError(
            f"traffic between {count} devices and {tiles} tiles: more than {_MOST_PAIRS} pairs; `receive` has each "
            "device's total"
        )
    pieces = np.ones((count, 1), np.int64)
    for d, ways in enumerate(before.ways):
        begin = np.minimum(np.arange(ways) * before.shard_shape[d], before.shape[d])
        end = np.minimum(begin + before.shard_shape[d], before.shape[d])
        low = np.maximum(after.starts[:, d, None], begin)
        high = np.minimum(after.stops[:, d, None], end)
        pieces = (pieces[:, :, None] * np.maximum(high - low, 0)[:, None, :]).reshape(count, -1)
    pieces[~after.holds] = 0
    keys = data_keys(before)
    own = keys % tiles
    pieces[before.holds, own[before.holds]] = 0
    receiver, tile = np.nonzero(pieces)
    holders = np.flatnonzero(before.holds)
    table = holders[np.argsort(keys[holders], kind="stable")].reshape(-1, before.replicas)
    block = keys[receiver] // tiles if not before.maximal else np.zeros_like(receiver)
    sender = table[block * tiles + tile, after.replica_ids[receiver] % before.replicas]
    ids = before.device_ids
    return np.stack([ids[sender], ids[receiver], pieces[receiver, tile]], axis=1)
