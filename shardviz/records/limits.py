"""Amounts and bounds as people write them: `100 MB`, `<= 5.5 s`, `>= 90%`.

>>> limit_of("<= 5.5 s", "s").holds(5.5), limit_of("< 100 MB", "B").text, amount_of("96 GiB", "B")
(True, '< 100 MB', 103079215104.0)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardviz.errors import ShardvizError

_NUMBER = re.compile(r"([<>]=?|==)?\s*([0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-zµ%/]{0,12})")
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
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
    """A bound that a number must keep: `<`, `<=`, `>`, `>=` or `==` of bytes, seconds or a share; `text` is it as it
    was written."""

    sign: str
    number: float
    text: str

    def holds(self, number: float) -> bool:
        """Whether a number keeps it."""
        return _HOLDS[self.sign](number, self.number)

    @property
    def is_upper(self) -> bool:
        """Whether it bounds from above."""
        return self.sign.startswith("<")


def amount_of(text: str | float, unit: str, argument: str = "amount") -> float:
    """`100 MB`, `96 GiB`, `5.5 s`, `90%` as bytes (unit `B`), seconds (`s`) or a share (empty unit); a `ShardvizError`,
    which names the argument, for another text."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    limit = limit_of(text, unit, argument)
    if not str(text).strip()[:1].isdigit():
        raise ShardvizError(f"{argument}={text!r}: expected an amount without a comparison, such as {_example(unit)!r}")
    return limit.number


def limit_of(text: str | float, unit: str, argument: str = "limit") -> Limit:
    """`<= 5.5 s` as a bound; a plain number is bytes, seconds or a share; without a sign it must not be passed, but a
    share is `>=`. `unit` is `B`, `s` or empty; a `ShardvizError`, which names the argument, for another text."""
    match = _NUMBER.fullmatch(str(text).strip()[:64])
    factor = None if match is None else _factor(match[3], unit, isinstance(text, str))
    if match is None or factor is None or isinstance(text, bool):
        raise ShardvizError(f"{argument}={text!r}: expected a bound such as {'<= ' + _example(unit)!r}")
    sign = match[1] or (">=" if unit == "" else "<=")
    return Limit(sign, float(match[2]) * factor, str(text).strip())


def _example(unit: str) -> str:
    return {"B": "100 MB", "s": "5.5 s"}.get(unit, "0.9")


def _factor(written: str, unit: str, is_text: bool) -> float | None:
    """By what a number in the unit that was written is multiplied; None for another unit."""
    if unit == "s":
        return _TIMES.get(written, None if is_text else 1.0)
    if unit == "":
        return {"": 1.0, "%": 0.01}.get(written)
    if not is_text and not written:
        return 1.0
    head = written[:-1]
    return (_PREFIXES | _BINARY).get(head) if written.endswith("B") else None
