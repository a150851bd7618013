"""Rules about a report's level and about the program under any plan: what is omitted, counted otherwise, or differs.

Levels may differ, and neither is wrong. Shardy decides the shardings, XLA how to reshard between them. XLA may choose
another collective, combine several, or shard a product in another way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shardviz.diagnose.case import and_others, at_line, by_hand, quoted_axes, severity, total_bytes
from shardviz.diagnose.policy import GRAVE, SMALL_BYTES
from shardviz.foresee.unforeseen import Unforeseen
from shardviz.layouts import itemsize
from shardviz.notation import Axis
from shardviz.notation.spec import axis_text
from shardviz.records import Collective, Finding, Frame, LevelDifference, Value, total_of
from shardviz.records.amounts import first_names, format_bytes, format_flops, plural
from shardviz.records.groups import grouped
from shardviz.records.report import ReportRecord

_MOST_PLACES = 3


def level_differences(propagated: ReportRecord, partitioned: ReportRecord) -> tuple[LevelDifference, ...]:
    """Return the differences between two levels, as displayed.

    There is a row per output with another spec, and per kind and axes of collectives with other runs or bytes. The last
    row has the FLOPs of matrix products per device.
    """
    differences = []
    for ours, theirs in zip(propagated.outputs, partitioned.outputs, strict=True):
        if ours.spec is not None and theirs.spec is not None and not ours.spec.same_as(theirs.spec, propagated.mesh):
            differences.append(LevelDifference(ours.name, str(ours.spec), str(theirs.spec)))
    before, after = (grouped((_kind(c), c) for c in report.collectives) for report in (propagated, partitioned))
    for key in sorted(before.keys() | after.keys()):
        both = [total_of(kinds.get(key, ())) for kinds in (before, after)]
        texts = [f"{plural(total.runs, 'run')}, {total.bytes_text}" for total in both]
        if texts[0] != texts[1]:
            differences.append(LevelDifference(key, *texts))
    words = [format_flops(report.cost.dot_flops) for report in (propagated, partitioned) if report.cost is not None]
    if len(set(words)) == 2:
        differences.append(LevelDifference("matrix products", *words))
    return tuple(differences)


def _kind(c: Collective) -> str:
    axes = "no product of axes" if c.axes is None else " x ".join(sorted(map(axis_text, c.axes))) or "no axis"
    return f"{c.kind} over {axes}"


_NOTES = {
    "reshards-left": "Shardy did not turn {} into collectives, so the collectives listed at this level are not all; "
    "level 'partitioned' has them",
    "unforeseen": "{} other devices' shards along {}, and this level has no collective for it; level 'partitioned' "
    "has XLA's collectives",
    "unknown-loops": "the trip count of a loop is unknown ({}: a while_loop that ends on data, or does not count in "
    "equal steps of whole numbers): the operations inside have no count, and totals include one run",
    "lowered-elsewhere": "JAX does not lower this program for {}: what is shown is its lowering for {}",
    "simulated-devices": "partitioned on simulated devices, not by the target's own compiler: {}",
    "options-left-out": "the plan's compiler options ({}) change nothing here; the target's compiler takes them",
    "callbacks-left-out": "a jax.debug callback is left out here; when it runs, what it reports is gathered and copied "
    "to a host",
    "ragged-as-plain": "jax.lax.ragged_dot is lowered for {} as a product of every group with all rows, and its FLOPs "
    "are counted so: as many times more as there are groups. A TPU's compiler multiplies each row with its own group "
    "alone; name the machine, as in program.propagate(plan, target='tpu v5e:2x4'), and that is counted",
    "unknown-flops": "the FLOPs of {0} are not known, so totals and times are lower bounds; pass "
    "flops={{{0!r}: FLOPs of one run on one device}}, or give a Pallas kernel a cost_estimate",
    "flops-at-most": "a Pallas kernel skips blocks that depend on its data: its FLOPs, {} in each run on one device, "
    "are counted as if it skipped none. For fewer, give it a cost_estimate, or pass flops= with its name",
    "own-partitioning": "{}{} has a partition function in Python, which is not called here: the operation is "
    "partitioned like any other code, so its collectives, FLOPs and shardings may differ from the run's",
}
"""Rule → what a report says that leaves something out, or counts it otherwise."""
_WARNINGS = frozenset(("unknown-loops", "unknown-flops", "own-partitioning"))


def note(rule: str, *words: str, source: Frame | None = None, axes: tuple[Axis, ...] = ()) -> tuple[Finding, ...]:
    """Return a rule's note, or warning, with these words; none if the first word is empty."""
    text, severity = _NOTES[rule].format(*words), "warning" if rule in _WARNINGS else "note"
    return (Finding(rule, severity, text, source=source, axes=axes),) if all(words[:1]) else ()


def notes(rule: str, lines: Iterable[tuple[Frame | None, *tuple[str, ...]]]) -> tuple[Finding, ...]:
    """Return a rule's note for each distinct line and words."""
    rows = {(line and line.bare, *words): line for line, *words in lines}
    return tuple(finding for (_, *words), line in rows.items() for finding in note(rule, *words, source=line))


def unforeseen(operations: Iterable[Unforeseen]) -> tuple[Finding, ...]:
    """Return a note about operations that read other devices' shards, whose collectives Shardy leaves to XLA."""
    rows = list(dict.fromkeys(operations))
    axes = tuple(dict.fromkeys(axis for row in rows for axis in row.axes))
    places = list(dict.fromkeys(f"{row.op} at {row.source.short}" if row.source else row.op for row in rows))
    several = f"{first_names(places, _MOST_PLACES)} read{'s' * (len(places) == 1)}" if places else ""
    source = next((row.source for row in rows if row.source), None)
    return note("unforeseen", several, quoted_axes(axes), axes=axes, source=source)


def large_constants(
    constants: Iterable[tuple[tuple[int, ...], str, Frame | None]], arguments: Sequence[Value], devices: int
) -> tuple[Finding, ...]:
    """Find closed-over arrays of a MiB or more in total; a warning from a twentieth of all arguments' bytes on."""
    rows = [(math.prod(shape) * itemsize(dtype), shape, dtype, source) for shape, dtype, source in constants]
    total = float(sum(size for size, *_ in rows))
    if total < SMALL_BYTES or devices < 2:
        return ()
    _, shape, dtype, source = max(rows, key=lambda row: row[0])
    constant = Finding(
        "large-constant",
        severity(total >= GRAVE * total_bytes(arguments)),
        f"The function closes over an array{at_line(source)}, {dtype}{list(shape)}{and_others(rows)}: all "
        f"{format_bytes(total)} are replicated on each of the {plural(devices, 'device')}.",
        why="an array that a function closes over becomes a constant of the program, which no spec can shard; it "
        "also slows compilation",
        source=source,
        numbers={"bytes": total, "arrays": float(len(rows)), "saved_bytes": total * (1 - 1 / devices)},
        suggestions=(by_hand(source, "pass it as an argument, with a spec of its own"),),
    )
    return (constant,)
