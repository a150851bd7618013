"""Values grouped, and numbers summed, by a key.

>>> grouped([("even", 2), ("odd", 3), ("even", 4)]), summed([("even", 2), ("odd", 3), ("even", 4)])
({'even': [2, 4], 'odd': [3]}, {'even': 6.0, 'odd': 3.0})
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return key → its values; keys and values keep their order."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def summed(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    """Return key → the sum of its numbers."""
    sums: dict[_Key, float] = {}
    for key, number in pairs:
        sums[key] = sums.get(key, 0.0) + number
    return sums
