"""A picture of a shard map as an `<img>` whose cells say their slice when hovering.

An image map needs a name, which JupyterLab's sanitizer takes away; so a grid of empty elements lies over the picture,
each with its title. Without styles, as on GitHub, nothing of it shows.
"""

from __future__ import annotations

import base64
from html import escape

from shardviz.render.picture import Picture
from shardviz.render.scene import Scene, Side, describe
from shardviz.view.ranges import device_ranges

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
