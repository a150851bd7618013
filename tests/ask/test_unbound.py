"""Transforms of a function that names mesh axes: the same before any plan is bound to it as after."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import TraceError
from tests.raw import array

PLAN = sv.Plan("data=2,model=2,pipe=1", (P(None, "model"), P("data")))


def constrained(w, x):
    return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), P("data", ("model", "pipe")))


def mapped(w, x):
    body = lambda w, x: jax.lax.psum(x @ w, "model")
    return jax.shard_map(body, in_specs=(P("model"), P("data", "model")), out_specs=P("data"))(w, x)


def partly(w, x):
    body = lambda x: x * jax.lax.axis_size("data")
    return jax.shard_map(body, in_specs=P("data"), out_specs=P("data"), axis_names={"data"})(x) @ w


FUNCTIONS = [constrained, mapped, partly]


def facts(report):
    return dataclasses.replace(report, timings={})


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_gradient_is_the_same_before_and_after_a_plan(fn):
    gradient = jax.grad(lambda w, x: fn(w, x).sum(), (0, 1))
    unbound, bound = (sv.trace(gradient, array(8, 16), array(4, 8)) for _ in range(2))
    bound.bind(PLAN)
    assert facts(unbound.propagate(PLAN)) == facts(bound.propagate(PLAN))


def test_a_function_that_looks_at_the_mesh_still_says_that_it_wants_one():
    def fn(x):
        if jax.sharding.get_abstract_mesh().shape.get("data", 1) < 2:
            raise ValueError("this needs a mesh of two")
        return x

    with pytest.raises(TraceError, match=r"traced when a plan says over which mesh.*this needs a mesh of two"):
        sv.trace(fn, array(8)).arguments  # noqa: B018
