"""A report's rows, whatever its level: values with their shardings, the source lines that they refer to, versions."""

from __future__ import annotations

import linecache
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata

from shardviz import diagnose
from shardviz.judge.report import Report
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.program.adapt.pmap import sharding_spec
from shardviz.program.call import Call
from shardviz.program.lower import Lowered
from shardviz.program.module import sdy_spec
from shardviz.program.roles import roles
from shardviz.program.trace import Argument
from shardviz.program.variance import unreplicated
from shardviz.records import Alive, Collective, Finding, Frame, PlanRecord, Use, Value, Work
from shardviz.records.phases import phase
from shardviz.records.source import assigned, module_of

_MOST_LINES = 600


def value(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    spec: Spec | None,
    shard: tuple[int, ...] | None,
    *,
    donated: bool = False,
    memory_kind: str = DEVICE_MEMORY,
    unused: bool = False,
    **notations: str,
) -> Value:
    """An argument or an output; its spec is None where no PartitionSpec says it, one device's shape where that is not
    known."""
    if spec is not None:
        notations = {"pspec": str(spec), **notations}
    size = None if shard is None else math.prod(shard) * itemsize(dtype)
    return Value(
        name=name,
        shape=shape,
        dtype=dtype,
        spec=spec,
        shard_shape=shard,
        bytes_per_device=size,
        sharding=notations,
        donated=donated,
        memory_kind=memory_kind,
        unused=unused,
    )


def arguments(lowered: Lowered, bound: PlanRecord) -> tuple[Value, ...]:
    """A row for each argument: what the plan says, which every level keeps."""
    rows = zip(lowered.traced.arguments, lowered.unused, strict=True)
    arrays = (
        (a, bound.in_specs[a.name], bound.in_memory.get(a.name, DEVICE_MEMORY), unused, False) for a, unused in rows
    )
    return _planned("arguments", lowered, bound.mesh, arrays)


def outputs(
    lowered: Lowered, specs: Sequence[Spec], bound: PlanRecord, gradients: Collection[str] = ()
) -> tuple[Value, ...]:
    """A row for each output, as Shardy has it; `gradients` are those that the backward pass makes."""
    rows = zip(lowered.traced.outputs, specs, strict=True)
    memory = bound.out_memory
    arrays = ((o, spec, memory.get(o.name, DEVICE_MEMORY), False, o.name in gradients) for o, spec in rows)
    return _planned("outputs", lowered, bound.mesh, arrays)


def _planned(
    which: str, lowered: Lowered, mesh: DeviceMesh, arrays: Iterable[tuple[Argument, Spec, str, bool, bool]]
) -> tuple[Value, ...]:
    """The rows, of which those that are as they were under the last plan are not made again; of each array its spec,
    its memory, whether nothing needs it, whether it is a gradient."""
    on, before = lowered.rows.get(which, (mesh, {}))
    if on != mesh:
        before = {}
    values = []
    for array, spec, memory, unused, gradient in arrays:
        row = before.get(array.name)
        if (
            row is None
            or (row.shape, row.dtype, row.donated) != (array.shape, array.dtype, array.donated)
            or (row.spec, row.memory_kind, row.unused, row.gradient) != (spec, memory, unused, gradient)
        ):
            new = value(
                *(array.name, array.shape, array.dtype, spec, shard_shape(array.shape, spec, mesh)),
                donated=array.donated,
                memory_kind=memory,
                unused=unused,
                sdy=f"#sdy.sharding<@mesh, {sdy_spec(spec, len(array.shape))}>",
            )
            row = replace(new, gradient=gradient, scanned=array.scanned) if gradient or array.scanned else new
            if which == "arguments":
                of = roles(lowered)
                use = Use(array.name in of.optimizer, of.becomes.get(array.name, ""))
                row = replace(row, use=use) if use != Use() else row
        values.append(row)
    lowered.rows[which] = mesh, {row.name: row for row in values}
    return tuple(values)


def labelled(values: Sequence[Value]) -> tuple[Value, ...]:
    """The values, with the last one of each assignment in the source called by its variable.

    Only on the way forward and in the update: what the backward pass makes at a line is not what the line assigns. What
    a function of a library makes at the line that calls it is a step on the way there.
    """
    last: dict[tuple[Frame, str], int] = {}
    for i, value in enumerate(values):
        if value.source is not None and phase(value.name_stack) in ("forward", "update"):
            last[value.source, module_of(value.name_stack)] = i
    named = list(values)
    for (frame, _), i in last.items():
        if label := assigned(frame.file, frame.line):
            named[i] = replace(named[i], label=label)
    return tuple(named)


def source(values: Iterable[Value], others: Iterable[Collective | Alive | Work]) -> dict[str, Mapping[int, str]]:
    """The text of every file's lines from the first to the last that a row refers to."""
    lines: dict[str, tuple[int, int]] = {}
    for row in (*values, *others):
        if row.source is not None:
            first, last = lines.get(row.source.file, (row.source.line, row.source.line))
            lines[row.source.file] = min(first, row.source.line), max(last, row.source.line)
    return {file: _text(file, first, last) for file, (first, last) in lines.items()}


@lru_cache(maxsize=256)
def _text(file: str, first: int, last: int) -> Mapping[int, str]:
    return {n: linecache.getline(file, n).rstrip("\n") for n in range(first, min(last, first + _MOST_LINES) + 1)}


@lru_cache(maxsize=1)
def versions() -> Mapping[str, str]:
    return {name: metadata.version(name) for name in ("jax", "jaxlib")}


def annotated(report: Report, call: Call, platform: str) -> Report:
    """The report with the call's notes; the arguments and outputs of a pmap also with `Value.sharding["pmap"]`."""
    if notes := call.notes(report.mesh, platform):
        report = replace(report, diagnostics=notes + report.diagnostics)
    if call.kind != "pmap":
        return report
    mesh = report.mesh
    return replace(report, arguments=_with_pmap(report.arguments, mesh), outputs=_with_pmap(report.outputs, mesh))


def _with_pmap(values: Iterable[Value], mesh: DeviceMesh) -> tuple[Value, ...]:
    rows = []
    for value in values:
        words = None if value.spec is None else sharding_spec(value.shape, value.spec, mesh)
        rows.append(value if words is None else replace(value, sharding={**value.sharding, "pmap": str(words)}))
    return tuple(rows)


def notes(lowered: Lowered, rows: Sequence[Value], mesh: DeviceMesh) -> tuple[Finding, ...]:
    """What there is to say of the program itself."""
    traced = lowered.traced
    findings = diagnose.callbacks_left_out(c.source for c in traced.callbacks) + diagnose.mesh_asked(traced.asked)
    idle = [p.target for place, p in enumerate(traced.placed) if place not in lowered.placed]
    findings += diagnose.without_effect([(target.label, target.frame) for target in idle])
    findings += diagnose.not_the_same(unreplicated(traced))
    findings += diagnose.ragged_as_plain(lowered.ragged_as_plain, lowered.platform)
    findings += diagnose.large_constants(traced.constants, rows, mesh.size)
    return findings + diagnose.own_partitioning(
        traced.self_partitioned, answered=lowered.answered, unanswered=lowered.unanswered
    )
