"""XLA's warnings of an involuntary full rematerialisation are tied to the array, its cuts and its line."""

from __future__ import annotations

import inspect
import math

import jax.numpy as jnp
import pytest
from jax.lax import with_sharding_constraint as constrained
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.diagnose.compiled import compiler_warnings
from shardviz.records.report import values_of
from shardviz.study.proposing import Proposals
from tests.diagnose import rematerialised
from tests.diagnose.rematerialised import ENDS, MESH, PROGRAMS

RULE = "involuntary-rematerialisation"


def found(fn) -> tuple[sv.Report, list]:
    args, specs, out = PROGRAMS[fn]
    report = sv.trace(fn, *args).partition(sv.Plan(MESH, specs, out))
    return report, [f for f in report.findings if f.rule == RULE]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_the_warning_names_the_line(fn):
    lines, first = inspect.getsourcelines(fn)
    here = next(first + i for i, text in enumerate(lines) if text.rstrip().endswith("# here"))
    report, findings = found(fn)
    assert here in {f.source.line for f in findings}, [(f.text, f.source) for f in findings]
    for finding in findings:
        assert finding.severity == "warning" and finding.source.file == rematerialised.__file__
        assert first <= finding.source.line < first + len(lines)
        value = next(v for v in values_of(report) if v.name == finding.value)
        assert finding.numbers["bytes"] == 4 * math.prod(value.shape)
        assert finding.suggestions and len(finding.suggestions[0].spec.dims) == len(value.shape)
        assert "rematerialization" not in finding.text and "HLO" not in finding.text


MENDED = ["added", "product", "padded", "looked_up", "checkpointed", "joined", "result"]


@pytest.mark.parametrize("name", MENDED)
def test_a_cut_between_the_two_takes_the_warning_away(name):
    fn = getattr(rematerialised, name)
    args, specs, out = PROGRAMS[fn]
    program, plan = sv.trace(fn, *args), sv.Plan(MESH, specs, out)
    report, (finding,) = found(fn)
    first = Proposals(program, report, None, plan, 5).suggested(finding.suggestions[0])
    after = program.partition(first)
    assert not [f for f in after.findings if f.rule == RULE]
    bytes_moved = [sum(c.assumed_bytes for c in r.collectives) for r in (report, after)]
    assert bytes_moved[1] <= bytes_moved[0] - 0.5 * finding.numbers["moved_bytes"]


def test_what_the_gathering_moves_is_told_in_bytes_and_seconds():
    args, specs, out = PROGRAMS[rematerialised.in_a_scan]
    report = sv.trace(rematerialised.in_a_scan, *args).partition(sv.Plan(MESH, specs, out))
    gathers = [c for c in report.collectives if c.kind == "all-gather"]
    told = [f for f in report.findings_on("tpu v5e:2x4") if f.rule == RULE]
    assert sum(f.numbers["moved_bytes"] for f in told) == sum(c.assumed_bytes for c in gathers)
    timed = {c.name: c.total_seconds for c in sv.cost(report, "tpu v5e:2x4").collectives}
    assert sum(f.numbers["seconds"] for f in told) == pytest.approx(sum(timed[c.name] for c in gathers))
    assert all("seconds" not in f.numbers for f in report.findings if f.rule == RULE)


@pytest.mark.parametrize("middle", [P("y", "x"), P(None, "x", "y"), P("y"), P()], ids=str)
def test_nothing_is_said_where_there_is_a_way(middle):
    def product(a, w):
        h = constrained(jnp.einsum("bij,jk->bik", a, w), ENDS)
        return constrained(h, middle) * 2

    args, specs, out = PROGRAMS[rematerialised.product]
    report = sv.trace(product, *args).partition(sv.Plan(MESH, specs, out))
    assert not [f for f in report.findings if f.rule == RULE]


SAID = (
    "W0101 spmd_partitioner.cc:656] [SPMD] Involuntary full rematerialization. The compiler cannot go from sharding "
    "{a} to {b} efficiently for HLO operation %{name} = f32[8,16,4]{{2,1,0}} add(%p, %p), sharding={a}. As "
    "the last resort"
)


def test_a_warning_that_nothing_is_known_of_is_passed_on():
    """Without the module, or with a sharding in a notation that nobody reads, its own words are all there is."""
    text = SAID.format(a="{devices=[2,1,4]<=[4,2]T(1,0)}", b="{new words}", name="add.7")
    (warning,) = compiler_warnings(text)
    assert (warning.source, warning.value, warning.suggestions) == (None, "add.7", ())
    assert "{new words}" in warning.text and "{devices=[2,1,4]" in warning.text
    assert not compiler_warnings("W0101 something else")


def test_what_the_partitioner_only_tries_out_is_no_warning():
    """To choose how to cut a product it partitions a small program of its own, and warns of that one too."""
    assert not compiler_warnings(SAID.format(a="{devices=[8,1,1]<=[8]}", b="{replicated}", name="fake_parameter.2"))
