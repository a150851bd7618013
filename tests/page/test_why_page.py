"""Why, on the page: asked of a chip, a value and a collective by mouse and keys; the chain lights up its lines."""

import pytest

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.page.page import CONTRAST, UNREADABLE


@pytest.fixture(scope="module")
def example():
    return sv.gallery.mlp(mesh="data=4,model=2")


def state_of(example, level="propagated"):
    state = ExplorerState(example.program, example.plan, level=level, target="tpu v5p:2x2x2", debounce=0.01)
    if level != "propagated":
        state.wait(level, timeout=100)
    return state


def opened(page):
    """Opens every line of the source."""
    closed = page.tab.locator("[data-testid^=open-line-][aria-expanded=false]")
    while closed.count():
        closed.first.click()


def asked_of_a_value(page, state):
    """A value of the source with an axis on it, and its button for that axis."""
    opened(page)
    chip = page.tab.locator('.sv-panel-source button[data-testid^="why-model-"]').first
    name = chip.get_attribute("data-testid").removeprefix("why-model-")
    return next(v for v in state.report.intermediates if v.name == name), chip


def answered(page, state):
    """Has the page show the answer, which is found between what else is asked."""
    page.answer()
    while state.now.why.busy:
        page.answer()
    page.answer()


@pytest.mark.parametrize("level", ["propagated", "partitioned"])
def test_why_is_asked_of_a_chip_and_gone_through_by_keys(open_page, example, level):
    state = state_of(example, level)
    page = open_page(Explorer(state))
    value, chip = asked_of_a_value(page, state)
    chip.focus()
    page.tab.keyboard.press("Enter")
    answered(page, state)
    answer = state.now.why.answer
    assert [each.axis for each in answer.axes] == ["model"] and not state.now.why.trouble
    assert (answer.value.op, answer.value.shape) == (value.op, value.shape), "the same value, whatever its name is"
    there = "document.activeElement.dataset.testid === 'why-step'"
    page.tab.wait_for_function(there)  # the focus is where the chain can be gone along
    line = lambda: page.tab.locator(".sv-ln.sv-now").get_attribute("data-testid")
    lines = [hop.source.short for hop in answer.chain if hop.source]
    assert line() == f"line-{lines[-1]}"
    last = int(page.at("why-step").get_attribute("max"))
    assert page.at("why-step").input_value() == str(last)
    for _ in range(last):
        page.tab.keyboard.press("ArrowLeft")
    assert "begins at" in page.at("why-now").inner_text()
    assert answer.causes[0].source.name in page.at("why-now").inner_text()
    page.at("why-on").click()
    assert page.at("why-step").input_value() == "1"
    assert line() == f"line-{lines[0]}", "the nearest that has one"
    assert page.tab.locator("tr.sv-now").count() == 1
    page.at("why-step").focus()
    page.press("Escape")
    assert not page.at("why").is_visible() and page.focus() == chip.get_attribute("data-testid")
    assert page.tab.locator(".sv-ln.sv-lit, .sv-ln.sv-now").count() == 0 and state.now.why.name == ""


def test_why_of_a_collective_a_selected_value_and_an_input(open_page, example):
    state = state_of(example, "partitioned")
    page = open_page(Explorer(state))
    opened(page)
    page.at("panel-source").get_by_role("button", name="why?").first.click()
    answered(page, state)
    asked = state.now.why
    assert asked.answer.need.words in page.at("why").inner_text() and not asked.trouble
    assert page.tab.locator(".sv-ln.sv-now, .sv-ln.sv-lit").count()
    page.click("why-close")
    name = state.report.arguments[0].name
    page.click(f"name-{name}")
    page.at(f"name-{name}").press("w")
    answered(page, state)
    assert state.now.why.name == name and state.now.why.answer.role == "argument"
    assert page.at("why").inner_text().count("its own spec says so") >= 1
    page.click("why-close")
    page.at(f"slot-{name}-0").click()
    page.at("menu-why").click()
    answered(page, state)
    assert state.now.why.name == name and page.at("why").is_visible()
    page.go("collectives")
    page.at("panel-collectives").get_by_role("button", name="why?").first.click()
    answered(page, state)
    assert state.now.why.name in {c.name for c in state.report.collectives}
    assert page.at("why").is_visible() and page.at("panel-collectives").is_visible()
    state.set_dim(name, 0, [])
    assert state.now.why.name == "", "an answer is of one plan"


@pytest.mark.parametrize(("width", "light"), [(1280, True), (700, False)])
def test_the_answer_can_be_read(open_page, example, width, light):
    state = state_of(example)
    page = open_page(Explorer(state), width=width, light=light)
    _, chip = asked_of_a_value(page, state)
    chip.click()
    answered(page, state)
    box = page.at("why")
    assert box.evaluate(UNREADABLE) == [] and page.tab.evaluate(CONTRAST)["ratio"] >= 4.5


def test_a_value_is_constrained_from_the_source(open_page, example):
    """Its spec is typed, what is refused is said there, and a cross takes it away."""
    state = state_of(example)
    page = open_page(Explorer(state))
    value, _ = asked_of_a_value(page, state)
    assert not page.at("constrain").is_visible(), "an argument is selected at first"
    page.click(page.at(f"pick-value-{value.name}").first)
    field = page.at(f"constrain-{value.name}")
    assert field.input_value() == str(value.spec.canonical())
    page.enter(field, "P('nowhere')")
    assert "no axis 'nowhere'" in page.at("value-error").inner_text() and state.plan == example.plan
    page.enter(field, "P(None, 'data')")
    (constraint,) = state.bound.constraints
    assert str(constraint.spec) == "P(None, 'data')" and page.at("value-error").count() == 0
    (held,) = page.tab.locator(".sv-constrainrow", has_text="constrained").all_inner_texts()
    assert constraint.source.short in held and "P(None, 'data')" in held
    assert page.at("constrain").evaluate(UNREADABLE) == []
    page.click("unconstrain-0")
    assert state.plan.constraints == () and page.at("unconstrain-0").count() == 0
