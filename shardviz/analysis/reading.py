"""A compiler's texts, milestone by milestone, turned into reports."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from shardviz import diagnose, hlo
from shardviz.analysis import rows
from shardviz.analysis.annotate import annotated
from shardviz.analysis.as_run import compiled_facts
from shardviz.analysis.finishing import finished
from shardviz.analysis.targeting import Aim
from shardviz.program import server
from shardviz.program.adapters import Call
from shardviz.program.lower import Lowered
from shardviz.program.trace import Traced
from shardviz.records import Cost, Diagnostic, PlanRecord
from shardviz.report import Report


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
        return rows.replaced(
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
        outputs = rows.compiled_outputs(traced.outputs, before, mesh)
        self.lowered.rehearsed = True  # the compiler ran Shardy on it
        foretold = self.foretell()
        intermediates = rows.typed(rows.labelled(hlo.values(before, mesh)), foretold.intermediates)
        counted = hlo.count_flops(after, phases)
        unknown = counted.unknown_loops
        self.first = Report(
            "partitioned",
            self.call.name,
            self.bound,
            rows.arguments(traced.arguments, self.bound),
            outputs,
            intermediates,
            found,
            target=self.aimed.text,
            cost=Cost(counted.dot, unknown, counted.other, counted.once, work=counted.work),
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
            source=rows.source(intermediates, (*found, *counted.work)),
            stages={"before": texts["before"], "partitioned": texts["partitioned"]},
            timings={"partition": waited, "read": time.perf_counter() - start},
            versions=rows.versions(),
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
        return rows.replaced(
            self.first,
            level="compiled",
            memory=found.memory,
            target_collectives=found.collectives,
            cost=self._with_traffic(found.moved),
            diagnostics=found.diagnostics + self.first.diagnostics,
            source=rows.source(
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
        work = hlo.joined(cost.work, moved.work)
        return dataclasses.replace(cost, hbm_bytes=moved.bytes, once_hbm_bytes=moved.once, work=work)


def notes(traced: Traced) -> tuple[Diagnostic, ...]:
    """What is to be said of the program whatever the specs."""
    return diagnose.callbacks_left_out(c.source for c in traced.callbacks)
