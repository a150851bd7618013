"""What a finding suggests, made: at the partitioner's level it is gone then, and less moves or lies there.

A constraint does what the function does that was edited as the plan's code says.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.ask.program import resharded_state
from shardviz.judge.report import Report
from shardviz.records import Finding
from shardviz.study.proposing import Proposals
from tests.diagnose import programs
from tests.diagnose.programs import FIRES, GATHERED, Case
from tests.plan.edited import as_told, edited, module_of, said
from tests.plan.test_code import reported, run  # noqa: F401 - a fixture

PLANS = ("argument", "output", "constrain")


def partitioned(rule: str) -> tuple[Case, Report, Finding]:
    """The case at the partitioner's level, and the first finding of the rule."""
    case = replace(FIRES[rule][0], level="partitioned", on=None)
    report = case.report
    found = [f for f in report.findings if f.rule == rule.partition("/")[0]]
    return case, report, next((f for f in found if any(m.kind in PLANS for m in f.suggestions)), found[0])


def fixed(case: Case, report: Report, finding: Finding, kinds: tuple[str, ...] = PLANS) -> sv.Plan:
    """The plan with all that the finding asks of outputs, or the first change of another kind that a plan can say."""
    going = Proposals(case.program, report, None, case.plan, 5)
    outputs = [m for m in finding.suggestions if m.kind == "output" and m.kind in kinds]
    plan = case.plan
    for fix in outputs:
        plan = plan.with_spec(fix.target, fix.spec, output=True)
    if outputs:
        return plan
    plans = (going.suggested(m) for m in finding.suggestions if m.kind in kinds)
    return next(plan for plan in plans if plan is not None)


MOVES = [
    "operands-unlike",
    "conflict/batch",
    "unpaired",
    "gathered-each-run",
    "along-shards",
    "along-shards/concatenate",
    "along-shards/update",
    "table-gathered",
    "conflict",
]
HOLDS = ["less-sharded", "unlike-parameter", "comes-back-otherwise", "idle-axis", "repeated-work"]
HOLDS += ["read-in-slices", "result-gathered", "partial-sums", "halo", "result-gathered/gradient", "kept-whole"]


@pytest.mark.parametrize("rule", [*MOVES, *HOLDS])
def test_what_was_fixed_is_not_found_again(rule):
    case, report, finding = partitioned(rule)
    after = case.program.partition(fixed(case, report, finding))
    again = [f for f in after.findings if f.id == finding.id]
    if rule == "less-sharded":  # one of two
        assert len([f for f in report.findings if f.rule == rule]) > len([f for f in after.findings if f.rule == rule])
    assert not again, [f.text for f in again]
    if rule in MOVES:
        bytes_moved = [sum(c.assumed_bytes for c in r.collectives if c.kind != "all-reduce") for r in (report, after)]
        assert bytes_moved[0] - bytes_moved[1] >= 0.5 * finding.numbers["bytes"]


def test_what_is_kept_takes_as_much_less_as_was_said():
    case, report, finding = partitioned("kept-whole")
    plan = fixed(case, report, finding, ("constrain",))
    kept = [case.program.propagate(p).residual_bytes for p in (case.plan, plan)]
    assert kept[0] - kept[1] == finding.numbers["saved_bytes"]


def test_what_was_too_much_is_as_much_less_as_was_said():
    case = replace(FIRES["too-much"][0], level="partitioned")
    (finding,) = [f for f in case.findings(case.report) if f.rule == "too-much"]
    plan = fixed(case, case.report, finding)
    after = case.program.partition(plan, case.on)
    needs = [sv.cost(r, case.on).needs for r in (case.report, after)]
    assert [n.fits for n in needs] == [False, None] or [n.fits for n in needs] == [False, True]
    less = needs[0].parts["arguments"] - needs[1].parts["arguments"]
    assert less == finding.numbers["saved_bytes"] >= finding.numbers["over_bytes"]


@pytest.mark.long
@pytest.mark.parametrize("rule", ["less-sharded", "unlike-parameter"])
def test_the_code_of_an_argument_s_fix_runs_as_the_report_says(rule, run, tmp_path):  # noqa: F811
    case, report, finding = partitioned(rule)
    plan = fixed(case, report, finding, ("argument",))
    code = case.program.code(plan)
    (fix,) = finding.suggestions[:1]
    assert str(fix.spec).replace(", None)", ")") in code.replace('"', "'")
    root = Path(__file__).parents[2]
    before = f"import sys\nsys.path.insert(0, {str(root)!r})\nfrom tests.diagnose.programs import FIRES\n"
    before += f"args = FIRES[{rule!r}][0].args\n"
    has = run(tmp_path, before, code, "step", "*args")
    after = case.program.partition(plan)
    held = {v.name: v.spec for v in after.arguments}
    pinned = {result: held[name] for name, result in resharded_state(case.program, plan).items()}  # so that steps chain
    chained = replace(after, outputs=tuple(replace(v, spec=pinned.get(v.name, v.spec)) for v in after.outputs))
    assert has == reported(chained)


BY_HAND = {
    "there-and-back": ('constrained(constrained(x, P(None, "data")), P("data"))', 'constrained(x, P("data"))'),
    "padded": ("    return jnp.tanh(x[1:])", "    return jnp.tanh(x[0:])"),
    "large-constant": (
        "def looks_up(x):\n    return jnp.tanh(x) @ TABLE",
        "def looks_up(x, t):\n    return jnp.tanh(x) @ t",
    ),
}


@pytest.mark.parametrize("rule", BY_HAND)
def test_what_only_a_person_can_write_helps_too(rule, tmp_path):
    case, report, finding = partitioned(rule)
    assert {m.kind for m in finding.suggestions} == {"code"}
    by_hand = getattr(edited(programs, tmp_path, BY_HAND[rule]), case.fn.__name__)
    more = ((programs.s(512, 1024),), (P(None, "model"),)) if rule == "large-constant" else ((), ())
    plan = sv.Plan(case.mesh, (*case.specs, *more[1]), case.out)
    after = sv.trace(by_hand, *case.args, *more[0], **case.options).partition(plan)
    assert not [f for f in after.findings if f.rule == rule]
    if "runs" in finding.numbers:
        bytes_moved = [sum(c.assumed_bytes for c in r.collectives) for r in (report, after)]
        assert bytes_moved[0] - bytes_moved[1] >= 0.5 * finding.numbers["bytes"]


def test_a_constraint_is_that_of_the_function_edited_as_the_code_says(tmp_path):
    case = GATHERED
    (value,) = (v for v in case.report.intermediates if v.label == "x")
    plan = case.plan.constrain(value, P("data"))
    text = as_told(case.program.code(plan), inspect.getsource(programs))
    assert text.count("with_sharding_constraint") == inspect.getsource(programs).count("with_sharding_constraint") + 1
    made = module_of(text, tmp_path / f"{case.fn.__name__}_edited.py")
    by_hand = sv.trace(getattr(made, case.fn.__name__), *case.args, **case.options)
    assert said(case.program.partition(plan)) == said(by_hand.partition(case.plan))
