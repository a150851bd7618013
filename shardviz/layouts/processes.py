"""Where the bytes are, by process: what each host of several holds, and the shape of its own part.

In a job of several processes each one loads only what its own devices hold, and
`jax.make_array_from_process_local_data(sharding, local_data)` puts the array together. `local_data` has the
process-local shape: along each dimension, all tiles that the process's devices hold, side by side.

>>> from shardviz.layouts import layout
>>> hosts = by_process(layout((8, 6), ("data", "model"), {"data": 4, "model": 2}), [0, 0, 0, 0, 1, 1, 1, 1])
>>> hosts.local_shapes.tolist(), hosts.starts.tolist()
([[4, 6], [4, 6]], [[0, 0], [4, 0]])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardviz.errors import MeshError
from shardviz.layouts.layout import Layout, data_keys
from shardviz.visible import Visible


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ProcessLayout(Visible):
    """What each process holds of an array. Arrays over processes are in the order of `processes`.

    Attributes:
        layout: what each device holds.
        processes: the processes' numbers, ascending.
        process_of: integers, one a device in mesh order: the index into `processes` of the device's process.
        local_shapes: integers, process x dimension: the shape of its local data. JAX asks for that, or for the whole
            dimension.
        starts, stops: integers, process x dimension: the smallest box around all that it holds.
        local_starts: integers, device x dimension: where the device's slice begins in its process's local data.
        parts: integers, process x dimension: which part of the dimension it holds, counted over processes; -1 along
            dimensions that are not uniform.
        counts: how many parts each dimension has; None where it is not uniform: some processes hold more tiles than
            others, or overlap in some but not all, so that the global shape does not follow from the local one.
        contiguous: booleans, one a process: it holds the whole of the box, with no gap.
        elements: integers, one a process: different elements that it holds.
        boxes: booleans, one a process: whether its devices make a box of the mesh, without any other process's.
    """

    layout: Layout
    processes: np.ndarray
    process_of: np.ndarray
    local_shapes: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    local_starts: np.ndarray
    parts: np.ndarray
    counts: tuple[int | None, ...]
    contiguous: np.ndarray
    elements: np.ndarray
    boxes: np.ndarray

    def devices(self, process: int) -> tuple[int, ...]:
        """The ids of a process's devices, in mesh order.

        Raises:
            KeyError: if there is no such process.
        """
        return tuple(self.layout.device_ids[self.process_of == self._row(process)].tolist())

    def local_shape(self, process: int) -> tuple[int, ...]:
        """The shape of the data that a process gives to `jax.make_array_from_process_local_data`.

        Raises:
            KeyError: if there is no such process.
        """
        return tuple(self.local_shapes[self._row(process)].tolist())

    def pjit_shape(self, process: int) -> tuple[int, ...] | None:
        """The local view of the old pjit: the shape of what it took from a process, and gave back to it.

        Each dimension is of the size that the process's own part of the mesh asks for: the global size, times the
        devices of the process along the dimension's axes, over all devices along them. It is the shape of the local
        data wherever pjit would take them.

        Returns:
            The shape; None where the process's devices make no box of the mesh, a dimension does not divide, or no
            PartitionSpec says the sharding: pjit refused these.

        Raises:
            KeyError: if there is no such process.
        """
        row, cut = self._row(process), self.layout
        if (
            not self.boxes[row]
            or cut.spec is None
            or not cut.divides
            or not all(isinstance(a, str) for a in cut.spec.axes)
        ):
            return None
        mine = cut.mesh.coordinates()[self.process_of == row]
        along = {name: len(np.unique(mine[:, place])) for place, name in enumerate(cut.mesh.names)}
        return tuple(
            size // ways * math.prod(along[str(axis)] for axis in axes)
            for size, ways, axes in zip(cut.shape, cut.ways, cut.spec.dims, strict=True)
        )

    def local_index(self, device: int) -> tuple[slice, ...]:
        """The slice of its process's local data that goes to a device.

        Raises:
            KeyError: if there is no such device.
        """
        row = self.layout.row(device)
        begin = self.local_starts[row]
        end = begin + self.layout.stops[row] - self.layout.starts[row]
        return tuple(slice(int(a), int(b)) for a, b in zip(begin, end, strict=True))

    def _row(self, process: int) -> int:
        rows = np.flatnonzero(self.processes == process)
        if not len(rows):
            raise KeyError(f"no process {process}; there are {tuple(self.processes.tolist())}")
        return int(rows[0])


def by_process(cut: Layout, processes: Sequence[int] | np.ndarray | Mapping[int, int] | None = None) -> ProcessLayout:
    """What each process holds.

    Args:
        cut: what each device holds.
        processes: the process of each device in mesh order, or device id → process; None for the mesh's own
            `process_ids`, or one process where it has none.

    Raises:
        MeshError: if a device has no process.
    """
    ids = cut.device_ids
    if processes is None:
        numbers = np.asarray(cut.mesh.process_ids or (0,) * len(ids), np.int64)
    elif isinstance(processes, Mapping):
        missing = [int(device) for device in ids if int(device) not in processes]
        if missing:
            raise MeshError(f"processes: device {missing[0]} of the mesh {cut.mesh} has none; add it")
        numbers = np.fromiter((processes[int(device)] for device in ids), np.int64, len(ids))
    else:
        numbers = np.asarray(processes)
        if numbers.shape != (len(ids),) or not np.issubdtype(numbers.dtype, np.integer):
            raise MeshError(
                f"processes: expected {len(ids)} whole numbers, one for each device of the mesh {cut.mesh}, "
                f"not {numbers.dtype} of shape {numbers.shape}"
            )
    known, process_of = np.unique(numbers, return_inverse=True)
    count, rank = len(known), len(cut.shape)
    local_shapes, starts, stops = (np.zeros((count, rank), np.int64) for _ in range(3))
    parts, local_starts = np.zeros((count, rank), np.int64), np.zeros((len(ids), rank), np.int64)
    counts: list[int | None] = []
    holders = np.flatnonzero(cut.holds)
    for d in range(rank):
        pairs, inverse = np.unique(process_of[holders] * cut.ways[d] + cut.tiles[holders, d], return_inverse=True)
        owner, tile = pairs // cut.ways[d], pairs % cut.ways[d]
        begin = np.minimum(tile * cut.shard_shape[d], cut.shape[d])
        end = np.minimum(begin + cut.shard_shape[d], cut.shape[d])
        held = np.bincount(owner, minlength=count)
        first = np.cumsum(held) - held
        before = np.cumsum(end - begin) - (end - begin)
        some = held > 0
        local_shapes[:, d] = np.bincount(owner, end - begin, minlength=count).astype(np.int64)
        starts[some, d], stops[some, d] = begin[first[some]], end[(first + held - 1)[some]]
        local_starts[holders, d] = (before - before[first[owner]])[inverse]
        number, parts[:, d] = _parts(owner, tile, held)
        counts.append(number)
    box = np.prod(stops - starts, axis=1, dtype=np.int64)
    elements, different = _elements(cut, process_of, count)
    return ProcessLayout(
        layout=cut,
        processes=known,
        process_of=process_of,
        local_shapes=local_shapes,
        starts=starts,
        stops=stops,
        local_starts=local_starts,
        parts=parts,
        counts=tuple(counts),
        contiguous=elements == box * (different > 0),
        elements=elements,
        boxes=_boxes(cut, process_of, count),
    )


def _boxes(cut: Layout, process_of: np.ndarray, count: int) -> np.ndarray:
    """For each process whether its devices fill the smallest box of mesh coordinates around them."""
    box = np.ones(count, np.int64)
    for place in cut.mesh.coordinates().T:
        low, high = np.full(count, len(process_of)), np.zeros(count, np.int64)
        np.minimum.at(low, process_of, place)
        np.maximum.at(high, process_of, place)
        box *= high - low + 1
    return box == np.bincount(process_of, minlength=count)


def _parts(owner: np.ndarray, tile: np.ndarray, held: np.ndarray) -> tuple[int | None, np.ndarray | int]:
    """How many parts the processes make of a dimension and which one each holds, by JAX's rule for uniform ones.

    Every process holds as many tiles as the others, and two processes hold the same ones or none in common.
    """
    if (held != held[0]).any() or not held[0]:
        return None, -1
    sets, which = np.unique(tile.reshape(len(held), -1), axis=0, return_inverse=True)
    if sets.size != len(np.unique(tile)):
        return None, -1
    return len(sets), which.ravel()


def _elements(cut: Layout, process_of: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each process the number of different elements, and of different tiles, that it holds."""
    tiles = data_keys(cut) % max(1, int(np.prod(cut.ways, dtype=np.int64)))
    holders = np.flatnonzero(cut.holds)
    _, first = np.unique(process_of[holders] * (int(tiles.max(initial=0)) + 1) + tiles[holders], return_index=True)
    chosen = holders[first]
    elements = np.bincount(process_of[chosen], cut.elements[chosen], minlength=count).astype(np.int64)
    return elements, np.bincount(process_of[chosen], minlength=count)
