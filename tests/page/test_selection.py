"""The selected value stays the same value when a report of another level comes, in the state and on the page."""

from dataclasses import replace

import pytest

from shardviz.explorer.explorer import ExplorerState
from shardviz.notation import Spec
from shardviz.page.explorer import Explorer


def answered(program, change):
    """The compiler's answer to the newest plan, its intermediates changed."""
    plan, job = program.jobs[-1]
    report = program.compiled(plan)
    job.answer(replace(report, intermediates=tuple(change(v) for v in report.intermediates)))


@pytest.fixture
def explorer(program, plan):
    return Explorer(ExplorerState(program, plan, debounce=0.01))


def other_name(v):
    """As the partitioner would call it; its `dot.2` is what Shardy called `dot.0`."""
    return replace(v, name=f"dot.{2 + int(v.name[-1])}")


def test_the_selection_goes_on_under_its_other_name(explorer, program):
    explorer.selected = "dot.0"
    answered(program, other_name)
    assert explorer.wait(timeout=5).level == "compiled"
    assert (explorer.selected, explorer.shards["name"], explorer.state.remark) == ("dot.2", "dot.2", "")
    assert explorer.state.set_dim("x", 0, [])
    assert explorer.report.level == "propagated" and explorer.selected == "dot.0", "and back to what was chosen"


def test_what_was_chosen_later_is_followed_from_there(explorer, program):
    answered(program, other_name)
    explorer.wait(timeout=5)
    explorer.selected = "dot.4"
    assert explorer.state.set_dim("x", 0, [])
    assert explorer.selected == "dot.2"


def test_a_value_that_is_not_found_is_said_and_comes_back(explorer, program):
    explorer.selected = "dot.1"
    answered(program, lambda v: replace(v, shape=(1, 1)))
    explorer.wait(timeout=5)
    assert explorer.selected == "" and "not found at the compiled level" in str(explorer.shards["document"])
    assert explorer.state.set_dim("x", 0, [])
    assert explorer.selected == "dot.1" and explorer.state.remark == ""


def test_a_click_on_an_older_list_means_what_it_meant_there(explorer, program):
    answered(program, other_name)
    explorer.wait(timeout=5)
    with explorer.hold_trait_notifications():  # as a message of the page does
        explorer.selected_at, explorer.selected = "propagated", "dot.2"
    assert explorer.selected == "dot.4", "what was dot.2 there is dot.4 here"
    with explorer.hold_trait_notifications():
        explorer.selected_at, explorer.selected = "compiled", "dot.2"
    assert explorer.selected == "dot.2"


def test_an_argument_keeps_its_name_and_its_selection(explorer, program):
    explorer.selected = "x"
    answered(program, other_name)
    explorer.wait(timeout=5)
    assert explorer.selected == "x" and explorer.state.remark == ""


def test_that_it_is_a_guess_is_said_where_it_matters(explorer, program):
    explorer.selected = "dot.1"
    answered(program, lambda v: v if v.name == "dot.0" else replace(other_name(v), spec=Spec.of((None, None))))
    explorer.wait(timeout=5)
    assert "one of 3 here that are alike" in str(explorer.shards["document"]["lead"])
