"""Shard maps and collectives as matplotlib figures, for papers and slides; imported only where one is drawn.

Every function draws on the `ax` it is given, or on the Axes of a new `matplotlib.figure.Figure` that pyplot knows
nothing of, and returns the Axes. Colour is never alone: bars carry hatches and names. The Axes' label
(`ax.get_label()`) says the picture in words.

>>> from shardviz.layouts import layout
>>> ax = shard_map_axes(layout((8, 6), ("data",), {"data": 2}))
>>> ax.get_title(loc="left")
"[8, 6]  P('data', None)"
"""

from __future__ import annotations

from matplotlib.axes import Axes

from shardviz.paint.mpl import draw
from shardviz.records.report import Report
from shardviz.render.mpl_map import change_axes, shard_map_axes, unknown_axes
from shardviz.view.bars import collective_bars

__all__ = ["change_axes", "collective_bars_axes", "shard_map_axes", "unknown_axes"]


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
