"""Exercises: the question with all that is needed to answer it, what came of an answer, and the scores of several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shardviz.program.plan import Plan
from shardviz.records.amounts import format_number, plural
from shardviz.records.why import CollectiveWhy, Why
from shardviz.study.exercise import Exercise, Graded, Result, Scores
from shardviz.view.comparison import comparison_document
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Paragraph,
    Row,
    Section,
    Table,
    code,
    document,
    mesh_axes,
    notes,
    paragraph,
    row,
    shape,
    spec,
    words,
)
from shardviz.view.why import axis_section

_QUESTIONS = {
    "outputs": "How does the compiler shard the results?",
    "collectives": "Which collectives does the compiler insert, over which mesh axes, with how many bytes?",
    "cheaper": "Which of the two plans is cheaper?",
}
_BYTES = "Bytes are operand bytes of all runs in a step, on one device; within a tenth is right."
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
    }[asked.ask]
    by = "by the step's time" if asked.target is not None else "by the bytes that collectives move on one device"
    blocks: list[Block] = [paragraph(words(_QUESTIONS[asked.ask], strong=True))]
    blocks += notes(_BYTES if asked.ask == "collectives" else f"{by.capitalize()}." if asked.ask == "cheaper" else "")
    blocks.append(_arguments(asked))
    if asked.ask == "outputs":
        blocks.append(_open(asked))
    target = "" if asked.target is None else f", on {asked.target}"
    answered = f"; answered {plural(asked.tries, 'time')}" if asked.tries else ""
    blocks += notes(f"The answer is from {_WHO[asked.level]}{target}{answered}.")
    blocks.append(paragraph(code(how), "  then  ", code("exercise.reveal()")))
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
    return Table(columns=columns, rows=rows, first=24, noun="argument", name="exercise-arguments")


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
        words(graded.given or "nothing", quiet=not graded.given),
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
            words(f"{e.result.score:.0%}" if e.result else "not revealed"),
            words(str(e.tries)),
        )
        for e in found.exercises
    )
    columns = (Column("exercise"), Column("asked"), Column("score", right=True), Column("tries", right=True))
    title = (words("score", quiet=True), words(f"{found.score:.0%}", strong=True))
    return Document(title=title, blocks=(Table(columns=columns, rows=rows, first=40, noun="exercise"),))
