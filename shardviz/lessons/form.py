"""The form of a question: fields or the explorer, a button that grades the answer, and the result.

The fields are labelled ipywidgets, so Tab, arrow keys and screen readers work. The form calls `answer` and `reveal` as
a user would in Python.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as w

from shardviz import page
from shardviz.display import Displayed, is_watched, paints, shell
from shardviz.errors import ShardvizError
from shardviz.lessons.exercises import EQUAL, KEPT, Exercise
from shardviz.lessons.puzzles import Puzzle
from shardviz.lessons.questions import Question
from shardviz.notation import Spec
from shardviz.page.opening import explore
from shardviz.page.stills import VIEW
from shardviz.records.collectives import KINDS

_NONE = "none"
_ROWS, _MOST_ROWS = 3, 12
"""The rows of a form that may grow, at first; the most rows of another form."""


@cache
def _layout(**look: str) -> w.Layout:
    """Return a layout, shared by widgets and made at first use, because each layout is saved with the notebook."""
    return w.Layout(**look)


_wide = partial(_layout, width="auto", min_width="12em", align_self="flex-start")


class _Keys(anywidget.AnyWidget):
    """An invisible widget with the form's keyboard behaviour."""

    _esm = Path(page.__file__).with_name("static") / "form" / "keys.js"


class Form(w.VBox):
    """The question, widgets for the answer, and two buttons: one grades the answer, the other shows the right one. The
    form's plain text is the question, which a saved notebook shows without a kernel."""

    _ipython_display_ = None  # ipywidgets 7, which Colab has, would display it in its own way

    def __init__(self, question: Question, widgets: list[w.Widget], **actions: tuple[str, Callable[[], Displayed]]):
        self._question, self._status, self._result = question, w.HTML(layout=_layout()), w.HTML(layout=_layout())
        self._result.add_class("shardviz-result")
        self._buttons = [
            _button(name.replace("_", " "), tip, partial(self._press, act)) for name, (tip, act) in actions.items()
        ]
        self._buttons[0].button_style = "primary"
        buttons = w.HBox(self._buttons, layout=_layout())
        shown, keys = w.HTML(question.html(), layout=_layout()), _Keys(layout=_layout())
        super().__init__([shown, *widgets, buttons, self._status, self._result, keys], layout=_layout())
        self.add_class("shardviz-exercise")

    def _press(self, act: Callable[[], Displayed]) -> None:
        self._status.value, self._result.value = _alert("asking the compiler …"), ""
        for button in self._buttons:
            button.disabled = True
        try:
            self._result.value = act().html()
            self._status.value = ""
        except ShardvizError as error:
            self._status.value = _alert(str(error), role="alert")
        finally:
            for button in self._buttons:
                button.disabled = False

    def __repr__(self) -> str:
        return self._question.text()

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """Return the full text for hosts without a kernel (ipywidgets shortens it), and anywidget's metadata, which
        Colab needs."""
        _, metadata = self.children[-1]._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {VIEW: view, "text/plain": self._question.text()}, metadata


def _button(name: str, tip: str, press: Callable[[], Any]) -> w.Button:
    button = w.Button(description=name, tooltip=tip, layout=_wide())
    button.on_click(lambda _: press())
    return button


def _alert(text: str, role: str = "status") -> str:
    return f'<div role="{role}" style="white-space:pre-wrap">{escape(text)}</div>'


@paints("form", Question)
def form_of(question: Question) -> Any:
    """Return the form of a question, which sets its `result`. Return the question if it has no form, or if the notebook
    runs without a user who could press a button, as in nbconvert; the question is then saved."""
    kept = shell() is not None and not is_watched() and not any(name.startswith("VOILA_") for name in os.environ)
    make = {Exercise: ExerciseForm, Puzzle: PuzzleForm}.get(type(question))
    return question if kept or make is None else make(question)


class ExerciseForm(Form):
    """The form of an exercise: a row of fields for each item; a row for each collective, of which there may be more."""

    def __init__(self, exercise: Exercise):
        names = exercise.items[:_MOST_ROWS] or [f"collective {n + 1}" for n in range(_ROWS)]
        left, below = len(exercise.items) - len(names), []
        if exercise.ask == "memory" and exercise.program.propagate(exercise.plan).residual_bytes:
            names.append(KEPT)
        rows = w.VBox([_row(exercise, name) for name in names], layout=_layout())

        def add() -> None:
            rows.children = (*rows.children, _row(exercise, f"collective {len(rows.children) + 1}"))

        def check() -> Displayed:
            values = [tuple(field.value for field in row.children) for row in rows.children]
            if not exercise.items:
                return exercise.answer([value for value in values if value[0] != _NONE]).reveal()
            whole = (
                (name, Spec(row) if exercise.ask == "outputs" else row[0])
                for name, row in zip(names, values, strict=True)
            )
            answer = {name: value for name, value in whole if value not in (None, "")}
            if not answer:
                example = exercise.words.get("amount")
                raise ShardvizError(f"fill in a field first, such as {example!r}" if example else "choose a plan first")
            return exercise.answer(answer).reveal()

        if not exercise.items:
            below = [_button("One more", "a row for one more kind of collective", add)]
        elif left > 0:
            below = [w.HTML(_alert(f"{left} more outputs: answer for them in Python, exercise.answer({{...}})"))]
        super().__init__(
            exercise,
            [rows, *below],
            Check=("ask the compiler, and grade the answer", check),
            Show_the_answer=(
                "what is right, and why; afterwards there are no points",
                partial(exercise.reveal, give_up=True),
            ),
        )


def _row(exercise: Exercise, item: str) -> w.Box:
    """Return the fields for an item, by the kind of question."""
    axes, fields = exercise.mesh.names, []
    if exercise.ask == "outputs":
        (shape,) = (output.shape for output in exercise.program.outputs(exercise.plan) if output.name == item)
        choices = [("whole", ()), *_choices(axes, itertools.permutations, len(axes) if len(axes) < 4 else 2)]
        names = [f"{item} dim {d} ({size:,}) is sharded along" for d, size in enumerate(shape)]
        fields = [_field(w.Dropdown, name, options=choices, value=()) for name in names]
    elif exercise.ask == "collectives":
        over = _choices(axes, itertools.combinations, len(axes))
        kind, axes = _field(w.Dropdown, item, options=(_NONE, *KINDS)), _field(w.Dropdown, "over", options=over)
        fields = [kind, axes, _amount("bytes", "may be left out")]
    elif exercise.ask == "cheaper":
        fields = [_field(w.RadioButtons, "cheaper is", options=(*exercise.names, EQUAL), value=None)]
    else:
        fields = [_amount(item, "may be left out" if item == KEPT else exercise.words["amount"])]
    return w.HBox(fields, layout=_layout(flex_flow="row wrap"))


def _choices(axes: Sequence[str], some: Callable[..., Iterable[Any]], longest: int) -> list[tuple[str, Any]]:
    return [(", ".join(each), each) for count in range(1, longest + 1) for each in some(axes, count)]


def _field(kind: type[w.Widget], name: str, **more: Any) -> Any:
    return kind(description=name, style={"description_width": "initial"}, layout=_wide(), **more)


def _amount(name: str, example: str) -> Any:
    return _field(w.Text, name, placeholder=example, continuous_update=False)  # sent as a whole before Check is pressed


class PuzzleForm(Form):
    """The form of a puzzle: the task, the explorer once opened, and the score of its plan."""

    def __init__(self, puzzle: Puzzle):
        self._puzzle, self._room, self._warned = puzzle, w.VBox(layout=_layout()), False
        self._opening = _button("Open the explorer", "on the plan to begin with", lambda: self.explorer)
        self._opening.layout = w.Layout(width="auto", align_self="flex-start")  # its own, since it is hidden later

        def solution() -> Displayed:
            warned, self._warned = self._warned, True
            return puzzle.reveal(give_up=warned)

        super().__init__(
            puzzle,
            [self._opening, self._room],
            Score_this_plan=("ask the compiler, and compare with par", puzzle.answer),
            Show_the_solution=("afterwards there are no stars", solution),
        )

    @property
    def explorer(self) -> Any:
        """The explorer, opened on first use."""
        if not self._room.children:
            asked = self._puzzle
            self._room.children = (explore(asked.program, plan=asked.start, target=asked.target, level=asked.level),)
            self._opening.layout.display = "none"
        return self._room.children[0]
