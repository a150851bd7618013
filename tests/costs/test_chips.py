"""Every number of `chips.toml` says where it is from and when that was read; a chip can be changed and added."""

from __future__ import annotations

import dataclasses
import math
import pickle
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from shardviz.costs.chips import Chip, chip, chips
from shardviz.costs.collective import collective_seconds
from shardviz.costs.machine import Machine
from shardviz.errors import TargetError
from tests.truth import answers_of

ROOT = Path(__file__).resolve().parents[2]
TABLE = tomllib.loads((files("shardviz.costs") / "chips.toml").read_text(encoding="utf-8"))


def cells(name: str) -> list[tuple[str, object]]:
    entry = TABLE[name]
    flat = [(key, cell) for key, cell in entry.items() if key not in ("kind", "device_kind", "flops_per_s")]
    return flat + [(f"flops_per_s.{key}", cell) for key, cell in entry.get("flops_per_s", {}).items()]


@pytest.mark.parametrize("name", [name for name in TABLE if name != "sources"])
def test_every_number_has_a_source_and_a_date(name: str):
    for key, cell in cells(name):
        assert isinstance(cell, dict) and {"is", "from"} <= set(cell) <= {"is", "from", "note"}, key
        source = TABLE["sources"][cell["from"]]
        known = source["url"].startswith("https://") or (ROOT / source["url"]).is_file()  # what was measured here
        assert known and len(source["date"]) == len("2026-01-01"), key
        assert source["url"] in chip(name).source(key)


def test_no_source_is_there_for_nothing():
    used = {cell["from"] for name in TABLE if name != "sources" for _, cell in cells(name)}
    assert used == set(TABLE["sources"])


# How to Scale Your Model, parts 2 and 12: HBM bytes, HBM bytes/s, bf16 FLOPs/s
BOOK = {
    "v3": (32e9, 9.0e11, 1.4e14),
    "v4": (32e9, 1.2e12, 2.75e14),
    "v5e": (16e9, 8.1e11, 1.97e14),
    "v5p": (96e9, 2.8e12, 4.59e14),
    "v6e": (32e9, 1.6e12, 9.2e14),
    "a100": (80e9, 2.0e12, 3.1e14),
    "h100": (80e9, 3.4e12, 9.9e14),
    "h200": (141e9, 4.8e12, 9.9e14),
    "b200": (192e9, 8.0e12, 2.3e15),
}


@pytest.mark.parametrize("name", BOOK)
def test_numbers_are_those_of_the_book_too(name: str):
    """Within 8 %: the book counts a GiB as a GB. Its v3 is 1.4e14, Google's page 1.23e14."""
    one = chip(name)
    ours = (one.hbm_bytes, one.hbm_bytes_per_s, one.flops("bfloat16"))
    for mine, theirs in zip(ours, BOOK[name], strict=True):
        assert mine == pytest.approx(theirs, rel=0.13 if name == "v3" else 0.08)


@pytest.mark.parametrize("name", [name for name in chips() if name != "cpu"])
def test_a_program_gets_about_all_of_the_memory(name: str):
    one = chip(name)
    assert 0.9 < one.hbm_usable_bytes / one.hbm_bytes < 1.1


def test_what_a_tpu_keeps_in_its_own_memory_is_a_small_share():
    """Up to 128 MiB a core; v2's and v3's compilers give a program's values nothing of theirs, and a GPU's has none."""
    given = {name: one.vmem_bytes / one.devices_per_chip / 2**20 for name, one in chips().items() if one.vmem_bytes}
    assert given == {"v4": 128, "v5e": 112, "v5p": 48, "v6e": 96, "tpu7x": 64}
    assert all(chip(name).vmem_bytes < 0.01 * chip(name).hbm_bytes for name in given)


def test_float32_products_of_a_tpu_count_as_bfloat16_and_8_bit_floats_as_one_family():
    v5p = chip("v5p")
    assert v5p.flops("float32") == v5p.flops("bfloat16") == v5p.flops("bf16")
    assert chip("h100").flops("float8_e4m3fn") == chip("h100").flops("f8e5m2") == 1.979e15
    assert chip("h100").flops("float32") < chip("h100").flops("bfloat16")


def test_a_type_without_a_rate_is_refused_with_those_that_there_are():
    with pytest.raises(TargetError, match=r"'h100' has no FLOPs a second for 'complex64'; it has bfloat16, float16"):
        chip("h100").flops("complex64")


def test_an_unknown_chip_is_refused_with_those_that_there_are():
    with pytest.raises(TargetError, match="there is no chip 'v9'; there are v2, v3, v4, v5e, v5p, v6e, tpu7x, a100"):
        chip("v9")


def test_a_changed_chip_is_a_target():
    twice = dataclasses.replace(chip("v5e"), name="v5e with twice the links", ici_link_bytes_per_s=9e10)
    slow = collective_seconds("all-gather", 1e9, "x", "x=4,y=4", "tpu v5e:4x4").seconds
    for machine in (Machine(twice, (4, 4)), Machine.of("tpu v5e:4x4", twice), Machine.of("4x4", twice)):
        assert collective_seconds("all-gather", 1e9, "x", "x=4,y=4", machine).seconds == pytest.approx(slow / 2)


def test_a_chip_like_another_keeps_its_numbers_and_their_sources_but_those_that_are_ones_own():
    known = chip("v5e")
    mine = Chip.like("v5e", ici_link_bytes_per_s=9e10, flops_per_s={"float8": 4e14})
    assert (mine.name, mine.ici_link_bytes_per_s, mine.hbm_bytes) == ("v5e*", 9e10, known.hbm_bytes)
    assert dict(mine.flops_per_s) == {**known.flops_per_s, "float8": 4e14}
    assert mine.source("hbm_bytes_per_s") == known.source("hbm_bytes_per_s") != "no source given"
    assert mine.source("ici_link_bytes_per_s") == mine.source("flops_per_s.float8") == "no source given"
    slow, fast = (
        collective_seconds("all-gather", 1e9, "x", "x=4,y=4", Machine(each, (4, 4))).seconds for each in (known, mine)
    )
    assert fast == pytest.approx(slow / 2)
    with pytest.raises(TargetError, match="there is no chip 'v9'"):
        Chip.like("v9")
    with pytest.raises(TargetError, match=r"hbm=\.\.\.\): a chip has no such number; it has"):
        Chip.like("v5e", hbm=1e9)


def test_a_new_chip_is_a_target():
    mine = Chip("mine", "gpu", nvlink_bytes_per_s=1e11, domain_size=4, node_egress_bytes_per_s=1e10)
    time = collective_seconds("all-gather", 1e9, "x", "x=4", Machine(mine, (1, 4)))
    assert time.seconds == pytest.approx(1e9 * 3 / 4 / 1e11)


def test_a_number_that_is_missing_is_named():
    with pytest.raises(TargetError, match=r"'mine' has no nvlink_bytes_per_s: give it with dataclasses.replace"):
        collective_seconds("all-gather", 1e9, "x", "x=4", Machine(Chip("mine", "gpu", domain_size=4), (1, 4)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kind": "npu"}, "its kind is 'tpu', 'gpu' or 'cpu'"),
        ({"kind": "tpu", "ici_axes": 4}, "a TPU's torus has 2 or 3 axes"),
        ({"kind": "gpu", "hbm_bytes": -1.0}, r"hbm_bytes must be a number from 0 to 1e\+30, not -1\.0"),
        ({"kind": "gpu", "nvlink_bytes_per_s": 0.0}, "nvlink_bytes_per_s must be more than 0"),
        (
            {"kind": "gpu", "flops_per_s": {"bfloat16": 0.0}},
            "flops_per_s must be a mapping of .* to numbers, more than 0",
        ),
        ({"kind": "gpu", "devices_per_chip": 0}, "devices_per_chip and domain_size are 1 or more"),
    ],
)
def test_a_chip_that_cannot_be_is_refused(values: dict[str, object], said: str):
    with pytest.raises(TargetError, match=said):
        Chip("mine", **values)  # type: ignore[arg-type]


WRONG = (math.nan, math.inf, -math.inf, -1, "1", None, [1], {"a": 1}, True, 10**400, 2.5, b"x", ("x",), ("4x",))
"""None of them is right for every attribute; most are right for one or two."""
RIGHT_FOR = {
    "hbm_bytes": (None, 2.5), "devices_per_chip": (), "domain_size": (), "ici_axes": (), "device_kind": ("1",),
    "hop_seconds": (2.5,), "domain_spans_hosts": (True,), "host_bounds": (), "shapes": (), "max_chips": (None,),
    "nvlink_bytes_per_s": (None, 2.5), "flops_per_s": ({"a": 1},), "cube": (None,), "matrix_share": (None, 2.5),
}  # fmt: skip


@pytest.mark.parametrize("attribute", RIGHT_FOR)
def test_a_value_of_another_kind_is_refused_by_its_name(attribute: str):
    right = {repr(value) for value in RIGHT_FOR[attribute]}
    for value in (value for value in WRONG if repr(value) not in right):
        with pytest.raises(TargetError, match=f"'mine': {attribute} must be "):
            Chip("mine", "gpu", **{attribute: value})  # type: ignore[arg-type]


def test_numpys_numbers_are_numbers():
    assert Chip("mine", "gpu", hbm_bytes=np.float32(1e9), domain_size=np.int64(4)).hbm_bytes == 1e9


def test_a_chip_is_hashable_and_pickles():
    one = chip("v5p")
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(dataclasses.replace(one)) == hash(one)


def test_the_room_needs_no_jax():
    script = (
        "import sys, shardviz.costs; print([name for name in ('jax', 'jaxlib', 'matplotlib') if name in sys.modules])"
    )
    assert answers_of("-c", script) == "[]\n"
