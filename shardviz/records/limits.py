"""Amounts and bounds in text: `100 MB`, `<= 5.5 s`, `>= 90%`.

>>> limit_of("<= 5.5 s", "s").holds(5.5), limit_of("< 100 MB", "B").text, amount_of("96 GiB", "B")
(True, '< 100 MB', 103079215104.0)
>>> amount_of("1,048,576", "B"), amount_of("1 mb", "B")
(1048576.0, 1000000.0)
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardviz.errors import ShardvizError

_NUMBER = re.compile(
    r"([<>]=?|==)?\s*((?:[0-9]{1,3}(?:,[0-9]{3}){1,6}|[0-9]{1,20})(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?)"
    r"\s*([A-Za-zµ%/]{0,12})"
)
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0}
_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Limit:
    """A bound of a number: `<`, `<=`, `>`, `>=` or `==` of bytes, seconds or a share; `text` is its original text."""

    sign: str
    number: float
    text: str

    def holds(self, number: float) -> bool:
        """Return whether a number satisfies the bound."""
        return _HOLDS[self.sign](number, self.number)

    @property
    def is_upper(self) -> bool:
        """Whether the bound is an upper bound."""
        return self.sign.startswith("<")


def amount_of(text: str | float, unit: str, argument: str = "amount") -> float:
    """Return `100 MB`, `96 GiB`, `5.5 s`, `90%` as bytes (unit `B`), seconds (`s`) or a share (empty unit). A number
    without a unit, such as `1,048,576`, is bytes, seconds or a share. Raises ShardvizError, which names the argument,
    for other text."""
    if isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text < math.inf:
        return float(text)
    read = _read(text, unit, unit_needed=False)
    if read is None or read[0]:
        raise ShardvizError(f"{argument}={text!r}: expected an amount such as {_example(unit)!r}")
    return read[1]


def limit_of(text: str | float, unit: str, argument: str = "limit") -> Limit:
    """Read a bound such as `<= 5.5 s`; `unit` is `B`, `s` or empty for a share. Without a sign, a share is a lower
    bound, and any other number is an upper bound. Raises ShardvizError, which names the argument, for other text."""
    read = _read(text, unit, unit_needed=isinstance(text, str))
    if read is None:
        raise ShardvizError(f"{argument}={text!r}: expected a bound such as {'<= ' + _example(unit)!r}")
    return Limit(read[0] or (">=" if unit == "" else "<="), read[1], str(text).strip())


def _read(text: object, unit: str, *, unit_needed: bool) -> tuple[str, float] | None:
    """Return the comparison (empty without a sign) and the number; None for other text."""
    match = _NUMBER.fullmatch(str(text).strip()[:64])
    if match is None or isinstance(text, bool):
        return None
    factor = _factor(match[3], unit) if match[3] or unit_needed else 1.0
    number = None if factor is None else float(match[2].replace(",", "")) * factor
    return None if number is None or number == math.inf else (match[1] or "", number)


def _example(unit: str) -> str:
    return {"B": "100 MB", "s": "5.5 s"}.get(unit, "0.9")


def _factor(written: str, unit: str) -> float | None:
    """Return the factor of a unit as it is written; None for another unit, such as `Gb`, which is bits."""
    lower = written.lower()
    if unit == "s":
        return _TIMES.get(lower)
    if unit == "":
        return {"": 1.0, "%": 0.01}.get(lower)
    is_bits = written.endswith("b") and written != lower
    return (_PREFIXES | _BINARY).get(lower[:-1]) if lower.endswith("b") and not is_bits else None
