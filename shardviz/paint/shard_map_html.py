"""A picture of a shard map as an `<img>` whose cells say their slice when hovering.

An image map needs a name, which JupyterLab's sanitizer takes away; so a grid of empty elements lies over the picture,
each with its title. Without styles, as on GitHub, nothing of it shows.

One cell of a shard map that is a table: its devices, its copies as a stack of cards, its padding, its processes.

The shard map in HTML: a table of cells with device numbers, or a picture where the cells are many.

A table says each cell's exact slice when hovering. Axes stand as coloured bars with their coordinates along the sides.

>>> from shardviz.layouts import layout
>>> shard_map_html(layout((8, 6), ("data",), {"data": 2})).startswith("<div")
True
"""

from __future__ import annotations

import base64
from html import escape

import numpy as np

from shardviz.layouts import Layout, ProcessLayout
from shardviz.notation.spec import Axis, axis_name, axis_text
from shardviz.paint.columns import clip
from shardviz.paint.html import HAIRLINE, MONO, QUIET, SANS, chip, mono, piece_html, spec_html
from shardviz.paint.shard_map_png import Picture, hatch_url, picture_of
from shardviz.paint.theme import axis_colours
from shardviz.records.amounts import format_shape, plural
from shardviz.view.contents import cell_lines, drawable
from shardviz.view.document import mesh_axes
from shardviz.view.layouts import spec_words
from shardviz.view.ranges import device_ranges
from shardviz.view.scene import (
    Scene,
    Side,
    build_scene,
    coarsen,
    describe,
    nested_coordinates,
    nested_slices,
    notes,
)

MOST = 135_000
"""Characters of picture and titles together; where they would be more, whole rows say their slices and devices."""


def picture_html(scene: Scene, picture: Picture, most: int = MOST) -> str:
    """The picture, with the exact slice of each cell when hovering; of each row where the cells are very many.

    Args:
        scene: what it shows.
        picture: what it looks like.
        most: the most characters that it should take with a title for each cell.
    """
    data = base64.b64encode(picture.png).decode()
    width, height = picture.cell
    rows, columns = scene.rows.cells, scene.columns.cells
    cells = _cells(scene) if len(data) + 0.9 * _at_most(scene) <= most else []
    if not cells or len(data) + sum(map(len, cells)) > most:
        cells, width, columns = _rows(scene), width * columns, 1
    grid = f"display:grid;grid-template-columns:repeat({columns},{width}px);grid-auto-rows:{height}px"
    panels, each = [], rows * columns
    for panel, (x, y) in enumerate(picture.origins):
        inside = "".join(cells[panel * each : (panel + 1) * each])
        panels.append(f'<div style="position:absolute;left:{x}px;top:{y}px;{grid}">{inside}</div>')
    return (
        f'<div style="position:relative;width:{picture.width}px;margin:4px 0">'
        f'<img src="data:image/png;base64,{data}" width="{picture.width}" height="{picture.height}" '
        f'alt="{escape(describe(scene))}" style="max-width:none;margin:0">{"".join(panels)}</div>'
    )


def _at_most(scene: Scene) -> int:
    """Characters of all cells' titles if all were as long as the last one's, about: the longest numbers stand there."""
    last = tuple(n - 1 for n in scene.devices.shape[:3])
    return scene.cells * len(f'<i title="{scene.labels()[-1][-1][-1]}: {scene.index_text(*last)}"></i>')


def _cells(scene: Scene) -> list[str]:
    """An empty element for every cell, panel by panel and row by row, with its devices and its slice."""
    made, columns = [], [_slice(scene.columns, column) for column in range(scene.columns.cells)]
    for panel, labels in enumerate(scene.labels()):
        before, after = _around(scene, panel)
        ends = [f"{text}{after}" for text in columns]
        for row, texts in enumerate(labels):
            start = before.replace(_ROW, _slice(scene.rows, row))
            if scene.processes is None:
                made += [f'<i title="{text}: {start}{end}"></i>' for text, end in zip(texts, ends, strict=True)]
            else:
                made += [
                    f'<i title="{text}: {start}{end}, {scene.process_text(panel, row, column)}"></i>'
                    for column, (text, end) in enumerate(zip(texts, ends, strict=True))
                ]
    return made


def _rows(scene: Scene) -> list[str]:
    """An empty element for every row, with its devices and its slice."""
    made = []
    for panel, grid in enumerate(scene.devices):
        before, after = _around(scene, panel)
        for row, devices in enumerate(grid):
            where = f"{before.replace(_ROW, _slice(scene.rows, row))}:{after}"
            made.append(f'<i title="{device_ranges(devices.ravel().tolist())}: {where}"></i>')
    return made


_ROW, _COLUMN = "\0", "\1"


def _around(scene: Scene, panel: int) -> tuple[str, str]:
    """The text of a panel's slices before and after that of the column, with a mark for the row's."""
    parts = scene.index_text(panel, 0, 0)[1:-1].split(", ")
    for mark, side in ((_ROW, scene.rows), (_COLUMN, scene.columns)):
        if side.dimension is not None:
            parts[side.dimension] = mark
    before, _, after = f"[{', '.join(parts)}]".partition(_COLUMN)
    return before, after


def _slice(side: Side, cell: int) -> str:
    return side.slice_text(cell) if side.ways > 1 else ":"


MAX_LABEL = 60
"""Characters; longer lists of devices are counted, and said as far as they go when hovering."""

MOST_HATCHED = 128
"""Cells; of more the padding has dashed edges alone."""


_DASHED = "1px dashed rgba(128,128,128,0.9)"
_ALONE = "2px solid rgba(128,128,128,0.9)"
_DOTTED = "2px dotted rgba(128,128,128,0.9)"
_TILE = "background-color:rgba(128,150,175,0.12)"
_THICK = "3px solid rgba(128,128,128,0.9)"
_CARDS = (
    "box-shadow:3px 3px 0 rgba(128,150,175,0.45)",
    "box-shadow:3px 3px 0 rgba(128,150,175,0.45),6px 6px 0 rgba(128,150,175,0.25)",
)
"""The second card of a stack, and the third where there are more."""


def cell_html(scene: Scene, panel: int, row: int, column: int, text: str, values: np.ndarray | None) -> str:
    """A cell as a `<td>` that says its devices and its slice when hovering.

    Args:
        scene: what it is a cell of.
        panel, row, column: which.
        text: its devices, as `Scene.label` has them.
        values: the array's elements, to be set in the cell; None to leave them out.
    """
    extra = _padding(scene, panel, row, column)
    apart = scene.layout.partial_sums * scene.layout.manual_ways > 1
    border = _DASHED if extra else _DOTTED if apart else _ALONE if scene.layout.maximal else HAIRLINE
    noun = "device" if scene.devices.shape[3] == 1 else "devices"
    process = scene.process_text(panel, row, column)
    title = f"{noun} {clip(text, 160)}: {scene.index_text(panel, row, column)}{extra}{process and f', {process}'}"
    shown = text if len(text) <= MAX_LABEL else brief(scene.devices[panel, row, column])
    if scene.stacked:
        shown += f' <span style="{QUIET}">×{scene.layout.replicas}</span>'
    if values is not None:
        lines = "<br>".join(escape(line) for line in cell_lines(scene, values, panel, row, column))
        shown = f'<div style="font-size:10px;{QUIET}">{shown}</div><div style="white-space:pre">{lines}</div>'
    inside = (
        f"padding:5px 7px;text-align:center;white-space:nowrap;border:{border};{_TILE}{_hatched(scene, row, column)}"
    )
    edges = _process_edges(scene, panel, row, column)
    if not scene.stacked:
        return f'<td style="{inside}{edges}" title="{title}">{shown}</td>'
    card = f'<div style="{inside};{_CARDS[scene.layout.replicas > 2]}">{shown}</div>'
    return f'<td style="padding:2px 9px 9px 2px;border:0{edges}" title="{title}">{card}</td>'


def _hatched(scene: Scene, row: int, column: int) -> str:
    """Hatching over the part of a cell that lies beyond the array's end, at its right and at its foot."""
    if scene.cells > MOST_HATCHED:
        return ""
    across, down = (
        side.padding(cell) / (side.shard * side.merged) if side.padding(cell) else 0
        for side, cell in ((scene.columns, column), (scene.rows, row))
    )
    if max(across, down) == 1:
        parts = [("100% 100%", "right bottom")]
    else:
        parts = [(f"{100 * across:.0f}% 100%", "right top")] * (across > 0)
        parts += [(f"100% {100 * down:.0f}%", "left bottom")] * (down > 0)
    if not parts:
        return ""
    sizes, places = (",".join(texts) for texts in zip(*parts, strict=True))
    images = ",".join([f"url({hatch_url()})"] * len(parts))
    return (
        f";background-image:{images};background-size:{sizes};background-position:{places};background-repeat:no-repeat"
    )


def _process_edges(scene: Scene, panel: int, row: int, column: int) -> str:
    """Thick lines above and to the left of a cell whose neighbours there other processes hold."""
    below, beside = scene.edges
    style = f";border-top:{_THICK}" if row and below[panel, row - 1, column] else ""
    return style + (f";border-left:{_THICK}" if column and beside[panel, row, column - 1] else "")


def brief(devices: np.ndarray) -> str:
    """What a cell says whose device numbers follow no short rule."""
    return f"{plural(len(devices), 'device')} from {devices.min()} to {devices.max()}"


def _padding(scene: Scene, panel: int, row: int, column: int) -> str:
    cells = (*zip(scene.depth, scene.place(panel), strict=True), (scene.rows, row), (scene.columns, column))
    parts = [
        f"{side.padding(c)} of dimension {side.dimension}"
        for side, c in cells
        if side.dimension is not None and side.padding(c)
    ]
    return ", padded by " + " and ".join(parts) if parts else ""


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
    axes = piece_html(mesh_axes(mesh), axis_colours(mesh)) if mesh.names else ""
    return (
        f'<div style="padding:2px 0">{name}{mono(escape(format_shape(layout.shape)))} {_spec(layout)} '
        f"· shard {mono(escape(format_shape(layout.shard_shape)))} · "
        f"{f'mesh {axes}, ' if axes else ''}{plural(mesh.size, 'device')}</div>"
    )


def _spec(layout: Layout) -> str:
    if layout.spec is None:
        return f'<span style="{QUIET}">{escape(spec_words(layout))}</span>'
    colours = axis_colours(layout.mesh)
    manual = " ".join(chip(axis, colours) for axis in layout.manual)
    return spec_html(layout.spec, axis_colours(layout.mesh)) + (f" {mono(f'manual {manual}')}" if manual else "")


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
