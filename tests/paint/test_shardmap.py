"""Shard maps in text and HTML."""

from __future__ import annotations

import base64
import io
import re
import zlib

import numpy as np
import pytest
from hypothesis import given, settings

from shardviz.layouts import layout
from shardviz.notation import DeviceMesh, Spec
from shardviz.paint.shard_map_html import shard_map_html
from shardviz.paint.shard_map_text import shard_map_text
from tests.paint.test_scene import expand, layouts, slice_text
from tests.view.sample import HOSTILE
from tests.view.sanitizer import read, words

GOLDEN = {
    "cut by rows, copied along model": (
        ((8192, 4096), ("data", None), "data=4,model=2"),
        """\
[8192, 4096]  P('data', None)  mesh data=4,model=2, 8 devices  shard [2048, 4096]
rows     dimension 0: 8192 by data=4, 2048 each
columns  dimension 1: 4096, not cut

             0:4096
           ┌────────┐
    0:2048 │ 0-1 ×2 │
 2048:4096 │ 2-3 ×2 │
 4096:6144 │ 4-5 ×2 │
 6144:8192 │ 6-7 ×2 │
           └────────┘

each slice is on 2 devices""",
    ),
    "a vector that does not divide": (
        ((10,), ("x",), "x=4"),
        """\
[10]  P('x')  mesh x=4, 4 devices  shard [3]
columns  dimension 0: 10 by x=4, 3 each

  0:3    3:6    6:9    9:10
┌──────┬──────┬──────┬──────┐
│  0   │  1   │  2   │  3   │
└──────┴──────┴──────┴──────┘

padding: dimension 0 is 10, 4 shards of 3 hold 2 more""",
    ),
    "three dimensions": (
        ((4, 4, 4), ("a", "b", "c"), "a=2,b=2,c=2"),
        """\
[4, 4, 4]  P('a', 'b', 'c')  mesh a=2,b=2,c=2, 8 devices  shard [2, 2, 2]
panels   dimension 0: 4 by a=2, 2 each
rows     dimension 1: 4 by b=2, 2 each
columns  dimension 2: 4 by c=2, 2 each

dimension 0, 0:2
       0:2   2:4
     ┌─────┬─────┐
 0:2 │  0  │  1  │
 2:4 │  2  │  3  │
     └─────┴─────┘

dimension 0, 2:4
       0:2   2:4
     ┌─────┬─────┐
 0:2 │  4  │  5  │
 2:4 │  6  │  7  │
     └─────┴─────┘""",
    ),
    "a scalar": (
        ((), (), "x=4"),
        """\
[]  P()  mesh x=4, 4 devices  shard []

┌────────┐
│ 0-3 ×4 │
└────────┘

each slice is on 4 devices""",
    ),
}


@pytest.mark.parametrize(("case", "text"), GOLDEN.values(), ids=list(GOLDEN))
def test_text(case, text):
    assert shard_map_text(layout(*case), 100) == text


def devices_in(text: str) -> list[int]:
    """All device numbers that a text map says."""
    lines = text.split("\n\n", 1)[1].splitlines()
    cells = [cell for line in lines if "│" in line for cell in line.split("│")[1:-1]]
    if not cells:
        cells = [re.split(r"  +|rows?: ", line)[-1] for line in lines[1:] if line.startswith("[")]
    return [n for cell in cells for n in expand(cell.split("×")[0].strip())]


@given(layouts())
def test_every_device_is_said_exactly_once(cut):
    assert sorted(devices_in(shard_map_text(cut, 400))) == list(range(cut.mesh.size))


@given(layouts())
def test_no_line_is_wider_than_asked_for_and_the_text_is_always_the_same(cut):
    text = shard_map_text(cut, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert text == shard_map_text(cut, 60)


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


def test_rows_that_cannot_be_shown_are_counted():
    text = shard_map_text(layout((512, 8), (("b", "a"), "c"), "a=64,b=8,c=4"))
    assert len(text.splitlines()) < 90
    assert re.search(r"…\s+441 more rows", text)


@given(layouts(most=32))  # more columns are a picture
@settings(max_examples=40)
def test_html_loses_nothing_to_the_sanitizer(cut):
    page = read(shard_map_html(cut, "wq"))
    assert len(page.titles) == cut.mesh.size // cut.replicas
    for device in range(cut.mesh.size):
        wanted = slice_text(cut, device)
        assert any(wanted in title and device in expand(title.split()[1].rstrip(":")) for title in page.titles)


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


@pytest.mark.parametrize("case", BIG.values(), ids=list(BIG))
def test_html_of_many_devices_is_small_and_readable(case):
    html = shard_map_html(layout(*case), "wq")
    assert len(html) <= 150_000
    page = read(html)
    for image in page.images:
        assert image["alt"].startswith("Array [")
        width, height, _ = decode(base64.b64decode(image["src"].split(",")[1]))
        assert (int(image["width"]), int(image["height"])) == (width, height)
        assert width <= 1280 and height <= 1600
    assert page.images or "2047" in words(html) or "device" in words(html)


@pytest.mark.parametrize("name", [name for name in BIG if "16384" not in name and "copies" not in name])
def test_hovering_over_a_picture_says_the_exact_slice(name):
    cut = layout(*BIG[name])
    page = read(shard_map_html(cut))
    if not page.images:
        return
    seen = []
    for title in page.titles:
        who, _, where = title.partition(": ")
        devices = expand(who)
        seen += devices
        if len(page.titles) == cut.mesh.size:
            assert where == slice_text(cut, devices[0])
        else:  # too many for a title each: the row's slice
            bounds = [b.split(":") for b in where[1:-1].split(", ")]
            for start, stop, (low, *high) in zip(cut.starts[devices[0]], cut.stops[devices[-1]], bounds, strict=True):
                assert not low or (start, stop) == (int(low), int(high[0]))
    assert sorted(seen) == list(range(cut.mesh.size))
    assert len(page.titles) == cut.mesh.size or "rank 4" in name


def test_the_grid_over_a_picture_lies_on_its_cells():
    """Pixels: the middle of every cell of the grid has the tile's colour or its ink, the gaps between have neither."""
    image = pytest.importorskip("PIL.Image")
    for cut in (layout(*BIG["a square of 2048"]), layout((64, 64, 64), ("a", "b", "c"), "a=4,b=16,c=8,d=2")):
        html = shard_map_html(cut)
        src = read(html).images[0]["src"]
        picture = image.open(io.BytesIO(base64.b64decode(src.split(",")[1]))).convert("RGBA")
        grids = re.findall(
            r"position:absolute;left:(\d+)px;top:(\d+)px;display:grid;"
            r"grid-template-columns:repeat\((\d+),(\d+)px\);grid-auto-rows:(\d+)px\">((?:<i[^>]*></i>)*)",
            html,
        )
        assert html.count("<i title") == sum(grid[5].count("<i ") for grid in grids)
        for x, y, columns, width, height, cells in grids:
            x, y, columns, width, height = map(int, (x, y, columns, width, height))
            for cell in range(cells.count("<i ")):
                left, top = x + cell % columns * width, y + cell // columns * height
                assert picture.getpixel((left, top))[:3] == (0xD7, 0xDF, 0xE8)
                assert picture.getpixel((left + width - 1, top))[3] == 0


def test_cells_on_several_devices_are_stacks_of_cards():
    one, two, many = (shard_map_html(layout((8, 8), ("a",), f"a=2,b={n}")) for n in (1, 2, 3))
    assert [html.count("box-shadow") for html in (one, two, many)] == [0, 2, 2]
    assert two.count("6px 6px") == 0 and many.count("6px 6px") == 2
    assert "0-2 ×3" in words(many) and "×" not in words(one)
    sums = shard_map_html(layout((8,), Spec((("a",),), ("b",)), "a=2,b=2,c=2"))
    assert "box-shadow" not in sums, "partial sums are no copies"


def test_stacks_show_in_pictures():
    single, stacked = (read(shard_map_html(layout((64, 64), ("a", "b"), f"a=32,b=16,c={n}"))).images[0] for n in (1, 2))
    assert int(stacked["height"]) == int(single["height"]) + 3 * 32


def decode(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the lines of palette places of a PNG of ours, checking every chunk's sum."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        name, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert zlib.crc32(name + data) == int.from_bytes(png[at + 8 + size : at + 12 + size], "big")
        chunks[name] = data
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"]
    width, height = (int.from_bytes(chunks[b"IHDR"][i : i + 4], "big") for i in (0, 4))
    raw = zlib.decompress(chunks[b"IDAT"])
    stride = len(raw) // height
    return width, height, [raw[y * stride + 1 : (y + 1) * stride] for y in range(height)]


def test_the_picture_is_a_png_that_another_reader_reads():
    image = pytest.importorskip("PIL.Image")
    html = shard_map_html(layout(*BIG["a square of 2048"]))
    src = read(html).images[0]["src"]
    picture = image.open(io.BytesIO(base64.b64decode(src.split(",")[1]))).convert("RGBA")
    colours = {colour for _, colour in picture.getcolors()}
    assert (0, 0x72, 0xB2, 255) in colours and (0xD5, 0x5E, 0, 255) in colours, "the bars of both axes"
    assert any(alpha == 0 for *_, alpha in colours), "the ground is transparent"


def test_without_any_style_names_and_numbers_are_left():
    text = words(shard_map_html(layout((8, 6), ("data", "model"), "data=2,model=3"), "wq"))
    assert text.startswith("wq [8, 6] [data, model] · shard [4, 2] · mesh data=2 model=3, 6 devices")
    assert text.endswith("0 0:4 0 1 2 1 4:8 3 4 5")


def test_padding_shows_in_the_cell_and_when_hovering():
    html = shard_map_html(layout((10,), ("x",), "x=4"))
    assert read(html).titles[3] == "device 3: [9:10], padded by 2 of dimension 0"
    assert html.count("dashed") == 1 and "background-size:67% 100%" in html
    assert "background-image" not in shard_map_html(layout((12,), ("x",), "x=4"))
    empty = shard_map_html(layout((3, 5), ("x", "y"), "x=4,y=3"))
    assert empty.count("background-size:100% 100%;") == 3 and empty.count("background-size:50% 100%;") == 3


def test_padding_of_the_panels_is_said_too():
    titles = read(shard_map_html(layout((3, 2, 2), ("x", "y", "z"), "x=2,y=2,z=2"))).titles
    assert titles[0] == "device 0: [0:2, 0:1, 0:1]"
    assert titles[4] == "device 4: [2:3, 0:1, 0:1], padded by 1 of dimension 0"


def test_nothing_but_padding_keeps_the_bounds():
    assert len(shard_map_html(layout((1, 1), ("x", "y"), "x=16,y=16"))) <= 150_000
    assert len(shard_map_html(layout((1, 1), ("x", "y"), "x=16,y=16,z=2"))) <= 150_000
    assert len(shard_map_html(layout((3, 3, 3, 3), ("a", "b", "c", "d"), "a=4,b=4,c=4,d=4,e=2"))) <= 150_000


def test_names_are_escaped():
    mesh = DeviceMesh((HOSTILE, "b"), (2, 2))
    html = shard_map_html(layout((8, 8), (HOSTILE, "b"), mesh), HOSTILE)
    assert "<img" not in html
    assert HOSTILE in words(html)


@pytest.mark.parametrize("seed", range(4))
def test_16384_devices_in_any_order_keep_the_bounds(seed):
    random = np.random.default_rng(seed)
    mesh = DeviceMesh(("a", "b", "c"), (16, 64, 16), (), tuple(random.permutation(16384).tolist()))
    html = shard_map_html(layout((512, 512, 512), [("a", "b"), ("c",), ()] if seed % 2 else ["c", "b", "a"], mesh))
    assert len(html) <= 150_000
    assert words(html).count("devices from") >= 16, "they follow no rule, so they are counted"


@pytest.mark.parametrize("sizes", [(8, 8, 8, 8), (16, 16, 16), (128, 32), (64, 64)])
def test_4096_devices_in_any_order_keep_the_bounds(sizes):
    names = "abcd"[: len(sizes)]
    mesh = DeviceMesh(tuple(names), sizes, (), tuple(np.random.default_rng(0).permutation(4096).tolist()))
    assert len(shard_map_html(layout(sizes, tuple(names), mesh))) <= 150_000


@pytest.mark.parametrize("name", [name for name in BIG if "16384" in name])
def test_16384_devices_read_as_ranges(name):
    page = read(shard_map_html(layout(*BIG[name])))
    devices = [n for title in page.titles for n in expand(title.split(":")[0].split(" ", 1)[1])]
    assert sorted(devices) == list(range(16384))


def test_panels_stand_in_a_grid_with_their_axes():
    text = words(shard_map_html(layout((4, 4, 4, 4), ("a", "b", "c", "d"), "a=2,b=2,c=2,d=2")))
    assert "b 0 1 a dimension 1, 0:2 dimension 1, 2:4 0 dimension 0, 0:2 d 0 1" in text


def test_partial_sums_and_manual_arrays_have_an_edge_and_a_sign_of_their_own():
    copies = shard_map_html(layout((8,), ("a",), "a=2,b=2"))
    sums = shard_map_html(layout((8,), Spec((("a",),), ("b",)), "a=2,b=2"))
    assert "dotted" in sums and "dotted" not in copies
    assert "0 + 1" in words(sums) and "0-1" in words(copies)


def test_signs_have_glyphs_in_pictures():
    cut = layout((64, 64), Spec((("a",), ("c",)), ("b",)), "a=32,b=2,c=16")
    image = read(shard_map_html(cut)).images[0]
    assert "partial sums" in image["alt"]
