"""The machine on the page: the headline, the memory tab, the collectives as they run, and what may be chosen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from shardviz.costs.step_cost import StepCost
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.paint import text as summary
from shardviz.records import Cost, Frame, TargetCollective, Work, total_of
from tests.page.documents import card, kpi, rows, said, table

W1 = "params['w1']"
V5E = "tpu v5e:2x4"
INSTALL = "pip install 'shardviz[tpu]'"  # as the fixture `compilers` has it


@pytest.fixture
def state(program, plan, compilers):
    return ExplorerState(program, plan, debounce=60, target=V5E)


def test_the_summary_says_it_in_words(state):
    assert f"\nstep on {V5E}: at least" in summary(state) and f"\nmemory on {V5E}: not known whether" in summary(state)
    state.add_axis("odd", 3)
    assert f"\nno cost on {V5E}: " in summary(state)


def priced(explorer) -> StepCost:
    """What the step costs."""
    assert explorer.state.cost is not None
    return explorer.state.cost


def source_lines(explorer):
    """The lines of the source pane, by number."""
    (file,) = explorer.source["files"]
    return {int(line["n"]): line for line in file["lines"]}


def events(line):
    """What happens on a line of the source, in words."""
    return [said(each) for each in line["on"]]


def explorer_of(program, plan, target=V5E, **changes):
    """An explorer whose compile for a target has ended with a report that has `changes`."""
    explorer = Explorer(ExplorerState(program, plan, debounce=60, target=target))
    report = replace(program.compiled(plan), target=target, **changes)
    program.jobs[-1][1].on_report(replace(program.partitioned(plan), target=target))
    program.jobs[-1][1].answer(report)
    explorer.wait(timeout=5)
    return explorer


def test_before_the_plan_the_headline_has_a_lower_bound(state):
    explorer = Explorer(state)
    assert kpi(explorer, "memory per device").startswith("≥ ")
    fit, *_ = card(explorer, "memory per device")
    assert "tone" not in fit and "not known whether" in fit["tip"]


def test_the_step_is_one_number_and_its_tip_says_what_overlap_does(program, plan, compilers):
    explorer = explorer_of(program, plan, cost=Cost(dot_flops=1.97e12))
    cost, (step,) = priced(explorer), card(explorer, "step")
    assert cost.step.compute == pytest.approx(0.01), "1.97 TFLOP at 197 TFLOP/s"
    assert step["t"].startswith("10.0") and "10.0 ms with none" in step["tip"]
    assert step["tip"].endswith("bound by compute")


def test_what_is_not_counted_is_not_bounded_from_above(program, plan, compilers):
    explorer = explorer_of(program, plan)
    assert priced(explorer).flops is None and kpi(explorer, "step").startswith("≥ ")


def test_seconds_of_lines_add_up_to_the_steps(program, plan, compilers):
    frames = [Frame("model.py", line, "step") for line in (2, 3, 3)]
    work = tuple(
        Work(phase=phase, source=frame, module="", dtype="bfloat16", dot_flops=flops)
        for phase, frame, flops in zip(("forward", "forward", "backward"), frames, (1e12, 2e12, 4e12), strict=True)
    )
    runs = tuple(TargetCollective(collective=c, stands_for=(c.name,)) for c in program.partitioned(plan).collectives)
    explorer = explorer_of(program, plan, cost=Cost(dot_flops=7e12, work=work), target_collectives=runs)
    cost = priced(explorer)
    by_line = cost.compute_by_line()
    assert sum(by_line.values()) == pytest.approx(cost.step.compute)
    assert by_line["model.py", 3] == pytest.approx(6 * by_line["model.py", 2])
    assert total_of(cost.partitioned).seconds == pytest.approx(cost.step.communication)
    lines = source_lines(explorer)
    assert sum(part["share"] for part in lines[3]["bar"]) == pytest.approx(1), "the longest is the hottest"
    (computing,) = lines[2]["bar"]
    assert computing["share"] == pytest.approx(
        by_line["model.py", 2] / (by_line["model.py", 3] + cost.step.communication), abs=1e-5
    )
    assert "compute 5.08 ms" in events(lines[2])
    moved = lines[3]["bar"][1]["tip"].split(" of communication")[0]
    assert any(event.startswith("all-reduce data") and moved in event for event in events(lines[3]))


def test_without_a_machine_heat_is_bytes(program, plan):
    explorer = explorer_of(program, plan, target="cpu", cost=Cost(dot_flops=7e12))
    row = source_lines(explorer)[3]
    (moved,) = row["bar"]
    assert moved["share"] == 1 and moved["axes"]
    assert not any(re.search(r"\d [mµ]?s\b", said) for said in (moved["tip"], *events(row)))
    explorer.tab = "collectives"
    heads = [c.get("title") for c in table(explorer.collectives["document"]["blocks"], "collectives-table")["columns"]]
    assert "total per device" in heads and "time" not in heads


def test_collectives_as_partitioned_and_as_the_target_runs_them(program, plan, compilers):
    (move,) = program.partitioned(plan).collectives
    named = replace(move, name="all-reduce.1")
    again = replace(named, name="reduce-scatter.7", kind="reduce-scatter", result_bytes=8192.0, count=1)
    own = replace(named, name="all-gather.9", kind="all-gather", axes=("model",))
    explorer = explorer_of(
        program,
        plan,
        collectives=(named,),
        target_collectives=(
            TargetCollective(collective=again, stands_for=("all-reduce.1",), how=("turned", "moved")),
            TargetCollective(collective=own, stands_for=(), how=("added",)),
        ),
    )
    explorer.tab = "collectives"
    blocks, cost = explorer.collectives["document"]["blocks"], priced(explorer)
    assert cost.as_run and V5E in said(table(blocks, "collectives-moved")["pieces"])
    (row,) = table(blocks, "collectives-table")["rows"]
    assert said(row["cells"][-1]) == "6.00 µs" and "reduce-scatter.7: 6 hops" in said(row["detail"][0]["pieces"])
    turned, added = table(blocks, "target-runs")["rows"]
    kind, axes, _, count, took, how, stands_for = map(said, turned["cells"])
    assert (kind, axes, count, took) == ("reduce-scatter reduce-scatter.7", "data", "1", "6.00 µs")
    assert (how, stands_for) == ("changed into another kind, moved out of a loop", "all-reduce.1")
    assert said(turned["detail"][0]["pieces"]).startswith("6 hops x 1.00 µs")
    assert said(added["cells"][0]).startswith("all-gather") and "added" in said(added["cells"][5])
    assert "1 added by the target's compiler" in said(table(blocks, "collectives-runs")["lead"])
    (timed_move,) = cost.partitioned
    assert timed_move.kind == "all-reduce" and timed_move.total_seconds == pytest.approx(6e-6), "what runs in its place"
    assert cost.partitioned_seconds == pytest.approx(48e-6), "as it would run itself: 4 times 12 hops"


def test_before_the_plan_the_memory_tab_says_that_it_is_not_all(state):
    explorer = Explorer(state)
    explorer.tab = "memory"
    blocks = explorer.memory["document"]["blocks"]
    verdict = said(table(blocks, "memory-verdict")["pieces"])
    assert verdict.startswith("not known whether it fits") and "≥" in verdict
    assert rows(explorer.memory, "memory-parts")[-3][0] == "together"
    alive = table(blocks, "memory-alive")["rows"]
    assert [said(row["cells"][2]) for row in alive] == ["argument"] * 3
    assert alive[0]["cells"][3]["sel"] in (["value", W1], ["value", "params['w2']"])
    state.set_target("cpu")
    blocks = explorer.memory["document"]["blocks"]
    assert "no machine is chosen" in said(table(blocks, "memory-verdict")["pieces"])
    assert "usable" not in [row[0] for row in rows(explorer.memory, "memory-parts")]


def test_the_chooser_offers_what_the_state_takes(program, plan, compilers):
    compilers(tpu=False)
    state = ExplorerState(program, plan, target="cpu", level="propagated")
    explorer = Explorer(state)
    tpu, gpu = explorer.targets["groups"]
    assert (tpu["kind"], tpu["ready"], tpu["install"], gpu["ready"]) == ("TPU", False, INSTALL, True)
    offered = [o["target"] for g in (tpu, gpu) for c in g["chips"] for o in c["options"]]
    assert len(offered) >= 12
    for target in offered:
        assert state.set_target(target), state.error
        on = [o for g in explorer.targets["groups"] for c in g["chips"] for o in c["options"] if o["on"]]
        assert [o["target"] for o in on] == [target] and explorer.targets["target"] == target
        assert (explorer.targets["lack"] is None) is target.startswith("gpu")


def test_a_mesh_axis_over_slices_brings_several_slices(program, plan, compilers):
    state = ExplorerState(program, plan, level="propagated")
    state.add_axis("dcn", 2)
    options = {
        c["name"]: [o["target"] for o in c["options"]] for g in Explorer(state).targets["groups"] for c in g["chips"]
    }
    assert options["v5e"] == ["tpu v5e:2x4*2", "tpu v5e:4x4"]


def test_chips_without_such_a_topology_say_what_they_have(program, plan, compilers):
    state = ExplorerState(program, plan, level="propagated")
    state.add_axis("odd", 3)
    tpu, gpu = Explorer(state).targets["groups"]
    assert {c["name"]: c.get("none") for c in tpu["chips"]}["v5e"] == "has 16 or 32 devices, not 24"
    assert all(c["options"] for c in gpu["chips"])


def test_the_page_is_told_once_for_each_change(state, program):
    explorer = Explorer(state)
    sent = []
    explorer.observe(lambda change: sent.append(change["name"]), ["head", "source", "collectives", "targets", "inputs"])
    state.set_target("tpu v5p:2x2x2")
    assert sorted(sent) == sorted(set(sent)) and {"head", "targets"} <= set(sent)
    sent.clear()
    state.set_dim(W1, 0, ["data"])
    assert "targets" not in sent, "what may be chosen depends on the mesh's size alone"
