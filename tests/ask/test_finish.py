"""A compile that goes on to its end: what comes of it, and what stands where it does not come to an end."""

import os
import signal
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import CompileStopped, ShardvizError
from shardviz.records import Cost
from tests.raw import array


def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)


PLAN = sv.Plan("data=2,model=4", (P(None, "model"), P("data", None)), P(None, "model"))


@pytest.fixture
def program():
    return sv.trace(step, array(256, 512), array(64, 256), donate_argnums=0)


def bare(report):
    """A report without what a finished compile adds, and without times."""
    stages = {name: text for name, text in report.stages.items() if name != "finished"}
    memory = replace(report.memory, stated={}, code=None)
    cost = replace(report.cost or Cost(dot_flops=0.0), stated=None)
    notes = tuple(d for d in report.diagnostics if d.rule != "not-stated")
    return replace(report, memory=memory, cost=cost, stages=stages, timings={}, diagnostics=notes)


def test_it_adds_to_the_compiled_report_and_changes_nothing_in_it(program):
    told = []
    future = program.submit(PLAN, "compiled", finish=True, on_report=told.append)
    finished = future.result()
    assert [r.level for r in told] == ["partitioned", "compiled", "compiled"]
    assert list(future.reports) == ["partitioned", "compiled", "finished"]
    assert told[-1] == finished and future.state == "done"
    assert bare(finished) == bare(told[1])
    assert finished.memory.stated["argument_size_in_bytes"] == finished.memory.arguments
    assert finished.cost.stated.flops > 0 and not told[1].memory.stated
    assert finished.timings["finish"] >= finished.timings["compile"]
    assert sv.Report.from_json(finished.to_json()) == finished


def test_nothing_is_waited_for_unless_it_is_asked_for(program):
    future = program.submit(PLAN, "compiled")
    report = future.result()
    assert list(future.reports) == ["partitioned", "compiled"] and "finished" not in report.stages
    assert (report.memory.stated, report.memory.code) == ({}, None)
    assert report.cost is None or report.cost.stated is None


def test_what_the_compiler_does_not_say_is_said(program):
    (note,) = [d for d in program.compile(PLAN, finish=True).diagnostics if d.rule == "not-stated"]
    assert note.severity == "note" and "how large the machine code is" in note.text
    assert "cost_analysis" not in note.text


def at_the_memory_plan(future, act):
    """Does something to a job as soon as its optimised program is there, long before its machine code is."""
    told = future.on_milestone

    def reached(job, milestone, texts):
        if milestone == "compiled":
            act(job)
        told(job, milestone, texts)

    future.on_milestone = reached


@pytest.fixture
def long_compile():
    """More than a second of machine code after the memory plan."""
    example = sv.gallery.llama("70b", mesh="data=2,model=2")
    return example.program.submit(example.plan, "compiled", finish=True)


def test_where_it_crashes_the_compiled_report_stands(long_compile):
    at_the_memory_plan(long_compile, lambda job: os.kill(job.pid, signal.SIGKILL))
    report = long_compile.result()
    (warning,) = [d for d in report.diagnostics if d.rule == "not-finished"]
    assert warning.severity == "warning" and "SIGKILL" in warning.text
    assert replace(report, diagnostics=report.diagnostics[1:]) == long_compile.reports["compiled"]
    assert report is long_compile.reports["finished"] and report.level == "compiled"


def test_who_stops_it_is_told_so(long_compile):
    at_the_memory_plan(long_compile, lambda job: job.stop())
    with pytest.raises(CompileStopped):
        long_compile.result()
    assert list(long_compile.reports) == ["partitioned", "compiled"]


def test_only_a_compile_is_finished(program):
    with pytest.raises(ShardvizError, match=r"finish=True: only a compile of level 'compiled'.*not 'partitioned'"):
        program.submit(PLAN, finish=True)
    with pytest.raises(ShardvizError, match="level 'finished': a compile reaches one of 'partitioned', 'compiled'"):
        program.submit(PLAN, "finished")
