"""Hostile names stay text wherever they come to the page: rules, dimensions, cards, why, exercises, session files."""

import ipywidgets as w
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.page.page import UNREADABLE
from tests.page.test_exercise import inside, press
from tests.raw import array

NAMES = {
    "tag": "<img src=x onerror=window.evil=1>",
    "quotes": "\"'`]['><b onclick=window.evil=1>",
    "newline": "a\nb\r\n<script>window.evil=1</script>",
    "long": "<b>" + "long_name_" * 80,
    "turned": "\u202e<svg onload=window.evil=1>",
}
AXIS = "\"><script>window.evil=1</script>'"
TABS = ("shards", "values", "collectives", "memory", "cost", "machine", "code", "rosetta", "problems", "source")
ONE_OF_MANY = [pytest.param(name, id=id, marks=pytest.mark.long if id != "tag" else ()) for id, name in NAMES.items()]


def program_of(name):
    def step(params, x):
        h = jnp.tanh(x @ params[name])
        return h @ params["down"]

    return sv.trace(step, {name: array(16, 64), "down": array(64, 16)}, array(8, 16))


def unharmed(page):
    """No name became an element or ran."""
    assert page.tab.evaluate("window.evil") is None
    found = "img[src=x], b[onclick], svg[onload], #app script"
    assert page.tab.locator(found).count() == 0
    assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nor does it widen the page"


@pytest.mark.parametrize("name", ONE_OF_MANY)
def test_on_the_page(open_page, tmp_path, name):
    program = program_of(name)
    argument = next(v for v in program.propagate(sv.Plan("data=4,model=2")).arguments if v.shape == (16, 64))
    plan = sv.Plan({"data": 2, "model": 2, AXIS: 2}, in_specs=({name: P(None, "model"), "down": P()}, P(None, AXIS)))
    state = ExplorerState(program, plan, level="propagated", debounce=60, target="tpu v5e:2x4")
    explorer = Explorer(state)
    explorer.wants = "dimensions"
    assert state.loop.inbox.wait_until(lambda: state.logical.found is not None, 60)
    page = open_page(explorer)

    # a rule of a pattern that catches it, one that cannot be, and a card and a dimension that are called so
    page.go("rules")
    assert not state.add_rule("*", f"P({name!r})") and state.error is not None
    page.answer()
    unharmed(page)
    assert page.tab.locator(".sv-error").first.is_visible()
    assert state.add_rule("*", "P('data')") and state.add_rule(f"*{name[:40]}*", "P('model')")
    page.answer()
    unharmed(page)
    assert page.at("panel-rules").evaluate(UNREADABLE) == []
    assert state.pin(name)
    page.answer()
    unharmed(page)
    shown = page.tab.locator(".sv-cardname").last.inner_text()
    assert name.split()[0][1:8] in shown

    # why, of the array that is called so
    page.go("source")
    state.ask_why(argument.name, "model")
    while state.now.why.busy:
        page.answer()
    page.answer()
    unharmed(page)
    assert page.at("why").is_visible() and state.now.why.answer is not None

    # every pane, a menu, and what is typed and refused
    explorer.device = 3
    for tab in TABS:
        page.go(tab)
        unharmed(page)
    page.at(f"slot-{argument.name}-0").click()
    assert AXIS in page.at("menu").inner_text()
    page.tab.keyboard.press("Escape")
    page.at("target").click()
    page.enter("target-text", f"<b>tpu</b> {NAMES['tag']}")
    assert "<img" in page.at("target-error").inner_text()
    unharmed(page)
    page.tab.keyboard.press("Escape")

    # kept as a session, and opened again
    path = explorer.save(tmp_path / "session.json")
    again = sv.open(path, program)
    assert [card.name for card in again.state.deck.cards] == [card.name for card in state.deck.cards]
    unharmed(open_page(again))
    kept = explorer.save(tmp_path / "kept.html")
    page.tab.goto(kept.as_uri())
    assert page.tab.locator("img, script, b[onclick], svg[onload]").count() == 0


@pytest.mark.parametrize("name", ONE_OF_MANY)
@pytest.mark.parametrize("ask", ["outputs", "collectives"])
def test_in_an_exercise(name, ask):
    program = program_of(name)
    exercise = sv.lessons.exercise(
        program, sv.Plan("data=4,model=2", in_specs=({name: P(), "down": P("model")}, P())), ask=ask
    )
    form = exercise.widget()
    for field in inside(form, w.Text):
        field.value = name.replace("\n", " ")
    press(form, "Check")
    for text in inside(form, w.HTML):
        for tag in ("<img", "<script", "<b onclick", "<svg onload"):
            assert tag not in text.value
    assert "<img" not in exercise.html() and "<script" not in exercise.html()
