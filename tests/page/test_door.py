"""What the page may say: whatever it sends, an edit is done or refused, and nothing is raised."""

import inspect
import json

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.explorer.edits import PAGE_EDITS
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.page.page import say

NAMES = ["x", "params['w1']", "params['w2']", "result", "nowhere", ""]
AXES = ["data", "model", "z", "pipe"]

numbers = st.integers(-3, 9) | st.integers() | st.sampled_from([2**31, 2**53, 10**30])
names = st.sampled_from(NAMES) | st.text(max_size=4)
axis_names = st.sampled_from(AXES) | st.text(max_size=3)
parts = st.tuples(axis_names, st.integers(0, 4), st.integers(0, 4)).map(list)
specs = st.sampled_from(["P('data')", "P(None, 'model')", "P(('data', 'model'))", "P()", "(", "None", "P('z')", ""])
FIELDS = {
    "cause": st.integers(-1, 2),
    "line": st.sampled_from(["", "a.py:1", "nothing"]),
    "action": st.sampled_from(["cut nothing", ""]),
    "preset": st.sampled_from(["fsdp", "data parallel", "nothing"]),
    "card": st.sampled_from(["baseline", "draft", "card-1", "card-2", "", "nowhere"]),
    "name": names | axis_names,
    "spec": specs | st.none() | st.text(max_size=6),
    "twins": st.booleans(),
    "layers": st.booleans(),
    "output": st.booleans(),
    "dimension": st.integers(-1, 3),
    "axes": st.lists(axis_names | parts, max_size=3),
    "axis": axis_names,
    "place": st.integers(-1, 3),
    "to": st.integers(-1, 3),
    "kind": st.sampled_from(["device", "pinned_host", "moon"]),
    "size": st.sampled_from([0, 1, 2, 3, 4, 8, -1, 2**30]) | st.sampled_from(["", "x", "²"]),
    "old": axis_names,
    "new": axis_names,
    "one": axis_names,
    "other": axis_names,
    "target": st.sampled_from(["cpu", "v5p", "tpu v5p:2x2x2", "tpu v5e:4x2", "h100", "", "tpu v5p:9x9", "moon"]),
    "options": st.sampled_from(["", "--xla_a=true", "collective-matmul-off", "a b", "=", "xla_dump_to=x"])
    | st.text(max_size=6),
    "order": st.sampled_from(["mesh_utils", "row-major", "0,1,2", "[2,4]T(1,0)", [3, 1, 2, 0, 4, 5, 6, 7], []]),
    "pattern": st.sampled_from(["*", "params*", "", "re:("]) | st.text(max_size=4),
}
plain = st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=5) | st.just("\ud800")
anything = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def parameters(operation):
    return list(inspect.signature(PAGE_EDITS[operation]).parameters.values())


@st.composite
def well_formed(draw, without=()):
    operation = draw(st.sampled_from([o for o in PAGE_EDITS if o not in without]))
    given = [p for p in parameters(operation) if p.default is p.empty or draw(st.booleans())]
    return {"op": operation} | {p.name: draw(FIELDS[p.name]) for p in given}


@st.composite
def malformed(draw):
    """An edit with something missing, something else in a place of it, something more, or not an edit at all."""
    edit = draw(well_formed())
    for key in draw(st.lists(st.sampled_from([*edit, "more"]), max_size=3)):
        edit[key] = draw(anything)
    for key in draw(st.lists(st.sampled_from(list(edit)), max_size=1)):
        del edit[key]
    return draw(st.just(edit) | anything)


def known(state):
    return state.plan, state.bound, state.machine, state.past, state.ahead


def send(explorer, edits):
    """As comm messages bring them."""
    for edit in edits:
        explorer._on_message(explorer, edit, [])


def undo_to_the_start(explorer, first):
    while explorer.state.past:
        assert explorer.state.undo(), explorer.state.error
    assert (explorer.plan, explorer.state.machine) == first


def obey(explorer, edits):
    """Sends edits one after the other and checks what holds of each."""
    first = explorer.plan, explorer.state.machine
    for edit in edits:
        before, answered = known(explorer.state), explorer.status["seq"]
        send(explorer, [{"edit": edit, "seq": answered + 1}])
        assert explorer.status["seq"] == answered + 1, "the page knows that it was answered"
        if explorer.status["error"]:
            assert known(explorer.state) == before, "refused, and nothing has changed"
        else:
            past = len(explorer.state.past) - len(before[3])
            assert abs(past) <= 1 and (past or known(explorer.state) == before), "one step, or the same as before"
        json.dumps(explorer.status, ensure_ascii=False).encode()
    undo_to_the_start(explorer, first)


HARD = settings(max_examples=50, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def real():
    """An explorer of a program of JAX's."""
    array = jax.ShapeDtypeStruct
    tree = {"w1": array((128, 512), jnp.float32), "w2": array((512, 128), jnp.float32)}
    program = sv.trace(lambda params, x: jnp.tanh(x @ params["w1"]) @ params["w2"], tree, array((64, 128), jnp.float32))
    plan = sv.Plan("data=4,model=2", ({"w1": P(None, "model"), "w2": P("model")}, P("data")))
    return Explorer(ExplorerState(program, plan, level="propagated"))


@HARD
@given(edits=st.lists(malformed() | well_formed(without=("recompile",)), max_size=6))
def test_whatever_the_page_sends_is_done_or_refused(real, edits):
    obey(real, edits)


@HARD
@given(message=anything | anything.map(lambda seq: {"edit": {"op": "add_axis", "name": "z", "size": 2}, "seq": seq}))
def test_what_is_no_numbered_edit_changes_nothing(real, message):
    real.state.dismiss()
    if isinstance(message, dict) and type(message.get("seq")) is int and 0 <= message["seq"] < 2**53:
        message["seq"] = -1
    before, answered = known(real.state), real.status["seq"]
    send(real, [message])
    assert known(real.state) == before and real.status["seq"] == answered
    if isinstance(message, dict) and message.keys() == {"edit", "seq"}:
        assert "does not fit" in real.status["error"]["message"]


TRAITS = ["query", "reading", "selected", "selected_at", "tab", "device", "mesh", "_esm", "comm_id", "no trait"]
KINDS = {"query": dict, "device": int}


@HARD
@given(
    said=st.dictionaries(st.sampled_from(TRAITS), anything, max_size=3),
    tab=st.sampled_from(["values", "rosetta", "machine", "collectives", "source"]),
)
def test_the_page_sets_its_own_traits_to_what_they_are(real, said, tab):
    before = known(real.state)
    send_all = {"tab": tab, **said}
    real.set_state(send_all)
    for name in TRAITS[:6]:
        assert type(getattr(real, name)) is KINDS.get(name, str)
        json.dumps(getattr(real, name), ensure_ascii=False).encode()
    assert real.mesh["devices"] == 8 and real._esm != said.get("_esm"), "the kernel's own are the kernel's"
    assert known(real.state) == before


def test_queries_that_the_page_makes_are_taken(real):
    before = real.status["error"]
    for query in ({"text": "w1"}, {"changed": True}, {"line": "a.py:1", "sort": "bytes"}, {"line": None}, {}):
        real.set_state({"query": query, "tab": "values"})
        assert {k: v for k, v in real.query.items() if v is not None} == {
            k: v for k, v in query.items() if v is not None
        }
        assert real.status["error"] == before, "nothing is refused"


def test_parts_of_axes_come_from_the_page_as_lists(real):
    say(real, op="set_dim", name="x", dimension=0, axes=[["data", 1, 2], "model"])
    assert real.state.error is None and real.state.bound.in_specs["x"].dims[0] == (("data", 1, 2), "model")
    assert real.shardings["kinds"][real.shardings["at"][-1]]["dims"][0] == [["data", 1, 2], "model"]
    assert real.state.undo()


def test_every_parameter_of_every_edit_is_known():
    assert {p.name for operation in PAGE_EDITS for p in parameters(operation)} <= set(FIELDS)
