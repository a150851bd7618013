# ruff: noqa: E501
"""A whole report in text and HTML."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from shardviz import paint
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.records import Memory, TargetCollective
from shardviz.records.report import PlanRecord
from tests.view.sample import HOSTILE, report
from tests.view.sanitizer import read, words

TEXT = """\
train_step partitioned (XLA's SPMD partitioner, before the target's own passes)
mesh data=8,model=8, 64 devices, target cpu

Findings: 1 warning
  severity   where          what
  ⚠ warning  x model.py:27  XLA gathers x, 4.29 GB

Arguments: 2 values, 1.05 MB per device
  name          type and shape         spec                shard        per device
  params['wq']  bfloat16 [8192, 4096]  P('data', 'model')  [1024, 512]     1.05 MB
  x             int32 [256]            P('data')           [32]              128 B

Outputs: 2 values, 4 B per device and 1 value whose bytes are not known
  name  type and shape    spec                   shard      per device
  loss  float32 []        P()                    []                4 B
  aux   float32 [64, 64]  {devices=[8,8]<=[64]}  not known   not known

Collectives: 6 operations; 484 runs and at most 231 MB of operands per device in a step; count not
  known for 1 of them, 2.05 kB if each ran once
  kind                axes              operations             runs              operand bytes
  all-gather          data                       1              160                     168 MB
  all-reduce          model                      1              240                    62.9 MB
  reduce-scatter      data                       1               80                     328 kB
  collective-permute  model:(2)4                 1                3               at most 48 B
  all-reduce          data, model                1                1                        4 B
  all-to-all          irregular groups           1  count not known  count not known × 2.05 kB

  By mesh axes, operand bytes per device in a step
                                                          operand bytes             runs  kinds
  data              ████████████████████████                     168 MB              240  all-gather, reduce-scatter
  model             █████████                                   62.9 MB              240  all-reduce
  model:(2)4        ▏                                      at most 48 B                3  collective-permute
  data, model       ▏                                               4 B                1  all-reduce
  irregular groups                            count not known × 2.05 kB  count not known  all-to-all

  By source line, operand bytes per device in a step
                                                                               operand bytes                      runs  kinds
  model.py:20 q = x @ wq  ████████████████████████                                    168 MB                       160  all-gather
  model.py:23 y = q @ wo  █████████                                                  63.2 MB                       320  all-reduce, reduce-scatter
  no source line          ▏                         at most 48 B + 2.05 kB × count not known  3; count not known for 1  all-to-all, collective-permute
  model.py:40             ▏                                                              4 B                         1  all-reduce

Memory on each device: 40.4 GB allocated (cpu compiler's plan)
  arguments 2.30 GB, outputs 2.30 GB, of which 2.20 GB aliased, temporaries 38.0 GB; peak of live
    memory 39.2 GB; machine code not compiled yet (finish=True)

Cost on each device: 1.30 PFLOP of matrix products in a step and 2.00 TFLOP of other operations;
  6.00 TB read from and written to main memory; 1 loop with unknown trip count, counted once
  FLOPs: forward 500 TFLOP, backward 801 TFLOP, update 1.00 TFLOP
  main memory traffic: forward 2.50 TB, backward 3.00 TB, update 500 GB

  By phase, line and module
    cost_analysis() counts each loop's body once: 16.3 TFLOP; with all iterations it is 80 times as
      much, and the memory traffic 60 times 100 GB

    By phase
         FLOPs  share  main memory                            phase
     500 TFLOP  38.4%      2.50 TB  ███████████████           forward
     801 TFLOP  61.5%      3.00 TB  ████████████████████████  backward
    1.00 TFLOP   0.1%       500 GB  ▏                         update

    By line
         FLOPs  share  main memory                            line
    1.20 PFLOP  92.2%      5.00 TB  ████████████████████████  model.py:27
     100 TFLOP   7.7%       500 GB  ██                        model.py:20 q = x @ wq
    1.00 TFLOP   0.1%       500 GB  ▏                         no source line

    By module
         FLOPs  share  main memory                            module
    1.20 PFLOP  92.2%      5.00 TB  ████████████████████████  mlp
     100 TFLOP   7.7%       500 GB  ██                        attention

Intermediates: 1 value"""


def test_text():
    assert paint.text(report()) == TEXT
    assert repr(report()) == TEXT


def test_columns_that_do_not_fit_are_folded_below_their_row():
    lines = paint.text(report(), 60).splitlines()
    assert max(map(len, lines)) <= 60
    place = lines.index("  params['wq']  bfloat16 [8192, 4096]  P('data', 'model')")
    assert lines[place + 1] == "    shard [1024, 512]; per device 1.05 MB"


def test_text_has_no_timings_and_survives_json():
    assert "0.12" not in paint.text(report())
    assert paint.text(dataclasses.replace(report(), timings={"partition": 9.0})) == TEXT
    assert paint.text(Report.from_json(report().to_json())) == TEXT


def test_nothing_from_outside_becomes_a_tag():
    mesh = DeviceMesh((HOSTILE, f"{HOSTILE}2"), (8, 8))
    html = paint.html(report(mesh, evil=HOSTILE))
    page = read(html)  # an unescaped tag would be one too many, or have an attribute that is not allowed
    assert not page.images and "<img" not in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") > 20
    assert f"params['wq{HOSTILE}']" in words(html)


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
    assert r._repr_mimebundle_()["text/plain"] == TEXT
    assert set(r._repr_mimebundle_(include=["text/plain"])) == {"text/plain"}
    assert set(r._repr_mimebundle_(exclude=["text/plain"])) == {"text/html"}
    assert r._repr_mimebundle_(include=["image/png"]) == {}


def test_looking_does_not_import_matplotlib():
    code = "import sys, shardviz as sv; sv.show((8,), ('x',), 'x=2').html(); sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


NUMBERS = {"argument_size_in_bytes": 2 * 10**9, "generated_code_size_in_bytes": 1_665_024, "host_temp_size_in_bytes": 0}
TPU = {"target": "tpu v5e:2x2", "code": 1_665_024}


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({}, "machine code not compiled yet (finish=True)"),
        (TPU | {"stated": NUMBERS}, "machine code 1.67 MB"),
        ({"stated": {"temp_size_in_bytes": 4}}, "machine code: the compiler does not state its size"),
        ({"stated": {"peak_memory_in_bytes": 2}}, "peak memory 2 B (a CPU's peak memory does not count temp"),
        (
            TPU | {"stated": NUMBERS | {"peak_memory_in_bytes": 4000}},
            "argument 2.00 GB, generated code 1.67 MB, peak memory 4.00 kB (its peak counts on-chip memory",
        ),
        ({"target": "gpu h100:1x8", "stated": {"peak_memory_in_bytes": 11}}, "says: peak memory 11 B "),
    ],
)
def test_machine_code_and_memory_analysis_stand_beside_the_plan(plan, says):
    memory = Memory(arguments=1, outputs=1, aliased=0, temporaries=9, peak=11, **plan)
    shown = dataclasses.replace(report(), memory=memory)
    assert says in " ".join(paint.text(shown).split()) + " " and says.strip() in words(paint.html(shown))


def test_algorithms_are_counted_and_stand_with_their_collectives():
    moved = report().collectives
    runs = tuple(
        TargetCollective(collective=c, stands_for=(c.name,), how=("split",), algorithm=algorithm)
        for c, algorithm in zip(moved, ("Ring", "Ring", f"Pincer{HOSTILE}", "", "", ""), strict=True)
    )
    shown = dataclasses.replace(report(), target="tpu v5e:8x8", target_collectives=runs)
    assert f"algorithms: Ring (2), Pincer{HOSTILE} (1); not stated for 3" in " ".join(paint.text(shown).split())
    page = paint.html(shown)
    assert HOSTILE not in page and "Ring (2)" in words(page) and ">algorithm<" in page
    silent = tuple(dataclasses.replace(run, algorithm="") for run in runs)
    assert "algorithm" not in paint.text(dataclasses.replace(shown, target_collectives=silent))
