"""An edit is whole, or not at all, wherever an interrupt comes: the plan, its history, what is told, the compile."""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.snapshot import UndoStep
from shardviz.page.explorer import VIEWS, Explorer

pytestmark = pytest.mark.long

W1 = "params['w1']"


class Interrupt:
    """Raises a KeyboardInterrupt at the n-th place where Python would let a signal's handler run: when a function is
    entered, and when a call has returned. Counts these places.
    """

    def __init__(self, at: int = -1):
        self.at, self.count = at, 0

    def __call__(self, frame, event, _):
        if event in ("call", "c_return") and not _ours(frame):
            self.count += 1
            if self.count - 1 == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def during(self, act) -> bool:
        """Does it; says whether it was interrupted."""
        sys.setprofile(self)
        try:
            act()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


def _ours(frame) -> bool:
    return frame.f_code.co_filename == __file__


class View:
    """What somebody has seen who looks at each part that is said to be new."""

    def __init__(self, state):
        self.state, self.seen = state, {}
        state.subscribe(self)

    def __call__(self, new):
        for part in new - {"mesh"}:
            self.seen[part] = getattr(self.state.now, part)

    @property
    def current(self) -> bool:
        return all(getattr(self.state.now, part) is seen for part, seen in self.seen.items())


def edited(state):
    return state.set_dim(W1, 0, ["data"])


def undone(state):
    return state.undo()


def retargeted(state):
    return state.set_target("tpu v5p:2x2x2")


CHANGES = {"edit": edited, "undo": undone, "target": retargeted}


def opened(make_program, plan):
    """A state with a change behind it, and a compile under way."""
    program = make_program()
    state = ExplorerState(program, plan, debounce=60)
    assert state.resize_axis("model", 1) and state.resize_axis("model", 2)
    return program, state, View(state)


def whole(state):
    return state.plan, state.bound, state.report, state.machine, state.past, state.ahead


# Python itself drops an interrupt that comes while it closes a generator
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.usefixtures("compilers")
def test_a_change_is_whole_or_not_at_all_wherever_it_is_interrupted(make_program, plan, change):
    program, state, _ = opened(make_program, plan)
    counted = Interrupt()
    before, here = whole(state), UndoStep(state.plan, state.machine)
    assert not counted.during(lambda: change(state)) and counted.count > 300
    after = UndoStep(state.plan, state.machine)
    found = set()
    for at in sorted(random.Random(change.__name__).sample(range(counted.count), 250)) + list(
        range(counted.count - 50, counted.count)
    ):
        program, state, view = opened(make_program, plan)
        first = state.past[0]
        before, here = whole(state), UndoStep(state.plan, state.machine)
        if not Interrupt(at).during(lambda state=state: change(state)):
            continue
        done = UndoStep(state.plan, state.machine) == after
        found.add(done)
        if done:
            assert here in (state.past[-1:] + state.ahead[:1]), "one step from where it was"
            assert state.bound == program.bind(state.plan) and state.report.plan.in_specs == state.bound.in_specs
        else:
            assert all(a is b for a, b in zip(whole(state), before, strict=True)), "nothing has changed"
        assert view.current and state.error is None, "all that is new was told"
        if state.busy:
            state.loop.hurry()
            asked, job = program.jobs[-1]
            assert asked == state.plan, "what is compiled is the plan"
            job.answer(program.compiled(asked))
        assert (state.level, state.busy) == ("compiled", False), "and it answers"
        while state.past:
            assert state.undo()
        assert UndoStep(state.plan, state.machine) == first
        state.loop.cancel()
    assert found == {True, False}, "some were interrupted before, some after"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_page_catches_up_after_an_interrupted_drawing(make_program, plan):
    program, state, _ = opened(make_program, plan)
    counted = Interrupt()
    explorer = Explorer(state)
    assert not counted.during(lambda: edited(state))
    for at in random.Random(1).sample(range(counted.count), 20):
        program, state, _ = opened(make_program, plan)
        explorer = Explorer(state)
        sent = []
        explorer.send_state = lambda key=None, sent=sent: sent.append(key)
        Interrupt(at).during(lambda state=state: edited(state))
        gc.collect()
        state.select("x")
        for name, view in VIEWS.items():
            if view.tab in ("", explorer.tab):
                assert getattr(explorer, name) == view.build(explorer), name
        state.loop.cancel()
    assert program


# Nor does Python pass on one that comes while JAX's callback of the garbage collector runs
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="interrupts come from a timer")
def test_a_signal_at_any_time_leaves_a_plan_and_its_history():
    array = jax.ShapeDtypeStruct
    params = {"w1": array((128, 512), jnp.float32), "w2": array((512, 128), jnp.float32)}
    program = sv.trace(
        lambda params, x: jnp.tanh(x @ params["w1"]) @ params["w2"], params, array((64, 128), jnp.float32)
    )
    first = sv.Plan("data=4,model=2", ({"w1": P(None, "model"), "w2": P("model")}, P("data")))
    state = ExplorerState(program, first, level="propagated")
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    chance = random.Random(2)
    stopped, takes = 0, 0.01
    try:
        for _ in range(200):  # seldom a plan that was answered before
            name, dim = chance.choice((W1, "params['w2']", "x")), chance.randrange(2)
            axes = chance.choice(([], ["data"], ["model"], [("data", 1, 2)]))
            then, history = state.plan, state.past
            try:
                start = time.perf_counter()
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, takes))
                state.set_dim(name, dim, axes)
                signal.setitimer(signal.ITIMER_REAL, 0)
                takes = max(1e-4, time.perf_counter() - start)  # as fast as the machine is now
            except KeyboardInterrupt:
                stopped += 1
                takes *= 1.2
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            taken = state.past != history
            assert (state.plan != then) == taken and (
                not taken or state.past == (*history, UndoStep(then, state.machine))
            )
            assert state.bound == program.bind(state.plan) == state.report.plan
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stopped > 10
    while state.past:
        assert state.undo()
    assert state.plan == first
