"""What the explorer asks of a program: what is known of a plan on a machine, and what is to be compiled for it.

Whatever was answered is answered again at once (`AnswerBook`); else Shardy is asked, some tens of milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from shardviz.costs.machine import Machine
from shardviz.explorer.answers import AnswerBook, Known
from shardviz.explorer.compile_loop import Task
from shardviz.explorer.machine_choice import MachineChoice, WholeStep
from shardviz.explorer.snapshot import Answers, Snapshot, Step

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.program.plan import Plan


@dataclass(frozen=True)
class Asking:
    """A program, asked about one plan after another.

    Attributes:
        program: the program.
        goal: how far to go with each plan: `propagated`, `partitioned` or `compiled`.
        whole: what a person says of a whole step.
        book: what was answered.
    """

    program: Program
    goal: str
    whole: WholeStep
    book: AnswerBook = field(default_factory=AnswerBook)

    def known(self, now: Snapshot, plan: Plan) -> Known:
        """What is known of a plan that need not be the present one, on the present machine; Shardy is asked where
        nothing is.

        Raises:
            ShardvizError: if the plan does not fit the program.
        """
        machine = now.machine.machine
        kept = self.book.find(plan, machine) or self._propagated(now, plan)
        known = self.on(plan, kept, machine)
        self.book.keep(plan, known)
        return known

    def of_step(self, now: Snapshot, step: Step, always: bool = False) -> Known | None:
        """What is known of a step: at least Shardy's answer; None where it is the present one.

        Args:
            now: what is known.
            step: a plan and a machine.
            always: a plan that says the same in other words is another one too.

        Raises:
            ShardvizError: if the plan does not fit the program.
        """
        here = now.deck.now.known
        known = here if step.plan == now.plan else self.book.find(step.plan, step.machine)
        bound = self.program.bind(step.plan) if known is None else known.bound
        if bound is now.bound or not (always or bound != now.bound):
            if step.machine == now.machine.machine:
                return None
            known = here
        return self.on(step.plan, known or self._propagated(now, step.plan), step.machine)

    def on(self, plan: Plan, known: Known, machine: Machine) -> Known:
        """What is known of a plan on a machine, or on one of its chip that has as many devices as the plan's mesh."""
        choice = MachineChoice.of(machine, known.bound.mesh, known.choice)
        kept = self.book.find(plan, choice.machine)
        return (known if kept is None or kept.machine != choice.machine else kept).on(choice)

    def _propagated(self, now: Snapshot, plan: Plan) -> Known:
        bound, report = self.program.bind(plan), self.program.propagate(plan)
        return Known(bound, {report.level: report}, now.machine, self.whole)

    def reach(self, machine: MachineChoice) -> str:
        """How far a plan's report goes: less than is wanted where nothing here compiles for the machine."""
        return "partitioned" if self.goal == "compiled" and not machine.compilable else self.goal

    def task(self, plan: Plan, answers: Answers, machine: MachineChoice) -> Task:
        """What is to be compiled."""
        simulated = f"{answers.report.mesh.size} simulated devices"
        return Task(
            plan=plan,
            target=machine.compiled_for,
            reach=self.reach(machine),
            due=answers.due,
            place=simulated if machine.simulated else machine.target,
        )


class Board(Protocol):
    """Where a chore reads what is known, and puts what it has found."""

    asking: Asking

    @property
    def now(self) -> Snapshot:
        """What is known."""
        ...

    def put(self, **parts: Any) -> None:
        """Replaces parts of it."""
        ...
