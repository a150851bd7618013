"""The texts that a program goes through, one at a time, searched; each line leads to the line of the person's source
that it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardviz.records.stages import Stage, StageLine
from shardviz.view.document import Block, Column, Document, Piece, Row, Table, code, notes, paragraph, row, words

Query = Mapping[str, Any]
MOST_ROWS = 160
_LONGEST = 420
COLUMNS = (Column("", right=True), Column("program", wrap=True), Column("line"))


def stages_shown(
    stages: Sequence[Stage], query: Query, *, waits: str = "", trouble: str = ""
) -> tuple[Document, dict[str, Any]]:
    """A text of the plan, as a query has it: `stage` (a name), `find` (words of a line), `line` (`model.py:20`), `at`
    (the first row). Besides for the page's controls: `name` of the text; `names`, the name, title and language of each;
    rows that were `found`, the first, `at`."""
    blocks: list[Block] = [paragraph(words(trouble, tone="warn"), name="stages-trouble")] if trouble else []
    blocks += [paragraph(waits, quiet=True, name="stages-busy")] if waits else []
    if not stages:
        facts = {"name": "", "names": (), "at": 0, "found": 0}
        return Document(blocks=tuple(blocks) or notes("There is no program text yet.")), facts
    stage = next((s for s in stages if s.name == query.get("stage")), stages[-1])
    matching = [(place, line) for place, line in enumerate(stage.lines, 1) if _matches(line, query)]
    at = max(0, min(int(query.get("at") or 0), (max(0, len(matching) - 1) // MOST_ROWS) * MOST_ROWS))
    rows = tuple(_row(*each) for each in matching[at : at + MOST_ROWS])
    if not rows:
        blocks.append(paragraph("No line matches.", quiet=True, name="stages-none"))
    else:
        look: dict[str, Any] = {"first": 24, "most": MOST_ROWS, "noun": "line", "folds": "never", "name": "stage"}
        blocks.insert(0, Table(columns=COLUMNS, rows=rows, **look))
    title = (words(stage.title, strong=True), words(stage.told, quiet=True))
    names = tuple((s.name, s.title, s.kind) for s in stages)
    facts = {"name": stage.name, "names": names, "at": at, "found": len(matching)}
    return Document(title=title, blocks=tuple(blocks)), facts


def _matches(line: StageLine, query: Query) -> bool:
    """Whether a line is of the source line that is asked for, and has all words that are looked for."""
    asked, at = str(query.get("find") or "").lower().split(), query.get("line") or ""
    return (not at or line.at == at) and all(word in f"{line.text} {line.at}".lower() for word in asked)


def _row(place: int, line: StageLine) -> Row:
    at, text = line.at, line.text if len(line.text) <= _LONGEST else f"{line.text[: _LONGEST - 1]}…"
    where = Piece(text=at, kind="line", value="", quiet=True, selects=("line", at)) if at else words("")
    tip = line.text.strip()[:1200] if text != line.text else ""
    return row(words(f"{place:,}", quiet=True), code(text, tip=tip), where)
