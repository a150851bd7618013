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
from shardviz.records import Frame
from shardviz.render.format import clip, format_bytes, format_shape
from shardviz.render.scene import Scene, Side, build_scene, coarsen, describe, notes
from shardviz.render.theme import MUTED, axis_colours
from shardviz.render.totals import totals_by
from shardviz.render.wording import spec_words
from shardviz.report import Report

_SMALLEST = 5.5
"""Points; device numbers are not set smaller, neighbouring cells are merged instead."""

_GRIDS = (
    *((64, 32), (32, 32), (64, 16), (32, 16), (32, 8), (16, 8), (16, 4), (8, 4), (16, 2), (8, 2)),
    *((16, 1), (8, 1), (4, 2), (4, 1), (2, 1), (1, 1)),
)
_BAR, _GAP = 0.2, 0.05
_EM = 0.66 / 72
"""Inches: the width of a monospace character for each point of its size."""


class _Look:
    """Inks and fills of a light or a dark figure."""

    def __init__(self, dark: bool):
        self.dark = dark
        self.page = "#111111" if dark else "#FFFFFF"
        self.ink = "#E6E6E6" if dark else "#1F2328"
        self.quiet = "#A6ADB5" if dark else "#59636E"
        self.tile = "#1F2933" if dark else "#EEF2F6"
        self.line = "#4A5560" if dark else "#C3CCD6"
        self.hatch = (0.07, 0.07, 0.07, 0.45) if dark else (1.0, 1.0, 1.0, 0.45)

    def fill(self, colour: Any) -> str:
        return colour.dark if self.dark else colour.light

    def text_on(self, colour: Any) -> str:
        return colour.dark_ink if self.dark else colour.ink


def _figure(look: _Look, width: float, height: float, box: tuple[float, float, float, float]) -> Axes:
    """The Axes of a new figure of so many inches, at (left, bottom, width, height) inches."""
    figure = Figure(figsize=(width, height), facecolor=look.page)
    left, bottom, across, up = box
    made = figure.add_axes((left / width, bottom / height, across / width, up / height))
    made.set_facecolor(look.page)
    return made


class _Plan:
    """Inches of all in a shard map: a cell, a panel with its bars, and the panels, `across` of them in a line."""

    def __init__(self, scene: Scene, room: tuple[float, float] | None, across: int):
        self.scene, self.across = scene, across
        panels, rows, columns = scene.devices.shape[:3]
        longest = max(len(cell) for panel in scene.labels() for row in panel for cell in row)
        self.left = 0.28 * (scene.rows.dimension is not None) + (_BAR + _GAP) * _bar_count(scene.rows)
        self.top = 0.25 * (scene.columns.dimension is not None) + (_BAR + _GAP) * _bar_count(scene.columns)
        foot, gap, down = 0.4 if scene.depth else 0.0, 0.3, -(-panels // across)
        least = ((longest + 1.2) * _EM, 1.5 / 72)
        if room is None:
            big = 3.6 if panels == 1 else 2.0
            tall = scene.aspect if scene.aspect <= 1 else 1.0
            wide = 1.0 if scene.aspect <= 1 else 1 / scene.aspect
            self.cell = (max(big * wide / columns, 7 * least[0]), max(big * tall / rows, 7 * least[1]))
        else:
            wide = (room[0] - gap * (across - 1)) / across - self.left
            tall = room[1] / down - self.top - foot
            self.cell = (max(wide, 0.1) / columns, max(tall, 0.1) / rows)
        self.points = min(10.0, self.cell[0] / least[0], self.cell[1] / least[1])
        self.step = (self.left + columns * self.cell[0] + gap, self.top + rows * self.cell[1] + foot)
        self.width, self.height = across * self.step[0] - gap, down * self.step[1]

    def fits(self, limit: float) -> bool:
        """Whether its numbers can be read, in a figure of at most `limit` inches each way."""
        return self.points >= _SMALLEST and max(self.width, self.height) <= limit


def _bar_count(side: Side) -> int:
    return len(side.axes) if side.ways > 1 else 0


def _plan(scene: Scene, room: tuple[float, float] | None) -> _Plan:
    """The finest drawing whose numbers can be read, as nearly square as its panels allow."""
    limit = 12.0 if room is None else float("inf")
    for panels in (16, 4, 1):
        for rows, columns in _GRIDS:
            merged = coarsen(scene, rows=rows, columns=columns, panels=panels)
            plans = [_Plan(merged, room, across) for across in range(1, merged.devices.shape[0] + 1)]
            found = [plan for plan in plans if plan.fits(limit)]
            if found and room is None:
                return min(found, key=lambda plan: max(plan.width, 1.5 * plan.height))
            if found:
                return max(found, key=lambda plan: plan.points)
    return _Plan(coarsen(scene, rows=1, columns=1, panels=1), room, 1)


def shard_map_axes(layout: Layout, ax: Axes | None = None, *, dark: bool = False, title: str = "") -> Axes:
    """Which device holds which slice, as a figure.

    Args:
        layout: where every slice lies.
        ax: where to draw; a new figure's Axes if None.
        dark: colours for a dark page.
        title: the array's name.

    Returns:
        The Axes. Where device numbers would be too small to read, neighbouring shards are drawn as one cell, and the
        caption says so.
    """
    look = _Look(dark)
    plan = _plan(build_scene(layout), None if ax is None else _room(ax))
    scene = plan.scene
    head = f"{title + '  ' if title else ''}{format_shape(layout.shape)}  {spec_words(layout)}"
    caption = [f"mesh {layout.mesh} · shard {format_shape(layout.shard_shape)}", *notes(scene)]
    if ax is None:
        widest = max(len(head) * 11 * _EM, max(map(len, caption)) * 8 * _EM * 0.9)
        bottom = 0.22 + 0.16 * len(caption)
        width, height = max(plan.width, widest) + 0.3, plan.height + bottom + 0.45
        axes = _figure(look, width, height, (0.15, bottom, plan.width, plan.height))
    else:
        axes = ax
    for panel in range(scene.devices.shape[0]):
        _panel(axes, plan, panel, look)
    axes.set_xlim(0, plan.width)
    axes.set_ylim(plan.height, 0)
    axes.set_axis_off()
    axes.set_title(head, loc="left", color=look.ink, fontsize=11, fontfamily="monospace", parse_math=False)
    below = {
        "va": "top",
        "ha": "left",
        "color": look.quiet,
        "fontsize": 8,
        "annotation_clip": False,
        "parse_math": False,
    }
    axes.annotate("\n".join(caption), (0, 0), (0, -6), "axes fraction", "offset points", **below)
    axes.set_gid("shard-map")
    axes.set_label(describe(scene))
    return axes


def _room(ax: Axes) -> tuple[float, float]:
    """Width and height in inches of the Axes that somebody gave."""
    figure = ax.get_figure(root=True)
    box = ax.get_window_extent()
    return (box.width / figure.dpi, box.height / figure.dpi) if figure is not None else (4.0, 4.0)


def _panel(ax: Axes, plan: _Plan, panel: int, look: _Look) -> None:
    scene, (w, h) = plan.scene, plan.cell
    down, across = divmod(panel, plan.across)
    x0, y0 = across * plan.step[0] + plan.left, down * plan.step[1] + plan.top
    rows, columns = scene.rows.cells, scene.columns.cells
    tiles = [Rectangle((x0 + c * w, y0 + r * h), w, h) for r in range(rows) for c in range(columns)]
    ax.add_collection(PatchCollection(tiles, facecolor=look.tile, **_edge(scene.layout, look)))
    _padding(ax, scene, (x0, y0), (w, h), look)
    style = {"ha": "center", "va": "center", "color": look.ink, "fontsize": plan.points, "fontfamily": "monospace"}
    ground = {"facecolor": look.tile, "edgecolor": "none", "pad": 1.0}
    for r, row in enumerate(scene.labels()[panel]):
        for c, text in enumerate(row):
            padded = scene.rows.padding(r) or scene.columns.padding(c)
            ax.text(x0 + (c + 0.5) * w, y0 + (r + 0.5) * h, text, bbox=ground if padded else None, **style)
    _bars(ax, scene.columns, scene, (x0, y0), w, look, upright=False)
    _bars(ax, scene.rows, scene, (x0, y0), h, look, upright=True)
    if scene.depth:
        middle, below = x0 + columns * w / 2, y0 + rows * h + 0.05
        ax.text(middle, below, scene.panel_text(panel), ha="center", va="top", color=look.quiet, fontsize=8)


def _edge(layout: Layout, look: _Look) -> dict[str, Any]:
    """The cells' edges: dotted round partial sums and manual arrays, thick round the one device that holds all."""
    if layout.partial_sums * layout.manual_ways > 1:
        return {"edgecolor": look.quiet, "linewidth": 1.4, "linestyle": ":"}
    if layout.maximal:
        return {"edgecolor": look.quiet, "linewidth": 1.8}
    return {"edgecolor": look.line, "linewidth": 0.6}


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


def _bars(
    ax: Axes, side: Side, scene: Scene, origin: tuple[float, float], cell: float, look: _Look, *, upright: bool
) -> None:
    """The coordinate bars of a side, minor axis nearest to the cells, and the dimension's name."""
    colours = axis_colours(scene.mesh)
    x0, y0 = origin
    bars = side.coordinates() if side.ways > 1 else []
    for place, (axis, spans) in enumerate(bars):
        colour = colours[axis_name(axis)]
        off = (len(bars) - place) * (_BAR + _GAP)
        at = 0
        for text, count in spans:
            start, length = at * cell + 0.012, count * cell - 0.024
            x, y, w, h = (x0 - off, y0 + start, _BAR, length) if upright else (x0 + start, y0 - off, length, _BAR)
            fill = look.fill(colour)
            ax.add_patch(Rectangle((x, y), w, h, fc=fill, ec=look.hatch, hatch=colour.hatch, linewidth=0))
            turned = upright and len(text) > 2
            need = 0.09 if upright and not turned else (len(text) + 0.4) * 7 * _EM
            if length > need:
                ax.text(
                    x + w / 2,
                    y + h / 2,
                    text,
                    ha="center",
                    va="center",
                    color=look.text_on(colour),
                    fontsize=7,
                    rotation=90 if turned else 0,
                    bbox={"facecolor": fill, "edgecolor": "none", "pad": 0.8},
                )
            at += count
    if side.dimension is None:
        return
    names = " · ".join(axis_text(a) for a, _ in side.axes)
    text = f"dim {side.dimension} · {side.size}" + (f" · {names}" if names else "")
    off, middle = len(bars) * (_BAR + _GAP) + 0.05, side.cells * cell / 2
    x, y = (x0 - off, y0 + middle) if upright else (x0 + middle, y0 - off)
    words = ax.text(x, y, text, color=look.quiet, fontsize=9, parse_math=False, ha="center", va="bottom")
    if upright:
        words.set(ha="right", va="center", rotation=90)


def collective_bars_axes(
    report: Report, by: str = "axes", ax: Axes | None = None, *, dark: bool = False, limit: int = 12
) -> Axes:
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
    most = max((t.bytes for t in shown), default=0) or 1
    labels = []
    for t in shown:
        line = report.line(t.key) if isinstance(t.key, Frame) else ""
        labels.append(f"{t.label}  {clip(line, 40)}" if line else t.label)
    ends = [f"{t.bytes_text} · {', '.join(t.kinds)}" for t in shown]
    if ax is None:
        left = 0.3 + max(map(len, labels), default=0) * 9 * _EM
        right = 0.3 + max(map(len, ends), default=0) * 8.5 * _EM * 0.95
        up = 0.32 * max(1, len(shown))
        axes = _figure(look, max(left + 3 + right, 7), up + 0.95, (left, 0.5, 3, up))
    else:
        axes = ax
    beside = {"va": "center", "ha": "left", "color": look.ink, "fontsize": 8.5, "annotation_clip": False}
    for place, t in enumerate(shown):
        begin = 0.0
        for over, nbytes in t.parts:
            colour = colours.get(axis_name(over[0])) if over else None
            fill, hatch = (look.fill(colour), colour.hatch) if colour else (MUTED, None)
            axes.barh(place, nbytes / most, 0.62, begin, color=fill, edgecolor=look.hatch, linewidth=0, hatch=hatch)
            begin += nbytes / most
        axes.annotate(ends[place], (begin, place), (5, 0), "data", "offset points", **beside)
    axes.set_yticks(range(len(shown)), labels, color=look.ink, fontsize=9, fontfamily="monospace", parse_math=False)
    axes.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_facecolor("none")
    what = "mesh axes" if by == "axes" else "source line"
    head = f"{report.program}: collectives by {what}, {report.level}"
    axes.set_title(head, loc="left", color=look.ink, fontsize=11, parse_math=False)
    more = f"; {len(totals) - limit} more not drawn" if len(totals) > limit else ""
    text = f"operand bytes per device in a step; longest bar {format_bytes(most if totals else 0)}{more}"
    axes.set_xlabel(text if totals else "no collectives", loc="left", color=look.quiet, fontsize=8.5)
    return axes
