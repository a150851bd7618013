"""A person looks at a step as it would run, in JupyterLab: lanes, by keys and by mouse to a line, two plans stacked."""

from __future__ import annotations

import re

import pytest

from tests.browser.harness import Lab, LabPage
from tests.browser.views import edits, go, settled, state

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

OPEN = """
import shardviz as sv

explorer = sv.explore(sv.gallery.llama("70b"), target="tpu v5p:4x4x4", level="partitioned")
explorer
"""
TOLD = """from shardviz.records.amounts import format_seconds
value = explorer.report.value(explorer.state.selected)
print(format_seconds(explorer.state.cost.timeline.seconds), value.source and value.source.short, sep="|")"""


def test_from_the_lanes_to_a_line_and_another_plan_beside_it(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("timeline.ipynb", OPEN, TOLD))
    page.run_cell(0)
    view = page.cell_output(0)
    expect(state(view)).to_have_attribute("data-level", "partitioned", timeout=60_000)
    expect(state(view)).to_have_attribute("data-busy", "false", timeout=60_000)

    # the lanes, with the seconds that the kernel says
    go(view, "timeline")
    canvas, heads = view.get_by_test_id("timeline-canvas"), view.locator(".sv-tlhead")
    expect(heads).to_have_count(1, timeout=60_000)
    page.run_cell(1)
    seconds = page.cell_output(1).inner_text().strip().split("|")[0]
    expect(heads.first).to_contain_text(f"baseline {seconds}")
    lanes = view.locator(".sv-tlname")
    expect(lanes.first).to_contain_text("compute")
    expect(lanes.nth(-2)).to_contain_text("waits")
    expect(lanes.last).to_contain_text("memory")
    expect(view.get_by_test_id("timeline-legend")).to_contain_text("bound by FLOPs")

    # by keys: JupyterLab takes none of them
    canvas.focus()
    page.raw.keyboard.press("ArrowRight")
    expect(view.get_by_test_id("timeline-said")).to_contain_text("compute: ")
    for key in ("ArrowRight", "+", "+", "ArrowDown"):
        page.raw.keyboard.press(key)
    expect(view.get_by_test_id("timeline-said")).not_to_contain_text("compute: ")
    page.raw.keyboard.press("Home")
    expect(canvas).to_be_focused()

    # a click on what the chip computes: its line, its value, and from there its collectives
    lane, drawn = lanes.first.bounding_box(), canvas.bounding_box()
    assert lane is not None and drawn is not None
    canvas.click(position={"x": drawn["width"] * 0.4, "y": lane["y"] + lane["height"] / 2 - drawn["y"]})
    said = view.get_by_test_id("timeline-chosen")
    expect(said).to_contain_text(re.compile(r"llama\.py:\d+"))
    line = re.findall(r"llama\.py:\d+", said.inner_text())[0]
    page.screenshot("timeline_chosen", of=view)
    page.run_cell(1)
    assert page.cell_output(1).inner_text().strip().split("|")[1] == line, "a value of this line is selected"
    go(view, "source")
    expect(view.get_by_test_id(f"line-{line}")).to_have_class(re.compile("sv-lit"))

    # another plan: both steps one above the other
    before = edits(view)
    view.get_by_test_id("axis-more-data").click()
    settled(view, before, "partitioned")
    go(view, "timeline")
    expect(heads).to_have_count(2, timeout=60_000)
    expect(heads.first).to_contain_text("draft")
    expect(heads.last).to_contain_text(f"baseline {seconds}")
    expect(said).to_be_hidden()  # it was of another step
    page.screenshot("timeline_two", of=view)
    page.assert_no_errors()
