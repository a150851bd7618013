"""The arrays of a dry run whose values are known, although programs are not computed.

A recorded program gives arrays of zeros. A result that depends only on small known arrays, such as a step counter or a
cache position, has an origin: the program, and the origins of the arguments that it needs. Its value is computed when
the script reads it. The value of an array that JAX really computed is known, unless an unknown value went into it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from shardviz import _jax

EAGER = 1 << 10
"""Bytes of a result on one device up to which it is computed at once, if it is known: reading it is not always seen."""


@dataclass(eq=False)
class Origin:
    """The value of an array, or how to compute it: a program, the place of the result, and the origins of the arguments
    that it needs. `value` is None if it cannot be computed."""

    value: np.ndarray | None = None
    call: tuple[_jax.Known, int, tuple[Origin, ...]] | None = None

    def computed(self) -> np.ndarray | None:
        """Return the value."""
        waiting = [self]  # a counter's origins are a chain as long as the run
        while waiting:
            origin = waiting[-1]
            program, place, origins = origin.call or (None, 0, ())
            if before := [each for each in origins if each.call is not None]:
                waiting += before
                continue
            values = [each.value for each in origins if each.value is not None]
            if program is not None and len(values) == len(origins):
                origin.value = program.value(place, values)
            origin.call = None
            waiting.pop()
        return self.value


class Values:
    """The origins of a run's arrays."""

    def __init__(self) -> None:
        self._origins: dict[int, tuple[weakref.ref[Any], Origin | None]] = {}

    def deferred(self, array: Any) -> Origin | None:
        """Return the origin of an array that holds zeros in place of its value."""
        return self._entry(array)[1]

    def numbers(self, array: Any) -> np.ndarray | None:
        """Return the value of an array that holds zeros in place of it; None if it holds its own value, or is not
        known."""
        origin = self.deferred(array)
        if origin is None or not (array.is_fully_addressable or array.is_fully_replicated):
            return None
        return origin.computed()

    def _entry(self, array: Any) -> tuple[bool, Origin | None]:
        """Return whether an array was kept, and its origin."""
        array = _jax.numbers_of(array)
        reference, origin = self._origins.get(id(array), (None, None))
        return (False, None) if reference is None or reference() is not array else (True, origin)

    def of(self, array: Any) -> Origin | None:
        """Return the origin of an array or a number; None if its value is not known, or is large."""
        is_kept, origin = self._entry(array)
        if is_kept:
            return origin
        if getattr(array, "nbytes", 0) > _jax.LARGEST:
            return None
        if not isinstance(array, jax.Array):
            return Origin(np.array(array))
        array = _jax.numbers_of(array)
        if array.is_deleted() or not array.is_fully_addressable or _jax.is_zero_array(array):
            return None
        return Origin(_jax.read(array))

    def is_known(self, array: Any) -> bool:
        """Return whether an array or a number holds its own value."""
        if self._entry(array)[0]:
            return False
        array = _jax.numbers_of(array)
        return not isinstance(array, jax.Array) or array.is_deleted() or not _jax.is_zero_array(array)

    def keep(self, array: Any, origin: Origin | None) -> None:
        """Keep the origin of an array; None if its value is not known."""
        array, at = _jax.numbers_of(array), self._origins

        def forget(reference: Any, key: int = id(array)) -> None:
            if at.get(key, (None,))[0] is reference:
                del at[key]

        at[id(array)] = weakref.ref(array, forget), origin

    def placed(self, value: Any, array: Any) -> None:
        """Keep the origin of a copy: `value` was put somewhere else as `array`."""
        if array is value:
            return
        is_kept, origin = self._entry(value)
        if origin is not None and len(array.sharding.device_set) == 1:
            if origin.computed() is None:
                self.keep(array, None)
        elif is_kept:
            self.keep(array, origin)
        elif not self.is_known(value):
            self.keep(array, None)

    def called(self, program: _jax.Known, arguments: Sequence[Any], results: list[Any]) -> None:
        """Find the origins of a recorded program's results. A small result on one device is replaced by its value."""
        for result in results:
            self.keep(result, None)
        origins: dict[int, Origin | None] = {}
        for place, needs in program.needs.items():
            for at in needs:
                if at not in origins:
                    origins[at] = self.of(arguments[at])
            needed = [origins[at] for at in needs]
            if all(needed):
                result, origin = results[place], Origin(call=(program, place, tuple(filter(None, needed))))
                if len(result.sharding.device_set) > 1:
                    self.keep(result, origin)
                elif result.nbytes <= EAGER and (value := origin.computed()) is not None:
                    results[place] = _jax.array_of(value, result)

    def ran(self, arguments: Iterable[Any], results: Iterable[Any]) -> None:
        """Receive a program that really ran, or arrays that were joined. The results are not known if an argument is
        not."""
        if not all(map(self.is_known, arguments)):
            for result in results:
                self.keep(result, None)
