"""What `show` gives back: objects that show themselves, as a picture in a notebook, as text in a terminal.

>>> from shardviz.layout import layout
>>> shown = Shown(layout((4,), ("x",), {"x": 2}), "w", "int8")
>>> print(shown)
w  int8, 2 B per device
[4]  P('x')  mesh x=2, 2 devices  shard [2]
columns  dimension 0: 4 by x=2, 2 each
<BLANKLINE>
  0:2   2:4
┌─────┬─────┐
│  0  │  1  │
└─────┴─────┘
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from shardviz.layout import Layout
from shardviz.layout.moves import moves_between
from shardviz.render.change import moves_html, moves_text
from shardviz.render.chips import SANS
from shardviz.render.contents import contents_text
from shardviz.render.format import format_bytes
from shardviz.render.mime import bundle
from shardviz.render.remarks import uneven_words
from shardviz.render.shardmap_html import shard_map_html
from shardviz.render.shardmap_text import shard_map_text
from shardviz.render.tree import heaviest, leaves_html, leaves_text, per_device


class Visible:
    """Anything with `text(width)` and `html()`, as notebooks and terminals want it."""

    def text(self, width: int = 80) -> str:
        """It in plain text, at most `width` characters wide."""
        raise NotImplementedError

    def html(self) -> str:
        """It in HTML that survives JupyterLab's sanitizer."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        return bundle({"text/plain": self.text, "text/html": self.html}, include, exclude)


class Shown(Visible):
    """A shard map that shows itself: as a picture in a notebook, as text in a terminal.

    Attributes:
        layout: where every slice lies.
        title: the array's name; may be empty.
        dtype: the element type, or None where it is not known.
        values: the array's elements, or None where they are many or not within reach.
    """

    def __init__(self, layout: Layout, title: str = "", dtype: str | None = None, values: np.ndarray | None = None):
        self.layout = layout
        self.title = title
        self.dtype = dtype
        self.values = values

    def text(self, width: int = 80) -> str:
        """The shard map in plain text, at most `width` characters wide."""
        named = f"{self.named}\n" if self.named else ""
        inside = contents_text(self.layout, self.values, width) if self.values is not None else ""
        remark = "\n".join(textwrap.wrap(uneven_words(self.layout, self.dtype), width))
        return named + "\n\n".join(filter(None, (shard_map_text(self.layout, width), remark, inside)))

    def html(self) -> str:
        """The shard map in HTML that survives JupyterLab's sanitizer."""
        drawn = shard_map_html(self.layout, self.named, self.values)
        remark = escape(uneven_words(self.layout, self.dtype))
        return f'{drawn}<div style="{SANS};padding:2px 0"><b>Uneven</b>: {remark}</div>' if remark else drawn

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """The shard map as a matplotlib figure: draws on `ax`, or on a new figure's, and returns the Axes."""
        from shardviz.render.matplotlib import shard_map_axes  # only here is matplotlib needed

        return shard_map_axes(self.layout, ax, dark=dark, title=self.named)

    @property
    def named(self) -> str:
        """The name, the element type and the bytes on a device, as far as they are known."""
        size = (
            ""
            if self.dtype is None
            else f"{self.dtype}, {format_bytes(self.layout.bytes_per_device(self.dtype))} per device"
        )
        return "  ".join(filter(None, (self.title, size)))


class ShownTree(Visible):
    """A tree of arrays that shows itself: a table of them, and the shard map of one.

    Attributes:
        leaves: the arrays, each as `Shown`, in tree order.
        chosen: the one whose shard map is drawn.
        left_out: names of leaves that are no arrays with a sharding.
    """

    def __init__(self, leaves: Sequence[Shown], chosen: Shown | None = None, left_out: Sequence[str] = ()):
        self.leaves = tuple(leaves)
        self.chosen = heaviest(leaves) if chosen is None else chosen
        self.left_out = tuple(left_out)

    @property
    def bytes_per_device(self) -> dict[int, float]:
        """Device id → bytes of all arrays on it."""
        return per_device(self.leaves)

    def text(self, width: int = 80) -> str:
        """The table and the chosen array's shard map in plain text, at most `width` characters wide."""
        *table, _, total = leaves_text(self.leaves, self.left_out, width).splitlines()
        return "\n".join([*table, "", *textwrap.wrap(total, width), "", self.chosen.text(width)])

    def html(self) -> str:
        """The table and the chosen array's shard map in HTML that survives JupyterLab's sanitizer."""
        table = leaves_html(self.leaves, self.left_out)
        return f'<div style="{SANS};overflow-x:auto">{table}{self.chosen.html()}</div>'

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """The chosen array's shard map as a matplotlib figure; see `Shown.plot`."""
        return self.chosen.plot(ax, dark=dark)


class ShownChange(Visible):
    """An array before and after a change of its sharding, side by side, with what moves.

    Attributes:
        before, after: the two shard maps.
        moves: what each device keeps, receives and drops, and the collectives that do it.
    """

    def __init__(self, before: Shown, after: Shown):
        self.before = before
        self.after = after
        self.moves = moves_between(before.layout, after.layout)

    def text(self, width: int = 80) -> str:
        """Both maps, side by side where they fit, and what moves, at most `width` characters wide."""
        half = (width - len(_BETWEEN)) // 2
        maps = [shard_map_text(shown.layout, width).splitlines() for shown in (self.before, self.after)]
        narrow = [shard_map_text(shown.layout, half).splitlines() for shown in (self.before, self.after)]
        if half >= 30 and all(_is_grid(a) == _is_grid(b) for a, b in zip(maps, narrow, strict=True)):
            left, right = [["before", *lines] for lines in narrow]
            wide = max(map(len, left))
            pairs = itertools.zip_longest(left, right, fillvalue="")
            lines = [f"{a:<{wide}}{_BETWEEN}{b}".rstrip() for a, b in pairs]
            lines[0] = f"{'before':<{wide}}{_BETWEEN}after"
        else:
            lines = ["before", *maps[0], "", "after", *maps[1]]
        named = [self.before.named] if self.before.named else []
        return "\n".join([*named, *lines, "", moves_text(self.moves, self.before.dtype, width)])

    def html(self) -> str:
        """Both maps and what moves in HTML that survives JupyterLab's sanitizer."""
        side = "padding:0 32px 0 0;border:0;text-align:left;vertical-align:top"
        maps = "".join(
            f'<td style="{side}"><div style="font-weight:600">{word}</div>{shown.html()}</td>'
            for word, shown in (("before", self.before), ("after", self.after))
        )
        maps = (
            f'<table style="border-collapse:collapse;border:0;margin:0 0 8px 0;{SANS}"><tbody>'
            f'<tr style="background-color:transparent">{maps}</tr></tbody></table>'
        )
        return f'<div style="{SANS};overflow-x:auto">{maps}{moves_html(self.moves, self.before.dtype)}</div>'

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """The shard map after the change as a matplotlib figure; see `Shown.plot`."""
        return self.after.plot(ax, dark=dark)


_BETWEEN = "    "


def _is_grid(lines: list[str]) -> bool:
    return any("┌" in line for line in lines)
