"""A transformed program computes what JAX's transform computes, and keeps the names and the plan of its original."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import Spec

F32 = jnp.float32
MESH = {"data": 2, "model": 4}
ABSTRACT = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def array(*shape, dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype)


def model(params, x, n, scale=1.0, *, shift):
    return {"y": jnp.tanh(x @ params["w"]) * scale + shift, "count": n + 1}


def loss(params, x, n, scale=1.0, *, shift):
    return jnp.mean(model(params, x, n, scale, shift=shift)["y"])


ARGS = ({"w": array(8, 4)}, array(16, 8), array(dtype=jnp.int32))
SHIFT = {"shift": array()}
PLAN = sv.Plan(MESH, ({"w": P(None, "model")}, P("data"), None), {"y": P("data", "model"), "count": None})


def values(*trees):
    """Numbers for abstract arrays, others every time."""
    rng = np.random.default_rng(0)

    def leaf(a):
        drawn = rng.normal(size=a.shape) if jnp.issubdtype(a.dtype, jnp.floating) else rng.integers(9, size=a.shape)
        return jnp.asarray(drawn, a.dtype)

    return jax.tree.map(leaf, trees)


def run(program, *args, **kwargs):
    return program._call.fn(*args, **kwargs)


def assert_equal(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def names(program, plan=PLAN):
    return [a.name for a in program.arguments], [o.name for o in program.outputs(plan)]


@pytest.mark.parametrize("argnums", [0, 1, -2, (0, 1)])
@pytest.mark.parametrize("has_aux", [False, True])
def test_gradients_are_jaxs(argnums, has_aux):
    def fn(params, x, n, *, shift):
        value = loss(params, x, n, shift=shift)
        return (value, {"n": n}) if has_aux else value

    program = sv.trace(fn, *ARGS, **SHIFT)
    args, keywords = values(*ARGS), values(SHIFT)[0]
    for ours, theirs in (
        (program.grad(argnums, has_aux), jax.grad(fn, argnums, has_aux)),
        (program.value_and_grad(argnums, has_aux), jax.value_and_grad(fn, argnums, has_aux)),
    ):
        assert_equal(run(ours, *args, **keywords), theirs(*args, **keywords))


def test_gradients_are_named_after_their_arguments():
    program = sv.trace(loss, *ARGS, **SHIFT)
    ins = ["params['w']", "x", "n", "shift"]
    assert names(program.grad()) == (ins, ["grad(params)['w']"])
    assert names(program.grad((0, 1))) == (ins, ["grad(params)['w']", "grad(x)"])
    assert names(program.value_and_grad(1)) == (ins, ["value", "grad(x)"])
    aux = sv.trace(lambda x: (x.sum(), {"n": x}), array(4))
    assert names(aux.grad(has_aux=True)) == (["x"], ["grad(x)", "aux['n']"])
    assert names(aux.value_and_grad(has_aux=True)) == (["x"], ["value", "aux['n']", "grad(x)"])
    rest = sv.trace(lambda *rest: rest[0] @ rest[1], array(4), array(4))
    assert names(rest.grad((0, 1))) == (["rest[0]", "rest[1]"], ["grad(rest[0])", "grad(rest[1])"])


def test_products_are_jaxs():
    program = sv.trace(model, *ARGS, **SHIFT)
    (params, x, n), shift = values(*ARGS), values(SHIFT)[0]
    only = lambda p, x: model(p, x, n, **shift)["y"]  # noqa: E731
    (tangent,) = values(array(16, 4))
    out, gradients = run(program.vjp(), params, x, n, {"y": tangent, "count": None}, **shift)
    theirs, pull = jax.vjp(only, params, x)
    assert_equal(out, {"y": theirs, "count": n + 1})
    assert_equal(gradients, (*pull(tangent), None))
    dp, dx = values(*ARGS[:2])
    out, tangents = run(program.jvp(), params, x, n, (dp, dx, None), **shift)
    theirs, dy = jax.jvp(only, (params, x), (dp, dx))
    assert_equal((out["y"], tangents), (theirs, {"y": dy, "count": None}))


def test_cotangents_and_tangents_are_named_and_take_the_specs_of_what_they_belong_to():
    program = sv.trace(model, *ARGS, **SHIFT)
    vjp, jvp = program.vjp(), program.jvp()
    result = ["result['count']", "result['y']"]
    ins = ["params['w']", "x", "n"]
    assert names(vjp) == ([*ins, "cotangents['y']", "shift"], [*result, "grad(params)['w']", "grad(x)"])
    assert names(jvp) == (
        [*ins, "tangent(params)['w']", "tangent(x)", "shift"],
        [*result, "tangent(result)['y']"],
    )
    w, x, y = Spec.of(P(None, "model")), Spec.of(P("data"), 2), Spec.of(P("data", "model"))
    bound = vjp.bind(vjp.plan_from(PLAN))
    assert bound.in_specs["cotangents['y']"] == bound.out_specs["result['y']"] == y
    assert (bound.in_specs["params['w']"], bound.in_specs["x"]) == (w, x)
    assert bound.out_specs["grad(params)['w']"] is None
    bound = jvp.bind(jvp.plan_from(PLAN))
    assert (bound.in_specs["tangent(params)['w']"], bound.in_specs["tangent(x)"]) == (w, x)
    assert bound.out_specs["tangent(result)['y']"] == bound.out_specs["result['y']"] == y


@pytest.mark.parametrize("in_axes", [0, (None, 0, 0), ({"w": 1}, -1, None), (None, 2, 0)])
@pytest.mark.parametrize("out_axes", [0, {"y": 1, "count": 0}])
def test_a_mapped_program_is_jaxs(in_axes, out_axes):
    if out_axes != 0 and in_axes != 0 and in_axes[2] is None:
        out_axes = {"y": -1, "count": None}
    program = sv.trace(model, *ARGS, **SHIFT)
    mapped = program.vmap(in_axes, out_axes, axis_size=6)
    shapes = {a.name: a.shape for a in mapped.arguments}
    args = values({"w": array(*shapes["params['w']"])}, array(*shapes["x"]), array(*shapes["n"], dtype=jnp.int32))
    (shift,) = values(array(6))
    theirs = jax.vmap(lambda p, x, n, s: model(p, x, n, shift=s), _four(in_axes), out_axes)(*args, shift)
    assert_equal(run(mapped, *args, shift=shift), theirs)


def _four(in_axes):
    return 0 if in_axes == 0 else (*in_axes, 0)


def test_spmd_axis_name_cuts_the_new_dimension_in_arguments_constraints_and_results():
    def fn(w, x):
        y = jax.lax.with_sharding_constraint(x @ w, P(None, "model"))
        return jax.lax.with_sharding_constraint(jnp.sin(y), NamedSharding(ABSTRACT, P("model")))

    plan = sv.Plan(MESH, (P(None, "model"), None), P(None, "model"))
    program = sv.trace(fn, array(8, 4), array(16, 8))
    program.bind(plan)
    assert [c.spec for c in program.constraints] == [Spec.of(P(None, "model")), Spec.of(P("model"))]
    mapped = program.vmap((None, 0), 2, axis_size=6, spmd_axis_name="data")
    specs = [c.spec for c in mapped.constraints]
    assert specs == [Spec.of(P("data", None, "model")), Spec.of(P("data", "model"))]
    jaxpr = mapped.texts(sv.Plan(MESH))["jaxpr"]
    assert "spec=P('data', None, 'model')" in jaxpr
    carried = mapped.bind(mapped.plan_from(plan))
    assert carried.in_specs == {"w": Spec.of(P(None, "model")), "x": Spec.of(P("data"), 3)}
    assert carried.out_specs == {"result": Spec.of(P(None, "model", "data"))}
    report = mapped.propagate(mapped.plan_from(plan))
    assert report.value("x").shard_shape == (3, 16, 8)
    free = program.vmap((None, 0), axis_size=6)
    assert [c.spec.dims[0] for c in free.constraints] == [(), ()]


def test_an_axis_that_cuts_an_argument_already_is_refused():
    program = sv.trace(lambda x: x * 2, array(8, 4))
    mapped = program.vmap(axis_size=2, spmd_axis_name="data")
    with pytest.raises(sv.errors.SpecError, match=r"x: P\('data', None\): axis 'data' cuts it already"):
        mapped.plan_from(sv.Plan(MESH, P("data")))


def test_the_plan_that_a_function_brings_is_carried_over():
    mesh = ABSTRACT
    named = partial(NamedSharding, mesh)
    fn = jax.jit(
        lambda params, x: jnp.tanh(x @ params["w"]),
        in_shardings=({"w": named(P(None, "model"))}, named(P("data"))),
        out_shardings=named(P("data", "model")),
    )
    program = sv.trace(fn, {"w": array(8, 4)}, array(16, 8))
    w, x, y = Spec.of(P(None, "model")), Spec.of(P("data"), 2), Spec.of(P("data", "model"))
    vjp = program.vjp()
    bound = vjp.bind(vjp.plan())
    assert bound.in_specs == {"params['w']": w, "x": x, "cotangents": y}
    assert bound.out_specs == {"result": y, "grad(params)['w']": None, "grad(x)": None}
    jvp = program.jvp()
    bound = jvp.bind(jvp.plan())
    assert bound.in_specs == {"params['w']": w, "x": x, "tangent(params)['w']": w, "tangent(x)": x}
    assert bound.out_specs == {"result": y, "tangent(result)": y}
    mapped = program.vmap((None, 0), axis_size=4)
    bound = mapped.bind(mapped.plan())
    assert bound.in_specs == {"params['w']": w, "x": Spec.of(P(None, "data", None))}
    assert bound.out_specs == {"result": Spec.of(P(None, "data", "model"))}
    scalar = sv.trace(jax.jit(lambda x: x.sum(), in_shardings=named(P("data"))), array(8, 4)).grad()
    assert scalar.bind(scalar.plan()).in_specs == {"x": Spec.of(P("data"), 2)}


def test_transforms_of_transforms():
    program = sv.trace(loss, *ARGS, **SHIFT).grad().vmap((None, 0, None), axis_size=6, spmd_axis_name="data")
    assert names(program) == (["params['w']", "x", "n", "shift"], ["grad(params)['w']"])
    (params, _, n), (xs, shifts) = values(*ARGS), values(array(6, 16, 8), array(6))
    per_example = jax.vmap(lambda x, s: jax.grad(loss)(params, x, n, shift=s))(xs, shifts)
    assert_equal(run(program, params, xs, n, shift=shifts), per_example)
    cube = sv.trace(lambda x: x**3, array())
    second = cube.grad().grad()
    assert names(second) == (["x"], ["grad(x)"])
    assert_equal(run(second, 2.0), jnp.float32(12.0))
    product = cube.jvp().vjp()
    assert names(product)[0] == ["x", "tangent(x)", "cotangents[0]", "cotangents[1]"]


def test_static_and_keyword_arguments_stay():
    def fn(x, power, scale, *, negate):
        y = jnp.sum(x**power * scale)
        return -y if negate else y

    program = sv.trace(fn, array(4), 3, array(), negate=True, static_argnums=-2, static_argnames="negate")
    (x, scale) = values(array(4), array())
    theirs = jax.grad(fn)(x, 3, scale, negate=True)
    assert_equal(run(program.grad(), x, 3, scale, negate=True), theirs)
    vjp, jvp = program.vjp(), program.jvp()
    assert [a.name for a in vjp.arguments] == ["x", "scale", "cotangents"]
    _, gradients = run(vjp, x, 3, scale, jnp.float32(1), negate=True)
    assert_equal(gradients[0], theirs)
    _, tangent = run(jvp, x, 3, scale, (x, jnp.zeros(())), negate=True)
    assert_equal(tangent, theirs @ x)
    mapped = program.vmap((0, None, None), axis_size=2)
    assert_equal(run(mapped, jnp.stack([x, x]), 3, scale, negate=True), jnp.stack([fn(x, 3, scale, negate=True)] * 2))


def test_a_function_of_any_number_of_arguments_takes_the_new_one_by_keyword():
    program = sv.trace(lambda *xs: sum(xs), array(4), array(4)).vjp()
    assert [a.name for a in program.arguments] == ["xs[0]", "xs[1]", "cotangents"]
    taken = sv.trace(lambda x, cotangents: x * cotangents, array(4), array(4)).vjp()
    assert [a.name for a in taken.arguments] == ["x", "cotangents", "cotangents_"]


def test_a_program_that_waits_for_its_mesh_can_be_transformed():
    program = sv.trace(lambda x: jnp.sum(jax.lax.with_sharding_constraint(x, P("data")) ** 2), array(8, 4))
    grad = program.grad()
    report = grad.propagate(grad.plan_from(sv.Plan(MESH, P("data"))))
    assert report.arguments[0].shard_shape == report.outputs[0].shard_shape == (4, 4)
    vjp = sv.trace(lambda x: jax.lax.with_sharding_constraint(x, P("data")), array(8, 4)).vjp()
    report = vjp.propagate(vjp.plan_from(sv.Plan(MESH, P())))
    assert [o.shard_shape for o in report.outputs] == [(4, 4)] * 2  # a constraint holds for the gradient too


SUM = lambda x, n: jnp.sum(x) * n  # noqa: E731


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sv.trace(jnp.sin, array(4)).grad(), r"the result is float32\[4\]; take its mean or sum"),
        (lambda: sv.trace(lambda x: {"a": x.sum()}, array(4)).grad(), "the result is a dict of 1 arrays; return one"),
        (lambda: sv.trace(lambda x: x.astype(int).sum(), array(4)).value_and_grad(), r"is int32\[\]; return a real"),
        (lambda: sv.trace(lambda x: jnp.fft.fft(x).sum(), array(4)).grad(), r"complex64\[\]; return a real"),
        (lambda: sv.trace(lambda x: x.sum(), array(4)).grad(has_aux=True), r"expected \(scalar, anything else\)"),
        (lambda: sv.trace(SUM, array(4), array(dtype=jnp.int32)).grad(1), "n is int32, and a gradient is by floating"),
        (
            lambda: sv.trace(lambda p: p["w"].sum(), {"w": array(4), "step": array(dtype=jnp.int32)}).grad(),
            r"p\['step'\] is int32",
        ),
        (lambda: sv.trace(lambda x: None, array(4)).grad(), "the result is None; return the loss"),
        (lambda: sv.trace(lambda *, x: x.sum(), x=array(4)).grad(), "there is none, so pass .* by position"),
        (lambda: sv.trace(SUM, array(4), 3, static_argnums=1).grad(1), "argument 1, n, is static"),
        (
            lambda: sv.trace(SUM, array(4), 3).grad(2),
            r"argnums=2 is no positional argument; there are 0 \(x\), 1 \(n\)",
        ),
        (lambda: sv.trace(SUM, array(4), 3).vmap(axis_size=0), "axis_size is the number of examples, 1 or more, not 0"),
        (lambda: sv.trace(SUM, array(4), 3).vmap((0,), axis_size=2), "in_axes has 1 entries and there are 2"),
        (lambda: sv.trace(SUM, array(4), 3).vmap((0, 1), axis_size=2), "in_axes for n: 1 is no place for a new"),
        (lambda: sv.trace(SUM, array(4), 3).vmap((None, None), axis_size=2), "in_axes maps no argument"),
        (lambda: sv.trace(SUM, array(4), 3).vmap(({"a": 0}, 0), axis_size=2), "in_axes for x: .* is no int, None or"),
    ],
)
def test_what_cannot_be_transformed_is_told_why(make, message):
    with pytest.raises(sv.errors.TraceError, match=message):
        make()


def test_a_program_that_is_no_transformed_one_has_no_plan_to_follow():
    with pytest.raises(sv.errors.ShardvizError, match="was not made by grad"):
        sv.trace(jnp.sin, array(4)).plan_from(sv.Plan(MESH))


def test_under_explicit_axes_cotangents_and_tangents_have_the_types_that_jax_wants():
    explicit = sv.mesh("data=2:Explicit,model=4:Explicit")

    def fn(x, w):
        y = jnp.einsum("bd,df->bf", x, w, out_sharding=P("data", None))
        return jax.sharding.reshard(y, P("data", "model"))

    program = sv.trace(fn, array(16, 8), array(8, 4))
    plan = sv.Plan(explicit, (P("data", "model"), P("model", None)))
    program.bind(plan)
    for made, name in ((program.vjp(), "cotangents"), (program.jvp(), "tangent(x)")):
        report = made.propagate(made.plan_from(plan))
        assert str(report.value(name).spec) == "P('data', 'model')"
        assert str(report.outputs[0].spec) == "P('data', 'model')"


def net():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.up, self.norm = nnx.Linear(8, 16, rngs=rngs), nnx.BatchNorm(16, rngs=rngs)
            self.drop, self.down = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)

        def __call__(self, x):
            return self.down(self.drop(nnx.relu(self.norm(self.up(x)))))

    return nnx, lambda: Net(nnx.Rngs(0))


def module_loss(net, x, *, y):
    return jnp.mean((net(x) - y) ** 2)


MODULE_ARGS = ((array(32, 8),), {"y": array(32, 4)})
CHANGED = ["updated.net.drop.rngs.count", "updated.net.norm.mean", "updated.net.norm.var"]


def test_a_modules_gradient_is_by_its_parameters_and_is_that_of_nnx():
    nnx, make = net()
    (x,), y = MODULE_ARGS
    program = sv.trace(module_loss, make, x, **y).value_and_grad()
    outputs = [o.name for o in program.outputs(PLAN)]
    assert sorted(n for n in outputs if n.startswith("updated")) == CHANGED
    assert "grad(net).norm.scale" in outputs and "grad(net).norm.mean" not in outputs
    ours = make()
    pure = [a[...] if isinstance(a, nnx.Variable) else a for _, a in nnx.to_flat_state(nnx.state(ours))]
    (x, y), theirs = values(x, y["y"]), make()
    args, kwargs = program._call.args, program._call.kwargs
    args, kwargs = jax.tree.unflatten(jax.tree.structure((args, kwargs)), [*pure, x, y])
    found = dict(zip(outputs, jax.tree.leaves(run(program, *args, **kwargs)), strict=True))
    value, gradients = nnx.value_and_grad(lambda net: module_loss(net, x, y=y))(theirs)
    np.testing.assert_allclose(found["value"], value, rtol=1e-6)
    for path, gradient in nnx.to_flat_state(gradients):
        name = "grad(net)." + ".".join(map(str, path))
        np.testing.assert_allclose(found.pop(name), gradient[...], rtol=1e-5, atol=1e-7)
    assert not [name for name in found if name.startswith("grad")]
    np.testing.assert_allclose(found["updated.net.norm.mean"], theirs.norm.mean[...], rtol=1e-6)
    assert found["updated.net.drop.rngs.count"] == theirs.drop.rngs.count[...] == 1


def test_what_a_module_changes_comes_out_of_every_transform():
    _, make = net()
    (x,), y = MODULE_ARGS
    program = sv.trace(module_loss, make, x, **y)
    plan = sv.Plan(MESH, (None, P("data")))
    mapped = program.vmap((0, 0), axis_size=8, spmd_axis_name="data")
    for made in (program.grad(), program.vjp(), program.jvp(), mapped, program.grad().vmap((0, 0), axis_size=4)):
        own = made.plan_from(plan) if made is not mapped else made.plan_from(sv.Plan(MESH))
        report = made.propagate(own if "grad.vmap" not in made.name else made.plan(MESH))
        assert sorted(o.name for o in report.outputs if o.name.startswith("updated")) == CHANGED, made.name
    assert (
        str(mapped.propagate(mapped.plan_from(sv.Plan(MESH))).value("updated.net.norm.mean").spec) == "P('data', None)"
    )
    with pytest.raises(sv.errors.TraceError, match=r"by their nnx.Param, and rngs has none"):
        sv.trace(lambda rngs, x: x.sum(), lambda: pytest.importorskip("flax.nnx").Rngs(0), x).grad()
