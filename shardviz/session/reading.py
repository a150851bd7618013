"""A report's rows from what the levels found.

What a callable's kind adds to every report of it: its notes, and for a pmapped function pmap's own words.

What the target's own compiler adds to a partitioned report: its memory plan, its collectives, its HBM traffic.

What only a finished compile tells: machine code's size, XLA's own analyses, and how collectives go.

A compiler's texts, milestone by milestone, turned into reports.
"""

from __future__ import annotations

import dataclasses
import json
import linecache
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from typing import Any

import jax

from shardviz import compiler as hlo
from shardviz import diagnose
from shardviz.compiler import server
from shardviz.layouts import itemsize
from shardviz.notation import DeviceMesh, Spec
from shardviz.program.adapt.pmap import sharding_spec
from shardviz.program.call import Call
from shardviz.program.lower import Lowered, sdy_spec
from shardviz.program.shards import shard_shape
from shardviz.program.trace import Argument, Traced
from shardviz.records import (
    Alive,
    Collective,
    Cost,
    Diagnostic,
    Frame,
    Memory,
    PlanRecord,
    Stated,
    TargetCollective,
    Value,
    Work,
)
from shardviz.records.report import Report
from shardviz.records.source import assigned, phase
from shardviz.records.work import joined
from shardviz.session.targeting import Aim

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
    return Value(
        name=array.name,
        shape=array.shape,
        dtype=array.dtype,
        spec=spec,
        shard_shape=shard,
        bytes_per_device=size,
        sharding=notations,
        donated=array.donated,
    )


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
        made.append(
            Value(
                name=output.name,
                shape=output.shape,
                dtype=output.dtype,
                spec=spec,
                shard_shape=shard,
                bytes_per_device=size,
                sharding=notations,
            )
        )
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


@dataclass(frozen=True)
class CompiledFacts:
    """What the optimised program and its memory plan say.

    Attributes:
        memory: the memory plan.
        collectives: the collectives as the target runs them.
        moved: what its instructions read from and write to main memory.
        diagnostics: that the program does not fit.
    """

    memory: Memory
    collectives: tuple[TargetCollective, ...]
    moved: hlo.ByteCount
    diagnostics: tuple[Diagnostic, ...]


def compiled_facts(
    texts: Mapping[str, str],
    aimed: Aim,
    mesh: DeviceMesh,
    partitioned: Sequence[Collective],
    before: hlo.Module,
    after: hlo.Module,
    arguments: Sequence[str],
) -> CompiledFacts:
    """Reads the texts of milestone `compiled`.

    Args:
        texts: stage → text.
        aimed: what was compiled for.
        mesh: the plan's mesh.
        partitioned: the partitioner's collectives.
        before, after: the modules around the partitioner.
        arguments: the names of the program's arguments.
    """
    optimized = hlo.parse(texts["optimized"])
    memory = _memory(texts, optimized, aimed, arguments)
    runs = hlo.as_run(optimized, mesh, partitioned, after, before, arguments=arguments, slices=aimed.slices)
    return CompiledFacts(memory, runs, hlo.count_bytes(optimized), diagnose.does_not_fit(memory, aimed.text))


def _memory(texts: Mapping[str, str], optimized: hlo.Module, aimed: Aim, arguments: Sequence[str]) -> Memory:
    buffers = hlo.Buffers(texts["buffers"], texts.get("live_ranges", ""))
    no_room = texts.get("no_room", "")
    plan = hlo.memory(buffers, target=aimed.text, report=texts.get("memory_report", ""), no_room=no_room)
    plan = dataclasses.replace(plan, alive_at_peak=hlo.alive_at_peak(buffers, optimized, arguments))
    known = aimed.hbm
    if known is None:
        return plan
    # the compiler states it rounded to 0.01 GiB; where the chip's own number rounds to the same, that is exact
    hbm = known if plan.hbm is None or abs(known - plan.hbm) <= 0.006 * 2**30 else plan.hbm
    fits = plan.fits
    if fits is None:  # a TPU's compiler ends with an error where it does not fit; others do not look
        fits = True if aimed.machine.chip.kind == "tpu" else plan.takes <= hbm
    return dataclasses.replace(plan, hbm=hbm, fits=fits)


CODE = "generated_code_size_in_bytes"


def finished(report: Report, stated: str, final: str) -> Report:
    """A compiled report with what its finished executable says.

    Args:
        report: of level `compiled`.
        stated: JSON of `memory` and `cost`, as `_jax.finished_numbers` has them.
        final: the executable's program.
    """
    facts = json.loads(stated)
    memory, cost = report.memory, report.cost or Cost(dot_flops=0.0)
    if memory is not None and facts["memory"]:
        memory = dataclasses.replace(memory, stated=facts["memory"], code=code_size(facts["memory"]))
    stated_by_cost = stated_cost(facts["cost"])
    lacks = {
        "how large the machine code is": memory is None or memory.code is None,
        "what memory_analysis() would": not facts["memory"],
        "what cost_analysis() would": stated_by_cost is None,
    }
    words = hlo.algorithms(hlo.parse(final))
    runs = tuple(
        dataclasses.replace(run, algorithm=words.get(run.collective.name, run.algorithm))
        for run in report.target_collectives
    )
    return dataclasses.replace(
        report,
        memory=memory,
        cost=dataclasses.replace(cost, stated=stated_by_cost),
        target_collectives=runs,
        stages={**report.stages, "finished": final},
        diagnostics=diagnose.not_stated(report.target, [what for what, lacks_it in lacks.items() if lacks_it])
        + report.diagnostics,
    )


def unfinished(report: Report, why: BaseException) -> Report:
    """A compiled report that stands, though its compile did not come to an end."""
    return dataclasses.replace(report, diagnostics=diagnose.not_finished(str(why)) + report.diagnostics)


def code_size(memory: Mapping[str, int]) -> int | None:
    """Bytes of machine code, of the numbers of `memory_analysis()`; a compiler that does not know says 0."""
    return memory.get(CODE) or None


def stated_cost(cost: Mapping[str, float] | None) -> Stated | None:
    """The record of `cost_analysis()`'s numbers; None where there are none."""
    if not cost:
        return None
    seconds = cost.get("optimal_seconds", -1.0)
    return Stated(
        cost.get("flops"),
        cost.get("bytes accessed"),
        cost.get("transcendentals"),
        seconds if seconds >= 0 else None,
    )


class Reading:
    """Turns the compiler's texts into reports; what the first level found serves the second."""

    def __init__(self, call: Call, bound: PlanRecord, lowered: Lowered, aimed: Aim, foretell: Callable[[], Report]):
        """
        Args:
            call: what was traced.
            bound: the plan.
            lowered: what was given to the compiler.
            aimed: the target.
            foretell: gives what Shardy made of the same, to compare with.
        """
        self.call, self.bound, self.lowered, self.aimed, self.foretell = call, bound, lowered, aimed, foretell
        self.first: Report | None = None
        self.second: Report | None = None

    def report(self, milestone: str, texts: dict[str, str], job: server.Job) -> Report:
        """The report of a milestone, from its texts."""
        if milestone == "partitioned":
            return self.partitioned(texts, job)
        if milestone == "compiled":
            self.second = self.compiled(texts, job)
            return self.second
        assert self.second is not None
        return replaced(
            finished(self.second, texts["stated"], texts["final"]),
            timings={**self.second.timings, "finish": job.elapsed},
        )

    def partitioned(self, texts: dict[str, str], job: server.Job) -> Report:
        """Level `partitioned`."""
        waited = job.elapsed
        start = time.perf_counter()
        before, after = self.modules = hlo.parse(texts["before"]), hlo.parse(texts["partitioned"])
        traced, mesh = self.lowered.traced, self.bound.mesh
        names = [a.name for a in traced.arguments]
        phases = hlo.Phases(after)
        found = hlo.collectives(after, mesh, before, arguments=names, phases=phases)
        outputs = compiled_outputs(traced.outputs, before, mesh)
        self.lowered.rehearsed = True  # the compiler ran Shardy on it
        foretold = self.foretell()
        intermediates = typed(labelled(hlo.values(before, mesh)), foretold.intermediates)
        counted = hlo.count_flops(after, phases)
        unknown = counted.unknown_loops
        self.first = Report(
            level="partitioned",
            program=self.call.name,
            plan=self.bound,
            arguments=arguments(traced.arguments, self.bound),
            outputs=outputs,
            intermediates=intermediates,
            collectives=found,
            target=self.aimed.text,
            cost=Cost(
                dot_flops=counted.dot,
                unknown_loops=unknown,
                other_flops=counted.other,
                once_flops=counted.once,
                work=counted.work,
            ),
            diagnostics=diagnose.compiler_warnings(job.stderr, before)
            + notes(traced)
            + diagnose.unknown_loops(unknown)
            + diagnose.levels_differ(
                (foretold.outputs, foretold.collectives),
                (outputs, found),
                mesh,
                foretold.cost and (foretold.cost.dot_flops, counted.dot),
            )
            + diagnose.simulated(self.aimed.lack),
            source=source(intermediates, (*found, *counted.work)),
            stages={"before": texts["before"], "partitioned": texts["partitioned"]},
            timings={"partition": waited, "read": time.perf_counter() - start},
            versions=versions(),
            residuals=foretold.residuals,
        )
        self.first = annotated(self.first, self.call)
        return self.first

    def compiled(self, texts: dict[str, str], job: server.Job) -> Report:
        """Level `compiled`, from the first report and what the target's compiler made after it."""
        assert self.first is not None and self.first.cost is not None
        waited = job.elapsed
        names = [a.name for a in self.lowered.traced.arguments]
        found = compiled_facts(texts, self.aimed, self.bound.mesh, self.first.collectives, *self.modules, names)
        return replaced(
            self.first,
            level="compiled",
            memory=found.memory,
            target_collectives=found.collectives,
            cost=self._with_traffic(found.moved),
            diagnostics=found.diagnostics + self.first.diagnostics,
            source=source(
                self.first.intermediates,
                (*self.first.collectives, *found.memory.alive_at_peak, *self.first.cost.work, *found.moved.work),
            ),
            stages={**self.first.stages, "optimized": texts["optimized"]},
            timings={**self.first.timings, "compile": waited},
        )

    def _with_traffic(self, moved: hlo.ByteCount) -> Cost:
        """The partitioned program's FLOPs, with what the target's program reads and writes."""
        assert self.first is not None and self.first.cost is not None
        cost = self.first.cost
        work = joined(cost.work, moved.work)
        return dataclasses.replace(cost, hbm_bytes=moved.bytes, once_hbm_bytes=moved.once, work=work)


def notes(traced: Traced) -> tuple[Diagnostic, ...]:
    """What is to be said of the program whatever the specs."""
    return diagnose.callbacks_left_out(c.source for c in traced.callbacks)
