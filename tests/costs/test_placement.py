"""Devices stand where JAX's own mesh_utils puts them; each mesh axis rides on the links that it rides on."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import random

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from jax.experimental import mesh_utils

from shardviz.costs.chips import chip
from shardviz.costs.collective import collective_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement, device_order, groups_along, placement
from shardviz.costs.routes import exchange_load, ring_load, route
from shardviz.errors import MeshError, TargetError
from shardviz.notation import DeviceMesh
from tests.costs.machines import Device, factorings, jax_devices, placed

# What mesh_utils learnt between jax 0.10 and 0.12: v5p's kind is "TPU v5", a tpu7x's two devices come first.
NEWER = ("v5p:2x2x2", "tpu7x:")
SLICES = [
    *("v2:2x2", "v2:4x4", "v3:4x8", "v4:2x2x1", "v4:2x2x2", "v4:4x2x2", "v4:2x4x4", "v4:4x4x4", "v5e:1x1", "v5e:2x2"),
    *(
        "v5e:2x4",
        "v5e:4x2",
        "v5e:4x4",
        "v5e:4x8",
        "v4:4x4x12",
        "v5e:8x8",
        "v5e:8x16",
        "v6e:16x16",
        "v5p:2x2x2",
        "v5p:4x4x4",
    ),
    *("v5p:4x4x8", "v5p:8x8x8", "tpu7x:2x2x1", "tpu7x:2x2x4", "tpu7x:2x4x4", "tpu7x:4x4x4"),
]


def known(text: str) -> bool:
    return not text.startswith(NEWER) or tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 12)


def ids(devices: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda device: device.id, otypes=[int])(devices)


@pytest.mark.parametrize("text", [text for text in SLICES if known(text)])
def test_the_order_is_mesh_utils(text: str):
    machine = Machine.of(f"tpu {text}")
    devices = jax_devices(machine)
    shapes = [sizes for count in (1, 2, 3, 4) for sizes in factorings(machine.size, count)]
    chosen = [(32, 2, 3), (16, 4, 3)] if text == "v4:4x4x12" else []  # a later axis of the torus split between two
    for sizes in chosen + random.Random(text).sample(shapes, min(100 if machine.size <= 32 else 12, len(shapes))):
        theirs = mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
        assert np.array_equal(device_order(machine, sizes), ids(theirs)), sizes


@pytest.mark.parametrize(
    ("text", "sizes", "slices"),
    [
        ("v5e:4x4*2", (4, 4), (2, 1)),
        ("v5e:4x4*2", (4, 4), (1, 2)),
        ("v4:4x4x4*4", (16, 4), (4, 1)),
        ("v4:4x4x4*4", (4, 16), (2, 2)),
        ("v5p:2x4x4*3", (2, 16), (3, 1)),
    ],
)
def test_several_slices_are_laid_out_as_by_create_hybrid_device_mesh(
    text: str, sizes: tuple[int, ...], slices: tuple[int, ...]
):
    machine = Machine.of(f"tpu {text}")
    theirs = mesh_utils.create_hybrid_device_mesh(sizes, slices, jax_devices(machine), allow_split_physical_axes=True)
    whole = [n * s for n, s in zip(sizes, slices, strict=True)]
    assert np.array_equal(device_order(machine, whole, slices), ids(theirs))
    mesh = DeviceMesh.of({name: (s, n) for name, n, s in zip("ab", sizes, slices, strict=True)})
    assert placement(mesh, machine).order == tuple(ids(theirs).ravel().tolist())


def test_gpus_are_counted_through():
    machine = Machine.of("gpu h100:2x8")
    theirs = mesh_utils.create_device_mesh((4, 4), jax_devices(machine))
    assert np.array_equal(device_order(machine, (4, 4)), ids(theirs))


def test_slices_run_through_the_first_axes_if_nobody_says():
    place = placement(DeviceMesh.of("data=8,model=4"), Machine.of("tpu v5e:4x4*2"))
    assert [path.route.slices for path in place.paths] == [2, 1]
    assert place.machine.slices()[list(place.order)].tolist() == [0] * 16 + [1] * 16


@pytest.mark.parametrize(
    ("mesh", "target", "said"),
    [
        ("a=8", "tpu v5e:4x4", "a mesh of 8 is 8 devices, but tpu v5e:4x4 has 16; make the axes' product 16"),
        ("a=4,b=2 devices=[2,4]T(1,0)", "tpu v5e:4x4", "is 8 devices, but tpu v5e:4x4 has 16"),
        ("a=2*8", "tpu v5e:4x4", "the mesh runs through 2 slices, but tpu v5e:4x4 has 1"),
        ("a=2 devices=[7,9]", "gpu h100:1x2", "has no device 7; its ids are"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(mesh: str, target: str, said: str):
    with pytest.raises(TargetError, match=said):
        placement(DeviceMesh.of(mesh), Machine.of(target))


def test_the_meshs_own_order_is_kept():
    machine = Machine.of("tpu v5e:4x4")
    turned = placement(DeviceMesh.of("y=4,x=4 devices=[4,4]T(1,0)"), machine)
    at = machine.coords()[list(turned.order)][:, :2].reshape(4, 4, 2)
    assert turned.chosen
    assert (at[:, 0, 0] == range(4)).all() and (at[0, :, 1] == range(4)).all()
    assert turned.device_ids() == tuple(np.arange(16).reshape(4, 4).T.ravel().tolist())


def test_a_mesh_of_the_machines_own_devices_keeps_their_order():
    """A `jax.sharding.Mesh` of TPUs in the order of their ids is not taken for one that says no order."""

    class Mesh:
        axis_names, axis_sizes, axis_types = ("a",), (16,), ()

        def __init__(self, platform: str):
            kind = "TPU v5 lite"
            self.devices = np.array([Device(i, (0, 0, 0), 0, 0, 0, kind, platform) for i in range(16)], dtype=object)

    machine = Machine.of("tpu v5e:4x4")
    assert Placement.of(Mesh("tpu"), machine).device_ids() == tuple(range(16))
    assert Placement.of(Mesh("cpu"), machine) == placement(DeviceMesh.of("a=16"), machine)


@pytest.mark.parametrize(
    ("mesh", "target", "paths"),
    [
        ("X=4,Y=4,Z=4", "tpu v4:4x4x4", ["ring of 4 along z", "ring of 4 along y", "ring of 4 along x"]),
        ("data=4,model=16", "tpu v4:4x4x4", ["ring of 4 along z", "ring of 4 along x, ring of 4 along y"]),
        ("X=16,Y=8", "tpu v5e:8x16", ["ring of 16 along y", "line of 8 along x"]),
        ("a=4,b=4", "tpu v5e:4x4", ["line of 4 along y", "line of 4 along x"]),
        ("a=4,b=2,c=2", "tpu v5e:4x4", ["line of 4 along y", "line of 2 along x, 2 hops apart", "line of 2 along x"]),
        ("a=8", "tpu v5e:2x4", ["line of 2 along x, line of 4 along y"]),
        (
            "a=4,b=4",
            "tpu tpu7x:2x2x2",
            ["no block of the torus: neighbours up to 3 hops apart", "line of 2 along x, 2 devices of a chip"],
        ),
        ("a=8,b=4", "gpu h100:4x8", ["4 NVLink domains over the network", "4 in an NVLink domain"]),
        ("a=2,b=16", "gpu h100:4x8", ["", "8 in an NVLink domain, 2 NVLink domains over the network"]),
        ("a=2*2,b=8", "tpu v5e:4x4*2", ["2 slices over DCN", ""]),
    ],
)
def test_what_each_axis_rides_on(mesh: str, target: str, paths: list[str]):
    place = placement(DeviceMesh.of(mesh), Machine.of(target))
    for path, wanted in zip(place.paths, paths, strict=True):
        assert wanted in str(path), str(place)


def test_which_axes_cross_hosts():
    place = placement(DeviceMesh.of("a=4,b=2,c=2"), Machine.of("tpu v5e:4x4"))
    assert [path.route.hosts for path in place.paths] == [2, 2, 1]
    assert [path.route.neighbours for path in place.paths] == [True, False, True]


def test_places_that_are_not_evenly_spaced_share_the_links_between_them():
    """0, 1, 4, 5 of a line of 8, and 2, 3, 6, 7: both groups pass the link from 3 to 4."""
    place = placement(DeviceMesh.of("a=2,b=8,c=2"), Machine.of("tpu v5e:8x4"))
    found = place.route(("a", "c"))
    assert str(found) == "line of 4 along x, up to 3 hops apart"
    assert (found.regular, found.even, found.neighbours) == (True, False, False)
    assert found.legs[0].links == 0.5


def test_devices_of_a_chip_do_not_make_places_share_more():
    """As above, with two devices a chip: a group has one of each chip, or both."""
    both = Machine(dataclasses.replace(chip("v3"), name="v3 of two axes"), (8, 4))
    x, y, core = both.coords()[:, 0], both.coords()[:, 1], both.coords()[:, 3]
    outer, inner = np.isin(x, (0, 1, 4, 5)), np.isin(x, (2, 3, 6, 7))
    one = [
        np.flatnonzero(where & (y == row) & (core == c)) for where in (outer, inner) for row in range(4) for c in (0, 1)
    ]
    two = [np.flatnonzero(where & (y == row)) for where in (outer, inner) for row in range(4)]
    assert [route(both, groups).legs[0].links for groups in (one, two)] == [0.5, 0.5]
    assert [route(both, groups).on_chip for groups in (one, two)] == [1, 2]


@pytest.mark.skipif(not known("tpu7x:2x2x2"), reason="this JAX lays the devices otherwise")
def test_groups_that_are_no_block_of_the_torus_pay_for_their_hops():
    """mesh_utils puts the devices of a small tpu7x slice along a ring of its own."""
    found = placement(DeviceMesh.of("a=4,b=4"), Machine.of("tpu tpu7x:2x2x2")).route(("a",))
    assert (found.regular, found.even, found.neighbours) == (False, False, False)
    assert (found.hops, found.load) == (3, 4)


@settings(max_examples=300)
@given(placed())
def test_blocks_of_the_torus_load_their_links_as_counted(given_: tuple[Machine, DeviceMesh, tuple[str, ...]]):
    """A leg's bandwidth is what is left of a link when the messages of all groups are counted on every link."""
    machine, mesh, axes = given_
    place = placement(mesh, machine)
    found, groups = place.route(axes), place.groups(axes)
    if machine.chip.kind != "tpu" or found.size == 1 or not found.even or found.slices > 1 or found.chips == 1:
        return
    sharing = machine.chip.devices_per_chip // found.on_chip
    if len(found.legs) == 1 and found.on_chip == 1:
        along = machine.coords()[groups][:, :, "xyz".index(found.legs[0].axis)]
        in_line = np.take_along_axis(groups, along.argsort(axis=1), axis=1)
        assert ring_load(machine, in_line)[0] == pytest.approx(2 * sharing / found.legs[0].links)
    if found.size <= 64:
        counted = exchange_load(machine, groups)
        assert counted is not None
        across = [
            (g.size // 2) * (g.size - g.size // 2) / g.size**2 / (found.chips / g.size * g.links) for g in found.legs
        ]
        assert counted[0] / found.size**2 == pytest.approx(max(across) * sharing)


@settings(max_examples=300)
@given(placed())
def test_every_device_stands_in_one_place_and_one_group(given_: tuple[Machine, DeviceMesh, tuple[str, ...]]):
    machine, mesh, axes = given_
    place = placement(mesh, machine)
    assert sorted(place.order) == list(range(machine.size))
    groups = place.groups(axes)
    assert sorted(groups.ravel().tolist()) == list(range(machine.size))
    at = mesh.coordinates()[np.argsort(place.order)]
    others = [i for i, name in enumerate(mesh.names) if name not in axes]
    assert (at[groups][:, :, others] == at[groups][:, :1, others]).all()


@pytest.mark.parametrize(
    ("axes", "said"),
    [(("z",), "has no axis 'z'; it has a=4"), (("a", "a"), "named twice"), ((("a", 3, 2),), "has no axis")],
)
def test_axes_that_the_mesh_has_not_are_refused(axes: tuple, said: str):
    with pytest.raises(MeshError, match=said):
        groups_along(axes, DeviceMesh.of("a=4"))


@pytest.mark.parametrize("target", ["tpu v5p:4x4x8", "tpu v5e:8x16", "gpu h100:16x8"])
def test_what_was_reckoned_once_is_what_a_new_placement_gives(target: str):
    """And it cannot be written to; nor does it grow without end."""
    place = Placement.of("data=16,model=8", target)
    kinds = ("all-gather", "all-reduce", "all-to-all", "collective-permute")
    axes = (("data",), ("model",), ("data", "model"), (("data", 4, 4),))
    for _ in range(2):
        for kind, over, nbytes in itertools.product(kinds, axes, (1e3, 1e9)):
            new = dataclasses.replace(place)
            assert collective_seconds(kind, nbytes, over, place, target) == collective_seconds(
                kind, nbytes, over, new, target
            )
            assert place.route(over) == new.route(over) and (place.groups(over) == new.groups(over)).all()
        for nbytes in range(4200):
            collective_seconds("all-gather", nbytes, "data", place, target)
    with pytest.raises(ValueError, match="read-only"):
        place.groups(("data",))[0, 0] = 1
    assert len(place._memo) <= 4096
    assert place == dataclasses.replace(place) == pickle.loads(pickle.dumps(place))
