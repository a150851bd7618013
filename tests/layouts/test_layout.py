"""Device → slice is JAX's own, on thousands of random meshes; uneven dimensions are cut as XLA cuts them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from shardviz.errors import MeshError, SpecError
from shardviz.layouts import Layout, layout
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.record import Sharding
from shardviz.notation.tiling import Tiling
from tests.layouts.conftest import Answers, given


def test_device_to_slice_is_jaxs(jax_answers: Answers):
    cases, at = jax_answers.cases["even"], 0
    assert len(cases) >= 10_000
    for case in cases:
        shape, spec, mesh = given(case)
        cut = layout(shape, spec, mesh)
        count = mesh.size * len(shape) * 2
        theirs = jax_answers.bounds[at : at + count].reshape(mesh.size, len(shape), 2)
        at += count
        assert np.array_equal(cut.starts, theirs[..., 0]) and np.array_equal(cut.stops, theirs[..., 1]), case
        assert cut.divides and not cut.padding.any()
        assert cut.device_ids.tolist() == case["devices"]
    assert at == len(jax_answers.bounds)


def test_replica_ids_are_jaxs(jax_answers: Answers):
    at = 0
    for case in jax_answers.cases["even"][:200]:
        cut = layout(*given(case))
        assert cut.replica_ids.tolist() == jax_answers.replicas[at : at + cut.mesh.size].tolist(), case
        at += cut.mesh.size
    assert at == len(jax_answers.replicas)


def test_uneven_shards_have_the_shape_that_xla_gives_them(jax_answers: Answers):
    at = padded = 0
    for case in jax_answers.cases["uneven"]:
        shape, spec, mesh = given(case)
        cut = layout(shape, spec, mesh)
        assert cut.shard_shape == tuple(jax_answers.tiles[at : at + len(shape)].tolist()), case
        at += len(shape)
        padded += bool(cut.padding.any())
        assert cut.divides or cut.padding.any()
    assert at == len(jax_answers.tiles) and padded > 300


def test_uneven_tile_assignment_of_xla():
    """XLA's hlo_sharding_test.cc, the tile assignment {{0, 3}, {2, 1}} of a (4, 5) array."""
    cut = layout((4, 5), ("x", "y"), DeviceMesh(("x", "y"), (2, 2), (), (0, 3, 2, 1)))
    assert cut.shard_shape == (2, 3)
    assert cut.index(0) == (slice(0, 2), slice(0, 3))
    assert cut.index(3) == (slice(0, 2), slice(3, 5))
    assert cut.index(2) == (slice(2, 4), slice(0, 3))
    assert cut.index(1) == (slice(2, 4), slice(3, 5))
    assert cut.padding.tolist() == [[0, 0], [0, 1], [0, 0], [0, 1]]


@st.composite
def layouts(draw, most: int = 12) -> Layout:
    """A layout of a small array: copies, partial sums, manual axes, parts of axes, permuted devices."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    rank = draw(st.integers(0, 3))
    atoms = [
        (f"a{i}", before, size)
        for i, whole in enumerate(sizes)
        for before, size in ([(1, 2), (2, 2)] if whole == 4 else [(1, whole)])
    ]
    dims: list[list] = [[] for _ in range(rank)]
    special: dict[str, list] = {"unreduced": [], "manual": []}
    for atom in draw(st.permutations(atoms)):
        where = draw(st.sampled_from([None, "unreduced", "manual", *range(rank)]))
        if where is not None:
            (special[where] if isinstance(where, str) else dims[where]).append(atom)
    names = tuple(f"a{i}" for i in range(len(sizes)))
    devices = draw(st.permutations(range(math.prod(sizes))))
    mesh = DeviceMesh(names, tuple(sizes), (), tuple(devices))
    spec = Spec(tuple(map(tuple, dims)), tuple(special["unreduced"]))
    shape = draw(st.lists(st.integers(0, most), min_size=rank, max_size=rank))
    return layout(shape, Sharding.from_spec(spec, mesh, rank, manual=tuple(special["manual"])))


@settings(max_examples=200)
@hypothesis_given(layouts())
def test_every_element_is_held_as_often_as_said(cut: Layout):
    held = np.zeros(cut.shape, int)
    for device in cut.device_ids.tolist():
        held[cut.index(device)] += 1
    assert (held == cut.replicas * cut.partial_sums * cut.manual_count).all()


@settings(max_examples=200)
@hypothesis_given(layouts())
def test_replicas_times_different_data_are_the_devices(cut: Layout):
    different = {
        (*tiles, partial, manual)
        for tiles, partial, manual in zip(
            map(tuple, cut.tiles.tolist()), cut.partial_ids.tolist(), cut.manual_ids.tolist(), strict=True
        )
    }
    assert len(different) * cut.replicas == cut.mesh.size
    assert len(different) == math.prod(cut.tile_counts) * cut.partial_sums * cut.manual_count
    assert np.bincount(cut.replica_ids).tolist() == [len(different)] * cut.replicas
    assert (cut.stops - cut.starts + cut.padding == cut.shard_shape).all()
    for device in cut.device_ids.tolist()[:4]:
        assert device in cut.holders(device) and len(cut.holders(device)) == cut.replicas


@pytest.mark.parametrize("kind", ["unreduced", "manual", "replicated"])
def test_subgroups_of_a_tile_assignment_are_what_they_are(kind: str):
    mesh = DeviceMesh.of({"x": 8})
    odd = Sharding.from_tiling(Tiling((2, 2, 2), (kind,), (0, 3, 1, 2, 7, 5, 6, 4)), mesh)
    cut = layout((8, 4), odd)
    assert cut.spec is None
    assert (cut.replicas, cut.partial_sums, cut.manual_count) == {
        "replicated": (2, 1, 1),
        "unreduced": (1, 2, 1),
        "manual": (1, 1, 2),
    }[kind]
    assert cut.index(0) == cut.index(3) == (slice(0, 4), slice(0, 2))
    assert cut.holders(0) == ((0, 3) if kind == "replicated" else (0,))


def test_on_one_device_the_others_hold_nothing():
    mesh = DeviceMesh(("x",), (4,), (), (7, 5, 3, 1))
    cut = layout((8, 4), Sharding.on_one(2, mesh, 2))
    assert cut.maximal and cut.holds.tolist() == [False, False, True, False]
    assert cut.index(3) == (slice(0, 8), slice(0, 4))
    assert cut.index(7) == (slice(0, 0), slice(0, 0))
    assert cut.elements.tolist() == [0, 0, 32, 0]
    assert cut.replica_ids.tolist() == [-1, -1, 0, -1] and cut.replicas == 1
    scalar = layout((), Sharding.on_one(1, mesh, 0))
    assert scalar.elements.tolist() == [0, 1, 0, 0]


def test_any_tile_assignment_is_cut_as_jax_cuts_it(jax_answers: Answers):
    """V1 text with devices in any order, most of which no PartitionSpec says, against JAX's `GSPMDSharding`."""
    at, nameless = 0, 0
    for case in jax_answers.cases["assigned"]:
        dims, devices, shape = case["dims"], case["devices"], tuple(case["shape"])
        text = f"{{devices=[{','.join(map(str, dims))}]{','.join(map(str, devices))}"
        text += " last_tile_dim_replicate}" if len(dims) > len(shape) else "}"
        cut = layout(shape, text, {"x": len(devices)})
        count = len(devices) * len(shape) * 2
        theirs = jax_answers.assigned[at : at + count].reshape(len(devices), len(shape), 2)
        at += count
        assert np.array_equal(cut.starts, theirs[..., 0]) and np.array_equal(cut.stops, theirs[..., 1]), text
        nameless += cut.spec is None
    assert at == len(jax_answers.assigned) and nameless > 300


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Spec((("x",), ()), ("x",)), "used by dimension 0 and by unreduced"),
        (Spec(((("x", 1, 3),), ())), "not a part of the axis 'x' of size 4"),
        (Spec(((("x", 1, 2),), (("x", 1, 2),))), "used by dimension 0 and by dimension 1"),
        (Spec(((), ()), ("z",)), "no axis 'z'; it has 'x', 'y'"),
    ],
)
def test_what_does_not_fit_is_refused(spec, words):
    with pytest.raises(SpecError, match=words):
        layout((8, 4), spec, {"x": 4, "y": 2})


def test_an_unknown_device_is_named():
    with pytest.raises(KeyError, match="no device 9"):
        layout((8,), ("x",), {"x": 4}).index(9)


def test_a_mesh_is_asked_for():
    with pytest.raises(MeshError):
        layout((8,), ("x",))
