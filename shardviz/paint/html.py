"""Documents in HTML that survives JupyterLab's sanitizer and GitHub; text from outside is escaped here.

The HTML uses only tags, attributes and inline styles that the sanitizer keeps in untrusted notebooks. Without styles
(GitHub) the text is still complete. Text colours are inherited, so that light and dark pages both work; a chip has its
own background and ink.

>>> from shardviz.view.document import Document, words
>>> html_of(Document(title=words("<b>")))[-20:]
'lt;b&gt;</div></div>'
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from shardviz.notation import Axis, Spec, axis_name
from shardviz.notation.spec import axis_text
from shardviz.paint.columns import clip
from shardviz.paint.motion import motion_html
from shardviz.paint.outside import is_right_to_left, shown, uncontrolled
from shardviz.paint.text import blocks
from shardviz.paint.theme import MUTED, AxisColour, axis_colour, axis_colours, ink_for, paint_of
from shardviz.records.amounts import plural
from shardviz.view import document as doc
from shardviz.view.picture import Film, Grid, Head, Picture

Colours = Mapping[str, AxisColour]

_SANS_FACE = "font-family:system-ui,sans-serif"
SANS = f"{_SANS_FACE};font-size:13px;line-height:1.4"
MONO = "font-family:Menlo,Consolas,monospace;font-size:12px"
_MONO_SPAN = f'<span style="{MONO};white-space:nowrap">'
HAIRLINE = "1px solid #80808059"
QUIET = "opacity:0.75"
_UNNAMED = AxisColour(MUTED, "#B5B5B5", ink_for(MUTED), "#111111", "")
_ROLES = {"work": "#5B6770", "moved": "#C2410C", "room": "#80808040"}
_ALIGN = ' align="right"'
MOST_UNFOLDED = 2000
"""The most rows of a table on a self-contained page."""
MOST_CELLS = 256
"""The most cells of a picture's grids; beyond, neighbouring cells are merged."""
_NAMED = 8  # the most columns with names above them
_LONGEST_AXIS, _LONGEST_CELL = 12, 60  # characters
_GREY, _TILE, _BLUISH = "#808080e6", "background:#8096af26", "#8096af"
_BAND = "padding:0 3px;text-align:center;border:0;font-size:10px;white-space:nowrap"
_NAME = f"padding:1px 6px;border:0;{QUIET};font-weight:400;font-size:11px;white-space:nowrap"
_PLAIN_ROW = '<tr style="background:#0000">'
_ONE_LINE = 60  # the most characters on one line; longer names and texts may wrap


@dataclass(frozen=True)
class Look:
    """The axes' colours, and a function that draws a Picture on a self-contained page, which no sanitizer changes. On
    such a page, a table's remaining rows can be unfolded."""

    colours: Colours
    draw: Callable[[Picture], str] | None = None

    @property
    def page(self) -> bool:
        """Whether the HTML is for a self-contained page."""
        return self.draw is not None


def html_of(document: doc.Document, draw: Callable[[Picture], str] | None = None) -> str:
    """Return a document as one `<div>`, all text escaped; `draw` draws Pictures on a self-contained page."""
    look = Look({} if document.mesh is None else axis_colours(document.mesh), draw)
    title, lines = _inline(document.title, look.colours), [_inline(line, look.colours) for line in document.lead]
    if look.page:
        head = (f"<h1>{title}</h1>" if title else "") + "".join(f'<p class="lead">{line}</p>' for line in lines)
        return f'<div style="{SANS}">{head}{_blocks(document.blocks, look)}</div>'
    head = f'<div style="font-size:15px;padding:4px 0">{title}</div>' if title else ""
    lead = "".join(f'<div style="padding:2px 0">{line}</div>' for line in lines)
    return f'<div style="{SANS};overflow-x:auto">{head}{lead}{_blocks(document.blocks, look)}</div>'


def _blocks(blocks: Iterable[doc.Block], look: Look) -> str:
    return "".join(_block(block, look) for block in blocks)


def _block(block: doc.Block, look: Look) -> str:
    if isinstance(block, doc.Paragraph):
        label = f"<b>{outside(block.label)}</b>: " if block.label else ""
        style = f"{QUIET};padding:0 8px" if block.quiet else "padding:2px 0"
        return f'<div style="{style}">{label}{_inline(block.pieces, look.colours)}</div>' if block.pieces else ""
    if isinstance(block, doc.Table):
        return _table(block, look)
    if isinstance(block, doc.Section):
        return _section(block, look)
    if isinstance(block, doc.SideBySide):
        return _beside(block, look)
    return _figure(block, look)


def _beside(block: doc.SideBySide, look: Look) -> str:
    if look.page:
        return f'<div class="beside">{"".join(f"<div>{_block(each, look)}</div>" for each in block.blocks)}</div>'
    side = "padding:0 32px 0 0;border:0;text-align:left;vertical-align:top"
    cells = "".join(f'<td style="{side}">{_block(each, look)}</td>' for each in block.blocks)
    row = f"<tbody>{_PLAIN_ROW}{cells}</tr></tbody>"
    return f'<table style="border-collapse:collapse;border:0;margin:0 0 8px 0;{SANS}">{row}</table>'


def _section(block: doc.Section, look: Look) -> str:
    lead = _inline(block.lead, look.colours)
    head = f"<b>{outside(block.title)}</b>{f': {lead}' if lead else ''}"
    content = _blocks(block.blocks, look)
    if block.fold is None or not content:
        return f"<h2>{head}</h2>{content}" if look.page else f'<div style="padding:8px 0 2px 0">{head}</div>{content}'
    opened = " open" if block.fold == "open" else ""
    return f'<details{opened} style="padding:4px 0"><summary>{head}</summary>{content}</details>'


def _figure(block: doc.Figure, look: Look) -> str:
    caption = f'<div style="font-weight:600">{outside(block.caption)}</div>' if block.caption else ""
    if look.draw is not None and isinstance(block.of, Picture):
        return f"<figure>{caption}{look.draw(block.of)}</figure>"
    if isinstance(block.of, doc.Listing):
        style = f"{MONO};white-space:pre;overflow-x:auto;margin:4px 0 12px 0;padding:8px 10px;border:{HAIRLINE}"
        drawn = f'<pre style="{style}">{escape(uncontrolled(block.of.text))}</pre>'
    elif isinstance(block.of, Film):
        drawn = motion_html(block.of)
    else:
        drawn = _picture(block.of)
    return f"<figure>{caption}{drawn}</figure>" if look.page else caption + drawn


# A picture's grid becomes a table; sanitizers remove other shapes.


def _picture(of: Picture) -> str:
    if not of.grids:
        return f'<div style="{QUIET}">{outside(of.alt)}</div>'
    drawn = of.with_cells(MOST_CELLS)
    notes = "".join(f"<div>{outside(note)}</div>" for note in drawn.notes)
    return _grids(drawn.grids) + (f'<div style="font-size:12px;{QUIET}">{notes}</div>' if notes else "")


def _grids(grids: Sequence[Grid]) -> str:
    """Return grids in their arrangement, side by side and below each other."""
    if len(grids) == 1:
        return _grid(grids[0])
    lines: dict[float, list[str]] = {}
    side = "padding:0 16px 8px 0;border:0;text-align:left;vertical-align:top"
    for grid in grids:
        caption = f'<div style="{_NAME}">{outside(grid.caption)}</div>' if grid.caption else ""
        lines.setdefault(grid.y, []).append(f'<td style="{side}">{caption}{_grid(grid)}</td>')
    return _framed(map("".join, lines.values()))


def _framed(rows: Iterable[str]) -> str:
    body = "".join(f"{_PLAIN_ROW}{row}</tr>" for row in rows)
    return f'<table style="{MONO};border:0;margin:4px 0 8px 0;border-collapse:collapse"><tbody>{body}</tbody></table>'


def _grid(grid: Grid) -> str:
    left, across = len(grid.beside) + bool(grid.rows), len(grid.texts[0])
    out = []
    for head in grid.above:
        corner = f'<th colspan="{left}" style="{_BAND};text-align:right">{_axis(head.name)}</th>' if left else ""
        out.append(corner + "".join(_span(head, text, f"colspan={n}") for text, n in head.spans))
    names = grid.columns if across <= _NAMED else ()
    if names or grid.beside:
        heads = "".join(f'<th style="{_BAND};text-align:left">{_axis(head.name)}</th>' for head in grid.beside)
        heads += f'<th style="{_NAME}"></th>' * (left - len(grid.beside))
        least = f"text-align:center;min-width:{max(26, 7 * max(map(len, names), default=0) + 14)}px"
        out.append(heads + "".join(f'<th style="{_NAME};{least}">{outside(name)}</th>' for name in names))
    begins: list[dict[int, tuple[str, str]]] = []  # for each head: first row of a span → its text and its rowspan
    for head in grid.beside:
        starts = itertools.accumulate((n for _, n in head.spans), initial=0)
        begins.append({at: (text, f"rowspan={n}") for at, (text, n) in zip(starts, head.spans, strict=False)})
    for r, row in enumerate(grid.texts):
        parts = [_span(head, *begin[r]) for head, begin in zip(grid.beside, begins, strict=True) if r in begin]
        if grid.rows:
            parts.append(f'<td style="{_NAME};text-align:right">{outside(grid.rows[r])}</td>')
        first = r * across
        cells = zip(row, grid.tips[first : first + across] or [""] * across, strict=True)
        parts += [_grid_cell(grid, *cell, _edges(grid, r, c)) for c, cell in enumerate(cells)]
        out.append("".join(parts))
    return _framed(out)


def _span(head: Head, text: str, extent: str) -> str:
    colour = axis_colour(head.role)
    style = f"background:{colour.light};color:{colour.ink};{_BAND}"
    return f'<th {extent} style="{style}">{outside(text)}</th>'


def _axis(name: str) -> str:
    """Return the name of a mesh axis next to its head; a long name is clipped, with the full name in the tip."""
    short = clip(name, _LONGEST_AXIS)
    return outside(name) if short == name else f'<span title="{escape(uncontrolled(name))}">{outside(short)}</span>'


def _edges(grid: Grid, r: int, c: int) -> str:
    below, right = grid.edges
    style = f";border-top:3px solid {_GREY}" if (r - 1, c) in below else ""
    return style + (f";border-left:3px solid {_GREY}" if (r, c - 1) in right else "")


def _grid_cell(grid: Grid, text: str, tip: str, edges: str) -> str:
    inner = escape(text)
    edge = HAIRLINE if grid.stroke == "line" else f"2px {'dotted' if grid.dash else 'solid'} {_GREY}"
    if len(inner) > _LONGEST_CELL:
        inner = f"{inner[:_LONGEST_CELL]}…"
    inner += f' <span style="{QUIET}">×{grid.copies}</span>' if grid.copies > 1 else ""
    inside = f"padding:5px 7px;text-align:center;white-space:nowrap;border:{edge};{_TILE}"
    title = f' title="{escape(tip)}"' if tip else ""
    if not grid.cards:
        return f'<td style="{inside}{edges}"{title}>{inner}</td>'
    fills = [_BLUISH if role == "tile" else paint_of(role, False) for role in grid.cards]
    shadows = ",".join(f"{3 * n}px {3 * n}px 0 {fill}{round(140 / n):02x}" for n, fill in enumerate(fills, 1))
    card = f'<div style="{inside};box-shadow:{shadows}">{inner}</div>'
    return f'<td style="padding:2px 9px 9px 2px;border:0{edges}"{title}>{card}</td>'


def _table(table: doc.Table, look: Look) -> str:
    """Return a table in monospace, so that numbers align, with a hairline under each row."""
    if not table.rows and not any(column.title for column in table.columns):
        return ""
    title = ""
    if table.caption:
        style = f"caption-side:top;text-align:left;font-weight:600;padding:4px 8px;{SANS}"
        title = f'<caption style="{style}">{outside(table.caption)}</caption>'
    rows, rest = table.rows[: table.most], table.rows[table.most :]
    html = _rows(rows, table, look, title)
    if look.page and rest:
        some = rest[: MOST_UNFOLDED - len(rows)]
        words = f"{plural(len(some), f'more {table.noun}')}"
        html += f'<details class="rest"><summary>{words}</summary>{_rows(some, table, look)}</details>'
        rest = rest[len(some) :]
    if more := len(rest) + table.hidden:
        html += f'<div style="{QUIET};padding:0 8px">… and {plural(more, f"more {table.noun}")}</div>'
    return html


def _rows(rows: Sequence[doc.Row], table: doc.Table, look: Look, title: str = "") -> str:
    plain = f"background:#0000;border-bottom:{HAIRLINE}"
    line = f'<tr style="{plain}">'
    head = f'<tr style="{plain};{QUIET};{_SANS_FACE}">{"".join(map(_head, table.columns))}</tr>'
    top = f"<thead>{head}</thead>" if any(column.title for column in table.columns) else ""
    body = "".join(_row(row, table, line, look) for row in rows)
    style = f"border-collapse:collapse;border:0;margin:4px 0 12px 0;{MONO};line-height:1.4"
    html = f'<table style="{style}">{title}{top}<tbody>{body}</tbody></table>'
    return f'<div class="table">{html}</div>' if look.page else html


def _row(row: doc.Row, table: doc.Table, line: str, look: Look) -> str:
    top = ";vertical-align:top" if any(column.wrap for column in table.columns) else ""
    each = zip(row.cells, table.columns, strict=True)
    cells = "".join(_cell(cell, column, look.colours, top) for cell, column in each)
    below = ""
    if row.detail and table.folds != "always":
        content = _blocks(row.detail, look)
        style = f"padding:0 8px 3px 24px;text-align:left;{QUIET}"
        below = f'{line}<td colspan="{len(table.columns)}" style="{style}">{content}</td></tr>'
    return f"{line}{cells}</tr>{below}"


def _cell(cell: doc.Inline, column: doc.Column, colours: Colours, top: str) -> str:
    pieces = (cell,) if isinstance(cell, doc.Piece) else cell
    style = f"padding:3px 8px{top};text-align:{'right' if column.right else 'left'}"
    style += f";{_SANS_FACE}" if column.wrap else ";white-space:nowrap"
    tip = "; ".join(dict.fromkeys(piece.tip for piece in pieces if piece.tip))
    title = f' title="{escape(uncontrolled(tip))}"' if tip else ""
    content = _inline(cell, colours, inside=not column.wrap)
    return f'<td{_ALIGN if column.right else ""} style="{style}"{title}>{content}</td>'


def _head(column: doc.Column) -> str:
    side = "right" if column.right else "left"
    style = f"padding:3px 8px;text-align:{side};white-space:nowrap"
    text = explained(outside(column.title), column.tip)
    return f'<th scope="col"{_ALIGN if column.right else ""} style="{style}">{text}</th>'


def outside(text: str, whole: bool = False) -> str:
    """Escape text from outside, clipped with the full text as its title; right-to-left text is isolated."""
    clipped = uncontrolled(text) if whole else shown(text)
    html = f"<bdi>{escape(clipped)}</bdi>" if is_right_to_left(text) else escape(clipped)
    return html if len(clipped) == len(text) else f'<span title="{escape(uncontrolled(text))}">{html}</span>'


def _inline(inline: doc.Inline, colours: Colours, *, inside: bool = False) -> str:
    """Return pieces as HTML; `inside` a table, which is in monospace, pieces do not repeat that style."""
    pieces = (inline,) if isinstance(inline, doc.Piece) else inline
    htmls = [piece_html(piece, colours) for piece in pieces]
    return doc.joined(pieces, [text.replace(_MONO_SPAN, "<span>") for text in htmls] if inside else htmls)


def piece_html(piece: doc.Piece, colours: Colours) -> str:
    """Return one piece as HTML, with its text escaped."""
    html = _PIECES[piece.kind](piece, colours)
    if not html:
        return ""
    html = f"<b>{html}</b>" if piece.strong else html
    return f'<span style="{QUIET}">{html}</span>' if piece.quiet else html


def explained(html: str, tip: str) -> str:
    """Return a word with a dotted underline, and its meaning as a tooltip."""
    return f'<span style="border-bottom:1px dotted {_GREY}" title="{escape(tip)}">{html}</span>' if tip else html


_PIECES = {
    "words": lambda piece, _: outside(piece.text),
    "ask": lambda piece, _: "",
    "term": lambda piece, _: explained(outside(piece.text), piece.tip),
    "code": lambda piece, _: mono(
        "&nbsp;" * (len(piece.text) - len(piece.text.lstrip(" "))) + outside(piece.text.lstrip(" "), piece.whole),
        one_line=len(piece.text) <= _ONE_LINE,
    ),
    "axes": lambda piece, colours: (
        mono(" ".join(chip(axis, colours) for axis in piece.value or ())) or outside(piece.text)
    ),
    "mesh": lambda piece, colours: (
        mono(" ".join(chip(name, colours, f"{name}={size}") for name, size in piece.value)) or outside(piece.text)
    ),
    "spec": lambda piece, colours: spec_html(piece.value, colours),
    "bar": lambda piece, colours: bar_html(piece.value, colours),
    "line": lambda piece, _: outside(piece.text) + (f" {mono(outside(piece.value))}" if piece.value else ""),
}


def chip(axis: Axis, colours: Colours, text: str | None = None) -> str:
    """Return a mesh axis (or a part of an axis) as a coloured chip with its name or another text."""
    colour = colours.get(axis_name(axis), _UNNAMED)
    style = f"background:{colour.light};color:{colour.ink};border-radius:3px;padding:1px 5px;font-weight:600"
    return f'<span style="{style}">{outside(axis_text(axis) if text is None else text)}</span>'


def spec_html(spec: Spec, colours: Colours) -> str:
    """Return a spec in brackets, with a chip for each axis and `·` for a dimension that is not sharded."""
    text = "[" + ", ".join(" ".join(chip(a, colours) for a in dim) or "·" for dim in spec.dims) + "]"
    if spec.unreduced:
        text += f" {spec.unreduced_kind} over " + " ".join(chip(a, colours) for a in spec.unreduced)
    return mono(text)


def mono(html: str, *, one_line: bool = True) -> str:
    """Return HTML in monospace, on one line or on as many as it needs."""
    begin = _MONO_SPAN if one_line else f'<span style="{MONO}">'
    return html and f"{begin}{html}</span>"


def bar_html(parts: Sequence[doc.Part], colours: Colours) -> str:
    """Return a bar of block characters, with a stretch for each part; it is readable without styles."""
    stretches, begin, total = [], 0, 0.0
    for part in parts:
        total += part.share
        text = blocks(total)
        length = len(text.rstrip("▏▎▍▌▋▊▉"))
        full, tip = max(0, length - begin), text[length:] if part is parts[-1] else ""
        begin = max(begin, length)
        first = axis_name(part.axes[0]) if part.axes else ""
        colour = _ROLES.get(part.role) or (colours[first].light if first in colours else MUTED)
        hover = f' title="{escape(uncontrolled(part.tip))}"' if part.tip else ""
        if full:
            stretches.append(f'<span style="color:{colour};background:{colour}"{hover}>{"█" * full}</span>')
        if tip:
            stretches.append(f'<span style="color:{colour}"{hover}>{tip}</span>')
    return f'<span style="white-space:nowrap;font-size:11px;line-height:1">{"".join(stretches)}</span>'
