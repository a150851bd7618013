"""Each rule finds what it is for, with its line and numbers, and nothing in the program that does the same well."""

from __future__ import annotations

import math
from functools import cache

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from shardviz.costs.orders import orders
from shardviz.costs.step_cost import cost_of
from shardviz.diagnose import case as diagnosed
from shardviz.diagnose.findings import BRIEFS, brief
from shardviz.judge.report import Report
from shardviz.records import Finding
from shardviz.records.amounts import format_bytes
from shardviz.records.findings import SEVERITIES, SUGGESTIONS
from shardviz.records.report import values_of
from tests.diagnose.programs import FIRES, Case, loop_over_same
from tests.programs import MACHINES as PRESETS_ON
from tests.programs import programs_on

pytestmark = pytest.mark.slow


def of(rule: str, case: Case) -> tuple[Report, list]:
    report = case.report
    return report, [f for f in case.findings(report) if f.rule == rule.partition("/")[0]]


@pytest.mark.parametrize("rule", FIRES)
def test_it_fires_where_it_must_and_names_the_line(rule):
    case = FIRES[rule][0]
    report, found = of(rule, case)
    assert found, [f.id for f in case.findings(report)]
    if case.line is not None:
        assert found[0].source is not None and found[0].source.line == case.line
    names = {v.name for v in values_of(report)} | {""}
    for finding in found:
        assert finding.value in names
        assert {m.target for m in finding.suggestions} <= names
        assert all(m.kind in SUGGESTIONS and m.words for m in finding.suggestions)
        assert finding.severity in SEVERITIES and finding.numbers


@pytest.mark.parametrize("rule", FIRES)
def test_it_does_not_fire_where_all_is_well(rule):
    _, found = of(rule, FIRES[rule][1])
    assert not found, [f.text for f in found]


@pytest.mark.parametrize("mesh", [{"data": 4, "model": 1}, {"data": 2, "model": 2}])
def test_a_gather_is_named_by_its_collective(mesh):
    """Where another axis is idle, the partitioner gathers by permutes."""
    program = sv.trace(loop_over_same, *FIRES["gathered-each-run"][0].args)
    report = program.partition(sv.Plan(mesh, (P("data"), P("data"))))
    texts = [f.text for f in report.findings if f.rule == "gathered-each-run"]
    named = {"collective-permute" if "(collective-permute)" in text else "all-gather" for text in texts}
    assert named == {c.kind for c in report.collectives}


@pytest.mark.parametrize("rule", FIRES)
def test_its_numbers_are_the_reports(rule):
    case = FIRES[rule][0]
    report, found = of(rule, case)
    cost = None if case.on is None else sv.cost(report, case.on)
    for finding in found:
        numbers, value = finding.numbers, finding.value and report.value(finding.value)
        if "runs" in numbers:
            there = [c for c in report.collectives if c.source == finding.source and c.origin == "partitioner"]
            sums = {sum(c.assumed_bytes for c in some) for some in chains(there)}
            assert numbers["bytes"] in sums
            assert format_bytes(numbers["bytes"]) in finding.text + finding.why
        elif "flops" in numbers:
            assert report.cost is not None
            share = numbers["flops"] / report.cost.dot_flops
            assert numbers["share_of_flops"] == pytest.approx(share) and 0 < share <= 1
        elif finding.rule in ("less-sharded", "not-divided", "unlike-parameter"):
            assert numbers["bytes"] == value.bytes_per_device and format_bytes(numbers["bytes"]) in finding.text
        elif finding.rule == "too-much":
            assert numbers["bytes"] == cost.needs.total and numbers["usable_bytes"] == cost.needs.usable
        elif finding.rule == "padded":
            shares = [s * n for s, n in zip(value.shard_shape, (4, 1), strict=True)]
            assert numbers["wasted_bytes"] == numbers["bytes"] * (1 - value.shape[0] / shares[0])
            assert numbers["size"] % 4 == 0 and numbers["size"] - 4 < value.shape[0] <= numbers["size"]
        elif rule == "result-gathered/gradient":
            assert numbers["bytes"] == value.bytes_per_device and format_bytes(numbers["bytes"]) in finding.text
        elif finding.rule == "kept-dominates":
            assert numbers["bytes"] == report.residual_bytes
        if cost is not None and "share" in numbers:
            assert numbers["share"] == pytest.approx(numbers["seconds"] / cost.seconds)


def chains(there: list) -> list[list]:
    """Every way to take some of a few."""
    return [[c for i, c in enumerate(there) if mask >> i & 1] for mask in range(1, 2 ** len(there))]


@pytest.mark.parametrize("rule", ["less-sharded", "not-divided", "unlike-parameter", "idle-axis"])
def test_what_it_suggests_for_an_argument_saves_what_it_says(rule):
    case = FIRES[rule][0]
    report, (finding, *_) = of(rule, case)
    if finding.suggestions[0].kind == "pad":
        assert finding.suggestions[0].size % report.mesh.shape[finding.axes[0]] == 0
        return
    (fix, *_) = [m for m in finding.suggestions if m.kind == "argument"]
    plan = sv.Plan(case.mesh, edits={v.name: v.spec for v in report.arguments} | {fix.target: fix.spec})
    after = case.program.propagate(plan)
    assert not [f for f in after.findings if f.id == finding.id]
    saved = report.value(fix.target).bytes_per_device - after.value(fix.target).bytes_per_device
    if "saved_bytes" in finding.numbers:
        assert saved == finding.numbers["saved_bytes"]


@pytest.mark.parametrize("rule", ["less-sharded", "not-divided", "unlike-parameter"])
def test_what_hardly_fills_a_machine_is_no_warning_there(rule):
    case = FIRES[rule][0]
    report, (finding, *_) = of(rule, case)
    machine = "tpu v5p:2x2x1" if report.mesh.size == 4 else "tpu v5p:2x2x2"
    (there, *_) = [f for f in report.findings_on(machine) if f.id == finding.id]
    small = finding.numbers["saved_bytes"] < 0.01 * sv.cost(report, machine).needs.usable
    assert (finding.severity, there.severity, small) == ("warning", "note", True)


@pytest.mark.parametrize(
    ("part", "share", "grave"),
    [(0.05, None, True), (0.04, None, False), (0.02, 0.04, True), (0.06, 0.035, False), (0.005, 0.5, False)],
)
def test_a_move_is_a_warning_by_its_part_of_all_that_moves_or_of_the_step(part, share, grave):
    known = diagnosed.Case(FIRES["gathered-each-run"][0].report)
    moved = {"bytes": part * known.moved_bytes} | ({} if share is None else {"share": share})
    assert known.grave(moved) is grave


EXAMPLES = {
    "mlp": {},
    "llama": {"layers": 2},
    "moe": {},
    "pipeline": {},
    "ring": {"length": 32768},
    "decoder": {"layers": 1},
    "gpt_2021": {"layers": 1},
    "resnet": {"depth": 26},
}


@cache
def example_of(name: str) -> gallery.Example:
    return getattr(gallery, name)(**EXAMPLES[name])


MACHINES = {
    8: ["tpu v5e:2x4", "tpu v5p:2x2x2", "tpu v4:2x2x2", "gpu h100:1x8", "gpu h100:2x4"],
    16: ["tpu v5e:4x4", "tpu v5p:2x2x4", "tpu v4:2x2x4", "gpu h100:2x8"],
    32: ["tpu v5e:4x8", "tpu v5p:2x4x4", "tpu v4:2x4x4", "gpu h100:4x8"],
    64: ["tpu v5e:8x8", "tpu v5p:4x4x4", "tpu v4:4x4x4", "gpu h100:8x8"],
}
"""Number of devices → machines of that size."""


def in_best_order(program: sv.Program, plan: sv.Plan, machine: str) -> sv.Plan:
    """The plan with the devices in the order in which its collectives take least time on a machine."""
    best = min(
        orders(sv.cost(program.propagate(plan), machine)), key=lambda order: (order.communication, not order.now)
    )
    return plan if best.now else plan.with_mesh(best.mesh)


@pytest.mark.parametrize("name", EXAMPLES)
def test_good_plans_raise_nothing_above_a_note(name):
    example = example_of(name)
    report = example.program.propagate(example.plan)
    assert len({f.id for f in report.findings}) == len(report.findings)
    assert not [f.text for f in report.findings if f.severity != "note"]
    for machine in MACHINES[report.mesh.size]:
        placed = example.program.propagate(in_best_order(example.program, example.plan, machine))
        assert not [(machine, f.text) for f in placed.findings_on(machine) if f.severity != "note"]


ROOM = {(8, "llama"): "tpu v5p:2x2x2"}
"""Where a program fits that is trained on as many chips as it is presented for, but not on these."""


@pytest.mark.long
@pytest.mark.parametrize(("chips", "name"), [(64 if n in ("llama", "scanned") else 8, n) for n in programs_on(8)])
def test_the_best_preset_that_fits_raises_nothing_above_a_note(chips, name):
    target, mesh = PRESETS_ON[chips]
    target = ROOM.get((chips, name), target)
    program = programs_on(chips)[name]()
    presets = program.presets(mesh, target=target)
    propagated = {row.name: row.report for row in presets.rows if row.report is not None}
    steps = {name: cost.seconds for name in propagated if (cost := sv.cost(propagated[name], target)).needs.may_fit}
    near = [name for name in steps if steps[name] <= 2 * min(steps.values())]  # no level is off by as much
    reports = {name: program.partition(presets[name], target) for name in near}
    costs = {name: sv.cost(report, target) for name, report in reports.items()}
    best = min((name for name in near if costs[name].needs.may_fit), key=lambda name: costs[name].seconds)
    plan = in_best_order(program, presets[best], target)  # the mesh's order is no matter of the preset
    for report in (program.propagate(plan), program.partition(plan, target)):
        assert not [f.text for f in report.findings_on(target) if f.severity != "note"], best


@pytest.mark.parametrize("name", ["moe", "pipeline"])
def test_what_needs_the_links_most_is_last_in_the_mesh(name):
    """Where the axis of the gradients is first, they go over the network, and the finding says what the order costs."""
    example = example_of(name)
    other = example.plan.with_mesh(dict(reversed(example.mesh.items())))
    costs = [cost_of(example.program.propagate(p), "gpu h100:4x8") for p in (example.plan, other)]
    (slow,) = example.program.propagate(other).findings_on("gpu h100:4x8").of("slow-order")
    assert slow.severity == "warning"
    assert slow.axes == ("data",)
    assert slow.numbers["best_seconds"] == pytest.approx(costs[0].step.communication)
    assert slow.numbers["communication_seconds"] == pytest.approx(costs[1].step.communication)


@pytest.mark.parametrize("name", ["mlp", "llama", "moe", "decoder"])
def test_good_plans_raise_nothing_above_a_note_when_partitioned(name):
    example = example_of(name)
    findings = example.program.partition(example.plan).findings
    assert {f.severity for f in findings} <= {"note"}, [f.text for f in findings]


def test_findings_are_ranked_and_kept():
    case = FIRES["too-much"][0]
    report = case.report
    found = report.findings_on(case.on)
    assert [f.severity for f in found] == sorted((f.severity for f in found), key=SEVERITIES.index)
    assert found[0].rule == "too-much" and found[0].severity == "error"
    assert report.findings is report.findings
    assert "_findings" not in report.to_json() and Report.from_json(report.to_json()) == report
    assert Report.from_json(report.to_json()).findings == report.findings


def test_nothing_in_a_finding_is_negative_or_endless():
    for fires, _ in FIRES.values():
        for finding in fires.findings(fires.report):
            assert all(math.isfinite(n) and n >= 0 for n in finding.numbers.values()), finding


@pytest.mark.parametrize("rule", BRIEFS)
def test_a_row_says_its_cause_in_twelve_words(rule):
    finding = Finding(f"{rule}:w", "warning", "", value="w", axes=("data", "model"), numbers={"arrays": 3.0})
    assert len(brief(finding).split()) <= 12
