"""What `show` gives back: objects that show themselves, as a picture in a notebook, as text in a terminal.

>>> from shardviz.layouts import layout
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
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from shardviz.layouts import Layout, Leaf, ProcessLayout, add_up
from shardviz.layouts.moves import moves_between
from shardviz.paint.columns import pad, text_width, wrap
from shardviz.records.amounts import format_bytes
from shardviz.render.change import moves_html, moves_text
from shardviz.render.chips import SANS
from shardviz.render.contents import contents_text
from shardviz.render.hover import MOST
from shardviz.render.processes import processes_html, processes_text
from shardviz.render.remarks import uneven_words
from shardviz.render.shardmap_html import shard_map_html
from shardviz.render.shardmap_text import shard_map_text
from shardviz.render.tree import leaves_html, leaves_text
from shardviz.render.unknown import ShownUnknown
from shardviz.visible import Visible


class Shown(Visible):
    """A shard map that shows itself: as a picture in a notebook, as text in a terminal.

    Attributes:
        layout: where every slice lies.
        title: the array's name; may be empty.
        dtype: the element type, or None where it is not known.
        values: the array's elements, or None where they are many or not within reach.
        hosts: what each process holds; None where there is one, or nothing says which devices belong together.
    """

    def __init__(
        self,
        layout: Layout,
        title: str = "",
        dtype: str | None = None,
        values: np.ndarray | None = None,
        hosts: ProcessLayout | None = None,
    ):
        self.layout = layout
        self.title = title
        self.dtype = dtype
        self.values = values
        self.hosts = hosts

    def text(self, width: int = 80) -> str:
        """The shard map in plain text, at most `width` columns wide."""
        parts = [
            shard_map_text(self.layout, width, self.hosts),
            "\n".join(wrap(uneven_words(self.layout, self.dtype), width)),
            contents_text(self.layout, self.values, width) if self.values is not None else "",
            processes_text(self.hosts, width) if self.hosts is not None else "",
        ]
        return "\n".join([*wrap(self.named, width), "\n\n".join(filter(None, parts))])

    def html(self, hover: int = MOST) -> str:
        """The shard map in HTML that survives JupyterLab's sanitizer; `hover` as in `shard_map_html`."""
        drawn = shard_map_html(self.layout, self.named, self.values, self.hosts, hover)
        remark = escape(uneven_words(self.layout, self.dtype))
        if remark:
            drawn += f'<div style="{SANS};padding:2px 0"><b>Uneven</b>: {remark}</div>'
        if self.hosts is not None:
            drawn += f'<div style="{SANS};overflow-x:auto">{processes_html(self.hosts)}</div>'
        return drawn

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """The shard map as a matplotlib figure: draws on `ax`, or on a new figure's, and returns the Axes."""
        from shardviz.render.matplotlib import shard_map_axes  # only here is matplotlib needed

        return shard_map_axes(
            self.layout, ax, dark=dark, title=self.named, values=self.values, hosts=self.hosts, dtype=self.dtype
        )

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
        chosen: the one whose shard map is drawn; the heaviest if None is given.
        left_out: names of leaves that are no arrays with a known sharding.
        bytes: what the arrays come to on each device.
    """

    def __init__(
        self,
        leaves: Sequence[Shown],
        chosen: Shown | ShownUnknown | None = None,
        left_out: Sequence[str] = (),
    ):
        self.leaves = tuple(leaves)
        self.left_out = tuple(left_out)
        self.bytes = add_up(Leaf.of(shown.title, shown.layout, shown.dtype) for shown in leaves)
        if chosen is None:
            weights = [leaf.per_device for leaf in self.bytes.leaves]
            chosen = self.leaves[weights.index(max(weights))]
        self.chosen = chosen

    @property
    def bytes_per_device(self) -> dict[int, float]:
        """Device id → bytes of all arrays on it."""
        return dict(zip(self.bytes.device_ids.tolist(), self.bytes.per_device.tolist(), strict=True))

    def text(self, width: int = 80) -> str:
        """The table and the chosen array's shard map in plain text, at most `width` columns wide."""
        return f"{leaves_text(self.bytes, self.left_out, width)}\n\n{self.chosen.text(width)}"

    def html(self) -> str:
        """The table and the chosen array's shard map in HTML that survives JupyterLab's sanitizer."""
        table = leaves_html(self.bytes, self.left_out)
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
        """Both maps, side by side where they fit, and what moves, at most `width` columns wide."""
        half = (width - len(_BETWEEN)) // 2
        both = self.before, self.after
        maps = [shard_map_text(shown.layout, width, shown.hosts).splitlines() for shown in both]
        narrow = [shard_map_text(shown.layout, half, shown.hosts).splitlines() for shown in both]
        if half >= 30 and all(_is_grid(a) == _is_grid(b) for a, b in zip(maps, narrow, strict=True)):
            left, right = [["before", *lines] for lines in narrow]
            right[0] = "after"
            wide = max(map(text_width, left))
            pairs = itertools.zip_longest(left, right, fillvalue="")
            lines = [f"{pad(a, wide)}{_BETWEEN}{b}".rstrip() for a, b in pairs]
        else:
            lines = ["before", *maps[0], "", "after", *maps[1]]
        lines += ["", moves_text(self.moves, self.before.dtype, width)]
        for word, shown in zip(("before", "after"), both, strict=True):
            remark = uneven_words(shown.layout, self.before.dtype)
            lines += ["", *wrap(f"{word}: {remark}", width)] if remark else []
            lines += ["", f"{word}: {processes_text(shown.hosts, width)}"] if shown.hosts is not None else []
        return "\n".join([*wrap(self.before.named, width), *lines])

    def html(self) -> str:
        """Both maps and what moves in HTML that survives JupyterLab's sanitizer."""
        side = "padding:0 32px 0 0;border:0;text-align:left;vertical-align:top"
        maps = "".join(
            f'<td style="{side}"><div style="font-weight:600">{word}</div>{shown.html(MOST // 3)}</td>'
            for word, shown in (("before", self.before), ("after", self.after))
        )
        maps = (
            f'<table style="border-collapse:collapse;border:0;margin:0 0 8px 0;{SANS}"><tbody>'
            f'<tr style="background-color:transparent">{maps}</tr></tbody></table>'
        )
        return f'<div style="{SANS};overflow-x:auto">{maps}{moves_html(self.moves, self.before.dtype)}</div>'

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """Both shard maps and what moves as a matplotlib figure: draws on `ax`, or on a new figure's.

        Returns:
            The Axes that it was given, or that both maps stand in.
        """
        from shardviz.render.matplotlib import change_axes  # only here is matplotlib needed

        return change_axes(self.moves, self.before.dtype, ax, dark=dark, title=self.before.title)


_BETWEEN = "    "


def _is_grid(lines: list[str]) -> bool:
    return any("┌" in line for line in lines)
