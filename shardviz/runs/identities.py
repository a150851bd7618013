"""Which arguments and results of a run's programs are the same arrays: those in whose place one array was seen.

>>> seen = Identities()
>>> import numpy as np
>>> weights, cache, new = (np.zeros(2) for _ in range(3))
>>> seen.called(0, [weights], [cache])          # prefill
>>> seen.called(1, [weights, cache], [new])     # decode
>>> seen.called(1, [weights, new], [])
>>> sorted(sorted(group) for group in seen.groups())  # (program, role, place)
[[(0, 'argument', 0), (1, 'argument', 0)], [(0, 'output', 0), (1, 'argument', 1), (1, 'output', 0)]]
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

Seen = tuple[int, str, int]
"""A program's number, `argument` or `output`, and the place among its flat arguments or outputs."""


class Identities:
    """The groups of places in which the same arrays were seen.

    Two arguments of one program are never in one group, nor are two outputs: an array that is given twice, such as
    zeros for two caches, is two arrays later on.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, Seen]] = {}  # id → a weak reference, and a place in which it was seen
        self._group: dict[Seen, dict[tuple[int, str], int]] = {}

    def called(self, program: int, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Note a call of a program."""
        for role, arrays in (("argument", arguments), ("output", results)):
            for place, array in enumerate(arrays):
                here = program, role, place
                self._group.setdefault(here, {(program, role): place})
                reference, first = self._arrays.get(id(array), (None, here))
                if reference is None or reference() is not array:
                    try:
                        self._arrays[id(array)] = weakref.ref(array), here
                    except TypeError:  # a number of Python
                        continue
                else:
                    self._join(first, here)

    def _join(self, one: Seen, other: Seen) -> None:
        group, more = self._group[one], self._group[other]
        if group is more or any(more.get(of, place) != place for of, place in group.items()):
            return
        group.update(more)
        for (program, role), place in more.items():
            self._group[program, role, place] = group

    def groups(self) -> tuple[tuple[Seen, ...], ...]:
        """Return the groups of several places."""
        distinct = {id(group): group for group in self._group.values()}.values()
        return tuple(tuple((*of, place) for of, place in group.items()) for group in distinct if len(group) > 1)
