"""Any Picture as a PNG file, by way of matplotlib.

>>> from shardviz.view.picture import Picture, Rects
>>> bar = Rects(x=(0,), y=(0,), wide=40, high=10, fill=0)
>>> png_of(Picture(width=40, height=10, shapes=(bar,), axes=("data",)))[1:4]
b'PNG'
"""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from shardviz.paint.mpl import PIXELS, draw
from shardviz.view.picture import Picture


def png_of(picture: Picture, *, dark: bool = False, scale: float = 2.0) -> bytes:
    """A Picture with its title, legend and notes.

    Args:
        picture: what to draw.
        dark: colours for a dark page.
        scale: dots for a pixel of the picture.

    Returns:
        The bytes of the file.
    """
    figure = draw(picture, dark=dark).get_figure(root=True)
    assert isinstance(figure, Figure)
    FigureCanvasAgg(figure)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=PIXELS * scale)
    return file.getvalue()
