"""The form of an exercise or a puzzle: fields or the explorer, a button that asks the compiler, and the result.

The fields are labelled ipywidgets, so Tab, arrow keys and screen readers work. The form calls `answer` and `reveal` as
a user would in Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as w

from shardviz.display import is_watched, paints, shell
from shardviz.errors import ShardvizError
from shardviz.lessons.exercises import Exercise, Field
from shardviz.lessons.puzzles import Puzzle
from shardviz.page.opening import explore
from shardviz.page.stills import VIEW


@cache
def _layout(**look: str) -> w.Layout:
    """Return a layout, shared by widgets and made at first use, because each layout is saved with the notebook."""
    return w.Layout(**look)


_wide = partial(_layout, width="auto", min_width="12em", align_self="flex-start")


class _Keys(anywidget.AnyWidget):
    """An invisible widget with the form's keyboard behaviour."""

    _esm = Path(__file__).with_name("static") / "form" / "keys.js"


class Form(w.VBox):
    """The question, widgets for the answer, and a button for each action; a button's function returns the result as
    HTML. The form's plain text is the question, which a saved notebook shows without a kernel."""

    _ipython_display_ = None  # ipywidgets 7, which Colab has, would display it in its own way

    def __init__(self, asked: Exercise | Puzzle, widgets: list[w.Widget], *actions: tuple[str, str, Callable[[], str]]):
        self._asked, self._status, self._result = asked, w.HTML(layout=_layout()), w.HTML(layout=_layout())
        self._result.add_class("shardviz-result")
        self._buttons = []
        for name, tip, html in actions:
            button = w.Button(description=name, tooltip=tip, layout=_wide())
            button.on_click(lambda _, html=html: self._press(html))
            self._buttons.append(button)
        self._buttons[0].button_style = "primary"
        buttons = w.HBox(self._buttons, layout=_layout())
        question, keys = w.HTML(asked.html(), layout=_layout()), _Keys(layout=_layout())
        super().__init__([question, *widgets, buttons, self._status, self._result, keys], layout=_layout())
        self.add_class("shardviz-exercise")

    def _press(self, html: Callable[[], str]) -> None:
        self._status.value, self._result.value = _alert("asking the compiler …"), ""
        for button in self._buttons:
            button.disabled = True
        try:
            self._result.value = html()
            self._status.value = ""
        except ShardvizError as error:
            self._status.value = _alert(str(error), role="alert")
        finally:
            for button in self._buttons:
                button.disabled = False

    def __repr__(self) -> str:
        return self._asked.text()

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """Return the full text for hosts without a kernel (ipywidgets shortens it), and anywidget's metadata, which
        Colab needs."""
        _, metadata = self.children[-1]._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {VIEW: view, "text/plain": self._asked.text()}, metadata


def _alert(text: str, role: str = "status") -> str:
    return f'<div role="{role}" style="white-space:pre-wrap">{escape(text)}</div>'


def _is_kept() -> bool:
    """Return whether the notebook runs without a user who could press a button, as in nbconvert; the question is then
    saved."""
    return shell() is not None and not is_watched() and not any(name.startswith("VOILA_") for name in os.environ)


@paints("form", Exercise)
@paints("form", Puzzle)
def form_of(asked: Exercise | Puzzle) -> Any:
    """Return the form of a question, which sets its `result`; the question itself if no user can fill the form in."""
    if _is_kept():
        return asked
    return PuzzleForm(asked) if isinstance(asked, Puzzle) else _exercise_form(asked)


def _exercise_form(asked: Exercise) -> Form:
    rows = w.VBox([_row(fields) for fields in asked.fields()], layout=_layout())
    below: list[Any] = []

    def add(_: Any) -> None:
        rows.children = (*rows.children, _row(asked.fields(len(rows.children) + 1)[-1]))

    def check() -> str:
        answer = [tuple(field.value for field in row.children) for row in rows.children]
        values = [value for row in answer for value in row]
        if values and all(value in (None, "") for value in values):
            example = asked.fields()[0][0].example
            raise ShardvizError(f"fill in a field first, such as {example!r}" if example else "choose a plan first")
        return asked.answer(asked.filled(answer)).reveal().html()

    if asked.grows:
        below.append(w.Button(description="One more", tooltip="a row for one more kind of collective", layout=_wide()))
        below[0].on_click(add)
    if (left := len(asked.items) - len(rows.children)) > 0:
        words = f"{left} more outputs: answer for them in Python, exercise.answer({{...}})"
        below.append(w.HTML(_alert(words)))
    return Form(
        asked,
        [rows, *below],
        ("Check", "ask the compiler, and grade the answer", check),
        (
            "Show the answer",
            "what is right, and why; afterwards there are no points",
            lambda: asked.reveal(give_up=True).html(),
        ),
    )


def _row(fields: tuple[Field, ...]) -> w.Box:
    """Return the widgets of a row; the text of an amount is sent as a whole before the click on Check."""
    widgets = []
    for field in fields:
        look = {"description": field.name, "style": {"description_width": "initial"}, "layout": _wide()}
        if not field.choices:
            widgets.append(w.Text(placeholder=field.example, continuous_update=False, **look))
        elif field.chosen is None:
            widgets.append(w.RadioButtons(options=field.choices, value=None, **look))
        else:
            widgets.append(w.Dropdown(options=field.choices, value=field.chosen, **look))
    return w.HBox(widgets, layout=_layout(flex_flow="row wrap"))


class PuzzleForm(Form):
    """The form of a puzzle: the task, the explorer once opened, and the score of its plan."""

    def __init__(self, asked: Puzzle):
        self._room, self._warned = w.VBox(layout=_layout()), False
        here = w.Layout(width="auto", align_self="flex-start")
        self._opening = w.Button(description="Open the explorer", tooltip="on the plan to begin with", layout=here)
        self._opening.on_click(lambda _: self.explorer)

        def solution() -> str:
            warned, self._warned = self._warned, True
            return asked.reveal(give_up=warned).html()

        super().__init__(
            asked,
            [self._opening, self._room],
            ("Score this plan", "ask the compiler, and compare with par", lambda: asked.answer().html()),
            ("Show the solution", "afterwards there are no stars", solution),
        )

    @property
    def explorer(self) -> Any:
        """The explorer, opened on first use."""
        if not self._room.children:
            asked: Any = self._asked
            self._room.children = (explore(asked.program, plan=asked.start, target=asked.target, level=asked.level),)
            self._opening.layout.display = "none"
        return self._room.children[0]
