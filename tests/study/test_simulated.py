"""A plan's code runs on at most 8 simulated devices with small arrays, in its own process, and equals one device."""

import os
import re

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz import processes
from shardviz.explorer.explorer import ExplorerState
from shardviz.paint import text
from shardviz.study import simulated
from shardviz.view.subjects import document

P = jax.sharding.PartitionSpec


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def prepared(program, plan):
    steps = simulated.small_run(program, plan)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def ran(program, plan):
    run = prepared(program, plan)
    return run, simulated.compared(processes.tried(run.trial, simulated.SECONDS, simulated.MEMORY))


def step(params, x, *, scale):
    loss, grads = jax.value_and_grad(lambda p: jnp.sum(jnp.tanh(x @ p["w"]) ** 2) * scale)(params)
    return jax.tree.map(lambda p, g: p - g, params, grads), loss


def test_a_large_step_runs_small_and_equals_one_device():
    program = sv.trace(step, {"w": array(65536, 16384)}, array(32768, 65536), scale=0.5)
    run, results = ran(program, sv.Plan({"data": 16, "model": 8}, in_specs=({"w": P(None, "model")}, P("data"))))
    assert str(run.mesh) == "data=2,model=2" and "jax.make_mesh((2, 2)" in run.code
    assert len(run.lengths) == 3 and "16 instead of 65,536" in " ".join(run.lengths)
    assert {each.name: each.shape for each in results} == {"[0]['w']": (16, 16), "[1]": ()}
    assert all(each.same and each.off < 64 and not each.infinite for each in results)


def differs(x):
    """One device's own number is in the result."""
    from jax.sharding import PartitionSpec as P

    return jax.shard_map(lambda s: s + jax.lax.axis_index("data"), in_specs=P("data"), out_specs=P("data"))(x)


def test_a_result_that_depends_on_the_device_is_found():
    state = ExplorerState(sv.trace(differs, array(8)), sv.Plan({"data": 2}, in_specs=(P("data"),)), level="propagated")
    assert state.run_code()
    (result,) = state.now.simulated.results
    assert result.off > 1e6 and not result.same
    assert text(document(state.now.simulated)).startswith("1 result of 1 not the same on 2 simulated devices as on one")


def fixed(x):
    return x.reshape(4096, 65536).sum(0)


@pytest.mark.parametrize(
    ("fn", "shape", "mesh", "words"),
    [
        (fixed, (4096 * 65536,), {"data": 2}, r"Not run: .* are 1.07 GB.*x:0 stays 268,435,456: "),
        (jnp.tanh, (16, 16), dict.fromkeys("abcd", 2), "Not run: the mesh .* has 4 axes of several devices"),
    ],
)
def test_what_cannot_run_is_said(fn, shape, mesh, words):
    state = ExplorerState(sv.trace(fn, array(*shape)), sv.Plan(mesh), level="propagated")
    state.run_code()
    assert not state.now.simulated.busy

    assert re.match(words, " ".join(text(document(state.now.simulated)).split()))


def test_a_module_of_nnx_runs_with_its_arrays_in_a_list():
    nnx = pytest.importorskip("flax.nnx")

    class Layer(nnx.Module):
        def __init__(self, rngs):
            self.inner = nnx.Linear(16, 8, rngs=rngs)

    @nnx.jit
    def moved(layer, x):
        loss, grads = nnx.value_and_grad(lambda layer: jnp.sum(jnp.tanh(layer.inner(x))))(layer)
        nnx.update(layer, jax.tree.map(lambda p, g: p - g, nnx.state(layer), grads))
        return loss

    program = sv.trace(moved, nnx.eval_shape(lambda: Layer(nnx.Rngs(0))), array(8, 16))
    run, results = ran(program, sv.Plan({"data": 4, "model": 2}, edits={"x": P("data")}))
    assert "# layer.inner.kernel" in run.code and "P('data'),  # x" in run.code
    assert {each.name: each.shape for each in results} == {
        o.name: o.shape for o in program.outputs(sv.Plan({"data": 4}))
    }
    assert all(each.same for each in results) and any(each.off for each in results)


def test_a_lambda_runs_by_another_name():
    run, (result,) = ran(sv.trace(lambda x: x * 2, array(16)), sv.Plan({"data": 2}, edits={"x": P("data")}))
    assert result.same and "    function,\n" in run.code


def pmapped():
    return sv.trace(jax.pmap(lambda x: x * 2), array(2, 8))


def exported():
    from jax import export

    on = jax.sharding.NamedSharding(jax.sharding.AbstractMesh((2,), ("data",)), P("data"))
    return sv.trace(export.export(jax.jit(jnp.tanh, in_shardings=on))(array(8)))


def of_equinox():
    eqx = pytest.importorskip("equinox")
    module = eqx.filter_eval_shape(lambda: eqx.nn.Linear(8, 8, key=jax.random.key(0)))
    return sv.trace(eqx.filter_jit(lambda module, x: module(x)), module, array(8))


@pytest.mark.parametrize(
    ("made", "words"), [(pmapped, "jax.vmap"), (exported, "fixed number of devices"), (of_equinox, "eqx.partition")]
)
def test_a_program_that_has_no_small_form_says_why(made, words):
    with pytest.raises(sv.errors.ShardvizError, match=words):
        prepared(made(), sv.Plan({"data": 2}))


def test_an_error_of_the_function_is_said_and_its_process_can_end():
    here = os.getpid()

    def breaks(x):
        if os.getpid() != here:
            raise ValueError("no such <file>")
        return x

    def ends(x):
        if os.getpid() != here:
            os._exit(3)
        return x

    for fn, words in ((breaks, "the code raises ValueError: no such <file>"), (ends, "ended with exit code 3")):
        state = ExplorerState(sv.trace(fn, array(8)), sv.Plan({"data": 2}), level="propagated")
        state.run_code()
        assert words in state.now.simulated.trouble


def test_another_plan_removes_the_run():
    state = ExplorerState(sv.trace(jnp.tanh, array(16, 16)), sv.Plan({"data": 2}), level="propagated")
    state.run_code()
    assert state.now.simulated.results[0].off == 0
    state.set_dim(state.report.arguments[0].name, 0, ["data"])
    assert state.now.simulated == simulated.Simulated()
