"""The explorer's state without a browser: every change, every refusal, every way that a compile can end."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from shardviz.errors import (
    CompileCrashed,
    CompileMemoryLimit,
    CompileRefused,
    CompileStopped,
    CompileTimeout,
    ShardvizError,
    SpecError,
    TraceError,
)
from shardviz.explorer.changes import choices
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.machine_choice import MachineChoice
from shardviz.explorer.selection import Selection
from shardviz.explorer.snapshot import MOST_STEPS
from shardviz.notation import Spec

W1 = "params['w1']"


@pytest.fixture
def state(program, plan):
    return ExplorerState(program, plan, debounce=0.02)


def settled(state):
    """Everything that a refused change must leave as it was."""
    return state.plan, state.report, state.level, state.past, state.ahead, state.selected


def job_count(program, count, seconds=2.0):
    """Waits until so many compiles were submitted."""
    end = time.monotonic() + seconds
    while len(program.jobs) < count and time.monotonic() < end:
        time.sleep(0.005)
    return len(program.jobs)


def answer_second(program):
    """The compiler, on a thread of its own, answers the second compile as soon as it is asked for."""

    def compiler():
        job_count(program, 2)
        plan, job = program.jobs[1]
        job.answer(program.compiled(plan))

    threading.Thread(target=compiler).start()


def test_it_opens_with_a_propagated_report_and_a_compile_under_way(state, program):
    assert (state.level, state.status, state.busy) == ("propagated", "compiling", True)
    assert len(program.jobs) == 1
    assert state.selected == W1, "the largest argument is looked at first"


def test_an_edit_is_answered_at_once_and_compiled_later(state, program):
    assert state.set_dim(W1, 0, ["data"])
    assert state.report.value(W1).shard_shape == (32, 256)
    assert state.level == "propagated" and state.busy
    assert W1 in state.changed
    assert job_count(program, 2) == 2
    plan, job = program.jobs[1]
    job.on_report(program.partitioned(plan))
    assert (state.level, state.status, state.busy) == ("partitioned", "partitioned", True)
    job.set_result(program.compiled(plan))
    assert (state.level, state.status, state.busy) == ("compiled", "compiled", False)
    assert state.report.memory is not None


@pytest.mark.parametrize(
    ("change", "place", "argument", "dimension", "words"),
    [
        (lambda s: s.set_dim(W1, 0, ["nowhere"]), "argument", W1, 0, "no axis 'nowhere'"),
        (lambda s: s.set_dim(W1, 0, ["model"]), "argument", W1, 1, "only once"),
        (lambda s: s.set_spec("x", (None, None, "data")), "argument", "x", 2, "3 entries for an array of rank 2"),
        (lambda s: s.set_spec("x", "P('data'"), "argument", "x", None, "expected P('data', None)"),
        (lambda s: s.set_spec("x", "__import__('os')"), "argument", "x", None, "an entry is None, an axis name"),
        (lambda s: s.set_spec("x", "P(1)"), "argument", "x", None, "an entry is None, an axis name"),
        (lambda s: s.set_spec("nothing", ("data",)), "argument", "nothing", None, "no argument 'nothing'"),
        (lambda s: s.set_dim("x", 7, ["data"]), "argument", "x", None, "no dimension 7"),
        (lambda s: s.set_spec("result", ("data", "data"), output=True), "output", "result", 1, "only once"),
        (lambda s: s.resize_axis("data", 3), "mesh", "x", 0, "64, which is not divisible by 'data'=3"),
        (lambda s: s.resize_axis("data", 0), "mesh", "data", None, "1 or more"),
        (lambda s: s.resize_axis("nowhere", 2), "mesh", "nowhere", None, "no axis 'nowhere'"),
        (lambda s: s.add_axis("data", 2), "mesh", "data", None, "two axes are named 'data'"),
        (lambda s: s.add_axis("", 2), "mesh", "", None, "non-empty"),
        (lambda s: s.rename_axis("data", "model"), "mesh", "data", None, "two axes are named 'model'"),
        (lambda s: s.remove_axis("nowhere"), "mesh", "nowhere", None, "no axis 'nowhere'"),
        (lambda s: s.set_mesh("data=x"), "mesh", None, None, "expected axes as"),
    ],
)
def test_a_refused_change_says_where_and_changes_nothing(state, program, change, place, argument, dimension, words):
    before = settled(state)
    assert change(state) is False
    assert words in state.error["message"]
    assert (state.error["place"], state.error["argument"], state.error["dimension"]) == (place, argument, dimension)
    assert settled(state) == before
    assert not program.jobs[0][1].stopped, "the compile that was under way goes on"
    assert state.set_dim(W1, 0, ["data"]) and state.error is None, "the next good change clears it"


def test_a_function_that_raises_when_it_is_traced_again_is_shown_with_its_traceback(state, program):
    before = settled(state)
    program.broken = TraceError("step could not be traced: ZeroDivisionError: division by zero")
    program.broken.__cause__ = ZeroDivisionError("division by zero")
    assert state.set_dim(W1, 0, ["data"]) is False
    assert "ZeroDivisionError" in state.error["detail"]
    assert settled(state) == before


def test_a_bad_plan_to_begin_with_raises_at_once(program, plan):
    with pytest.raises(SpecError, match="no axis 'nowhere'"):
        ExplorerState(program, plan.with_spec("x", ("nowhere",)))


def test_what_changed_is_told_among_values_of_the_same_level(state, program):
    plan, job = program.jobs[0]
    job.answer(program.compiled(plan))
    state.set_dim("x", 0, [])
    assert state.changed == {"x", "result", "dot.0", "dot.1", "dot.2"}
    job_count(program, 2)
    plan, job = program.jobs[1]
    job.on_report(program.partitioned(plan))
    assert state.changed == {"x", "result", "dot.0", "dot.1", "dot.2"}
    state.set_dim("x", 0, ["model"])
    state.set_dim("x", 0, ["model", "data"])
    job_count(program, 3)
    plan, job = program.jobs[2]
    job.on_report(program.partitioned(plan))
    assert state.changed == {"x", "result"}, "the plan before was never partitioned: only names of both levels count"


def test_answers_to_an_older_plan_are_ignored(state, program):
    old_plan, old = program.jobs[0]
    state.set_dim(W1, 0, ["data"])
    assert old.stopped
    here = state.report
    old.on_report(program.partitioned(old_plan))
    assert state.report is here and state.level == "propagated" and state.status != "stopped"


def test_quick_changes_make_one_compile(state, program):
    for axes in (["data"], [], ["data"], []):
        state.set_dim(W1, 0, axes)
    time.sleep(0.15)
    assert job_count(program, 2) == 2
    assert program.jobs[1][0] == state.plan


def test_a_change_that_changes_nothing_is_no_change(state, program):
    before = settled(state)
    assert state.set_dim(W1, 1, ["model"])
    assert state.set_spec(W1, "P(None, 'model')")
    assert settled(state) == before and not program.jobs[0][1].stopped


def test_undo_and_redo(state):
    plans = [state.plan]
    for method, *arguments in (
        (state.set_dim, W1, 0, ["data"]),
        (state.rename_axis, "data", "fsdp"),
        (state.remove_axis, "model"),
    ):
        assert method(*arguments)
        plans.append(state.plan)
    assert [state.undo() for _ in range(4)] == [True, True, True, False]
    assert state.plan == plans[0]
    assert [state.redo() for _ in range(4)] == [True, True, True, False]
    assert state.plan == plans[3]
    state.undo()
    state.add_axis("pipe", 2)
    assert not state.ahead, "a change after undo forgets what was ahead"


def test_the_last_two_hundred_changes_can_be_undone(state):
    plans = []
    for n in range(MOST_STEPS + 3):
        assert state.set_dim(W1, 0, [["data"], []][n % 2])
        plans.append(state.plan)
    undone = 0
    while state.undo():
        undone += 1
    assert undone == MOST_STEPS == 200 and len(state.ahead) == MOST_STEPS
    assert state.plan == plans[2]
    while state.redo():
        undone -= 1
    assert undone == 0 and len(state.past) == MOST_STEPS and state.plan == plans[-1]


def test_mesh_edits(state):
    assert state.rename_axis("model", "tp")
    assert state.bound.in_specs[W1] == Spec.of((None, "tp"))
    assert state.add_axis("pipe", 3) and state.report.mesh.size == 24
    assert state.resize_axis("tp", 4) and state.report.value(W1).shard_shape == (128, 128)
    assert state.remove_axis("tp") and state.bound.in_specs[W1] == Spec(((), ()))
    assert state.report.mesh.shape == {"data": 4, "pipe": 3}


def test_the_last_axis_can_be_removed(state):
    assert state.remove_axis("data") and state.remove_axis("model")
    assert state.report.mesh.size == 1 and not state.report.mesh.names


def legal_axes(state, name, dimension):
    """Whether each mesh axis may be added to a dimension of an argument."""
    return choices(state.report.value(name).shape, state.bound.in_specs[name], state.plan.mesh, dimension)


def test_legal_axes_say_why_not(state):
    assert [(c.axis, c.legal, c.reason, c.move) for c in legal_axes(state, W1, 0)] == [
        ("data", True, "", False),
        ("model", False, "already shards dimension 1 of this array", True),
    ]
    assert [c.reason for c in legal_axes(state, W1, 1)] == ["", "already shards this dimension"]
    state.add_axis("odd", 3)
    assert legal_axes(state, W1, 1)[2].reason == "512 is not divisible by 'model'=2 x 'odd'=3 = 6"


@pytest.mark.parametrize("name", ["x", W1, "params['w2']"])
@pytest.mark.parametrize("dimension", [0, 1])
def test_whatever_is_offered_is_taken_and_whatever_is_not_is_refused(state, name, dimension):
    state.add_axis("odd", 3)
    for choice in legal_axes(state, name, dimension):
        here = state.bound.in_specs[name].dims[dimension]
        taken = state.set_dim(name, dimension, (*here, choice.axis))
        assert taken == choice.legal, (choice, state.error)
        if taken:
            state.undo()


def test_an_axis_moves_between_dimensions_and_in_order(state):
    assert state.move_axis(W1, "model", 0)
    assert state.bound.in_specs[W1] == Spec.of(("model", None))
    assert state.set_dim(W1, 0, ["model", "data"]) and state.move_axis(W1, "data", 0, 0)
    assert state.bound.in_specs[W1].dims[0] == ("data", "model")


def test_outputs(state):
    assert state.set_dim("result", 1, ["model"], output=True)
    assert state.bound.out_specs["result"] == Spec.of(("data", "model")), "the rest stays as the compiler chose"
    assert state.set_spec("result", None, output=True) and state.bound.out_specs["result"] is None


def test_stop_keeps_what_is_known(state, program):
    job = program.jobs[0][1]
    here = state.report
    state.stop()
    assert job.stopped and (state.status, state.busy, state.report) == ("stopped", False, here)
    with pytest.raises(CompileStopped):
        state.wait(timeout=1)
    state.recompile()
    assert state.status == "compiling" and len(program.jobs) == 2


def test_a_compile_done_again_after_its_end_tells_nothing_new_and_ends(state, program):
    plan, job = program.jobs[0]
    job.set_result(program.compiled(plan))
    here = state.report
    state.recompile()
    state.stop()
    assert (state.status, state.level, state.report) == ("stopped", "compiled", here)
    state.recompile()
    program.jobs[2][1].set_result(program.compiled(plan))
    assert (state.status, state.busy, state.message, state.failure) == ("compiled", False, "", None)


def test_stop_before_the_compile_began(state, program):
    state.set_dim(W1, 0, ["data"])
    state.stop()
    time.sleep(0.1)
    assert len(program.jobs) == 1 and state.status == "stopped"


@pytest.mark.parametrize("kind", [CompileCrashed, CompileTimeout, CompileMemoryLimit, CompileRefused])
def test_a_compile_that_fails_says_how_and_the_next_one_works(state, program, kind):
    plan, job = program.jobs[0]
    job.on_report(program.partitioned(plan))
    job.set_exception(kind("it went wrong", stderr="F0000 check failed"))
    assert (state.status, state.busy, state.level) == ("failed", False, "partitioned")
    assert state.failure == {"kind": kind.__name__, "message": "it went wrong", "stderr": "F0000 check failed"}
    with pytest.raises(kind):
        state.wait(timeout=1)
    assert state.wait("partitioned", timeout=1).level == "partitioned"
    state.set_dim(W1, 0, ["data"])
    assert state.failure is None and job_count(program, 2) == 2
    program.jobs[1][1].set_result(program.compiled(state.plan))
    assert state.status == "compiled"


def test_wait_gives_up_but_the_compile_goes_on(state, program):
    with pytest.raises(CompileTimeout, match="continues"):
        state.wait(timeout=0.05)
    assert state.busy and not program.jobs[0][1].stopped


def test_wait_returns_when_those_who_look_on_have_heard(state, program):
    heard = []
    state.subscribe(lambda new: (time.sleep(0.2), heard.append(state.level)) if "report" in new else None)
    plan, job = program.jobs[0]
    thread = threading.Thread(target=lambda: job.answer(program.compiled(plan)))
    thread.start()
    assert state.wait(timeout=5).level == "compiled" and heard == ["compiled"]
    thread.join()


def test_wait_does_not_wait_for_the_pause(program, plan):
    state = ExplorerState(program, plan, debounce=60)
    state.set_dim(W1, 0, ["data"])
    answer_second(program)
    assert state.wait(timeout=5).level == "compiled"


def test_with_a_running_loop_answers_come_on_the_loop(program, plan):
    seen = []

    async def main():
        state = ExplorerState(program, plan, debounce=0.01)
        state.subscribe(lambda new: seen.append(threading.current_thread()))
        _, job = program.jobs[0]

        def compiler():
            job.on_report(program.partitioned(plan))
            job.answer(program.compiled(plan))

        threading.Thread(target=compiler).start()
        for _ in range(100):
            await asyncio.sleep(0.01)
            if state.level == "compiled":
                break
        return state

    state = asyncio.run(main())
    assert state.status == "compiled" and set(seen) == {threading.main_thread()}


def test_in_a_cell_that_waits_the_loop_is_blocked_and_answers_come_all_the_same(program, plan):
    async def cell():
        state = ExplorerState(program, plan, debounce=0.01)
        state.set_dim(W1, 0, ["data"])
        answer_second(program)
        return state.wait(timeout=5), state

    report, state = asyncio.run(cell())
    assert report.level == "compiled" and state.status == "compiled"


def test_answers_race_with_edits_and_the_last_plan_wins(program, plan):
    state = ExplorerState(program, plan, debounce=0.001)
    done = threading.Event()

    def compiler():
        answered = 0
        while not done.is_set() or answered < len(program.jobs):
            for plan, job in program.jobs[answered:]:
                job.on_report(program.partitioned(plan))
                job.answer(program.compiled(plan))
                answered += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=compiler)
    thread.start()
    for i in range(100):
        state.set_dim(W1, 0, ["data"] if i % 2 == 0 else [])
        time.sleep(0.001)
    time.sleep(0.05)
    done.set()
    thread.join()
    report = state.wait(timeout=5)
    assert report.level == "compiled" and report.plan.in_specs == state.bound.in_specs


def test_propagated_only(program, plan):
    state = ExplorerState(program, plan, level="propagated")
    assert not program.jobs and not state.busy
    assert state.wait().level == "propagated"
    with pytest.raises(ShardvizError, match="expected one of"):
        ExplorerState(program, plan, level="perfect")


# Who looks on.


@pytest.fixture
def told(state):
    """What each change told that it changed."""
    heard = []
    state.subscribe(heard.append)
    return heard


def test_a_change_is_told_once_with_all_that_is_new(program, plan):
    state = ExplorerState(program, plan, debounce=60)  # so that no compile begins between two changes
    told, seen = [], []
    state.subscribe(told.append)
    state.subscribe(lambda new: seen.append((state.level, state.status, len(state.past))))
    state.set_dim(W1, 0, ["data"])
    assert told == [{"plan", "report", "changed", "deck", "progress", "history"}] and seen == [
        ("propagated", "propagating", 1)
    ]
    state.resize_axis("data", 2)
    assert told[1:] == [{"plan", "report", "changed", "deck", "history", "mesh"}]
    state.loop.hurry()
    plan, job = program.jobs[-1]
    job.answer(program.compiled(plan))
    assert told[2:] == [{"progress"}, {"report", "deck", "progress"}]
    assert seen[1:] == [("propagated", "propagating", 2), ("propagated", "compiling", 2), ("compiled", "compiled", 2)]


def test_what_changes_nothing_is_not_told(state, told):
    state.set_dim(W1, 1, ["model"])
    state.select(state.selected)
    assert not told and not state.redo()


def test_a_refusal_is_told_and_so_is_its_end(state, told):
    state.set_dim(W1, 0, ["nowhere"])
    state.set_dim(W1, 1, ["model"])
    assert told == [{"error"}, {"error"}] and state.error is None


@pytest.mark.parametrize(
    "place", ["Program.propagate", "MachineChoice.of", "MachineChoice.priced", "Selection.carried"]
)
def test_an_edit_that_fails_midway_changes_nothing(state, program, monkeypatch, place):
    def broken(*_args, **_options):
        raise KeyError("a bug")

    state.select("dot.1")
    before = state.now
    owner = {"Program": program, "MachineChoice": MachineChoice, "Selection": Selection}[place.split(".")[0]]
    monkeypatch.setattr(owner, place.split(".")[1], broken)
    with pytest.raises(KeyError):
        state.set_dim(W1, 0, ["data"])
    assert state.error["place"] == "internal" and "a bug" in state.error["detail"]
    assert replace(state.now, error=None) == before
    assert not program.jobs[0][1].stopped, "the compile that was under way goes on"


@pytest.mark.usefixtures("compilers")
def test_a_target_whose_cost_cannot_be_told_is_not_taken(state, program, monkeypatch):
    before = state.now
    with monkeypatch.context() as broken, pytest.raises(ValueError, match="a bug"):
        broken.setattr("shardviz.explorer.machine_choice.cost_of", lambda *_, **__: int("a bug"))
        state.set_target("tpu v5p:2x2x2")
    assert state.error["place"] == "internal" and replace(state.now, error=None) == before
    assert state.set_target("tpu v5p:2x2x2") and state.cost is not None
    here = state.now
    assert state.set_target("tpu v5p:2x2x3") is False and state.error["place"] == "target"
    assert replace(state.now, error=None) == here
    assert state.undo() and (state.plan, state.target, state.past) == (before.plan, "cpu", ())


def test_an_answer_that_cannot_be_read_is_shown_and_changes_nothing(state, program, monkeypatch):
    plan, job = program.jobs[0]
    here = state.report
    with monkeypatch.context() as broken, pytest.raises(KeyError):
        broken.setattr(MachineChoice, "priced", lambda *_: {}["a bug"])
        job.on_report(program.partitioned(plan))
    assert state.report is here and state.error["place"] == "internal"
    job.on_report(program.compiled(plan))
    assert state.level == "compiled" and not state.busy
