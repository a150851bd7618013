"""What an export is for, its devices and platforms, and what JAX says to a call of it elsewhere."""

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.compat.export_files import load

pytestmark = pytest.mark.long


MESH, SPECS = "data=2,model=4", (P(None, "model"), P("data"))


def fn(w, x):
    h = jax.lax.with_sharding_constraint(jnp.tanh(x @ w), P("data", "model"))
    return {"y": h, "n": x.sum().astype(int)}


def file(platforms=("cpu",)):
    mesh = sv.mesh(MESH)
    given = zip(((8, 16), (4, 8)), SPECS, strict=True)
    arrays = [jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec)) for shape, spec in given]
    with jax.sharding.use_abstract_mesh(mesh):
        return export.export(jax.jit(fn), platforms=platforms)(*arrays)


@pytest.mark.parametrize("exported_for", [1, 2, 4, 8])
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_a_mesh_that_jax_refuses_to_call_it_on_is_remarked(exported_for, devices):
    fn = jax.jit(lambda x: x * 2)
    mesh = lambda n: jax.sharding.AbstractMesh((n,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    given = lambda n: jax.ShapeDtypeStruct((8,), "float32", sharding=NamedSharding(mesh(n), P("d")))
    found = export.export(fn)(given(exported_for))
    try:
        jax.jit(found.call).trace(given(devices)).lower(lowering_platforms=("cpu",))
        refused = ""
    except ValueError as error:
        refused = str(error)
    assert not refused or f"exported for {exported_for} devices and is called in a context with {devices}" in refused
    program = load(found).program()
    report = program.propagate(program.plan(f"d={devices}"))
    remarks = [d.text for d in report.diagnostics if d.rule == "exported-devices"]
    assert len(remarks) == bool(refused)
    assert all(f"exported for {exported_for} devices, and the mesh d={devices}" in r for r in remarks)


@pytest.mark.parametrize(
    ("platforms", "target", "said"),
    [
        (("cpu",), "cpu", ""),
        (("tpu",), "cpu", "exported for tpu and not for cpu"),
        pytest.param(("tpu",), "tpu v5e:2x4", "", marks=pytest.mark.tpu),
        pytest.param(("cpu",), "tpu v5e:2x4", "exported for cpu and not for tpu", marks=pytest.mark.tpu),
        pytest.param(("tpu", "cpu"), "tpu v5e:2x4", "its code for cpu is explored", marks=pytest.mark.tpu),
        pytest.param(("tpu",), "gpu h100:1x8", "exported for tpu and not for cuda", marks=pytest.mark.cuda),
    ],
)
def test_the_platform_note_is_the_targets(platforms, target, said):
    program = load(file(platforms)).program()
    report = program.partition(program.plan(), target=target)
    notes = [d.text for d in report.diagnostics if d.rule == "other-platform"]
    assert len(notes) == bool(said) and all(said in note for note in notes)
