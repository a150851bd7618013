"""A question in the explorer, and its answer: that of `view.why`, and below it what would change without each cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardviz.explorer.snapshot import Asked
from shardviz.judge.comparison import Amount, Comparison
from shardviz.records.amounts import plural
from shardviz.records.why import Cause, Why
from shardviz.view.comparison import difference_text
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Inline,
    Row,
    Section,
    Table,
    document,
    row,
    spec,
    words,
)
from shardviz.view.why import source_pieces

_COLUMNS = (
    Column("if this did not say so"),
    Column("cut"),
    Column("values cut otherwise", right=True),
    *(Column(title, right=True) for title in ("moved", "arguments", "step")),
)
_AMOUNTS = ("operand bytes", "arguments", "step, nothing overlaps")
_MOST = 8
_FOLLOWS = {
    "shard_map": "the shapes inside follow from it: change the function",
    "type": "it follows from the arguments' types",
}


def asked_document(asked: Asked) -> Document | None:
    """The answer as the explorer shows it; None while there is none."""
    answer = asked.answer
    if answer is None:
        return None
    told = document(answer)
    if not isinstance(answer, Why) or not answer.causes:
        return told
    return replace(told, blocks=(*told.blocks[:-1], changes_section(answer, asked.changes), *told.blocks[-1:]))


def changes_section(answer: Why, changes: Mapping[int, Any]) -> Section:
    """What would change in the whole program without each cause, as far as that was asked.

    Args:
        answer: the answer.
        changes: which cause → the `Comparison`.
    """
    rows = tuple(_change(n, cause, changes.get(n)) for n, cause in enumerate(answer.causes[:_MOST]))
    left = max(0, len(answer.causes) - _MOST)
    table = Table(columns=_COLUMNS, rows=rows, first=_MOST, noun="cause", hidden=left, name="why-changes")
    blocks: list[Block] = [table]
    for each in changes.values():
        fold = Section(title=each.names[1], blocks=document(each).blocks, fold="closed")
        blocks.append(fold)
    lead = words("for the whole program on one device in a step, propagated anew", quiet=True)
    return Section(title="What would change", lead=(lead,), blocks=tuple(blocks), name="changes")


def _change(number: int, cause: Cause, found: Comparison | None) -> Row:
    said: tuple[Inline, ...] = (source_pieces(cause.source)[:-1], spec(cause.source.spec))
    none = (words(""),) * len(_AMOUNTS)
    if cause.source.role in _FOLLOWS:
        return row(*said, words(_FOLLOWS[cause.source.role], quiet=True), *none)
    if found is None:
        return row(*said, words("try it", selects=("without", str(number))), *none)
    known = {a.name: a for a in found.amounts}
    specs = words(plural(len(found.specs), "value"))
    return row(*said, specs, *(_difference(known.get(name)) for name in _AMOUNTS))


def _difference(amount: Amount | None) -> Inline:
    if amount is None:
        return words("–", quiet=True)
    tone = "" if not amount.difference else "bad" if amount.difference > 0 else "good"
    return words(difference_text(amount), quiet=not tone, tone=tone)
