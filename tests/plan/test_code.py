"""The code of a plan runs: JAX alone gives the report's shardings; the lines to write give its constraints."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import SpecError
from shardviz.gallery import llama, mlp
from shardviz.judge.report import Report
from shardviz.notation import Spec
from tests.plan.edited import as_told, module_of, said
from tests.truth import answers_of


def eight_devices() -> None:
    jax.config.update("jax_num_cpu_devices", 8)


def shardings(folder: Path, before: str, code: str, step: str, arguments: str) -> list[list[Spec]]:
    """What the code's function has as input and output shardings, in the process that this runs in."""
    sys.path.insert(0, str(folder))
    names: dict = {"jax": jax}
    exec(before + code, names)
    compiled = eval(f"{step}.lower({arguments}).compile()", names)
    each = (compiled.input_shardings, compiled.output_shardings)
    return [[Spec.of(sharding.spec).canonical() for sharding in jax.tree.leaves(tree)] for tree in each]


@pytest.fixture(scope="module")
def run():
    """`shardings` in another process, which has eight simulated devices."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), eight_devices) as process:
        yield lambda *asked: process.submit(shardings, *asked).result()


def reported(report: Report) -> list[list[Spec]]:
    """The shardings of a report's arguments and outputs."""
    return [[v.spec.canonical() for v in each if not v.unused] for each in (report.arguments, report.outputs)]


MODEL = """
from typing import NamedTuple, Any
import jax, jax.numpy as jnp

class State(NamedTuple):
    params: Any
    step: Any

def apply(state, x, *, mask, power):
    for i in range(len(state.params)):
        p = state.params[f"layer_{i}"]
        h = jnp.tanh(x @ p["up"]) ** power
        x = x + (h @ p["down"]) * mask
    return state._replace(step=state.step + 1), x

def arguments(size=12, wide=32):
    a = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    params = {f"layer_{i}": {"up": a(wide, 64), "down": a(64, wide)} for i in range(size)}
    return (State(params, jax.ShapeDtypeStruct((), jnp.int32)), a(16, wide)), {"mask": a(16, wide), "power": 2}
"""


def test_containers_of_a_person_s_own_go_by_rules(run, tmp_path):
    model = module_of(MODEL, tmp_path / "my_model.py")
    args, kwargs = model.arguments()
    program = sv.trace(model.apply, *args, **kwargs, static_argnames="power")
    rules = [(sv.Rules.path_ends_with("up"), P(None, "b")), (sv.Rules.path_ends_with("down"), P("b")), ("mask", P("a"))]
    plan = (
        sv.Plan({"a": 2, "b": 4})
        .with_rules(rules)
        .with_spec("x", P("a"))
        .with_spec("result[1]", P("a", "b"), output=True)
    )
    code = program.code(plan)
    assert code.count("P(None, 'b')") == 1  # twelve layers, one rule
    before = "import my_model\n(state, x), options = my_model.arguments()\nmask = options['mask']\n"
    has = run(tmp_path, before, code, "jitted(state, x, mask, 2)", "state, x, mask, 2")
    assert has == reported(program.partition(plan))


def test_alike_layers_of_plain_trees_are_written_once(run, tmp_path):
    model = module_of(MODEL, tmp_path / "my_model.py")
    (state, x), _ = model.arguments()
    fn = module_of(
        "def apply(params, x):\n    for p in params.values():\n        x = x + x @ p['up'] @ p['down']\n    return x\n",
        tmp_path / "plain.py",
    ).apply
    program = sv.trace(fn, state.params, x)
    cut = {"up": P(None, "b"), "down": P("b")}
    plan = sv.Plan({"a": 2, "b": 4}, (dict.fromkeys(state.params, cut), P("a")))
    code = program.code(plan)
    assert "{f'layer_{i}': {'down': P('b'), 'up': P(None, 'b')} for i in range(12)}" in code
    before = "import my_model\n(state, x), _ = my_model.arguments()\n"
    assert run(tmp_path, before, code, "step", "state.params, x") == reported(program.partition(plan))
    names: dict = {}
    exec(program.plan_code(plan), names)
    assert program.bind(names["plan"]) == program.bind(plan)


def test_a_jitted_step_has_the_report_s_shardings_on_a_mesh_in_its_order(run, tmp_path):
    example = mlp((64, 128, 128, 32), batch=64)
    ordered = example.plan.with_mesh(sv.notation.DeviceMesh.of("data=2,model=4 devices=[2,4]T(1,0)"))
    code = example.program.code(ordered)
    assert "donate_argnums=(0,)" in code
    arguments = "from shardviz.gallery import mlp\nargs = mlp((64, 128, 128, 32), batch=64).args\n"
    shown = "\nassert [d.id for d in mesh.devices.ravel()] == " + repr(list(ordered.mesh.device_ids)) + "\n"
    has = run(tmp_path, arguments, code + shown, "step", "*args")
    assert has == reported(example.program.partition(ordered))
    with pytest.raises(SpecError, match="no PartitionSpec shards along a part of a mesh axis"):
        example.program.code(example.plan.with_spec("x", Spec(((("model", 1, 2),),))))


def test_the_lines_to_write_give_the_plan_s_constraints(tmp_path):
    example = llama("8b", layers=2, length=256)
    line = next(v for v in example.program.propagate(example.plan).intermediates if v.label == "g").source.short
    plan = example.plan.constrain("g", P("data"), line=line).constrain('h @ p["w1"]', P("model"))
    plan = plan.constrain('jax.nn.silu(h @ p["w1"])', P("data", "model")).constrain("logits", P("data"))
    text = as_told(example.program.code(plan), inspect.getsource(sys.modules["shardviz.gallery.llama"]))
    by_hand = module_of(text, tmp_path / "llama.py").llama("8b", layers=2, length=256)
    assert said(by_hand.program.propagate(by_hand.plan)) == said(example.program.propagate(plan))
    wrapped = """jax.lax.with_sharding_constraint(h @ p["w1"], P('model'))"""
    assert f"jax.lax.with_sharding_constraint(jax.nn.silu({wrapped}), P('data', 'model'))" in text
    said_where = (
        f"#   llama.py, after line {line.rpartition(':')[2]}: g = jax.lax.with_sharding_constraint(g, P('data'))"
    )
    assert said_where in example.program.code(plan)


@pytest.mark.long
def test_modules_of_flax_are_placed_by_rules(tmp_path):
    """The code is run: every weight is where the plan has it, and a step is done. The weights are zeros, for which
    nothing is compiled, and the step is compiled as fast as that goes."""
    pytest.importorskip("flax.nnx")
    sizes = {"vocabulary": 64, "layers": 1, "d_model": 16, "d_ff": 32, "heads": 4}
    example = sv.gallery.decoder(**sizes, batch=8, length=16)
    code = example.program.code(example.plan)
    assert "place(model, MODEL_RULES)" in code
    assert code.count("attention") <= 8
    before = f"""
import jax.numpy as jnp
import numpy as np
from flax import nnx
import optax
from shardviz.gallery.flax_decoder import FlaxDecoder
jax.config.update("jax_disable_most_optimizations", True)
is_key = lambda a: jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
zeros = lambda a: jax.random.key(0) if is_key(a) else np.zeros(a.shape, a.dtype)
with nnx.use_eager_sharding(False):
    shapes = nnx.eval_shape(lambda: FlaxDecoder(**{sizes!r}, dtype=jnp.bfloat16, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(shapes)
    model = nnx.merge(graph, jax.tree.map(zeros, state))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
tokens = jnp.zeros((8, 16), jnp.int32)
"""
    after = """
import json
cut = lambda a: [a.shape, a.sharding.shard_shape(a.shape)]
placed = [cut(a) for a in jax.tree.leaves(nnx.state(model))]
with jax.set_mesh(mesh):
    assert jnp.isfinite(nnx.jit(train_step)(model, optimizer, tokens))
print("ANSWER", json.dumps(placed))
"""
    script = tmp_path / "run.py"
    script.write_text("import jax\n" + before + code + after)
    weights = [v for v in example.program.propagate(example.plan).arguments if v.name.startswith("model")]
    expected = sorted([list(v.shape), list(v.shard_shape)] for v in weights)
    assert sorted(json.loads(answers_of(script, devices=8).rpartition("ANSWER ")[2])) == expected
    assert any(whole != shard for whole, shard in expected)


STATE = """
import jax, jax.numpy as jnp
from flax import nnx

class Model(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)

    def __call__(self, x):
        return self.down(jax.nn.relu(self.up(x)))

graph, state = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))
x = jax.ShapeDtypeStruct((64, 16), jnp.float32)

def step(state, x):
    loss, grads = jax.value_and_grad(lambda s: jnp.mean(nnx.merge(graph, s)(x) ** 2))(state)
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, grads), loss
"""


def test_a_state_of_flax_is_jitted_donated_and_comes_back_as_the_plan_says(run, tmp_path):
    pytest.importorskip("flax.nnx")
    model = module_of(STATE, tmp_path / "my_state.py")
    program = sv.trace(model.step, model.state, model.x, donate_argnums=0)
    specs_of = {"up.kernel": P(None, "b"), "up.bias": P("b"), "down.kernel": P("b"), "down.bias": P()}
    plan = sv.Plan({"a": 2, "b": 4}, (P(), P("a")))
    ins, outs = ({f"{root}.{n}": s for n, s in specs_of.items()} for root in ("state", "result[0]"))
    plan = plan.with_spec(ins).with_spec(outs, output=True)
    code = program.code(plan)
    assert "donate_argnums=(0,)" in code and "out_shardings=by_rule(result" in code and "place(" not in code
    ins, outs = run(tmp_path, "from my_state import *\n", code, "jitted(state, x)", "state, x")
    report = program.propagate(plan)
    assert ins == reported(report)[0]
    assert outs == [v.spec.canonical() for v in report.outputs if v.name.startswith("result")]
