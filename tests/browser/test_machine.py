"""A person asks what a step costs on a real machine: in JupyterLab, by mouse and by keys, compiled for here or not."""

from __future__ import annotations

import re

import pytest

import shardviz as sv
from tests.browser.harness import Lab, LabPage
from tests.browser.views import edits, go, settled, state

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

EXPLORE = "import shardviz as sv\ne = sv.explore(sv.gallery.llama('70b'), tokens=64 * 4096)\ne"
TOLD = """from shardviz.records.amounts import format_bytes, format_seconds
print(e.state.target, format_seconds(e.state.cost.step.seconds), format_bytes(e.state.cost.needs.total), sep='|')"""
READY = next(s.ready for s in sv.targets() if s.name == "tpu")
LAST = "compiled" if READY else "partitioned"


def told(page: LabPage) -> list[str]:
    """What Python says of the cost: the target, the step, the memory."""
    page.run_cell(1)
    return page.cell_output(1).inner_text().strip().split("|")


def agrees(page: LabPage, view) -> None:
    """The headline and Python say the same."""
    target, seconds, memory = told(page)
    expect(view.get_by_test_id("where")).to_have_attribute("title", re.compile(re.escape(target)))
    expect(view.get_by_test_id("kpi-memory")).to_contain_text(memory.split()[0])
    expect(view.get_by_test_id("kpi-step")).to_contain_text(seconds.split()[0])


def test_a_step_on_real_machines(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("machine.ipynb", EXPLORE, TOLD))
    page.run_cell(0)
    view = page.cell_output(0)
    expect(state(view)).to_have_attribute("data-level", "compiled", timeout=60_000)
    expect(view.get_by_test_id("kpi-step")).to_contain_text("choose a machine")

    # a machine from the menu: the cost at once, then its own compiler's answer where that is installed
    before = edits(view)
    view.get_by_test_id("target").click()
    view.get_by_test_id("target-tpu v5p:4x4x4").click()
    expect(view.get_by_test_id("kpi-step")).to_contain_text(re.compile(r"\d m?s"))
    settled(view, before, LAST)
    expect(view.get_by_test_id("target")).to_have_text("v5p 4x4x4 ▾")
    expect(view.get_by_test_id("target")).to_be_focused()
    expect(view.get_by_test_id("kpi-memory")).to_contain_text("GB fits" if READY else "about")
    expect(view.get_by_test_id("target-lack")).to_have_count(0 if READY else 1)
    agrees(page, view)
    go(view, "source")
    expect(view.locator(".sv-in").filter(has_text="compute").filter(has_text="all-reduce").first).to_be_visible()
    page.screenshot("machine_source", of=view)
    go(view, "collectives")
    view.get_by_test_id("collectives-table").locator("button[aria-expanded]").first.click()
    expect(view.get_by_test_id("collectives-table")).to_contain_text("90.0 GB/s")
    page.screenshot("machine_collectives", of=view)

    # by keys, with a mistake: JupyterLab takes none of them, and what was typed stays to be fixed
    before = edits(view)
    view.get_by_test_id("target").focus()
    page.raw.keyboard.press("Enter")
    for _ in range(12):
        if view.get_by_test_id("target-text").evaluate("(el) => el === el.getRootNode().activeElement"):
            break
        page.raw.keyboard.press("ArrowUp")
    page.raw.keyboard.press("Control+a")
    page.raw.keyboard.type("tpu v5e:16x16")
    page.raw.keyboard.press("Enter")
    expect(view.get_by_test_id("target-error")).to_contain_text("a target that would do: tpu v5e:8x8")
    expect(view.get_by_test_id("target-text")).to_have_value("tpu v5e:16x16")
    page.raw.keyboard.press("Control+a")
    page.raw.keyboard.type("v5e")
    page.raw.keyboard.press("Enter")
    expect(view.get_by_test_id("target")).to_have_text("v5e 8x8 ▾")
    settled(view, before + 1, LAST)
    agrees(page, view)
    if READY:
        expect(view.get_by_test_id("kpi-memory")).to_contain_text("does not fit")

    view.get_by_test_id("kpi-memory").get_by_role("button").click()
    page.screenshot("machine_memory", of=view)
    page.assert_no_errors()
