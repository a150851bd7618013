"""Rules: specs by filter. One rule gives every array that its filter catches a spec; the first rule that catches wins.

>>> from jax.sharding import PartitionSpec as P
>>> rules = Rules([("*bias", P("model")), ("*kernel", P("data", "model")), ("*norm*", None)])
>>> print(rules)
1 '*bias' → P('model')
2 '*kernel' → P('data', 'model')
3 '*norm*' → P()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardviz.errors import ShardvizError, SpecError
from shardviz.notation import Spec
from shardviz.program.filters import Leaf, catches, check_filter, filter_text


@dataclass(frozen=True)
class Rule:
    """A filter and the spec of what it catches; None is replicated."""

    filter: Any
    spec: Spec | None

    def __str__(self) -> str:
        return f"{filter_text(self.filter)} → {self.spec or 'P()'}"


@dataclass(frozen=True, init=False, repr=False)
class Rules:
    """Rules in their order.

    Attributes:
        rules: the rules; the first one that catches an array says how it is cut.
        exhaustive: whether an array that no rule catches is an error, as it is for `nnx.StateSharding`.
    """

    rules: tuple[Rule, ...]
    exhaustive: bool

    def __init__(self, rules: Any = (), *, exhaustive: bool = False):
        """Rules.

        Args:
            rules: (filter, spec) pairs, a mapping of them, `Rule`s, other `Rules`, or an `nnx.StateSharding`. See
                `shardviz.program.filters` for what a filter may be. A spec is a PartitionSpec, a NamedSharding, a tuple
                such as `("data", None)`, or None.
            exhaustive: see above.

        Raises:
            ShardvizError: if a filter is none.
            SpecError: if a spec is none.
        """
        if is_state_sharding(rules):
            # In flax a text is a variable's tag, here it is a pattern: its own predicate keeps the meaning.
            rules, exhaustive = [(_nnx_filter(f), s) for f, s in zip(rules.filters, rules.shardings, strict=True)], True
        if isinstance(rules, Rules):
            rules, exhaustive = rules.rules, rules.exhaustive or exhaustive
        pairs = rules.items() if isinstance(rules, Mapping) else rules
        object.__setattr__(self, "rules", tuple(map(_rule, pairs)))
        object.__setattr__(self, "exhaustive", exhaustive)

    def __len__(self) -> int:
        return len(self.rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __str__(self) -> str:
        return "\n".join(f"{i} {rule}" for i, rule in enumerate(self.rules, 1)) or "no rules"

    def __repr__(self) -> str:
        return "Rules([" + ", ".join(f"({filter_text(r.filter)}, {r.spec or 'P()'})" for r in self.rules) + "])"

    def winner(self, leaf: Leaf) -> int | None:
        """The place of the first rule that catches a leaf, from 0; None where none does.

        Raises:
            SpecError: if none does and the rules are exhaustive.
        """
        found = next((i for i, rule in enumerate(self.rules) if catches(rule.filter, leaf)), None)
        if found is None and self.exhaustive:
            raise SpecError(
                f"{leaf.name}: no filter of the StateSharding catches it; flax wants one for every variable. It has "
                f"{', '.join(filter_text(r.filter) for r in self.rules) or 'none'}; put (..., P()) at its end",
                argument=leaf.name,
            )
        return found

    def spec(self, leaf: Leaf) -> Spec | None:
        """The spec that the rules give a leaf; None where none catches it, or the one that does says None."""
        place = self.winner(leaf)
        return None if place is None else self.rules[place].spec


def is_state_sharding(value: Any) -> bool:
    """Whether this is an `nnx.StateSharding`; flax is not imported to find out."""
    return type(value).__name__ == "StateSharding" and type(value).__module__.startswith("flax.")


def _nnx_filter(filter: Any) -> Any:
    from flax.nnx import filterlib

    return ... if filter is ... or filter is True else filterlib.to_predicate(filter)


def _rule(pair: Any) -> Rule:
    if isinstance(pair, Rule):
        return pair
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise ShardvizError(f"expected a rule (filter, spec), such as ('*kernel', P('data', 'model')), not {pair!r}")
    filter, spec = pair
    spec = getattr(spec, "spec", spec)  # of a NamedSharding
    return Rule(check_filter(filter), None if spec is None else Spec.of(spec))
