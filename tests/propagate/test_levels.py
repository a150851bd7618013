"""What Shardy predicts in the kernel is what XLA's partitioner makes: collectives, phases, and where they part."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.ask.targeting import resolve_target
from shardviz.notation import DeviceMesh, Spec
from tests.programs import scanned, vit

pytestmark = pytest.mark.slow

MESH, BOTH = "data=2,model=4", ("data", "model")
X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
CUBE = jax.ShapeDtypeStruct((16, 64, 128), jnp.float32)
WEIGHT = jax.ShapeDtypeStruct((128, 64), jnp.float32)
ROW = jax.ShapeDtypeStruct((128,), jnp.float32)
IDS = jax.ShapeDtypeStruct((64, 32), jnp.int32)
CUT, PRODUCT = P("data", "model"), (P("data", "model"), P("model"))

SUMS = {
    "a sum over two axes": (lambda x: jnp.sum(x), (X,), (CUT,)),
    "a sum of a sum": (lambda x: jnp.sum(jnp.sum(x, 1), 0), (X,), (CUT,)),
    "a sum of a sum, both used": (lambda x: (s := jnp.sum(x, 1), jnp.sum(s, 0)), (X,), (CUT,)),
    "a greatest of a greatest": (lambda x: jnp.max(jnp.max(x, 1), 0), (X,), (CUT,)),
    "a sum of a greatest": (lambda x: jnp.sum(jnp.max(x, 1), 0), (X,), (CUT,)),
    "a scaled sum of a sum": (lambda x: jnp.sum(jnp.sum(x, 1) * 2, 0), (X,), (CUT,)),
    "three sums": (lambda x: jnp.sum(jnp.sum(jnp.sum(x, 2), 1), 0), (CUBE,), (CUT,)),
    "a mean of a mean": (lambda x: jnp.mean(jnp.mean(x, 1), 0), (X,), (CUT,)),
    "one dimension over both": (lambda x: jnp.sum(x), (X,), (P(("data", "model")),)),
    "a product over two": (lambda t, u: jnp.einsum("abc,abd->cd", t, u), (CUBE, CUBE), (CUT, CUT)),
    "axes turned round": (lambda t, u: jnp.einsum("abc,abd->cd", t, u), (CUBE, CUBE), (P("model", "data"),) * 2),
    "a product's sum": (lambda x, w: jnp.sum(x @ w), (X, WEIGHT), PRODUCT),
    "a bias' gradient": (lambda x, b: jax.grad(lambda b: jnp.sum(jnp.tanh(x + b)))(b), (CUBE, ROW), (CUT, P())),
    "softmax": (lambda x: jax.nn.softmax(x, (0, 1)), (X,), (CUT,)),
    "an embedding's gradient": (
        lambda e, i: jax.grad(lambda e: jnp.sum(e[i] ** 2))(e),
        (jax.ShapeDtypeStruct((128, 16), jnp.float32), IDS),
        (P(), CUT),
    ),
    "a user's two sums": (
        lambda x: jax.shard_map(lambda x: lax.psum(lax.psum(x, "data"), "model"), in_specs=CUT, out_specs=P())(x),
        (X,),
        (CUT,),
    ),
    "the same twice": (lambda x, w: (x @ w) * jnp.sum(jnp.tanh(x) @ w), (X, WEIGHT), (P("data"), P("model"))),
    "a weight gathered twice": (lambda x, w: x @ w + jnp.tanh(x) @ w, (X, WEIGHT), (P(("data", "model")), P("data"))),
}


TABLES, ASKED = jax.ShapeDtypeStruct((16, 2000, 64), jnp.float32), jax.ShapeDtypeStruct((1024, 16), jnp.int32)


def looked_up(tables, ids):
    return jax.vmap(lambda table, ids: table[ids], (0, 1), 1)(tables, ids)


def added_to(tables, ids, rows):
    return jax.vmap(lambda table, ids, rows: table.at[ids].add(rows), (0, 1, 1))(tables, ids, rows)


ROWS = jax.ShapeDtypeStruct((1024, 16, 64), jnp.float32)
STACKS = {
    "a lookup": (looked_up, (TABLES, ASKED), (P("data"), P("data")), P("data")),
    "a lookup along two axes": (looked_up, (TABLES, ASKED), (P(BOTH), P("data")), P("data")),
    "other rows too": (looked_up, (TABLES, ASKED), (P("data"), P(BOTH)), P(BOTH)),
    "another axis": (looked_up, (TABLES, ASKED), (P("model"), P("data")), None),
    "ids of each table together": (looked_up, (TABLES, ASKED), (P("data"), P(None, "data")), None),
    "a scatter": (added_to, (TABLES, ASKED, ROWS), (P("data"), P("data"), P("data")), P("data")),
    "a scatter of features": (added_to, (TABLES, ASKED, ROWS), (P("data", None, "model"), *(P("data"),) * 2), None),
}


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_of_tables_is_gathered_where_the_partitioner_gathers_it(name):
    fn, args, specs, out = STACKS[name]
    program, plan = sv.trace(fn, *args), sv.Plan("data=4,model=2", specs, out_specs=out)
    predicted, made = program.propagate(plan), program.partition(plan)
    assert moves(predicted) == moves(made)
    assert [o.spec for o in predicted.outputs] == [o.spec for o in made.outputs]


def ragged_gradients(x, w, sizes):
    return jax.grad(lambda x, w: jnp.sum(lax.ragged_dot(x, w, sizes) ** 2), (0, 1))(x, w)


RAGGED = {
    "rows": (lax.ragged_dot, (P(BOTH), P(), P())),
    "rows and features": (lax.ragged_dot, (P("data"), P(None, None, "model"), P())),
    "what is summed over": (lax.ragged_dot, (P(None, "model"), P(None, "model"), P())),
    "groups": (lax.ragged_dot, (P("data"), P("model"), P("model"))),
    "gradients": (ragged_gradients, (P("data"), P(None, None, "model"), P())),
}


@pytest.mark.tpu
@pytest.mark.parametrize("name", RAGGED)
def test_a_ragged_product_is_computed_as_the_partitioner_has_it(name):
    fn, specs = RAGGED[name]
    shapes = ((512, 64), jnp.bfloat16), ((8, 64, 128), jnp.bfloat16), ((8,), jnp.int32)
    program, plan = sv.trace(fn, *(jax.ShapeDtypeStruct(*each) for each in shapes)), sv.Plan(MESH, specs)
    predicted, made = (ask(plan, "tpu v5p:2x2x2") for ask in (program.propagate, program.partition))
    assert moves(predicted) == moves(made)
    assert predicted.cost.dot_flops == made.cost.dot_flops
    assert [o.spec for o in predicted.outputs] == [o.spec for o in made.outputs]


def scanned_loss(up, down, head, x, mean):
    y, _ = lax.scan(lambda x, w: (x + jnp.tanh(x @ w[0]) @ w[1], None), x, (up, down))
    return jnp.mean(((y.mean(1) if mean else y) @ head) ** 2)


@pytest.mark.parametrize("wanted", [0, 1, 3])
@pytest.mark.parametrize("mean", [False, True])
def test_what_a_loop_only_reads_is_sharded_after_what_it_changes(mean, wanted):
    shapes = (4, 32, 64), (4, 64, 32), (32, 10), (8, 16, 32)
    program = sv.trace(
        lambda *args: jax.grad(functools.partial(scanned_loss, mean=mean), wanted)(*args),
        *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes),
    )
    plan = sv.Plan(MESH, (P(None, "data", "model"), P(None, "model"), P(), P("data")))
    assert program.propagate(plan).outputs[0].spec == program.partition(plan).outputs[0].spec


def moves(report):
    rows = ((c.kind, c.axes, c.count, c.operand_bytes, c.result_bytes) for c in report.collectives)
    return sorted(rows, key=str)


TARGETS = [
    "cpu",
    pytest.param("tpu v5e:2x4", marks=pytest.mark.tpu),
    pytest.param("gpu h100:1x8", marks=pytest.mark.cuda),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_as_many_as_the_partitioner_makes(name, target):
    fn, args, specs = SUMS[name]
    program, plan = sv.trace(fn, *args), sv.Plan(MESH, specs)
    lowered_for = resolve_target(target, DeviceMesh.of(MESH)).lowered_for
    predicted, made = program._propagate(plan, target=lowered_for), program.partition(plan, target)
    assert moves(predicted) == moves(made)
    assert target != "cpu" or made.level_differences == ()


@pytest.mark.parametrize("preset", ["fsdp", "fsdp + tensor parallel"])
@pytest.mark.parametrize(
    ("make", "target"),
    [(vit, "cpu"), *(pytest.param(make, "tpu v5e:2x4", marks=pytest.mark.tpu) for make in (vit, scanned))],
)
def test_where_shardings_conflict_the_same_one_wins(make, target, preset):
    program = make()
    plan = program.presets("data=4,model=2", target=None if target == "cpu" else target)[preset]
    moved = [
        sum(c.count * c.operand_bytes for c in ask(plan, target).collectives)
        for ask in (program.propagate, program.partition)
    ]
    assert moved[0] == pytest.approx(moved[1], rel=0.02)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("letters", "left", "right"),
    [
        ("nd,ne->end", (64, 32), (64, 8)),
        ("fd,d->f", (512, 512), (512,)),
        ("d,d->", (512,), (512,)),
        ("bd,bd->b", (64, 64), (64, 64)),
        ("bsdn,dn->bsd", (32, 16, 64, 64), (64, 64)),
        ("dbsn,dn->dbs", (8, 128, 2, 64), (8, 64)),
        ("dsn,dn->ds", (8, 63, 64), (8, 64)),
        ("dsn,dn->ds", (8, 64, 63), (8, 63)),
        ("bgk,btgk->bgt", (32, 8, 64), (32, 128, 8, 64)),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int8])
def test_a_factor_without_a_dimension_of_its_own_is_multiplied_as_the_compiler_has_it(
    letters, left, right, dtype, target
):
    arrays = jax.ShapeDtypeStruct(left, dtype), jax.ShapeDtypeStruct(right, dtype)
    program = sv.trace(lambda a, b: jnp.einsum(letters, a, b), *arrays)
    lowered_for = resolve_target(target, DeviceMesh.of(MESH)).lowered_for
    plan = sv.Plan(MESH)
    propagated = program._propagate(plan, target=lowered_for)
    assert propagated.cost.dot_flops == program.partition(plan, target).cost.dot_flops


BOTH = ("data", "model")
DISAGREEING = {  # products whose factors disagree on how their sum is cut: einsum, specs of the factors and the result
    "fewer pieces on the left": ("bd,bf->df", P("data"), P(BOTH), P()),
    "fewer pieces on the right": ("bd,bf->df", P(BOTH), P("data"), P()),
    "other axes": ("bd,bf->df", P("data"), P("model"), P()),
    "a result that is cut": ("bd,bf->df", P("data"), P(BOTH), P(None, "model")),
    "a result that is cut likewise": ("bd,bf->df", P("data"), P(BOTH), P("data")),
    "a result that is cut as the right": ("bd,bf->df", P("data"), P(BOTH), P(None, BOTH)),
    "two summed dimensions": ("btd,btf->df", P("data"), P(BOTH), P()),
    "agreeing": ("bd,bf->df", P(BOTH), P(BOTH), P()),
    "as many pieces": ("bd,bf->df", P(BOTH), P(("model", "data")), P()),
    "another dimension is cut": ("bd,bf->df", P(BOTH), P("data", "model"), P()),
    "few rows, cut as what the weight sums over": ("rd,df->rf", P("data"), P("data", "model"), P("data", "model")),
    "a weight that is cut along the rows' axis and another": ("rd,df->rf", P("data"), P(BOTH), P("data")),
    "the weight on the left": ("fd,rd->fr", P("model", "data"), P("data"), P("model", "data")),
    "nothing is contested": ("rd,df->rf", P("data", "model"), P("model"), P("data")),
}
FEW_ROWS = {"r": 8, "d": 512, "f": 512}


@pytest.mark.parametrize("name", DISAGREEING)
def test_what_is_moved_and_multiplied_is_the_partitioners(name):
    letters, *ins, out = DISAGREEING[name]
    sizes = FEW_ROWS if "r" in letters else {}
    shapes = ([sizes.get(letter, 64) for letter in side] for side in letters.split("->")[0].split(","))
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    program = sv.trace(lambda a, b: jnp.einsum(letters, a, b), *arrays)
    plan = sv.Plan("data=4,model=2", tuple(ins), out)
    reports = program.propagate(plan), program.partition(plan)
    assert reports[0].cost.dot_flops == reports[1].cost.dot_flops
    moved = [
        sorted((c.kind, set(c.axes), c.operand_bytes) for c in report.collectives if c.kind != "collective-permute")
        for report in reports
    ]
    assert moved[0] == moved[1]


ELEMENTWISE = {
    "square": jnp.square,
    "power": lambda x: x**2,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erf_inv": lax.erf_inv,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "asin": jnp.arcsin,
    "acosh": jnp.arccosh,
    "atanh": jnp.arctanh,
    "tan": jnp.tan,
    "lgamma": lax.lgamma,
    "digamma": lax.digamma,
    "polygamma": lambda x: lax.polygamma(x, x),
    "zeta": lambda x: lax.zeta(x, x),
    "bessel_i1e": lax.bessel_i1e,
    "next_after": lambda x: jnp.nextafter(x, x + 1),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "sinc": jnp.sinc,
}

if jax.__version_info__ < (0, 12):  # XLA's Shardy did not look through its own operation
    del ELEMENTWISE["erf"]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_elementwise_operation_hands_its_sharding_on(name):
    """Whatever dialect JAX lowers it to."""
    program = sv.trace(lambda x: jnp.sum(ELEMENTWISE[name](x), 0), X)
    predicted, made = (level(sv.Plan(MESH, (CUT,))) for level in (program.propagate, program.partition))
    assert moves(predicted) == moves(made) == [("all-reduce", ("data",), 1, 128.0, 128.0)]
    assert predicted.outputs[0].spec == made.outputs[0].spec == Spec((("model",),))


def test_top_k_takes_the_last_dimension_whole():
    program = sv.trace(lambda x: lax.top_k(x, 3)[0], X)
    outputs = [level(sv.Plan(MESH, (P("data"),))).outputs[0] for level in (program.propagate, program.partition)]
    assert outputs[0].spec == outputs[1].spec == Spec((("data",), ()))


# phases


def step(w, v, m, x):
    """A train step by hand: a batch made ready, a gradient, momentum, a clip, a number for a log."""
    x = jnp.tanh(x * 2.0)

    def loss(w, v):
        return jnp.mean((jax.checkpoint(lambda w: jnp.tanh(jnp.tanh(x @ w) @ w.T))(w) @ v) ** 2)

    value, (dw, dv) = jax.value_and_grad(loss, (0, 1))(w, v)
    m = m * 0.9 + dw
    scale = jnp.minimum(1.0, 1.0 / jnp.sqrt(jnp.sum(dw**2)))
    return w - m * scale, v - dv, m, value * 100.0


def plain(w, v, m, x):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "checkpoint", lambda f: f)
        return step(w, v, m, x)


def by_hand(fn):
    return sv.trace(fn, WEIGHT, WEIGHT, WEIGHT, X), sv.Plan(MESH, (P(None, "model"), P(), P(None, "model"), P("data")))


def of_gallery(name, **options):
    made = getattr(sv.gallery, name)(**options)
    return made.program, made.plan


STEPS = {
    "with checkpoint": lambda: by_hand(step),
    "without checkpoint": lambda: by_hand(plain),
    "mlp": lambda: of_gallery("mlp", mesh=MESH),
    "llama": lambda: of_gallery("llama", mesh=MESH, layers=2),
    "gpt": lambda: of_gallery("gpt_2021", layers=2, batch=8, length=128),
    "moe": lambda: of_gallery("moe", mesh={"data": 2, "expert": 4}, tokens=4096),
    "ring": lambda: of_gallery("ring", mesh={"data": 2, "seq": 4}, length=4096),
    "pipeline": lambda: of_gallery("pipeline", mesh={"data": 2, "stage": 4}, layers=8, microbatches=4, batch=256),
}
LARGER = {
    "mlp@64": lambda: of_gallery("mlp", mesh="data=8,model=8"),
    "llama 8b@8": lambda: of_gallery("llama", mesh=MESH),
    "llama 8b@64": lambda: of_gallery("llama", mesh="data=8,model=8"),
    "llama 70b@8": lambda: of_gallery("llama", size="70b", mesh=MESH),
    "llama 70b@64": lambda: of_gallery("llama", size="70b", mesh="data=8,model=8"),
    "moe@64": lambda: of_gallery("moe", mesh={"data": 8, "expert": 8}, tokens=32768),
}


@functools.cache
def of(name):
    """A program, its plan, and what both levels say of it."""
    program, plan = (STEPS | LARGER)[name]()
    return program, plan, (program.propagate(plan), program.partition(plan))


@pytest.mark.parametrize("gradient", [jax.grad, jax.value_and_grad])
def test_a_gather_that_both_passes_use_stands_where_it_is_used_first(gradient):
    square = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    program = sv.trace(gradient(lambda w, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))), square, X)
    plan = sv.Plan("data=4", (P("data"), P("data")), None)
    for report in (program.propagate(plan), program.partition(plan)):
        gathers = [c.phase for c in report.collectives if c.kind == "all-gather" and c.operand == "w"]
        assert gathers == ["forward"]


@pytest.mark.parametrize("name", ["with checkpoint", "without checkpoint"])
def test_products_are_in_the_same_pass_at_both_levels(name):
    """Those of the gallery are in test_flops.py."""
    sums = []
    for report in of(name)[2]:
        rows = [(row.phase, row.source and row.source.bare, row.dot_flops) for row in report.cost.work]
        sums.append({key: sum(n for *at, n in rows if (*at,) == key) for key in {(p, s) for p, s, n in rows if n}})
    assert sums[0] == pytest.approx(sums[1])


# real plans

PLANS = {  # program → how much of runs and of bytes is at both levels the same, by kind and axes
    "mlp": (0.9, 0.75),
    "mlp@64": (1, 1),
    "llama 8b@8": (0.99, 0.98),
    "llama 8b@64": (0.99, 0.98),
    "llama 70b@8": (0.99, 0.98),
    "llama 70b@64": (0.99, 0.98),
    "moe": (1, 1),
    "moe@64": (1, 1),
    "pipeline": (1, 1),
    "gpt": (1, 1),
    "ring": (1, 0.88),  # between two sums XLA cuts what is summed to the output's shard
}


@pytest.mark.parametrize("name", PLANS)
def test_real_plans_move_what_was_predicted(name):
    totals = []
    for report in of(name)[2]:
        total = {}
        for c in report.collectives:
            n, moved = total.get((c.kind, tuple(sorted(map(str, c.axes)))), (0, 0.0))
            total[c.kind, tuple(sorted(map(str, c.axes)))] = n + c.count, moved + c.count * c.operand_bytes
        totals.append(total)
    keys = totals[0].keys() | totals[1].keys()
    for at, least in enumerate(PLANS[name]):
        pairs = [[total.get(key, (0, 0.0))[at] for total in totals] for key in keys]
        assert sum(map(min, pairs)) >= least * sum(map(max, pairs))
