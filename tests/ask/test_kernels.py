"""Kernels and library calls, whose products no program shows: counted as somebody says, and named where nobody does."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.records import Cost
from tests.ask.stated import stated
from tests.programs import abstract as array

pytestmark = pytest.mark.slow

DEVICES, BATCH, HEADS, LENGTH, DIM = 4, 4, 8, 1024, 128
MESH = sv.mesh(data=DEVICES)
UNTIL = "until"
SIZES = [f"block_{of}" for of in ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")]
BLOCK = 256


def over_data(fn, *specs):
    return jax.shard_map(fn, mesh=MESH, in_specs=specs, out_specs=P("data"), check_vma=False)


def splash_attention(q, k, v, mask=masks.CausalMask, **blocks):
    mask = masks.MultiHeadMask([mask((LENGTH, LENGTH))] * HEADS)
    sizes = splash.BlockSizes(**dict.fromkeys(SIZES, BLOCK)) if blocks else None
    return jax.vmap(splash.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, block_sizes=sizes))(q, k, v)


def until(x, w, scale):
    """A product as often as a number in an array says."""

    def kernel(x_ref, w_ref, scale_ref, out_ref):
        def product(_, x):
            return jnp.dot(x, w_ref[:, :512].astype(x.dtype), preferred_element_type="float32").astype(x.dtype)

        out_ref[...] = lax.fori_loop(0, scale_ref[0, 0].astype("int32"), product, x_ref[...])

    return pl.pallas_call(kernel, out_shape=x, name=UNTIL)(x, w, scale)


def quantised_matmul(x, w, scale, **more):
    """int8 weights, a scale for each column; 128 x 128 of the result at a time."""
    (m, k), n = x.shape, w.shape[1]

    def kernel(x_ref, w_ref, scale_ref, out_ref):
        product = jnp.dot(x_ref[...], w_ref[...].astype(jnp.bfloat16), preferred_element_type=jnp.float32)
        out_ref[...] = (product * scale_ref[...]).astype(out_ref.dtype)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // 128, n // 128),
        in_specs=[
            pl.BlockSpec((128, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, 128), lambda i, j: (0, j)),
            pl.BlockSpec((1, 128), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((128, 128), lambda i, j: (i, j)),
        name="quantised_matmul",
        **({"cost_estimate": pl.CostEstimate(2 * m * n * k, 0, m * k * 2 + n * k)} | more),
    )(x, w, scale)


QKV = (array(BATCH, HEADS, LENGTH, DIM),) * 3
ON_DATA = (P("data"),) * 3
FIRST = P("data"), P(), P()
GROUPED = array(4096, 512), array(8, 512, 1024), array(8, dtype=jnp.int32)
QUANTISED = array(1024, 512), array(512, 1024, dtype=jnp.int8), array(1, 1024, dtype=jnp.float32)
KERNELS = {
    "flash": (over_data(lambda q, k, v: flash_attention(q, k, v, causal=True), *ON_DATA), QKV, ON_DATA),
    "splash": (over_data(splash_attention, *ON_DATA), QKV, ON_DATA),
    "grouped": (over_data(lambda x, w, g: gmm(x, w, g, preferred_element_type=x.dtype), *FIRST), GROUPED, FIRST),
    "quantised": (over_data(quantised_matmul, *FIRST), QUANTISED, FIRST),
    "until": (over_data(until, *FIRST), QUANTISED, FIRST),
}
PAIRS = BATCH // DEVICES * HEADS * LENGTH**2
STATED = {
    "flash": 4.0 * PAIRS * DIM,
    "grouped": 2.0 * 4096 // DEVICES * 512 * 1024,
    "quantised": 2.0 * 1024 // DEVICES * 512 * 1024,
    "splash": 4.0 * PAIRS * DIM * (8 * 9 / 2) / 8**2,  # of 8 x 8 blocks those on the diagonal and below it
}
"""FLOPs of the products of one device."""


def counted(report) -> Cost:
    assert report.cost is not None
    return report.cost


def program(name):
    fn, args, specs = KERNELS[name]
    return sv.trace(fn, *args), sv.Plan(MESH, specs)


def check(name, report):
    [rule] = [d for d in report.diagnostics if d.rule == "unknown-flops"] if name == "until" else [None]
    cost = counted(report)
    if rule is None:
        assert cost.dot_flops == pytest.approx(STATED[name], rel=0.01)  # flash attention counts its softmax too
        assert (cost.opaque, cost.at_least) == ((), "")
        return
    assert (cost.dot_flops, cost.opaque, cost.at_least) == (0.0, (UNTIL,), "at least ")
    assert repr(UNTIL) in rule.text
    assert rule.source is not None
    assert rule.source.file == __file__
    [row] = [w for w in cost.work if w.opaque]
    assert row.opaque == (UNTIL,)
    said = " ".join(report.text().split())
    assert "at least 0 FLOP of matrix products in a step" in said
    assert f"FLOPs of {UNTIL} not known" in said


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_for_a_tpu_is_lowered_propagated_and_partitioned_without_one(name):
    traced, plan = program(name)
    for report in (traced.propagate(plan), traced.partition(plan), traced.partition(plan, "tpu v5e:2x2")):
        check(name, report)
    found = traced.propagate(plan)
    assert {d.rule for d in found.diagnostics} >= {"lowered-elsewhere"}
    assert counted(found).dot_flops == counted(traced.partition(plan)).dot_flops
    with pytest.raises(ShardvizError, match="cpu"):
        traced.compile(plan)  # where it is shown elsewhere, it is not said to be compiled here


def test_what_a_person_says_goes_first_and_is_counted_at_every_level():
    traced, plan = program("until")
    said = 2.0 * PAIRS * DIM
    about = traced.with_flops({UNTIL: said})
    for report in (about.propagate(plan), about.partition(plan)):
        assert (counted(report).dot_flops, counted(report).opaque) == (said, ())
        assert not [d for d in report.diagnostics if d.rule == "unknown-flops"]
    assert counted(traced.propagate(plan)).opaque == (UNTIL,)
    fn, args, specs = KERNELS["flash"]
    given = sv.analyze(fn, *args, mesh=MESH, in_specs=specs, flops={"flash_attention": 7.0})
    assert counted(given).dot_flops == 7.0
    with pytest.raises(ShardvizError, match=r"flops\['f'\]: expected the FLOPs of one run, 0 or more, not -1"):
        traced.with_flops({"f": -1})


def test_a_kernel_whose_author_says_nothing_counts_its_grid_times_its_products():
    def silent(x, w, scale):
        return quantised_matmul(x, w, scale, cost_estimate=None)

    traced, plan = sv.trace(over_data(silent, *FIRST), *QUANTISED), sv.Plan(MESH, FIRST)
    for report in (traced.propagate(plan), traced.partition(plan)):
        check("quantised", report)


def matmul(kernel, x, w, grid=(8, 4, 2), depth=128):
    """A kernel over blocks of rows, columns and what is summed over, as a function's FLOPs at level propagated."""
    blocks = {
        "in_specs": [
            pl.BlockSpec((128, depth), lambda i, j, k: (i, k)),
            pl.BlockSpec((depth, 128), lambda i, j, k: (k, j)),
        ],
        "out_specs": pl.BlockSpec((128, 128), lambda i, j, k: (i, j)),
    }
    call = pl.pallas_call(kernel, grid=grid, out_shape=array(1024, 512, dtype=jnp.float32), **blocks)
    return call(x, w)


def accumulates(x, w, out):
    @pl.when(pl.program_id(2) == 0)
    def _():
        out[...] = jnp.zeros_like(out)

    out[...] += x[...] @ w[...]


def loops(x, w, out):
    def step(i, total):
        return total + x[:, pl.ds(i * 64, 64)] @ w[pl.ds(i * 64, 64), :]

    out[...] = lax.fori_loop(0, 4, step, jnp.zeros(out.shape, out.dtype))


def skips(x, w, out):
    @pl.when(pl.program_id(0) < pl.program_id(1))
    def _():
        out[...] = x[...] @ w[...]


def ends(x, w, out):
    """A loop that data end."""
    out[...] = lax.while_loop(lambda total: total[0, 0] < 9, lambda total: total + x[...] @ w[...], out[...])


def copies(x, w, out):
    out[...] = x[:, :1] + w[:1]


@pytest.mark.parametrize(
    ("kernel", "options", "flops"),
    [
        (accumulates, {}, 2.0 * 1024 * 512 * 256),
        (loops, {"grid": (8, 4, 1), "depth": 256}, 2.0 * 1024 * 512 * 256),
        (skips, {"grid": (8, 4, 1), "depth": 256}, 2.0 * 1024 * 512 * 256 * (3 + 2 + 1) / (8 * 4)),
        (ends, {"grid": (8, 4, 1), "depth": 256}, None),
        (copies, {"grid": (8, 4, 1), "depth": 256}, None),
    ],
    ids=["accumulates", "loops", "skips", "ends", "copies"],
)
def test_the_products_of_a_kernel_are_counted_unless_they_depend_on_data(kernel, options, flops):
    args = array(1024, 256, dtype=jnp.float32), array(256, 512, dtype=jnp.float32)
    for batch in (1, 3):
        batched = jax.vmap(lambda x, w: matmul(kernel, x, w, **options))
        many = [jax.ShapeDtypeStruct((batch, *a.shape), a.dtype) for a in args]
        cost = counted(sv.trace(batched, *many).propagate(sv.Plan("data=1")))
        assert cost.dot_flops == (flops or 0.0) * batch
        assert (cost.at_least == "") == (flops is not None)


def window(shape):
    return masks.LocalMask(shape, (300, 0), 0)


@pytest.mark.parametrize("layers", [[masks.CausalMask], [masks.FullMask], [window, masks.CausalMask]])
def test_attention_counts_the_blocks_of_its_mask_forward_and_backward(layers):
    """Two products of a block of scores forward; backward four for keys and values, three for queries."""
    dense = [mask((LENGTH, LENGTH))[:, :].reshape((LENGTH // BLOCK, BLOCK) * 2) for mask in layers]
    blocks = sum(int(each.any(axis=(1, 3)).sum()) for each in dense)

    def loss(*qkv):
        attend = lambda *qkv: sum(splash_attention(*qkv, mask=mask, blocks=BLOCK) for mask in layers)
        return over_data(attend, *ON_DATA)(*qkv).sum()

    traced, plan = sv.trace(jax.grad(loss, (0, 1, 2)), *QKV), sv.Plan(MESH, ON_DATA)
    one = 2.0 * BLOCK**2 * DIM * BATCH // DEVICES * HEADS
    for report in (traced.propagate(plan), traced.partition(plan)):
        assert counted(report).dot_flops == pytest.approx((2 + 4 + 3) * one * blocks, rel=1e-3)
        assert {d.rule for d in report.diagnostics} == {"lowered-elsewhere"}


def test_a_kernel_whose_data_say_what_it_skips_counts_everything_and_a_note_says_so():
    def kernel(wanted, x, w, out):
        @pl.when(wanted[pl.program_id(0)] > 0)
        def _():
            out[...] = jnp.dot(x[...], w[...], preferred_element_type=out.dtype)

    rows = pl.BlockSpec((128, 512), lambda i, _: (i, 0))
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(8,), in_specs=[rows, pl.BlockSpec((512, 512), lambda i, _: (0, 0))], out_specs=rows
    )

    def run(wanted, x, w):
        return pl.pallas_call(kernel, grid_spec=spec, out_shape=array(1024, 512, dtype=jnp.float32))(wanted, x, w)

    x, w = array(1024, 512), array(512, 512)
    whole = 2.0 * 1024 * 512 * 512
    report = sv.trace(run, array(8, dtype=jnp.int32), x, w).propagate(sv.Plan("data=1"))
    [note] = [d for d in report.diagnostics if d.rule == "flops-at-most"]
    assert counted(report).dot_flops == whole and note.source.file == __file__
    wanted = jnp.array([1, 0, 0, 1, 0, 0, 0, 0], jnp.int32)
    report = sv.trace(lambda x, w: run(wanted, x, w), x, w).propagate(sv.Plan("data=1"))
    assert counted(report).dot_flops == whole / 4 and "flops-at-most" not in {d.rule for d in report.diagnostics}


def test_runs_in_a_loop_count_each():
    def step(x, w, scale):
        def layer(carried, _):
            return quantised_matmul(carried, w, scale), None

        return lax.scan(layer, x, length=5)[0]

    args = array(1024, 512), array(512, 512, dtype=jnp.int8), array(1, 512, dtype=jnp.float32)
    traced = sv.trace(over_data(step, *FIRST), *args)
    plan = sv.Plan(MESH, FIRST)
    for report in (traced.propagate(plan), traced.partition(plan)):
        assert counted(report).dot_flops == 5 * 2.0 * 1024 / DEVICES * 512 * 512


def test_the_step_says_that_its_compute_is_at_least():
    traced, plan = program("until")
    cost = sv.cost(traced.partition(plan), "tpu v5e:2x2")
    assert f"compute leaves out {UNTIL}, whose FLOPs are not known" in " ".join(cost.text().split())
    assert "at least: nobody says those of" in cost.levels["FLOPs"]


@pytest.mark.tpu
def test_kernels_compile_for_a_tpu_and_count_what_xla_states():
    asked = {name: (*program(name), "tpu v5e:2x2") for name in KERNELS}
    for (name, (traced, plan, target)), theirs in zip(asked.items(), stated(*asked.values()), strict=True):
        report = traced.compile(plan, target)
        check(name, report)
        assert "tpu_custom_call" in report.stages["optimized"]
        if name not in ("splash", "until"):
            assert counted(report).dot_flops == pytest.approx(theirs["flops"], rel=1e-4)


@pytest.mark.tpu
@pytest.mark.parametrize("groups", [1, 8])
def test_ragged_products_count_by_their_shapes(groups):
    """One group is a plain product; several share its rows."""
    args = array(4096, 1024), array(groups, 1024, 512), array(groups, dtype=jnp.int32)

    def loss(x, w, sizes):
        return lax.ragged_dot(x, w, sizes).astype(jnp.float32).sum()

    traced, plan = sv.trace(jax.value_and_grad(loss, (0, 1)), *args), sv.Plan("data=4", (P(), P(), P()))
    report = traced.compile(plan, "tpu v5e:2x2")
    assert counted(report).dot_flops == 3 * 2.0 * 4096 * 1024 * 512
    assert report.stages["partitioned"].count(" ragged-dot(") == 3


@pytest.mark.tpu
def test_a_ragged_product_is_counted_as_the_named_machine_runs_it():
    """Of 8 groups a TPU multiplies each row with one; JAX's lowering for CPUs multiplies all rows with each."""
    args = array(128, 64), array(8, 64, 64), array(8, dtype=jnp.int32)
    traced, plan = sv.trace(lax.ragged_dot, *args), sv.Plan("a=4")
    once = 2.0 * 128 * 64 * 64
    for_cpu, for_tpu = traced.propagate(plan), traced.propagate(plan, "tpu v5p:2x2x1")
    assert (for_cpu.cost.dot_flops, for_tpu.cost.dot_flops) == (8 * once, once)
    assert [note.id for note in for_cpu.diagnostics] == ["ragged-as-plain"] and not for_tpu.diagnostics


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
def test_a_kernel_for_a_gpu_counts_what_its_author_says():
    """Its call does not have the estimate in its text: the program has."""
    params = triton.CompilerParams()
    fn = over_data(lambda x, w, scale: quantised_matmul(x, w, scale, compiler_params=params), *FIRST)
    report = sv.trace(fn, *QUANTISED).compile(sv.Plan(MESH, FIRST), "gpu h100:1x4")
    assert "xla.gpu.triton" in report.stages["partitioned"]
    check("quantised", report)


def step(weights, x):
    """A step of gradient descent of a layer around a kernel for TPUs, which JAX lowers for no CPU."""

    def loss(weights, x):
        return jnp.sum(over_data(kernelled, P("data"))(x @ weights[0]) @ weights[1])

    return jax.tree.map(lambda w, g: w - g, weights, jax.grad(loss)(weights, x))


@jax.custom_vjp
def kernelled(x):
    return pl.pallas_call(lambda ins, out: out.__setitem__(..., 2 * ins[...]), out_shape=x)(x)


kernelled.defvjp(lambda x: (kernelled(x), None), lambda _, g: (kernelled(g),))
FOUR = "tpu v5e:2x2"
QUESTIONS = {
    "dimensions": lambda program: [d.size for d in program.dimensions if d.of == "batch"] == [64],
    "presets": lambda program: "data parallel" in program.presets("data=4,model=1", FOUR),
    "fixes": lambda program: sv.fixes(program, program.propagate(sv.Plan("data=4"), FOUR), findings=1),
    "search": lambda program: all("data=4" not in f.text for f in searched(program).fallen),
    "code": lambda program: program.code(sv.Plan("data=4", ([P("data"), P()], P("data")))),
}


def searched(program):
    """JAX refuses a kernel where a mesh has axes besides those of the `shard_map` around it: such candidates fall."""
    return sv.search(program, FOUR, level="propagated", seconds=5, most=9)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_program_with_a_kernel_for_a_tpu_is_asked_what_any_other_is(question):
    program = sv.trace(step, [array(512, 1024), array(1024, 512)], array(64, 512), donate_argnums=0)
    assert QUESTIONS[question](program)
