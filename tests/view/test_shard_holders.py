"""The devices of a large mesh in boxes and colours of what they hold."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.layouts import layout
from shardviz.page.bundle import STATIC
from shardviz.paint.theme import ROLES, contrast, luminance, paint_of
from shardviz.view.picture import Lines, Picture, Rects
from shardviz.view.scene import build_scene
from shardviz.view.shard_holders import STEPS, boxes, grid_of, holders_picture, step_of

HELD = [f"held{step}" for step in range(STEPS)]
LARGE = {"data": 64, "model": 32}


@given(st.permutations(["a", "b", "c", None]), st.tuples(*[st.integers(1, 4)] * 3))
def test_boxes_hold_each_device_once_and_a_box_holds_one_slice(dims, sizes):
    mesh = dict(zip("abc", sizes, strict=True))
    cut = layout((64, 64), tuple(dims[:2]), mesh)
    scene = build_scene(cut)
    rows, columns = grid_of(cut.mesh)
    assert rows * columns == cut.mesh.size
    seen = np.zeros((rows, columns), int)
    starts = np.asarray(cut.starts)
    for box in boxes(scene):
        (r, c), (high, wide) = box.at, box.size
        seen[r : r + high, c : c + wide] += 1
        places = [i * columns + j for i in range(r, r + high) for j in range(c, c + wide)]
        assert len({tuple(starts[place]) for place in places}) == 1
    assert (seen == 1).all()


@pytest.mark.parametrize(
    ("spec", "count", "said"),
    [
        (("data", None), 64, "32 of each slice"),
        ((None, "model"), 32, "64 of each slice"),
        ((None, None), 1, "all 2,048 hold the whole array"),
        (("data", "model"), 256, "each device its own part"),
        ((("data", "model"), None), 512, "each device its own part"),
    ],
)
def test_a_picture_of_many_devices(spec, count, said):
    picture = holders_picture(build_scene(layout((16384, 16384), spec, LARGE)))
    assert isinstance(picture, Picture) and said in picture.alt and picture.alt.startswith(picture.title)
    told = [shape for shape in picture.shapes if isinstance(shape, Rects) and shape.told]
    assert sum(len(shape.x) for shape in told) == count
    keys = [key for shape in told for keys in shape.keys for key in keys]
    assert sorted(keys) == list(range(2048))
    assert {shape.fill for shape in told} <= set(HELD)


def test_who_talks_with_a_picked_device_is_outlined():
    picture = holders_picture(build_scene(layout((64, 64), ("data", None), {"data": 8, "model": 4})), 9)
    assert picture is not None
    lines = {shape.name: len(shape.lines) for shape in picture.shapes if isinstance(shape, Lines)}
    assert lines == {"data": 7, "model": 3, "": 1}


def test_scattered_copies_are_boxes_of_one_colour():
    scene = build_scene(layout((16, 8), ("b", None), {"a": 4, "b": 2, "c": 4}))
    found = boxes(scene)
    assert [box.cell for box in found] == [0, 1] * 4
    picture = holders_picture(scene)
    assert picture is not None and "others of its colour and number" in picture.alt


def test_the_ramp_can_be_told_apart_and_read_on_both_pages():
    """Its lightness falls all the way, so that it needs no hue; text is at 4.5:1 on every step."""
    assert [step_of(cell, 9) for cell in range(9)] == sorted(step_of(cell, 9) for cell in range(9))
    assert (step_of(0, 9), step_of(8, 9), step_of(0, 1)) == (0, STEPS - 1, 0)
    for dark in (False, True):
        light = [luminance(paint_of(role, dark)) for role in HELD]
        assert light == sorted(light, reverse=True) and light[0] > 2 * light[-1]
        assert min(contrast(paint_of(role, dark), ROLES["ink"][dark]) for role in HELD) > 4.5
    css = re.findall(r"\.sv-f-(held\d) \{ --f: (#\w+); --fd: (#\w+); \}", STATIC.joinpath("picture.css").read_text())
    assert {name: (light, dark) for name, light, dark in css} == {role: ROLES[role] for role in HELD}
