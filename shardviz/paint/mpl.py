"""Any Picture as a matplotlib figure, a PNG file or a PDF file; imported only to draw one.

>>> from shardviz.view.picture import Picture, Rects
>>> bar = Rects(x=(0,), y=(0,), wide=40, high=10, fill=0)
>>> ax = draw(Picture(width=40, height=10, shapes=(bar,), title="a bar", alt="one bar", axes=("data",)))
>>> ax.get_title(loc="left"), ax.get_label()
('a bar', 'one bar')
>>> png_of(Picture(width=40, height=10, shapes=(bar,), axes=("data",)))[1:4]
b'PNG'
>>> pdf_of(Picture(width=40, height=10, shapes=(bar,), axes=("data",)))[:4]
b'%PDF'
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from shardviz.paint.legend import HEAD, PAD, with_words
from shardviz.paint.theme import HATCH_INK, axis_colour, ink_on, paint_of
from shardviz.view.picture import DASHES, SIZES, SMALLEST, Drawn, Labels, Lines, Picture, Point, Rects, Role, pixels

PIXELS = 96.0
"""Pixels of a Picture per inch of a new figure."""


def draw(picture: Picture, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """Draw a Picture within these Axes, scaled to fit, or within the Axes of a new figure that pyplot does not manage.
    Return the Axes; their label is the Picture's description."""
    room = None if ax is None else [PIXELS * inches for inches in size_of(ax)]
    if room is not None:

        def reads(drawn: Picture) -> bool:
            """Return whether the letters in its cells are large enough to read, with the legend below."""
            _, (wide, high) = with_words(drawn)
            return all(grid.size * min(room[0] / wide, room[1] / high) >= SMALLEST for grid in drawn.grids)

        picture = picture.fitted(reads)
    shapes, (wide, high) = with_words(picture)
    if ax is None or room is None:
        across, down = wide + 2 * PAD, high + 2 * PAD + HEAD
        figure = Figure(figsize=(across / PIXELS, down / PIXELS), facecolor=paint_of("ground", dark))
        ax = figure.add_axes((PAD / across, PAD / down, wide / across, high / down))
        scale = 72 / PIXELS
    else:
        scale = 72 / PIXELS * min(room[0] / wide, room[1] / high)
    ax.set_xlim(0, wide)
    ax.set_ylim(high, 0)
    ax.set_aspect("equal", anchor="NW")
    ax.set_axis_off()
    painter = _Painter(ax, scale, dark)
    for shape in shapes:
        painter.shape(shape)
    title = {"color": paint_of("ink", dark), "fontsize": SIZES["head"] * scale, "parse_math": False}
    ax.set_title(picture.title, loc="left", pad=10 * scale, **title)
    ax.set_label(picture.alt)
    return ax


def png_of(picture: Picture, *, dark: bool = False) -> bytes:
    """Return a PNG file of a Picture with its title, legend and notes, at two dots per pixel."""
    return _file(picture, dark, format="png", dpi=PIXELS * 2)


def pdf_of(picture: Picture, *, dark: bool = False) -> bytes:
    """Return a PDF file of a Picture, on a page of its size. Equal pictures give equal bytes."""
    return _file(picture, dark, format="pdf", metadata={"CreationDate": None})


def _file(picture: Picture, dark: bool, **options: Any) -> bytes:
    figure = draw(picture, dark=dark).get_figure(root=True)
    assert isinstance(figure, Figure)
    FigureCanvasAgg(figure)
    file = io.BytesIO()
    figure.savefig(file, **options)
    return file.getvalue()


def size_of(ax: Axes) -> tuple[float, float]:
    """Return the width and height of Axes in inches."""
    figure, box = ax.get_figure(root=True), ax.get_window_extent()
    return (box.width / figure.dpi, box.height / figure.dpi) if figure is not None else (4.0, 4.0)


class _Painter:
    """A painter of shapes on Axes whose unit is a pixel; `scale` is points per pixel."""

    def __init__(self, ax: Axes, scale: float, dark: bool):
        self.ax, self.scale, self.dark = ax, scale, dark

    def shape(self, shape: Drawn) -> None:
        if isinstance(shape, Rects):
            self.rects(shape)
        elif isinstance(shape, Lines):
            self.lines(shape)
        else:
            self.labels(shape)

    def colour(self, role: Any, strength: float = 1.0) -> Any:
        return "none" if role is None else to_rgba(paint_of(role, self.dark), strength)

    def dash(self, number: int | None, width: float) -> Any:
        # matplotlib counts dashes in widths of the line
        return (0, tuple(n / max(width, 1.0) for n in DASHES[number])) if number and DASHES[number] else "solid"

    def rects(self, shape: Rects) -> None:
        boxes = list(shape.boxes)
        corners = [np.array([(x, y), (x + w, y), (x + w, y + h), (x, y + h)]) for x, y, w, h in boxes]
        if not corners:
            return
        look = {"zorder": 2 + shape.layer, "linewidths": 0.8 * self.scale}
        edge = self.colour(shape.stroke)
        face = self.colour(shape.fill, shape.strength)
        dash = self.dash(shape.dash, 0.8)
        self.ax.add_collection(
            PolyCollection(corners, facecolors=face, edgecolors=edge, linestyles=[dash], **look), autolim=False
        )
        if shape.hatch is not None:  # a second collection without fill
            ink = self.colour("quiet") if shape.fill is None else HATCH_INK[self.dark]
            over = {"facecolors": "none", "edgecolors": [ink], "linewidths": 0}
            lines = PolyCollection(corners, hatch=axis_colour(shape.hatch).hatch, zorder=2 + shape.layer, **over)
            self.ax.add_collection(lines, autolim=False)
        ink = ink_on(shape.fill, self.dark)
        halo = shape.fill if shape.hatch is not None else None
        for (x, y, wide, high), text in zip(boxes, shape.labels, strict=False):
            if text:
                size = min(SIZES["small"], 1.5 * wide / len(text), high)
                self.text((x + wide / 2, y + high / 2), text, size, ink, layer=shape.layer, halo=halo)

    def lines(self, shape: Lines) -> None:
        stroke, width = self.colour(shape.stroke, shape.strength), shape.width * self.scale
        look = {"linewidths": width, "linestyles": [self.dash(shape.dash, shape.width)], "zorder": 2 + shape.layer}
        if shape.closed:
            face = self.colour(shape.fill, shape.strength)
            collection: Any = PolyCollection(
                [np.array(line) for line in shape.lines], facecolors=face, edgecolors=stroke, **look
            )
        else:
            collection = LineCollection(list(shape.lines), colors=[stroke], **look)
        self.ax.add_collection(collection, autolim=False)

    def labels(self, shape: Labels) -> None:
        for at, text in zip(shape.at, shape.texts, strict=True):
            self.text(
                at,
                text,
                pixels(shape.size),
                paint_of(shape.ink, self.dark),
                align={"start": "left", "middle": "center", "end": "right"}[shape.align],
                weight="bold" if shape.bold else "normal",
                family="monospace" if shape.mono else "sans-serif",
                halo="ground" if shape.halo else None,
                turned=shape.turned,
                layer=shape.layer,
            )

    def text(
        self,
        at: Point,
        text: str,
        size: float,
        ink: str,
        *,
        align: str = "center",
        weight: str = "normal",
        family: str = "sans-serif",
        halo: Role | None = None,
        turned: bool = False,
        layer: int = 0,
    ) -> None:
        look: dict[str, Any] = {"color": ink, "fontsize": size * self.scale, "fontweight": weight, "family": family}
        if halo is not None:
            look["path_effects"] = [withStroke(linewidth=3 * self.scale, foreground=paint_of(halo, self.dark))]
        self.ax.text(
            *at,
            text,
            ha=align,
            va="center" if turned else "center_baseline",
            rotation=90 * turned,
            zorder=2.5 + layer,
            parse_math=False,
            **look,
        )
