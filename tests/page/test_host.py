"""The explorer's page in whatever stands around it: its theme, its name, without a kernel, and what it saves."""

import json
import re

import pytest

from shardviz.explorer.explorer import ExplorerState
from shardviz.page import bundle
from shardviz.page.explorer import Explorer

ANOTHER = """() => {
  const other = document.createElement("div");
  other.id = "other";
  document.body.append(other);
  window.endOther = show(other);
}"""
DARK = "() => document.querySelector('.shardviz').classList.contains('sv-dark')"


@pytest.mark.parametrize("os_dark", [False, True])
def test_the_theme_is_the_pages_not_the_operating_systems(open_page, os_dark):
    """As JupyterLab says; as VS Code says; else as the ground looks that the explorer stands on."""
    page = open_page(light=os_dark)
    page.tab.emulate_media(color_scheme="dark" if os_dark else "light")
    assert page.tab.evaluate(DARK) is not os_dark, "JupyterLab's word goes first"
    page.tab.evaluate("document.body.removeAttribute('data-jp-theme-light')")
    page.tab.wait_for_function(f"({DARK})() === {str(os_dark).lower()}")  # nobody has said anything
    for set_it, dark in (
        ("document.body.style.background = 'rgb(20, 22, 24)'", True),
        ("document.body.style.background = 'rgba(0, 0, 0, 0.01)'", os_dark),
        ("document.documentElement.style.background = 'white'", False),
        ("document.body.style.background = 'oklch(0.2 0.02 250)'", True),
        ("document.body.setAttribute('data-vscode-theme-kind', 'vscode-light')", False),
        ("document.body.setAttribute('data-vscode-theme-kind', 'vscode-high-contrast')", True),
        ("document.body.setAttribute('data-vscode-theme-kind', 'vscode-high-contrast-light')", False),
        ("document.body.setAttribute('data-jp-theme-light', 'false')", True),
    ):
        page.tab.evaluate(set_it)
        page.tab.wait_for_function(f"({DARK})() === {str(dark).lower()}")


def test_each_explorer_has_its_name_and_those_of_one_name_are_numbered(open_page):
    page = open_page()
    show = "(id) => { const el = document.createElement('div'); document.body.append(el); window[id] = show(el); }"
    for name in ("two", "three"):
        page.tab.evaluate(show, name)
    titles = page.tab.locator(".shardviz h1")
    assert titles.all_inner_texts() == ["step", "step (2)", "step (3)"]
    labels = [each.get_attribute("aria-label").split(" of step") for each in page.tab.get_by_role("region").all()]
    found = {label[0]: label[1] for label in labels if "explorer" in label[0]}
    assert [*found] == ["explorer", "explorer (2)", "explorer (3)"] and "data=4,model=2" in found["explorer"]
    page.tab.evaluate("() => two()")
    page.tab.evaluate(show, "four")
    assert titles.all_inner_texts() == ["step", "step (3)", "step (2)"]


def test_an_old_copy_in_the_notebook_is_said(open_page):
    page = open_page()
    page.tab.evaluate("() => { const wait = setTimeout; window.setTimeout = (act, ms) => wait(act, ms / 20); }")
    still = f"<p data-shardviz-still='{page.explorer.comm_id}' data-shardviz-at='0'></p>"
    page.tab.evaluate("(html) => document.body.insertAdjacentHTML('beforeend', html)", still)
    assert page.at("copy").inner_text() == ""
    page.tab.evaluate("model.set('stilled', 2)")
    page.at("copy").get_by_text("older than this").wait_for()
    page.tab.evaluate("document.querySelector('[data-shardviz-still]').setAttribute('data-shardviz-at', '3')")
    page.tab.evaluate("model.set('stilled', 3)")
    page.at("copy").get_by_text("older than this").wait_for(state="detached")

    # a notebook that the page can see, as in JupyterLab: it asks for the newest copy, and puts it where an older one is
    page.tab.evaluate(
        """() => {
      const toJSON = () => ({ output_type: "display_data", metadata: {} });
      const own = (html) => ({ data: { "text/html": html }, toJSON });
      const still = (at) => `<div data-shardviz-still="${model.get("comm_id")}" data-shardviz-at="${at}">`;
      const stills = [2, 9].map((at) => own(still(at)));
      window.outputs = [own("<p>"), ...stills];
      const outputsOf = { length: 3, get: (n) => outputs[n], set: (n, output) => { outputs[n] = output; } };
      const cells = [{}, { outputs: outputsOf }];
      model.widget_manager.context = { model: { cells: { length: 2, get: (n) => cells[n] } } };
      model.set("stilled", 4);
    }"""
    )
    page.tab.wait_for_function("sent.some(({ ask }) => ask === 'still')")
    still = {"number": 4, "data": {"text/html": "newer", "text/plain": "newer"}}
    page.tab.evaluate("(still) => model.trigger('msg:custom', { still })", still)
    found = page.tab.evaluate("outputs.map(({ data, output_type }) => [data['text/html'].slice(0, 5), output_type])")
    assert found == [["<p>", None], ["newer", "display_data"], ["<div ", None]]


def test_without_a_kernel_nothing_can_be_changed_and_all_be_read(open_page):
    page = open_page()
    slot = page.at("slot-x-0")
    slot.click(trial=True)
    page.tab.evaluate("() => { window.alive = false; model.trigger('comm_live_update'); }")
    page.at("gone").wait_for()
    for name in ("slot-x-0", "undo", "keep-html", "target", "find-best"):
        assert page.at(name).evaluate("(el) => el.closest('[inert]') !== null"), name
    assert page.at("gone").evaluate("(el) => el.closest('[inert]') === null")
    assert page.at("panel-source").evaluate("(el) => el.closest('[inert]') === null")
    page.at("shardviz").focus()
    page.tab.keyboard.press("Control+z")
    assert page.edits() == []
    page.tab.evaluate("() => { window.alive = true; model.trigger('comm_live_update'); }")
    page.at("gone").wait_for(state="detached")
    slot.click(trial=True)


def test_two_views_on_a_page_are_at_one_place(open_page):
    page = open_page()
    tab = page.tab
    tab.evaluate(ANOTHER)
    app, other = tab.locator("#app"), tab.locator("#other")
    page.click(other.get_by_test_id("tab-memory"))
    for view in (app, other):
        assert view.get_by_test_id("panel-memory").is_visible()
    app.get_by_test_id("tab-source").click()
    page.click(other.get_by_test_id("name-x"))
    assert "x [" in other.get_by_test_id("map-small").inner_text() and app.get_by_test_id("drawer").is_hidden()
    for view in (app, other):
        assert view.locator(".sv-leaf.sv-sel").get_attribute("data-testid") == "argument-x"
    slot = "slot-params['w1']-0"
    app.get_by_test_id(slot).click()
    page.click(app.get_by_test_id("menu-axis-data"))
    assert other.get_by_test_id(slot).inner_text() == app.get_by_test_id(slot).inner_text() == "data"

    app.get_by_test_id("keep-html").click()  # what one view asks for is downloaded once
    assert other.get_by_test_id("keep-html").is_enabled() and app.get_by_test_id("keep-html").is_disabled()

    seen = "sent.filter((message) => 'seen' in message).map(({ seen }) => seen)"
    tab.evaluate("endOther()")
    assert tab.evaluate(seen) == [True], "the first view is there"
    before = tab.evaluate("listening()")
    tab.evaluate("end()")
    assert before > tab.evaluate("listening()") == 0 and tab.evaluate(seen) == [True, False]


def test_what_is_saved_is_downloaded(open_page, program, plan, tmp_path, monkeypatch):
    explorer = Explorer(ExplorerState(program, plan, debounce=60))
    page = open_page(explorer)
    sent = []
    monkeypatch.setattr(explorer, "send", sent.append)
    page.at("keep-html").click()
    assert page.tab.evaluate("window.sent.at(-1)") == {"ask": "html"}
    assert page.at("keep-json").is_disabled() and "being made" in page.at("kept").inner_text()
    explorer._on_message(explorer, {"ask": "html"}, [])
    with page.tab.expect_download() as downloading:
        page.tab.evaluate("(message) => model.trigger('msg:custom', message)", sent[0])
    assert downloading.value.suggested_filename == "step.html"
    downloading.value.save_as(tmp_path / "step.html")
    assert (tmp_path / "step.html").read_text() == explorer.save(tmp_path / "same.html").read_text()
    assert page.at("keep-json").is_enabled() and "step.html" in page.at("kept").inner_text()
    refused = "() => model.trigger('msg:custom', { file: { name: 'x', text: '', why: 'no room <b>' } })"
    page.tab.evaluate(refused)
    assert "step.html" in page.at("kept").inner_text(), "another view has asked for that"
    page.at("keep-html").click()
    page.tab.evaluate(refused)
    assert page.at("kept").locator("span").inner_text() == "no room <b>"


def test_the_page_may_ask_for_what_there_is(program, plan, monkeypatch):
    explorer = Explorer(ExplorerState(program, plan, debounce=60))
    sent = []
    monkeypatch.setattr(explorer, "send", sent.append)
    for message in (
        {"ask": "state"},
        {"ask": "html", "path": "/etc"},
        {"ask": ["html"]},
        {"ask": None},
        [],
        "html",
        None,
    ):
        explorer._on_message(explorer, message, [])
    assert sent == []
    monkeypatch.setattr(program, "name", "<b>../../etc/x\u202e")
    explorer._on_message(explorer, {"ask": "html"}, [])
    assert sent[0]["file"]["name"] == "b_etc_x.html" and json.dumps(sent[0])


# What VS Code and Colab ask of a widget, where no test can open them.


def test_all_that_a_page_shows_is_in_traits_and_nothing_comes_from_elsewhere(open_page):
    """A page is drawn again from its traits alone, in another element; nobody is asked for anything over a network, and
    nothing is found by an id, which a host may strip, but the hatches of pictures, whose ids are of one explorer."""
    page = open_page()
    asked = []
    page.tab.on("request", lambda request: asked.append(request.url))
    for view in ("source", "values", "collectives", "memory", "shards", "stages", "difference", "machine", "cost"):
        page.go(view)
    page.go("shards")
    page.tab.evaluate(
        """() => {
      const again = document.createElement("div");
      again.id = "again";
      document.body.append(again);
      for (const el of document.querySelectorAll(".shardviz *")) if (!el.closest("defs")) el.removeAttribute("id");
      show(again);
    }"""
    )
    said = [re.sub(r"[\d.]+ s\b", "", text) for text in page.tab.locator(".shardviz").all_inner_texts()]  # how long ago
    assert said[0].replace("step", "", 1) == said[1].replace("step (2)", "", 1)
    ids = page.tab.evaluate("[...document.querySelectorAll('.shardviz [id]')].map(({ id }) => id)")
    assert all(name.startswith("sv-hatch-") for name in ids) and len(set(ids)) == len(ids)
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == []
    text = bundle.page() + bundle.start()
    assert set(re.findall(r"https?://[^\s\"'`)]+", text)) == {"http://www.w3.org/2000/svg"}
    others = r"\b(?:fetch|XMLHttpRequest|WebSocket|localStorage|postMessage)\b"
    assert not re.search(r"@import\s+(?!\{)|url\((?!#)|" + others, text)


def test_a_frame_that_is_as_high_as_its_page_comes_to_rest(open_page, tmp_path):
    """Colab makes an output's frame as high as what is in it; the explorer's height depends on the window's."""
    page = open_page()
    inside = page.tab.url
    outer = tmp_path / "outer.html"
    outer.write_text(f'<iframe src="{inside}" style="width: 900px; height: 150px; border: 0"></iframe>')
    page.tab.goto(outer.as_uri())
    frame = page.tab.frame_locator("iframe")
    frame.get_by_test_id("level").wait_for()
    heights = [150]
    for _ in range(6):
        high = page.tab.frames[1].evaluate("document.documentElement.scrollHeight")
        page.tab.locator("iframe").evaluate("(el, high) => { el.style.height = `${high}px`; }", high)
        heights.append(high)
    assert heights[-1] == heights[-2] < 2500, "it grows no more"
    assert page.tab.frames[1].evaluate("document.documentElement.scrollHeight <= innerHeight")
