"""What a step waits for adds up to the step, and what is dearer than under another plan to the difference."""

from __future__ import annotations

import pytest

import shardviz as sv
from shardviz.costs.spending import spendings
from shardviz.costs.step_cost import cost_of

TARGET = "tpu v5p:2x2x2"


@pytest.fixture(scope="module")
def costs():
    program = sv.gallery.mlp(mesh="data=4,model=2").program
    plans = program.presets("data=4,model=2")
    return {name: cost_of(program.propagate(plan), TARGET) for name, plan in plans.items()}


def moved(found):
    return [s for s in found if s.what == "collective"]


def test_what_moves_adds_up_to_the_communication(costs):
    for cost in costs.values():
        found = spendings(cost)
        assert sum(s.seconds for s in moved(found)) == pytest.approx(cost.step.communication)
        (compute,) = [s for s in found if s.what == "compute"]
        assert compute.seconds == pytest.approx(cost.step.compute)
        assert sum(compute.lines.values()) == pytest.approx(cost.step.compute)
        seconds = [s.seconds for s in found]
        assert seconds == sorted(seconds, reverse=True), "the dearest first"


def test_the_differences_add_up_to_that_of_the_communication(costs):
    for one in costs.values():
        for other in costs.values():
            found = spendings(one, other)
            more = sum(s.difference for s in moved(found))
            least = 0.002 * one.seconds * len(moved(spendings(other)))  # what is next to nothing is left out
            assert more == pytest.approx(one.step.communication - other.step.communication, abs=least)
            assert [s.seconds or s.before for s in found] == sorted(
                (s.seconds or s.before for s in found), reverse=True
            )


def test_against_itself_nothing_is_dearer(costs):
    for cost in costs.values():
        assert [s.difference for s in spendings(cost, cost)] == [0.0] * len(spendings(cost))
