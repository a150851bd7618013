"""A newcomer's path in a real JupyterLab: open, read the verdict, take the first fix, understand why, keep the page;
all in the first screen, so that the notebook need not be scrolled."""

from __future__ import annotations

import re

import pytest

from tests.browser.harness import Lab, LabPage
from tests.browser.views import edits, settled, state
from tests.page.page import SMALL

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

OPEN = """import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import shardviz as sv

def step(params, x):
    def loss(params):
        h = jnp.tanh(x @ params["up"])
        return jnp.sum((h @ params["down"]) ** 2)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
params = {"up": array(32768, 131072), "down": array(131072, 32768)}
specs = ({"up": P("model"), "down": P(None, "model")}, P("data"))
sv.explore(step, params, array(65536, 32768), mesh="data=4,model=4", in_specs=specs, target="tpu v5e:4x4",
           level="partitioned")"""

SCROLLED = "document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer').scrollTop"


def in_sight(page, *parts):
    """Whether all of these come to be in the window of 1280 x 800, once what is being laid out is."""
    for _ in range(100):
        boxes = [part.bounding_box() for part in parts]
        if all(box is not None and box["y"] >= 0 and box["y"] + min(box["height"], 300) <= 800 for box in boxes):
            return True
        page.raw.wait_for_timeout(100)
    page.screenshot("newcomer_out_of_sight")
    return False


def test_a_newcomers_path(lab: Lab, page: LabPage):
    page.raw.set_viewport_size({"width": 1280, "height": 800})
    page.open_notebook(lab.write("newcomer.ipynb", OPEN))
    page.run_all()
    view = page.cell_output(0)
    expect(state(view)).to_have_attribute("data-level", "partitioned", timeout=60_000)
    at = view.get_by_test_id
    expect(at("fix")).to_have_text(re.compile(r"Fix \([1-9]\d*\)"), timeout=120_000)  # its height is final
    view.evaluate("(output) => output.scrollIntoView()")
    page.raw.wait_for_timeout(300)
    before = page.raw.evaluate(SCROLLED)

    # the verdict: a whole sentence, also where it is cut
    assert in_sight(page, at("verdict"), at("fix"), at("find-best"), at("card-baseline"), at("keep-html"))
    assert at("verdict").inner_text().startswith("Compute-bound: matrix products take")
    assert (at("verdict").get_attribute("title") or "").startswith("Compute-bound: matrix products take")

    # the first fix is taken
    at("fix").click()
    expect(at("panel-most")).not_to_contain_text("changes tried", timeout=120_000)  # as it does while it tries some
    fix = at("panel-most").locator("[data-choice^='fix ']").first
    expect(fix).to_be_visible()
    assert in_sight(page, fix)
    number = edits(view)
    fix.click()
    settled(view, number, "partitioned")
    expect(view.locator(".sv-card")).to_have_count(2)
    assert view.evaluate("(output) => output.contains(document.activeElement)"), "its keys go on"
    number = edits(view)
    page.raw.keyboard.press("Control+z")
    settled(view, number, "partitioned")
    expect(at("card-baseline")).to_have_attribute("aria-current", "true")
    number = edits(view)
    page.raw.keyboard.press("Control+Shift+z")
    settled(view, number, "partitioned")
    assert at("shardviz").evaluate(SMALL) == []

    # why: beside what was asked about, with the focus in it
    at("tab-source").click()
    why = at("panel-source").get_by_role("button", name="why?").first
    assert in_sight(page, why)
    why.click()
    expect(at("why-step").or_(at("why-close")).first).to_be_visible(timeout=60_000)
    expect(at("why").locator("h3, p, .sv-whynow").first).to_be_visible(timeout=60_000)
    assert in_sight(page, at("why"))

    # kept as a page
    with page.raw.expect_download() as kept:
        at("keep-html").click()
    assert "matrix products" in kept.value.path().read_text(encoding="utf-8")
    assert page.raw.evaluate(SCROLLED) == before, "the notebook was scrolled"
    page.assert_no_errors()
