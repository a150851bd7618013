"""Animations show what the messages do: what devices hold in the end, how many bytes travelled, what is left out."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import shardviz as sv
from shardviz.errors import MeshError, ShardvizError, SpecError
from shardviz.layouts import layout
from shardviz.layouts.moves import kept_elements
from shardviz.notation import Spec
from shardviz.records.amounts import format_bytes
from shardviz.view.motion import MOST_DEVICES, MOST_STEPS

MESH = {"x": 2, "y": 4}
CASES = [
    (("x", None), (None, "y")),
    (("y", None), (None, "y")),
    (("x", "y"), ("y", "x")),
    ((("x", "y"), None), ()),
    (Spec(((), ()), ("y",)), ("y",)),
    (Spec(((), ()), ("x",)), (None, "y")),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_in_the_end_each_tile_is_filled_where_the_layout_after_says(before, after):
    film = sv.animate((16, 8), before, after, MESH).film
    wanted = layout((16, 8), after, MESH)
    for device, (x, y, wide, high) in film.tiles.items():
        inside = lambda r: x - 1 <= r[0] <= x + wide and y - 1 <= r[1] <= y + high  # noqa: B023
        left = [r for p in film.patches if p.until is None for r in p.rects if inside(r)]
        area = sum(w * h for _, _, w, h in left) / (wide * high)
        row = wanted.row(device)
        assert area == pytest.approx(wanted.elements[row] / 128)
        ((left_x, top, *_),) = left
        assert (left_x - x) / wide == pytest.approx(wanted.starts[row, 1] / 8)
        assert (top - y) / high == pytest.approx(wanted.starts[row, 0] / 16)


@pytest.mark.parametrize(("before", "after"), CASES)
def test_the_counter_ends_at_the_bytes_that_moves_says(before, after):
    moves = sv.moves((16, 8), before, after, MESH)
    shown = sv.animate(moves, dtype="bfloat16")
    assert shown.film.counts[0].startswith("0 B sent so far, 0 B")
    total, here = 0, moves.before
    for step in moves.steps:
        assert step.layout is not None
        moved = (step.layout.elements - kept_elements(here, step.layout)).sum()
        total, here = (
            total + (step.elements * 8 if here.unreduced and not step.layout.unreduced else moved),
            step.layout,
        )
    assert shown.film.counts[-1].startswith(f"{format_bytes(total * 2)} sent so far, ")
    assert len(shown.film.flights) == sum(len(step.senders) for step in shown.motion.steps)
    assert len(shown.film.captions) == len(shown.film.frames) == len(shown.motion.steps) + 1


def test_the_last_frame_in_characters_is_the_layout():
    frame = sv.animate((16, 8), ("x", None), (None, "y"), MESH).film.frames[-1]
    rows = [line[4 + 8 * n : 8 + 8 * n] for n in range(4) for line in frame.splitlines()[:2]]
    assert [row.replace("▒", "█") for row in rows] == [f"{'·' * n}█{'·' * (3 - n)}" for n in range(4) for _ in range(2)]


class Text(HTMLParser):
    """What is left of HTML where only texts stay: a sanitizer drops tags, and styles with what they contain."""

    def __init__(self, html: str):
        super().__init__()
        self.text, self.style, self.tags = "", False, set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.style, _ = tag == "style", self.tags.add(tag)

    def handle_endtag(self, tag):
        self.style = False

    def handle_data(self, data):
        self.text += "" if self.style else data


def test_without_styles_and_inputs_the_filmstrip_stays_and_nothing_else():
    shown = sv.animate((16, 8), ("x", None), (None, "y"), MESH, dtype="bfloat16")
    left = Text(shown.html())
    for number, (caption, frame) in enumerate(zip(shown.film.captions, shown.film.frames, strict=True)):
        assert f"{number}. {caption}" in left.text and frame in left.text
    assert "play" not in left.text and "pause" not in left.text and "script" not in left.tags
    assert shown.film.filmstrip in shown.text(200)


def test_what_is_left_out_is_said_and_the_size_is_bounded():
    large = sv.animate((4096, 8), (("x", "y"), None), (), {"x": 8, "y": 32}, dtype="bfloat16")
    text = large.text()
    assert f"{MOST_DEVICES} of 256 devices are drawn" in text and f"Steps {MOST_STEPS} to 255 are one picture" in text
    assert len(large.film.tiles) == MOST_DEVICES and len(large.html()) < 250_000
    total = 255 * 4096 * 8 * 2
    assert large.film.counts[-1].startswith(f"{format_bytes(total)} sent so far")
    assert large.film.frames[-1].count("·") == 0


def test_a_device_sees_only_others_of_its_own_group_first():
    shown = sv.animate((64, 8), ("y", None), (), {"y": 4, "x": 16}, dtype="bfloat16")
    drawn = list(shown.film.tiles)
    assert [drawn[n] for n in range(4)] == [0, 1, 2, 3] and {d % 16 for d in drawn} == {0, 1, 2, 3}


def test_names_are_escaped():
    html = sv.animate((16, 8), ("<q>", None), (), {"<q>": 4}).html()
    assert "&lt;q&gt;" in html and "<q>" not in html


def test_a_collective_of_a_report_on_the_targets_links():
    program = sv.trace(lambda x, w: x @ w, np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32))
    report = program.propagate(
        sv.Plan(sv.mesh(x=2, y=4), (sv.notation.Spec(((), ("y",))), sv.notation.Spec((("y",), ()))))
    )
    (one,) = report.collectives
    shown = sv.animate(one, mesh=report.mesh, target="tpu v5p:2x2x2")
    assert one.kind == "all-reduce" and len(shown.motion.steps) == 6 and "on tpu v5p:2x2x2" in shown.text()
    assert shown.film.counts[-1].startswith(f"{format_bytes(8 * one.sent_bytes)} sent so far")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sv.animate((8, 8), ("x",), mesh=MESH), ShardvizError, "`after` is missing"),
        (lambda: sv.animate((8, 8), (), Spec(((), ()), ("x",)), MESH), SpecError, "not back"),
        (lambda: sv.animate((8, 8), ("x",), ()), ShardvizError, "give a mesh"),
        (lambda: sv.animate((8, 8), ("q",), (), MESH), (SpecError, MeshError), "q"),
    ],
)
def test_errors_say_what_to_give(call, error, words):
    with pytest.raises(error, match=words):
        call()
