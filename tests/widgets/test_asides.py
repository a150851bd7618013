"""Two views of one explorer: each keeps its own place and selection, and both show the same plan."""

from __future__ import annotations

import asyncio

import pytest

from shardviz.session.explorer import ExplorerState
from shardviz.widgets.explorer import VIEWS, Explorer

LOOK = {"id": "a", "tab": "source", "selected": "", "selected_at": "", "query": {}, "reading": "", "device": -1}

ANOTHER = """() => {
  const other = document.createElement("div");
  other.id = "other";
  document.body.append(other);
  window.endOther = show(other);
}"""


@pytest.fixture
def explorer(program, plan):
    return Explorer(ExplorerState(program, plan, debounce=60))


@pytest.fixture
def heard(explorer, monkeypatch):
    """Says something as the page does; gives what the kernel says back."""
    sent = []
    monkeypatch.setattr(explorer, "send", sent.append)

    def say(*messages):
        del sent[:]
        for message in messages:
            explorer._on_message(explorer, message, [])
        return list(sent)

    say.sent = sent
    return say


def test_another_view_is_sent_what_differs_for_it(explorer, heard):
    (first,) = heard({"look": LOOK | {"tab": "memory", "selected": "x"}})
    assert first["aside"] == "a" and first["shown"]["memory"]["document"] and first["shown"]["shards"]["name"] == "x"
    assert first["shown"]["source"] == {}
    assert explorer.tab == "source" and explorer.selected != "x" and explorer.memory == {}
    (second,) = heard({"look": LOOK | {"tab": "values", "selected": "x", "query": {"text": "w1"}}})
    assert {"memory", "values"} <= set(second["shown"]) and second["shown"]["memory"] == {}
    assert second["shown"]["values"]["found"] < len(explorer.report.values)
    assert "shards" not in second["shown"], "it has that"
    assert heard({"look": LOOK | {"tab": "values", "selected": "x", "query": {"text": "w1"}}}) == []


def test_an_edit_reaches_every_view_and_a_place_stays_its_own(explorer, heard):
    heard({"look": LOOK | {"tab": "values", "selected": "x"}})
    del heard.sent[:]
    explorer.tab = "memory"
    explorer.query = {"text": "w2"}
    explorer.state.select("params['w2']")
    assert heard.sent == []
    assert explorer.state.set_spec("x", None)
    (said,) = heard.sent
    assert "values" in said["shown"] and said["shown"]["shards"]["name"] == "x" and "memory" not in said["shown"]
    assert explorer.shards["name"] == "params['w2']"


def test_who_left_is_told_nothing_and_a_new_page_asks_who_is_there(explorer, heard):
    heard({"look": LOOK}, {"look": LOOK | {"id": "b"}}, {"leave": "a"})
    del heard.sent[:]
    explorer.state.set_spec("x", None)
    assert {said["aside"] for said in heard.sent} == {"b"}
    assert heard({"look": None}) == [{"aside": "", "shown": {}}]
    explorer.state.undo()
    assert heard.sent == [{"aside": "", "shown": {}}] and heard({"look": None}) == [], "nobody was there"
    heard(*({"look": LOOK | {"id": str(n)}} for n in range(100)))
    del heard.sent[:]
    explorer.state.redo()
    assert len(heard.sent) <= 8


def test_where_the_last_view_is_closed_nothing_is_tried_unasked(program, plan, monkeypatch):
    explorer = Explorer(ExplorerState(program, plan, level="propagated"))

    def heard(*messages):
        for message in messages:
            explorer._on_message(explorer, message, [])

    begun, ended = [], []

    def mender(*_):
        begun.append(1)
        try:
            while True:
                yield None
        finally:
            ended.append(1)

    monkeypatch.setattr(explorer.state, "mender", mender)
    monkeypatch.setattr("shardviz.session.offering._IDLE", 0.0)

    async def live():
        async def a_while():
            await asyncio.sleep(0.1)
            return len(begun), len(ended)

        heard({"look": None}, {"look": LOOK})
        explorer.state.try_remedies()
        assert await a_while() == (1, 0)
        heard({"leave": ""})
        assert await a_while() == (1, 0), "another view is there"
        heard({"leave": "a"})
        assert explorer.state.rests and await a_while() == (1, 1)
        explorer.state.set_spec("x", None)
        assert await a_while() == (1, 1)
        heard({"look": None})
        assert not explorer.state.rests and await a_while() == (2, 1)
        heard({"leave": ""})
        return await a_while()

    assert asyncio.run(live()) == (2, 2)


@pytest.mark.parametrize(
    "look",
    [{}, [], "a", {"id": "a"}, LOOK | {"id": ""}, LOOK | {"tab": 3}, LOOK | {"query": {"x": 1}}, LOOK | {"y": 1}],
)
def test_what_is_no_look_is_refused(explorer, heard, look):
    assert heard({"look": look}) == []
    assert "does not fit" in explorer.status["error"]["message"]


def test_what_is_served_is_what_a_place_or_a_selection_changes(explorer):
    everywhere = {"mesh", "inputs", "outputs", "kin", "cuts", "out_cuts", "cards", "most", "status", "head", "why"}
    served = set(explorer._asides._views)
    assert not everywhere & served and served | everywhere <= set(VIEWS)
    assert {name for name, view in VIEWS.items() if view.tab} | {"shards", "selected", "problems"} <= served


def test_two_views_on_a_page(explorer, open_page, heard):
    page = open_page(explorer)
    tab = page.tab
    tab.evaluate(ANOTHER)
    other = tab.locator("#other")

    def answer():
        for message in tab.evaluate("window.sent.splice(0)"):
            explorer._on_message(explorer, message, [])
        page.answer()
        for said in heard.sent:
            tab.evaluate("(said) => model.trigger('msg:custom', said)", said)
        del heard.sent[:]

    def shows(view, place, name):
        assert view.get_by_test_id(f"place-{place}").get_attribute("aria-selected") == "true"
        assert name in view.get_by_test_id("map-small").inner_text() or place != "program"

    app = tab.locator("#app")
    answer()
    other.get_by_test_id("place-memory").click()
    answer()
    shows(app, "program", explorer.selected)
    shows(other, "memory", "")
    assert app.get_by_test_id("panel-source").is_visible() and other.get_by_test_id("panel-memory").is_visible()
    other.get_by_test_id("place-program").click()
    other.get_by_test_id("name-x").click()
    answer()
    shows(other, "program", "x [")
    shows(app, "program", explorer.selected)
    assert explorer.selected != "x"
    for view, name in ((app, explorer.selected), (other, "x")):
        assert view.locator(".sv-leaf.sv-sel").get_attribute("data-testid") == f"argument-{name}"

    app.get_by_test_id("tab-values").click()  # and the first view moves alone too
    answer()
    assert app.get_by_test_id("panel-values").is_visible() and other.get_by_test_id("panel-source").is_visible()

    app.get_by_test_id("keep-html").click()  # what one view asks for is downloaded once
    assert other.get_by_test_id("keep-html").is_enabled() and app.get_by_test_id("keep-html").is_disabled()
    downloads = []
    tab.on("download", lambda download: downloads.append(download))
    answer()
    tab.wait_for_timeout(200)
    assert len(downloads) == 1

    tab.evaluate("endOther()")
    assert tab.evaluate("window.sent.at(-1).leave")
    before = tab.evaluate("listening()")
    tab.evaluate("end()")
    assert before > tab.evaluate("listening()") == 0
