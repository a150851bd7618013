"""The verbs about arrays: `show`, a shard map; `reshard`, what a change of their shardings, or their mesh, sends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from shardviz.cli.frame import Answer
from shardviz.cli.naming import array_like, array_of, is_name, value_of
from shardviz.cli.schemas import Device, ReshardData, ReshardedArray, ReshardStep, ShowData
from shardviz.cli.steps import importable, project
from shardviz.compiler.shapes import numpy_name
from shardviz.costs.collective import with_seconds
from shardviz.costs.placement import Placement
from shardviz.errors import ShardvizError
from shardviz.layouts import itemsize, layout
from shardviz.notation.spec import axis_text
from shardviz.records import Collective
from shardviz.records.amounts import format_seconds
from shardviz.records.limits import amount_of
from shardviz.runs import reshard as reshard_tree
from shardviz.view.document import Document, section, table, wrapped
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
        spec=_spec(at.spec) or "",
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
    alone = array_like(array)
    if alone and len(mesh) == 1 and len(target) < 2 and not (apart or dtype or limit or code):
        return _one_array(array, before, after, mesh[0], target[0] if target else None)
    if alone:
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
    return Answer(moved.code(), record=moved, whole=moved) if code else Answer(moved)


def _one_array(array: str, before: str, after: str, mesh: str, target: str | None) -> Answer:
    """An array on one mesh: its shard maps, and the collectives of the resharding."""
    if target is not None:
        Placement.of(mesh, target)  # which refuses a machine of another size
    dtype, shape = array_of(array)
    change: Any = shard_map(shape, before, mesh, after=after, dtype=dtype)
    one = _resharded(change, mesh, target)
    most = {verb: float(amounts.max()) for verb, amounts in change.moves.bytes(dtype).items()}
    data = ReshardData(
        mesh=dict(change.before.layout.mesh.shape),
        target=target or "",
        arrays=[one],
        kept_bytes=most["keep"],
        received_bytes=most["receive"],
        dropped_bytes=most["drop"],
        seconds=one.seconds,
    )
    return Answer(_one_document(change, data), record=data)


def _resharded(change: Any, mesh: str, target: str | None) -> ReshardedArray:
    at, dtype, way = change.before.layout, change.before.dtype, change.moves
    times = [_seconds(step, at.shape, dtype, mesh, target) for step in way.steps]
    return ReshardedArray(
        name=change.before.title,
        shape=list(at.shape),
        dtype=str(dtype),
        before=_spec(at.spec),
        after=_spec(change.after.layout.spec),
        received_bytes=float(way.bytes(dtype)["receive"].max()),
        steps=[
            ReshardStep(
                kind=step.kind,
                axes=None if step.axes is None else [axis_text(axis) for axis in step.axes],
                after=_spec(step.after),
                received_bytes=step.elements * itemsize(dtype),
                seconds=seconds,
                formula=formula,
            )
            for step, (seconds, formula) in zip(way.steps, times, strict=True)
        ],
        seconds=None if target is None else _total(seconds for seconds, _ in times),
    )


def _total(seconds: Iterable[float | None]) -> float | None:
    """All together; None where one is not known."""
    every = list(seconds)
    return None if None in every else math.fsum(second for second in every if second is not None)


def _one_document(change: Any, data: ReshardData) -> Document:
    """The shard maps before and after, what moves, and how long each step takes."""
    whole = document(change)
    if not data.target:
        return whole
    timed = table(
        data.arrays[0].steps,
        ("step", lambda step: step.kind),
        ("over", lambda step: ", ".join(step.axes or ())),
        ("time", lambda step: format_seconds(step.seconds)),
        (wrapped("how"), lambda step: step.formula),
    )
    on_target = section(f"on {data.target}", timed, lead=f"{format_seconds(data.seconds)} in all")
    return replace(whole, blocks=(*whole.blocks, on_target))


def _spec(spec: Any) -> str | None:
    return None if spec is None else str(spec.canonical())


def _seconds(step: Any, shape: tuple[int, ...], dtype: Any, mesh: str, target: str | None) -> tuple[float | None, str]:
    """The time of a step of a resharding, and its formula; None where that is not known."""
    if target is None:
        return None, ""
    if step.kind == "slice":
        return 0.0, "each device takes a part of what it holds"
    if step.before is None or step.after is None or step.edges:
        return None, "not known for what no spec says"
    held = [layout(shape, spec, mesh) for spec in (step.before, step.after)]
    before, after = (each.bytes_per_device(dtype) for each in held)
    place = Placement.of(mesh, target)
    collective = Collective(
        kind=step.kind,
        axes=step.axes,
        dtype=dtype,
        shape=held[1].shard_shape,
        operand_bytes=before,
        result_bytes=after,
        count=1,
    )
    timed = with_seconds(collective, place, place.machine)
    return timed.seconds, timed.formula or ""
