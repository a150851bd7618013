"""A shard map with one device picked: who holds copies of its slice, who talks with it, in the colours of the axes.

An axis along which the slices are alike is one of copies. Over the cells stand the outlines of the device's groups, one
an axis, each with the axis's colour and dash; beside the map stands the same in words, with what moves there in a step.
"""

from __future__ import annotations

from shardviz.judge.report import Report
from shardviz.layouts import Layout
from shardviz.notation import axis_name
from shardviz.records.amounts import format_bytes
from shardviz.records.collectives import axes_words
from shardviz.view.document import Block, Column, Inline, Piece, Table, axes, paragraph, row, words
from shardviz.view.ranges import device_ranges
from shardviz.view.scene import copies_along, group_along


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
