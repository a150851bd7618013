"""A function written by hand in a real JupyterLab: a wrong try, a deadlock, and a right one, in one kernel."""

from __future__ import annotations

import pytest

from tests.browser.harness import Lab, LabPage

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

OPEN = """
import jax
import jax.numpy as jnp
import shardviz as sv

gather = sv.lessons.write("all-gather")
gather.limit = 10
gather
"""
DEADLOCK = """
def waits(x):
    swap = lambda x: jax.lax.ppermute(x, "ring", [(0, 1), (1, 0)])
    first = jax.lax.axis_index("ring") == 0
    return jnp.tile(jax.lax.cond(first, swap, lambda x: x, x), (8, 1))


gather.answer(waits)
"""
RIGHT = """
FOLLOWING = [(i, (i + 1) % 8) for i in range(8)]


def handed_on(x):
    return jax.lax.ppermute(x, "ring", FOLLOWING)


def all_gather(x):
    me = jax.lax.axis_index("ring")
    rows = jnp.zeros((8, *x.shape), x.dtype).at[me].set(x)
    for turn in range(1, 8):
        x = handed_on(x)
        rows = rows.at[(me - turn) % 8].set(x)
    return rows.reshape(16, -1)


gather.answer(all_gather)
"""
SKELETON = "def all_gather(x):\n    return x\n\n\ngather.answer(all_gather)"
DARK = "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"


def test_a_function_written_in_a_cell(lab: Lab, page: LabPage):
    last = 'print(sv.lessons.scores(gather, lesson="7. By hand").score)\nsv.lessons.progress()'
    page.open_notebook(lab.write("written.ipynb", OPEN, SKELETON, DEADLOCK, RIGHT, last))
    page.run_all(seconds=180)
    expect(page.cell_output(0)).to_contain_text("Each device must have: all rows")
    expect(page.cell_output(1)).to_contain_text("has the shape [2, 128] on each device, expected [16, 128]")
    expect(page.cell_output(1)).to_contain_text("hint")
    expect(page.cell_output(2)).to_contain_text("deadlock")  # and the kernel is free
    expect(page.cell_output(3)).to_contain_text("★★★")  # with helpers that the notebook defines
    expect(page.cell_output(4)).to_contain_text("1.0")
    expect(page.cell_output(4)).to_contain_text("7. By hand")
    page.screenshot("written_task", of=page.cell_output(0))
    page.screenshot("written_wrong", of=page.cell_output(1))
    page.screenshot("written_right", of=page.cell_output(3))
    page.raw.evaluate(DARK)
    expect(page.raw.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    page.screenshot("written_dark", of=page.cell_output(3))
    page.assert_no_errors()
