"""Subjects drawn with matplotlib, which is loaded only when something is drawn; whoever draws one registers it here."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from shardviz.errors import ShardvizError


@singledispatch
def plot(subject: Any, ax: Any = None, *, dark: bool = False) -> Any:
    """A subject drawn with matplotlib.

    Args:
        subject: what to draw.
        ax: where; the Axes of a new figure if None.
        dark: colours for a dark page.

    Returns:
        The Axes.

    Raises:
        ShardvizError: for an object that nobody draws.
    """
    raise ShardvizError(f"nothing here draws a {type(subject).__name__}")
