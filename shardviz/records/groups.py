"""Things put together, and numbers added up, by what they have in common.

>>> grouped([("even", 2), ("odd", 3), ("even", 4)]), summed([("even", 2), ("odd", 3), ("even", 4)])
({'even': [2, 4], 'odd': [3]}, {'even': 6.0, 'odd': 3.0})
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Key → the values that come with it; both in the order in which they first come."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def summed(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    """Key → the sum of the numbers that come with it."""
    sums: dict[_Key, float] = {}
    for key, number in pairs:
        sums[key] = sums.get(key, 0.0) + number
    return sums
