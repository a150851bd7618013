"""A report that judges itself: its findings, and what a test may demand of it.

    report.findings
    report.forbid("all-gather", inside="loop")
    report.require(fits=True, step_time="<= 5.5 s")
    report.check_golden("step.json")

Its data are a `ReportRecord`, of which the rooms below know; `ask` makes `Report`s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardviz import diagnose
from shardviz.caching import cached_property
from shardviz.judge.contracts import forbid, require
from shardviz.judge.goldens import check_golden
from shardviz.records import Findings
from shardviz.records.report import ReportRecord


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(ReportRecord):
    """Everything found out about Program x Plan x Target at a level; its fields are those of `ReportRecord`.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> report = mlp.program.propagate(mlp.plan)
        >>> report.level, str(report.value("params[1]['w']").spec)
        ('propagated', "P('model', 'data')")
    """

    @property
    def findings(self) -> Findings:
        """All that a person should look at, the gravest first: what was noticed while the report was made, and what
        follows from it. Seconds are the report's own target's; `findings_on` has those of another machine.
        """
        return self._findings

    @cached_property
    def _findings(self) -> Findings:  # kept under a name that JSON leaves out
        return diagnose.findings(self)

    def findings_on(self, target: Any) -> Findings:
        """The findings, with seconds on a machine.

        Args:
            target: the machine, as `sv.cost` takes it, or what that gave for this report; None for the report's own.

        Raises:
            TargetError, MeshError: as `sv.cost`.
        """
        return self._findings if target is None else diagnose.findings(self, target)

    forbid, require, check_golden = forbid, require, check_golden
