"""What Shardy records of its own: how it is written, where it holds, and that it agrees with what was tried."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from shardviz.errors import CompileCrashed
from shardviz.program import origins
from shardviz.program.origins import RECORDING, Edge, edges_of

MESH = {"data": 2, "model": 4}
ARGS = tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((32, 64), (64, 128)))


def constrained(x, w):
    h = jnp.tanh(x @ w)
    y = jax.lax.with_sharding_constraint(h, P("data", P.UNCONSTRAINED))
    return y


@pytest.fixture(scope="module")
def small():
    return sv.trace(constrained, *ARGS), sv.Plan(MESH, (P(), P(None, "model")))


def test_what_the_options_write(small):
    """Nobody else uses them: what they write is held here, on each JAX that is tested."""
    program, plan = small
    asking = program._asking(plan)
    with asking.trial.entered(), ir.Location.unknown():
        module = asking.trial.module.clone()
        pipeline = PassManager.parse(RECORDING)
        pipeline.enable_verifier(False)
        pipeline.run(module)
    written = {
        op.name: {
            n: str(op.attributes[n]) for n in ("sdy.sharding_origins", "sdy.propagation_edges") if n in op.attributes
        }
        for op in origins._walked(module)
    }
    assert written["stablehlo.dot_general"] == {
        "sdy.sharding_origins": '[{data = "constraint_0", model = "input: 1"}]',
        "sdy.propagation_edges": '#sdy.propagation_edges<[{step-3 = [{"model" = operand-1 -> [result-0]}]}]>',
    }
    assert written["stablehlo.tanh"]["sdy.propagation_edges"] == (
        '#sdy.propagation_edges<[{step-2 = [{"data" = result-0 -> [operand-0]}]}, '
        '{step-4 = [{"model" = operand-0 -> [result-0]}]}]>'
    )
    assert list(edges_of(written["stablehlo.tanh"]["sdy.propagation_edges"])) == [
        Edge(2, "data", "result-0", ("operand-0",)),
        Edge(4, "model", "operand-0", ("result-0",)),
    ]


def test_an_origin_is_one_of_the_causes_and_steps_follow_the_chain(small):
    program, plan = small
    (model,) = program.why(plan, "h", axis="model").recorded()
    assert (model.said, model.source.name, model.steps) == ("input: 1", "w", (3, 4))
    (data,) = program.why(plan, "h", axis="data").recorded()
    assert (data.said, data.source.role) == ("constraint_0", "constraint") and data.steps == (1,)
    (own,) = program.why(plan, "w", axis="model").recorded()
    assert (own.said, own.steps) == ("self", ())


def test_through_loops_and_functions_it_holds_and_agrees():
    """With calls inlined the run with the record cuts every array of a scan as the plain one does."""

    def layers(x, w):
        def layer(x, w):
            h = jax.nn.relu(x @ w)
            return h @ w.T, None

        y, _ = jax.lax.scan(layer, x, w)
        return jnp.tanh(y)

    args = jax.ShapeDtypeStruct((32, 64), jnp.float32), jax.ShapeDtypeStruct((3, 64, 128), jnp.float32)
    program, plan = sv.trace(layers, *args), sv.Plan(MESH, (P("data"), P(None, None, "model")))
    for axis, name in (("model", "w"), ("data", "x")):
        why = program.why(plan, "h", axis=axis)
        (found,) = why.recorded()
        assert found.source.name == name and found.source.key in {c.source.key for c in why.causes}
        steps = [step for step in found.steps if step is not None]
        assert steps and steps == sorted(steps), "the chain goes the way that Shardy went"


def test_a_shard_map_is_an_origin():
    mesh = sv.mesh(**MESH)

    def manual(x, w):
        h = x @ w
        return jax.shard_map(lambda h: h * 2, mesh=mesh, in_specs=P(None, "model"), out_specs=P(None, "model"))(h)

    why = sv.trace(manual, *ARGS).why(sv.Plan(MESH), "h", axis="model")
    (found,) = why.recorded()
    assert found.source == why.causes[0].source and found.source.role == "shard_map"


def test_it_is_not_told_where_it_does_not_hold(small, monkeypatch):
    """Calls that are not inlined are not crossed; and a process that dies of it is another one."""
    mlp = gallery.mlp(mesh="data=4,model=2")
    with monkeypatch.context() as patch:
        patch.setattr(origins, "inline", lambda module: None)
        value = next(v for v in mlp.program.propagate(mlp.plan).intermediates if v.spec and "model" in v.spec.axes)
        assert mlp.program.why(mlp.plan, value).recorded() is None

    def dies(module, passes):
        raise CompileCrashed("it died")

    program, plan = small
    monkeypatch.setattr(origins, "rehearse_module", dies)
    assert program.why(plan.with_spec("x", P("data")), "h").recorded() is None
