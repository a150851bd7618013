"""Exercises: predict how the compiler shards a program, then compare with the compiler.

    exercise = sv.lessons.exercise(program, plan, ask="collectives")       # shows the question
    exercise.answer([("all-reduce", "model", "65.5 kB")])                  # the learner's prediction
    assert exercise.reveal().score == 1                                    # asks the compiler, and grades the answer
    exercise.reveal(give_up=True)                                          # the compiler's answer, and why

Nothing is compiled before `reveal`. The compiler's answer at the exercise's level is right. A wrong answer gets a
verdict and hints. The right answer, with the reasons of `program.why`, is shown after the third wrong answer, or
to learners who give up; afterwards the score is 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardviz.ask.calls import program_and_plan
from shardviz.ask.program import Program
from shardviz.caching import cached_property
from shardviz.costs.step_cost import cost_of
from shardviz.display import Displayed, paint
from shardviz.errors import ShardvizError, excerpt
from shardviz.judge.comparison import Comparison, compare_reports
from shardviz.judge.report import Report
from shardviz.lessons.asked import Question
from shardviz.notation import Spec
from shardviz.notation.spec import axis_text
from shardviz.plan.plan import Plan
from shardviz.records import PlanRecord
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.collectives import KINDS, Collective, axes_words
from shardviz.records.groups import grouped, summed
from shardviz.records.limits import amount_of
from shardviz.records.report import ASKED
from shardviz.records.why import CollectiveWhy, Why

ASKS = ("outputs", "collectives", "cheaper", "memory", "seconds")
EQUAL = "equal"
KEPT = "kept"
"""For `memory`: the activations kept for the backward pass. No spec states their size, so the answer may omit them."""
_NEAR = 0.1  # bytes and seconds within this relative error are right
_SMALL = 0.01  # collectives below this share of all bytes moved may be omitted
_FORMULAS = 3  # how many of the longest collectives are shown with a formula
_SAME = 0.01  # plans within this relative difference cost the same


@dataclass(frozen=True, kw_only=True)
class Graded(Displayed):
    """One graded row of a result.

    Attributes:
        what: the item: an output's tree path, `all-reduce over model` or `the cheaper plan`.
        given: the learner's answer; empty if there is none.
        right: the compiler's answer; empty if the item does not exist.
        points, of: the points reached, and the points possible; `of` is 0 for items too small to count.
        verdict: the verdict in a few words.
        why: the cause, tried by propagation; None if unknown.
        times: a wrong amount as a multiple of the right one; None for other answers.
    """

    what: str
    given: str
    right: str
    points: float
    of: float
    verdict: str
    why: Why | CollectiveWhy | None = None
    times: float | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Displayed):
    """The result of an answer.

    Attributes:
        ask, level, target, names: as `exercise` takes them.
        rows: the graded items.
        tries: number of answers, this one included.
        shown: whether the document shows the right answer: all was right, or the learner gave up.
        compared: for `cheaper`, the comparison of the plans.
        ideas: hints for common misconceptions that the answer shows.
        helped: whether the right answer was shown before: the score is 0.
    """

    ask: str
    level: str
    target: str
    rows: tuple[Graded, ...]
    tries: int
    shown: bool
    compared: Comparison | None = None
    names: tuple[str, str] = ("A", "B")
    ideas: tuple[str, ...] = ()
    helped: bool = False

    @property
    def points(self) -> float:
        """The points reached, at least 0; wrong items subtract points."""
        return max(0.0, sum(row.points for row in self.rows))

    @property
    def of(self) -> float:
        """The points possible."""
        return sum(row.of for row in self.rows)

    @property
    def score(self) -> float:
        """The share of points reached, 0 to 1; 0 if the right answer was shown before."""
        if self.helped:
            return 0.0
        wrong = any(row.points < 0 for row in self.rows)
        return self.points / self.of if self.of else float(not wrong)

    def to_json(self) -> str:
        """Return the result as JSON for a grader: score, tries, and each item with the given and the right answer."""
        rows = [
            {name: getattr(r, name) for name in ("what", "given", "right", "points", "of", "verdict")}
            for r in self.rows
        ]
        asked = {"ask": self.ask, "level": self.level, "target": self.target, "tries": self.tries}
        return json.dumps({**asked, "score": self.score, "points": self.points, "of": self.of, "rows": rows}, indent=1)


@dataclass(eq=False, repr=False)
class Exercise(Question):
    """A question about a program under a plan; made by `sv.lessons.exercise`.

    Attributes:
        program, plan, ask, other, names, level, target, title: as `exercise` takes them.
        ideas: (hint, the parsed wrong answer that gets the hint).
        given: the parsed answer; None before `answer`.
        result: the graded answer; None before `reveal`.
    """

    program: Program
    plan: Plan
    ask: str
    other: Plan | None = None
    names: tuple[str, str] = ("A", "B")
    level: str = "partitioned"
    target: str | None = None
    title: str = ""
    ideas: tuple[tuple[str, Any], ...] = ()
    given: Any = None
    result: Result | None = None

    @cached_property
    def bound(self) -> PlanRecord:
        """The plan, with a spec for every argument."""
        return self.program.bind(self.plan)

    @cached_property
    def report(self) -> Report:
        """The compiler's answer."""
        return answer_at(self.program, self.plan, self.level, self.target)

    def answer(self, answered: Any) -> Exercise:
        """Record the learner's prediction.

        Args:
            answered: for `outputs`, specs: a pytree prefix of the result, as `out_specs`, or tree path → spec. For
                `collectives`, a list of (kind, axes) or (kind, axes, bytes), one per kind and set of axes. Bytes are
                the operand bytes of all of them per device and step: a number, or text such as `16.8 MB`. For
                `cheaper`, the name of a plan, or `equal`. For `memory`, name → bytes; `kept` may be omitted. For
                `seconds`, a number, or text such as `66 us`.

        Returns:
            The exercise itself, so that `.reveal()` can follow.

        Raises:
            ShardvizError: if the answer cannot be parsed.
        """
        self.given = self.read(answered)
        self.result = None
        return self

    def read(self, answered: Any) -> Any:
        """Parse and check an answer; errors as `answer`."""
        return {
            "outputs": self._specs,
            "collectives": self._collectives,
            "cheaper": self._choice,
            "memory": self._amounts,
            "seconds": lambda answered: amount_of(answered, "s", "seconds"),
        }[self.ask](answered)

    def reveal(self, *, give_up: bool = False) -> Result:
        """Ask the compiler, and grade the answer.

        Args:
            give_up: show the right answer; without an answer the score is 0.

        Raises:
            ShardvizError: if there is no answer yet.
            SpecError, TraceError, CompileError, TargetError: as `program.partition`, and `sv.cost`.
        """
        if self.given is None and not give_up:
            raise ShardvizError("answer first: exercise.answer(...); or exercise.reveal(give_up=True)")
        if self.result is None:
            grade = {"outputs": self._outputs, "collectives": self._collective_rows, "cheaper": self._cheaper}
            graded = (grade | {"memory": self._parts, "seconds": self._time})[self.ask]()
            lost = any(row.points < row.of or row.points < 0 for row in graded)
            helped, shown = self.helped, self.count(not lost)
            compared = (
                compare_reports(dict(zip(self.names, self._both, strict=True))) if self.ask == "cheaper" else None
            )
            self.result = Result(
                ask=self.ask, level=self.level, target=self.report.target, rows=tuple(graded), tries=self.tries,
                shown=shown or not lost, compared=compared, names=self.names, helped=helped,
                ideas=tuple(text for text, wrong in self.ideas if lost and _alike(self.given, wrong)),
            )  # fmt: skip
        if give_up:
            self.give(self.result.shown, give_up)
            self.result = replace(self.result, shown=True)
        return self.result

    def widget(self) -> Any:
        """Return the exercise as a form for a notebook: fields for the answer, a button, and the result."""
        return paint("form", self)

    # Outputs.

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs without a spec in the plan, which `outputs` asks for."""
        return tuple(name for name, spec in self.bound.out_specs.items() if spec is None)

    def _specs(self, answered: Any) -> dict[str, Spec | None]:
        names = [o.name for o in self.program.outputs(self.plan)]
        if isinstance(answered, Mapping) and answered and all(isinstance(n, str) and n in names for n in answered):
            plan = Plan(self.plan.mesh, out_edits=answered)
        else:
            plan = Plan(self.plan.mesh, out_specs=answered)
        specs = self.program.bind(plan).out_specs
        return {name: specs.get(name) for name in self.outputs}

    def _outputs(self) -> list[Graded]:
        rows = []
        for value in self.report.outputs:
            if value.name not in self.outputs:
                continue
            answered, rank = (self.given or {}).get(value.name), len(value.shape)
            if value.spec is None:
                rows.append(
                    _graded(value.name, answered, None, 0.0, 0.0, verdict="the compiler's answer is no PartitionSpec")
                )
                continue
            mine = None if answered is None else _plain(answered, self.plan, rank)
            theirs = _plain(value.spec, self.plan, rank)
            hits = 0 if mine is None else sum(a == b for a, b in zip(mine.dims, theirs.dims, strict=True))
            good = mine == theirs
            verdict = "right" if good else "missed" if mine is None else f"{hits} of {rank} dimensions are right"
            points = 1.0 if good else hits / max(rank, 1) / 2
            why = None if good else self._why(value.name)
            rows.append(_graded(value.name, mine, theirs, points, 1.0, verdict=verdict, why=why))
        return rows

    # Collectives.

    def _collectives(self, answered: Any) -> dict[tuple[str, str], float | None]:
        if isinstance(answered, str | Mapping) or not isinstance(answered, Sequence):
            raise ShardvizError(
                f"answer({excerpt(repr(answered))}): expected a list such as [('all-reduce', 'model')], or []"
            )
        sizes: dict[tuple[str, str], float | None] = {}
        for each in answered:
            if isinstance(each, str) or not isinstance(each, Sequence) or not 2 <= len(each) <= 3:
                raise ShardvizError(
                    f"answer: {excerpt(repr(each))}: expected (kind, axes) or (kind, axes, bytes), such as "
                    "('all-gather', 'data', '16.8 MB')"
                )
            kind, axes = each[0], (each[1],) if isinstance(each[1], str) else tuple(each[1])
            if kind not in KINDS:
                raise ShardvizError(f"answer: there is no collective {kind!r}; there are {', '.join(KINDS)}")
            wrong = [a for a in axes if (a[0] if isinstance(a, tuple) and a else a) not in self.plan.mesh.names]
            if wrong or not axes:
                have = ", ".join(map(repr, self.plan.mesh.names))
                raise ShardvizError(f"answer: {kind} over {excerpt(repr(each[1]))}: the mesh has the axes {have}")
            size = None if len(each) == 2 or each[2] is None else amount_of(each[2], "B", "bytes")
            key = kind, ", ".join(sorted({axis_text(a) for a in axes}))
            if key in sizes:
                raise ShardvizError(f"answer: {kind} over {key[1]} appears twice; give one entry with the sum of bytes")
            sizes[key] = size
        return sizes

    def _collective_rows(self) -> list[Graded]:
        def over(axes):
            return axes_words(None) if axes is None else ", ".join(sorted(map(axis_text, axes)))

        groups = grouped(((c.kind, over(c.axes)), c) for c in self.report.collectives)
        sizes = {key: sum(c.assumed_bytes for c in group) for key, group in groups.items()}
        answered: Mapping[tuple[str, str], float | None] = self.given or {}
        least, rows = _SMALL * sum(sizes.values()), []
        for key, group in sorted(groups.items(), key=lambda item: -sizes[item[0]]):
            what, right = " over ".join(key), format_bytes(sizes[key])
            small = sizes[key] < least
            if key not in answered:
                verdict = "too small to count" if small else "missed"
                why = None if small else self._why_of(max(group, key=lambda c: c.assumed_bytes))
                rows.append(_graded(what, None, right, 0.0, 0.0 if small else 1.0, verdict=verdict, why=why))
                continue
            guess = answered[key]
            near = guess is None or abs(guess - sizes[key]) <= _NEAR * sizes[key]
            off = "too many bytes" if (guess or 0.0) > sizes[key] else "too few bytes"
            verdict = "right" if near else f"right, but {off}"
            words = "named" if guess is None else format_bytes(guess)
            graded = _graded(what, words, right, 1.0 if near else 0.5, 1.0, verdict=verdict)
            rows.append(graded if near or not sizes[key] else replace(graded, times=(guess or 0.0) / sizes[key]))
        strange = [" over ".join(key) for key in answered if key not in groups]
        return rows + [_graded(what, "named", None, -0.5, 0.0, verdict="does not exist") for what in strange]

    # Cheaper.

    def _choice(self, answered: Any) -> str:
        if not isinstance(answered, str) or answered not in (*self.names, EQUAL):
            raise ShardvizError(f"answer({answered!r}): expected {', '.join(map(repr, (*self.names, EQUAL)))}")
        return answered

    @cached_property
    def _both(self) -> tuple[Report, Report]:
        assert self.other is not None
        return self.report, answer_at(self.program, self.other, self.level, self.target)

    def _cheaper(self) -> list[Graded]:
        what, written = "step", format_seconds
        if self.target is None:
            what, written = "bytes moved", format_bytes
            costs = [sum(c.assumed_bytes for c in report.collectives) for report in self._both]
        else:
            times = [cost_of(report, self.target).seconds for report in self._both]
            costs = [seconds for seconds in times if seconds is not None]
        if len(costs) < 2:
            raise ShardvizError("cheaper: a step's time is not known for both plans; ask without a target: by bytes")
        same = abs(costs[0] - costs[1]) <= _SAME * max(costs)
        best = EQUAL if same else self.names[costs[1] < costs[0]]
        words = ", ".join(f"{name} {written(cost)}" for name, cost in zip(self.names, costs, strict=True))
        good = self.given == best
        verdict = "right" if good else "missed" if self.given is None else "wrong"
        return [_graded("the cheaper plan", self.given, f"{best}: {words} ({what})", float(good), 1.0, verdict=verdict)]

    # Memory and seconds.

    @cached_property
    def parts(self) -> dict[str, float]:
        """The sizes that `memory` asks for, in bytes per device: each argument, and the activations kept for the
        backward pass."""
        sizes = summed((_root(value.name), value.bytes_per_device or 0.0) for value in self.report.arguments)
        return sizes | ({KEPT: self.report.residual_bytes} if self.report.residual_bytes else {})

    def _amounts(self, answered: Any) -> dict[str, float]:
        names = [*dict.fromkeys(_root(argument.name) for argument in self.program.arguments), KEPT]
        if not isinstance(answered, Mapping) or not answered or not answered.keys() <= set(names):
            have = ", ".join(map(repr, names))
            raise ShardvizError(f"answer({excerpt(repr(answered))}): expected name → bytes; there are {have}")
        return {name: amount_of(size, "B", name) for name, size in answered.items()}

    def _parts(self) -> list[Graded]:
        least, answered = _SMALL * sum(self.parts.values()), self.given or {}

        def counts(name, right):
            return right >= least and (name != KEPT or name in answered)

        return [
            self._amount(name, answered.get(name), right, format_bytes, counts(name, right))
            for name, right in self.parts.items()
        ]

    def _time(self) -> list[Graded]:
        assert self.target is not None
        cost = cost_of(self.report, self.target)
        total = cost.total.whole_seconds
        if total is None:
            raise ShardvizError("seconds: the time of a collective is not known on this target")
        longest = sorted(cost.collectives, key=lambda c: -(c.total_seconds or 0.0))[:_FORMULAS]

        def named(c):
            return f"{c.kind} over {axes_words(c.axes)} x {c.count}"

        formulas = [_graded(named(c), None, c.formula, 0.0, 0.0, verdict="") for c in longest]
        return [self._amount("all collectives, one after the other", self.given, total, format_seconds), *formulas]

    def _amount(self, what: str, guess: float | None, right: float, text: Any, counts: bool = True) -> Graded:
        near = guess is not None and abs(guess - right) <= _NEAR * right
        if guess is None:
            verdict = "missed" if counts else "left out" if what == KEPT else "too small to count"
        else:
            verdict = "right" if near else "too large" if guess > right else "too small"
        answered = None if guess is None else text(guess)
        graded = _graded(what, answered, text(right), float(near and counts), float(counts), verdict=verdict)
        return graded if near or guess is None or not right else replace(graded, times=guess / right)

    # Why.

    def _why(self, of: Any) -> Any:
        try:
            return self.program.why(self.plan, of)
        except ShardvizError:  # level propagated has no such output or collective
            return None

    def _why_of(self, c: Collective) -> Any:
        """Explain a compiled collective by the propagated one of the same kind and axes, preferably on the same
        line."""
        alike = [p for p in self.program.propagate(self.plan).collectives if (p.kind, p.axes) == (c.kind, c.axes)]
        alike.sort(key=lambda p: (p.source != c.source, -p.assumed_bytes))
        return self._why(alike[0]) if alike else None


def answer_at(program: Program, plan: Plan, level: str, target: Any = None) -> Report:
    """Return the report of a level. Only `compiled` depends on the target, so that other answers are the same
    everywhere."""
    if level == "compiled":
        return program.compile(plan, "cpu" if target is None else target)
    return program.partition(plan) if level == "partitioned" else program.propagate(plan)


def _alike(mine: Any, other: Any) -> bool:
    """Whether two answers are equal; amounts approximately, and an omitted amount equals any."""
    if isinstance(mine, float) and isinstance(other, float):
        return abs(mine - other) <= _NEAR * abs(other)
    if isinstance(mine, dict) and isinstance(other, dict) and other:
        return mine.keys() >= other.keys() and all(v is None or _alike(mine[k], v) for k, v in other.items())
    return mine == other


def _root(path: str) -> str:
    return re.split(r"[\[.]", path)[0]


def _graded(
    what: str,
    answered: Any,
    right: Any,
    points: float,
    of: float,
    *,
    verdict: str,
    why: Why | CollectiveWhy | None = None,
) -> Graded:
    def text_of(it):
        return "" if it is None else str(it.canonical() if isinstance(it, Spec) else it)

    return Graded(
        what=what, given=text_of(answered), right=text_of(right), points=points, of=of, verdict=verdict, why=why
    )


def _plain(spec: Spec, plan: Plan, rank: int) -> Spec:
    """Return a full-rank spec without axes of size 1."""
    full = Spec.of(spec, rank)
    dims = tuple(tuple(a for a in dim if not isinstance(a, str) or plan.mesh.shape[a] > 1) for dim in full.dims)
    return Spec(dims)


def exercise(
    program: Any,
    plan: Any = None,
    *,
    ask: str,
    other: Plan | None = None,
    names: tuple[str, str] = ("A", "B"),
    level: str = "partitioned",
    target: str | None = None,
    title: str = "",
    ideas: Mapping[str, Any] | None = None,
) -> Exercise:
    """Make a question about how the compiler shards a program: predict, then reveal.

    Args:
        program: a traced program, or an example of the gallery.
        plan: mesh and specs; None for the example's own.
        ask: `outputs`: how are the outputs without a spec sharded? `collectives`: which collectives does the compiler
            insert, over which axes, with how many bytes? `cheaper`: which of two plans takes less time on the target,
            or moves fewer bytes if there is no target? `memory`: how many bytes per device does each argument take, and
            the activations kept for the backward pass? `seconds`: how long do a step's collectives take on the target?
        other: for `cheaper`, the second plan.
        names: for `cheaper`, the names of the plans.
        level: the level of the right answer: `partitioned` (XLA's partitioner, on simulated devices), `compiled` (the
            target's whole compiler) or `propagated` (Shardy).
        target: the machine.
        title: the exercise's title.
        ideas: common misconceptions: a hint → the wrong answer that gets it. A hint does not state the right answer.

    Raises:
        ShardvizError: for an unknown question, or a missing argument.
        SpecError: if a plan does not fit the program.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> plans = {"plan": mlp.plan, "other": mlp.plan.with_spec("params[1]['w']", None)}
        >>> exercise = sv.lessons.exercise(mlp, **plans, ask="cheaper", level="propagated", target="tpu v5e:2x4")
        >>> exercise.answer("B").reveal().score
        1.0
    """
    program, plan = program_and_plan(program if plan is None else (program, plan))
    for argument, value, choices in (("ask", ask, ASKS), ("level", level, ASKED)):
        if value not in choices:
            raise ShardvizError(f"exercise({argument}={value!r}): {argument} is {', '.join(map(repr, choices))}")
    if (ask == "cheaper") != isinstance(other, Plan):
        raise ShardvizError(
            "exercise: ask='cheaper' compares the plan with other=, a second sv.Plan; nothing else does"
        )
    if ask == "cheaper" and (len(names) != 2 or len({*names, EQUAL}) != 3):
        raise ShardvizError(f"exercise(names={names!r}): expected two different names, neither of them 'equal'")
    if ask == "seconds" and target is None:
        raise ShardvizError("exercise: ask='seconds' needs a target, such as 'tpu v5e:4x4'")
    question = Exercise(program, plan, ask, other, (names[0], names[-1]), level, target, title)
    if other is not None:
        program.bind(other)
    if ask == "outputs" and not question.outputs:
        raise ShardvizError(
            "exercise(ask='outputs'): the plan says how every output is sharded; leave some without a spec"
        )
    _ = question.bound
    question.ideas = tuple((text, question.read(wrong)) for text, wrong in (ideas or {}).items())
    return question
