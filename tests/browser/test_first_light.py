"""A newcomer's walk: notebook 01 in a real JupyterLab, with the mesh and a weight's spec changed by clicking
and by pasting a sharding in another notation."""

from __future__ import annotations

import re

import pytest

from tests.browser.harness import Lab, LabPage
from tests.browser.views import edits, go, settled, state, unfold

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

EXPLORER = 6  # the notebook's cell with the explorer, markdown cells counted
WQ = "params['layers']['wq']"


def gathers(view, name="wq"):
    """The rows of the collectives table that gather a weight."""
    go(view, "collectives")
    rows = view.get_by_test_id("collectives-table").locator("tr")
    return rows.filter(has_text="all-gather").filter(has_text=re.compile(rf"'?{name}'?\b"))


def choose(page, view, slot, axis):
    """Opens a slot's menu and picks an axis in it."""
    view.get_by_test_id(slot).click()
    page.raw.get_by_test_id(axis).click()
    page.raw.keyboard.press("Escape")


def test_the_walk_of_notebook_01(lab: Lab, page: LabPage):
    page.open_notebook("01_first_light.ipynb")
    page.run_all(seconds=180)
    view = page.cell_output(EXPLORER)
    expect(state(view)).to_have_attribute("data-level", "partitioned", timeout=60_000)
    page.screenshot("first_light_after_run", of=view)
    unfold(view)

    # no later cell changes the explorer: wq is gathered, until a click takes `data` from its dimension of 8192
    expect(gathers(view)).to_have_count(2)
    before = edits(view)
    choose(page, view, f"slot-{WQ}-1", "menu-remove-data")
    settled(view, before, "partitioned")
    expect(gathers(view)).to_have_count(0)

    # by clicking: `data` back; then it is gathered forward and once more, 80 times each
    before = edits(view)
    choose(page, view, f"slot-{WQ}-1", "menu-axis-data")
    settled(view, before, "partitioned")
    rows = gathers(view)
    expect(rows).to_have_count(2)
    for row in rows.all():
        expect(row).to_contain_text("80")
        expect(row).to_contain_text("2.10 MB")
    page.screenshot("first_light_edited", of=view)

    # every notation of wq: one is copied and pasted back, another one is pasted and applied
    page.raw.context.grant_permissions(["clipboard-read", "clipboard-write"])
    go(view, "rosetta")
    expect(view.get_by_test_id("text-pspec")).to_have_text("P(None, 'data', 'model', None)")
    expect(view.get_by_test_id("text-hlo-v2")).to_have_text("{devices=[1,8,8,1]<=[64]}")
    expect(view.get_by_test_id("text-hlo-v2")).to_have_css("display", "block")  # whatever version saved the notebook
    view.get_by_test_id("copy-hlo-v2").click()
    expect(view.get_by_test_id("copy-hlo-v2")).to_have_text("copied")
    view.get_by_test_id("read").click()
    page.raw.keyboard.press("Control+v")
    expect(view.get_by_test_id("read-same")).to_be_visible()
    view.get_by_test_id("read").fill('#sdy.sharding<@mesh, [{}, {"model"}, {"data"}, {}]>')
    view.get_by_test_id("read").press("Enter")
    expect(view.get_by_test_id("text-hlo-v2")).to_have_text("{devices=[1,8,8,1]<=[8,8]T(1,0)}")
    page.screenshot("first_light_rosetta", of=view)
    before = edits(view)
    view.get_by_test_id("read-apply").click()
    settled(view, before, "partitioned")
    expect(view.get_by_test_id(f"slot-{WQ}-1")).to_have_text("model")
    expect(view.get_by_test_id("text-pspec")).to_have_text("P(None, 'model', 'data', None)")
    before = edits(view)
    view.get_by_test_id("undo").click()
    settled(view, before, "partitioned")
    expect(gathers(view)).to_have_count(2)

    # the mesh by clicking: `data` from 8 to 16 devices; a device's piece of wq is half as large
    before = edits(view)
    view.get_by_test_id("axis-more-data").click()
    settled(view, before, "partitioned")
    expect(view.get_by_test_id("devices")).to_contain_text("128")
    for row in gathers(view).all():
        expect(row).to_contain_text("1.05 MB")

    # a mesh that does not fit: 8 key-value heads over model=16; said in place, and nothing is lost
    view.get_by_test_id("axis-more-model").click()
    expect(view.get_by_test_id("mesh-error").or_(view.get_by_test_id("argument-error")).first).to_contain_text(
        "is not divisible by 'model'=16"
    )
    expect(view.get_by_test_id("devices")).to_contain_text("128")
    page.screenshot("first_light_error", of=view)
    page.assert_no_errors()
