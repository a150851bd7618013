"""The mesh on its machine, drawn: chips in their torus or hosts, each mesh axis as its path, wraparound marked."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle

from shardviz.costs.routes import torus_links
from shardviz.costs.step_cost import StepCost
from shardviz.paint.columns import wrap
from shardviz.paint.theme import axis_colours
from shardviz.render.cost_words import placed_words
from shardviz.render.machine_scene import Panel, axis_between, first_group, panels
from shardviz.render.mpl_look import EM, Look, figure

MOST_PANELS = 16
_DASHES = ((0, ()), (0, (3, 1.2)), (0, (1, 1)), (0, (4, 1, 1, 1)))
_TILE = 0.68
"""The part of a chip's cell that its tile takes; links are drawn in the rest."""


def machine_axes(cost: StepCost, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """Where each place of the mesh is on the machine.

    A tile is a chip, with its place along each mesh axis where there is room. Links are drawn in the colour of the mesh
    axis that steps along them; a stub at the edge that ends in an open ring is a link that wraps around. Filled tiles
    are the devices that the mesh's first device has for company along each axis.
    """
    look = Look(dark)
    shown, left_out = panels(cost, MOST_PANELS)
    tpu = cost.machine.chip.kind == "tpu"
    high, wide = shown[0].places.shape[:2]
    many = len(shown)
    per_row = _per_row(cost, many, wide, high)
    rows = -(-many // per_row)
    inch = _inch(cost, wide * per_row, high * rows)
    margin = 0.75 if tpu and any(cost.machine.wrap) else 0.3  # cells around a panel
    head = 0.55 * (0.5 / max(inch, 0.2)) if shown[0].title else 0.0
    cell_w, cell_h = wide + 2 * margin, high + 2 * margin + head
    lines = _legend_lines(cost, left_out)
    if ax is None:
        across, down = per_row * cell_w * inch, rows * cell_h * inch
        legend = 0.2 * len(lines) + 0.25
        width = max(across + 0.5, 7.4)
        longest = max(len(text) for _, text in lines) * 8.5 * EM * 0.86 + 0.8
        width = max(width, min(longest, 11.0))
        axes = figure(look, width, down + legend + 0.85, (0.25, legend + 0.1, across, down))
    else:
        axes = ax
    for number, panel in enumerate(shown):
        origin = ((number % per_row) * cell_w + margin, (number // per_row) * cell_h + cell_h - high - margin)
        _panel(axes, look, cost, panel, origin, inch)
    axes.set_xlim(0, per_row * cell_w)
    axes.set_ylim(rows * cell_h, 0)
    axes.set_aspect("equal")
    axes.set_axis_off()
    head = f"mesh {cost.mesh} on {cost.machine.text}"
    axes.set_title(head, loc="left", color=look.ink, fontsize=11, pad=8, parse_math=False)
    _legend(axes, look, cost, lines, inch)
    axes.set_label(f"{head}. " + " ".join(f"{text}." for _, text in lines))
    return axes


def _per_row(cost: StepCost, many: int, wide: int, high: int) -> int:
    """Panels beside each other, so that the picture is about as wide as a page and not much taller."""
    if cost.machine.num_slices > 1 and many % cost.machine.shape[2] == 0 and cost.machine.shape[2] > 1:
        return min(many, cost.machine.shape[2])
    even = [n for n in range(1, many + 1) if many % n == 0] if many <= MOST_PANELS else range(1, many + 1)

    def far(n: int) -> float:
        return abs(math.log(n * (wide + 1.5) / (-(-many // n) * (high + 2)) / 1.7))

    return min(even, key=far)


def _inch(cost: StepCost, across: int, down: int) -> float:
    """Inches of a chip's cell."""
    widest = max((len(str(size - 1)) for size in cost.mesh.sizes), default=1)
    wanted = max(0.42, widest * 8 * EM / _TILE * 1.5, len(cost.mesh.sizes) * 8 * 1.25 / 72 / _TILE)
    wanted *= 1 + 0.5 * (cost.machine.chip.devices_per_chip - 1)
    return max(0.16, min(wanted, 10.5 / across, 8.0 / down))


def _panel(axes: Axes, look: Look, cost: StepCost, panel: Panel, origin: tuple[float, float], inch: float) -> None:
    x0, y0 = origin
    high, wide, per_chip = panel.places.shape
    if cost.machine.chip.kind == "tpu":
        _links(axes, look, cost, panel, origin)
    else:
        box = Rectangle((x0 - 0.1, y0 - 0.1), wide + 0.2, high + 0.2, fc="none", ec=look.line, lw=1.0)
        axes.add_patch(box)
    if panel.title:
        axes.text(
            x0,
            y0 - (0.5 if cost.machine.chip.kind == "tpu" else 0.2),
            panel.title,
            color=look.ink,
            fontsize=8.5,
            va="bottom",
        )
    colours, places = axis_colours(cost.mesh), cost.mesh.coordinates()
    company = {place: name for name in reversed(cost.mesh.names) for place in first_group(cost, name)}
    widest = max((len(str(n - 1)) for n in cost.mesh.sizes), default=1)
    count = max(1, len(cost.mesh.sizes))
    size = min(9.0, _TILE / per_chip * inch / (EM * (widest + 0.6)), _TILE * inch * 72 / (1.2 * count + 0.3))
    for i in range(high):
        for j in range(wide):
            for k, place in enumerate(panel.places[i, j].tolist()):
                width = _TILE / per_chip
                left, top = x0 + j + (1 - _TILE) / 2 + k * width, y0 + i + (1 - _TILE) / 2
                fill, ink, edge = look.tile, look.ink, look.line
                if place == 0:
                    fill, ink = look.ink, look.page
                elif place in company:
                    colour = colours[company[place]]
                    fill, ink = look.fill(colour), look.text_on(colour)
                axes.add_patch(Rectangle((left, top), width, _TILE, fc=fill, ec=edge, lw=0.7, zorder=3))
                if size >= 4.8 and cost.mesh.names:
                    note = {"color": ink, "fontsize": size, "ha": "center", "va": "center", "zorder": 4}
                    words = "\n".join(map(str, places[place].tolist()))
                    middle = left + width / 2, top + _TILE / 2
                    axes.text(*middle, words, family="monospace", linespacing=1.05, **note)


def _links(axes: Axes, look: Look, cost: StepCost, panel: Panel, origin: tuple[float, float]) -> None:
    """The links of a layer, each in the colour of the mesh axis that steps along it; stubs for those that wrap."""
    x0, y0 = origin
    grid, stub = panel.places[:, :, 0], 0.72
    segments: list[list[tuple[float, float]]] = []
    styles: list[str | None] = []
    rings: list[tuple[float, float, str | None]] = []
    for link in torus_links(cost.machine):
        if (link.slice, link.one[2]) != (panel.slice, panel.z) or link.axis == 2:
            continue
        ends = [(x0 + x + 0.5, y0 + y + 0.5) for x, y, _ in (link.one, link.other)]
        name = axis_between(cost.mesh, *(int(grid[y, x]) for x, y, _ in (link.one, link.other)))
        if not link.wraps:
            segments.append(ends)
            styles.append(name)
            continue
        dx, dy = (stub, 0.0) if link.axis == 0 else (0.0, stub)
        for (x, y), sign in zip(ends, (1, -1), strict=True):
            segments.append([(x, y), (x + sign * dx, y + sign * dy)])
            styles.append(name)
            rings.append((x + sign * dx, y + sign * dy, name))
    for name in dict.fromkeys(styles):
        chosen = [s for s, style in zip(segments, styles, strict=True) if style == name]
        ink, dash = _ink(look, cost, name)
        axes.add_collection(LineCollection(chosen, colors=ink, linewidths=1.6, linestyles=[dash], zorder=1))
        at = [(x, y) for x, y, style in rings if style == name]
        if at:
            xs, ys = zip(*at, strict=True)
            axes.plot(xs, ys, "o", markersize=3.2, markerfacecolor=look.page, markeredgecolor=ink, zorder=2)


def _ink(look: Look, cost: StepCost, name: str | None) -> tuple[str, tuple]:
    """The colour of a link, and its dashes: the second cue."""
    if name is None:
        return look.line, (0, (1, 2))
    place = cost.mesh.names.index(name)
    return look.fill(axis_colours(cost.mesh)[name]), _DASHES[place % len(_DASHES)]


def _legend_lines(cost: StepCost, left_out: int) -> list[tuple[str, str]]:
    """(mesh axis or a mark, words)."""
    lines = [(path.name, f"{path.name}={path.size}: {path}") for path in cost.placement.paths]
    lines.append(("first", "the mesh's first device; filled in an axis' colour: its company along that axis"))
    if cost.machine.chip.kind == "tpu":
        if any(cost.machine.wrap):
            lines.append(("wrap", "the link goes round to the other side" + _z_words(cost)))
        elif _z_words(cost):
            lines.append(("", _z_words(cost).removeprefix("; ")))
        if _crossed(cost):
            lines.append(("none", "a link between two that differ along several axes: no axis steps along it"))
    order = "in a tile, top to bottom, its place along " + ", ".join(cost.mesh.names) if cost.mesh.names else ""
    lines.append(("", "; ".join(filter(None, (order, "devices stand " + placed_words(cost))))))
    if left_out:
        lines.append(("", f"{left_out} more layers or hosts like these are not drawn"))
    return [(mark, part) for mark, text in lines for part in wrap(text, 130)]


def _crossed(cost: StepCost) -> bool:
    """Whether a link of the first layer joins two places that differ along several mesh axes."""
    grid = panels(cost, 1)[0][0].places[:, :, 0]
    beside = [*zip(grid[:, :-1].ravel(), grid[:, 1:].ravel(), strict=True)]
    below = [*zip(grid[:-1].ravel(), grid[1:].ravel(), strict=True)]
    return any(axis_between(cost.mesh, int(one), int(other)) is None for one, other in beside + below)


def _z_words(cost: StepCost) -> str:
    """Which mesh axis steps from layer to layer."""
    machine = cost.machine
    if machine.shape[2] < 2:
        return ""
    shown, _ = panels(cost, 2)
    grids = np.array([panel.places[..., 0] for panel in shown])
    name = axis_between(cost.mesh, int(grids[0, 0, 0]), int(grids[1, 0, 0]))
    by = f"along {name}" if name else "along several axes"
    return f"; links between layers (z) go {by}" + (", the last to the first too" if machine.wrap[2] else "")


def _legend(axes: Axes, look: Look, cost: StepCost, lines: list[tuple[str, str]], inch: float) -> None:
    """Below the chips, each line with its mark."""
    bottom = axes.get_ylim()[0]
    step, seen = 0.2 / inch, set()
    for number, (mark, text) in enumerate(lines):
        y = bottom + (number + 0.6) * step
        x = 0.05 / inch
        if mark in cost.mesh.names and mark not in seen:
            ink, dash = _ink(look, cost, mark)
            if cost.machine.chip.kind != "tpu":
                side = 0.13 / inch
                box = Rectangle((x + side, y - side / 2), side, side, fc=ink, ec="none", clip_on=False)
                axes.add_patch(box)
            else:
                axes.plot([x, x + 0.32 / inch], [y, y], color=ink, linestyle=dash, linewidth=2.4, clip_on=False)
        elif mark == "first":
            side = 0.13 / inch
            axes.add_patch(Rectangle((x + side, y - side / 2), side, side, fc=look.ink, ec="none", clip_on=False))
        elif mark == "none":
            ink, dash = _ink(look, cost, None)
            axes.plot([x, x + 0.32 / inch], [y, y], color=ink, linestyle=dash, linewidth=1.6, clip_on=False)
        elif mark == "wrap":
            axes.plot([x + 0.05 / inch, x + 0.2 / inch], [y, y], color=look.quiet, linewidth=1.6, clip_on=False)
            axes.plot(
                [x + 0.2 / inch],
                [y],
                "o",
                markersize=3.6,
                markerfacecolor=look.page,
                markeredgecolor=look.quiet,
                clip_on=False,
            )
        seen.add(mark)
        axes.text(x + 0.45 / inch, y, text, color=look.ink, fontsize=8.5, va="center", parse_math=False)
