"""Every kind of callable, forward and backward, on 2, 8 and 64 devices: the report against raw JAX."""

import json

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import Spec
from tests.ask.counting import count
from tests.matrix.cases import DEVICES, KINDS, MODES
from tests.truth import counted

pytestmark = pytest.mark.long

CASES = [(kind, mode, devices) for kind in KINDS for mode in MODES for devices in DEVICES]


def explored(kind, case, file):
    """The report of a case, its callable given as a person has it."""
    mesh = AbstractMesh(
        tuple(case.mesh.values()), tuple(case.mesh), axis_types=(AxisType[case.types],) * len(case.mesh)
    )
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), case.in_specs, is_leaf=lambda s: isinstance(s, P))
    if kind == "jit":
        return sv.analyze(jax.jit(case.fn, in_shardings=shardings), *case.args)
    if kind == "pjit":
        return sv.analyze(sv.compat.pjit.pjit(case.fn, case.in_specs, case.out_specs), *case.args, mesh=mesh)
    if kind == "exported":
        program = sv.load(file).program(mesh=mesh)
        return program.partition(program.plan())
    if kind == "pmap":
        return sv.analyze(case.fn, *case.args)
    return sv.analyze(case.fn, *case.args, mesh=mesh, in_specs=case.in_specs)


@pytest.fixture(scope="module")
def reports(raw):
    kept = {}

    def report(kind, mode, devices):
        if (kind, mode, devices) not in kept:
            file = raw / f"{kind}-{mode}-{devices}.bin"
            kept[kind, mode, devices] = explored(kind, KINDS[kind](mode, devices), file)
        return kept[kind, mode, devices]

    return report


@pytest.mark.parametrize(("kind", "mode", "devices"), CASES)
def test_outputs_are_cut_as_jax_says(reports, raw, kind, mode, devices):
    report = reports(kind, mode, devices)
    expected = json.loads((raw / f"{kind}-{mode}-{devices}.json").read_text())["output_specs"]
    assert report.mesh.size == devices and len(expected) == len(report.outputs)
    for output, spec in zip(report.outputs, expected, strict=True):
        assert output.spec.same_as(Spec(tuple(tuple(e) for e in spec)), report.mesh), output.name


@pytest.mark.parametrize(("kind", "mode", "devices"), CASES)
def test_collectives_are_those_of_jaxs_own_compile(reports, raw, kind, mode, devices):
    report = reports(kind, mode, devices)
    text = (raw / f"{kind}-{mode}-{devices}.partitioned.txt").read_text()
    found = counted(report)
    assert found == count(text, report.mesh.shape, KINDS[kind](mode, devices).trips)


@pytest.mark.parametrize(("kind", "mode", "devices"), [case for case in CASES if case[2] <= 8])
def test_run_there_it_computes_what_one_device_does(raw, kind, mode, devices):
    assert json.loads((raw / f"{kind}-{mode}-{devices}.json").read_text())["error"] < 1e-5
