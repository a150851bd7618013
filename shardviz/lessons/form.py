"""The forms of questions: the fields of each kind of exercise, or a puzzle's explorer.

A form calls `answer` and `reveal` as a user would in Python.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from shardviz.display import Displayed, is_watched, paints, shell
from shardviz.errors import ShardvizError
from shardviz.lessons.exercises import EQUAL, KEPT, Exercise
from shardviz.lessons.puzzles import Puzzle
from shardviz.lessons.questions import Question
from shardviz.notation import Spec
from shardviz.page.form import Field, Form
from shardviz.page.opening import explore
from shardviz.records.collectives import KINDS

_NONE = "none"
_ROWS, _MOST_ROWS = 3, 12
"""The first rows for collectives, to which others can be added; the most rows for other items."""


@paints("form", Question)
def form_of(question: Question) -> Any:
    """Return the form of a question, which sets its `result`. Return the question if it has no form, or if the notebook
    runs without a user who could press a button, as in nbconvert; the question is then saved."""
    kept = shell() is not None and not is_watched() and not any(name.startswith("VOILA_") for name in os.environ)
    make = {Exercise: _exercise_form, Puzzle: _puzzle_form}.get(type(question))
    return question if kept or make is None else make(question)


def _exercise_form(exercise: Exercise) -> Form:
    items = [*exercise.items[:_MOST_ROWS]]
    if exercise.ask == "memory" and exercise.program.propagate(exercise.plan).residual_bytes:
        items.append(KEPT)

    def check() -> Displayed:
        if not items:
            return exercise.answer([row for row in form.values if row[0] != _NONE]).reveal()
        values = [Spec(row) if exercise.ask == "outputs" else row[0] for row in form.values]
        answer = {item: value for item, value in zip(items, values, strict=True) if value not in (None, "")}
        if not answer:
            example = exercise.words.get("amount")
            raise ShardvizError(f"fill in a field first, such as {example!r}" if example else "choose a plan first")
        return exercise.answer(answer).reveal()

    left = len(exercise.items) - len(items)
    form = Form(
        exercise,
        {
            "Check": ("ask the compiler, and grade the answer", check),
            "Show the answer": ("afterwards there are no points", partial(exercise.reveal, give_up=True)),
        },
        rows=[_fields(exercise, item) for item in items or range(_ROWS)],
        more=None if items else partial(_fields, exercise),
        note=f"{left} more outputs: answer for them in Python, exercise.answer({{...}})" if left > 0 else "",
    )
    return form


def _fields(exercise: Exercise, item: Any) -> list[Field]:
    """Return the fields for an item, or for a collective with this number, by the kind of question."""
    names = exercise.mesh.names
    if exercise.ask == "outputs":
        (shape,) = (output.shape for output in exercise.program.outputs(exercise.plan) if output.name == item)
        axes = [("whole", ()), *_labelled(itertools.permutations, names, len(names) if len(names) < 4 else 2)]
        return [Field(f"{item} dim {d} ({size:,}) is sharded along", axes, ()) for d, size in enumerate(shape)]
    if exercise.ask == "collectives":
        kinds, axes = [(kind, kind) for kind in (_NONE, *KINDS)], _labelled(itertools.combinations, names, len(names))
        kind, over = Field(f"collective {item + 1}", kinds, _NONE), Field("over", axes, axes[0][1])
        return [kind, over, Field("bytes", example="may be left out")]
    if exercise.ask == "cheaper":
        return [Field("cheaper is", [(name, name) for name in (*exercise.names, EQUAL)])]
    return [Field(item, example="may be left out" if item == KEPT else exercise.words["amount"])]


def _labelled(some: Callable[..., Iterable[Any]], axes: Any, longest: int) -> list[tuple[str, Any]]:
    return [(", ".join(each), each) for count in range(1, longest + 1) for each in some(axes, count)]


def _puzzle_form(puzzle: Puzzle) -> Form:
    asked: list[bool] = []  # whether the solution was asked for before

    def solution() -> Displayed:
        asked.append(True)
        return puzzle.reveal(give_up=len(asked) > 1)

    return Form(
        puzzle,
        {
            "Score this plan": ("ask the compiler, and compare with par", puzzle.answer),
            "Show the solution": ("afterwards there are no stars", solution),
        },
        opens=(
            "Open the explorer",
            "on the plan to begin with",
            lambda: explore(puzzle.program, plan=puzzle.start, target=puzzle.target, level=puzzle.level),
        ),
    )
