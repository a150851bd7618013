"""What becomes of an edit: `apply` changes nothing, says the same each time, and says what is to be done."""

import inspect

import msgspec
import pytest

from shardviz.errors import ShardvizError
from shardviz.explorer import edits as e
from shardviz.explorer.apply import ChoreEffect, Compile, apply
from shardviz.explorer.explorer import ExplorerState

W1 = "params['w1']"
SAID = {
    "SetDim": e.SetDim(W1, 0, ("data",)),
    "SetSpec": e.SetSpec("x", "P('data')"),
    "SetTarget": e.SetTarget("tpu v5e:2x4"),
    "Undo": e.Undo(),
    "OpenCard": e.OpenCard("baseline"),
    "Pin": e.Pin("mine"),
    "ResizeAxis": e.ResizeAxis("model", 1),
    "Dismiss": e.Dismiss(),
    "refused": e.SetDim(W1, 0, ("nowhere",)),
    "no such card": e.OpenCard("nowhere"),
}


@pytest.fixture
def state(program, plan):
    state = ExplorerState(program, plan, debounce=60)
    assert state.resize_axis("data", 2)
    return state


@pytest.mark.parametrize("edit", SAID.values(), ids=SAID)
def test_an_edit_is_applied_to_what_is_known_without_changing_it(state, edit):
    now, parts = state.now, {name: getattr(state.now, name) for name in type(state.now).__dataclass_fields__}
    one, other = (apply(now, edit, state.asking) for _ in range(2))
    assert state.now is now and all(getattr(now, name) is part for name, part in parts.items())
    assert (one.now.plan, one.now.bound, one.taken) == (other.now.plan, other.now.bound, other.taken)
    assert (one.now.machine, one.now.history.past, one.now.error) == (
        other.now.machine,
        other.now.history.past,
        other.now.error,
    )
    assert one.taken == (one.now.error is None)
    if not one.taken:
        assert not one.effects and (one.now.plan, one.now.deck, one.now.history) == (now.plan, now.deck, now.history)


def test_what_is_to_be_done_is_said_and_not_done(state, program):
    effects = lambda edit: apply(state.now, edit, state.asking).effects
    jobs = len(program.jobs)
    (compile_,) = effects(e.SetDim(W1, 0, ("data",)))
    assert isinstance(compile_, Compile) and not compile_.at_once and compile_.task.plan != state.plan
    (again,) = effects(e.Recompile())
    assert isinstance(again, Compile) and again.at_once and again.task.plan == state.plan
    assert effects(e.Stop()) == (Compile(None),) and effects(e.Pin()) == ()
    assert effects(e.TryPresets()) == (ChoreEffect("presets"),)
    assert effects(e.ClosePresets()) == (ChoreEffect("presets", begins=False),)
    assert len(program.jobs) == jobs and not state.now.presets.open


def test_every_edit_has_a_name_of_its_own_and_is_a_method_of_the_state(state):
    assert set(e.PAGE_EDITS) < set(e.EDITS) and len(set(e.EDITS.values())) == len(e.EDITS)
    for op, kind in e.EDITS.items():
        method = getattr(type(state), op)
        assert inspect.getdoc(method) and {*inspect.signature(method).parameters} == {"self", *kind.__struct_fields__}
        assert not kind.about or kind.about in kind.__struct_fields__, op
    with pytest.raises(TypeError):
        state.set_dim(W1, 0, ["data"], nothing=1)


def test_an_edit_is_read_as_it_was_written():
    for edit in SAID.values():
        assert e.read(msgspec.to_builtins(edit)) == edit
    with pytest.raises(ShardvizError, match="the page sent an edit that does not fit"):
        e.read({"op": "set_plan", "plan": {}})  # only Python has plans
