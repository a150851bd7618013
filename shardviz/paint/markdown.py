"""Documents in Markdown for issues and pull requests: headings, lists, GitHub's tables.

>>> from shardviz.view.document import Column, Document, Table, code, row
>>> print(markdown_of(Document(title=code("step"), blocks=(Table(columns=(Column("a|b"),), rows=(row(code("x")),)),))))
## `step`
<BLANKLINE>
| a\\|b |
| --- |
| `x` |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shardviz.paint.outside import isolated, shown, uncontrolled
from shardviz.paint.text import blocks, figure_lines
from shardviz.records.amounts import plural
from shardviz.view.document import Block, Document, Inline, Paragraph, Piece, Section, SideBySide, Table, joined

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")
_MONO = ("code", "axes", "mesh", "spec")


def markdown_of(document: Document) -> str:
    """Return a document as Markdown; all its text is escaped."""
    parts = [f"## {_inline(document.title)}"] if document.title else []
    parts += [_inline(line) for line in document.lead]
    parts += _blocks(document.blocks, 3)
    return "\n\n".join(parts)


def _blocks(blocks: Iterable[Block], level: int) -> list[str]:
    return [text for block in blocks for text in _block(block, level) if text]


def _block(block: Block, level: int) -> list[str]:
    if isinstance(block, Paragraph):
        label = f"**{_escaped(block.label)}**: " if block.label else ""
        return [label + _inline(block.pieces)] if block.pieces else []
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Section):
        lead = _inline(block.lead)
        head = f"{'#' * min(level, 6)} {_escaped(block.title)}"
        return [head, *([lead] if lead else []), *_blocks(block.blocks, level + 1)]
    if isinstance(block, SideBySide):
        return _blocks(block.blocks, level)
    text = figure_lines(block.of, None)
    fence = _ticks(text, 3)
    return [f"{fence}\n{text}\n{fence}"]


def _table(table: Table) -> list[str]:
    rows = table.rows[: table.most]
    lines = ["| " + " | ".join(_escaped(column.title) for column in table.columns) + " |"]
    lines.append("| " + " | ".join("---:" if column.right else "---" for column in table.columns) + " |")
    for row in rows:  # a row's details are lines in its last cell
        *cells, last = map(_inline, row.cells)
        detail = () if table.folds == "always" else _lines(row.detail)
        lines.append("| " + " | ".join((*cells, "<br>".join(filter(None, (last, *detail))))) + " |")
    more = len(table.rows) - len(rows) + table.hidden
    rest = [f"… and {plural(more, f'more {table.noun}')}"] if more else []
    caption = [f"**{_escaped(table.caption)}**"] if table.caption else []
    return [*caption, "\n".join(lines), *rest]


def _lines(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Table):
            yield from (" ".join(map(_inline, row.cells)) for row in block.rows[: block.most])
        elif isinstance(block, Paragraph):
            yield from _block(block, 0)
        elif isinstance(block, Section):
            yield " ".join((f"{_escaped(block.title)}:", _inline(block.lead)))
            yield from _lines(block.blocks)
        elif isinstance(block, SideBySide):
            yield from _lines(block.blocks)


def _inline(inline: Inline) -> str:
    pieces = (inline,) if isinstance(inline, Piece) else inline
    return joined(pieces, list(map(_piece, pieces)))


def _piece(piece: Piece) -> str:
    if piece.kind == "bar":
        return blocks(sum(part.share for part in piece.value))
    if piece.kind == "ask":
        return ""
    if piece.kind in _MONO:
        text = _code(uncontrolled(piece.text) if piece.whole else shown(piece.text))
    elif piece.kind == "line":
        text = _escaped(piece.text) + (f" {_code(piece.value)}" if piece.value else "")
    else:
        text = _escaped(piece.text)
    text = text if piece.whole else isolated(text)
    return f"**{text}**" if piece.strong and text else text


def _ticks(text: str, least: int) -> str:
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def _code(text: str) -> str:
    """Return text between backticks, more of them than occur in it."""
    if not text:
        return ""
    ticks = _ticks(text, 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{_one_line(text).replace('|', chr(92) + '|')}{space}{ticks}"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", _one_line(shown(text)))


def _one_line(text: str) -> str:
    return " ".join(uncontrolled(text).split())
