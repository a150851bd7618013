"""Work that takes long, done in slices where the state's owner is: between two slices a drag or a click is answered.

A chore is an iterator, each step of which takes tens of milliseconds, or yields `WAITING`. Where an event loop runs (a
kernel) it is taken up again and again until it ends or is stopped; where none runs (a script, a test) it is done at
once.

>>> from shardviz.explorer.compile_loop import Inbox
>>> done = []
>>> chore = Chore(Inbox(), (done.append(n) for n in range(3)))
>>> chore.start()
>>> done, chore.running
([0, 1, 2], False)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from shardviz.explorer.compile_loop import Inbox
from shardviz.study.trying import WAITING

_SLICE = 0.02
"""Seconds of work before others are asked."""
_PAUSE = 0.02
"""Seconds for others: a message passes through several turns of a kernel's loop before it is answered."""
_WAIT = 0.05
"""Seconds until a waiting step is tried again."""


class Chore:
    """Work in slices: a generator whose steps run where the inbox's owner is. What a step yields is ignored, and the
    generator is closed when the chore is stopped. `running` says whether work is left."""

    def __init__(self, inbox: Inbox, steps: Generator[Any, None, None]):
        self._inbox, self._steps = inbox, steps
        self.running = True

    def start(self, delay: float = 0.0) -> None:
        """Starts the work. Under an event loop it returns at once, and the work begins after `delay` seconds."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            while self.running:
                if self._work():
                    time.sleep(_WAIT)
            return
        loop.call_later(delay, self._slice, loop)

    def stop(self) -> None:
        """Stops the work: the step that is running is its last."""
        if self.running:
            self.running = False
            with suppress(ValueError):  # it stops itself: then it ends by itself too
                self._steps.close()

    def _slice(self, loop: asyncio.AbstractEventLoop) -> None:
        waits = self.running and self._work()
        if self.running and not loop.is_closed():
            loop.call_later(_WAIT if waits else _PAUSE, self._slice, loop)

    def _work(self) -> bool:
        """Runs steps for the time of a slice; whether the last step can only wait."""
        until, waits = time.monotonic() + _SLICE, False
        try:
            while self.running and not waits and time.monotonic() < until:
                waits = self._inbox.run(lambda: next(self._steps)) is WAITING
        except BaseException as error:
            self.running = False
            if not isinstance(error, StopIteration):
                raise
        return waits
