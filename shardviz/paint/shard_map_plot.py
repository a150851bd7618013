"""What all matplotlib figures here share: inks and fills, light or dark, and figures that pyplot knows nothing of.

How large everything in a matplotlib shard map is, in inches, before anything is drawn.

Shard maps, and changes of them, drawn with matplotlib.

Shard maps and collectives as matplotlib figures, for papers and slides; imported only where one is drawn.

Every function draws on the `ax` it is given, or on the Axes of a new `matplotlib.figure.Figure` that pyplot knows
nothing of, and returns the Axes. Colour is never alone: bars carry hatches and names. The Axes' label
(`ax.get_label()`) says the picture in words.

>>> from shardviz.layouts import layout
>>> ax = shard_map_axes(layout((8, 6), ("data",), {"data": 2}))
>>> ax.get_title(loc="left")
"[8, 6]  P('data', None)"
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from shardviz.layouts import Layout, Moves, ProcessLayout
from shardviz.notation import axis_name
from shardviz.notation.spec import axis_text
from shardviz.paint.columns import clip
from shardviz.paint.mpl import draw
from shardviz.paint.text import text_of
from shardviz.paint.theme import AxisColour, axis_colours
from shardviz.records.amounts import format_shape
from shardviz.records.report import Report
from shardviz.view.bars import collective_bars
from shardviz.view.contents import cell_lines, drawable
from shardviz.view.document import Document
from shardviz.view.layouts import move_blocks, spec_words, uneven_words
from shardviz.view.scene import Scene, Side, build_scene, coarsen, describe, notes
from shardviz.view.shown import ShownUnknown

EM = 0.66 / 72
"""Inches: the width of a monospace character for each point of its size."""


class Look:
    """Inks and fills of a light or a dark figure."""

    def __init__(self, dark: bool):
        self.dark = dark
        self.page = "#111111" if dark else "#FFFFFF"
        self.ink = "#E6E6E6" if dark else "#1F2328"
        self.quiet = "#A6ADB5" if dark else "#59636E"
        self.tile = "#1F2933" if dark else "#EEF2F6"
        self.line = "#4A5560" if dark else "#C3CCD6"
        self.hatch = (0.07, 0.07, 0.07, 0.45) if dark else (1.0, 1.0, 1.0, 0.45)

    def fill(self, colour: AxisColour) -> str:
        """The fill of a mesh axis."""
        return colour.dark if self.dark else colour.light

    def text_on(self, colour: AxisColour) -> str:
        """The ink on that fill."""
        return colour.dark_ink if self.dark else colour.ink


def figure(look: Look, width: float, height: float, box: tuple[float, float, float, float]) -> Axes:
    """The Axes of a new figure of so many inches, at (left, bottom, width, height) inches."""
    whole = Figure(figsize=(width, height), facecolor=look.page)
    left, bottom, across, up = box
    made = whole.add_axes((left / width, bottom / height, across / width, up / height))
    made.set_facecolor(look.page)
    return made


def room_of(ax: Axes) -> tuple[float, float]:
    """Width and height in inches of the Axes that somebody gave."""
    whole = ax.get_figure(root=True)
    box = ax.get_window_extent()
    return (box.width / whole.dpi, box.height / whole.dpi) if whole is not None else (4.0, 4.0)


SMALLEST = 5.5
"""Points; device numbers are not set smaller, neighbouring cells are merged instead."""

_GRIDS = (
    *((64, 32), (32, 32), (64, 16), (32, 16), (32, 8), (16, 8), (16, 4), (8, 4), (16, 2), (8, 2)),
    *((16, 1), (8, 1), (4, 2), (4, 1), (2, 1), (1, 1)),
)
BAR, GAP = 0.2, 0.05
"""Inches: the thickness of a coordinate bar, and what is left between bars."""

CARD = 0.055
"""Inches by which the cards of a stack show behind one another."""


class Plan:
    """Inches of all in a shard map: a cell, a panel with its bars, and the panels, `across` of them in a line.

    Attributes:
        texts: what stands in every cell, panel by panel, row by row: its devices, then its values.
        cell: width and height of a cell; `card` of them is left for the cards behind it.
        points: the size of the letters.
        step: from one panel to the next, across and down.
    """

    def __init__(self, scene: Scene, room: tuple[float, float] | None, across: int, values: np.ndarray | None):
        self.scene, self.across = scene, across
        panels, rows, columns = scene.devices.shape[:3]
        self.texts = _texts(scene, values)
        lines = [line for panel in self.texts for row in panel for text in row for line in text.split("\n")]
        high = max(text.count("\n") + 1 for panel in self.texts for row in panel for text in row)
        self.left = 0.28 * (scene.rows.dimension is not None) + (BAR + GAP) * _bar_count(scene.rows)
        self.top = 0.25 * (scene.columns.dimension is not None) + (BAR + GAP) * _bar_count(scene.columns)
        foot, gap, down = 0.4 if scene.depth else 0.0, 0.3, -(-panels // across)
        least = ((max(map(len, lines)) + 1.2) * EM, 1.5 * high / 72)
        self.cards = (min(scene.layout.replicas, 3) - 1) * scene.stacked
        spare = CARD * (self.cards + 1) * (self.cards > 0)
        if room is None:
            big = 3.6 if panels == 1 else 2.0
            tall = scene.aspect if scene.aspect <= 1 else 1.0
            wide = 1.0 if scene.aspect <= 1 else 1 / scene.aspect
            self.cell = (max(big * wide / columns, 7 * least[0] + spare), max(big * tall / rows, 7 * least[1] + spare))
        else:
            wide = (room[0] - gap * (across - 1)) / across - self.left
            tall = room[1] / down - self.top - foot
            self.cell = (max(wide, 0.1) / columns, max(tall, 0.1) / rows)
        self.card = min(CARD, 0.2 * min(self.cell) / (self.cards + 1)) if self.cards else 0.0
        spare = self.card * (self.cards + 1)
        self.points = min(10.0, (self.cell[0] - spare) / least[0], (self.cell[1] - spare) / least[1])
        self.step = (self.left + columns * self.cell[0] + gap, self.top + rows * self.cell[1] + foot)
        self.width, self.height = across * self.step[0] - gap, down * self.step[1]

    def fits(self, limit: float) -> bool:
        """Whether its numbers can be read, in a figure of at most `limit` inches each way."""
        return self.points >= SMALLEST and max(self.width, self.height) <= limit


def _bar_count(side: Side) -> int:
    return len(side.axes) if side.ways > 1 else 0


def _texts(scene: Scene, values: np.ndarray | None) -> list[list[list[str]]]:
    labels = scene.labels()
    if values is None or not drawable(scene):
        return labels
    return [
        [
            ["\n".join([text, *cell_lines(scene, values, p, r, c)]) for c, text in enumerate(row)]
            for r, row in enumerate(panel)
        ]
        for p, panel in enumerate(labels)
    ]


def plan_of(scene: Scene, room: tuple[float, float] | None, values: np.ndarray | None = None) -> Plan:
    """The finest drawing whose numbers can be read, as nearly square as its panels allow.

    Args:
        scene: what to draw, one cell a tile.
        room: width and height in inches that there is; None for as much as it needs, up to 12 inches.
        values: the array's elements, which are left out where they would be too small.
    """
    limit = 12.0 if room is None else float("inf")
    for given in (values, None) if values is not None else (None,):
        for panels in (16, 4, 1):
            for rows, columns in _GRIDS:
                merged = coarsen(scene, rows=rows, columns=columns, panels=panels)
                if given is not None and merged.merged > 1:
                    continue
                plans = [Plan(merged, room, across, given) for across in range(1, merged.devices.shape[0] + 1)]
                found = [plan for plan in plans if plan.fits(limit)]
                if found and room is None:
                    return min(found, key=lambda plan: max(plan.width, 1.5 * plan.height))
                if found:
                    return max(found, key=lambda plan: plan.points)
    return Plan(coarsen(scene, rows=1, columns=1, panels=1), room, 1, None)


_CAPTION = 96
"""Characters of a line of the caption."""

_BETWEEN, _HEAD = 0.7, 0.3
"""Inches between the two maps of a change, and for the heads above them."""


def shard_map_axes(
    layout: Layout,
    ax: Axes | None = None,
    *,
    dark: bool = False,
    title: str = "",
    values: np.ndarray | None = None,
    hosts: ProcessLayout | None = None,
    dtype: Any = None,
) -> Axes:
    """Which device holds which slice, as a figure.

    Args:
        layout: where every slice lies.
        ax: where to draw; a new figure's Axes if None.
        dark: colours for a dark page.
        title: the array's name.
        values: the array's elements, to be set in the cells where these are few.
        hosts: what each process holds, to have thick lines where processes meet.
        dtype: the element type, to say bytes that are wasted.

    Returns:
        The Axes. Where device numbers would be too small to read, neighbouring shards are drawn as one cell, and the
        caption says so.
    """
    look = Look(dark)
    plan = plan_of(build_scene(layout, hosts), None if ax is None else room_of(ax), values)
    head = f"{title + '  ' if title else ''}{format_shape(layout.shape)}  {spec_words(layout)}"
    caption = _wrapped([*_said(plan.scene), uneven_words(layout, dtype)])
    axes = _page(ax, look, head, caption, plan.width, plan.height)
    _map(axes, plan, look)
    axes.set_label(describe(plan.scene))
    return axes


def change_axes(way: Moves, dtype: Any = None, ax: Axes | None = None, *, dark: bool = False, title: str = "") -> Axes:
    """An array before and after a change of its sharding, side by side, with what moves in the caption.

    Args:
        way: from `layout.moves`.
        dtype: the element type, for bytes; None for elements.
        ax: where to draw; a new figure's Axes if None.
        dark: colours for a dark page.
        title: the array's name.

    Returns:
        The Axes, which both maps stand in.
    """
    look, room = Look(dark), None
    if ax is not None:
        width, height = room_of(ax)
        room = ((width - _BETWEEN) / 2, height - _HEAD)
    plans = [plan_of(build_scene(cut), room) for cut in (way.before, way.after)]
    words = [f"{word}: {spec_words(cut)}" for word, cut in (("before", way.before), ("after", way.after))]
    left = max(plans[0].width, len(words[0]) * 9 * EM) + _BETWEEN
    width = left + max(plans[1].width, len(words[1]) * 9 * EM)
    height = max(plan.height for plan in plans) + _HEAD
    head = f"{title + '  ' if title else ''}{format_shape(way.before.shape)}  mesh {way.before.mesh}"
    caption = []
    for word, plan in zip(("before", "after"), plans, strict=True):
        said = "; ".join(filter(None, [*notes(plan.scene), uneven_words(plan.scene.layout, dtype)]))
        caption += _wrapped([f"{word}: {said}"]) if said else []
    caption += text_of(Document(blocks=move_blocks(way, dtype)), _CAPTION).splitlines()
    axes = _page(ax, look, head, caption, width, height)
    for plan, text, x in zip(plans, words, (0.0, left), strict=True):
        _map(axes, plan, look, (x, _HEAD))
        axes.text(
            x, _HEAD - 0.1, text, color=look.ink, fontsize=9, va="bottom", fontfamily="monospace", parse_math=False
        )
    middle = _HEAD + (plans[0].top + min(plan.height for plan in plans)) / 2
    arrow = {"arrowstyle": "-|>", "color": look.quiet, "linewidth": 1.6, "mutation_scale": 16}
    axes.annotate("", (left - 0.12, middle), (left - _BETWEEN + 0.12, middle), arrowprops=arrow)
    before, after = (describe(plan.scene) for plan in plans)
    axes.set_label(f"Before: {before} After: {after}")
    return axes


def unknown_axes(shown: ShownUnknown, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """An array of which nobody has said yet how it is cut, as a figure: a hatched box, and who decides.

    Args:
        shown: the array.
        ax: where to draw; a new figure's Axes if None.
        dark: colours for a dark page.
    """
    look = Look(dark)
    mesh = f"mesh {shown.mesh}" if shown.mesh is not None and shown.mesh.names else ""
    axes = _page(
        ax, look, f"{shown.title}  {shown.typed}  sharding not known yet".strip(), _wrapped([mesh, shown.why]), 2.6, 0.9
    )
    axes.add_patch(
        Rectangle((0.02, 0.02), 2.56, 0.86, fc="none", ec=look.quiet, hatch="//", linestyle="--", linewidth=1.2)
    )
    ground = {"facecolor": look.page, "edgecolor": "none", "pad": 2.0}
    axes.text(1.3, 0.45, "?", color=look.ink, fontsize=14, ha="center", va="center", bbox=ground)
    axes.set_label(shown.alt)
    return axes


def _said(scene: Scene) -> list[str]:
    layout = scene.layout
    return [f"mesh {layout.mesh} · shard {format_shape(layout.shard_shape)}", *notes(scene)]


def _wrapped(texts: list[str]) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, _CAPTION)]


def _page(ax: Axes | None, look: Look, head: str, caption: list[str], width: float, height: float) -> Axes:
    """Axes in inches from the top left, with a title and a caption; of a new figure that has room for both, if None."""
    if ax is None:
        widest = max(len(head) * 11 * EM, max(map(len, caption)) * 8 * EM)
        bottom = 0.22 + 0.16 * len(caption)
        box = (0.15, bottom, width, height)
        axes = figure(look, max(width, widest) + 0.3, height + bottom + 0.45, box)
    else:
        axes = ax
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    axes.set_title(head, loc="left", color=look.ink, fontsize=11, fontfamily="monospace", parse_math=False)
    below = {
        "va": "top",
        "ha": "left",
        "color": look.quiet,
        "fontsize": 8,
        "fontfamily": "monospace",
        "annotation_clip": False,
        "parse_math": False,
    }
    axes.annotate("\n".join(caption), (0, 0), (0, -6), "axes fraction", "offset points", **below)
    axes.set_gid("shard-map")
    return axes


def _map(axes: Axes, plan: Plan, look: Look, corner: tuple[float, float] = (0.0, 0.0)) -> None:
    """All panels, the first one's corner so many inches from the left and from the top."""
    for panel in range(plan.scene.devices.shape[0]):
        _panel(axes, plan, panel, look, corner)


def _panel(ax: Axes, plan: Plan, panel: int, look: Look, corner: tuple[float, float]) -> None:
    scene, (w, h) = plan.scene, plan.cell
    down, across = divmod(panel, plan.across)
    x0, y0 = corner[0] + across * plan.step[0] + plan.left, corner[1] + down * plan.step[1] + plan.top
    rows, columns = scene.rows.cells, scene.columns.cells
    spare = plan.card * (plan.cards + 1)
    for card in reversed(range(plan.cards + 1)):
        off = card * plan.card
        tiles = [
            Rectangle((x0 + c * w + off, y0 + r * h + off), w - spare, h - spare)
            for r in range(rows)
            for c in range(columns)
        ]
        ax.add_collection(PatchCollection(tiles, facecolor=look.tile, **_edge(scene.layout, look)))
    _padding(ax, scene, (x0, y0), (w, h), spare, look)
    style = {"ha": "center", "va": "center", "color": look.ink, "fontsize": plan.points, "fontfamily": "monospace"}
    ground = {"facecolor": look.tile, "edgecolor": "none", "pad": 1.0}
    for r, row in enumerate(plan.texts[panel]):
        for c, text in enumerate(row):
            padded = scene.rows.padding(r) or scene.columns.padding(c)
            label, _, inside = text.partition("\n")
            x, y = x0 + (c + 0.5) * w - spare / 2, y0 + (r + 0.5) * h - spare / 2
            if inside:  # the devices above, quietly, then the values
                line = 1.2 * plan.points / 72
                top = y - line * (inside.count("\n") + 2) / 2
                ax.text(x, top + line / 2, label, **style | {"color": look.quiet, "fontsize": 0.9 * plan.points})
                ax.text(x, top + line, inside, **style | {"va": "top", "linespacing": 1.2})
            else:
                ax.text(x, y, label, bbox=ground if padded else None, **style)
    _edges(ax, scene, panel, (x0, y0), (w, h), look)
    _bars(ax, scene.columns, scene, (x0, y0), w, look, upright=False)
    _bars(ax, scene.rows, scene, (x0, y0), h, look, upright=True)
    if scene.depth:
        middle, below = x0 + columns * w / 2, y0 + rows * h + 0.05
        ax.text(middle, below, scene.panel_text(panel), ha="center", va="top", color=look.quiet, fontsize=8)


def _edges(
    ax: Axes, scene: Scene, panel: int, origin: tuple[float, float], cell: tuple[float, float], look: Look
) -> None:
    """Thick lines where processes meet."""
    (x0, y0), (w, h), (below, beside) = origin, cell, scene.edges
    lines = [
        *(((x0 + c * w, y0 + (r + 1) * h), (x0 + (c + 1) * w, y0 + (r + 1) * h)) for r, c in np.argwhere(below[panel])),
        *(
            ((x0 + (c + 1) * w, y0 + r * h), (x0 + (c + 1) * w, y0 + (r + 1) * h))
            for r, c in np.argwhere(beside[panel])
        ),
    ]
    if lines:
        ax.add_collection(LineCollection(lines, colors=look.quiet, linewidths=2.4, gid="processes"))


def _edge(layout: Layout, look: Look) -> dict[str, Any]:
    """The cells' edges: dotted round partial sums and manual arrays, thick round the one device that holds all."""
    if layout.partial_sums * layout.manual_ways > 1:
        return {"edgecolor": look.quiet, "linewidth": 1.4, "linestyle": ":"}
    if layout.maximal:
        return {"edgecolor": look.quiet, "linewidth": 1.8}
    return {"edgecolor": look.line, "linewidth": 0.6}


def _padding(
    ax: Axes, scene: Scene, origin: tuple[float, float], cell: tuple[float, float], spare: float, look: Look
) -> None:
    """Hatches the part of the last cells that lies beyond the array's end."""
    (x0, y0), (w, h) = origin, cell
    for side, other, flat in ((scene.columns, scene.rows, True), (scene.rows, scene.columns, False)):
        for k in range(side.cells) if side.padded else ():
            share = side.padding(k) / (side.shard * side.merged)
            for n in range(other.cells) if share > 0 else ():
                c, r = (k, n) if flat else (n, k)
                x, y, wide, high = x0 + c * w, y0 + r * h, w - spare, h - spare
                if flat:
                    spot = Rectangle((x + (1 - share) * wide, y), share * wide, high)
                else:
                    spot = Rectangle((x, y + (1 - share) * high), wide, share * high)
                spot.set(facecolor="none", edgecolor=look.quiet, hatch="////", linewidth=0)
                ax.add_patch(spot)


def _bars(
    ax: Axes, side: Side, scene: Scene, origin: tuple[float, float], cell: float, look: Look, *, upright: bool
) -> None:
    """The coordinate bars of a side, minor axis nearest to the cells, and the dimension's name."""
    colours = axis_colours(scene.mesh)
    x0, y0 = origin
    bars = side.coordinates() if side.ways > 1 else []
    for place, (axis, spans) in enumerate(bars):
        colour = colours[axis_name(axis)]
        off = (len(bars) - place) * (BAR + GAP)
        at = 0
        for text, count in spans:
            start, length = at * cell + 0.012, count * cell - 0.024
            x, y, w, h = (x0 - off, y0 + start, BAR, length) if upright else (x0 + start, y0 - off, length, BAR)
            fill = look.fill(colour)
            ax.add_patch(Rectangle((x, y), w, h, fc=fill, ec=look.hatch, hatch=colour.hatch, linewidth=0))
            turned = upright and len(text) > 2
            need = 0.09 if upright and not turned else (len(text) + 0.4) * 7 * EM
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
    text = clip(text, max(16, int(side.cells * cell / (9 * EM * 0.85))))
    off, middle = len(bars) * (BAR + GAP) + 0.05, side.cells * cell / 2
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
        limit: the most bars; a note says how many more there are.

    Returns:
        The Axes. Collectives whose count is not known have a bar of length 0 and say so beside it.

    Raises:
        ShardvizError: for another `by`.
    """
    return draw(collective_bars(report, by, limit), ax, dark=dark)
