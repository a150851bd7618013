"""Puzzles: find a plan that is as fast as par and needs no more memory; the compiler keeps the score.

Par is a plan. Its seconds and bytes are computed by the same compiler at the same level as the learner's. Hints are
findings of the learner's plan that par's plan does not have, and where the plan costs more than par's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardviz.ask.calls import program_and_plan
from shardviz.ask.program import Program
from shardviz.caching import cached_property
from shardviz.compiler.targets import targets
from shardviz.costs.machine import machine_of
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.display import Displayed, paint
from shardviz.errors import ShardvizError
from shardviz.judge.comparison import Comparison, compare_reports
from shardviz.judge.report import Report
from shardviz.lessons.asked import PAR, STARS, Question, Starred
from shardviz.lessons.exercises import answer_at
from shardviz.plan.plan import Plan
from shardviz.records import Findings
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.report import ASKED

Idea = Plan | Callable[[Report], bool]
"""A misconception: a plan that follows it, or a predicate of the answer's report."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Attempt(Starred):
    """A scored plan.

    Attributes:
        puzzle: the puzzle.
        plan: the plan.
        report: the compiler's answer.
        cost: the cost of its step on the machine.
        ideas: hints for common misconceptions that the plan follows.
    """

    puzzle: Puzzle
    plan: Plan
    report: Report
    cost: StepCost
    ideas: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds per step."""
        return self.cost.step.seconds

    @property
    def times_par(self) -> tuple[float, float]:
        """Seconds per step, and bytes per device as far as the level knows, as multiples of par's."""
        mine, par = self.cost, self.puzzle.par
        return mine.step.seconds / par.step.seconds, mine.needs.total / par.needs.total

    @property
    def fits(self) -> bool:
        """Whether the plan may fit the machine's memory."""
        return self.cost.needs.fits is not False

    @property
    def worst(self) -> float:
        return max(self.times_par) if self.fits else math.inf

    @property
    def least(self) -> int:
        """1 if the plan is better than the start."""
        start = self.puzzle.begun
        better = self.seconds < start.step.seconds * (2 - PAR) or start.needs.fits is False
        return int(better and self.fits)

    @property
    def under_par(self) -> bool:
        """Whether it beats par in time or memory and is not worse in the other."""
        return self.stars == STARS and min(self.times_par) < 2 - PAR

    @property
    def hints(self) -> Findings:
        """The findings that par's plan does not have, gravest first; none if par is reached."""
        of_par = {(f.rule, f.value) for f in self.puzzle.par_findings}
        own = () if self.stars == STARS else self.report.findings_on(self.cost.machine)
        return Findings(f for f in own if (f.rule, f.value) not in of_par)

    @property
    def excess(self) -> tuple[str, ...]:
        """One sentence each for the largest excess over par's memory and time; none if par is reached."""
        both, (slower, larger) = (self.cost, self.puzzle.par), (times > PAR for times in self.times_par)
        arguments = [{a.name: a.bytes_per_device or 0.0 for a in cost.report.arguments} for cost in both]
        steps = [cost.step for cost in both]
        times = [
            {"matrix products": s.compute, "memory traffic": s.memory, "communication": s.communication} for s in steps
        ]
        compared = (
            larger and _most("Memory", format_bytes, *(cost.needs.parts for cost in both)),
            larger and _most("Among the arguments", format_bytes, *arguments),
            slower and _most("Time", format_seconds, *times),
        )
        return tuple(sentence for sentence in compared if sentence)


def _most(what: str, text: Callable[[float], str], mine: Mapping[str, float], par: Mapping[str, float]) -> str:
    """Name the amount that exceeds par's most; empty if none does."""
    above = [name for name in mine if mine[name] > par.get(name, 0.0)]
    name = max(above, key=lambda name: mine[name] - par.get(name, 0.0), default="")
    return f"{what}: {name} {text(mine[name])}, {text(par.get(name, 0.0))} for par." if name else ""


@dataclass(frozen=True, repr=False)
class Solution(Displayed):
    """Par's plan, its code, and the comparison of its step with that of the starting plan."""

    plan: Plan
    code: str
    compared: Comparison


@dataclass(eq=False, repr=False)
class Puzzle(Question):
    """A program that needs a plan; made by `sv.lessons.puzzle`.

    Attributes:
        program, start, target, level, title, ideas: as `puzzle` takes them.
        par_plan: the plan that reaches par.
        result: the best `Attempt` so far; None before the first.
    """

    program: Program
    start: Plan
    target: str
    par_plan: Plan
    level: str
    title: str = ""
    ideas: Mapping[str, Idea] = field(default_factory=dict)

    ask = "puzzle"

    @cached_property
    def par(self) -> StepCost:
        """The cost of a step of par's plan."""
        return self._cost(self.par_plan)

    @cached_property
    def par_findings(self) -> Findings:
        """The findings of par's plan, which are not hints."""
        return self.report_of(self.par_plan).findings_on(self.par.machine)

    @cached_property
    def begun(self) -> StepCost:
        """The cost of a step of the starting plan."""
        return self._cost(self.start)

    @cached_property
    def form(self) -> Any:
        """The form; see `widget`."""
        return paint("form", self)

    def widget(self) -> Any:
        """Return the form: buttons that open the explorer, score its plan, and show the solution. Each call returns the
        same form."""
        return self.form

    @property
    def explorer(self) -> Any:
        """The form's explorer; `answer()` scores its plan."""
        if self.form is self:
            raise ShardvizError("no explorer is open outside a notebook; give a plan: puzzle.answer(plan)")
        return self.form.explorer

    def answer(self, plan: Plan | None = None) -> Attempt:
        """Score a plan.

        Args:
            plan: the plan; None for the one in `puzzle.explorer`.

        Raises:
            ShardvizError: if its mesh has another size, or its time is unknown.
            SpecError, CompileError, TargetError: as `program.partition`.
        """
        plan = plan or self.explorer.state.plan
        assert plan is not None
        have, size = plan.mesh.size, self.start.mesh.size
        if have != size:
            raise ShardvizError(f"answer: the plan's mesh has {have} devices, expected {size} as on {self.target}")
        about = {"puzzle": self, "tries": self.tries + 1, "helped": self.helped}
        report, cost = self.report_of(plan), self._cost(plan)
        ideas = tuple(text for text, idea in self.ideas.items() if self._follows(plan, report, idea))
        attempt = Attempt(plan=plan, report=report, cost=cost, ideas=ideas, **about)
        self.count(max(attempt.times_par) <= PAR)
        self.keep(attempt)
        return attempt

    def reveal(self, *, give_up: bool = False) -> Solution:
        """Return par's plan and its differences from the starting plan.

        Args:
            give_up: show it before the third wrong try; plans tried later get no stars.

        Raises:
            ShardvizError: if there are fewer than three wrong tries, none reached par, and `give_up` is False.
        """
        self.give(self.result is not None and self.result.stars == STARS, give_up)
        both = {"start": self.report_of(self.start), "par": self.report_of(self.par_plan)}
        code = self.program.plan_code(self.par_plan)
        return Solution(self.par_plan, code, compare_reports(both, target=self.target))

    def report_of(self, plan: Plan) -> Report:
        """Return the compiler's answer."""
        return answer_at(self.program, plan, self.level, self.target)

    def _cost(self, plan: Plan) -> StepCost:
        cost = cost_of(self.report_of(plan), self.target)
        if cost.seconds is None:
            raise ShardvizError("puzzle: the time of a step is not known for this plan")
        return cost

    def _follows(self, plan: Plan, report: Report, idea: Idea) -> bool:
        if not isinstance(idea, Plan):
            return idea(report)
        mine, theirs = self.program.bind(plan), self.program.bind(idea)
        return mine.mesh == theirs.mesh and mine.in_specs == theirs.in_specs


def puzzle(
    program: Any,
    start: Any = None,
    *,
    target: str,
    par: Any,
    level: str | None = None,
    title: str = "",
    ideas: Mapping[str, Idea] | None = None,
) -> Puzzle:
    """Make a puzzle: find a plan as good as par's.

    Args:
        program: a traced program, or an example of the gallery.
        start: the starting plan, or a mesh on which nothing is sharded; None for the example's own plan.
        target: the machine.
        par: the plan to reach, or the result of `sv.search`, for its best plan. Its cost is computed.
        level: the level of the numbers: `compiled` (the target's own compiler), `partitioned` (XLA's partitioner, on
            simulated devices) or `propagated` (Shardy). None for `compiled` if that compiler is installed, else
            `partitioned`.
        title: the puzzle's title.
        ideas: common misconceptions: a hint → a plan that follows the misconception, or a predicate of the answer's
            report.

    Raises:
        ShardvizError: if an argument is invalid.
        SpecError, MeshError, TargetError: if a plan does not fit the program, or a mesh the machine.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> puzzle = sv.lessons.puzzle(mlp, mlp.plan.mesh, target="tpu v5e:2x4", par=mlp.plan, level="propagated")
        >>> puzzle.answer(mlp.plan).stars
        3
    """
    if start is not None and not isinstance(start, Plan):
        start = Plan(start)
    program, start = program_and_plan(program if start is None else (program, start))
    par = getattr(getattr(par, "best", par), "plan", par)
    if not isinstance(par, Plan):
        raise ShardvizError(f"puzzle(par={type(par).__name__}): expected an sv.Plan or the result of sv.search")
    machine = machine_of(target, start.mesh.size)
    if level is None:
        level = "compiled" if any(s.name == machine.chip.kind and s.ready for s in targets()) else "partitioned"
    if level not in ASKED:
        raise ShardvizError(f"puzzle(level={level!r}): level is {', '.join(map(repr, ASKED))}")
    for plan in (start, par):
        program.bind(plan)
    return Puzzle(program, start, machine.text, par, level, title, dict(ideas or {}))
