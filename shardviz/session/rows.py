"""A report's rows, whatever its level: values as they are cut, the source lines they refer to, versions and notes."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata

from shardviz import diagnose
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import DeviceMesh, Spec
from shardviz.program.adapt.pmap import sharding_spec
from shardviz.program.call import Call
from shardviz.program.lower import sdy_spec
from shardviz.program.trace import Argument, Traced
from shardviz.records import Alive, Collective, Diagnostic, Frame, PlanRecord, Value, Work
from shardviz.records.report import Report
from shardviz.records.source import assigned, phase

_MOST_LINES = 600


def value(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    spec: Spec | None,
    shard: tuple[int, ...] | None,
    *,
    donated: bool = False,
    **notations: str,
) -> Value:
    """An argument or an output.

    Args:
        name: its tree path.
        shape, dtype: of the whole array.
        spec: how it is cut; None where no PartitionSpec says it.
        shard: one device's shape; None if not known.
        donated: whether its memory may be used for a result.
        notations: its sharding in other notations than `pspec`.
    """
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
    )


def arguments(found: Sequence[Argument], bound: PlanRecord) -> tuple[Value, ...]:
    """A row for each argument: what the plan says, which every level keeps."""
    return tuple(_planned(a, bound.in_specs[a.name], bound.mesh) for a in found)


def outputs(found: Sequence[Argument], specs: Sequence[Spec], mesh: DeviceMesh) -> tuple[Value, ...]:
    """A row for each output, as Shardy has it."""
    return tuple(_planned(o, spec, mesh) for o, spec in zip(found, specs, strict=True))


def _planned(array: Argument, spec: Spec, mesh: DeviceMesh) -> Value:
    sdy = f"#sdy.sharding<@mesh, {sdy_spec(spec, len(array.shape))}>"
    shard = shard_shape(array.shape, spec, mesh)
    return value(array.name, array.shape, array.dtype, spec, shard, donated=array.donated, sdy=sdy)


def labelled(values: Sequence[Value]) -> tuple[Value, ...]:
    """The values, with the last one of each assignment in the source called by its variable.

    Only on the way forward and in the update: what the backward pass makes at a line is not what the line assigns.
    """
    last: dict[tuple[Frame, str], int] = {}
    for i, value in enumerate(values):
        if value.source is not None and phase(value.name_stack) in ("forward", "update"):
            last[value.source, value.name_stack.rsplit("/", 1)[0].split("/while", 1)[0]] = i
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
    """The versions that made a report."""
    return {name: metadata.version(name) for name in ("jax", "jaxlib")}


def annotated(report: Report, call: Call) -> Report:
    """The report with the call's notes; the arguments and outputs of a pmap also with `Value.sharding["pmap"]`."""
    if call.notes:
        report = replace(report, diagnostics=call.notes + report.diagnostics)
    if call.kind != "pmap":
        return report
    mesh = report.mesh
    return replace(report, arguments=_worded(report.arguments, mesh), outputs=_worded(report.outputs, mesh))


def _worded(values: Iterable[Value], mesh: DeviceMesh) -> tuple[Value, ...]:
    found = []
    for value in values:
        words = None if value.spec is None else sharding_spec(value.shape, value.spec, mesh)
        found.append(value if words is None else replace(value, sharding={**value.sharding, "pmap": str(words)}))
    return tuple(found)


def notes(traced: Traced) -> tuple[Diagnostic, ...]:
    """What there is to say of the program whatever the specs."""
    return diagnose.callbacks_left_out(c.source for c in traced.callbacks)
