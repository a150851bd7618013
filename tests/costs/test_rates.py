"""The rate of an axis follows from the formula that stands beside it: rate x time is the bytes that it moves."""

from __future__ import annotations

import re

import pytest

from shardviz.costs import Machine, chip, collective_seconds, roofline
from shardviz.notation import DeviceMesh
from tests.costs.machines import TARGETS, factorings

UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def arithmetic_of(formula: str) -> str:
    """The numbers of a formula, those that follow it put into their places."""
    if found := re.fullmatch(r"(.*) transfers .*; V = (.*), W1 = (.*)", formula):
        return found[1].replace("V", found[2]).replace("2 W1", f"2 x {found[3]}") + ")"
    return formula.split(" = ")[-1].split(";")[0]


def number_of(text: str) -> float:
    """The value of an arithmetic: `1.00 GB x 3/4 / (2 x 45.0 GB/s / 2 (devices of a chip))`."""
    text = re.sub(r"\((devices of a chip)\)| groups| (through|between) the .*", "", text)
    text = re.sub(r"([\d.]+) ([kMGTP]?)B(/s)?", lambda m: f"{float(m[1]) * UNITS[m[2]]!r}", text)
    assert re.fullmatch(r"[\d.e+\-/x*() ]+", text), text
    return eval(text.replace("x", "*"))


@pytest.mark.parametrize("target", TARGETS)
def test_the_rate_of_each_axis_is_the_one_that_its_formula_divides_by(target: str):
    machine = Machine.of(target)
    meshes = [DeviceMesh(("a", "b"), sizes) for sizes in factorings(machine.size, 2)]
    meshes = [m for m in meshes if m.sizes[0] % machine.num_slices == 0]
    for mesh in meshes[:: max(1, len(meshes) // 8)]:
        for name, size in mesh.shape.items():
            if size == 1:
                continue
            found = collective_seconds("all-gather", 1e9, name, mesh, machine)
            assert found.bytes_per_s is not None
            assert found.bytes_per_s * found.seconds == pytest.approx(found.moved)
            for stage in found.stages:
                arithmetic = arithmetic_of(stage.largest.formula)
                assert number_of(arithmetic) == pytest.approx(stage.seconds, rel=0.01), arithmetic
            if len(found.stages) == 1:
                above = arithmetic_of(found.stages[0].largest.formula).split(" / ")[0]
                assert number_of(above) == pytest.approx(found.moved, rel=0.01)
            if machine.chip.kind == "tpu" and machine.chip.devices_per_chip == 1:
                assert found.moved == pytest.approx(1e9 * (size - 1) / size), "what a device did not have"
            knee = next(k for k in roofline(mesh, machine) if k.name == name)
            assert knee.bytes_per_s == pytest.approx(found.bytes_per_s), "the roofline's is the same"


def test_axes_of_one_formula_have_one_rate():
    """A ring of two chips two hops apart and a line of two, both beside a ring of 4: three links each."""
    a, b = (collective_seconds("all-gather", 1e9, axis, "a=8,b=8", "tpu v5p:4x4x4") for axis in "ab")
    assert a.seconds == b.seconds and a.moved == b.moved
    assert a.bytes_per_s == b.bytes_per_s == pytest.approx(3 * chip("v5p").needs("ici_link_bytes_per_s"))
