"""Answers without a pause: Python's garbage collector waits until a change is done.

A plan's answer is some hundred thousand small objects, few of which are garbage. The collector would go through them,
and through all that the kernel holds, again and again while they are made: half a second of an edit of 5,000 arrays.

>>> uncollected(gc.isenabled), gc.isenabled()
(False, True)
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def uncollected(work: Callable[[], T]) -> T:
    """What `work` returns, made while the collector waits; it is no context manager, as `Inbox.run` is none."""
    collects = gc.isenabled()
    try:
        gc.disable()
        return work()
    finally:
        if collects:
            gc.enable()
