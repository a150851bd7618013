"""Mends of a report: what to change, and what each change brings, in the numbers of the level at which it was tried."""

from __future__ import annotations

from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.study.mends import Mend, Mends
from shardviz.view.comparison import difference_text
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Inline,
    Piece,
    Row,
    Section,
    Table,
    code,
    document,
    line,
    notes,
    row,
    words,
)

_MOST_LINES = 2
_MOST_BY_HAND = 3


@document.register
def mends_document(found: Mends) -> Document:
    """The changes that help, the one that saves most first; below them what else was tried."""
    title = (words(f"Mends of {found.program}", strong=True), code("" if found.target == "cpu" else found.target))
    blocks: list[Block] = []
    if found.mends:
        timed = any(m.seconds is not None for m in found.mends)
        heads = [Column("change", wrap=True), Column("step saved", right=True)][: 1 + timed]
        heads += [Column("moved", right=True), Column("memory, about", right=True), Column("where"), Column("level")]
        rows = tuple(_row(mend, timed) for mend in found.mends)
        blocks.append(Table(columns=tuple(heads), rows=rows, first=len(rows), most=len(rows), noun="mend"))
        blocks += notes("Each is tried by itself: two of them together may save less than their sum.")
    else:
        blocks += notes(_nothing(found))
    if found.by_hand:
        more = (
            f"; and {plural(len(found.by_hand) - _MOST_BY_HAND, 'other')}" if len(found.by_hand) > _MOST_BY_HAND else ""
        )
        said = "; ".join(found.by_hand[:_MOST_BY_HAND])
        blocks += notes(f"Not tried, as only a person can write it: {said}{more}.")
    if found.not_offered:
        refused = tuple(row(words(n.action), words(n.why)) for n in found.not_offered)
        heads = (Column("change", wrap=True), Column("why it is not offered", wrap=True))
        table = Table(columns=heads, rows=refused, noun="change")
        lead = (words(plural(len(refused), "change")),)
        blocks.append(Section(title="Tried, and no better", lead=lead, blocks=(table,), fold="closed", brief=True))
    return Document(title=title, lead=(_lead(found),), blocks=tuple(blocks))


def _lead(found: Mends) -> Inline:
    said = f"{found.tried} of {plural(found.candidates, 'change')} tried, {len(found.mends)} worth making"
    if not found.finished:
        said += "; not finished"
    steps = [m.step for m in found.mends if m.step]
    if steps:
        said += f"; the step takes {format_seconds(steps[0])} as it is, where nothing overlaps"
    return (words(said),)


def _nothing(found: Mends) -> str:
    if not found.candidates:
        return "There is nothing to try: no finding suggests a change, and no logical dimension can be cut otherwise."
    return f"None of {plural(found.tried, 'change')} that were tried makes it better."


def _row(mend: Mend, timed: bool) -> Row:
    where = tuple(line(frame) for frame in mend.lines[:_MOST_LINES])
    action: list[Piece] = [words(f"{mend.action}:", strong=True)]
    if mend.finding is not None:
        action.append(words(f"against {mend.finding.rule}", quiet=True, tip=mend.finding.text))
    action.append(words("; ".join(mend.collectives) or "no other collectives", quiet=True))
    if mend.write:
        action += [words("· write", quiet=True), code(mend.write)]
    cells: list[Inline] = [tuple(action)]
    if timed:
        saved = mend.seconds or 0.0
        cells.append(words(format_seconds(saved) if saved else "as long", tone="good" if saved > 0 else ""))
    moved = mend.difference.amount("operand bytes")
    cells += [words(difference_text(moved)), words(_signed(mend.memory)), where or words(""), words(mend.level)]
    return row(*cells)


def _signed(size: float) -> str:
    """`+1.30 GB`; `the same` for less than a megabyte."""
    if abs(size) < 0.5e6:
        return "the same"
    return f"{'+' if size > 0 else '−'}{format_bytes(abs(size))}"
