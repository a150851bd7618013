"""Where a step's FLOPs are from, drawn with matplotlib: a bar a source line, cut by phase."""

from __future__ import annotations

from matplotlib.axes import Axes

from shardviz.costs.step_cost import StepCost
from shardviz.paint.columns import clip, wrap
from shardviz.records import Frame, WorkTotal
from shardviz.records.amounts import format_flops
from shardviz.render.mpl_look import EM, Look, figure, name_bars
from shardviz.render.work import PHASES, phase_words

MOST_LINES = 10
_GREYS = {"forward": "#3F4C5A", "rematerialised": "#7A8795", "backward": "#9FABB7", "update": "#C9D1D9"}
_DARK = {"forward": "#D3DAE1", "rematerialised": "#8E9BA8", "backward": "#6B7884", "update": "#46515C"}
_HATCH = {"forward": "", "rematerialised": "///", "backward": "...", "update": "xxx"}


def work_axes(cost: StepCost, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """FLOPs of one device by source line, each bar cut by phase (the optimizer's part is `update`).

    Args:
        cost: what `cost_of` gives.
        ax: where to draw; a new figure's Axes if None.
        dark: colours for a dark page.

    Returns:
        The Axes; its label says the picture in words.
    """
    look, counted = Look(dark), cost.counted
    totals = [t for t in counted.by("source") if t.flops] if counted is not None else []
    shown, rest = totals[:MOST_LINES], totals[MOST_LINES:]
    most = max((t.flops for t in shown), default=0.0) or 1.0
    labels = [_label(cost, total) for total in shown]
    if ax is None:
        left = 0.3 + max(map(len, labels), default=20) * 9 * EM
        up = 0.34 * max(1, len(shown))
        axes = figure(look, left + 4 + 1.9, up + 1.4, (left, 0.65, 4, up))
    else:
        axes = ax
    fills = _DARK if dark else _GREYS
    for place, total in enumerate(shown):
        begin = 0.0
        for phase, flops in _phases(cost, total):
            face = {"color": fills[phase], "edgecolor": look.hatch, "linewidth": 0, "hatch": _HATCH[phase] or None}
            axes.barh(place, flops / most, 0.62, begin, **face)
            begin += flops / most
        share = f"{format_flops(total.flops)} · {total.flops / counted.flops:.0%}" if counted else ""
        beside = {"va": "center", "ha": "left", "color": look.ink, "fontsize": 8.5, "annotation_clip": False}
        axes.annotate(share, (begin, place), (5, 0), "data", "offset points", **beside)
    name_bars(axes, look, labels)
    _legend(axes, look, cost, fills)
    head = f"{cost.program}: FLOPs of a device by line, {cost.basis if cost.level == 'propagated' else 'partitioned'}"
    axes.set_title(head, loc="left", color=look.ink, fontsize=11, pad=24, parse_math=False)
    words = phase_words(counted) if counted is not None else ""
    text = words or f"not counted at level {cost.level}"
    more = f"; {len(rest)} more lines not drawn" if rest else ""
    lines = "\n".join(wrap(text + more, 72))
    axes.set_xlabel(lines, loc="left", color=look.quiet, fontsize=8.5, parse_math=False)
    parts = "; ".join(f"{t.label} {format_flops(t.flops)}" for t in shown)
    axes.set_label(f"FLOPs of a device by line: {parts or 'not known'}. {text}.")
    return axes


def _label(cost: StepCost, total: WorkTotal) -> str:
    line = cost.line(total.key) if isinstance(total.key, Frame) else ""
    return f"{total.label}  {clip(line, 40)}" if line else total.label


def _phases(cost: StepCost, total: WorkTotal) -> list[tuple[str, float]]:
    """The FLOPs of a line in each phase, in the order in which a step runs."""
    sums = dict.fromkeys(PHASES, 0.0)
    for row in cost.counted.work if cost.counted is not None else ():
        if (row.source and row.source.bare) == total.key:
            sums[row.phase] += row.flops
    return [(phase, flops) for phase, flops in sums.items() if flops]


def _legend(axes: Axes, look: Look, cost: StepCost, fills: dict[str, str]) -> None:
    """Between title and bars: a patch and a name for each phase that there is."""
    found = {row.phase for row in cost.counted.work if row.flops} if cost.counted is not None else set()
    at = 0
    for phase in PHASES:
        if phase in found:
            note = {"va": "center", "ha": "left", "fontsize": 8.5, "annotation_clip": False}
            box = {"boxstyle": "square,pad=0.1", "facecolor": fills[phase], "edgecolor": look.line}
            box["hatch"] = _HATCH[phase]
            corner = ((0, 1), (at, 12), "axes fraction", "offset points")
            axes.annotate("   ", *corner, bbox=box, **note)
            corner = ((0, 1), (at + 18, 12), "axes fraction", "offset points")
            axes.annotate(phase, *corner, color=look.ink, **note)
            at += 18 + round(len(phase) * 8.5 * 0.66) + 14
