"""Calls that come from other threads, run one at a time where the state's owner is.

A compile answers on a thread of its own, but traits (and the messages to a browser that hang on them) belong to the
kernel's main thread. So every answer is posted here and runs

- on the kernel's event loop, where one is running;
- or at once, in the thread that posted it, where there is none (a script, a test);
- or in `wait_until`, where the owner waits for it: a cell that waits blocks the loop, so the loop cannot do it.

>>> inbox, seen = Inbox(), []
>>> inbox.post(lambda: seen.append("answer"))
>>> seen
['answer']
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Inbox:
    """A queue of calls, and the right to change the state."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._depth = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = threading.Event()

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Holds off all posted calls while the caller changes the state; they run afterwards."""
        with suppress(RuntimeError):  # there is no running loop in a script
            self._loop = asyncio.get_running_loop()
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
        if self._loop is None:
            self.drain()

    def post(self, call: Callable[[], None]) -> None:
        """Has `call` run by the state's owner; returns at once where there is a loop to do it."""
        self._calls.put(call)
        loop = self._loop
        try:
            if loop is None or not loop.is_running():
                self.drain()
            else:
                with suppress(RuntimeError):  # closed in this very moment: the kernel is ending
                    loop.call_soon_threadsafe(self.drain)
        finally:
            self._news.set()

    def drain(self) -> None:
        """Runs what was posted. Where another thread holds the state, that one runs it when it lets go."""
        while not self._calls.empty():
            if not self._lock.acquire(blocking=False):
                return
            try:
                if self._depth:
                    return
                self._depth += 1
                try:
                    with suppress(queue.Empty):
                        self._calls.get_nowait()()
                finally:
                    self._depth -= 1
            finally:
                self._lock.release()

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Runs posted calls until `condition` holds or `timeout` seconds are over; says whether it holds."""
        deadline = time.monotonic() + timeout
        while True:
            self._news.clear()
            self.drain()
            with self._lock:  # another thread may be amid a call, whose observers have not heard of it yet
                holds = condition()
            if holds:
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self._news.wait(min(remaining, 0.1))
