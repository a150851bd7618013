"""One plan against another on the machine's picture: by link and by chip, with a sign."""

from __future__ import annotations

import ast
import dataclasses

import pytest

from shardviz.view.difference import busy_along, machine_difference
from shardviz.view.machine import floor
from shardviz.view.picture import Lines, Marks, Picture
from tests.page.machines import MESHES, stepped

SIGNS = {"more": "up", "less": "down"}


def links(drawn: Picture) -> list[Lines]:
    return [shape for shape in drawn.shapes if isinstance(shape, Lines) and shape.name != "chips"]


@pytest.mark.parametrize("target", [t for t in MESHES if t != "tpu v5p:16x16x16"])
def test_a_difference_has_a_sign_and_the_other_way_round_the_other(target):
    """Without a step's moves along the first axis its links are busy for less time, those of the others as before."""
    here, made = stepped(target)
    first, *others = here.mesh.names
    there, _ = stepped(target, collectives=tuple(c for c in made.collectives if c.axes != (first,)))
    for one, other, role in ((here, there, "more"), (there, here, "less")):
        drawn = machine_difference(one, other)
        assert drawn is not None
        assert [(key.stroke, key.mark) for key in drawn.keys] == [(role, SIGNS[role])]
        (key,) = drawn.keys
        assert first in key.text and not any(name in key.text.split() for name in others) and role in key.text
        lines = links(drawn)
        assert {shape.stroke for shape in lines} <= {role}
        marks = [shape for shape in drawn.shapes if isinstance(shape, Marks)]
        assert {(shape.fill, shape.mark) for shape in marks} <= {(role, SIGNS[role])}
        stand = floor(one.placement)
        if stand.links:
            steps = len(stand.links.get(first, ())) + len(stand.wraps.get(first, ()))
            assert sum(len(shape.lines) for shape in lines) == steps and (marks or not steps)


def test_nothing_is_drawn_of_equals_or_of_other_machines():
    here, _ = stepped("tpu v5p:4x4x4")
    assert machine_difference(here, here) is None
    other, _ = stepped("gpu h100:2x8")
    assert machine_difference(here, other) is None


def test_links_of_another_mesh_are_told_by_both_axes():
    """On the same torus a link may belong to one axis here and to another there: each is busy with its own."""
    here, _ = stepped("tpu v5p:4x4x4", "data=8,model=8")
    there, _ = stepped("tpu v5p:4x4x4", "x=4,y=16")
    drawn = machine_difference(here, there)
    assert drawn is not None
    seconds = busy_along(here), busy_along(there)
    assert any("there along" in key.text for key in drawn.keys)
    for shape in links(drawn):
        over = ast.literal_eval(shape.name.removeprefix("links "))  # the pair of names
        more = (seconds[0].get(over[0]) or 0.0) - (seconds[1].get(over[1]) or 0.0)
        assert (shape.stroke == "more") == (more > 0)


def test_chips_that_hold_more_are_outlined():
    here, made = stepped("tpu v5p:4x4x4")
    there, _ = stepped(
        "tpu v5p:4x4x4",
        arguments=tuple(
            dataclasses.replace(value, bytes_per_device=(value.bytes_per_device or 0) + 1e9) for value in made.arguments
        ),
    )
    drawn = machine_difference(there, here)
    assert drawn is not None
    (key,) = drawn.keys
    assert key.text.startswith("each chip: ") and key.text.endswith("more of memory") and key.mark == "up"
    (chips,) = [shape for shape in drawn.shapes if isinstance(shape, Lines)]
    assert len(chips.lines) == 64 and chips.stroke == "more"
