"""Puzzles: find a plan that is as fast as par and takes no more memory; the compiler keeps the score.

    puzzle = sv.lessons.puzzle(program, {"data": 4, "model": 2}, target="tpu v5e:2x4", par=experts_plan)
    puzzle                           # the program, the machine, and par in seconds and bytes
    puzzle.widget()                  # the explorer, a button for the score and one for the solution
    puzzle.answer(sv.Plan(...))      # the same in code: an `Attempt` with its stars and hints
    puzzle.reveal()                  # par's plan, after a try

Par is a plan, and what it takes is never typed: its seconds and bytes are those of the same compiler at the same level
as the answer's. The hints are the findings of the learner's own plan.
"""

from __future__ import annotations

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
from shardviz.judge.comparison import Comparison, compare
from shardviz.judge.report import Report
from shardviz.program.plan import Plan
from shardviz.records import Findings
from shardviz.records.report import ASKED
from shardviz.study.exercise import answer_at

STARS = 3
_SAME = 0.005  # within which share two amounts are the same
_NEAR = 1.25  # how many times par's seconds and bytes are worth two stars

Idea = Plan | Callable[[Report], bool]
"""What shows a wrong idea: a plan that follows it, or what says of the answer's report whether it does."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Attempt(Displayed):
    """What a plan is worth.

    Attributes:
        plan: the plan.
        report: the compiler's answer.
        cost: what its step costs on the machine.
        par: what a step of par's plan costs, by a report of the same level.
        start: what a step of the plan costs that the puzzle begins with.
        tries: how many plans were scored, this one included.
        ideas: what there is to say to a common wrong idea that the plan follows.
    """

    plan: Plan
    report: Report
    cost: StepCost
    par: StepCost
    start: StepCost
    tries: int
    ideas: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.cost.step.seconds

    @property
    def bytes(self) -> float:
        """Bytes that one device needs, as far as the level tells."""
        return self.cost.needs.total

    @property
    def times_par(self) -> tuple[float, float]:
        """Seconds and bytes, each as a multiple of par's."""
        return self.seconds / self.par.step.seconds, self.bytes / self.par.needs.total

    @property
    def fits(self) -> bool:
        """Whether it is not known that the machine has too little memory for it."""
        return self.cost.needs.fits is not False

    @property
    def stars(self) -> int:
        """3: par is reached; 2: at most a quarter above; 1: better than the start; 0: not even that, or too large."""
        worst = max(self.times_par)
        better = self.seconds < self.start.step.seconds * (1 - _SAME) or self.start.needs.fits is False
        return 0 if not self.fits else 3 if worst <= 1 + _SAME else 2 if worst <= _NEAR else int(better)

    @property
    def under_par(self) -> bool:
        """Whether it is better than par: in one of the two, and in neither worse."""
        return self.stars == STARS and min(self.times_par) < 1 - _SAME

    @property
    def score(self) -> float:
        """The share of the stars: 0 to 1."""
        return self.stars / STARS

    @property
    def hints(self) -> Findings:
        """The findings of the plan, the gravest first; none where par is reached."""
        return Findings() if self.stars == STARS else self.report.findings_on(self.cost.machine)


@dataclass(frozen=True, kw_only=True, repr=False)
class Solution(Displayed):
    """Par's plan: it in Python, what its step costs, and what is different from the plan that the puzzle begins
    with."""

    plan: Plan
    code: str
    cost: StepCost
    compared: Comparison


@dataclass(eq=False, repr=False)
class Puzzle(Displayed):
    """A program for which a plan is wanted; made by `sv.lessons.puzzle`.

    Attributes:
        program, start, target, level, title, ideas: as `puzzle` takes them.
        par_plan: the plan that reaches par.
        result: the best `Attempt` so far; None before there is one.
        tries: plans that were scored.
    """

    program: Program
    start: Plan
    target: str
    par_plan: Plan
    level: str
    title: str = ""
    ideas: Mapping[str, Idea] = field(default_factory=dict)
    result: Attempt | None = field(default=None, init=False)
    tries: int = field(default=0, init=False)

    ask = "puzzle"

    @cached_property
    def par(self) -> StepCost:
        """What a step of par's plan costs."""
        return self._cost(self.par_plan)[1]

    @cached_property
    def begun(self) -> StepCost:
        """What a step costs of the plan to begin with."""
        return self._cost(self.start)[1]

    @cached_property
    def form(self) -> Any:
        """The form; see `widget`."""
        return paint("form", self)

    @property
    def explorer(self) -> Any:
        """The form's explorer; `answer()` scores the plan that it has."""
        if self.form is self:
            raise ShardvizError("no explorer is open where nobody looks on; give a plan: puzzle.answer(plan)")
        return self.form.explorer

    def answer(self, plan: Plan | None = None) -> Attempt:
        """Scores a plan.

        Args:
            plan: the plan; None for the one in `puzzle.explorer`.

        Raises:
            ShardvizError: if it is for a mesh of another size, or its time is not known.
            SpecError, CompileError, TargetError: as `program.partition`.
        """
        plan = plan or self.explorer.state.plan
        assert plan is not None
        if plan.mesh.size != self.start.mesh.size:
            size = self.start.mesh.size
            raise ShardvizError(f"answer: the mesh has {plan.mesh.size} devices, and {self.target} has {size}")
        report, cost = self._cost(plan)
        self.tries += 1
        attempt = Attempt(
            plan=plan, report=report, cost=cost, par=self.par, start=self.begun, tries=self.tries,
            ideas=tuple(text for text, idea in self.ideas.items() if self._follows(plan, report, idea)),
        )  # fmt: skip
        rank = lambda a: (-a.stars, max(a.times_par))  # noqa: E731
        self.result = attempt if self.result is None else min(self.result, attempt, key=rank)
        return attempt

    def reveal(self, *, give_up: bool = False) -> Solution:
        """Par's plan, with what it changes.

        Args:
            give_up: show it before any try.

        Raises:
            ShardvizError: if nothing was tried yet.
        """
        if not self.tries and not give_up:
            raise ShardvizError("try a plan first: puzzle.answer(plan); or puzzle.reveal(give_up=True)")
        both = {"start": self._cost(self.start)[0], "par": self._cost(self.par_plan)[0]}
        return Solution(
            plan=self.par_plan, code=self.program.plan_code(self.par_plan), cost=self.par,
            compared=compare(both, target=self.target),
        )  # fmt: skip

    def widget(self) -> Any:
        """The form, always the same: buttons that open the explorer, score its plan, and show the solution."""
        return self.form

    def _cost(self, plan: Plan) -> tuple[Report, StepCost]:
        report = answer_at(self.program, plan, self.level, self.target)
        cost = cost_of(report, self.target)
        if cost.seconds is None:
            raise ShardvizError("puzzle: the time of a step is not known for this plan")
        return report, cost

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
    """A puzzle: find a plan as good as par's.

    Args:
        program: what `sv.trace` gives, or an example of the gallery.
        start: the plan to begin with, or a mesh, on which nothing is sharded; None for the example's own.
        target: the machine.
        par: the plan to reach, or what `sv.search` gave, for its best plan. What it takes is computed, not given.
        level: whose numbers count: `compiled` (the target's own compiler; where None, if it is installed),
            `partitioned` (XLA's partitioner, on simulated devices; else where None) or `propagated` (Shardy).
        title: what the puzzle is called.
        ideas: common wrong ideas: what there is to say → a plan that follows it, or a function that says of the
            answer's report whether it does.

    Raises:
        ShardvizError: if something that it needs is missing.
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
        raise ShardvizError(f"puzzle(par={type(par).__name__}): expected an sv.Plan, or what sv.search gave")
    machine = machine_of(target, start.mesh.size)
    if level is None:
        level = "compiled" if any(s.name == machine.chip.kind and s.ready for s in targets()) else "partitioned"
    if level not in ASKED:
        raise ShardvizError(f"puzzle(level={level!r}): level is {', '.join(map(repr, ASKED))}")
    for plan in (start, par):
        program.bind(plan)
    return Puzzle(program, start, machine.text, par, level, title, dict(ideas or {}))
