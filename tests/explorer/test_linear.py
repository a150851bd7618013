"""What is ours of an answer takes work in proportion to the program: calls are counted, which no clock disturbs.

A program of twice as many layers makes twice as many more calls. What JAX, Shardy and XLA take is not in it.
"""

import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.ask.reading import CompileReading
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.page.page import say

LAYERS = (8, 16, 32)


def program_of(layers):
    """The gradient of an unrolled network with two collectives a layer and more, and as many arguments as products."""
    array = jax.ShapeDtypeStruct
    params = [{"w1": array((64, 128), jnp.float32), "w2": array((128, 64), jnp.float32)} for _ in range(layers)]

    def loss(params, x):
        for p in params:
            x = jax.lax.with_sharding_constraint(x + jnp.tanh(x @ p["w1"]) @ p["w2"], P("data"))
        return jnp.sum(x * x)

    return sv.trace(jax.value_and_grad(loss), params, array((32, 64), jnp.float32))


def plan_of(layers):
    return sv.Plan("data=4,model=2", ([{"w1": P("data", "model"), "w2": P("model", "data")}] * layers, P("data")))


def calls(act):
    """How many calls of Python and C functions it makes in this thread."""
    count = 0

    def counted(_frame, event, _):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def proportional(counts):
    """Whether what is added grows as what adds it."""
    small, middle, large = counts
    return large - middle <= 2.2 * (middle - small)


TARGETS = [
    "cpu",
    pytest.param("tpu v5e:4x2", marks=pytest.mark.tpu),
    pytest.param("gpu h100:1x8", marks=pytest.mark.cuda),
]


@pytest.fixture(scope="module", params=TARGETS)
def readings(request):
    """For each size the milestones that a compile reads, as calls that read them again."""
    found = {}
    report = CompileReading.report
    with pytest.MonkeyPatch.context() as patch:
        for layers in LAYERS:
            kept = found[layers] = {}

            def reading(self, level, texts, job, kept=kept):
                kept[level] = lambda: report(self, level, texts, job)
                return report(self, level, texts, job)

            patch.setattr(CompileReading, "report", reading)
            made = program_of(layers).compile(plan_of(layers), request.param)
            assert len(made.collectives) >= 2 * layers and set(kept) == {"partitioned", "compiled"}
    return found


@pytest.mark.long
def test_reading_what_the_compiler_made(readings):
    for level in ("partitioned", "compiled"):
        counts = [calls(readings[layers][level]) for layers in LAYERS]
        assert proportional(counts), (level, counts)


@pytest.mark.long
def test_propagating():
    counts = []
    for layers in LAYERS:
        program, plan = program_of(layers), plan_of(layers)
        program.propagate(plan)
        other = plan.with_spec("params[0]['w1']", P())
        counts.append(calls(lambda program=program, other=other: program.propagate(other)))
    assert proportional(counts), counts


@pytest.mark.long
def test_an_edit_on_the_page():
    counts = []
    for leaves in (300, 300, 600, 1200):  # the first one also pays for what is done once in a process
        arrays = {f"w{place}": jax.ShapeDtypeStruct((64, 64), jnp.float32) for place in range(leaves // 2)}
        program = sv.trace(lambda old, new: jax.tree.map(jnp.add, old, new), arrays, arrays)
        explorer = Explorer(ExplorerState(program, sv.Plan("data=4,model=2"), level="propagated"))
        assert explorer.inputs["leaves"] == leaves and len(explorer.shardings["at"]) == leaves
        edit = {"op": "set_dim", "name": "old['w0']", "dimension": 0, "axes": ["data"], "twins": True}
        counts.append(calls(lambda explorer=explorer, edit=edit: say(explorer, **edit)))
        assert len(explorer.state.past) == 1
    assert proportional(counts[1:]), counts
