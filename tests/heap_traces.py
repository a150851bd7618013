"""XLA's own heap simulation of a compiled program, replayed from a dump's `*after_optimizations.hlo.pb`.

The trace says in program order where memory is allocated, freed, and shared with what is there already. The fields are
those of `HloProto`, `BufferAssignmentProto`, `LogicalBufferProto` and `HeapSimulatorTrace` in XLA's `hlo.proto`.
"""

from __future__ import annotations

from pathlib import Path

from shardviz.notation.proto import fields

ALLOC, FREE, SHARE = range(3)
OF_HLO = {"assignment": 3}
OF_ASSIGNMENT = {"buffer": 1, "trace": 4}
OF_BUFFER = {"id": 1, "size": 2, "color": 4}
OF_EVENT = {"kind": 1, "buffer": 2, "canonical": 5}


def ints(message: bytes, numbers: dict[str, int]) -> dict[str, int]:
    found = dict(fields(message))
    return {name: found.get(number, 0) for name, number in numbers.items()}


def heap_peaks(file: Path) -> dict[int, int]:
    """Memory space → the most bytes that its heap ever held: 0 is main memory, 1 a TPU's VMEM."""
    assignment = dict(fields(file.read_bytes()))[OF_HLO["assignment"]]
    buffers, traces = {}, []
    for number, message in fields(assignment):
        if number == OF_ASSIGNMENT["buffer"]:
            buffer = ints(message, OF_BUFFER)
            buffers[buffer["id"]] = buffer
        elif number == OF_ASSIGNMENT["trace"]:
            traces.append([ints(event, OF_EVENT) for number, event in fields(message) if number == 1])
    peaks: dict[int, int] = {}
    for trace in traces:
        color = buffers[trace[0]["buffer"]]["color"]
        peaks[color] = max(peaks.get(color, 0), replay(trace, buffers))
    return peaks


def replay(trace: list[dict[str, int]], buffers: dict[int, dict[str, int]]) -> int:
    used = peak = 0
    canonical, users = {}, {}
    for event in trace:
        buffer = event["buffer"]
        if event["kind"] == FREE:
            owner = canonical[buffer]
            users[owner] -= 1
            used -= 0 if users[owner] else buffers[owner]["size"]
            continue
        owner = canonical[buffer] = canonical[event["canonical"]] if event["kind"] == SHARE else buffer
        users[owner] = users.get(owner, 0) + 1
        used += buffers[owner]["size"] if users[owner] == 1 else 0
        peak = max(peak, used)
    return peak
