"""The shard map in HTML: a table of cells with device numbers, or a picture where the cells are many.

A table says each cell's exact slice when hovering. Axes stand as coloured bars with their coordinates along the sides.

>>> from shardviz.layout import layout
>>> shard_map_html(layout((8, 6), ("data",), {"data": 2})).startswith("<div")
True
"""

from __future__ import annotations

import base64
from html import escape

from shardviz.layout import Layout
from shardviz.notation.spec import axis_text
from shardviz.render.chips import HAIRLINE, MONO, QUIET, SANS, chip, code, mesh_html, mono, spec_html
from shardviz.render.format import format_shape, plural
from shardviz.render.picture import picture_png
from shardviz.render.scene import Scene, Side, build_scene, coarsen, describe, notes
from shardviz.render.theme import axis_colours

TABLE_CELLS, TABLE_COLUMNS, TABLE_ROWS, TABLE_PANELS = 256, 32, 64, 16
"""The most cells that are drawn as a table, and the most each way."""


def shard_map_html(layout: Layout, title: str = "") -> str:
    """Which device holds which slice, as HTML that survives JupyterLab's sanitizer and GitHub.

    Args:
        layout: where every slice lies.
        title: the array's name, plain text.

    Returns:
        One `<div>`: a headline, then a table up to 256 cells, a PNG beyond, or, where cells would be too many to tell
        apart in a picture too, a table of device ranges. At most 150 kB for 2048 devices.
    """
    scene = build_scene(layout)
    panels, rows, columns = scene.devices.shape[:3]
    body = ""
    if scene.cells <= TABLE_CELLS and columns <= TABLE_COLUMNS and rows <= TABLE_ROWS and panels <= TABLE_PANELS:
        body = _tables(scene)
    else:
        drawn = picture_png(scene)
        if drawn is None:
            scene = coarsen(scene, rows=16, columns=16 if panels == 1 else 8, panels=4)
            body = _tables(scene)
        else:
            png, width, height = drawn
            data = base64.b64encode(png).decode()
            body = (
                f'<img src="data:image/png;base64,{data}" width="{width}" height="{height}" '
                f'alt="{escape(describe(scene))}" style="max-width:none;margin:4px 0">'
            )
    remarks = "".join(f"<div>{escape(remark)}</div>" for remark in notes(scene))
    head = f'{_headline(layout, title)}<div style="padding:2px 0">{_sides(scene)}</div>'
    foot = f'<div style="font-size:12px;{QUIET}">{remarks}</div>'
    return f'<div style="{SANS};overflow-x:auto">{head}{body}{foot}</div>'


def _headline(layout: Layout, title: str) -> str:
    name = f"<b>{escape(title)}</b> " if title else ""
    mesh = layout.mesh
    axes = mesh_html(mesh)
    return (
        f'<div style="padding:2px 0">{name}{code(format_shape(layout.shape))} {spec_html(layout.spec, mesh)} '
        f"· shard {code(format_shape(layout.shard_shape))} · "
        f"{f'mesh {axes}, ' if axes else ''}{plural(mesh.size, 'device')}</div>"
    )


def _tables(scene: Scene) -> str:
    labels = scene.labels()
    tables = []
    for panel in range(len(labels)):
        tables.append(_table(scene, panel, labels[panel]))
    if len(tables) == 1:
        return tables[0]
    return "".join(
        f'<div style="display:inline-block;vertical-align:top;margin:0 24px 8px 0">{t}</div>' for t in tables
    )


def _sides(scene: Scene) -> str:
    colours = axis_colours(scene.mesh)
    named = [("rows", scene.rows), ("columns", scene.columns)]
    named = [("panels", s) for s in scene.depth] + named
    return " · ".join(_side_html(name, side, colours) for name, side in named if side.dimension is not None)


def _side_html(name: str, side: Side, colours: dict) -> str:
    by = " ".join(chip(a, colours) for a, _ in side.axes)
    text = (
        f'<span style="{QUIET}">{name}: dimension {side.dimension}, {side.size}'
        + (" by" if by else ", not cut")
        + "</span>"
    )
    each = f'<span style="{QUIET}">, {side.shard} each</span>' if side.ways > 1 else ""
    return f"{text} {mono(by)}{each}" if by else text


_BAR = "padding:0 3px;text-align:center;border:1px solid transparent;font-size:10px;line-height:1.3"
_SLICE = f"padding:1px 6px;border:0;{QUIET};font-weight:400;font-size:11px;white-space:nowrap"


def _table(scene: Scene, panel: int, labels: list[list[str]]) -> str:
    """One panel: coordinate bars above and to the left, then slices, then cells."""
    colours, rows, columns = axis_colours(scene.mesh), scene.rows, scene.columns
    row_bars, column_bars = _bars(rows), _bars(columns)
    row_slices = rows.dimension is not None
    left = len(row_bars) + row_slices
    out = []
    for axis, spans in column_bars:
        colour = colours[axis if isinstance(axis, str) else axis[0]]
        cells = "".join(
            f'<th colspan="{n}" style="{_BAR};background-color:{colour.light};color:{colour.ink}">{text}</th>'
            for text, n in spans
        )
        out.append(_row(f"{_corner(left, axis_text(axis))}{cells}"))
    slices = columns.dimension is not None and (columns.cells <= 8 or columns.padded)
    if slices or row_bars:
        heads = "".join(
            f'<th scope="row" style="{_BAR};text-align:left">{escape(axis_text(a))}</th>' for a, _ in row_bars
        )
        texts = [columns.slice_text(c) if slices else "" for c in range(columns.cells)]
        width = max(26, 7 * max(map(len, texts)) + 14)
        cells = "".join(f'<th style="{_SLICE};text-align:center;min-width:{width}px">{text}</th>' for text in texts)
        out.append(_row(heads + (f'<th style="{_SLICE}"></th>' if row_slices else "") + cells))
    starts = [_starts(spans) for _, spans in row_bars]
    for r in range(rows.cells):
        parts = []
        for (axis, _), begin in zip(row_bars, starts, strict=True):
            if r in begin:
                text, n = begin[r]
                colour = colours[axis if isinstance(axis, str) else axis[0]]
                parts.append(
                    f'<th rowspan="{n}" style="{_BAR};background-color:{colour.light};color:{colour.ink}">{text}</th>'
                )
        if row_slices:
            parts.append(f'<td style="{_SLICE};text-align:right">{rows.slice_text(r)}</td>')
        parts += [_cell(scene, panel, r, c, text) for c, text in enumerate(labels[r])]
        out.append(_row("".join(parts)))
    caption = escape(scene.panel_text(panel))
    caption = caption and f'<caption style="caption-side:top;text-align:left;padding:2px 0;{QUIET}">{caption}</caption>'
    return (
        f'<table style="border-collapse:collapse;border:0;margin:4px 0 8px 0;{MONO}">'
        f"{caption}<tbody>{''.join(out)}</tbody></table>"
    )


def _row(content: str) -> str:
    return f'<tr style="background-color:transparent">{content}</tr>'


def _corner(left: int, text: str) -> str:
    return f'<th colspan="{left}" style="{_BAR};text-align:right">{escape(text)}</th>' if left else ""


def _bars(side: Side) -> list:
    return side.coordinates() if side.ways > 1 else []


def _starts(spans: list[tuple[str, int]]) -> dict[int, tuple[str, int]]:
    begin, at = {}, 0
    for text, n in spans:
        begin[at] = (text, n)
        at += n
    return begin


def _cell(scene: Scene, panel: int, row: int, column: int, text: str) -> str:
    extra = _padding(scene, row, column)
    style = (
        f"padding:5px 7px;text-align:center;white-space:nowrap;border:{HAIRLINE if not extra else _DASHED};"
        "background-color:rgba(128,150,175,0.12)"
    )
    noun = "device" if scene.devices.shape[3] == 1 else "devices"
    return f'<td style="{style}" title="{noun} {text}: {scene.index_text(panel, row, column)}{extra}">{text}</td>'


_DASHED = "1px dashed rgba(128,128,128,0.9)"


def _padding(scene: Scene, row: int, column: int) -> str:
    parts = [
        f"{side.padding(c)} of dimension {side.dimension}"
        for side, c in ((scene.rows, row), (scene.columns, column))
        if side.dimension is not None and side.padding(c)
    ]
    return ", padded by " + " and ".join(parts) if parts else ""
