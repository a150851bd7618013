"""A compiler's memory plan, from the text of its buffer assignment.

XLA writes one line an allocation, and what it is for:

>>> plan = memory('''BufferAssignment:
... allocation 0: size 1024, page 0, parameter 0, shape |f32[256]| at ShapeIndex {}, maybe-live-out:
...  value: <3 x @0> (size=1024,offset=0): f32[256]{0}
... allocation 1: size 512, page 0, parameter 1, shape |f32[128]| at ShapeIndex {}:
... allocation 2: size 4096, page 0, preallocated-temp:
... ''')
>>> plan.arguments, plan.outputs, plan.aliased, plan.temporaries, plan.peak
(1536, 1024, 1024, 4096, 5632)

The format is that of XLA's `BufferAllocation::ToString` (the dump `*-buffer-assignment.txt`); the sums are those of
`Compiled.memory_analysis()`.
"""

from __future__ import annotations

import re

from shardviz.errors import ParseError
from shardviz.records import Memory

_ALLOCATION = re.compile(r"^\s*allocation \d+: (?:0x[0-9a-fA-F]+, )?size (\d+)(.*)$", re.MULTILINE)
_SHAPE = re.compile(r"\|[^|]*\|")
_COLOR = re.compile(r", color (\d+)")
_PEAK = re.compile(r"Live ranges at \d+ \(peak\):\s*\n((?:\s+.*: \d+ bytes \(cumulative: \d+ bytes\)\n?)*)")
_CUMULATIVE = re.compile(r"\(cumulative: (\d+) bytes\)")


def memory(buffer_assignment: str, live_range: str = "", *, target: str = "cpu") -> Memory:
    """The memory plan of a compiled program, bytes on one device.

    Args:
        buffer_assignment: the text of the dump `*-buffer-assignment.txt`.
        live_range: the text of `*-live-range.txt`, if there is one.
        target: the compiler whose plan it is.

    Returns:
        The plan. Only main memory (color 0) counts, not on-chip buffers, constants or what a thread keeps to itself.
        `peak` is the largest set of values alive at one time, from the live ranges; without them, all that is set
        aside: arguments, outputs and temporaries, aliased ones once.

    Raises:
        ParseError: if the text has no allocations.
    """
    arguments = outputs = aliased = temporaries = 0
    found = _ALLOCATION.findall(buffer_assignment)
    if not found and "BufferAssignment" not in buffer_assignment:
        raise ParseError(
            f"this is no buffer assignment: no line 'allocation 0: size ...' in {buffer_assignment[:80]!r}..."
        )
    for size_text, rest in found:
        size, uses = int(size_text), _SHAPE.sub("", rest)
        if (color := _COLOR.search(uses)) and color[1] != "0":
            continue
        is_argument, is_output = ", parameter " in uses, ", maybe-live-out" in uses
        arguments += size * is_argument
        outputs += size * is_output
        aliased += size * (is_argument and is_output)
        temporaries += size * (", preallocated-temp" in uses)
    return Memory(
        arguments,
        outputs,
        aliased,
        temporaries,
        _peak(live_range) or arguments + outputs - aliased + temporaries,
        target,
    )


def _peak(live_range: str) -> int:
    found = _PEAK.search(live_range)
    return max(map(int, _CUMULATIVE.findall(found[1])), default=0) if found else 0
