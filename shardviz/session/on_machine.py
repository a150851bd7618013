"""What a report costs on a machine, as traits: the machine that a plan is for, and what is to be said of it."""

from __future__ import annotations

from typing import Any

import traitlets

from shardviz.costs.costing import StepCost, cost_of
from shardviz.costs.machine import Machine
from shardviz.errors import ShardvizError
from shardviz.records.report import Report
from shardviz.session import aiming


class OnMachine(traitlets.HasTraits):
    """A machine, and a report's cost on it.

    Attributes:
        report: the report.
        machine, target: the machine that the plan is for, and its text. When the mesh gets another size, it becomes the
            same chip's most cube-like topology of that size, and `target_remark` says so.
        cost: what the report's step costs on the machine. None for `cpu`, which has no speed, and where `cost_error`
            says why it cannot be reckoned: the chip has no topology of so many devices, say.
        lack: why this installation cannot compile for the machine, and the command that mends it; then reports go no
            further than `partitioned`. Empty where it can.
    """

    report = traitlets.Instance(Report)
    machine = traitlets.Instance(Machine)
    target = traitlets.Unicode("cpu")
    target_remark = traitlets.Unicode("")
    lack = traitlets.Unicode("")
    cost: Any = traitlets.Instance(StepCost, allow_none=True, default_value=None)
    cost_error = traitlets.Unicode("")

    _tokens: float | bool | None = None
    _model_flops: float | None = None
    _asked: Any = None  # for which machine, and how many devices, `lack` is

    @property
    def _as_many(self) -> bool:
        """Whether the machine has as many devices as the report's mesh."""
        return self.machine.chip.kind == "cpu" or self.machine.size == self.report.mesh.size

    def _aim(self, found: aiming.Aimed) -> None:
        """Takes a machine for the report as it is now."""
        self.machine, self.target, self.target_remark = found.machine, found.machine.text, found.remark
        if (asked := (found.machine, self.report.mesh.size)) != self._asked:
            self._asked, self.lack = asked, aiming.lack_of(found.machine, self.report.mesh)
        self._reckon(found.trouble)

    def _reckon(self, trouble: str = "") -> None:
        """What the report's step costs on the machine, or why that is not known."""
        cost = None
        if not trouble and not self._as_many:
            trouble = aiming.aimed(self.machine, self.report.mesh).trouble
        if not trouble and self.machine.chip.kind != "cpu":
            try:
                cost = cost_of(self.report, self.machine, tokens=self._tokens, model_flops=self._model_flops)
            except ShardvizError as error:
                trouble = str(error)
        self.cost, self.cost_error = cost, trouble
