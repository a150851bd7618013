"""Collectives of a `shard_map` written otherwise: the results are the same, and only where they must be is it done."""

import json
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import TraceError
from tests.truth import answers_of

SUM = {"unchecked": "psum", "checked": "psum_invariant"}
BETTER = {
    "scattered": (["SUM"], ["reduce_scatter"]),
    "in_a_jit": (["SUM"], ["reduce_scatter"]),
    "differentiated": (["SUM", "SUM"], ["SUM", "reduce_scatter"]),  # the transposed sum is no result of a slice
    "narrowed": (["all_gather"], ["all_gather"]),
    "summed": (["all_gather"], ["psum"]),
    "summed_tiled": (["all_gather"], ["psum"]),
    "exchanged": (["all_gather"], ["all_to_all"]),
    "summed_wide": (["SUM"], ["SUM"]),
    "in_a_loop": (["all_gather"], ["all_gather"]),
}
AS_GOOD = (
    "of_a_neighbour",
    "read_twice",
    "by_columns",
    "by_device",
    "by_own_number",
    "summed_otherwise",
    "of_what_changes",
    "of_its_own_rows",
    "of_one_column",
    "moved_sum",
    "by_a_sum",
)


@cache
def answers(check):
    script = Path(__file__).with_name("rewritten_truth.py")
    return json.loads(answers_of(script, 8, check, *BETTER, *AS_GOOD, devices=8, JAX_PLATFORMS="cpu"))


@pytest.mark.parametrize("check", SUM)
@pytest.mark.parametrize("name", BETTER)
def test_what_is_written_otherwise_gives_the_same(name, check):
    before, after, count, difference = answers(check)[name]
    expected = [[SUM[check] if kind == "SUM" else kind for kind in kinds] for kinds in BETTER[name]]
    assert ([before, after], count) == (expected, 1)
    assert difference < 1e-5


@pytest.mark.parametrize("check", SUM)
@pytest.mark.parametrize("name", AS_GOOD)
def test_what_would_give_something_else_stays(name, check):
    before, after, count, difference = answers(check)[name]
    assert (before, count, difference) == (after, 0, 0.0)


def test_a_line_without_such_a_collective_is_refused_by_name():
    def step(x):
        return jax.shard_map(lambda x: jax.lax.psum(x, "data"), in_specs=P("data"), out_specs=P())(x)

    program = sv.trace(step, jax.ShapeDtypeStruct((8, 4), jnp.float32))
    plan = sv.Plan("data=8", (P("data"),)).with_variant(collectives="model.py:3")
    with pytest.raises(
        TraceError, match=r"step: no collective in a shard_map and no constraint in a loop at model.py:3 can"
    ):
        program.propagate(plan)


def test_a_constraint_in_a_loop_goes_before_it_as_by_hand():
    def step(before, w, xs):
        once = jax.lax.with_sharding_constraint(w, P()) if before else w

        def loss(w, x):
            whole = w if before else jax.lax.with_sharding_constraint(w, P())
            return jnp.sum(jnp.tanh(x @ whole))

        def add(total, x):
            return total + jax.grad(loss)(once, x), None

        return jax.lax.scan(add, jnp.zeros_like(w), xs)[0]

    args = jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((4, 128, 64), jnp.float32)
    plan = sv.Plan("data=8", (P("data"), P(None, "data")), P("data"))
    program, by_hand = (sv.trace(partial(step, before), *args) for before in (False, True))
    plain, wanted = program.partition(plan), by_hand.partition(plan)
    (own, *_) = program.constraints
    moved = program.partition(plan.with_variant(collectives=own.source.short))
    one, other, before = ([(c.kind, c.count, c.shape) for c in r.collectives] for r in (moved, wanted, plain))
    assert one == other and (other != before or jax.__version_info__ >= (0, 12))  # which gathers before it by itself
