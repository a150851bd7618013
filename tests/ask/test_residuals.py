"""What is kept for the backward pass is what JAX's own partial evaluation says that it keeps."""

import contextlib
import importlib
import math
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax._src.ad_checkpoint import saved_residuals  # the implementation of jax.ad_checkpoint.print_saved_residuals
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from tests.raw import array

MLP = importlib.import_module("shardviz.gallery.mlp")
LLAMA = importlib.import_module("shardviz.gallery.llama")
POLICIES = {
    "dots_saveable": jax.checkpoint_policies.dots_saveable,
    "nothing_saveable": jax.checkpoint_policies.nothing_saveable,
    "everything_saveable": jax.checkpoint_policies.everything_saveable,
    "names": jax.checkpoint_policies.save_only_these_names("hidden", "attended"),
}
F32 = jnp.float32


def on(mesh):
    mesh = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    return jax.sharding.use_abstract_mesh(mesh)


def truth(fn, args, mesh=None):
    """(shape and dtype of everything that JAX keeps but arguments, names of the arguments that it needs again)."""
    with on(mesh) if mesh else contextlib.nullcontext():
        found = saved_residuals(fn, *args)
    own = "from the argument "
    arguments = {text.removeprefix(own) for _, text in found if text.startswith(own)}
    return Counter((tuple(a.shape), str(a.dtype)) for a, text in found if not text.startswith(own)), arguments


def ours(report):
    kinds = {kind: [r.value for r in report.residuals if r.kind == kind] for kind in ("kept", "argument", "constant")}
    count = lambda values: Counter((v.shape, v.dtype) for v in values)
    return count(kinds["kept"]), {v.name for v in kinds["argument"]}, count(kinds["constant"])


def assert_true(report, fn, args, mesh=None, unread=frozenset()):
    """JAX's list and ours agree, but for constants, which equal ones share and which take no memory.

    `unread` are those constants of JAX's list, made before what nobody uses is taken out, that nothing backward reads.
    """
    theirs, their_arguments = truth(fn, args, mesh)
    kept, arguments, constants = ours(report)
    assert arguments == their_arguments
    assert not kept - theirs, "kept here, and not by JAX"
    scalars = {key for key in theirs if not key[0]}
    assert set(theirs - kept) <= set(constants) | scalars | unread, "kept by JAX, and not here"


def assert_bytes(report):
    """Shard shapes and bytes are those that the specs say, reckoned from the mesh's sizes here."""
    sizes = report.mesh.shape
    width = {"float32": 4, "bfloat16": 2, "int32": 4, "bool": 1}
    total = 0
    for r in report.residuals:
        parts = [math.prod(sizes[a] for a in dim) for dim in r.value.spec.dims]
        shard = tuple(-(-n // p) for n, p in zip(r.value.shape, parts, strict=True))
        assert r.value.shard_shape == shard
        assert r.value.bytes_per_device == math.prod(shard) * width[r.value.dtype]
        total += r.value.bytes_per_device if r.kind in ("kept", "outside") else 0
    assert report.residual_bytes == total


def test_a_perceptrons_residuals_are_jaxs():
    example = gallery.mlp()
    program = sv.trace(jax.grad(MLP.loss_fn, (0, 1, 2)), *example.args)
    report = program.propagate(sv.Plan(example.mesh, example.in_specs))
    assert_true(report, MLP.loss_fn, example.args)
    assert_bytes(report)
    kept = [r for r in report.residuals if r.kind == "kept"]
    hidden = [r for r in kept if r.value.shape == (4096, 4096) and r.value.dtype == "float32"]
    # what a layer hands to the next: cut by rows over data and by columns over model, on the line of the ReLU
    assert [str(r.value.spec) for r in hidden] == ["P('data', 'model')"] * 2
    line = MLP.forward.__code__.co_firstlineno + 3
    assert {r.value.source.line for r in hidden} == {line}
    assert all(r.value.bytes_per_device == 4096 // 2 * 4096 // 4 * 4 for r in hidden)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policys_residuals_are_jaxs(policy):
    example = gallery.mlp()

    def forward(params, x):
        for layer in params[:-1]:
            x = checkpoint_name(jax.nn.relu(x @ layer["w"] + layer["b"]), "hidden")
        return jnp.tanh(x @ params[-1]["w"])

    def loss(params, x, y):
        return jnp.mean((jax.checkpoint(forward, policy=POLICIES[policy])(params, x) - y) ** 2)

    report = sv.trace(jax.grad(loss, (0, 1, 2)), *example.args).propagate(sv.Plan(example.mesh, example.in_specs))
    assert_true(report, loss, example.args)
    assert_bytes(report)
    again = [r for r in report.residuals if r.kind == "recomputed"]
    named = [r.checkpoint_name for r in report.residuals if r.kind == "kept" and r.checkpoint_name]
    assert bool(again) == (policy != "everything_saveable")
    if policy == "names":
        assert named == ["hidden", "hidden"]
    if policy == "nothing_saveable":  # only what stands after the checkpoint is kept; the hidden values are made again
        assert not named
        assert Counter(r.checkpoint_name for r in again)["hidden"] >= 1


def test_llamas_residuals_are_jaxs():
    example = gallery.llama("8b")
    report = example.program.propagate(example.plan)
    params, _, tokens = example.args
    assert_true(report, LLAMA.loss_fn, (params, tokens), example.mesh)
    assert_bytes(report)
    (stack,) = [r for r in report.residuals if r.layers != 1]
    assert (stack.value.shape, stack.layers) == ((32, 64, 4096, 4096), 32)
    assert str(stack.value.spec) == "P(None, 'data', None, None)"
    assert stack.value.bytes_per_device == 32 * 64 // 8 * 4096 * 4096 * 2
    again = [r for r in report.residuals if r.kind == "recomputed"]
    assert again
    assert {r.value.count for r in again} == {32}


@pytest.mark.parametrize("policy", [None, *POLICIES])
def test_a_scanned_models_residuals_are_jaxs(policy):
    example = gallery.llama("8b", layers=4, batch=8, length=128)
    params, _, tokens = example.args

    def block(x, p):
        h = LLAMA.rms_norm(x, p["ln1"])
        q = jnp.einsum("btd,dhk->bthk", h, p["wq"])
        k, v = (jnp.einsum("btd,dhk->bthk", h, p[w]) for w in ("wk", "wv"))
        a = checkpoint_name(LLAMA.attention(q, k, v), "attended")
        x = x + jnp.einsum("bthk,hkd->btd", a, p["wo"])
        return jax.lax.with_sharding_constraint(x + jax.nn.silu(x @ p["w1"]) @ p["w2"], P("data"))

    body = block if policy is None else jax.checkpoint(block, policy=POLICIES[policy])

    def loss(params, tokens):
        x, _ = jax.lax.scan(lambda x, p: (body(x, p), None), params["emb"][tokens], params["layers"])
        return jnp.mean(x.astype(F32) ** 2)

    program = sv.trace(jax.grad(loss), params, tokens)
    report = program.propagate(sv.Plan(example.mesh, (example.in_specs[0], P("data"))))
    fill = {((8, 8, 4, 128, 128), "float32")}  # -1e30, which the causal mask puts in: only its place is of use later
    assert_true(report, loss, (params, tokens), example.mesh, fill)
    assert_bytes(report)
    stacked = [r for r in report.residuals if r.layers == 4]
    assert stacked
    assert all(r.value.shape[0] == 4 and r.value.spec.dims[0] == () for r in stacked)
    named = [r.value.shape for r in stacked if r.checkpoint_name == "attended"]
    if policy == "names":
        assert named == [(4, 8, 128, 32, 128)]


@jax.custom_vjp
def scaled(x, k):
    return x * 2.0


scaled.defvjp(lambda x, k: (x * 2.0, (k, x > 0)), lambda kept, g: (g * kept[0] * kept[1], None))


def test_integers_that_the_backward_pass_alone_uses_are_kept_for_it():
    """Of a `custom_vjp`, an argument that the forward pass hands on, and what it makes that is no float."""

    def loss(x, k):
        return jnp.sum(scaled(x, k))

    args = array(8, 4), array(8, 4, dtype=jnp.int32)
    report = sv.trace(jax.grad(loss), *args).propagate(sv.Plan("x=2", (P("x"), P("x"))))
    assert_true(report, loss, args)
    found = {r.value.name: (r.kind, r.value.dtype) for r in report.residuals}
    assert found["k"] == ("argument", "int32")
    assert "bool" in {dtype for _, dtype in found.values()}


def test_steps_inside_a_loop_are_read():
    """Gradients summed over microbatches: what one microbatch keeps, made as often as there are microbatches."""

    def step(w, batches):
        def one(total, x):
            return total + jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(w), None

        return jax.lax.scan(one, jnp.zeros_like(w), batches)[0]

    report = sv.trace(step, array(4, 16), array(3, 8, 4)).propagate(sv.Plan("x=2", (None, P(None, "x"))))
    (cos,) = [r for r in report.residuals if r.kind == "kept" and r.value.shape == (8, 16)]
    assert (cos.value.count, cos.layers, cos.value.shard_shape) == (3, 1, (4, 16))


def test_steps_inside_nested_functions_are_read():
    """A `jax.jit` inside, of the loss, of the gradient, of both and by the program's own name, changes no row."""

    def loss(w, x):
        return jnp.sum(jnp.sin(x @ w))

    def rows(fn):
        def step(w, x):
            return w - fn(w, x)

        report = sv.trace(step, array(4, 16), array(8, 4)).propagate(sv.Plan("x=2", (None, P("x"))))
        return [(r.kind, r.value.name, r.value.shape, r.value.spec, r.value.source) for r in report.residuals]

    def step(w, x):
        return jax.grad(loss)(w, x)

    plain = rows(jax.grad(loss))
    assert [row[:3] for row in plain] == [("kept", "cos", (8, 16)), ("argument", "x", (8, 4))]
    assert rows(jax.grad(jax.jit(loss))) == rows(jax.jit(jax.grad(loss))) == plain
    assert rows(jax.jit(jax.grad(jax.jit(loss)))) == rows(jax.jit(step)) == plain


def test_a_branchs_and_a_custom_rules_residuals_are_jaxs():
    @jax.custom_vjp
    def cube(x):
        return x**3

    cube.defvjp(lambda x: (x**3, jnp.cos(x)), lambda c, g: (c * g,))

    def loss(x, w, flag):
        y = jax.lax.cond(flag > 0, jnp.sin, lambda x: x * 2, x @ w)
        return jnp.sum(cube(y))

    args = array(8, 4), array(4, 16), array(dtype=jnp.int32)
    report = sv.trace(jax.grad(loss, (0, 1)), *args).propagate(sv.Plan("x=2", (P("x"), None, None)))
    theirs, arguments = truth(loss, args)
    kept, our_arguments, _ = ours(report)
    assert our_arguments == arguments
    assert {key for key in kept if key[0]} == {key for key in theirs if key[0]}


def test_a_shard_maps_residuals_are_whole_arrays():
    mesh = AbstractMesh((2,), ("x",), axis_types=(AxisType.Auto,))

    def loss(x, w):
        body = jax.shard_map(lambda x, w: jnp.sin(x @ w), mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
        return jnp.sum(body(x, w))

    report = sv.trace(jax.grad(loss, (0, 1)), array(8, 4), array(4, 16)).propagate(sv.Plan("x=2", (P("x"), None)))
    assert_true(report, loss, (array(8, 4), array(4, 16)), {"x": 2})
    kept = {r.value.name: r.value for r in report.residuals if r.kind == "kept"}
    # every device's own copy of w, and what its sine leaves; one array each, cut over the devices
    assert {n: (v.shape, v.shard_shape) for n, v in kept.items()} == dict.fromkeys(
        ("shard_map", "cos"), ((8, 16), (4, 16))
    )
    assert_bytes(report)


def test_a_program_without_a_backward_pass_has_none():
    report = sv.trace(lambda x: x * 2, array(8)).propagate(sv.Plan("x=2"))
    assert report.residuals == ()
    assert "Residuals" not in repr(report)


def test_what_is_kept_inside_a_shard_map_is_each_devices_own():
    mesh = AbstractMesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    def step(w, x):
        return jax.grad(lambda w: jax.lax.pmean(jnp.mean(jnp.sin(x @ w)), "x"))(w)

    args = array(8, 4), array(16, 8)
    whole = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("x")), out_specs=P())
    report = sv.trace(whole, *args).propagate(sv.Plan("x=2,y=2"))
    (kept,) = [r.value for r in report.residuals if r.kind == "kept" and r.value.shape]
    assert (kept.shape, kept.shard_shape, kept.spec, kept.manual) == ((8, 4), (8, 4), None, ("x", "y"))
    assert "per device over x, y" in str(report).split("Residuals")[1]
    partial = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("x")), out_specs=P(), axis_names={"x"})
    report = sv.trace(partial, *args).propagate(sv.Plan("x=2,y=2", (P(None, "y"), P("x"))))
    (kept,) = [r.value for r in report.residuals if r.kind == "kept" and r.value.shape]
    assert (kept.shape, kept.shard_shape, str(kept.spec), kept.manual) == ((8, 4), (8, 2), "P(None, 'y')", ("x",))


@pytest.mark.parametrize("scanned", [False, True])
def test_what_a_policy_offloads_takes_no_memory_of_the_device(scanned):
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["kept"],
        names_which_can_be_offloaded=["away"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def block(x, w):
        h = checkpoint_name(jnp.tanh(x @ w), "away")
        return x + checkpoint_name(jnp.sin(h @ w.T), "kept")

    def loss(w, x):
        run = jax.checkpoint(block, policy=policy)
        y = jax.lax.scan(lambda x, w: (run(x, w), None), x, w)[0] if scanned else run(x, w)
        return jnp.mean(y**2)

    shape = (3, 8, 4) if scanned else (8, 4)
    report = sv.trace(jax.grad(loss), array(*shape), array(16, 8)).propagate(sv.Plan("x=2", (None, P("x"))))
    (away,) = [r for r in report.residuals if r.kind == "offloaded"]
    stack = (3,) if scanned else ()
    assert (away.checkpoint_name, away.value.shape, away.value.shard_shape) == ("away", (*stack, 16, 4), (*stack, 8, 4))
    assert not away.takes_memory
    assert report.residual_bytes == sum(r.value.bytes_per_device for r in report.residuals if r.kind == "kept")
    assert "1 value kept in the host's memory" in " ".join(str(report).split())
    assert "kept in the host&#x27;s memory" in report._repr_mimebundle_()["text/html"]
