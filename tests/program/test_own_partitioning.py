"""Operations that say themselves how they are partitioned: explored as what they compute, and the report says so."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import Spec

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


@functools.partial(custom_partitioning, static_argnums=(1,))
def moments(x, scale):
    """Two results, an argument that is static, and no rule."""
    return {"mean": x.mean(1) * scale, "square": (x * x).sum(1)}


def _is_never_called(*_):
    raise AssertionError("a partition function was called")


moments.def_partition(partition=_is_never_called)


def scanned(x):
    return jax.lax.scan(lambda c, _: (softmax(c * 2), None), x, None, length=3)[0]


def warnings(report):
    return [d for d in report.diagnostics if d.rule == "own-partitioning"]


@pytest.mark.parametrize(
    ("fn", "plain"),
    [
        (scanned, lambda x: jax.lax.scan(lambda c, _: (jax.nn.softmax(c * 2), None), x, None, length=3)[0]),
        (lambda x: moments(x, 3.0), lambda x: {"mean": x.mean(1) * 3.0, "square": (x * x).sum(1)}),
    ],
)
def test_both_levels_have_what_it_computes_and_say_so(fn, plain):
    plan = sv.Plan(MESH, P("data", "model"))
    program, other = sv.trace(fn, ARRAY), sv.trace(plain, ARRAY)
    for level in ("propagate", "partition"):
        report, same = getattr(program, level)(plan), getattr(other, level)(plan)
        moved = [[(c.kind, c.axes, c.shape, c.count) for c in r.collectives] for r in (report, same)]
        assert moved[0] == moved[1] and report.cost.dot_flops == same.cost.dot_flops
        assert [o.spec for o in report.outputs] == [o.spec for o in same.outputs]
        (finding,) = warnings(report)
        assert finding.severity == "warning" and "what it makes is not known" in finding.text
        assert finding.source.file == __file__ and not warnings(same)


def test_one_device_and_a_shard_map_over_the_whole_mesh_leave_nothing_to_partition():
    assert not warnings(sv.trace(scanned, ARRAY).propagate(sv.Plan({"data": 1}, P("data"))))
    for axes in ({"data", "model"}, {"data"}):
        fn = jax.shard_map(softmax, in_specs=P("data"), out_specs=P("data"), axis_names=axes)
        report = sv.trace(lambda x, fn=fn: fn(x), ARRAY).propagate(sv.Plan(MESH, P("data")))
        assert bool(warnings(report)) == (axes == {"data"})


def test_the_persons_function_runs_afterwards_with_its_own_partitioning():
    sv.trace(scanned, ARRAY).propagate(sv.Plan(MESH, P("data")))
    x = jnp.arange(32.0).reshape(2, 16)
    assert jnp.allclose(jax.jit(softmax)(x), jax.nn.softmax(x))


def scaled():
    a = jax.ShapeDtypeStruct((1, 128, 256), jnp.float8_e4m3fn)
    scale = jax.ShapeDtypeStruct((1, 128, 8), jnp.float8_e8m0fnu)
    return sv.trace(lambda *args: jax.nn.scaled_matmul(*args), a, a, scale, scale)


def test_a_scaled_product_is_explored_or_refused_by_its_name_and_line():
    """The oldest JAX lowers it for GPUs only, to a kernel without a rule, whose result Shardy leaves whole."""
    rows, columns = P(None, "data"), P(None, "model")
    plan = sv.Plan(MESH, (rows, columns, rows, columns))
    try:
        report = scaled().propagate(plan)
    except sv.errors.TraceError as error:
        assert "at test_own_partitioning.py" in str(error) and "scaled_matmul" in str(error)
        return
    is_kernel = any("is its lowering for cuda" in d.text for d in report.diagnostics)
    assert report.outputs[0].spec.same_as(Spec.of(P() if is_kernel else P(None, "data", "model")), report.mesh)
    (finding,) = warnings(report)
    assert "scaled_matmul" in finding.text and finding.source.file == __file__


@pytest.mark.cuda
def test_a_scaled_product_compiles_for_a_gpu():
    rows, columns = P(None, "data"), P(None, "model")
    report = scaled().compile(sv.Plan(MESH, (rows, columns, rows, columns)), "gpu h100:1x8")
    assert warnings(report) and report.outputs[0].shape == (1, 128, 128)
