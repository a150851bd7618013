"""A tree of arrays in a checkpoint of Orbax: which process writes which bytes, and reads which. Only metadata is used.

>>> import jax, jax.numpy as jnp
>>> params = {"w": jax.ShapeDtypeStruct((8, 8), jnp.float32)}
>>> kept = checkpoint(params, ("data", None), mesh={"data": 4, "model": 2}, processes=4)
>>> [writer.nbytes for writer in kept.writers], kept.leaves[0].write_shape
([64.0, 64.0, 64.0, 64.0], (1, 8))
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardviz.costs.machine import Machine, machine_of
from shardviz.errors import MeshError, ShardvizError
from shardviz.layouts import Layout, itemsize
from shardviz.layouts.chunks import FILE_BYTES, StoredArray, reads, shards, stored
from shardviz.notation import DeviceMesh
from shardviz.records.checkpoint import Checkpoint, CheckpointLeaf, CheckpointReader, CheckpointWriter
from shardviz.runs.reshard import device_numbers
from shardviz.runs.sides import GivenArray, GivenTree, layout_of, side_of

READ_LIMIT = 96e9
"""Orbax's `restore_concurrent_gb`, in bytes."""


def checkpoint(
    tree: Any,
    before: Any = None,
    after: Any = None,
    *,
    mesh: Any = None,
    to_mesh: Any = None,
    processes: int | Sequence[int] | None = None,
    to_processes: int | Sequence[int] | None = None,
    target: str | Machine | None = None,
    to_target: str | Machine | None = None,
    replica_parallel: bool = True,
    chunk_bytes: float | None = None,
    file_bytes: float = FILE_BYTES,
    limit: float | None = None,
    read_limit: float | None = READ_LIMIT,
    bandwidth: float | None = None,
) -> Checkpoint:
    """Return the bytes of a tree of arrays that each process writes to a checkpoint of Orbax, in chunks; and the bytes
    that each process reads, on another mesh or with other processes.

    The checkpoint is Orbax's default, OCDBT: process i writes to `ocdbt.process_i`. Nothing is written or read.

    Args:
        tree: arrays, `jax.ShapeDtypeStruct`s or other objects with a shape and a dtype, in any pytree.
        before: how they are sharded where they are written: a spec for all arrays, a pytree prefix of specs or
            shardings, or a `sv.Plan` whose first argument is the tree; None for the arrays' own shardings.
        after: the same where they are read; None for those of `before`. Nothing is read if no argument for it is given.
        mesh, to_mesh: the mesh that writes, and the mesh that reads if it is another.
        processes, to_processes: the number of processes, each with equally many devices, in the order of their ids. Or
            the process of each device, in mesh order. None for the target's hosts; without a target, for the processes
            of the shardings' own devices, and one process for a mesh of sizes alone.
        target, to_target: the machine of each mesh, such as `tpu v5p:4x4x4`, for its hosts. Without `to_processes` and
            `to_target`, the processes and the target are those of `mesh`.
        replica_parallel: whether replicas share the writing of a shard (`use_replica_parallel`; Orbax turns it off if
            `JAX_PLATFORMS` names a GPU).
        chunk_bytes: `chunk_byte_size` of Orbax: bytes that a chunk may have.
        file_bytes: `ocdbt_target_data_file_size`: bytes that a data file may have, and so a chunk.
        limit: `save_device_host_concurrent_gb`, in bytes: what a host may hold while it writes; None for no limit.
        read_limit: `restore_concurrent_gb`, in bytes.
        bandwidth: bytes per second that a process writes or reads, for seconds.

    Returns:
        A `records.checkpoint.Checkpoint`, which shows itself.

    Raises:
        SpecError: if a sharding does not fit an array, or a dimension does not divide.
        MeshError: if there is no mesh, or its devices do not divide by the number of processes.
        TargetError: if there is no such machine, or it has too few devices.
        ShardvizError: if a tree has no arrays, trees do not match, or a number of bytes is not above 0.

    Examples:
        >>> import jax, jax.numpy as jnp, shardviz as sv
        >>> params = {"w": jax.ShapeDtypeStruct((8192, 1024), jnp.bfloat16)}
        >>> kept = sv.checkpoint(params, ("fsdp",), (None, "tensor"), mesh={"fsdp": 16}, to_mesh={"tensor": 8},
        ...                      processes=4, to_processes=2)
        >>> kept.unevenness, kept.read_bytes / kept.nbytes  # each reader needs some columns of every chunk
        (1.0, 8.0)
    """
    amounts = {"limit": limit, "read_limit": read_limit, "bandwidth": bandwidth, "chunk_bytes": chunk_bytes}
    if wrong := next((name for name, amount in amounts.items() if amount is not None and not amount > 0), None):
        raise ShardvizError(f"{wrong}: {amounts[wrong]} is not above 0; give a number of bytes")
    old = side_of("before", tree, before, mesh)
    ours = _layouts("before", old, processes, target)
    theirs = list[Layout]()
    if any(each is not None for each in (after, to_mesh, to_processes, to_target)):
        new = side_of("after", tree, before if after is None else after, to_mesh, mesh)
        if [(name, each.shape) for name, each in new.items()] != [(name, each.shape) for name, each in old.items()]:
            raise ShardvizError(
                "after: the arrays have other paths or shapes than those of the tree; give an equal tree"
            )
        if to_processes is None and to_target is None:
            to_processes, to_target = processes, target
        theirs = _layouts("after", new, to_processes, to_target)
    writers, readers = (max((int(x.process_ids.max()) + 1 for x in side), default=0) for side in (ours, theirs))
    arrays = list[_KeptArray]()
    for (name, array), one, other in zip(old.items(), ours, theirs or [None] * len(ours), strict=True):
        size = itemsize(array.dtype)
        how: Any = {"replica_parallel": replica_parallel, "chunk_bytes": chunk_bytes, "file_bytes": file_bytes}
        try:
            kept = stored(one, size, **how)
        except ShardvizError as error:
            raise type(error)(f"{name or 'array'} {list(array.shape)}, before {array.sharding}: {error}") from error
        arrays.append(_kept(name, array, kept, other, (writers, readers), replica_parallel))
    written = np.sum([each.written for each in arrays], axis=0)
    read = sum((each.read for each in arrays), np.zeros((readers, writers)))
    needed = sum((each.needed for each in arrays), np.zeros(readers))
    host = written if limit is None else np.max([*_batches(arrays, limit)], axis=0)
    read_host = np.minimum(read.sum(axis=1), np.inf if read_limit is None else read_limit)
    return Checkpoint(
        before=ours[0].mesh,
        after=theirs[0].mesh if theirs else None,
        leaves=tuple(each.leaf for each in arrays),
        writers=tuple(
            CheckpointWriter(
                process=n,
                folder=f"ocdbt.process_{n}",
                nbytes=float(written[n]),
                host_bytes=float(host[n]),
                arrays=sum(bool(each.written[n]) for each in arrays),
            )
            for n in range(writers)
        ),
        readers=tuple(
            CheckpointReader(
                process=n,
                needed_bytes=float(needed[n]),
                nbytes=float(read[n].sum()),
                host_bytes=float(read_host[n]),
                sources=int(np.count_nonzero(read[n])),
            )
            for n in range(readers)
        ),
        nbytes=sum(each.leaf.nbytes for each in arrays),
        write_seconds=None if bandwidth is None else float(written.max()) / bandwidth,
        read_seconds=None if bandwidth is None or not theirs else float(read.sum(axis=1).max()) / bandwidth,
        bandwidth=bandwidth,
        limit=limit,
        read_limit=read_limit if theirs else None,
        too_large=tuple(e.leaf.name for e in arrays if read_limit is not None and e.largest >= read_limit),
    )


class _KeptArray(NamedTuple):
    """An array and, for each process, the bytes that it writes, that its devices have, that it needs, and that it
    reads of what each process wrote; and the most bytes that are read for one shard."""

    leaf: CheckpointLeaf
    written: np.ndarray
    local: np.ndarray
    needed: np.ndarray
    read: np.ndarray
    largest: float


def _kept(
    name: str,
    array: GivenArray,
    kept: StoredArray,
    after: Layout | None,
    processes: tuple[int, int],
    all_replicas: bool,
) -> _KeptArray:
    before, size, (writers, readers) = kept.layout, itemsize(array.dtype), processes
    counted = before.holds & (all_replicas | (before.replica_ids == 0))
    local = np.bincount(before.process_ids[counted], minlength=writers) * before.bytes_per_device(array.dtype)
    written, needed, read, largest = kept.written(writers) * size, np.zeros(readers), np.zeros((readers, writers)), 0.0
    if after is not None:
        read = reads(kept, after, readers, writers) * size
        rows, chunk = shards(after), np.asarray(kept.chunk_shape, int)
        np.add.at(needed, after.process_ids[rows], after.elements[rows] * size)
        whole = (-(-after.stops[rows] // chunk) - after.starts[rows] // chunk) * chunk
        largest = float(np.prod(whole, axis=1, dtype=np.int64).max() * size)
    leaf = CheckpointLeaf(
        name=name,
        shape=array.shape,
        dtype=array.dtype,
        before=_spec(before),
        after=None if after is None else _spec(after),
        replicas=before.replicas,
        along=kept.along,
        write_shape=kept.write_shape,
        chunk_shape=kept.chunk_shape,
        chunks=kept.chunks,
        nbytes=math.prod(array.shape) * size,
        writers=int(np.count_nonzero(written)),
        most_bytes=float(written.max()),
        needed_bytes=float(needed.sum()),
        read_bytes=float(read.sum()),
    )
    return _KeptArray(leaf, written, local, needed, read, largest)


def _layouts(side: str, arrays: GivenTree, processes: Any, target: Any) -> list[Layout]:
    """Return the layout of each array, with the processes of its devices. Equal arrays have one layout."""
    known: dict[Any, Layout] = {}

    def of(mesh: DeviceMesh) -> Any:
        return _processes(mesh, processes, target)

    return [layout_of(name, side, array, known, of) for name, array in arrays.items()]


def _processes(mesh: DeviceMesh, processes: Any, target: Any) -> Any:
    """Return the process of each device of a mesh, in mesh order; None for those that the devices have themselves."""
    machine = None if target is None else machine_of(target, mesh.size)
    if processes is not None and not isinstance(processes, int):
        return processes
    if machine is None or machine.chip.kind == "cpu":
        if processes is None:
            return None
        places, size = np.argsort(np.argsort(mesh.ids())), mesh.size
    else:
        places, size = device_numbers(mesh, machine, True), machine.size
    if processes is None:
        return machine.processes()[places] if machine else None
    if processes < 1 or size % processes:
        raise MeshError(f"{size} devices do not divide by {processes} processes; give a number that divides {size}")
    return places * processes // size


def _spec(of: Layout) -> str | None:
    return None if of.spec is None else str(of.spec.canonical())


def _batches(arrays: Sequence[_KeptArray], limit: float) -> Iterator[np.ndarray]:
    """Yield what each process holds of each batch of arrays. As Orbax does it, a batch ends before the shards of the
    devices of a process reach the limit, whatever the process writes of them."""
    held, counted = arrays[0].written, arrays[0].local
    for each in arrays[1:]:
        if (counted + each.local >= limit).any():
            yield held
            held, counted = each.written, each.local
        else:
            held, counted = held + each.written, counted + each.local
    yield held
