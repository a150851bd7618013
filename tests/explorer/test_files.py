"""An explorer that was saved is the same when it is opened again; what does not fit is refused, and says why."""

import json
import time

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.files import read_session, session_json
from shardviz.explorer.machine_choice import WholeStep
from shardviz.view.subjects import document

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def step(params, x):
    h = jax.nn.relu(x @ params["w1"])
    return jnp.mean(h @ params["w2"])


def shapes(width=64):
    leaf = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")
    return {"w1": leaf(64, width), "w2": leaf(width, 32)}, leaf(128, 64)


@pytest.fixture(scope="module")
def program():
    return sv.trace(step, *shapes())


@pytest.fixture(scope="module")
def state(program):
    """An explorer of a day's work: cards of several kinds of plans, one of them on a larger mesh; a machine."""
    rules = [("*w1", P(None, "model")), ("*w2", P("model"))]
    plan = sv.Plan({"data": 4, "model": 2}, in_specs=(None, P("data")), rules=rules)
    state = ExplorerState(program, plan, level="partitioned", target="tpu v5e:2x4", tokens=4096, debounce=0)
    state.wait("partitioned")
    state.set_spec("params['w1']", P("data", "model"))
    assert state.wait("partitioned").level == "partitioned"
    assert state.pin(HOSTILE)
    assert state.add_card("wide", plan.with_mesh("data=8,model=2").constrain("h", P("data", "model")), note="by hand")
    assert state.add_card("host", plan.with_memory("params['w2']", "pinned_host").with_spec("result", P(), output=True))
    assert state.open_card("baseline")
    assert state.set_spec("x", P(None, "data"))
    assert state.compare_with("card-1")
    state.select("params['w2']")
    state.wait("partitioned")
    return state


@pytest.fixture
def path(state, tmp_path):
    path = tmp_path / "session.json"
    path.write_text(session_json(state))
    return path


def told(deck):
    """What a deck says of its cards."""
    return [(card.id, card.name, card.note, card.results.bound, card.results.machine) for card in deck.cards]


def test_an_explorer_is_the_same_when_it_is_opened_again(state, program, path):
    again = read_session(path, program, level="partitioned")
    assert told(again.deck) == told(state.deck)
    assert (again.deck.at, again.deck.against, again.target) == (state.deck.at, state.deck.against, state.target)
    assert again.selected == "params['w2']" and again.bound == state.bound and not again.past
    assert again.deck.now.results.whole == state.deck.now.results.whole == WholeStep(4096)
    for card in again.deck.cards:
        assert program.bind(card.plan) == card.results.bound, "a plan says the same of the program"
    rules = again.deck.card("baseline").plan.rules
    assert str(rules) == str(state.deck.card("baseline").plan.rules) and len(rules) == 2
    assert again.open_card("card-2") and again.report.mesh.size == 16
    assert again.pin("one more") and again.deck.at == f"card-{again.deck.made}", "ids go on where they were"
    assert again.wait("partitioned").level == "partitioned"


def test_saving_what_was_opened_gives_the_same(program, path):
    assert json.loads(path.read_text()) == json.loads(session_json(read_session(path, program)))


def test_it_is_opened_and_saved_through_the_public_names(state, program, path, tmp_path):
    explorer = sv.open(path, program, level="partitioned", target="tpu v6e:2x4")
    assert explorer.state.target == "tpu v6e:2x4"
    assert explorer.state.deck.card("card-2").results.machine.text == "tpu v6e:4x4"
    again = sv.open(explorer.save(tmp_path / "again.json"), program, level="propagated")
    assert again.state.target == "tpu v6e:2x4"
    with pytest.raises(ShardvizError, match=r"program must be the result of sv.trace\(fn, ...\)"):
        sv.open(path, step)


def test_a_program_that_was_changed_is_changed_again(tmp_path, program):
    plan = sv.Plan("data=4", (None, P("data")))
    state = ExplorerState(program, plan, level="partitioned", debounce=60)
    assert state.add_card("longer", plan.with_variant(lengths={"params['w1']:1": (64, 80)}, donated="params"))
    assert state.open_card("card-1")
    path = tmp_path / "changed.json"
    path.write_text(session_json(state))
    again = read_session(path, program, level="partitioned", debounce=60)
    assert told(again.deck) == told(state.deck)
    assert {v.name: v.shape for v in again.report.arguments if v.donated} == {
        "params['w1']": (64, 80), "params['w2']": (80, 32)
    }  # fmt: skip
    assert again.open_card("baseline") and again.report.value("params['w1']").shape == (64, 64)
    path.write_text(path.read_text().replace('"donated":["params"]', '"donated":["weights"]'))
    with pytest.raises(ShardvizError, match="weights: given by keyword, or no argument"):
        read_session(path, program)


def test_a_program_that_the_plans_fit_goes_on_with_them_and_another_is_refused_with_its_argument(path):
    again = read_session(path, sv.trace(step, *shapes(width=96)), level="propagated")
    assert again.report.value("params['w1']").shape == (64, 96) and len(again.deck.cards) > 3
    with pytest.raises(ShardvizError, match=r"params\['w1'\].*dimension 1 is 95, which is not divisible"):
        read_session(path, sv.trace(step, *shapes(width=95)))
    params, x = shapes()
    with pytest.raises(ShardvizError, match=r"no argument params\['w1'\]; it has params\['w0'\], x"):
        read_session(path, sv.trace(lambda params, x: x @ params["w0"], {"w0": params["w1"]}, x))


def test_a_value_that_is_gone_is_named(program, path):
    """The program has the same arguments, and the constrained value no more."""
    changed = sv.trace(lambda params, x: jnp.mean(x @ params["w1"] @ params["w2"]), *shapes())
    with pytest.raises(ShardvizError, match="'h'"):
        read_session(path, changed)


def test_rules_without_bounds_are_refused_at_once_and_never_written(path, program):
    whole = json.loads(path.read_text())
    for rules in ([["*" * 10_000_000, None]], [["*w1", None]] * 200_000):
        whole["cards"][0]["plan"]["rules"] = rules
        path.write_text(json.dumps(whole))
        start = time.process_time()
        with pytest.raises(ShardvizError, match=r"damaged: .*rules"):
            read_session(path, program)
        assert time.process_time() - start < 5
    for rules in ([("*w1" + "*" * 2_000, P("data"))], [("*w1", P("data"))] * 2_000):
        state = ExplorerState(program, sv.Plan("data=4", rules=rules), level="propagated")
        path.write_text(session_json(state))
        again = read_session(path, program, level="propagated")
        assert again.bound == state.bound and not again.plan.rules


def test_what_is_no_session_is_refused(tmp_path, state, program):
    file = tmp_path / "x.json"
    for content, why in (
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no shardviz session of schema version 1"),
        (b'{"shardviz_session": 2}', r"found 2\)"),
        (state.report.to_json().encode(), "no shardviz session"),
        (b'{"shardviz_session": 1}', "damaged: .*required"),
    ):
        file.write_bytes(content)
        with pytest.raises(ShardvizError, match=why):
            read_session(file, program)
    for name in ("nothing.json", "a\0b.json", "\ud800.json", "a" * 300):
        with pytest.raises(ShardvizError, match="cannot be read"):
            read_session(tmp_path / name, program)


def paths(data, at=()):
    """Every place in a tree of JSON."""
    yield at
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from paths(value, (*at, key))


WRONG = st.sampled_from([None, -1, 1e99, True, "", "baseline", "\ud800", [], {}, "x" * 400, [[1]], {"a": 1}, HOSTILE])


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_session_is_refused_or_read(data, state, program, tmp_path_factory):
    """Whatever stands at whatever place: it is refused by name, or it can be shown."""
    whole = json.loads(session_json(state))
    *alternative, last = data.draw(st.sampled_from([at for at in paths(whole) if at]))
    inside = whole
    for key in alternative:
        inside = inside[key]
    if isinstance(inside, dict) and data.draw(st.booleans()):
        del inside[last]
    else:
        inside[last] = data.draw(WRONG)
    path = tmp_path_factory.mktemp("damaged") / "session.json"
    path.write_text(json.dumps(whole))
    try:
        found = read_session(path, program, level="propagated")
    except ShardvizError as error:
        assert len(str(error)) < 5000
    else:
        assert found.deck.cards
        document(found.deck)
