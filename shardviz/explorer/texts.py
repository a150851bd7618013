"""A plan as text: the code that rebuilds it, and its program from the jaxpr to the compiler's output.

>>> Codes(plan="plan = sv.Plan(...)", why="a part of an axis").parts
(('as an sv.Plan', 'plan = sv.Plan(...)'),)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from shardviz.ask.program import Program
from shardviz.compiler.module import hlo_lines
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.plan.plan import Plan
from shardviz.records.stages import Stage, StageLine


@dataclass(frozen=True)
class Codes:
    """A plan as Python: code that rebuilds the `sv.Plan`, and code for JAX alone (or `why` there is none)."""

    plan: str
    jax: str = ""
    why: str = ""

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The available codes as (words, code)."""
        all_of_it = (("for JAX alone", self.jax), ("as an sv.Plan", self.plan))
        return tuple((words, text) for words, text in all_of_it if text)


def codes_of(program: Program, plan: Plan) -> Codes:
    own = program.plan_code(plan)
    try:
        return Codes(own, program.code(plan))
    except ShardvizError as error:
        return Codes(own, why=str(error))


_XLA = {
    "before": ("before XLA's partitioner", "one program for all devices, the partitioner's input"),
    "partitioned": ("after XLA's partitioner", "the program of one device, with its collectives"),
    "optimized": ("final HLO", "after all of the target's own passes"),
}


@dataclass(frozen=True)
class Stages:
    """The texts of a plan before XLA, in order.

    `busy` while they are computed; `trouble` says why they could not be.
    """

    items: tuple[Stage, ...] = ()
    busy: bool = False
    trouble: str = ""

    def with_reports(self, reports: Mapping[str, Report]) -> tuple[Stage, ...]:
        """Return these texts, followed by XLA's from a plan's reports."""
        report = next((reports[level] for level in ("compiled", "partitioned") if level in reports), None)
        texts = {} if report is None else report.stages
        stages = (
            Stage(name=name, title=title, kind="hlo", read=partial(_lines, texts[name]), about=about)
            for name, (title, about) in _XLA.items()
            if texts.get(name)
        )
        return (*self.items, *stages)


@lru_cache(maxsize=8)
def _lines(text: str) -> tuple[StageLine, ...]:
    try:
        return hlo_lines(text)
    except ShardvizError as error:
        return (StageLine(f"// {error}"), *map(StageLine, text.splitlines()))
