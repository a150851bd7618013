"""The data of a checkpoint: which process writes and reads which bytes, in which chunks."""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.notation import DeviceMesh
from shardviz.records.versioned import Versioned


@dataclass(frozen=True, kw_only=True)
class CheckpointLeaf:
    """An array of the tree.

    Attributes:
        name: its tree path.
        shape: global.
        dtype: its element type.
        before, after: its PartitionSpec where it is written and where it is read; None if none expresses the sharding.
        replicas: the number of devices that have each shard where it is written.
        along: the dimension along which its replicas share the writing of a shard; None if replica 0 writes all.
        write_shape, chunk_shape: the shape of what a device writes, and of a chunk.
        chunks: the number of chunks.
        nbytes: bytes of the array, which are written once.
        writers: the number of processes that write it.
        most_bytes: the most bytes that one process writes.
        needed_bytes, read_bytes: bytes of the shards of all processes, each different shard once per process, and of
            the chunks that they read for them; 0 if nothing is read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    before: str | None
    after: str | None
    replicas: int
    along: int | None
    write_shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    chunks: int
    nbytes: float
    writers: int
    most_bytes: float
    needed_bytes: float
    read_bytes: float


@dataclass(frozen=True, kw_only=True)
class CheckpointWriter:
    """A process that writes.

    Attributes:
        process: its number.
        folder: where its data files are, within the checkpoint.
        nbytes: bytes that it writes, before compression.
        host_bytes: bytes of its host's memory at the peak.
        arrays: the number of arrays of which it writes something.
    """

    process: int
    folder: str
    nbytes: float
    host_bytes: float
    arrays: int


@dataclass(frozen=True, kw_only=True)
class CheckpointReader:
    """A process that reads.

    Attributes:
        process: its number.
        needed_bytes: bytes of its shards, each different one once.
        nbytes: bytes of the chunks that it reads for them.
        host_bytes: bytes of its host's memory at the peak.
        sources: the number of folders of processes that it reads from.
    """

    process: int
    needed_bytes: float
    nbytes: float
    host_bytes: float
    sources: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Checkpoint(Versioned, kind="checkpoint"):
    """A tree of arrays that is written by the processes of one mesh, and read by those of another.

    Attributes:
        before, after: the mesh that writes, and the mesh that reads; `after` is None if nothing is read.
        leaves: the arrays, in the order of the tree.
        writers: every process of the mesh before.
        readers: every process of the mesh after; empty if nothing is read.
        nbytes: bytes of the tree, which all processes together write once.
        write_seconds, read_seconds: seconds of the process that writes, or reads, most; None without a bandwidth.
        bandwidth: bytes per second of a process, to and from the storage.
        limit, read_limit: bytes that the host of a process may hold while it writes and reads; None for no limit.
        too_large: arrays with a shard that needs more bytes than `read_limit`, which Orbax refuses to read.
    """

    before: DeviceMesh
    after: DeviceMesh | None
    leaves: tuple[CheckpointLeaf, ...]
    writers: tuple[CheckpointWriter, ...]
    readers: tuple[CheckpointReader, ...]
    nbytes: float
    write_seconds: float | None
    read_seconds: float | None
    bandwidth: float | None
    limit: float | None
    read_limit: float | None
    too_large: tuple[str, ...]

    @property
    def unevenness(self) -> float:
        """The most bytes that a process writes, divided by the mean of all processes; 1 if all write equally much."""
        return max(w.nbytes for w in self.writers) * len(self.writers) / self.nbytes if self.nbytes else 1.0

    @property
    def read_bytes(self) -> float:
        """Bytes that all processes read."""
        return sum(reader.nbytes for reader in self.readers)
