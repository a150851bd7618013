"""The Rosetta pane: what the kernel says for it, and the pane itself in a headless Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from shardviz.explorer.explorer import ExplorerState
from shardviz.notation import NOTATIONS
from shardviz.page.explorer import Explorer
from shardviz.plan.plan import Plan
from shardviz.view.document import plain
from shardviz.view.rosetta import read_rosetta
from tests.page.documents import rows, said
from tests.page.page import CONTRAST, UNREADABLE

W1 = "params['w1']"  # [128, 512] over data=4,model=2, cut P(None, 'model')


@pytest.fixture
def explorer(program, plan):
    return Explorer(ExplorerState(program, plan, level="propagated"))


def reading(explorer, text, name=W1):
    return read_rosetta(explorer.report, name, text)


def notations(content) -> dict[str, Any]:
    """The rows of a Document's table of notations, by notation."""
    return {row.selects[1]: row for row in content.blocks[0].rows}


def words(content):
    """What a Document's paragraphs say."""
    return " ".join(plain(block.pieces) for block in content.blocks)


def test_it_is_worked_out_only_while_somebody_looks(explorer):
    assert explorer.rosetta == {}
    explorer.tab = "rosetta"
    assert explorer.rosetta["name"] == W1
    explorer.selected = "x"
    assert explorer.rosetta["document"]["title"][2]["v"] == {"dims": [["data"], []]}
    explorer.state.set_dim("x", 0, [])
    assert explorer.rosetta["document"]["title"][2]["v"] == {"dims": [[], []]}
    explorer.tab = "source"
    assert explorer.rosetta == {}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("{devices=[4,2]<=[8]}", "P('data', 'model')"),
        ("{devices=[2,4]<=[4,2]T(1,0)}", "P('model', 'data')"),
        ('#sdy.sharding<@mesh, [{"data", "model"}, {}]>', "P(('data', 'model'), None)"),
        ("P('data')", "P('data', None)"),
        ("[·, data model]", "P(None, ('data', 'model'))"),
        ("{replicated}", "P(None, None)"),
    ],
)
def test_what_is_read_can_be_applied(explorer, text, spec):
    read = reading(explorer, text)
    assert read.apply == spec
    assert explorer.state.set_spec(W1, read.apply)
    value = explorer.report.value(W1)
    assert f"shard [{', '.join(map(str, value.shard_shape))}]" in words(read.answer)
    assert reading(explorer, text).same


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("{devices=[2,4]<=[8]}", W1, "full axes only"),
        ("{maximal device=3}", W1, "on one device"),
        ("{devices=[8,1]0,3,1,2,4,7,5,6}", W1, "run along no axes"),
        ("{devices=[8]<=[8]}", W1, "rank 1"),
        ("P(None, 'data', None)", W1, "rank 3"),
        ("P(P.UNCONSTRAINED, 'data')", W1, "to the compiler"),
        ("P('data', unreduced={'model'})", W1, "partial sums"),
        ("P('data', 'model')", "dot.1", "follows from the arguments'"),
        ("P('data', 'model')", "", "select an argument or an output"),
        ("P('data', 'model')", "nothing of this name", "select an argument or an output"),
    ],
)
def test_what_cannot_be_applied_says_why_and_is_read_all_the_same(explorer, text, name, why):
    read = reading(explorer, text, name)
    assert why in words(read.answer) and not read.apply and not read.same
    assert list(notations(read.document)) == list(NOTATIONS)


def test_a_dimension_that_does_not_divide_is_refused_before_it_is_applied(make_program, plan):
    explorer = Explorer(ExplorerState(make_program({"b": (6,)}), Plan(plan.mesh), level="propagated"))
    read = reading(explorer, "{devices=[8]<=[8]}", "b")
    assert "6, which is not divisible by" in words(read.answer) and "padded" in words(read.answer)


@pytest.mark.parametrize(
    "text", ["{devices=[", "P('modle')", "hello, world", "{" * 5000, "\x00", "P(" * 400, "x" * 300_000]
)
def test_what_is_no_sharding_is_said_and_the_values_own_stays(explorer, text):
    read = reading(explorer, text)
    assert read.error and read.document is None and not read.apply
    explorer.reading, explorer.tab = text, "rosetta"
    assert explorer.rosetta["read"]["error"] == read.error and rows(explorer.rosetta, "rosetta")


# The pane in a browser.


@pytest.fixture
def pane(open_page, explorer):
    page = open_page(explorer)
    page.tab.locator(".sv-leaf.sv-sel .sv-name").click()
    page.click(page.at("map-small").get_by_text("in every notation"))
    return page


def read(page, text):
    page.enter("read", text)


def test_the_pane_is_one_click_from_the_shard_map(pane):
    assert pane.at("panel-rosetta").is_visible() and pane.at("tab-rosetta").get_attribute("aria-selected") == "true"
    assert pane.at("text-pspec").inner_text() == "P(None, 'model')"
    assert pane.at("text-hlo-v2").text_content() == "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"
    assert "a dimension" in pane.at("rosetta-pspec").inner_text()
    pane.at("meanings").uncheck()
    assert "a dimension" not in pane.at("panel-rosetta").inner_text()


def test_an_axis_is_marked_in_every_text_and_nothing_of_a_text_is_lost(pane, explorer):
    texts = {row["sel"][1]: said(row["cells"][1]) for row in explorer.rosetta["document"]["blocks"][0]["rows"]}
    for notation, text in texts.items():
        if not text.startswith("not possible"):
            assert pane.at(f"text-{notation}").text_content() == text
    for notation in ("pspec", "short", "hlo-v3", "sdy"):
        assert pane.at(f"text-{notation}").locator(".sv-onaxis").all_inner_texts()[0].strip("'\"") == "model"


def test_a_notation_is_copied_or_selected(pane):
    pane.tab.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
    pane.at("copy-sdy").click()
    pane.at("copy-sdy").get_by_text("copied").wait_for()
    assert pane.tab.evaluate("window.copied") == pane.at("text-sdy").text_content()
    pane.tab.evaluate("() => { navigator.clipboard.writeText = async () => { throw new Error('no'); }; }")
    pane.at("copy-hlo-v2").click()
    pane.at("copy-hlo-v2").get_by_text("Ctrl+C").wait_for()
    assert pane.tab.evaluate("getSelection().toString()") == pane.at("text-hlo-v2").text_content()


def test_what_is_pasted_is_read_and_applied(pane):
    read(pane, "{devices=[4,2]<=[8]}")
    assert "shard [32, 256]" in pane.at("read-answer").inner_text()
    assert pane.at("text-sdy").inner_text() == '#sdy.sharding<@mesh, [{"data"}, {"model"}]>'
    pane.at("show-own").click()
    assert pane.at("text-pspec").inner_text() == "P(None, 'model')"
    pane.at("read-apply").click()
    assert pane.edits() == [{"op": "set_spec", "name": W1, "spec": "P('data', 'model')"}]
    pane.answer()
    assert pane.at(f"slot-{W1}-0").inner_text() == "data" and pane.at("read-same").is_visible()
    assert pane.at("text-pspec").inner_text() == "P('data', 'model')"
    pane.click(pane.at("argument-x").locator(".sv-name"))
    assert pane.at("read").input_value() == "{devices=[4,2]<=[8]}", "it can be applied to the next value too"
    assert pane.at("read-apply").inner_text() == "apply to x"
    pane.click("read-clear")
    assert pane.at("read-answer").inner_text() == "" and pane.at("text-pspec").inner_text() == "P('data', None)"
    assert pane.focus() == "read"


def test_what_cannot_be_read_is_said_in_place_and_can_be_fixed(pane):
    read(pane, "{devices=[4,2")
    assert "expected" in pane.at("read-error").inner_text()
    assert pane.at("read").input_value() == "{devices=[4,2" and pane.focus() == "read"
    assert pane.at("text-pspec").inner_text() == "P(None, 'model')", "the value's own stays"
    read(pane, "{devices=[4,2]<=[8]}")
    assert pane.at("read-error").count() == 0 and pane.at("read-apply").is_visible()


def test_a_paste_is_read_at_once(pane):
    pane.at("read").focus()
    pane.tab.evaluate(
        """() => { const field = document.activeElement;
        field.value = "[data, model]"; field.dispatchEvent(new ClipboardEvent("paste", { bubbles: true })); }"""
    )
    pane.tab.wait_for_function("model.get('reading') === '[data, model]'")
    pane.answer()
    assert pane.at("read-apply").is_visible()


def test_an_output_takes_what_is_read(pane):
    pane.at("output-result").locator(".sv-name").click()
    read(pane, "[·, data]")
    pane.at("read-apply").click()
    assert pane.edits() == [{"op": "set_spec", "output": True, "name": "result", "spec": "P(None, 'data')"}]
    pane.answer()
    assert pane.at("out-slot-result-1").inner_text() == "data"


def test_keys_alone_reach_it_all(pane):
    pane.at("tab-rosetta").focus()
    order = []
    for key in ("Tab", "Tab", "Tab", "ArrowDown"):  # its buttons are one stop of Tab
        pane.tab.keyboard.press(key)
        order.append(pane.focus())
    assert order == ["read", "meanings", "copy-pspec", "copy-short"]


@pytest.mark.parametrize("light", [True, False])
def test_it_can_be_read_at_any_width(open_page, explorer, light):
    page = open_page(explorer, width=1500, light=light)
    page.go("rosetta")
    for text in ("", "{devices=[2,4]<=[8]}", "{devices=[", "{maximal device=3}", "[data, model]"):
        read(page, text)
        for width in page.widths(420, 760, 1000, 1500):
            assert page.at("panel-rosetta").evaluate(UNREADABLE) == [], (text, width)
        worst = page.tab.evaluate(CONTRAST)
        assert worst["ratio"] >= 4.5, (text, worst)
