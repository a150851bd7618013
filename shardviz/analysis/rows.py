"""A report's rows from what the levels found."""

from __future__ import annotations

import dataclasses
import linecache
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Any

import jax

from shardviz import hlo
from shardviz.layout import itemsize
from shardviz.notation import DeviceMesh, Spec
from shardviz.program.lower import sdy_spec
from shardviz.program.shards import shard_shape
from shardviz.program.trace import Argument
from shardviz.records import Alive, Collective, Frame, PlanRecord, Value, Work
from shardviz.report import Report
from shardviz.source import assigned, phase

_MOST_LINES = 600


def arguments(found: Sequence[Argument], bound: PlanRecord) -> tuple[Value, ...]:
    """A row for each argument: what the plan says, which every level keeps."""
    return tuple(_row(a, bound.in_specs[a.name], bound.mesh) for a in found)


def outputs(found: Sequence[Argument], specs: Sequence[Spec], mesh: DeviceMesh) -> tuple[Value, ...]:
    """A row for each output, as Shardy has it."""
    return tuple(_row(o, spec, mesh) for o, spec in zip(found, specs, strict=True))


def _row(array: Argument, spec: Spec, mesh: DeviceMesh) -> Value:
    shard = shard_shape(array.shape, spec, mesh)
    notations = {"pspec": str(spec), "sdy": f"#sdy.sharding<@mesh, {sdy_spec(spec, len(array.shape))}>"}
    size = math.prod(shard) * itemsize(array.dtype)
    return Value(array.name, array.shape, array.dtype, spec, shard, size, notations, donated=array.donated)


def compiled_outputs(found: Sequence[Argument], before: hlo.Module, mesh: DeviceMesh) -> tuple[Value, ...]:
    """A row for each output, as the partitioner has it: its sharding stands on the root of the program it was given."""
    made = []
    shapes = before.entry.root.shapes
    for output, shape, text in zip(found, shapes, hlo.output_shardings(before), strict=True):
        rank = len(output.shape)
        spec, shard = hlo.cut(text, shape.dims, mesh)
        if len(shape.dims) > rank:  # a PRNG key, whose last dimension JAX does not show
            spec, shard = spec and Spec(spec.dims[:rank], spec.unreduced), shard and shard[:rank]
        size = None if shard is None else math.prod(shard) * itemsize(output.dtype)
        notations = {"hlo": text} if spec is None else {"pspec": str(spec), "hlo": text}
        made.append(Value(output.name, output.shape, output.dtype, spec, shard, size, notations))
    return tuple(made)


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
            named[i] = dataclasses.replace(named[i], label=label)
    return tuple(named)


def typed(values: Sequence[Value], foretold: Sequence[Value]) -> tuple[Value, ...]:
    """The partitioner's values with the specs in their types, which only Shardy's level can read from the program."""
    types = {(v.source, v.name_stack, v.shape): v.fixed for v in foretold if v.fixed is not None}
    if not types:
        return tuple(values)
    return tuple(dataclasses.replace(v, fixed=types.get((v.source, v.name_stack, v.shape))) for v in values)


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


def leaves(tree: Any) -> list[Any]:
    """The leaves of a pytree."""
    return jax.tree.leaves(tree)


def replaced(report: Report, **changes: Any) -> Report:
    """A copy of a report with other fields."""
    return dataclasses.replace(report, **changes)
