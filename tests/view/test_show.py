"""`show` takes whatever has a sharding, and says what is missing."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardviz.errors import ShardvizError, SpecError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.read import Sharding
from shardviz.notation.tiling import Tiling
from shardviz.paint.columns import text_width
from shardviz.paint.theme import paint_of
from shardviz.records import Value
from shardviz.view.show import Shown, ShownTree, show
from tests.view.sample import MESH, report, value
from tests.view.sanitizer import read, words


def test_a_shape():
    shown = show((8192, 4096), ("data", "model"), MESH)
    assert isinstance(shown, Shown)
    assert repr(shown) == shown.text()
    assert shown._repr_mimebundle_() == {"text/plain": shown.text(), "text/html": shown.html()}
    assert set(shown._repr_mimebundle_(exclude={"text/html"})) == {"text/plain"}


def test_a_size_and_a_list_are_shapes():
    assert show(16, ("data",), "data=4").layout.shard_shape == (4,)
    assert show([16, 2], ("data",), {"data": 4}).layout.shard_shape == (4, 2)
    assert show((np.int64(16), 2), ("data",), {"data": 4}).layout.shard_shape == (4, 2)


def test_no_spec_is_replicated():
    assert show((16,), mesh="data=4").layout.replicas == 4


def test_a_value_of_a_report():
    r = report()
    shown = show(r.value("params['wq']"), mesh=r.mesh)
    assert shown.text().startswith("params['wq'] bfloat16, 1.05 MB per device\n[8192, 4096] P('data',")
    assert "params['wq'] bfloat16, 1.05 MB per device" in words(shown.html())


def test_values_of_a_report_are_a_tree():
    r = report()
    shown = show(list(r.arguments), mesh=r.mesh)
    assert isinstance(shown, ShownTree)
    assert [s.title for s in shown.leaves] == ["params['wq']", "x"] and shown.chosen is None
    assert shown.bytes.per_device.tolist() == [sum(v.bytes_per_device for v in r.arguments)] * 64
    assert show(r.value("dot.1"), mesh=r.mesh, after=()).moves.steps[0].kind == "all-gather"
    assert show(r.value("x"), (), r.mesh).layout.replicas == 64


def test_a_value_that_the_report_says_nothing_about():
    r, unknown = report(), Value(name="y", shape=(8,), dtype="float32", spec=None)
    assert show([unknown, value("x", (8,), "int8", ())], mesh=r.mesh).left_out == ("[0]",)
    with pytest.raises(SpecError, match=r"show\(y\): its sharding is not known yet: the report does not say"):
        show(unknown, mesh=r.mesh)


def test_a_value_inside_a_shard_map_is_an_array_of_each_device():
    inside = Value(
        name="y",
        shape=(4, 6),
        dtype="float32",
        spec=Spec.of((None, "model")),
        shard_shape=(4, 3),
        bytes_per_device=48,
        manual=("data",),
    )
    for one in (inside, dataclasses.replace(inside, sharding={"hlo": "{unknown}"})):
        shown = show(one, mesh="data=2,model=2")
        assert (shown.layout.manual, shown.layout.shard_shape) == (("data",), (4, 3))
        assert "0 / 2" in shown.text() and "manual over data" in shown.text()
    alone = dataclasses.replace(inside, spec=None, shard_shape=(4, 6), manual=("data", "model"))
    assert "0 / 1 / 2 / 3" in show(alone, mesh="data=2,model=2").text()


def test_a_spec_given_overrides_the_values_own():
    assert show(value("w", (64, 64), "float32", ("data",)), (None, "data"), MESH).layout.shard_shape == (64, 8)


def test_anything_with_a_named_sharding():
    array = SimpleNamespace(
        shape=(8, 6), dtype=SimpleNamespace(name="int4"), sharding=SimpleNamespace(spec=("x",), mesh={"x": 2})
    )
    shown = show(array)
    assert shown.layout.shard_shape == (4, 6)
    assert "int4, 12 B per device" in shown.text()


def test_a_value_whose_sharding_no_spec_says():
    value = Value(
        name="y", shape=(8, 8), dtype="float32", spec=None, sharding={"hlo": "{devices=[8,1]0,3,1,2,4,7,5,6}"}
    )
    shown = show(value, mesh="x=8")
    assert shown.layout.spec is None
    assert "not a PartitionSpec" in shown.text() and "run along no axes of the mesh x=8" in shown.text()
    assert "not a PartitionSpec" in words(shown.html()) and "8, sharded 8 ways" in words(shown.html())


def test_one_device_that_holds_everything_is_no_copy():
    shown = show((8, 6), "{maximal device=5}", "data=4,model=2")
    for text in (shown.text(), words(shown.html())):
        assert "all on device 5" in text and "device 5 holds all of it; 7 other devices hold nothing" in text
        assert "0-7" not in text and "PartitionSpec" not in text
    assert "2px solid" in shown.html()


def test_what_jax_does_with_an_uneven_cut_is_said():
    shown = show((17, 4), ("data", None), "data=8", dtype="float32")
    wanted = (
        "JAX refuses this for an argument: dimension 0 is 17, not divisible by 8 (16 or 24 would be). For a result "
        "it silently uses P(None, None): 272 B on each device instead of 48 B, 1.90 kB of copies in all."
    )
    assert wanted in " ".join(shown.text().split()) and wanted in words(shown.html())
    assert "68 elements on each device instead of 12 elements" in show((17, 4), ("data",), "data=8").text(300)
    assert "JAX" not in show((16, 4), ("data",), "data=8").text()
    assert max(map(len, shown.text(60).splitlines())) <= 60


def test_a_silent_copy_is_said_in_the_figure_too():
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_rgba

    ax = show((17, 4), ("data", None), "data=8", dtype="float32").plot()
    text = " ".join(t.get_text().replace("\n", " ") for t in ax.texts)
    assert "(16 or 24 would be)" in text and "272 B on each device instead of 48 B, 1.90 kB of copies in all" in text
    quiet = to_rgba(paint_of("quiet", False))
    over = [tuple(c.get_edgecolor()[0]) for c in ax.collections if c.get_hatch()]
    assert quiet in over, "the padding is hatched"


def test_a_scalar_on_seven_devices():
    shown = show((), (), {"x": 7}, dtype="int32")
    assert "│ 0-6 ×7 │" in shown.text() and "each slice is on 7 devices" in words(shown.html())
    assert read(shown.html()).titles == ["[] on devices 0-6"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((8,),), ShardvizError, r"show\(\[8\]\): a shape alone does not say.*give a mesh"),
        ((report().value("x"),), ShardvizError, r"show\(x\): a report's value does not carry its mesh"),
        (("wq", None, MESH), ShardvizError, "expected a shape such as .*, not str wq"),
        (((8, "a"), None, MESH), ShardvizError, "expected a shape"),
        ((SimpleNamespace(shape=(8,), sharding=SimpleNamespace()),), ShardvizError, "SimpleNamespace, which has no"),
        (((8,), ("nowhere",), MESH), SpecError, "the mesh has no axis 'nowhere'"),
        (((8,), "{devices=[3]<=[3]}", MESH), ShardvizError, "64"),
        (((8,), "{devices=[", MESH), ShardvizError, "devices"),
        (((8,), ("data",)), ShardvizError, "how many devices its axes have; give a mesh"),
        ((object(),), ShardvizError, "expected a shape"),
        ((None,), ShardvizError, "expected a shape"),
        (({},), ShardvizError, "expected a shape"),
    ],
)
def test_what_is_missing_is_said(arguments, error, message):
    with pytest.raises(error, match=message):
        show(*arguments)


@given(st.text("{}[]<=>()0123 devices,replicated'dxmesh#sdy.·_?:", max_size=40), st.integers(0, 3))
@settings(max_examples=150)
def test_garbage_gives_an_error_of_ours_or_a_drawing(text, rank):
    try:
        shown = show((4,) * rank, text, "x=2,d=2")
    except ShardvizError:
        return
    read(shown.html())
    assert max(map(text_width, shown.text().splitlines())) <= 80


@st.composite
def tilings(draw):
    """Any tile assignment, on a mesh whose axes may have nothing to do with it, and a shape."""
    rank, groups = draw(st.integers(0, 5)), draw(st.integers(0, 2))
    sizes = st.lists(st.sampled_from((1, 1, 2, 3, 4)), min_size=rank + groups, max_size=rank + groups)
    dims = draw(sizes.filter(lambda d: math.prod(d) <= 64))
    kinds = draw(st.lists(st.sampled_from(("replicated", "manual", "unreduced")), min_size=groups, max_size=groups))
    count = math.prod(dims)
    devices = draw(st.permutations(range(count))) if draw(st.booleans()) else range(count)
    rows = 2 if count % 2 == 0 else 1
    mesh = DeviceMesh(("a", "b"), (rows, count // rows))
    shape = draw(st.lists(st.sampled_from((1, 2, 5, 24)), min_size=rank, max_size=rank))
    return tuple(shape), Sharding.from_tiling(Tiling(tuple(dims), tuple(kinds), tuple(devices)), mesh)


@given(tilings(), st.sampled_from((50, 80, 120)))
@settings(max_examples=60)
def test_whatever_the_sharding_it_is_drawn_within_its_bounds(case, width):
    shape, cut = case
    shown = show(shape, cut, dtype="bfloat16")
    text = shown.text(width)
    assert max(map(len, text.splitlines())) <= width
    assert text == show(shape, cut, dtype="bfloat16").text(width)
    read(shown.html())
    alike = shown.layout.partial_sums == shown.layout.manual_count == 1
    text = " ".join(text.split())
    assert ("partial sums" in text) == (shown.layout.partial_sums > 1)
    assert alike or "each slice is on" not in text


def test_copies_along_a_part_of_a_mesh_axis_are_said():
    """Two tiles on eight devices: the four of a tile are those along model, and half of those along data."""
    shown = show((8, 8), "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "data=4,model=2")
    assert "each slice is on 4 devices, along model and 2 of 4 along data" in shown.text()
