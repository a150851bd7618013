"""The verbs about arrays: `show`, a shard map; `reshard`, what a change of their shardings, or their mesh, sends; and
`checkpoint`, which process writes and reads what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from shardviz.cli.frame import Answer
from shardviz.cli.naming import array_like, array_of, is_name, value_of
from shardviz.cli.schemas import Device, ShowData
from shardviz.cli.steps import importable, project
from shardviz.compiler.shapes import numpy_name
from shardviz.errors import ShardvizError
from shardviz.layouts.chunks import FILE_BYTES
from shardviz.records.limits import amount_of
from shardviz.runs.checkpoint import checkpoint as checkpoint_of
from shardviz.runs.reshard import reshard as reshard_tree
from shardviz.view.show import show as shard_map
from shardviz.view.subjects import document


def show(array: str, spec: str, mesh: str) -> Answer:
    dtype, shape = array_of(array)
    shown: Any = shard_map(shape, spec, mesh, dtype=dtype)
    at = shown.layout
    rows = zip(at.device_ids.tolist(), at.starts.tolist(), at.stops.tolist(), at.replica_ids.tolist(), strict=True)
    data = ShowData(
        shape=list(shape),
        dtype=dtype,
        spec="" if at.spec is None else str(at.spec.canonical()),
        mesh=dict(at.mesh.shape),
        shard_shape=list(at.shard_shape),
        bytes_per_device=at.bytes_per_device(dtype),
        devices=[Device(device=d, start=start, stop=stop, replica=r) for d, start, stop, r in rows],
    )
    return Answer(shown, record=data)


def reshard(
    array: str,
    before: str,
    after: str,
    *,
    mesh: Sequence[str],
    target: Sequence[str],
    rename: Sequence[str],
    apart: bool,
    dtype: str | None,
    limit: str | None,
    code: bool,
) -> Answer:
    own_mesh, to_mesh = _before_after("mesh", mesh)
    own_target, to_target = _before_after("target", target)
    alone, tree = array_like(array), _tree(array)
    sides = [_side("BEFORE", before), _side("AFTER", after)]
    try:
        moved = reshard_tree(
            tree,
            *sides,
            mesh=own_mesh,
            to_mesh=to_mesh,
            target=own_target,
            to_target=to_target,
            apart=apart,
            rename=_renamed(rename),
            dtype=dtype,
            limit=_bytes("--limit", limit),
        )
    except ShardvizError as error:
        raise type(error)(f"ARRAY {array!r}, BEFORE {before!r}, AFTER {after!r}: {error}") from error
    if code:
        return Answer(moved.code(), record=moved, whole=moved)
    if not alone or to_mesh or apart:
        return Answer(moved)
    maps = document(shard_map(tree.shape, before, own_mesh, after=after, dtype=tree.dtype))
    return Answer(replace(maps, blocks=(*maps.blocks, *document(moved).blocks)), record=moved)


def checkpoint(
    array: str,
    before: str,
    after: str | None,
    *,
    mesh: Sequence[str],
    processes: Sequence[int],
    target: Sequence[str],
    chunk_bytes: str | None,
    file_bytes: str | None,
    limit: str | None,
    read_limit: str | None,
    bandwidth: str | None,
    one_replica: bool,
) -> Answer:
    own_mesh, to_mesh = _before_after("mesh", mesh)
    own_processes, to_processes = _before_after("processes", processes)
    own_target, to_target = _before_after("target", target)
    try:
        kept = checkpoint_of(
            _tree(array),
            _side("BEFORE", before),
            after if after is None else _side("AFTER", after),
            mesh=own_mesh,
            to_mesh=to_mesh,
            processes=own_processes,
            to_processes=to_processes,
            target=own_target,
            to_target=to_target,
            replica_parallel=not one_replica,
            chunk_bytes=_bytes("--chunk-bytes", chunk_bytes),
            limit=_bytes("--limit", limit),
            read_limit=_bytes("--read-limit", read_limit),
            file_bytes=_bytes("--file-bytes", file_bytes) or FILE_BYTES,
            bandwidth=_bytes("--bandwidth", bandwidth and bandwidth.removesuffix("/s")),
        )
    except ShardvizError as error:
        also = f", AFTER {after!r}" if after else ""
        raise type(error)(f"ARRAY {array!r}, BEFORE {before!r}{also}: {error}") from error
    return Answer(kept)


def _before_after(option: str, values: Sequence[Any]) -> tuple[Any, Any]:
    """Return an option's value before and its value after; None for a value that is not given."""
    if len(values) > 2:
        raise ShardvizError(f"--{option}: {len(values)} values; give one, or one before and one after")
    before, after, *_ = (*values, None, None)
    return before, after


def _renamed(entries: Sequence[str]) -> dict[Any, Any]:
    """Return path before → path after. A side with a comma is an array's path and its scales'."""
    pairs = {}
    for entry in entries:
        old, equal, new = entry.partition("=")
        if not equal:
            raise ShardvizError(f"--rename {entry!r}: expected PATH=PATH, such as ['up']=['w1']")
        before, after = (tuple(side.split(",")) if "," in side else side for side in (old, new))
        pairs[before] = after
    return pairs


def _tree(array: str) -> Any:
    """Return the tree that ARRAY names, or the array that it describes."""
    if array_like(array):
        element, shape = array_of(array)
        return SimpleNamespace(shape=shape, dtype=numpy_name(element))
    importable(project())
    return value_of("ARRAY", array)


def _side(argument: str, text: str) -> Any:
    return value_of(argument, text) if is_name(text) else text


def _bytes(option: str, text: str | None) -> float | None:
    return None if text is None else amount_of(text, "B", option)
