"""The machine in the explorer's state: choosing one, what follows at once, and how it keeps in step with the mesh."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from shardviz.compiler import targets as installed
from shardviz.costs import Machine, chip
from shardviz.costs.costing import cost_of
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.records import Cost, Frame, Memory, TargetCollective, Work
from shardviz.session.explorer import ExplorerState
from shardviz.widgets.explorer import Explorer
from shardviz.widgets.summary import summary
from shardviz.widgets.timing import compute_seconds, step_seconds, timed

W1 = "params['w1']"
V5E = "tpu v5e:2x4"
INSTALL = "pip install 'shardviz[tpu]'"  # as conftest's `compilers` has it


@pytest.fixture
def state(program, plan, compilers):
    return ExplorerState(program, plan, debounce=60, target=V5E)


def hurry(state):
    """Starts the compile that waits for the pause after a change."""
    state.loop.hurry()


def answer(program, level, place=-1):
    """The compiler answers the newest job at a level."""
    plan, job = program.jobs[place]
    report = getattr(program, level)(plan)
    asked = program.asked[place][1]
    report = replace(report, target=asked)
    if level == "compiled" or program.asked[place][0] == level:
        job.answer(report)
    else:
        job.on_report(report)


# What follows from a target.


def test_it_opens_with_a_cost_and_compiles_for_the_machine(state, program):
    assert program.asked == [("compiled", V5E)] and state.message == f"compiling for {V5E}"
    assert state.target == V5E and state.cost.machine == state.machine and state.cost.level == "propagated"
    assert state.cost_error == state.missing == state.target_remark == ""


def test_at_every_level_the_cost_is_the_reports(state, program):
    for level in ("partitioned", "compiled"):
        answer(program, level)
        assert state.level == level
        expected = cost_of(state.report, V5E)
        assert (state.cost.level, state.cost.lower) == (level, expected.lower)
        assert [c.seconds for c in state.cost.collectives] == [c.seconds for c in expected.collectives]


def test_cpu_has_no_cost_and_that_is_no_error(program, plan):
    state = ExplorerState(program, plan, debounce=60)
    assert (state.target, state.cost, state.cost_error, state.missing) == ("cpu", None, "", "")
    assert program.asked == [("compiled", "cpu")] and "simulated" in state.message


def test_tokens_and_flops_of_the_model_reach_the_cost(program, plan, compilers):
    state = ExplorerState(program, plan, target=V5E, tokens=4096, model_flops=1e9, level="propagated")
    assert state.cost.step.tokens == 4096 and state.cost.step.model_flops == 1e9
    with pytest.raises(ShardvizError, match="tokens=-1"):
        ExplorerState(program, plan, tokens=-1)


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("tpu v5e:4x4", MeshError, "8 devices and the target tpu v5e:4x4 has 16.*a target that would do: tpu v5e:2x4"),
        ("tpu v9:2x2", TargetError, "no chip 'v9'"),
        ("tpu v5e:3x3", TargetError, "v5e has no 3x3"),
        ("", TargetError, "expected 'tpu v5p:4x4x4'"),
    ],
)
def test_a_bad_target_is_refused_with_what_would_do(program, plan, state, target, error, words):
    with pytest.raises(error, match=words):
        ExplorerState(program, plan, target=target)
    before = (state.plan, state.report, state.machine, state.cost, state.past)
    assert state.set_target(target) is False
    assert state.error["place"] == "target" and state.error["kind"] == error.__name__
    assert (state.plan, state.report, state.machine, state.cost, state.past) == before
    assert not program.jobs[-1][1].stopped, "the compile that was under way goes on"


@pytest.mark.parametrize(
    ("typed", "target"),
    [("v5p", "tpu v5p:2x2x2"), ("tpu v6e", "tpu v6e:2x4"), ("H100", "gpu h100:1x8"), ("gpu a100:", "gpu a100:1x8")],
)
def test_a_chip_alone_stands_for_its_most_cube_like_topology(state, typed, target):
    assert state.set_target(typed) and state.target == target


def test_a_chip_of_ones_own(state, program):
    mine = Machine(dataclasses.replace(chip("v5e"), name="mine", hbm_bytes=1e12), (2, 4))
    assert state.set_target(mine) and state.target == "tpu mine:2x4" and state.cost.machine is mine
    assert state.resize_axis("data", 8) and state.target == "tpu mine:4x4", "it follows the mesh as any other"
    assert "'mine'" in state.missing
    hurry(state)
    assert program.asked[-1] == ("partitioned", "cpu"), "libtpu knows no such chip"


def test_the_summary_says_it_in_words(state):
    assert f"\nstep on {V5E}: at least" in summary(state) and f"\nmemory on {V5E}: not known whether" in summary(state)
    state.add_axis("odd", 3)
    assert f"\nno cost on {V5E}: " in summary(state)


# Another target for the same plan.


def test_what_is_known_stays_until_the_new_compiler_answers(state, program):
    answer(program, "partitioned")
    here, old = state.report, state.cost
    assert state.set_target("tpu v5p:2x2x2")
    assert program.jobs[0][1].stopped
    assert state.report is here and state.level == "partitioned" and state.busy
    assert state.cost.machine.text == "tpu v5p:2x2x2" and state.cost.lower != old.lower
    assert not state.changed, "no value is cut otherwise"
    hurry(state)
    assert program.asked[-1] == ("compiled", "tpu v5p:2x2x2")
    with pytest.raises(ShardvizError, match="goes on"):
        state.wait("partitioned", timeout=0.05)
    answer(program, "partitioned")
    assert state.report is not here and state.report.target == "tpu v5p:2x2x2" and state.busy
    answer(program, "compiled")
    assert state.status == "compiled" and state.cost.compiled_for == "tpu v5p:2x2x2"


def test_another_machines_memory_plan_is_not_shown(state, program):
    answer(program, "partitioned")
    answer(program, "compiled")
    assert state.cost.needs.complete
    state.set_target("tpu v5p:2x2x2")
    assert state.level == "partitioned" and state.report.memory is None and not state.cost.needs.complete


def test_undo_and_redo_go_over_targets_and_plans_alike(state):
    steps = [(state.plan, state.target)]
    for change in (
        lambda: state.set_target("tpu v5p:2x4x1"),
        lambda: state.set_dim(W1, 0, ["data"]),
        lambda: state.set_target("cpu"),
        lambda: state.set_target("gpu h100"),
        lambda: state.resize_axis("data", 2),
    ):
        assert change()
        steps.append((state.plan, state.target))
    for step in reversed(steps[:-1]):
        assert state.undo() and (state.plan, state.target) == step
    assert not state.undo()
    for step in steps[1:]:
        assert state.redo() and (state.plan, state.target) == step
    assert not state.redo()


def test_the_same_target_is_no_change(state, program):
    report = state.report
    assert state.set_target(V5E) and state.set_target(f"  {V5E.upper()} ".lower())
    assert state.report is report and not state.past and not program.jobs[0][1].stopped


# The mesh gets another size.


def test_the_target_follows_the_mesh_and_says_so(state):
    state.resize_axis("data", 8)
    assert state.target == "tpu v5e:4x4" and state.cost.machine.size == state.report.mesh.size == 16
    assert state.target_remark == f"has followed the mesh, from {V5E} to tpu v5e:4x4"
    state.set_dim(W1, 0, ["data"])
    assert state.target_remark == "", "it is said once"


def test_undo_brings_back_the_very_topology(state):
    state.set_target("tpu v5p:2x4x1")
    state.resize_axis("data", 8)
    assert state.target == "tpu v5p:2x2x4"
    state.undo()
    assert state.target == "tpu v5p:2x4x1"


def test_a_size_that_the_chip_has_not_loses_nothing(state, program):
    assert state.add_axis("odd", 3)
    assert (state.target, state.cost) == (V5E, None)
    assert "v5e has no topology of 24 devices; make the mesh 16 or 32" in state.cost_error
    hurry(state)
    assert program.asked[-1] == ("partitioned", "cpu"), "the partitioner needs no machine"
    answer(program, "partitioned")
    assert state.status == "partitioned" and not state.busy and state.cost_error
    assert state.wait("compiled", timeout=5).level == "partitioned"
    assert state.resize_axis("odd", 4)
    assert state.target == "tpu v5e:4x8" and state.cost is not None and not state.cost_error


# An installation that cannot compile for it.


def test_without_a_compiler_it_goes_as_far_as_the_partitioner(program, plan, compilers):
    compilers(tpu=False)
    state = ExplorerState(program, plan, debounce=60, target=V5E)
    assert INSTALL in state.missing and "libtpu" in state.missing
    assert program.asked == [("partitioned", V5E)] and "simulated" in state.message
    answer(program, "partitioned")
    assert state.status == "partitioned" and not state.busy and state.cost is not None
    assert state.wait(timeout=5).level == "partitioned"
    compilers(tpu=True)
    state.recompile()
    assert state.missing == "" and program.asked[-1] == ("compiled", V5E)


def test_what_is_missing_is_the_machines_own(program, plan, compilers):
    compilers(tpu=False, gpu=True)
    state = ExplorerState(program, plan, debounce=60, target=V5E)
    state.set_target("gpu h100:1x8")
    assert state.missing == ""
    state.undo()
    assert INSTALL in state.missing


def test_with_what_is_installed_here_every_kind_says_the_same_as_the_list(program, plan):
    for target in (V5E, "gpu h100:1x8"):
        state = ExplorerState(program, plan, target=target, level="propagated")
        status = next(s for s in installed.targets() if s.name == target[:3])
        assert bool(state.missing) is not status.ready


# What the page is told.


def explorer_of(program, plan, target=V5E, **changes):
    """An explorer whose compile for a target has ended with a report that has `changes`."""
    explorer = Explorer(ExplorerState(program, plan, debounce=60, target=target))
    report = replace(program.compiled(plan), target=target, **changes)
    program.jobs[-1][1].on_report(replace(program.partitioned(plan), target=target))
    program.jobs[-1][1].answer(report)
    explorer.wait(timeout=5)
    return explorer


@pytest.mark.parametrize(
    ("memory", "verdict", "label", "text", "over"),
    [
        (
            Memory(arguments=int(4e9), outputs=0, aliased=0, temporaries=int(5e9), peak=int(9e9), target=V5E),
            "yes",
            f"fits {V5E}",
            "9.00 / 16.9 GB",
            "",
        ),
        (
            Memory(
                arguments=int(4e9),
                outputs=0,
                aliased=0,
                temporaries=int(50e9),
                peak=1,
                target=V5E,
                hbm=int(16.9e9),
                fits=False,
            ),
            "no",
            f"does not fit {V5E}",
            "54.0 / 16.9 GB",
            "37.1 GB too much",
        ),
    ],
)
def test_the_headline_says_whether_it_fits(program, plan, compilers, memory, verdict, label, text, over):
    head = explorer_of(program, plan, memory=memory).head
    fit = head["fit"]
    assert (fit["verdict"], fit["label"], fit["text"], fit["over"]) == (verdict, label, text, over)


def test_before_the_plan_the_headline_has_a_lower_bound(state):
    fit = Explorer(state).head["fit"]
    assert fit["verdict"] == "unknown" and fit["text"].startswith("≥ ") and "not known whether" in fit["title"]


def test_the_step_is_said_from_all_overlap_to_none(program, plan, compilers):
    explorer = explorer_of(program, plan, cost=Cost(dot_flops=1.97e12))
    cost, step = explorer.state.cost, explorer.head["step"]
    assert cost.step.compute == pytest.approx(0.01), "1.97 TFLOP at 197 TFLOP/s"
    assert step["label"] == "step, full overlap – none" and step["text"].startswith("10.0")
    assert explorer.head["bound"]["what"] == "compute"
    assert explorer.head["bound"]["then"] in ("communication over data", "HBM traffic")


def test_what_is_not_counted_is_not_bounded_from_above(program, plan, compilers):
    explorer = explorer_of(program, plan)
    assert explorer.state.cost.flops is None and explorer.head["step"]["label"] == "step, at least"


def test_seconds_of_lines_add_up_to_the_steps(program, plan, compilers):
    frames = [Frame("model.py", line, "step") for line in (2, 3, 3)]
    work = tuple(
        Work(phase=phase, source=frame, module="", dtype="bfloat16", dot_flops=flops)
        for phase, frame, flops in zip(("forward", "forward", "backward"), frames, (1e12, 2e12, 4e12), strict=True)
    )
    runs = tuple(TargetCollective(collective=c, stands_for=(c.name,)) for c in program.partitioned(plan).collectives)
    explorer = explorer_of(program, plan, cost=Cost(dot_flops=7e12, work=work), target_collectives=runs)
    cost, report = explorer.state.cost, explorer.report
    by_line = compute_seconds(report, cost)
    assert sum(by_line.values()) == pytest.approx(cost.step.compute)
    assert by_line["model.py", 3] == pytest.approx(6 * by_line["model.py", 2])
    assert step_seconds(timed(report, cost).collectives) == pytest.approx(cost.step.communication)
    lines = {row["n"]: row for row in explorer.source["files"][0]["lines"]}
    assert lines[3]["heat"] + lines[3]["computing"] == pytest.approx(1), "the longest line is the hottest"
    assert lines[2]["computing"] == pytest.approx(
        by_line["model.py", 2] / (by_line["model.py", 3] + cost.step.communication)
    )
    assert lines[3]["collectives"][0]["seconds"] == lines[3]["seconds"] and lines[2]["compute"] == "5.08 ms"


def test_without_a_machine_heat_is_bytes(program, plan):
    explorer = explorer_of(program, plan, target="cpu", cost=Cost(dot_flops=7e12))
    row = explorer.source["files"][0]["lines"][2]
    assert row["heat"] == 1 and "seconds" not in row and row["collectives"][0]["seconds"] == ""
    assert "target" not in explorer.collectives and "seconds" not in explorer.collectives["rows"][0]


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
            TargetCollective(
                collective=again, stands_for=("all-reduce.1",), how=("turned", "moved"), algorithm="1DFullMesh"
            ),
            TargetCollective(collective=own, stands_for=(), how=("added",)),
        ),
    )
    data, cost = explorer.collectives, explorer.state.cost
    assert cost.as_run and data["target"] == V5E
    (row,) = data["rows"]
    (run,) = row["as_run"]
    assert run["text"] == "reduce-scatter × 1"
    assert run["how"] == "turned into another kind, moved out of a loop" and run["algorithm"] == "1DFullMesh"
    assert run["formula"].startswith("6 hops x 1.00 µs") and run["seconds"] == "6.00 µs"
    assert row["formula"].startswith("12 hops x 1.00 µs") and row["seconds"] == "48.0 µs", "four runs of twelve hops"
    (added,) = data["added"]
    assert added["text"].startswith("all-gather over model") and "added" in added["how"]
    (timed_move,) = timed(explorer.report, cost).collectives
    assert timed_move.kind == "all-reduce" and (timed_move.seconds or 0) * 4 == pytest.approx(cost.partitioned_seconds)


def test_the_memory_tab_has_the_parts_of_the_cost(program, plan, compilers):
    plan_ = Memory(
        arguments=int(4e9),
        outputs=int(2e9),
        aliased=int(1e9),
        temporaries=int(50e9),
        peak=int(54e9),
        target=V5E,
        needed=int(56e9),
        hbm=int(16.9e9),
        fits=False,
    )
    explorer = explorer_of(program, plan, memory=plan_)
    assert explorer.memory == {}, "nobody looks at it"
    explorer.tab = "memory"
    view, needs = explorer.memory, explorer.state.cost.needs
    assert view["verdict"] == "no" and "too much" in view["words"] and view["total"] == "56.0 GB"
    assert [(p["label"], p["text"]) for p in view["parts"]] == [
        ("arguments", "4.00 GB"),
        ("outputs", "1.00 GB"),
        ("temporaries", "50.0 GB"),
        ("constants and other", "1.00 GB"),
    ]
    assert sum(p["share"] for p in view["parts"]) == pytest.approx(1)
    assert view["line"] == pytest.approx(needs.usable / 56e9)
    assert any("more devices" in text for text in view["helps"])


def test_before_the_plan_the_memory_tab_says_that_it_is_a_lower_bound(state):
    explorer = Explorer(state)
    explorer.tab = "memory"
    view = explorer.memory
    assert view["verdict"] == "unknown" and not view["complete"] and "at least" in view["words"]
    assert [r["kind"] for r in view["rows"]] == ["argument"] * 3 and view["rows"][0]["value"] in (W1, "params['w2']")
    state.set_target("cpu")
    assert explorer.memory["line"] is None and "no machine is chosen" in explorer.memory["words"]


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
    assert "targets" not in sent, "what may be chosen hangs on the mesh's size alone"
