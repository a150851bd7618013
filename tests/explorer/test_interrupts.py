"""An edit is whole, or not at all, wherever an interrupt comes: the plan, its history, what is told, the compile."""

from __future__ import annotations

import gc
import random
import sys

import pytest

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
    for at in sorted(random.Random(change.__name__).sample(range(counted.count), 100)) + list(
        range(counted.count - 20, counted.count)
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
    for at in random.Random(1).sample(range(counted.count), 8):
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
