"""Symbolic dimensions: what their names may stand for.

A program exported for the shape `(b, 2*b)` works for many values of `b`; to be explored it needs one. The module itself
checks its arguments' shapes when it runs, and those checks name the constraints, which a file keeps nowhere else.

>>> constraint = SymbolConstraint.of("4*floordiv(b, 4) == b")
>>> constraint.holds({"b": 8}), constraint.holds({"b": 10})
(True, False)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.export

from shardviz import _jax
from shardviz.errors import SpecError

_AT_LEAST = re.compile(r"Expected value >= (\d+) for dimension variable '(\w+)'")
_WRITTEN = re.compile(r"the symbolic shape constraint (.+?)\. Expected '")
_COMPARED = re.compile(r"(.+?)(>=|<=|==)(.+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_MOST_TRIED = 20_000


@dataclass(frozen=True)
class SymbolConstraint:
    """A constraint on symbolic dimensions, such as `b >= 8`.

    Attributes:
        text: the constraint as it was written.
        left, relation, right: its sides, expressions of symbols, and `>=`, `<=` or `==` between them.
    """

    text: str
    left: Any
    relation: str
    right: Any

    @classmethod
    def of(cls, text: str) -> SymbolConstraint:
        """A constraint from its text.

        Raises:
            SpecError: if it compares nothing.
        """
        match = _COMPARED.fullmatch(text.strip())
        if match is None:
            raise SpecError(f"constraint {text!r}: expected two expressions with >=, <= or == between them")
        left, right = (jax.export.symbolic_shape(side.strip())[0] for side in (match[1], match[3]))
        return cls(text.strip(), left, match[2], right)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds under values for all its symbols."""
        left, right = (_jax.evaluated(side, dict(values)) for side in (self.left, self.right))
        return left >= right if self.relation == ">=" else left <= right if self.relation == "<=" else left == right

    def names(self) -> set[str]:
        """The symbols in it, and the functions."""
        return set(_WORD.findall(self.text))


def constraints(assertions: Iterable[str], written: Iterable[str] = ()) -> tuple[SymbolConstraint, ...]:
    """The constraints on a program's symbolic dimensions.

    Args:
        assertions: the messages of the module's checks of its arguments' shapes.
        written: constraints that are known otherwise.
    """
    texts = list(written)
    for message in assertions:
        if match := _AT_LEAST.search(message):
            texts.append(f"{match[2]} >= {match[1]}")
        elif match := _WRITTEN.search(message):
            texts.append(match[1])
    unique = {re.sub(r"\s", "", text): text for text in reversed(texts)}
    parsed = []
    for text in reversed(unique.values()):
        try:
            parsed.append(SymbolConstraint.of(text))
        except (SpecError, ValueError):  # of a form that this version does not know; the module checks it all the same
            continue
    return tuple(parsed)


def check(
    name: str, symbols: Sequence[str], given: Mapping[str, int] | None, rules: Sequence[SymbolConstraint]
) -> dict[str, int]:
    """The values of a program's symbolic dimensions.

    Args:
        symbols: the dimensions that want a value.
        given: the person's values.
        rules: the constraints on them.

    Raises:
        SpecError: naming the dimension that has no value or one that breaks a constraint, and a value that would do.
    """
    given = dict(given or {})
    for symbol, value in given.items():
        if symbol not in symbols:
            have = f"it has {', '.join(symbols)}" if symbols else "all its dimensions are fixed"
            raise SpecError(f"{name} has no symbolic dimension {symbol!r}; {have}", argument=symbol)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SpecError(
                f"{name}: symbolic dimension {symbol} must be a whole number, not {value!r}; "
                f"{_would_do(symbols, {}, rules)}",
                argument=symbol,
            )
    missing = [symbol for symbol in symbols if symbol not in given]
    if missing:
        known = {k: v for k, v in given.items() if k in symbols}
        texts = [c.text for c in rules if c.names() & set(missing)]
        raise SpecError(
            f"{name}: no value for the symbolic dimension{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
            f"{' (' + ', '.join(texts) + ')' if texts else ''}; give it a value, "
            f"{_would_do(symbols, known, rules)}",
            argument=missing[0],
        )
    for constraint in rules:
        if not constraint.holds(given):
            involved = [s for s in symbols if s in constraint.names()]
            values = ", ".join(f"{s}={given[s]}" for s in involved)
            raise SpecError(
                f"{name}: the symbolic dimension{'s' if len(involved) > 1 else ''} {values} "
                f"break{'' if len(involved) > 1 else 's'} the constraint {constraint.text}; "
                f"{_would_do(symbols, given, rules)}",
                argument=involved[0] if involved else None,
            )
    return {s: int(given[s]) for s in symbols}


def _would_do(symbols: Sequence[str], given: Mapping[str, int], rules: Sequence[SymbolConstraint]) -> str:
    values = suggestion(symbols, given, rules)
    if values is None:
        return "no value that would do was found"
    return "try symbols={" + ", ".join(f"{s!r}: {v}" for s, v in values.items()) + "}"


def suggestion(
    symbols: Sequence[str], given: Mapping[str, int], rules: Sequence[SymbolConstraint]
) -> dict[str, int] | None:
    """Values that keep every constraint, near to those given; None if a short search finds none."""
    for values in itertools.islice(_candidates(symbols, given), _MOST_TRIED):
        if all(constraint.holds(values) for constraint in rules):
            return values
    return None


def _candidates(symbols: Sequence[str], given: Mapping[str, int]) -> Iterator[dict[str, int]]:
    common = [*range(1, 65), *(2**n for n in range(7, 17))]
    common.sort(key=lambda n: (n != 8, n % 8 != 0, n))

    def near(symbol: str) -> list[int]:
        if symbol not in given:
            return common
        return sorted({*common, given[symbol]}, key=lambda n: (abs(n - given[symbol]), n))

    for symbol in symbols:  # one changed, the others as they are
        if all(s in given for s in symbols if s != symbol):
            yield from ({s: given.get(s, 0) for s in symbols} | {symbol: n} for n in near(symbol))
    for choice in itertools.product(*(near(s) for s in symbols)):
        yield dict(zip(symbols, choice, strict=True))
