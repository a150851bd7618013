"""Edits by logical dimension, ways on from a refusal, and rules from the selection, on a program of JAX's."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.logical import dimension_shardings

MESH = {"data": 4, "model": 2}


def step(params, x):
    heads = jnp.einsum("bd,dhk->bhk", x, params["wq"])
    hidden = jnp.tanh(jnp.einsum("bhk,hkd->bd", heads, params["wo"]) @ params["up"])
    return hidden @ params["down"]


SHAPES = {"wq": (32, 6, 8), "wo": (6, 8, 32), "up": (32, 64), "down": (64, 32)}


@pytest.fixture(scope="module")
def program():
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in SHAPES.items()}
    return sv.trace(step, params, jax.ShapeDtypeStruct((16, 32), jnp.float32))


@pytest.fixture
def state(program):
    state = ExplorerState(program, sv.Plan(MESH), level="propagated")
    state.find_dimensions()
    assert state.loop.inbox.wait_until(lambda: state.logical.found is not None, 60)
    return state


def specs(state):
    return {name: str(spec.canonical()) for name, spec in state.bound.in_specs.items() if spec.axes}


def name_of(state, member):
    return state.logical.found.named(member).name


def row(state, member):
    found = dimension_shardings(state.logical.found, state.bound, state.report.arguments)
    return next(cut for cut in found if member in map(str, cut.dimension.members))


def test_a_dimension_is_cut_wherever_it_occurs_and_nothing_else_is(state):
    hidden = name_of(state, "params['up']:1")
    assert state.shard_dimension(hidden, ["model"])
    assert specs(state) == {"params['up']": "P(None, 'model')", "params['down']": "P('model')"}
    assert row(state, "params['up']:1").axes == ("model",) and not row(state, "params['up']:1").otherwise
    assert state.shard_dimension(hidden, []) and specs(state) == {}
    assert state.undo() and state.undo() and not state.past


def test_what_may_cut_a_dimension_is_what_the_plan_takes(state):
    for cut in dimension_shardings(state.logical.found, state.bound, state.report.arguments):
        for choice in cut.choices:
            taken = state.shard_dimension(cut.dimension.name, [choice.axis])
            assert taken == choice.legal, (cut.dimension.name, choice)
            if taken:
                state.undo()
            state.dismiss()


def test_a_mesh_that_does_not_divide_everything_is_had_without_what_it_does_not(state):
    assert state.set_spec("params['wq']", "P(None, 'model')") and state.set_spec("params['up']", "P(None, 'model')")
    before = state.plan
    assert not state.resize_axis("model", 4)
    (drop,) = state.alternatives
    assert drop.text == "drop model where it does not divide (1 array)" and drop.tip == "params['wq']"
    assert state.take_alternative(0)
    assert specs(state) == {"params['up']": "P(None, 'model')"} and state.plan.mesh.shape["model"] == 4
    assert state.undo() and state.plan == before


def test_every_way_that_is_offered_leads_on(state):
    for size in (3, 4, 5, 6, 7, 16):
        state.set_spec("params['wq']", "P('data', 'model')")
        if state.resize_axis("model", size):
            continue
        for place, alternative in enumerate(state.alternatives):
            assert state.resize_axis("model", size) is False
            assert state.take_alternative(place), (size, alternative)
            assert state.undo()


def test_a_refusal_goes_with_its_cause(state):
    assert not state.set_dim("x", 0, ["nowhere"]) and state.error["alternatives"] == []
    state.dismiss()
    assert state.error is None and not state.alternatives
    assert not state.take_alternative(0) and "out of date" in state.error["message"]
    assert state.set_dim("x", 0, ["data"]) and state.error is None


def test_dimensions_that_are_not_known_are_not_cut(program):
    state = ExplorerState(program, sv.Plan(MESH), level="propagated")
    assert not state.shard_dimension("d", ["data"]) and "not known yet" in state.error["message"]


def test_a_rule_of_the_selection_says_what_the_array_says(state):
    assert state.set_spec("params['up']", "P('data', 'model')") and state.set_dim("params['down']", 0, ["data"])
    assert state.make_rule("up", "params['up']")
    assert specs(state) == {"params['up']": "P('data', 'model')", "params['down']": "P('data')"}
    assert not state.make_rule("params", "params['wq']") or specs(state) == {}, "what it catches is as the array is"
    assert not state.make_rule("up", "nowhere")


def test_a_plan_of_cuts_survives_a_change_of_the_mesh(state):
    assert state.shard_dimension(name_of(state, "params['up']:1"), ["model"]) and state.rename_axis("model", "tp")
    assert specs(state)["params['up']"] == str(P(None, "tp")).replace("PartitionSpec", "P")
    assert state.remove_axis("tp") and specs(state) == {}
