"""The grid that every painter shares, against the layout it is of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.layouts import layout
from shardviz.notation import DeviceMesh, Sharding, Spec
from shardviz.view.document import device_ranges
from shardviz.view.scene import build_scene, coarsen, notes


@st.composite
def layouts(draw, most=64):
    """Any spec over any mesh of up to three axes, sizes that divide or not, devices in any order."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(lambda s: math.prod(s) <= most))
    names = "abc"[: len(sizes)]
    rank = draw(st.integers(0, 4))
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(names)):
        place = draw(st.integers(-1, rank - 1))
        if place >= 0:
            dims[place].append(name)
    shape = draw(st.lists(st.integers(1, 30), min_size=rank, max_size=rank))
    ids = tuple(draw(st.permutations(range(math.prod(sizes)))))

    return layout(shape, [tuple(d) for d in dims], DeviceMesh(tuple(names), tuple(sizes), (), ids))


def expand(text: str) -> list[int]:
    """Every device that a text such as `0-3,8,…,24` means."""
    parts = text.split(",")
    runs = [None if p == "…" else [int(n) for n in p.split("-")] for p in parts]
    if None in runs:
        place = runs.index(None)
        before, last = runs[:place], runs[place + 1 :]
        step = before[-1][0] - before[-2][0]
        while before[-1][0] < last[0][0] - step:
            before.append([n + step for n in before[-1]])
        runs = before + last
    return [n for run in runs for n in range(run[0], run[-1] + 1)]


def slice_text(cut, device) -> str:
    """What the layout itself says that a device holds, `:` for dimensions that are not cut."""
    pairs = zip(cut.index(device), cut.tile_counts, strict=True)
    return "[" + ", ".join(":" if n == 1 else f"{s.start}:{s.stop}" for s, n in pairs) + "]"


@given(layouts())
def test_every_device_stands_in_the_cell_of_its_slice(cut):
    scene = build_scene(cut)
    seen = {}
    for index, devices in zip(scene.slices, scene.ids.reshape(scene.cells, -1).tolist(), strict=True):
        seen |= dict.fromkeys(devices, index)
    assert sorted(seen) == list(range(cut.mesh.size))
    for device, text in seen.items():
        assert text == slice_text(cut, device)


@given(layouts(), st.integers(1, 4), st.integers(1, 4), st.integers(1, 2))
def test_merging_cells_loses_no_device_and_keeps_the_limits(cut, rows, columns, panels):
    scene = coarsen(build_scene(cut), rows=rows, columns=columns, panels=panels)
    assert scene.devices.shape[0] <= panels and scene.devices.shape[1] <= rows and scene.devices.shape[2] <= columns
    assert sorted(scene.devices.ravel().tolist()) == list(range(cut.mesh.size))
    assert scene.merged * scene.cells * cut.replicas == cut.mesh.size
    assert (scene.merged > 1) == any("neighbouring" in line for line in notes(scene))
    for side in (scene.rows, scene.columns):
        assert side.bounds[0] == 0 and side.bounds[-1] == side.size
    for index, devices in zip(scene.slices, scene.ids.reshape(scene.cells, -1).tolist(), strict=True):
        inside = np.ones(cut.mesh.size, bool)
        for dimension, text in enumerate(index[1:-1].split(", ") if cut.shape else []):
            if text != ":":
                start, stop = map(int, text.split(":"))
                inside &= (cut.starts[:, dimension] >= start) & (cut.stops[:, dimension] <= stop)
        assert set(devices) <= set(cut.device_ids[inside].tolist()), "a cell has the devices of its slice"


@given(st.sets(st.integers(0, 300), min_size=1, max_size=40))
def test_device_ranges_mean_exactly_the_devices(devices):
    assert expand(device_ranges(devices)) == sorted(devices)


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ([7], "7"),
        (range(8), "0-7"),
        ([*range(8), *range(16, 24)], "0-7,16-23"),
        (range(0, 512, 8), "0,8,…,504"),
        ([i + j for i in range(0, 512, 64) for j in range(4)], "0-3,64-67,…,448-451"),
        ([5, 1, 3], "1,3,5"),
        ([0, 2, 4, 7], "0,2,4,7"),
    ],
)
def test_device_ranges(devices, text):
    assert device_ranges(devices) == text
    assert expand(text) == sorted(devices)


def test_dimensions_that_are_not_cut_are_folded_and_said():
    scene = build_scene(layout((80, 8192, 64, 128), (None, "data", "model"), "data=8,model=8"))
    assert (scene.rows.dimension, scene.columns.dimension, scene.folded) == (1, 2, [0, 3])
    assert "not sharded and not drawn: dimensions 0 (size 80), 3 (size 128)" in notes(scene)


def test_three_cut_dimensions_make_panels():
    scene = build_scene(layout((8, 6, 10), ("a", "b", "c"), "a=2,b=3,c=5"))
    assert scene.devices.shape == (2, 3, 5, 1)
    assert scene.panel_text(1) == "dimension 0, 4:8"


def test_two_axes_on_a_dimension_have_nested_coordinates():
    scene = build_scene(layout((8,), (("a", "b"),), "a=2,b=4"))
    assert scene.columns.coordinates() == [("a", [("0", 4), ("1", 4)]), ("b", [(str(i), 1) for i in (0, 1, 2, 3) * 2])]
    merged = coarsen(scene, rows=1, columns=4, panels=1).columns.coordinates()
    assert merged == [("a", [("0", 2), ("1", 2)]), ("b", [("0-1", 1), ("2-3", 1)] * 2)]


def test_padding_is_marked_where_it_is():
    scene = build_scene(layout((10,), ("a",), "a=8"))
    assert [scene.columns.padding(c) for c in range(8)] == [0, 0, 0, 0, 0, 2, 2, 2]
    assert notes(scene) == ["padding: dimension 0 is 10, padded to 16: 8 shards of 2, 3 of them only padding"]


def test_a_long_thin_array_still_reads():
    assert build_scene(layout((1, 1_000_000), (None, "a"), "a=8")).aspect == 0.25
    assert build_scene(layout((1_000_000, 1), ("a",), "a=8")).aspect == 4


def apart(shape, spec, mesh, manual=()):
    """A layout with manual axes."""
    spec = Spec.of(spec, rank=len(shape))
    return layout(shape, Sharding.from_spec(spec, DeviceMesh.of(mesh), len(shape), manual=manual))


@pytest.mark.parametrize(
    ("cut", "labels"),
    [
        (layout((8,), Spec((("a",),), ("b",)), "a=2,b=2"), ["0 + 1", "2 + 3"]),
        (layout((8,), Spec((("a",),), ("b",)), "a=2,b=2,c=2"), ["0-1 + 2-3", "4-5 + 6-7"]),
        (layout((8,), Spec((("b",),), ("a",)), "a=2,b=2"), ["0 + 2", "1 + 3"]),
        (layout((8,), Spec(((),), ("a",)), "a=64"), ["+ 0-63"]),
        (apart((8,), (("a",),), "a=2,b=2", ("b",)), ["0 / 1", "2 / 3"]),
        (apart((8,), Spec((("a",),), ("c",)), "a=2,b=2,c=2", ("b",)), ["0 + 1 / 2 + 3", "4 + 5 / 6 + 7"]),
        (apart((8,), (), "a=8,b=8", ("a", "b")), ["/ 0-63"]),
    ],
)
def test_devices_that_hold_no_copies_are_told_apart(cut, labels):
    scene = build_scene(cut)
    assert scene.labels == labels
    words = " ".join(notes(scene))
    assert ("partial sums" in words) == ("+" in labels[0]) and ("separate arrays" in words) == ("/" in labels[0])
    assert "each slice is on" not in words
