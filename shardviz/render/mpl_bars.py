"""Collectives as a bar chart, drawn with matplotlib."""

from __future__ import annotations

from matplotlib.axes import Axes

from shardviz.errors import ShardvizError
from shardviz.notation import axis_name
from shardviz.paint.columns import clip
from shardviz.paint.theme import MUTED, axis_colours
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes
from shardviz.records.report import Report
from shardviz.records.sums import sum_collectives
from shardviz.render.mpl_look import EM, Look, figure, name_bars


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
    look, colours = Look(dark), axis_colours(report.mesh)
    totals = sum_collectives(report.collectives, by)
    shown = totals[:limit]
    most = max((t.bytes for t in shown), default=0) or 1
    labels = []
    for t in shown:
        line = report.line(t.key) if isinstance(t.key, Frame) else ""
        labels.append(f"{t.label}  {clip(line, 40)}" if line else t.label)
    ends = [f"{t.bytes_text} · {', '.join(t.kinds)}" for t in shown]
    if ax is None:
        left = 0.3 + max(map(len, labels), default=0) * 9 * EM
        right = 0.3 + max(map(len, ends), default=0) * 8.5 * EM * 0.95
        up = 0.32 * max(1, len(shown))
        axes = figure(look, max(left + 3 + right, 7), up + 0.95, (left, 0.5, 3, up))
    else:
        axes = ax
    beside = {"va": "center", "ha": "left", "color": look.ink, "fontsize": 8.5, "annotation_clip": False}
    for place, t in enumerate(shown):
        begin = 0.0
        for part in t.parts:
            colour = colours.get(axis_name(part.axes[0])) if part.axes else None
            fill, hatch = (look.fill(colour), colour.hatch) if colour else (MUTED, None)
            axes.barh(place, part.bytes / most, 0.62, begin, color=fill, edgecolor=look.hatch, linewidth=0, hatch=hatch)
            begin += part.bytes / most
        axes.annotate(ends[place], (begin, place), (5, 0), "data", "offset points", **beside)
    name_bars(axes, look, labels)
    what = "mesh axes" if by == "axes" else "source line"
    head = f"{report.program}: collectives by {what}, {report.level}"
    axes.set_title(head, loc="left", color=look.ink, fontsize=11, parse_math=False)
    more = f"; {len(totals) - limit} more not drawn" if len(totals) > limit else ""
    text = f"operand bytes per device in a step; longest bar {format_bytes(most if totals else 0)}{more}"
    axes.set_xlabel(text if totals else "no collectives", loc="left", color=look.quiet, fontsize=8.5)
    return axes
