"""Whether the page can be read: nothing is cut off at any width, and the headline and the panes say what they must."""

from dataclasses import replace

import pytest

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.notation import DeviceMesh, Spec
from shardviz.page.explorer import Explorer
from shardviz.page.inputs import tree_view
from shardviz.page.stills import still_html
from shardviz.paint import text as summary
from shardviz.plan.plan import Plan
from shardviz.records import Alive, Collective, Cost, Finding, Frame, Memory, TargetCollective, Work
from tests.collectives import collective, held
from tests.page.page import CONTRAST, SMALL, UNREADABLE

TABS = ("source", "most", "shards", "rosetta", "values", "collectives", "memory", "problems", "code", "cost", "machine")
LONG = "params['decoder']['layers']['self_attention']['query_projection']['kernel_with_a_long_name']"
CODE = "    x = x + jnp.einsum('bthk,hkd->btd', attention(query, key, value, mask=mask), params['output_projection'])"


def answered(program, plan, target="cpu"):
    """An explorer whose compile has ended."""
    state = ExplorerState(program, plan, debounce=60, target=target)
    program.jobs[0][1].answer(program.compiled(plan))
    state.wait(timeout=5)
    return Explorer(state)


def crowded(program, plan, target="cpu"):
    """An explorer whose names, shapes, lines and counts are all as long as they get."""
    frame = Frame("/somewhere/models/transformer_with_experts.py", 1234, "decoder_layer")
    axes = ("data", "model")

    def compiled(plan):
        report = program.partitioned(plan)
        many = Spec((("data",), (), (), ("model",), ()))
        of = {"op": "triangular_solve_of_something", "label": "attention_scores_before_the_mask", "count": 1280}
        of |= {"source": frame, "shard_shape": (4, 4096, 1048576, 14336, 128), "spec": many}
        name, shape = "custom-call.{}.with-a-long-name.of-the-compilers-own", (16, 4096, 1048576, 28672, 128)
        values = tuple(held(name.format(i), "float8_e4m3fn", shape, 5e13, **of) for i in range(3))
        of = {"source": frame, "phase": "rematerialised", "origin": "user", "operand": LONG, "conditional": True}
        of |= {"dtype": "float8_e4m3fn", "shape": shape[:4], "group_size": 512}
        sizes = ((axes, 5.37e8, 1280), (("data",), 4e8, 2), (("model",), 1e3, 1), (None, 1e9, None))
        moves = tuple(
            collective("ragged-all-to-all", over, nbytes, None, count, name=f"ragged-all-to-all.{i}", **of)
            for i, (over, nbytes, count) in enumerate(sizes)
        )
        run = {"how": ("turned", "combined", "asynchronous", "converted")}
        fused = [replace(c, dtype="float32", name=f"fused.{c.name}") for c in moves]
        runs = tuple(
            TargetCollective(collective=f, stands_for=(c.name,), **run) for f, c in zip(fused, moves, strict=True)
        )
        work = tuple(
            Work(phase=phase, source=frame, module="decoder", dtype="bfloat16", dot_flops=1e15)
            for phase in ("forward", "backward")
        )
        large = {"dtype": "float8_e4m3fn", "shape": (1048576, 4096, 4096, 128), "source": frame}
        alive = (
            Alive(name="params", bytes=int(1e9), kind="argument", dtype="bfloat16", shape=(1048576, 4096, 128)),
            Alive(name="fusion." + LONG, bytes=int(1e12), kind="temporary", **large),
        )
        notes = tuple(Finding("halo", "note", f"all-gather over {n}: {LONG}" * 2) for n in "ab")
        bad = (Finding("involuntary-rematerialisation", "warning", LONG * 3, source=frame, value=LONG),)
        report = replace(
            report,
            level="compiled",
            intermediates=values,
            collectives=moves,
            diagnostics=(*notes, *bad),
            source={frame.file: {1234: CODE}},
            memory=Memory(
                arguments=4_410_000_000,
                outputs=4_600_000_000,
                aliased=4_410_000_000,
                temporaries=138_000_000_000,
                peak=121_000_000_000,
                target=target,
            ),
            target=target,
        )
        if target == "cpu":
            return report
        memory = replace(report.memory, hbm=16_900_000_000, fits=False, alive_at_peak=alive)
        return replace(report, target_collectives=runs, cost=Cost(dot_flops=2e15, work=work), memory=memory)

    program.compiled = compiled
    return answered(program, plan, target)


def specs(program, plan):
    return Plan(plan.mesh, edits={next(iter(program.shapes)): Spec.of(("data", "model"))})


@pytest.fixture
def crowd(make_program, plan):
    program = make_program({LONG: (4096, 131072), f"{LONG}['bias']": (131072,), "tokens": (64, 4096)})
    return crowded(program, specs(program, plan))


@pytest.fixture
def on_machine(make_program, plan, compilers):
    """The same on a machine, which it does not fit."""
    program = make_program({LONG: (4096, 131072), f"{LONG}['bias']": (131072,), "tokens": (64, 4096)})
    return crowded(program, specs(program, plan), "tpu v5e:2x4")


@pytest.mark.parametrize("light", [True, False])
def test_every_table_fits_its_pane(open_page, on_machine, light):
    on_machine.device = 3
    page = open_page(on_machine, width=1500, light=light)
    for tab in TABS:
        page.go(tab)
        closed = page.at(f"panel-{tab}").locator("button[aria-expanded=false]")
        while tab in ("collectives", "cost") and closed.count():
            closed.first.click()
        assert page.tab.evaluate(CONTRAST)["ratio"] >= 4.5, tab
        for width in page.widths(560, 760, 1000, 1500):
            assert page.at(f"panel-{tab}").evaluate(UNREADABLE) == [], (tab, width)
            pictures = width < 760 or tab in ("cost", "machine")  # which are drawn as small as the pane is
            assert pictures or page.at("shardviz").evaluate(SMALL) == [], (tab, width)
            assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), (tab, width)
    assert page.at("device-groups").is_visible()
    for width in page.widths(560, 760, 1000, 1500):
        assert page.tab.locator(".sv-left").evaluate(UNREADABLE) == [], width
        page.at("target").click()
        assert page.at("target-menu").evaluate(UNREADABLE) == []
        assert page.tab.evaluate(CONTRAST)["ratio"] >= 4.5
        page.tab.keyboard.press("Escape")
    page.go("values")
    assert page.at("values-table").locator("tr").nth(1).get_by_title(LONG).count(), "the whole name is in a title"
    page.go("collectives")
    assert page.at("collectives-table").get_by_title(CODE.strip()).count(), "so is the whole line"


def test_the_cards_are_read_at_any_width(open_page, on_machine):
    on_machine.state.pin("one")
    page = open_page(on_machine)
    for width in page.widths(640, 920, 1060, 1500):
        assert page.tab.locator(".sv-head").evaluate(UNREADABLE) == []
        memory = page.at("kpi-memory").inner_text()
        assert memory.startswith("143 / 16.9 GB") and "does not fit: 126 GB too much" in memory
        assert page.at("kpi-step").is_visible() and page.at("card-step-baseline").is_visible()
        assert "bound by" in page.at("kpi-step").locator("[title]").get_attribute("title")
        assert page.tab.locator(".sv-ledger").bounding_box()["height"] < (165 if width > 760 else 225)
        assert page.tab.locator(".sv-ledger").evaluate(UNREADABLE) == [], "an ellipsis has its title"


def test_the_card_that_is_opened_comes_into_sight(open_page, on_machine):
    for n in range(5):
        on_machine.state.pin(f"plan {n}")
        on_machine.state.open_card("baseline")
    page = open_page(on_machine, width=920)
    seen, last = page.tab.locator(".sv-deck").bounding_box(), page.tab.locator(".sv-card").last
    assert last.bounding_box()["x"] > seen["x"] + seen["width"]
    page.at("card-baseline").focus()
    page.tab.locator(".sv-point:not(.sv-on)").last.dispatch_event("click")
    page.answer()
    page.tab.wait_for_function("""() => {
      const box = (at) => document.querySelector(at).getBoundingClientRect();
      const [card, deck] = [box(".sv-card.sv-on"), box(".sv-deck")];
      return card.left >= deck.left && card.right <= deck.right + 1;
    }""")


def test_the_numbers_are_one_row_and_the_verdict_has_the_lines_that_it_needs(open_page, on_machine):
    page = open_page(on_machine)
    for width in page.widths(920, 1060, 1520):
        assert page.tab.locator(".sv-facts").bounding_box()["height"] <= 48
        assert page.tab.locator(".sv-head").bounding_box()["height"] <= (64 if width > 1170 else 64 + 3 * 19)
        assert page.tab.locator(".sv-head").evaluate(UNREADABLE) == []
        assert page.at("top-memory").inner_text().split("\n") == ["143 of 16.9 GB", "126 GB too much"]
        assert page.at("verdict").inner_text().startswith("Does not fit.")
        assert page.at("verdict").evaluate("(el) => el.scrollHeight <= el.clientHeight"), "all of it is seen"
        assert page.at("kpi-findings").inner_text() == "2 findings"


def test_the_wheel_scrolls_what_is_around_where_a_pane_has_no_more(open_page, program, plan):
    page = open_page(Explorer(ExplorerState(program, plan, level="propagated")))
    page.tab.set_viewport_size({"width": 1280, "height": 450})
    page.at("panel-source").hover()
    page.tab.mouse.wheel(0, 200)
    page.tab.wait_for_function("scrollY > 0", timeout=3000)


def test_all_of_it_fits_the_window(open_page, on_machine):
    """The window of a laptop: the explorer is no higher than the room below JupyterLab's bars."""
    page = open_page(on_machine)
    for width in page.widths(920, 1060, 1280):
        assert page.tab.locator(".sv-body").bounding_box()["height"] <= 900 - 150, width
        for part in (".sv-head", ".sv-left", ".sv-panel-source", ".sv-strip"):
            assert page.tab.locator(part).bounding_box()["height"] > 50, (part, width)


def test_axes_that_move_next_to_nothing_are_counted_only(open_page, program, plan):
    moves = [
        Collective(kind="all-gather", axes=(axis,), dtype="int8", shape=(1,), operand_bytes=n, result_bytes=n, count=1)
        for axis, n in (("data", 1e9), ("model", 9e5))
    ]
    program.compiled = lambda plan: replace(program.partitioned(plan), level="compiled", collectives=tuple(moves))
    page = open_page(answered(program, plan))
    assert page.at("kpi-moved").inner_text().split() == ["data", "1.00", "GB", "sent", "+1"]
    assert page.at("kpi-moved").get_by_title("model 900 kB").count() == 1


def test_memory_adds_up_and_says_whose_plan_it_is(open_page, crowd):
    page = open_page(crowd)
    assert page.at("verdict").get_by_role("button").count() >= 1, "a machine is to be chosen"
    assert page.at("kpi-memory").inner_text() == "270 MB of arguments"
    page.go("memory")
    assert page.at("memory-verdict").inner_text().startswith("not known whether it fits")
    found = page.at("memory-parts").locator("tr").all()
    assert [[cell.strip() for cell in row.locator("th, td").all_inner_texts()[:2]] for row in found] == [
        ["arguments", "4.41 GB"],
        ["outputs", "190 MB"],
        ["temporaries", "138 GB"],
        ["in all", "143 GB"],
    ]
    assert page.at("memory-alive-at-once").inner_text() == "peak of live memory: 121 GB"


ON_PAPER = """(root) => [...root.querySelectorAll("*")].filter((el) => el.checkVisibility()
    && getComputedStyle(el).overflowY !== "visible" && el.scrollHeight > el.clientHeight + 2
    && !el.closest("svg, select"))
  .map((el) => `${el.className} ${el.scrollHeight} > ${el.clientHeight}`)"""
GROUND = "getComputedStyle(document.querySelector('.shardviz .sv-body')).getPropertyValue('--sv-bg')"


@pytest.mark.parametrize("view", ["source", "collectives", "memory"])
def test_on_paper_nothing_is_scrolled_or_to_be_clicked_and_rows_are_open(open_page, on_machine, view):
    page = open_page(on_machine, light=False)
    page.go(view)
    details = page.at("collectives-table").locator("[data-testid^=detail-]")
    assert details.count() == 0
    try:
        page.tab.emulate_media(media="print")
        page.tab.set_viewport_size({"width": 703, "height": 1000})  # A4 between margins of 12 mm
        page.tab.wait_for_function(f"{GROUND} === '#fff'")  # of a dark page too, as soon as it hears that it is printed
        assert page.at("find-best").is_hidden()
        assert page.at("shardviz").evaluate(ON_PAPER) == []
        assert page.at(f"panel-{view}").is_visible() and page.at("shardviz").evaluate(UNREADABLE) == []
        assert page.at("verdict").is_visible() and page.at("card-baseline").is_visible()
        assert (details.count() > 0) == (view == "collectives")
    finally:
        page.tab.emulate_media(media="null")


def test_problems_come_before_notes(open_page, crowd):
    page = open_page(crowd)
    assert page.at("tab-problems").inner_text().split() == ["Findings", "1", "·", "2", "notes"]
    page.click(page.at("kpi-findings").get_by_role("button"))
    text = page.at("panel-problems").inner_text()
    assert text.index("⚠ warning") < text.index("all-gather over a")


def test_no_problems_but_notes(open_page, program, plan):
    notes = tuple(Finding("halo", "note", f"note {i}") for i in range(6))
    program.compiled = lambda plan: replace(program.partitioned(plan), level="compiled", diagnostics=notes)
    page = open_page(answered(program, plan))
    assert page.at("tab-problems").get_attribute("title") == "0 findings · 6 notes"
    assert page.at("tab-problems").inner_text().split() == ["Findings", "0", "·", "6", "notes"]


def test_a_tab_that_nobody_looked_at_says_that_no_kernel_answers_any_more(open_page):
    page = open_page()
    for name in ("values", "collectives", "cost", "machine", "memory", "rosetta"):
        page.tab.evaluate("(name) => model.set('tab', name)", name)  # and nobody answers
        assert "The kernel is asked" in page.at(f"panel-{name}").inner_text()
    page.tab.evaluate("() => { window.alive = false; model.trigger('comm_live_update'); }")
    page.at("gone").wait_for()
    for name in ("values", "collectives", "cost", "machine", "memory", "rosetta"):
        page.tab.evaluate("(name) => model.set('tab', name)", name)
        text = page.at(f"panel-{name}").inner_text()
        assert "run the cell again" in text and "is asked" not in text


def test_a_second_click_goes_on_from_the_first_though_the_kernel_has_not_answered(open_page):
    page = open_page()
    page.at("axis-more-data").click()
    page.at("axis-more-data").click()
    page.at("axis-less-model").click()
    page.at("axis-less-data").click()
    assert [(e["name"], e["size"]) for e in page.edits()] == [("data", 8), ("data", 16), ("model", 1), ("data", 8)]
    page.answer()
    assert page.at("axis-size-data").input_value() == "8" and page.at("axis-size-model").input_value() == "1"
    page.explorer.state.undo()
    page.answer()
    page.at("axis-less-data").click()
    assert page.edits()[-1]["size"] == 8, "after an answer from what is shown, 16"


@pytest.mark.usefixtures("compilers")
@pytest.mark.parametrize("width", [560, 1000])
def test_a_very_long_name_of_an_axis_is_shortened_and_said_in_full(open_page, program, plan, width):
    name = "an_axis_" + "of_a_very_long_name_" * 8
    spec = {"x": (name, None), "params['w1']": (None, "model_" * 8), "params['w2']": ("model_" * 8, None)}
    mesh = DeviceMesh.of({name: 4, "model_" * 8: 2})
    plan = Plan(mesh, edits={value: Spec.of(s) for value, s in spec.items()})
    page = open_page(answered(program, plan, "tpu v5e:2x4"), width=width)
    for tab in ("collectives", "cost", "machine"):
        page.go(tab)
        if tab == "machine":
            page.enter("pick-device", "1")
        assert page.at(f"panel-{tab}").evaluate(UNREADABLE) == []
    assert page.at("device-groups").get_by_title(name).first.is_visible()
    slot = page.at("slot-x-0")
    chip = slot.locator(".sv-chip")
    assert chip.get_attribute("title") == name and chip.bounding_box()["width"] > 100


STICKING_OUT = """() => {
  const root = document.querySelector(".shardviz");
  const edge = root.getBoundingClientRect().right + 1;
  return [...root.querySelectorAll(":not(svg *)")]
    .filter((el) => el.checkVisibility() && el.getBoundingClientRect().right > edge).map((el) => el.outerHTML);
}"""


# In tables whose rows are cards, the heads of cells that say nothing.
HEADS_ALONE = """() => [...document.querySelectorAll(".sv-cards > tbody > tr > [data-head]")]
  .filter((cell) => cell.checkVisibility() && !cell.textContent.trim() && !cell.querySelector(".sv-track"))
  .map((cell) => cell.dataset.head)"""


def test_chips_of_long_names_stay_on_a_narrow_page(open_page, program, plan):
    one, other = "an_axis_of_a_rather_long_name_forty_char", "another_axis_of_forty_characters_exactly"
    specs = {"x": (one, None), "params['w1']": (None, (one, other)), "params['w2']": (other, None)}
    plan = Plan({one: 4, other: 2}, edits={name: Spec.of(spec) for name, spec in specs.items()})
    page = open_page(Explorer(ExplorerState(program, plan, debounce=60)), width=420)
    for view in ("source", "memory", "machine"):
        page.go(view)
        assert page.tab.evaluate(STICKING_OUT) == []
        assert page.tab.evaluate(HEADS_ALONE) == []
    for chip in (f"{one}=4", f"{other}=2"):
        assert page.at("kpi-note").get_by_title(chip, exact=True).bounding_box()["width"] > 60
    assert page.at(f"axis-name-{one}").locator("..").get_attribute("title") == one


def test_the_dimensions_of_an_array_stand_in_one_line(open_page, make_program, plan):
    page = open_page(Explorer(ExplorerState(make_program({"cache": (2, 32, 64, 8, 16)}), Plan(plan.mesh))), width=844)
    tops = [page.at(f"slot-cache-{dimension}").bounding_box()["y"] for dimension in range(5)]
    assert len(set(tops)) == 1


def test_without_collectives_nothing_is_said_of_how_often_they_run(open_page, program, plan):
    state = ExplorerState(program, plan, level="propagated")
    page = open_page(Explorer(state), width=560)
    assert page.at("kpi-moved").inner_text() == "nothing"
    assert "collective" not in summary(state)


@pytest.mark.usefixtures("compilers")
def test_the_machine_is_one_stop_of_the_tab_key(open_page, program, plan):
    page = open_page(answered(program, plan, "tpu v5e:2x4"))
    page.go("machine")
    page.tab.keyboard.press("Tab")
    assert page.focus() == "device-0", "not the picture around it"
    page.tab.keyboard.press("Tab")
    assert page.focus() == "pick-device"


def test_arrays_in_lists_are_told_apart_by_their_names():
    values = [held(f"{tree}[{n}]", "float32", (8, 8), 256) for tree in ("w", "momentum") for n in (0, 1)]
    labels = [label for _, _, label, *of in tree_view(values, 1)["rows"] if len(of) > 1]
    assert labels == ["w[0]", "w[1]", "momentum[0]", "momentum[1]"]


def test_the_plans_of_a_still_are_no_wider_than_a_cell_of_jupyterlab(tab):
    llama = sv.explore(sv.gallery.llama("70b"), target="tpu v5p:4x4x4", level="propagated")
    tab.set_content(f'<div style="width:842px;overflow:auto">{still_html(llama.state)}</div>')
    assert tab.locator("table", has_text="baseline").first.evaluate("(table) => table.offsetWidth") <= 842
