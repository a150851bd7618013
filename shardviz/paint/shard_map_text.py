"""The shard map in plain text: a grid where it fits, else lines of device ranges.

>>> from shardviz.layouts import layout
>>> print(shard_map_text(layout((8, 6), ("data", "model"), {"data": 2, "model": 2})))
[8, 6]  P('data', 'model')  mesh data=2,model=2, 4 devices  shard [4, 3]
rows     dimension 0: 8 by data=2, 4 each
columns  dimension 1: 6 by model=2, 3 each
<BLANKLINE>
       0:3   3:6
     ┌─────┬─────┐
 0:4 │  0  │  1  │
 4:8 │  2  │  3  │
     └─────┴─────┘
"""

from __future__ import annotations

import itertools

import numpy as np

from shardviz.layouts import Layout, ProcessLayout
from shardviz.paint.columns import text_width, wrap
from shardviz.records.amounts import format_shape, plural
from shardviz.view.layouts import spec_words
from shardviz.view.ranges import device_ranges
from shardviz.view.scene import Scene, build_scene, notes

MAX_LINES = 72
"""Rows of cells that a text map may have before it says ranges instead."""


def shard_map_text(layout: Layout, width: int = 80, hosts: ProcessLayout | None = None) -> str:
    """Which device holds which slice, in plain text. The same layout always gives the same text.

    Args:
        layout: where every slice lies.
        width: the most columns in a line; the grid becomes device ranges where it would be wider.
        hosts: what each process holds, to have thick lines where processes meet.

    Returns:
        Lines joined by newlines, with none at the end.
    """
    scene = build_scene(layout, hosts)
    lines = _head(scene, width)
    too_tall = scene.devices.shape[0] * scene.devices.shape[1] > MAX_LINES
    body = None if too_tall else _grid(scene, width)
    lines += ["", *(body if body is not None else _ranges(scene, width))]
    remarks = notes(scene)
    if remarks:
        lines += ["", *(line for remark in remarks for line in wrap(remark, width))]
    return "\n".join(line.rstrip() for line in lines)


def _head(scene: Scene, width: int) -> list[str]:
    layout = scene.layout
    parts = [
        format_shape(layout.shape),
        spec_words(layout),
        f"mesh {layout.mesh}, {plural(layout.mesh.size, 'device')}" if layout.mesh.names else "1 device",
        f"shard {format_shape(layout.shard_shape)}",
    ]
    lines: list[str] = []
    for part in parts:
        if lines and text_width(lines[-1]) + 2 + text_width(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines += wrap(part, width)
    sides = [("panels", side) for side in scene.depth] + [("rows", scene.rows), ("columns", scene.columns)]
    for name, side in sides:
        if side.dimension is not None:
            lines += wrap(f"{name:<8} {side.text()}", width, " " * 9)
    return lines


def _grid(scene: Scene, width: int) -> list[str] | None:
    """The panels as boxes, one below the other; None where a line would be wider than `width`."""
    count = f" ×{scene.layout.replicas}" if scene.stacked else ""
    labels = scene.labels()
    widest = max(len(cell) for panel in labels for row in panel for cell in row) + len(count)
    labels = [[[(cell + count).rjust(widest) for cell in row] for row in panel] for panel in labels]
    rows = [scene.rows.slice_text(r) if scene.rows.dimension is not None else "" for r in range(scene.rows.cells)]
    margin = max(map(len, rows)) + 2 if any(rows) else 0
    columns = [
        scene.columns.slice_text(c) if scene.columns.dimension is not None else "" for c in range(scene.columns.cells)
    ]
    cell = max(widest, *map(len, columns)) if columns else widest
    across = scene.columns.cells
    if margin + across * (cell + 3) + 1 > width:
        columns, cell = [], widest
    if margin + across * (cell + 3) + 1 > width:
        return None
    below, beside = scene.edges
    lines: list[str] = []
    for panel, grid in enumerate(labels):
        if scene.depth:
            lines += ([""] if panel else []) + wrap(scene.panel_text(panel), width)
        if any(columns):
            lines.append(" " * (margin + 1) + " ".join(text.center(cell + 2) for text in columns))
        rule = "─" * (cell + 2)
        lines.append(" " * margin + "┌" + "┬".join([rule] * across) + "┐")
        for r, (name, row) in enumerate(zip(rows, grid, strict=True)):
            if r and below[panel, r - 1].any():
                thick = ["━" * (cell + 2) if edge else " " * (cell + 2) for edge in below[panel, r - 1]]
                lines.append(" " * margin + "│" + "┿".join(thick) + "│")
            head = f" {name:>{margin - 2}} " if margin else ""
            line = "".join(
                f" {text.center(cell)} {'┃' if c < across - 1 and beside[panel, r, c] else '│'}"
                for c, text in enumerate(row)
            )
            lines.append(f"{head}│{line}")
        lines.append(" " * margin + "└" + "┴".join([rule] * across) + "┘")
    return lines


def _ranges(scene: Scene, width: int) -> list[str]:
    """One line a row of cells: its slice, and the devices of its cells from the first column to the last."""
    panels, rows, columns, replicas = scene.devices.shape
    in_order = replicas == 1 and bool(np.all(np.diff(scene.devices, axis=2) > 0))
    if panels * rows > MAX_LINES and in_order:
        merged = _consecutive(scene)
        if len(merged) <= MAX_LINES:
            return _align(["devices, row by row", *merged], width)
    lines = [("slice", "devices" if columns == 1 else "devices, column by column")]
    for panel in range(panels):
        for row in range(rows):
            cells = scene.devices[panel, row]
            text = (
                device_ranges(cells[:, 0].tolist())
                if in_order
                else " | ".join(scene.label(panel, row, c) for c in range(columns))
            )
            lines.append((_row_name(scene, panel, row), text))
    hidden = len(lines) - MAX_LINES
    if hidden > 0:
        half = MAX_LINES // 2
        lines[half:-half] = [("…", f"{hidden} more rows; `layout.index(device)` has each")]
    margin = max(len(a) for a, _ in lines)
    return _align([f"{a:<{margin}}  {b}" for a, b in lines], width)


def _row_name(scene: Scene, panel: int, row: int) -> str:
    text = scene.index_text(panel, row, 0)
    side = scene.columns
    if side.dimension is None or side.ways == 1:
        return text
    parts = text[1:-1].split(", ")
    parts[side.dimension] = ":"
    return "[" + ", ".join(parts) + "]"


def _consecutive(scene: Scene) -> list[str]:
    """Runs of rows in which device numbers go on by one from cell to cell."""
    flat = scene.devices[..., 0].reshape(-1, scene.columns.cells)
    breaks = np.flatnonzero(flat[1:, 0] != flat[:-1, -1] + 1) + 1
    edges = [0, *breaks.tolist(), len(flat)]
    lines = []
    for first, end in itertools.pairwise(edges):
        rows = scene.rows.cells
        start, stop = _row_name(scene, *divmod(first, rows)), _row_name(scene, *divmod(end - 1, rows))
        ids = device_ranges(flat[first:end].ravel().tolist())
        lines.append(
            f"{start} to {stop}, {plural(end - first, 'row')}: {ids}" if end - first > 1 else f"{start}: {ids}"
        )
    return lines


def _align(lines: list[str], width: int) -> list[str]:
    """Lines too wide are cut in the middle of their cells, and say so with `…`."""
    out = []
    for line in lines:
        if len(line) > width:
            cells = line.split(" | ")
            keep = [cells[0]]
            room = width - len(cells[0]) - len(cells[-1]) - 9
            for text in cells[1:-1]:
                room -= len(text) + 3
                if room < 0:
                    break
                keep.append(text)
            line = " | ".join([*keep, "…", cells[-1]]) if len(cells) > 2 else line
            out += wrap(line, width, "    ") if len(line) > width else [line]
        else:
            out.append(line)
    return out
