"""A picture is plain data: the same shapes in every medium, text escaped, overlays in the place of what they cover."""

import json
import struct
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from shardviz import paint
from shardviz.notation import DeviceMesh
from shardviz.paint.mpl import png_of
from shardviz.paint.svg import svg_of
from shardviz.view.machine import device_groups_picture, machine_picture
from shardviz.view.picture import Labels, Picture, Rects, picture
from tests.page.machines import MESHES, stepped
from tests.view.sample import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("dark", [None, True])
def test_svg_is_well_formed_and_says_what_the_picture_says(dark):
    cost, _ = stepped("tpu v5p:4x4x4")
    drawn = picture(cost)
    root = ElementTree.fromstring(paint.svg(cost, dark=dark))
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert root.get("aria-label") == drawn.alt and drawn.title in texts
    for shape in drawn.shapes:
        if isinstance(shape, Labels):
            assert set(shape.texts) <= set(texts)
    tips = {tip for shape in drawn.shapes if isinstance(shape, Rects) for tip in shape.tips}
    assert tips <= {title.text for title in root.iter(f"{SVG}title")}


def test_text_from_outside_is_escaped():
    cost, _ = stepped("tpu v5e:2x4", DeviceMesh((HOSTILE, "b"), (4, 2)).text)
    root = ElementTree.fromstring(paint.svg(cost))
    assert not list(root.iter("img")) and not list(root.iter(f"{SVG}img"))


@pytest.mark.parametrize("target", MESHES)
def test_what_lies_over_a_tile_takes_its_place(target):
    cost, _ = stepped(target)
    below, above = machine_picture(cost.placement), device_groups_picture(cost.placement, 3)

    def keys(drawn):
        return [keys[0] for shape in drawn.shapes if isinstance(shape, Rects) for keys in shape.keys]

    assert sorted(keys(below.over(above))) == sorted(keys(below))
    assert json.loads(json.dumps(below.to_json()))["width"] == pytest.approx(below.width, abs=0.1)


def test_svg_has_both_themes_and_png_its_size():
    drawn = Picture(width=10, height=10, shapes=(Rects(x=(0,), y=(0,), wide=9, high=9, fill=0),), axes=("a",))
    assert svg_of(drawn).count(".f-0{") == 2 and svg_of(drawn, dark=True).count(".f-0{") == 1
    small, large = (struct.unpack(">II", png_of(each)[16:24]) for each in (drawn, replace(drawn, width=110)))
    assert large[0] == pytest.approx(small[0] + 200, abs=3) and large[1] == small[1]
