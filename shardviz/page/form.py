"""A form: a text, rows of fields or a widget that opens on demand, and buttons whose results are shown below.

The fields are labelled ipywidgets, so Tab, arrow keys and screen readers work. Enter in a field presses the
first button.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import ipywidgets as w

from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.page.stills import VIEW


class Field(NamedTuple):
    """A field: a choice among (label, value), which begins with `chosen`; or an amount, entered as text."""

    name: str
    choices: Sequence[tuple[str, Any]] = ()
    chosen: Any = None
    example: str = ""


@cache
def _layout(**look: str) -> w.Layout:
    """Return a layout, shared by widgets and made at first use, because each layout is saved with the notebook."""
    return w.Layout(**look)


_wide = partial(_layout, width="auto", min_width="12em", align_self="flex-start")


class _Keys(anywidget.AnyWidget):
    """An invisible widget with the form's keyboard behaviour. Its style lets tables wrap in a narrow notebook."""

    _css = ".shardviz-exercise .widget-html-content {min-width: 0}"
    _esm = Path(__file__).with_name("static") / "form" / "keys.js"


class Form(w.VBox):
    """A form. Its plain text is that of its subject, which a saved notebook shows without a kernel.

    Args:
        subject: the text.
        actions: a button's name → its tip, and the function that returns the result.
        rows: rows of fields; `values` has what is entered.
        more: returns a further row, by its number; None if there are none.
        note: a text below the rows.
        opens: the name and the tip of a button that opens `opened`, and the function that makes the widget.
    """

    _ipython_display_ = None  # ipywidgets 7, which Colab has, would display it in its own way

    def __init__(
        self,
        subject: Displayed,
        actions: Mapping[str, tuple[str, Callable[[], Displayed]]],
        rows: Sequence[Sequence[Field]] = (),
        more: Callable[[int], Sequence[Field]] | None = None,
        note: str = "",
        opens: tuple[str, str, Callable[[], w.Widget]] | None = None,
    ):
        self._subject, self._opens = subject, opens
        self._status, self._result = w.HTML(layout=_layout()), w.HTML(layout=_layout())
        self._result.add_class("shardviz-result")
        single = [len(fields[0].name) for fields in rows if len(fields) == 1 and not fields[0].choices]
        label = max(single) if len(single) > 1 else 0
        self._rows = w.VBox([_row(fields, label) for fields in rows], layout=_layout())
        self._buttons = [_button(name, tip, partial(self._press, act)) for name, (tip, act) in actions.items()]
        self._buttons[0].button_style = "primary"
        between: list[Any] = [self._rows]
        if more is not None:
            between.append(_button("One more", "a further row", lambda: self._add(more)))
        if note:
            between.append(w.HTML(_alert(note)))
        if opens is not None:
            between.insert(0, _button(*opens[:2], lambda: self.opened))
            between[0].layout = w.Layout(width="auto", align_self="flex-start")  # its own, since it is hidden later
        shown, keys = w.HTML(subject.html(), layout=_layout()), _Keys(layout=_layout())
        buttons = w.HBox(self._buttons, layout=_layout())
        super().__init__([shown, *between, buttons, self._status, self._result, keys], layout=_layout())
        self.add_class("shardviz-exercise")

    @property
    def values(self) -> list[tuple[Any, ...]]:
        """The values of each row's fields."""
        return [tuple(field.value for field in row.children) for row in self._rows.children]

    @property
    def opened(self) -> Any:
        """The widget that opens on demand, at first use."""
        if self._opens is not None and not self._rows.children:
            self._rows.children = (self._opens[2](),)
            self.children[1].layout.display = "none"
        return self._rows.children[0]

    def _add(self, more: Callable[[int], Sequence[Field]]) -> None:
        self._rows.children = (*self._rows.children, _row(more(len(self._rows.children))))

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
        return self._subject.text()

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """Return the full text for hosts without a kernel (ipywidgets shortens it), and anywidget's metadata, which
        Colab needs."""
        _, metadata = self.children[-1]._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {VIEW: view, "text/plain": self._subject.text()}, metadata


def _button(name: str, tip: str, press: Callable[[], Any]) -> w.Button:
    button = w.Button(description=name, tooltip=tip, layout=_wide())
    button.on_click(lambda _: press())
    return button


def _alert(text: str, role: str = "status") -> str:
    return f'<div role="{role}" style="white-space:pre-wrap">{escape(text)}</div>'


def _row(fields: Sequence[Field], label: int = 0) -> w.Box:
    """Return the widgets of a row, with labels of this many characters if they stand below each other. The text of an
    amount is sent as a whole before a button is pressed."""
    widgets, width = [], f"{0.8 * label:.1f}em" if label else "initial"
    for field in fields:
        look = {"description": field.name, "style": {"description_width": width}, "layout": _wide()}
        if not field.choices:
            widgets.append(w.Text(placeholder=field.example, continuous_update=False, **look))
        else:
            choice = w.RadioButtons if field.chosen is None else w.Dropdown
            widgets.append(choice(options=field.choices, value=field.chosen, **look))
    return w.HBox(widgets, layout=_layout(flex_flow="row wrap"))
