"""Shard maps and collectives as matplotlib figures, for papers and slides; the only module that imports matplotlib.

Every function draws on the `ax` it is given, or on the Axes of a new `matplotlib.figure.Figure` that pyplot knows
nothing of, and returns the Axes. Colour is never alone: bars carry hatches and names.

>>> from shardviz.layout import layout
>>> ax = shard_map_axes(layout((8, 6), ("data",), {"data": 2}))
>>> ax.get_title(loc="left")
"[8, 6]  P('data', None)"
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from shardviz.errors import ShardvizError
from shardviz.layout import Layout
from shardviz.notation import axis_name
from shardviz.notation.spec import axis_text
from shardviz.render.format import clip, format_bytes, format_shape
from shardviz.render.scene import Scene, Side, build_scene, coarsen, describe, notes
from shardviz.render.theme import MUTED, axis_colours
from shardviz.render.totals import totals_by
from shardviz.report import Report

_MAX_SIDE = 32
_BAR, _GAP = 0.045, 0.012


class _Look:
    """Inks and fills of a light or a dark figure."""

    def __init__(self, dark: bool):
        self.dark = dark
        self.page = "#111111" if dark else "#FFFFFF"
        self.ink = "#E6E6E6" if dark else "#1F2328"
        self.quiet = "#A6ADB5" if dark else "#59636E"
        self.tile = "#1F2933" if dark else "#EEF2F6"
        self.line = "#4A5560" if dark else "#C3CCD6"

    def fill(self, colour: Any) -> str:
        return colour.dark if self.dark else colour.light

    def text_on(self, colour: Any) -> str:
        return colour.dark_ink if self.dark else colour.ink


def _axes(ax: Axes | None, look: _Look, width: float, height: float) -> Axes:
    if ax is not None:
        return ax
    figure = Figure(figsize=(width, height), layout="constrained", facecolor=look.page)
    made = figure.add_subplot()
    made.set_facecolor(look.page)
    return made


def shard_map_axes(layout: Layout, ax: Axes | None = None, *, dark: bool = False, title: str = "") -> Axes:
    """Which device holds which slice, as a figure.

    Args:
        layout: where every slice lies.
        ax: where to draw; a new figure's Axes if None.
        dark: colours for a dark page.
        title: the array's name.

    Returns:
        The Axes. Beyond 32 cells a side neighbouring shards are drawn as one cell, and the caption says so.
    """
    look = _Look(dark)
    scene = coarsen(build_scene(layout), rows=_MAX_SIDE, columns=_MAX_SIDE, panels=8)
    height = scene.aspect if scene.aspect <= 1 else 1.0
    width = 1.0 if scene.aspect <= 1 else 1 / scene.aspect
    panels = scene.devices.shape[0]
    left, top = (0.14 + (_BAR + _GAP) * len(side.axes) for side in (scene.rows, scene.columns))
    step = width + left + 0.06
    inches = 4.2 if panels == 1 else 2.8
    total = panels * step - 0.06
    ax = _axes(ax, look, max(3.6, inches * total + 0.3), inches * (height + top) + 1.0)
    for panel in range(panels):
        _panel(ax, scene, panel, (panel * step + left, 0.0), (width, height), look)
    ax.set_xlim(0, total)
    ax.set_ylim(height + 0.01, -top)
    ax.set_aspect("equal")
    ax.set_axis_off()
    head = f"{title + '  ' if title else ''}{format_shape(layout.shape)}  {layout.spec}"
    ax.set_title(head, loc="left", color=look.ink, fontsize=11, fontfamily="monospace")
    caption = [f"mesh {layout.mesh} · shard {format_shape(layout.shard_shape)}", *notes(scene)]
    ax.text(0, -0.03, "\n".join(caption), transform=ax.transAxes, va="top", ha="left", color=look.quiet, fontsize=8)
    ax.set_gid("shard-map")
    ax.set_label(describe(scene))
    return ax


def _panel(ax: Axes, scene: Scene, panel: int, origin: tuple[float, float], size: tuple[float, float], look: _Look) -> None:
    x0, y0 = origin
    rows, columns = scene.rows.cells, scene.columns.cells
    w, h = size[0] / columns, size[1] / rows
    labels = scene.labels()[panel]
    tiles = [Rectangle((x0 + c * w, y0 + r * h), w, h) for r in range(rows) for c in range(columns)]
    ax.add_collection(PatchCollection(tiles, facecolor=look.tile, edgecolor=look.line, linewidth=0.6))
    _padding(ax, scene, origin, (w, h), look)
    longest = max(len(text) for row in labels for text in row)
    points = min(10.0, 4.2 * 72 * w / (0.66 * max(longest, 2)), 4.2 * 72 * h * 0.7)
    for r in range(rows):
        for c in range(columns):
            ax.text(x0 + (c + 0.5) * w, y0 + (r + 0.5) * h, labels[r][c], ha="center", va="center", color=look.ink,
                    fontsize=points, fontfamily="monospace", clip_on=True)
    _bars(ax, scene.columns, scene, (x0, y0), w, look, upright=False)
    _bars(ax, scene.rows, scene, (x0, y0), h, look, upright=True)
    if scene.depth:
        text = scene.panel_text(panel)
        ax.text(x0 + size[0] / 2, y0 + size[1] + 0.02, text, ha="center", va="top", color=look.quiet, fontsize=8)


def _padding(ax: Axes, scene: Scene, origin: tuple[float, float], cell: tuple[float, float], look: _Look) -> None:
    """Hatches the part of the last cells that lies beyond the array's end."""
    x0, y0 = origin
    w, h = cell
    for side, horizontal in ((scene.columns, True), (scene.rows, False)):
        if not side.padded:
            continue
        for k in range(side.cells):
            share = side.padding(k) / (side.shard * side.merged)
            if share > 0 and horizontal:
                spot = Rectangle((x0 + (k + 1 - share) * w, y0), share * w, h * scene.rows.cells)
            elif share > 0:
                spot = Rectangle((x0, y0 + (k + 1 - share) * h), w * scene.columns.cells, share * h)
            else:
                continue
            spot.set(facecolor="none", edgecolor=look.quiet, hatch="////", linewidth=0)
            ax.add_patch(spot)


def _bars(ax: Axes, side: Side, scene: Scene, origin: tuple[float, float], cell: float, look: _Look, *, upright: bool) -> None:
    """The coordinate bars of a side, minor axis nearest to the cells, and the dimension's name."""
    colours = axis_colours(scene.mesh)
    x0, y0 = origin
    bars = side.coordinates() if side.ways > 1 else []
    for place, (axis, spans) in enumerate(bars):
        colour = colours[axis_name(axis)]
        off = (len(bars) - place) * (_BAR + _GAP)
        at = 0
        for text, count in spans:
            start, length, inset = at * cell, count * cell, 0.004
            box = ((x0 - off, y0 + start + inset), _BAR, length - 2 * inset) if upright else (
                (x0 + start + inset, y0 - off), length - 2 * inset, _BAR)
            ax.add_patch(Rectangle(*box, facecolor=look.fill(colour), edgecolor=look.page, hatch=colour.hatch, linewidth=0))
            middle = (x0 - off + _BAR / 2, y0 + start + length / 2) if upright else (
                x0 + start + length / 2, y0 - off + _BAR / 2)
            if length > 0.02 * max(2, len(text)):
                ax.text(*middle, text, ha="center", va="center", color=look.text_on(colour), fontsize=6.5, rotation=0,
                        bbox={"facecolor": look.fill(colour), "edgecolor": "none", "pad": 0.6})
            at += count
    if side.dimension is None:
        return
    names = " · ".join(axis_text(a) for a, _ in side.axes)
    text = f"dim {side.dimension} · {side.size}" + (f" · {names}" if names else "")
    off = len(bars) * (_BAR + _GAP) + 0.02
    middle = side.cells * cell / 2
    if upright:
        ax.text(x0 - off, y0 + middle, text, ha="right", va="center", rotation=90, color=look.quiet, fontsize=9)
    else:
        ax.text(x0 + middle, y0 - off, text, ha="center", va="bottom", color=look.quiet, fontsize=9)


def collective_bars_axes(report: Report, by: str = "axes", ax: Axes | None = None, *, dark: bool = False,
                         limit: int = 12) -> Axes:
    """Operand bytes of the collectives on one device over the step, as horizontal bars.

    Args:
        report: whose collectives.
        by: `axes` (mesh axes) or `source` (source line).
        ax: where to draw; a new figure's Axes if None.
        dark: colours for a dark page.
        limit: the most bars; the caption says how many more there are.

    Returns:
        The Axes. Collectives whose count is not known have a bar of length 0 and say so beside it.

    Raises:
        ShardvizError: for another `by`.
    """
    if by not in ("axes", "source"):
        raise ShardvizError(f"collective_bars_axes(by={by!r}): by is 'axes' or 'source'")
    look, colours = _Look(dark), axis_colours(report.mesh)
    totals = totals_by(report.collectives, by)
    shown = totals[:limit]
    ax = _axes(ax, look, 7.0, 1.3 + 0.32 * max(1, len(shown)))
    most = max((t.bytes for t in shown), default=0) or 1
    labels = []
    for place, t in enumerate(shown):
        colour = colours.get(axis_name(t.axes[0])) if t.axes else None
        ax.barh(place, t.bytes / most, height=0.62, color=look.fill(colour) if colour else MUTED,
                edgecolor=look.page, linewidth=0, hatch=colour.hatch if colour else None)
        ax.text(t.bytes / most + 0.015, place, f"{t.bytes_text} · {', '.join(t.kinds)}", va="center", ha="left",
                color=look.ink, fontsize=8.5)
        line = report.line(t.key) if by == "source" and t.key is not None else ""  # pyright: ignore[reportArgumentType]
        labels.append(f"{t.label}  {clip(line, 34)}" if line else t.label)
    ax.set_yticks(range(len(shown)), labels, color=look.ink, fontsize=9, fontfamily="monospace")
    ax.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    ax.set_xlim(0, 1.75)
    ax.set_xticks([])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    what = "mesh axes" if by == "axes" else "source line"
    ax.set_title(f"{report.program}: collectives by {what}, {report.level}", loc="left", color=look.ink, fontsize=11)
    more = f"; {len(totals) - limit} more not drawn" if len(totals) > limit else ""
    text = f"operand bytes per device in a step; longest bar {format_bytes(most if totals else 0)}{more}"
    ax.set_xlabel(text if totals else "no collectives", loc="left", color=look.quiet, fontsize=8.5)
    return ax
