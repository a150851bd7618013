"""Code that evaluates, asks for its mesh's devices, or brings a second mesh: it traces as it does under `jax.jit`, or
the error names the cause."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import TraceError

X = jax.ShapeDtypeStruct((8, 16), jnp.float32)
PLAN = sv.Plan({"data": 2, "model": 4}, (P("data"),))
MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
ON_MESH = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(MESH, P("data")))


def evaluated(x):
    with jax.ensure_compile_time_eval():
        table = jnp.cos(jnp.arange(16.0)) + jax.random.normal(jax.random.key(0), (16,))
        positive = int((table > 0).sum())
    return x * np.asarray(table) if positive else x


def in_a_scan(x):
    return jax.lax.scan(lambda carried, _: (evaluated(carried), None), x, None, length=2)[0]


@pytest.mark.parametrize(
    "fn",
    [evaluated, jax.jit(evaluated), in_a_scan, jax.grad(lambda x: in_a_scan(x).sum())],
    ids=["", "jit", "scan", "grad"],
)
def test_what_is_evaluated_at_once_is_a_constant(fn):
    program = sv.trace(fn, X)
    report = program.propagate(PLAN)
    assert not report.collectives
    assert jnp.zeros(3).sum() == 0  # what is evaluated outside is as before


def placed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and older libraries read it
        from jax.interpreters.pxla import thread_resources

        return thread_resources.env.physical_mesh


def of_devices(x):
    mesh = placed()
    assert mesh.devices.shape == (2, 4) and mesh.devices.size == 8
    assert [d.id for d in mesh.devices.flat] == list(range(8)) == mesh.device_ids.flatten().tolist()
    assert len(mesh.local_devices) == 8 and not mesh.is_multi_process
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("model")))


def of_axes(x):
    return x * jax.sharding.get_abstract_mesh().shape["data"]


@pytest.mark.parametrize("fn", [of_devices, of_axes])
def test_code_that_asks_for_its_mesh_waits_for_the_plans(fn):
    assert sv.trace(fn, X).propagate(PLAN)


def fails(x):
    raise ValueError("the mesh configuration is wrong")


def wrong(x):
    return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P("expert")))


def bare(x):
    return jax.lax.with_sharding_constraint(x, P("data"))


@pytest.mark.parametrize(("fn", "stands"), [(fails, False), (wrong, False), (bare, True)])
def test_an_error_blames_the_mesh_around_where_that_is_the_cause(fn, stands):
    with pytest.raises(TraceError) as raised:
        sv.trace(fn, ON_MESH).plan()
    assert ("is not set around this call" in str(raised.value)) == stands


@pytest.mark.parametrize("within", ["jit", "constraint"])
def test_a_program_on_two_lists_of_devices_is_refused_as_by_jax(within):
    half = NamedSharding(AbstractMesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2), P("data"))
    inner = jax.jit(jnp.sin, in_shardings=half)
    if within == "constraint":
        inner = lambda x: jax.lax.with_sharding_constraint(x, half)
    with pytest.raises(TraceError, match=r"on the mesh data=2,model=4, .* the mesh data=2,model=2: JAX refuses"):
        sv.trace(lambda x: inner(x) * 2, ON_MESH).plan()
    sv.trace(lambda x: inner(x) * 2, X).propagate(sv.Plan({"data": 4, "model": 4}))  # all of it on another mesh
