"""Operations that say themselves how they are partitioned: asked as XLA's partitioner asks them."""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import compiler
from shardviz.notation import DeviceMesh, Spec
from tests.program import partitioned_programs as programs
from tests.truth import filled_once

MESH = {"data": 2, "model": 4}
ARRAY = jax.ShapeDtypeStruct((16, 64), jnp.float32)


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return filled_once(tmp_path_factory, Path(programs.__file__).with_name("partitioned_truth.py"), devices=8)


def said(report):
    return [d for d in report.diagnostics if d.rule == "own-partitioning"]


def moved(collectives):
    return sorted((c.kind, c.axes, c.shape, c.count) for c in collectives)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_both_levels_have_what_xlas_partitioner_makes(truth, name):
    fn, shapes, specs = programs.PROGRAMS[name]
    raw = compiler.parse((truth / f"{name}.txt").read_text())
    made = compiler.collectives(raw, DeviceMesh.of(MESH))
    ends = [Spec(tuple(map(tuple, entries))) for entries in json.loads((truth / f"{name}.json").read_text())]
    program, plan = sv.trace(fn, *shapes), sv.Plan(MESH, tuple(specs))
    for report in (program.propagate(plan), program.partition(plan)):
        assert moved(report.collectives) == moved(made)
        assert all(o.spec.same_as(end, report.mesh) for o, end in zip(report.outputs, ends, strict=True))
        assert {d.severity for d in said(report)} == {"note"}
        assert all("partition function was called here" in d.text for d in said(report))


def test_a_plan_that_cuts_otherwise_asks_again():
    """A product whose partition function sums itself, over the axis that the plan says."""
    fn, shapes, _ = programs.PROGRAMS["product"]
    program = sv.trace(fn, *shapes)
    for mesh in (MESH, {"data": 4, "model": 2}):
        for axis in mesh:
            report = program.propagate(sv.Plan(mesh, (P(None, axis), P(axis))))
            (found,) = report.collectives
            assert (found.kind, found.axes, found.origin, found.shape) == ("all-reduce", (axis,), "user", (16, 32))
            assert report.cost.dot_flops == 2 * 16 * 64 * 32 / mesh[axis]


def test_one_device_runs_what_the_operation_computes():
    report = sv.trace(programs.scanned, ARRAY).propagate(sv.Plan({"data": 1}, P("data")))
    assert not report.collectives and not said(report)


def test_the_persons_function_runs_afterwards_with_its_own_partitioning():
    sv.trace(programs.scanned, ARRAY).propagate(sv.Plan(MESH, P("data")))
    x = jnp.arange(32.0).reshape(2, 16)
    assert jnp.allclose(jax.jit(programs.softmax)(x), jax.nn.softmax(x))


def partitioned(partition, **options):
    @custom_partitioning
    def fn(x):
        return jnp.sin(x)

    fn.def_partition(partition=partition, sharding_rule="i j -> i j", **options)
    return fn


def _raises(mesh, args, result):
    raise KeyError("no such layout")


def _same(mesh, args, result):
    return mesh, jnp.sin, result.sharding, (args[0].sharding,)


def _half(mesh, args, result):
    return mesh, lambda x: x[:1], result.sharding, (args[0].sharding,)


def _spec(mesh, args, result):
    return mesh, jnp.sin, result.sharding.spec, (args[0].sharding,)


def _other(mesh, args, result):
    return jax.sharding.AbstractMesh((8,), ("all",)), jnp.sin, result.sharding, (args[0].sharding,)


def _seven(mesh, args, result):
    cut = NamedSharding(mesh, P(None, ("data", "model")))
    return mesh, jnp.sin, cut, (cut,)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (partitioned(_raises), "it raised KeyError: 'no such layout'"),
        (partitioned(_same, decode_shardings=False), r"shardings that name devices \(decode_shardings=False\)"),
        (partitioned(_half), r"makes float32\[2, 4\], all devices together, instead of float32\[16, 4\]"),
        (partitioned(_spec), r"it answers with (P|PartitionSpec)\(.*, where a NamedSharding is expected"),
        (partitioned(_other), "it answers for another mesh, {'all': 8}"),
        (partitioned(_seven), "a dimension of 4 does not divide by 8"),
        (
            lambda x: jax.shard_map(partitioned(_same), in_specs=P("data"), out_specs=P("data"), axis_names={"data"})(
                x
            ),
            "inside a shard_map over some of the mesh's axes",
        ),
    ],
)
def test_without_an_answer_it_is_what_it_computes_and_the_report_says_why(fn, why):
    program, plan = sv.trace(fn, jax.ShapeDtypeStruct((16, 4), jnp.float32)), sv.Plan(MESH, P("data"))
    for report in (program.propagate(plan), program.partition(plan)):
        (found,) = said(report)
        assert found.severity == "warning"
        assert re.search(why, found.text), found.text
        assert "may differ from the run's" in found.text
        assert not report.collectives and report.outputs[0].spec.same_as(Spec.of(P("data")), report.mesh)


def scaled():
    a = jax.ShapeDtypeStruct((1, 128, 256), jnp.float8_e4m3fn)
    scale = jax.ShapeDtypeStruct((1, 128, 8), jnp.float8_e8m0fnu)
    return sv.trace(lambda *args: jax.nn.scaled_matmul(*args), a, a, scale, scale)


def test_a_scaled_product_is_explored_or_refused_by_its_name_and_line():
    """The oldest JAX lowers it for GPUs only, to a kernel that Shardy does not look into; what says how it is cut is
    JAX's function for it, and it is asked.
    """
    rows, columns = P(None, "data"), P(None, "model")
    plan = sv.Plan(MESH, (rows, columns, rows, columns))
    try:
        report = scaled().propagate(plan)
    except sv.errors.TraceError as error:
        assert "at test_own_partitioning.py" in str(error) and "scaled_matmul" in str(error)
        return
    assert report.outputs[0].spec.same_as(Spec.of(P(None, "data", "model")), report.mesh)
    (found,) = said(report)
    assert "scaled_matmul" in found.text and found.source.file == __file__


@pytest.mark.cuda
def test_a_scaled_product_compiles_for_a_gpu():
    rows, columns = P(None, "data"), P(None, "model")
    report = scaled().compile(sv.Plan(MESH, (rows, columns, rows, columns)), "gpu h100:1x8")
    assert said(report) and report.outputs[0].shape == (1, 128, 128)
