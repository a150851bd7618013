"""Which devices hold copies, and whom one talks with, on a shard map."""

from __future__ import annotations

import pytest

import shardviz as sv
from shardviz.layouts import layout
from shardviz.view.document import Paragraph, Table, plain
from shardviz.view.panes import shard_map_pane
from shardviz.view.picture import Lines
from shardviz.view.shard_company import copies_along, group_along, outlines
from shardviz.view.shard_map_picture import planned
from shardviz.view.shown import Shown

MESH = {"data": 4, "model": 2, "pipe": 2}


@pytest.mark.parametrize(
    ("spec", "along"),
    [
        (("data", "model"), ("pipe",)),
        ((None, None), ("data", "model", "pipe")),
        ((("data", "pipe"), "model"), ()),
        (("model", None), ("data", "pipe")),
    ],
)
def test_copies_lie_along_the_axes_that_cut_nothing(spec, along):
    cut = layout((16, 8), spec, MESH)
    assert copies_along(cut) == along
    for device in range(16):
        same = {d for name in along for d in group_along(cut, device, list(MESH).index(name))} | {device}
        assert same <= set(cut.holders(device))


def test_a_group_is_all_that_differs_in_one_axis():
    cut = layout((16, 8), ("data", "model"), MESH)
    for device, where in enumerate(cut.mesh.coordinates()):
        for axis in range(3):
            group = group_along(cut, device, axis)
            assert device in group and len(group) == cut.mesh.sizes[axis]
            for other in group:
                there = cut.mesh.coordinates()[other]
                assert [a for a in range(3) if where[a] != there[a]] in ([], [axis])


def counted(shapes):
    return {shape.name: len(shape.lines) for shape in shapes if isinstance(shape, Lines)}


def test_the_outlines_are_round_the_groups_cells():
    shown = Shown(layout((16, 8), ("data", "model"), {"data": 4, "model": 2}))
    plan = planned(shown)
    found = counted(outlines(plan, 3))
    assert found == {"": 1, "data": 3, "model": 1}, "its own cell once; three others along data, one along model"
    alone = counted(outlines(planned(Shown(layout((16,), ("data",), MESH))), 0))
    assert alone == {"": 1, "data": 3, "model": 1, "pipe": 1}, "copies are outlined in the cell that they are"


def test_the_pane_says_it_in_words():
    example = sv.gallery.mlp(mesh="data=4,model=2")
    report = example.program.propagate(example.plan)
    said = lambda document: [plain(p.pieces) for p in document.blocks if isinstance(p, Paragraph)]  # noqa: E731
    assert "each slice has 2 copies, along model" in said(shard_map_pane(report, "x"))
    picked = shard_map_pane(report, "x", device=5)
    assert "device 5 (data 2, model 1)" in said(picked)
    (table,) = [block for block in picked.blocks if isinstance(block, Table)]
    rows = {plain(row.cells[0]): [plain(c) for c in row.cells[1:]] for row in table.rows}
    assert rows["model"][:2] == ["2 devices: 4-5", "copies of its slice"]
    assert rows["data"][:2] == ["4 devices: 1,3,…,7", "other slices"]
    moved = {c.kind for c in report.collectives if c.axes == ("model",)}
    assert all(kind in rows["model"][2] for kind in moved)
