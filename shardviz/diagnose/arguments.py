"""Rules about what a program is given: arrays written into it.

| rule | what it says |
|---|---|
| `large-constant` | the function closes over arrays, which are written into the program, whole on every device |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shardviz.diagnose.case import and_others, at_line, by_hand, severity, total_bytes
from shardviz.layouts import itemsize
from shardviz.records import Finding, Frame, Value
from shardviz.records.amounts import format_bytes, plural

_LEAST = 2**20


def large_constants(
    held: Iterable[tuple[tuple[int, ...], str, Frame | None]], arguments: Sequence[Value], devices: int
) -> tuple[Finding, ...]:
    """What a function closes over (`held`), a MiB of it or more: a warning where it is a twentieth of all arguments'
    bytes."""
    rows = [(math.prod(shape) * itemsize(dtype), shape, dtype, source) for shape, dtype, source in held]
    total = float(sum(size for size, *_ in rows))
    if total < _LEAST or devices < 2:
        return ()
    _, shape, dtype, source = max(rows, key=lambda row: row[0])
    others = and_others(rows)
    taken = total_bytes(arguments)
    where = at_line(source)
    return (
        Finding(
            "large-constant",
            severity(total >= 0.05 * taken),
            f"The function closes over an array{where}, {dtype}{list(shape)}{others}: all {format_bytes(total)} are "
            f"replicated on each of the {plural(devices, 'device')}.",
            why="an array that a function closes over becomes a constant of the program, which no spec can shard; it "
            "also slows compilation",
            source=source,
            numbers={"bytes": total, "arrays": float(len(rows)), "saved_bytes": total * (1 - 1 / devices)},
            mends=(by_hand(source, "pass it as an argument, with a spec of its own"),),
        ),
    )
