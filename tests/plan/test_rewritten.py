"""Collectives of a `shard_map` written otherwise: the results are the same, and only where they must be is it done."""

import json
from functools import cache
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
    with pytest.raises(TraceError, match=r"step: no collective in a shard_map at model.py:3 can be written otherwise"):
        program.propagate(plan)
