"""The texts that a program goes through, one at a time: searched, held against the one before.

A line that is different is marked in front (`+`, `−`, `~`) and in colour, what is new in it stands out; each line leads
to the line of the person's source that it comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from shardviz.records.amounts import plural
from shardviz.records.stages import Stage, StageLine
from shardviz.study.line_changes import LineChange, changes
from shardviz.view.document import Block, Column, Document, Piece, Row, Table, notes, paragraph, row, words

Query = Mapping[str, Any]
MOST_ROWS = 160
_LONGEST = 420
_AROUND = 1  # lines that are shown before and after one that is different
_MARKS = {"same": ("", ""), "new": ("+", "good"), "gone": ("−", "bad"), "other": ("~", "warn")}
COLUMNS = (Column("", right=True), Column("program", wrap=True), Column("line"))


def stages_shown(
    stages: Sequence[Stage], query: Query, *, waits: str = "", trouble: str = ""
) -> tuple[Document, dict[str, Any]]:
    """A text of the plan, as a query has it: `stage` (a name), `find` (words of a line), `line` (`model.py:20`),
    `against` (`stage`: the text before), `only` (what differs), `at` (the first row). Besides for the page's controls:
    `name` of the text; `names`, the name, title and language of each; `against`, and what it `could` be held against;
    rows that were `found`, the first, `at`."""
    blocks: list[Block] = [paragraph(words(trouble, tone="warn"), name="stages-trouble")] if trouble else []
    blocks += [paragraph(waits, quiet=True, name="stages-busy")] if waits else []
    if not stages:
        facts = {"name": "", "names": (), "against": "", "could": (), "at": 0, "found": 0}
        return Document(blocks=tuple(blocks) or notes("There is no program text yet.")), facts
    stage = next((s for s in stages if s.name == query.get("stage")), stages[-1])
    place = stages.index(stage)
    before = stages[place - 1] if place and stages[place - 1].kind == stage.kind else None
    base = before if query.get("against") == "stage" else None
    same = (LineChange("same", n, line.text) for n, line in enumerate(stage.lines))
    all_rows = [*same] if base is None else _changes(base.lines, stage.lines)
    chosen = _chosen(all_rows, stage.lines, query, base is not None)
    at = max(0, min(int(query.get("at") or 0), (max(0, len(chosen) - 1) // MOST_ROWS) * MOST_ROWS))
    shown = chosen[at : at + MOST_ROWS]
    rows = tuple(_row(change, stage.lines) for change in shown)
    title = (words(stage.title, strong=True), words(stage.told, quiet=True))
    lead = () if base is None else (tuple(_counted(all_rows, base.title)),)
    if not rows:
        blocks.append(paragraph("No line matches.", quiet=True, name="stages-none"))
    else:
        table = Table(columns=COLUMNS, rows=rows, first=24, most=MOST_ROWS, noun="line", folds="never", name="stage")
        blocks.insert(0, table)
    names = tuple((s.name, s.title, s.kind) for s in stages)
    could = () if before is None else ("stage",)
    facts = {"name": stage.name, "names": names, "against": "" if base is None else "stage", "could": could}
    return Document(title=title, lead=lead, blocks=tuple(blocks)), {**facts, "at": at, "found": len(chosen)}


@lru_cache(maxsize=6)
def _changes(old: tuple[StageLine, ...], new: tuple[StageLine, ...]) -> list[LineChange]:
    return changes([line.text for line in old], [line.text for line in new])


def _chosen(every: Sequence[LineChange], lines: Sequence[StageLine], query: Query, differs: bool) -> list[LineChange]:
    asked, line = str(query.get("find") or "").lower().split(), query.get("line") or ""
    only = differs and query.get("only")
    if not asked and not line:
        places = [n for n, change in enumerate(every) if change.kind != "same"]
        near = {n + off for n in places for off in range(-_AROUND, _AROUND + 1)}
        return [change for n, change in enumerate(every) if not only or n in near]

    def has(change: LineChange) -> bool:
        at = _at(change, lines)
        return (not line or at == line) and all(word in f"{change.text} {at}".lower() for word in asked)

    return [change for change in every if has(change) and not (only and change.kind == "same")]


def _at(change: LineChange, lines: Sequence[StageLine]) -> str:
    return "" if change.kind == "gone" or change.place >= len(lines) else lines[change.place].at


def _counted(every: Sequence[LineChange], against: str) -> list[Piece]:
    counts = Counter(change.kind for change in every)
    told = [
        words(f"{_MARKS[kind][0]} {plural(counts[kind], 'line')} {what}", tone=_MARKS[kind][1])
        for kind, what in (("new", "new"), ("gone", "gone"), ("other", "changed"))
        if counts[kind]
    ]
    if not told:
        return [words(f"the same as {against}, except for the numbers of values", quiet=True)]
    return [words(f"compared with {against}:", quiet=True), *told]


def _row(change: LineChange, lines: Sequence[StageLine]) -> Row:
    mark, tone = _MARKS[change.kind]
    number = "" if change.kind == "gone" else f"{change.place + 1:,}"
    at = _at(change, lines)
    where = Piece(text=at, kind="line", value="", quiet=True, selects=("line", at)) if at else words("")
    mark_text = " ".join(filter(None, (mark, number)))
    tip = f"it was: {change.was.strip()[:1200]}" if change.was else ""
    return row(words(mark_text, quiet=not tone, tone=tone, tip=tip), tuple(_text(change)), where)


def _text(change: LineChange) -> list[Piece]:
    """The line, with what is new in it marked."""
    text, tone = change.text, _MARKS[change.kind][1]
    tip = text.strip()[:1200] if len(text) > _LONGEST else ""
    if change.kind != "other" or change.marked is None:
        return [_code(text, "" if change.kind == "same" else tone, tip)]
    start, end = change.marked
    parts = ((text[:start], ""), (text[start:end], "warn"), (text[end:], ""))
    return [_code(part.rstrip(), mark, tip) for part, mark in parts if part.strip()]


def _code(text: str, tone: Any, tip: str) -> Piece:
    clipped = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return Piece(text=clipped, kind="code", tone=tone, strong=bool(tone), tip=tip)
