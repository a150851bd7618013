"""The plan's rules as the page gets them: what each catches and wins, and what no rule catches."""

from __future__ import annotations

from shardviz.notation import Spec
from shardviz.program.bind import Row
from shardviz.program.rules import Rule
from shardviz.records.amounts import plural
from shardviz.session.explorer import ExplorerState
from shardviz.widgets.payload import Json

MOST_NAMES = 60


def rules_view(state: ExplorerState) -> Json:
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


def _row(row: Row, rule: Rule) -> Json:
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
