"""Real machines' device orders: what JAX's `mesh_utils` lays, a `DeviceMesh` keeps, device by device.

The cases are those of JAX's tests/mesh_utils_test.py, derived again: a TPU slice's devices are numbered along x, then
y, then z, the cores of a chip first, and each host has a 2 x 2 x 1 block of chips.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import MeshError, SpecError
from shardviz.notation import NOTATIONS, DeviceMesh, Sharding
from tests.notation.cases import shardings


@dataclasses.dataclass(frozen=True)
class Chip:
    """A device that is not there, with what `mesh_utils` asks a TPU's device for."""

    id: int
    process_index: int
    coords: tuple[int, int, int]
    core_on_chip: int
    slice_index: int
    device_kind: str
    platform: str = "tpu"


def chips(bounds, kind, cores=1, slices=1):
    x_size, y_size, z_size = bounds
    found = []
    for number, (piece, z, y, x, core) in enumerate(
        itertools.product(range(slices), range(z_size), range(y_size), range(x_size), range(cores))
    ):
        host = np.ravel_multi_index((piece, z, y // 2, x // 2), (slices, z_size, -(-y_size // 2), -(-x_size // 2)))
        found.append(Chip(number, int(host), (x, y, z), core, piece, kind))
    return sorted(found, key=lambda c: (c.process_index, c.coords[::-1], c.core_on_chip))


def named(array):
    return Mesh(array, tuple("abcdef"[: array.ndim]))


def check(array):
    """The record has JAX's devices in JAX's order, with each one's slice, and layouts agree with JAX's."""
    mesh = DeviceMesh.of(named(array))
    flat = list(array.flat)
    assert mesh.sizes == array.shape
    assert mesh.ids().tolist() == [c.id for c in flat]
    assert mesh.slices().tolist() == [c.slice_index for c in flat]
    again = DeviceMesh.of(mesh.text)
    assert again == mesh and again.slice_ids == mesh.slice_ids
    names, shape = mesh.names, (4 * mesh.size, 2 * mesh.size)
    for spec in (P(names), P(names[-1], names[0]) if len(names) > 1 else P(None, names), P(None, names[::-1])):
        theirs = NamedSharding(named(array), spec).devices_indices_map(shape)
        ours = sv.layout(shape, spec, mesh)
        for device, index in theirs.items():
            assert [i.indices(n)[:2] for i, n in zip(index, shape, strict=True)] == [
                i.indices(n)[:2] for i, n in zip(ours.index(device.id), shape, strict=True)
            ]
    return mesh


RINGS = [  # MeshUtilsTest.test_v3_create_device_mesh; for v5e and v5p the rings that mesh_utils' handlers document
    ("TPU v3", (2, 2, 1), 2, (8,), [0, 1, 2, 3, 6, 7, 4, 5]),
    ("TPU v3", (2, 2, 1), 2, (2, 4), [[0, 1, 2, 3], [6, 7, 4, 5]]),
    ("TPU v2", (2, 2, 1), 2, (4, 2), [[0, 1], [2, 3], [6, 7], [4, 5]]),
    ("TPU v5 lite", (2, 2, 1), 1, (4,), [0, 1, 3, 2]),
    ("TPU v5 lite", (2, 2, 1), 1, (2, 2), [[0, 1], [3, 2]]),
    ("TPU v5 lite", (4, 2, 1), 1, (8,), [0, 1, 2, 3, 7, 6, 5, 4]),
    ("TPU v5 lite", (4, 4, 1), 1, (16,), [0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4]),
    ("TPU v5 lite", (4, 4, 1), 1, (4, 4), np.arange(16).reshape(4, 4).tolist()),
]


@pytest.mark.parametrize(("kind", "bounds", "cores", "shape", "ids"), RINGS)
def test_rings(kind, bounds, cores, shape, ids):
    array = mesh_utils.create_device_mesh(shape, devices=chips(bounds, kind, cores))
    mesh = check(array)
    assert mesh.ids().reshape(mesh.sizes).tolist() == ids
    if math.prod(shape) == max(shape):  # a ring: each chip is the next one's neighbour, the last one the first's
        for one, two in itertools.pairwise([*array.flat, array.flat[0]]):
            assert sum(abs(a - b) for a, b in zip(one.coords, two.coords, strict=True)) <= 1


def test_rings_of_each_tray():
    """test_v3_create_device_mesh, 4x4 chips as 4 x 8: the tray's ring order within each group of eight."""
    array = mesh_utils.create_device_mesh((4, 8), devices=chips((4, 4, 1), "TPU v3", 2), contiguous_submeshes=False)
    mesh = check(array)
    assert mesh.ids().reshape(4, 8)[0].tolist() == [0, 1, 2, 3, 10, 11, 8, 9]
    assert mesh.ids().reshape(4, 8)[3].tolist() == [20, 21, 22, 23, 30, 31, 28, 29]


TORUS = [  # test_create_device_mesh_for_nd_torus: the chips' x, y, z that each mesh axis runs through, major to minor
    ((2, 2, 1), (1, 1, 4), ((), (), (0, 1, 2))),
    ((2, 2, 4), (1, 4, 4), ((), (2,), (0, 1))),
    ((4, 4, 4), (1, 16, 4), ((), (1, 2), (0,))),
    ((4, 4, 8), (1, 16, 8), ((), (0, 1), (2,))),
    ((4, 4, 8), (1, 8, 16), ((), (2,), (0, 1))),
    ((4, 4, 8), (16, 8, 1), ((0, 1), (2,), ())),
    ((4, 8, 8), (1, 32, 8), ((), (0, 2), (1,))),
    ((8, 8, 8), (1, 64, 8), ((), (1, 2), (0,))),
]


@pytest.mark.parametrize(("bounds", "shape", "axes"), TORUS)
def test_axes_of_a_torus(bounds, shape, axes):
    array = mesh_utils.create_device_mesh(shape, devices=chips(bounds, "TPU v4"))
    mesh = check(array)
    x, y, z = (mesh.ids() % bounds[0], mesh.ids() // bounds[0] % bounds[1], mesh.ids() // (bounds[0] * bounds[1]))
    for column, physical in enumerate(axes):
        at = np.zeros(mesh.size, np.int64)
        for axis in physical:
            at = at * bounds[axis] + (x, y, z)[axis]
        assert at.tolist() == mesh.coordinates()[:, column].tolist()


@pytest.mark.parametrize(
    ("shape", "slices", "text"),
    [  # test_create_hybrid_device_mesh: 2 slices of 4x4x4
        ((1, 16, 4), (2, 1, 1), "a=2*1,b=16,c=4"),
        ((1, 4, 16), (1, 2, 1), "a=1,b=2*4,c=16"),
        ((4, 16), (1, 2), "a=4,b=2*16"),
        ((1, 16, 4), (2, 2, 1), "a=2*1,b=2*16,c=4"),
    ],
)
def test_slices(shape, slices, text):
    """The mesh is ICI parallelism times DCN parallelism along each axis, the slices the major part."""
    count = math.prod(slices)
    array = mesh_utils.create_hybrid_device_mesh(shape, slices, devices=chips((4, 4, 4), "TPU v4", 1, count))
    mesh = check(array)
    assert mesh.dcn == slices and str(mesh) == text and mesh.slices_in_order
    assert mesh.sizes == tuple(np.multiply(shape, slices).tolist())
    planned = DeviceMesh.of(text)
    assert planned.slice_ids == mesh.slice_ids and planned.sizes == mesh.sizes
    assert planned == DeviceMesh.of(dict(zip("abc", zip(slices, shape, strict=True), strict=False)))
    # the same chip of every slice, one step of the DCN part apart
    axis = next(i for i, n in enumerate(slices) if n > 1)
    first, second = (array[(0,) * axis + (step,) + (0,) * (len(shape) - axis - 1)] for step in (0, shape[axis]))
    assert first.coords == second.coords and first.slice_index != second.slice_index


def test_slices_in_another_order():
    """`should_sort_granules_by_key=False` takes the slices as they come: blocks, but not numbered in order."""
    devices = sorted(chips((2, 2, 1), "TPU v4", 1, 2), key=lambda c: -c.slice_index)
    array = mesh_utils.create_hybrid_device_mesh((2, 2), (2, 1), devices=devices, should_sort_granules_by_key=False)
    mesh = check(array)
    assert mesh.dcn == (2, 1) and not mesh.slices_in_order
    assert mesh.text == "a=4,b=2 devices=[4,5,6,7,0,1,2,3] slices=[1,1,1,1,0,0,0,0]"


CONTIGUOUS = [  # test_create_contiguous_submeshes_for_tpu_v4
    ((2, 2, 1), (2, 2)), ((2, 2, 4), (4, 4)), ((4, 4, 4), (16, 4)), ((4, 8, 8), (64, 4)), ((4, 8, 8), (4, 64)),
    ((8, 8, 8), (64, 8)),
]  # fmt: skip


@pytest.mark.parametrize(("bounds", "shape"), CONTIGUOUS)
def test_a_host_has_a_block_of_the_mesh(bounds, shape):
    for more in ((), (1,)):
        array = mesh_utils.create_device_mesh(
            (*more, *shape, *more), devices=chips(bounds, "TPU v4"), contiguous_submeshes=True
        )
        mesh = DeviceMesh.of(named(array))
        hosts = np.array([c.process_index for c in array.flat])
        for host in np.unique(hosts):
            at = mesh.coordinates()[hosts == host]
            assert math.prod(at.max(0) - at.min(0) + 1) == 4 == len(at)
        # what the host holds of an array cut along every axis is one box, too
        cut = sv.layout((2 * shape[0], 3 * shape[1]), P(*mesh.names[len(more) : len(more) + 2]), mesh)
        for host in np.unique(hosts):
            rows = hosts == host
            box = math.prod(cut.stops[rows].max(0) - cut.starts[rows].min(0))
            assert box == 4 * math.prod(cut.shard_shape)


# What is written of a sharding over devices in any order puts the same on each device when it is read


def placement(cut: Sharding) -> dict[int, list[int]]:
    """The tile of each device, by the device's id."""
    return dict(zip(cut.mesh.ids().tolist(), cut.places().tolist(), strict=True))


def written(cut: Sharding):
    """Each notation and what it writes, where it can."""
    for notation in NOTATIONS:
        try:
            yield notation, cut.to(notation)
        except SpecError:
            continue


CUTS = shardings(parts=True, unreduced=True, manual=True, open=True, replicated=True)


@given(CUTS, st.randoms(use_true_random=False), st.booleans())
def test_text_read_over_its_mesh_puts_the_same_on_each_device(cut, random, by_id):
    ids = list(range(cut.mesh.size))
    random.shuffle(ids)
    cut = dataclasses.replace(cut, mesh=dataclasses.replace(cut.mesh, device_ids=tuple(ids), by_id=by_id))
    assert DeviceMesh.of(cut.mesh.text) == cut.mesh
    for notation, text in written(cut):
        again = sv.sharding(text, cut.mesh, cut.rank)
        assert placement(again) == placement(cut) and again.same_as(cut), (notation, text)


@given(CUTS, st.randoms(use_true_random=False))
def test_text_that_brings_its_mesh_along_is_written_with_its_devices(cut, random):
    """Read without a mesh, written, and read without one again, and over the mesh that it brought."""
    try:
        named = cut.to("hlo-v3")
    except SpecError:
        return
    ids = list(range(cut.mesh.size))
    random.shuffle(ids)
    first = sv.sharding(named.replace("], [", f"], device_ids=({','.join(map(str, ids))}), [", 1))
    assert placement(first) == dict(zip(ids, cut.places().tolist(), strict=True))
    for notation, text in written(first):
        over = sv.sharding(text, first.mesh, first.rank)
        assert placement(over) == placement(first) and over.same_as(first), (notation, text)
        try:
            again = sv.sharding(text, rank=first.rank)
        except MeshError as error:  # it names axes, or says of all devices the same: there is no mesh in it
            assert "give" in str(error) and (notation in ("pspec", "short", "book", "sdy") or first.kind != "other")
            continue
        assert placement(again) == placement(first) and again.same_as(first), (notation, text)


def test_copies_of_partial_sums_stay_copies_of_each_other():
    """Device 3 holds a copy of device 0's term, and 2 of 1's, which no axis of the devices in order says."""
    first = sv.sharding("{mesh['x'=2,'y'=2], device_ids=(0,1,3,2), [{}], unreduced={'y'}}")
    assert first.to("hlo-v1") == "{devices=[1,2,2]0,1,3,2 last_tile_dims={replicated, unreduced}}"
    again = sv.sharding(first.to("hlo-v1"))
    assert again.same_as(first) and again.spec is None


def test_all_on_one_device_by_its_number():
    mesh = DeviceMesh.of("x=2,y=2 numbers=[0,2,1,3]")
    for text in ("{maximal device=2}", "#sdy.sharding<@maximal_mesh_2, []>"):
        cut = sv.sharding(text, mesh, 1)
        assert str(cut) == "all on device 2" and cut.maximal == 1
        for _, again in written(cut):
            assert str(sv.sharding(again, mesh, 1)) == "all on device 2"
    assert sv.sharding("{mesh['x'=2,'y'=2], device_ids=(0,2,1,3), [{'x'}, {}]}").to("hlo-v3") == (
        "{mesh['x'=2,'y'=2], device_ids=(0,2,1,3), [{'x'}, {}]}"
    )
