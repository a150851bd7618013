"""Animations in a browser: they play, stop and step without scripts, by mouse and keys, and hold still where asked."""

import pytest

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer

NOW = "Number(getComputedStyle(document.querySelector('.sv-motion form')).getPropertyValue('--now'))"
OUT = """() => [...document.querySelectorAll('.mo-held, .mo-fly')].filter((e) => +getComputedStyle(e).opacity > .5).map(
  (e) => { const film = document.querySelector('.mo-stage').getBoundingClientRect(), r = e.getBoundingClientRect();
    return [r.left - film.left, r.top - film.top, r.width, r.height, e.className]; })"""


def reached(page, truth: str) -> None:
    """Waits until it is true. The page's policy forbids the `eval` that Playwright's own waiting takes."""
    for _ in range(200):
        if page.evaluate(truth):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {truth}")


@pytest.fixture(scope="module")
def animation():
    return sv.animate((16, 8), ("x", None), (None, "y"), {"x": 2, "y": 4}, dtype="bfloat16")


@pytest.fixture
def opened(browser, tmp_path, animation):
    """Opens the saved page without JavaScript of its own; `media` as in Playwright's contexts."""
    contexts = []

    def open_it(width=1280, **media):
        context = browser.new_context(viewport={"width": width, "height": 800}, **media)
        contexts.append(context)
        page = context.new_page()
        page.goto(animation.save(tmp_path / "motion.html").as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()


def test_it_plays_pauses_and_plays_faster(opened):
    page = opened()
    reached(page, f"{NOW} > 0.3")
    page.locator(".mo-stop").check()
    page.wait_for_timeout(100)  # until a frame has been drawn
    stopped = page.evaluate(NOW)
    page.wait_for_timeout(200)
    assert page.evaluate(NOW) == stopped
    duration = "getComputedStyle(document.querySelector('.sv-motion form')).animationDuration"
    slow = float(page.evaluate(duration).removesuffix("s"))
    page.locator(".mo-v2").check()
    assert float(page.evaluate(duration).removesuffix("s")) == pytest.approx(slow / 2)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (700, "dark")])
def test_steps_by_keys_and_by_button_end_at_the_layout_after(opened, animation, width, scheme):
    page = opened(width, color_scheme=scheme)
    page.locator(".mo-0").check()
    page.keyboard.press("ArrowDown")
    assert page.locator(".mo-1").is_checked()
    page.locator(".mo-on:visible").click()
    assert page.locator(".mo-2").is_checked()
    reached(page, f"{NOW} == 2")
    film = animation.film
    scale = page.locator(".mo-stage").bounding_box()["width"] / film.width
    want = sorted([round(n * scale) for n in r] for p in film.patches if p.until is None for r in p.rects)
    seen = page.evaluate(OUT)
    assert all("mo-held" in found[4] for found in seen), "nothing flies any more"
    for mine, theirs in zip(sorted([round(n) for n in found[:4]] for found in seen), want, strict=True):
        assert mine == pytest.approx(theirs, abs=2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_reduced_motion_and_paper_get_the_filmstrip(opened, animation):
    page = opened(reduced_motion="reduce")
    assert page.evaluate("document.getAnimations().length") == 0
    assert all(page.locator(".mo-frame").nth(n).is_visible() for n in range(len(animation.film.frames)))
    assert not page.locator(".mo-play").is_visible()
    page = opened()
    assert not page.locator(".mo-frame").first.is_visible()
    page.emulate_media(media="print")
    assert page.locator(".mo-frame").first.is_visible() and not page.locator(".mo-stage").is_visible()


def test_every_control_and_step_has_a_name(opened, animation):
    page = opened()
    assert page.get_by_role("radio", name="play", exact=True).count() == 1
    assert page.get_by_role("checkbox", name="pause").count() == 1
    for number, caption in enumerate(animation.film.captions):
        assert page.get_by_role("radio", name=f"{number}. {caption}").count() == 1
    assert animation.film.title in page.get_by_role("img").get_attribute("aria-label")


def test_the_explorer_animates_the_collective_that_is_asked_about(open_page):
    example = sv.gallery.mlp(mesh="data=4,model=2")
    state = ExplorerState(example.program, example.plan, level="partitioned", target="tpu v5p:2x2x2", debounce=0.01)
    state.wait("partitioned", timeout=100)
    page = open_page(Explorer(state))
    page.go("collectives")
    page.at("panel-collectives").get_by_role("button", name="why?").first.click()
    page.answer()
    while state.now.why.busy:
        page.answer()
    page.answer()
    asked = state.now.why.answer.collective
    motion = page.at("motion")
    assert asked.kind in motion.inner_text() and "on tpu v5p:2x2x2" in motion.inner_text()
    page.tab.wait_for_function(f"{NOW} > 0.1")
    motion.locator(".mo-1").check()
    page.tab.wait_for_function(f"{NOW} == 1")
    assert motion.locator(".mo-count b").evaluate_all("all => all.map((b) => +getComputedStyle(b).opacity)")[:2] == [
        0,
        1,
    ]
