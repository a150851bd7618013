"""The texts of a plan's program, from its jaxpr to what the compiler has made: what XLA made stands in the reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from shardviz.compiler.lines import hlo_lines
from shardviz.errors import ShardvizError
from shardviz.records.report import Report
from shardviz.records.stages import Stage, StageLine

if TYPE_CHECKING:
    from shardviz.program.plan import Plan

_XLA = {
    "before": ("before XLA's partitioner", "one program for all devices, as the partitioner is given it"),
    "partitioned": ("after XLA's partitioner", "the program of one device, with the collectives written in"),
    "optimized": ("as the target runs it", "after all of the target's own passes"),
}


@dataclass(frozen=True)
class Stages:
    """The texts of a plan.

    Attributes:
        of: the plan; None where nobody has looked.
        items: those before XLA that are there, in order.
        busy: more are being made.
        trouble: why no more are.
    """

    of: Plan | None = None
    items: tuple[Stage, ...] = ()
    busy: bool = False
    trouble: str = ""

    def with_reports(self, reports: Mapping[str, Report]) -> tuple[Stage, ...]:
        """These, and XLA's from a plan's reports."""
        made = next((reports[level] for level in ("compiled", "partitioned") if level in reports), None)
        texts = {} if made is None else made.stages
        return (*self.items, *(_hlo(name, texts[name]) for name in _XLA if texts.get(name)))


def _hlo(name: str, text: str) -> Stage:
    title, told = _XLA[name]
    return Stage(name=name, title=title, kind="hlo", read=partial(_lines, text), told=told)


@lru_cache(maxsize=8)
def _lines(text: str) -> tuple[StageLine, ...]:
    try:
        return hlo_lines(text)
    except ShardvizError as error:
        return (StageLine(f"// {error}"), *map(StageLine, text.splitlines()))
