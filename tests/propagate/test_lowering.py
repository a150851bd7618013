"""What is compiled is what JAX would compile: our lowered modules against those of `jax.jit(f).lower(...)`, as text."""

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from shardviz.ask.targeting import resolve_target
from shardviz.notation import DeviceMesh, Spec
from shardviz.processes.job import TPU_ENVIRONMENT
from tests.propagate import group_norm
from tests.truth import answers_of, filled_once

pytestmark = pytest.mark.slow

MESH = {"data": 2, "model": 4}
SQUARE = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def ours(program, plan):
    return program.texts(plan)["stablehlo"]


def functions(text):
    """Name → text, of every function of a module; a mesh that has no axes says nothing."""
    parts = re.split(r"^  (?=func\.func)", re.sub(r"^  sdy\.mesh @empty_mesh.*\n", "", text, flags=re.M), flags=re.M)
    head = re.sub(r"^module @\w+", "module", parts[0])
    return {"": head} | {re.search(r'@("[^"]*"|[\w.]+)', part)[1]: part.removesuffix("}\n") for part in parts[1:]}


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return filled_once(tmp_path_factory, Path(__file__).with_name("lowering_truth.py"), devices=64)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name for name in gallery.__all__ if name not in ("Example", "measured", "option_sets", "published")]
)
def test_a_gallery_programs_module_is_that_of_jax(truth, name):
    example = getattr(gallery, name)()
    found, expected = functions(ours(example.program, example.plan)), functions((truth / f"{name}.txt").read_text())
    assert found.keys() == expected.keys()
    for function, text in expected.items():
        assert found[function] == text, function


def dense(x, w):
    return x @ w


def norm(x, w):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5)


def spatial_norm(x, w):
    return x * lax.rsqrt(jnp.var(x, 0, keepdims=True) + 1e-5)


def activation(x, w):
    return jax.nn.gelu(jax.nn.relu(x)) + jax.nn.softmax(x)


def constrained(x, w):
    return lax.with_sharding_constraint(x, P("data", "model"))


def random(x, w):
    return x + jax.random.normal(jax.random.key(0), x.shape)


Body = Callable[[jax.Array, jax.Array], jax.Array]
LEAVES = (dense, norm, spatial_norm, activation, constrained, random)


def chain(*bodies: Body) -> Body:
    def fn(x, w):
        for body in bodies:
            x = body(x, w)
        return x

    return fn


def twice(body: Body) -> Body:
    """One jitted function, called two times."""
    inner = jax.jit(body)
    return lambda x, w: inner(inner(x, w) * 0.5, w)


def scanned(body: Body) -> Body:
    return lambda x, w: lax.scan(lambda c, _: (body(c, w), c.sum()), x, None, length=3)[0]


def looped(body: Body) -> Body:
    return lambda x, w: lax.fori_loop(0, 2, lambda _, c: body(c, w), x)


def branched(body: Body) -> Body:
    return lambda x, w: lax.cond(x.sum() > 0, body, lambda x, w: body(x + 1, w), x, w)


def checkpointed(body: Body) -> Body:
    return jax.checkpoint(body)


def with_own_gradient(body: Body) -> Body:
    @jax.custom_vjp
    def fn(x, w):
        return body(x, w)

    fn.defvjp(lambda x, w: (body(x, w), (x, w)), lambda kept, g: (g * kept[0], body(kept[0], g[: kept[1].shape[0]])))
    return fn


WRAPPERS = (twice, scanned, looped, branched, checkpointed, with_own_gradient)
BODIES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda bodies: chain(*bodies)),
        st.tuples(st.sampled_from(WRAPPERS), inner).map(lambda both: both[0](both[1])),
    ),
    max_leaves=5,
)
SPECS = st.sampled_from([P(), P("data"), P(None, "model"), P("data", "model"), P(("data", "model"))])


def of_jax(fn, args, mesh, specs, out_specs, kind=AxisType.Auto, **options):
    """The text of raw JAX's module, on a mesh without devices."""
    mesh = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(kind,) * len(mesh))
    placed = lambda spec: None if spec is None else NamedSharding(mesh, spec)
    outs = type(out_specs)(map(placed, out_specs)) if type(out_specs) in (list, tuple) else placed(out_specs)
    jitted = jax.jit(fn, in_shardings=tuple(map(placed, specs)), out_shardings=outs, **options)
    with jax.sharding.use_abstract_mesh(mesh), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        if kind is AxisType.Explicit:
            typed = zip(args, map(placed, specs), strict=True)
            args = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in typed]
        return jitted.trace(*args).lower(lowering_platforms=("cpu",)).as_text()


@settings(max_examples=40)
@given(BODIES, st.booleans(), st.lists(SPECS, min_size=2, max_size=2), st.one_of(st.none(), SPECS), st.booleans())
def test_a_programs_module_is_that_of_jax(body, differentiated, specs, out_spec, donated):
    loss = jax.grad(lambda x, w: (body(x, w) ** 2).sum())
    fn = chain(loss if differentiated else body, lambda x, w: x + 0 * w)  # JAX leaves an argument out that has no use
    options = {"donate_argnums": 0} if donated else {}
    found = ours(sv.trace(fn, SQUARE, SQUARE, **options), sv.Plan(MESH, tuple(specs), out_spec))
    assert functions(found) == functions(of_jax(fn, (SQUARE, SQUARE), MESH, specs, out_spec, **options))


@jax.sharding.auto_axes
def auto_inside(x, w):
    return jnp.tanh(x @ w)


@jax.sharding.explicit_axes
def explicit_inside(x, w):
    return jnp.einsum("ij,jk->ik", x, w, out_sharding=P("data", "model"))


CHANGING = {
    "auto": (lambda x, w: auto_inside(x, w, out_sharding=P("data", "model")) * 2, AxisType.Explicit),
    "explicit": (lambda x, w: explicit_inside(x, w, in_sharding=(P("data"), P(None, "model"))) * 2, AxisType.Auto),
}


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", CHANGING)
def test_functions_may_change_the_types_of_axes(name, differentiated):
    """`jax.sharding.auto_axes` and `explicit_axes`, inside a function."""
    fn, kind = CHANGING[name]
    fn = jax.grad(lambda x, w, fn=fn: fn(x, w).sum(), (0, 1)) if differentiated else fn
    specs = P("data", None), P(None, "model")
    out = specs if differentiated else P("data", "model")
    plan = sv.Plan(DeviceMesh(tuple(MESH), tuple(MESH.values()), (kind.name,) * 2), specs, out)
    program = sv.trace(fn, SQUARE, SQUARE)
    expected = of_jax(fn, (SQUARE, SQUARE), MESH, specs, out, kind)
    assert functions(ours(program, plan)) == functions(expected)
    reports = program.propagate(plan), program.partition(plan), program.propagate(plan.with_mesh("data=2,model=2"))
    for report in reports:
        for output, spec in zip(report.outputs, specs if differentiated else [out], strict=True):
            assert output.spec.same_as(Spec.of(spec), report.mesh)


@pytest.mark.parametrize("ordered", [False, True])
def test_what_only_reports_is_left_out_and_leaves_nothing_behind(ordered):
    def reporting(x, _):
        jax.debug.print("{}", x[0, 0], ordered=ordered)
        return twice(norm)(x, None)

    quiet = lambda x: scanned(twice(norm))(x, None)
    found = ours(sv.trace(lambda x: scanned(reporting)(x, None), SQUARE), sv.Plan(MESH, P("data")))
    assert functions(found) == functions(of_jax(quiet, (SQUARE,), MESH, (P("data"),), None))


@settings(max_examples=60)
@given(st.data())
def test_donated_arguments_find_the_results_that_jax_gives_them(data):
    shapes = st.sampled_from([(8, 8), (8, 16), (16, 8), (4, 4)])
    arrays = data.draw(st.lists(st.tuples(shapes, SPECS), min_size=1, max_size=4))
    results = data.draw(st.lists(st.tuples(shapes, st.one_of(st.none(), SPECS)), min_size=1, max_size=4))
    donated = tuple(data.draw(st.sets(st.integers(0, len(arrays) - 1))))

    def fn(*args):
        total = sum(a.sum() for a in args)
        return [jnp.broadcast_to(total, shape) for shape, _ in results]

    mesh, specs, out_specs = {"data": 2, "model": 2}, tuple(s for _, s in arrays), [s for _, s in results]
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape, _ in arrays]
    found = ours(sv.trace(fn, *args, donate_argnums=donated), sv.Plan(mesh, specs, out_specs))
    assert functions(found) == functions(of_jax(fn, args, mesh, specs, out_specs, donate_argnums=donated))


@pytest.mark.long
@pytest.mark.tpu
def test_a_variance_called_eight_times_is_compiled_for_a_tpu_as_jax_compiles_it():
    target, mesh = "tpu v5p:2x2x2", DeviceMesh.of(group_norm.MESH)
    program = sv.trace(group_norm.step, *group_norm.arguments())
    report = program.compile(sv.Plan(mesh, group_norm.SPECS), target, timeout=300)
    ids = ",".join(map(str, resolve_target(target, mesh).topology.device_ids))
    said = json.loads(answers_of(group_norm.__file__, ids, **TPU_ENVIRONMENT).splitlines()[-1])
    found, expected = (group_norm.all_reduces(text) for text in (report.stages["optimized"], said["text"]))
    assert found == expected and any(size % 1024 == 0 and size < 10_000 for size in found)
    assert report.memory.temporaries <= said["temporaries"]  # which counts the gaps between them once more
