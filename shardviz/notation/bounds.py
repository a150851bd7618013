"""How much outside text may ask for: the bounds of every reader of a notation, each with its reason.

Text comes from strangers: it is pasted into a page, or read from a file. Whatever stands in it, a reader answers within
0.2 seconds and 100 MB, or refuses it by its size. Real programs stay far below these bounds.

>>> check_size(list(range(70)), 64, "P(...)", "dimensions")
Traceback (most recent call last):
    ...
shardviz.errors.ParseError: P(...): 70 dimensions; at most 64 are read

A module of HLO has no bound, since real ones have megabytes: what reads it takes time in proportion to its length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sized
from functools import update_wrapper
from threading import Lock
from typing import Any, Generic, TypeVar

from shardviz.errors import ParseError, ShardvizError

MOST_DEVICES = 1 << 17
"""Devices of a mesh: twice as many as any program is known to have run on. Lists of them take some 0.1 s to read."""

MOST_AXES = 32
"""Axes of a mesh: NumPy, in whose arrays a mesh's devices lie, had 32 dimensions at most before its version 2."""

MOST_DIMENSIONS = 64
"""Dimensions of an array: as many as NumPy has."""

MOST_CELLS = 1 << 21
"""Devices times dimensions (or axes, or members of groups): a table of 16 MB, and readers hold two or three."""

MOST_NAMED = 256
"""Mentions of axes in one sharding: every two of them are compared. A mesh of 131,072 devices has 17 halves at most."""

MOST_NAME = 1_000
"""Characters of an axis's name, or of a machine's."""

MOST_CHARACTERS = 1_000_000
"""Characters, or bytes, of a sharding's text: a list of 131,072 devices takes 0.9 million."""

MOST_PASTED = 200_000
"""Characters that are read of what is pasted into a page, and shown there again."""

MOST_WRITTEN = 20_000
"""Characters of what people write by hand: a PartitionSpec, `[data, ·]`, `A[I_data, J]`."""

MOST_FIELDS = 1 << 15
"""Fields of a printed or serialized `OpSharding`, which are read one by one; a packed list of devices is one field."""

MOST_VALUES = 1 << 13
"""Shardings in a tuple's: more than the arrays of the largest programs. They repeat a few different ones."""

MOST_TOGETHER = 1 << 9
"""Different shardings in a tuple's: each is read for itself."""

MOST_NESTED = 64
"""Tuples within tuples in a shape, and braces within braces in a sharding."""

MOST_CALLS = 100
"""Computations that call each other, one within the next, in a module of HLO."""

MOST_DIGITS = 18
"""Digits of a whole number: with more it does not fit into 64 bits."""

MOST_KEPT = 1 << 22
"""Bytes of text, or cells of tables, of the answers that one reader remembers."""


def check_size(given: Sized, most: int, what: str, of: str, error: type[ShardvizError] = ParseError) -> None:
    """Raises if there is more of something than is read.

    Args:
        given: what was given.
        most: how much of it is read.
        what: what it is in, for the message.
        of: what it is, in the plural.
        error: what to raise.
    """
    if len(given) > most:
        raise error(f"{what}: {len(given):,} {of}; at most {most:,} are read")


T = TypeVar("T")


class Remembered(Generic[T]):
    """A function that remembers its last answers, few of large ones and many of small ones, so that no text fills the
    memory.

    Args:
        function: takes hashable arguments, by position.
        size: what a call's answer takes: characters of its text, or cells of its table.
    """

    def __init__(self, function: Callable[..., T], size: Callable[..., int]):
        self._function, self._size, self._sum = function, size, 0
        self._kept: OrderedDict[tuple[Any, ...], tuple[T, int]] = OrderedDict()
        self._lock = Lock()
        update_wrapper(self, function)

    def __call__(self, *given: Any) -> T:
        """The function's answer."""
        with self._lock:
            if (found := self._kept.get(given)) is not None:
                self._kept.move_to_end(given)
                return found[0]
        answer, size = self._function(*given), 256 + self._size(*given)
        with self._lock:
            if given not in self._kept:
                self._kept[given] = answer, size
                self._sum += size
            while self._sum > MOST_KEPT:
                self._sum -= self._kept.popitem(last=False)[1][1]
        return answer

    def cache_clear(self) -> None:
        """Forgets all answers."""
        with self._lock:
            self._kept.clear()
            self._sum = 0


def remembered(size: Callable[..., int]) -> Callable[[Callable[..., T]], Remembered[T]]:
    """Makes a function remember its answers; see `Remembered`."""
    return lambda function: Remembered(function, size)
