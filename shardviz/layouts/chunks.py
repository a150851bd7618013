"""The chunks of an array in a checkpoint: which process writes each, and which chunks a process reads.

As Orbax does it: of each shard, replica 0 writes all, or each replica an equal slice of it; the slices are stored in
chunks, and a chunk is read as one. Seen in orbax-checkpoint 0.12.8.

>>> from shardviz.layouts import layout
>>> rows = layout((8, 8), ("data", None), {"data": 2, "model": 2}, processes=[0, 0, 1, 1])
>>> kept = stored(rows, 4)
>>> kept.write_shape, kept.along, kept.owners.tolist(), kept.written(2).tolist()
((2, 8), 0, [[0], [0], [1], [1]], [32, 32])

Each of two processes then reads four columns, and all of the chunks that these are in:

>>> columns = layout((8, 8), (None, "data"), {"data": 2}, processes=[0, 1])
>>> reads(kept, columns, 2, 2).tolist()
[[32, 32], [32, 32]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardviz.errors import ShardvizError, SpecError
from shardviz.layouts.layout import Layout

FILE_BYTES = 2 << 30
"""Orbax's bound of a data file, and so of a chunk; 400 MiB on Google's cloud storage."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredArray:
    """The chunks of an array.

    Attributes:
        layout: the array on the devices that write it.
        along: the dimension along which replicas share a shard's writing; None if replica 0 writes all.
        write_shape: the shape of what a device writes.
        chunk_shape: the shape of a chunk, which divides `write_shape`.
        owners: the process that writes each slice of `write_shape`: integers, one dimension for each of the array's.
    """

    layout: Layout
    along: int | None
    write_shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    owners: np.ndarray

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return math.prod(size // chunk for size, chunk in zip(self.layout.shape, self.chunk_shape, strict=True))

    def written(self, processes: int) -> np.ndarray:
        """Return the elements that each process writes: integers, one per process."""
        return np.bincount(self.owners.ravel(), minlength=processes) * math.prod(self.write_shape)


def stored(
    layout: Layout,
    itemsize: float,
    *,
    replica_parallel: bool = True,
    chunk_bytes: float | None = None,
    file_bytes: float = FILE_BYTES,
) -> StoredArray:
    """Return the chunks of an array that is written from a layout.

    Args:
        layout: the array on its devices, with their processes.
        itemsize: bytes of an element.
        replica_parallel: whether replicas share the writing of a shard, if their number divides one of its dimensions.
        chunk_bytes: bytes that a chunk may have; None for no bound but `file_bytes`.
        file_bytes: bytes that a data file may have; 0 for no bound.

    Raises:
        SpecError: if a dimension does not divide, or the devices hold partial sums or separate arrays.
    """
    if layout.unreduced or layout.manual or not layout.divides:
        what = (
            "a dimension does not divide" if not layout.divides else "the devices hold partial sums or separate arrays"
        )
        raise SpecError(f"{layout.spec or layout.why}: {what}; give a sharding that JAX can have for a full array")
    shard, replicas, rows = layout.shard_shape, layout.replicas, np.flatnonzero(layout.holds)
    shares = replica_parallel and replicas > 1 and 0 not in shard
    along = next((d for d, size in enumerate(shard) if size % replicas == 0), None) if shares else None
    each = [replicas if d == along else 1 for d in range(len(shard))]
    if along is None:
        rows = rows[layout.replica_ids[rows] == 0]
    owners = np.zeros([n * k for n, k in zip(layout.tile_counts, each, strict=True)], np.int64)
    number = np.zeros(len(rows), np.int64)
    for d, (tiles, size) in enumerate(zip(layout.tiles[rows].T, owners.shape, strict=True)):
        number = number * size + tiles * each[d] + (layout.replica_ids[rows] if d == along else 0)
    owners.ravel()[number] = layout.process_ids[rows]
    write = tuple(size // n for size, n in zip(shard, each, strict=True))
    if file_bytes and math.prod(write) * itemsize > file_bytes:
        chunk_bytes = min(file_bytes, chunk_bytes or file_bytes)
    return StoredArray(
        layout=layout,
        along=along,
        write_shape=write,
        chunk_shape=_chunk_shape(layout.shape, write, itemsize, chunk_bytes),
        owners=owners,
    )


def _chunk_shape(
    shape: Sequence[int], write: Sequence[int], itemsize: float, chunk_bytes: float | None
) -> tuple[int, ...]:
    """Return the shape of a chunk: dimensions that are sharded become smaller first, the largest in front."""
    chunk = [max(1, size) for size in write]
    if chunk_bytes is None:
        return tuple(chunk)
    if chunk_bytes < itemsize:
        raise ShardvizError(f"chunk_bytes: {chunk_bytes:g} bytes are less than an element of {itemsize:g}; give more")
    sharded = [d for d, size in enumerate(chunk) if size != shape[d]]
    while math.prod(chunk) > chunk_bytes // itemsize:
        largest = max((d for d in sharded if chunk[d] > 1), key=lambda d: chunk[d], default=None)
        if largest is None:
            sharded = list(range(len(chunk)))
            continue
        size = chunk[largest] - 1
        while max(1, write[largest]) % size:
            size -= 1
        chunk[largest] = size
    return tuple(chunk)


def reads(kept: StoredArray, after: Layout, readers: int, writers: int) -> np.ndarray:
    """Return the elements that each process reads of what each process wrote: integers, reader x writer.

    A process reads each of its different shards once, in whole chunks; a chunk that two of them need counts twice."""
    count = np.zeros((readers, writers), np.int64)
    rows = shards(after)
    if not len(rows) or 0 in after.shape:
        return count
    which, box, elements = np.arange(len(rows)), np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
    for d, chunk in enumerate(kept.chunk_shape):
        per_box = kept.write_shape[d] // chunk
        low, high = after.starts[rows, d] // chunk, -(-after.stops[rows, d] // chunk)
        first, last = low // per_box, (high - 1) // per_box
        boxes = (last - first + 1)[which]
        before = np.repeat(np.arange(len(which)), boxes)
        which = which[before]
        at = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(boxes) - boxes, boxes)
        common = np.minimum(high[which], (at + 1) * per_box) - np.maximum(low[which], at * per_box)
        box, elements = box[before] * kept.owners.shape[d] + at, elements[before] * common * chunk
    np.add.at(count, (after.process_ids[rows[which]], kept.owners.ravel()[box]), elements)
    return count


def shards(layout: Layout) -> np.ndarray:
    """Return a row of the layout for each different shard of each process."""
    rows = np.flatnonzero(layout.holds)
    keys = np.column_stack([layout.process_ids, layout.tiles])[rows]
    return rows[np.unique(keys, axis=0, return_index=True)[1]]
