"""Operations that say themselves how they are partitioned: explored as what they compute, with a warning."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import PartitionSpec as P

import shardviz as sv

MESH = {"data": 2, "model": 4}
ARRAY = jax.ShapeDtypeStruct((16, 64), jnp.float32)


@custom_partitioning
def softmax(x):
    return jax.nn.softmax(x)


softmax.def_partition(
    partition=lambda mesh, args, result: (mesh, jax.nn.softmax, result.sharding, tuple(a.sharding for a in args)),
    infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
    sharding_rule="i j -> i j",
)


def warnings(report):
    return [d for d in report.diagnostics if d.rule == "own-partitioning"]


@pytest.mark.parametrize("spec", [P("data"), P("data", "model")])
def test_it_is_what_it_computes_and_the_report_warns(spec):
    report = sv.trace(softmax, ARRAY).propagate(sv.Plan(MESH, spec))
    plain = sv.trace(lambda x: jax.nn.softmax(x), ARRAY).propagate(sv.Plan(MESH, spec))
    assert [(c.kind, c.axes) for c in report.collectives] == [(c.kind, c.axes) for c in plain.collectives]
    assert report.outputs[0].spec == plain.outputs[0].spec
    (warning,) = warnings(report)
    assert warning.severity == "warning" and "may differ from the run's" in warning.text
    assert not warnings(plain)


def test_one_device_runs_what_the_operation_computes():
    report = sv.trace(softmax, ARRAY).propagate(sv.Plan({"data": 1}, P("data")))
    assert not report.collectives and not warnings(report)


def test_the_persons_function_runs_afterwards_with_its_own_partitioning():
    sv.trace(softmax, ARRAY).propagate(sv.Plan(MESH, P("data")))
    x = jnp.arange(32.0).reshape(2, 16)
    assert jnp.allclose(jax.jit(softmax)(x), jax.nn.softmax(x))


def scaled():
    a = jax.ShapeDtypeStruct((1, 128, 256), jnp.float8_e4m3fn)
    scale = jax.ShapeDtypeStruct((1, 128, 8), jnp.float8_e8m0fnu)
    return sv.trace(lambda *args: jax.nn.scaled_matmul(*args), a, a, scale, scale)


def test_a_scaled_product_is_explored_or_refused_by_its_name_and_line():
    """The oldest JAX lowers it for GPUs only, to a kernel that Shardy does not look into."""
    rows, columns = P(None, "data"), P(None, "model")
    plan = sv.Plan(MESH, (rows, columns, rows, columns))
    try:
        report = scaled().propagate(plan)
    except sv.errors.TraceError as error:
        assert "at test_own_partitioning.py" in str(error) and "scaled_matmul" in str(error)
        return
    (warning,) = warnings(report)
    assert "scaled_matmul" in warning.text and warning.source.file == __file__
