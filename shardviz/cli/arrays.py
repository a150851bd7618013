"""The verbs about arrays: `show`, a shard map; `reshard`, what a change of their shardings, or their mesh, sends."""

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
from shardviz.records.limits import amount_of
from shardviz.runs import reshard as reshard_tree
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
    mesh: Sequence[str],
    target: Sequence[str],
    apart: bool,
    dtype: str | None,
    limit: str | None,
    code: bool,
) -> Answer:
    for option, given in (("--mesh", mesh), ("--target", target)):
        if len(given) > 2:
            raise ShardvizError(f"{option}: {len(given)} values; give one, or one before and one after the resharding")
    if alone := array_like(array):
        element, shape = array_of(array)
        tree: Any = SimpleNamespace(shape=shape, dtype=numpy_name(element))
    else:
        importable(project())
        tree = value_of("ARRAY", array)
    sides = [value_of(o, t) if is_name(t) else t for o, t in (("BEFORE", before), ("AFTER", after))]
    try:
        moved = reshard_tree(
            tree,
            *sides,
            mesh=mesh[0],
            to_mesh=mesh[-1],
            target=target[0] if target else None,
            to_target=target[1] if len(target) > 1 else None,
            apart=apart,
            dtype=dtype,
            limit=None if limit is None else amount_of(limit, "B", "--limit"),
        )
    except ShardvizError as error:
        raise type(error)(f"ARRAY {array!r}, BEFORE {before!r}, AFTER {after!r}: {error}") from error
    if code:
        return Answer(moved.code(), record=moved, whole=moved)
    if not alone or len(mesh) > 1 or apart:
        return Answer(moved)
    maps = document(shard_map(tree.shape, before, mesh[0], after=after, dtype=tree.dtype))
    return Answer(replace(maps, blocks=(*maps.blocks, *document(moved).blocks)), record=moved)
