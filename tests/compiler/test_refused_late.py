"""What XLA's CPU compiler refuses when its optimised program is written already is not said to be compiled."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import CompileError

MESH = sv.mesh(x=4)


def exchange(rows, into, sizes):
    first = jnp.zeros_like(sizes)
    return lax.ragged_all_to_all(rows, into, first, sizes, first, sizes, axis_name="x")


def test_a_ragged_all_to_all_is_partitioned_and_refused_for_a_cpu():
    fn = jax.shard_map(exchange, mesh=MESH, in_specs=(P("x"),) * 3, out_specs=P("x"))
    rows, sizes = jax.ShapeDtypeStruct((64, 8), jnp.float32), jax.ShapeDtypeStruct((16,), jnp.int32)
    program, plan = sv.trace(fn, rows, rows, sizes), sv.Plan(MESH, (P("x"),) * 3)
    assert [c.kind for c in program.partition(plan).collectives] == ["ragged-all-to-all"]
    with pytest.raises(CompileError, match=r"(?i)ragged"):
        program.compile(plan)
