"""Every program of the gallery on a mesh of one device: nothing moves, and everything that is shown is there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.costs.orders import orders
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.targets import machine_view
from shardviz.view.document import Table
from shardviz.view.placement import axes_section

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "name", [name for name in sv.gallery.__all__ if name not in ("Example", "measured", "option_sets", "published")]
)
@pytest.mark.parametrize("target", ["tpu v5p:1x1x1", "gpu h100:1x1"])
def test_every_program_has_a_cost_on_one_device(name: str, target: str):
    if name == "decoder":
        pytest.importorskip("flax")
    make = getattr(sv.gallery, name)
    small = {"resnet": {"depth": 26}, "gpt_2021": {"layers": 1}, "decoder": {"layers": 1}, "llama": {"layers": 1}}
    example = make(mesh=dict.fromkeys(make().mesh, 1), **small.get(name, {}))
    report = example.program.propagate(example.plan)
    cost = sv.cost(report, target)
    assert cost.step.communication == 0 and cost.lower > 0
    assert not [path for path in cost.placement.paths if path.size > 1]
    assert not any(isinstance(block, Table) for block in axes_section(cost.placement).blocks)
    assert len(orders(cost)) == 1
    assert str(cost) and cost.plot()


@pytest.mark.parametrize("mesh", [{}, {"a": 1}, {"a": 1, "b": 1}])
@pytest.mark.parametrize("target", ["tpu v5p:1x1x1", "tpu v5e:1x1", "gpu h100:1x1"])
def test_an_explorer_goes_to_a_machine_of_one_device_and_back(mesh: dict[str, int], target: str):
    array = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    program = sv.trace(lambda x, w: jnp.tanh(x @ w).sum(), array, array)
    state = ExplorerState(program, sv.Plan(mesh), level="propagated")
    assert state.set_target(target)
    assert state.target == target and state.cost is not None and machine_view(state.cost)["orders"]
    assert state.undo() and state.target == "cpu" and state.cost is None
    assert state.redo() and state.target == target
