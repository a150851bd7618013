"""Many arrays at once: a table of their specs, shards and bytes, and what they come to on each device.

>>> from shardviz.layout import layout
>>> from shardviz.render.shown import Shown
>>> mesh = {"data": 2, "model": 2}
>>> w = Shown(layout((8, 4), ("data", "model"), mesh), "w", "float32")
>>> b = Shown(layout((4,), (), mesh), "b", "int8")
>>> print(leaves_text([w, b]))
name  per device  ways  type and shape  spec                shard
w           32 B     4  float32[8, 4]   P('data', 'model')  [4, 2]
b            4 B     1  int8[4]         P(None)             [4]
<BLANKLINE>
2 arrays, 132 B in all; 36 B on each of 4 devices (1.09 copies of each byte on average)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from shardviz.layout import itemsize
from shardviz.render.chips import QUIET, cell, spec_html, table
from shardviz.render.format import clip, format_bytes, format_shape, plural
from shardviz.render.values import MAX_NAME, columns
from shardviz.render.wording import spec_words

if TYPE_CHECKING:
    from shardviz.render.shown import Shown

MOST_LEAVES = 60
"""Rows; of more arrays the heaviest are shown."""


def bytes_of(leaf: Shown) -> float:
    """Bytes of an array's shard on a device that holds one; 0 where its element type is not known."""
    return leaf.layout.bytes_per_device(leaf.dtype) if leaf.dtype is not None else 0.0


def per_device(leaves: Iterable[Shown]) -> dict[int, float]:
    """Device id → bytes of all arrays on it."""
    total: dict[int, float] = {}
    for leaf in leaves:
        nbytes = bytes_of(leaf)
        for device in leaf.layout.device_ids[leaf.layout.holds].tolist():
            total[device] = total.get(device, 0.0) + nbytes
        for device in leaf.layout.device_ids.tolist():
            total.setdefault(device, 0.0)
    return total


def total_words(leaves: Sequence[Shown], left_out: Sequence[str] = ()) -> str:
    """`2 arrays, 132 B in all; 36 B on each of 4 devices`, with what differs and what was left out said.

    Args:
        leaves: the arrays.
        left_out: names of leaves that are no arrays with a sharding.
    """
    once = sum(math.prod(leaf.layout.shape) * itemsize(leaf.dtype) for leaf in leaves if leaf.dtype is not None)
    total = np.asarray(list(per_device(leaves).values()))
    text = f"{plural(len(leaves), 'array')}, {format_bytes(once)} in all; "
    if total.min() == total.max():
        text += f"{format_bytes(total.max())} on {'each of ' if len(total) > 1 else ''}{plural(len(total), 'device')}"
    else:
        text += f"{format_bytes(total.min())} to {format_bytes(total.max())} on {plural(len(total), 'device')}"
    if once:
        text += f" ({total.sum() / once:.3g} copies of each byte on average)"
    if any(leaf.dtype is None for leaf in leaves):
        text += "; arrays whose type is not known are not counted"
    if left_out:
        text += f"; left out, having no sharding: {', '.join(left_out[:3])}"
        text += f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return text


def heaviest(leaves: Sequence[Shown]) -> Shown:
    """The array with the most bytes on a device, the first of them."""
    return max(leaves, key=bytes_of)


def _drawn(leaves: Sequence[Shown]) -> list[Shown]:
    if len(leaves) <= MOST_LEAVES:
        return list(leaves)
    order = sorted(range(len(leaves)), key=lambda i: (-bytes_of(leaves[i]), i))[:MOST_LEAVES]
    return [leaves[i] for i in sorted(order)]


def _more(leaves: Sequence[Shown]) -> str:
    count = len(leaves) - MOST_LEAVES
    return f"the {MOST_LEAVES} heaviest are listed, {count:,} more are not" if count > 0 else ""


def leaves_text(leaves: Sequence[Shown], left_out: Sequence[str] = (), width: int | None = None) -> str:
    """The arrays as aligned lines of plain text, then their total.

    Args:
        leaves: the arrays, in tree order.
        left_out: names of leaves that are no arrays with a sharding.
        width: the most characters in a line of the table; longer ones end in `…`. None for no limit.
    """
    rows = [("name", "per device", "ways", "type and shape", "spec", "shard")]
    for leaf in _drawn(leaves):
        cut = leaf.layout
        typed = f"{leaf.dtype or ''}{format_shape(cut.shape)}"
        size = format_bytes(bytes_of(leaf) if leaf.dtype is not None else None)
        ways = str(math.prod(cut.ways))
        rows.append((clip(leaf.title, MAX_NAME), size, ways, typed, spec_words(cut), format_shape(cut.shard_shape)))
    lines = columns(rows, right=(1, 2))
    if width is not None:
        lines = [line if len(line) <= width else line[: width - 1] + "…" for line in lines]
    more = _more(leaves)
    return "\n".join([*lines, *([more] if more else []), "", total_words(leaves, left_out)])


def leaves_html(leaves: Sequence[Shown], left_out: Sequence[str] = ()) -> str:
    """The arrays as an HTML table with specs as chips, then their total; every text from outside is escaped.

    Args:
        leaves: the arrays, in tree order.
        left_out: names of leaves that are no arrays with a sharding.
    """
    rows = []
    for leaf in _drawn(leaves):
        cut = leaf.layout
        spec = escape(spec_words(cut)) if cut.spec is None else spec_html(cut.spec, cut.mesh)
        rows.append(
            (
                cell(f"<b>{escape(leaf.title)}</b>"),
                cell(format_shape(cut.shape)),
                cell(escape(leaf.dtype or ""), quiet=True),
                cell(spec, title=cut.why or str(cut.spec or "")),
                cell(format_shape(cut.shard_shape)),
                cell(format_bytes(bytes_of(leaf) if leaf.dtype is not None else None), right=True),
                cell(str(math.prod(cut.ways)), right=True),
            )
        )
    heads = ("name", "shape", "type", "spec", "shard", ">bytes per device", ">ways")
    notes = "".join(f"<div>{escape(t)}</div>" for t in (_more(leaves), total_words(leaves, left_out)) if t)
    return f'{table(heads, rows)}<div style="{QUIET};padding:0 0 8px 0">{notes}</div>'
