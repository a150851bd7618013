"""A plan's fault is named among the first three findings, as one finding, with what it costs; its fix takes it away.

What the fault costs, and that the fixed plan computes the same without it, raw JAX and XLA say on 8 simulated devices.
"""

from __future__ import annotations

import json
import linecache
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.ask.derived import of_variant
from shardviz.ask.program import resharded_state
from shardviz.diagnose.case import total_bytes
from shardviz.errors import ShardvizError
from shardviz.records import Findings
from shardviz.study.fixes import Fixes
from shardviz.study.proposing import Proposals
from tests.diagnose import faulty_programs as programs
from tests.diagnose.faulty_programs import FAULTS, LARGE, SMALL
from tests.diagnose.programs import s
from tests.diagnose.test_rules import EXAMPLES, in_best_order
from tests.truth import UNOPTIMIZED, answers_of

pytestmark = pytest.mark.slow

MESH, MACHINE = "data=2,model=4", "tpu v5e:2x4"
LEVELS = ("propagated", "partitioned")


@pytest.fixture(scope="module")
def truth() -> dict:
    return json.loads(answers_of(programs.__file__, **UNOPTIMIZED))


@cache
def program_of(name: str, n: int, better: bool = False) -> sv.Program:
    fault = FAULTS[name]
    fn = (better and fault.better) or fault.fn
    return sv.trace(fn, *fault.args(n), donate_argnums=fault.donated)


def plan_of(name: str, good: bool = False) -> sv.Plan:
    fault = FAULTS[name]
    return sv.Plan(MESH, *((fault.good, fault.good_out) if good else (fault.specs, fault.out)))


@cache
def report_of(name: str, level: str, n: int, good: bool = False) -> sv.Report:
    program, plan = program_of(name, n, good), plan_of(name, good)
    return program.propagate(plan) if level == "propagated" else program.partition(plan, MACHINE if n > 1 else "cpu")


@cache
def fixes_of(name: str, level: str) -> Fixes:
    return sv.fixes(program_of(name, LARGE), report_of(name, level, LARGE), MACHINE, plan=plan_of(name))


def findings_of(name: str, level: str) -> Findings:
    return report_of(name, level, LARGE).findings_on(MACHINE)


def of_fault(name: str, report: sv.Report) -> list:
    """The findings of the rules that name the fault."""
    return [f for f in report.findings if f.rule in FAULTS[name].rules]


NAMED = [(name, level) for name, fault in FAULTS.items() if fault.rules for level in fault.levels]


@pytest.mark.parametrize(("name", "level"), NAMED)
def test_the_fault_is_a_warning_among_the_first_three_and_one_finding(name, level):
    findings = findings_of(name, level)
    named = [f for f in findings if f.rule in FAULTS[name].rules]
    assert len(named) == 1, [f.text for f in findings]
    assert named[0] in findings[:3], [f.text for f in findings]
    unsuggested = FAULTS[name].fix == "by hand" and not FAULTS[name].words
    assert named[0].severity == "warning" and bool(named[0].suggestions) != unsuggested, named[0].text


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FAULTS)
def test_the_fixed_plan_has_no_such_finding_nor_another_warning(name, level):
    program = program_of(name, LARGE, True)
    plan = in_best_order(program, plan_of(name, True), MACHINE)
    report = program.propagate(plan) if level == "propagated" else program.partition(plan, MACHINE)
    findings = report.findings_on(MACHINE)
    assert not [f.text for f in findings if f.rule in FAULTS[name].rules]
    assert not [f.text for f in findings if f.severity != "note"]


def test_thirty_plans_are_bad_and_thirty_are_good():
    bad = {(f.fn, str(f.specs), str(f.out)) for f in FAULTS.values()}
    good = {(f.better or f.fn, str(f.good), str(f.good_out)) for f in FAULTS.values()}
    assert len(bad) >= 30 and len(good) + len(EXAMPLES) >= 30


def step_of(report: sv.Report) -> float:
    return sv.cost(report, MACHINE).seconds


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_the_fix_takes_the_step_back(name):
    fault, program = FAULTS[name], program_of(name, LARGE)
    report, fixed = (report_of(name, "partitioned", LARGE, good) for good in (False, True))
    if not fault.rules:
        first = fixes_of(name, "partitioned")[0]
        assert step_of(program.partition(first.plan, MACHINE)) <= 1.02 * step_of(fixed)
        return
    (finding,) = [f for f in findings_of(name, "partitioned") if f.rule in fault.rules]
    if fault.fix == "first":
        plan = Proposals(program, report, None, plan_of(name), 5).suggested(finding.suggestions[0])
        assert step_of(program.partition(plan, MACHINE)) <= 1.02 * step_of(fixed)
        return
    offered = fixes_of(name, "partitioned").of(finding)
    steps = [step_of(program.partition(m.plan, MACHINE)) for m in offered]
    if fault.fix == "tried":
        assert steps[0] <= 1.02 * step_of(fixed)
        return
    assert all(step > 1.02 * step_of(fixed) for step in steps), "no plan says what the finding does"
    assert [(each.kind, each.words) for each in finding.suggestions] == [("code", fault.words)] * bool(fault.words)
    for at in (finding.source, *(each.source for each in finding.suggestions)):
        assert fault.line in linecache.getline(at.file, at.line), at


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.fix == "first"])
def test_one_change_of_the_finding_fixes_all_of_it(name):
    program, report = program_of(name, SMALL), report_of(name, "partitioned", SMALL)
    (finding,) = of_fault(name, report)
    plan = Proposals(program, report, None, plan_of(name), 5).suggested(finding.suggestions[0])
    after = program.partition(plan)
    assert not of_fault(name, after)
    good = report_of(name, "partitioned", SMALL, True)
    assert total_bytes(after.arguments) <= total_bytes(good.arguments)
    assert total_bytes(after.outputs) <= total_bytes(good.outputs)


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name].fix != "by hand"])
def test_no_change_that_is_tried_has_more_entries_than_its_array_has_dimensions(name, level):
    program, report = program_of(name, SMALL), report_of(name, level, SMALL)
    proposals = Proposals(program, report, None, plan_of(name), 5)
    for change in proposals:
        try:
            made = of_variant(program, change.plan.variant)
            made.propagate(change.plan) if proposals.traces(change)[0] else made.bind(change.plan)
        except ShardvizError as error:
            assert "of rank" not in str(error), change.action


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_the_fixed_plan_computes_the_same(name, truth):
    faulty, fixed = truth[name]
    assert fixed["total"] == pytest.approx(faulty["total"], rel=1e-4)


@pytest.mark.parametrize("name", [name for name in FAULTS if "unlike-parameter" in FAULTS[name].rules])
def test_a_replicated_state_is_named_as_a_whole_with_its_bytes(name, truth):
    report = report_of(name, "propagated", SMALL)
    (finding,) = of_fault(name, report)
    state = [v for v in report.arguments if v.optimizer]
    assert finding.numbers["arrays"] == len(state) == 6 and str(len(state)) in finding.text
    assert finding.numbers["bytes"] == total_bytes(state)
    faulty, fixed = truth[name]
    assert finding.numbers["saved_bytes"] == faulty["argument_bytes"] - fixed["argument_bytes"]
    assert (
        finding.suggestions[0].words
        == f"give 6 arrays of {finding.text.split('arrays of ')[1].split(' ')[0]} the specs of their parameters"
    )


@pytest.mark.parametrize("name", ["replicated sibling", "KV cache without its heads"])
def test_what_a_shard_would_save_is_what_jax_holds_less(name, truth):
    faulty, fixed = truth[name]
    (finding,) = of_fault(name, report_of(name, "propagated", SMALL))
    assert finding.numbers["saved_bytes"] == faulty["argument_bytes"] - fixed["argument_bytes"]
    assert finding.axes == ("model",) or name == "replicated sibling"


@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name].state])
@pytest.mark.parametrize("good", [False, True])
def test_a_step_compiles_twice_where_a_finding_says_so(name, good, truth):
    named = report_of(name, "partitioned", SMALL, good).findings.of("comes-back-otherwise")
    assert truth[name][good]["compiles"] == (2 if named else 1)
    again = resharded_state(program_of(name, SMALL, good), plan_of(name, good))
    assert bool(named) is bool(again)
    for finding in named:
        assert "compiles twice" in finding.text and str(len(again)) in finding.text
        pin = next(m for m in finding.suggestions if m.kind == "output")
        assert {pin.target, *dict(pin.out_specs)} == set(again.values())


@pytest.mark.parametrize("name", ["replicated result", "parameters come back whole"])
def test_a_gathered_result_is_named_with_what_it_holds(name, truth):
    faulty, fixed = truth[name]
    report = report_of(name, "partitioned", SMALL)
    (finding,) = of_fault(name, report)
    assert faulty["all-gathers"] > fixed["all-gathers"]
    gathered = [v for v in report.outputs if v.computed is not None]
    assert total_bytes(report.outputs) == faulty["result_bytes"]
    assert finding.numbers["bytes"] == total_bytes(gathered)
    if "saved_bytes" in finding.numbers:
        assert finding.numbers["saved_bytes"] == faulty["result_bytes"] - fixed["result_bytes"]
    assert "communicates" in finding.text or "moves" in finding.text


@pytest.mark.long
@pytest.mark.tpu
@pytest.mark.parametrize("level", LEVELS)
def test_what_fixes_memory_alone_is_what_the_target_s_compiler_plans_with(level):
    """One of two matrices is replicated: sharded as the other, it is gathered, so that the step is longer."""
    name = "replicated sibling"
    (finding,) = [f for f in findings_of(name, level) if f.rule == "less-sharded"]
    (fix,) = fixes_of(name, level).of(finding)
    program, plan = program_of(name, LARGE), plan_of(name)
    before, after = (program.compile(each, MACHINE) for each in (plan, fix.plan))
    assert fix.level == "compiled" and fix.memory == after.memory.takes - before.memory.takes
    assert -fix.memory == pytest.approx(finding.numbers["saved_bytes"], rel=0.01)
    assert fix.seconds == pytest.approx(step_of(before) - step_of(after)) and fix.seconds < 0
    assert "more than the" in fix.text and "235 MB less memory" in fix.text
    assert fix in fixes_of(name, level)[-1:], "what shortens the step goes before it"


MOVING = ["logits as partial sums", "columns after columns", "experts sharded two ways"]
MOVING += ["target image by height", "images by height"]


@pytest.mark.parametrize("name", MOVING)
def test_what_the_fix_saves_is_moved_less_by_xla_and_takes_less_time(name, truth):
    faulty, fixed = truth[name]
    assert fixed["moved"] < faulty["moved"]
    step = [sv.cost(report_of(name, "partitioned", LARGE, good), MACHINE).seconds for good in (False, True)]
    finding = next(
        f for f in report_of(name, "partitioned", LARGE).findings_on(MACHINE) if f.rule in FAULTS[name].rules
    )
    least = 0.1 if name == "images by height" else 0.5  # there the edges are written beside the image, too
    assert step[1] < step[0] and finding.numbers["seconds"] >= least * (step[0] - step[1])


def test_a_sum_in_each_run_is_as_many_all_reduces_in_the_loop(truth):
    faulty, fixed = truth["gradients summed in each microbatch"]
    report = report_of("gradients summed in each microbatch", "partitioned", SMALL)
    (finding,) = of_fault("gradients summed in each microbatch", report)
    summed = [c for c in report.collectives if c.kind == "all-reduce" and (c.count or 0) > 1]
    assert (len(summed), 0) == (faulty["sums in loops"], fixed["sums in loops"])
    assert finding.numbers["runs"] == 4 and finding.numbers["bytes"] == sum(c.assumed_bytes for c in summed)
    assert finding.numbers["extra_bytes"] == finding.numbers["bytes"] * 3 / 4
    assert "in each of 4 runs of a loop" in finding.text


def scaled(total, w, x):
    return total + jax.grad(loss)(w, x) / 4


def with_its_loss(total, w, x):
    value, gradient = jax.value_and_grad(jax.checkpoint(loss))(w, x)
    return jax.tree.map(jnp.add, total, (gradient, value))


def decayed(total, w, x):
    return 0.9 * total + jax.grad(loss)(w, x)


def used(total, w, x):
    return total + jax.grad(loss)(w + total, x)


def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


@pytest.mark.parametrize(("add", "fires"), [(scaled, True), (with_its_loss, True), (decayed, False), (used, False)])
def test_a_sum_in_each_run_is_a_fault_where_only_the_total_is_used(add, fires):
    def step(w, xs):
        start = (jnp.zeros_like(w), jnp.zeros(())) if add is with_its_loss else jnp.zeros_like(w)
        return jax.lax.scan(lambda total, x: (add(total, w, x), None), start, xs)[0]

    report = sv.trace(step, s(16, 16), s(4, 16, 16)).propagate(sv.Plan(MESH, (P(), P(None, "data"))))
    assert [c for c in report.collectives if c.kind == "all-reduce" and c.count == 4]
    assert bool(report.findings.of("summed-each-run")) is fires


def test_a_reshaped_collective_does_not_hide_the_other_findings():
    """XLA gathers an array in another shape than Shardy's level has it."""
    case = report_of("replicated result", "partitioned", LARGE)
    reshaped = [c for c in case.collectives if c.array is not None and len(c.shape) != len(c.array)]
    assert case.findings.of("result-gathered") or not reshaped


def test_what_a_donation_saves_is_at_most_its_results():
    fault = FAULTS["replicated optimizer"]
    report = sv.trace(fault.fn, *fault.args(LARGE)).propagate(plan_of("replicated optimizer", True))
    (finding,) = report.findings.of("not-donated")
    assert "saves at most" in finding.text and finding.numbers["bytes"] == total_bytes(report.outputs)


def of_cache(carried: bool, donated: bool) -> sv.Program:
    """A step of decoding whose cache a loop carries, or stacks anew."""
    weights, cache, x = programs.of_decode(LARGE)

    def step(weights, caches, x):
        x, keys = (programs.decode if carried else programs.decode_stacked)(weights, caches[0], x)
        return x, (keys,)

    return sv.trace(step, weights, (cache,), x, donate_argnums=(1,) * donated)


@pytest.mark.long
@pytest.mark.parametrize(
    ("carried", "donated", "rule"),
    [(True, True, ""), (True, False, "not-donated"), (False, True, "donation-copied"), (False, False, "")],
)
@pytest.mark.tpu
def test_what_is_copied_of_a_cache_is_named_with_the_time_that_the_compiler_gives_it(carried, donated, rule):
    """Of what a loop carries a donated argument's parts are written in place; of what it stacks none are."""
    plan = sv.Plan(MESH, (programs.TENSOR, (programs.HEADS,), P("data")), (P("data"), (programs.HEADS,)))
    program, best = of_cache(carried, donated), of_cache(True, True)
    compiled, least = (sv.cost(each.compile(plan, MACHINE), MACHINE).seconds for each in (program, best))
    for report in (program.propagate(plan), program.partition(plan, MACHINE)):
        named = [f for f in report.findings_on(MACHINE) if f.rule in ("not-donated", "donation-copied")]
        assert [f.rule for f in named] == ([rule] if rule else [])
        for finding in named:
            assert finding.numbers["seconds"] == pytest.approx(compiled - least, rel=0.05)
            assert finding.severity == "warning" and bool(finding.suggestions) == (rule == "not-donated")


def test_a_donation_saves_no_more_than_the_compiler_holds_in_new_outputs():
    program = sv.trace(lambda state, x: {"w": state["w"] + jnp.sum(x)}, {"w": s(1024, 1024)}, s(8))
    plan = sv.Plan(MESH, (P(), P()), P())
    for report in (program.propagate(plan), program.compile(plan)):
        (finding,) = report.findings.of("not-donated")
        assert finding.numbers["bytes"] == 4 * 1024 * 1024
    assert finding.numbers["bytes"] <= report.memory.outputs - report.memory.aliased
