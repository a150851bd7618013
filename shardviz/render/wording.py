"""A shard map in words: the alt text of every picture of it, and the notes below.

>>> from shardviz.layouts import layout
>>> from shardviz.render.scene import build_scene
>>> describe(build_scene(layout((8, 6), ("x",), {"x": 2, "y": 2})))
'Array [8, 6] on mesh x=2,y=2, 4 devices: cut 2 ways into shards of [4, 6] (dimension 0 over x); each slice is on 2 devices.'
"""  # noqa: E501

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardviz.layouts import Layout
from shardviz.notation.spec import Axis, axis_text
from shardviz.records.amounts import format_shape, plural

if TYPE_CHECKING:
    from shardviz.render.scene import Scene, Side


def describe(scene: Scene) -> str:
    """The shard map in a sentence or two: the alt text of every picture of it."""
    layout = scene.layout
    cuts = [s for s in (*scene.depth, scene.rows, scene.columns) if s.ways > 1]
    mesh = f"mesh {layout.mesh}, {plural(layout.mesh.size, 'device')}" if layout.mesh.names else "one device"
    text = f"Array {format_shape(layout.shape)} on {mesh}: "
    if cuts:
        ways = " x ".join(str(s.ways) for s in cuts)
        by = ", ".join(f"dimension {s.dimension}{_over(s)}" for s in cuts)
        text += f"cut {ways} ways into shards of {format_shape(layout.shard_shape)} ({by})"
    else:
        text += "not cut"
    return f"{text}; {_held(layout, bool(cuts))}."


def _over(side: Side) -> str:
    return f" over {' and '.join(axis_text(a) for a, _ in side.axes)}" if side.axes else f" {side.ways} ways"


def _held(layout: Layout, cut: bool) -> str:
    """Who holds what: copies, partial sums, arrays of their own, or one device everything."""
    if layout.maximal:
        return f"device {_holder(layout)} holds all of it, the others nothing"
    if layout.partial_sums == layout.manual_ways == 1:
        return f"each slice is on {plural(layout.replicas, 'device')}" if cut else "every device holds all of it"
    parts = []
    if layout.manual_ways > 1:
        parts.append(f"{plural(layout.manual_ways, 'array')} kept apart along manual {_names(layout.manual)}")
    if layout.partial_sums > 1:
        parts.append(
            f"each {'slice' if cut else 'element'} is the sum of {layout.partial_sums} partial sums along "
            f"{_names(layout.unreduced)}"
        )
    copies = f", each on {plural(layout.replicas, 'device')}" if layout.replicas > 1 else ""
    return "; ".join(parts) + copies


def _names(axes: tuple[Axis, ...]) -> str:
    return ", ".join(map(axis_text, axes)) or "no mesh axis"


def _holder(layout: Layout) -> int:
    return int(layout.device_ids[np.argmax(layout.holds)])


def notes(scene: Scene) -> list[str]:
    """What the grid itself does not show: folded dimensions, padding, replicas, merged cells, partial sums."""
    layout, lines = scene.layout, []
    if layout.why and not layout.maximal:
        lines.append(f"no PartitionSpec: {layout.why}")
    if layout.maximal:
        empty = layout.mesh.size - int(layout.holds.sum())
        lines.append(f"device {_holder(layout)} holds all of it; {plural(empty, 'other device')} hold nothing")
    if scene.folded:
        which = ", ".join(f"{d} (size {layout.shape[d]})" for d in scene.folded)
        noun = "dimension" if len(scene.folded) == 1 else "dimensions"
        lines.append(f"not cut and not drawn: {noun} {which}")
    for side in (*scene.depth, scene.rows, scene.columns):
        if side.padded:
            extra = side.shard * side.ways - side.size
            empty = (side.ways * side.shard - side.size) // side.shard if side.shard else 0
            what = f"dimension {side.dimension} is {side.size}, {side.ways} shards of {side.shard} hold {extra} more"
            lines.append(f"padding: {what}" + (f"; {empty} of them nothing but padding" if empty else ""))
    if layout.replicas > 1:
        what = "partial sum" if layout.partial_sums > 1 else "array's slice" if layout.manual_ways > 1 else "slice"
        lines.append(f"each {what} is on {layout.replicas} devices")
    if layout.partial_sums > 1:
        lines.append(
            f"unreduced: devices along {_names(layout.unreduced)} hold partial sums of a slice, not copies of it; "
            "+ stands between them"
        )
    if layout.manual_ways > 1:
        lines.append(
            f"manual: devices along {_names(layout.manual)} hold arrays of their own, which the program keeps apart; "
            "/ stands between them"
        )
    if any(layout.open):
        which = ", ".join(str(d) for d, opened in enumerate(layout.open) if opened)
        noun = "dimension" if sum(layout.open) == 1 else "dimensions"
        lines.append(f"open: the compiler may cut {noun} {which} further than is drawn")
    if any(edges.any() for edges in scene.edges):
        lines.append("thick lines stand where processes meet")
    if scene.merged > 1:
        lines.append(f"each cell stands for {scene.merged} neighbouring shards")
    return lines
