"""A notebook with an explorer, saved: small, without the page's code, with the latest state for who has no kernel,
whichever way it is read."""

from __future__ import annotations

import json
import os

import nbformat
import pytest

from tests.browser.harness import ARTIFACTS, Lab, LabPage
from tests.browser.views import edits, settled, unfold
from tests.serving import environment
from tests.view.sanitizer import read

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

OPEN = """import shardviz as sv
from jax.sharding import PartitionSpec as P

llama = sv.gallery.llama("70b")
explorer = sv.explore(llama, target="tpu v5p:4x4x4", level="partitioned")
explorer"""
EDIT = """explorer.state.set_spec("params['emb']", P())
explorer.wait("partitioned").level"""
STATE = "application/vnd.jupyter.widget-state+json"
SAVE_STATE = "() => window.jupyterapp.commands.execute('@jupyter-widgets/jupyterlab-manager:saveWidgetState')"
WHOLE, CUT = "2.10 GB", "32.8 MB"  # what the embedding takes on each device, before and after


def saved(path):
    """The notebook as it is on disk, its size, and the HTML of the still below the explorer."""
    notebook = nbformat.read(path, as_version=4)
    view, still = notebook.cells[0].outputs
    assert list(view.data) == ["application/vnd.jupyter.widget-view+json"]
    assert set(still.data) == {"text/plain", "text/html"}
    return notebook, path.stat().st_size, still.data


def has_no_code(notebook):
    """Whether the state that is saved with a notebook, where there is one, has an explorer, and none of its code."""
    models = [model["state"] for model in notebook.metadata["widgets"][STATE]["state"].values()]
    (explorer,) = (state for state in models if "plan_code" in state)
    return not explorer.get("_page") and len(explorer["_esm"]) < 5000 and "drawNumbers" not in json.dumps(models)


def bare(html):
    """The HTML of a still as a sanitizer leaves it, which drops its style sheet and the attribute that names it."""
    start, _, rest = html.partition("<style>")
    assert start.startswith("<div data-shardviz-still=") and start.endswith('">')
    return "<div>" + rest.partition("</style>")[2]


def shown_offline(browser, notebook, name):
    """What nbconvert makes of a notebook, in a browser without a network."""
    from nbconvert import HTMLExporter

    body, _ = HTMLExporter().from_notebook_node(notebook)
    path = ARTIFACTS / f"{name}.html"
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    path.write_text(body)
    context = browser.new_context(offline=True, viewport={"width": 1100, "height": 900})
    try:
        page = context.new_page()
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
        return page.inner_text("body")
    finally:
        context.close()


def test_a_notebook_that_was_run_without_a_page(browser, lab: Lab):
    """As nbconvert --execute does it: what a later cell changed is in the still."""
    from nbclient import NotebookClient

    path = lab.folder / lab.write("executed.ipynb", OPEN, EDIT)
    notebook = nbformat.read(path, as_version=4)
    paths = {"PYTHONPATH": environment(lab.home)["PYTHONPATH"]}
    NotebookClient(notebook, timeout=180).execute(env={**os.environ, **paths})
    nbformat.write(notebook, path)
    notebook, size, still = saved(path)
    assert size < 300_000
    assert has_no_code(notebook)
    assert WHOLE in still["text/plain"] and WHOLE in still["text/html"]
    assert "train_step" in "".join(read(bare(still["text/html"])).text)
    offline = shown_offline(browser, notebook, "executed")
    assert "communication" in offline and "waits for its kernel" not in offline


def test_a_cell_that_is_run_again(lab: Lab, page: LabPage):
    """What was tried unasked for the explorer that nobody sees any more is left."""
    rests = "[each.state.background.rests for each in (first, explorer)]"
    page.open_notebook(
        lab.write("run_again.ipynb", OPEN.replace("partitioned", "propagated"), "first = explorer", rests)
    )
    page.run_all()
    expect(page.cell_output(2)).to_contain_text("[False, False]")
    page.run_cell(0)
    page.cell_output(0).get_by_test_id("level").wait_for()
    page.run_cell(2)
    expect(page.cell_output(2)).to_contain_text("[True, False]")
    page.assert_no_errors()


@pytest.mark.long
def test_a_notebook_that_was_worked_on(browser, lab: Lab, page: LabPage):
    path = lab.folder / lab.write("worked_on.ipynb", OPEN, EDIT)
    page.open_notebook(path.name)
    page.run_all()
    view = page.cell_output(0)
    view.get_by_test_id("level").wait_for()
    still = view.locator("[data-shardviz-still]")
    expect(still).to_contain_text(WHOLE, use_inner_text=False, timeout=10_000)
    assert not still.is_visible(), "the explorer itself is there"

    # by hand: the embedding is cut again; a moment later the still says so
    before = edits(view)
    unfold(view)
    view.get_by_test_id("slot-params['emb']-0").click()
    page.raw.get_by_test_id("menu-axis-model").click()
    page.raw.keyboard.press("Escape")
    settled(view, before, "partitioned")
    expect(still).not_to_contain_text(WHOLE, use_inner_text=False, timeout=10_000)
    assert not still.is_visible()
    page._command("docmanager:save", 30)
    _, size, data = saved(path)
    assert size < 100_000 and WHOLE not in data["text/html"] and WHOLE not in data["text/plain"]

    # a page that is loaded anew, its kernel alive: what is done then is in the notebook too
    page.open_notebook(path.name)
    view.get_by_test_id("level").wait_for()
    before = edits(view)
    view.get_by_test_id("undo").click()
    settled(view, before, "partitioned")
    expect(still).to_contain_text(WHOLE, use_inner_text=False, timeout=15_000)
    assert not still.is_visible() and view.locator("[data-shardviz-still]").count() == 1
    page._command("docmanager:save", 30)
    _, size, data = saved(path)
    assert size < 100_000 and WHOLE in data["text/html"] and WHOLE in data["text/plain"]

    # with the widgets' state saved too
    page.raw.evaluate(SAVE_STATE)
    page._command("docmanager:save", 30)
    notebook, size, _ = saved(path)
    assert size < 1_000_000 and has_no_code(notebook)
    offline = shown_offline(browser, notebook, "worked_on")
    assert "communication" in offline
    page.assert_no_errors()

    # opened again, with no kernel: the still is to be seen
    page.raw.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
    other = LabPage(browser, lab)
    try:
        other.raw.goto(f"{lab.url}lab/tree/{path.name}?token={lab.token}&reset")
        expect(other.notebook.locator("[data-shardviz-still]")).to_be_visible(timeout=30_000)
        other.raw.wait_for_timeout(3000)
        other.screenshot("worked_on_again")
        assert other.notebook.locator("[data-shardviz-still]").inner_text().startswith("train_step")

        # and with neither kernel nor the widgets' state: nothing stands above it
        del notebook.metadata["widgets"]
        nbformat.write(notebook, lab.folder / "bare.ipynb")
        other.raw.goto(f"{lab.url}lab/tree/bare.ipynb?token={lab.token}&reset")
        expect(other.notebook.locator("[data-shardviz-still]")).to_be_visible(timeout=60_000)
        no_model = other.notebook.get_by_text("model not found")
        expect(no_model).to_have_count(1, timeout=60_000)
        assert not no_model.is_visible()
        other.screenshot("bare")
    finally:
        other.raw.close()
