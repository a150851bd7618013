"""Which results are an argument's new value; where they come back sharded otherwise, a second step compiles again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.ask.program import resharded_state, state_of
from shardviz.notation import Spec
from shardviz.propagate.roles import resharded
from tests.truth import answers_of

MODEL = """
import jax, jax.numpy as jnp

def train_step(params, momentum, x):
    grads = jax.grad(lambda p: jnp.mean((jnp.tanh(x @ p["w1"]) @ p["w2"]) ** 2))(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum
"""
RUN = """
import numpy as np
arrays = [{"w1": np.ones((64, 128), "f"), "w2": np.ones((128, 64), "f")} for _ in range(2)]
x = np.ones((64, 64), "f")
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name) if name.endswith("backend_compile_duration") else None
)
with jax.set_mesh(mesh):
    ins, _ = step.lower(*arrays, x).compile().input_shardings  # NumPy's arrays are of no mesh, and count as others
    *arrays, x = jax.device_put((*arrays, x), ins)
    arrays = step(*arrays, x)
    compiled.clear()
    for _ in range(2):
        arrays = step(*arrays, x)
print(len(compiled))
"""


def program():
    space = {}
    exec(MODEL, space)
    array = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    params = {"w1": array(64, 128), "w2": array(128, 64)}
    return sv.trace(space["train_step"], params, params, array(64, 64))


def compiles(code, tmp_path):
    """How often the second and third step compile again on eight simulated devices."""
    script = tmp_path / "run.py"
    script.write_text(MODEL + code + RUN)
    return int(answers_of(script, devices=8).split()[-1])


def test_code_gives_state_back_as_it_went_in_and_compiles_once(tmp_path):
    traced = program()
    cut = {"w1": P("data"), "w2": P("data")}
    plan = sv.Plan({"data": 8}, (None, cut, P("data")))  # the new parameters follow the momentum
    moved = resharded_state(traced, plan)
    assert moved == {"params['w1']": "result[0]['w1']", "params['w2']": "result[0]['w2']"}
    assert compiles(traced.code(plan), tmp_path) == 0


def test_a_found_plan_is_a_fixed_point(tmp_path):
    traced = program()
    best = sv.search(traced, "tpu v5e:2x4", level="propagated", most=8, seconds=20).best
    assert best is not None and not resharded_state(traced, best.plan)
    assert len(state_of(traced)) == 4
    assert compiles(traced.code(best.plan), tmp_path) == 0


def test_what_comes_back_otherwise():
    ins, outs = {"w": Spec.of(P(None, "a")), "b": Spec.of(P())}, {"v": Spec.of(P("a", None)), "c": Spec.of(P())}
    assert resharded({"w": "v", "b": "c"}, ins, outs) == {"w": (ins["w"], outs["v"])}
    assert resharded({"w": "v"}, ins, {"v": None}) == {}
