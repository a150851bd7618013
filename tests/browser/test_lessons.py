"""A newcomer's hour: lessons 0 to 4 in order, each exercise and each puzzle answered wrong and then right, in
less than Binder's 2 GB. `SHARDVIZ_LAB_PYTHON` names another environment's Python, such as one of `binder/lock.txt`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.browser.harness import ROOT, Lab, LabPage
from tests.browser.views import edits, settled, state, unfold

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

pytestmark = pytest.mark.long  # five lessons from end to end

BINDER = 2e9
"""Bytes."""

WEIGHTS = [f"params['layers']['w{i}']-{2 if i == 2 else 1}" for i in (1, 2, 3)]


def memory(**sizes: str) -> Callable:
    def fill(form, page):
        for name, size in sizes.items():
            form.get_by_label(name, exact=True).fill(size)

    return fill


def collectives(*rows: tuple[str, str, str]) -> Callable:
    def fill(form, page):
        for place in range(3):
            kind, over, size = rows[place] if place < len(rows) else ("none", "", "")
            form.get_by_label(f"collective {place + 1}").select_option(kind)
            if over:
                form.get_by_label("over").nth(place).select_option(over)
            form.get_by_label("bytes").nth(place).fill(size)

    return fill


def cheaper(name: str) -> Callable:
    return lambda form, page: form.get_by_label(name, exact=True).check()


def seconds(text: str) -> Callable:
    return lambda form, page: form.get_by_label("seconds").fill(text)


def outputs(*axes: str) -> Callable:
    def fill(form, page):
        for place, axis in enumerate(axes):
            form.get_by_role("combobox").nth(place).select_option(axis)

    return fill


def slots(level: str, *changes: tuple[str, str]) -> Callable:
    """In a puzzle's explorer: takes axes out of slots (`remove-Y`) and puts others in (`axis-Y`), with the mouse."""

    def fill(form, page):
        opening = form.get_by_role("button", name="Open the explorer")
        if opening.is_visible():
            opening.click()
            expect(state(form)).to_have_attribute("data-level", level, timeout=60_000)
            unfold(form)
        for slot, change in changes:
            choose(form, page, f"slot-{slot}", change, level)

    return fill


def choose(view, page, slot: str, change: str, level: str) -> None:
    before = edits(view)
    view.get_by_test_id(slot).click()
    page.raw.get_by_test_id(f"menu-{change}").click()
    page.raw.keyboard.press("Escape")
    settled(view, before, level)


# Lesson → its forms: its name there, a wrong answer, words of the hint, the right answer.
LESSONS = {
    "00_start_here": [
        ("one", memory(x="524 kB"), "data, which has 4 devices", memory(x="1.05 MB")),
        (
            "two",
            collectives(("all-gather", "model", "")),
            "part of the sum",
            collectives(("all-reduce", "model", "131 kB")),
        ),
        ("three", cheaper("FSDP"), "saves memory", cheaper("whole")),
    ],
    "01_first_light": [
        (
            "held",
            memory(params="17.6 GB", momentum="17.6 GB", tokens="131 kB", kept="48 GB"),
            "How many axes",
            memory(params="2.2 GB", momentum="2.2 GB", tokens="131 kB", kept="48 GB"),
        ),
        ("fix", slots("propagated"), "at try 1", slots("propagated", *((w, "axis-data") for w in WEIGHTS))),
    ],
    "02_where_the_bytes_lie": [
        (
            "weigh",
            memory(a="262 kB", b="262 kB", c="262 kB", d="524 kB"),
            "hold replicas",
            memory(a="262 kB", b="1.05 MB", c="262 kB", d="524 kB"),
        ),
        ("spec", outputs("data", "model"), "stays with its dimension", outputs("model", "data")),
        (
            "free",
            slots("propagated", ("x-0", "axis-data"), ("x-1", "axis-model")),
            "the transpose exchanges the dimensions",
            slots(
                "propagated",
                *(("x-0", "remove-data"), ("x-1", "remove-model"), ("x-0", "axis-model"), ("x-1", "axis-data")),
            ),
        ),
    ],
    "03_a_matrix_product_four_ways": [
        ("two", collectives(("all-reduce", "Y", "")), "lacks a part of x", collectives(("all-gather", "Y", "4.19 MB"))),
        ("three", seconds("1.12 ms"), "there and back", seconds("2.24 ms")),
        ("cheaper", cheaper("equal"), "who multiplies", cheaper("way 4")),
        (
            "block",
            slots("propagated", ("w1-0", "remove-Y"), ("w1-1", "axis-Y")),
            "way 1 twice",
            slots("propagated", ("w2-1", "remove-Y"), ("w2-0", "axis-Y")),
        ),
    ],
    "04_one_model": [
        (
            "first",
            memory(w="134 MB", m="4.29 GB", v="4.29 GB", x="33.6 MB", kept="1.95 GB"),
            "Only the batch is sharded",
            memory(w="2.15 GB", m="4.29 GB", v="4.29 GB", x="33.6 MB", kept="1.95 GB"),
        ),
        (
            "second",
            collectives(("reduce-scatter", "data", "")),
            "keeps a part",
            collectives(("all-reduce", "data", "2.15 GB"), ("all-gather", "data", "268 MB")),
        ),
        ("third", cheaper("tensor parallel"), "adds activations", cheaper("ZeRO")),
        (
            "par",
            slots("propagated"),
            "at try 1",
            slots("propagated", ("w['up']-1", "axis-data"), ("w['down']-1", "axis-data")),
        ),
    ],
}


def place_of(name: str, asked: str) -> int:
    """The cell that makes an exercise or a puzzle, by its variable."""
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    return next(i for i, cell in enumerate(cells) if f"{asked} = sv.lessons." in "".join(cell["source"]))


def fix(view, page) -> None:
    """Lesson 1: a plan is broken, costs four times as much, and what was tried and helps is taken."""

    def step() -> float:
        return float(re.findall(r"([\d.]+) s\b", view.locator(".sv-card[aria-current=true]").inner_text())[0])

    expect(state(view)).to_have_attribute("data-level", "partitioned", timeout=60_000)
    good = step()
    choose(view, page, "dim-w1:2", "remove-model", "partitioned")
    bad = step()
    assert 3.5 < bad / good < 4.5
    view.get_by_test_id("fix").click()
    choice = view.get_by_test_id("panel-most").locator("[data-choice^='fix ']").first
    expect(choice).to_be_visible(timeout=180_000)
    before = edits(view)
    choice.click()
    settled(view, before, "partitioned")
    assert step() < bad / 2


@pytest.mark.timeout(900)
def test_the_first_hour(browser, lab: Lab):
    most = 0
    for name, forms in LESSONS.items():
        page = LabPage(browser, lab, width=1280, height=900)
        try:
            page.open_notebook(f"{name}.ipynb")
            page.run_all(300)
            for asked, wrong, words, right in forms:
                form = page.cell_output(place_of(name, asked))
                check = form.get_by_title(re.compile("^ask the compiler"))
                wrong(form, page)
                check.click()
                expect(form).to_contain_text(words, timeout=120_000)
                expect(form).not_to_contain_text("asking the compiler", timeout=120_000)
                expect(form.get_by_text("★★★")).to_have_count(0)
                right(form, page)
                check.click()
                expect(form.get_by_text("★★★").or_(form.get_by_text("100%")).first).to_be_visible(timeout=120_000)
                most = max(most, lab.memory())
                page.screenshot(f"{name}_{asked}", of=form)
            if name == "01_first_light":
                fix(page.cell_output(6), page)
                most = max(most, lab.memory())
            page.assert_no_errors()
        finally:
            page.close()
    assert 1e8 < most < BINDER, f"{most / 1e9:.2f} GB"


# Lesson → the level of its explorer, what is done there, and what the lesson's text says of it afterwards.
DRAGS = {
    "05_why": ("propagated", (("params['w1']-1", "remove-model"),), ("the same communication", "21.5 MB of arguments")),
    "06_ten_accidents": ("partitioned", (("w2-1", "drag w2-0"),), ("1.34 ms", "0 findings")),
    "07_collectives_by_hand": ("partitioned", (("params['wq']-0", "remove-data"),), ("▼ 16.8 MB sent", "621 MB")),
    "12_incidents": (
        "partitioned",
        (("w['k']-2", "remove-model"), ("w['v']-2", "remove-model")),
        ("5.94 ms", "0 findings"),
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DRAGS)
def test_what_a_lesson_has_its_reader_drag_comes_out_as_it_says(browser, lab: Lab, name):
    level, changes, words = DRAGS[name]
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    place = next(i for i, cell in enumerate(cells) if "".join(cell["source"]).startswith("sv.explore("))
    page = LabPage(browser, lab, width=1280, height=800)
    try:
        page.open_notebook(f"{name}.ipynb")
        page.run_all(300)
        view = page.cell_output(place)
        expect(state(view)).to_have_attribute("data-level", level, timeout=120_000)
        unfold(view)
        for slot, change in changes:
            if change.startswith("drag "):
                before = edits(view)
                chip = view.get_by_test_id(f"slot-{slot}").locator(".sv-chip").first
                chip.scroll_into_view_if_needed()
                chip.drag_to(view.get_by_test_id(f"slot-{change.removeprefix('drag ')}"))
                settled(view, before, level)
            else:
                choose(view, page, f"slot-{slot}", change, level)
        card = view.locator(".sv-card[aria-current=true]")
        for each in words:
            expect(card).to_contain_text(each, timeout=60_000)
        page.screenshot(f"{name}_dragged", of=view)
        page.assert_no_errors()
    finally:
        page.close()
