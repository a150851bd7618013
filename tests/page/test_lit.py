"""What is pointed at, has the focus or is selected is lit wherever it stands: axis, dimension, line, device, value."""

import pytest

from tests.page.test_hands import explorer_of
from tests.page.test_looks import answered

LIT = """() => [...document.querySelectorAll(".sv-lit-up")].map((e) => e.dataset.thing)"""
WHERE = """() => [...new Set([...document.querySelectorAll(".sv-lit-up")].map((e) =>
  e.closest(".sv-left, .sv-drawer, .sv-ledger, .sv-panel").className.split(" ").pop()))].sort()"""


@pytest.fixture
def page(open_page, program, plan, compilers):
    page = open_page(answered(program, plan, "tpu v5e:2x4"), width=1500)
    for name in ("values", "collectives", "machine", "most", "source"):  # each has been drawn once, and stays
        page.go(name)
    page.tab.locator(".sv-leaf.sv-sel .sv-name").click()  # its map opens in the drawer
    page.answer()
    return page


def things(page, thing):
    return page.tab.locator(f"[data-thing='{thing}']").count()


def test_a_source_line(page):
    page.at("line-model.py:3").locator("code").hover()
    lit = page.tab.evaluate(LIT)
    assert set(lit) == {"line model.py:3"} and len(lit) == things(page, "line model.py:3") > 3
    assert page.tab.evaluate(WHERE) == ["sv-panel-collectives", "sv-panel-most", "sv-panel-source"]
    page.tab.mouse.move(5, 5)
    page.at("open-line-model.py:3").focus()
    assert "sv-panel-source" in page.tab.evaluate(WHERE), "by the keyboard too"


def test_a_device_and_a_cell_of_several(page):
    item = page.at("cells").locator(".sv-item").first
    item.hover()
    cell = item.get_attribute("data-thing")
    held = cell.removeprefix("device ").split(",")
    lit = page.tab.evaluate(LIT)
    assert len(held) == 4 and sorted(lit) == sorted([cell, *(f"device {n}" for n in held)]), "in the machine too"
    assert page.tab.evaluate(WHERE) == ["sv-drawer", "sv-panel-machine"]
    page.go("machine")
    page.tab.locator(".sv-panel-machine [data-thing='device 5']").hover()
    lit = page.tab.evaluate(LIT)
    assert "device 5" in lit and all("5" in thing.split(" ")[1].split(",") for thing in lit) and len(lit) > 1


def test_a_device_that_is_selected_is_marked_in_the_map_and_in_the_machine(page):
    page.click(page.at("cells").locator(".sv-item").nth(1))
    device = page.explorer.device
    assert device >= 0
    pressed = page.tab.locator(".sv-item[aria-pressed=true]")
    held = [
        thing.split(" ")[1].split(",") for thing in pressed.evaluate_all("(all) => all.map((e) => e.dataset.thing)")
    ]
    assert len(held) > 0 and all(str(device) in one for one in held)
    page.go("machine")
    tile = page.tab.locator(f".sv-panel-machine [data-thing='device {device}']")
    assert tile.get_attribute("aria-pressed") == "true"
    assert str(device) in page.at("panel-machine").inner_text()


SLOTS = """(all) => all.map((e) => [e.closest(".sv-leaf").dataset.thing.replace("value ", ""),
  Number(e.querySelector(".sv-slot").getAttribute("aria-label").match(/dimension (\\d+) \\((.*)\\)/)[1]),
  e.querySelector(".sv-slot").title])"""


def test_a_dimension(open_page):
    """Hovering a dimension lights the slots that the program's dimensions say are its own; so is it filtered."""
    page = open_page(explorer_of())
    page.answer()
    page.at("open-inputs").click()
    leaves = page.tab.locator(".sv-rows .sv-leaf:visible")
    paths = lambda: leaves.evaluate_all("(all) => all.map((e) => e.dataset.thing.replace('value ', ''))")
    shown = set(paths())
    for dimension in page.explorer.state.logical.found:
        own = {(m.path, m.dimension, dimension.name) for m in dimension.arguments}
        row = page.at(f"dimension-{dimension.name}")
        row.locator(".sv-mem").hover()
        lit = page.tab.locator(".sv-dim.sv-lit-up").evaluate_all(SLOTS)
        assert set(map(tuple, lit)) == {member for member in own if member[0] in shown} != set()
        assert set(page.tab.evaluate(LIT)) == {f"dimension {dimension.name}"}
        page.at("filter").select_option(f"with {dimension.name}")
        have = {path for path, *_ in own}
        assert have & shown <= set(paths()) <= have
        page.at("filter").select_option("show: all")
    slot = page.tab.locator(f".sv-dim[data-thing='dimension {dimension.name}'] .sv-slot").first
    page.tab.mouse.move(5, 5)
    assert page.tab.evaluate(LIT) == []
    slot.focus()
    assert set(page.tab.evaluate(LIT)) == {f"dimension {dimension.name}"}, "the row and all its slots"


def test_a_value_that_is_selected_is_selected_in_the_tree_the_table_and_the_source(page):
    page.click(page.tab.locator(".sv-leaf[data-thing=\"value params['w2']\"] .sv-name"))
    seen = "(all) => all.filter((e) => e.checkVisibility()).map((e) => e.dataset.thing)"
    chosen = page.tab.locator(".sv-sel[data-thing]")
    assert chosen.evaluate_all(seen) == ["value params['w2']"]
    assert page.at("map-small").inner_text().startswith("params['w2']")
    page.go("values")
    assert chosen.evaluate_all(seen) == ["value params['w2']"] * 2, "in the tree and in the table"
