"""What clouds call machines, against the clouds' own tables; and every place that takes a target takes every name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardviz as sv
from shardviz.ask.targeting import resolve_target
from shardviz.costs.chips import chips
from shardviz.costs.machine import Machine, machine_of, natural
from shardviz.costs.placement import Placement
from shardviz.costs.step import fits, roofline
from shardviz.explorer.machine_choice import read
from tests.costs.test_cost_of import made_up

# Google Cloud's pages of v4, v5e, v5p and v6e, and of GPU machine types: name → topology.
TABLE = {
    "v2-8": "tpu v2:2x2",
    "v3-8": "tpu v3:2x2",
    "v3-32": "tpu v3:4x4",
    "v4-8": "tpu v4:2x2x1",
    "v4-16": "tpu v4:2x2x2",
    "v4-32": "tpu v4:2x2x4",
    "v4-64": "tpu v4:2x4x4",
    "v4-128": "tpu v4:4x4x4",
    "v5p-8": "tpu v5p:2x2x1",
    "v5p-16": "tpu v5p:2x2x2",
    "v5p-64": "tpu v5p:2x4x4",
    "v5p-128": "tpu v5p:4x4x4",
    "v5p-256": "tpu v5p:4x4x8",
    "v5p-512": "tpu v5p:4x8x8",
    "v5p-1024": "tpu v5p:8x8x8",
    "v5p-2048": "tpu v5p:8x8x16",
    "v5p-8192": "tpu v5p:16x16x16",
    "v5litepod-1": "tpu v5e:1x1",
    "v5litepod-8": "tpu v5e:2x4",
    "v5litepod-32": "tpu v5e:4x8",
    "v5litepod-256": "tpu v5e:16x16",
    "v5e-16": "tpu v5e:4x4",
    "v6e-64": "tpu v6e:8x8",
    "tpu7x-128": "tpu tpu7x:4x4x4",
    "v5p-64*2": "tpu v5p:2x4x4*2",
    "TPU V5P-64": "tpu v5p:2x4x4",
    "a2-ultragpu-8g": "gpu a100:1x8",
    "a3-highgpu-8g": "gpu h100:1x8",
    "a3-megagpu-8g*32": "gpu h100:32x8",
    "a3-ultragpu-8g": "gpu h200:1x8",
    "gpu a4-highgpu-8g": "gpu b200:1x8",
    "a4x-highgpu-4g*18": "gpu gb200:18x4",
}


@pytest.mark.parametrize(("name", "text"), TABLE.items())
def test_a_clouds_name_is_the_topology_that_the_cloud_says(name, text):
    assert Machine.of(name) == Machine.of(text) == machine_of(f" {name} ") == machine_of(name, 7)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v5p-7", "counts TensorCores, 2 on each chip of v5p; v5p-6 would do"),
        ("v5p-1", "v5p-2 would do"),
        ("v4-18", "v4 has no slice of 9 chips; v4-16 or v4-32 would do"),
        ("v5litepod-512", "v5e has no slice of 512 chips"),
        ("gpu v5p", "v5p is a tpu"),
        ("a3-highgpu-16g", "NVLink domain of h100 has at most 8 GPUs"),
        ("v9-64", "no chip 'v9-64'"),
    ],
)
def test_a_name_that_is_none_is_refused_with_what_would_do(name, message):
    with pytest.raises(sv.errors.TargetError, match=message):
        machine_of(name, 64)


@given(st.sampled_from([c for c in chips().values() if c.kind != "cpu"]), st.integers(1, 600))
def test_a_chip_alone_is_its_most_cube_like_machine_of_the_meshs_size(chip, size):
    there = natural(chip, size)
    for name in (chip.name, f"{chip.kind} {chip.name}", f"{chip.kind.upper()} {chip.name.upper()}:"):
        if there:
            assert machine_of(name, size) == there and there.size == size
        else:
            with pytest.raises(sv.errors.TargetError, match=f"{chip.name} has no topology of {size} device"):
                machine_of(name, size)
    with pytest.raises(sv.errors.TargetError, match="how many"):
        machine_of(chip.name)


REPORT = made_up()
TAKE_A_TARGET = {
    "cost": lambda target: sv.cost(REPORT, target).machine,
    "cost_table": lambda target: next(iter(sv.cost_table(REPORT, targets=target).costs.values())).machine,
    "cost_table, several": lambda target: next(iter(sv.cost_table(REPORT, targets=[target]).costs.values())).machine,
    "collective_seconds": lambda target: _placed(
        target, sv.collective_seconds("all-gather", 1e6, _AXIS, _MESH, target)
    ),
    "roofline": lambda target: _placed(target, roofline(_MESH, target)),
    "placement": lambda target: Placement.of(_MESH, target).machine,
    "compile": lambda target: resolve_target(target, REPORT.mesh).machine,
    "explore": lambda target: read(target, REPORT.mesh),
}
_MESH = REPORT.mesh
_AXIS = _MESH.names[0]


def _placed(target, answer):
    assert answer
    return Placement.of(_MESH, target).machine


@pytest.mark.parametrize("where", TAKE_A_TARGET)
def test_whatever_takes_a_target_takes_every_name_of_it(where):
    size = _MESH.size
    for name in ("v5e", f"v5litepod-{size}", "tpu v5p", f"v5p-{2 * size}", "h100:", f"v4-{2 * size}"):
        machine = machine_of(name, size)
        assert TAKE_A_TARGET[where](name) == TAKE_A_TARGET[where](machine.text) == machine
    with pytest.raises(sv.errors.ShardvizError, match="TensorCores"):
        TAKE_A_TARGET[where]("v5p-7")


def test_memory_is_asked_of_a_machine_by_any_name():
    assert fits(1e9, "v5p-64") == fits(1e9, "tpu v5p:2x4x4")
