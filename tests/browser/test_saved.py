"""A saved page in a real browser, its network off and without scripts: readable on a screen and on paper."""

import pytest

import shardviz as sv
from shardviz.paint.page import page_of
from shardviz.view.document import Document, Figure, Section, words
from shardviz.view.placement import machine_figure
from shardviz.view.subjects import document
from tests.browser.harness import ARTIFACTS
from tests.view.sample import HOSTILE, report

# What of a page cannot be read without scrolling the page itself sideways, and links to what is outside.
STICKS_OUT = """() => {
  const wide = document.documentElement.clientWidth;
  const all = document.documentElement.scrollWidth;
  const found = all > wide ? [`the page is ${all}`] : [];
  for (const el of document.querySelectorAll("main *")) {
    const box = el.getBoundingClientRect();
    if (box.width && box.right > wide + 1 && !el.closest("figure, .table")) found.push(`${el.tagName} ${el.className}`);
  }
  return found;
}"""

# What ends beyond the right edge of the paper.
CUT = """() => [...document.querySelectorAll("main *")].filter((el) => el.checkVisibility() && !el.closest("svg *")
  && el.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map((el) => `${el.tagName} ${el.textContent.slice(0, 60)}`)"""

# What is cut off until a person scrolls sideways.
SCROLLS = """() => [...document.querySelectorAll(".table, pre, figure")]
  .filter((el) => el.scrollWidth > el.clientWidth + 1).map((el) => `${el.tagName} ${el.textContent.slice(0, 60)}`)"""

GROUND = "() => getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A page of a report, its cost and a picture, with hostile names."""
    evil = report(evil=HOSTILE)
    cost = sv.cost(evil, "tpu v5p:4x4x4")
    drawn = Section(title="Pictures", blocks=(Figure(of=machine_figure(cost), caption="machine"),), fold="closed")
    found = document(evil)
    blocks = (*found.blocks, *document(cost).blocks, drawn)
    path = tmp_path_factory.mktemp("saved") / "page.html"
    path.write_text(page_of(Document(title=words("train_step"), lead=found.lead, blocks=blocks, mesh=found.mesh)))
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (700, "dark"), (390, "light"), (390, "dark")])
def test_a_page_is_read_offline(browser, path, width, scheme):
    context = browser.new_context(
        viewport={"width": width, "height": 1000}, color_scheme=scheme, offline=True, java_script_enabled=False
    )
    asked, said = [], []
    try:
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.goto(path.as_uri())
        closed = page.locator("details:not([open]) > summary")
        while closed.count():
            closed.first.click()
        assert page.locator("figure > svg").count() == 1
        assert page.locator("figure > svg").last.is_visible()
        assert page.evaluate(STICKS_OUT) == []
        assert width < 1000 or page.evaluate(SCROLLS) == []
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"saved_{width}_{scheme}.png", full_page=True)
        grounds = [page.evaluate(GROUND)]
        page.locator("#theme").check()
        grounds.append(page.evaluate(GROUND))
        light, dark = "rgb(255, 255, 255)", "rgb(21, 24, 28)"
        assert grounds == ([light, dark] if scheme == "light" else [dark, light])
    finally:
        context.close()
    assert asked == [path.as_uri()] and said == []


def test_paper_has_what_was_folded_away_and_no_switch(browser, path):
    page = browser.new_page(color_scheme="dark")
    try:
        page.goto(path.as_uri())
        page.emulate_media(media="print")
        assert page.evaluate(GROUND) == "rgb(255, 255, 255)"
        assert not page.locator(".theme").is_visible()
        assert page.locator("details figure > svg").first.is_visible()
        page.set_viewport_size({"width": 703, "height": 1000})  # A4 between margins of 12 mm
        assert page.evaluate(CUT) == [], "on paper nothing can be scrolled to"
        assert len(page.pdf(width="210mm", height="297mm")) > 20_000
    finally:
        page.close()
