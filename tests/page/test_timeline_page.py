"""The timeline on the page: made while somebody looks, two cards on one scale, zoomed, walked and chosen from."""

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.records.amounts import format_bytes, format_seconds
from tests.page.documents import said
from tests.page.page import CONTRAST, UNREADABLE

P = jax.sharding.PartitionSpec


def step(w, x):
    def layer(x, w):
        h = jnp.tanh(x @ w["up"])
        return h @ w["down"], None

    return jax.lax.scan(layer, x, w)[0]


SUM = f"test_timeline_page.py:{step.__code__.co_firstlineno + 3}"


def state(target="tpu v5e:2x2"):
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)  # noqa: E731
    program = sv.trace(step, {"up": array(8, 2048, 8192), "down": array(8, 8192, 2048)}, array(2048, 2048))
    specs = {"up": P(None, None, "model"), "down": P(None, "model", None)}
    plan = sv.Plan("data=2,model=2", in_specs=(specs, P("data")))
    return ExplorerState(program, plan, level="propagated", debounce=60, target=target)


def seen(explorer, cards):
    """What the page is told, when it has so many cards."""
    explorer.tab = "timeline"
    there = lambda: len(explorer.timeline.get("cards", ())) == cards  # noqa: E731
    assert explorer.state.loop.inbox.wait_until(there, 20)
    return explorer.timeline


def walked(explorer):
    """The open card's step, as Python has it."""
    assert explorer.state.cost is not None
    return explorer.state.cost.timeline


def test_it_is_made_while_somebody_looks():
    explorer = Explorer(state())
    assert explorer.timeline == {} and explorer.state.now.timelines.items == ()
    told = seen(explorer, 1)
    timeline = walked(explorer)
    (card,) = told["cards"]
    assert (card["name"], card["seconds"], card["said"]) == (
        "baseline",
        timeline.seconds,
        format_seconds(timeline.seconds),
    )
    for number, (name, axis, busy) in enumerate(card["lanes"]):
        wide = sum(event[2] for event in card["events"] if event[0] == number)
        lane = next((each for each in timeline.lanes if each.name == name), None)
        if lane is None:
            assert name == "waits" and wide == pytest.approx(sum(e.seconds for e in timeline.exposed), rel=1e-6)
        else:
            assert wide == pytest.approx(lane.busy, rel=1e-6) and (axis, busy) == (lane.axis, format_seconds(lane.busy))
    memory, held = timeline.memory, card["memory"]
    assert held["peak"] == format_bytes(memory.peak) and memory.rests_on in held["said"]
    assert [size for _, size, _ in held["steps"]] == list(memory.bytes)
    assert told["top"] == memory.peak < held["usable"][0] == memory.usable  # a v5e has 50 times as much: no line
    (loop,) = [loop for loop in card["loops"] if loop[2] == 0]
    assert loop[3] in ("× 8", "× 7") and loop[0] + loop[1] <= timeline.seconds * (1 + 1e-8)
    kinds = {told["kinds"][event[3]][1]: told["kinds"][event[3]] for event in card["events"]}
    look, _, about, chosen = kinds[SUM]
    assert told["looks"][look][0] in about or about.startswith(("waits", "products", "all-reduce"))
    assert SUM in said(told["chosen"][chosen]) and told["values"][SUM]
    explorer.tab = "source"
    assert explorer.timeline == {}


def test_an_edit_is_answered_before_its_step_is_walked():
    explorer = Explorer(state())
    seen(explorer, 1)
    assert explorer.state.set_dim("x", 0, [])
    assert explorer.state.deck.at == "draft" and explorer.state.now.timelines.of[0] is explorer.state.cost
    told = seen(explorer, 2)
    draft, baseline = told["cards"]
    assert (draft["name"], baseline["name"]) == ("draft", "baseline")
    assert draft["seconds"] == walked(explorer).seconds != baseline["seconds"]
    assert told["seconds"] == max(draft["seconds"], baseline["seconds"])
    assert explorer.state.undo() and seen(explorer, 1)["cards"] == [baseline]


def test_without_a_machine_or_a_program_it_is_said(program, plan, compilers):
    explorer = Explorer(state("cpu"))
    explorer.tab = "timeline"
    assert "No machine is chosen" in said(explorer.timeline["document"]["blocks"][0]["pieces"])
    explorer = Explorer(ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4"))  # its reports have no schedule
    explorer.tab = "timeline"
    assert explorer.state.loop.inbox.wait_until(lambda: bool(explorer.timeline), 20)
    assert "has no schedule to walk" in said(explorer.timeline["document"]["blocks"][0]["pieces"])


@pytest.fixture
def page(open_page):
    explorer = Explorer(state())
    seen(explorer, 1)
    return open_page(explorer)


def middle(page, about):
    """Where on the canvas the widest event is of which this is said, in pixels."""
    told = page.shown["timeline"]
    (card,) = told["cards"]
    event = max((e for e in card["events"] if told["kinds"][e[3]][2].startswith(about)), key=lambda e: e[2])
    box = page.at("timeline-canvas").bounding_box()
    bands = max((loop[2] + 1 for loop in card["loops"]), default=0)
    x = (event[1] + event[2] / 2) / (told["seconds"] * 1.02) * box["width"]
    return event, {"x": x, "y": 22 + 26 + 14 * bands + 20 * event[0] + 10}


def test_a_click_selects_the_line_its_value_and_the_collective(page):
    event, at = middle(page, "all-reduce")
    page.at("timeline-canvas").hover(position=at)
    assert event[4] in page.at("timeline-said").inner_text() and "bound by" in page.at("timeline-said").inner_text()
    page.at("timeline-canvas").click(position=at)
    chosen = page.at("timeline-chosen")
    assert SUM in chosen.inner_text() and event[5] in chosen.inner_text()
    assert chosen.locator(f"[data-thing='moved all-reduce model {SUM}']").count() == 1
    page.answer()
    assert page.explorer.state.selected in page.shown["timeline"]["values"][SUM]
    page.click(chosen.get_by_role("button", name="its collectives"))
    assert page.explorer.tab == "collectives" and page.explorer.query["line"] == SUM
    page.go("source")
    assert "sv-lit" in page.at(f"line-{SUM}").get_attribute("class")


def test_keys_go_from_event_to_event_and_zoom(page):
    canvas, tell = page.at("timeline-canvas"), page.at("timeline-said")
    label = canvas.get_attribute("aria-label")
    assert "baseline" in label and "compute" in label
    canvas.focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "+", "+", "ArrowDown", "Shift+ArrowRight", "Home", "Enter"):
        page.tab.keyboard.press(key)
        said.append(tell.inner_text())
    assert said[0].startswith("compute: ") and said[0] != said[1] == said[3] and not said[4].startswith("compute: ")
    assert page.at("timeline-chosen").is_visible() and canvas.evaluate("(el) => el === document.activeElement")
    page.tab.keyboard.press("Tab")
    assert page.focus() != "timeline-canvas"


def test_memory_is_below_the_lanes_and_told_where_it_is_pointed_at(page):
    canvas, tell = page.at("timeline-canvas"), page.at("timeline-said")
    box, steps = canvas.bounding_box(), page.shown["timeline"]["cards"][0]["memory"]["steps"]
    assert page.at("panel-timeline").locator(".sv-tlname").last.inner_text().startswith("memory")
    canvas.hover(position={"x": box["width"] / 2, "y": box["height"] - 20})
    told = tell.inner_text()
    assert told.startswith("memory: ") and told.removeprefix("memory: ") in {words for _, _, words in steps}
    canvas.click(position={"x": box["width"] / 2, "y": box["height"] - 20})
    assert not page.at("timeline-chosen").is_visible()


def drawn(page):
    """The canvas as it is after the next frame."""
    page.tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.at("timeline-canvas").evaluate("(el) => el.toDataURL()")


def test_the_wheel_zooms_a_drag_moves_and_a_theme_is_followed(page):
    canvas = page.at("timeline-canvas")
    box = canvas.bounding_box()
    looks = [drawn(page)]
    page.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + 70)
    page.tab.mouse.wheel(0, -600)
    looks.append(drawn(page))
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + box["width"] / 2 - 60, box["y"] + 70, steps=3)
    page.tab.mouse.up()
    looks.append(drawn(page))
    assert not page.at("timeline-chosen").is_visible(), "a drag chooses nothing"
    page.at("timeline-whole").click()
    page.tab.mouse.move(0, 0)
    assert drawn(page) == looks[0] and len(set(looks)) == 3
    page.tab.evaluate("document.body.dataset.jpThemeLight = 'false'")
    assert drawn(page) not in looks


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [1280, 700])
def test_it_can_be_read(open_page, light, width):
    explorer = Explorer(state())
    seen(explorer, 1)
    assert explorer.state.set_dim("x", 0, [])
    seen(explorer, 2)
    page = open_page(explorer, width=width, light=light)
    assert page.at("panel-timeline").locator(".sv-tlhead").count() == 2
    assert page.tab.evaluate(UNREADABLE, page.at("panel-timeline").element_handle()) == []
    worst = page.tab.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst
