"""Other views of one explorer, each with a place and a selection of its own.

What the first view on a page shows are traits, which a notebook saves. Another view of the same explorer (its output
shown once more, JupyterLab's *Create New View for Output*) says by a message where it is and what it looks at, and is
sent by messages what differs for it: nothing of that is saved, and the first view does not move.

A page may go without a word. So a first view, when it comes, has the others forgotten and called: who still lives
answers with where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, Protocol

import msgspec

from shardviz.errors import ShardvizError
from shardviz.session.explorer import ExplorerState
from shardviz.session.selection import Selection
from shardviz.widgets.door import Door, Look

OWN = frozenset({"tab", "selection", "query", "reading", "device"})
"""What each view has for itself, as `View.after` names it."""

_MOST = 8
"""Asides that are served; of more, those that spoke last."""


class View(Protocol):
    """A trait that the page shows, as `explorer.View` has it."""

    @property
    def build(self) -> Callable[[Any], Any]: ...
    @property
    def after(self) -> set[str]: ...
    @property
    def tab(self) -> str: ...


class Whole(Protocol):
    """The explorer: what its state is, and how the page is told something."""

    state: ExplorerState

    def send(self, content: Any) -> None: ...


class _Turned:
    """An explorer or its state as another view has it: what it has for itself, and all else as it is."""

    def __init__(self, whole: object, **own: Any):
        self.__dict__.update(own, _whole=whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_whole"], name)


class _Aside:
    """A view, and what it was sent."""

    def __init__(self, look: Look, selection: Selection):
        self.look, self.selection = look, selection
        self.sent: dict[str, Any] = {"selected": look.selected}

    def explorer(self, explorer: Whole) -> Any:
        """The explorer as this view has it."""
        state = _Turned(explorer.state, selected=self.selection.name, remark=self.selection.remark)
        look, query = self.look, msgspec.to_builtins(self.look.query)
        return _Turned(explorer, state=state, tab=look.tab, query=query, reading=look.reading, device=look.device)


class Asides:
    """The views of an explorer besides the first.

    Args:
        explorer: whose they are.
        views: its `VIEWS`.
        door: checks what they say.
    """

    def __init__(self, explorer: Whole, views: Mapping[str, View], door: Door):
        self._explorer, self._door = explorer, door
        self._views = {name: view for name, view in views.items() if view.tab or view.after & OWN}
        self._all: dict[str, _Aside] = {}
        self._first = True  # whether the view that lives on the traits is there

    def hear(self, message: Any) -> bool:
        """Takes what a page says of its views: whether it was that.

        `{"look": {...}}` says where one is, `{"leave": id}` that it is closed (the first has no id), `{"look": null}`
        that a page is new. Where none is left, as when a cell is run again, the explorer rests.
        """
        if not isinstance(message, dict) or message.keys() not in ({"look"}, {"leave"}):
            return False
        if "leave" in message:
            self._first = self._first and message["leave"] != ""
            self._all.pop(str(message["leave"]), None)
            if not self._first and not self._all:
                self._explorer.state.rest()
            return True
        self._explorer.state.wake()
        if message["look"] is None:
            self._first = True
            called = bool(self._all)
            self._all.clear()
            if called:
                self._explorer.send({"aside": "", "shown": {}})
        else:
            try:
                self._look(self._door.look(message["look"]))
            except ShardvizError as error:
                self._explorer.state.refuse(error, "internal")
        return True

    def draw(self, changed: Set[str]) -> None:
        """Sends to each what is new for it after a change of the state."""
        for aside in tuple(self._all.values()):
            own = set(changed) - OWN
            if "answers" in changed:
                before, aside.selection = aside.selection, aside.selection.carried(self._explorer.state.report)
                own |= {"selection"} if aside.selection != before else set()
            self._send(aside, lambda view, own=own: bool(view.after & own))

    def _look(self, look: Look) -> None:
        """A view is there, or somewhere else than before: it gets what it has not."""
        state = self._explorer.state
        aside = self._all.pop(look.id, None) or _Aside(look, Selection())
        self._all[look.id] = aside
        for old in tuple(self._all)[:-_MOST]:
            del self._all[old]
        if look.selected != aside.selection.name:
            seen = state.now.answers.known.get(look.selected_at, state.report)
            aside.selection = Selection.of(look.selected, seen).carried(state.report)
        aside.look = look
        aside.sent["selected"] = look.selected
        self._send(aside, lambda view: True)

    def _send(self, aside: _Aside, wanted: Callable[[View], bool]) -> None:
        turned, tab = aside.explorer(self._explorer), aside.look.tab
        made = {
            name: view.build(turned) if view.tab in ("", tab) else {}
            for name, view in self._views.items()
            if wanted(view)
        }
        new = {name: value for name, value in made.items() if name not in aside.sent or aside.sent[name] != value}
        if new:
            aside.sent |= new
            self._explorer.send({"aside": aside.look.id, "shown": new})
