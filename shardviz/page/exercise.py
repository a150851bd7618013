"""An exercise as a form: fields for what one expects, a button that has the compiler say what is so, and the result.

The fields are ipywidgets' own, each with its label, so that Tab, the arrows and a screen reader go through them. The
form answers by `exercise.answer` and `exercise.reveal`, as a person would in Python: `exercise.result` is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from html import escape
from typing import Any

import anywidget
import ipywidgets as w

from shardviz.errors import ShardvizError
from shardviz.notation import Spec
from shardviz.records.collectives import KINDS
from shardviz.study.exercise import EQUAL, Exercise
from shardviz.visible import paints

_ROWS = 3  # of collectives, at first
_MOST_OUTPUTS = 12
_WHOLE = "whole"
_WIDE = w.Layout(width="auto", min_width="12em")


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

    def __init__(self, asked: Exercise, children: list[w.Widget]):
        super().__init__([*children, _Keys()])
        self.add_class("shardviz-exercise")
        self._asked = asked

    def __repr__(self) -> str:
        return self._asked.text()


@paints("form", Exercise)
def exercise_form(asked: Exercise) -> ExerciseForm:
    """The form of an exercise.

    Args:
        asked: the exercise; its `result` is set when the button is pressed.
    """
    fields, read = {"outputs": _outputs, "collectives": _collectives, "cheaper": _cheaper}[asked.ask](asked)
    status, result = w.HTML(), w.HTML()
    button = w.Button(description="Reveal", tooltip="ask the compiler, and grade the answer", button_style="primary")
    give_up = w.Button(description="Show the answer", tooltip="without an answer, for no points")

    def reveal(answer: bool) -> None:
        status.value, result.value = _said("asking the compiler …"), ""
        button.disabled = give_up.disabled = True
        try:
            if answer:
                asked.answer(read())
            result.value = asked.reveal(give_up=not answer).html()
            status.value = ""
        except ShardvizError as error:
            status.value = _said(str(error), role="alert")
        finally:
            button.disabled = give_up.disabled = False

    button.on_click(lambda _: reveal(True))
    give_up.on_click(lambda _: reveal(False))
    return ExerciseForm(asked, [w.HTML(asked.html()), *fields, w.HBox([button, give_up]), status, result])


def _said(text: str, role: str = "status") -> str:
    return f'<div role="{role}" style="white-space:pre-wrap">{escape(text)}</div>'


Fields = tuple[list[w.Widget], Callable[[], Any]]
"""The fields, and what reads an answer from them."""


def _outputs(asked: Exercise) -> Fields:
    """A list of axes for each dimension of each output."""
    arrays = {o.name: o for o in asked.program.outputs(asked.plan)}
    names = asked.outputs[:_MOST_OUTPUTS]
    options = [(_WHOLE, ()), *((", ".join(some), some) for some in _ordered(asked.plan.mesh.names))]
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


def _ordered(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Every choice of one or more axes, in every order, the short ones first; of many axes those of up to two."""
    longest = len(names) if len(names) < 4 else 2
    return [some for count in range(1, longest + 1) for some in itertools.permutations(names, count)]


def _collectives(asked: Exercise) -> Fields:
    """Rows of kind, axes and bytes, and a button for one more."""
    axes = [tuple(some) for n in range(1, len(asked.plan.mesh.names) + 1) for some in _some(asked.plan.mesh.names, n)]
    rows = w.VBox()

    def add(*_: Any) -> None:
        number = len(rows.children) + 1
        kind = w.Dropdown(options=["none", *KINDS], description=f"collective {number}", style=_LONG, layout=_WIDE)
        over = w.Dropdown(
            options=[(", ".join(some), some) for some in axes], description="over", style=_LONG, layout=_WIDE
        )
        size = w.Text(
            placeholder="16.8 MB, may be left out",
            description="bytes",
            continuous_update=False,  # said as a whole, before the click on Reveal: a page holds back what is typed on
            style=_LONG,
            layout=_WIDE,
        )
        rows.children = (*rows.children, w.HBox([kind, over, size], layout=w.Layout(flex_flow="row wrap")))

    for _ in range(_ROWS):
        add()
    more = w.Button(description="One more", tooltip="a row for one more kind of collective")
    more.on_click(add)

    def read() -> list[Any]:
        fields = [tuple(field.value for field in row.children) for row in rows.children]
        return [(kind, over, size.strip() or None) for kind, over, size in fields if kind != "none"]

    return [rows, more], read


def _some(names: tuple[str, ...], count: int) -> list[tuple[str, ...]]:
    return list(itertools.combinations(names, count))


def _cheaper(asked: Exercise) -> Fields:
    choice = w.RadioButtons(options=[*asked.names, EQUAL], value=None, description="cheaper is", style=_LONG)

    def read() -> str:
        if choice.value is None:
            raise ShardvizError("choose a plan first")
        return choice.value

    return [choice], read
