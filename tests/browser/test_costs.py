"""A person's way through the tabs Cost and Machine in a real JupyterLab: arithmetic, a chip, another order, undone."""

from __future__ import annotations

import pytest

from tests.browser.harness import Lab, LabPage
from tests.browser.views import edits, go, settled, state

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

OPEN = """
import shardviz as sv

example = sv.gallery.llama(layers=2, batch=16, mesh="data=4,model=8")
explorer = sv.explore(example, target="tpu v5e:4x8", level="partitioned", tokens=16 * 4096)
explorer
"""


def test_cost_and_machine(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("costs.ipynb", OPEN, "print('kernel has', explorer.device, explorer.plan.mesh.text)"))
    page.run_all(seconds=180)
    view = page.cell_output(0)
    expect(state(view)).to_have_attribute("data-level", "partitioned", timeout=60_000)

    # what the time goes to, with the arithmetic, and from a collective to its line
    go(view, "cost")
    expect(view.get_by_test_id("step")).to_contain_text("no overlap")
    view.get_by_test_id("step-times").get_by_role("button", name="over model", exact=False).first.click()
    expect(view.get_by_test_id("step-times")).to_contain_text("2 x V x 7/8 / W")
    expect(view.get_by_test_id("roofline")).to_be_visible()
    page.screenshot("costs_cost", of=view)
    view.get_by_test_id("longest").get_by_title("show this line").first.click()
    expect(view.get_by_test_id("panel-source")).to_be_visible()

    # a chip, its company, and the same device on the shard map and in the kernel
    go(view, "machine")
    expect(view.get_by_test_id("panel-machine").locator("h2").first).to_contain_text("tpu v5e:4x8: 32 chips")
    view.get_by_test_id("device-5").click()
    expect(view.get_by_test_id("device-groups")).to_contain_text("line of 8 along")
    device = view.get_by_test_id("pick-device").input_value()
    page.screenshot("costs_machine", of=view)
    go(view, "shards")
    expect(view.get_by_test_id("panel-shards").locator(".sv-item[aria-pressed=true]")).to_have_count(1)
    page.run_cell(1)
    expect(page.cell_output(1)).to_contain_text(f"kernel has {device} data=4,model=8")

    # another order of the devices: the machine and the cost follow at once, and the undo brings both back
    go(view, "machine")
    expect(view.get_by_test_id("axis-rides")).to_be_visible()
    said = view.get_by_test_id("axis-rides").text_content()
    before = edits(view)
    view.get_by_test_id("order-text").fill("[4,8]T(1,0)")
    view.get_by_test_id("order-set").click()
    settled(view, before, level="partitioned")
    expect(view.get_by_test_id("order-changes")).to_contain_text("by mesh_utils")
    expect(view.get_by_test_id("order-own")).to_be_checked()
    assert view.get_by_test_id("axis-rides").text_content() != said
    page.run_cell(1)
    expect(page.cell_output(1)).to_contain_text("devices=[4,8]T(1,0)")
    page.screenshot("costs_order", of=view)
    before = edits(view)
    view.get_by_test_id("undo").click()
    settled(view, before, level="partitioned")
    expect(view.get_by_test_id("order-mesh_utils")).to_be_checked()
    assert view.get_by_test_id("axis-rides").text_content() == said
    page.assert_no_errors()
