"""Every gallery program on every mesh: the report against raw JAX, a plain text count, and arithmetic."""

from collections import Counter
from pathlib import Path

import pytest

from shardviz.gallery.llama import SIZES
from shardviz.notation import Spec
from shardviz.notation.spec import axis_text
from shardviz.records.amounts import format_bytes, plural
from tests.ask.counting import count
from tests.ask.ground_truth import MESHES, example
from tests.heap_traces import heap_peaks
from tests.truth import counted

pytestmark = pytest.mark.slow

NAMES = ["mlp", "llama-8b", "llama-70b"]
CASES = [(name, mesh) for mesh, names in MESHES.items() for name in names]


@pytest.fixture(scope="module")
def reports():
    kept = {}

    def report(name, mesh):
        if (name, mesh) not in kept:
            program = example(name, mesh)
            kept[name, mesh] = program.program.compile(program.plan)
        return kept[name, mesh]

    return report


@pytest.mark.parametrize(("name", "mesh"), CASES)
def test_collectives_are_those_of_the_snapshot(reports, truth, name, mesh):
    report = reports(name, mesh)
    trips = 1 if name == "mlp" else SIZES[name.removeprefix("llama-")]["layers"]
    assert counted(report) == count(report.stages["partitioned"], report.mesh.shape, trips)
    assert counted(report) == count(truth.text(f"{name}@{mesh}", "partitioned"), report.mesh.shape, trips)


@pytest.mark.parametrize(("name", "mesh"), CASES)
def test_output_specs_are_jaxs(reports, truth, name, mesh):
    report = reports(name, mesh)
    expected = truth.facts(f"{name}@{mesh}")["output_specs"]
    assert len(expected) == len(report.outputs)
    for output, spec in zip(report.outputs, expected, strict=True):
        assert output.spec.same_as(Spec(tuple(tuple(e) for e in spec)), report.mesh), output.name


@pytest.mark.parametrize(("name", "mesh"), CASES)
def test_memory_is_the_compilers_own(reports, truth, name, mesh):
    """Every number of the plan, from dumps that were there before any machine code, is the finished compile's own."""
    memory, theirs = reports(name, mesh).memory, truth.facts(f"{name}@{mesh}")["memory"]
    assert memory.arguments == theirs["argument_size_in_bytes"]
    assert (memory.outputs, memory.aliased) == (theirs["output_size_in_bytes"], theirs["alias_size_in_bytes"])
    assert memory.temporaries == theirs["temp_size_in_bytes"]
    always = memory.arguments + memory.outputs - memory.aliased + memory.constants
    assert theirs["peak_memory_in_bytes"] == always  # a CPU's executable keeps nothing of when temporaries are alive
    assert memory.peak == always + heap_peaks(truth.folder / f"{name}@{mesh}.hlo.pb")[0]
    assert memory.arguments < memory.peak <= memory.set_aside + memory.constants <= memory.needed
    if "total_allocation_bytes" in theirs:  # since jax 0.11
        assert theirs["total_allocation_bytes"] == memory.set_aside + memory.constants


@pytest.mark.parametrize(("name", "mesh"), CASES)
def test_where_the_levels_differ_the_report_says_so(reports, name, mesh):
    report, program = reports(name, mesh), example(name, mesh)
    propagated = program.program.propagate(program.plan)

    def moves(report):
        total = {}
        for c in report.collectives:
            key = f"{c.kind} over {' x '.join(sorted(map(axis_text, c.axes)))}"
            runs, size = total.get(key, (0, 0.0))
            total[key] = runs + c.count, size + c.count * c.operand_bytes
        return total

    ours, theirs = moves(propagated), moves(report)
    said = {d.what: (d.propagated, d.partitioned) for d in report.level_differences}
    for key in ours.keys() | theirs.keys():
        both = [total.get(key, (0, 0.0)) for total in (ours, theirs)]
        texts = tuple(f"{plural(runs, 'run')}, {format_bytes(size)}" for runs, size in both)
        assert said.get(key) == (None if texts[0] == texts[1] else texts)


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_the_persons(reports, name):
    report = reports(name, "data=8,model=8")
    file = "mlp.py" if name == "mlp" else "llama.py"
    placed = [c for c in report.collectives if c.source is not None]
    assert len(placed) > 0.9 * len(report.collectives)
    assert {Path(c.source.file).name for c in placed} == {file}
    for c in placed:
        if c.kind == "all-gather" and c.operand.startswith("params['layers']"):
            assert c.operand.removeprefix("params['layers']").strip("[]'") in c.source.text_in(report.source), c


def test_the_passes_of_a_rematerialised_layer_are_told_apart(reports):
    report = reports("llama-70b", "data=8,model=8")
    gathers = Counter(c.phase for c in report.collectives if c.operand == "params['layers']['wq']")
    assert gathers == {"forward": 1, "rematerialised": 1}
    assert {c.phase for c in report.collectives} >= {"forward", "backward", "rematerialised"}
