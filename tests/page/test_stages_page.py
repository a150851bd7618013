"""The raw stages on the page: one text after the other, searched, to the source line and back."""

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.page.page import UNREADABLE


def step(w, x):
    h = jnp.tanh(x @ w["<b>up"])
    return h @ w["down"]


SUM = f"test_stages_page.py:{step.__code__.co_firstlineno + 2}"


@pytest.fixture(scope="module")
def made():
    P = jax.sharding.PartitionSpec
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    program = sv.trace(step, {"<b>up": array(16, 64), "down": array(64, 16)}, array(8, 16))
    plan = sv.Plan("data=2,model=2", in_specs=({"<b>up": P(None, "model"), "down": P("model", None)}, P("data")))
    return ExplorerState(program, plan, level="propagated", debounce=60)


@pytest.fixture
def page(open_page, made):
    opened = open_page(Explorer(made))
    opened.go("stages")
    return opened


def chosen(page, **values):
    for name, value in values.items():
        page.at(f"stage-{name}").select_option(value)
        page.answer()
    return page.at("stage")


def test_what_shardy_puts_in_is_seen_and_leads_to_its_line_and_back(page):
    row = chosen(page, name="shardy").locator("tr", has_text="sdy.all_reduce")
    assert page.tab.evaluate(UNREADABLE, page.at("panel-stages").element_handle()) == []
    page.click(row.get_by_text(SUM))
    assert page.explorer.tab == "source"
    page.click(f"raw-{SUM}")
    assert page.explorer.tab == "stages" and page.at("stage-line").is_visible()
    places = page.at("stage").locator("tbody tr td:last-child").all_inner_texts()
    assert places and set(places) == {SUM}
    page.click("stage-line")


def test_it_is_searched_and_gone_through(page):
    chosen(page, name="stablehlo")
    page.at("stage-find").fill("dot_general")
    page.tab.wait_for_timeout(200)
    page.answer()
    assert page.at("stage-found").inner_text() == "2 lines"
    page.click("stage-next")
    assert page.explorer.query["stage"] == "shardy" and page.explorer.query["find"] == "dot_general"
    page.at("stage-find").fill("no such thing")
    page.tab.wait_for_timeout(200)
    page.answer()
    assert page.at("stages-none").is_visible()
