"""A shard map with one device picked: who holds copies of its slice, who talks with it, in the colours of the axes.

An axis along which the slices are alike is one of copies. Over the cells stand the outlines of the device's groups, one
an axis, each with the axis's colour and dash; beside the map stands the same in words, with what moves there in a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from shardviz.layouts import Layout
from shardviz.notation import axis_name
from shardviz.records.amounts import format_bytes
from shardviz.records.collectives import axes_words
from shardviz.records.report import Report
from shardviz.view.document import Block, Column, Inline, Piece, Table, axes, paragraph, row, words
from shardviz.view.picture import Lines, Picture, Point, Shape, shifted
from shardviz.view.ranges import device_ranges
from shardviz.view.shard_map_picture import Plan

_LAYER = 5
_INSETS = 1.4, 3.4
"""Pixels from a cell's edge to the outline of the device's own, and to those of its groups."""


def copies_along(cut: Layout) -> tuple[str, ...]:
    """The mesh axes along which devices hold the same data."""
    mesh, found = cut.mesh, []
    told_apart = {axis_name(a) for a in (*cut.unreduced, *cut.manual)}
    starts = np.asarray(cut.starts).reshape(*mesh.sizes, -1)
    for place, (name, size) in enumerate(mesh.shape.items()):
        alike = bool((starts == np.take(starts, [0], axis=place)).all())
        if size > 1 and alike and name not in told_apart and not cut.maximal:
            found.append(name)
    return tuple(found)


def group_along(cut: Layout, device: int, axis: int) -> list[int]:
    """The places in the mesh that differ from a device's in one axis alone, its own included."""
    sizes = cut.mesh.sizes
    at = list(np.unravel_index(device, sizes))
    return [int(np.ravel_multi_index([*at[:axis], k, *at[axis + 1 :]], sizes)) for k in range(sizes[axis])]


def coloured(drawn: Picture, cut: Layout) -> Picture:
    """A shard map whose cards behind the first, the copies, have the colour of the axis that they are along."""
    along = copies_along(cut)
    if not along:
        return drawn
    colours = [cut.mesh.names.index(name) for name in along]
    shapes, behind = [], 0
    for shape in drawn.shapes:
        if getattr(shape, "fill", None) == "tile" and not getattr(shape, "told", ()):
            shape = dataclasses.replace(shape, fill=colours[behind % len(colours)], strength=0.75)  # type: ignore[call-arg]
            behind += 1
        shapes.append(shape)
    return dataclasses.replace(drawn, shapes=tuple(shapes))


def outlines(plan: Plan, device: int) -> Iterator[Shape]:
    """The cell of a device, and those of its group along each axis; copies, all in its own cell, are outlined in it."""
    cut = plan.scene.layout
    mesh = cut.mesh
    ids = [int(each) for each in mesh.ids()]
    groups = [
        (None, [device]),
        *((n, group_along(cut, device, n)) for n in range(len(mesh.names)) if mesh.sizes[n] > 1),
    ]
    held = plan.scene.devices
    own = np.isin(held, [ids[device]]).any(axis=-1)
    for axis, places in groups:
        wanted = np.asarray(np.isin(held, [ids[place] for place in places]).any(axis=-1))
        if axis is not None and (wanted & ~own).any():  # its own cell is outlined already
            wanted &= ~own
        for panel in range(held.shape[0]):
            cells = np.argwhere(wanted[panel]).tolist()
            boxes = tuple(_box(plan, r, c, _INSETS[axis is not None]) for r, c in cells)
            if not boxes:
                continue
            look = {"stroke": "ink", "width": 2.6} if axis is None else {"stroke": axis, "width": 2.2, "dash": axis}
            name = "" if axis is None else mesh.names[axis]
            shape = Lines(lines=boxes, closed=True, name=name, layer=_LAYER, **look)  # type: ignore[arg-type]
            down, across = divmod(panel, plan.across)
            yield shifted(shape, across * plan.step[0] + plan.left, down * plan.step[1] + plan.top)


def _box(plan: Plan, r: int, c: int, inset: float) -> tuple[Point, ...]:
    (w, h), spare = plan.cell, plan.spare
    inset = min(inset, 0.3 * min(w - spare, h - spare))
    x, y, x2, y2 = c * w + inset, r * h + inset, (c + 1) * w - spare - inset, (r + 1) * h - spare - inset
    return (x, y), (x2, y), (x2, y2), (x, y2)


def company_blocks(cut: Layout, device: int, report: Report) -> tuple[Block, ...]:
    """Who holds copies, and who talks with a device; without one, along which axes there are copies.

    Args:
        cut: where the slices lie.
        device: its place in the mesh; below 0 for none.
        report: whose collectives move something along the axes.
    """
    mesh, along = cut.mesh, copies_along(cut)
    if not 0 <= device < mesh.size:
        said: list[Piece] = []
        if along:
            said = [words(f"each slice has {cut.replicas} copies, along"), axes(along)]
        told = "Click a cell: who has copies of it, and whom its device talks with, is outlined, and shown closer."
        hint = words(told, quiet=True)
        return (*((paragraph(*said, name="copies"),) if said else ()), paragraph(hint, name="company-hint"))
    ids = [int(each) for each in mesh.ids()]
    rows = []
    for n, (name, size) in enumerate(mesh.shape.items()):
        if size < 2:
            continue
        group = [ids[place] for place in group_along(cut, device, n)]
        same = name in along
        what = "copies of its slice" if same else "other slices" if not cut.maximal else "nothing"
        cells: tuple[Inline, ...] = (
            axes((name,)),
            words(f"{size} devices: {device_ranges(group)}"),
            words(what, strong=same),
            words(moves) if (moves := _moved(report, name)) else words("nothing", quiet=True),
        )
        rows.append(row(*cells))
    at = ", ".join(f"{name} {i}" for name, i in zip(mesh.names, mesh.coordinates()[device], strict=True))
    columns = (Column("along"), Column("its group"), Column("holds"), Column("moves in a step", wrap=True))
    table = Table(columns=columns, rows=tuple(rows), folds="never", noun="axis", name="shard-company")
    head = paragraph(words(f"device {ids[device]}", strong=True), words(f"({at})", quiet=True), name="company-of")
    return (head, table) if rows else (head,)


def _moved(report: Report, name: str) -> str:
    """What a step moves in the groups along an axis: `all-reduce 345 GB, all-gather 12 MB over data and model`."""
    sums: dict[tuple[str, str], float] = {}
    for each in report.collectives:
        over = [axis_name(a) for a in each.axes or ()]
        if name in over:
            beside = "" if len(over) == 1 else f" over {axes_words(each.axes)}"
            sums[each.kind, beside] = sums.get((each.kind, beside), 0.0) + each.assumed_bytes
    found = sorted(sums.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {format_bytes(size)}{beside}" for (kind, beside), size in found[:4])
