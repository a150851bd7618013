"""Exercises: predict how the compiler shards a program, then compare with the compiler.

    exercise = sv.lessons.exercise(program, plan, ask="collectives")         # shows the question
    assert exercise.answer([("all-reduce", "model", "65.5 kB")]).score == 1  # asks the compiler, and grades

Nothing is compiled before the first answer. The compiler's answer at the exercise's level is right. Every answer is
item → value (an amount, a spec, or the name of a plan), and is graded in one way. `KINDS` has the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

from shardviz.ask.calls import program_and_plan
from shardviz.caching import cached_property
from shardviz.costs.placement import groups_along
from shardviz.costs.step_cost import cost_of
from shardviz.errors import ShardvizError, excerpt
from shardviz.judge.comparison import compare_reports
from shardviz.judge.report import Report
from shardviz.lessons.questions import WORDS, GradedAnswer, GradedItem, Question, amount_text
from shardviz.notation import Spec
from shardviz.notation.spec import Axis, axis_text
from shardviz.plan.plan import Plan
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.collectives import KINDS as COLLECTIVES
from shardviz.records.collectives import axes_words
from shardviz.records.groups import summed
from shardviz.records.limits import amount_of
from shardviz.records.paths import segments
from shardviz.records.why import CollectiveWhy, Why
from shardviz.study.sweep import ASK_AT, report_at
from shardviz.view import document as doc
from shardviz.view.comparison import comparison_document
from shardviz.view.plans import arguments_table
from shardviz.view.why import axis_section

EQUAL = "equal"
KEPT = "kept"
"""For `memory`: the activations kept for the backward pass. No spec states their size, so the answer may omit them."""
_NEAR = 0.1  # bytes and seconds within this relative error are right
_SMALL = 0.01  # amounts below this share of all bytes may be omitted
_SAME = 0.01  # plans within this relative difference cost the same
_FORMULAS = 3  # how many of the longest collectives are shown with a formula


class Right(NamedTuple):
    """The compiler's value of an item (None if no value is right), and its text. An item with a note counts only if it
    is named, and has the note as its verdict otherwise."""

    value: Any
    text: str
    note: str = ""


@dataclass(eq=False, repr=False)
class Exercise(Question):
    """A question about how the compiler shards a program: predict, then compare.

    Args:
        program: a traced program, or an example of the gallery.
        plan: mesh and specs; None for the example's own. For `cheaper`, name → plan, for two plans.
        ask: `outputs`: how are the outputs without a spec sharded? `collectives`: which collectives does the compiler
            insert, over which axes, with how many bytes? `cheaper`: which of two plans takes less time on the target,
            or moves fewer bytes if there is no target? `memory`: how many bytes per device does each argument take, and
            the activations kept for the backward pass? `seconds`: how long do a step's collectives take on the target?
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
        >>> plans = {"A": mlp.plan, "B": mlp.plan.with_spec("params[1]['w']", None)}
        >>> exercise = sv.lessons.exercise(mlp, plans, ask="cheaper", level="propagated", target="tpu v5e:2x4")
        >>> exercise.answer("B").score
        1.0
    """

    program: Any
    plan: Any = None
    _: KW_ONLY
    ask: str
    level: str = "partitioned"
    target: str | None = None
    ideas: Mapping[str, Any] = field(default_factory=dict)

    starred = False

    def __post_init__(self) -> None:
        plans = dict(self.plan) if isinstance(self.plan, Mapping) else {"spec": self.plan}
        if (self.ask == "cheaper") != (len({*plans, EQUAL}) == 3):
            raise ShardvizError(
                "exercise: ask='cheaper', and nothing else, takes two plans, name → sv.Plan; not 'equal'"
            )
        own = [program_and_plan(self.program if plan is None else (self.program, plan)) for plan in plans.values()]
        self.program, self.plan = own[0]
        self.plans = {name: plan for name, (_, plan) in zip(plans, own, strict=True)}
        for argument, choices in (("ask", KINDS), ("level", ASK_AT)):
            if (value := getattr(self, argument)) not in choices:
                have = ", ".join(map(repr, choices))
                raise ShardvizError(f"exercise({argument}={value!r}): {argument} is {have}")
        if self.ask == "seconds" and self.target is None:
            raise ShardvizError("exercise: ask='seconds' needs a target, such as 'tpu v5e:4x4'")
        for plan in self.plans.values():
            self.program.bind(plan)
        self.kind, self.words, self.mesh = KINDS[self.ask], WORDS[self.ask], self.plan.mesh
        self.items = self.kind.items(self)
        if self.ask == "outputs" and not self.items:
            raise ShardvizError("exercise(ask='outputs'): the plan says how every output is sharded; remove a spec")
        first = self.items[0].replace("'", "\\'") if self.items else ""
        self.heading = (self.program.name,)
        self.example = self.words["example"].format(first=first, names=[*self.plans], axis=self.mesh.names[-1])
        self.ideas = {hint: self.read(wrong) for hint, wrong in self.ideas.items()}

    @cached_property
    def reports(self) -> dict[str, Report]:
        """The compiler's answer for each plan."""
        return {name: report_at(self.level, self.program, plan, self.target) for name, plan in self.plans.items()}

    @property
    def report(self) -> Report:
        """The compiler's answer for the plan."""
        return next(iter(self.reports.values()))

    def read(self, answered: Any) -> dict[str, Any]:
        """Parse and check an answer; arguments and errors as `answer`."""
        if self.kind.read is not None:
            return self.kind.read(self, answered)
        names = [*self.items, *([KEPT] if self.ask == "memory" else [])]
        if len(names) == 1 and not isinstance(answered, Mapping):
            answered = {names[0]: answered}
        if not isinstance(answered, Mapping) or not answered or not answered.keys() <= {*names}:
            have = ", ".join(map(repr, names))
            raise ShardvizError(f"answer({excerpt(repr(answered))}): expected name → value; there are {have}")
        choices = (*self.plans, EQUAL) if self.ask == "cheaper" else ()
        if choices and (strange := [value for value in answered.values() if value not in choices]):
            raise ShardvizError(f"answer({excerpt(repr(strange[0]))}): expected {', '.join(map(repr, choices))}")
        return {
            name: value if choices else amount_of(value, self.words["unit"], name) for name, value in answered.items()
        }

    def answer(self, answered: Any) -> GradedAnswer:
        """Ask the compiler, and grade the learner's prediction.

        Args:
            answered: for `outputs`, specs: a pytree prefix of the result, as `out_specs`, or tree path → spec. For
                `collectives`, a list of (kind, axes) or (kind, axes, bytes), one per kind and set of axes. Bytes are
                the operand bytes of all of them per device and step: a number, or text such as `16.8 MB`. For
                `cheaper`, the name of a plan, or `equal`. For `memory`, name → bytes; `kept` may be omitted. For
                `seconds`, a number, or text such as `66 us`.

        Raises:
            ShardvizError: if the answer cannot be parsed; a MeshError for an axis that the mesh does not have.
            SpecError, TraceError, CompileError, TargetError: as `program.partition`, and `sv.cost`.
        """
        return self.counted(self.graded(self.read(answered)))

    def graded(self, given: dict[str, Any]) -> GradedAnswer:
        """Compare an answer, as it was read, with the compiler's, without counting it."""
        graded = GradedAnswer(question=self, rows=tuple(self._rows(given)))
        ideas = tuple(hint for hint, wrong in self.ideas.items() if graded.share < 1 and self._follows(given, wrong))
        return replace(graded, ideas=ideas)

    def shown(self) -> GradedAnswer:
        """Return the last answer with the right one, or the right one alone if there is no answer."""
        return replace(self.result or self.graded({}), shown=True)

    def _rows(self, given: dict[str, Any]) -> Iterator[GradedItem]:
        """Compare an answer with the compiler's."""
        right = self.kind.right(self)
        for item, (value, text, note) in right.items():
            mine, named = given.get(item), item in given
            of = float((named or not note) and value is not None)
            share, verdict, times = 0.0, "missed" if of else note, None
            if named and of:
                share, verdict, times = self._compared(mine, value)
            why = self.kind.why(self, item) if share < of else None
            written = "" if not named else "named" if mine is None else self.text_of(mine)
            yield GradedItem(item, written, text, share * of, of, verdict, why, times)
        strange = (item for item in given if item not in right and item != KEPT)
        yield from (GradedItem(item, "named", "", -0.5, verdict="does not exist") for item in strange)

    def _compared(self, mine: Any, right: Any) -> tuple[float, str, float | None]:
        """Return the share of an item's points, the verdict, and a wrong amount as a multiple of the right one."""
        if isinstance(right, Spec):
            both = [(Spec((one,)), Spec((other,))) for one, other in zip(mine.dims, right.dims, strict=True)]
            hits = sum(one.same_as(other, self.mesh) for one, other in both)
            if hits < len(both):
                return hits / len(both) / 2, f"{hits} of {len(both)} dimensions are right", None
        elif isinstance(right, float) and mine is not None and abs(mine - right) > _NEAR * right:
            verdict = "too large" if mine > right else "too small"
            return self.words.get("part", 0.0), self.words.get(verdict, verdict), mine / right if right else None
        elif isinstance(right, str) and mine != right:
            return 0.0, "wrong", None
        return 1.0, "right", None

    def _follows(self, given: dict[str, Any], wrong: dict[str, Any]) -> bool:
        """Return whether an answer has all items of a wrong answer, which may omit amounts; none, if that has none."""
        pairs = [(given.get(item), value) for item, value in wrong.items()]
        same = (value is None or (mine is not None and self._compared(mine, value)[0] == 1) for mine, value in pairs)
        return wrong.keys() <= given.keys() and all(same) if wrong else not given

    def text_of(self, value: Any) -> str:
        """Return a value of an answer as text."""
        if isinstance(value, float):
            return amount_text(value, self.words["unit"])
        return str(value.canonical() if isinstance(value, Spec) else value)

    def above(self) -> Iterator[doc.Block]:
        """Yield the question: the arguments' shardings, and what is asked for."""
        yield doc.paragraph(doc.words(self.words["question"], strong=True))
        yield from doc.notes(self.words.get("note_on_target" if self.target else "note", self.words.get("note", "")))
        yield arguments_table(self.program, self.plans, self.mesh)
        if self.ask == "outputs":
            free = [output for output in self.program.outputs(self.plan) if output.name in self.items]
            yield doc.Rows(free, first=24, noun="output").table(
                ("output", lambda output: doc.code(output.name)),
                ("shape", lambda output: doc.shape(output.shape, dtype=output.dtype)),
                ("spec", lambda output: "?"),
            )
        on = f", on {self.target}" if self.target else ""
        yield from doc.notes(f"The answer is from {WORDS['who'][self.level]}{on}.")

    def below(self, answer: GradedAnswer) -> Iterator[doc.Block]:
        """Yield a hint, and the number of missing items; or, if the right answer is shown, the reasons for the missed
        items, and the comparison of two plans."""
        missing = sum(row.of > 0 and not row.given for row in answer.rows)
        if not answer.shown:
            if missing and not self.items:
                yield doc.paragraph(f"{plural(missing, 'collective')} {'is' if missing == 1 else 'are'} missing.")
            if not answer.ideas:
                yield doc.paragraph(self.words["hint"], label="hint")
            return
        if not answer.rows:
            yield doc.paragraph("There are none, and you named none.")
        for row in answer.rows:
            if isinstance(why := row.why, CollectiveWhy):
                yield doc.section(f"Why {row.what}", doc.paragraph(why.need.words))
            elif isinstance(why, Why):
                answers = (axis_section(axis, why.source, row.what).blocks for axis in why.axes)
                firsts = (next((block for block in some if isinstance(block, doc.Paragraph)), None) for some in answers)
                yield doc.section(f"Why {row.what} is {row.right}", *firsts)
        if self.ask == "seconds":
            yield from doc.notes(*_formulas(self))
        if self.ask == "cheaper":  # a step's time is in the table above
            difference = comparison_document(replace(compare_reports(self.reports), notes=()))
            yield doc.section("From {} to {}".format(*self.plans), *difference.blocks, fold="open")
        yield from doc.notes(f"The right answer is from {WORDS['who'][self.level]} ({self.level}).")


exercise = Exercise


# The kinds of questions.


class Kind(NamedTuple):
    """The differences between kinds of questions, as functions of the exercise; their words are in `words.toml`."""

    right: Callable[[Exercise], dict[str, Right]]
    items: Callable[[Exercise], list[str]]  # the names that are asked for; none if the answer has to find them
    read: Callable[[Exercise, Any], dict[str, Any]] | None = None  # where it is not item → amount or a plan's name
    why: Callable[[Exercise, str], Any] = lambda asked, item: None  # why an item's value is so; None if unknown


def _right_specs(asked: Exercise) -> dict[str, Right]:
    specs = {value.name: value.spec for value in asked.report.outputs if value.name in asked.items}
    none = Right(None, "", "the compiler's answer is no PartitionSpec")
    return {item: Right(spec, asked.text_of(spec)) if spec else none for item, spec in specs.items()}


def _free_outputs(asked: Exercise) -> list[str]:
    return [item for item, spec in asked.program.bind(asked.plan).out_specs.items() if spec is None]


def _read_specs(asked: Exercise, answered: Any) -> dict[str, Any]:
    names = {output.name for output in asked.program.outputs(asked.plan)}
    by_name = isinstance(answered, Mapping) and answered and names >= answered.keys()
    plan = Plan(asked.mesh, out_edits=answered) if by_name else Plan(asked.mesh, out_specs=answered)
    specs = asked.program.bind(plan).out_specs
    return {item: spec for item in asked.items if (spec := specs.get(item)) is not None}


def _why(asked: Exercise, of: Any) -> Why | CollectiveWhy | None:
    """Return why an output or a collective is so; None if propagation has none such."""
    try:
        return asked.program.why(asked.plan, of)
    except ShardvizError:
        return None


def _collectives(asked: Exercise) -> dict[str, Right]:
    sizes = summed((_item(c.kind, c.axes), c.assumed_bytes) for c in asked.report.collectives)
    return _by_size(dict(sorted(sizes.items(), key=lambda item: -item[1])))


def _item(kind: str, axes: tuple[Axis, ...] | None) -> str:
    return f"{kind} over {axes_words(axes and tuple(sorted(axes, key=axis_text)))}"


def _by_size(sizes: Mapping[str, float]) -> dict[str, Right]:
    """Return amounts. Small ones and `kept` count only if they are named."""
    least = _SMALL * sum(sizes.values())
    notes = {item: "too small to count" for item, size in sizes.items() if size < least} | {KEPT: "left out"}
    return {item: Right(size, format_bytes(size), notes.get(item, "")) for item, size in sizes.items()}


def _read_collectives(asked: Exercise, answered: Any) -> dict[str, Any]:
    if isinstance(answered, str | Mapping) or not isinstance(answered, Sequence):
        given = excerpt(repr(answered))
        raise ShardvizError(f"answer({given}): expected a list such as [('all-reduce', 'model')], or []")
    sizes = {}
    for each in answered:
        if isinstance(each, str) or not isinstance(each, Sequence) or not 2 <= len(each) <= 3:
            example = "(kind, axes) or (kind, axes, bytes), such as ('all-gather', 'data', '16.8 MB')"
            raise ShardvizError(f"answer: {excerpt(repr(each))}: expected {example}")
        kind, over, size = (*each, None)[:3]
        if kind not in COLLECTIVES:
            raise ShardvizError(f"answer: there is no collective {kind!r}; there are {', '.join(COLLECTIVES)}")
        axes = (over,) if isinstance(over, str) else tuple(over or ())
        groups_along(axes, asked.mesh)  # raises for an axis that the mesh does not have
        if (item := _item(kind, axes)) in sizes:
            raise ShardvizError(f"answer: {item} appears twice; give one entry with the sum of bytes")
        sizes[item] = None if size in (None, "") else amount_of(size, "B", "bytes")
    return sizes


def _why_there(asked: Exercise, item: str) -> Any:
    alike = (c for c in asked.report.collectives if _item(c.kind, c.axes) == item)
    return _why(asked, max(alike, key=lambda c: c.assumed_bytes))


def _cheaper(asked: Exercise) -> dict[str, Right]:
    target, reports = asked.target, asked.reports.values()
    if target is None:
        what, text, costs = "bytes moved", format_bytes, [sum(c.assumed_bytes for c in r.collectives) for r in reports]
    else:
        what, text, costs = "step", format_seconds, [cost_of(report, target).seconds for report in reports]
    one, other = costs
    if one is None or other is None:
        raise ShardvizError("cheaper: a step's time is not known for both plans; ask without a target: by bytes")
    best = EQUAL if abs(one - other) <= _SAME * max(one, other) else [*asked.plans][other < one]
    words = ", ".join(f"{name} {text(cost)}" for name, cost in zip(asked.plans, costs, strict=True))
    return {asked.items[0]: Right(best, f"{best}: {words} ({what})")}


def _held(asked: Exercise) -> dict[str, Right]:
    kept = asked.report.residual_bytes
    sizes = summed((segments(value.name)[0], value.bytes_per_device or 0.0) for value in asked.report.arguments)
    return _by_size(sizes | ({KEPT: kept} if kept else {}))


def _seconds(asked: Exercise) -> dict[str, Right]:
    total = cost_of(asked.report, asked.target or "").total.whole_seconds
    if total is None:
        raise ShardvizError("seconds: the time of a collective is not known on this target")
    return {asked.items[0]: Right(total, format_seconds(total))}


def _formulas(asked: Exercise) -> list[str]:
    """Return the formulas of the longest collectives."""
    longest = sorted(cost_of(asked.report, asked.target or "").collectives, key=lambda c: -(c.total_seconds or 0.0))
    return [f"{c.kind} over {axes_words(c.axes)} x {c.count}: {c.formula}" for c in longest[:_FORMULAS] if c.formula]


KINDS = {
    "outputs": Kind(_right_specs, _free_outputs, _read_specs, _why),
    "collectives": Kind(_collectives, lambda asked: [], _read_collectives, _why_there),
    "cheaper": Kind(_cheaper, lambda asked: ["the cheaper plan"]),
    "memory": Kind(_held, lambda asked: [*dict.fromkeys(segments(a.name)[0] for a in asked.program.arguments)]),
    "seconds": Kind(_seconds, lambda asked: ["seconds of all collectives"]),
}
"""The kinds of questions, by `ask`."""
