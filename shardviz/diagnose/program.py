"""Rules about the program itself, under any plan.

| rule | meaning |
|---|---|
| `large-constant` | the function closes over arrays, which become constants, replicated on every device |
| `own-partitioning` | an operation has its own partition function, which is not called here |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shardviz.diagnose.case import and_others, at_line, by_hand, severity, total_bytes
from shardviz.diagnose.policy import GRAVE, SMALL_BYTES
from shardviz.layouts import itemsize
from shardviz.records import Finding, Frame, Value
from shardviz.records.amounts import format_bytes, plural


def large_constants(
    constants: Iterable[tuple[tuple[int, ...], str, Frame | None]], arguments: Sequence[Value], devices: int
) -> tuple[Finding, ...]:
    """Find closed-over arrays of a MiB or more in total; a warning from a twentieth of all arguments' bytes on."""
    rows = [(math.prod(shape) * itemsize(dtype), shape, dtype, source) for shape, dtype, source in constants]
    total = float(sum(size for size, *_ in rows))
    if total < SMALL_BYTES or devices < 2:
        return ()
    _, shape, dtype, source = max(rows, key=lambda row: row[0])
    others = and_others(rows)
    taken = total_bytes(arguments)
    where = at_line(source)
    return (
        Finding(
            "large-constant",
            severity(total >= GRAVE * taken),
            f"The function closes over an array{where}, {dtype}{list(shape)}{others}: all {format_bytes(total)} are "
            f"replicated on each of the {plural(devices, 'device')}.",
            why="an array that a function closes over becomes a constant of the program, which no spec can shard; it "
            "also slows compilation",
            source=source,
            numbers={"bytes": total, "arrays": float(len(rows)), "saved_bytes": total * (1 - 1 / devices)},
            suggestions=(by_hand(source, "pass it as an argument, with a spec of its own"),),
        ),
    )


def own_partitioning(operations: Iterable[tuple[str, Frame | None]]) -> tuple[Finding, ...]:
    """Return one warning per line whose operation has its own partition function, which is not called here."""
    return tuple(
        Finding(
            "own-partitioning",
            "warning",
            f"{name}{f' at {source.short}' if source else ''} says in Python how it is partitioned; its partition "
            "function is not called here, so it is explored as what it computes, partitioned as any other code: "
            "collectives, FLOPs and shardings there may differ from the run's",
            source=source,
        )
        for name, source in dict.fromkeys(operations)
    )
