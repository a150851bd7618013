"""Bytes of main memory in listed schedules: by hand, by laws, and beside a TPU compiler's own schedules."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.records.schedule import Schedule, Scheduled
from tests import programs

MIB = 2**20


def work(schedule: Schedule, times: int = 1) -> Iterator[tuple[Scheduled, int]]:
    for entry in schedule:
        if entry.kind == "loop":
            yield from work(entry.body, times * (entry.trips or 1))
        elif entry.kind == "work":
            yield entry, times


def moved(report: sv.Report, room: float) -> float:
    return sum(entry.moved(room) * times for entry, times in work(report.schedule))


def listed(function, *shapes):
    args = [programs.abstract(*shape, dtype="float32") for shape in shapes]
    return sv.trace(function, *args).propagate(sv.Plan({"x": 1}))


def test_what_a_product_hands_on_stays_on_a_chip_that_has_room():
    report = listed(lambda x, a, b: (x @ a) @ b, (1024, 1024), (1024, 2048), (2048, 1024))
    size = 4 * 1024 * 1024
    one = (size + 2 * size + 2 * size) + (2 * size + 2 * size + size)  # what both read and write
    assert moved(report, 0) == one
    assert moved(report, 7 * MIB) == one  # 8 MiB are handed on
    assert moved(report, 8 * MIB) == one - 2 * 2 * size


def test_an_array_that_the_function_closes_over_is_read_as_its_argument_is():
    """At both levels."""
    rows = np.random.default_rng(0).random((1024, 64), np.float32)
    b = programs.abstract(64, dtype="float32")
    closed, given = sv.trace(lambda b: rows @ b, b), sv.trace(lambda rows, b: rows @ b, rows, b)
    plan = sv.Plan({"x": 1})
    assert moved(closed.propagate(plan), 0) == moved(given.propagate(plan), 0) == 4 * (1024 * 64 + 1024 + 64)
    assert moved(closed.partition(plan), 0) == moved(given.partition(plan), 0)
    equal = sv.trace(lambda b: np.ones((1024, 64), np.float32) @ b, b)  # which XLA computes where it is read
    assert moved(equal.propagate(plan), 0) < 4 * 1024 * 64


@pytest.mark.parametrize("donated", [False, True])
def test_what_a_loop_carries_is_in_main_memory(donated):
    """An argument that it changes is copied before, as the caller keeps it, unless it is donated."""

    def step(x, a):
        return jax.lax.fori_loop(0, 4, lambda _, x: x @ a, x)

    report = listed(jax.jit(step, donate_argnums=(0,) * donated), (1024, 1024), (1024, 1024))
    copied = 0 if donated else 2
    assert moved(report, 128 * MIB) == pytest.approx((4 * 3 + copied) * 4 * MIB, rel=1e-5)  # and the counter


@pytest.mark.parametrize("donated", [False, True])
def test_a_scatter_reads_and_writes_a_part_of_a_donated_argument(donated):
    """Of one that the caller keeps a copy."""
    report = listed(
        jax.jit(lambda x, part: x.at[3].set(part), donate_argnums=(0,) * donated), (8, 1024, 1024), (1024, 1024)
    )
    copied = 0 if donated else 2 * 8
    assert moved(report, 0) == pytest.approx((2 + copied) * 4 * MIB, rel=1e-5)


def test_neither_joined_arrays_nor_padded_ones_are_written_but_what_is_joined_is():
    a, size = (1024, 1024), 4 * 1024 * 1024
    joined = listed(lambda x, y, w: jnp.concatenate([x, y]) @ w, a, a, a)
    assert moved(joined, 0) == (2 + 1 + 2) * size
    summed = listed(lambda x, y, w: jnp.concatenate([x + 1, y]) @ w, a, a, a)
    assert moved(summed, 0) == 2 * size + (2 + 1 + 2) * size
    padded = listed(lambda x, w: jnp.pad(x, ((0, 1024), (0, 0))) @ w, a, a)
    assert moved(padded, 0) == (1 + 1 + 2) * size


def test_what_two_products_read_is_written_before_them_where_that_is_fewer_bytes():
    """A product gives none of its operands; so a fusion before both adds up, or each product does."""

    def both(a, b, *arrays):
        h = sum(arrays[1:], arrays[0])
        return h @ a, h @ b

    assert moved(listed(both, *4 * [(1024, 1024)]), 0) == (4 + 4) * 4 * MIB
    assert moved(listed(both, *6 * [(1024, 1024)]), 0) == (5 + 3 + 3) * 4 * MIB
    alone = listed(lambda x, y, a: (x + y) @ a, *3 * [(1024, 1024)])
    assert moved(alone, 0) == 4 * 4 * MIB


def test_what_goes_through_a_barrier_is_written():
    def step(x, a, barrier):
        h = jnp.sin(x)
        return (jax.lax.optimization_barrier(h) if barrier else h) @ a

    size = 4 * MIB
    shapes = (1024, 1024), (1024, 1024)
    assert moved(listed(lambda x, a: step(x, a, False), *shapes), 0) == 3 * size
    assert moved(listed(lambda x, a: step(x, a, True), *shapes), 0) == 3 * size + 2 * size


def test_one_element_that_is_put_into_each_row_is_compared_where_it_is_read():
    def step(x, w, labels):
        return (x + jax.grad(lambda x: jnp.sum(jnp.take_along_axis(x, labels[:, None], 1)))(x)) @ w

    arrays = *(programs.abstract(1024, 1024, dtype="float32") for _ in range(2)), programs.abstract(1024, dtype="int32")
    report = sv.trace(step, *arrays).propagate(sv.Plan({"x": 1}))
    assert moved(report, 0) == pytest.approx(3 * 4 * MIB, rel=0.01)  # and the labels


@pytest.mark.parametrize(("scale", "written"), [(1.0, 0.5), (0.5, 1)])
def test_a_product_whose_softmax_is_scaled_in_float32_writes_exponentials(scale, written):
    """Where the conversion to float32 comes last, the product's own result is read twice instead."""

    def step(q, k, v):
        scores = (q @ k).astype(jnp.float32)
        return jax.nn.softmax(scores if scale == 1.0 else scale * scores).astype(q.dtype) @ v

    arrays = (programs.abstract(*shape, dtype="bfloat16") for shape in ((1024, 128), (128, 1024), (1024, 128)))
    report = sv.trace(step, *arrays).propagate(sv.Plan({"x": 1}))
    small, reads = 4 * 1024 * 128 * 2, 2 if scale == 1.0 else 1
    assert moved(report, 0) == pytest.approx((1 + reads) * written * 4 * MIB + small, rel=0.01)  # and each row's sum


def attention(q, k, v):
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32)).astype(q.dtype)
    return jnp.sum(jnp.einsum("bhqk,bkhd->bqhd", weights, v).astype(jnp.float32))


def cross_entropy(x, w, labels):
    logits = (x @ w).astype(jnp.float32)
    correct = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - correct)


HEADS, TOKENS = ("bfloat16", (8, 4096, 16, 128)), ("bfloat16", (8, 4096, 1024))
SOFTMAXES = {
    "attention": (attention, (HEADS,) * 3, (P("x"),) * 3),
    "gradient of attention": (jax.grad(attention, (0, 1, 2)), (HEADS,) * 3, (P("x"),) * 3),
    "gradient of cross entropy": (
        jax.grad(cross_entropy, (0, 1)),
        (TOKENS, ("bfloat16", (1024, 65536)), ("int32", (8, 4096))),
        (P("x"), P(), P("x")),
    ),
}


@pytest.mark.tpu
@pytest.mark.parametrize("name", SOFTMAXES)
def test_logits_that_are_only_converted_are_kept_and_their_exponentials_computed_again(name):
    """A TPU's compiler keeps the logits in bfloat16; their exponentials in float32 would be twice the bytes."""
    f, arrays, specs = SOFTMAXES[name]
    program = sv.trace(f, *(jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in arrays))
    plan, target = sv.Plan({"x": 4}, specs), "tpu v5p:2x2x1"
    compiled, propagated = program.compile(plan, target), program.propagate(plan, target)
    moved = (sum(entry.hbm_bytes for entry in report.schedule) for report in (propagated, compiled))
    assert next(moved) == pytest.approx(next(moved), rel=0.1)
    assert sv.cost(propagated, target).seconds == pytest.approx(sv.cost(compiled, target).seconds, rel=0.05)


@pytest.mark.parametrize(("dtype", "shorter"), [("float32", 2), ("bfloat16", 1)])
def test_a_tpu_gathers_for_products_alone_what_they_round_to(dtype, shorter):
    """Of float32 bfloat16, half of the bytes; a GPU does not round."""
    x, w = (programs.abstract(4096, 4096, dtype=dtype) for _ in range(2))
    plan = sv.Plan({"x": 4}, (P("x"), P(None, "x")), P("x"))
    report = sv.trace(lambda x, w: x @ w, x, w).propagate(plan)
    (gather,) = report.collectives
    for target, times in (("tpu v5p:2x2x1", shorter), ("gpu h100:1x4", 1)):
        seconds = sum(lane.busy for lane in sv.timeline(report, target).lanes if lane.name != "compute")
        whole = sv.collective_seconds(gather.kind, gather.result_bytes, ("x",), {"x": 4}, target).seconds
        assert seconds == pytest.approx(whole / times, rel=1e-3), (target, dtype)


def test_a_buffer_that_a_loop_fills_is_not_written_before():
    def step(x):
        return jax.lax.scan(lambda c, row: (c, jnp.sin(row)), 0.0, x)[1]

    assert moved(listed(step, (16, 1024, 1024)), 0) == pytest.approx(2 * 16 * 4 * MIB, rel=1e-5)


@pytest.mark.parametrize("name", ["vit", "translator", "scanned", "graph", "unet", "decode"])
def test_more_room_moves_less(name):
    program = getattr(programs, name)()
    report = program.propagate(sv.Plan({"x": 1}))
    for entry, _ in work(report.schedule):
        kept = [entry.moved(room * MIB) for room in range(0, 136, 8)]
        assert kept == sorted(kept, reverse=True) and 0 <= kept[-1] <= kept[0] == entry.hbm_bytes


@pytest.mark.tpu
@pytest.mark.parametrize(("shape", "loops"), [((16, 128, 128, 128), False), ((18, 128, 128, 128), True)])
@pytest.mark.parametrize("axis", [1, 2])
def test_large_slices_are_gathered_in_a_loop_where_a_tpus_compiler_does(shape, loops, axis):
    arrays = programs.abstract(*shape), programs.abstract(256, dtype="int32")
    program = sv.trace(lambda x, i: jnp.tanh(jnp.take(jnp.exp(x), i, axis, mode="clip")), *arrays)
    plan = sv.Plan({"x": 4})
    compiled, propagated = program.compile(plan, "tpu v5e:2x2"), program.propagate(plan)
    assert any(entry.kind == "loop" for entry in compiled.schedule) == loops
    (gather,) = (entry for entry, _ in work(propagated.schedule) if entry.padding_bytes or "gather" in entry.name)
    assert (gather.padding_bytes > 0) == loops


@pytest.mark.long
@pytest.mark.tpu
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("adapted", (8, 2048, 4096, 32, 128, 16, 16)),
        ("vit", (64, 1024, 16, 64, 1024, 256, 4)),
        ("scanned", (8, 2048, 1024, 16, 4)),
    ],
)
def test_bytes_are_about_those_of_a_tpus_compiler(name, sizes):
    target = "tpu v5e:2x4"
    program = getattr(programs, name)(*sizes)
    plan = program.presets({"data": 8})["data parallel"]
    ratio = moved(program.propagate(plan), 128 * MIB) / moved(program.compile(plan, target), 0)
    assert 0.6 < ratio < 1.4, ratio
