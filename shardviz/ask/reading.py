"""Reports from a compiler's texts, level by level.

partitioned   the partitioner's program: shardings, collectives, FLOPs, and where Shardy's level differs
compiled      the same, with the target's memory plan, its collectives, and what it reads and writes
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shardviz import compiler, processes
from shardviz.ask import rows
from shardviz.ask.limited import LONGEST, limited
from shardviz.ask.targeting import CompileTarget
from shardviz.caching import collection_paused
from shardviz.costs.step_cost import timed
from shardviz.diagnose import compiled, levels
from shardviz.judge.report import Report
from shardviz.propagate.lower import Lowered
from shardviz.records import Collectives, Memory, PlanRecord, Value
from shardviz.records.kernels import KernelFacts
from shardviz.records.values import donated_bytes
from shardviz.tracing.call import Call
from shardviz.tracing.trace import Argument


class CompileReading:
    """A reader of the compiler's texts, which reuses the first level's results for the second."""

    def __init__(
        self,
        call: Call,
        bound: PlanRecord,
        lowered: Lowered,
        *,
        resolved: CompileTarget,
        propagate: Callable[[], Report],
        flops: Mapping[str, float],
    ):
        """Prepare to read a compile. `propagate` returns Shardy's result for the same plan, for comparison; `flops` is
        kernel name or call target → FLOPs of one run on one device, as the user states them."""
        self.kernels = KernelFacts(flops, lowered.traced.estimates)
        self.call, self.bound, self.lowered, self.resolved, self.propagate = call, bound, lowered, resolved, propagate
        self.options = {} if resolved.missing else bound.options  # simulated devices stand in for another compiler
        self.reached: dict[str, Report] = {}

    def report(self, milestone: str, texts: dict[str, str], job: processes.Job) -> Report:
        """Return the report of a level, from the compiler's texts."""
        read = self._partitioned if milestone == "partitioned" else self._compiled
        with limited(LONGEST, f"reading the compiler's result for {self.call.name}"), collection_paused():
            self.reached[milestone] = timed(read(texts, job))
        return self.reached[milestone]

    def _partitioned(self, texts: dict[str, str], job: processes.Job) -> Report:
        waited, start = job.elapsed, time.perf_counter()
        before, after = self.modules = compiler.parse(texts["before"]), compiler.parse(texts["partitioned"])
        traced, mesh = self.lowered.traced, self.bound.mesh
        phases = compiler.Phases(after)
        collectives = compiler.collectives(after, mesh, before, arguments=self._names, phases=phases)
        cost = compiler.count_flops(after, phases, self.kernels)
        self.lowered.rehearsed = True  # the compiler ran Shardy on it
        predicted = self.propagate()
        twins = zip(_outputs(traced.outputs, before, self.bound), predicted.outputs, strict=True)
        outputs = tuple(replace(v, gradient=twin.gradient, computed=twin.computed) for v, twin in twins)
        arguments = predicted.arguments
        values = _with_types(rows.labelled(compiler.values(before, mesh)), predicted.intermediates)
        report = Report(
            level="partitioned",
            program=self.call.name,
            plan=self.bound,
            arguments=arguments,
            outputs=outputs,
            intermediates=values,
            collectives=Collectives(collectives),
            target=self.resolved.text,
            cost=cost,
            diagnostics=compiled.compiler_warnings(job.stderr, before, mesh, self._names)
            + rows.notes(self.lowered, arguments, mesh, cost, self.resolved.lowered_for.platform)
            + levels.note("simulated-devices", self.resolved.missing)
            + levels.note("options-left-out", ", ".join(o for o in self.bound.options if o not in self.options)),
            source=rows.source(values, (*collectives, *cost.work)),
            stages={"before": texts["before"], "partitioned": texts["partitioned"]},
            timings={"partition": waited, "read": time.perf_counter() - start},
            versions=rows.versions(),
            residuals=predicted.residuals,
            products=predicted.products,
            schedule=compiler.schedule_of(after, self.kernels, None, donated_bytes(arguments), phases),
        )
        named_collectives = compiler.with_shardys(report.collectives, predicted.collectives, self._names)
        report = replace(
            report,
            collectives=Collectives(named_collectives),
            level_differences=levels.level_differences(predicted, report),
        )
        return rows.annotated(report, self.call, self.resolved.lowered_for.platform)

    def _compiled(self, texts: dict[str, str], job: processes.Job) -> Report:
        """Return the partitioned report, completed by the target compiler's results."""
        first, waited, target = self.reached["partitioned"], job.elapsed, self.resolved.text
        before, after = self.modules
        assert first.cost is not None
        optimized = compiler.parse(texts["optimized"])
        phases = compiler.Phases(optimized)
        buffers = compiler.Buffers(texts["buffers"], texts.get("live_ranges", ""), target)
        memory = self._memory(texts, buffers, optimized)
        collectives = compiler.target_collectives(
            optimized,
            first.mesh,
            first.collectives,
            after,
            before,
            arguments=self._names,
            phases=phases,
            slices=self.resolved.slices,
        )
        cost = compiler.with_bytes(first.cost, compiler.count_bytes(optimized, phases))
        return replace(
            first,
            level="compiled",
            memory=memory,
            target_collectives=collectives,
            cost=cost,
            diagnostics=compiled.does_not_fit(memory, target) + first.diagnostics,
            source=rows.source(first.intermediates, (*first.collectives, *memory.alive_at_peak, *cost.work)),
            stages={**first.stages, "optimized": texts["optimized"]},
            schedule=compiler.schedule_of(optimized, self.kernels, buffers, phases=phases),
            scheduled=compiler.is_scheduled(optimized),
            timings={**first.timings, "compile": waited},
        )

    def _memory(self, texts: Mapping[str, str], buffers: compiler.Buffers, optimized: compiler.Module) -> Memory:
        """Return the memory plan, with the values alive at the peak and whether it fits."""
        messages = {"report": texts.get("memory_report", ""), "no_room": texts.get("no_room", "")}
        plan = compiler.memory(buffers, target=self.resolved.text, **messages)
        plan = replace(plan, alive_at_peak=compiler.alive_at_peak(buffers, optimized, self._names))
        usable = self.resolved.hbm
        if usable is None:
            return plan
        # the compiler states it rounded to 0.01 GiB; where the chip's own number rounds to the same, that is exact
        hbm = usable if plan.hbm is None or abs(usable - plan.hbm) <= 0.006 * 2**30 else plan.hbm
        fits = plan.fits
        if fits is None:  # a TPU's compiler ends with an error where it does not fit; others do not look
            fits = True if self.resolved.machine.chip.kind == "tpu" else plan.takes <= hbm
        return replace(plan, hbm=hbm, fits=fits)

    @property
    def _names(self) -> list[str]:
        return [a.name for a in self.lowered.kept]


def _outputs(outputs: Sequence[Argument], before: compiler.Module, bound: PlanRecord) -> tuple[Value, ...]:
    """Return a value for each output, with the partitioner's sharding, which is on the root of the program before
    partitioning."""
    values = []
    shapes = before.entry.root.shapes
    for output, shape, text in zip(outputs, shapes, compiler.output_shardings(before), strict=True):
        rank = len(output.shape)
        spec, shard = compiler.spec_and_shard(text, shape.dims, bound.mesh)
        if len(shape.dims) > rank:  # a PRNG key, whose last dimension JAX does not show
            spec, shard = spec and spec.with_dims(spec.dims[:rank]), shard and shard[:rank]
        values.append(rows.value(output, spec, shard, bound.out_memory, sharding={"hlo": text}))
    return tuple(values)


def _with_types(values: Sequence[Value], predicted: Sequence[Value]) -> tuple[Value, ...]:
    """Return the partitioner's values with the specs in their types, which only Shardy's level can read."""
    types = {(v.source, v.name_stack, v.shape): v.fixed for v in predicted if v.fixed is not None}
    if not types:
        return tuple(values)
    return tuple(replace(v, fixed=types.get((v.source, v.name_stack, v.shape))) for v in values)
