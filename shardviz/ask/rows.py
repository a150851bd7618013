"""A report's rows at any level: values with their shardings, the source lines that they refer to, versions."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from typing import Any

from shardviz.diagnose import levels
from shardviz.diagnose.case import at_line
from shardviz.judge.report import Report
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.propagate.lower import Lowered
from shardviz.propagate.roles import roles
from shardviz.records import Alive, Collective, Cost, Finding, Frame, PlanRecord, Use, Value, Work
from shardviz.records.amounts import format_flops, plural
from shardviz.records.phases import phase
from shardviz.records.source import assigned, module_of
from shardviz.stablehlo.module import sdy_spec
from shardviz.tracing.call import Call
from shardviz.tracing.trace import Argument

_MOST_LINES = 600


def value(
    array: Argument, spec: Spec | None, shard: tuple[int, ...] | None, memory: Mapping[str, str], **more: Any
) -> Value:
    """Return an argument or an output. `spec` is None if no PartitionSpec expresses its sharding, `shard` None if one
    device's shape is unknown. `memory` is tree path → memory kind, for arrays outside the device's own memory."""
    written = {} if spec is None else {"pspec": _pspec(spec)}
    return Value(
        name=array.name,
        shape=array.shape,
        dtype=array.dtype,
        spec=spec,
        shard_shape=shard,
        bytes_per_device=None if shard is None else math.prod(shard) * itemsize(array.dtype),
        sharding=written | more.pop("sharding"),
        donated=array.donated,
        memory_kind=memory.get(array.name, DEVICE_MEMORY),
        scanned=array.scanned,
        **more,
    )


def arguments(lowered: Lowered, bound: PlanRecord) -> tuple[Value, ...]:
    """Return a value for each argument as the plan shards it, which is the same at every level."""
    of, rows = roles(lowered), []
    for argument, unused in zip(lowered.traced.arguments, lowered.unused, strict=True):
        use = Use(argument.name in of.optimizer, of.becomes.get(argument.name, ""))
        more = {"unused": unused, "use": None if use == Use() else use}
        rows.append(_planned(argument, bound.in_specs[argument.name], bound.mesh, bound.in_memory, **more))
    return tuple(rows)


def outputs(lowered: Lowered, specs: Sequence[Spec], bound: PlanRecord) -> tuple[Value, ...]:
    """Return a value for each output, as Shardy shards it."""
    rows = zip(lowered.traced.outputs, specs, strict=True)
    return tuple(_planned(output, spec, bound.mesh, bound.out_memory) for output, spec in rows)


def _planned(array: Argument, spec: Spec, mesh: DeviceMesh, memory: Mapping[str, str], **more: Any) -> Value:
    shard, sdy = _shard(array.shape, spec, mesh)
    return value(array, spec, shard, memory, sharding={"sdy": sdy}, **more)


@lru_cache(maxsize=4096)
def _shard(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> tuple[tuple[int, ...], str]:
    """Return one device's shape, and Shardy's attribute, cached because many arrays of a model share both."""
    return shard_shape(shape, spec, mesh), f"#sdy.sharding<@mesh, {sdy_spec(spec, len(shape))}>"


_pspec = lru_cache(maxsize=4096)(str)


def labelled(values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the values; the last value of each assignment in the forward pass or the update is labelled with the
    assigned variable. Values of the backward pass or of library functions at the same line are not."""
    last: dict[tuple[Frame, str, str], int] = {}
    for i, value in enumerate(values):
        frame = value.source
        if frame is not None and phase(value.name_stack) in ("forward", "update"):
            last[frame, module_of(value.name_stack), assigned(frame.file, frame.line, frame.columns)] = i
    named = list(values)
    for (_, _, label), i in last.items():
        named[i] = replace(named[i], label=label)
    return tuple(named)


def source(values: Iterable[Value], others: Iterable[Collective | Alive | Work]) -> dict[str, Mapping[int, str]]:
    """Return the text of every file's lines, from the first to the last that a row refers to."""
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
    """Return the report with the call's notes."""
    notes = call.notes(report.mesh, platform)
    return replace(report, diagnostics=notes + report.diagnostics) if notes else report


def notes(lowered: Lowered, rows: Sequence[Value], mesh: DeviceMesh, cost: Cost, platform: str) -> tuple[Finding, ...]:
    """Return the findings about the program itself when it is lowered for a platform."""
    traced = lowered.traced
    loops, custom = cost.unknown_loops, traced.self_partitioned if mesh.size > 1 else ()
    known = ((e.source, format_flops(e.flops)) for e in traced.estimates if e.at_most)
    return (
        *levels.notes("callbacks-left-out", ((c.source,) for c in traced.callbacks)),
        *levels.notes("ragged-as-plain", ((line, lowered.platform) for line in lowered.ragged_as_plain)),
        *levels.large_constants(traced.constants, rows, mesh.size),
        *levels.notes("own-partitioning", ((line, name, at_line(line)) for name, line in custom)),
        *levels.note("unknown-loops", plural(loops, "loop") if loops else ""),
        *levels.notes("unknown-flops", ((row.source, name) for row in cost.work for name in row.opaque)),
        *levels.notes("flops-at-most", known),
        *levels.note("lowered-elsewhere", platform if platform != lowered.platform else "", lowered.platform),
    )
