"""Mends: what is offered was run and helps, by as much as is said; what does not help is not offered, and says why."""

from __future__ import annotations

import dataclasses
import json
import threading

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.costs.step_cost import cost_of
from shardviz.gallery import mlp
from shardviz.notation import Spec
from shardviz.records import Finding
from shardviz.records.findings import Suggestion
from shardviz.study.mends import Mends
from tests.program.edited import module_of, said

TARGET = "tpu v5e:2x4"


@pytest.fixture(scope="module")
def lame():
    """A perceptron whose second layer is cut against the first: what the first gives has to be cut anew."""
    example = mlp((1024, 4096, 4096, 4096, 256), batch=8192)
    plan = example.plan.with_spec("params[1]['w']", P("data", "model"))
    return example.program, plan, example.program.propagate(plan)


@pytest.fixture(scope="module")
def tried(lame):
    program, plan, report = lame
    return sv.mends(program, report, TARGET, plan=plan)


def test_what_is_offered_helps_as_much_as_is_said(lame, tried):
    program, plan, _ = lame
    assert tried.finished
    assert len(tried) >= 1
    assert [m.seconds for m in tried] == sorted((m.seconds for m in tried), reverse=True)
    before = program.partition(plan, TARGET)
    for mend in tried:
        after = program.partition(mend.plan, TARGET)
        costs = [cost_of(r, TARGET) for r in (before, after)]
        moved = [sum(c.assumed_bytes for c in r.collectives) for r in (before, after)]
        assert mend.level == "partitioned"
        assert mend.step == pytest.approx(costs[0].seconds)
        assert mend.seconds == pytest.approx(costs[0].seconds - costs[1].seconds)
        assert mend.seconds > 0
        assert costs[1].seconds <= costs[0].seconds * (1 + 1e-6)
        assert mend.bytes == pytest.approx(moved[0] - moved[1])
        assert mend.difference.amount("operand bytes").after == pytest.approx(moved[1])


def test_a_dimension_is_cut_again_as_most_of_it_is(lame, tried):
    program, plan, _ = lame
    mend = next(m for m in tried if m.plan.cuts and "params[1]['w']" in m.action)
    spec = program.bind(mend.plan).in_specs["params[1]['w']"]
    assert spec != program.bind(plan).in_specs["params[1]['w']"]
    assert mend.text.startswith(f"{mend.action}: ")
    assert "a step saved" in mend.text
    assert mend.lines


def test_what_does_not_help_says_why(lame, tried):
    program, plan, _ = lame
    assert len(tried) + len(tried.not_offered) == tried.tried == tried.candidates
    assert all(n.why for n in tried.not_offered)
    best = program.propagate(tried[0].plan)
    again = sv.mends(program, best, TARGET, plan=tried[0].plan)
    assert all(m.plan != plan for m in again)  # what was mended is not mended back


def test_without_a_speed_bytes_and_memory_count(lame):
    program, plan, report = lame
    found = sv.mends(program, report, plan=plan)
    assert found.target == "cpu"
    assert len(found) >= 1
    for mend in found:
        assert (mend.seconds, mend.step) == (None, None)
        assert mend.bytes > 0 or mend.memory < 0
    assert "step saved" not in found.text()


def test_the_plan_of_a_report_is_known_without_it(lame):
    program, plan, report = lame
    from shardviz.study.proposing import plan_of

    constrained = plan.constrain("x", P(None, "data"))
    record = program.bind(constrained)
    assert program.bind(plan_of(program.propagate(constrained))) == record
    assert program.bind(plan_of(report)) == program.bind(plan)


def finding(*mends: Suggestion) -> Finding:
    return Finding("tested:here", "error", "something", mends=mends)


def with_finding(report, *mends: Suggestion):
    return dataclasses.replace(report, diagnostics=(finding(*mends), *report.diagnostics))


def test_a_finding_s_suggestions_are_tried(lame):
    program, plan, report = lame
    good = Suggestion(kind="argument", target="params[1]['w']", spec=Spec.of(P("model", "data")))
    bad = Suggestion(kind="argument", target="x", spec=Spec())
    unfit = Suggestion(kind="argument", target="params[1]['w']", spec=Spec.of(P("nowhere")))
    person = Suggestion(kind="code", text="think")
    found = sv.mends(program, with_finding(report, bad, unfit, person, good), TARGET, plan=plan)
    (mend,) = found.of(finding())
    assert mend.action == "give params[1]['w'] the spec P('model', 'data')"
    assert mend.finding is not None
    refused = {n.action: n.why for n in found.not_offered}
    assert refused["give x the spec P()"] == "the step is no shorter"
    assert "no axis 'nowhere'" in refused["give params[1]['w'] the spec P('nowhere')"]
    assert found.by_hand[0] == "think"
    assert "Not tried, as only a person can write it" in found.text()
    data = json.loads(found.to_json())
    assert {m["finding"] for m in data["mends"]} >= {"tested:here"}
    assert "against tested" in found.text()


SOURCE = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P

def step(w1, w2, x):
    def loss(w1, w2):
        h = jnp.tanh(x @ w1)
        {line}
        return jnp.sum((h @ w2) ** 2)
    return jax.value_and_grad(loss, argnums=(0, 1))(w1, w2)
"""


def test_a_constraint_that_helps_is_that_of_the_function_edited_by_hand(tmp_path):
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4096, 8192), (8192, 4096), (8192, 4096))]
    written = "h = jax.lax.with_sharding_constraint(h, P(None, 'a'))"
    bare, edited = (module_of(SOURCE.format(line=each), tmp_path / f"m{len(each)}.py") for each in ("", written))
    program, by_hand = sv.trace(bare.step, *args), sv.trace(edited.step, *args)
    plan = sv.Plan({"a": 8}, (P("a"), P("a"), P("a")))
    report = program.propagate(plan)
    (held,) = (v for v in report.intermediates if v.label == "h")
    suggestion = Suggestion(kind="constrain", target=held.name, spec=Spec.of(P(None, "a")), source=held.source)
    found = sv.mends(program, with_finding(report, suggestion), TARGET, plan=plan)
    (mend,) = found.of(finding())
    assert mend.action == f"constrain h at {held.source.short} to P(None, 'a')"
    assert said(program.partition(mend.plan, TARGET)) == said(by_hand.partition(plan, TARGET))
    assert mend.seconds > 0


@pytest.mark.parametrize("travels", [True, False])
def test_what_traces_is_tried_in_a_worker_where_this_process_has_other_things_to_do(travels, tmp_path):
    calls = []
    ask = (lambda h: h) if travels else module_of("def f(h):\n    return h\n", tmp_path / "here_alone.py").f

    def step(w1, w2, x):
        calls.append(1)

        def loss(w1, w2):
            h = jnp.tanh(x @ w1)
            return jnp.sum((ask(h) @ w2) ** 2)

        return jax.value_and_grad(loss, argnums=(0, 1))(w1, w2)

    program = sv.trace(
        step, *(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4096, 8192), (8192, 4096), (8192, 4096)))
    )
    plan = sv.Plan({"a": 8}, (P("a"), P("a"), P("a")))
    report = program.propagate(plan)
    (held,) = (v for v in report.intermediates if v.label == "h")
    suggestions = [Suggestion(kind="constrain", target=held.name, spec=Spec.of(P(None, "a")), source=held.source)]
    suggestions += [Suggestion(kind="donate", target="w1"), Suggestion(kind="checkpoint", policy="dots_saveable")]
    asked = with_finding(report, *suggestions)
    assert program.dimensions
    before = len(calls)
    *_, there = (s for s in sv.mends(program, asked, TARGET, plan=plan, stream=True).steps() if isinstance(s, Mends))
    assert (len(calls) == before) is travels
    before = len(calls)
    here = sv.mends(program, asked, TARGET, plan=plan)
    assert here.of(finding()) and (len(calls) > before or not travels)
    assert there.finished and {m.text for m in there} == {m.text for m in here}
    assert [(m.seconds, m.bytes, m.memory, m.level) for m in there] == [
        (m.seconds, m.bytes, m.memory, m.level) for m in here
    ]
    assert set(there.not_offered) == set(here.not_offered)


def test_another_order_of_devices_saves_what_its_finding_says():
    from tests.diagnose.programs import FIRES

    case = FIRES["slow-order"][0]
    (slow,) = [f for f in case.findings(case.report) if f.rule == "slow-order"]
    found = sv.mends(case.program, case.report, case.on, plan=case.plan)
    (mend,) = found.of(slow)
    costs = [cost_of(case.program.propagate(plan), case.on) for plan in (case.plan, mend.plan)]
    assert costs[0].step.communication - costs[1].step.communication == pytest.approx(slow.numbers["seconds"])
    assert mend.seconds > 0


def test_it_can_be_watched_and_stopped(lame):
    program, plan, report = lame
    going = sv.mends(program, report, TARGET, plan=plan, stream=True)
    first = next(going)
    assert (first.tried, first.finished) == (1, False)
    assert first.candidates > 5
    threading.Timer(0.05, going.stop).start()
    *_, last = going
    assert not last.finished
    assert last.tried < last.candidates or not last.mends
    assert "not finished" in last.text()


def test_it_is_shown(tried):
    text = tried.text()
    assert "worth making" in text
    assert "Tried, and no better" in text
    assert max(map(len, text.splitlines())) <= 120
    assert tried[0].action.replace("'", "&#x27;") in tried.html()
