"""What takes long lets others in between: a trace with values held is taken up and left as its steps are asked for."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import breath
from shardviz.session.chores import WAITING, stepped


def loss(w, x):
    hidden = jnp.tanh(x @ w["up"])
    out = hidden @ w["down"]
    return jnp.sum(out * out)


def step(w, x):
    return jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(loss)(w, x))


SHAPE = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
ARGUMENTS = {"up": SHAPE((64, 256)), "down": SHAPE((256, 64))}, SHAPE((128, 64))


@pytest.fixture
def program(monkeypatch):
    monkeypatch.setattr(breath, "_EVERY", 0.0)  # it pauses wherever it can
    return sv.trace(step, *ARGUMENTS)


@pytest.fixture
def plan():
    return sv.Plan("data=4,model=2").with_spec("x", P("data")).with_spec("w['up']", P(None, "model"))


def held(program, plan):
    value = next(v for v in program.propagate(plan).intermediates if v.label == "hidden")
    return plan.constrain(value, P("data", None))


def test_other_plans_are_answered_while_a_trace_with_a_held_value_pauses(program, plan):
    wanted = held(program, plan)
    other = plan.with_spec("w['down']", P("model", None))
    before = Primitive.bind
    found, between = [], []
    steps = stepped(lambda pause: found.append(program.propagate(wanted)))
    pauses = 0
    for step_ in steps:
        pauses += step_ is not WAITING
        if pauses in (3, 7):
            between.append(program.propagate(plan if pauses == 3 else other).collectives)
        if pauses == 5:  # all that JAX traces then it may trace here too
            assert sv.trace(step, *ARGUMENTS).propagate(plan).collectives == between[0]
    assert pauses > 10
    alone = sv.trace(step, *ARGUMENTS)
    assert between == [alone.propagate(each).collectives for each in (plan, other)]
    assert found[0].collectives == alone.propagate(wanted).collectives
    assert Primitive.bind is before


def test_a_trace_that_is_left_in_the_middle_leaves_nothing_behind(program, plan):
    wanted, before = held(program, plan), Primitive.bind
    steps = stepped(lambda pause: program.propagate(wanted))
    with contextlib.closing(steps):
        for _ in range(4):
            next(steps)
        assert Primitive.bind is not before
    assert Primitive.bind is before
    assert any("hidden" in str(c) for c in program.bind(wanted).constraints)
    assert program.propagate(wanted).level == "propagated"


def test_nothing_pauses_where_nobody_asks_for_steps(program, plan):
    breath.breathe()
    breath.wait_for(lambda: False)
    assert program.propagate(held(program, plan)).level == "propagated"


def test_work_that_is_stopped_pauses_no_more_on_its_way_out(monkeypatch):
    monkeypatch.setattr(breath, "_EVERY", 0.0)
    ended = []

    def work(pause):
        try:
            pause(1)
        finally:
            try:
                breath.breathe()
            finally:
                ended.append(1)

    steps = stepped(work)
    assert next(steps) == 1
    steps.close()
    assert ended == [1]
