"""Long work that lets others in between, though it is no iterator: the trace of a person's function, say.

Whoever runs such work says how it pauses (`pausing`); deep inside, the work says where it can (`breathe`), and what it
waits for (`wait_for`). Where nobody has said how, it goes on.

>>> with pausing(lambda waits: print("others wait" if waits else "others work")):
...     breathe()
others work
>>> breathe()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY = 0.01
"""Seconds of work between two pauses."""

_here = threading.local()


@contextmanager
def pausing(pause: Callable[[bool], None]) -> Iterator[None]:
    """Under it, what this thread does pauses by calling `pause`, with whether it can do nothing but wait."""
    before, _here.pause, _here.due = getattr(_here, "pause", None), pause, 0.0
    try:
        yield
    finally:
        _here.pause = before


def breathe() -> None:
    """Pauses, but not more often than every hundredth of a second."""
    pause = getattr(_here, "pause", None)
    if pause is not None and time.monotonic() >= _here.due:
        pause(False)
        _here.due = time.monotonic() + _EVERY


def wait_for(done: Callable[[], bool]) -> None:
    """Pauses until something is done elsewhere; returns at once where nobody has said how."""
    pause = getattr(_here, "pause", None)
    while pause is not None and not done():
        pause(True)
