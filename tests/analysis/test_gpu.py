"""GPU clusters with no GPU: XLA's own compiler for them, through JAX's CUDA plugin."""

import os

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv

pytestmark = pytest.mark.cuda


def step(w1, w2, x):
    def loss(w1, w2):
        return (jnp.maximum(x @ w1, 0) @ w2).sum()

    g1, g2 = jax.grad(loss, (0, 1))(w1, w2)
    return w1 - 0.1 * g1, w2 - 0.1 * g2


@pytest.fixture(scope="module")
def report():
    arrays = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((1024, 4096), (4096, 1024), (512, 1024))]
    specs = P("data", "model"), P("model", "data")
    before = dict(os.environ)
    plan = sv.Plan("data=2,model=8", (*specs, P("data", None)), specs)
    found = sv.trace(step, *arrays, donate_argnums=(0, 1)).compile(plan, target="gpu h100:2x8")
    assert dict(os.environ) == before
    return found


def test_the_plan_fits_and_counts_every_shard(report):
    memory = report.memory
    assert (report.target, report.level, memory.fits) == ("gpu h100:2x8", "compiled", True)
    weights, rows = 2 * 1024 * 4096 * 2 // 16, 512 * 1024 * 2 // 2
    assert memory.arguments == weights + rows
    assert memory.aliased == weights <= memory.outputs < weights + 1024  # the table of a tuple's parts comes on top
    assert memory.arguments < memory.peak <= memory.takes < memory.hbm


def test_collectives_are_matched_and_mostly_asynchronous(report):
    by_name = {c.name: c for c in report.collectives}
    assert report.target_collectives and all(run.stands_for for run in report.target_collectives)
    for run in report.target_collectives:
        for name in run.stands_for:
            assert by_name[name].axes == run.collective.axes and by_name[name].count == run.collective.count
    assert any("asynchronous" in run.how for run in report.target_collectives)


def test_what_is_too_large_is_said_from_the_plan_and_the_chips_memory():
    array = jax.ShapeDtypeStruct((262144, 262144), jnp.bfloat16)
    plan = sv.Plan("data=8", P("data", None), P("data", None))
    report = sv.trace(lambda x: (x + 1, x * 2, x - 3, x * x, jnp.tanh(x)), array).compile(plan, target="gpu h100:1x8")
    shard = 262144 * 262144 * 2 // 8
    assert report.memory.arguments == shard and report.memory.takes >= 6 * shard > report.memory.hbm
    assert report.memory.fits is False
    assert [d.severity for d in report.diagnostics if d.rule == "does-not-fit"] == ["error"]
