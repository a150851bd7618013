"""Words on a checkpoint: what each process writes and reads, the memory of its host, and the chunks of each array."""

from __future__ import annotations

from collections.abc import Iterator

from shardviz.notation import DeviceMesh
from shardviz.records.amounts import first_names, format_bytes, format_rate, format_seconds, plural
from shardviz.records.checkpoint import Checkpoint, CheckpointLeaf
from shardviz.records.groups import grouped
from shardviz.view import document as doc

_FIRST, _MOST = 12, 200


@doc.document.register
def of_checkpoint(kept: Checkpoint) -> doc.Document:
    """Return the totals, the processes that write, those that read, and the arrays that have most bytes."""
    most = format_bytes(max(writer.nbytes for writer in kept.writers))
    even = f"{most} by each process"
    if kept.unevenness >= 1.005:
        even = f"{most} at most by one process, {kept.unevenness:.3g} times the mean"
    title = f"checkpoint of {plural(len(kept.leaves), 'array')}: {_total(kept.nbytes, len(kept.writers), kept.before)}"
    return doc.Document.of(
        doc.paragraph(f"{even}{_time(kept, kept.write_seconds)}", label="written"),
        *_read(kept),
        doc.section("Processes that write", _writers(kept), lead=_limit(kept.limit)),
        doc.section("Processes that read", _readers(kept), lead=_limit(kept.read_limit)) if kept.readers else None,
        doc.section("Arrays", _arrays(kept)),
        *doc.notes("Bytes are those of the arrays, before compression."),
        title=doc.words(title, strong=True),
        mesh=kept.before,
    )


def _total(nbytes: float, processes: int, mesh: DeviceMesh | None) -> str:
    on = f" on {mesh}" if mesh and mesh.shape else ""
    return f"{format_bytes(nbytes)} by {plural(processes, 'process')}{on}"


def _time(kept: Checkpoint, seconds: float | None) -> str:
    return "" if seconds is None else f", {format_seconds(seconds)} at {format_rate(kept.bandwidth)}"


def _limit(limit: float | None) -> str:
    return "" if limit is None else f"limit {format_bytes(limit)} per host"


def _read(kept: Checkpoint) -> Iterator[doc.Block]:
    if not kept.readers:
        return
    needed = sum(reader.needed_bytes for reader in kept.readers)
    most = max(reader.nbytes for reader in kept.readers)
    each = f"{format_bytes(most)} at most by one process{_time(kept, kept.read_seconds)}"
    aligned = "no more than they need, because shards and chunks align"
    if kept.read_bytes > needed:
        times = f"{kept.read_bytes / needed:.3g} times the {format_bytes(needed)} that they need"
        aligned = f"{times}, because shards end within chunks"
    total = _total(kept.read_bytes, len(kept.readers), kept.after)
    yield doc.paragraph(f"{total}, {each}; {aligned}", label="read")
    if kept.too_large:
        words = doc.words(f"Orbax refuses to read {plural(len(kept.too_large), 'array')}:", tone="bad")
        yield doc.paragraph(words, f"a shard needs more than the limit per host: {first_names(kept.too_large, 4)}")


def _writers(kept: Checkpoint) -> doc.Table:
    groups = grouped(((w.arrays, w.nbytes, w.host_bytes), w) for w in kept.writers).values()
    return doc.Rows(groups, first=_FIRST, most=_MOST, noun="group of processes", name="writers").table(
        ("processes", lambda group: doc.device_ranges(w.process for w in group)),
        (doc.wrapped("folders"), lambda group: first_names((w.folder for w in group), 2)),
        (doc.right("arrays"), lambda group: f"{group[0].arrays:,}"),
        (doc.right("each writes"), lambda group: doc.nbytes(group[0].nbytes)),
        (doc.right("host memory used"), lambda group: doc.nbytes(group[0].host_bytes)),
    )


def _readers(kept: Checkpoint) -> doc.Table:
    groups = grouped(((r.needed_bytes, r.nbytes, r.host_bytes, r.sources), r) for r in kept.readers).values()
    return doc.Rows(groups, first=_FIRST, most=_MOST, noun="group of processes", name="readers").table(
        ("processes", lambda group: doc.device_ranges(r.process for r in group)),
        (doc.right("each needs"), lambda group: doc.nbytes(group[0].needed_bytes)),
        (doc.right("reads"), lambda group: doc.nbytes(group[0].nbytes)),
        (doc.right("from folders"), lambda group: f"{group[0].sources:,}"),
        (doc.right("host memory used"), lambda group: doc.nbytes(group[0].host_bytes)),
    )


def _arrays(kept: Checkpoint) -> doc.Table:
    def specs(leaf: CheckpointLeaf) -> str:
        sides = (leaf.before, leaf.after) if kept.readers else (leaf.before,)
        return doc.before_after(*(spec or "no spec" for spec in sides))

    def by(leaf: CheckpointLeaf) -> str:
        shared = f"replica 0 of {leaf.replicas}" if leaf.along is None else f"replicas share dimension {leaf.along}"
        return plural(leaf.writers, "process") + (f", {shared}" if leaf.replicas > 1 else "")

    ordered = sorted(kept.leaves, key=lambda leaf: -leaf.nbytes)
    return doc.Rows(ordered, first=_FIRST, most=_MOST, noun="array", name="arrays").table(
        ("array", lambda leaf: doc.code(leaf.name or "array")),
        ("type and shape", lambda leaf: doc.shape(leaf.shape, dtype=leaf.dtype)),
        (doc.wrapped("spec"), specs),
        (doc.right("bytes"), lambda leaf: doc.nbytes(leaf.nbytes)),
        ("chunk", lambda leaf: doc.shape(leaf.chunk_shape)),
        (doc.right("chunks"), lambda leaf: f"{leaf.chunks:,}"),
        (doc.wrapped("written by"), by),
        (doc.right("read"), lambda leaf: doc.nbytes(leaf.read_bytes)) if kept.readers else None,
    )
