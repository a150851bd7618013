"""Values that an object computes once and keeps, and work during which Python's garbage collector is paused.

`cached_property` is `functools.cached_property` of Python 3.12. Python 3.11's has one lock for all objects of a class,
held while a value is computed. Two threads with different objects can deadlock, and a fork inherits a lock that no
thread will release. Without the lock, two threads may both compute an object's value; the first value stays.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property  # noqa: TID251
else:

    class cached_property:
        """A method without arguments that is called when the attribute is first read; later reads return its value."""

        def __init__(self, func):
            self.func = func
            self.__doc__ = func.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = self.func(instance)
            return instance.__dict__.setdefault(self.name, value)


_MOST = 4096
_T = TypeVar("_T")


class Memo:
    """An object that keeps computed facts about itself, by name."""

    def once(self, name: Hashable, make: Callable[[], _T]) -> _T:
        """Return the value that `make` returned at the first call for this name; it must not be modified.

        The cache is cleared when it exceeds 4,096 names.
        """
        memo = self._memo
        if name not in memo:
            if len(memo) >= _MOST:
                memo.clear()
            memo[name] = make()
        return memo[name]

    @cached_property
    def _memo(self) -> dict[Hashable, Any]:
        return {}


_pausing = threading.Lock()
_pauses = 0


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's search for reference cycles, in all threads, unless it is disabled already. Reading a program
    creates several hundred thousand objects, none of them garbage. The collector would repeatedly scan these and all
    objects of the kernel: a third of the time for a program of 10,000 operations."""
    global _pauses
    with _pausing:
        pauses = _pauses > 0 or gc.isenabled()
        if pauses:
            gc.disable()
            _pauses += 1
    try:
        yield
    finally:
        with _pausing:
            if pauses:
                _pauses -= 1
                if not _pauses:
                    gc.enable()


__all__ = ["Memo", "cached_property", "collection_paused"]
