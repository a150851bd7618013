"""Where people look: an array's sharding beside its values, a tree's maps, and the code of a plan run on 8 devices."""

from __future__ import annotations

import re

import pytest

from tests.browser.harness import Lab, LabPage
from tests.browser.views import go, settled, state

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

ARRAYS = """
import jax, jax.numpy as jnp
import shardviz as sv
from jax.sharding import NamedSharding, PartitionSpec as P
%load_ext shardviz
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((4, 2), ("data", "model"))
own = lambda *spec: NamedSharding(mesh, P(*spec))
jax.device_put(jnp.arange(32.0).reshape(8, 4), own("data", "model"))
"""
TREE = """
leaf = lambda shape, *spec: jax.ShapeDtypeStruct(shape, "float32", sharding=own(*spec))
layer = {"w": leaf((64, 64), "data", "model"), "b": leaf((64,))}
sv.show({"embed": leaf((1024, 64), "model"), "layers": [layer] * 24})
"""
EXPLORER = """
def train_step(params, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.sum(jnp.tanh(x @ p["w1"]) @ p["w2"]))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss
shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, "float32")
sv.explore(train_step, {"w1": shape(4096, 16384), "w2": shape(16384, 4096)}, shape(8192, 4096),
           mesh={"data": 8, "model": 8}, in_specs=({"w1": P(None, "model"), "w2": P("model")}, P("data")),
           level="propagated")
"""


def test_the_code_of_a_plan_runs_on_a_click(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("look.ipynb", ARRAYS, TREE, EXPLORER))
    page.run_all(seconds=180)
    array = page.cell_output(0)
    expect(array).to_contain_text("[28., 29., 30., 31.]")
    expect(array.get_by_title(re.compile(r"\[6:8, 2:4\] on device 7"))).to_be_visible()
    expect(page.cell_output(1)).to_contain_text("['layers'][*]['w'] ×24")

    view = page.cell_output(2)
    settled(view, -1, "propagated")
    go(view, "code")
    run, shown = view.get_by_test_id("run-code"), view.get_by_test_id("code-run")
    expect(shown).to_be_hidden()
    run.click()
    expect(run).to_have_text("■ stop")
    run.click()
    expect(shown).to_contain_text("stopped", timeout=60_000)
    run.click()
    expect(shown).to_contain_text("All 3 results the same on 4 simulated devices as on one", timeout=120_000)
    expect(shown).to_contain_text("JAX_NUM_CPU_DEVICES=8 python plan.py")
    assert int(state(view).get_attribute("data-seq") or 0) >= 3
    page.screenshot("run_code", of=view)
    page.assert_no_errors()
