"""Shard maps in text and HTML."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings

from shardviz.layouts import layout
from shardviz.notation import DeviceMesh, Spec
from shardviz.view.show import Shown
from tests.paint.test_scene import expand, layouts, slice_text
from tests.view.sanitizer import read, words


def shard_map_text(cut, width: int = 80) -> str:
    return Shown(cut).text(width)


def shard_map_html(cut, title: str = "") -> str:
    return Shown(cut, title).html()


GOLDEN = {
    "cut by rows, copied along model": (
        ((8192, 4096), ("data", None), "data=4,model=2"),
        """\
[8192, 4096] P('data', None) · shard [2048, 4096] · mesh data=4,model=2, 8 devices
rows: dimension 0, 8192, along data, 2048 each
columns: dimension 1, 4096, not sharded

             0:4096
           ┌────────┐
    0:2048 │ 0-1 ×2 │
 2048:4096 │ 2-3 ×2 │
 4096:6144 │ 4-5 ×2 │
 6144:8192 │ 6-7 ×2 │
           └────────┘

each slice is on 2 devices, along model""",
    ),
    "a vector that does not divide": (
        ((10,), ("x",), "x=4"),
        """\
[10] P('x') · shard [3] · mesh x=4, 4 devices
columns: dimension 0, 10, along x, 3 each

  0:3    3:6    6:9    9:10
┌──────┬──────┬──────┬──────┐
│  0   │  1   │  2   │  3   │
└──────┴──────┴──────┴──────┘

padding: dimension 0 is 10, padded to 12: 4 shards of 3
uneven: JAX refuses this for an argument: dimension 0 is 10, not divisible by 4 (8 or 12 would be).
  For a result it silently uses P(None): 10 elements on each device instead of 3 elements, 30
  elements of copies in all; JAX 0.12 stops with an IndivisibleError instead.""",
    ),
}


@pytest.mark.parametrize(("case", "text"), GOLDEN.values(), ids=list(GOLDEN))
def test_text(case, text):
    assert shard_map_text(layout(*case), 100) == text


def devices_in(text: str) -> list[int]:
    """All device numbers that a text map says."""
    cells = [cell for line in text.splitlines() if "│" in line for cell in re.split("[│┃]", line)[1:-1]]
    return [n for cell in cells for n in expand(cell.split("×")[0].strip())]


@given(layouts())
def test_every_device_is_said_exactly_once(cut):
    assert sorted(devices_in(shard_map_text(cut, 400))) == list(range(cut.mesh.size))


@pytest.mark.parametrize(
    ("shape", "spec", "mesh"),
    [
        ((8192, 4096), ("data", "model"), "data=64,model=32"),
        ((8192, 4096), ("model", "data"), "data=64,model=32"),
        ((8192,), (("data", "model"),), "data=64,model=32"),
        ((8192, 4096), (("data", "model"), None), "data=64,model=32"),
        ((1, 1_000_000), (None, ("data", "model")), "data=64,model=32"),
    ],
)
def test_2048_devices_are_all_said_in_few_lines(shape, spec, mesh):
    text = shard_map_text(layout(shape, spec, mesh), 80)
    assert sorted(devices_in(text)) == list(range(2048))
    assert len(text.splitlines()) < 80


def test_rows_that_cannot_be_shown_are_merged():
    text = shard_map_text(layout((512, 8), (("b", "a"), "c"), "a=64,b=8,c=4"))
    assert len(text.splitlines()) < 90
    assert "each cell stands for" in text and "0:8 │" in text


@given(layouts(most=32))
@settings(max_examples=40)
def test_html_loses_nothing_to_the_sanitizer(cut):
    page = read(shard_map_html(cut, "wq"))
    assert len(page.titles) == cut.mesh.size // cut.replicas
    for device in range(cut.mesh.size):
        wanted = slice_text(cut, device)
        assert any(wanted in title and device in expand(devices_of(title)) for title in page.titles)


def devices_of(title: str) -> str:
    """The devices that a cell's title says."""
    return title.partition(" on device")[2].removeprefix("s").split()[0].rstrip(",")


BIG = {
    "a square of 2048": ((8192, 4096), ("data", "model"), "data=64,model=32"),
    "2048 side by side": ((4096, 8192), (None, ("data", "model")), "data=64,model=32"),
    "2048 one below the other": ((8192, 4096), (("data", "model"), None), "data=64,model=32"),
    "2048 in panels": ((16, 16, 16), ("a", "b", "c"), "a=8,b=16,c=16"),
    "2048 in rank 4, all cut": ((16, 16, 16, 16), ("a", "b", "c", "d"), "a=8,b=8,c=8,d=4"),
    "columns first": ((8192, 4096), ("model", "data"), "data=64,model=32"),
    "many copies far apart": ((8192, 4096), ("model", None), "data=64,model=32"),
    "256 cells": ((8192, 4096), ("data", "model"), "data=16,model=16"),
    "257 rows": ((257,), ("data",), "data=257"),
    "one slice": ((8,), (), "data=2048"),
    "a square of 16384": ((8192, 4096), ("data", "model"), "data=128,model=128"),
    "16384 columns first": ((8192, 4096), ("model", "data"), "data=128,model=128"),
    "16384 in a line": ((16384,), (("data", "model"),), "data=128,model=128"),
    "16384, copies": ((8192, 4096), ("model", None), "data=128,model=128"),
    "16384 in rank 4": ((64, 64, 64, 64), ("a", "b", "c", "d"), "a=8,b=16,c=16,d=8"),
    "16384 in rank 6": ((64,) * 6, ("f", "a", "c", "b", "e", "d"), "a=4,b=4,c=4,d=4,e=8,f=8"),
}


@pytest.mark.parametrize("case", [case for name, case in BIG.items() if "rank 6" not in name])
def test_html_of_many_devices_is_small_and_says_every_device(case):
    html = shard_map_html(layout(*case), "wq")
    assert len(html) <= 150_000
    cells = re.findall(r'<td style="padding:(?:1px(?! 6)|5px|2px 9px)[^>]*>(?:<div[^>]*>)?([^<]*)', html)
    said = [n for cell in cells for n in expand(cell.strip())]
    assert sorted(said) == list(range(int(np.prod(list(DeviceMesh.of(case[2]).sizes)))))


def test_devices_that_follow_no_rule_are_counted():
    html = shard_map_html(layout(*BIG["16384 in rank 6"]))
    assert len(html) <= 150_000 and len(re.findall(r"256 from \d+ to \d+", words(html))) == 64


def test_cells_on_several_devices_are_stacks_of_cards():
    one, two, many = (shard_map_html(layout((8, 8), ("a",), f"a=2,b={n}")) for n in (1, 2, 3))
    assert [html.count("box-shadow") for html in (one, two, many)] == [0, 2, 2]
    assert two.count("6px 6px") == 0 and many.count("6px 6px") == 2
    assert "0-2 ×3" in words(many) and "×" not in words(one)
    sums = shard_map_html(layout((8,), Spec((("a",),), ("b",)), "a=2,b=2,c=2"))
    assert "box-shadow" not in sums, "partial sums are no copies"


def test_without_any_style_names_and_numbers_are_left():
    text = words(shard_map_html(layout((8, 6), ("data", "model"), "data=2,model=3"), "wq"))
    assert text.startswith("wq [8, 6] [data, model] · shard [4, 2] · mesh data=2 model=3, 6 devices")
    assert "0 0:4 0 1 2 1 4:8 3 4 5" in text


def test_padding_is_said_when_hovering():
    html = shard_map_html(layout((10,), ("x",), "x=4"))
    assert read(html).titles[3] == "[9:10], padded by 2 of dimension 0, on device 3 (x 3)"


def test_padding_of_the_panels_is_said_too():
    titles = read(shard_map_html(layout((3, 2, 2), ("x", "y", "z"), "x=2,y=2,z=2"))).titles
    assert titles[0] == "[0:2, 0:1, 0:1] on device 0 (x 0, y 0, z 0)"
    assert titles[4] == "[2:3, 0:1, 0:1], padded by 1 of dimension 0, on device 4 (x 1, y 0, z 0)"


def test_nothing_but_padding_keeps_the_bounds():
    assert len(shard_map_html(layout((1, 1), ("x", "y"), "x=16,y=16"))) <= 150_000
    assert len(shard_map_html(layout((1, 1), ("x", "y"), "x=16,y=16,z=2"))) <= 150_000
    assert len(shard_map_html(layout((3, 3, 3, 3), ("a", "b", "c", "d"), "a=4,b=4,c=4,d=4,e=2"))) <= 150_000


@pytest.mark.parametrize("seed", range(4))
def test_16384_devices_in_any_order_keep_the_bounds(seed):
    random = np.random.default_rng(seed)
    mesh = DeviceMesh(("a", "b", "c"), (16, 64, 16), (), tuple(random.permutation(16384).tolist()))
    html = shard_map_html(layout((512, 512, 512), [("a", "b"), ("c",), ()] if seed % 2 else ["c", "b", "a"], mesh))
    assert len(html) <= 150_000
    assert len(re.findall(r"\d+ from \d+ to \d+", words(html))) >= 16, "they follow no rule, so they are counted"


def test_panels_say_where_they_stand_along_their_axes():
    text = words(shard_map_html(layout((4, 4, 4, 4), ("a", "b", "c", "d"), "a=2,b=2,c=2,d=2")))
    assert "dimension 0, 0:2; dimension 1, 2:4 a 0 b 1 d 0 1 c 0:2 2:4 0 0:2 4 5 1 2:4 6 7" in text


def test_partial_sums_and_manual_arrays_have_an_edge_and_a_sign_of_their_own():
    copies = shard_map_html(layout((8,), ("a",), "a=2,b=2"))
    sums = shard_map_html(layout((8,), Spec((("a",),), ("b",)), "a=2,b=2"))
    assert "dotted" in sums and "dotted" not in copies
    assert "0 + 1" in words(sums) and "0-1" in words(copies)
