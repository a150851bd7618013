"""The memory plan against `Compiled.memory_analysis()`."""

from pathlib import Path

import pytest

from shardviz.errors import ParseError
from shardviz.hlo import memory


def test_same_numbers_as_jax(compiled):
    plan = memory(Path(compiled.facts["assignment"]).read_text())
    theirs = compiled.facts["memory"]
    assert (plan.arguments, plan.outputs) == (theirs["argument"], theirs["output"])
    assert (plan.aliased, plan.temporaries) == (theirs["alias"], theirs["temp"])
    assert plan.peak == plan.arguments + plan.outputs - plan.aliased + plan.temporaries


def test_what_is_alive_fits_in_what_is_set_aside(compiled):
    assignment, live = (Path(compiled.facts[key]).read_text() for key in ("assignment", "live"))
    alive = memory(assignment, live, target="cpu").peak
    assert 0 < alive


def test_donated_arguments_are_counted_once(all_compiled):
    plan = memory(Path(all_compiled["mlp_float32"].facts["assignment"]).read_text())
    assert plan.aliased == 2 * 256 * 512 * 4 // 8


def test_memory_on_the_chip_is_left_out():
    plan = memory("BufferAssignment:\nallocation 0: size 10, color 1, preallocated-temp:\nallocation 1: size 7, preallocated-temp:\n")
    assert plan.temporaries == 7


def test_what_is_no_buffer_assignment_is_refused():
    with pytest.raises(ParseError, match="no buffer assignment"):
        memory("nothing")
