"""A time limit on Python code, on any thread.

An endless walk over a program would hang a notebook, or the thread that reads compiles. `limited` raises an exception
on the thread after a time, as Ctrl-C does on the main thread. The exception arrives between two Python instructions: an
MLIR pass or an XLA parser is not interrupted, so the limit takes effect when it returns.

>>> with limited(0.01, "counting"):  # doctest: +ELLIPSIS
...     while True: pass
Traceback (most recent call last):
    ...
shardviz.errors.CompileTimeout: counting took longer than 0.01 s and was stopped; ...
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event

from shardviz.errors import CompileTimeout

LONGEST = 300.0
"""The default time limit in seconds: 20 times the time of the largest program that we tried."""
_AGAIN = 1.0


class _TimeIsOver(BaseException):
    """A BaseException, so that no handler of `Exception` on the way catches it."""


@contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Raise CompileTimeout on this thread if the context takes longer than a limit; `what` begins the message."""
    thread, lock, done, over = ctypes.c_ulong(threading.get_ident()), threading.Lock(), Event(), Event()

    def watch() -> None:
        waiting = seconds
        while not done.wait(waiting):
            with lock:
                if not done.is_set():
                    over.set()
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_TimeIsOver))
            waiting = _AGAIN  # what Python raises inside a destructor is lost

    with suppress(RuntimeError):  # the system has no thread left: then there is no limit
        threading.Thread(target=watch, name="shardviz-limit", daemon=True).start()
    try:
        try:
            yield
        finally:
            with lock:
                done.set()
        if over.is_set():  # it was raised, and has not come yet
            time.sleep(_AGAIN)
    except BaseException:  # _TimeIsOver, or any error of the reading itself
        done.set()
        if not over.is_set():
            raise
    if over.is_set():
        raise CompileTimeout(
            f"{what} took longer than {seconds:g} s and was stopped; give a longer timeout=, or a smaller program: "
            "one layer, or a scan over the layers in place of a Python loop"
        )
