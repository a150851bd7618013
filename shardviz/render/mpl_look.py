"""What all matplotlib figures here share: inks and fills, light or dark, and figures that pyplot knows nothing of."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shardviz.paint.theme import AxisColour

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
