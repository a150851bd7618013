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

from shardviz.render.mpl_bars import collective_bars_axes
from shardviz.render.mpl_map import change_axes, shard_map_axes, unknown_axes

__all__ = ["change_axes", "collective_bars_axes", "shard_map_axes", "unknown_axes"]
