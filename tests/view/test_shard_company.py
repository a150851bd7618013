"""Which devices hold copies, and what a picked one holds, on a shard map."""

import jax
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.layouts import layout
from shardviz.view.document import Figure, Paragraph, plain
from shardviz.view.panes import shard_map_pane
from shardviz.view.picture import Labels, Rects, group_along
from shardviz.view.scene import copies_along

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
        same = {d for name in along for d in group_along(cut.mesh, device, list(MESH).index(name))} | {device}
        assert same <= set(cut.holders(device))


def test_a_group_is_all_that_differs_in_one_axis():
    cut = layout((16, 8), ("data", "model"), MESH)
    for device, where in enumerate(cut.mesh.coordinates()):
        for axis in range(3):
            group = group_along(cut.mesh, device, axis)
            assert device in group and len(group) == cut.mesh.sizes[axis]
            for other in group:
                there = cut.mesh.coordinates()[other]
                assert [a for a in range(3) if where[a] != there[a]] in ([], [axis])


def test_the_pane_says_it_in_words():
    example = sv.gallery.mlp(mesh="data=4,model=2")
    report = example.program.propagate(example.plan)
    said = lambda document: [plain(p.pieces) for p in document.blocks if isinstance(p, Paragraph)]
    figure, *rest = shard_map_pane(report, "x").blocks
    assert isinstance(figure, Figure) and "each slice is on 2 devices, along model" in figure.of.notes and not rest
    assert said(shard_map_pane(report, "x", device=5)) == ["device 5 (data 2, model 1) holds [2048:3072, :]"]


@pytest.mark.parametrize("spec", [("data", "model"), (("data", "model"), None), ("model", None), (None, "data")])
def test_of_2048_devices_a_picked_one_is_seen_in_the_cell_of_many(spec):
    """The cells of the map can be read in the room; a merged one holds the picked device, whose slice stands below."""
    program = sv.trace(lambda x: x * 2, jax.ShapeDtypeStruct((8192, 4096), "float32"))
    report = program.propagate(sv.Plan("data=64,model=32", in_specs=(P(*spec),)))
    cut, room, device = layout((8192, 4096), spec, {"data": 64, "model": 32}), (560.0, 420.0), 1234

    def drawn(device=-1):
        figure, *_ = shard_map_pane(report, "x", room=room, device=device).blocks
        assert isinstance(figure, Figure)
        return figure

    for figure in (drawn(), drawn(device)):
        picture = figure.of
        scale = min(1.0, room[0] / picture.width)
        letters = (s for s in picture.ordered if isinstance(s, Labels) and s.mono and isinstance(s.size, float))
        sizes = [letter.size * scale for letter in letters]
        assert sizes and min(sizes) >= 7, "its numbers can be read without scrolling sideways"
        cells = [set(k) for s in picture.ordered if isinstance(s, Rects) and s.select for k in s.keys]
        (own,) = [cell for cell in cells if device in cell]
        assert set(cut.holders(device)) <= own
