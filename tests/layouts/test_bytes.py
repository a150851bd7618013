"""Bytes add up, for one array and for a tree of them."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from shardviz.layouts import Layout, TreeBytes, TreeLeaf, add_up, itemsize, layout
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.record import Sharding
from tests.layouts.test_layout import layouts

MESH = {"data": 8, "model": 4}


def tree_bytes(leaves, mesh=None) -> TreeBytes:
    """The bytes of a tree: path → (shape, type, sharding)."""
    return add_up(TreeLeaf.of(name, layout(shape, cut, mesh), dtype) for name, (shape, dtype, cut) in leaves.items())


@settings(max_examples=200)
@given(layouts())
def test_all_devices_together_hold_their_shards(cut: Layout):
    leaf, tree = TreeLeaf.of("x", cut, "bfloat16"), add_up([TreeLeaf.of("x", cut, "bfloat16")])
    assert tree.total == leaf.per_device * int(np.count_nonzero(cut.holds)) and tree.array == leaf.array
    assert tree.total >= leaf.array


def test_a_tree():
    tree = tree_bytes(
        {
            "params['embed']": ((32000, 4096), "bfloat16", ("model", None)),
            "params['w']": ((4096, 4096), "float32", ("data", "model")),
            "params['bias']": ((4096,), "float32", ()),
            "step": ((), "int32", ()),
        },
        MESH,
    )
    sizes = [32000 * 4096 * 2 // 4, 4096 * 4096 * 4 // 32, 4096 * 4, 4]
    assert tree.per_device.tolist() == [sum(sizes)] * 32 and tree.total == 32 * sum(sizes)


def test_an_array_on_one_device_weighs_on_that_one_only():
    mesh = DeviceMesh(("x",), (4,), (), (3, 2, 1, 0))
    tree = tree_bytes({"a": ((8,), "int8", Sharding.on_one(1, mesh, 1)), "b": ((8,), "int8", ("x",))}, mesh)
    assert dict(zip(tree.device_ids.tolist(), tree.per_device.tolist(), strict=True)) == {3: 2, 2: 10, 1: 2, 0: 2}


def test_leaves_on_other_devices_are_added_up_device_by_device():
    meshes = [DeviceMesh(("x",), (2,), (), (7, 3)), DeviceMesh(("x",), (4,), (), (0, 3, 7, 9))]
    leaves = {str(m.size): ((8,), "int8", Sharding.from_spec(Spec((("x",),)), m, 1)) for m in meshes}
    tree = tree_bytes(leaves)
    assert dict(zip(tree.device_ids.tolist(), tree.per_device.tolist(), strict=True)) == {7: 6, 3: 6, 0: 2, 9: 2}
    assert (tree.total, tree.array) == (16, 16)


def test_a_leaf_whose_type_is_not_known_counts_nothing():
    tree = add_up([TreeLeaf.of("a", layout((8,), (), MESH)), TreeLeaf.of("b", layout((8,), (), MESH), "int8")])
    assert tree.per_device.tolist() == [8.0] * 32
    assert (tree.leaves[0].array, tree.leaves[0].per_device) == (0, 0)


def test_an_empty_tree_weighs_nothing():
    tree = tree_bytes({}, MESH)
    assert tree.total == 0 and not np.any(tree.per_device)


@pytest.mark.parametrize("name", [n for n in dir(ml_dtypes) if n.startswith(("float", "int", "uint", "bfloat"))])
def test_bits_of_small_types_are_those_of_their_library(name):
    info = ml_dtypes.iinfo if "int" in name else ml_dtypes.finfo
    assert itemsize(name) == info(getattr(ml_dtypes, name)).bits / 8


@pytest.mark.parametrize("name", ["bool", *np.typecodes["AllInteger"], "e", "f", "d", "F", "D"])
def test_bytes_of_numpys_types_are_numpys(name):
    assert itemsize(np.dtype(name)) == np.dtype(name).itemsize


@pytest.mark.parametrize("name", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_bytes_of_jaxs_keys_are_jaxs(name):
    dtype = jax.random.key(0, impl=name).dtype
    assert itemsize(dtype) == itemsize(str(dtype)) == TreeLeaf.of("key", layout((), (), MESH), dtype).array
    assert itemsize(dtype) == dtype.itemsize == 4 * jax.random.key_data(jax.random.key(0, impl=name)).size
