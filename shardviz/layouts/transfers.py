"""The elements that each device sends to each other device when an array goes from one mesh to another.

The two meshes may have the same devices, some devices in common or none, in any order, of any number.

>>> from shardviz.layouts import layout
>>> sent = transfers(layout((8,), ("data",), {"data": 4}), layout((8,), ("model",), {"model": 2}))
>>> list(zip(sent.senders.tolist(), sent.receivers.tolist(), sent.elements.tolist()))
[(0, 0, 2), (1, 0, 2), (2, 1, 2), (3, 1, 2)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardviz.errors import SpecError
from shardviz.layouts.layout import Layout, ranks


@dataclass(frozen=True, eq=False)
class Transfers:
    """Rows of (sender, receiver, elements); a row whose sender is its receiver is what that device keeps.

    Attributes:
        senders, receivers: device ids: integers, one per row.
        elements: elements of the array that the row carries: integers, all above 0.
    """

    senders: np.ndarray
    receivers: np.ndarray
    elements: np.ndarray


def transfers(
    before: Layout,
    after: Layout,
    before_ids: np.ndarray | None = None,
    after_ids: np.ndarray | None = None,
    near: Sequence[np.ndarray] = (),
) -> Transfers:
    """Return the elements that each device gets from each other device.

    Every device gets each element of its new shard once. If several devices hold the element, the sender is the device
    itself; else one on the same host; else one in the same slice; else any. Devices that are equally near take turns,
    so that they send equally much of an array.

    Args:
        before, after: the two layouts of the array.
        before_ids, after_ids: the devices' ids, one per row of each layout; None for the layouts' own.
        near: how near devices are, nearest first: for each level a number per device id (such as its host); devices
            with equal numbers are near. By default the layouts' processes, then the meshes' slices.

    Raises:
        SpecError: for different shapes, and for partial sums and manual axes, which are not copies of the array.
    """
    if before.shape != after.shape:
        raise SpecError(f"shapes {before.shape} and {after.shape}: expected two layouts of the same array")
    for side in (before, after):
        if side.unreduced or side.manual:
            what = "holds partial sums" if side.unreduced else "is one array per device inside a shard_map"
            raise SpecError(f"{side.spec or side.why}: the array {what}; give the sharding of the full array")
    ids = [
        before.device_ids if before_ids is None else before_ids,
        after.device_ids if after_ids is None else after_ids,
    ]
    levels = near or [
        _by_id(ids, (before.process_ids, after.process_ids)),
        _by_id(ids, (before.mesh.slices(), after.mesh.slices())),
    ]
    have, want, elements = _overlaps(before, after)
    rows = _rows(after)  # box x copy
    box = np.repeat(have, rows.shape[1])
    receivers = ids[1][rows[want].ravel()]
    holders = ids[0][_rows(before)[box]]  # row x copy
    distance = np.full(holders.shape, len(levels) + 1)
    for far, level in reversed(list(enumerate(levels, 1))):
        distance[level[holders] == level[receivers][:, None]] = far
    distance[holders == receivers[:, None]] = 0
    best = distance.min(axis=1, initial=len(levels) + 1)
    tied = distance == best[:, None]
    near_to = np.zeros(len(box), np.int64)
    for far, level in enumerate(levels, 1):
        near_to = np.where(best == far, level[receivers] + 1, near_to)
    group = (box * (len(levels) + 2) + best) * (int(near_to.max(initial=0)) + 1) + near_to
    turn = ranks(group) % np.maximum(tied.sum(axis=1), 1)
    chosen = np.argmax(np.cumsum(tied, axis=1) == (turn + 1)[:, None], axis=1)
    senders = holders[np.arange(len(holders)), chosen]
    return Transfers(senders, receivers, np.repeat(elements, rows.shape[1]))


def _by_id(ids: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the values of both sides by device id."""
    table = np.zeros(int(max(side.max() for side in ids)) + 1, np.int64)
    for side, numbers in zip(ids, values, strict=True):
        table[side] = numbers
    return table


def _rows(layout: Layout) -> np.ndarray:
    """Return the rows of the devices that hold each tile: integers, tile x copy."""
    number = np.zeros(len(layout.tiles), np.int64)
    for column, ways in zip(layout.tiles.T, layout.tile_counts, strict=True):
        number = number * ways + column
    rows = np.flatnonzero(layout.holds)
    return rows[np.argsort(number[rows], kind="stable")].reshape(int(np.prod(layout.tile_counts, dtype=np.int64)), -1)


def _overlaps(before: Layout, after: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all pairs of tiles that have elements in common: tiles before, tiles after, elements."""
    have, want, elements = np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, np.int64)
    for d, size in enumerate(before.shape):
        old, new = before.shard_shape[d], after.shard_shape[d]
        starts = np.minimum(np.arange(after.tile_counts[d]) * new, size)
        stops = np.minimum(starts + new, size)
        first = starts // max(old, 1)
        counts = np.where(stops > starts, (stops - 1) // max(old, 1) - first + 1, 0)
        tile = np.repeat(np.arange(after.tile_counts[d]), counts)
        other = np.arange(len(tile)) - np.repeat(np.cumsum(counts) - counts, counts) + first[tile]
        common = np.minimum((other + 1) * old, stops[tile]) - np.maximum(other * old, starts[tile])
        have = (have[:, None] * before.tile_counts[d] + other).ravel()
        want = (want[:, None] * after.tile_counts[d] + tile).ravel()
        elements = (elements[:, None] * common).ravel()
    return have, want, elements
