"""A report with judgements: its findings, and contracts for tests.

    report.findings
    report.forbid("all-gather", inside="loop")
    report.require(fits=True, step_time="<= 5.5 s")
    report.check_golden("step.json")

Its data are a `ReportRecord`, which lower rooms use; `ask` creates `Report`s.
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
    """All facts about Program x Plan x Target at a level; the fields are those of `ReportRecord`.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> report = mlp.program.propagate(mlp.plan)
        >>> report.level, str(report.value("params[1]['w']").spec)
        ('propagated', "P('model', 'data')")
    """

    @property
    def findings(self) -> Findings:
        """All findings, most severe first: those noticed while the report was made, and those that follow from it.
        Seconds are for the report's own target; `findings_on` has seconds for another machine."""
        return self._findings

    @cached_property
    def _findings(self) -> Findings:  # the leading underscore keeps it out of the JSON
        return diagnose.findings(self)

    def findings_on(self, target: Any) -> Findings:
        """Return the findings, with seconds on a machine.

        Args:
            target: the machine, as `sv.cost` takes it, or `sv.cost`'s result for this report; None for its own.

        Raises:
            TargetError, MeshError: as `sv.cost`.
        """
        return self._findings if target is None else diagnose.findings(self, target)

    forbid, require, check_golden = forbid, require, check_golden
