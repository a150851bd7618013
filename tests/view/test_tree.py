"""Many arrays in one call: what they come to on each device."""

import re

import numpy as np
import pytest

from shardviz.errors import ShardvizError
from shardviz.layouts import layout
from shardviz.paint import html, text
from shardviz.records.amounts import format_number
from shardviz.view.show import Shown, ShownTree, show
from shardviz.view.subjects import picture
from tests.view.sanitizer import words

jax = pytest.importorskip("jax")
P = jax.sharding.PartitionSpec
MESH = jax.sharding.AbstractMesh((4, 2), ("data", "model"))


def leaf(shape, *spec, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=jax.sharding.NamedSharding(MESH, P(*spec)))


def params():
    return {
        "embed": leaf((1024, 64), "data", "model"),
        "blocks": [{"w": leaf((64, 64), None, "model"), "b": leaf((64,), dtype="bfloat16")} for _ in range(2)],
    }


def test_a_table_and_its_total():
    shown = show(params())
    assert isinstance(shown, ShownTree)
    assert [s.title for s in shown.leaves] == [
        "['blocks'][0]['b']", "['blocks'][0]['w']", "['blocks'][1]['b']", "['blocks'][1]['w']", "['embed']",
    ]  # fmt: skip
    each = 1024 * 64 * 4 / 8 + 2 * (64 * 64 * 4 / 2 + 128)
    assert shown.bytes_per_device == dict.fromkeys(range(8), each)
    assert [(each.name, each.count) for each in shown.groups] == [
        ("['blocks'][*]['b']", 2), ("['blocks'][*]['w']", 2), ("['embed']", 1),
    ]  # fmt: skip
    once = 1024 * 64 * 4 + 2 * (64 * 64 * 4 + 128)
    assert f"{format_number(8 * each / once)} copies of each byte" in shown.text()
    assert "the 3 maps show 5 arrays" in shown.text()
    page = words(shown.html())
    assert "['blocks'][*]['w'] 2 16.4 kB 2 float32 [64, 64]" in page
    assert "['embed'] 1 32.8 kB 8 float32 [1024, 64] [data, model] [256, 32]" in page
    assert "49.4 kB on each of 8 devices" in page


def test_a_leaf_can_be_chosen_and_a_wrong_name_is_said():
    assert show(params(), leaf="['blocks'][1]['w']").chosen.layout.shard_shape == (64, 32)
    with pytest.raises(ShardvizError, match=r"no leaf has this name; they are \"\['blocks'\]\[0\]"):
        show(params(), leaf="w")


def test_leaves_without_a_sharding_are_left_out_and_said():
    shown = show({"w": leaf((8,), "data"), "lr": 0.1, "host": np.ones(3)})
    assert set(shown.left_out) == {"['host']", "['lr']"}
    assert "left out, having no sharding: ['host'], ['lr']" in shown.text(200)
    with pytest.raises(ShardvizError, match=r"none of the 2 leaves has a sharding \(\['a'\]"):
        show({"a": np.ones(3), "b": np.ones(2)})


def test_specs_are_one_for_all_or_a_tree_of_them():
    tree = {"a": np.ones((8, 8)), "b": {"c": np.ones((8,)), "d": np.ones((16,))}}
    mesh = {"data": 4}
    assert [s.layout.shard_shape for s in show(tree, ("data",), mesh).leaves] == [(2, 8), (2,), (4,)]
    prefix = show(tree, {"a": (None, "data"), "b": P("data")}, mesh)
    assert [s.layout.shard_shape for s in prefix.leaves] == [(8, 2), (2,), (4,)]
    assert [s.layout.replicas for s in show(tree, None, mesh).leaves] == [4, 4, 4]
    with pytest.raises(ShardvizError, match="the tree of specs does not fit"):
        show(tree, {"a": P(), "x": P()}, mesh)


def test_devices_that_hold_different_amounts_are_said_apart():
    cuts = {"a": layout((8,), ("x",), {"x": 2}), "b": layout((8,), ("x",), {"x": 4})}
    leaves = tuple(Shown(cut, name, "int8") for name, cut in cuts.items())
    for said in (text(ShownTree(leaves)), words(html(ShownTree(leaves)))):
        assert "6 B on each of the devices 0-1, 2 B on each of the devices 2-3" in said
    many = tuple(Shown(layout((8 * n,), ("x",), {"x": n}), str(n), "int8") for n in range(1, 8))
    assert "8 B to 56 B on 7 devices" in text(ShownTree(many))


def test_many_leaves_are_cut_to_the_heaviest():
    tree = {f"w{i:03}": leaf((8 * (i + 1),), "data") for i in range(100)}
    shown = show(tree)
    assert "the 60 heaviest rows are listed; 40 more arrays not" in shown.text()
    assert "94 lighter arrays not drawn" in shown.text()
    assert "['w099']" in shown.text() and "['w039']" not in shown.text()
    assert len(re.findall("<tr", shown.html())) < 90


def test_hundreds_of_leaves_have_a_row_and_a_map_per_kind_of_layer():
    layer = {"wq": leaf((64, 64), "data", "model"), "wo": leaf((64, 64), "model", "data"), "norm": leaf((64,))}
    shown = show({"embed": leaf((1024, 64), "model"), "layers": [layer] * 200, "last": {"wq": leaf((64, 64))}})
    assert len(shown.leaves) == 602 and [each.count for each in shown.groups] == [1, 1, 200, 200, 200]
    assert len(shown.text().splitlines()) < 60 and len(shown.html()) < 40_000
    assert len(picture(shown).grids) == 5 and [key.text for key in picture(shown).keys] == ["data = 4", "model = 2"]
    assert shown.bytes_per_device[0] == 1024 * 64 * 4 / 2 + 200 * (2 * 64 * 64 * 4 / 8 + 256) + 64 * 64 * 4


def test_equal_names_with_other_shardings_are_not_one():
    layers = [leaf((64, 64), "data"), leaf((64, 64), "data"), leaf((64, 64), "model")]
    assert [(each.name, each.titles) for each in show({"w": layers}).groups] == [
        ("['w'][*]", ("['w'][0]", "['w'][1]")), ("['w'][2]", ("['w'][2]",)),
    ]  # fmt: skip
