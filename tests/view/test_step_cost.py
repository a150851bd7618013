"""What a step costs, as text, as HTML and as figures: complete, within its width, escaped, inside the picture."""

from __future__ import annotations

import dataclasses
import io
import itertools
from typing import Any

import pytest

from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.notation import DeviceMesh
from shardviz.paint.columns import text_width
from shardviz.records.amounts import format_bytes, format_seconds
from tests.page.machines import stepped
from tests.view.sample import HOSTILE, report

MESHES = {
    "tpu v5p:4x4x4": "data=8,model=8",
    "tpu v5e:16x16*2": "data=32,model=16",
    "tpu tpu7x:2x2x1": "data=2,model=4",
    "gpu h100:2x8": "data=2,model=8",
    "gpu gb200:2x72": "data=16,model=9",
}


def cost(target: str = "tpu v5p:4x4x4", **more) -> StepCost:
    return cost_of(dataclasses.replace(report(), **more), target, tokens=1e6, model_flops=5e16)


def test_text_says_what_the_cost_is():
    found = cost()
    text = found.text(100)
    head = text.splitlines()
    assert head[0].startswith("train_step on tpu v5p:4x4x4: 64 chips in a slice of 4x4x4")
    overlap = f"{format_seconds(found.lower)} with full overlap, {format_seconds(found.upper)} with none"
    assert overlap in " ".join(text.split())
    for path in found.placement.paths:
        assert str(path) in " ".join(text.split())
    assert "without 1 collective of unknown time" in " ".join(text.split())  # the exchange whose count is not known
    for what, size in found.needs.parts.items():
        assert what in text and format_bytes(size) in text
    assert text == repr(cost()) and "\t" not in text


@pytest.mark.parametrize("target", MESHES)
@pytest.mark.parametrize("width", [40, 57, 80, 100, 160])
def test_text_keeps_its_width_and_loses_no_formula(target, width):
    found, _ = stepped(target, MESHES[target])
    lines = found.text(width).splitlines()
    assert max(map(text_width, lines)) <= width
    said = "".join("".join(lines).split())
    for c in found.collectives:
        assert c.formula is not None and "".join(c.formula.split()) in said


def test_collectives_alike_stand_in_one_row_and_none_is_lost():
    found = cost()
    rows = found.by("alike")
    assert sorted(c.name for row in rows for c in row.collectives) == sorted(c.name for c in found.collectives)
    assert sum(row.seconds for row in rows) == pytest.approx(found.step.communication)
    times = [row.seconds for row in rows if not row.untimed]
    assert times == sorted(times, reverse=True)


def test_whatever_names_come_from_outside_a_figure_is_drawn():
    mesh = DeviceMesh((f"data{HOSTILE}", f"model{HOSTILE}"), (8, 8))
    cost_of(report(mesh, HOSTILE), "tpu v5p:4x4x4").plot()


# ---------------------------------------------------------------- figures

matplotlib = pytest.importorskip("matplotlib")


def boxes(ax) -> list[tuple[str, Any]]:
    """The texts of a picture with the room that they take, those of ticks apart."""
    figure = ax.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [*ax.texts, ax._left_title]
    if ax.axison:
        texts += [ax.xaxis.label, ax.yaxis.label, *(t for t in ax.get_yticklabels() if "$" not in t.get_text())]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text()]


def outside(ax) -> list[str]:
    """Texts that stand partly outside of the picture."""
    page = ax.figure.bbox
    return [
        text for text, box in boxes(ax) if box.x0 < -1 or box.x1 > page.x1 + 1 or box.y0 < -1 or box.y1 > page.y1 + 1
    ]


def overlapping(ax) -> list[tuple[str, str]]:
    """Pairs of texts that stand partly in one another."""
    pairs = itertools.combinations(boxes(ax), 2)
    return [(a, b) for (a, one), (b, other) in pairs if one.padded(-1).overlaps(other.padded(-1))]


@pytest.mark.parametrize("target", MESHES)
def test_figures_have_all_their_words_inside_and_apart(target):
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    ax = stepped(target, MESHES[target])[0].plot(dark=target.startswith("gpu"))
    FigureCanvasAgg(ax.figure)
    assert not outside(ax)
    if len(ax.texts) < 200:  # else they are a thousand tiles' places
        assert not overlapping(ax)
    assert not pyplot.get_fignums()
    assert len(ax.get_label()) > 40


def test_the_label_has_the_numbers():
    found = cost()
    assert all(str(path) in found.plot().get_label() for path in found.placement.paths)


def test_a_figure_goes_on_the_axes_given():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5))
    ax = figure.add_subplot()
    assert cost().plot(ax) is ax
    figure.savefig(io.BytesIO(), dpi=40)
