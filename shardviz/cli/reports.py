"""What `report` prints, writes and gives as JSON: a report with the cost of its step beside it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from shardviz.costs.step_cost import StepCost
from shardviz.judge.report import Report
from shardviz.records import Finding
from shardviz.view.document import Document, Section, document, words
from shardviz.view.step_cost import headline, memory_words, step_section


class StepData(msgspec.Struct, kw_only=True):
    """What a step takes on its machine.

    Attributes:
        target: the machine.
        seconds: of the step; None where the level counts no FLOPs.
        low, high: if it is off as far as measured steps were; None where nobody compared.
        bound: what bounds it: `compute`, `memory` or `communication`.
        compute, hbm, communication: seconds of each, by itself.
        memory_bytes: what one device needs, as far as it is known.
        memory_is_whole: that is all, by a compiler's plan; else a lower bound or an estimate.
        usable_bytes: what one device has; None where not known.
        fits: whether it fits; None where that cannot be told.
        tokens_per_second: of the whole machine; None where the tokens are not known.
    """

    target: str
    seconds: float | None
    low: float | None
    high: float | None
    bound: str
    compute: float | None
    hbm: float
    communication: float
    memory_bytes: float
    memory_is_whole: bool
    usable_bytes: float | None
    fits: bool | None
    tokens_per_second: float | None

    @classmethod
    def of(cls, cost: StepCost | None) -> Self | None:
        """The data of a cost; None for none."""
        if cost is None:
            return None
        step, needs = cost.step, cost.needs
        return cls(
            target=cost.machine.text,
            seconds=cost.seconds,
            low=step.low if cost.seconds is not None else None,
            high=step.high if cost.seconds is not None else None,
            bound=cost.bound,
            compute=step.compute if cost.flops is not None else None,
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
    """A report's own JSON, which `Report.from_json` reads, with what follows from it.

    Attributes:
        report: the report.
        findings: all that a person should look at.
        step: what a step takes; None without a machine that has a speed.
    """

    report: Report
    findings: tuple[Finding, ...]
    step: StepData | None

    @classmethod
    def of(cls, report: Report, cost: StepCost | None) -> Self:
        """The answer of a report and its cost."""
        return cls(report, report.findings if cost is None else report.findings_on(cost), StepData.of(cost))

    def to_json(self, *, indent: int | None = None) -> str:
        """It as JSON text."""
        more: dict[str, Any] = msgspec.to_builtins({"findings": tuple(self.findings), "step": self.step})
        return json.dumps(json.loads(self.report.to_json()) | more, indent=indent)


def report_document(report: Report, cost: StepCost | None, only: Collection[str] = ()) -> Document:
    """A report with the cost of its step.

    Args:
        report: the report.
        cost: what its step costs; None without a machine that has a speed.
        only: the titles of its sections that are wanted; none for all.
    """
    whole = document(report)
    blocks = tuple(
        b for b in whole.blocks if not only or (isinstance(b, Section) and str(b.title).startswith(tuple(only)))
    )
    if cost is None:
        return dataclasses.replace(whole, blocks=blocks)
    lead = (*whole.lead, words(f"step {headline(cost)}"), words(f"memory {memory_words(cost.needs)}"))
    return dataclasses.replace(whole, lead=lead, blocks=blocks if only else (step_section(cost), *blocks))
