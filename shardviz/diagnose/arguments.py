"""Rules about what a program is given: arguments that no result needs, and arrays written into it.

| rule | what it says |
|---|---|
| `unused-arguments` | no result needs them: JAX leaves them out of the program |
| `large-constant` | the function closes over arrays, which are written into the program, whole on every device |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shardviz.diagnose.case import and_others, at_line, by_hand, nbytes, noted, severity, total_bytes
from shardviz.layouts import itemsize
from shardviz.records import Finding, Frame, Value
from shardviz.records.amounts import format_bytes, plural

_WORTH_SAYING = 0.01, 2**20
_MOST_NAMES = 5


def unused_arguments(arguments: Sequence[Value]) -> tuple[Finding, ...]:
    """A note where arguments that no result needs take a MiB of a device, and a hundredth of all arguments' bytes."""
    unused = sorted((v for v in arguments if v.unused and not v.on_host), key=lambda v: -nbytes(v))
    share, least = _WORTH_SAYING
    if not unused or total_bytes(unused) < max(least, share * total_bytes(arguments)):
        return ()
    names = ", ".join(v.name for v in unused[:_MOST_NAMES]) + (", ..." if len(unused) > _MOST_NAMES else "")
    message = (
        f"no result needs {names}: JAX drops unused arguments from the program (keep_unused=False), so the program "
        f"does not count their {format_bytes(total_bytes(unused))} a device; arrays that you keep on the devices still "
        "take that memory. Do not pass them, or drop the references to them"
    )
    return noted("unused-arguments", message, value=unused[0].name)


def large_constants(
    held: Iterable[tuple[tuple[int, ...], str, Frame | None]], arguments: Sequence[Value], devices: int
) -> tuple[Finding, ...]:
    """What a function closes over (`held`), a MiB of it or more: a warning where it is a twentieth of all arguments'
    bytes."""
    rows = [(math.prod(shape) * itemsize(dtype), shape, dtype, source) for shape, dtype, source in held]
    total = float(sum(size for size, *_ in rows))
    if total < _WORTH_SAYING[1] or devices < 2:
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
