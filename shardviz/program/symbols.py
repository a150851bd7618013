"""Symbolic dimensions: a program exported for the shape `(b, 2*b)` works for many values of `b`; to be explored it
needs one.

The module itself checks its arguments' shapes when it runs, and those checks name the constraints, which a file keeps
nowhere else:

>>> constraints(["Expected value >= 8 for dimension variable 'b'"], ["mod(b, 4) == 0"])
('mod(b, 4) == 0', 'b >= 8')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from shardviz.errors import SpecError

_AT_LEAST = re.compile(r"Expected value >= (\d+) for dimension variable '(\w+)'")
_WRITTEN = re.compile(r"the symbolic shape constraint (.+?)\. Expected '")


def constraints(assertions: Iterable[str], written: Iterable[str] = ()) -> tuple[str, ...]:
    """The constraints on a program's symbolic dimensions: those `written`, and those that its module checks."""
    texts = list(written)
    for message in assertions:
        if match := _AT_LEAST.search(message):
            texts.append(f"{match[2]} >= {match[1]}")
        elif match := _WRITTEN.search(message):
            texts.append(match[1])
    unique = {re.sub(r"\s", "", text): text for text in reversed(texts)}
    return tuple(reversed(unique.values()))


def check(name: str, symbols: Sequence[str], values: Mapping[str, int] | None) -> dict[str, int]:
    """The values of a program's symbolic dimensions; whether they keep its constraints the module itself checks. Raises
    SpecError naming the dimension that has no value, or one that is no whole number, or that there is none."""
    values = dict(values or {})
    way = f"give symbols={{{', '.join(f'{symbol!r}: 8' for symbol in symbols)}}} or the like"
    for symbol, value in values.items():
        if symbol not in symbols:
            have = f"it has {', '.join(symbols)}" if symbols else "all its dimensions are fixed"
            raise SpecError(f"{name} has no symbolic dimension {symbol!r}; {have}", argument=symbol)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SpecError(
                f"{name}: symbolic dimension {symbol} must be a whole number, not {value!r}; {way}", argument=symbol
            )
    if missing := [symbol for symbol in symbols if symbol not in values]:
        which = f"dimension{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise SpecError(f"{name}: no value for the symbolic {which}; {way}", argument=missing[0])
    return {symbol: int(values[symbol]) for symbol in symbols}
