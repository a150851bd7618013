"""What a device must hold before a compiler has planned it: against the buffer assignment of XLA's CPU compiler."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.costs.step_cost import memory_parts

MESH, MACHINE = "data=4,model=2", "tpu v5e:2x4"
_POINTER = 8
"""Bytes of an output's place in the table of outputs, which XLA counts among them."""


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def update(w, x):
    return w - 0.1 * x.T @ x, x @ w


@pytest.mark.parametrize("donated", [(), (0,)])
@pytest.mark.parametrize("out", [(P(), P("data")), (P("model"), P()), (P("data", "model"), P("data", "model"))])
def test_arguments_and_outputs_are_what_the_compiler_sets_aside(out, donated):
    program = sv.trace(update, array(512, 512), array(1024, 512), donate_argnums=donated)
    plan = sv.Plan(MESH, (P("data", "model"), P("data")), out)
    memory = program.compile(plan, "cpu").memory
    for report in (program.propagate(plan), program.partition(plan, "cpu")):
        parts = memory_parts(report)
        assert parts["arguments"] == memory.arguments
        assert parts.get("outputs", 0) == memory.outputs - memory.aliased - _POINTER * len(report.outputs)


def test_outputs_may_lie_where_was_what_the_backward_pass_has_read():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)

    program = sv.trace(step, array(2048, 64), array(64, 2048))
    report = program.propagate(sv.Plan(MESH, (P("data"), P()), P()))
    outs, kept = report.outputs[0].bytes_per_device, report.residual_bytes
    assert outs > kept > 0
    assert sum(memory_parts(report).values()) == sum(v.bytes_per_device for v in report.arguments) + outs


def test_outputs_that_do_not_fit_are_too_much_whatever_a_compiler_does():
    program = sv.trace(lambda x: x[:, None] * x[None], jax.ShapeDtypeStruct((2**17,), jnp.float32))
    for out, fits in ((P(), False), (P(("data", "model")), True)):
        needs = sv.cost(program.propagate(sv.Plan(MESH, P(), out)), MACHINE).needs
        assert needs.fits is fits
        assert ("arguments and outputs alone are too much" in needs.verdict) is (fits is False)
        assert not needs.complete and needs.margin
