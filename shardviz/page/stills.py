"""What a saved notebook shows in place of an explorer: its latest state, as HTML that every sanitizer keeps.

An explorer puts out two things: itself, and below it the still, which a page that is alive hides. A host that knows no
widgets, or has no kernel, shows the still: GitHub, nbviewer, nbconvert, a notebook that nobody trusts. (In one output
with the widget, it would be shown by none of them whose notebook has the widget's state; and it could not be changed
without the widget being drawn anew.) It is brought up to date when the explorer has rested for a moment; where nobody
looks on, as in nbconvert, after each cell.

A page that was loaded anew knows no more which output was whose: JupyterLab then drops what is said to it. So a still
has a number, and `Explorer.stilled` is that of the newest. Where the one in the notebook is older the page asks for the
`newest` and puts it there itself; where it cannot, it says that it is older. See `static/copies.js`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from shardviz.explorer.explorer import ExplorerState
from shardviz.page.delivered import Delivered, is_watched, shell
from shardviz.paint import text
from shardviz.paint.html import html_of
from shardviz.view.explored import still

VIEW = "application/vnd.jupyter.widget-view+json"
REST = 1.0
"""Seconds without a change after which the still is brought up to date."""

_STYLE = (
    # JupyterLab and VS Code draw it before the page that hides it has come
    "<style>@keyframes shardviz-late{from{max-height:0;overflow:hidden;opacity:0}}"
    ":is(.lm-Widget,[data-vscode-theme-kind]) [data-shardviz-still]{animation:shardviz-late 2s step-end}"
    # where JupyterLab has no explorer to show above it, it has words of its own ("model not found"), in no element
    ".jp-OutputArea-child:has(>.jupyter-widgets):not(:has(>.jupyter-widgets>*))"
    ":has(+.jp-OutputArea-child [data-shardviz-still]){display:none}</style>"
)


def still_html(state: ExplorerState) -> str:
    return html_of(still(state.now))


def found_by(html: str, model_id: str, number: int = 0) -> str:
    """A still in an element by which the page of its model finds it, and sees how old it is."""
    return f'<div data-shardviz-still="{model_id}" data-shardviz-at="{number}">{_STYLE}{html}</div>'


class Stills:
    """The stills of an explorer in the notebook's outputs."""

    def __init__(self, widget: Delivered, state: ExplorerState):
        self._widget, self._state = widget, state
        self._shown: list[Any] = []  # IPython's handles of the outputs
        self._last: dict[str, str] = {}
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def show(self) -> None:
        """Puts the explorer out, and its still below it."""
        from IPython.display import display

        kernel, comm = shell(), self._widget.comm
        if kernel is None or comm is None:  # a terminal, or a widget that was closed
            display(self._bundle(), raw=True)
            return
        display({VIEW: {"version_major": 2, "version_minor": 0, "model_id": comm.comm_id}}, raw=True)
        if self._shown:
            self.update()
        self._last = self._bundle()
        self._shown.append(display(self._found(self._last), raw=True, display_id=True))
        if len(self._shown) > 1:
            return
        if is_watched():
            loop = asyncio.get_running_loop()
            self._state.subscribe(lambda _: self._soon(loop))
        else:
            kernel.events.register("post_run_cell", lambda _: self.update())

    def _soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Something has changed, in whatever thread."""

        def later() -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(REST, self.update)

        with contextlib.suppress(RuntimeError):  # the kernel ends
            loop.call_soon_threadsafe(later)

    def update(self) -> None:
        """Brings the outputs up to date, if anything is another than it was."""
        now = self._bundle()
        if now != self._last:
            self._last = now
            self._number += 1
            for handle in self._shown:
                handle.update(self._found(now), raw=True)
            self._widget.stilled = self._number

    def newest(self) -> dict[str, Any] | None:
        """The still that was last put out, with its number, for a page to put into its notebook; None before that."""
        return {"number": self._number, "data": self._found(self._last)} if self._shown else None

    def _bundle(self) -> dict[str, str]:
        return {"text/plain": text(self._state), "text/html": still_html(self._state)}

    def _found(self, bundle: dict[str, str]) -> dict[str, str]:
        comm = self._widget.comm
        if comm is None:
            return bundle
        return bundle | {"text/html": found_by(bundle["text/html"], comm.comm_id, self._number)}
