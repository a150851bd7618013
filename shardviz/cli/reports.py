"""What `report` prints, writes and gives as JSON: a report with the cost of its step beside it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from shardviz.cli.schemas import ReportMore, StepData
from shardviz.costs.step_cost import StepCost
from shardviz.judge.report import Report
from shardviz.view.document import Document, Section, words
from shardviz.view.step_cost import headline, memory_words, step_section
from shardviz.view.subjects import document


def step_data(cost: StepCost | None) -> StepData | None:
    """The data of a cost; None for none."""
    if cost is None:
        return None
    step, needs, known = cost.step, cost.needs, cost.seconds is not None
    return StepData(
        target=cost.machine.text,
        seconds=cost.seconds,
        low=step.low if known else None,
        high=step.high if known else None,
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
    """A report's own JSON, which `Report.from_json` reads, with what follows from it: findings, and the step's cost.

    Attributes:
        report: the report.
        cost: what its step costs; None without a machine that has a speed.
    """

    report: Report
    cost: StepCost | None

    def to_json(self, *, indent: int | None = None) -> str:
        """It as JSON text."""
        findings = self.report.findings if self.cost is None else self.report.findings_on(self.cost)
        more = ReportMore(findings=tuple(findings), step=step_data(self.cost))
        return json.dumps(json.loads(self.report.to_json()) | msgspec.to_builtins(more), indent=indent)


def report_document(report: Report, cost: StepCost | None, only: Collection[str] = ()) -> Document:
    """A report with the cost of its step.

    Args:
        report: the report.
        cost: what its step costs; None without a machine that has a speed.
        only: the beginnings of the titles of the sections that are wanted; none for all.
    """
    whole = document(report)
    titles = tuple(only) or ("",)
    blocks = tuple(b for b in whole.blocks if isinstance(b, Section) and str(b.title).startswith(titles))
    if cost is None:
        return dataclasses.replace(whole, blocks=blocks)
    lead = (
        *whole.lead,
        words(f"step on {cost.machine.text}: {headline(cost)}"),
        words(f"memory: {memory_words(cost.needs)}"),
    )
    return dataclasses.replace(whole, lead=lead, blocks=blocks if only else (step_section(cost), *blocks))
