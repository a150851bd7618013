"""Subjects drawn with matplotlib, which is loaded only when something is drawn.

What has a Picture is drawn by `paint.mpl`; whoever draws another subject registers it here.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from shardviz.view.subjects import picture


@singledispatch
def plot(subject: Any, ax: Any = None, kind: str = "", *, dark: bool = False) -> Any:
    """A subject drawn with matplotlib.

    Args:
        subject: what to draw.
        ax: where; the Axes of a new figure if None.
        kind: which of its pictures, where it has several.
        dark: colours for a dark page.

    Returns:
        The Axes.

    Raises:
        ShardvizError: for an object that nobody draws.
    """
    from shardviz.paint.mpl import draw

    return draw(picture(subject, kind), ax, dark=dark)
