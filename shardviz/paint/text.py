"""Documents in plain text, for terminals, diffs, tests and screen readers. Equal documents give equal text.

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
from shardviz.paint.outside import isolated, shown, uncontrolled
from shardviz.records.amounts import plural
from shardviz.view import document as doc
from shardviz.view.picture import Film, Grid, Picture

PROSE = 100
"""Columns of a line of prose if no width is given; tables then take the columns that they need."""

BAR = 24
_LEAST = 16  # the least columns for wrapped words
_WIDTH = 80  # columns of a picture's grid if no width is given
_ROWS, _COLUMNS, _GRIDS = 72, (64, 32, 16, 8, 4, 2, 1), (16, 4, 1)  # total rows, columns of a grid, number of grids
# all control characters except isolates
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066\u2067]")
_TIPS = "▏▎▍▌▋▊▉"
_BESIDE = "    "  # between blocks side by side


def text_of(document: doc.Document, width: int | None = None) -> str:
    """Return a document as plain text without a final newline, at most `width` columns wide. Without a width, sentences
    are wrapped at 100 columns, and tables are as wide as they need. `�` replaces each character that controls a
    terminal."""
    lines = _wrapped(inline_text(document.title), width) if document.title else []
    for inline in document.lead:
        lines += _wrapped(inline_text(inline), width)
    lines += _blocks(document.blocks, width, top=bool(lines))
    return "\n".join(_CONTROL.sub("�", line.rstrip()) for line in lines)


def inline_text(inline: doc.Inline) -> str:
    """Return pieces as plain text without control characters; right-to-left text is isolated."""
    pieces = (inline,) if isinstance(inline, doc.Piece) else inline
    texts = ((piece.whole, doc.plain(piece)) for piece in pieces)
    return doc.joined(pieces, [uncontrolled(text) if whole else isolated(shown(text)) for whole, text in texts])


def _wrapped(text: str, width: int | None) -> list[str]:
    return wrap(text, width or PROSE, "  ")


def _blocks(blocks: Iterable[doc.Block], width: int | None, *, top: bool) -> list[str]:
    """Return the lines of blocks; an empty line precedes a block with a heading or a figure."""
    lines: list[str] = []
    for block in blocks:
        block_lines = _block(block, width)
        if not block_lines:
            continue
        if (lines or top) and not isinstance(block, doc.Paragraph) and lines[-1:] != [""]:
            lines.append("")
        lines += block_lines
    return lines


def _block(block: doc.Block, width: int | None) -> list[str]:
    if isinstance(block, doc.Paragraph):
        text = inline_text(block.pieces)
        return _wrapped(f"{shown(block.label)}: {text}" if block.label else text, width) if text else []
    if isinstance(block, doc.Table):
        return table_lines(block, width)
    if isinstance(block, doc.Section):
        return _section(block, width)
    if isinstance(block, doc.SideBySide):
        return _beside(block.blocks, width)
    return [] if block.brief else figure_lines(block.of, width).splitlines()


def _beside(blocks: Sequence[doc.Block], width: int | None) -> list[str]:
    """Return the lines of blocks, side by side as far as they fit the width."""
    if width is None:
        return _blocks(blocks, width, top=False)
    lines: list[str] = []
    row: list[str] = []
    for block in filter(None, (_block(each, width) for each in blocks)):
        wide = max(map(text_width, row), default=0) + len(_BESIDE)
        if row and wide + max(map(text_width, block)) <= width:
            row = [(pad(one, wide) + two).rstrip() for one, two in itertools.zip_longest(row, block, fillvalue="")]
        else:
            lines += [*row, *[""] * bool(row)]
            row = block
    return lines + row


def figure_lines(figure: Picture | doc.Listing | Film, width: int | None) -> str:
    """Return a Picture's grids as tables of lines, or the lines of a Listing. If there are too many columns, neighbours
    are merged. A Picture without grids becomes its description."""
    if isinstance(figure, doc.Listing):
        return uncontrolled(figure.text)
    if isinstance(figure, Film):
        return uncontrolled(figure.filmstrip)
    width = width or _WIDTH
    if not figure.grids:
        return "\n".join(_wrapped(figure.alt, width))
    drawn, lines = figure, _grids(figure, width)
    for across, count in itertools.product(_COLUMNS, _GRIDS):
        if lines is None and figure.coarser is not None and 4 * across < width:
            few = figure.coarser(_ROWS // min(count, len(figure.grids)), across, count)
            drawn, lines = few, None if few is drawn else _grids(few, width)
    lines = _wrapped(figure.alt, width) if lines is None else lines
    return "\n".join([*lines, *[""] * bool(drawn.notes), *(line for note in drawn.notes for line in wrap(note, width))])


def _grids(figure: Picture, width: int) -> list[str] | None:
    """Return the grids one below the other; None if they are too wide or too high."""
    if sum(len(grid.texts) for grid in figure.grids) > _ROWS:
        return None
    lines: list[str] = []
    for grid in figure.grids:
        box = _box(grid, width)
        if box is None:
            return None
        lines += ([""] if lines else []) + (wrap(grid.caption, width) if grid.caption else []) + box
    return lines


def _box(grid: Grid, width: int) -> list[str] | None:
    """Return a grid in box-drawing characters; None if it is too wide."""
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
    rule, indent, (below, right) = "─" * (wide + 2), " " * margin, grid.edges
    lines = [indent + " " + " ".join(pad(text, wide + 2, "middle") for text in heads)] if heads else []
    lines.append(f"{indent}┌{'┬'.join([rule] * across)}┐")
    for r, row in enumerate(cells):
        thick = [(r - 1, c) in below for c in range(across)]
        if any(thick):
            lines.append(f"{indent}│{'┿'.join(('━' if edge else ' ') * (wide + 2) for edge in thick)}│")
        head = f" {pad(grid.rows[r], margin - 2, 'right')} " if margin else ""
        ends = ["┃" if (r, c) in right else "│" for c in range(across)]
        body = (pad(pad(text, inner, "right"), wide, "middle") for text in row)
        lines.append(f"{head}│" + "".join(f" {text} {end}" for text, end in zip(body, ends, strict=True)))
    return [line.rstrip() for line in [*lines, f"{indent}└{'┴'.join([rule] * across)}┘"]]


def _section(block: doc.Section, width: int | None) -> list[str]:
    lead = inline_text(block.lead)
    title = isolated(shown(block.title))
    lines = _wrapped(f"{title}: {lead}" if lead else title, width)
    if block.brief:
        return lines if lead else []
    inner = None if width is None else width - 2
    return lines + [f"  {line}" if line else "" for line in _blocks(block.blocks, inner, top=False)]


def table_lines(table: doc.Table, width: int | None) -> list[str]:
    """Return a table in aligned columns; if it is too wide, words are wrapped and the last columns folded."""
    lines = _wrapped(isolated(shown(table.caption)), width) if table.caption else []
    rows = table.rows[: table.first]
    across = BAR if width is None else max(8, min(BAR, width // 5))
    grid = [[_cell(cell, across) for cell in r.cells] for r in rows]
    heads = [shown(column.title) for column in table.columns]
    head_lines, *body = _fitted([heads, *grid], table.columns, width)
    lines += head_lines if any(head_lines) else []
    for row_lines, r in zip(body, rows, strict=True):
        lines += row_lines
        inner = None if width is None else max(width - 4, _LEAST)
        detail = () if table.folds == "always" else r.detail
        lines += [f"    {line}" for line in _blocks(detail, inner, top=False)]
    more = len(table.rows) - len(rows) + table.hidden
    if more:
        lines.append(f"… and {plural(more, f'more {table.noun}')}")
    return lines


def _cell(cell: doc.Inline, across: int) -> str:

    def text(piece: doc.Piece) -> str:
        if piece.kind != "bar":
            return inline_text(piece)
        return pad(blocks(sum(part.share for part in piece.value), across), across)

    pieces = (cell,) if isinstance(cell, doc.Piece) else cell
    return doc.joined(pieces, list(map(text, pieces)))


def _fitted(grid: list[list[str]], heads: Sequence[doc.Column], width: int | None) -> list[list[str]]:
    """Return the lines of each row, the heads first; columns that do not fit are folded below their row."""
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


def _widths(grid: list[list[str]], heads: Sequence[doc.Column], width: int | None) -> list[int]:
    """Return each column's width, 0 for as wide as it needs; empty if the columns do not fit side by side."""
    needs = [max(text_width(row[i]) for row in grid) for i in range(len(heads))]
    spare = 0 if width is None else width - sum(needs) - 2 * (len(heads) - 1)
    if spare >= 0:
        return [0] * len(heads)
    wraps = sorted((i for i, head in enumerate(heads) if head.wrap), key=lambda i: needs[i])
    room, widths = spare + sum(needs[i] for i in wraps), [0] * len(heads)
    for place, i in enumerate(wraps):
        widths[i] = min(needs[i], room // (len(wraps) - place))
        room -= widths[i]
    return widths if wraps and all(widths[i] >= min(_LEAST, needs[i]) for i in wraps) else []


def blocks(share: float, width: int = BAR) -> str:
    """Return a share (0 to 1) of `width` columns as blocks, `███▌`; a positive share has at least an eighth."""
    eighths = round(8 * width * share)
    if share and not eighths:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return "█" * full + (_TIPS[rest - 1] if rest else "")
