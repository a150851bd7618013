"""Many arrays at once: a table of them, what they come to on each device, and those that could be cut further.

>>> from shardviz.layouts import Leaf, add_up, layout
>>> mesh = {"data": 2, "model": 2}
>>> w, b = layout((8, 4), ("data", "model"), mesh), layout((4,), (), mesh)
>>> print(leaves_text(add_up([Leaf.of("w", w, "float32"), Leaf.of("b", b, "int8")])))
name  per device  ways  type and shape  spec                shard
w           32 B     4  float32[8, 4]   P('data', 'model')  [4, 2]
b            4 B     1  int8[4]         P(None)             [4]
<BLANKLINE>
2 arrays, 132 B in all; 36 B on each of 4 devices (1.09 copies of each byte on average)
heaviest: w 32 B per device (89 %), b 4 B (11 %)
<BLANKLINE>
1 array could be cut further: 3 B less on each device
name  per device  could be  unused axis → dimension  spec then
b            4 B       1 B  data → 0, model → 0      P(('data', 'model'))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from shardviz.layouts import Layout, Leaf, LessSharded, TreeBytes
from shardviz.paint.columns import clip, columns, text_width, wrap
from shardviz.paint.theme import axis_colours
from shardviz.records.amounts import format_bytes, format_shape, plural
from shardviz.render.chips import QUIET, cell, chip, mono, spec_html, table
from shardviz.render.values import MAX_NAME
from shardviz.render.wording import spec_words
from shardviz.view.ranges import device_ranges

MOST_LEAVES = 60
"""Rows; of more arrays the heaviest are shown."""

MOST_BETTER, MOST_HEAVY, MOST_GROUPS = 10, 3, 4


def total_words(tree: TreeBytes, left_out: Sequence[str] = ()) -> str:
    """`2 arrays, 132 B in all; 36 B on each of 4 devices`, with what differs and what was left out said.

    Args:
        tree: the arrays.
        left_out: names of leaves that are no arrays with a known sharding.
    """
    text = f"{plural(len(tree.leaves), 'array')}, {format_bytes(tree.array)} in all; {_per_device(tree)}"
    if tree.array:
        text += f" ({tree.total / tree.array:.3g} copies of each byte on average)"
    if any(leaf.bytes is None for leaf in tree.leaves):
        text += "; arrays whose type is not known are not counted"
    if left_out:
        text += f"; left out, having no sharding: {', '.join(left_out[:3])}"
        text += f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return text


def _per_device(tree: TreeBytes) -> str:
    """What is on each device; devices with the same amount are said together, where these are few groups."""
    amounts, group = np.unique(tree.per_device, return_inverse=True)
    count = len(tree.per_device)
    if len(amounts) == 1:
        return f"{format_bytes(amounts[0])} on {'each of ' if count > 1 else ''}{plural(count, 'device')}"
    if len(amounts) > MOST_GROUPS:
        return f"{format_bytes(amounts[0])} to {format_bytes(amounts[-1])} on {plural(count, 'device')}"
    parts = []
    for place in reversed(range(len(amounts))):
        ids = tree.device_ids[group.reshape(-1) == place].tolist()
        noun = "device" if len(ids) == 1 else "each of the devices"
        parts.append(f"{format_bytes(amounts[place])} on {noun} {clip(device_ranges(ids), 40)}")
    return ", ".join(parts)


def heaviest_words(tree: TreeBytes) -> str:
    """`heaviest: w 32 B per device (89 %), b 4 B (11 %)`; empty where there is one array, or nothing weighs."""
    most = float(tree.per_device.max(initial=0))
    if len(tree.leaves) < 2 or not most:
        return ""
    parts = []
    for place, leaf in enumerate(tree.heaviest(MOST_HEAVY)):
        unit = "" if place else " per device"
        share = f"{100 * leaf.per_device / most:.0f} %"
        parts.append(f"{clip(leaf.name, MAX_NAME)} {format_bytes(leaf.per_device)}{unit} ({share})")
    return f"heaviest: {', '.join(parts)}"


def better_words(better: Sequence[LessSharded]) -> str:
    """`1 array could be cut further: 3 B less on each device`."""
    saved = sum(it.saved_bytes_per_device for it in better)
    return f"{plural(len(better), 'array')} could be cut further: {format_bytes(saved)} less on each device"


def _drawn(tree: TreeBytes) -> list[Leaf]:
    leaves = tree.leaves
    if len(leaves) <= MOST_LEAVES:
        return list(leaves)
    order = sorted(range(len(leaves)), key=lambda i: (-leaves[i].per_device, i))[:MOST_LEAVES]
    return [leaves[i] for i in sorted(order)]


def _more(tree: TreeBytes) -> str:
    count = len(tree.leaves) - MOST_LEAVES
    return f"the {MOST_LEAVES} heaviest are listed, {count:,} more are not" if count > 0 else ""


def _further(better: Sequence[LessSharded]) -> str:
    rest = better[MOST_BETTER:]
    saved = sum(it.saved_bytes_per_device for it in rest)
    return f"and {plural(len(rest), 'more array')}, {format_bytes(saved)} less" if rest else ""


def leaves_text(tree: TreeBytes, left_out: Sequence[str] = (), width: int | None = None) -> str:
    """The arrays as aligned lines of plain text, then their total, then those that could be cut further.

    Args:
        tree: the arrays, in tree order.
        left_out: names of leaves that are no arrays with a known sharding.
        width: the most columns in a line; rows of tables that are longer end in `…`. None for no limit.
    """
    table_ = [("name", "per device", "ways", "type and shape", "spec", "shard")]
    for leaf in _drawn(tree):
        cut = leaf.layout
        typed = f"{leaf.dtype or ''}{format_shape(cut.shape)}"
        table_.append((clip(leaf.name, MAX_NAME), _size(leaf), _ways(cut), typed, spec_words(cut), _shard(cut)))
    lines = _fitted(columns(table_, right=(1, 2)), width)
    words = [_more(tree), "", total_words(tree, left_out), heaviest_words(tree)]
    better = tree.less_sharded()
    if better:
        words += ["", better_words(better)]
    lines += _words([text for place, text in enumerate(words) if text or place], width)
    if better:
        table_ = [("name", "per device", "could be", "unused axis → dimension", "spec then")]
        for it in better[:MOST_BETTER]:
            axes = ", ".join(f"{axis} → {d}" for axis, d in zip(it.axes, it.dimensions, strict=True))
            now, then = format_bytes(it.bytes_per_device), format_bytes(it.better_bytes_per_device)
            table_.append((clip(it.name, MAX_NAME), now, then, axes, str(it.better)))
        lines += _fitted(columns(table_, right=(1, 2)), width) + list(filter(None, [_further(better)]))
    return "\n".join(lines)


def _fitted(lines: list[str], width: int | None) -> list[str]:
    """Lines that are too long end in `…`."""
    if width is None:
        return lines
    return [line if text_width(line) <= width else _cut(line, width) for line in lines]


def _cut(line: str, width: int) -> str:
    while text_width(line) > width - 1:
        line = line[:-1]
    return line + "…"


def _words(texts: Sequence[str], width: int | None) -> list[str]:
    """Sentences in lines; an empty one is an empty line where something follows it."""
    lines: list[str] = []
    for text in texts:
        if text:
            lines += [text] if width is None else wrap(text, width)
        elif not lines or lines[-1]:
            lines.append("")
    return lines


def _size(leaf: Leaf) -> str:
    return format_bytes(leaf.bytes.per_device if leaf.bytes else None)


def _ways(cut: Layout) -> str:
    return str(math.prod(cut.ways))


def _shard(cut: Layout) -> str:
    return format_shape(cut.shard_shape)


def leaves_html(tree: TreeBytes, left_out: Sequence[str] = ()) -> str:
    """The arrays as an HTML table with specs as chips, their total, and a table of those that could be cut further.

    Args:
        tree: the arrays, in tree order.
        left_out: names of leaves that are no arrays with a known sharding.
    """
    rows = []
    for leaf in _drawn(tree):
        cut = leaf.layout
        spec = escape(spec_words(cut)) if cut.spec is None else spec_html(cut.spec, cut.mesh)
        rows.append(
            (
                cell(f"<b>{escape(leaf.name)}</b>"),
                cell(format_shape(cut.shape)),
                cell(escape(leaf.dtype or ""), quiet=True),
                cell(spec, title=cut.why or str(cut.spec or "")),
                cell(_shard(cut)),
                cell(_size(leaf), right=True),
                cell(_ways(cut), right=True),
            )
        )
    heads = ("name", "shape", "type", "spec", "shard", ">bytes per device", ">ways")
    said = _more(tree), total_words(tree, left_out), heaviest_words(tree)
    notes = "".join(f"<div>{escape(text)}</div>" for text in said if text)
    return f'{table(heads, rows)}<div style="{QUIET};padding:0 0 8px 0">{notes}</div>{_better_html(tree)}'


def _better_html(tree: TreeBytes) -> str:
    better = tree.less_sharded()
    if not better:
        return ""
    meshes, rows = {leaf.name: leaf.layout.mesh for leaf in tree.leaves}, []
    for it in better[:MOST_BETTER]:
        mesh = meshes[it.name]
        colours = axis_colours(mesh)
        axes = zip(it.axes, it.dimensions, strict=True)
        rows.append(
            (
                cell(f"<b>{escape(it.name)}</b>"),
                cell(spec_html(it.spec, mesh), title=str(it.spec)),
                cell(mono(", ".join(f"{chip(axis, colours)} → {d}" for axis, d in axes))),
                cell(spec_html(it.better, mesh), title=str(it.better)),
                cell(format_bytes(it.bytes_per_device), right=True),
                cell(format_bytes(it.better_bytes_per_device), right=True),
            )
        )
    heads = ("name", "spec", "unused axis → dimension", "spec then", ">bytes per device", ">could be")
    more = f'<div style="{QUIET}">{escape(_further(better))}</div>' if _further(better) else ""
    return table(heads, rows, caption=better_words(better)) + more
