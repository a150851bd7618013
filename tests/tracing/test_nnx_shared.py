"""One variable at several places of the arguments: refused under two specs exactly where flax refuses it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv

pytest.importorskip("flax")
nnx = pytest.importorskip("flax.nnx")

MESH = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"))
X = jnp.ones((4, 8))


def named(*spec):
    return NamedSharding(MESH, P(*spec))


def state(*spec, filter=...):
    return nnx.StateSharding({filter: named(*spec), ...: named()})


class Holder(nnx.Module):
    def __init__(self, held):
        self.held = held


def kernels(tree):
    return [v[...] for v in jax.tree.leaves(tree, is_leaf=lambda v: isinstance(v, nnx.Variable))]


def step(*trees):
    return sum(jnp.sum(k) for k in kernels(trees))


def arguments():
    model = nnx.Linear(8, 16, use_bias=False, rngs=nnx.Rngs(0))
    copied = nnx.Param(model.kernel[...])
    return {
        "a module twice": (model, model),
        "inside another": (model, Holder(model)),
        "in a list": (model, [model]),
        "two modules that share a variable": (Holder(model.kernel), Holder(model.kernel)),
        "a variable and its module": (Holder(model.kernel), model.kernel),
        "one array in two variables": (Holder(model.kernel), Holder(copied)),
        "nothing shared": (model, nnx.Linear(8, 16, use_bias=False, rngs=nnx.Rngs(1))),
        "a plain array twice": (X, X),
    }


SPECS = {
    "two specs": lambda: (named("data"), named("model")),
    "one spec": lambda: (named("data"), named("data")),
    "two spellings": lambda: (named("data"), named("data", None)),
    "a spec and none": lambda: (named("data"), None),
    "no spec": lambda: (None, None),
    "two StateShardings": lambda: (state("data"), state("model")),
    "equal StateShardings": lambda: (state("data"), state("data")),
    "StateShardings that say the same": lambda: (state("data"), state("data", filter=nnx.Param)),
    "a StateSharding that says the spec": lambda: (state("data"), named("data")),
}


@pytest.mark.parametrize("specs", SPECS)
@pytest.mark.parametrize("given", arguments())
@pytest.mark.parametrize("graph", [True, False])
def test_it_is_refused_exactly_where_flax_refuses_it(graph, given, specs):
    if "StateSharding" in specs and (not graph or given in ("a plain array twice", "in a list")):
        pytest.skip("flax takes these for a module itself, in its graph mode")
    args, jitted = arguments()[given], nnx.jit(step, in_shardings=SPECS[specs](), graph=graph)
    try:
        jitted(*args)
        refused = False
    except ValueError as error:
        assert "Inconsistent aliasing" in str(error) or "Duplicate" in str(error)
        refused = True
    try:
        program = sv.trace(jitted, *args)
        program.bind(program.plan(MESH))
        assert not refused
    except sv.errors.ShardvizError as error:
        assert refused and "trees[0]" in str(error) and "trees[1]" in str(error)


def test_the_message_names_both_places_and_both_specs():
    model = nnx.Linear(8, 16, use_bias=False, rngs=nnx.Rngs(0))
    program = sv.trace(lambda a, b: a(X) + b["inner"](X), model, {"inner": model})
    message = (
        r"in_specs: a.kernel and b\['inner'\].kernel are one variable, given P\('data'\) at the one place and "
        r"P\('model'\) at the other; flax refuses that too. Give both the same"
    )
    with pytest.raises(sv.errors.SpecError, match=message):
        program.bind(sv.Plan("data=2,model=2", in_specs=(P("data"), P("model"))))
    plan = sv.Plan("data=2,model=2", in_specs=(P("data"), {"inner": P("data")}))
    assert {str(s.canonical()) for s in program.bind(plan).in_specs.values()} == {"P('data')"}


def test_to_jax_jit_two_modules_are_two_whatever_they_share():
    model = nnx.Linear(8, 16, use_bias=False, rngs=nnx.Rngs(0))
    jitted = jax.jit(lambda a, b: a(X) + b(X), in_shardings=(named("data"), named(None, "model")))
    assert jitted(model, model).shape == (4, 16)
    program = sv.trace(jitted, model, model)
    found = {name: str(spec.canonical()) for name, spec in program.bind(program.plan(MESH)).in_specs.items()}
    assert found == {"a.kernel": "P('data')", "b.kernel": "P(None, 'model')"}
