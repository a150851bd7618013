"""The tour of the page, and the words that say what they mean; by pointer and by keyboard."""

import pytest

from tests.page.page import UNREADABLE
from tests.page.test_looks import answered

STEPS = 7


@pytest.mark.usefixtures("compilers")
@pytest.mark.parametrize("width", [560, 1060])
def test_the_tour_stands_beside_what_it_is_about_and_ends_where_it_began(open_page, program, plan, width):
    page = open_page(answered(program, plan, "tpu v5e:2x4"), width=width)
    page.go("memory")
    page.at("tour-open").focus()
    page.tab.keyboard.press("Enter")
    for n in range(STEPS):
        page.answer()
        box = page.at("tour")
        assert box.get_attribute("aria-label") == f"tour, step {n + 1} of {STEPS}"
        about = page.tab.locator(".sv-toured")
        assert about.count() == 1 and about.is_visible() and page.focus() == "tour-next"
        assert box.evaluate(UNREADABLE) == []
        inside = page.at("shardviz").bounding_box()
        assert box.bounding_box()["x"] + box.bounding_box()["width"] <= inside["x"] + inside["width"] + 1
        page.tab.keyboard.press("ArrowRight" if n < STEPS - 1 else "ArrowLeft")
    assert page.at("tour").get_attribute("aria-label") == f"tour, step {STEPS - 1} of {STEPS}"
    page.tab.keyboard.press("Escape")
    assert page.at("tour").count() == 0 and page.tab.locator(".sv-toured").count() == 0
    assert page.focus() == "tour-open" and page.tab.evaluate("model.get('tab')") == "memory"


def test_the_tour_speaks_of_the_persons_own_function(open_page, program, plan):
    page = open_page(answered(program, plan))
    page.at("tour-open").click()
    assert program.name in page.at("tour").inner_text()
    page.at("tour-next").click()
    assert all(f"{name}={size}" in page.at("tour").inner_text() for name, size in plan.mesh.shape.items())
    page.at("tour-keys").click()
    assert page.at("tour").count() == 0 and page.at("help").is_visible()
    page.at("help-tour").click()
    assert page.at("tour").is_visible() and page.at("help").count() == 0


@pytest.mark.usefixtures("compilers")
def test_a_word_of_the_glossary_says_what_it_means(open_page, program, plan):
    page = open_page(answered(program, plan, "tpu v5e:2x4"))
    level = page.at("level").locator(".sv-term")
    assert page.at("meaning").is_hidden()
    level.hover()
    assert page.at("meaning").inner_text() == level.get_attribute("aria-description") != ""
    assert level.evaluate("(el) => getComputedStyle(el).textDecorationStyle") == "dotted"
    page.tab.mouse.move(5, 890)
    page.at("fix").focus()
    page.at("meaning").wait_for(state="hidden")
    for _ in range(8):  # the keyboard comes to it too
        if level.evaluate("(el) => el === document.activeElement"):
            break
        page.tab.keyboard.press("ArrowLeft")
    assert level.evaluate("(el) => el === document.activeElement") and page.at("meaning").is_visible()
