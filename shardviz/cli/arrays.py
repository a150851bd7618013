"""The verbs about arrays: `show` draws a shard map, `reshard` lists what a change of sharding sends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardviz.cli.frame import Answer
from shardviz.cli.naming import array_like, array_of, is_name, value_of
from shardviz.cli.schemas import Device, ReshardData, ReshardedArray, ReshardStep, ShowData
from shardviz.cli.steps import importable, project
from shardviz.costs.collective import with_seconds
from shardviz.costs.placement import Placement
from shardviz.errors import ShardvizError
from shardviz.layouts import itemsize, layout
from shardviz.notation.spec import axis_text
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.view.document import Document, nbytes, right, section, table, words, wrapped
from shardviz.view.show import ShownChange
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


def reshard(array: str, before: str, after: str, mesh: str, target: str | None) -> Answer:
    if target is not None:
        Placement.of(mesh, target)  # which refuses a machine of another size
    changes = list(_changes(array, before, after, mesh))
    arrays = [_resharded(change, mesh, target) for change in changes]
    sizes = [change.moves.bytes(change.before.dtype) for change in changes]
    most = {verb: float(np.sum([size[verb] for size in sizes], axis=0).max()) for verb in ("keep", "receive", "drop")}
    data = ReshardData(
        mesh=dict(changes[0].before.layout.mesh.shape),
        target=target or "",
        arrays=arrays,
        kept_bytes=most["keep"],
        received_bytes=most["receive"],
        dropped_bytes=most["drop"],
        seconds=_total(each.seconds for each in arrays),
    )
    whole = _one_document(changes[0], data) if array_like(array) else _tree_document(array, changes, data)
    return Answer(whole, record=data)


def _changes(array: str, before: str, after: str, mesh: str) -> Iterator[Any]:
    """Yield each array before and after the change, with its name in the tree."""
    if array_like(array):
        dtype, shape = array_of(array)
        yield shard_map(shape, before, mesh, after=after, dtype=dtype)
        return
    importable(project())
    tree = value_of("ARRAY", array)
    sides = []
    for option, text in (("BEFORE", before), ("AFTER", after)):
        specs = value_of(option, text) if is_name(text) else text
        try:
            shown: Any = shard_map(tree, specs, mesh)
        except ShardvizError as error:
            raise ShardvizError(f"ARRAY {array!r}, {option} {text!r}: {error}") from error
        sides.append(getattr(shown, "leaves", (shown,)))
    for one, other in zip(*sides, strict=True):
        yield ShownChange(one, other)


def _resharded(change: Any, mesh: str, target: str | None) -> ReshardedArray:
    at, dtype, moves = change.before.layout, change.before.dtype, change.moves
    times = [_seconds(step, at.shape, dtype, mesh, target) for step in moves.steps]
    return ReshardedArray(
        name=change.before.title,
        shape=list(at.shape),
        dtype=str(dtype),
        before=_spec(at.spec),
        after=_spec(change.after.layout.spec),
        received_bytes=float(moves.bytes(dtype)["receive"].max()),
        steps=[
            ReshardStep(
                kind=step.kind,
                axes=None if step.axes is None else [axis_text(axis) for axis in step.axes],
                after=_spec(step.after),
                received_bytes=step.elements * itemsize(dtype),
                seconds=seconds,
                formula=formula,
            )
            for step, (seconds, formula) in zip(moves.steps, times, strict=True)
        ],
        seconds=None if target is None else _total(seconds for seconds, _ in times),
    )


def _total(seconds: Iterable[float | None]) -> float | None:
    """Return the sum; None if any part is unknown."""
    every = list(seconds)
    return None if None in every else math.fsum(second for second in every if second is not None)


def _one_document(change: Any, data: ReshardData) -> Document:
    """Return the shard maps before and after, the data moved, and the seconds of each step."""
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


def _tree_document(name: str, changes: Sequence[Any], data: ReshardData) -> Document:
    """Return a row per array that changes: its steps and the bytes that a device receives, largest first."""

    def step_words(step: ReshardStep) -> str:
        return f"{step.kind} over {', '.join(step.axes)}" if step.axes else step.kind

    moving = [each for each in data.arrays if each.steps or each.before != each.after or each.received_bytes]
    total = f", {format_seconds(data.seconds)} on {data.target}" if data.target else ""
    amounts = [format_bytes(amount) for amount in (data.kept_bytes, data.received_bytes, data.dropped_bytes)]
    rows = table(
        sorted(moving, key=lambda each: -each.received_bytes),
        ("array", lambda each: each.name or name),
        (wrapped("before → after"), lambda each: f"{each.before or 'no spec'} → {each.after or 'no spec'}"),
        (wrapped("steps"), lambda each: ", ".join(map(step_words, each.steps))),
        (right("received"), lambda each: nbytes(each.received_bytes)),
        (right("time"), lambda each: format_seconds(each.seconds)) if data.target else None,
    )
    return Document(
        title=words(f"resharding of {name}: {len(moving)} of {plural(len(changes), 'array')}{total}", strong=True),
        lead=(words("a device keeps {}, receives {}, drops {}, at most".format(*amounts)),),
        blocks=(rows,) if moving else (),
        mesh=changes[0].before.layout.mesh,
    )


def _spec(spec: Any) -> str | None:
    return None if spec is None else str(spec.canonical())


def _seconds(step: Any, shape: tuple[int, ...], dtype: Any, mesh: str, target: str | None) -> tuple[float | None, str]:
    """Return a resharding step's seconds and formula; None if the seconds are unknown."""
    if target is None:
        return None, ""
    if step.kind == "slice":
        return 0.0, "each device takes a slice of its own shard"
    if step.before is None or step.after is None or step.edges:
        return None, "not known: no PartitionSpec expresses the sharding"
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
