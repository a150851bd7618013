"""The machine in the explorer's state: choosing one, what follows at once, and how it keeps in step with the mesh."""

import dataclasses
from dataclasses import replace

import pytest

from shardviz.compiler import targets as installed
from shardviz.costs.chips import chip
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import cost_of
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.explorer import compile_loop
from shardviz.explorer.explorer import ExplorerState

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


def test_a_later_compile_says_how_long_it_will_take(program, plan, compilers, monkeypatch):
    monkeypatch.setattr(compile_loop.CompileLoop, "paces", {})
    state = ExplorerState(program, plan, debounce=60, target=V5E)
    assert state.status == "compiling" and state.expected is None
    program.jobs[0][1].elapsed = 42.0
    answer(program, "compiled")
    state.set_dim(W1, 0, ["data"])
    hurry(state)
    assert state.status == "compiling" and state.expected == pytest.approx(42)
    state.set_target("tpu v5p:2x2x2")
    hurry(state)
    assert state.status == "compiling" and state.expected is None, "nothing was compiled for it yet"


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


def test_a_chip_of_ones_own(state, program):
    mine = Machine(dataclasses.replace(chip("v5e"), name="mine", hbm_bytes=1e12), (2, 4))
    assert state.set_target(mine) and state.target == "tpu mine:2x4" and state.cost.machine is mine
    assert state.resize_axis("data", 8) and state.target == "tpu mine:4x4", "it follows the mesh as any other"
    assert "'mine'" in state.missing
    hurry(state)
    assert program.asked[-1] == ("partitioned", "cpu"), "libtpu knows no such chip"


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
    with pytest.raises(ShardvizError, match="continues"):
        state.wait("partitioned", timeout=0.05)
    answer(program, "partitioned")
    assert state.report is not here and state.report.target == "tpu v5p:2x2x2" and state.busy
    answer(program, "compiled")
    assert state.status == "compiled" and state.cost.report.target == "tpu v5p:2x2x2"


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
    assert state.target_remark == f"resized with the mesh, from {V5E} to tpu v5e:4x4"
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
