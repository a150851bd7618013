"""A whole report in text and HTML."""

import dataclasses
import subprocess
import sys

import jax
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import paint
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.records.report import PlanRecord
from tests.view.sample import report
from tests.view.sanitizer import words

SAYS = (
    "Findings: 1 warning",
    "Arguments: 2 values, 1.05 MB per device",
    "Outputs: 2 values, 4 B per device and 1 value whose bytes are not known",
    "Collectives: 6 operations; 484 runs and at most 231 MB of operands per device in a step; count not known for 1 of",
    "Memory on each device: 40.4 GB allocated (cpu compiler's plan) arguments 2.30 GB, outputs 2.30 GB, of which 2.20",
    "Cost on each device: 1.30 PFLOP of matrix products in a step and 2.00 TFLOP of other operations; 6.00 TB read",
    "1 loop with unknown trip count, counted once",
    "FLOPs: forward 500 TFLOP, backward 801 TFLOP, update 1.00 TFLOP",
    "cost_analysis() counts each loop's body once: 16.3 TFLOP; with all iterations it is 80 times as much",
    "Intermediates: 1 value",
)


def test_every_part_has_its_sums():
    text = repr(report())
    assert text == paint.text(report())
    assert [said for said in SAYS if said not in " ".join(text.split())] == []


def test_columns_that_do_not_fit_are_folded_below_their_row():
    lines = paint.text(report(), 60).splitlines()
    assert max(map(len, lines)) <= 60
    place = lines.index("  params['wq']  bfloat16 [8192, 4096]  P('data', 'model')")
    assert lines[place + 1] == "    shard [1024, 512]; per device 1.05 MB"


def test_text_has_no_timings_and_survives_json():
    text = paint.text(report())
    assert "0.12" not in text
    assert paint.text(dataclasses.replace(report(), timings={"partition": 9.0})) == text
    assert paint.text(Report.from_json(report().to_json())) == text


@pytest.mark.parametrize("level", ["notation", "propagated", "partitioned", "compiled"])
def test_an_empty_report_says_its_level_and_what_was_not_looked_for(level):
    empty = Report(level=level, program="f", plan=PlanRecord(DeviceMesh((), ()), {}, {}), arguments=(), outputs=())
    text = paint.text(empty)
    assert text.startswith(f"f {level} (")
    assert ("Collectives: not known at this level" in text) == (level == "notation")
    assert f"f {level}" in words(paint.html(empty))


def test_many_values_are_cut_short_and_counted():
    r = report()
    many = dataclasses.replace(r, arguments=r.arguments[:1] * 100, intermediates=r.intermediates * 100)
    assert "… and 52 more values" in paint.text(many)
    assert "… and 52 more values" in words(paint.html(many))
    assert len(paint.html(many)) < 150_000


def test_the_bundle_makes_what_is_asked_for():
    r = report()
    assert set(r._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert r._repr_mimebundle_()["text/plain"] == paint.text(r)
    assert set(r._repr_mimebundle_(include=["text/plain"])) == {"text/plain"}
    assert set(r._repr_mimebundle_(exclude=["text/plain"])) == {"text/html"}
    assert r._repr_mimebundle_(include=["image/png"]) == {}


def test_looking_does_not_import_matplotlib():
    code = "import sys, shardviz as sv; sv.show((8,), ('x',), 'x=2').html(); sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_many_axes_of_size_one_are_named_in_one_line():
    alone = ["data", "stage", "context", "tensor", "expert"]
    mesh = dict.fromkeys(alone, 1) | {"fsdp": 4}
    program = sv.trace(lambda x: x @ x.T, jax.ShapeDtypeStruct((64, 64), "float32"))
    report = program.propagate(sv.Plan(mesh, P("fsdp")))
    for shown in (report, sv.cost(report, "tpu v5e:2x2")):
        for text in (shown.text(), shown.html()):
            assert text.count("besides 5 mesh axes of size 1: data, stage, context, tensor, expert") == 1
            assert "stage" not in text.replace("data, stage, context", "") and "fsdp=4" in text
    assert DeviceMesh.of("data=4,model=1").folded == () and sv.Report.from_json(report.to_json()).mesh.shape == mesh
