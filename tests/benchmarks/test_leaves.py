"""The explorer on programs of thousands of arrays, against Shardy's own pipeline on them in the same run."""

from __future__ import annotations

import gc
import time

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.benchmarks.timing import pipeline, seconds
from tests.page.page import say


def program_of(leaves):
    """A step of momentum: parameters and momentum, together so many leaves, and as many results."""
    layers = [
        {f"w{k}": jax.ShapeDtypeStruct((64, 8 + 8 * k), jnp.float32) for k in range(10)} for _ in range(leaves // 20)
    ]

    def step(params, momentum):
        new = jax.tree.map(lambda p, m: 0.9 * m + p, params, momentum)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, new), new

    return sv.trace(step, {"layers": layers}, {"layers": layers})


def measured(leaves):
    """CPU seconds of an opening, of an edit until it is on the page, and of Shardy's pipeline as it comes on either's
    plan. A small program is opened before, so that imports and the like are not counted."""
    Explorer(ExplorerState(program_of(20), sv.Plan("data=4,model=2"), level="propagated"))
    gc.collect()
    program, plan = program_of(leaves), sv.Plan("data=4,model=2")
    raw, opened, places = pipeline(program, plan), [], iter(range(1, 6))
    open_it = lambda: opened.append(Explorer(ExplorerState(program, plan, level="propagated")))
    opening = seconds(open_it, 1, time.process_time)
    (explorer,) = opened

    def edit():
        name = f"params['layers'][0]['w{next(places)}']"  # each time a plan that was not asked for before
        say(explorer, op="set_dim", name=name, dimension=0, axes=["data"], twins=True)

    edited = seconds(edit, 5, time.process_time)
    assert explorer.status["seq"] == 5 and explorer.status["error"] is None and len(explorer.state.past) == 5
    assert explorer.inputs["leaves"] == leaves and len(explorer.inputs["rows"]) > leaves
    after = pipeline(program, explorer.state.now.plan)  # each edit shards 500 arrays more, which Shardy reads too
    return opening, seconds(raw, 3, time.process_time), edited, seconds(after, 3, time.process_time)


@pytest.mark.parametrize("leaves", [1240, 5000])
def test_an_edit_of_many_leaves_costs_about_what_shardys_pipeline_does(leaves):
    opening, base, edit, after = measured(leaves)
    print(
        f"{leaves} leaves: opening {opening:.2f} s, {opening / base:.2f} x Shardy's {base:.2f} s; "
        f"an edit {edit:.2f} s, {edit / after:.2f} x {after:.2f} s (CPU)"
    )
    assert edit <= 1.5 * after and opening <= 2 * base
