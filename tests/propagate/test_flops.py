"""FLOPs at level `propagated` against those of XLA's partitioner, which are counted from its own program."""

import functools
import math

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from shardviz.records.source import module_of
from tests.programs import without_constraints

pytestmark = pytest.mark.slow

EXAMPLES = {
    "mlp": lambda: gallery.mlp(),
    "mlp data=8": lambda: gallery.mlp(mesh="data=8,model=1"),
    "llama 8b": lambda: gallery.llama(layers=4),
    "llama 8b, more devices than key-value heads": lambda: gallery.llama(layers=4, mesh="data=4,model=16"),
    "llama 70b": lambda: gallery.llama("70b", batch=512, mesh="data=64,model=8"),
    "moe": lambda: gallery.moe(mesh={"data": 2, "expert": 4}, tokens=4096),
    "gpt_2021": lambda: gallery.gpt_2021(layers=2),
    "resnet": lambda: gallery.resnet(14),
    "ring": lambda: gallery.ring(mesh={"data": 2, "seq": 4}, length=4096),
    "pipeline": lambda: gallery.pipeline(mesh={"data": 2, "stage": 4}, layers=8, microbatches=4, batch=256),
}


def work(report):
    """FLOPs by phase, line, module and element type."""
    found = {(r.phase, r.source, r.module, r.dtype): r.dot_flops for r in report.cost.work if r.dot_flops}
    assert sum(found.values()) == pytest.approx(report.cost.dot_flops, rel=1e-12)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_gallery_is_cut_as_the_partitioner_cuts_it(name):
    example = EXAMPLES[name]()
    propagated, made = example.program.propagate(example.plan), example.program.partition(example.plan)
    assert propagated.cost.dot_flops == pytest.approx(made.cost.dot_flops, rel=1e-12) and made.cost.dot_flops > 0
    assert work(propagated) == pytest.approx(work(made), rel=1e-12)
    assert propagated.cost.unknown_loops == made.cost.unknown_loops == 0
    assert not [d for d in made.diagnostics if d.text.startswith("matrix products")]


LAYERS = "params['layers']"
EDITS = [
    {f"{LAYERS}['wq']": P(None, None, "model")},
    {f"{LAYERS}['wo']": P(None, "data")},
    {f"{LAYERS}['w1']": P(None, "model", "data")},
    {f"{LAYERS}['w2']": P(None, "data", "model"), f"{LAYERS}['wk']": P()},
    {"params['out']": P("model", "data"), "params['emb']": P()},
    {"tokens": P()},
    {"tokens": P("model")},
]


@pytest.mark.long
def test_a_change_of_plan_changes_both_alike():
    example = gallery.llama(layers=2)
    plans = [functools.reduce(lambda p, e: p.with_spec(*e), edits.items(), example.plan) for edits in EDITS]
    plans += [sv.Plan(example.mesh, (P(), P(), spec), (P(), P(), P())) for spec in (P(), P("data"))]
    found = []
    for plan in plans:
        propagated, made = example.program.propagate(plan), example.program.partition(plan)
        assert propagated.cost.dot_flops == pytest.approx(made.cost.dot_flops, rel=1e-12), plan
        found.append(made.cost.dot_flops)
    # a constraint in the model keeps the batch cut over `data`; with whole weights nothing is cut over `model`
    assert found[:-2] == pytest.approx([found[0]] * len(EDITS), rel=1e-12)
    assert found[-2:] == pytest.approx([8 * found[0]] * 2, rel=1e-12)


def test_where_nothing_says_how_activations_are_cut_xla_finds_what_shardy_finds():
    """The decoder's weights are cut over both axes and its tokens over `data`; without its constraints nothing says
    what of the two an activation follows: the batch, in all products. How labels come to the loss, through
    `take_along_axis`, decides it: XLA makes a reshape of each broadcast that repeats nothing, and cuts pass through
    reshapes first.
    """
    pytest.importorskip("flax")
    pytest.importorskip("optax")
    example = gallery.decoder(layers=1)
    plan = example.plan.with_variant(constraints=without_constraints(example.program))
    propagated, made = example.program.propagate(plan), example.program.partition(plan)
    assert propagated.cost.dot_flops == pytest.approx(made.cost.dot_flops, rel=1e-12)
    tokens, d, f, length, vocabulary = 64 * 1024, 1024, 4096, 1024, 32768
    forward = sum(row.dot_flops for row in propagated.cost.work if row.phase == "forward")
    assert forward == 2 * tokens * (4 * d * d + 2 * d * f + d * vocabulary + 2 * length * d) / 8


def conv(groups=1, stride=1):
    return lambda x, w: lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def gradient(fn):
    return jax.grad(lambda x, w: fn(x, w).sum(), argnums=(0, 1))


def branches(x, y):
    """Only the heaviest counts, as only one runs."""
    return lax.switch(x[0, 0].astype(int), [lambda: x @ y, lambda: ((x @ y) @ y) @ y, lambda: (x @ y) @ y])


def loops(x, y):
    step = lambda i, c: c @ y
    return lax.scan(lambda c, _: (lax.fori_loop(0, 5, step, c), None), x, None, length=7)[0]


def endless(x, y):
    return lax.while_loop(lambda c: c.sum() < 0, lambda c: c @ y, x)


def experts(x, y):
    return lax.ragged_dot(x, y, jnp.array([16] * 4))


def batched(x, y):
    return jnp.einsum("bij,bjk->bik", x, y)


IMAGE, KERNEL, DEEP, DEPTHWISE = (16, 32, 32, 16), (3, 3, 16, 64), (16, 32, 32, 64), (3, 3, 1, 64)
SQUARE = (64, 64)
PROGRAMS = {
    "batch": (conv(), IMAGE, KERNEL, P("a"), P()),
    "features out": (conv(), IMAGE, KERNEL, P("a"), P(None, None, None, "b")),
    "features in": (conv(), IMAGE, KERNEL, P(None, None, None, "b"), P(None, None, "b")),
    "pixels": (conv(), IMAGE, KERNEL, P(None, "a"), P()),
    "pixels with a stride": (conv(stride=2), IMAGE, KERNEL, P(None, "a"), P()),
    "gradient": (gradient(conv()), IMAGE, KERNEL, P("a"), P(None, None, None, "b")),
    "gradient with holes": (gradient(conv(stride=2)), IMAGE, KERNEL, P("a"), P(None, None, None, "b")),
    "groups": (conv(64), DEEP, DEPTHWISE, P("a", None, None, "b"), P(None, None, None, "b")),
    "gradient of groups": (gradient(conv(64)), DEEP, DEPTHWISE, P("a", None, None, "b"), P(None, None, None, "b")),
    "summed over": (jnp.matmul, (64, 128), (128, 32), P(None, "b"), P("b")),
    "summed over two axes": (jnp.matmul, (64, 128), (128, 32), P(None, ("a", "b")), P(("a", "b"))),
    "both dimensions": (jnp.matmul, (64, 128), (128, 32), P("a"), P(None, "b")),
    "one axis for both": (jnp.matmul, (64, 128), (128, 32), P("a"), P(None, "a")),
    "batched": (batched, (8, 64, 128), (8, 128, 32), P("a", "b"), P("a")),
    "branches": (branches, SQUARE, SQUARE, P("a"), P()),
    "loops": (loops, SQUARE, SQUARE, P("a"), P(None, "b")),
    "endless": (endless, SQUARE, SQUARE, P("a"), P()),
    "experts": (experts, (64, 32), (4, 32, 64), P(), P(None, None, "a")),
}
MESH = {"a": 4, "b": 2}


def reports(fn, x, y, *specs):
    program = sv.trace(fn, jax.ShapeDtypeStruct(x, "float32"), jax.ShapeDtypeStruct(y, "float32"))
    plan = sv.Plan(MESH, specs)
    return program.propagate(plan), program.partition(plan)


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_and_convolutions(name):
    propagated, made = reports(*PROGRAMS[name])
    assert propagated.cost.dot_flops == made.cost.dot_flops > 0
    assert propagated.cost.unknown_loops == made.cost.unknown_loops == (name == "endless")


def test_by_hand():
    assert reports(*PROGRAMS["summed over two axes"])[0].cost.dot_flops == 2 * 64 * 128 * 32 / 8
    assert reports(*PROGRAMS["one axis for both"])[0].cost.dot_flops == 2 * 64 * 128 * 32 / 4
    assert reports(*PROGRAMS["loops"])[0].cost.dot_flops == 35 * 2 * 64**3 / 8
    assert reports(*PROGRAMS["branches"])[0].cost.dot_flops == 3 * 2 * 64**3 / 4


def test_one_operand_cut_where_the_other_is_whole():
    """Over what is summed: Shardy cuts the other too and sums up what comes out, XLA gathers the first."""
    propagated, made = reports(jnp.matmul, (64, 128), (128, 32), P(None, "b"), P())
    assert propagated.cost.dot_flops == 2 * 64 * 128 * 32 / 2 and made.cost.dot_flops == 2 * 64 * 128 * 32


@pytest.mark.parametrize(("fn", "specs", "sizes"), [
    (lambda x, y: x[:63] @ y, (P("a"), P()), (16, 64, 64)),
    (lambda x, y: x[:61] @ y, (P("b"), P(None, "a")), (31, 64, 16)),
    (lambda x, y: jnp.tanh(x)[:, :63] @ y[:63], (P(None, "a"), P("a")), (64, 16, 64)),
])  # fmt: skip
def test_dimensions_that_do_not_divide_count_as_padded(fn, specs, sizes):
    propagated, made = reports(fn, SQUARE, SQUARE, *specs)
    assert propagated.cost.dot_flops == made.cost.dot_flops == 2 * math.prod(sizes)


def test_a_shard_map_has_single_devices_shapes():
    def fn(x, y):
        body = lambda a, b: lax.psum(a @ b, "b")
        return jax.shard_map(body, in_specs=(P("a", "b"), P("b")), out_specs=P("a"))(x, y)

    propagated, made = reports(fn, SQUARE, SQUARE, P("a", "b"), P("b"))
    assert propagated.cost.dot_flops == made.cost.dot_flops == 2 * 64**3 / 8


@pytest.mark.parametrize(("name_stack", "module"), [
    ("jit(step)/transpose(jvp(Model))/layers_0/attention/query/dot_general", "Model/layers_0/attention/query"),
    ("jit(step)/jvp()/while/body/closed_call/btd,dhk->bthk/dot_general", ""),
    ("jit(step)/transpose(jvp(btd,dv->btv))/dot_general", ""),
    ("jit(step)/jvp()/jit(silu)/logistic", ""),
    ("jit(step)/jit(_where)/select_n", ""),
    ("jit(step)/while/body/closed_call/checkpoint/rematted_computation/mlp/dot_general", "mlp"),
    ("jit(step)/vmap(jvp(a/b))/cond/branch_1_fun/c/add", "a/b/c"),
    ("dot_general", ""),
    ("", ""),
])  # fmt: skip
def test_modules_of_name_stacks(name_stack, module):
    assert module_of(name_stack) == module


def test_scopes_are_modules():
    def fn(x, w):
        def layer(x, w):
            with jax.named_scope("mlp"):
                return jnp.tanh(x @ w), None

        with jax.named_scope("layers"):
            return lax.scan(jax.checkpoint(layer), x, w)[0].sum()

    x, w = jax.ShapeDtypeStruct(SQUARE, "bfloat16"), jax.ShapeDtypeStruct((3, *SQUARE), "bfloat16")
    program = sv.trace(jax.grad(fn, argnums=(0, 1)), x, w)
    rows = program.propagate(sv.Plan(MESH)).cost.work
    assert {(row.module, row.dtype) for row in rows} == {("layers/mlp", "bfloat16")}
    flops = {row.phase: row.dot_flops for row in rows}
    each = 3 * 2 * 64**3
    assert flops == {"forward": each, "rematerialised": each, "backward": 2 * each}
    assert all(row.source is not None and row.source.file == __file__ for row in rows)


@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_a_product_of_two_types_counts_as_the_wider(types):
    """The narrower is converted before they are multiplied, whichever stands first."""
    x, w = (jax.ShapeDtypeStruct((64, 64), dtype) for dtype in types)
    traced, plan = sv.trace(lambda x, w: jax.lax.dot(x, w, preferred_element_type="float32"), x, w), sv.Plan("data=2")
    for report in (traced.propagate(plan), traced.partition(plan)):
        assert {row.dtype for row in report.cost.work if row.dot_flops} == {"float32"}
