"""One cell of a shard map that is a table: its devices, its copies as a stack of cards, its padding, its processes."""

from __future__ import annotations

from html import escape

import numpy as np

from shardviz.paint.columns import clip
from shardviz.records.amounts import plural
from shardviz.render.chips import HAIRLINE, QUIET
from shardviz.render.contents import cell_lines
from shardviz.render.picture import hatch_url
from shardviz.render.scene import Scene

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
