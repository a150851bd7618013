"""The page in a headless Chromium, with a model that stands for the kernel's: menus, keys, errors, hostile names."""

import pytest

from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.plan.plan import Plan
from tests.page.page import UNREADABLE

W1 = "params['w1']"


def test_a_slot_offers_what_is_legal_and_says_why_the_rest_is_not(open_page):
    page = open_page()
    page.explorer.state.add_axis("odd", 3)
    page.answer()
    page.at(f"slot-{W1}-0").click()
    assert page.at("menu-axis-odd").get_attribute("aria-disabled") == "true"
    assert "128 is not divisible by 'odd'=3" in page.at("menu-axis-odd").inner_text()
    assert "move it here" in page.at("menu-axis-model").inner_text()
    page.at("menu-axis-odd").click(force=True)
    assert page.edits() == []
    page.at("menu-axis-data").click()
    assert page.edits() == [{"op": "set_dim", "name": W1, "dimension": 0, "axes": ["data"]}]
    assert page.at("menu").is_hidden()
    page.answer()
    assert page.at(f"slot-{W1}-0").inner_text() == "data"
    assert page.focus() == f"slot-{W1}-0", "the focus stays where the person was"
    assert page.at("level").inner_text().startswith("propagated")


def test_axes_of_one_dimension_are_put_in_order(open_page):
    page = open_page()
    page.explorer.state.set_dim(W1, 1, ["model", "data"])
    page.answer()
    page.at(f"slot-{W1}-1").click()
    page.at("menu-right-model").click()
    assert page.edits()[-1]["axes"] == ["data", "model"]
    page.answer()
    assert page.at(f"slot-{W1}-1").inner_text().split() == ["data", "model"]
    assert page.at("menu").is_visible()
    page.click("menu-remove-model")
    assert page.at(f"slot-{W1}-1").inner_text() == "data"


def test_keys(open_page):
    page = open_page()
    page.at(f"slot-{W1}-0").focus()
    for key, focus in (
        ("ArrowRight", f"slot-{W1}-1"),
        ("ArrowDown", "slot-params['w2']-1"),
        ("ArrowUp", f"slot-{W1}-1"),
        ("Enter", "menu-axis-data"),
        ("Escape", f"slot-{W1}-1"),
    ):
        page.tab.keyboard.press(key)
        assert page.focus() == focus, key
    page.tab.keyboard.press("Delete")
    assert page.edits() == [{"op": "set_dim", "name": W1, "dimension": 1, "axes": []}]
    page.tab.keyboard.press("Control+z")
    page.tab.keyboard.press("Control+Shift+Z")
    assert [e["op"] for e in page.edits()] == ["set_dim", "undo", "redo"], "edits wait together for a busy kernel"


def test_the_mesh_is_edited_in_place_and_errors_stand_beside_it(open_page):
    page = open_page()
    page.at("axis-size-data").fill("3")
    page.at("axis-size-data").press("Enter")
    assert page.edits() == [{"op": "resize_axis", "name": "data", "size": 3}]
    page.answer()
    assert "64, which is not divisible by 'data'=3" in page.at("mesh-error").inner_text()
    assert page.at("axis-size-data").input_value() == "4"
    assert page.at("slot-x-0").get_attribute("aria-invalid") == "true"
    page.click("axis-more-data")
    assert page.at("mesh-error").count() == 0 and page.at("devices").inner_text() == "16 devices"
    page.enter("axis-name-model", "tp")
    assert page.at(f"slot-{W1}-1").inner_text() == "tp"
    page.at("add-axis").click()
    page.at("new-axis-name").fill("pipe")
    page.at("new-axis-size").press("Enter")
    page.answer()
    assert page.at("mesh-axis-pipe").is_visible()
    page.click("axis-remove-tp")
    assert page.at(f"slot-{W1}-1").inner_text() == "·"


def test_a_half_typed_name_is_not_committed_when_an_answer_comes(open_page):
    page = open_page()
    page.at("axis-name-data").fill("da")
    page.tab.evaluate("model.set('mesh', {...model.get('mesh')})")
    assert page.edits() == [] and page.at("axis-name-data").input_value() == "da"
    assert page.focus() == "axis-name-data"


def test_a_typed_spec_and_its_error_in_place(open_page):
    page = open_page()
    field = page.at(f"spec-{W1}")
    page.enter(field, "P('modle')")
    assert "no axis 'modle'" in page.at("argument-error").inner_text()
    assert field.input_value() == "P('modle')", "what the person typed is still there to be fixed"
    page.enter(field, "P('model')")
    assert page.at("argument-error").count() == 0 and page.at(f"slot-{W1}-0").inner_text() == "model"


def test_an_axis_is_dragged_onto_a_dimension(open_page):
    page = open_page()
    page.at("mesh-axis-data").locator(".sv-grip").drag_to(page.at(f"slot-{W1}-0"))
    assert page.edits() == [{"op": "move_axis", "name": W1, "axis": "data", "dimension": 0}]
    page.answer()
    page.at("mesh-axis-data").locator(".sv-grip").drag_to(page.at("slot-x-0"))
    assert len(page.edits()) == 1, "a dimension that it cuts already does not take it"


def test_outputs_can_be_set_and_given_back(open_page):
    page = open_page()
    page.at("out-slot-result-1").click()
    page.click("menu-axis-model")
    assert page.at("out-slot-result-1").inner_text() == "model"
    page.at("out-slot-result-1").click()
    page.click("menu-choose")
    assert page.at("out-slot-result-1").inner_text() == "·"


def test_tabs_show_what_came_while_they_were_hidden(open_page, program):
    page = open_page()
    page.go("collectives")
    assert page.at("collectives-none").is_visible()
    page.go("values")
    plan, job = program.jobs[0]
    job.on_report(program.partitioned(plan))
    page.explorer.wait("partitioned", timeout=5)  # playwright's own loop runs in this thread: nobody else would do it
    page.answer()
    page.go("collectives")
    assert "all-reduce" in page.at("collectives-table").inner_text()
    assert page.at("level").inner_text().startswith("partitioned")
    page.click(page.at("collectives-table").get_by_text("model.py:3"))
    assert page.at("panel-source").is_visible()
    page.at("line-model.py:3").locator("xpath=self::*[contains(@class, 'sv-changed')]").wait_for(timeout=5000)
    page.go("problems")
    assert "Shardy saw no all-reduce" in page.at("panel-problems").inner_text()
    page.at("stop").click()
    assert page.edits() == [{"op": "stop"}]
    page.answer()
    assert page.at("failure").is_visible() and page.at("stop").count() == 0


def test_a_device_is_picked_in_both_maps(open_page):
    page = open_page()
    page.tab.locator(".sv-leaf.sv-sel .sv-name").click()
    small, large = page.at("map-small"), page.at("panel-shards")
    small.get_by_test_id("cell-1").click()
    assert small.get_by_test_id("cells-said").inner_text() == "[:, 256:512] on devices 1,3,…,7"
    page.go("shards")
    assert large.get_by_test_id("cell-1").get_attribute("aria-pressed") == "true"
    assert "256:512" in large.get_by_test_id("cells-said").inner_text()
    large.get_by_test_id("cell-1").focus()
    page.tab.keyboard.press("ArrowLeft")
    page.tab.keyboard.press("Enter")
    assert page.tab.evaluate("model.get('device')") == 0
    large.get_by_test_id("cell-0").click()
    assert page.tab.evaluate("model.get('device')") == -1, "a second click takes the choice back"


@pytest.mark.parametrize("name", ["n" * 10_000, "layers and " * 1000, "\u05de" * 3000, "w\u202ex"])
def test_names_of_any_length_and_direction_leave_the_rest_as_it_is(open_page, make_program, plan, name):
    page = open_page(Explorer(ExplorerState(make_program({name: (64, 64)}), Plan(plan.mesh), level="propagated")))
    for tab in ("source", "shards", "rosetta", "values", "problems"):
        page.go(tab)
        assert page.at(f"panel-{tab}").evaluate(UNREADABLE) == [], tab
        turned = "(pane) => [...pane.querySelectorAll('.sv-doc :is(span, code, button)')].filter("
        turned += "(each) => getComputedStyle(each).unicodeBidi !== 'isolate').length"
        assert page.at(f"panel-{tab}").evaluate(turned) == 0, "what stands beside a name keeps its direction"


def test_a_slots_menu_opens_at_the_slot_and_stays_in_the_window(open_page, program, plan):
    page = open_page(Explorer(ExplorerState(program, plan, debounce=60)))
    page.click(page.tab.locator(".sv-leaf .sv-name").first)  # what unfolds there folds when another slot is edited
    for height in (900, 420):  # in a low window only a part of the page is seen
        page.tab.set_viewport_size({"width": 1280, "height": height})
        for slot in page.tab.locator(".sv-leaf .sv-slot").all():
            slot.click()
            page.answer()
            menu, at = page.at("menu").bounding_box(), slot.bounding_box()
            assert menu["y"] >= 0 and menu["y"] + menu["height"] <= height
            gaps = menu["y"] - at["y"] - at["height"], at["y"] - menu["y"] - menu["height"]
            assert height < 900 or 0 <= max(gaps) < 12, "below the slot or above it"
            page.tab.keyboard.press("Escape")
            page.click(page.tab.locator(".sv-leaf .sv-name").first)
