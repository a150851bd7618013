"""Where a step's FLOPs and bytes are from: against XLA's own count, arithmetic, and programs that are the same."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import ShapeDtypeStruct as S
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from shardviz.compiler import count_bytes, count_flops, graph_of, parse
from shardviz.errors import ShardvizError
from shardviz.graph import heaviest_runs
from shardviz.layouts import itemsize
from tests.truth import answers_of

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


# against XLA


@pytest.fixture(scope="module")
def galleries(tmp_path_factory):
    """Programs of the gallery, compiled for CPU, and what XLA says of their texts."""
    folder = tmp_path_factory.mktemp("work")
    examples = {
        "mlp": gallery.mlp(),
        "llama": gallery.llama("8b", mesh="data=2,model=4"),
        "moe": gallery.moe(),
        "resnet": gallery.resnet(depth=14),
        "ring": gallery.ring(),
    }
    reports, files = {}, {}
    for name, example in examples.items():
        reports[name] = example.program.compile(example.plan)
        for stage in ("partitioned", "optimized"):
            files[name, stage] = folder / f"{name}.{stage}.txt"
            files[name, stage].write_text(reports[name].stages[stage])
    said = json.loads(answers_of(Path(__file__).with_name("cost_truth.py"), *files.values()))
    return reports, {key: said["files"][str(file)] for key, file in files.items()}, said["pointer"]


NAMES = ("mlp", "llama", "moe", "resnet", "ring")


@pytest.mark.parametrize("name", NAMES)
def test_flops_counted_once_are_xlas(galleries, name):
    reports, said, _ = galleries
    cost = reports[name].cost
    assert cost.once_flops == pytest.approx(said[name, "partitioned"]["flops"], rel=3e-5)  # XLA sums up in float32
    optimized = count_flops(parse(reports[name].stages["optimized"]))
    assert optimized.once_flops == pytest.approx(said[name, "optimized"]["flops"], rel=3e-5)


def added(computation):
    """Of a fusion that scatters: bytes of the array that it scatters into, and of what it adds; 0 and 0 of another."""
    scatter = next(i for i in computation.instructions if i.is_root)
    if scatter.opcode != "scatter":
        return 0, 0
    by_name = {i.name: i.shape for i in computation.instructions}
    shapes = scatter.shape, by_name[scatter.operands[2]]
    return [math.prod(shape.dims) * itemsize(shape.dtype) for shape in shapes]


@pytest.mark.parametrize("name", NAMES)
def test_bytes_counted_once_are_xlas(galleries, name):
    """XLA also counts pointers in tuples, and all of what a fusion slices behind a bitcast or scatters into; it does
    not count a custom call (the router's `TopK`), whose operands and results are 1 MB of 17 GB.
    """
    reports, said, pointer = galleries
    module = parse(reports[name].stages["optimized"])
    runs = heaviest_runs(graph_of(module), lambda block: 1.0, {}, fused=False)
    entries = sum(
        n * len(i.operands)
        for block, n in runs.items()
        for i in module.computations[block.name].instructions
        if i.opcode == "tuple"
    )
    fusions = [
        (n, *added(module.computations[i.called["calls"][0]]))
        for block, n in runs.items()
        for i in module.computations[block.name].instructions
        if i.opcode == "fusion"
    ]
    untouched = sum(n * 2 * max(size - update, 0) for n, size, update in fusions)
    ours = reports[name].cost.once_hbm_bytes + pointer * entries + untouched
    assert ours == pytest.approx(said[name, "optimized"]["bytes"], rel=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_rows_sum_up_to_the_totals(galleries, name):
    report = galleries[0][name]
    cost = report.cost
    for key in ("phase", "source", "module", "dtype"):
        totals = cost.by(key)
        assert math.fsum(t.dot_flops for t in totals) == pytest.approx(cost.dot_flops)
        assert math.fsum(t.other_flops for t in totals) == pytest.approx(cost.other_flops)
        assert math.fsum(t.hbm_bytes for t in totals) == pytest.approx(cost.hbm_bytes)
    assert sv.Report.from_json(report.to_json()) == report
    told = [t for t in cost.by("source") if t.key is None]
    assert sum(t.flops for t in told) < 0.01 * cost.flops  # nearly all have their line
    for row in cost.work:
        assert row.source is None or row.source.line in report.source[row.source.file]


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


def test_the_forward_pass_alone_does_what_its_layers_do():
    loop = sv.trace(scanned, WEIGHTS, BATCH).partition(PLAN).cost
    flat = sv.trace(unrolled, ONE_BY_ONE, BATCH).partition(PLAN).cost
    assert loop.dot_flops == flat.dot_flops == DEPTH * PRODUCT
    assert set(phases(loop)) == set(phases(flat)) == {"forward"}


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


def test_another_key_is_refused(adam):
    with pytest.raises(ShardvizError, match="by\\('axes'\\): work is summed by 'phase', 'source', 'module', 'dtype'"):
        adam.cost.by("axes")


# on the screen


def test_the_report_says_what_is_done_where(adam):
    text, html = " ".join(repr(adam).split()), adam._repr_mimebundle_()["text/html"]
    for words in ("read from and written to main memory", "FLOPs: forward ", "main memory traffic: forward "):
        assert words in text
    assert "cost_analysis() counts each loop's body once: " in text and "no loop adds to it" in text
    assert "By phase, line and module" in html and "By module" in html


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
