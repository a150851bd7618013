"""Figures: on the Axes given, or on a new figure that pyplot knows nothing of."""

from __future__ import annotations

import io

import pytest

matplotlib = pytest.importorskip("matplotlib")
from matplotlib import pyplot  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

import shardviz as sv  # noqa: E402
from shardviz.layouts import layout  # noqa: E402
from shardviz.notation import DeviceMesh, Spec  # noqa: E402
from shardviz.paint import plot  # noqa: E402
from shardviz.paint.theme import axis_colours  # noqa: E402
from shardviz.view.picture import Picture, Rects, picture  # noqa: E402
from shardviz.view.scene import build_scene, describe  # noqa: E402
from shardviz.view.show import Shown, show  # noqa: E402
from tests.paint.test_scene import expand  # noqa: E402
from tests.view.sample import report  # noqa: E402

CASES = {
    "scalar": ((), (), "data=4"),
    "vector with padding": ((10,), ("data",), "data=4"),
    "matrix": ((8192, 4096), ("data", "model"), "data=8,model=8"),
    "panels": ((8, 6, 10), ("a", "b", "c"), "a=2,b=2,c=5"),
    "1 x 1,000,000": ((1, 1_000_000), (None, ("data", "model")), "data=8,model=8"),
    "2048 in a square": ((8192, 4096), ("data", "model"), "data=64,model=32"),
    "2048 in a line": ((8192,), (("data", "model"),), "data=64,model=32"),
    "2048 in panels": ((16, 16, 16), ("a", "b", "c"), "a=8,b=16,c=16"),
    "all padding": ((3,), ("data",), "data=8"),
}


def drawn(cut, ax=None, *, dark=False, title=""):
    """The Axes of a layout's shard map."""
    return Shown(cut, title).plot(ax, dark=dark)


def tiles(found: Picture) -> list[Rects]:
    """The cells of a map, card by card."""
    return [shape for shape in found.ordered if isinstance(shape, Rects) and shape.layer == 1]


@pytest.fixture(autouse=True)
def closed():
    yield
    assert not pyplot.get_fignums(), "a figure was left open"


def save(ax) -> int:
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, dpi=40)
    return len(buffer.getvalue())


def numbers(ax, layout_) -> list[int]:
    """The devices that the texts in the cells say."""
    found = [t.get_text() for t in ax.texts if t.get_color() == "#1F2328"]
    return sorted(n for text in found for n in expand(text))


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_device_is_drawn_once_and_can_be_read(case):
    cut = layout(*case)
    ax = drawn(cut)
    assert numbers(ax, cut) == list(range(cut.mesh.size))
    assert min((t.get_fontsize() for t in ax.texts), default=9) >= 5.5
    assert max(ax.figure.get_size_inches()) <= 14
    assert ax.get_label() == describe(build_scene(cut)) or "2048" in ax.get_label() or cut.mesh.size == 64
    assert save(ax) > 1000


def test_the_axes_given_are_drawn_on_and_returned():
    figure = Figure(figsize=(8, 4))
    left, right = figure.subplots(1, 2)
    assert drawn(layout(*CASES["matrix"]), left) is left
    assert plot(sv.cost(report(), "tpu v5p:4x4x4"), right) is right
    assert save(left) > 1000
    assert show((8,), ("data",), "data=2").plot(left) is left


def test_small_axes_merge_cells_and_say_so():
    ax = Figure(figsize=(3, 2)).subplots()
    cut = layout(*CASES["2048 in a square"])
    drawn(cut, ax)
    assert numbers(ax, cut) == list(range(2048))
    assert any("neighbouring shards" in t.get_text() for t in ax.texts)


@pytest.mark.parametrize("dark", [False, True])
def test_the_bars_along_the_sides_have_their_axes_colour_and_hatch(dark):
    ax = drawn(layout(*CASES["matrix"]), dark=dark)
    for name, colour in axis_colours("data=8,model=8").items():
        fill = matplotlib.colors.to_rgba(colour.dark if dark else colour.light)
        (bars,) = (c for c in ax.collections if len(c.get_facecolor()) and tuple(c.get_facecolor()[0]) == fill)
        (hatched,) = (c for c in ax.collections if c.get_hatch() == colour.hatch)
        assert len(bars.get_paths()) == 8
        assert [p.vertices.tolist() for p in bars.get_paths()] == [p.vertices.tolist() for p in hatched.get_paths()]
        assert any(name in t.get_text() for t in ax.texts)


def test_titles_may_hold_dollars():
    mesh = DeviceMesh(("$a_{", "b"), (2, 2))
    assert save(drawn(layout((8, 8), ("$a_{", "b"), mesh), title="$x^{")) > 1000
    assert save(plot(sv.cost(report(mesh=DeviceMesh(("$a_{", "b$"), (8, 8))), "tpu v5p:4x4x4"))) > 1000


def test_a_change_has_both_maps_and_what_moves():
    shown = show((64, 64), ("a", None), "a=4,b=2", after=(None, "b"), dtype="bfloat16")
    ax = shown.plot()
    texts = [t.get_text() for t in ax.texts]
    assert {"before: P('a', None)", "after: P(None, 'b')", "0-1", "6-7", "0,2,…,6", "1,3,…,7"} <= set(texts)
    said = " ".join(" ".join(texts).split())
    assert "all-gather over a" in said and "devices 0-7: 1.02 kB kept, 3.07 kB received, 1.02 kB dropped" in said
    assert ax.get_label() == f"Before: {describe(build_scene(shown.before.layout))} After: " + describe(
        build_scene(shown.after.layout)
    )
    assert save(ax) > 1000
    given = Figure(figsize=(9, 4)).subplots()
    assert shown.plot(given, dark=True) is given and save(given) > 1000


def test_the_two_maps_of_a_change_do_not_overlap():
    shown = show((8192, 4096), ("a", "b"), "a=8,b=8", after=("b", "a"))
    ax = shown.plot()
    left, right = tiles(picture(shown))
    assert max(x + wide for x, _, wide, _ in left.boxes) < min(right.x)
    assert max(ax.figure.get_size_inches()) <= 26


@pytest.mark.parametrize(("copies", "cards"), [(1, 1), (2, 2), (3, 3), (64, 3)])
def test_copies_are_stacked_cards(copies, cards):
    found = tiles(picture(Shown(layout((8, 8), ("a",), {"a": 2, "b": copies}))))
    assert len(found) == cards
    assert (found[0].x > found[-1].x) == (cards > 1), "the first card is drawn last"


@pytest.mark.parametrize(
    ("spec", "label", "dotted"),
    [
        ("{manual}", "0 / 1 / 2 / 3", True),
        (Spec((("a",), ()), ("b",)), "0 + 1", True),
        ("{maximal device=3}", "3", False),
        (("a", None), "0-1", False),
    ],
)
def test_what_is_no_copy_looks_and_reads_another_way(spec, label, dotted):
    ax = drawn(layout((8, 8), spec, "a=2,b=2"))
    assert label in [text.get_text() for text in ax.texts]
    assert (ax.collections[0].get_linestyle()[0][1] is not None) == dotted
