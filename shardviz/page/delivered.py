"""A widget whose code is not saved in notebooks: the page fetches it from the kernel.

anywidget puts a widget's code, here 170 kB, into its state, which notebooks save. Here the state only has a loader. The
page finds the code in the trait `_page`, or asks for it by a message.
"""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from shardviz.display import is_watched, shell
from shardviz.page import bundle


class Delivered(anywidget.AnyWidget):
    """A widget whose code the kernel delivers (`static/start.js`); `stilled` is the number of its newest still."""

    _esm = traitlets.Unicode().tag(sync=True)
    _page = traitlets.Unicode().tag(sync=True)
    stilled = traitlets.Int(0).tag(sync=True)

    _unread = False  # whether no page has read the state since the widget was opened without a page

    def __init__(self, **traits: Any):
        super().__init__(_esm=bundle.start(), **traits)
        self.on_msg(self._on_message)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the state to send. The full state includes the code if a page is watching; otherwise the code would be
        saved."""
        names = frozenset(key) if isinstance(key, set) else key  # another thread may add to the set meanwhile
        state = super().get_state(names, drop_defaults)
        if key is None:
            opening = self.comm is None
            self._unread = opening and shell() is not None and not is_watched()
            if not opening or is_watched():
                state["_page"] = bundle.page()
        return state

    def send_state(self, key: Any = None) -> None:
        """Send traits, unless no page has asked for the state: nbconvert would save them, and no page could show them
        without the code."""
        if key is None or not self._unread:
            super().send_state(key)

    def _on_message(self, _: Any, message: Any, __: Any) -> None:
        """Answer a page's request, such as for its code after a reload."""
        if self._unread:
            self.send_state()
        what = message["ask"] if isinstance(message, dict) and message.keys() == {"ask"} else None
        answer = self.asked(what) if isinstance(what, str) else None
        if answer is not None:
            self.send(answer)

    def asked(self, what: str) -> dict[str, Any] | None:
        """Return the answer to a request by name; None for an unknown name."""
        return {"page": bundle.page()} if what == "page" else None
