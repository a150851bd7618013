"""An export that carries its VJP is differentiated as the function is; and what JAX says to a call of an export."""

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.compat.export_files import load
from shardviz.errors import TraceError

pytestmark = pytest.mark.long


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


MESH, SPECS = "data=2,model=4", (P(None, "model"), P("data"))


def fn(w, x):
    h = jax.lax.with_sharding_constraint(jnp.tanh(x @ w), P("data", "model"))
    return {"y": h, "n": x.sum().astype(int)}


def file(platforms=("cpu",), vjp_order=1, mesh=MESH):
    traced = sv.trace(fn, array(8, 16), array(4, 8))
    return traced.export(sv.Plan(mesh, SPECS), platforms=platforms, vjp_order=vjp_order)


@pytest.mark.parametrize("platforms", [("cpu",), ("tpu",), ("cuda", "cpu")])
def test_its_gradient_is_a_program_like_the_functions(platforms):
    loss = sv.trace(lambda w, x: (fn(w, x)["y"] ** 2).sum(), array(8, 16), array(4, 8))
    plan = sv.Plan(MESH, SPECS)
    exported = load(loss.export(plan, platforms=platforms, vjp_order=1)).program()
    ours, theirs = exported.grad((0, 1)), loss.grad((0, 1))
    assert ours.arguments == theirs.arguments
    report, expected = ours.partition(plan), theirs.partition(plan)
    cut = lambda r: [(o.name, o.shape, o.spec) for o in r.outputs]  # noqa: E731
    assert cut(report) == cut(expected)
    assert report.cost and expected.cost and expected.cost.dot_flops <= report.cost.dot_flops
    assert report.cost.dot_flops <= 4 / 3 * expected.cost.dot_flops, "the forward pass may be computed once more"
    summed = lambda r: {(c.axes, c.shape) for c in r.collectives if c.kind == "all-reduce"}  # noqa: E731
    assert summed(report) == summed(expected)
    with pytest.raises(TraceError, match=r"exported without its VJP, which vjp_order=1"):
        load(loss.export(plan)).program().grad()


@pytest.mark.parametrize("exported_for", [1, 2, 4, 8])
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_a_mesh_that_jax_refuses_to_call_it_on_is_remarked(exported_for, devices):
    fn = jax.jit(lambda x: x * 2)
    mesh = lambda n: jax.sharding.AbstractMesh((n,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))  # noqa: E731
    given = lambda n: jax.ShapeDtypeStruct((8,), "float32", sharding=NamedSharding(mesh(n), P("d")))  # noqa: E731
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
