"""The shard map in HTML: a table of cells with device numbers, or a picture where the cells are many.

A table says each cell's exact slice when hovering. Axes stand as coloured bars with their coordinates along the sides.

>>> from shardviz.layouts import layout
>>> shard_map_html(layout((8, 6), ("data",), {"data": 2})).startswith("<div")
True
"""

from __future__ import annotations

from html import escape

import numpy as np

from shardviz.layouts import Layout, ProcessLayout
from shardviz.notation.spec import Axis, axis_name, axis_text
from shardviz.paint.columns import clip
from shardviz.paint.theme import axis_colours
from shardviz.records.amounts import format_shape, plural
from shardviz.render.cells_html import brief, cell_html
from shardviz.render.chips import MONO, QUIET, SANS, chip, code, mesh_html, mono, spec_html
from shardviz.render.contents import drawable
from shardviz.render.hover import MOST, picture_html
from shardviz.render.picture import picture_of
from shardviz.render.scene import (
    Scene,
    Side,
    build_scene,
    coarsen,
    nested_coordinates,
    nested_slices,
    notes,
)
from shardviz.view.layouts import spec_words

TABLE_CELLS, TABLE_COLUMNS, TABLE_ROWS, TABLE_PANELS = 256, 32, 64, 16
"""The most cells that are drawn as a table (of stacked cards half as many), and the most each way."""

MAX_RANGE, MAX_PIXELS = 40, 1200
"""Characters of a cell, and the width of all columns, that tables of merged cells keep to where they can."""

MAX_AXIS = 12
"""Columns of an axis's name above an upright bar, which is as wide as its name."""


def shard_map_html(
    layout: Layout,
    title: str = "",
    values: np.ndarray | None = None,
    hosts: ProcessLayout | None = None,
    hover: int = MOST,
) -> str:
    """Which device holds which slice, as HTML that survives JupyterLab's sanitizer and GitHub.

    Args:
        layout: where every slice lies.
        title: the array's name, plain text.
        values: the array's elements, to be set in the cells where these are few.
        hosts: what each process holds, to have thick lines where processes meet.
        hover: the most characters for a picture whose cells say their slices when hovering; beyond, its rows do.

    Returns:
        One `<div>`: a headline, then a table up to 256 cells (128 stacks), a PNG beyond, or, where cells would be too
        many to tell apart in a picture too, a table of device ranges. Hovering over a cell says its slice. Never over
        150 kB, on any number of devices.
    """
    scene = build_scene(layout, hosts)
    panels, rows, columns = scene.devices.shape[:3]
    body = ""
    few = scene.cells <= TABLE_CELLS // (1 + scene.stacked)
    if few and columns <= TABLE_COLUMNS and rows <= TABLE_ROWS and panels <= TABLE_PANELS:
        body = _tables(scene, values if drawable(scene) else None)
    else:
        picture = picture_of(scene)
        if picture is None:
            scene = _ranges(scene)
            body = _tables(scene)
        else:
            body = picture_html(scene, picture, hover)
    remarks = "".join(f"<div>{escape(remark)}</div>" for remark in notes(scene))
    head = f'{_headline(layout, title)}<div style="padding:2px 0">{_sides(scene)}</div>'
    foot = f'<div style="font-size:12px;{QUIET}">{remarks}</div>'
    return f'<div style="{SANS};overflow-x:auto">{head}{body}{foot}</div>'


def _ranges(scene: Scene) -> Scene:
    """The scene with neighbouring tiles merged until its tables fit a page, in the way that says devices shortest."""
    several = scene.devices.shape[0] > 1
    merged = scene
    for exact in (True, False):
        for rows, columns in ((16, 16), (16, 8), (16, 4), (16, 2), (16, 1), (8, 4), (8, 2), (8, 1), (4, 1), (1, 1)):
            if several:
                rows, columns = min(rows, 8), min(columns, 8)
            merged = coarsen(scene, rows=rows, columns=columns, panels=4 if several else 1)
            texts = [merged.label(0, 0, 0), merged.label(*(n - 1 for n in merged.devices.shape[:3]))]
            longest = max(map(len, texts)) if exact else len(brief(merged.devices[0, 0, 0])) + 2
            wide = (7.3 * longest + 16) * merged.columns.cells * merged.nest().panels.shape[1]
            if wide <= MAX_PIXELS and (not exact or (longest <= MAX_RANGE and merged.cells > 1)):
                return merged
    return merged


def _headline(layout: Layout, title: str) -> str:
    name = f"<b>{escape(title)}</b> " if title else ""
    mesh = layout.mesh
    axes = mesh_html(mesh)
    return (
        f'<div style="padding:2px 0">{name}{code(format_shape(layout.shape))} {_spec(layout)} '
        f"· shard {code(format_shape(layout.shard_shape))} · "
        f"{f'mesh {axes}, ' if axes else ''}{plural(mesh.size, 'device')}</div>"
    )


def _spec(layout: Layout) -> str:
    if layout.spec is None:
        return f'<span style="{QUIET}">{escape(spec_words(layout))}</span>'
    colours = axis_colours(layout.mesh)
    manual = " ".join(chip(axis, colours) for axis in layout.manual)
    return spec_html(layout.spec, layout.mesh) + (f" {mono(f'manual {manual}')}" if manual else "")


def _tables(scene: Scene, values: np.ndarray | None = None) -> str:
    """The panel, or all panels in an outer table with the coordinates of the dimensions that they are cut along."""
    labels = scene.labels()
    if not scene.depth:
        return _table(scene, 0, labels[0], values)
    nest, colours = scene.nest(), axis_colours(scene.mesh)
    row_bars = nested_coordinates([s for s in nest.rows if s.ways > 1])
    row_slices, column_slices = nested_slices(nest.rows), nested_slices(nest.columns)
    left = len(row_bars) + 1
    out = [
        _row(
            _corner(left, axis_text(axis)) + "".join(_span(colours, axis, text, f'colspan="{n}"') for text, n in spans)
        )
        for axis, spans in nested_coordinates([s for s in nest.columns if s.ways > 1])
    ]
    heads = "".join(_named(axis) for axis, _ in row_bars)
    heads += f'<th style="{_SLICE}"></th>'
    out.append(_row(heads + "".join(f'<th style="{_SLICE};text-align:left">{text}</th>' for text in column_slices)))
    starts = [_starts(spans) for _, spans in row_bars]
    for r, panels in enumerate(nest.panels.tolist()):
        parts = [
            _span(colours, axis, begin[r][0], f'rowspan="{begin[r][1]}"')
            for (axis, _), begin in zip(row_bars, starts, strict=True)
            if r in begin
        ]
        parts.append(f'<td style="{_SLICE}">{row_slices[r].replace("; ", "<br>")}</td>')
        panel = 'style="padding:0 12px 0 0;border:0;text-align:left;vertical-align:top"'
        parts += [f"<td {panel}>{_table(scene, p, labels[p], values)}</td>" for p in panels]
        out.append(_row("".join(parts)))
    return _frame(out)


def _frame(rows: list[str]) -> str:
    style = f"border-collapse:collapse;border:0;margin:4px 0 8px 0;{MONO}"
    return f'<table style="{style}"><tbody>{"".join(rows)}</tbody></table>'


def _span(colours: dict, axis: Axis, text: str, how_far: str) -> str:
    """A coordinate of a mesh axis as a coloured head that spans several rows or columns."""
    colour = colours[axis_name(axis)]
    style = f"{_BAR};white-space:nowrap" if "-" in text else _BAR
    return f'<th {how_far} style="{style};background-color:{colour.light};color:{colour.ink}">{text}</th>'


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
    if not by and side.ways > 1:
        text = text.replace(", not cut", f" cut {side.ways} ways")
    each = f'<span style="{QUIET}">, {side.shard} each</span>' if side.ways > 1 else ""
    return f"{text} {mono(by)}{each}" if by else text + each


_BAR = "padding:0 3px;text-align:center;border:1px solid transparent;font-size:10px;line-height:1.3"
_SLICE = f"padding:1px 6px;border:0;{QUIET};font-weight:400;font-size:11px;white-space:nowrap"


def _table(scene: Scene, panel: int, labels: list[list[str]], values: np.ndarray | None) -> str:
    """One panel: coordinate bars above and to the left, then slices, then cells."""
    colours, rows, columns = axis_colours(scene.mesh), scene.rows, scene.columns
    row_bars, column_bars = _bars(rows), _bars(columns)
    row_slices = rows.dimension is not None
    left = len(row_bars) + row_slices
    out = []
    for axis, spans in column_bars:
        cells = "".join(_span(colours, axis, text, f'colspan="{n}"') for text, n in spans)
        out.append(_row(f"{_corner(left, axis_text(axis))}{cells}"))
    slices = columns.dimension is not None and (columns.cells <= 8 or columns.padded)
    if slices or row_bars:
        heads = "".join(_named(axis) for axis, _ in row_bars)
        texts = [columns.slice_text(c) if slices else "" for c in range(columns.cells)]
        width = max(26, 7 * max(map(len, texts)) + 14)
        cells = "".join(f'<th style="{_SLICE};text-align:center;min-width:{width}px">{text}</th>' for text in texts)
        out.append(_row(heads + (f'<th style="{_SLICE}"></th>' if row_slices else "") + cells))
    starts = [_starts(spans) for _, spans in row_bars]
    for r in range(rows.cells):
        parts = []
        for (axis, _), begin in zip(row_bars, starts, strict=True):
            if r in begin:
                parts.append(_span(colours, axis, begin[r][0], f'rowspan="{begin[r][1]}"'))
        if row_slices:
            parts.append(f'<td style="{_SLICE};text-align:right">{rows.slice_text(r)}</td>')
        parts += [cell_html(scene, panel, r, c, text, values) for c, text in enumerate(labels[r])]
        out.append(_row("".join(parts)))
    return _frame(out)


def _row(content: str) -> str:
    return f'<tr style="background-color:transparent">{content}</tr>'


def _named(axis: Axis) -> str:
    """The name of a mesh axis above its bar; a long one is cut short, and said in full when hovering."""
    name = axis_text(axis)
    full = f' title="{escape(name)}"' if len(name) > MAX_AXIS else ""
    return f'<th scope="row" style="{_BAR};text-align:left"{full}>{escape(clip(name, MAX_AXIS))}</th>'


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
