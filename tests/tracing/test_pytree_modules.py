"""Modules that are plain pytrees of parameters: flax.linen's, with boxes around them, and equinox's."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv

MESH = {"data": 2, "model": 4}
X = jax.ShapeDtypeStruct((16, 8), jnp.float32)


def specs(program, plan):
    return {name: str(spec.canonical()) for name, spec in program.bind(plan).in_specs.items()}


def loss_of(apply):
    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(lambda p: (apply(p, x) ** 2).mean())(params))

    return step


def two_layers(with_partitions, names):
    nn = pytest.importorskip("flax.linen")

    class Mlp(nn.Module):
        @nn.compact
        def __call__(self, x):
            init = nn.initializers.lecun_normal()
            x = nn.relu(nn.Dense(32, kernel_init=with_partitions(init, names))(x))
            return nn.Dense(8, kernel_init=with_partitions(init, names[::-1]))(x)

    module = Mlp()
    return module, jax.eval_shape(module.init, jax.random.key(0), X)


def test_linens_boxes_say_how_their_parameters_are_cut():
    nn = pytest.importorskip("flax.linen")
    module, params = two_layers(nn.with_partitioning, (None, "model"))
    program = sv.trace(loss_of(module.apply), params, X)
    plan = sv.Plan(MESH, edits={"x": P("data")})
    asked = nn.get_partition_spec(params)["params"]
    assert specs(program, plan) == {
        "params['params']['Dense_0']['bias']": "P()",
        "params['params']['Dense_0']['kernel'].value": str(asked["Dense_0"]["kernel"]).replace("PartitionSpec", "P"),
        "params['params']['Dense_1']['bias']": "P()",
        "params['params']['Dense_1']['kernel'].value": "P('model')",
        "x": "P('data')",
    }
    report = program.partition(plan)
    assert {o.name: str(o.spec.canonical()) for o in report.outputs}[
        "result['params']['Dense_0']['kernel'].value"
    ] == "P(None, 'model')"
    over = {c.axes for c in report.collectives}
    assert ("data",) in over and ("model",) in over


def test_what_linen_gives_as_specs_is_a_plan_for_the_boxed_parameters():
    nn = pytest.importorskip("flax.linen")
    module, params = two_layers(nn.with_partitioning, (None, "model"))
    program = sv.trace(loss_of(module.apply), params, X)
    given = sv.Plan(MESH, in_specs=(nn.get_partition_spec(params), P("data")))
    assert program.bind(given) == program.bind(sv.Plan(MESH, edits={"x": P("data")}))


def test_linens_logical_names_become_mesh_axes_by_the_rules_around():
    nn = pytest.importorskip("flax.linen")
    module, params = two_layers(nn.with_logical_partitioning, ("embed", "mlp"))
    rules = (("embed", "data"), ("mlp", "model"))

    def apply(params, x):
        return nn.with_logical_constraint(module.apply(params, x), ("embed", None), rules=rules)

    with nn.logical_axis_rules(rules):
        program = sv.trace(apply, params, X)
        plan = sv.Plan(MESH)
        bound = specs(program, plan)
    kernels = [spec for name, spec in bound.items() if "kernel" in name]
    assert kernels == ["P('data', 'model')", "P('model', 'data')"]
    without = sv.trace(module.apply, params, X)
    assert set(specs(without, plan).values()) == {"P()"}


def test_a_rule_catches_what_is_in_a_box_by_its_key():
    nn = pytest.importorskip("flax.linen")
    module, params = two_layers(nn.with_partitioning, (None, "model"))
    program = sv.trace(loss_of(module.apply), params, X)
    plan = sv.Plan(MESH, rules=[(sv.Rules.path_ends_with("kernel", "value"), P("data"))])
    assert [s for n, s in specs(program, plan).items() if "kernel" in n] == ["P('data')", "P('data')"]


def test_an_equinox_module_is_a_tree_of_its_attributes():
    eqx = pytest.importorskip("equinox")
    make = functools.partial(eqx.nn.MLP, 8, 8, 32, 2)
    model = eqx.filter_eval_shape(make, key=jax.random.key(0))
    arrays, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def step(arrays, x):
        loss = lambda arrays: (jax.vmap(eqx.combine(arrays, static))(x) ** 2).mean()
        return jax.tree.map(lambda p, g: p - 0.1 * g, arrays, jax.grad(loss)(arrays))

    program = sv.trace(step, arrays, X)
    plan = sv.Plan(MESH, edits={"x": P("data")}, rules=[(sv.Rules.path_ends_with("weight"), P("model"))])
    bound = specs(program, plan)
    assert list(bound)[:2] == ["arrays.layers[0].weight", "arrays.layers[0].bias"]
    assert [s for n, s in bound.items() if n.endswith("weight")] == ["P('model')"] * 3
    report = program.partition(plan)
    assert {o.name for o in report.outputs} == {n.replace("arrays", "result", 1) for n in bound if n != "x"}
    assert all("data" in c.axes or "model" in c.axes for c in report.collectives) and report.collectives


def test_what_equinox_filters_is_taken_as_it_is():
    eqx = pytest.importorskip("equinox")
    model = eqx.filter_eval_shape(eqx.nn.MLP, 8, 8, 32, 2, key=jax.random.key(0))  # with functions among its leaves
    loss = lambda model, x: (jax.vmap(model)(x) ** 2).mean()

    @eqx.filter_jit(donate="all-except-first")
    def step(model, x):
        value, gradients = eqx.filter_value_and_grad(loss)(model, x)
        return eqx.apply_updates(model, gradients), value

    program = sv.trace(step, model, X)
    arrays, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def by_hand(model, x):
        value, gradients = jax.value_and_grad(lambda m: loss(eqx.combine(m, static), x))(model)
        return jax.tree.map(lambda p, g: p + g, model, gradients), value

    same = sv.trace(by_hand, arrays, X)
    plan = sv.Plan(MESH, edits={"x": P("data")}, rules=[(sv.Rules.path_ends_with("weight"), P("model"))])
    reports = program.partition(plan), same.partition(plan)
    facts = [
        (
            [(a.name, a.shape, str(a.spec)) for a in r.arguments],
            [(o.name, o.shape, str(o.spec)) for o in r.outputs],
            [(c.kind, c.axes, c.operand_bytes) for c in r.collectives],
        )
        for r in reports
    ]
    assert facts[0] == facts[1] and facts[0][2]
    assert [a.donated for a in program.arguments] == [False] * 6 + [True]


def test_an_equinox_method_is_taken_with_its_module():
    eqx = pytest.importorskip("equinox")

    class Layer(eqx.Module):
        w: jax.Array
        activation: object = jax.nn.relu

        @eqx.filter_jit
        def apply(self, x):
            return self.activation(x @ self.w)

    program = sv.trace(Layer(jax.ShapeDtypeStruct((8, 4), jnp.float32)).apply, X)
    assert [a.name for a in program.arguments] == ["self.w", "x"]
    with pytest.raises(sv.errors.TraceError, match=r"0\.activation is a .*equinox.filter_jit.*equinox.partition"):
        sv.trace(lambda layer, x: layer.apply(x), Layer(X), X)


def test_the_code_for_a_module_of_equinox_places_its_arrays():
    eqx = pytest.importorskip("equinox")
    make = lambda: eqx.nn.MLP(8, 4, 16, 2, key=jax.random.key(0))

    @eqx.filter_jit
    def loss(module, x, *, scale):
        return jnp.mean(jax.vmap(module)(x) ** 2) * scale

    program = sv.trace(loss, eqx.filter_eval_shape(make), X, scale=2.0)
    plan = sv.Plan({"data": 1, "model": 1}, edits={"module.layers[0].weight": P("model"), "x": P("data")})
    space = {"loss": loss, "module": make(), "x": jnp.ones(X.shape)}
    code = program.code(plan)
    exec(code, space)
    assert space["module"].layers[0].weight.sharding.spec == P("model") and space["x"].sharding.spec == P("data")
    assert space["module"].layers[1].weight.sharding.spec == P()
    assert "loss(module, x, scale=scale)" in code
    assert loss(space["module"], space["x"], scale=2.0) == loss(make(), jnp.ones(X.shape), scale=2.0)
