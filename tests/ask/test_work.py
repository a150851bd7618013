"""Where a step's FLOPs and bytes are from: against arithmetic, and programs that are the same."""

from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import ShapeDtypeStruct as S
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from shardviz.compiler import count_bytes, parse

DEPTH, WIDTH, ROWS = 6, 128, 64
PRODUCT = 2 * ROWS * WIDTH * WIDTH / 4  # of one of four devices
BATCH, WEIGHTS = S((ROWS, WIDTH), jnp.float32), S((DEPTH, WIDTH, WIDTH), jnp.float32)
PLAN = sv.Plan("data=4", (P(), P("data", None)), P())


def layer(h, w):
    return jnp.tanh(h @ w), None


def scanned(ws, x):
    return jnp.sum(jax.lax.scan(layer, x, ws)[0] ** 2)


def unrolled(ws, x):
    for w in ws:
        x, _ = layer(x, w)
    return jnp.sum(x**2)


def checkpointed(ws, x):
    return jnp.sum(jax.lax.scan(jax.checkpoint(layer), x, ws)[0] ** 2)


def phases(cost):
    return {total.key: total for total in cost.by("phase")}


# programs that are the same


ONE_BY_ONE = [S((WIDTH, WIDTH), jnp.float32)] * DEPTH


def test_a_scan_does_what_its_layers_do():
    plan = sv.Plan("data=4", PLAN.in_specs, None)
    loop = sv.trace(jax.value_and_grad(scanned), WEIGHTS, BATCH).compile(plan).cost
    flat = sv.trace(jax.value_and_grad(unrolled), ONE_BY_ONE, BATCH).compile(plan).cost
    assert loop.dot_flops == 3 * DEPTH * PRODUCT
    assert flat.dot_flops == loop.dot_flops - PRODUCT  # the first layer's input needs no gradient
    assert loop.once_flops < loop.flops / 4 and flat.once_flops == flat.flops
    assert loop.other_flops == pytest.approx(flat.other_flops, rel=0.1)  # but for the loop's own counting and slicing
    assert loop.hbm_bytes > 3 * loop.once_hbm_bytes and flat.hbm_bytes == flat.once_hbm_bytes
    assert flat.hbm_bytes < loop.hbm_bytes < 2 * flat.hbm_bytes  # what is stacked is written and read again


# phases


def test_a_checkpoint_recomputes_the_forward_pass():
    program = sv.trace(jax.grad(checkpointed), WEIGHTS, BATCH)
    for cost in (program.partition(PLAN).cost, program.compile(PLAN).cost):
        found = phases(cost)
        assert found["forward"].dot_flops == found["rematerialised"].dot_flops == DEPTH * PRODUCT
        assert found["backward"].dot_flops == 2 * DEPTH * PRODUCT


def train_step(params, state, moment, tokens):
    """Adam by hand and by optax, before them a batch made ready, after them a number for a log."""
    x = (tokens.astype(jnp.float32) - 0.5) * 2.0  # made ready

    def loss(params):
        return jnp.mean((jnp.tanh(x @ params["w"]) @ params["v"]) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    updates, state = optax.adam(1e-3).update(grads, state, params)
    moment = moment * 0.9  # no gradient reaches it, and yet
    log = value * 100.0 + 1.0  # for the log
    return jax.tree.map(lambda p, u: p + u + moment, params, updates), state, moment, log


PARAMS = {"w": S((WIDTH, WIDTH), jnp.float32), "v": S((WIDTH, WIDTH), jnp.float32)}


@pytest.fixture(scope="module")
def adam():
    state = jax.eval_shape(optax.adam(1e-3).init, PARAMS)
    tokens = S((ROWS, WIDTH), jnp.int32)
    program = sv.trace(train_step, PARAMS, state, S((WIDTH, WIDTH), jnp.float32), tokens)
    return program.compile(sv.Plan("data=4", (P(), P(), P(), P("data"))))


def test_the_optimizer_is_the_update(adam):
    source = Path(__file__).read_text().splitlines()

    def phases_of(text):
        (line,) = [n for n, content in enumerate(source, 1) if text in content and "phases_of" not in content]
        return {row.phase for row in adam.cost.work if row.source and row.source.line == line and row.flops}

    assert phases_of("# made ready") == {"forward"}
    assert phases_of("def loss(params)") == set()
    assert phases_of("return jnp.mean((jnp.tanh(x @") == {"forward", "backward"}
    assert phases_of("updates, state = optax.adam(1e-3)") == {"update"}
    assert phases_of("# no gradient reaches it, and yet") == {"update"}
    assert phases_of("# for the log") == {"forward"}
    assert phases_of("lambda p, u: p + u + moment") == {"update"}
    found = phases(adam.cost)
    assert found["update"].dot_flops == 0 and found["update"].other_flops > 20 * WIDTH * WIDTH
    assert found["forward"].dot_flops == 2 * PRODUCT and found["backward"].dot_flops == 3 * PRODUCT
    assert found["update"].hbm_bytes >= 7 * 2 * WIDTH * WIDTH * 4  # p, m and v read and written, the gradient read


def test_the_collectives_have_the_same_phases(adam):
    assert {c.phase for c in adam.collectives} == {"forward", "backward"}  # the loss, the gradients


def test_two_steps_in_one_program_are_told_apart():
    """The second step's batch is made ready before, its forward pass after, the first step's update."""

    def step(w, x):
        loss, g = jax.value_and_grad(lambda w: jnp.sum((x @ w) ** 2))(w)
        return w - 0.1 * g, jnp.full(x.shape, loss) * 7.0

    def two(w, x, y):
        w, _ = step(w, x * 2.0)
        return step(w, y * 3.0)

    def many(w, xs):
        return jax.lax.scan(lambda w, x: step(w, x * 2.0), w, xs)

    w, x = PARAMS["w"], BATCH
    first = sv.trace(two, w, x, x).partition(sv.Plan("data=4", (P(), P("data"), P("data"))))
    second = sv.trace(many, w, S((3, ROWS, WIDTH), jnp.float32)).partition(sv.Plan("data=4", (P(), P(None, "data"))))
    for cost in (first.cost, second.cost):
        found = phases(cost)
        size = {"made ready": ROWS * WIDTH / 4, "updated": WIDTH * WIDTH, "logged": 1}
        steps = 2 if cost is first.cost else 3
        assert found["update"].other_flops == pytest.approx(steps * 2 * size["updated"], abs=2 * steps)  # the counter
        assert found["forward"].other_flops >= steps * size["made ready"] + size["logged"]
        assert found["update"].dot_flops == 0


def test_levels_agree_on_phases():
    """Products before the derivative, inside it, and in an optimizer that multiplies gradients; in a loop too."""

    def step(w, x):
        x = jnp.tanh(x @ jnp.ones((WIDTH, WIDTH)))  # a random projection, say
        g = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)
        scaled = g @ (g.T @ g)  # Newton-Schulz
        return w - 0.1 * scaled - w @ w * 1e-4  # a product that no gradient reaches

    def loop(w, xs):
        return jax.lax.scan(lambda w, x: (step(w, x), None), w, xs)[0]

    one = sv.trace(step, PARAMS["w"], BATCH), sv.Plan("data=4", (P("data"), P("data")), P("data"))
    many = (
        sv.trace(loop, PARAMS["w"], S((3, ROWS, WIDTH), jnp.float32)),
        sv.Plan("data=4", (P("data"), P(None, "data")), P("data")),
    )
    for program, plan in (one, many):
        propagated, made = program.propagate(plan), program.partition(plan)
        sums = [{key: t.dot_flops for key, t in phases(r.cost).items() if t.dot_flops} for r in (propagated, made)]
        assert set(sums[1]) == {"forward", "backward", "update"} and sums[0] == pytest.approx(sums[1])
        assert {c.phase for c in propagated.collectives} >= {"backward", "update"}


def test_a_program_without_a_derivative_is_forward():
    def sampled(x, y):
        return jnp.sum(jnp.where(x > y, x, y) * 2)

    cost = sv.trace(sampled, BATCH, BATCH).partition(sv.Plan("data=4", (P("data"), P("data")))).cost
    assert {row.phase for row in cost.work} == {"forward"}


# lines and modules


def test_lines_and_modules_are_named():
    def block(x, w):
        with jax.named_scope("attention"):
            x = x @ w
        with jax.named_scope("mlp"):
            return x + jax.nn.relu(x @ w)

    def plain(x, w):
        return block(x, w) @ w

    cost = sv.trace(jax.grad(lambda w, x: plain(x, w).sum()), PARAMS["w"], BATCH).partition(PLAN).cost
    products = {t.key: t.dot_flops for t in cost.by("module") if t.dot_flops}
    assert set(products) == {"attention", "mlp", "plain"}
    assert products["mlp"] == 3 * PRODUCT and products["attention"] == 2 * PRODUCT


# on the screen


def test_a_step_on_a_machine_reads_and_writes_what_its_compiler_says():
    example = gallery.llama("8b", mesh="data=2,model=4")
    report = example.program.compile(example.plan)
    cost = sv.cost(report, "tpu v5e:2x4")
    assert not cost.hbm_exact  # compiled for CPU
    assert "HBM traffic: forward" not in cost.text() and "FLOPs: forward" in cost.text()
    assert all(f"By {what}" in cost.text() and f"By {what}" in cost.html() for what in ("phase", "line"))


def test_bytes_are_counted_from_the_optimised_program():
    """A product alone: each of its arrays moves once."""
    program = sv.trace(lambda x, w: x @ w, BATCH, S((WIDTH, WIDTH), jnp.float32))
    report = program.compile(sv.Plan("data=4", (P("data"), P())))
    assert report.cost.hbm_bytes == report.cost.once_hbm_bytes == 4 * (2 * ROWS * WIDTH / 4 + WIDTH * WIDTH)
    assert count_bytes(parse(report.stages["optimized"])).bytes == report.cost.hbm_bytes
    assert program.partition(sv.Plan("data=4", (P("data"), P()))).cost.hbm_bytes is None
