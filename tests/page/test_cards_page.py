"""The cards on the page: opened, kept, named, moved and deleted by mouse and keys; presets, and a search."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import shardviz as sv
from shardviz.explorer import background
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.study.fixes import Fix, Fixes
from tests.page.documents import rows

W1 = "params['w1']"


@pytest.fixture
def page(open_page, program, plan, compilers):
    state = ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4")
    state.set_dim(W1, 0, ["data"])
    return open_page(Explorer(state))


def names(page):
    return page.tab.locator(".sv-cardname").all_inner_texts()


def test_a_card_is_opened_kept_and_named(page):
    assert names(page) == ["baseline", "draft"] and page.at("card-draft").get_attribute("aria-current") == "true"
    page.click("card-baseline")
    assert page.at("card-baseline").get_attribute("aria-current") == "true" and len(page.explorer.state.past) == 2
    page.click("card-draft")
    page.at("card-draft").hover()
    page.click("pin-draft")
    assert names(page) == ["baseline", "plan 1"]
    page.at("card-card-1").dblclick()
    page.enter("card-name", "rows <b>")
    assert names(page) == ["baseline", "rows <b>"]
    page.click("undo")
    assert names(page) == ["baseline", "rows <b>"] and page.explorer.state.deck.at == "baseline"


def test_what_is_clicked_on_another_card_is_of_that_card_and_its_tools_hide_nothing_else(page):
    name = page.at("card-baseline").locator(".sv-cardname")
    tools = page.at("card-baseline").locator(".sv-cardtools")
    name.hover()  # fails if something lies over it
    assert tools.is_visible()
    page.click(page.at("card-baseline").get_by_test_id("pick-tab-problems"))
    assert page.explorer.state.deck.at == "baseline" and page.explorer.tab == "problems"
    page.tab.mouse.move(640, 300)
    assert not tools.is_visible(), "though the card has the focus"


def test_by_the_keyboard_alone(page):
    page.at("card-draft").focus()
    press = page.tab.keyboard.press
    for key, edit in (
        ("k", {"op": "pin"}),
        ("ArrowLeft", None),
        ("c", {"op": "compare_with", "card": "baseline"}),
        ("Alt+ArrowRight", {"op": "move_card", "card": "baseline", "to": 1}),
        ("Enter", {"op": "open_card", "card": "baseline"}),
    ):
        before = len(page.edits())
        press(key)
        if edit is not None:
            assert page.edits()[-1] == edit and len(page.edits()) >= before
        page.answer()
    assert page.focus() == "card-baseline" and names(page) == ["plan 1", "baseline"]
    press("ArrowLeft")
    press("Delete")
    page.answer()
    assert names(page) == ["baseline"]


def test_a_preset_is_seen_before_it_is_taken(page):
    page.click("presets")
    tried = lambda: {preset.name for preset in page.explorer.state.now.presets.items}
    assert page.explorer.state.loop.inbox.wait_until(lambda: {"whole", "wrong"} <= tried(), 60)
    page.answer()
    content = page.at("presets-pane").inner_text()
    assert "nothing is cut" in content and "no axis 'none'" in content and page.at("take-wrong").count() == 0
    assert [row[0] for row in rows(page.explorer.presets, "presets")][-1] == "wrong", "what cannot be comes last"
    page.click("take-whole")
    assert names(page)[-1] == "whole" and page.explorer.state.deck.now.name == "whole"
    assert page.at("presets-pane").is_hidden()
    assert page.explorer.state.undo() and page.explorer.state.deck.at == "draft"


def known(tried, share, best=None, text=""):
    """What a search knows, as far as the explorer shows it."""
    found = None if best is None else SimpleNamespace(plan=best, text=text, report=SimpleNamespace(level="propagated"))
    return SimpleNamespace(tried=(None,) * tried, seconds=share * background.SEARCH_SECONDS, best=found, why_not=())


def test_a_search_is_seen_as_it_goes_and_ends_when_it_is_stopped(open_page, program, plan, compilers, monkeypatch):
    """It goes on in slices on this process's event loop, as in a kernel; it finds what the test lets it find."""
    state = ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4")
    plans = [plan.with_spec(W1, spec) for spec in (("data",), ("model",), (None, "data"))]
    found, ended = [], []

    def finder(*_):
        content, state = 0, known(0, 0.0)
        try:
            while True:
                if len(found) > content:
                    content = len(found)
                    state = known(content, content / 4, found[-1], f"number {content}")
                yield state
        finally:
            ended.append(content)

    monkeypatch.setattr(background, "searches", finder)
    page = open_page(Explorer(state))
    button, progress = page.at("find-best"), page.at("search-outcome")

    def until(ready):
        for _ in range(500):
            page.answer()
            if ready():
                return
            page.tab.wait_for_timeout(20)
        raise AssertionError(f"the page stays at {progress.inner_text()!r}")

    button.click()
    for n, better in enumerate(plans, 1):
        found.append(better)
        until(lambda n=n: button.inner_text() == "■ stop" and progress.count() == 1)
        until(
            lambda n=n: progress.inner_text().startswith(
                f"{n} plan{'s' * (n > 1)} tried; the best so far is best found"
            )
        )
        assert button.inner_text() == "■ stop"
        assert progress.locator("i").evaluate("(el) => el.style.width") == f"{25 * n}%"
        assert names(page) == ["baseline", "best found"] and state.deck.cards[-1].plan == better
    page.at("slot-x-0").focus()
    page.tab.keyboard.press("Delete")
    until(lambda: "draft" in names(page))
    assert button.inner_text() == "■ stop", "a plan is changed while the search goes on"
    button.click()
    until(lambda: button.inner_text() == "Find the best")
    assert ended == [3] and progress.inner_text().startswith("3 plans tried; the best is best found")
    page.tab.evaluate("document.querySelector('.sv-strip').hidden = true")
    page.click(progress.get_by_role("button", name="best found"))
    assert state.deck.now.name == "best found" and state.plan == plans[-1], "a click opens it, wherever its card is"
    assert state.undo()
    page.click("search-outcome-away")
    assert progress.count() == 0
    found.append(plan)
    page.tab.wait_for_timeout(100)
    page.answer()
    (best,) = [c for c in state.deck.cards if c.name == "best found"]
    assert best.plan == plans[-1] and ended == [3], "what was found stays, and no more is sought"


def test_the_best_is_for_a_machine(open_page, program, plan):
    page = open_page(Explorer(ExplorerState(program, plan, debounce=60)))
    page.click("find-best")
    assert "choose a machine first" in page.at("outcome").inner_text()


def test_what_costs_most_is_said_with_its_line(page):
    page.click("fix")
    text = page.at("panel-most").inner_text()
    assert "draft compared with baseline, at level propagated" in text


def fix(state, plan, **saved):
    """A fix by which all collectives vanish."""
    difference = sv.compare(state.report, replace(state.report, collectives=()))
    about = {"action": "cut <w1>", "level": "propagated", "step": 1.0}
    return Fix(plan=plan, difference=difference, **about, **saved)


def fixes(tried, *found):
    return Fixes(program="", target="", level="propagated", fixes=found, tried=tried, candidates=2)


def test_what_helps_is_applied_by_a_click_and_one_undo_takes_it_back(open_page, program, plan, compilers, monkeypatch):
    state = ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4")
    program.jobs[0][1].answer(program.compiled(plan))
    state.wait(timeout=5)
    better = plan.with_spec(W1, ("data",))

    def fixer(_program, report, _machine, of):
        assert (of, report) == (plan, state.report)
        yield fixes(1)
        yield fixes(2, fix(state, better, seconds=0.1, bytes=1e6, memory=2e6))

    monkeypatch.setattr(background, "fixes", fixer)
    page = open_page(Explorer(state))
    state.try_fixes()
    page.click("fix")
    assert page.at("fix").inner_text() == "Fix (1)"
    row = page.at("most").locator("tr").filter(has_text="cut <w1>")
    assert "−100 ms predicted +2.00 MB memory" in row.inner_text() and "all-reduce" in row.inner_text()
    page.click(row.get_by_role("button", name="cut <w1>"))
    assert state.plan == better and names(page) == ["baseline", "draft"]
    assert page.at("most").locator("tr").filter(has_text="cut <w1>").count() == 0, "it is of another plan"
    assert not state.take_fix("cut <w1>") and state.error is not None
    assert "is no fix of the current plan" in state.error["message"]
    assert state.undo() and state.plan == plan
    assert [r.action for r in state.now.tried_fixes.items] == ["cut <w1>"], "and it is known at once"


def test_what_is_pointed_at_is_lit_wherever_it_stands(page):
    page.at("mesh-axis-data").hover()
    lit = page.tab.locator(".sv-lit-up")
    axes = page.tab.locator("[data-thing='axis data']")
    assert lit.count() == axes.count() > 3
    row = page.tab.locator(".sv-leaf").first
    row.locator(".sv-name").hover()
    assert {e.get_attribute("data-thing") for e in lit.all()} == {row.get_attribute("data-thing")}
