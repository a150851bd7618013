"""Any Picture as a PNG or PDF file, by way of matplotlib.

>>> from shardviz.view.picture import Picture, Rects
>>> bar = Rects(x=(0,), y=(0,), wide=40, high=10, fill=0)
>>> png_of(Picture(width=40, height=10, shapes=(bar,), axes=("data",)))[1:4]
b'PNG'
>>> pdf_of(Picture(width=40, height=10, shapes=(bar,), axes=("data",)))[:4]
b'%PDF'
"""

from __future__ import annotations

import io
from typing import Any

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
    return _file(picture, dark, format="png", dpi=PIXELS * scale)


def pdf_of(picture: Picture, *, dark: bool = False) -> bytes:
    """A Picture with its title, legend and notes, as one page of its size. The same picture gives the same bytes.

    Args:
        picture: what to draw.
        dark: colours for a dark page.

    Returns:
        The bytes of the file.
    """
    return _file(picture, dark, format="pdf", metadata={"CreationDate": None})


def _file(picture: Picture, dark: bool, **options: Any) -> bytes:
    figure = draw(picture, dark=dark).get_figure(root=True)
    assert isinstance(figure, Figure)
    FigureCanvasAgg(figure)
    file = io.BytesIO()
    figure.savefig(file, **options)
    return file.getvalue()
