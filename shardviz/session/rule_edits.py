"""The plan's rules as the page shows them, and the changes that a person makes there. A filter that a person types is a
pattern of the tree path; one that was given in Python can be moved and removed, and its spec changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shardviz.errors import ShardvizError
from shardviz.notation import Spec
from shardviz.program.bind import Row
from shardviz.program.rules import Rule
from shardviz.records.amounts import plural
from shardviz.session.edits import parse_spec

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.session.explorer import ExplorerState

MOST_NAMES = 60


def rules_view(state: ExplorerState) -> dict[str, Any]:
    """Every rule with what it catches and wins, and what no rule catches."""

    table = state.program.rules_table(state.plan)
    rules = state.plan.rules.rules
    rows = [_row(row, rule) for row, rule in zip(table.rows, rules, strict=True)]
    left = [{"name": name, "spec": str((spec or Spec()).canonical())} for name, spec in table.uncaught[:MOST_NAMES]]
    return {
        "rows": rows,
        "left": left,
        "left_text": plural(len(table.uncaught), "array"),
        "more": max(0, len(table.uncaught) - MOST_NAMES),
        "arguments": len(table.uncaught) + sum(len(row.wins) for row in table.rows),
    }


def _row(row: Row, rule: Rule) -> dict[str, Any]:
    edited = set(row.edited)
    caught = [{"name": n, "edited": n in edited} for n in row.wins]
    caught += [{"name": n, "by": winner} for n, winner in row.loses]
    return {
        "filter": rule.filter if isinstance(rule.filter, str) else row.rule,
        "typed": isinstance(rule.filter, str),
        "spec": str(row.spec.canonical()),
        "caught": row.caught,
        "wins": len(row.wins),
        "names": caught[:MOST_NAMES],
        "more": max(0, len(caught) - MOST_NAMES),
        "unfit": [why for _, why in row.unfit][:5],
    }


def added(plan: Plan, pattern: str, spec: str) -> Plan:
    """The plan with one more rule, the last."""
    return plan.with_rules([*plan.rules, Rule(_pattern(pattern), _spec(spec))])


def changed(plan: Plan, place: int, pattern: str | None, spec: str | None) -> Plan:
    """The plan with another pattern or spec of a rule; what is None stays."""

    def change(rules: list[Rule]) -> None:
        old = rules[place]
        filter = old.filter if pattern is None else _pattern(pattern)
        rules[place] = Rule(filter, old.spec if spec is None else _spec(spec))

    return _with(plan, place, change)


def removed(plan: Plan, place: int) -> Plan:
    """The plan without a rule."""
    return _with(plan, place, lambda rules: rules.pop(place))


def moved(plan: Plan, place: int, to: int) -> Plan:
    """The plan with a rule at another place."""
    return _with(plan, place, lambda rules: rules.insert(to, rules.pop(place)))


def _with(plan: Plan, place: int, change: Callable[[list[Rule]], Any]) -> Plan:
    rules = list(plan.rules)
    if not 0 <= place < len(rules):
        raise ShardvizError(f"there is no rule {place + 1}; there are {len(rules)}")
    change(rules)
    return plan.with_rules(rules)


def _pattern(text: str) -> str:
    if not text.strip():
        raise ShardvizError("a rule needs a pattern of the tree path, such as *kernel, or * for everything")
    return text.strip()


def _spec(text: str) -> Spec | None:
    return parse_spec(text, "the rule")
