"""The machine on the page: choosing one by mouse and by keys, refusals in place, and how the page follows."""

import re
from dataclasses import replace

import pytest

from shardviz.explorer.compile_loop import CompileLoop
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.records import Memory

pytestmark = pytest.mark.usefixtures("compilers")
W1 = "params['w1']"


@pytest.fixture
def page(open_page):
    """A page with the chooser open, on `cpu`."""
    page = open_page()
    page.at("target").click()
    return page


def on(program, plan, target, **changes):
    """An explorer whose compile for a target has ended."""
    state = ExplorerState(program, plan, debounce=60, target=target)
    program.jobs[0][1].on_report(replace(program.partitioned(plan), target=target))
    if changes:
        program.jobs[0][1].answer(replace(program.compiled(plan), target=target, **changes))
    state.wait("compiled" if changes else "partitioned", timeout=5)
    return Explorer(state)


def test_a_machine_is_chosen_from_the_list(page):
    assert (
        page.at("target").inner_text() == "choose a machine ▾"
        and page.at("target").get_attribute("aria-expanded") == "true"
    )
    page.at("target-tpu v5e:2x4").click()
    assert page.edits() == [{"op": "set_target", "target": "tpu v5e:2x4"}]
    page.answer()
    assert page.at("target-menu").is_hidden() and page.at("target").inner_text() == "v5e 2x4 ▾"
    assert page.focus() == "target", "the focus goes back to where the menu was opened"
    assert "≥" in page.at("kpi-step").inner_text() and "tpu v5e:2x4" in page.at("where").get_attribute("title")
    assert page.at("undo").is_enabled()
    page.click("undo")
    assert (
        page.at("target").inner_text() == "choose a machine ▾"
        and page.at("kpi-step").inner_text() == "choose a machine to see times"
    )
    page.at("kpi-step").get_by_role("button").click()
    assert page.at("target-menu").is_visible(), "where it is missed it can be chosen"


def test_by_the_keyboard_alone(open_page):
    page = open_page()
    press = page.tab.keyboard.press
    for _ in range(20):
        press("ArrowRight" if (page.focus() or "").startswith(("mesh-axis", "add-axis")) else "Tab")
        if page.focus() == "target":
            break
    press("Enter")
    assert page.focus() == "target-cpu", "on what is chosen"
    focus = []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp"):
        press(key)
        focus.append(page.focus())
    assert focus[:5] == [f"target-tpu {name}" for name in ("v2:2x2", "v3:2x2", "v4:2x2x2", "v5e:2x4", "v5p:2x2x2")]
    assert focus[5:] == ["target-tpu v5p:2x4x1", "target-tpu v5p:2x4x1", "target-tpu v5e:2x4"]
    press("Escape")
    assert page.at("target-menu").is_hidden() and page.focus() == "target" and page.edits() == []
    press("Enter")
    press("ArrowUp")
    assert page.focus() == "target-text"
    press("Control+a")
    page.tab.keyboard.type("gpu h100:1x8")
    press("Enter")
    page.answer()
    assert page.at("target").inner_text() == "h100 1x8 ▾" and page.focus() == "target"


def test_a_wrong_machine_is_refused_in_place_and_what_was_typed_stays(page):
    field = page.at("target-text")
    page.enter(field, "tpu v5e:4x4")
    assert "a target that would do: tpu v5e:2x4" in page.at("target-error").inner_text()
    assert field.input_value() == "tpu v5e:4x4" and page.focus() == "target-text"
    assert page.at("target").inner_text() == "choose a machine ▾"
    page.enter(field, "v5e")
    assert page.at("target-error").count() == 0 and page.at("target").inner_text() == "v5e 2x4 ▾"


def test_a_click_elsewhere_closes_it_and_its_refusal_is_still_said(page):
    page.enter("target-text", "tpu v9")
    page.at("verdict").click()
    assert page.at("target-menu").is_hidden() and page.at("target").get_attribute("aria-expanded") == "false"


def test_the_machine_follows_the_mesh_and_a_size_it_has_not_is_said(open_page, program, plan):
    page = open_page(on(program, plan, "tpu v5e:2x4"))
    page.click("axis-more-data")
    assert page.at("target").inner_text() == "v5e 4x4 ▾"
    assert page.at("target-remark").inner_text() == "v5e resized with the mesh, from tpu v5e:2x4 to tpu v5e:4x4"
    page.explorer.state.add_axis("odd", 3)
    page.answer()
    assert "make the mesh 32 or 64" in page.at("target-trouble").inner_text()
    assert page.at("kpi-step").inner_text() == "no time"
    page.at("target").click()
    assert "has 32 or 64 devices, not 48" in page.at("target-menu").inner_text()
    page.tab.keyboard.press("Escape")
    page.click("undo")
    assert page.at("target-trouble").count() == 0 and "≥" in page.at("kpi-step").inner_text()


def test_the_command_that_brings_the_compiler_is_on_the_page(open_page, program, plan, compilers):
    compilers(tpu=False)
    install = "pip install 'shardviz[tpu]'"
    page = open_page(Explorer(ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4")))
    box = page.at("target-lack").bounding_box()
    assert box is not None and box["height"] < 24, "in one line"
    assert install in page.at("target-lack").inner_text() and "libtpu" in page.at("target-lack").get_attribute("title")
    assert "partitioning" in page.at("level").inner_text()
    page.at("target").click()
    assert install in page.at("target-kind-TPU").inner_text()
    assert "compiled for here" in page.at("target-kind-GPU").inner_text()


def test_while_it_compiles_the_page_says_for_which_machine(open_page, program, plan):
    page = open_page(Explorer(ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4")))
    assert page.at("level").inner_text().split("\n")[0] == "propagated"
    assert page.at("level").get_by_title("compiling for tpu v5e:2x4").is_visible()
    page.click("stop")
    assert page.at("level").inner_text().split("\n")[1].startswith("stopped")


def test_a_later_compile_says_how_long_it_will_take(open_page, program, plan, monkeypatch):
    monkeypatch.setattr(CompileLoop, "paces", {("tpu v5e:2x4", "compiled"): 42.0})
    page = open_page(Explorer(ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4")))
    assert re.search(r"compiling \d\.\d s of ~\d+ s ■ stop", page.at("level").inner_text())
    box = page.at("level").bounding_box()
    assert box is not None and box["height"] < 60


def test_what_does_not_fit_is_red_and_in_words(open_page, program, plan):
    memory = Memory(
        arguments=int(4e9),
        outputs=0,
        aliased=0,
        temporaries=int(50e9),
        peak=1,
        target="tpu v5e:2x4",
        hbm=int(16.9e9),
        fits=False,
    )
    page = open_page(on(program, plan, "tpu v5e:2x4", memory=memory))
    text = page.at("kpi-memory").inner_text()
    assert "does not fit" in text and "54.0 / 16.9 GB" in text and "37.1 GB too much" in text
    red = page.tab.evaluate("getComputedStyle(document.querySelector('[data-testid=kpi-memory] .sv-is-bad')).color")
    assert red == "rgb(180, 35, 24)"
    page.click(page.at("kpi-memory").get_by_role("button"))
    assert page.at("panel-memory").is_visible()
    assert (
        page.at("memory-verdict")
        .inner_text()
        .startswith("does not fit on each device of tpu v5e:2x4: 54.0 GB of 16.9 GB")
    )


def test_a_value_of_the_memory_tab_is_selected_everywhere(open_page, program, plan):
    page = open_page(on(program, plan, "tpu v5e:2x4"))
    page.go("memory")
    page.click("pick-value-params['w2']")
    assert page.explorer.state.selected == "params['w2']"
    assert page.at("pick-value-params['w2']").get_attribute("aria-pressed") == "true"


def test_the_compilers_options_are_typed_or_chosen_and_a_wrong_one_is_refused(page):
    field = page.at("options-text")
    page.enter(field, "xla_a=true <img src=x onerror=alert(1)>=1")
    assert page.edits() == [{"op": "set_options", "options": "xla_a=true <img src=x onerror=alert(1)>=1"}]
    assert "neither a flag" in page.at("options-error").inner_text() and page.at("outcome").locator("img").count() == 0
    field.fill("xla_a=true")
    page.click("options-vmem-dense")
    assert page.explorer.state.plan.options == {"xla_a": True, "xla_tpu_scoped_vmem_limit_kib": 98_304}
    assert page.at("target-menu").is_hidden() and page.at("options-error").count() == 0
    page.at("target").click()
    assert page.at("options-text").input_value() == "xla_a=true xla_tpu_scoped_vmem_limit_kib=98304"
    page.tab.keyboard.press("Escape")
    page.click("undo")
    assert not page.explorer.state.plan.options
