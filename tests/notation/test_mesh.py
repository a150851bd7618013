"""Meshes: text, dicts and JAX's objects, orders of devices, processes."""

import dataclasses
import types

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, Mesh

import shardviz as sv
from shardviz.notation import DeviceMesh
from tests.notation.cases import meshes


@dataclasses.dataclass(frozen=True)
class Device:
    id: int
    process_index: int
    slice_index: int


@st.composite
def any_mesh(draw):
    """Any names, sizes, types, order of devices, and slices: blocks, blocks numbered otherwise, or no blocks at all."""
    odd = st.sampled_from(
        ["mesh<", "Mesh(", "mesh", "devices", "slices", "a=1", "it's", "\\", "a b", " ", "2*3", "x:Auto"]
    )
    names = draw(st.lists(st.one_of(st.text(min_size=1, max_size=6), odd), max_size=3, unique=True))
    pairs = [(draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([1, 2, 3, 4]))) for _ in names]
    kinds = tuple(draw(st.sampled_from(["Auto", "Explicit", "Manual"])) for _ in names)
    plain = DeviceMesh.of(dict(zip(names, pairs, strict=True)))
    order = draw(st.sampled_from(["no", "any", "turned", "other ids"]))
    count, ids, slices = plain.size, (), plain.slice_ids
    if order == "any":
        ids = tuple(draw(st.permutations(range(count))))
    elif order == "turned":
        ids = tuple(np.arange(count).reshape(plain.sizes or (1,)).T.ravel().tolist())
    elif order == "other ids":
        ids = tuple(7 + 3 * i for i in range(count))
    if slices and draw(st.booleans()):
        slices = tuple(draw(st.sampled_from([lambda s: 90 - s, lambda s: 2 * s + 1]))(s) for s in slices)
    elif draw(st.booleans()):
        slices = tuple(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    in_order = ids == tuple(range(count)) or (not ids and draw(st.booleans()))
    return DeviceMesh(plain.names, plain.sizes, kinds, ids, slice_ids=slices, in_order=in_order)


@settings(max_examples=300)
@given(any_mesh())
def test_text_reads_back_exactly(mesh):
    again = DeviceMesh.of(mesh.text)
    assert again == mesh and hash(again) == hash(mesh) and again.text == mesh.text
    assert (again.types, again.device_ids, again.slice_ids) == (mesh.types, mesh.device_ids, mesh.slice_ids)
    assert again.in_order == mesh.in_order
    if mesh.dcn is not None:  # blocks: a place's slice is known from where it is along each axis
        blocks = {}
        for at, number in zip(mesh.coordinates().tolist(), mesh.slices().tolist(), strict=True):
            key = tuple(a // (n // f) for a, n, f in zip(at, mesh.sizes, mesh.dcn, strict=True))
            assert blocks.setdefault(key, number) == number
        assert len(set(blocks.values())) == len(blocks) == np.prod(mesh.dcn, dtype=int)


@given(meshes(permuted=True))
def test_round_trips(mesh):
    plain = DeviceMesh(mesh.names, mesh.sizes)
    assert DeviceMesh.of(str(mesh)) == plain == DeviceMesh.of(mesh.shape)
    types_ = tuple(AxisType[t] for t in mesh.types)
    assert DeviceMesh.of(AbstractMesh(mesh.sizes, mesh.names, axis_types=types_)) == plain
    assert sorted(mesh.ids().tolist()) == list(range(mesh.size))


@given(st.lists(st.sampled_from(["Auto", "Explicit", "Manual"]), max_size=3))
def test_what_jax_prints_is_read_back(kinds):
    names, sizes = tuple("abc"[: len(kinds)]), (1,) * len(kinds)
    types_ = tuple(AxisType[kind] for kind in kinds)
    concrete = Mesh(np.array(jax.devices()[:1]).reshape(sizes), names, axis_types=types_)
    for theirs in (AbstractMesh(sizes, names, axis_types=types_), concrete):
        for text in (str(theirs), repr(theirs)):
            assert DeviceMesh.of(text) == DeviceMesh(names, sizes, tuple(kinds))


@settings(max_examples=50)
@given(any_mesh())
def test_to_jax_and_back(mesh):
    devices = np.empty(mesh.size, object)
    devices[:] = [Device(i, 0, number) for i, number in zip(mesh.ids().tolist(), mesh.slices().tolist(), strict=True)]
    kinds = tuple(AxisType[kind] for kind in mesh.types)
    theirs = Mesh(devices.reshape(mesh.sizes), mesh.names, axis_types=kinds)
    # a JAX mesh always has an order, so that 0, 1, 2, ... is not said by it
    assert DeviceMesh.of(theirs) == dataclasses.replace(mesh, in_order=False)
    assert theirs.axis_names == mesh.names
    assert DeviceMesh.of(sv.mesh(mesh)) == DeviceMesh(mesh.names, mesh.sizes, mesh.types)


WRITTEN = [  # text, sizes, types, devices, slices
    ("data=8,model=4", (8, 4), ("Auto", "Auto"), (), ()),
    (" data = 8 , model=4 ,", (8, 4), ("Auto", "Auto"), (), ()),
    ("data=8,model=4:Explicit", (8, 4), ("Auto", "Explicit"), (), ()),
    ("data=2 : manual", (2,), ("Manual",), (), ()),
    ("data=2,model=2 devices=[0,1,3,2]", (2, 2), ("Auto", "Auto"), (0, 1, 3, 2), ()),
    ("data=2,model=2, devices = [2,2]T(1,0)", (2, 2), ("Auto", "Auto"), (0, 2, 1, 3), ()),
    ("devices=2", (2,), ("Auto",), (), ()),
    ("devices=2 devices=[1,0]", (2,), ("Auto",), (1, 0), ()),
    ("data=2*2,model=1", (4, 1), ("Auto", "Auto"), (), (0, 0, 1, 1)),
    ("data=2 * 1,model=2*2:Explicit", (2, 4), ("Auto", "Explicit"), (), (0, 0, 1, 1, 2, 2, 3, 3)),
    ("data=4 slices=[0,1,0,1]", (4,), ("Auto",), (), (0, 1, 0, 1)),
    ("data=4 devices=[3,2,1,0] slices=[7,7,7,7]", (4,), ("Auto",), (3, 2, 1, 0), ()),
    ("'a=1'=2,\"it's\"=2", (2, 2), ("Auto", "Auto"), (), ()),
    ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0))", (2, 2), ("Auto", "Auto"), (0, 2, 1, 3), ()),
    ("mesh['a'=2,'b'=2], device_ids=(3,2,1,0)", (2, 2), ("Auto", "Auto"), (3, 2, 1, 0), ()),
    ('#sdy.mesh<["a"=2, "b"=2], device_ids=[3, 2, 1, 0]>', (2, 2), ("Auto", "Auto"), (3, 2, 1, 0), ()),
    ("Mesh('a': 2, 'b': 2, axis_types=(Auto, Explicit))", (2, 2), ("Auto", "Explicit"), (), ()),
    ("Mesh(axis_sizes=(2,), axis_names=('a',), axis_types=(Auto,))", (2,), ("Auto",), (), ()),
    ("AbstractMesh((), axis_types=())", (), (), (), ()),
    ("", (), (), (), ()),
]


@pytest.mark.parametrize(("text", "sizes", "kinds", "devices", "slices"), WRITTEN)
def test_text(text, sizes, kinds, devices, slices):
    mesh = DeviceMesh.of(text)
    assert (mesh.sizes, mesh.types, mesh.device_ids, mesh.slice_ids) == (sizes, kinds, devices, slices)
    assert DeviceMesh.of(mesh.text) == mesh


REFUSED = [
    ("data=8;model=4", "expected axes as 'name=size'"),
    ("data=8 model=4", "expected axes as 'name=size'"),
    ("data=2*3*4", "expected axes as 'name=size'"),
    ("data=2x8", "'data=2*8' for 2 slices of 8"),
    ("data=0*2", "two whole numbers of 1 or more"),
    ("data=8:Eager", "expected Auto, Explicit or Manual"),
    ("data=2,data=2", "give each axis its own name"),
    ("data=99999,model=99999", "at most 131072"),
    ("Mesh('a': 2, axis_kinds=(Auto,))", "axis_sizes=, axis_names= or axis_types=, each once"),
    ("Mesh('a': 2", "at its end"),
    ("devices=[0,1]", "1 places need 1 different device ids, not 2"),
    ("data=2 devices=[0,1],model=2", "write it before"),
    ("data=2 devices=[0]", "need 2 different device ids, not 1"),
    ("data=2 devices=[0,0]", "need 2 different device ids, not 1"),
    ("data=2 devices=[0,,1]", "whole numbers with commas"),
    ("data=2 devices=[0,1] devices=[0,1]", "once, behind the axes"),
    ("data=4 devices=[2,2]T(0,0)", "is not a transposed count"),
    ("data=4 slices=[0,1]", "need 4 slice ids, not 2"),
    ("data=2*2 slices=[0,0,1,1]", "both give the slices"),
    ("mesh['a'=2", "expected ',' or ']'"),
    ({"data": (2, 3, 4)}, "expected (slices, devices within a slice)"),
    ({"data": (2, 0)}, "expected (slices, devices within a slice)"),
    ({"data": (1 << 12, 1 << 12)}, "at most"),
    *((nothing, "") for nothing in ("x", ",", "x=0", "=2", "x=-1", 3, None, {"x": 1.5}, {1: 2})),
]


@pytest.mark.parametrize(("given_", "message"), REFUSED)
def test_what_is_refused_and_why(given_, message):
    with pytest.raises(sv.errors.MeshError) as caught:
        DeviceMesh.of(given_)
    assert message in str(caught.value)


def test_devices_in_any_order_keep_their_ids():
    devices = np.array([types.SimpleNamespace(id=i) for i in (0, 4, 1, 5, 2, 6, 3, 7)])
    fake = types.SimpleNamespace(axis_names=("x", "y"), axis_sizes=(4, 2), devices=devices.reshape(4, 2))
    mesh = DeviceMesh.of(fake)
    assert mesh.device_ids == (0, 4, 1, 5, 2, 6, 3, 7)
    assert mesh == DeviceMesh(("x", "y"), (4, 2), (), mesh.device_ids)
    real = DeviceMesh.of(Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("x", "y")))
    assert real.device_ids == () and real.sizes == (1, 1)
    with pytest.raises(sv.errors.MeshError, match="need 4 slice ids"):
        DeviceMesh(("x",), (4,), slice_ids=(0, 1))
    for ids in ((0, "1"), (0, -1), (0, 1.5), (0, (1,)), (0, None), ((0, 1), (2, 3)), (True, False), (1 << 80, 0)):
        with pytest.raises(sv.errors.MeshError, match="whole numbers of 0 or more"):
            DeviceMesh(("x",), (2,), (), ids)
