"""The Cost tab: what the kernel says is the StepCost's and no other number, and the pane in a headless Chromium."""

import math
from dataclasses import replace

import pytest

from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.paint.json import json_of
from shardviz.records import Cost
from shardviz.records.amounts import format_seconds
from shardviz.view.panes import cost_pane
from tests.page.documents import said, table
from tests.page.machines import LARGE, MESHES, stepped
from tests.view.sample import report

TARGETS = [target for target in MESHES if target not in LARGE]


def costs(target, **changes):
    """A step's cost, and the blocks of its pane."""
    cost, _ = stepped(target, **changes)
    return cost, json_of(cost_pane(cost))["blocks"]


@pytest.mark.parametrize("target", MESHES)
def test_bars_and_bounds_are_the_costs_own(target):
    cost, blocks = costs(target)
    longest = max(cost.step.compute, cost.step.memory, cost.step.communication)
    times = {said(row["cells"][0]): row["cells"] for row in table(blocks, "step-times")["rows"]}
    wanted = {"compute": cost.step.compute, "HBM traffic": cost.step.memory, "communication": cost.step.communication}
    wanted |= {f"over {', '.join(moved.key)}": moved.seconds for moved in cost.by("axes")}
    assert times.keys() == wanted.keys()
    for name, seconds in wanted.items():
        _, text, bar, _ = times[name]
        assert said(text) == format_seconds(seconds)
        assert sum(part["share"] for part in bar["v"]) == pytest.approx(seconds / longest, abs=1e-4)
    assert said(times["HBM traffic"][3]).startswith("at least ")
    bounds = f"{format_seconds(cost.lower)} with full overlap, {format_seconds(cost.upper)} with none"
    assert bounds in " ".join(said(block["pieces"]) for block in table(blocks, "step")["blocks"] if "pieces" in block)


def test_without_flops_there_is_no_upper_bound():
    _, blocks = costs("tpu v5p:4x4x4", cost=None)
    assert "with none" not in str(blocks) and "a lower bound, because FLOPs are not known" in str(blocks)
    assert said(table(blocks, "step-times")["rows"][0]["cells"][1]) == "not known"


@pytest.mark.parametrize("target", TARGETS)
def test_collectives_stand_longest_first(target):
    cost, blocks = costs(target)
    by_name = {c.name: c for c in cost.collectives}
    times = []
    for row in table(blocks, "longest")["rows"]:
        seconds, _, kind, over, at = row["cells"]
        c = by_name[row["sel"][1]]
        times.append(c.seconds * c.count)
        assert said(kind) == c.kind and over["v"] == list(c.axes)
        assert said(seconds) == format_seconds(c.seconds * c.count) and said(row["detail"][0]["pieces"]) == c.formula
        assert said(at).startswith("no source line" if c.source is None else c.source.short)
    assert times == sorted(times, reverse=True)
    assert math.fsum(times) == pytest.approx(cost.step.communication)


def test_what_no_time_is_known_of_is_said_and_in_no_sum():
    cost, blocks = costs("tpu v5p:4x4x4", collectives=report().collectives)
    unknown = [row["cells"] for row in table(blocks, "longest")["rows"] if said(row["cells"][0]) == "not known"]
    assert len(unknown) == len(cost.unknown) == 1 and said(unknown[0][3]) == "irregular groups"
    assert "without 1 collective of unknown time" in said(blocks[0]["lead"])
    moved = next(row["cells"][2]["v"] for row in table(blocks, "step-times")["rows"] if len(row["cells"][2]["v"]) > 1)
    longest = max(cost.step.compute, cost.step.memory, cost.step.communication)
    assert math.fsum(part["share"] for part in moved) * longest == pytest.approx(cost.step.communication, rel=1e-3)


# In the explorer.


@pytest.fixture
def on_tpu(program, plan, compilers):
    state = ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4", tokens=1e6)
    return Explorer(state)


def answered(explorer, program):
    """The compile's answer, with FLOPs."""
    made = replace(program.partitioned(explorer.plan), cost=Cost(dot_flops=1e12), target="tpu v5e:2x4")
    program.jobs[-1][1].on_report(made)
    explorer.wait("partitioned", timeout=5)


def test_it_is_worked_out_only_while_somebody_looks(on_tpu, program):
    answered(on_tpu, program)
    assert on_tpu.costs == {}
    on_tpu.tab = "cost"
    assert on_tpu.costs["document"] == json_of(cost_pane(on_tpu.state.cost))
    on_tpu.state.set_target("cpu")
    assert on_tpu.costs.keys() == {"document"}
    assert "no speed" in said(table(on_tpu.costs["document"]["blocks"], "cost-why")["pieces"])
    on_tpu.tab = "source"
    assert on_tpu.costs == {}


def test_a_bar_and_a_collective_say_their_arithmetic_and_lead_to_their_line(open_page, on_tpu, program):
    answered(on_tpu, program)
    page = open_page(on_tpu, width=1500)
    page.go("cost")
    cost = on_tpu.state.cost
    assert format_seconds(cost.upper) in page.at("step").inner_text()
    assert cost.step.computing[0].formula in page.at("step-times").inner_text()
    over = page.at("step-times").get_by_role("button", name="over data")
    over.focus()
    page.tab.keyboard.press("Enter")
    assert cost.collectives[0].formula in page.at("step-times").inner_text()
    assert over.get_attribute("aria-expanded") == "true" and page.focus() == over.get_attribute("data-testid")
    row = page.at("longest").locator("tbody button[aria-expanded]").first
    assert cost.collectives[0].formula not in page.at("longest").inner_text()
    row.click()
    assert cost.collectives[0].formula in page.at("longest").inner_text()
    page.at("longest").get_by_text("model.py:3").click()
    assert page.at("panel-source").is_visible()
