"""A report that judges itself: its findings, and what a test may demand of it.

    report.findings
    report.forbid("all-gather", inside="loop")
    report.require(fits=True, step_time="<= 5.5 s")
    report.check_golden("step.json")

Its data are a `ReportRecord`, of which the rooms below know; `ask` makes `Report`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardviz import diagnose
from shardviz.errors import ContractError
from shardviz.judge.contracts import require
from shardviz.judge.goldens import check_golden
from shardviz.kept import cached_property
from shardviz.records import Findings
from shardviz.records.amounts import plural
from shardviz.records.collectives import said
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
            target: the machine, as `sv.cost` takes it, or what that gave for this report.

        Raises:
            TargetError, MeshError: as `sv.cost`.
        """
        return diagnose.findings(self, target)

    def forbid(self, kind: str | Sequence[str] | None = None, **where: Any) -> None:
        """Raises if there is such a collective, with the source line of each that there is.

            report.forbid("all-gather", inside="loop", origin="partitioner", larger_than="100 MB")

        Args:
            kind, where: as `report.collectives.where`.

        Raises:
            ContractError: if there is one; it is an AssertionError too.
            ShardvizError: for a kind, place or origin that does not exist.
        """
        forbidden = self.collectives.where(kind, **where)
        if forbidden:
            many = plural(len(forbidden), "collective")
            raise ContractError(f"{self.heading}: forbid({said(kind, where)}) found {many}:\n{forbidden.listed()}")

    require, check_golden = require, check_golden
