"""Meshes: text, dicts and JAX's objects, orders of devices, processes."""

import types

import jax
import numpy as np
import pytest
from hypothesis import given
from jax.sharding import AbstractMesh, AxisType, Mesh

import shardviz as sv
from shardviz.notation import DeviceMesh
from tests.notation.cases import meshes


@given(meshes(permuted=True))
def test_round_trips(mesh):
    plain = DeviceMesh(mesh.names, mesh.sizes)
    assert DeviceMesh.of(str(mesh)) == plain == DeviceMesh.of(mesh.shape)
    types_ = tuple(AxisType[t] for t in mesh.types)
    assert DeviceMesh.of(AbstractMesh(mesh.sizes, mesh.names, axis_types=types_)) == plain
    assert sorted(mesh.ids().tolist()) == list(range(mesh.size))


def test_devices_and_their_processes():
    """A mesh in any device order keeps ids and processes place by place."""
    devices = np.array([types.SimpleNamespace(id=i, process_index=i // 4) for i in (0, 4, 1, 5, 2, 6, 3, 7)])
    fake = types.SimpleNamespace(axis_names=("x", "y"), axis_sizes=(4, 2), devices=devices.reshape(4, 2))
    mesh = DeviceMesh.of(fake)
    assert mesh.device_ids == (0, 4, 1, 5, 2, 6, 3, 7) and mesh.process_ids == (0, 1) * 4
    assert mesh == DeviceMesh(("x", "y"), (4, 2), (), mesh.device_ids)
    real = DeviceMesh.of(Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("x", "y")))
    assert real.process_ids == (jax.devices()[0].process_index,)
    with pytest.raises(sv.MeshError, match="need 4 process ids"):
        DeviceMesh(("x",), (4,), (), (), (0, 1))


@pytest.mark.parametrize("text", ["x", "x=0", "x=2,x=2", "=2", "x=-1", "x=2;y=2", 3, None, {"x": 1.5}, {1: 2}])
def test_what_is_no_mesh(text):
    with pytest.raises(sv.MeshError):
        DeviceMesh.of(text)
