"""An exercise or a puzzle as a form: fields or the explorer, a button that has the compiler answer, and the result.

The fields are ipywidgets' own, each with its label, so that Tab, the arrows and a screen reader go through them. The
form answers by `exercise.answer` and `exercise.reveal`, as a person would in Python: `exercise.result` is the same.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from html import escape
from typing import Any

import anywidget
import ipywidgets as w

from shardviz.display import paints
from shardviz.errors import ShardvizError
from shardviz.notation import Spec
from shardviz.page.delivered import is_watched, shell
from shardviz.page.opening import explore
from shardviz.page.stills import VIEW
from shardviz.records.collectives import KINDS
from shardviz.study.exercise import EQUAL, KEPT, Exercise
from shardviz.study.puzzle import Puzzle

_ROWS = 3  # of collectives, at first
_MOST_OUTPUTS = 12
_WIDE = w.Layout(width="auto", min_width="12em", align_self="flex-start")
_PLAIN, _ROW = w.Layout(), w.Layout(flex_flow="row wrap")
"""One layout for many: each would be saved with the notebook."""


class _Keys(anywidget.AnyWidget):
    """Nothing to see: what is typed in the form around it is no shortcut of the notebook's, as `a` (a cell above)."""

    _esm = """
    const stop = (event) => event.stopPropagation();
    export default { render({ el }) {
      const timer = setInterval(() => {
        const form = el.closest(".shardviz-exercise");
        if (!form) return;
        clearInterval(timer);
        form.addEventListener("keydown", stop);
      }, 50);
      return () => clearInterval(timer);
    } };
    """


class ExerciseForm(w.VBox):
    """The form; in plain text it is the question, which a saved notebook shows where no kernel is."""

    def __init__(self, asked: Any, children: list[w.Widget]):
        super().__init__([*children, _Keys(layout=_PLAIN)], layout=_PLAIN)
        self.add_class("shardviz-exercise")
        self._asked = asked

    def __repr__(self) -> str:
        return self._asked.text()

    _ipython_display_ = None  # ipywidgets 7, which Colab has, would display it in its own way

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """The whole text, which ipywidgets cuts short, for GitHub and whoever has no kernel. And, as anywidget says of
        its own widgets: those of Colab are not enough."""
        _, metadata = self.children[-1]._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {VIEW: view, "text/plain": self._asked.text()}, metadata


def _is_kept() -> bool:
    """Whether a notebook runs for nobody who could press a button, as in nbconvert: it then keeps the question."""
    return shell() is not None and not is_watched() and not any(name.startswith("VOILA_") for name in os.environ)


@paints("form", Exercise)
def exercise_form(asked: Exercise) -> ExerciseForm | Exercise:
    """The form of an exercise, whose `result` its button sets; the exercise itself where nobody could fill it in."""
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
        ("Reveal", "ask the compiler, and grade the answer", lambda: reveal(True)),
        ("Show the answer", "without an answer, for no points", lambda: reveal(False)),
    )
    return ExerciseForm(asked, [w.HTML(asked.html(), layout=_PLAIN), *fields, buttons, *texts])


@paints("form", Puzzle)
def puzzle_form(asked: Puzzle) -> PuzzleForm | Puzzle:
    """The form of a puzzle; the puzzle itself where nobody could fill it in."""
    return asked if _is_kept() else PuzzleForm(asked)


class PuzzleForm(ExerciseForm):
    """The form of a puzzle: the task, the explorer, once it is opened, and the score of the plan that it has."""

    def __init__(self, asked: Puzzle):
        self._room = w.VBox(layout=_PLAIN)
        buttons, texts = _buttons(
            ("Score this plan", "ask the compiler, and compare with par", lambda: asked.answer().html()),
            ("Show the solution", "after a try", lambda: asked.reveal().html()),
        )
        here = w.Layout(width="auto", align_self="flex-start")
        opening = w.Button(description="Open the explorer", tooltip="on the plan to begin with", layout=here)
        opening.on_click(lambda _: self.explorer)
        self._opening = opening
        super().__init__(asked, [w.HTML(asked.html(), layout=_PLAIN), opening, self._room, buttons, *texts])

    @property
    def explorer(self) -> Any:
        """The explorer; the first time that it is wanted it is opened."""
        if not self._room.children:
            asked = self._asked
            self._room.children = (explore(asked.program, plan=asked.start, target=asked.target, level=asked.level),)
            self._opening.layout.display = "none"
        return self._room.children[0]


def _buttons(*each: tuple[str, str, Callable[[], str]]) -> tuple[w.HBox, list[w.HTML]]:
    """Buttons that fill a result, and what they fill: the status and the result; errors are said in the status."""
    status, result = w.HTML(layout=_PLAIN), w.HTML(layout=_PLAIN)
    buttons = [w.Button(description=name, tooltip=tip, layout=_WIDE) for name, tip, _ in each]
    buttons[0].button_style = "primary"

    def press(html: Callable[[], str]) -> None:
        status.value, result.value = _said("asking the compiler …"), ""
        for button in buttons:
            button.disabled = True
        try:
            result.value = html()
            status.value = ""
        except ShardvizError as error:
            status.value = _said(str(error), role="alert")
        finally:
            for button in buttons:
                button.disabled = False

    for button, (_, _, html) in zip(buttons, each, strict=True):
        button.on_click(lambda _, html=html: press(html))
    return w.HBox(buttons, layout=_PLAIN), [status, result]


def _said(text: str, role: str = "status") -> str:
    return f'<div role="{role}" style="white-space:pre-wrap">{escape(text)}</div>'


Fields = tuple[list[w.Widget], Callable[[], Any]]
"""The fields, and what reads an answer from them."""


def _outputs(asked: Exercise) -> Fields:
    """A list of axes for each dimension of each output."""
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
                layout=_WIDE,
                style=_LONG,
            )
            for d, size in enumerate(arrays[name].shape)
        ]
        for name in names
    }
    left = len(asked.outputs) - len(names)
    more = [w.HTML(_said(f"{left} more outputs: answer for them in Python, exercise.answer({{...}})"))] if left else []
    read = lambda: {name: Spec(tuple(d.value or () for d in dims)) for name, dims in chosen.items()}  # noqa: E731
    return [*itertools.chain(*chosen.values()), *more], read


_LONG = {"description_width": "initial"}


def _collectives(asked: Exercise) -> Fields:
    """Rows of kind, axes and bytes, and a button for one more."""
    names = asked.plan.mesh.names
    axes = [some for n in range(1, len(names) + 1) for some in itertools.combinations(names, n)]
    rows = w.VBox(layout=_PLAIN)

    def add(*_: Any) -> None:
        number = len(rows.children) + 1
        kind = w.Dropdown(options=["none", *KINDS], description=f"collective {number}", style=_LONG, layout=_WIDE)
        options = [(", ".join(some), some) for some in axes]
        over = w.Dropdown(options=options, description="over", style=_LONG, layout=_WIDE)
        size = _amount("bytes", "16.8 MB, may be left out")
        rows.children = (*rows.children, w.HBox([kind, over, size], layout=_ROW))

    for _ in range(_ROWS):
        add()
    more = w.Button(description="One more", tooltip="a row for one more kind of collective", layout=_WIDE)
    more.on_click(add)

    def read() -> list[Any]:
        fields = [tuple(field.value for field in row.children) for row in rows.children]
        return [(kind, over, size.strip() or None) for kind, over, size in fields if kind != "none"]

    return [rows, more], read


def _cheaper(asked: Exercise) -> Fields:
    plans = [*asked.names, EQUAL]
    choice = w.RadioButtons(options=plans, value=None, description="cheaper is", style=_LONG, layout=_WIDE)

    def read() -> str:
        if choice.value is None:
            raise ShardvizError("choose a plan first")
        return choice.value

    return [choice], read


def _memory(asked: Exercise) -> Fields:
    """A field of bytes for each argument, and for what is kept for the backward pass."""
    names = [*dict.fromkeys(a.name.split("[")[0] for a in asked.program.arguments)]
    names += [KEPT] if asked.program.propagate(asked.plan).residual_bytes else []
    sizes = {name: _amount(name, "16.8 MB") for name in names}

    def read() -> dict[str, str]:
        return {name: field.value for name, field in sizes.items() if field.value.strip()}

    return list(sizes.values()), read


def _amount(name: str, example: str) -> w.Text:
    """An amount; it is said as a whole, before the click on Reveal: a page holds back what is typed on."""
    return w.Text(placeholder=example, description=name, continuous_update=False, style=_LONG, layout=_WIDE)
