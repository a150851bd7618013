"""Targets read and refused; a slice's devices are where libtpu says; wraparound as MaxText's table has it."""

from __future__ import annotations

import json
import math

import pytest

from shardviz.costs.chips import Chip, chip
from shardviz.costs.machine import Machine
from shardviz.errors import ShardvizError, TargetError
from tests.costs.machines import TARGETS
from tests.truth import answers_of

LISTED = """
import json, os, sys
from jax.experimental import topologies
answers = []
for name, options in json.loads(sys.argv[1]):
    devices = topologies.get_topology_desc(platform="tpu", topology_name=name, **options).devices
    answers.append([
        [d.id, *d.coords, d.core_on_chip, d.process_index, getattr(d, "slice_index", 0), d.device_kind] for d in devices
    ])
print(json.dumps(answers))
"""
SLICES = [
    *("v2:4x4", "v3:2x2", "v4:2x2x2", "v4:4x4x4", "v5e:1x1", "v5e:2x2", "v5e:2x4", "v5e:4x2", "v5e:4x4", "v5e:8x16"),
    *("v5p:2x2x1", "v5p:2x4x4", "v5p:4x2x2", "v5p:4x8x8", "v6e:16x16", "tpu7x:2x2x1", "tpu7x:4x4x4"),
    *("v5e:2x2*2", "v5p:2x2x2*3"),
]


@pytest.mark.tpu
def test_devices_are_those_that_libtpu_lists():
    requests = []
    for text in SLICES:
        name, _, slices = text.partition("*")
        options: dict[str, object] = {"num_slices": int(slices)} if slices else {}
        if name.startswith("v4"):
            options["chip_config_name"] = "megacore"
        if name.endswith(":1x1"):  # older ones want to be told
            options["chips_per_host_bounds"] = (1, 1, 1)
        requests.append((name, options))
    settings = {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5p-8",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_STDERR_LOG_LEVEL": "3",
    }
    answers = json.loads(answers_of("-c", LISTED, json.dumps(requests), **settings))
    for text, listed in zip(SLICES, answers, strict=True):
        machine = Machine.of(f"tpu {text}")
        columns = zip(machine.ids(), machine.coords(), machine.processes(), machine.slices(), strict=True)
        ours = [[int(i), *at.tolist(), int(p), int(s), machine.chip.device_kind] for i, at, p, s in columns]
        assert ours == listed, text


# MaxText's accelerator_to_spec_map.py (github.com/AI-Hypercomputer/maxtext): the slices' `wrap`
WRAPS = {
    "v6e:16x16": (True, True, False),
    "v5e:4x4": (False, False, False),
    "v5e:4x8": (False, False, False),
    "v5e:8x8": (False, False, False),
    "v5e:8x16": (False, True, False),
    "v5e:16x16": (True, True, False),
    "v4:2x2x1": (False, False, False),
    "v4:2x2x2": (False, False, False),
    "v4:2x4x4": (False, False, False),
    "v4:4x4x4": (True, True, True),
    "v4:4x4x12": (True, True, True),
    "v5p:2x4x4": (False, False, False),
    "v5p:4x4x4": (True, True, True),
    "v5p:4x4x20": (True, True, True),
    "v5p:16x20x28": (True, True, True),
    "tpu7x:2x4x4": (False, False, False),
    "tpu7x:4x4x8": (True, True, True),
}


@pytest.mark.parametrize("text", WRAPS)
def test_wraparound(text: str):
    assert Machine.of(f"tpu {text}").wrap == WRAPS[text]


def test_wraparound_can_be_said():
    assert Machine(chip("v5e"), (4, 4), wrap=(True, True)).wrap == (True, True, False)


@pytest.mark.parametrize("text", [*TARGETS, "cpu"])
def test_a_targets_text_reads_back(text: str):
    machine = Machine.of(text)
    assert machine.text == text
    assert Machine.of(machine.text) == machine
    assert Machine.of(machine) is machine
    assert text.split("*")[0] in str(machine)


@pytest.mark.parametrize("text", ["v5p:4x4x4", "TPU v5p:4x4x4", "tpu V5P:4x4x4", " tpu  v5p:4x4x4 ", "tpu v5p: 4x4x4"])
def test_a_target_is_read_however_it_is_spelt(text: str):
    assert Machine.of(text).text == "tpu v5p:4x4x4"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"expected 'tpu v5p:4x4x4'"),
        ("tpu", "which chip, and how many"),
        ("gpu h100", "Give h100's topology, such as 'gpu h100:2x8'"),
        ("tpu v5p", "such as 'tpu v5p:4x4x4'"),
        ("tpu h100:2x8", "h100 is a gpu; write 'gpu h100:...'"),
        ("tpu v9:2x2", "there is no chip 'v9'"),
        (
            "tpu v5e:3x5",
            r"v5e has no 3x5; the nearest are 4x4, \d+x\d+, \d+x\d+. It has 1x1, 2x2, 2x4.*TPU v5e, https:",
        ),
        ("tpu v5e:16x32", r"v5e has no 16x32; the nearest are 16x16, 8x16"),
        ("tpu v5e:4x4x4", "v5e is a torus of 2 axes: give it as 4x4"),
        ("tpu v5p:4x4", "v5p is a torus of 3 axes: give it as 4x4x4"),
        ("tpu v5p:3x4x4", r"a host has 2x2x1 chips, and a slice is cubes of 4x4x4 or a part of one. .* 4x4x4, 2x4x4"),
        ("tpu v5p:6x4x4", "v5p has no 6x4x4"),
        ("tpu v5p:24x24x24", "13824 chips; a slice of v5p has at most 8960 .*the largest job on Google Cloud is 6144"),
        ("tpu v5e:4x4*0", "the number of slices must be 1 or more"),
        ("gpu h100:8", "a GPU cluster is hosts x GPUs on each"),
        ("gpu h100:2x16", "an NVLink domain of h100 has at most 8 GPUs .*write 'gpu h100:4x8'"),
        ("gpu h100:2x8*2", "GPUs have no slices"),
        ("gpu gb200:20x4", "18 hosts of 4 GPUs make one NVLink domain of gb200, so .*multiple of 18"),
        ("cpu:8", "expected|no topology"),
        ("tpu v5p:99999x99999x99999", "v5p has no|at most"),
        ("nonsense target", "expected"),
        (chip("v5p"), r"Chip\('v5p'\): how many, and how joined\? Give a shardviz\.Machine\(chip, \(4, 4, 4\)\)"),
    ],
)
def test_a_machine_that_there_is_not_is_refused_with_what_there_is(text: str | Chip, said: str):
    with pytest.raises(TargetError, match=said):
        Machine.of(text)


@pytest.mark.parametrize(
    "values",
    [("v5e", (4, 4)), (chip("v5e"), "4x4"), (chip("v5e"), 4), (chip("v5e"), (4.5, 4)), (chip("v5e"), (math.nan, 4)),
     (chip("v5e"), (4, 4), 1.5), (chip("v5e"), (4, 4), "2"), (chip("v5e"), (4, 4), 1, "xy"), (chip("v5e"), (True, 4)),
     (None,)],
)  # fmt: skip
def test_a_machine_of_values_of_another_kind_is_refused(values: tuple[object, ...]):
    with pytest.raises(TargetError):
        Machine(*values)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match=r"expected a shardviz\.Chip, not 'v5e'"):
        Machine.of("4x4", "v5e")  # type: ignore[arg-type]


def test_one_is_not_called_many():
    assert "1 chip in a slice of 1x1" in str(Machine.of("tpu v5e:1x1"))
    assert "1 GPU in 1 NVLink domain" in str(Machine.of("gpu h100:1x1"))


def test_nvlink_domains():
    h100, rack, few = Machine.of("gpu h100:4x8"), Machine.of("gpu gb200:36x4"), Machine.of("gpu h100:4x1")
    assert (h100.domains, h100.domain_size, rack.domains, rack.domain_size) == (4, 8, 2, 72)
    assert (few.domains, few.domain_size) == (4, 1)
    assert h100.nvlink_domains().tolist() == [i // 8 for i in range(32)]


def test_a_machine_too_large_to_reckon_is_refused():
    with pytest.raises(ShardvizError, match="at most 1048576"):
        Machine.of("gpu h100:1000000x8")
