"""The still of an explorer: its latest state as static HTML that every sanitizer keeps, for saved notebooks.

An explorer has two outputs: the widget, and below it the still, which a live page hides. Hosts without widgets or a
kernel show the still: GitHub, nbviewer, nbconvert, an untrusted notebook. A single output would not work: hosts with
the widget's state would not show the still, and updating it would redraw the widget. The still is updated after a
moment without changes; without a watching page (nbconvert) after each cell.

After a reload JupyterLab no longer maps updates to outputs. So each still has a number, and `Explorer.stilled` is the
newest. If the notebook's still is older, the page requests the `newest` and inserts it, or marks the old still as
outdated. See `static/copies.js`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from shardviz.display import is_watched, shell
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.delivered import Delivered
from shardviz.paint import text
from shardviz.paint.html import html_of
from shardviz.view.explored import still

VIEW = "application/vnd.jupyter.widget-view+json"
REST = 1.0
"""Seconds without a change before the still is updated."""

_STYLE = (
    # JupyterLab and VS Code draw the still before the page that hides it is loaded
    "<style>@keyframes shardviz-late{from{max-height:0;overflow:hidden;opacity:0}}"
    ":is(.lm-Widget,[data-vscode-theme-kind]) [data-shardviz-still]{animation:shardviz-late 2s step-end}"
    # without the widget, JupyterLab shows its own message ("model not found") outside any element
    ".jp-OutputArea-child:has(>.jupyter-widgets):not(:has(>.jupyter-widgets>*))"
    ":has(+.jp-OutputArea-child [data-shardviz-still]){display:none}</style>"
)


def still_html(state: ExplorerState) -> str:
    return html_of(still(state.now))


def found_by(html: str, model_id: str, number: int = 0) -> str:
    """Return a still in an element that identifies its model and its number."""
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
        """Display the explorer, and its still below it."""
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
        """Schedule an update, from any thread."""

        def later() -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(REST, self.update)

        with contextlib.suppress(RuntimeError):  # the kernel ends
            loop.call_soon_threadsafe(later)

    def update(self) -> None:
        """Update the outputs if the still changed."""
        now = self._bundle()
        if now != self._last:
            self._last = now
            self._number += 1
            for handle in self._shown:
                handle.update(self._found(now), raw=True)
            self._widget.stilled = self._number

    def newest(self) -> dict[str, Any] | None:
        """Return the newest still with its number, for a page to insert; None before the first."""
        return {"number": self._number, "data": self._found(self._last)} if self._shown else None

    def _bundle(self) -> dict[str, str]:
        return {"text/plain": text(self._state), "text/html": still_html(self._state)}

    def _found(self, bundle: dict[str, str]) -> dict[str, str]:
        comm = self._widget.comm
        if comm is None:
            return bundle
        return bundle | {"text/html": found_by(bundle["text/html"], comm.comm_id, self._number)}
