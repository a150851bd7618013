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
TOLD = "print(e.explorer.report.program, e.explorer.state.target)"


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
    page.screenshot("run", of=view)

    tabs.nth(1).focus()
    page.raw.keyboard.press("ArrowRight")
    expect(tabs.nth(2)).to_be_focused()
    page.raw.keyboard.press("Enter")
    expect(tabs.nth(2)).to_have_attribute("aria-selected", "true")
    page.run_cell(2)
    assert page.cell_output(2).inner_text().strip() == "loss tpu v5e:2x4"
    page.screenshot("run_evaluated", of=view)
