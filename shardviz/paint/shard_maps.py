"""Shard maps in every medium: what `show` gives, as a document's figure and as a matplotlib figure."""

from __future__ import annotations

import base64
import itertools
from html import escape
from typing import Any

import numpy as np

from shardviz.paint.columns import pad, text_width, wrap
from shardviz.paint.html import SANS, figure_html
from shardviz.paint.json import Json, figure_json
from shardviz.paint.plot import plot
from shardviz.paint.shard_map_html import MOST, shard_map_html
from shardviz.paint.shard_map_png import encode_png
from shardviz.paint.shard_map_text import shard_map_text
from shardviz.paint.text import figure_lines, text_of
from shardviz.view.contents import contents_text
from shardviz.view.document import Document
from shardviz.view.layouts import move_blocks
from shardviz.view.scene import build_scene, describe
from shardviz.view.shard_map_picture import change_picture, shard_map_picture
from shardviz.view.shown import Shown, ShownChange, ShownTree, ShownUnknown

_WIDTH = 80  # columns where no width is asked for
_BETWEEN = "    "
_LEAST = 30  # columns that are worth having a map beside another


@figure_lines.register
def _(of: Shown, width: int | None) -> str:
    width = width or _WIDTH
    parts = [shard_map_text(of.layout, width, of.hosts)]
    parts += [contents_text(of.layout, of.values, width)] if of.values is not None else []
    return "\n".join([*wrap(of.named, width), "\n\n".join(filter(None, parts))])


@figure_lines.register
def _(of: ShownChange, width: int | None) -> str:
    """Both maps, side by side where they fit."""
    width = width or _WIDTH
    half = (width - len(_BETWEEN)) // 2
    both = of.before, of.after
    maps = [shard_map_text(shown.layout, width, shown.hosts).splitlines() for shown in both]
    narrow = [shard_map_text(shown.layout, half, shown.hosts).splitlines() for shown in both]
    if half >= _LEAST and all(_is_grid(a) == _is_grid(b) for a, b in zip(maps, narrow, strict=True)):
        left, right = ["before", *narrow[0]], ["after", *narrow[1]]
        wide = max(map(text_width, left))
        pairs = itertools.zip_longest(left, right, fillvalue="")
        lines = [f"{pad(a, wide)}{_BETWEEN}{b}".rstrip() for a, b in pairs]
    else:
        lines = ["before", *maps[0], "", "after", *maps[1]]
    return "\n".join([*wrap(of.before.named, width), *lines])


def _is_grid(lines: list[str]) -> bool:
    return any("┌" in line for line in lines)


@figure_lines.register
def _(of: ShownUnknown, width: int | None) -> str:
    return "┌─────────────┐\n│ ╱╱╱╱ ? ╱╱╱╱ │\n└─────────────┘"


@figure_html.register
def _(of: Shown) -> str:
    return shard_map_html(of.layout, of.named, of.values, of.hosts)


@figure_html.register
def _(of: ShownChange) -> str:
    side = "padding:0 32px 0 0;border:0;text-align:left;vertical-align:top"
    maps = "".join(
        f'<td style="{side}"><div style="font-weight:600">{word}</div>'
        f"{shard_map_html(shown.layout, shown.named, None, shown.hosts, MOST // 3)}</td>"
        for word, shown in (("before", of.before), ("after", of.after))
    )
    return (
        f'<table style="border-collapse:collapse;border:0;margin:0 0 8px 0;{SANS}"><tbody>'
        f'<tr style="background-color:transparent">{maps}</tr></tbody></table>'
    )


@figure_html.register
def _(of: ShownUnknown) -> str:
    """A dashed frame with hatching in it, which reads on light and dark pages."""
    y, x = np.indices((44, 150))
    image = ((x + y) % 9 == 0).astype(np.uint8)
    frame = (x == 0) | (y == 0) | (x == 149) | (y == 43)
    image[frame] = ((x + y) % 8 < 5)[frame]
    data = base64.b64encode(encode_png(image, ["#000000", "#8C8C8C"])).decode()
    return (
        f'<img src="data:image/png;base64,{data}" width="150" height="44" alt="{escape(of.alt)}" '
        f'style="max-width:none;margin:4px 0">'
    )


@figure_json.register
def _(of: Shown) -> Json:
    return {"alt": _described(of), "name": of.named}


@figure_json.register
def _(of: ShownChange) -> Json:
    return {"alt": f"Before: {_described(of.before)} After: {_described(of.after)}", "name": of.before.named}


def _described(of: Shown) -> str:
    return describe(build_scene(of.layout))


@plot.register
def _(of: Shown, ax: Any = None, *, dark: bool = False) -> Any:
    from shardviz.paint.mpl import PIXELS, draw, room_of

    room = None if ax is None else room_of(ax)
    return draw(shard_map_picture(of, room and (room[0] * PIXELS, room[1] * PIXELS)), ax, dark=dark)


@plot.register
def _(of: ShownTree, ax: Any = None, *, dark: bool = False) -> Any:
    return plot(of.chosen, ax, dark=dark)


@plot.register
def _(of: ShownChange, ax: Any = None, *, dark: bool = False) -> Any:
    from shardviz.paint.mpl import PIXELS, draw, room_of

    room = None if ax is None else room_of(ax)
    lines = text_of(Document(blocks=move_blocks(of.moves, of.before.dtype)), 96).splitlines()
    return draw(change_picture(of, room and (room[0] * PIXELS, room[1] * PIXELS), tuple(lines)), ax, dark=dark)
