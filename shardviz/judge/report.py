"""A report that judges itself: its findings, and what a test may demand of it.

    report.findings
    report.forbid("all-gather", inside="loop")
    report.require(fits=True, step_time="<= 5.5 s")
    report.check_golden("step.json")

Its data are a `ReportRecord`, of which the rooms below know; `ask` makes `Report`s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
    """Everything found out about Program x Plan x Target at a level; its fields are those of `ReportRecord`."""

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
        found = self.collectives.where(kind, **where)
        if found:
            many = plural(len(found), "collective")
            raise ContractError(f"{self.heading}: forbid({said(kind, where)}) found {many}:\n{found.listed()}")

    def require(
        self,
        *,
        fits: bool | None = None,
        step_time: str | float | None = None,
        memory: str | float | None = None,
        moved: str | float | None = None,
        sharded: str | Sequence[str] | None = None,
        target: Any = None,
    ) -> None:
        """Raises with all that is not as required.

            report.require(fits=True, step_time="<= 5.5 s", sharded="params >= 0.9")

        What the report's level cannot tell counts as not so: that a lower bound of memory fits says nothing.

        Args:
            fits: whether the program fits into the target's memory.
            step_time: a bound of the modelled step, `<= 5.5 s` or `>= 1 s`, which `sv.cost(report).step.seconds` must
                keep.
            memory: a bound of what the program takes on one device, `<= 90 GB`.
            moved: a bound of the operand bytes that collectives move on one device in a step, `<= 300 GB`.
            sharded: `params >= 0.9`: the share of the bytes of the arguments under that name that lie in arrays which
                at least one mesh axis cuts; or several such.
            target: the machine of `fits` and `step_time`; the report's own if not given.

        Raises:
            ContractError: if anything is not so; it is an AssertionError too.
            ShardvizError: for a bound that cannot be read, or a name that no argument has.
            TargetError, MeshError: as `sv.cost`.
        """
        require(self, fits=fits, step_time=step_time, memory=memory, moved=moved, sharded=sharded, target=target)

    def check_golden(
        self,
        path: str | os.PathLike[str],
        *,
        tolerance: Mapping[str, str | float] | None = None,
        update: bool = False,
    ) -> None:
        """Raises where the report differs from what a golden file says; or writes that file.

        A golden file is small sorted JSON: specs, collectives (by kind, mesh axes, element type and the text of their
        source line), FLOPs and memory. It has no line numbers, names or versions of a compiler, so it holds on another
        version of JAX where nothing has changed in meaning.

        Args:
            path: of the file.
            tolerance: what → how much it may differ, as a share (`0.05` or `5%`): `bytes` and `runs` of collectives,
                `flops`, `memory` (all of it) or a part such as `temporaries`. Nothing may differ if not given.
            update: write the file instead; with the pytest plugin, `request.config.getoption("--update-goldens")`.

        Raises:
            ContractError: if it differs, or there is no file; it is an AssertionError too.
            ShardvizError: if the file is no golden file, or a tolerance names nothing that there is.
        """
        check_golden(self, path, tolerance=tolerance, update=update)
