"""What was answered is answered again at once: the reports and costs of the plans that were looked at, kept by plan.

`Known` is all that is known of one plan on one machine: a report for each level that was reached, and what each costs
there. An `AnswerBook` keeps the latest of them, so that undo, redo, another card or an offer that is hovered over again
waits for nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost
from shardviz.explorer.machine_choice import MachineChoice, WholeStep
from shardviz.judge.report import Report
from shardviz.records.findings import Finding
from shardviz.records.report import LEVELS, PlanRecord

if TYPE_CHECKING:
    from shardviz.program.plan import Plan

MOST_KEPT = 64
"""Plans whose answers are kept."""

_OF_A_MACHINE = "compiled"  # the level whose report is of one machine only


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a plan on a machine.

    Attributes:
        bound: the plan, checked against the program.
        reports: level → report.
        choice: the machine; its `trouble` is that of the highest level.
        whole: what is known of a whole step.
        carried: the reports are of another machine, and nothing has been answered for this one.
    """

    bound: PlanRecord
    reports: Mapping[str, Report] = field(repr=False)
    choice: MachineChoice
    whole: WholeStep
    carried: bool = False
    _priced: dict[str, tuple[MachineChoice, StepCost | None]] = field(default_factory=dict, repr=False)
    _found: list[tuple[Finding, ...]] = field(default_factory=list, repr=False)

    @property
    def level(self) -> str:
        """The highest level that was reached."""
        return max(self.reports, key=LEVELS.index)

    @property
    def report(self) -> Report:
        """The report of the highest level."""
        return self.reports[self.level]

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.choice.machine

    def priced(self, level: str = "") -> tuple[MachineChoice, StepCost | None]:
        """The machine with what is wrong with it, and what the step costs there.

        Args:
            level: of the report that is priced; empty for the highest.
        """
        level = level or self.level
        if level not in self._priced:
            self._priced[level] = self.choice.priced(self.reports[level], self.whole)
        return self._priced[level]

    def cost(self, level: str = "") -> StepCost | None:
        """What the step costs at a level; None where the machine has no speed, or `priced` says why."""
        return self.priced(level)[1]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a person should look at in the report of the highest level, with the machine's seconds."""
        if not self._found:
            cost = self.cost()
            self._found.append(self.report.findings if cost is None else self.report.findings_on(cost))
        return self._found[0]

    def told(self, report: Report) -> Known:
        """With one report more, or a newer one of its level."""
        priced = {level: cost for level, cost in self._priced.items() if level != report.level}
        return replace(self, reports={**self.reports, report.level: report}, carried=False, _priced=priced, _found=[])

    def on(self, choice: MachineChoice) -> Known:
        """What stays known on another machine: all but what its compiler said."""
        if choice == self.choice:
            return self
        same = choice.machine == self.machine
        reports = {level: r for level, r in self.reports.items() if same or level != _OF_A_MACHINE}
        return replace(self, reports=reports, choice=choice, carried=self.carried or not same, _priced={}, _found=[])


def equal_level(one: Known, other: Known) -> str:
    """The highest level that both have reached; empty where there is none: then the two cannot be compared."""
    both = [level for level in one.reports if level in other.reports]
    return max(both, key=LEVELS.index, default="")


class AnswerBook:
    """The answers to the plans that were asked for last.

    Args:
        most: how many plans are kept, each on every machine that it was on.
    """

    def __init__(self, most: int = MOST_KEPT):
        self._most = most
        self._by_plan: OrderedDict[Plan, dict[Machine, Known]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_plan)

    def find(self, plan: Plan, machine: Machine) -> Known | None:
        """What is known of a plan, on this machine or else on the last one that it was on; None where nothing is."""
        kept = self._by_plan.get(plan)
        if not kept:
            return None
        self._by_plan.move_to_end(plan)
        return kept.get(machine) or next(reversed(kept.values()))

    def keep(self, plan: Plan, known: Known) -> None:
        """Keeps what is known of a plan; what was asked for longest ago is forgotten where it is too much."""
        kept = self._by_plan.setdefault(plan, {})
        kept.pop(known.machine, None)
        kept[known.machine] = known
        self._by_plan.move_to_end(plan)
        while len(self._by_plan) > self._most:
            self._by_plan.popitem(last=False)
