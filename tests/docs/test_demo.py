"""The demo without a kernel: its page answers as the record does, and the record as the live engine.

All states are compared at level `propagated`. All that the page shows is compared, at the record's level, for the
nearest states and for some others, which change from day to day.
"""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shardviz.records.amounts import format_seconds
from tests.scripts import loaded

pytestmark = pytest.mark.long

FEW = 10
HEAD = "[data-testid=shardviz] .sv-facts"


@pytest.fixture(scope="module")
def demo():
    return loaded("docs/demo.py")


@pytest.fixture(scope="module")
def few(demo):
    """A small recording: the first state, a drag, a preset and two more meshes, on two machines."""
    with demo.Recorder(FEW, fixed=0) as recorder:
        yield recorder


def value_of(pool, of) -> Any:
    """A value with what it has of the pool, as `docs/site/demo.js` reads it."""
    if isinstance(of, list):
        return [value_of(pool, part) for part in of]
    if not isinstance(of, dict):
        return of
    return value_of(pool, pool[of["$"]]) if "$" in of else {key: value_of(pool, of[key]) for key in of}


def facts(recorder, number):
    """What the page's head has to show of a state."""
    pool, shown = recorder.pool.values, recorder.states[number].shown
    blocks = value_of(pool, shown)["head"]["verdict"]["blocks"]
    step = next(block for block in blocks if block.get("name") == "top-step")
    return step["pieces"][0]["t"]


def compared(demo, recorder, states):
    """The traits in which a new explorer that follows the same edits differs from the record, by state.

    Of presets the names are compared: their level is the highest that the engine was asked for before.
    """
    explorer, differ = demo.opened(), {}
    try:
        first = explorer.state.now
        for number, state in enumerate(states):
            demo.restore(explorer, first)
            demo.follow(explorer, state.path)
            if state.now.tried_fixes.of == state.now.plan:
                demo.say(explorer, op="try_fixes")
            demo.say(explorer, op="try_presets")
            explorer.state.put(changed=frozenset())
            live, record = demo.as_json(demo.shown(explorer)), value_of(recorder.pool.values, state.shown)
            for each in (live, record):
                each["presets"] = sorted(
                    str(row.get("sel")) for row in each["presets"][1]["document"]["blocks"][0]["rows"]
                )
            if names := sorted(name for name in live.keys() | record.keys() if live.get(name) != record.get(name)):
                differ[number] = names
    finally:
        explorer.state.close()
    return differ


def test_what_is_recorded_is_what_the_live_engine_answers(demo, few):
    assert len(few.states) == FEW
    assert {each.now.machine.machine.chip.kind for each in few.states} == {"tpu", "gpu"}
    assert len({each.now.plan.mesh.sizes for each in few.states}) == 3
    assert len(demo.page_of(few.record())) < 5e6
    assert compared(demo, few, few.states[::2]) == {}


def test_an_edit_leads_to_the_state_of_its_plan(demo, few):
    """Whatever the way there, the live engine's plan after an edit is the plan of the state that the page goes to."""
    explorer = few.explorer
    edges = [(state, edit, to) for state in few.states for edit, to in state.edits.items()]
    assert {demo.json.loads(edit)["op"] for _, edit, _ in edges} >= {"shard_dimension", "take_preset", "set_target"}
    for state, edit, to in edges[:: max(1, len(edges) // 8)]:
        demo.restore(explorer, state.now)
        demo.say(explorer, **demo.json.loads(edit))
        assert demo.key_of_state(explorer.state.now) == demo.key_of_state(few.states[to].now), edit


@pytest.fixture(scope="module")
def propagated(demo):
    """All states of the site's recording at level `propagated`: in place of what a page shows, the report and head."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "LEVEL", "propagated")
        patch.setattr(demo, "shown", lambda explorer: {"report": explorer.report, "head": demo.as_json(explorer.head)})
        patch.setattr(demo.Pool, "of", lambda _, value: value)
        recorder = demo.Recorder(fixed=0)
    with recorder:
        yield recorder


def told(report) -> dict[str, Any]:
    return {name: value for name, value in json.loads(report.to_json()).items() if name != "timings"}


@pytest.mark.timeout(900)
def test_each_state_is_what_a_fresh_engine_propagates(demo, propagated):
    """The report of each state's plan, and on each machine the seconds of its step."""
    assert 0.9 * demo.STATES <= len(propagated.states) <= demo.STATES
    mesh = dict(zip(("data", "model"), next(iter(demo.MESHES)), strict=True))
    program = demo.sv.gallery.llama("8b", mesh=mesh).program
    answers: dict[str, Any] = {}
    for number, state in enumerate(propagated.states):
        plan, target = state.now.plan, state.now.machine.target
        key = demo.key_of_bound(state.now.bound, "")
        if key not in answers:
            answers[key] = program.propagate(plan)
            assert told(answers[key]) == told(state.shown["report"]), number
        step = demo.sv.cost(answers[key], target).step.seconds
        assert format_seconds(step) == facts(propagated, number), number
    assert len(answers) > 0.45 * len(propagated.states)  # each plan has its own report, on two machines


@pytest.mark.timeout(3600)
def test_a_far_state_is_what_the_live_engine_answers(demo, propagated):
    """Its ways lead through other states than the nearest; a new explorer takes the same one from the beginning. It has
    been on each machine before, as the recording's has: until a card is opened there, it keeps what was partitioned for
    the machine before."""
    paths = [state.path for state in random.Random(1).sample(propagated.states[FEW:], 3)]
    with demo.Recorder(1, fixed=0) as recorder:
        ends = []
        for path in paths:
            state = recorder.states[0]
            for edit in path:
                state = recorder._reached(state, edit, 0.0)
                recorder._record(state)
            ends.append(state)
        assert compared(demo, recorder, [*recorder.states[: len(demo.TARGETS)], *ends]) == {}


OTHER_SCRIPT = "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"


def drop(page, axis, name):
    page.locator(f"[data-testid=mesh-axis-{axis}] .sv-grip").drag_to(page.get_by_test_id(f"dim-{name}"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_played_from_the_disk(demo, few, browser, tmp_path: Path, scheme):
    """A drag, a preset and an edit that was not recorded: from a file, with nothing but the page's own script."""
    file = tmp_path / "demo.html"
    file.write_text(demo.page_of(few.record()), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    troubles, asked = [], []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text))  # a broken policy is told here
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    at = partial(page.get_by_test_id)
    at("shardviz").wait_for()
    assert ("sv-dark" in at("shardviz").get_attribute("class")) == (scheme == "dark")
    edits = few.states[0].edits
    drag = next(demo.json.loads(key) for key in edits if '"shard_dimension"' in key)
    drop(page, drag["axes"][-1], drag["name"])
    to = edits[demo.key_of(drag)]
    page.get_by_text(f"State {to + 1} of {FEW}").wait_for()
    assert facts(few, to) in page.locator(HEAD).inner_text()
    assert "partitioned" in at("level").inner_text() and "recorded" in at("level").inner_text()
    at("undo").click()
    at("presets").click()
    preset = next(demo.json.loads(key)["preset"] for key in edits if '"take_preset"' in key)
    at(f"take-{preset}").click()
    page.get_by_text(f"State {edits[demo.key_of({'op': 'take_preset', 'preset': preset})] + 1} of {FEW}").wait_for()
    for tab in ("timeline", "memory", "collectives", "shards", "machine"):
        at(f"tab-{tab}").click()
        assert len(at(f"panel-{tab}").inner_text()) > 100
    before = page.locator(HEAD).inner_text()
    at("find-best").click()
    said = at("recording-error").inner_text()
    assert "not recorded" in said and all(command in said for command in demo.commands())
    assert page.locator(HEAD).inner_text() == before
    at("keep-html").click()
    assert "saves no files" in at("kept").inner_text()
    assert not troubles and asked == [file.as_uri()]
    page.evaluate(OTHER_SCRIPT)
    assert page.evaluate("window.ran") is None and "Content Security Policy" in troubles[0]
    context.close()
