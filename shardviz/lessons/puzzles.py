"""Puzzles: find a plan that is as fast as par and needs no more memory; the compiler keeps the score.

Par is a plan. Its seconds and bytes are computed by the same compiler at the same level as the learner's. Hints are
findings of the learner's plan that par's plan does not have, and where the plan costs more than par's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from shardviz.ask.calls import program_and_plan
from shardviz.caching import cached_property
from shardviz.costs.machine import machine_of
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.diagnose import findings
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.lessons.questions import PAR, WORDS, GradedAnswer, Question, amount_text, cost_row
from shardviz.plan.plan import Plan
from shardviz.records import Findings
from shardviz.study.sweep import ASK_AT, report_at
from shardviz.view import document as doc
from shardviz.view.plans import arguments_table
from shardviz.view.step_cost import memory_words

Idea = Plan | Callable[[Report], bool]
"""A misconception: a plan that follows it, or a predicate of the answer's report."""
_MOST_HINTS = 3  # maximum number of findings shown as hints


@dataclass(frozen=True, kw_only=True, repr=False)
class Attempt(GradedAnswer):
    """A scored plan; its rows are the seconds of a step and the bytes of a device.

    Attributes:
        plan: the plan.
        cost: the cost of its step on the machine, with the compiler's answer as `cost.report`.
    """

    plan: Plan
    cost: StepCost

    @property
    def hints(self) -> Findings:
        """The findings that par's plan does not have, gravest first; none if par is reached."""
        mine, par = (findings(cost.report, cost) for cost in (self.cost, self.question.costs["par"]))
        of_par = {(f.rule, f.value) for f in par}
        return Findings(f for f in mine if self.share < 1 and (f.rule, f.value) not in of_par)

    @property
    def excess(self) -> tuple[str, ...]:
        """One sentence each for the largest excess over par's memory and time; none if par is reached."""
        mine, par = _parts(self.cost), _parts(self.question.costs["par"])
        slower, larger = ((row.times or 0.0) > PAR for row in self.rows)
        sentences = []
        for what, amounts in mine.items():
            more = {name: amount - par[what].get(name, 0.0) for name, amount in amounts.items()}
            name, unit = max(more, key=more.__getitem__), "s" if what == "Time" else "B"
            if more[name] > 0 and (slower if what == "Time" else larger):
                both = (amount_text(each.get(name, 0.0), unit) for each in (amounts, par[what]))
                sentences.append("{}: {} {}, {} for par.".format(what, name, *both))
        return tuple(sentences)


def _parts(cost: StepCost) -> dict[str, Mapping[str, float]]:
    step = cost.step
    return {
        "Memory": cost.needs.parts,
        "Among the arguments": {a.name: a.bytes_per_device or 0.0 for a in cost.report.arguments},
        "Time": {"matrix products": step.compute, "memory traffic": step.memory, "communication": step.communication},
    }


@dataclass(eq=False, repr=False)
class Puzzle(Question):
    """A puzzle: find a plan as good as par's.

    Args:
        program: a traced program, or an example of the gallery.
        start: the starting plan, or a mesh on which nothing is sharded; None for the example's own plan.
        target: the machine.
        par: the plan to reach. Its cost is computed.
        level: the level of the numbers: `compiled` (the target's own compiler), `partitioned` (XLA's partitioner, on
            simulated devices) or `propagated` (Shardy).
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

    program: Any
    start: Any = None
    _: KW_ONLY
    target: str
    par: Plan
    level: str = "partitioned"
    ideas: Mapping[str, Idea] = field(default_factory=dict)

    ask = "puzzle"

    def __post_init__(self) -> None:
        start = self.start if self.start is None or isinstance(self.start, Plan) else Plan(self.start)
        self.program, self.start = program_and_plan(self.program if start is None else (self.program, start))
        if not isinstance(self.par, Plan):
            raise ShardvizError(f"puzzle(par={type(self.par).__name__}): expected an sv.Plan, such as search.best.plan")
        self.target = machine_of(self.target, self.start.mesh.size).text
        if self.level not in ASK_AT:
            raise ShardvizError(f"puzzle(level={self.level!r}): level is {', '.join(map(repr, ASK_AT))}")
        for plan in (self.start, self.par):
            self.program.bind(plan)
        self.right, self.example = "The plan fits", "`puzzle.answer(sv.Plan(...))`"
        self.mesh, self.heading = self.start.mesh, (self.program.name, self.target)

    @cached_property
    def costs(self) -> dict[str, StepCost]:
        """The costs of a step of the starting plan, and of par's."""
        return {"to begin with": self._cost(self.start), "par": self._cost(self.par)}

    def answer(self, plan: Plan) -> Attempt:
        """Score a plan.

        Raises:
            ShardvizError: if its mesh has another size, or its time is unknown.
            SpecError, CompileError, TargetError: as `program.partition`.
        """
        have, size = plan.mesh.size, self.start.mesh.size
        if have != size:
            raise ShardvizError(f"answer: the plan's mesh has {have} devices, expected {size} as on {self.target}")
        return self.counted(self._attempt(plan))

    def shown(self) -> Attempt:
        """Return par's plan with its code and costs."""
        return replace(self._attempt(self.par), shown=True)

    def _attempt(self, plan: Plan) -> Attempt:
        cost, start, par = self._cost(plan), *self.costs.values()
        rows = (
            cost_row("seconds", cost.step.seconds, par.step.seconds),
            cost_row("memory", cost.needs.total, par.needs.total),
        )
        better = cost.step.seconds < start.step.seconds * (2 - PAR) or start.needs.fits is False
        problem = memory_words(cost.needs) if cost.needs.fits is False else ""
        ideas = tuple(text for text, idea in self.ideas.items() if self._follows(plan, cost.report, idea))
        graded = {"question": self, "rows": rows, "problem": problem, "least": int(better), "ideas": ideas}
        return Attempt(**graded, plan=plan, cost=cost)

    def above(self) -> Iterator[doc.Block]:
        """Yield the task: par, and the arguments."""
        yield doc.paragraph(doc.words("Find a plan that is as fast as par and needs no more memory.", strong=True))
        yield doc.Rows(self.costs).table(
            ("", str),
            (doc.right("a step"), lambda who: doc.seconds(self.costs[who].step.seconds)),
            (doc.right("memory of a device"), lambda who: doc.nbytes(self.costs[who].needs.total)),
        )
        yield arguments_table(self.program, {"to begin with": self.start}, self.mesh)
        judge = f"{WORDS['who'][self.level]} ({self.level})"
        yield from doc.notes(f"Who keeps the score: {judge}, and the cost model of {self.target}.")

    def below(self, answer: Attempt) -> Iterator[doc.Block]:
        """Yield where the plan costs more than par's, and findings; if shown, the code of par's plan."""
        yield from (doc.paragraph(sentence, label="hint") for sentence in answer.excess)
        findings_table = doc.Rows(answer.hints[:_MOST_HINTS]).table(
            ("where", lambda hint: doc.line(hint.source) if hint.source else hint.value),
            (doc.wrapped("what"), lambda hint: " ".join(hint.text.split())),
        )
        if findings_table.rows:
            yield doc.section("Findings about this plan that par's plan does not have", findings_table)
        if answer.shown and not (answer.tries and answer.share == 1):
            yield doc.Figure(of=doc.Listing(self.program.plan_code(self.par)), caption="A plan that reaches par")
        yield from doc.notes(f"The score is from {WORDS['who'][self.level]} ({self.level}).")

    def _cost(self, plan: Plan) -> StepCost:
        cost = cost_of(report_at(self.level, self.program, plan, self.target), self.target)
        if cost.seconds is None:
            raise ShardvizError("puzzle: the time of a step is not known for this plan")
        return cost

    def _follows(self, plan: Plan, report: Any, idea: Idea) -> bool:
        if not isinstance(idea, Plan):
            return idea(report)
        mine, theirs = self.program.bind(plan), self.program.bind(idea)
        return mine.mesh == theirs.mesh and mine.in_specs == theirs.in_specs


puzzle = Puzzle
