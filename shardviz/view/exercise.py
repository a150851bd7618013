"""Documents of exercises, puzzles and written functions: the question, the result of an answer, and several scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from shardviz.ask.program import Program
from shardviz.layouts import layout
from shardviz.lessons.asked import STARS, Guess, LessonScores, Locked, Scores, Starred
from shardviz.lessons.exercises import Exercise, Graded, OutputsExercise, Result
from shardviz.lessons.puzzles import Attempt, Puzzle, Solution
from shardviz.lessons.written import FunctionCost, Try, Written
from shardviz.notation import DeviceMesh
from shardviz.plan.plan import Plan
from shardviz.records.amounts import format_number, plural
from shardviz.records.groups import grouped
from shardviz.records.why import CollectiveWhy, Why
from shardviz.view import document as doc
from shardviz.view.comparison import amounts_table, comparison_document
from shardviz.view.shard_map import map_blocks
from shardviz.view.show import Shown
from shardviz.view.step_cost import memory_words
from shardviz.view.why import axis_section

_SHOWN = 16  # maximum number of arguments shown
_MOST_HINTS = 3  # maximum number of findings shown as hints
_WHO = {
    "propagated": "Shardy's propagation",
    "partitioned": "XLA's partitioner",
    "compiled": "the target's own compiler",
}
_COSTS = {"sends": "sent on the links", "takes": "steps", "holds": "the largest array", "keeps": "microbatches kept"}


@doc.document.register
def exercise_document(exercise: Exercise) -> doc.Document:
    """Return the question: the mesh, the arguments' shardings, and how to answer."""
    program, names, mesh, words = exercise.program, exercise.names, exercise.plan.mesh, exercise.words
    first = exercise.items[0].replace("'", "\\'") if exercise.items else ""
    plans = {"spec": exercise.plan} if exercise.other is None else {names[0]: exercise.plan, names[1]: exercise.other}
    outputs = doc.Rows(
        [output for output in program.outputs(exercise.plan) if output.name in exercise.items], first=24, noun="output"
    ).table(
        ("output", lambda output: doc.code(output.name)),
        ("shape", lambda output: doc.shape(output.shape, dtype=output.dtype)),
        ("spec", lambda output: "?"),
    )
    target = "" if exercise.target is None else f", on {exercise.target}"
    answered = f"; answered {plural(exercise.tries, 'time')}" if exercise.tries else ""
    python = words["example"].format(first=first, names=names, axis=mesh.names[-1])
    note = words.get("note", "") if exercise.target is None else words.get("note_on_target", words.get("note", ""))
    return doc.Document.of(
        doc.paragraph(doc.words(words["question"], strong=True)),
        doc.notes(note),
        _arguments(program, plans, mesh),
        outputs if isinstance(exercise, OutputsExercise) else None,
        doc.notes(f"The answer is from {_WHO[exercise.level]}{target}{answered}."),
        doc.paragraph("in Python:  ", doc.code(python), "  then  ", doc.code("exercise.reveal()")),
        title=(doc.words(exercise.title or "exercise", strong=True), doc.code(program.name)),
        lead=(doc.mesh_axes(mesh),),
        mesh=mesh,
    )


def _arguments(program: Program, plans: Mapping[str, Plan], mesh: DeviceMesh) -> doc.Table:
    specs = {
        head if plan.mesh == mesh else f"{head}, on {plan.mesh}": program.bind(plan).in_specs
        for head, plan in plans.items()
    }
    return doc.Rows(program.arguments, most=_SHOWN, noun="argument").table(
        ("argument", lambda argument: doc.code(argument.name)),
        ("shape", lambda argument: doc.shape(argument.shape, dtype=argument.dtype)),
        *((head, lambda argument, of=of: doc.spec(of[argument.name].canonical())) for head, of in specs.items()),
    )


@doc.document.register
def result_document(result: Result) -> doc.Document:
    """Return the score and a row per item, with hints; if shown, the right answer and its reasons."""
    exercise, shown = result.exercise, result.shown

    def verdict(graded):  # the factor says the right amount
        return graded.verdict + (f": {format_number(graded.times)} x" if shown and graded.times is not None else "")

    rows = doc.Rows(  # the name of a missing collective is a part of the answer
        [graded for graded in result.rows if shown or graded.given or exercise.items], most=48, first=40, noun="answer"
    ).table(
        ("", lambda graded: doc.code(graded.what)),
        ("answer", lambda graded: graded.given or doc.words("nothing" if graded.verdict else "", quiet=True)),
        (doc.wrapped("right"), lambda graded: graded.right or "does not exist") if shown else None,
        (doc.wrapped(), lambda graded: doc.words(verdict(graded), tone=_tone(graded))),
        (doc.right("points"), _points),
    )
    missing = 0 if shown or exercise.items else sum(graded.of > 0 and not graded.given for graded in result.rows)
    tone = "good" if result.score == 1 else "warn" if result.score > 0 else "bad"
    give_up = doc.words("Show the answer", strong=True), ":  ", doc.code("exercise.reveal(give_up=True)")
    return doc.Document.of(
        rows if rows.rows else None,
        None if result.rows else doc.paragraph("There are none, and you named none."),
        doc.notes("The right answer was shown before: no points." if result.helped else ""),
        doc.paragraph(f"{plural(missing, 'collective')} {'is' if missing == 1 else 'are'} missing.")
        if missing
        else None,
        _hints(*(result.ideas or (() if shown else (exercise.words["hint"],)))),
        _reasons(result) if shown else None,
        doc.notes(f"The right answer is from {_WHO[exercise.level]} ({exercise.level}).")
        if shown
        else doc.paragraph("Try again, or ", *give_up),
        title=(
            doc.words("score", quiet=True),
            doc.words(f"{result.score:.0%}", strong=True, tone=tone),
            _tries(result),
        ),
    )


def _reasons(result: Result) -> Iterator[doc.Block]:
    """Yield why each missed item is so, in the first sentences of `why`; for two plans, their comparison."""
    for graded in result.rows:
        if isinstance(why := graded.why, CollectiveWhy):
            yield doc.section(f"Why {graded.what}", doc.paragraph(why.need.words))
        elif isinstance(why, Why):
            answers = (axis_section(axis, why.source, graded.what).blocks for axis in why.axes)
            firsts = (next((block for block in some if isinstance(block, doc.Paragraph)), None) for some in answers)
            yield doc.section(f"Why {graded.what} is {graded.right}", *firsts)
    if result.compared is not None:
        difference = comparison_document(replace(result.compared, notes=()))  # a step's time is in the table above
        yield doc.section("From {} to {}".format(*result.exercise.names), *difference.blocks, fold="open")


def _tries(answer: Result | Starred) -> doc.Piece:
    tries = answer.tries
    words = "not tried yet" if not tries else "at the first try" if tries == 1 else f"at try {tries}"
    return doc.words(words, quiet=True)


def _stars(answer: Starred) -> doc.Piece:
    tone = "good" if answer.stars == STARS else "warn" if answer.stars else "bad"
    return doc.words("★" * answer.stars + "☆" * (STARS - answer.stars), strong=True, tone=tone)


def _hints(*texts: str) -> Iterator[doc.Block]:
    """Yield a labelled paragraph for each hint."""
    return (doc.paragraph(*_ticked(text), label="hint") for text in texts)


def _ticked(text: str, *, strong: bool = False) -> list[doc.Piece]:
    """Return a sentence with its code, which stands between backticks."""
    parts = enumerate(text.split("`"))
    return [doc.code(part) if place % 2 else doc.words(part.strip(), strong=strong) for place, part in parts if part]


def _tone(graded: Graded) -> str:
    if not graded.of and not graded.points:
        return ""
    return "bad" if graded.points < graded.of or graded.points < 0 else "good"


def _points(graded: Graded) -> str:
    if not _tone(graded):
        return ""
    points = format_number(graded.points)
    return f"{points} of {format_number(graded.of)}" if graded.of else points.replace("-", "−")


@doc.document.register
def scores_document(scores: Scores) -> doc.Document:
    """Return a row per exercise, and the mean."""
    rows = doc.Rows(scores.exercises).table(
        ("exercise", lambda each: each.title or each.program.name),
        ("asked", lambda each: each.ask),
        (doc.right("score"), lambda each: f"{each.result.score:.0%}" if each.result else "not answered"),
        (doc.right("tries"), lambda each: str(each.tries)),
    )
    return doc.Document.of(rows, title=(doc.words("score", quiet=True), doc.words(f"{scores.score:.0%}", strong=True)))


@doc.document.register
def progress_document(progress: LessonScores) -> doc.Document:
    """Return a row per lesson that was done, in the lessons' order."""
    if not progress.lessons:
        return doc.Document.of(doc.paragraph("No lesson was done in this folder yet."))

    def numbered(title):
        return (int("0" + title.split(".")[0]) if title[0].isdigit() else 0, title)

    rows = doc.Rows(sorted(progress.lessons, key=numbered)).table(
        ("lesson", lambda title: title),
        (doc.right("best score"), lambda title: f"{progress.lessons[title]:.0%}"),
        ("", lambda title: "★" * round(STARS * progress.lessons[title])),
    )
    return doc.Document.of(rows, title=doc.words("So far", strong=True))


@doc.document.register
def locked_document(locked: Locked) -> doc.Document:
    """Return the note shown in place of a result."""
    what = f"answer the question “{locked.title}” first" if locked.title else "put your number in the place of None"
    return doc.Document.of(doc.notes(f"Locked: {what}, then run this cell again."))


@doc.document.register
def guess_document(guess: Guess) -> doc.Document:
    """Return the right amount, and the factor between it and the guess."""
    right, mine = (f"{format_number(amount)} {guess.unit}".rstrip() for amount in (guess.right, guess.guess))
    words = [doc.words(right, strong=True)]
    if guess.times is not None:
        tone = "good" if guess.times < 1.1 else "warn"
        words += [doc.words(f"; your guess, {mine}, is off by a factor of")]
        words += [doc.words(format_number(guess.times), strong=True, tone=tone)]
    return doc.Document.of(doc.paragraph(*words))


@doc.document.register
def puzzle_document(puzzle: Puzzle) -> doc.Document:
    """Return the task: the machine, the arguments, par, and how to answer."""
    mesh, judge = puzzle.start.mesh, f"{_WHO[puzzle.level]} ({puzzle.level})"
    title = doc.words(puzzle.title or "puzzle", strong=True), doc.code(puzzle.program.name)
    return doc.Document.of(
        doc.paragraph(doc.words("Find a plan that is as fast as par and needs no more memory.", strong=True)),
        _amounts(puzzle),
        _arguments(puzzle.program, {"to begin with": puzzle.start}, mesh),
        doc.notes(f"Who keeps the score: {judge}, and the cost model of {puzzle.target}."),
        doc.paragraph("in Python:  ", doc.code("puzzle.answer(sv.Plan(...))")),
        title=(*title, doc.words(f"on {puzzle.target}")),
        lead=(doc.mesh_axes(mesh),),
        mesh=mesh,
    )


def _amounts(puzzle: Puzzle, mine: Attempt | None = None) -> doc.Table:
    costs = {"to begin with": puzzle.begun} | ({} if mine is None else {"yours": mine.cost}) | {"par": puzzle.par}
    amounts = (
        ("a step", lambda cost: doc.seconds(cost.step.seconds)),
        ("memory of a device", lambda cost: doc.nbytes(cost.needs.total, tip=memory_words(cost.needs))),
    )
    return doc.Rows(enumerate(amounts)).table(
        ("", lambda each: each[1][0]),
        *((doc.right(name), lambda each, cost=cost: each[1][1](cost)) for name, cost in costs.items()),
        None if mine is None else (doc.right(), lambda each: f"{mine.times_par[each[0]]:.2f} x par"),
    )


@doc.document.register
def attempt_document(attempt: Attempt) -> doc.Document:
    """Return the stars, the distance from par, the cost of misconceptions, and hints."""
    verdict = "under par" if attempt.under_par else "par is reached" if attempt.stars == STARS else "above par"
    verdict = verdict if attempt.fits else memory_words(attempt.cost.needs)
    findings = doc.Rows(attempt.hints[:_MOST_HINTS]).table(
        ("where", lambda hint: doc.line(hint.source) if hint.source else hint.value),
        (doc.wrapped("what"), lambda hint: " ".join(hint.text.split())),
    )
    level = attempt.report.level
    return doc.Document.of(
        _amounts(attempt.puzzle, attempt),
        _hints(*attempt.ideas, *attempt.excess),
        doc.section("Findings about this plan that par's plan does not have", findings) if findings.rows else None,
        doc.notes(f"The score is from {_WHO[level]} ({level})."),
        title=(_stars(attempt), doc.words(verdict, strong=True), _tries(attempt)),
        mesh=attempt.report.mesh,
    )


@doc.document.register
def solution_document(solution: Solution) -> doc.Document:
    """Return par's plan as code, and its differences."""
    return doc.Document.of(
        doc.Figure(of=doc.Listing(solution.code)),
        doc.section("From the start to par", amounts_table(solution.compared)),
        title=doc.words("A plan that reaches par", strong=True),
        mesh=solution.plan.mesh,
    )


@doc.document.register
def written_document(puzzle: Written) -> doc.Document:
    """Return the task: what each device has, what it must have, what is forbidden, and the function to complete."""
    about, mesh = puzzle.about, puzzle.mesh
    alike = grouped(
        ((side, tuple(each["shape"]), tuple(axis or None for axis in each["spec"])), each["name"])
        for side in ("arguments", "results")
        for each in about.get(side, ())
        if each.get("drawn", True)
    )
    heads = {"arguments": "Each device has: ", "results": "Each device must have: "}
    maps = [
        doc.section(heads[side] + ", ".join(names), *map_blocks(Shown(layout(shape, spec, mesh)), 320))
        for (side, shape, spec), names in alike.items()
    ]
    forbidden = ", ".join(f"jax.lax.{name}" for name in about.get("forbidden", ()))
    start = doc.Figure(of=doc.Listing(about["start"].strip()))
    return doc.Document.of(
        doc.paragraph(*_ticked(about["task"])),
        [doc.SideBySide(blocks=tuple(maps[i : i + 2])) for i in range(0, len(maps), 2)],
        doc.Figure(of=doc.Listing(drawn), caption="GPipe") if (drawn := puzzle.drawn()) else None,
        doc.section("The function to complete", start, fold="closed", name="start"),
        doc.notes(forbidden and f"Forbidden: {forbidden}."),
        doc.paragraph("in Python:  ", doc.code("puzzle.answer(the_function)")),
        title=doc.words(puzzle.title, strong=True),
        lead=(doc.mesh_axes(mesh),),
        mesh=mesh,
    )


@doc.document.register
def try_document(tried: Try) -> doc.Document:
    """Return the stars and one sentence; then the costs beside par's and what is sent, or a hint."""
    left = "1 more wrong try" if tried.left == 1 else f"{tried.left} more wrong tries"
    wants = bool(tried.hint) and not tried.solution and tried.left > 0
    return doc.Document.of(
        doc.paragraph(*_ticked(tried.sentence, strong=True)),
        _measured(tried),
        doc.Figure(of=doc.Listing(tried.printed), caption="printed") if tried.printed else None,
        doc.Figure(of=doc.Listing(tried.solution.strip()), caption="A solution") if tried.solution else None,
        _hints(tried.hint) if wants else None,
        doc.notes(f"The solution is shown after {left}." if wants else ""),
        doc.notes("The solution was shown before: no stars." if tried.helped else ""),
        title=(_stars(tried), _tries(tried)),
        mesh=tried.puzzle.mesh,
    )


def _measured(tried: Try) -> Iterator[doc.Block]:
    """Yield the costs beside par's, the schedules, and what is sent; nothing if the function is wrong."""
    if tried.mine is None or tried.par is None:
        return
    both = {"yours": tried.mine, "par": tried.par}
    yield doc.Rows(tried.mine.words()).table(
        ("of one device", lambda verb: _COSTS[verb]),
        *((doc.right(who), lambda verb, of=of: _cost(verb, of)) for who, of in both.items()),
    )
    for who, each in both.items():
        if each.schedule is not None and (who == "yours" or tried.solved or tried.helped):
            yield doc.Figure(of=doc.Listing(each.schedule.drawn), caption=who)
    if tried.mine.report is not None:
        collectives = tried.mine.report.collectives
        sent = doc.Rows(
            grouped(((c.kind, c.axes, c.operand_bytes), c) for c in collectives).items(), most=10, noun="collective"
        ).table(
            ("each device sends", lambda each: doc.code(each[0][0])),
            ("over", lambda each: doc.axes(each[0][1])),
            (doc.right("runs"), lambda each: str(sum(c.count or 1 for c in each[1]))),
            (doc.right("each of"), lambda each: doc.nbytes(each[0][2])),
        )
        far = any(c.kind == "collective-permute" for c in collectives)
        notes = doc.notes("On the links, a permute over 3 links counts three times." if far else "")
        yield doc.section("The partitioned program", sent, notes)


def _cost(verb: str, costs: FunctionCost) -> doc.Piece:
    amount = costs.words()[verb][0]
    return doc.nbytes(amount) if verb in ("sends", "holds") else doc.words(format_number(amount))
