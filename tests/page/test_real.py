"""The explorer on a real program: traced, propagated, partitioned and compiled."""

import re
import time

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import processes
from shardviz.errors import CompileMemoryLimit, MeshError, ShardvizError, TargetError, TraceError
from shardviz.gallery import mlp
from shardviz.page import explore
from shardviz.page.explorer import Explorer
from shardviz.plan.plan import Plan
from tests.compiler.test_server import deep
from tests.page.documents import kpi

W = "params[0]['w']"


@pytest.fixture(scope="module")
def example():
    return mlp((64, 128, 32), batch=64)


@pytest.fixture
def explorer(example):
    return explore(
        example.fn,
        *example.args,
        mesh={"data": 2, "model": 2},
        in_specs=example.in_specs,
        out_specs=example.out_specs,
        **example.options,
    )


def test_one_edit_through_all_levels(explorer):
    assert explorer.wait("partitioned", timeout=60).level in ("partitioned", "compiled")
    assert explorer.wait(timeout=60).memory is not None
    before = [(c.kind, c.axes) for c in explorer.report.collectives]
    assert explorer.state.set_dim(W, 0, [])
    assert explorer.report.level == "propagated" and explorer.report.value(W).shape == (64, 128)
    assert explorer.wait(timeout=60).level == "compiled"
    assert kpi(explorer, "level") == explorer.report.level
    assert explorer.state.undo()
    explorer.wait(timeout=60)
    assert [(c.kind, c.axes) for c in explorer.report.collectives] == before


def test_stop_and_again(explorer):
    explorer.stop()
    assert explorer.state.status in ("stopped", "compiled")
    explorer.state.recompile()
    assert explorer.wait(timeout=60).level == "compiled"


def test_a_traced_program_is_taken_as_it_is(explorer, example):
    again = explore(explorer.program, plan=explorer.plan, level="propagated")
    assert again.program is explorer.program and again.report.level == "propagated"
    assert explore(explorer.program, explorer.plan, level="propagated").plan == explorer.plan
    kinds = ", ".join(f"args[{i}] of type {type(arg).__name__}" for i, arg in enumerate(example.args))
    with pytest.raises(TraceError, match=f"traced already, so leave out {re.escape(kinds)}"):
        explore(explorer.program, *example.args, plan=explorer.plan)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda own: explore(own.program, mesh={"data": 2}, plan=object()), "not both"),
        (lambda own: explore(own.program, plan="data=2"), "expected an sv.Plan, not 'data=2'"),
        (lambda own: explore(own.program, mesh={"data": 2}, donate_argnums=0), "already.*leave out donate_argnums"),
        (lambda own: explore(lambda x: x, jax.ShapeDtypeStruct((8,), jnp.float32)), "needs a mesh.*or a plan"),
        (lambda own: explore(5, mesh={"data": 2}), r"takes a function.*not 5 \(int\)"),
        (lambda own: explore(own.plan), "a plan goes second"),
        (lambda own: explore(own.report), "a report is a finding"),
    ],
)
def test_calls_that_cannot_be(explorer, call, words):
    with pytest.raises(ShardvizError, match=words):
        call(explorer)


def test_an_example_of_the_gallery_brings_its_plan(example):
    explorer = explore(example, level="propagated")
    assert explorer.program is example.program and explorer.plan == example.plan
    assert explore(example, plan=Plan({"x": 2}), level="propagated").plan.mesh.shape == {"x": 2}
    other = explore(example, mesh={"data": 2, "model": 2}, level="propagated")
    assert other.plan.in_specs == example.plan.in_specs and other.report.mesh.size == 4
    with pytest.raises(TraceError, match="an example with arguments of its own"):
        explore(example, 1)


def test_without_a_mesh_the_target_gives_one_which_is_said():
    """The same mesh wherever a function is asked about; one that is given, or brought along, goes before it."""
    array = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    product = lambda x, w: x @ w
    specs = P("data"), P(None, "model")
    explorer = explore(product, array, array, in_specs=specs, target="tpu v5e:2x4", level="propagated")
    assert explorer.plan.mesh.shape == {"data": 2, "model": 4} and explorer.state.target == "tpu v5e:2x4"
    assert explorer.targets["remark"] == "v5e gave the mesh data=2,model=4, since none was given; change it above"
    assert explorer.state.resize_axis("data", 4) and "gave the mesh" not in explorer.targets["remark"]
    assert sv.analyze(product, array, array, target="cpu", mesh="x=2").mesh.shape == {"x": 2}
    assert sv.trace(product, array, array).plan(target="gpu h100:2x8").mesh.shape == {"data": 2, "model": 8}
    own = jax.jit(product, in_shardings=jax.NamedSharding(jax.sharding.AbstractMesh((8,), ("own",)), P("own")))
    assert explore(own, array, array, target="tpu v5e:2x4", level="propagated").plan.mesh.shape == {"own": 8}
    with pytest.raises(MeshError, match=r"needs a mesh, such as .* a target with a topology"):
        explore(product, array, array)
    with pytest.raises(TargetError, match="how many"):
        explore(product, array, array, target="v5e")


def test_other_keywords_are_the_functions_own():
    def scaled(x, *, factor):
        return x * factor

    array = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    explorer = explore(scaled, array, factor=array, mesh={"data": 2}, level="propagated")
    assert [v.name for v in explorer.report.arguments] == ["x", "factor"]


# A compile that ends badly, with the compiler itself: what was known stays, and the next change is answered.


@pytest.fixture
def slow():
    """An explorer of `deep`, whose compile takes its time."""
    array = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)

    def opened(**limits):
        return explore(deep, array, array, mesh={"x": 4}, in_specs=(P("x"), None), **limits)

    yield opened
    processes.shutdown()


def test_a_compile_that_ends_while_the_explorer_is_drawn_is_told(slow, monkeypatch):
    draw = Explorer._draw

    def slowly(self, changed):
        draw(self, changed)
        deadline = time.monotonic() + 2
        while self.state.busy and time.monotonic() < deadline:
            time.sleep(0.01)

    monkeypatch.setattr(Explorer, "_draw", slowly)
    explorer, words = slow(memory_limit=10_000_000), r"more than its limit of 0\.01 GB"
    report = explorer.report
    with pytest.raises(CompileMemoryLimit, match=words):
        explorer.wait(timeout=60)
    assert explorer.status["status"] == "failed" and not explorer.status["busy"]
    assert explorer.status["failure"]["kind"] == "CompileMemoryLimit" and explorer.status["error"] is None
    assert re.search(words, explorer.status["failure"]["message"])
    assert explorer.report.level in ("propagated", "partitioned")
    assert explorer.report.arguments == report.arguments and explorer.inputs["rows"] and explorer.shardings["at"]
