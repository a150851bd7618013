"""Documents of exercises and puzzles: the question, the result of an answer, and several scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardviz.ask.program import Program
from shardviz.costs.step_cost import StepCost
from shardviz.layouts import layout
from shardviz.lessons.asked import STARS, Guess, LessonScores, Locked, Scores, Starred
from shardviz.lessons.exercises import Exercise, Graded, Result
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

_QUESTIONS = {
    "outputs": "How does the compiler shard the results?",
    "collectives": "Which collectives does the compiler insert, over which mesh axes, with how many bytes?",
    "cheaper": "Which of the two plans is cheaper?",
    "memory": "How many bytes of each argument does one device hold?",
    "seconds": "How long do the collectives of a step take on the machine, one after the other?",
}
_BYTES = "Bytes are what one device puts in (its operands), in all runs of a step; within a tenth is right."
_NEAR = "Within a tenth is right."
_HINTS = {
    "outputs": "An axis follows its dimension. A dimension that the function sums over does not exist in the result.",
    "collectives": "Ask of each operation what a device needs and does not have: parts of an array must be collected, "
    "parts of a sum must be added. Its axes are those that shard the needed parts.",
    "cheaper": "Compare what a device sends, multiplies and reads with each of the two.",
    "memory": "Divide each dimension by the sizes of the axes in its entry of the spec; the other axes hold replicas. "
    "Then multiply by the bytes of an element.",
    "seconds": "Which array is sent, along which axis, with how many bytes? Divide by what a link carries in a second.",
}
"""Kind of question → a general hint, used if the answer shows no known misconception."""
_SHOWN = 16  # maximum number of arguments shown
_MOST_HINTS = 3  # maximum number of findings shown as hints
_WHO = {
    "propagated": "Shardy's propagation",
    "partitioned": "XLA's partitioner",
    "compiled": "the target's own compiler",
}


@doc.document.register
def exercise_document(exercise: Exercise) -> doc.Document:
    """Return the question: the mesh, the arguments' shardings, and how to answer."""
    names, mesh = exercise.names, exercise.plan.mesh
    python = {
        "outputs": "exercise.answer({'" + (exercise.outputs or ("result",))[0].replace("'", "\\'") + "': P(...)})",
        "collectives": f"exercise.answer([('all-reduce', '{mesh.names[-1]}', '1 MB'), ...]), or []",
        "cheaper": f"exercise.answer({names[0]!r}), {names[1]!r} or 'equal'",
        "memory": "exercise.answer({'" + exercise.program.arguments[0].name.split("[")[0] + "': '1 MB', ...})",
        "seconds": "exercise.answer('1 ms')",
    }[exercise.ask]
    by = "By the step's time." if exercise.target is not None else "By the bytes that collectives take on one device."
    hint = {"outputs": "", "collectives": _BYTES, "cheaper": by}.get(exercise.ask, _NEAR)
    plans = {"spec" if exercise.other is None else names[0]: exercise.plan}
    plans |= {} if exercise.other is None else {names[1]: exercise.other}
    outputs = {output.name: output for output in exercise.program.outputs(exercise.plan)}
    open_outputs = doc.table(
        [outputs[name] for name in exercise.outputs] if exercise.ask == "outputs" else (),
        ("output", lambda output: doc.code(output.name)),
        ("shape", lambda output: doc.shape(output.shape, dtype=output.dtype)),
        ("spec", lambda output: "?"),
        first=24,
        noun="output",
        name="exercise-outputs",
    )
    target = "" if exercise.target is None else f", on {exercise.target}"
    answered = f"; answered {plural(exercise.tries, 'time')}" if exercise.tries else ""
    blocks = (
        doc.paragraph(doc.words(_QUESTIONS[exercise.ask], strong=True)),
        *doc.notes(hint),
        _arguments(exercise.program, plans, mesh, "exercise-arguments"),
        *((open_outputs,) if open_outputs.rows else ()),
        *doc.notes(f"The answer is from {_WHO[exercise.level]}{target}{answered}."),
        doc.paragraph("in Python:  ", doc.code(python), "  then  ", doc.code("exercise.reveal()")),
    )
    title = (doc.words(exercise.title or "exercise", strong=True), doc.code(exercise.program.name))
    return doc.Document(title=title, lead=(doc.mesh_axes(mesh),), blocks=blocks, mesh=mesh)


def _arguments(program: Program, plans: Mapping[str, Plan], mesh: DeviceMesh, name: str) -> doc.Table:
    specs = {
        head if plan.mesh == mesh else f"{head}, on {plan.mesh}": program.bind(plan).in_specs
        for head, plan in plans.items()
    }
    return doc.table(
        program.arguments,
        ("argument", lambda argument: doc.code(argument.name)),
        ("shape", lambda argument: doc.shape(argument.shape, dtype=argument.dtype)),
        *((head, lambda argument, of=of: doc.spec(of[argument.name].canonical())) for head, of in specs.items()),
        most=_SHOWN,
        noun="argument",
        name=name,
    )


@doc.document.register
def result_document(result: Result) -> doc.Document:
    """Return the score and a row per item, with hints; if shown, the right answer and its reasons."""
    shown = result.shown
    asked_by_name = result.ask in ("memory", "outputs")  # else the name of what is missing is the answer
    rows = doc.table(
        [graded for graded in result.rows if shown or graded.given or asked_by_name],
        ("", lambda graded: doc.code(graded.what)),
        (
            "answer",
            lambda graded: doc.words(graded.given or ("nothing" if graded.verdict else ""), quiet=not graded.given),
        ),
        (doc.wrapped("right"), lambda graded: graded.right or "does not exist") if shown else None,
        (doc.wrapped(), lambda graded: doc.words(graded.verdict + _times(graded, shown), tone=_tone(graded))),
        (doc.right("points"), _points),
        most=48,
        first=40,
        noun="answer",
        name="exercise-result",
    )
    blocks: list[doc.Block] = [rows] if rows.rows else []
    if not result.rows:
        blocks.append(doc.paragraph("There are none, and you named none."))
    blocks += doc.notes("The right answer was shown before: no points.") if result.helped else ()
    missing = sum(graded.of > 0 and not graded.given for graded in result.rows)
    if missing and not shown and not asked_by_name:
        blocks.append(doc.paragraph(f"{plural(missing, 'collective')} {'is' if missing == 1 else 'are'} missing."))
    hints = result.ideas or (() if shown else (_HINTS[result.ask],))
    blocks += [doc.paragraph(hint, label="hint") for hint in hints]
    for graded in result.rows if shown else ():  # why what was missed is so: the first sentences
        if isinstance(why := graded.why, CollectiveWhy):
            blocks.append(doc.section(f"Why {graded.what}", doc.paragraph(why.need.words)))
        elif isinstance(why, Why):
            answers = (axis_section(axis, why.source, graded.what).blocks for axis in why.axes)
            firsts = (next((block for block in some if isinstance(block, doc.Paragraph)), None) for some in answers)
            blocks.append(doc.section(f"Why {graded.what} is {graded.right}", *firsts))
    if result.compared is not None and shown:
        difference = comparison_document(replace(result.compared, notes=()))  # a step's time is in the table above
        blocks.append(doc.section(f"From {result.names[0]} to {result.names[1]}", *difference.blocks, fold="open"))
    tone = "good" if result.score == 1 else "warn" if result.score > 0 else "bad"
    score = doc.words(f"{result.score:.0%}", strong=True, tone=tone)
    again = (
        "Try again, or ",
        doc.words("Show the answer", strong=True),
        ":  ",
        doc.code("exercise.reveal(give_up=True)"),
    )
    who = (
        doc.notes(f"The right answer is from {_WHO[result.level]} ({result.level}).")
        if shown
        else (doc.paragraph(*again),)
    )
    return doc.Document(
        title=(doc.words("score", quiet=True), score, doc.words(_tries(result.tries), quiet=True)),
        blocks=(*blocks, *who),
    )


def _stars(answer: Starred) -> doc.Piece:
    tone = "good" if answer.stars == STARS else "warn" if answer.stars else "bad"
    return doc.words("★" * answer.stars + "☆" * (STARS - answer.stars), strong=True, tone=tone)


def _tries(tries: int) -> str:
    return "not tried yet" if not tries else "at the first try" if tries == 1 else f"at try {tries}"


def _points(graded: Graded) -> str:
    if not _tone(graded):
        return ""
    points = format_number(graded.points)
    return f"{points} of {format_number(graded.of)}" if graded.of else points.replace("-", "−")


def _times(graded: Graded, shown: bool) -> str:
    """Return the factor between the answer and the right amount, which says the right one: only if that is shown."""
    return "" if graded.times is None or not shown else f": {format_number(graded.times)} x"


def _tone(graded: Graded) -> str:
    if not graded.of and not graded.points:
        return ""
    return "bad" if graded.points < graded.of or graded.points < 0 else "good"


@doc.document.register
def scores_document(scores: Scores) -> doc.Document:
    """Return a row per exercise, and the mean."""

    rows = doc.table(
        scores.exercises,
        ("exercise", lambda each: each.title or each.program.name),
        ("asked", lambda each: each.ask),
        (doc.right("score"), lambda each: f"{each.result.score:.0%}" if each.result else "not answered"),
        (doc.right("tries"), lambda each: str(each.tries)),
        most=48,
        first=40,
        noun="exercise",
    )
    title = (doc.words("score", quiet=True), doc.words(f"{scores.score:.0%}", strong=True))
    return doc.Document(title=title, blocks=(rows,))


@doc.document.register
def locked_document(locked: Locked) -> doc.Document:
    """Return the note shown in place of a result."""
    what = f"answer the question “{locked.title}” first" if locked.title else "put your number in the place of None"
    return doc.Document(blocks=doc.notes(f"Locked: {what}, then run this cell again."))


@doc.document.register
def guess_document(guess: Guess) -> doc.Document:
    """Return the right amount, and the factor between it and the guess."""

    def amount(number):
        return f"{format_number(number)} {guess.unit}".rstrip()

    words = [doc.words(amount(guess.right), strong=True)]
    if guess.guess is not None and guess.times is not None:
        tone = "good" if guess.times < 1.1 else "warn"
        words += [doc.words(f"; your guess, {amount(guess.guess)}, is off by a factor of")]
        words += [doc.words(format_number(guess.times), strong=True, tone=tone)]
    return doc.Document(blocks=(doc.paragraph(*words),))


@doc.document.register
def progress_document(progress: LessonScores) -> doc.Document:
    """Return a row per lesson that was done, in the lessons' order."""
    if not progress.lessons:
        return doc.Document(blocks=(doc.paragraph("No lesson was done in this folder yet."),))

    def numbered(title):
        return (int("0" + title.split(".")[0]) if title[0].isdigit() else 0, title)

    rows = doc.table(
        sorted(progress.lessons, key=numbered),
        ("lesson", lambda title: title),
        (doc.right("best score"), lambda title: f"{progress.lessons[title]:.0%}"),
        ("", lambda title: "★" * round(STARS * progress.lessons[title])),
        most=48,
        noun="lesson",
    )
    return doc.Document(title=doc.words("So far", strong=True), blocks=(rows,))


@doc.document.register
def puzzle_document(puzzle: Puzzle) -> doc.Document:
    """Return the task: the machine, the arguments, par, and how to answer."""
    mesh = puzzle.start.mesh
    blocks = (
        doc.paragraph(doc.words("Find a plan that is as fast as par and needs no more memory.", strong=True)),
        _amounts(puzzle.begun, puzzle.par),
        _arguments(puzzle.program, {"to begin with": puzzle.start}, mesh, "puzzle-arguments"),
        *doc.notes(
            f"Who keeps the score: {_WHO[puzzle.level]} ({puzzle.level}), and the cost model of {puzzle.target}."
        ),
        doc.paragraph("in Python:  ", doc.code("puzzle.answer(sv.Plan(...))")),
    )
    title = (
        doc.words(puzzle.title or "puzzle", strong=True),
        doc.code(puzzle.program.name),
        doc.words(f"on {puzzle.target}"),
    )
    return doc.Document(title=title, lead=(doc.mesh_axes(mesh),), blocks=blocks, mesh=mesh)


def _amounts(start: StepCost, par: StepCost, mine: Attempt | None = None) -> doc.Table:
    costs = {"to begin with": start} | ({} if mine is None else {"yours": mine.cost}) | {"par": par}
    amounts = (
        ("a step", lambda cost: doc.seconds(cost.step.seconds)),
        ("memory of a device", lambda cost: doc.nbytes(cost.needs.total, tip=memory_words(cost.needs))),
    )
    return doc.table(
        enumerate(amounts),
        ("", lambda each: each[1][0]),
        *((doc.right(name), lambda each, cost=cost: each[1][1](cost)) for name, cost in costs.items()),
        None if mine is None else (doc.right(), lambda each: f"{mine.times_par[each[0]]:.2f} x par"),
        name="puzzle-par",
    )


@doc.document.register
def attempt_document(attempt: Attempt) -> doc.Document:
    """Return the stars, the distance from par, the cost of misconceptions, and hints."""
    verdict = "under par" if attempt.under_par else "par is reached" if attempt.stars == STARS else "above par"
    verdict = verdict if attempt.fits else memory_words(attempt.cost.needs)
    hints = doc.table(
        attempt.hints[:_MOST_HINTS],
        ("where", lambda hint: doc.line(hint.source) if hint.source else hint.value),
        (doc.wrapped("what"), lambda hint: " ".join(hint.text.split())),
        name="puzzle-hints",
    )
    blocks: list[doc.Block] = [_amounts(attempt.start, attempt.par, attempt)]
    blocks += [doc.paragraph(hint, label="hint") for hint in (*attempt.ideas, *attempt.excess)]
    blocks += [doc.section("Findings about this plan that par's plan does not have", hints)] if hints.rows else []
    title = (_stars(attempt), doc.words(verdict, strong=True), doc.words(_tries(attempt.tries), quiet=True))
    who = doc.notes(f"The score is from {_WHO[attempt.report.level]} ({attempt.report.level}).")
    return doc.Document(title=title, blocks=(*blocks, *who), mesh=attempt.report.mesh)


@doc.document.register
def solution_document(solution: Solution) -> doc.Document:
    """Return par's plan as code, and its differences."""
    blocks = (
        doc.Figure(of=doc.Listing(solution.code), name="puzzle-solution"),
        doc.section("From the start to par", amounts_table(solution.compared)),
    )
    return doc.Document(title=doc.words("A plan that reaches par", strong=True), blocks=blocks, mesh=solution.cost.mesh)


@doc.document.register
def written_document(puzzle: Written) -> doc.Document:
    """Return the task: what each device has, what it must have, what is forbidden, and the function to complete."""
    about = puzzle.about
    alike = grouped(
        ((side, tuple(each["shape"]), tuple(axis or None for axis in each["spec"])), each["name"])
        for side in ("arguments", "results")
        for each in about.get(side, ())
        if each.get("drawn", True)
    )
    heads = {"arguments": "Each device has: ", "results": "Each device must have: "}
    maps = [
        doc.section(heads[side] + ", ".join(names), *map_blocks(Shown(layout(shape, spec, puzzle.mesh)), 320))
        for (side, shape, spec), names in alike.items()
    ]
    forbidden = ", ".join(f"jax.lax.{name}" for name in about.get("forbidden", ()))
    blocks = (
        doc.paragraph(*_ticked(about["task"])),
        *(doc.SideBySide(blocks=tuple(maps[i : i + 2])) for i in range(0, len(maps), 2)),
        *((doc.Figure(of=doc.Listing(drawn), caption="GPipe"),) if (drawn := puzzle.drawn()) else ()),
        doc.section(
            "The function to complete", doc.Figure(of=doc.Listing(about["start"].strip())), fold="closed", name="start"
        ),
        *doc.notes(*([f"Forbidden: {forbidden}."] if forbidden else [])),
        doc.paragraph("in Python:  ", doc.code("puzzle.answer(the_function)")),
    )
    title = doc.words(puzzle.title, strong=True)
    return doc.Document(title=title, lead=(doc.mesh_axes(puzzle.mesh),), blocks=blocks, mesh=puzzle.mesh)


@doc.document.register
def try_document(tried: Try) -> doc.Document:
    """Return the stars and one sentence; then the costs beside par's and what is sent, or a hint."""
    blocks: list[doc.Block] = [doc.paragraph(*_ticked(tried.sentence, strong=True))]
    mine, par = tried.mine, tried.par
    if mine is not None and par is not None:
        blocks.append(
            doc.table(
                mine.words(),
                ("of one device", lambda verb: _COSTS[verb]),
                *((doc.right(who), lambda verb, of=of: _cost(verb, of)) for who, of in (("yours", mine), ("par", par))),
                name="written-par",
            )
        )
        blocks += [
            doc.Figure(of=doc.Listing(each.schedule.drawn), caption=title, name="written-schedule")
            for title, each in (("yours", mine), ("par", par))
            if each.schedule is not None and (title == "yours" or tried.solved or tried.helped)
        ]
        if mine.report is not None:
            alike = grouped(((c.kind, c.axes, c.operand_bytes), c) for c in mine.report.collectives)
            sent = doc.table(
                alike.items(),
                ("each device sends", lambda each: doc.code(each[0][0])),
                ("over", lambda each: doc.axes(each[0][1])),
                (doc.right("runs"), lambda each: str(sum(c.count or 1 for c in each[1]))),
                (doc.right("each of"), lambda each: doc.nbytes(each[0][2])),
                most=10,
                noun="collective",
                name="written-sent",
            )
            far = any(c.kind == "collective-permute" for c in mine.report.collectives)
            notes = doc.notes("On the links, a permute over 3 links counts three times.") if far else ()
            blocks.append(doc.section("The partitioned program", sent, *notes))
    blocks += [doc.Figure(of=doc.Listing(tried.printed), caption="printed")] if tried.printed else []
    if tried.solution:
        blocks.append(doc.Figure(of=doc.Listing(tried.solution.strip()), caption="A solution", name="written-solution"))
    elif tried.hint and tried.left > 0:
        blocks.append(doc.paragraph(*_ticked(tried.hint), label="hint"))
        blocks += doc.notes(
            f"The solution is shown after {tried.left} more wrong {'try' if tried.left == 1 else 'tries'}."
        )
    blocks += doc.notes("The solution was shown before: no stars.") if tried.helped else ()
    title = (_stars(tried), doc.words(_tries(tried.tries), quiet=True))
    return doc.Document(title=title, blocks=tuple(blocks), mesh=tried.puzzle.mesh)


_COSTS = {"sends": "sent on the links", "takes": "steps", "holds": "the largest array", "keeps": "microbatches kept"}


def _cost(verb: str, costs: FunctionCost) -> doc.Piece:
    amount = costs.words()[verb][0]
    return doc.nbytes(amount) if verb in ("sends", "holds") else doc.words(format_number(amount))


def _ticked(text: str, *, strong: bool = False) -> list[doc.Piece]:
    """Return a sentence with its code, which stands between backticks."""
    parts = enumerate(text.split("`"))
    return [doc.code(part) if place % 2 else doc.words(part.strip(), strong=strong) for place, part in parts if part]
