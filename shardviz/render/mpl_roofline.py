"""The roofline of a step on a machine: how many FLOPs a byte of HBM, and of each mesh axis' links, it does."""

from __future__ import annotations

from matplotlib.axes import Axes

from shardviz.costs.step_cost import StepCost
from shardviz.paint.theme import axis_colours
from shardviz.render.mpl_look import Look, figure
from shardviz.render.roofline_scene import roofline_of

_DASHES = ((0, ()), (0, (6, 2)), (0, (2, 2)), (0, (6, 2, 1, 2)), (0, (1, 1)), (0, (9, 3)))
_MARKS = "osD^vP"


def roofline_axes(cost: StepCost, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """Rooflines of HBM and of the links that each mesh axis rides on, with the program's place on each."""
    look, colours, found = Look(dark), axis_colours(cost.mesh), roofline_of(cost)
    (low, high), peak = found.x, found.peak
    axes = figure(look, 10.2, 4.6, (0.85, 0.7, 4.9, 3.3)) if ax is None else ax
    said = []
    for place, roof in enumerate(found.roofs):
        ink = look.fill(colours[roof.axis]) if roof.axis else look.ink
        dash, mark = _DASHES[place % len(_DASHES)], _MARKS[place % len(_MARKS)]
        knee = roof.knee
        axes.plot([low, knee.intensity, high], [knee.attainable(low), peak, peak], color=ink, linestyle=dash, lw=1.8)
        if roof.intensity is not None and roof.attained is not None:
            edge = {"markersize": 9, "markeredgecolor": look.page, "markeredgewidth": 1.2, "zorder": 5}
            axes.plot([roof.intensity], [roof.attained], mark, color=ink, **edge)
        said.append((roof.title, roof.verdict, ink, dash, mark))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(*found.y)
    axes.set_xlabel("FLOPs a byte", color=look.quiet, fontsize=9)
    axes.set_ylabel("FLOPs a second, one device", color=look.quiet, fontsize=9)
    axes.tick_params(colors=look.quiet, labelsize=8.5, which="both")
    axes.grid(True, which="major", color=look.line, linewidth=0.5, alpha=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(look.line)
    axes.set_facecolor("none")
    axes.annotate(found.rate, (high, peak), (0, 9), "data", "offset points", ha="right", color=look.ink, fontsize=9)
    if found.left_out:
        said.append((found.left_out, "", look.quiet, (0, ()), ""))
    _legend(axes, look, said)
    head = f"{cost.program} on {cost.machine.text}: roofline"
    axes.set_title(head, loc="left", color=look.ink, fontsize=11, pad=12, parse_math=False)
    axes.set_label(found.text)
    return axes


def _legend(axes: Axes, look: Look, said: list) -> None:
    """Beside the Axes: each roof's line and mark, its bandwidth, and where the program is."""
    y = 1.0
    step = 0.155
    for name, verdict, ink, dash, mark in said:
        head, _, rest = name.partition(": ")
        if not mark:
            axes.text(1.05, y - 0.02, f"{head}: {rest}", transform=axes.transAxes, color=ink, fontsize=8.5, va="center")
            break
        line = axes.plot([1.05, 1.12], [y - 0.02] * 2, color=ink, linestyle=dash, lw=1.8, transform=axes.transAxes)[0]
        dot = axes.plot([1.085], [y - 0.02], mark, color=ink, markersize=6, transform=axes.transAxes)[0]
        for each in (line, dot):
            each.set_clip_on(False)
        first, _, second = verdict.partition("; ")
        lines = ((f"{head}: {rest}", look.ink), (first, look.quiet), (second, look.quiet))
        for number, (text, colour) in enumerate(lines):
            note = {"color": colour, "fontsize": 8.5, "va": "center", "parse_math": False}
            axes.text(1.14, y - 0.02 - 0.045 * number, text, transform=axes.transAxes, **note)
        y -= step
