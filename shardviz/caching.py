"""What an object finds out once and keeps: `functools.cached_property`, as it is since Python 3.12.

That of Python 3.11 has one lock for all objects of a class, held while the value is found: two threads at different
objects can wait for each other for ever, and a process that is forked while another thread is at one finds the lock
taken by nobody. Without it, two threads at the same object may both find the value; the first one stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property  # noqa: TID251
else:

    class cached_property:
        """A method without arguments, run when the attribute is first read; its value is the attribute from then on."""

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
    """An object that keeps what was found out about it, under names: to look it up elsewhere would take longer."""

    def once(self, name: Hashable, make: Callable[[], _T]) -> _T:
        """What `make` gave for this name the first time; nobody may change it. Of more than 4,096 all are forgotten."""
        kept = self._known
        if name not in kept:
            if len(kept) >= _MOST:
                kept.clear()
            kept[name] = make()
        return kept[name]

    @cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}


__all__ = ["Memo", "cached_property"]
