"""A person's way through an exercise in a real JupyterLab, by keyboard alone: predict, check, fix, check again."""

from __future__ import annotations

import pytest

from tests.browser.harness import Lab, LabPage

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

OPEN = """
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import shardviz as sv

array = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")
program = sv.trace(lambda x, w1, w2: jnp.tanh(x @ w1) @ w2, array(64, 512), array(512, 2048), array(2048, 512))
plan = sv.Plan({"data": 2, "model": 4}, (P("data"), P(None, "model"), P("model")))
exercise = sv.lessons.exercise(program, plan, ask="collectives", title="Megatron's MLP")
exercise.widget()
"""


def test_an_exercise_by_keyboard(lab: Lab, page: LabPage):
    page.open_notebook(
        lab.write("exercise.ipynb", OPEN, "print('score', exercise.result and (exercise.result.score, exercise.tries))")
    )
    page.run_all(seconds=180)
    form, keys = page.cell_output(0), page.raw.keyboard
    expect(form).to_contain_text("Which collectives does the compiler insert")

    # every field has a name, and Tab goes from one to the next
    form.get_by_label("collective 1").focus()
    keys.type("all-gather")
    keys.press("Tab")
    expect(form.get_by_label("over").first).to_be_focused()
    keys.type("model")
    keys.press("Tab")
    expect(form.get_by_label("bytes").first).to_be_focused()
    keys.type("many")
    keys.press("Enter")  # in a field, as the button
    expect(form.get_by_role("alert")).to_contain_text("bytes='many'")

    check = form.get_by_role("button", name="Check")
    form.get_by_label("bytes").first.fill("65,500")
    keys.press("Enter")
    expect(form).to_contain_text("does not exist", timeout=60_000)
    expect(form).to_contain_text("1 collective is missing")
    expect(form).not_to_contain_text("sums over dimension 1")
    page.screenshot("exercise_hint", of=form)
    form.get_by_label("collective 1").focus()
    keys.type("all-reduce")
    check.focus()
    keys.press("Enter")
    expect(form).to_contain_text("100%", timeout=60_000)
    page.screenshot("exercise_right", of=form)
    page.run_cell(1)
    expect(page.cell_output(1)).to_contain_text("score (1.0, 2)")

    form.get_by_label("bytes").first.fill("1")
    keys.press("Enter")
    expect(form).to_contain_text("too few bytes")
    form.get_by_role("button", name="Show the answer").click()
    expect(form).to_contain_text("65.5 kB")
    page.screenshot("exercise_missed", of=form)

    dark = "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    page.raw.evaluate(dark)
    expect(page.raw.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    page.screenshot("exercise_dark", of=form)
    page.assert_no_errors()
