"""One look: what is closed until it is asked for, what a line of the source opens, and the keys after a fix."""

import pytest

from shardviz.explorer import background
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.plan.plan import Plan
from tests.page.test_cards_page import W1, fix, fixes
from tests.page.test_hands import explorer_of
from tests.page.test_looks import answered

pytestmark = pytest.mark.usefixtures("compilers")


@pytest.fixture
def page(open_page, program, plan):
    page = open_page(answered(program, plan, "tpu v5e:2x4"))
    page.answer()
    return page


def test_the_drawer_opens_with_a_selection_and_closes(page):
    drawer = page.at("drawer")
    assert drawer.is_hidden(), "closed, whatever is selected at first"
    page.click(page.tab.locator(".sv-leaf .sv-name").last)
    assert drawer.is_visible() and page.explorer.state.selected in page.at("map-small").inner_text()
    page.tab.keyboard.press("Escape")
    page.at("drawer-close").focus()
    page.tab.keyboard.press("Escape")
    assert drawer.is_hidden() and page.focus() == "shardviz"


def test_a_line_opens_what_happens_on_it_and_what_it_costs(page):
    open_lines = page.tab.locator("[aria-expanded=true][data-testid^=open-line]")
    assert open_lines.count() == 1, "the line that takes most"
    (first,) = (line.get_attribute("data-testid").removeprefix("open-line-") for line in open_lines.all())
    each = "(all) => all.map((e) => [Number(e.dataset.heat), e.dataset.testid])"
    heats = page.tab.locator(".sv-ln").evaluate_all(each)
    assert max(heats, key=lambda each: each[0])[1] == f"line-{first}"
    page.answer()
    costs = page.at(f"in-{first}").get_by_test_id("line-costs").locator("tbody tr")
    assert costs.count() == len(page.explorer.lines[first]["blocks"][0]["rows"]) > 0
    page.at(f"open-line-{first}").click()
    assert page.at(f"in-{first}").count() == 0 and open_lines.count() == 0


def test_arrays_are_folded_where_they_are_many_until_one_is_looked_for(open_page):
    page = open_page(explorer_of())
    page.answer()
    leaves = page.tab.locator(".sv-leaf")
    assert all(not leaf.is_visible() for leaf in leaves.all())
    page.tab.locator(".shardviz").press("/")
    page.tab.keyboard.type("up")
    page.tab.locator(".sv-hit", has_text="input").first.click()
    assert leaves.first.is_visible()


def test_the_palette_finds_arrays_lines_actions_and_settings(page):
    def hits(text):
        page.tab.locator(".shardviz").press("/")
        page.tab.keyboard.type(text)
        return page.tab.locator(".sv-hit").all_inner_texts()

    assert hits("find the best")[0].split("\n")[:2] == ["action", "Find the best"]
    page.tab.keyboard.press("Escape")
    assert page.at("palette").count() == 0
    assert any(hit.startswith("line") for hit in hits("model.py:3"))
    page.tab.keyboard.press("Escape")
    assert any("double data" in hit for hit in hits("double data"))
    page.tab.keyboard.press("Enter")
    assert page.edits()[-1] == {"op": "resize_axis", "name": "data", "size": 8}
    hits("findings")
    page.press("Enter")
    assert page.explorer.tab == "problems" and page.at("palette").count() == 0
    hits(W1)
    page.tab.locator(".sv-hit", has_text="input").first.click()
    assert page.at("search").input_value() == W1 and page.at("drawer").is_visible()


def test_keys_are_the_pages_after_what_had_the_focus_is_gone(page, plan, monkeypatch):
    state = page.explorer.state
    better = plan.with_spec(W1, ("data",))
    found = fixes(1, fix(state, better, seconds=1.5, bytes=2e6, memory=0.0))
    monkeypatch.setattr(background, "fixes", lambda *given: iter([found] if given[-1] == plan else []))
    state.try_fixes()
    page.click("fix")
    page.click(page.tab.locator("[data-choice='fix cut <w1>']").first)
    assert state.plan == better and page.tab.locator("[data-choice='fix cut <w1>']").count() == 0
    page.press("Control+z")
    assert state.plan == plan


# The words of the scatter that a point lies on.
COVERED = """() => [...document.querySelectorAll(".sv-scatter text")].filter((text) => {
  const a = text.getBoundingClientRect();
  return [...document.querySelectorAll(".sv-point")].map((point) => point.getBoundingClientRect()).some((b) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom);
}).map((text) => text.textContent)"""


def test_each_plan_that_has_a_time_is_a_point_and_a_click_opens_it(page):
    page.explorer.state.pin("one")
    page.answer()
    points = page.tab.locator(".sv-point")
    assert points.count() == len(page.explorer.cards["points"]) == 2
    words = page.explorer.cards["words"]
    said = page.tab.locator(".sv-scatter text").all_text_contents()
    limit = f"limit {words['usable']}, not in view"
    assert said == [f"step, to {words['seconds']}", "is open", f"memory, to {words['bytes']}", limit]
    assert page.tab.evaluate(COVERED) == []
    page.tab.locator(".sv-point:not(.sv-on)").first.dispatch_event("click")
    assert page.edits()[-1]["op"] == "open_card"


def test_a_plan_dragged_onto_another_tells_their_difference(page):
    page.explorer.state.pin("one")
    page.answer()
    kept = next(card.id for card in page.explorer.state.deck.cards if card.name == "one")
    page.at(f"card-{kept}").drag_to(page.at("card-baseline"), source_position={"x": 20, "y": 10})
    page.answer()
    assert (page.explorer.state.deck.at, page.explorer.state.deck.against) == (kept, "baseline")
    assert page.explorer.tab == "difference" and page.at("panel-difference").is_visible()


def test_of_many_rows_the_first_hundred_are_there_and_more_for_the_asking(open_page, make_program, plan):
    program = make_program({f"array{n:03d}": (64 + n, 8) for n in range(150)})
    page = open_page(Explorer(ExplorerState(program, Plan(plan.mesh), level="propagated")))
    page.at("open-inputs").click()
    rows = page.tab.locator("[aria-label=Inputs] .sv-leaf")
    assert rows.count() == 100 and page.at("more-inputs").inner_text() == "50 more rows"
    page.at("name-array000").focus()
    page.tab.keyboard.press("End")
    assert page.focus() == "name-array099"
    page.tab.keyboard.press("ArrowDown")
    assert page.focus() == "name-array100" and rows.count() == 150 and page.at("more-inputs").count() == 0
    page.at("search").fill("149")
    assert rows.count() == 1
