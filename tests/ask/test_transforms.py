"""A transformed program computes what JAX's transform computes, and keeps the arguments and specs of its original."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import Spec
from tests.raw import array

F32 = jnp.float32
MESH = {"data": 2, "model": 4}
ABSTRACT = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def model(params, x, n, scale=1.0, *, shift):
    return {"y": jnp.tanh(x @ params["w"]) * scale + shift, "count": n + 1}


def loss(params, x, n, scale=1.0, *, shift):
    return jnp.mean(model(params, x, n, scale, shift=shift)["y"])


ARGS = ({"w": array(8, 4)}, array(16, 8), array(dtype=jnp.int32))
SHIFT = {"shift": array()}


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


@pytest.mark.parametrize("argnums", [0, -2, (0, 1)])
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
        assert [a.name for a in ours.arguments] == ["params['w']", "x", "n", "shift"]
        assert_equal(run(ours, *args, **keywords), theirs(*args, **keywords))


def test_the_specs_that_a_function_brings_are_carried_over():
    named = partial(NamedSharding, ABSTRACT)
    fn = jax.jit(lambda params, x: jnp.tanh(x @ params["w"]).sum(), in_shardings=({"w": named(P())}, named(P("data"))))
    program = sv.trace(fn, {"w": array(8, 4)}, array(16, 8))
    w, x = Spec.of(P(), 2), Spec.of(P("data"), 2)
    gradient = program.grad()
    assert gradient.bind(gradient.plan()).in_specs == {"params['w']": w, "x": x}


def test_a_gradient_of_a_gradient():
    assert_equal(run(sv.trace(lambda x: x**3, array()).grad().grad(), 2.0), jnp.float32(12.0))


def test_static_and_keyword_arguments_stay():
    def fn(x, power, scale, *, negate):
        y = jnp.sum(x**power * scale)
        return -y if negate else y

    program = sv.trace(fn, array(4), 3, array(), negate=True, static_argnums=-2, static_argnames="negate")
    (x, scale) = values(array(4), array())
    theirs = jax.grad(fn)(x, 3, scale, negate=True)
    assert_equal(run(program.grad(), x, 3, scale, negate=True), theirs)


def test_a_program_that_waits_for_its_mesh_can_be_transformed():
    program = sv.trace(lambda x: jnp.sum(jax.lax.with_sharding_constraint(x, P("data")) ** 2), array(8, 4))
    report = program.grad().propagate(sv.Plan(MESH, P("data")))
    assert report.arguments[0].shard_shape == report.outputs[0].shard_shape == (4, 4)


SUM = lambda x, n: jnp.sum(x) * n  # noqa: E731


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sv.trace(jnp.sin, array(4)).grad(), r"only defined for scalar-output functions"),
        (lambda: sv.trace(SUM, array(4), array(dtype=jnp.int32)).grad(1), "grad requires real- or complex-valued"),
    ],
)
def test_what_jax_refuses_is_told_in_its_words(make, message):
    with pytest.raises(sv.errors.TraceError, match=message):
        make().arguments  # noqa: B018


def test_of_a_module_flax_takes_the_gradient():
    nnx = pytest.importorskip("flax.nnx")
    mean = lambda net, x: jnp.mean(net(x) ** 2)  # noqa: E731
    make, x = lambda: nnx.Linear(8, 4, rngs=nnx.Rngs(0)), array(16, 8)
    with pytest.raises(sv.errors.TraceError, match=r"trace nnx\.grad of the function"):
        sv.trace(mean, make, x).grad()
    program = sv.trace(nnx.grad(mean), make, x)
    assert {o.shape for o in program.outputs(sv.Plan(MESH))} == {(8, 4), (4,)}
