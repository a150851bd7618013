"""What each source line costs more than under another card's plan."""

from __future__ import annotations

import pytest

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.view.difference import line_difference
from shardviz.view.document import plain
from shardviz.view.source import source_pane


def state_on(target):
    example = sv.gallery.mlp(mesh="data=4,model=2")
    return ExplorerState(example.program, example.plan, level="propagated", target=target, debounce=60)


def rows(document):
    return [row for section in document.blocks for row in section.blocks[0].rows]


def test_one_plan_differs_from_none():
    state = state_on("tpu v5p:2x2x2")
    assert line_difference(state.deck) is None
    assert len(rows(source_pane(state.report, state.cost))[0].cells) == 4


@pytest.mark.parametrize("target", ["tpu v5p:2x2x2", "cpu"])
def test_the_lines_add_up_to_what_the_cards_differ_by(target):
    state = state_on(target)
    before = state.report, state.cost
    assert state.set_spec("x", "P()"), state.error
    found = line_difference(state.deck)
    assert found is not None and found.level == "propagated" and found.timed == (target != "cpu")

    def moved(report, cost):
        placed = [c for c in (report.collectives if cost is None else cost.partitioned) if c.source is not None]
        if cost is None:
            return sum(c.assumed_sent_bytes for c in placed)
        return sum(c.assumed_seconds for c in placed) + sum(cost.compute_by_line().values())

    now, then = moved(state.report, state.cost), moved(*before)
    assert now != then
    assert sum(found.more.values()) == pytest.approx(now - then, abs=0.02 * max(now, then))
    told = {plain(row.cells[4]) for row in rows(source_pane(state.report, state.cost, found))} - {""}
    assert told and all(text[0] in "▲▼" for text in told)


def test_what_is_new_and_what_is_gone_say_so():
    state = state_on("cpu")
    kinds = lambda report: {(c.source.short, c.kind, c.axes) for c in report.collectives if c.source}  # noqa: E731
    before = kinds(state.report)
    state.set_spec("x", "P()")
    found, after = line_difference(state.deck), kinds(state.report)
    flat = lambda lines: {(f"{at[0].rsplit('/')[-1]}:{at[1]}", *each) for at, some in lines.items() for each in some}  # noqa: E731
    assert found is not None and flat(found.new) == after - before and flat(found.gone) == before - after
    assert after != before
