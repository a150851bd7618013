"""The form of an exercise or a puzzle: the question, fields or an explorer, two buttons, and the graded answer below.

A form calls `answer` and `reveal` as a user would in Python. The fields are labelled ipywidgets, so Tab, arrow keys and
screen readers work. Enter in a field presses the first button.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from functools import cache, partial
from html import escape
from typing import Any

import anywidget
import ipywidgets as w

from shardviz.display import Displayed, is_watched, paints, shell
from shardviz.errors import ShardvizError
from shardviz.lessons.exercises import EQUAL, KEPT, Exercise
from shardviz.lessons.puzzles import Puzzle
from shardviz.lessons.questions import Question
from shardviz.notation import Spec
from shardviz.page.bundle import STATIC
from shardviz.page.opening import explore
from shardviz.page.stills import VIEW
from shardviz.records.collectives import KINDS

_Act = Callable[[], Displayed]
_NONE = "none"
_ROWS = 3  # the first rows for collectives, to which others can be added


@paints("form", Question)
def form_of(question: Question) -> Any:
    """Return the form of a question, which sets its `result`. Return the question if it has no form, or if the notebook
    runs without a user who could press a button, as in nbconvert; the question is then saved."""
    kept = shell() is not None and not is_watched() and not any(name.startswith("VOILA_") for name in os.environ)
    form = {Exercise: ExerciseForm, Puzzle: PuzzleForm}.get(type(question))
    return question if kept or form is None else form(question)


class _Keys(anywidget.AnyWidget):
    """An invisible widget with the form's keyboard behaviour. Its style lets tables wrap in a narrow notebook."""

    _css = ".shardviz-exercise .widget-html-content {min-width: 0}"
    _esm = STATIC / "form" / "keys.js"


class Form(w.VBox):
    """A form. Its plain text is that of its question, which a saved notebook shows without a kernel.

    Args:
        question: the question.
        check: the button that grades the answer: its name, its tip, and the function that returns the result.
        show: the button that shows the right answer: its name and its tip.
        between: the widgets between the question's text and the buttons.
    """

    _ipython_display_ = None  # ipywidgets 7, which Colab has, would display it in its own way

    def __init__(self, question: Question, check: tuple[str, str, _Act], show: tuple[str, str], *between: w.Widget):
        self.question = question
        self._status, self._result = w.HTML(layout=_layout()), w.HTML(layout=_layout())
        self._result.add_class("shardviz-result")
        actions = check, (*show, partial(question.reveal, give_up=True))
        self._buttons = [_button(name, tip, partial(self._press, act)) for name, tip, act in actions]
        self._buttons[0].button_style = "primary"
        text, keys = w.HTML(question.html(), layout=_layout()), _Keys(layout=_layout())
        buttons = w.HBox(self._buttons, layout=_layout())
        super().__init__([text, *between, buttons, self._status, self._result, keys], layout=_layout())
        self.add_class("shardviz-exercise")

    def _press(self, act: _Act) -> None:
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
        return self.question.text()

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """Return the full text for hosts without a kernel (ipywidgets shortens it), and anywidget's metadata, which
        Colab needs."""
        _, metadata = self.children[-1]._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {VIEW: view, "text/plain": self.question.text()}, metadata


class ExerciseForm(Form):
    """A form with a row of fields for each item, or for each collective."""

    def __init__(self, exercise: Exercise):
        self.exercise, self.items = exercise, [*exercise.items]
        if exercise.ask == "memory" and exercise.program.propagate(exercise.plan).residual_bytes:
            self.items.append(KEPT)
        self._rows = w.VBox([self._row(item) for item in self.items or range(_ROWS)], layout=_layout())
        more = [] if self.items else [_button("One more", "a further row", self._add)]
        check = "Check", "ask the compiler, and grade the answer", self._check
        super().__init__(exercise, check, ("Show the answer", "afterwards there are no points"), self._rows, *more)

    def _check(self) -> Displayed:
        rows = [tuple(field.value for field in row.children) for row in self._rows.children]
        if not self.items:
            return self.exercise.answer([row for row in rows if row[0] != _NONE])
        values = [Spec(row) if self.exercise.ask == "outputs" else row[0] for row in rows]
        answer = {item: value for item, value in zip(self.items, values, strict=True) if value not in (None, "")}
        if not answer:
            example = self.exercise.words.get("amount")
            raise ShardvizError(f"fill in a field first, such as {example!r}" if example else "choose a plan first")
        return self.exercise.answer(answer)

    def _add(self) -> None:
        self._rows.children = (*self._rows.children, self._row(len(self._rows.children)))

    def _row(self, item: Any) -> w.Box:
        """Return the fields of an item, or of a collective by its number, by the kind of question."""
        exercise, names = self.exercise, self.exercise.mesh.names
        if exercise.ask == "outputs":
            (shape,) = (output.shape for output in exercise.program.outputs(exercise.plan) if output.name == item)
            axes = [("whole", ()), *_labelled(itertools.permutations, names, len(names) if len(names) < 4 else 2)]
            heads = [f"{item} dim {d} ({size:,}) is sharded along" for d, size in enumerate(shape)]
            fields = [w.Dropdown(options=axes, value=(), **_look(head)) for head in heads]
        elif exercise.ask == "collectives":
            axes = _labelled(itertools.combinations, names, len(names))
            kind = w.Dropdown(options=(_NONE, *KINDS), value=_NONE, **_look(f"collective {item + 1}"))
            over = w.Dropdown(options=axes, value=axes[0][1], **_look("over"))
            fields = [kind, over, _amount("bytes", "may be left out")]
        elif exercise.ask == "cheaper":
            fields = [w.RadioButtons(options=(*exercise.plans, EQUAL), value=None, **_look("cheaper is"))]
        else:
            example = "may be left out" if item == KEPT else exercise.words["amount"]
            longest = max(map(len, self.items))  # labels that stand below each other have one width
            width = f"{0.8 * longest:.1f}em" if len(self.items) > 1 else "initial"
            fields = [_amount(item, example, width)]
        return w.HBox(fields, layout=_layout(flex_flow="row wrap"))


class PuzzleForm(Form):
    """A form with an explorer, which opens on demand."""

    def __init__(self, puzzle: Puzzle):
        self.puzzle = puzzle
        self._open = _button("Open the explorer", "on the plan to begin with", lambda: self.opened)
        self._open.layout = w.Layout(width="auto", align_self="flex-start")  # its own, since it is hidden later
        self._place = w.VBox(layout=_layout())
        check = "Score this plan", "ask the compiler, and compare with par", self._check
        super().__init__(puzzle, check, ("Show the solution", "afterwards there are no stars"), self._open, self._place)

    @property
    def opened(self) -> Any:
        """The explorer, which opens at first use. It partitions nothing, so its numbers are the same whether or not
        the target's compiler is installed, as the score is."""
        if not self._place.children:
            level = "compiled" if self.puzzle.level == "compiled" else "propagated"
            about = {"target": self.puzzle.target, "level": level}
            self._place.children = (explore(self.puzzle.program, plan=self.puzzle.start, **about),)
            self._open.layout.display = "none"
        return self._place.children[0]

    def _check(self) -> Displayed:
        if not self._place.children:
            raise ShardvizError("open the explorer and change the plan first")
        return self.puzzle.answer(self.opened.state.plan)


@cache
def _layout(**look: str) -> w.Layout:
    """Return a layout, shared by widgets and made at first use, because each layout is saved with the notebook."""
    return w.Layout(**look)


_wide = partial(_layout, width="auto", min_width="12em", align_self="flex-start")


def _look(name: str, width: str = "initial") -> dict[str, Any]:
    return {"description": name, "style": {"description_width": width}, "layout": _wide()}


def _amount(name: str, example: str, width: str = "initial") -> w.Text:
    """Return a field for an amount. Its text is sent as a whole before a button is pressed."""
    return w.Text(placeholder=example, continuous_update=False, **_look(name, width))


def _button(name: str, tip: str, press: Callable[[], Any]) -> w.Button:
    button = w.Button(description=name, tooltip=tip, layout=_wide())
    button.on_click(lambda _: press())
    return button


def _alert(text: str, role: str = "status") -> str:
    return f'<div role="{role}" style="white-space:pre-wrap">{escape(text)}</div>'


def _labelled(some: Callable[..., Iterable[Any]], axes: Any, longest: int) -> list[tuple[str, Any]]:
    return [(", ".join(each), each) for count in range(1, longest + 1) for each in some(axes, count)]
