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


def test_the_peak_is_within_what_xla_breaks_down_and_what_the_plan_sets_aside(compiled):
    """The live ranges' own sum counts a loop's parameter and what it was given twice, though they share a place."""
    assignment, live = (Path(compiled.facts[key]).read_text() for key in ("assignment", "live"))
    (stated,) = re.findall(r"breakdown for peak usage: ([\d\s]+) bytes", live)
    plan, stated = memory(assignment, live), int(re.sub(r"\s", "", stated))
    constants = sum(map(int, re.findall(r"allocation \d+: size (\d+),.* constant", assignment)))
    assert plan.arguments < plan.peak <= min(stated, plan.set_aside + constants)
    (listed,) = re.findall(r"\(peak\):\n((?:    .*\n)*)", live)
    places = [
        re.search(rf"<\d+ {re.escape(name)}(?:{{}})?(?: \(phi\))? @\d+> (.*)", assignment) for name in _names(listed)
    ]
    if len(set(map(_place, places))) == len(places):
        assert plan.peak == stated


def _names(listed):
    return re.findall(r"^    ([\w.\-]+){}: ", listed, re.MULTILINE)


def _place(found):
    """The allocation that a value's line stands under, and its offset there."""
    head = found.string[: found.start()].rpartition("allocation ")[2].partition(":")[0]
    return head, re.search(r"offset=(\d+)", found[1])[1]


def test_values_that_share_a_place_count_once():
    assignment = (
        "BufferAssignment:\nallocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:\n"
        " value: <1 x @0> (size=8,offset=0): f32[2]{0}\n"
        "allocation 1: size 32, preallocated-temp:\n"
        " value: <2 init @0> (size=16,offset=0): f32[4]{0}\n value: <3 p{1} (phi) @0> (size=16,offset=0): f32[4]{0}\n"
        " value: <4 y @0> (size=16,offset=16): f32[3]{0}\n"
        "allocation 2: size 64, color 1, preallocated-temp:\n value: <5 z @0> (size=64,offset=0): f32[16]{0}\n"
    )
    live = "".join(
        f"    {name}: {size} bytes (cumulative: {size} bytes)\n"
        for name, size in (("z{}", 64), ("init{}", 16), ("p{1}", 16), ("y{}", 12), ("x{}", 8))
    )
    plan = memory(assignment, f"  Live ranges at 3 (peak):\n{live}  Stack trace breakdown")
    assert (plan.peak, plan.on_chip) == (8 + 16 + 16, 64)  # y with its padding


@pytest.mark.parametrize(
    ("message", "needed", "hbm"),
    [
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (53.74G) exceeds available HBM (15.75G). HLO module: jit_train_step.",
            round(53.74 * 2**30),
            round(15.75 * 2**30),
        ),
        ("Ran out of memory in memory space hbm. Used 768.00M of 15.48G hbm.", 768 * 2**20, round(15.48 * 2**30)),
    ],
)
def test_a_refusal_for_want_of_memory_is_read(message, needed, hbm):
    plan = memory("BufferAssignment:\n", no_room=message)
    assert (plan.needed, plan.hbm, plan.fits, plan.headroom) == (needed, hbm, False, hbm - needed)


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
