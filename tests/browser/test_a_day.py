"""A whole day's path in a real JupyterLab: one's own function, a preset, what costs most, edits, cards, the search, and
the page that is kept; the compile server and the kernel are killed on the way, and one name is hostile."""

from __future__ import annotations

import json

import psutil
import pytest

from tests.browser.harness import Lab, LabPage
from tests.browser.views import edits, go, settled, state

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

EVIL = "</script><img src=x onerror=window.evil=1>"
OPEN = f"""import jax, jax.numpy as jnp
import shardviz as sv

def step(params, x):
    def loss(params):
        h = jnp.tanh(x @ params["up"])
        return jnp.sum((h @ params[{EVIL!r}]) ** 2)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
params = {{"up": array(4096, 16384), {EVIL!r}: array(16384, 4096)}}
explorer = sv.explore(step, params, array(8192, 4096), mesh="data=4,model=2", target="tpu v5e:2x4", level="partitioned")
explorer"""

CONTROLS = {"button", "textbox", "searchbox", "checkbox", "combobox", "tab", "treeitem", "menuitem", "link", "tree"}


def nameless(page):
    """The roles and places of what can be worked and has no name for a screen reader."""
    session = page.raw.context.new_cdp_session(page.raw)
    root = session.send("Runtime.evaluate", {"expression": "document.querySelector('.shardviz')"})["result"]["objectId"]
    nodes = session.send("Accessibility.queryAXTree", {"objectId": root})["nodes"]
    found = [n for n in nodes if not n["ignored"] and n["role"]["value"] in CONTROLS]
    assert len(found) > 40, "the page has its controls"
    return [(n["role"]["value"], n.get("backendDOMNodeId")) for n in found if not n["name"]["value"].strip()]


def moved(view, act, level="partitioned"):
    """Does something to the plan, and waits for its answer."""
    before = edits(view)
    act()
    settled(view, before, level)


@pytest.mark.long
def test_a_day(browser, lab: Lab, page: LabPage):
    page.open_notebook(lab.write("day.ipynb", OPEN, "print('kernel has', explorer.plan.mesh.text)"))
    page.raw.set_viewport_size({"width": 1280, "height": 800})
    page.run_all()
    view = page.cell_output(0)
    expect(state(view)).to_have_attribute("data-level", "partitioned", timeout=60_000)

    # one's own function, nothing cut: a preset is a click away, and says before it is taken what it would change
    view.get_by_test_id("presets").click()
    expect(view.get_by_test_id("presets-busy")).to_have_count(0, timeout=60_000)
    preset = view.get_by_test_id("presets-pane").get_by_role("button", name="take").first
    moved(view, preset.click)
    preset = view.locator(".sv-card[aria-current=true]")
    expect(preset).to_contain_text("a preset")

    # what costs most; a slot is changed by hand
    most = view.get_by_test_id("panel-most")
    view.get_by_test_id("fix").click()
    expect(most).to_contain_text("matrix products")
    slot = "slot-params['up']-0"
    before = view.get_by_test_id(slot).inner_text()

    def cut():
        view.get_by_test_id(slot).click()
        clear = page.raw.get_by_test_id("menu-clear")
        (clear if clear.count() else page.raw.get_by_test_id("menu-axis-model")).click()
        page.raw.keyboard.press("Escape")

    moved(view, cut)
    assert view.get_by_test_id(slot).inner_text() != before

    # what was tried and helps stands beside it: a click takes it, one undo takes it back
    fix = most.locator("[data-choice^='fix ']").first
    expect(fix).to_be_visible(timeout=120_000)
    expect(most).not_to_contain_text("changes tried", timeout=120_000)
    choice = fix.get_attribute("data-choice")
    taken = most.locator(f"[data-choice={json.dumps(choice)}]")
    moved(view, taken.first.click)
    expect(taken).to_have_count(0)
    moved(view, view.get_by_test_id("undo").click)
    expect(taken.first).to_be_visible(timeout=120_000)

    # the compile server is killed: the next plan is answered all the same
    (kernel,) = lab.kernels()
    killed = [child for child in kernel.children() if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert killed
    for child in killed:
        child.kill()
    moved(view, cut)

    # kept as a card, named, compared with the baseline
    page.raw.keyboard.press("Escape")
    view.locator(".sv-card[aria-current=true]").focus()
    page.raw.keyboard.press("k")
    card = view.locator(".sv-card[aria-current=true]")
    expect(card).not_to_contain_text("draft")
    card.dblclick()
    view.get_by_test_id("card-name").fill(EVIL)
    view.get_by_test_id("card-name").press("Enter")
    expect(card.locator(".sv-cardname")).to_have_text(EVIL[:60])
    go(view, "difference")
    expect(view.get_by_test_id("panel-difference")).to_be_visible()
    go(view, "source")
    assert nameless(page) == []

    # the search makes a card of what it finds, and can be stopped
    view.get_by_test_id("find-best").click()
    expect(view.locator(".sv-card").get_by_text("best found").first).to_be_visible(timeout=60_000)
    if view.get_by_test_id("find-best").inner_text().endswith("stop"):
        view.get_by_test_id("find-best").click()
    expect(view.get_by_test_id("find-best")).to_contain_text("Find the best", timeout=30_000)

    # beside the file browser all of it is in the first screen, from the verdict to the plans
    view.evaluate("(output) => output.scrollIntoView()")
    page.screenshot("day_1280")
    for answer in map(view.get_by_test_id, ("verdict", "fix", "mesh-axis-data", "tab-source", "card-baseline")):
        box = answer.bounding_box()
        assert box is not None and box["y"] >= 0 and box["y"] + box["height"] <= 800

    # undone to the start, and again
    while view.get_by_test_id("undo").is_enabled():
        number = edits(view)
        view.get_by_test_id("undo").click()
        expect(state(view)).not_to_have_attribute("data-seq", str(number), timeout=30_000)
    expect(view.get_by_test_id("card-baseline")).to_have_attribute("aria-current", "true")
    page.run_cell(1)
    expect(page.cell_output(1)).to_contain_text("kernel has data=4,model=2")

    # kept as one page, read with the network off
    with page.raw.expect_download() as kept:
        view.get_by_test_id("keep-html").click()
    path = lab.home / "kept.html"
    kept.value.save_as(path)
    context = browser.new_context(offline=True, viewport={"width": 700, "height": 900}, color_scheme="dark")
    try:
        reader = context.new_page()
        reader.goto(path.as_uri())
        text = reader.inner_text("body")
        assert "What costs you most" in text and "matrix products" in text and EVIL in text
        assert not reader.evaluate("window.evil") and reader.locator("img[src=x]").count() == 0
    finally:
        context.close()

    # the kernel is killed: the page says so, and stays to be read
    view.get_by_test_id("fix").click()
    expect(most).to_contain_text("matrix products")
    kernel.kill()
    expect(view.get_by_test_id("gone")).to_be_visible(timeout=30_000)
    expect(most).to_contain_text("matrix products")
    assert page.raw.evaluate("window.evil") is None and view.locator("img[src=x]").count() == 0
    page.screenshot("day_without_kernel")
