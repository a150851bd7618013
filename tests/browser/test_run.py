"""A person runs a training loop dry in a notebook, and goes through its programs on the strip, by mouse and by keys."""

from __future__ import annotations

import re

import pytest

from tests.browser.harness import Lab, LabPage
from tests.browser.views import state

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

TRAIN = """
import functools, jax, jax.numpy as jnp, numpy as np
import shardviz as sv
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

with sv.dry_run("tpu v5e:2x4") as run:
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    on = lambda *spec: NamedSharding(mesh, P(*spec))
    init = jax.jit(lambda key: jax.random.normal(key, (8192, 8192)), out_shardings=on(None, "model"))
    def loss(w, x):
        return jnp.mean((x @ w) ** 2)
    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(w, x):
        return w - jax.grad(loss)(w, x)
    evaluate = jax.jit(loss)
    w = init(jax.random.key(0))
    for step in range(3):
        x = jax.device_put(np.zeros((4096, 8192), np.float32), on("data"))
        w = train_step(w, x)
    float(evaluate(w, x))
run
"""
SET = """
import jax, jax.numpy as jnp, shardviz as sv
from jax.sharding import PartitionSpec as P

w, x = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((8192, 8192), (512, 8192)))
def step(params, x):
    return x @ params["w"]
def plan(*spec):
    return sv.Plan({"data": 2, "model": 4}, in_specs=({"w": P(*spec)}, P("data")))
program = sv.trace(step, {"w": w}, x)
e = sv.explore(sv.together(train=(program, plan("data")), decode=(program, plan(None, "model")), target="tpu v5e:2x4"))
e
"""
DARK = "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
TOLD = "print(e.explorer.report.program, e.explorer.state.target)"


def looks(page: LabPage, name: str) -> None:
    """Take pictures of a laptop's window in both themes; no program's block on the strip is too narrow for its name."""
    strip, size = page.raw.get_by_role("tablist", name="Programs of the run"), page.raw.viewport_size
    page.raw.set_viewport_size({"width": 1280, "height": 800})
    for theme, change in (("light", None), ("dark", DARK)):
        if change:
            page.raw.evaluate(change)
            expect(page.raw.locator("body")).to_have_attribute("data-jp-theme-light", "false")
        strip.evaluate("strip => strip.scrollIntoView({block: 'start'})")
        assert strip.evaluate("strip => [...strip.children].every(tab => tab.clientWidth >= 40)")
        page.screenshot(f"{name}_{theme}")
    page.raw.evaluate(DARK.replace("Dark", "Light"))
    page.raw.set_viewport_size(size)


def test_the_strip_opens_each_program_of_a_run(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("run.ipynb", TRAIN, "e = sv.explore(run)\ne", TOLD))
    page.run_cell(0)
    expect(page.cell_output(0)).to_contain_text("dry run on tpu v5e:2x4, 8 devices: 3 programs, 5 calls")
    page.run_cell(1)
    view = page.cell_output(1)
    tabs = view.get_by_role("tablist", name="Programs of the run").get_by_role("tab")
    expect(tabs).to_have_count(3)
    expect(view.get_by_role("tab", selected=True).first).to_contain_text("3 ×")
    expect(state(view)).to_have_attribute("data-level", re.compile("partitioned|compiled"), timeout=60_000)
    page.run_cell(2)
    assert page.cell_output(2).inner_text().strip() == "train_step tpu v5e:2x4"
    expect(view.get_by_text("host → P('data'): 403 MB, 13.4 ms")).to_be_visible()  # 3 batches over PCIe
    expect(view.get_by_text("weights 67.1 MB")).to_be_visible()  # what holds the memory at the peak
    looks(page, "run")

    tabs.nth(1).focus()
    page.raw.keyboard.press("ArrowRight")
    expect(tabs.nth(2)).to_be_focused()
    page.raw.keyboard.press("Enter")
    expect(tabs.nth(2)).to_have_attribute("aria-selected", "true")
    page.run_cell(2)
    assert page.cell_output(2).inner_text().strip() == "loss tpu v5e:2x4"
    page.screenshot("run_evaluated", of=view)


def test_a_shared_array_and_a_card_say_what_the_other_programs_want_and_cost(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("set.ipynb", SET, 'e.explorer.state.set_target("tpu v6e:2x4")'))
    page.run_cell(0)
    view = page.cell_output(0)
    row = view.get_by_test_id("argument-params['w']")
    expect(row).to_contain_text("≠ decode")
    expect(view.get_by_test_id("card-baseline")).to_contain_text("decode")
    view.get_by_test_id("name-params['w']").click()
    expect(view.get_by_test_id("wishes-params['w']")).to_contain_text("between calls")
    looks(page, "set")
    view.get_by_test_id("spec-params['w']").fill("P(None, 'model')")
    view.get_by_test_id("spec-params['w']").press("Enter")
    expect(row).not_to_contain_text("decode")
    expect(view.get_by_test_id("card-draft")).to_contain_text("decode")
    strip = view.get_by_role("tablist", name="Programs of the run")
    expect(strip).to_have_attribute("data-limit", "16.9 GB a device")
    page.run_cell(1)
    expect(strip).to_have_attribute("data-limit", re.compile(r"3\d\.\d GB a device"))
    expect(view.get_by_text("on tpu v6e:2x4").first).to_be_visible()
    page.screenshot("set_machine", of=view)
    view.get_by_role("tab", name="decode").click()
    expect(view.get_by_test_id("card-baseline")).to_contain_text("train")
    page.assert_no_errors()
