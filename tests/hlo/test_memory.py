"""The memory plan against `Compiled.memory_analysis()`."""

import re
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


def test_the_peak_is_the_one_that_xla_breaks_down(compiled):
    """The live ranges' own sum, which XLA writes a second time with spaces between thousands."""
    assignment, live = (Path(compiled.facts[key]).read_text() for key in ("assignment", "live"))
    (stated,) = re.findall(r"breakdown for peak usage: ([\d\s]+) bytes", live)
    assert memory(assignment, live).peak == int(re.sub(r"\s", "", stated))


def test_donated_arguments_are_counted_once(all_compiled):
    plan = memory(Path(all_compiled["mlp_float32"].facts["assignment"]).read_text())
    assert plan.aliased == 2 * 256 * 512 * 4 // 8


def test_memory_on_the_chip_is_left_out():
    plan = memory(
        "BufferAssignment:\nallocation 0: size 10, color 1, preallocated-temp:\n"
        "allocation 1: size 7, preallocated-temp:\n"
    )
    assert plan.temporaries == 7


def test_what_is_no_buffer_assignment_is_refused():
    with pytest.raises(ParseError, match="no buffer assignment"):
        memory("nothing")
