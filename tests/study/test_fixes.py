"""Fixes: what is offered was run and helps, by as much as is said; what does not help is not offered, and says why."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import threading

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.ask.submitting import ReportFuture
from shardviz.compiler.targets import targets
from shardviz.costs.machine import machine_of
from shardviz.costs.step_cost import cost_of
from shardviz.diagnose import findings
from shardviz.gallery import mlp
from shardviz.notation import Spec
from shardviz.records import Finding
from shardviz.records.findings import Suggestion
from shardviz.study.fixes import Fixes
from shardviz.study.proposing import Proposals
from tests.plan.edited import module_of, said
from tests.programs import sampler, unet, vit
from tests.raw import array

pytestmark = pytest.mark.slow

TARGET = "tpu v5e:2x4"
CONFIRMED = {"partitioned": "partition", "compiled": "compile"}
"""The level of a fix → what asks for it; `compiled` where memory decides, or no finding names what it saves."""


@pytest.fixture(scope="module")
def lame():
    """A perceptron whose second layer is sharded against the first: what the first gives is resharded."""
    example = mlp((1024, 4096, 4096, 4096, 256), batch=8192)
    plan = example.plan.with_spec("params[1]['w']", P(("data", "model")))
    return example.program, plan, example.program.propagate(plan)


@pytest.fixture(scope="module")
def tried(lame):
    program, plan, report = lame
    return sv.fixes(program, report, TARGET, plan=plan)


def test_what_is_offered_helps_as_much_as_is_said(lame, tried):
    program, plan, _ = lame
    assert tried.finished
    assert len(tried) >= 1
    assert [m.seconds for m in tried] == sorted((m.seconds for m in tried), reverse=True)
    for fix in tried:
        assert fix.level in CONFIRMED
        reports = [getattr(program, CONFIRMED[fix.level])(each, TARGET) for each in (plan, fix.plan)]
        costs = [cost_of(r, TARGET) for r in reports]
        moved = [sum(c.assumed_bytes for c in r.collectives) for r in reports]
        assert fix.step == pytest.approx(costs[0].seconds)
        assert fix.seconds == pytest.approx(costs[0].seconds - costs[1].seconds)
        assert fix.seconds > 0
        assert costs[1].seconds <= costs[0].seconds * (1 + 1e-6)
        assert fix.bytes == pytest.approx(moved[0] - moved[1])
        assert fix.difference.amount("operand bytes").after == pytest.approx(moved[1])


@pytest.mark.tpu
@pytest.mark.long
def test_what_saves_much_and_no_warning_names_is_said_as_the_targets_compiler_says_it():
    """Of a U-Net with nothing sharded over `data` the partitioner and the TPU's compiler say that the batch belongs
    there."""
    program = unet(256, 64)
    plan = sv.Plan({"data": 4, "model": 2}, edits=channels(program))
    first = sv.fixes(program, program.partition(plan, TARGET), TARGET, plan=plan)[0]
    before, after = (cost_of(program.compile(each, TARGET), TARGET).seconds for each in (plan, first.plan))
    assert first.level == "compiled" and first.seconds == pytest.approx(before - after)


@pytest.mark.long
def test_a_saving_as_small_as_its_level_s_error_is_no_fix_before_the_targets_compiler_has_confirmed_it():
    """A TPU's compiler says how much shorter a sampler is whose kernels are gathered before its loop, not in it."""
    program = sampler(512, 256, 64, 128, trips=2)
    plan = program.presets({"data": 8, "model": 8})["fsdp"]
    tried = sv.fixes(program, program.partition(plan, "tpu v5p:4x4x4"), plan=plan)
    unsure = [n.action for n in tried.rejected if "less of the step than level partitioned is off by" in n.why]
    assert any("in params['down']" in action for action in unsure)
    assert not [m.text for m in tried if m.is_unsure and m.memory >= 0]


def test_a_saving_as_small_as_its_level_s_error_says_so(tried):
    fix = dataclasses.replace(tried[0], level="partitioned")
    small, large = (dataclasses.replace(fix, seconds=share * fix.step) for share in (0.02, 0.05))
    assert small.levels == "within the error of level partitioned" and small.levels in small.text
    assert "error" not in large.text
    assert "error" not in dataclasses.replace(small, level="compiled").text


def test_a_dimension_is_cut_again_as_most_of_it_is(lame, tried):
    program, plan, _ = lame
    before, name = program.bind(plan).in_specs, "params[1]['w']"
    changed = (m for m in tried if m.plan.dim_edits and program.bind(m.plan).in_specs[name] != before[name])
    fix = next(m for m in changed if "params[1]" in m.action)
    assert fix.text.startswith(f"{fix.action}: ")
    assert "a step saved" in fix.text
    assert fix.lines


def test_what_does_not_help_says_why(lame, tried):
    program, plan, _ = lame
    assert len(tried) + len(tried.rejected) == tried.tried == tried.candidates
    assert all(n.why for n in tried.rejected)
    best = program.propagate(tried[0].plan)
    again = sv.fixes(program, best, TARGET, plan=tried[0].plan)
    assert all(m.plan != plan for m in again)  # what was fixed is not fixed back


def test_without_a_speed_bytes_and_memory_count(lame):
    program, plan, report = lame
    found = sv.fixes(program, report, plan=plan)
    assert found.target == "cpu"
    assert len(found) >= 1
    for fix in found:
        assert (fix.seconds, fix.step) == (None, None)
        assert fix.bytes > 0 or fix.memory < 0
    assert "step saved" not in found.text()


def test_without_a_speed_no_fix_has_each_device_compute_more():
    """A replicated batch moves nothing, and each device computes all of it."""
    step = jax.grad(lambda w, x: jnp.sum((x @ w) ** 2))
    program = sv.trace(step, jax.ShapeDtypeStruct((64, 32), "float32"), jax.ShapeDtypeStruct((128, 64), "float32"))
    report = program.partition(sv.Plan("data=4", in_specs=(P(), P("data"))))
    tried = sv.fixes(program, report)
    for fix in tried:
        assert program.partition(fix.plan).cost.dot_flops == report.cost.dot_flops
    assert "it moves fewer bytes, but each device computes more" in {refused.why for refused in tried.rejected}


def test_the_plan_of_a_report_is_known_without_it(lame):
    program, plan, report = lame
    from shardviz.study.proposing import plan_of

    constrained = plan.constrain("x", P(None, "data"))
    record = program.bind(constrained)
    assert program.bind(plan_of(program.propagate(constrained))) == record
    assert program.bind(plan_of(report)) == program.bind(plan)


def test_a_plan_is_propagated_and_anything_else_refused(lame):
    program, plan, _ = lame
    ours, theirs = (sv.fixes(program, given, findings=1) for given in (plan, program.propagate(plan)))
    assert [fix.text for fix in ours] == [fix.text for fix in theirs] and len(ours) > 0
    with pytest.raises(sv.errors.ShardvizError, match="report: str was given; give a report or a plan"):
        sv.fixes(program, "data=2")


def finding(*suggestions: Suggestion) -> Finding:
    return Finding("tested:here", "error", "something", suggestions=suggestions)


def with_finding(report, *fixes: Suggestion):
    return dataclasses.replace(report, diagnostics=(finding(*fixes), *report.diagnostics))


def test_a_finding_s_suggestions_are_tried(lame):
    program, plan, report = lame
    good = Suggestion(kind="argument", target="params[1]['w']", spec=Spec.of(P("model", "data")))
    bad = Suggestion(kind="argument", target="x", spec=Spec())
    unfit = Suggestion(kind="argument", target="params[1]['w']", spec=Spec.of(P("nowhere")))
    person = Suggestion(kind="code", text="think")
    found = sv.fixes(program, with_finding(report, bad, unfit, person, good), TARGET, plan=plan)
    (fix,) = found.of(finding())
    assert fix.action == "give params[1]['w'] the spec P('model', 'data')"
    assert fix.finding is not None
    refused = {n.action: n.why for n in found.rejected}
    assert refused["give x the spec P()"] == "the step is no shorter: so it is at level partitioned"
    assert "no axis 'nowhere'" in refused["give params[1]['w'] the spec P('nowhere')"]
    assert found.by_hand[0] == "think"
    assert "Not tried, because only a person can write it" in found.text()
    data = json.loads(found.to_json())
    assert {m["finding"] for m in data["fixes"]} >= {"tested:here"}
    assert "something" in found.text() and "tested:here" not in found.text()


def test_the_dimensions_of_the_largest_arrays_are_tried_first():
    arrays = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 128), (64, 8192), (512, 64)))
    program = sv.trace(lambda a, b, x: (jnp.sum(x @ a), jnp.sum(x @ b)), *arrays)
    plan = sv.Plan("data=2,model=2", (P(), P(), P("data")))
    actions = [change.action for change in Proposals(program, program.propagate(plan), None, plan, 5)]
    places = [actions.index(f"shard dimension {name}:1 along data in {name}") for name in "ba"]
    assert places == sorted(places)


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
    found = sv.fixes(program, with_finding(report, suggestion), TARGET, plan=plan)
    (fix,) = found.of(finding())
    assert fix.action == f"constrain h at {held.source.short} to P(None, 'a')"
    assert said(program.partition(fix.plan, TARGET)) == said(by_hand.partition(plan, TARGET))
    assert fix.seconds > 0


@pytest.mark.long
def test_what_traces_is_tried_in_a_worker_where_this_process_has_other_things_to_do():
    calls = []

    def step(w1, w2, x):
        calls.append(1)

        def loss(w1, w2):
            h = jnp.tanh(x @ w1)
            return jnp.sum((h @ w2) ** 2)

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
    *_, there = (s for s in sv.fixes(program, asked, TARGET, plan=plan, stream=True).steps() if isinstance(s, Fixes))
    assert len(calls) == before
    before = len(calls)
    here = sv.fixes(program, asked, TARGET, plan=plan)
    assert here.of(finding()) and len(calls) > before
    assert there.finished and {m.text for m in there} == {m.text for m in here}
    assert [(m.seconds, m.bytes, m.memory, m.level) for m in there] == [
        (m.seconds, m.bytes, m.memory, m.level) for m in here
    ]
    assert set(there.rejected) == set(here.rejected)


def test_another_order_of_devices_saves_what_its_finding_says():
    from tests.diagnose.programs import FIRES

    case = FIRES["slow-order"][0]
    (slow,) = [f for f in case.findings(case.report) if f.rule == "slow-order"]
    found = sv.fixes(case.program, case.report, case.on, plan=case.plan)
    (fix,) = [m for m in found.of(slow) if m.plan.mesh != case.plan.mesh]
    costs = [cost_of(case.program.propagate(plan), case.on) for plan in (case.plan, fix.plan)]
    assert costs[0].step.communication - costs[1].step.communication == pytest.approx(slow.numbers["seconds"])
    assert fix.seconds > 0


ROOM = "tpu v5e:2x4"


def large(batch):
    """A decoder of which each device would keep more than it has room for."""
    example = sv.gallery.llama("8b", batch=batch, mesh="data=4,model=2")
    return example.program, example.plan


@pytest.mark.long
@pytest.mark.tpu
@pytest.mark.parametrize(("batch", "enough"), [(16, True), (20, False)])
def test_what_makes_room_is_what_the_target_s_compiler_says(batch, enough):
    program, plan = large(batch)
    report = program.compile(plan, ROOM)
    assert report.memory.fits is False
    told = sv.fixes(program, report, ROOM, plan=plan)
    (finding,) = report.findings.of("does-not-fit")
    found = told.of(finding)
    assert found and found == told.fixes[: len(found)]
    order = [(m.over, -m.seconds) for m in found]
    assert order == sorted(order), "the quickest of those that fit comes first"
    usable = sv.cost(report, ROOM).needs.usable
    for fix in found:
        after = program.compile(fix.plan, ROOM)
        assert fix.level == "compiled" and fix.finding == finding
        assert fix.memory == pytest.approx(after.memory.takes - report.memory.takes)
        assert fix.memory < 0
        assert fix.over == pytest.approx(max(0.0, after.memory.takes - usable))
        assert ("too large" in fix.text) == bool(fix.over) and "predicted" not in fix.text
        costs = [cost_of(r, ROOM) for r in (report, after)]
        assert fix.seconds == pytest.approx(costs[0].seconds - costs[1].seconds)
        assert after.memory.fits is not bool(fix.over)
    assert (not found[0].over) is enough and ("too large" in told.text()) is any(fix.over for fix in found)


@pytest.mark.long
def test_without_a_compiler_for_the_target_what_makes_room_is_predicted(monkeypatch):
    program, plan = large(64)
    none = [dataclasses.replace(status, ready=False) for status in targets()]
    monkeypatch.setattr("shardviz.ask.targeting.targets", lambda: none)
    told = sv.fixes(program, program.propagate(plan), ROOM, plan=plan)
    (finding,) = [f for f in findings(program.propagate(plan), ROOM) if f.rule == "too-much"]
    assert told.of(finding)
    assert all(m.level != "compiled" and "predicted" in m.text for m in told.of(finding))
    assert "predicted" in told.text()


def channels(program):
    """The kernels sharded by their output channels, and nothing else."""
    kernels = [a.name for a in program.arguments if a.shape[0] == 3 and a.shape[3] % 2 == 0]
    return {name: P(None, None, None, "model") for name in kernels}


def test_a_fix_is_of_the_findings_that_it_removes_or_makes_cheaper_and_of_no_others():
    program = unet()
    plan = sv.Plan("data=4,model=2", edits=channels(program))
    report = program.partition(plan, TARGET)
    told = sv.fixes(program, report, TARGET, plan=plan)
    before = {f.id: f for f in findings(report, TARGET) if f.suggestions or f.severity != "note"}
    for fix in told:
        after = {f.id: f for f in findings(program.partition(fix.plan, TARGET), TARGET)}
        cost = lambda f: f.numbers.get("seconds", f.numbers.get("bytes", 0.0))
        less = {id for id, f in before.items() if id not in after or cost(after[id]) < 0.98 * cost(f)}
        again = {id for id in less - after.keys() if any(id.startswith(f.rule) for f in after.values())}
        named = {f.id for f in fix.findings}
        assert less - again <= named <= less, "what comes again along other axes may not be"
        assert fix.finding == next(iter(fix.findings), None)
        assert all(fix in told.of(f) for f in fix.findings)


def newcomer():
    """Two layers whose rows and columns are sharded the wrong way round, on chips that they do not fit."""

    def step(params, x):
        def loss(params):
            return jnp.sum((jnp.tanh(x @ params["up"]) @ params["down"]) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    params = {"up": array(32768, 131072), "down": array(131072, 32768)}
    specs = ({"up": P("model"), "down": P(None, "model")}, P("data"))
    return sv.trace(step, params, array(65536, 32768)), sv.Plan("data=4,model=4", specs)


@pytest.mark.tpu
@pytest.mark.long
def test_what_is_donated_is_fixed_by_donation_alone():
    """To shard `down` more halves what could be donated, which is no donation."""
    program, plan = newcomer()
    target = "tpu v5e:4x4"
    report = program.partition(plan, target)
    told = sv.fixes(program, report, target, plan=plan)
    (donation,) = findings(report, target).of("not-donated")
    assert {fix.action for fix in told.of(donation)} == {"donate params"}


@pytest.mark.long
def test_what_stands_beside_an_array_sharded_less_is_no_fix_of_it():
    """With the other matrices replicated too, an array is no longer replicated as the only one; it is as large."""
    program = vit()
    plan = program.presets("data=4,model=2")["tensor parallel"]
    report = program.propagate(plan)
    told = sv.fixes(program, report, TARGET, plan=plan)
    held = {f.value: f for f in findings(report, TARGET) if f.rule == "less-sharded"}
    assert held and any("replicate" in fix.action for fix in told)
    for fix in told:
        after = program.propagate(fix.plan)
        for name, finding in held.items():
            if finding in fix.findings:
                assert after.value(name).bytes_per_device < report.value(name).bytes_per_device


@pytest.mark.long
def test_the_batch_that_nothing_shards_comes_first():
    program = unet(256, 64)
    preset = program.presets("data=4,model=2")["data parallel"]
    for edits in ({}, channels(program)):
        plan = sv.Plan("data=4,model=2", edits=edits)
        first = sv.fixes(program, program.partition(plan, TARGET), TARGET, plan=plan)[0]
        assert "batch" in first.action
        best = cost_of(getattr(program, CONFIRMED[first.level])(preset, TARGET), TARGET).seconds
        assert first.step - first.seconds <= best * (1 + 1e-6)


@pytest.mark.long
def test_a_constraint_of_the_function_s_own_that_fights_the_plan_is_dropped_or_changed(tmp_path):
    sizes = {"layers": 2, "length": 1024, "batch": 64, "mesh": "data=4,model=2"}
    example = sv.gallery.llama("8b", **sizes)
    program, plan = example.program, example.program.presets(example.plan.mesh)["fsdp"]
    told = sv.fixes(program, program.partition(plan, TARGET), TARGET, plan=plan)
    fix = next(m for m in told if m.plan.variant.constraints)
    assert fix in told[:2], "which of the two is first is the partitioner's: libtpu's permutes, jaxlib's gathers"
    assert fix.action.startswith("constrain to P(('data', 'model')) in place of P('data') at llama.py:")
    own = 'jax.lax.with_sharding_constraint(x, P("data"))'
    both = own.replace('P("data")', "P(('data', 'model'))")
    source = inspect.getsource(sys.modules["shardviz.gallery.llama"])
    by_hand = module_of(source.replace(own, both), tmp_path / "changed.py").llama("8b", **sizes).program
    reports = (getattr(p, CONFIRMED[fix.level])(plan, TARGET) for p in (program, by_hand))
    before, after = (cost_of(report, TARGET).seconds for report in reports)
    assert fix.seconds == pytest.approx(before - after)
    assert fix.seconds > 0.2 * before
    assert both in fix.write and " in place of " in fix.write


def test_constraints_that_ask_for_what_the_plan_has_are_left_alone():
    example = sv.gallery.llama("8b")
    report = example.program.propagate(example.plan)
    changes = [c for c in Proposals(example.program, report, None, example.plan, 5) if c.plan.variant.constraints]
    assert all("shard dimension batch" in change.action for change in changes), "they follow another batch"


def test_it_can_be_watched_and_stopped(lame):
    program, plan, report = lame
    going = sv.fixes(program, report, TARGET, plan=plan, stream=True)
    first = next(going)
    assert 0 < first.tried < first.candidates and not first.finished
    assert first.candidates > 5
    threading.Timer(0.05, going.stop).start()
    *_, last = going
    assert not last.finished
    assert last.tried < last.candidates or not last.fixes
    assert "not finished" in last.text()


def test_what_the_clock_leaves_is_named(lame):
    """Each change is offered, or it is said why not, be it for want of time."""
    program, plan, report = lame
    found = sv.fixes(program, report, TARGET, plan=plan, seconds=1e-3)
    assert not found.finished and not found.fixes and found.seconds < 5
    late = [refused for refused in found.rejected if "the time was over" in refused.why]
    assert found.tried + len([refused for refused in late if refused.why.startswith("not tried")]) == found.candidates
    assert late and all(refused.why in found.html() for refused in late)


def test_the_best_change_that_no_compiler_has_confirmed_in_time_is_offered_at_its_level(lame, monkeypatch):
    program, plan, report = lame
    monkeypatch.setattr("shardviz.ask.program.Program.submit", lambda *_, **__: ReportFuture())  # it takes for ever
    trying = sv.fixes(program, report, TARGET, plan=plan, stream=True)
    for state in trying:
        if state.tried == state.candidates > 0:
            trying.until = 0.0
    (fix,) = state.fixes
    assert fix.level == "propagated" and fix.seconds > 0 and not state.finished
    saved = sv.cost(report, TARGET).seconds - sv.cost(program.propagate(fix.plan), TARGET).seconds
    assert fix.seconds == pytest.approx(saved, rel=1e-6)
    assert any("before a compiler confirmed it" in each.why for each in state.rejected)
    assert len({each.action for each in state.rejected}) == len(state.rejected) == state.candidates - 1


def test_it_is_shown(tried):
    text = tried.text()
    assert "worth making" in text
    assert "Not offered" in text
    assert max(map(len, text.splitlines())) <= 120
    assert tried[0].action.replace("'", "&#x27;") in tried.html()


def test_replicated_weights_come_back_replicated():
    """Where only the batch stays sharded, the new weights are as the old ones: else the step would compile twice."""

    def step(w, m, x):
        loss, g = jax.value_and_grad(lambda w: (jnp.tanh(x @ w["up"]) @ w["down"]).mean())(w)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
        return jax.tree.map(lambda w, m: w - 0.1 * m, w, m), m, loss

    weights = {"up": array(256, 512), "down": array(512, 256)}
    program = sv.trace(step, weights, weights, array(1024, 256), donate_argnums=(0, 1))
    sharded = {"up": P(None, "data"), "down": P("data")}
    plan = sv.Plan({"data": 8}, (sharded, sharded, P("data")), (sharded, sharded, None))
    proposals = Proposals(program, program.propagate(plan), machine_of("tpu v5e:2x4"), plan, 12)
    (bare,) = (change for change in proposals if change.action.endswith("nothing else"))
    bound = program.bind(bare.plan)
    assert not bound.in_specs["w['up']"].axes
    assert [bound.out_specs[f"result[{n}]['up']"] for n in (0, 1)] == [bound.in_specs["w['up']"]] * 2
