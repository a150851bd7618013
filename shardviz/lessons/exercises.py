"""Exercises: predict how the compiler shards a program, then compare with the compiler.

    exercise = sv.lessons.exercise(program, plan, ask="collectives")       # shows the question
    exercise.answer([("all-reduce", "model", "65.5 kB")])                  # the learner's prediction
    assert exercise.reveal().score == 1                                    # asks the compiler, and grades the answer

Nothing is compiled before `reveal`. The compiler's answer at the exercise's level is right. A kind of question is a
class with all that belongs to it: its words, the fields of its form, how an answer is read, and how it is graded.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, NamedTuple

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

EQUAL = "equal"
KEPT = "kept"
"""For `memory`: the activations kept for the backward pass. No spec states their size, so the answer may omit them."""
_NEAR = 0.1  # bytes and seconds within this relative error are right
_SMALL = 0.01  # amounts below this share of all bytes may be omitted
_FORMULAS = 3  # how many of the longest collectives are shown with a formula
_SAME = 0.01  # plans within this relative difference cost the same
_MOST_OUTPUTS = 12  # outputs that have fields in the form


class Field(NamedTuple):
    """A field of a form: a choice among (label, value), which begins with `chosen`; or an amount, entered as text."""

    name: str
    choices: Sequence[tuple[str, Any]] = ()
    chosen: Any = None
    example: str = ""


@dataclass(frozen=True)
class Graded:
    """A graded item of a result: the learner's and the compiler's answer (empty if there is none), the points reached
    and possible (0 if it is too small to count), and a verdict. `why` is the cause, if known; `times` a wrong amount as
    a multiple of the right one."""

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
    """The result of an answer, the number `tries`: its graded rows, and the hints (`ideas`) for misconceptions that it
    shows. The right answer is `shown` if all was right, or the learner gave up. If it was shown before (`helped`), the
    score is 0."""

    exercise: Exercise
    rows: tuple[Graded, ...]
    tries: int
    shown: bool
    ideas: tuple[str, ...] = ()
    helped: bool = False

    @property
    def compared(self) -> Comparison | None:
        """For `cheaper`, the comparison of the plans."""
        return compare_reports(self.exercise.reports) if isinstance(self.exercise, CheaperExercise) else None

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
        share = self.points / self.of if self.of else float(all(row.points >= 0 for row in self.rows))
        return 0.0 if self.helped else share

    def to_json(self) -> str:
        """Return the result as JSON for a grader: score, tries, and each item with the given and the right answer."""
        parts, asked = ("what", "given", "right", "points", "of", "verdict"), self.exercise
        about = {"ask": asked.ask, "level": asked.level, "target": asked.report.target, "tries": self.tries}
        scored = {"score": self.score, "points": self.points, "of": self.of}
        rows = [{name: getattr(row, name) for name in parts} for row in self.rows]
        return json.dumps({**about, **scored, "rows": rows}, indent=1)


@dataclass(eq=False, repr=False)
class Exercise(Question):
    """A question about a program under a plan; made by `sv.lessons.exercise`.

    Attributes:
        program, plan, other, names, level, target, title: as `exercise` takes them.
        ideas: (hint, the parsed wrong answer that gets the hint).
        given: the parsed answer; None before `answer`.
        result: the graded answer; None before `reveal`.
        ask: the kind of question.
        grows: whether the form may get more rows of fields.
    """

    program: Program
    plan: Plan
    other: Plan | None = None
    names: tuple[str, str] = ("A", "B")
    level: str = "partitioned"
    target: str | None = None
    title: str = ""
    ideas: tuple[tuple[str, Any], ...] = ()
    given: Any = None

    ask: ClassVar[str]
    grows = False

    @property
    def items(self) -> Sequence[str]:
        """The names that are asked for; empty if the answer has to find them."""
        return ()

    @property
    def words(self) -> dict[str, str]:
        """The words of this kind of question, of `exercises.toml`."""
        return _words()[self.ask]

    @cached_property
    def bound(self) -> PlanRecord:
        """The plan, with a spec for every argument."""
        return self.program.bind(self.plan)

    @cached_property
    def report(self) -> Report:
        """The compiler's answer."""
        return answer_at(self.program, self.plan, self.level, self.target)

    def fields(self, rows: int = 3) -> list[tuple[Field, ...]]:
        """Return the rows of fields of the form; if the form `grows`, this many."""
        raise NotImplementedError

    def filled(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        """Return the answer in a form, from the values of its rows of fields."""
        return rows[0][0]

    def read(self, answered: Any) -> Any:
        """Parse and check an answer; errors as `answer`."""
        raise NotImplementedError

    def grade(self) -> list[Graded]:
        """Compare the given answer with the compiler's."""
        raise NotImplementedError

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
        self.given, self.result = self.read(answered), None
        return self

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
            rows = tuple(self.grade())
            lost = any(row.points < row.of or row.points < 0 for row in rows)
            ideas = tuple(text for text, wrong in self.ideas if lost and _alike(self.given, wrong))
            helped, shown = self.helped, self.count(not lost) or not lost
            about = {"exercise": self, "tries": self.tries, "helped": helped}
            self.result = Result(rows=rows, shown=shown, ideas=ideas, **about)
        if give_up:
            self.give(self.result.shown, give_up)
            self.result = replace(self.result, shown=True)
        return self.result

    def widget(self) -> Any:
        """Return the exercise as a form for a notebook: fields for the answer, a button, and the result."""
        return paint("form", self)

    def why(self, of: Any) -> Any:
        """Return why an output or a collective is so; None if propagation has none such."""
        try:
            return self.program.why(self.plan, of)
        except ShardvizError:
            return None


class OutputsExercise(Exercise):
    """How are the results sharded?"""

    ask = "outputs"

    @property
    def items(self) -> Sequence[str]:
        return [name for name, spec in self.bound.out_specs.items() if spec is None]

    def fields(self, rows: int = 3) -> list[tuple[Field, ...]]:
        axes, shapes = self.plan.mesh.names, {o.name: o.shape for o in self.program.outputs(self.plan)}
        longest = len(axes) if len(axes) < 4 else 2
        orders = itertools.chain(*(itertools.permutations(axes, count) for count in range(1, longest + 1)))
        choices = [("whole", ()), *((", ".join(order), order) for order in orders)]

        def of(name: str) -> tuple[Field, ...]:
            labels = (f"{name} dim {d} ({size:,}) is sharded along" for d, size in enumerate(shapes[name]))
            return tuple(Field(label, choices, ()) for label in labels)

        return [of(name) for name in self.items[:_MOST_OUTPUTS]]

    def filled(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        return {name: Spec(dims) for name, dims in zip(self.items, rows, strict=False)}

    def read(self, answered: Any) -> dict[str, Spec | None]:
        names = {output.name for output in self.program.outputs(self.plan)}
        by_name = isinstance(answered, Mapping) and answered and names.issuperset(answered)
        mesh = self.plan.mesh
        plan = Plan(mesh, out_edits=answered) if by_name else Plan(mesh, out_specs=answered)
        specs = self.program.bind(plan).out_specs
        return {name: specs.get(name) for name in self.items}

    def grade(self) -> list[Graded]:
        def plain(spec: Spec, rank: int) -> Spec:
            """Return a full-rank spec without axes of size 1."""
            sizes, dims = self.plan.mesh.shape, Spec.of(spec, rank).dims
            return Spec(tuple(tuple(a for a in dim if not isinstance(a, str) or sizes[a] > 1) for dim in dims))

        rows = []
        for value in self.report.outputs:
            given, rank = (self.given or {}).get(value.name), len(value.shape)
            mine, right = (None if spec is None else plain(spec, rank) for spec in (given, value.spec))
            texts = tuple("" if spec is None else str(spec.canonical()) for spec in (mine, right))
            names = value.name, texts[0], texts[1]
            hits = 0 if mine is None or right is None else sum(map(operator.eq, mine.dims, right.dims))
            if value.name not in self.items:
                continue
            if right is None:
                rows.append(Graded(*names, 0.0, 0.0, "the compiler's answer is no PartitionSpec"))
            elif mine == right:
                rows.append(Graded(*names, 1.0, 1.0, "right"))
            else:
                verdict = "missed" if mine is None else f"{hits} of {rank} dimensions are right"
                rows.append(Graded(*names, hits / max(rank, 1) / 2, 1.0, verdict, self.why(value.name)))
        return rows


class CheaperExercise(Exercise):
    """Which of two plans is cheaper?"""

    ask = "cheaper"

    @cached_property
    def reports(self) -> dict[str, Report]:
        """The compiler's answer for each of the plans."""
        assert self.other is not None
        plans = zip(self.names, (self.plan, self.other), strict=True)
        return {name: answer_at(self.program, plan, self.level, self.target) for name, plan in plans}

    def fields(self, rows: int = 3) -> list[tuple[Field, ...]]:
        return [(Field("cheaper is", [(name, name) for name in (*self.names, EQUAL)]),)]

    def read(self, answered: Any) -> str:
        if not isinstance(answered, str) or answered not in (*self.names, EQUAL):
            raise ShardvizError(f"answer({answered!r}): expected {', '.join(map(repr, (*self.names, EQUAL)))}")
        return answered

    def grade(self) -> list[Graded]:
        if self.target is None:
            costs = [sum(c.assumed_bytes for c in report.collectives) for report in self.reports.values()]
        else:
            costs = [cost_of(report, self.target).seconds for report in self.reports.values()]
        one, other = costs
        if one is None or other is None:
            raise ShardvizError("cheaper: a step's time is not known for both plans; ask without a target: by bytes")
        best = EQUAL if abs(one - other) <= _SAME * max(one, other) else self.names[other < one]
        what, text = ("bytes moved", format_bytes) if self.target is None else ("step", format_seconds)
        words = ", ".join(f"{name} {text(cost)}" for name, cost in zip(self.names, costs, strict=True))
        verdict = "right" if self.given == best else "missed" if self.given is None else "wrong"
        right = f"{best}: {words} ({what})"
        return [Graded("the cheaper plan", self.given or "", right, float(self.given == best), 1.0, verdict)]


class AmountsExercise(Exercise):
    """A question whose answer is an amount for each name."""

    off = "too small", "too large"
    part = 0.0  # points for a right name with a wrong amount
    small = True  # whether a small item has points if it is named
    unit = staticmethod(format_bytes)

    def sizes(self) -> dict[str, float]:
        """Return the right amounts."""
        raise NotImplementedError

    def why_there(self, name: str) -> Any:
        """Return why an item exists; None if unknown."""

    def grade(self) -> list[Graded]:
        sizes, given, rows = self.sizes(), self.given or {}, []
        for name, size in sizes.items():
            guess, named, right = given.get(name), name in given, self.unit(size)
            large = size >= _SMALL * sum(sizes.values()) and (named or name != KEPT)
            of = float(large or (named and self.small))
            if not named:
                verdict = "missed" if of else "left out" if name == KEPT else "too small to count"
                rows.append(Graded(name, "", right, 0.0, of, verdict, self.why_there(name) if of else None))
            elif guess is None or _near(guess, size):
                rows.append(Graded(name, "named" if guess is None else self.unit(guess), right, of, of, "right"))
            else:
                answer, off, times = self.unit(guess), self.off[guess > size], guess / size if size else None
                rows.append(Graded(name, answer, right, self.part * of, of, off, times=times))
        strange = [name for name in given if name not in sizes and name != KEPT]
        return rows + [Graded(name, "named", "", -0.5, 0.0, "does not exist") for name in strange]


class CollectivesExercise(AmountsExercise):
    """Which collectives are there, and how many bytes do they take?"""

    ask = "collectives"
    off = "right, but too few bytes", "right, but too many bytes"
    part = 0.5
    grows = True

    def fields(self, rows: int = 3) -> list[tuple[Field, ...]]:
        names, kinds = self.plan.mesh.names, [(kind, kind) for kind in ("none", *KINDS)]
        axes = [some for n in range(1, len(names) + 1) for some in itertools.combinations(names, n)]
        over, size = Field("over", [(", ".join(some), some) for some in axes], axes[0]), "may be left out"
        each = (Field(f"collective {row}", kinds, "none") for row in range(1, rows + 1))
        return [(kind, over, Field("bytes", example=size)) for kind in each]

    def filled(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        return [(kind, over, size.strip() or None) for kind, over, size in rows if kind != "none"]

    def read(self, answered: Any) -> dict[str, float | None]:
        if isinstance(answered, str | Mapping) or not isinstance(answered, Sequence):
            given = excerpt(repr(answered))
            raise ShardvizError(f"answer({given}): expected a list such as [('all-reduce', 'model')], or []")
        sizes = {}
        for each in answered:
            if isinstance(each, str) or not isinstance(each, Sequence) or not 2 <= len(each) <= 3:
                raise ShardvizError(
                    f"answer: {excerpt(repr(each))}: expected (kind, axes) or (kind, axes, bytes), such as "
                    "('all-gather', 'data', '16.8 MB')"
                )
            kind, axes = each[0], (each[1],) if isinstance(each[1], str) else tuple(each[1])
            if kind not in KINDS:
                raise ShardvizError(f"answer: there is no collective {kind!r}; there are {', '.join(KINDS)}")
            have = self.plan.mesh.names
            if not axes or any((a[0] if isinstance(a, tuple) and a else a) not in have for a in axes):
                words = f"{kind} over {excerpt(repr(each[1]))}: the mesh has the axes {', '.join(map(repr, have))}"
                raise ShardvizError(f"answer: {words}")
            name = f"{kind} over {', '.join(sorted({axis_text(a) for a in axes}))}"
            if name in sizes:
                raise ShardvizError(f"answer: {name} appears twice; give one entry with the sum of bytes")
            sizes[name] = None if len(each) == 2 or each[2] is None else amount_of(each[2], "B", "bytes")
        return sizes

    @cached_property
    def groups(self) -> dict[str, list[Collective]]:
        """The compiler's collectives by kind and axes, those with the most bytes first."""

        def name(c: Collective) -> str:
            axes = axes_words(None) if c.axes is None else ", ".join(sorted(map(axis_text, c.axes)))
            return f"{c.kind} over {axes}"

        groups = grouped((name(c), c) for c in self.report.collectives)
        return dict(sorted(groups.items(), key=lambda group: -sum(c.assumed_bytes for c in group[1])))

    def sizes(self) -> dict[str, float]:
        return {name: sum(c.assumed_bytes for c in group) for name, group in self.groups.items()}

    def why_there(self, name: str) -> Any:
        """Explain a compiled collective by the propagated one of the same kind and axes, preferably on the same
        line."""
        c = max(self.groups[name], key=lambda c: c.assumed_bytes)
        alike = [p for p in self.program.propagate(self.plan).collectives if (p.kind, p.axes) == (c.kind, c.axes)]
        alike.sort(key=lambda p: (p.source != c.source, -p.assumed_bytes))
        return self.why(alike[0]) if alike else None


class MemoryExercise(AmountsExercise):
    """How many bytes does a device hold?"""

    ask = "memory"
    small = False

    @property
    def items(self) -> Sequence[str]:
        return [*dict.fromkeys(_root(argument.name) for argument in self.program.arguments)]

    def fields(self, rows: int = 3) -> list[tuple[Field, ...]]:
        fields = [(Field(name, example="16.8 MB"),) for name in self.items]
        keeps = self.program.propagate(self.plan).residual_bytes
        return [*fields, *([(Field(KEPT, example="may be left out"),)] if keeps else [])]

    def filled(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        return {name: size for name, (size,) in zip((*self.items, KEPT), rows, strict=False) if size.strip()}

    def read(self, answered: Any) -> dict[str, float]:
        names = [*self.items, KEPT]
        if not isinstance(answered, Mapping) or not answered or not answered.keys() <= set(names):
            have = ", ".join(map(repr, names))
            raise ShardvizError(f"answer({excerpt(repr(answered))}): expected name → bytes; there are {have}")
        return {name: amount_of(size, "B", name) for name, size in answered.items()}

    def sizes(self) -> dict[str, float]:
        sizes = summed((_root(value.name), value.bytes_per_device or 0.0) for value in self.report.arguments)
        return sizes | ({KEPT: self.report.residual_bytes} if self.report.residual_bytes else {})


class SecondsExercise(AmountsExercise):
    """How long do the collectives take?"""

    ask = "seconds"
    unit = staticmethod(format_seconds)
    item = "all collectives, one after the other"

    def fields(self, rows: int = 3) -> list[tuple[Field, ...]]:
        return [(Field("seconds", example="66 us"),)]

    def read(self, answered: Any) -> dict[str, float]:
        return {self.item: amount_of(answered, "s", "seconds")}

    def sizes(self) -> dict[str, float]:
        total = cost_of(self.report, self.target or "").total.whole_seconds
        if total is None:
            raise ShardvizError("seconds: the time of a collective is not known on this target")
        return {self.item: total}

    def grade(self) -> list[Graded]:
        collectives = cost_of(self.report, self.target or "").collectives
        longest = sorted(collectives, key=lambda c: -(c.total_seconds or 0.0))[:_FORMULAS]
        names = [f"{c.kind} over {axes_words(c.axes)} x {c.count}" for c in longest]
        formulas = (c.formula or "" for c in longest)
        return super().grade() + [Graded(*each, 0.0, 0.0, "") for each in zip(names, itertools.repeat(""), formulas)]


_KINDS = OutputsExercise, CollectivesExercise, CheaperExercise, MemoryExercise, SecondsExercise
KINDS_OF_QUESTIONS = {kind.ask: kind for kind in _KINDS}


@cache
def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads((files("shardviz.lessons") / "exercises.toml").read_text(encoding="utf-8"))


def answer_at(program: Program, plan: Plan, level: str, target: Any = None) -> Report:
    """Return the report of a level. Only `compiled` depends on the target, so that other answers are the same
    everywhere."""
    if level == "compiled":
        return program.compile(plan, "cpu" if target is None else target)
    return program.partition(plan) if level == "partitioned" else program.propagate(plan)


def _near(guess: float, right: float) -> bool:
    return abs(guess - right) <= _NEAR * abs(right)


def _alike(mine: Any, other: Any) -> bool:
    """Return whether two answers are equal; amounts approximately, and an omitted amount equals any."""
    if isinstance(mine, float) and isinstance(other, float):
        return _near(mine, other)
    if isinstance(mine, dict) and isinstance(other, dict) and other:
        return mine.keys() >= other.keys() and all(v is None or _alike(mine[k], v) for k, v in other.items())
    return mine == other


def _root(path: str) -> str:
    return re.split(r"[\[.]", path)[0]


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
    for argument, value, choices in (("ask", ask, KINDS_OF_QUESTIONS), ("level", level, ASKED)):
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
    for each in (plan, other):
        if each is not None:
            program.bind(each)
    question = KINDS_OF_QUESTIONS[ask](program, plan, other, (names[0], names[-1]), level, target, title)
    if isinstance(question, OutputsExercise) and not question.items:
        raise ShardvizError(
            "exercise(ask='outputs'): the plan says how every output is sharded; leave some without a spec"
        )
    question.ideas = tuple((text, question.read(wrong)) for text, wrong in (ideas or {}).items())
    return question
