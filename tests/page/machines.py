"""Costs of made-up steps on machines of each sort, for the tests of what the page is told of them."""

from __future__ import annotations

import dataclasses

from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.records import Cost, Frame
from tests.collectives import collective
from tests.view.sample import report

MESHES = {
    "tpu v5p:4x4x4": "data=8,model=8",
    "tpu v5p:8x8x8": "data=64,model=8",
    "tpu v5e:8x16": "data=8,model=16",
    "tpu v5e:16x16*2": "data=32,model=16",
    "tpu v6e:16x16": "data=16,seq=4,model=4",
    "tpu tpu7x:2x2x1": "data=2,model=4",
    "tpu v5p:16x16x16": "data=256,model=16",
    "gpu h100:2x8": "data=2,model=8",
    "gpu h100:32x8": "data=32,model=8",
    "gpu gb200:36x4": "data=18,model=8",
    "gpu h100:256x8": "data=256,model=8",
}
LARGE = ("tpu v5p:16x16x16", "gpu h100:256x8")


def stepped(target: str, mesh: str = "", **changes) -> tuple[StepCost, Report]:
    """A step with an all-gather, an all-reduce and an all-to-all over each axis, and its report."""
    devices = DeviceMesh.of(mesh or MESHES[target])
    moved = []
    for number, (name, size) in enumerate(devices.shape.items()):
        at = Frame("/src/model.py", 20 + number)
        moved += [
            collective("all-gather", (name,), 1e7, 1e7 * size, 80, dtype="bfloat16", source=at, name=f"gather.{name}"),
            collective("all-reduce", (name,), 4e6, count=3, source=at, name=f"reduce.{name}"),
            collective("all-to-all", (name,), 64.0 * size, count=2, dtype="bfloat16", name=f"exchange.{name}"),
        ]
    base = report()
    made = dataclasses.replace(
        base,
        plan=dataclasses.replace(base.plan, mesh=devices),
        **{"collectives": tuple(moved), "cost": Cost(dot_flops=1e13), "memory": None, **changes},
    )
    return cost_of(made, target, tokens=1e6, model_flops=5e16), made
