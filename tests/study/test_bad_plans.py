"""Of bad plans the first two rows name the cause, and following the first fix leads to the step of the expert's plan.

    python -m tests.study.test_bad_plans [name ...]

prints what is said and reached for each plan, and the score. What is said is asked of the partitioner's report, as the
page does; the steps are those of the target's compiler, which removes some faults by itself.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache

import jax
import pytest

import shardviz as sv
from shardviz.diagnose.case import total_bytes
from shardviz.records import Finding
from shardviz.study.fixes import Fix
from tests.study import bad_plans, library_bad_plans, more_bad_plans, strangers_bad_plans
from tests.study.bad_plans import MACHINE, Bad
from tests.study.strangers_bad_plans import Stranger

OWN = bad_plans.BAD | more_bad_plans.MORE | library_bad_plans.OF_LIBRARIES
BAD: dict[str, Bad | Stranger] = OWN | strangers_bad_plans.OF_STRANGERS
PLANS = [
    pytest.param(name, marks=pytest.mark.skipif(bool(bad.missing), reason=bad.missing))
    if isinstance(bad, Stranger)
    else name
    for name, bad in BAD.items()
]
GRAPH = "nodes of Jraph's network sharded against their edges"
COMPILED = [*list(OWN)[::2], "weights replicated, and held so"]
COMPILED += PLANS[len(OWN) :]
"""The plans whose fixes are followed here; the others are followed by this file's own command."""
FOLLOWED = 6
"""How many fixes are followed at most."""
NEAR = 1.05
"""How much longer than the expert's a step may be."""


def bad_of(name: str) -> Bad:
    bad = BAD[name]
    return bad.make() if isinstance(bad, Stranger) else bad


def plan_of(bad: Bad, good: bool = False) -> sv.Plan:
    if not good:
        return sv.Plan(bad.mesh, bad.specs, bad.out)
    specs, out = bad.good or bad.specs, bad.good_out or bad.out
    return sv.Plan(bad.mesh, specs, out)


def report_of(program: sv.Program, plan: sv.Plan, level: str) -> sv.Report:
    return program.propagate(plan) if level == "propagated" else program.partition(plan, MACHINE)


@dataclass(frozen=True)
class Followed:
    """What is said of a bad plan, and where its fixes lead.

    Attributes:
        findings, fixes: what is said of the bad plan.
        did: the fixes that were followed, in order.
        steps: seconds per step of the bad plan, of the expert's, and at the end.
        holds: bytes of arguments per device of the same three.
        fits: whether the bad plan fits in a device's memory, and the end.
    """

    findings: tuple[Finding, ...]
    fixes: tuple[Fix, ...]
    did: tuple[Fix, ...]
    steps: tuple[float, ...]
    holds: tuple[float, ...]
    fits: tuple[bool, bool]

    @classmethod
    @cache
    def of(cls, name: str) -> Followed:
        bad = bad_of(name)
        program = sv.trace(bad.fn, *bad.args, donate_argnums=bad.donated)
        better = program if bad.better is None else sv.trace(bad.better, *bad.args, donate_argnums=bad.donated)
        plan, did, fixes = plan_of(bad), [], None
        report = program.partition(plan, MACHINE)
        findings = tuple(report.findings_on(MACHINE))
        while len(did) < FOLLOWED:
            offered = tuple(sv.fixes(program, report, MACHINE, plan=plan, seconds=120))
            fixes = offered if fixes is None else fixes
            quick = lambda fix: fix.for_memory or (fix.seconds or 0.0) >= -0.01 * (fix.step or 0.0)
            best = next(filter(quick, offered), None)
            if best is None:  # the others trade seconds for memory
                break
            plan = best.plan
            report = program.partition(plan, MACHINE)
            did.append(best)
        ends = (program, plan_of(bad)), (better, plan_of(bad, True)), (program, plan)
        reports = [each.compile(its, MACHINE) for each, its in ends]
        steps = tuple(sv.cost(each, MACHINE).seconds for each in reports)
        holds = tuple(total_bytes(each.arguments) for each in reports)
        fits = (reports[0].memory.fits is not False, reports[-1].memory.fits is not False)
        return cls(findings, fixes or (), tuple(did), steps, holds, fits)

    def named(self, cause: str) -> tuple[bool, bool]:
        """Whether the first two findings, and the first two fixes, name a cause."""
        findings = (" ".join((f.text, f.why, *(s.words for s in f.suggestions))) for f in self.findings[:2])
        fixes = (" ".join((fix.action, fix.write, *(f.text for f in fix.findings[:1]))) for fix in self.fixes[:2])
        one, other = (any(re.search(cause, row, re.IGNORECASE) for row in rows) for rows in (findings, fixes))
        return one, other

    def reaches(self, memory: bool) -> bool:
        """Whether the end is as quick as the expert's plan, and fits; if `memory` counts and the bad plan fits, too,
        its arguments take no more memory."""
        _, goal, end = self.steps
        _, less, held = self.holds
        return end <= NEAR * goal and self.fits[1] and (not (memory and self.fits[0]) or held <= NEAR * less)

    @property
    def agrees(self) -> bool:
        """Whether the first fix is against the first finding."""
        first = self.fixes[:1]
        return not first or (bool(self.findings) and self.findings[0].id in {f.id for f in first[0].findings})


@pytest.mark.tpu
@pytest.mark.long
@pytest.mark.parametrize("name", COMPILED)
def test_the_first_rows_name_the_cause_and_following_the_first_ends_at_the_expert_s_step(name):
    followed, bad = Followed.of(name), bad_of(name)
    is_mended = name in MENDED and jax.__version_info__ >= (0, 12)
    assert is_mended or any(followed.named(bad.cause)), (followed.findings[:2], followed.fixes[:2])
    assert followed.reaches(bad.memory), (followed.steps, followed.did)
    before, _, after = followed.steps
    assert after <= 1.01 * before or not followed.fits[0]  # a step that does not fit cannot be run at all


MENDED = ("weights gathered in each microbatch",)
"""Plans whose cause JAX 0.12 removes by itself: it gathers before the loop."""
UNQUIET = {
    (GRAPH, "propagated"): "table-gathered",  # all nodes are looked up from everywhere
    (GRAPH, "partitioned"): "table-gathered",
    ("stages of a pipeline replicated", "propagated"): "along-shards",  # Shardy of JAX 0.12 reshards a reshape
    ("weights gathered in each microbatch", "propagated"): "summed-each-run",
    ("weights gathered in each microbatch", "partitioned"): "summed-each-run",  # but for a TPU's own partitioner
}
"""(plan, level) → the only rule of which the expert's plan may have a finding."""


@pytest.mark.parametrize("level", ["propagated", "partitioned"])
@pytest.mark.parametrize("name", PLANS)
def test_the_expert_s_plan_raises_nothing_above_a_note(name, level):
    bad = bad_of(name)
    report = report_of(sv.trace(bad.better or bad.fn, *bad.args, donate_argnums=bad.donated), plan_of(bad, True), level)
    found = [f for f in report.findings_on(MACHINE) if f.severity != "note"]
    assert not [f.text for f in found if f.rule != UNQUIET.get((name, level))]


def test_a_teacher_is_no_optimizer_s_state_though_its_arrays_are_called_as_the_student_s():
    bad = OWN["teacher replicated"]
    findings = sv.trace(bad.fn, *bad.args).propagate(plan_of(bad)).findings_on(MACHINE)
    assert not findings.of("unlike-parameter") and findings[0].rule == "repeated-work"
    assert "teacher" in findings[0].suggestions[0].words


@pytest.mark.parametrize("level", ["propagated", "partitioned"])
@pytest.mark.parametrize(
    ("name", "rule", "words"),
    [
        ("float32 gathered, then cast", "gathered-wide", "cast before the array is gathered at bad_plans.py:"),
        (
            "int8 dequantised before it is gathered",
            "gathered-wide",
            "cast after the array is gathered at bad_plans.py:",
        ),
        ("psum where psum_scatter would do", "sum-sliced", "jax.lax.psum_scatter(..., tiled=True) in place of psum"),
        (
            "weight gathered in each step of a loop in a shard_map",
            "gathered-each-run",
            "gather it before the loop, not at bad_plans.py:",
        ),
        (
            "gathered in a shard_map, then sliced",
            "gathered-then-sliced",
            "jax.lax.all_to_all(..., tiled=True) in place of all_gather and slice at more_bad_plans.py:",
        ),
        ("summed in float32, then cast", "gathered-wide", "cast before the array is summed at more_bad_plans.py:"),
        (
            "gathered in a shard_map, then summed",
            "gathered-then-summed",
            "jax.lax.psum in place of all_gather and sum at bad_plans.py:",
        ),
    ],
)
def test_what_a_person_has_to_write_is_said_with_its_line(name, level, rule, words):
    bad = OWN[name]
    (finding, *_) = report_of(sv.trace(bad.fn, *bad.args), plan_of(bad), level).findings_on(MACHINE)
    assert (finding.rule, finding.severity) == (rule, "warning")
    assert finding.suggestions[0].words.startswith(words)


def main(names: list[str]) -> None:
    names = names or [name for name, bad in BAD.items() if isinstance(bad, Bad) or not bad.missing]
    score = dict.fromkeys(("findings", "fixes", "either", "reached", "agree"), 0)
    for name in names:
        bad, followed = bad_of(name), Followed.of(name)
        findings, fixes = followed.named(bad.cause)
        rows = findings, fixes, findings or fixes, followed.reaches(bad.memory), followed.agrees
        score = {what: score[what] + row for what, row in zip(score, rows, strict=True)}
        steps = " ".join(f"{each * 1e3:.2f}" for each in followed.steps)
        print(f"{name}: {steps} ms;", *(what for what, row in zip(score, rows, strict=True) if row))
        print(*(f"    finding: {f.severity} {f.text[:160]}" for f in followed.findings[:2]), sep="\n")
        print(*(f"    fix: {fix.text[:180]}" for fix in followed.fixes[:2]), sep="\n")
        print("    followed:", "; ".join(fix.action for fix in followed.did), flush=True)
    print(f"of {len(names)}:", ", ".join(f"{what} {count}" for what, count in score.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
