"""The timeline on the page: made while somebody looks, each card on its own scale, zoomed, walked and chosen from."""

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
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    program = sv.trace(step, {"up": array(8, 2048, 8192), "down": array(8, 8192, 2048)}, array(2048, 2048))
    specs = {"up": P(None, None, "model"), "down": P(None, "model", None)}
    plan = sv.Plan("data=2,model=2", in_specs=(specs, P("data")))
    return ExplorerState(program, plan, level="propagated", debounce=60, target=target)


def seen(explorer, cards):
    """What the page is told, when it has so many cards."""
    explorer.tab = "timeline"
    assert explorer.state.loop.inbox.wait_until(lambda: explorer.timeline.get("steps") == cards, 20)
    return explorer.timeline


def figures(content):
    return [block for block in content["document"]["blocks"] if block["block"] == "figure"]


def drawn(content, number=0):
    """What is said of each box of a step, and its begin, its end and its height; what it selects."""
    boxes = []
    for shape in figures(content)[number]["of"]["shapes"]:
        words = [shape["words"][n] for n in shape.get("tip_parts", ())]
        for n, tip in enumerate(words):
            begin = shape["x"][n]
            boxes.append((tip, begin, begin + shape["wide"][n], shape["high"][n], shape["selects"][n]))
    return boxes


def test_it_is_made_while_somebody_looks():
    explorer = Explorer(state())
    assert explorer.timeline == {} and explorer.state.now.timelines.items == ()
    content = seen(explorer, 1)
    assert explorer.state.cost is not None
    timeline = explorer.state.cost.timeline
    (figure,) = figures(content)
    assert figure["caption"] == f"baseline: {format_seconds(timeline.seconds)} a step"
    assert [name for lane in timeline.lanes for name in [lane.name] if name not in str(figure)] == []
    sums = [
        box for box in drawn(content) if "all-reduce" in box[0] and not box[0].partition(": ")[2].startswith("waits")
    ]
    assert sums and {tuple(selects) for *_, selects in sums} == {("line", SUM)} and all(SUM in box[0] for box in sums)
    held = {tip for tip, *_ in drawn(content) if tip.startswith("memory")}
    assert f"memory: {format_bytes(timeline.memory.peak)} held" in held
    assert held <= {f"memory: {format_bytes(size)} held" for size in timeline.memory.bytes}
    assert any("× 8" in tip or "8 identical" in tip or "7 identical" in tip for tip, *_ in drawn(content))
    explorer.tab = "source"
    assert explorer.timeline == {}


def test_an_edit_is_answered_before_its_step_is_walked():
    explorer = Explorer(state())
    first = figures(seen(explorer, 1))
    assert explorer.state.set_dim("x", 0, [])
    assert explorer.state.deck.at == "draft" and explorer.state.now.timelines.of[0] is explorer.state.cost
    draft, baseline = figures(seen(explorer, 2))
    assert draft["caption"].startswith("draft: ") and baseline["caption"] == first[0]["caption"]
    for n, figure in enumerate((draft, baseline)):
        right = max(end for _, _, end, *_ in drawn(explorer.timeline, n))
        assert right == pytest.approx(figure["of"]["width"] - 24, abs=1), "a short step is drawn as wide as a long one"
    assert explorer.state.undo() and figures(seen(explorer, 1)) == first


def test_a_part_of_the_step_is_drawn_on_all_of_the_width():
    explorer = Explorer(state())
    whole = drawn(seen(explorer, 1))
    explorer.span = [0.25, 0.5]
    part = drawn(explorer.timeline)
    wide = lambda boxes: max(end for _, _, end, *_ in boxes) - min(begin for _, begin, *_ in boxes)
    assert wide(part) == pytest.approx(wide(whole), abs=1.0)
    for tip, begin, end, *_ in part:  # each is four times as wide as before, but for what lies outside
        assert end - begin <= 4 * sum(right - left for other, left, right, *_ in whole if other == tip) + 4


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
    """Where on the picture the widest box is of which this is said, in pixels, and what is said of it."""
    tip, begin, end, *_ = max(
        (box for box in drawn(page.shown["timeline"]) if about in box[0]), key=lambda b: b[2] - b[1]
    )
    (of,) = [figure["of"] for figure in figures(page.shown["timeline"])]
    y = next(s["y"][s["tip_parts"].index(s["words"].index(tip))] for s in of["shapes"] if tip in s.get("words", ()))
    box = page.at("timeline-0").bounding_box()
    scale = box["width"] / of["width"]
    return tip, {"x": (begin + end) / 2 * scale, "y": (y + 4) * scale}


def test_a_click_shows_the_line(page):
    page.go("source")
    page.go("timeline")
    tip, at = middle(page, ": all-reduce")
    page.at("timeline-0").hover(position=at)
    assert page.at("timeline-0-said").inner_text() == tip and "bound by" in tip
    page.at("timeline-0").click(position=at)
    page.answer()
    assert page.explorer.tab == "source" and "sv-shown" in page.at(f"line-{SUM}").get_attribute("class")


def test_keys_go_from_event_to_event_and_zoom(page):
    picture, tell = page.at("timeline-0"), page.at("timeline-0-said")
    assert "compute busy" in picture.get_attribute("aria-label")
    picture.focus()
    content = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.press(key)
        content.append(tell.inner_text())
    assert len(set(content)) == 3
    spans = []
    for key in ("+", "+", ">", "-", "Home"):
        page.press(key)
        spans.append(list(page.explorer.span))
    assert spans == [[0.25, 0.75], [0.375, 0.625], [0.5, 0.75], [0.375, 0.875], [0, 1]]
    page.click("timeline-in")
    assert page.explorer.span == [0.25, 0.75]


def test_memory_is_below_the_lanes_and_told_where_it_is_pointed_at(page):
    tip, at = middle(page, "memory: ")
    page.at("timeline-0").hover(position=at)
    assert page.at("timeline-0-said").inner_text() == tip


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [1280, 700])
def test_it_can_be_read(open_page, light, width):
    explorer = Explorer(state())
    seen(explorer, 1)
    assert explorer.state.set_dim("x", 0, [])
    seen(explorer, 2)
    page = open_page(explorer, width=width, light=light)
    assert page.at("panel-timeline").locator("figure").count() == 2
    assert page.tab.evaluate(UNREADABLE, page.at("panel-timeline").element_handle()) == []
    worst = page.tab.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst
