"""The form of an exercise or a puzzle: fields or the explorer, a button that asks the compiler, and the result.

The fields are labelled ipywidgets, so Tab, arrow keys and screen readers work. The form calls `exercise.answer` and
`exercise.reveal` as a user would in Python.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import cache, partial
from html import escape
from typing import Any

import anywidget
import ipywidgets as w

from shardviz.display import is_watched, paints, shell
from shardviz.errors import ShardvizError
from shardviz.lessons.exercises import EQUAL, KEPT, Exercise
from shardviz.lessons.puzzles import Puzzle
from shardviz.notation import Spec
from shardviz.page.opening import explore
from shardviz.page.stills import VIEW
from shardviz.records.collectives import KINDS

_ROWS = 3  # initial rows for collectives
_MOST_OUTPUTS = 12


@cache
def _layout(**look: str) -> w.Layout:
    """Return a layout, shared by widgets and made at first use, because each layout is saved with the notebook."""
    return w.Layout(**look)


_wide = partial(_layout, width="auto", min_width="12em", align_self="flex-start")
_row = partial(_layout, flex_flow="row wrap")


class _Keys(anywidget.AnyWidget):
    """An invisible widget with the form's keyboard behaviour: typed keys do not trigger notebook shortcuts, Enter
    presses the primary button, and a new result is scrolled into view."""

    _esm = """
    const stop = (event) => event.stopPropagation();
    // In the capture phase: ipywidgets stops the key at its field.
    const submit = (event) => {
      const field = event.target.closest(".widget-text input, .widget-radio-box input");
      if (event.key !== "Enter" || event.isComposing || !field) return;
      event.preventDefault();
      field.blur(); // the field says what was typed before the button is pressed
      field.focus();
      event.currentTarget.querySelector("button.mod-primary").click();
    };
    export default { render({ el }) {
      const timer = setInterval(() => {
        const form = el.closest(".shardviz-exercise");
        if (!form) return;
        clearInterval(timer);
        form.addEventListener("keydown", submit, true);
        form.addEventListener("keydown", stop);
        const result = form.querySelector(".shardviz-result");
        const show = () => result.scrollIntoView({ block: "nearest" });
        new MutationObserver(show).observe(result, { childList: true, subtree: true });
      }, 50);
      return () => clearInterval(timer);
    } };
    """


class ExerciseForm(w.VBox):
    """The form; its plain text is the question, which a saved notebook shows without a kernel."""

    def __init__(self, asked: Any, children: list[w.Widget]):
        super().__init__([*children, _Keys(layout=_layout())], layout=_layout())
        self.add_class("shardviz-exercise")
        self._asked = asked

    def __repr__(self) -> str:
        return self._asked.text()

    _ipython_display_ = None  # ipywidgets 7, which Colab has, would display it in its own way

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """Return the full text for hosts without a kernel (ipywidgets shortens it), and anywidget's metadata, which
        Colab needs."""
        _, metadata = self.children[-1]._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {VIEW: view, "text/plain": self._asked.text()}, metadata


def _is_kept() -> bool:
    """Whether the notebook runs without a user who could press a button, as in nbconvert; the question is then
    saved."""
    return shell() is not None and not is_watched() and not any(name.startswith("VOILA_") for name in os.environ)


@paints("form", Exercise)
def exercise_form(asked: Exercise) -> ExerciseForm | Exercise:
    """Return the form of an exercise, which sets its `result`; the exercise itself if no user can fill the form in."""
    if _is_kept():
        return asked
    seconds = _amount("seconds", "66 us")
    fields, read = {
        "outputs": _outputs,
        "collectives": _collectives,
        "cheaper": _cheaper,
        "memory": _memory,
        "seconds": lambda _: ([seconds], lambda: seconds.value),
    }[asked.ask](asked)

    def reveal(answer: bool) -> str:
        if answer:
            asked.answer(read())
        return asked.reveal(give_up=not answer).html()

    buttons, texts = _buttons(
        ("Check", "ask the compiler, and grade the answer", lambda: reveal(True)),
        ("Show the answer", "what is right, and why; afterwards there are no points", lambda: reveal(False)),
    )
    return ExerciseForm(asked, [w.HTML(asked.html(), layout=_layout()), *fields, buttons, *texts])


@paints("form", Puzzle)
def puzzle_form(asked: Puzzle) -> PuzzleForm | Puzzle:
    """Return the form of a puzzle; the puzzle itself if no user can fill the form in."""
    return asked if _is_kept() else PuzzleForm(asked)


class PuzzleForm(ExerciseForm):
    """The form of a puzzle: the task, the explorer once opened, and the score of its plan."""

    def __init__(self, asked: Puzzle):
        self._room, self._warned = w.VBox(layout=_layout()), False

        def solution() -> str:
            warned, self._warned = self._warned, True
            return asked.reveal(give_up=warned).html()

        buttons, texts = _buttons(
            ("Score this plan", "ask the compiler, and compare with par", lambda: asked.answer().html()),
            ("Show the solution", "afterwards there are no stars", solution),
        )
        here = w.Layout(width="auto", align_self="flex-start")
        opening = w.Button(description="Open the explorer", tooltip="on the plan to begin with", layout=here)
        opening.on_click(lambda _: self.explorer)
        self._opening = opening
        super().__init__(asked, [w.HTML(asked.html(), layout=_layout()), opening, self._room, buttons, *texts])

    @property
    def explorer(self) -> Any:
        """The explorer, opened on first use."""
        if not self._room.children:
            asked = self._asked
            self._room.children = (explore(asked.program, plan=asked.start, target=asked.target, level=asked.level),)
            self._opening.layout.display = "none"
        return self._room.children[0]


def _buttons(*each: tuple[str, str, Callable[[], str]]) -> tuple[w.HBox, list[w.HTML]]:
    """Return buttons, and the status and result that they fill; errors appear in the status."""
    status, result = w.HTML(layout=_layout()), w.HTML(layout=_layout())
    result.add_class("shardviz-result")
    buttons = [w.Button(description=name, tooltip=tip, layout=_wide()) for name, tip, _ in each]
    buttons[0].button_style = "primary"

    def press(html: Callable[[], str]) -> None:
        status.value, result.value = _alert("asking the compiler …"), ""
        for button in buttons:
            button.disabled = True
        try:
            result.value = html()
            status.value = ""
        except ShardvizError as error:
            status.value = _alert(str(error), role="alert")
        finally:
            for button in buttons:
                button.disabled = False

    for button, (_, _, html) in zip(buttons, each, strict=True):
        button.on_click(lambda _, html=html: press(html))
    return w.HBox(buttons, layout=_layout()), [status, result]


def _alert(text: str, role: str = "status") -> str:
    return f'<div role="{role}" style="white-space:pre-wrap">{escape(text)}</div>'


Fields = tuple[list[w.Widget], Callable[[], Any]]
"""The fields, and a function that reads the answer from them."""


def _outputs(asked: Exercise) -> Fields:
    """Return a list of axes for each dimension of each output."""
    arrays = {o.name: o for o in asked.program.outputs(asked.plan)}
    names = asked.outputs[:_MOST_OUTPUTS]
    axes = asked.plan.mesh.names
    longest = len(axes) if len(axes) < 4 else 2
    some = itertools.chain(*(itertools.permutations(axes, count) for count in range(1, longest + 1)))
    options = [("whole", ()), *((", ".join(ordered), ordered) for ordered in some)]
    chosen = {
        name: [
            w.Dropdown(
                options=options,
                value=(),
                description=f"{name} dim {d} ({size:,}) is sharded along",
                layout=_wide(),
                style=_LONG,
            )
            for d, size in enumerate(arrays[name].shape)
        ]
        for name in names
    }
    left = len(asked.outputs) - len(names)
    more = [w.HTML(_alert(f"{left} more outputs: answer for them in Python, exercise.answer({{...}})"))] if left else []

    def read():
        return {name: Spec(tuple(d.value or () for d in dims)) for name, dims in chosen.items()}

    return [*itertools.chain(*chosen.values()), *more], read


_LONG = {"description_width": "initial"}


def _collectives(asked: Exercise) -> Fields:
    names = asked.plan.mesh.names
    axes = [some for n in range(1, len(names) + 1) for some in itertools.combinations(names, n)]
    rows = w.VBox(layout=_layout())

    def add(*_: Any) -> None:
        number = len(rows.children) + 1
        kind = w.Dropdown(options=["none", *KINDS], description=f"collective {number}", style=_LONG, layout=_wide())
        options = [(", ".join(some), some) for some in axes]
        over = w.Dropdown(options=options, description="over", style=_LONG, layout=_wide())
        size = _amount("bytes", "may be left out")
        rows.children = (*rows.children, w.HBox([kind, over, size], layout=_row()))

    for _ in range(_ROWS):
        add()
    more = w.Button(description="One more", tooltip="a row for one more kind of collective", layout=_wide())
    more.on_click(add)

    def read() -> list[Any]:
        fields = [tuple(field.value for field in row.children) for row in rows.children]
        return [(kind, over, size.strip() or None) for kind, over, size in fields if kind != "none"]

    return [rows, more], read


def _cheaper(asked: Exercise) -> Fields:
    plans = [*asked.names, EQUAL]
    choice = w.RadioButtons(options=plans, value=None, description="cheaper is", style=_LONG, layout=_wide())

    def read() -> str:
        if choice.value is None:
            raise ShardvizError("choose a plan first")
        return choice.value

    return [choice], read


def _memory(asked: Exercise) -> Fields:
    """Return a field of bytes for each argument, and for the activations kept for the backward pass."""
    names = [*dict.fromkeys(a.name.split("[")[0] for a in asked.program.arguments)]
    sizes = {name: _amount(name, "16.8 MB") for name in names}
    if asked.program.propagate(asked.plan).residual_bytes:
        sizes[KEPT] = _amount(KEPT, "may be left out")

    def read() -> dict[str, str]:
        answered = {name: field.value for name, field in sizes.items() if field.value.strip()}
        if not answered:
            raise ShardvizError("fill in a field first, such as '16.8 MB'")
        return answered

    return list(sizes.values()), read


def _amount(name: str, example: str) -> w.Text:
    """Return a field for an amount. Its value is sent as a whole before the click on Check."""
    return w.Text(placeholder=example, description=name, continuous_update=False, style=_LONG, layout=_wide())
