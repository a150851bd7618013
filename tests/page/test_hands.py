"""Building a plan by hand: dimensions, twins, layers, search, refusals, rules; by mouse and by keyboard alone."""

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.explorer import background
from shardviz.explorer.cards import BASELINE
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.study.fixes import Fix, Fixes
from tests.page.page import CONTRAST, UNREADABLE, say

LAYERS = 3


def step(params, momentum, x):
    for layer in params["layers"]:
        x = x + jnp.tanh(x @ layer["up"]) @ layer["down"]
    return x @ params["out"], jax.tree.map(jnp.add, params, momentum)


def explorer_of(names=("up", "down"), mesh="data=4,model=2", find=True):
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    layers = [{"up": array(16, 64), "down": array(64, 16), "scale": array(16)} for _ in range(LAYERS)]
    params = {"layers": layers, "out": array(16, 30)}
    program = sv.trace(step, params, params, array(8, 16))
    state = ExplorerState(program, sv.Plan(mesh), level="propagated", debounce=60)
    explorer = Explorer(state)
    if find:
        explorer.wants = "dimensions"
        assert state.loop.inbox.wait_until(lambda: state.logical.found is not None, 60)
    return explorer


@pytest.fixture(scope="module")
def made():
    return explorer_of()


@pytest.fixture
def explorer(made):
    """One for all; each test begins where the first began."""
    while made.state.past:
        assert made.state.undo()
    made.state.open_card(BASELINE)
    for card in made.state.deck.cards:
        if card.id != BASELINE:
            made.state.delete_card(card.id)
    while made.state.past:
        assert made.state.undo()
    assert [card.id for card in made.state.deck.cards] == [BASELINE]
    made.state.dismiss()
    return made


def cut(explorer):
    return {name: str(spec.canonical()) for name, spec in explorer.state.bound.in_specs.items() if spec.axes}


def all_of(leaf, *roots):
    return {f"{root}['layers'][{i}]['{leaf}']" for root in roots or ("params", "momentum") for i in range(LAYERS)}


def dimension(explorer, member):
    return explorer.state.logical.found.named(member).name


UP = "params['layers'][*]['up']"
UP_1 = "params['layers'][0]['up']:1"


# What is sent.


def test_an_edit_sends_how_arrays_are_cut_and_not_the_tree(explorer):
    sent = []
    hear = lambda change: sent.append(change["name"])
    explorer.observe(hear)
    say(explorer, op="set_dim", name="params['out']", dimension=0, axes=["data"])
    assert not {"inputs", "outputs", "array_groups"} & set(sent) and {"shardings", "dimensions"} <= set(sent)
    explorer.unobserve(hear)


def test_the_dimensions_say_who_disagrees(explorer):
    name = dimension(explorer, UP_1)
    assert explorer.state.shard_dimension(name, ["model"])
    assert explorer.state.set_dim("params['layers'][1]['down']", 0, ["data"])
    row = next(row for row in explorer.dimensions["rows"] if row["name"] == name)
    assert row["axes"] == ["model"] and row["grave"]
    path = "params['layers'][1]['down']"
    assert row["otherwise"] == [f"{path}: data"]
    assert row["but"] == ["but", {"t": "down", "sel": ["value", path]}, ": data"]


DONATE = "donate momentum"


def _donating(_program, report, _machine, plan):
    """Offers the plan with another argument donated, whatever the plan is."""
    given = plan.with_variant(donated=("momentum",))
    numbers = {"seconds": None, "step": None, "bytes": 1e6, "memory": 0.0, "level": "propagated"}
    difference = sv.compare(report, report)
    found = Fix(action=DONATE, difference=difference, plan=given, write="donate it", **numbers)
    yield Fixes(program="", target="cpu", level="propagated", fixes=(found,), tried=1, candidates=1)


# The page, by mouse.


def test_a_plan_is_built_with_the_mouse(open_page, explorer):
    page = open_page(explorer)
    name = dimension(explorer, UP_1)
    page.drag("axis-name-model", f"dim-{name}")  # all of an axis can be dragged, and no text is selected
    assert page.tab.evaluate("getSelection().toString()") == ""
    assert page.edits()[-1] == {"op": "shard_dimension", "name": name, "axes": ["model"]}
    page.answer()
    assert set(cut(explorer)) == all_of("up") | all_of("down")
    # all layers are one row, whose edit goes to every layer and to momentum
    page.at("open-inputs").click()
    page.at(f"slot-{UP}-0").scroll_into_view_if_needed()
    page.at("mesh-axis-data").locator(".sv-grip").drag_to(page.at(f"slot-{UP}-0"))  # the mesh stays in reach
    page.answer()
    # a chip that is taken from where it lies is not there any more when it is dropped
    for here, there in ((0, 1), (1, 0)):
        page.at(f"slot-{UP}-{here}").locator(".sv-chip", has_text="data").drag_to(page.at(f"slot-{UP}-{there}"))
        page.answer()
        assert page.tab.locator(".sv-may, .sv-maynot").count() == 0
    assert {n for n, s in cut(explorer).items() if "data" in s} == all_of("up")
    # without twins only to the layers
    page.at("twins").uncheck()
    page.at(f"slot-{UP}-0").click()
    page.click("menu-clear")
    assert {n for n, s in cut(explorer).items() if "data" in s} == all_of("up", "momentum")
    # one layer by itself: unfold
    page.at("fold-params['layers'][*]*falseeach").click()
    page.at("fold-params['layers'][1]").click()
    page.at("slot-params['layers'][1]['up']-0").click()
    page.click("menu-axis-data")
    assert "params['layers'][1]['up']" in {n for n, s in cut(explorer).items() if "data" in s}
    assert "1 differ" in page.at(f"argument-{UP}").inner_text()
    page.click("undo")
    # a rule of the selection
    page.click(f"name-{UP}")
    page.click("make-rule-open")
    page.at("make-pattern").fill("params.layers.*.up")
    page.click("make-rule")
    assert [rule.filter for rule in explorer.plan.rules] == ["params.layers.*.up"]


def test_a_refused_change_is_fixed_by_a_click_and_so_is_a_program(open_page, explorer, monkeypatch):
    page = open_page(explorer)
    explorer.state.shard_dimension(dimension(explorer, "params['out']:1"), ["model"])
    page.answer()
    page.click("axis-more-model")
    assert "is not divisible by 'model'=4" in page.at("mesh-error").inner_text()
    assert "padding to 32 adds 6.7 %" in page.at("mesh-error").inner_text()
    page.click("alternative-0")
    assert explorer.plan.mesh.shape["model"] == 4 and cut(explorer) == {} and page.at("mesh-error").count() == 0
    page.click("undo")
    page.click("axis-more-model")
    page.click("mesh-error-away")
    assert page.at("mesh-error").count() == 0 and explorer.state.error is None
    # what helps may be a change of the program
    monkeypatch.setattr(background, "fixes", _donating)
    explorer.state.try_fixes()
    page.click("fix")
    page.click(page.tab.locator(f"[data-choice='fix {DONATE}']").first)
    card = explorer.state.deck.now
    assert card.name == DONATE and explorer.report.value("momentum['out']").donated
    assert "its program donates momentum" in page.at(f"card-{card.id}").inner_text()
    page.go("code")
    assert "donate_argnums=(1,)" in page.at("jax-code").inner_text()
    page.click("undo")
    assert not explorer.plan.variant and not explorer.report.value("momentum['out']").donated


def test_a_drop_shows_before_the_kernel_answers_and_what_waits_is_grey(open_page, explorer):
    page = open_page(explorer)
    page.at("open-inputs").click()
    page.at(f"slot-{UP}-0").click()
    page.at("menu-axis-data").click()
    assert page.at(f"slot-{UP}-0").inner_text() == "data", "no answer has come"
    assert page.at(f"argument-{UP}").locator(".sv-old").count() == 1
    page.at("asking").wait_for()
    assert "ago; numbers are from before" in page.at("asking").inner_text()
    assert page.tab.locator(".shardviz.sv-asked").count() == 1
    page.answer()
    assert page.at(f"slot-{UP}-0").inner_text() == "data" and page.tab.locator(".sv-old, .sv-asked").count() == 0
    assert page.at("asking").is_hidden()
    page.at(f"slot-{UP}-1").click()
    page.at("menu-axis-data").click()  # a move, which is refused: nobody knows of the axis
    page.tab.evaluate(
        "Object.assign(sent.at(-1).edit, 'axis' in sent.at(-1).edit ? { axis: 'nowhere' } : { axes: ['nowhere'] })"
    )
    page.answer()
    assert page.at(f"slot-{UP}-1").inner_text() == "·", "what was refused is taken back"


# By keyboard alone.


def test_a_plan_is_built_with_the_keyboard_alone(open_page, explorer):
    page = open_page(explorer)
    keys = page.tab.keyboard

    def press(*names):
        for name in names:
            keys.press(name)

    def tab_to(name):
        for _ in range(20):
            if page.focus() == name:
                return
            press("Tab")
        raise AssertionError(f"Tab does not come to {name}: it is at {page.focus()}")

    first = explorer.dimensions["rows"][0]["name"]
    tab_to("mesh-axis-data")
    press("ArrowRight")
    assert page.focus() == "mesh-axis-model"
    press("-")
    page.answer()
    assert explorer.plan.mesh.shape["model"] == 1
    press("+")
    page.answer()
    assert explorer.plan.mesh.shape["model"] == 2 and page.focus() == "mesh-axis-model"
    tab_to(f"dim-{first}")
    name = dimension(explorer, UP_1)
    while page.focus() != f"dim-{name}":
        press("ArrowDown")
    press("Enter")
    assert page.focus() == "menu-axis-data"
    press("ArrowDown", "Enter")
    page.answer()
    assert set(cut(explorer)) == all_of("up") | all_of("down") and page.focus() == f"dim-{name}"
    press("Delete")
    page.answer()
    assert cut(explorer) == {}
    # search, go to what was found, cut it, and take it away again
    press("/")
    assert page.focus() == "palette-text"
    keys.type("search the inputs")
    press("Enter")
    assert page.focus() == "search"
    keys.type("layers up")
    assert page.at("search-found").inner_text() == "6 of 21"
    press("ArrowDown", "ArrowRight", "ArrowRight")
    assert page.focus() == f"slot-{UP}-1"
    press("Enter")
    page.answer()
    press("Enter")
    page.answer()
    assert {n for n, s in cut(explorer).items() if "data" in s} == all_of("up")
    assert page.focus() == f"slot-{UP}-1"
    press("ArrowDown")
    assert page.focus() == "slot-momentum['layers'][*]['up']-1"
    press("Delete")
    page.answer()
    assert cut(explorer) == {}
    press("Control+z")
    page.answer()
    assert set(cut(explorer)) == all_of("up")
    # a refusal is taken away by Escape; places by their number; help
    explorer.state.set_dim("x", 0, ["nowhere"])
    page.answer()
    press("Escape")
    page.answer()
    assert explorer.state.error is None
    press("3")
    assert page.tab.evaluate("document.activeElement.getAttribute('role')") == "tab"
    press("?")
    assert page.at("help").is_visible() and "find an array, a line" in page.at("help").inner_text()
    press("Escape")
    assert page.at("help").is_hidden()


STOPS = """() => [...document.querySelectorAll("#app :is(button, input, select, a, [tabindex])")]
  .filter((el) => el.tabIndex >= 0 && !el.disabled && el.checkVisibility()).map((el) => el.dataset.testid)"""

UNNAMED = """() => [...document.querySelectorAll("#app :is(button, input, select, [role=treeitem], [role=row])")]
  .filter((el) => el.checkVisibility() && !el.textContent.trim() && !el.getAttribute("aria-label")
    && !el.closest("label") && !el.title).map((el) => el.outerHTML.slice(0, 120))"""


def test_tab_stops_are_few_and_everything_has_a_name(open_page, explorer):
    page = open_page(explorer)
    stops = page.tab.evaluate(STOPS)
    assert len(stops) <= 10, stops
    assert page.tab.evaluate(UNNAMED) == []


# What else a page must stand.


@pytest.mark.parametrize("light", [True, False])
def test_the_left_side_can_be_read(open_page, explorer, light):
    explorer.state.shard_dimension(dimension(explorer, "params['out']:1"), ["model"])
    explorer.state.set_dim("momentum['out']", 1, [])
    explorer.state.resize_axis("model", 4)
    page = open_page(explorer, light=light)
    assert page.tab.evaluate(CONTRAST)["ratio"] >= 4.5
    for width in page.widths(700, 1280):
        assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        for part in (".sv-dimbox", ".sv-searchbar", ".sv-mesh"):
            assert page.tab.locator(part).first.evaluate(UNREADABLE) == [], (part, width)
