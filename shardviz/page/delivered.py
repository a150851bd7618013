"""A widget whose code is not saved with it: the page gets it from the kernel, notebooks keep what loads it.

A notebook saves a widget's state. anywidget has the code in it, here some 170 kB for each explorer; so it is no part of
the state: the page finds it in the trait `_page` as long as it has not read it, or asks for it by a message.
"""

from __future__ import annotations

import sys
from typing import Any

import anywidget
import traitlets

from shardviz.page import bundle


class Delivered(anywidget.AnyWidget):
    """A widget whose page is delivered by the kernel (`static/start.js`); `stilled` is the number of the newest still
    below it."""

    _esm = traitlets.Unicode().tag(sync=True)
    _page = traitlets.Unicode().tag(sync=True)
    stilled = traitlets.Int(0).tag(sync=True)

    def __init__(self, **traits: Any):
        super().__init__(_esm=bundle.start(), **traits)
        self.on_msg(self._on_message)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """What is sent: with all of the state also the page, but where nobody looks on, who would save it as it is."""
        names = frozenset(key) if isinstance(key, set) else key  # another thread's answer may add to it meanwhile
        state = super().get_state(names, drop_defaults)
        opening = self.comm is None
        if key is None and (not opening or is_watched()):
            state["_page"] = bundle.page()
        return state

    def _on_message(self, _: Any, message: Any, __: Any) -> None:
        """The page asks for something, such as its code: the state that it was restored from had none."""
        what = message["ask"] if isinstance(message, dict) and message.keys() == {"ask"} else None
        answer = self.asked(what) if isinstance(what, str) else None
        if answer is not None:
            self.send(answer)

    def asked(self, what: str) -> dict[str, Any] | None:
        """What the page is answered that asks for something by name; None for what there is not."""
        return {"page": bundle.page()} if what == "page" else None


def shell() -> Any:
    """The IPython of a Jupyter kernel; None where there is no kernel."""
    ipython = sys.modules.get("IPython")
    interactive = None if ipython is None else ipython.get_ipython()
    return interactive if hasattr(interactive, "kernel") else None


def is_watched() -> bool:
    """Whether the cell that runs was sent by somebody who draws: JupyterLab, Notebook and VS Code say more of a cell
    than its text, and Colab's kernel serves Colab's page alone; what runs a notebook without a page (nbconvert, nbval,
    papermill, Voila) says no more."""
    if shell() is not None and "google.colab" in sys.modules:
        return True
    try:
        return bool(shell().kernel.get_parent("shell")["metadata"])
    except (AttributeError, KeyError, TypeError):  # no kernel, or one that knows no such thing
        return False
