"""Plain data for `--json` where the API has no JSON of its own: a report with its step's cost, a search, a sweep."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import msgspec

from shardviz.ask import Program
from shardviz.cli.schemas import Other, Point, RankedPlan, ReportMore, SearchData, StepData, SweepData
from shardviz.costs.step_cost import StepCost
from shardviz.judge.report import Report
from shardviz.records import Collectives, PlanRecord
from shardviz.study.answer import Finalist, Search
from shardviz.study.sweep import Sweep, value_text
from shardviz.view.collectives import collectives_section
from shardviz.view.document import Block, Document, listed, words
from shardviz.view.report import findings_section, full_report, memory_section
from shardviz.view.step_cost import headline, memory_words, step_section


def step_data(cost: StepCost | None) -> StepData | None:
    if cost is None:
        return None
    step, needs, timed = cost.step, cost.needs, cost.seconds is not None
    return StepData(
        target=cost.machine.text,
        seconds=cost.seconds,
        low=step.low if timed else None,
        high=step.high if timed else None,
        bound=cost.bound,
        compute=None if cost.flops is None else step.compute,
        hbm=step.memory,
        communication=step.communication,
        memory_bytes=needs.total,
        memory_is_whole=needs.complete,
        usable_bytes=needs.usable,
        fits=needs.fits,
        tokens_per_second=cost.tokens_per_s,
    )


@dataclass(frozen=True)
class ReportAnswer:
    """A report's own JSON, which `Report.from_json` reads, with its findings and its step's cost (None if the machine
    has no known speed)."""

    report: Report
    cost: StepCost | None

    def to_json(self, *, indent: int | None = None) -> str:
        report, cost = self.report, self.cost
        findings = report.findings_on(cost)
        if cost is not None:
            report = dataclasses.replace(report, collectives=Collectives(cost.partitioned))
        more = ReportMore(findings=tuple(findings), step=step_data(self.cost))
        return json.dumps(json.loads(report.to_json()) | msgspec.to_builtins(more), indent=indent)


def report_document(report: Report, cost: StepCost | None, *, brief: bool = False) -> Document:
    """Return a report with the cost of its step (None if the machine has no known speed). `brief` keeps only findings,
    collectives and memory."""
    whole = full_report(report, cost)
    blocks: tuple[Block, ...] = whole.blocks
    if brief:
        memory = None if report.memory is None else memory_section(report, report.memory)
        blocks = listed(findings_section(report.findings_on(cost)), collectives_section(report, cost), memory)
    if cost is None:
        return dataclasses.replace(whole, blocks=blocks)
    numbers = f"step on {cost.machine.text}: {headline(cost)}", f"memory: {memory_words(cost.needs)}"
    lead = (*whole.lead, *map(words, numbers))
    return dataclasses.replace(whole, lead=lead, blocks=blocks if brief else (step_section(cost), *blocks))


def search_data(search: Search, program: Program) -> SearchData:
    return SearchData(
        program=search.program,
        target=search.target,
        level=search.level,
        ranked=[_ranked_plan(each, program.bind(each.plan)) for each in search.ranked],
        why_not=msgspec.convert(search.why_not, list[Other], from_attributes=True),
        floor_seconds=None if search.floor is None else search.floor.seconds,
        tried=len(search.tried),
        seconds=search.seconds,
        finished=search.finished,
        note=search.note,
    )


def _ranked_plan(finalist: Finalist, plan: PlanRecord) -> RankedPlan:
    return RankedPlan(
        text=finalist.text,
        mesh=dict(plan.mesh.shape),
        in_specs={name: str(spec.canonical()) for name, spec in plan.in_specs.items()},
        out_specs={name: None if spec is None else str(spec.canonical()) for name, spec in plan.out_specs.items()},
        seconds=finalist.cost.seconds,
        memory_bytes=finalist.cost.needs.total,
        accepted=finalist.accepted,
        verdict=finalist.verdict,
    )


def sweep_data(sweep: Sweep) -> SweepData:
    pareto = sweep.pareto
    return SweepData(
        level=sweep.level,
        asked=sweep.asked,
        over={name: [value_text(value) for value in values] for name, values in sweep.over.items()},
        points=[
            Point(
                point={name: value_text(value) for name, value in row.point.items()},
                seconds=row.time,
                memory_bytes=row.memory,
                fits=row.fits,
                tokens_per_second=None if row.cost is None else row.cost.tokens_per_s,
                pareto=any(row is each for each in pareto),
                best=row is sweep.best,
                trouble=row.trouble,
            )
            for row in sweep.rows
        ],
        left=sweep.left,
    )
