"""The memory plan and the schedule against XLA's own heap simulation. `Compiled.memory_analysis()` is in tests/ask."""

import re
from pathlib import Path

import pytest

from shardviz.compiler import alive_at_peak, memory, schedule_of
from shardviz.compiler.memory import Buffers
from shardviz.errors import ParseError
from tests.heap_traces import heap_peaks


def plan_of(assignment, live_range="", **stated):
    return memory(Buffers(assignment, live_range), **stated)


def test_the_schedule_holds_at_most_what_xlas_heap_simulation_does(compiled):
    """But for a conditional, of which the schedule has the branch that does most."""
    buffers = Buffers(*(Path(compiled.facts[key]).read_text() for key in ("assignment", "live")))
    entries = list(schedule_of(compiled.optimized, buffers=buffers))
    for entry in entries:
        entries += entry.body
    alive = [entry.alive_bytes for entry in entries]
    assert None not in alive
    heap = heap_peaks(Path(compiled.facts["proto"])).get(0, 0)
    assert max(alive, default=0) == heap or (compiled.name == "cond" and max(alive) < heap)


def test_at_the_peak_a_place_is_listed_once_and_what_is_listed_is_the_peak(compiled):
    assignment, live = (Path(compiled.facts[key]).read_text() for key in ("assignment", "live"))
    names = [f"argument {n}" for n in range(len(compiled.optimized.entry.parameters))]
    alive = alive_at_peak(Buffers(assignment, live), compiled.optimized, names, most=10**6)
    tables = sum(
        int(size) for size in re.findall(r"allocation \d+: size (\d+)(?:, page \d+)?, output shape is \|\(", assignment)
    )
    plan = plan_of(assignment, live)
    assert sum(value.bytes for value in alive) == plan.peak - tables
    assert sum(value.bytes for value in alive if value.kind == "argument") == plan.arguments
    assert [value.bytes for value in alive] == sorted((value.bytes for value in alive), reverse=True)
    assert {a.name for a in alive if a.kind == "argument"} <= set(names)


def test_values_that_share_a_place_count_once():
    assignment = (
        "BufferAssignment:\nallocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:\n"
        " value: <1 x @0> (size=8,offset=0): f32[2]{0}\n"
        "allocation 1: size 64, preallocated-temp:\n"
        " value: <2 init @0> (size=16,offset=0): f32[4]{0}\n value: <3 p{1} (phi) @0> (size=16,offset=0): f32[4]{0}\n"
        " value: <4 y @0> (size=16,offset=16): f32[3]{0}\n value: <5 late @0> (size=24,offset=16): f32[6]{0}\n"
        " value: <6 p{} (phi) @0> (size=24,offset=40): (s32[], f32[4]{0})\n"
        "allocation 2: size 64, color 1, preallocated-temp:\n value: <7 z @0> (size=64,offset=0): f32[16]{0}\n"
    )
    live = "  BufferLiveRange:\n" + "".join(
        f"    {name}:{span}\n"
        for name, span in (
            *(("z{}", "0-9"), ("init{}", "1-3"), ("p{1}", "3-7"), ("p{}", "3-7")),
            *(("y{}", "2-4"), ("late{}", "5-6"), ("x{}", "0-9")),
        )
    )
    plan = plan_of(assignment, live)
    assert (plan.peak, plan.on_chip) == (8 + 16 + 24, 64)  # the loop's value and `late`; a tuple's table is no value
    held = Buffers(assignment, live).held()
    assert [tuple(v.name for v in values) for _, values in held] == [("late",), ("p", "init"), ("x",)]


def test_an_outputs_place_is_held_before_it_is_made():
    plan = plan_of(
        "BufferAssignment:\nallocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:\n"
        " value: <0 x @0> (size=8,offset=0): f32[2]{0}\nallocation 1: size 32, maybe-live-out:\n"
        " value: <1 y @0> (size=32,offset=0): f32[8]{0}\nallocation 2: size 4, thread-local:\n"
        "allocation 3: size 2, constant:\nallocation 4: size 64, preallocated-temp:\n"
        " value: <2 t @0> (size=64,offset=0): f32[16]{0}\n",
        "  BufferLiveRange:\n    x{}:0-1\n    t{}:1-2\n    y{}:3-4\n",
    )
    assert (plan.constants, plan.peak) == (2, 8 + 32 + 2 + 64)


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
    plan = plan_of("BufferAssignment:\n", no_room=message)
    assert (plan.needed, plan.hbm, plan.fits, plan.headroom) == (needed, hbm, False, hbm - needed)


def test_memory_on_the_chip_is_left_out():
    plan = plan_of(
        "BufferAssignment:\nallocation 0: size 10, color 1, preallocated-temp:\n"
        "allocation 1: size 7, preallocated-temp:\n"
    )
    assert plan.temporaries == 7


def test_what_is_no_buffer_assignment_is_refused():
    with pytest.raises(ParseError, match="no buffer assignment"):
        plan_of("nothing")
