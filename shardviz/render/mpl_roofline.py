"""The roofline of a step on a machine: how many FLOPs a byte of HBM, and of each mesh axis' links, it does."""

from __future__ import annotations

import math

from matplotlib.axes import Axes

from shardviz.analysis.step_cost import StepCost
from shardviz.cost.amounts import count_text, flops_text, rate_text
from shardviz.notation import axis_name
from shardviz.render.cost_words import moved_name
from shardviz.render.format import format_seconds, plural
from shardviz.render.mpl_look import Look, figure
from shardviz.render.theme import axis_colours

_DASHES = ((0, ()), (0, (6, 2)), (0, (2, 2)), (0, (6, 2, 1, 2)), (0, (1, 1)), (0, (9, 3)))
_MARKS = "osD^vP"
MOST = 6


def roofline_axes(cost: StepCost, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """Rooflines of HBM and of the links that each mesh axis rides on, with the program's place on each.

    Bytes of an axis are its seconds x the bandwidth of its roof, so that a place says what the cost model says: left of
    the knee the bytes take longer than the FLOPs.
    """
    look, colours = Look(dark), axis_colours(cost.mesh)
    flops = cost.flops or 0.0
    times = {"HBM": cost.step.memory} | {moved_name(m): m.seconds for m in cost.by("axes") if m.seconds}
    hbm, *links = cost.knees()
    counted = [k for k in links if times.get(k.name, 0.0) > cost.lower / 1000]
    knees = [hbm, *sorted(counted, key=lambda k: -times[k.name])[: MOST - 1]]
    left_out = [name for name in times if name not in {k.name for k in knees}]
    peak = knees[0].bytes_per_s * knees[0].intensity
    points = {k.name: flops / (times[k.name] * k.bytes_per_s) for k in knees if times.get(k.name) and flops}
    marks = [k.intensity for k in knees] + [x for x in points.values() if x > 0]
    low, high = 10 ** math.floor(math.log10(min(marks)) - 0.6), 10 ** math.ceil(math.log10(max(marks)) + 0.4)
    axes = figure(look, 10.2, 4.6, (0.85, 0.7, 4.9, 3.3)) if ax is None else ax
    said, floor = [], peak
    for place, knee in enumerate(knees):
        colour = colours.get(axis_name(knee.name.split(",")[0].split(":")[0]))
        ink = look.fill(colour) if colour else look.ink
        dash, mark = _DASHES[place % len(_DASHES)], _MARKS[place % len(_MARKS)]
        axes.plot([low, knee.intensity, high], [knee.attainable(low), peak, peak], color=ink, linestyle=dash, lw=1.8)
        at = points.get(knee.name)
        verdict = "nothing moves"
        if at is not None:
            seconds = times[knee.name]
            y = knee.attainable(at)
            floor = min(floor, y)
            least = knee.name == "HBM" and not cost.hbm_exact
            some, long = ("at most ", "at least ") if least else ("", "")
            axes.plot(
                [at], [y], mark, color=ink, markersize=9, markeredgecolor=look.page, markeredgewidth=1.2, zorder=5
            )
            wins = "bytes take longer" if at < knee.intensity else "FLOPs take longer"
            wins += ", as far as is known" if least and at >= knee.intensity else ""
            verdict = f"{some}{count_text(at)} FLOPs a byte; {long}{format_seconds(seconds)}: {wins}"
        elif cost.flops is None and times.get(knee.name):
            verdict = "the program's FLOPs are not known"
        said.append(
            (
                f"{knee.name}: {rate_text(knee.bytes_per_s)}, knee at {count_text(knee.intensity)} FLOPs a byte",
                verdict,
                ink,
                dash,
                mark,
            )
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(10 ** math.floor(math.log10(min(floor, min(k.attainable(low) for k in knees) * 3))), peak * 3)
    axes.set_xlabel("FLOPs a byte", color=look.quiet, fontsize=9)
    axes.set_ylabel("FLOPs a second, one device", color=look.quiet, fontsize=9)
    axes.tick_params(colors=look.quiet, labelsize=8.5, which="both")
    axes.grid(True, which="major", color=look.line, linewidth=0.5, alpha=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(look.line)
    axes.set_facecolor("none")
    rate = f"peak {flops_text(peak)}/s of {cost.dtype}"
    axes.annotate(rate, (high, peak), (0, 9), "data", "offset points", ha="right", color=look.ink, fontsize=9)
    if left_out:
        said.append(
            (f"{plural(len(left_out), 'more sum')}: under a thousandth of the step", "", look.quiet, (0, ()), "")
        )
    _legend(axes, look, said)
    head = f"{cost.program} on {cost.machine.text}: roofline"
    axes.set_title(head, loc="left", color=look.ink, fontsize=11, pad=12, parse_math=False)
    axes.set_label(f"Roofline, {rate}. " + " ".join(f"{name}: {verdict}." for name, verdict, *_ in said))
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
