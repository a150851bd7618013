"""GPU clusters with no GPU: XLA's own compiler for them, through JAX's CUDA plugin."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import processes
from tests.ask.stated import stated
from tests.truth import answers_of
from tests.watched import memory_of_children

pytestmark = pytest.mark.cuda


def step(w1, w2, x):
    def loss(w1, w2):
        return (jnp.maximum(x @ w1, 0) @ w2).sum()

    g1, g2 = jax.grad(loss, (0, 1))(w1, w2)
    return w1 - 0.1 * g1, w2 - 0.1 * g2


def program():
    arrays = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((1024, 4096), (4096, 1024), (512, 1024))]
    specs = P("data", "model"), P("model", "data")
    plan = sv.Plan("data=2,model=8", (*specs, P("data", None)), specs)
    return sv.trace(step, *arrays, donate_argnums=(0, 1)), plan


@pytest.fixture(scope="module")
def report():
    before = dict(os.environ)
    traced, plan = program()
    found = traced.compile(plan, target="gpu h100:2x8")
    assert dict(os.environ) == before
    return found


def test_the_plan_fits_and_counts_every_shard(report):
    memory = report.memory
    assert (report.target, report.level, memory.fits) == ("gpu h100:2x8", "compiled", True)
    weights, rows = 2 * 1024 * 4096 * 2 // 16, 512 * 1024 * 2 // 2
    assert memory.arguments == weights + rows
    assert memory.aliased == weights <= memory.outputs < weights + 1024  # the table of a tuple's parts comes on top
    assert memory.arguments < memory.peak <= memory.takes < memory.hbm


def shifted(x, w):
    """A ring: what the neighbours hand on is added up."""
    turn = [(i, (i + 1) % 8) for i in range(8)]
    return jax.shard_map(
        lambda x, w: (
            jax.lax.psum_scatter(jax.lax.ppermute(x @ w, "x", turn), "x", tiled=True) + jax.lax.pmax(x[:1], "x")
        ),
        in_specs=(P(None, "x"), P("x")),
        out_specs=P("x"),
        mesh=jax.sharding.AbstractMesh((8,), ("x",)),
    )(x, w)


def gathered(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w.T)


COLLECTIVE = {
    "gathers": (gathered, (4096, 1024), (1024, 2048), (P("x"), P(None, "x")), P("x")),
    "sums": (gathered, (4096, 1024), (1024, 2048), (P(None, "x"), P("x")), P()),
    "all to all": (lambda x, w: (x * 2).T, (4096, 1024), (8, 8), (P("x"), P()), P("x")),
    "by hand": (shifted, (4096, 1024), (1024, 128), (P(None, "x"), P("x")), P("x")),
}


def check(memory, theirs):
    """A plan, read before there is machine code, is what the compiler states at the end."""
    assert (memory.arguments, memory.temporaries) == (theirs["argument_size_in_bytes"], theirs["temp_size_in_bytes"])
    assert (memory.outputs, memory.aliased) == (theirs["output_size_in_bytes"], theirs["alias_size_in_bytes"])
    assert memory.peak == theirs["peak_memory_in_bytes"]
    if "total_allocation_bytes" in theirs:  # since jax 0.11
        assert theirs["total_allocation_bytes"] == memory.set_aside + memory.constants <= memory.needed


def test_memory_is_what_the_compiler_states_and_what_collectives_use_is_main_memory(report):
    """XLA gives collectives' buffers memory spaces of their own, which on a GPU are main memory too."""
    asked = []
    for fn, x, w, ins, out in COLLECTIVE.values():
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (x, w)]
        asked.append((sv.trace(fn, *arrays), sv.Plan("x=8", ins, out), "gpu h100:1x8"))
    first, *others = stated((*program(), "gpu h100:2x8"), *asked)
    check(report.memory, first)
    for (traced, plan, target), theirs in zip(asked, others, strict=True):
        memory = traced.compile(plan, target=target).memory
        assert memory.on_chip == 0
        check(memory, theirs)


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


def test_the_70b_step_is_answered_in_little_memory():
    example = sv.gallery.llama("70b", mesh="data=32,model=8")
    processes.shutdown()  # a fresh one, whose memory is this compile's
    with memory_of_children() as seen:
        report = example.program.compile(example.plan, target="gpu h100:32x8")
    assert max(seen) < 3e9
    memory = report.memory
    assert (report.target, report.level) == ("gpu h100:32x8", "compiled") and report.target_collectives
    assert memory.arguments >= sum(v.bytes_per_device for v in report.arguments)
    assert memory.fits == (memory.headroom >= 0) and memory.arguments < memory.peak
    assert len([d for d in report.diagnostics if d.rule == "does-not-fit"]) == (not memory.fits)


def test_nothing_of_the_target_is_in_the_kernel():
    said = json.loads(answers_of(Path(__file__).with_name("untouched.py"), "gpu h100:1x4").splitlines()[-1])
    assert said == {"planned": True, "environment": True, "backends": False, "loaded": []}


def test_flops_and_hbm_traffic_are_counted_though_products_are_library_calls(report):
    """The loss itself is not asked for, so of the forward pass one product is left, and three of the backward pass."""
    product = 2 * 512 * 1024 * 4096 / 16
    assert {t.key: t.dot_flops for t in report.cost.by("phase")} == {
        "forward": product,
        "backward": 3 * product,
        "update": 0.0,
    }
    assert report.cost.hbm_bytes == report.cost.once_hbm_bytes >= report.memory.arguments + report.memory.aliased
    assert sv.cost(report, "gpu h100:2x8").hbm_bytes == report.cost.hbm_bytes
