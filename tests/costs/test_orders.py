"""Other orders of a mesh's devices, against JAX's own mesh_utils, and the text that tells them apart."""

import numpy as np
import pytest
from jax.experimental import mesh_utils

from shardviz.costs.machine import Machine
from shardviz.costs.orders import MESH_UTILS, ROW_MAJOR, exchanged, reordered
from shardviz.costs.placement import Placement, placement
from shardviz.errors import MeshError, TargetError
from shardviz.notation import DeviceMesh
from tests.costs.machines import jax_devices


@pytest.mark.parametrize(
    ("text", "sizes", "pair"),
    [
        ("tpu v4:4x4x4", (16, 4), "ab"),
        ("tpu v4:4x4x4", (4, 2, 8), "ac"),
        ("tpu v5e:8x16", (8, 16), "ab"),
        ("tpu v5p:2x4x4", (2, 8, 2), "ab"),
        ("tpu tpu7x:2x2x2", (2, 8), "ab"),
        ("gpu h100:4x8", (4, 8), "ab"),
    ],
)
def test_exchanged_axes_stand_where_mesh_utils_puts_them_in_each_others_place(text, sizes, pair):
    machine = Machine.of(text)
    mesh = DeviceMesh(tuple("abc"[: len(sizes)]), sizes)
    i, j = ("abc".index(name) for name in pair)
    turned = list(sizes)
    turned[i], turned[j] = turned[j], turned[i]
    theirs = mesh_utils.create_device_mesh(turned, jax_devices(machine), allow_split_physical_axes=True)
    wanted = np.vectorize(lambda device: device.id)(theirs).swapaxes(i, j).ravel()
    found = placement(exchanged(mesh, machine, *pair), machine)
    assert found.order == tuple(wanted.tolist())
    assert placement(exchanged(found.mesh, machine, *pair), machine).order == found.order  # from the sizes alone
    assert (found.mesh.names, found.mesh.sizes) == (mesh.names, mesh.sizes)


@pytest.mark.parametrize("target", ["tpu v5e:1x1", "tpu v5p:1x1x1", "tpu v4:1x1x1", "gpu h100:1x1"])
@pytest.mark.parametrize("sizes", [(), (1,), (1, 1), (1, 1, 1, 1)])
def test_a_mesh_of_one_device_stands_on_a_machine_of_one(target, sizes):
    mesh = DeviceMesh(tuple("abcd"[: len(sizes)]), sizes)
    place = placement(mesh, Machine.of(target))
    assert place.order == (0,) and place.groups(mesh.names).tolist() == [[0]]
    assert [str(p.route) for p in place.paths] == ["one device"] * len(sizes)
    ordered = placement(reordered(mesh, ROW_MAJOR), Machine.of(target))
    assert ordered.order == (0,)


@pytest.mark.parametrize("text", ["tpu v5e:8x16", "tpu v5p:4x4x8", "tpu tpu7x:2x2x2", "gpu h100:16x8"])
def test_a_mesh_in_order_has_device_i_at_place_i(text):
    machine = Machine.of(text)
    mesh = reordered(DeviceMesh.of(f"a=8,b={machine.size // 8}"), ROW_MAJOR)
    assert placement(mesh, machine).device_ids() == tuple(range(machine.size))
    assert placement(mesh, machine).chosen and DeviceMesh.of(mesh.text) == mesh
    assert reordered(mesh, MESH_UTILS) == DeviceMesh.of(str(mesh)) != mesh


def test_in_order_is_another_placement_than_none_where_mesh_utils_differs():
    machine, none = Machine.of("tpu v5e:8x16"), DeviceMesh.of("data=8,model=16")
    listed = DeviceMesh.of("data=8,model=16 devices=[128]T(0)")
    assert listed.in_order and not listed.device_ids and listed != none
    ordered = Placement.of(listed, machine)
    assert ordered.order != Placement.of(none, machine).order
    assert [str(p.route) for p in ordered.paths] == [
        "ring of 8 along y, 2 hops apart",
        "line of 8 along x, line of 2 along y",
    ]


def test_slices_move_with_exchanged_axes():
    machine = Machine.of("tpu v5e:4x4*2")
    mesh = DeviceMesh.of("a=2*4,b=4")
    turned = placement(exchanged(mesh, machine, "a", "b"), machine)
    assert [p.route.slices for p in placement(mesh, machine).paths] == [2, 1]
    assert machine.slices()[list(turned.order)].tolist() == list(turned.mesh.slice_ids)
    assert [p.route.slices for p in turned.paths] == [2, 1]  # a brings its two slices along
    plain = placement(exchanged(DeviceMesh.of("a=8,b=4"), machine, "a", "b"), machine)
    assert [p.route.slices for p in plain.paths] == [1, 2]  # slices run through the first axis: that is b's place


@pytest.mark.parametrize(
    ("order", "ids"),
    [("3,2,1,0", (3, 2, 1, 0)), ("[0, 2, 1, 3]", (0, 2, 1, 3)), ("[2,2]T(1,0)", (0, 2, 1, 3)), ([1, 0, 3, 2], None)],
)
def test_an_order_is_read_as_text_or_numbers(order, ids):
    found = reordered(DeviceMesh.of("a=2,b=2"), order)
    assert found.device_ids == (ids or tuple(order))


@pytest.mark.parametrize("order", ["0,1,2", "0,0,1,2", "x", "[2,2]T(1,1)", "0,1,2,3,4"])
def test_what_is_no_order_of_the_devices_is_refused_with_what_would_do(order):
    with pytest.raises(MeshError, match=r"order .*Type mesh_utils, row-major, the ids of the 4 devices"):
        reordered(DeviceMesh.of("a=2,b=2"), order)


def test_what_cannot_be_exchanged_is_refused():
    mesh = DeviceMesh.of("a=2,b=2")
    with pytest.raises(TargetError, match="simulated devices have no links"):
        exchanged(mesh, Machine.of("cpu"), "a", "b")
    with pytest.raises(MeshError, match="no axis 'c'; it has 'a', 'b'"):
        exchanged(mesh, Machine.of("tpu v5e:2x2"), "a", "c")
    with pytest.raises(MeshError, match="in_order=True is 0, 1, 2"):
        DeviceMesh(("a",), (2,), device_ids=(1, 0), in_order=True)
