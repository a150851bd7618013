"""Exercises and puzzles: the question with all that is needed to answer it, what came of an answer, several scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shardviz.costs.step_cost import StepCost
from shardviz.program.plan import Plan
from shardviz.records.amounts import format_number, plural
from shardviz.records.why import CollectiveWhy, Why
from shardviz.study.exercise import Exercise, Graded, Result, Scores
from shardviz.study.puzzle import STARS, Attempt, Puzzle, Solution
from shardviz.view.comparison import amounts_table, comparison_document
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Figure,
    Listing,
    Paragraph,
    Row,
    Section,
    Table,
    code,
    document,
    line,
    mesh_axes,
    nbytes,
    notes,
    paragraph,
    right,
    row,
    seconds,
    shape,
    spec,
    table,
    words,
    wrapped,
)
from shardviz.view.step_cost import memory_words
from shardviz.view.why import axis_section

_QUESTIONS = {
    "outputs": "How does the compiler shard the results?",
    "collectives": "Which collectives does the compiler insert, over which mesh axes, with how many bytes?",
    "cheaper": "Which of the two plans is cheaper?",
    "memory": "How many bytes of each argument does one device hold?",
    "seconds": "How long do the collectives of a step take on the machine, one after the other?",
}
_BYTES = "Bytes are what one device puts in (its operands), in all runs of a step; within a tenth is right."
_NEAR = "Within a tenth is right."
_SHOWN = 16  # arguments
_WHO = {
    "propagated": "Shardy's propagation",
    "partitioned": "XLA's partitioner",
    "compiled": "the target's own compiler",
}


@document.register
def exercise_document(asked: Exercise) -> Document:
    """The question: the mesh, how the arguments are sharded, and how to answer."""
    how = {
        "outputs": "exercise.answer({'" + (asked.outputs or ("result",))[0].replace("'", "\\'") + "': P(...)})",
        "collectives": "exercise.answer([('all-reduce', '" + asked.plan.mesh.names[-1] + "', '1 MB'), ...]), or []",
        "cheaper": f"exercise.answer({asked.names[0]!r}), {asked.names[1]!r} or 'equal'",
        "memory": "exercise.answer({'" + asked.program.arguments[0].name.split("[")[0] + "': '1 MB', ...})",
        "seconds": "exercise.answer('1 ms')",
    }[asked.ask]
    by = "by the step's time" if asked.target is not None else "by the bytes that collectives move on one device"
    blocks: list[Block] = [paragraph(words(_QUESTIONS[asked.ask], strong=True))]
    blocks += notes({"outputs": "", "collectives": _BYTES, "cheaper": f"{by.capitalize()}."}.get(asked.ask, _NEAR))
    blocks.append(_arguments(asked))
    if asked.ask == "outputs":
        blocks.append(_open(asked))
    target = "" if asked.target is None else f", on {asked.target}"
    answered = f"; answered {plural(asked.tries, 'time')}" if asked.tries else ""
    blocks += notes(f"The answer is from {_WHO[asked.level]}{target}{answered}.")
    blocks.append(paragraph("in Python:  ", code(how), "  then  ", code("exercise.reveal()")))
    title = (words(asked.title or "exercise", strong=True), code(asked.program.name))
    return Document(title=title, lead=(mesh_axes(asked.plan.mesh),), blocks=tuple(blocks), mesh=asked.plan.mesh)


def _arguments(asked: Exercise) -> Table:
    """How each plan shards the arguments."""
    plans = (
        [(asked.plan, "spec")] if asked.other is None else [(asked.plan, asked.names[0]), (asked.other, asked.names[1])]
    )
    bound = [asked.program.bind(plan).in_specs for plan, _ in plans]
    rows = tuple(
        row(code(a.name), shape(a.shape, dtype=a.dtype), *(spec(specs[a.name].canonical()) for specs in bound))
        for a in asked.program.arguments
    )
    columns = (Column("argument"), Column("shape"), *(Column(_titled(asked, plan, name)) for plan, name in plans))
    return Table(columns=columns, rows=rows, first=_SHOWN, most=_SHOWN, noun="argument", name="exercise-arguments")


def _titled(asked: Exercise, plan: Plan, name: str) -> str:
    return name if plan.mesh == asked.plan.mesh else f"{name}, on {plan.mesh}"


def _open(asked: Exercise) -> Table:
    """The outputs that are asked for."""
    arrays = {o.name: o for o in asked.program.outputs(asked.plan)}
    rows = tuple(row(code(n), shape(arrays[n].shape, dtype=arrays[n].dtype), words("?")) for n in asked.outputs)
    columns = (Column("output"), Column("shape"), Column("spec"))
    return Table(columns=columns, rows=rows, first=24, noun="output", name="exercise-outputs")


@document.register
def result_document(result: Result) -> Document:
    """The score, a row for all that was asked and said, and why what was missed is so."""
    rows = tuple(_graded(r) for r in result.rows)
    columns = (
        Column(""),
        Column("answer"),
        Column("right", wrap=True),
        Column("", wrap=True),
        Column("points", right=True),
    )
    table = Table(columns=columns, rows=rows, first=40, noun="answer", name="exercise-result")
    blocks: list[Block] = [table] if rows else [paragraph("There are none, and you named none.")]
    blocks += [paragraph(idea, label="a common idea") for idea in result.ideas]
    for graded in result.rows:
        blocks += _why(graded)
    if result.compared is not None:
        difference = comparison_document(replace(result.compared, notes=()))  # a step's time is in the table above
        blocks.append(
            Section(title=f"From {result.names[0]} to {result.names[1]}", blocks=difference.blocks, fold="open")
        )
    tone = "good" if result.score == 1 else "warn" if result.score > 0 else "bad"
    said = f"{result.score:.0%}"
    tries = "at the first try" if result.tries == 1 else f"at try {result.tries}"
    title = (words("score", quiet=True), words(said, strong=True, tone=tone), words(tries, quiet=True))
    who = notes(f"The right answer is from {_WHO[result.level]} ({result.level}).")
    return Document(title=title, blocks=(*blocks, *who))


def _graded(graded: Graded) -> Row:
    lost = graded.points < graded.of or graded.points < 0
    tone = "" if not graded.of and not graded.points else "bad" if lost else "good"
    return row(
        code(graded.what),
        words(graded.given or ("nothing" if graded.verdict else ""), quiet=not graded.given),
        words(graded.right or "does not exist"),
        words(graded.verdict, tone=tone),
        words(f"{format_number(graded.points)} of {format_number(graded.of)}" if tone else ""),
    )


def _why(graded: Graded) -> Iterable[Block]:
    """Why a thing that was missed is so: its first sentences."""
    why = graded.why
    if isinstance(why, CollectiveWhy):
        yield Section(title=f"Why {graded.what}", blocks=(paragraph(why.need.words),))
    elif isinstance(why, Why):
        blocks: list[Block] = []
        for axis in why.axes:
            found = axis_section(axis, why.source, graded.what)
            blocks += [b for b in found.blocks if isinstance(b, Paragraph)][:1]
        yield Section(title=f"Why {graded.what} is {graded.right}", blocks=tuple(blocks))


@document.register
def scores_document(found: Scores) -> Document:
    """A row an exercise, and the mean."""
    rows = tuple(
        row(
            words(e.title or e.program.name),
            words(e.ask),
            words(f"{e.result.score:.0%}" if e.result else "not answered" if e.ask == "puzzle" else "not revealed"),
            words(str(e.tries)),
        )
        for e in found.exercises
    )
    columns = (Column("exercise"), Column("asked"), Column("score", right=True), Column("tries", right=True))
    title = (words("score", quiet=True), words(f"{found.score:.0%}", strong=True))
    return Document(title=title, blocks=(Table(columns=columns, rows=rows, first=40, noun="exercise"),))


# Puzzles.

_HINTS = 3


@document.register
def puzzle_document(asked: Puzzle) -> Document:
    """The task: the machine, the arguments, par, and how to answer."""
    arguments = Table(
        columns=(Column("argument"), Column("shape"), Column("to begin with")),
        rows=tuple(
            row(code(a.name), shape(a.shape, dtype=a.dtype), spec(specs[a.name].canonical()))
            for specs in (asked.program.bind(asked.start).in_specs,)
            for a in asked.program.arguments
        ),
        first=_SHOWN,
        most=_SHOWN,
        noun="argument",
        name="puzzle-arguments",
    )
    blocks: list[Block] = [
        paragraph(words("Find a plan that is as fast as par and needs no more memory.", strong=True)),
        _amounts(asked.begun, asked.par),
        arguments,
        *notes(f"Who keeps the score: {_WHO[asked.level]} ({asked.level}), and the cost model of {asked.target}."),
        paragraph("in Python:  ", code("puzzle.answer(sv.Plan(...))")),
    ]
    title = (words(asked.title or "puzzle", strong=True), code(asked.program.name), words(f"on {asked.target}"))
    return Document(title=title, lead=(mesh_axes(asked.start.mesh),), blocks=tuple(blocks), mesh=asked.start.mesh)


def _amounts(start: StepCost, par: StepCost, mine: Attempt | None = None) -> Table:
    """Seconds and bytes: of the start, of the answer where there is one, and of par."""
    parts = [("to begin with", start), ("yours", mine.cost if mine else None), ("par", par)]
    shown = [(name, cost) for name, cost in parts if cost is not None]
    times = (words(f"{t:.2f} x par") for t in mine.times_par) if mine else iter((words(""), words("")))
    columns = (Column(""), *(right(name) for name, _ in shown), *([right()] if mine else []))
    step = row("a step", *(seconds(cost.step.seconds) for _, cost in shown), *([next(times)] if mine else []))
    memory = row(
        "memory of a device",
        *(nbytes(cost.needs.total, tip=memory_words(cost.needs)) for _, cost in shown),
        *([next(times)] if mine else []),
    )
    return Table(columns=columns, rows=(step, memory), name="puzzle-par")


@document.register
def attempt_document(attempt: Attempt) -> Document:
    """The stars, how far from par, what a wrong idea costs, and hints."""
    stars = "★" * attempt.stars + "☆" * (STARS - attempt.stars)
    verdict = "under par" if attempt.under_par else "par is reached" if attempt.stars == STARS else "above par"
    verdict = verdict if attempt.fits else f"does not fit: {memory_words(attempt.cost.needs)}"
    tries = "at the first try" if attempt.tries == 1 else f"at try {attempt.tries}"
    tone = "good" if attempt.stars == STARS else "warn" if attempt.stars else "bad"
    blocks: list[Block] = [_amounts(attempt.start, attempt.par, attempt)]
    blocks += [paragraph(idea, label="a common idea") for idea in attempt.ideas]
    hints = attempt.hints
    if hints:
        hint_table = table(
            hints[:_HINTS],
            ("where", lambda hint: line(hint.source) if hint.source else hint.value),
            (wrapped("what"), lambda hint: " ".join(hint.text.split())),
            name="puzzle-hints",
        )
        blocks.append(Section(title="Hints: what shardviz finds in this plan", blocks=(hint_table,)))
    title = (words(stars, strong=True, tone=tone), words(verdict, strong=True), words(tries, quiet=True))
    who = notes(f"The score is that of {_WHO[attempt.report.level]} ({attempt.report.level}).")
    return Document(title=title, blocks=(*blocks, *who), mesh=attempt.report.mesh)


@document.register
def solution_document(solution: Solution) -> Document:
    """Par's plan as code, and what it changes."""
    blocks = (
        Figure(of=Listing(solution.code), name="puzzle-solution"),
        Section(title="From the start to par", blocks=(amounts_table(solution.compared),)),
    )
    return Document(title=words("A plan that reaches par", strong=True), blocks=blocks, mesh=solution.cost.mesh)
