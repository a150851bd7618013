"""A table of rules in text and HTML: what each catches and wins, and what no rule catches.

>>> from shardviz.program.bind import Row, RulesTable
>>> row = Row(rule="'*kernel'", spec=Spec.of(("data",)), wins=("a.kernel",), loses=(("b.kernel", 2),))
>>> print(rules_text(RulesTable((row,), ())))
rule  filter     spec       catches  wins
1     '*kernel'  P('data')        2     1
  wins a.kernel
  rule 2 wins b.kernel
No array is left without a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from shardviz.notation import Spec
from shardviz.paint.columns import columns, wrap
from shardviz.program.bind import Row, RulesTable
from shardviz.records.amounts import plural
from shardviz.render.chips import QUIET, SANS, cell, table

MAX_NAMES = 4
"""Of more names the first are listed."""


def rules_text(found: RulesTable, width: int = 100) -> str:
    """The table in plain text: a line a rule, below it what it wins, what others win, and what does not fit."""
    heads = [("rule", "filter", "spec", "catches", "wins")]
    rows = [_summary(i, row) for i, row in enumerate(found.rows, 1)]
    head, *lines = columns(heads + rows, right=(3, 4))
    text = [head] if rows else ["No rules."]
    for line, row in zip(lines, found.rows, strict=True):
        text += [line, *(part for words in _words(row) for part in wrap("  " + words, width, "    "))]
    return "\n".join([*text, *wrap(_left(found), width, "  ")])


def rules_html(found: RulesTable) -> str:
    """The same in HTML that survives JupyterLab's sanitizer; every text from outside is escaped."""
    rows = []
    for i, row in enumerate(found.rows, 1):
        number, rule, spec, caught, wins = map(escape, _summary(i, row))
        more = "<br>".join(map(escape, _words(row)))
        rows.append(
            (
                cell(number, right=True),
                cell(f"<b>{rule}</b>"),
                cell(spec),
                cell(caught, right=True),
                cell(wins, right=True),
                cell(f'<span style="{QUIET}">{more}</span>', wrap=True),
            )
        )
    made = table((">rule", "filter", "spec", ">catches", ">wins", "which"), rows) if rows else "No rules."
    return f'<div style="{SANS};overflow-x:auto">{made}<div>{escape(_left(found))}</div></div>'


def _summary(number: int, row: Row) -> tuple[str, str, str, str, str]:
    return str(number), row.rule, str(row.spec.canonical()), str(row.caught), str(len(row.wins))


def _words(row: Row) -> list[str]:
    """What a rule does, in words."""
    if not row.caught:
        return ["catches none"]
    words = [f"wins {_names(row.wins)}"] if row.wins else ["wins none"]
    for winner, lost in groupby(sorted(row.loses, key=lambda pair: pair[1]), key=lambda pair: pair[1]):
        words.append(f"rule {winner} wins {_names([name for name, _ in lost])}")
    if row.edited:
        words.append(f"edited by hand: {_names(row.edited)}")
    return words + [f"does not fit: {why}" for _, why in row.unfit]


def _left(found: RulesTable) -> str:
    if not found.uncaught:
        return "No array is left without a rule."
    names = [f"{name} {(spec or Spec()).canonical()}" for name, spec in found.uncaught]
    return f"No rule catches {plural(len(names), 'array')}: {_names(names)}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (f", … and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
