"""Documents in plain text: what terminals, diffs, tests and screen readers read. The same document gives the same text.

>>> from shardviz.view.document import Column, Document, Table, nbytes, row, words
>>> table = Table(columns=(Column("name"), Column("per device", right=True)), rows=(row(words("w"), nbytes(512)),))
>>> print(text_of(Document(title=words("arrays"), blocks=(table,))))
arrays
<BLANKLINE>
name  per device
w          512 B
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from shardviz.paint.columns import columns, pad, text_width, wrap
from shardviz.paint.outside import isolated, steerless, told
from shardviz.records.amounts import plural
from shardviz.view.document import (
    Beside,
    Block,
    Column,
    Document,
    Inline,
    Listing,
    Paragraph,
    Part,
    Piece,
    Section,
    Table,
    joined,
    plain,
)
from shardviz.view.picture import Grid, Picture

PROSE = 100
"""Columns of a sentence's line where no width is asked for; tables then take what they need."""

BAR = 24
_LEAST = 16  # columns that are worth wrapping words into
_WIDTH = 80  # columns of a picture's grid where no width is asked for
_ROWS, _COLUMNS, _GRIDS = 72, (64, 32, 16, 8, 4, 2, 1), (16, 4, 1)  # rows in all, columns of a grid, and grids
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066\u2067]"
)  # in figures too, all but isolates
_TIPS = "▏▎▍▌▋▊▉"


def text_of(document: Document, width: int | None = None) -> str:
    """A document in plain text, no line longer than `width`, no newline at its end, `�` for each character that would
    steer a terminal. Without a width, sentences are wrapped at 100 columns, and tables are as wide as they need."""
    lines = _wrapped(said(document.title), width) if document.title else []
    for inline in document.lead:
        lines += _wrapped(said(inline), width)
    lines += _blocks(document.blocks, width, top=bool(lines))
    return "\n".join(_CONTROL.sub("�", line.rstrip()) for line in lines)


def said(inline: Inline) -> str:
    """Pieces in plain text without steering characters; right-to-left text is isolated."""
    pieces = (inline,) if isinstance(inline, Piece) else inline
    return joined(pieces, [steerless(plain(p)) if p.whole else isolated(told(plain(p))) for p in pieces])


def _wrapped(text: str, width: int | None) -> list[str]:
    return wrap(text, width or PROSE, "  ")


def _blocks(blocks: Iterable[Block], width: int | None, *, top: bool) -> list[str]:
    """Blocks one below the other; what has a heading or a figure stands apart by an empty line."""
    lines: list[str] = []
    for block in blocks:
        block_lines = _block(block, width)
        if not block_lines:
            continue
        if (lines or top) and not isinstance(block, Paragraph) and lines[-1:] != [""]:
            lines.append("")
        lines += block_lines
    return lines


def _block(block: Block, width: int | None) -> list[str]:
    if isinstance(block, Paragraph):
        return paragraph_lines(block, width)
    if isinstance(block, Table):
        return table_lines(block, width)
    if isinstance(block, Section):
        return _section(block, width)
    if isinstance(block, Beside):
        return _blocks(block.blocks, width, top=False)
    return [] if block.brief else figure_lines(block.of, width).splitlines()


def figure_lines(of: Picture | Listing, width: int | None) -> str:
    """A Picture's grids as tables of lines, the columns that are too many merged (its description where it has none),
    or the lines of a Listing."""
    if isinstance(of, Listing):
        return steerless(of.text)
    width = width or _WIDTH
    if not of.grids:
        return "\n".join(_wrapped(of.alt, width))
    drawn, lines = of, _grids(of, width)
    for across, count in itertools.product(_COLUMNS, _GRIDS):
        if lines is None and of.coarser is not None and 4 * across < width:
            few = of.coarser(_ROWS // min(count, len(of.grids)), across, count)
            drawn, lines = few, None if few is drawn else _grids(few, width)
    lines = _wrapped(of.alt, width) if lines is None else lines
    return "\n".join([*lines, *[""] * bool(drawn.notes), *(line for note in drawn.notes for line in wrap(note, width))])


def _grids(of: Picture, width: int) -> list[str] | None:
    """The grids one below the other; None where they would be too wide, or very high."""
    if sum(len(grid.texts) for grid in of.grids) > _ROWS:
        return None
    lines: list[str] = []
    for grid in of.grids:
        box = _box(grid, width)
        if box is None:
            return None
        lines += ([""] if lines else []) + (wrap(grid.caption, width) if grid.caption else []) + box
    return lines


def _box(grid: Grid, width: int) -> list[str] | None:
    """A grid in rules; None where it would be too wide."""
    more = f" ×{grid.copies}" if grid.copies > 1 else ""
    if sum(map(text_width, grid.texts[0])) > width:
        return None
    cells = [[text + more for text in row] for row in grid.texts]
    inner = max(text_width(text) for row in cells for text in row)
    across, margin = len(cells[0]), max((text_width(name) + 2 for name in grid.rows), default=0)
    room = (width - margin - 1) // across - 3
    heads = grid.columns if grid.columns and max(map(text_width, grid.columns)) <= room else ()
    wide = max([inner, *map(text_width, heads)])
    if wide > room:
        return None
    rule, indent = "─" * (wide + 2), " " * margin
    lines = [indent + " " + " ".join(pad(text, wide + 2, "middle") for text in heads)] if heads else []
    lines.append(f"{indent}┌{'┬'.join([rule] * across)}┐")
    for r, row in enumerate(cells):
        head = f" {pad(grid.rows[r], margin - 2, 'right')} " if margin else ""
        lines.append(f"{head}│" + "".join(f" {pad(pad(text, inner, 'right'), wide, 'middle')} │" for text in row))
    return [line.rstrip() for line in [*lines, f"{indent}└{'┴'.join([rule] * across)}┘"]]


def paragraph_lines(block: Paragraph, width: int | None) -> list[str]:
    """A paragraph in lines."""
    text = said(block.pieces)
    return _wrapped(f"{told(block.label)}: {text}" if block.label else text, width) if text else []


def _section(block: Section, width: int | None) -> list[str]:
    lead = said(block.lead)
    title = isolated(told(block.title))
    lines = _wrapped(f"{title}: {lead}" if lead else title, width)
    if block.brief:
        return lines if lead else []
    inner = None if width is None else width - 2
    return lines + [f"  {line}" if line else "" for line in _blocks(block.blocks, inner, top=False)]


def table_lines(table: Table, width: int | None) -> list[str]:
    """A table in aligned columns; where it is too wide, columns of words are wrapped, and the last columns are
    folded."""
    lines = _wrapped(isolated(told(table.caption)), width) if table.caption else []
    shown = table.rows[: table.first]
    across = BAR if width is None else max(8, min(BAR, width // 5))
    grid = [[_cell(cell, across) for cell in r.cells] for r in shown]
    heads = [told(column.title) for column in table.columns]
    head_lines, *body = _fitted([heads, *grid], table.columns, width)
    lines += head_lines if any(head_lines) else []
    for row_lines, r in zip(body, shown, strict=True):
        lines += row_lines
        inner = None if width is None else max(width - 4, _LEAST)
        detail = () if table.folds == "always" else r.detail
        lines += [f"    {line}" for line in _blocks(detail, inner, top=False)]
    more = len(table.rows) - len(shown) + table.hidden
    if more:
        lines.append(f"… and {plural(more, f'more {table.noun}')}")
    return lines


def _cell(cell: Inline, across: int) -> str:
    pieces = (cell,) if isinstance(cell, Piece) else cell
    return joined(pieces, [bar_text(p.value, across) if p.kind == "bar" else said(p) for p in pieces])


def _fitted(grid: list[list[str]], heads: Sequence[Column], width: int | None) -> list[list[str]]:
    """The lines of each row, that of the heads first; columns for which there is no room are folded below their row."""
    shown = next((n for n in range(len(heads), 1, -1) if _widths(grid, heads[:n], width)), 1)
    widths = _widths(grid, heads[:shown], width) or [width]
    cells = [[(wrap(text, n) or [""]) if n else [text] for text, n in zip(row, widths, strict=False)] for row in grid]
    lines = [list(itertools.zip_longest(*row, fillvalue="")) for row in cells]
    right = [i for i, head in enumerate(heads) if head.right]
    aligned = iter(columns([line for row in lines for line in row], right))
    body = [[next(aligned) for _ in row] for row in lines]
    for row, below in zip(grid[1:], body[1:], strict=True):
        folded = [(head, cell.strip()) for head, cell in zip(grid[0][shown:], row[shown:], strict=True)]
        text = "; ".join(f"{head} {cell}".strip() for head, cell in folded if cell)
        below += wrap(f"  {text}", width or PROSE, "    ") if text else []
    return body


def _widths(grid: list[list[str]], heads: Sequence[Column], width: int | None) -> list[int]:
    """What each column may take, 0 for as much as it needs; none where they do not fit side by side."""
    needs = [max(text_width(row[i]) for row in grid) for i in range(len(heads))]
    left = 0 if width is None else width - sum(needs) - 2 * (len(heads) - 1)
    if left >= 0:
        return [0] * len(heads)
    wraps = sorted((i for i, head in enumerate(heads) if head.wrap), key=lambda i: needs[i])
    room, widths = left + sum(needs[i] for i in wraps), [0] * len(heads)
    for place, i in enumerate(wraps):
        widths[i] = min(needs[i], room // (len(wraps) - place))
        room -= widths[i]
    return widths if wraps and all(widths[i] >= min(_LEAST, needs[i]) for i in wraps) else []


def bar_text(parts: Sequence[Part], width: int = BAR) -> str:
    """A bar of blocks, an eighth of a column at least where there is anything, filled up to its full width."""
    return pad(blocks(sum(part.share for part in parts), width), width)


def blocks(share: float, width: int = BAR) -> str:
    """`███▌`: a share, 0 to 1, of so many columns."""
    eighths = round(8 * width * share)
    if share and not eighths:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return "█" * full + (_TIPS[rest - 1] if rest else "")
