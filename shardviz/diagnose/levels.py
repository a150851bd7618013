"""Rules about a level of the ladder of truth: what it leaves out, and where two levels differ.

| rule | what it says |
|---|---|
| `levels-differ` | the partitioner moves or computes so much else than Shardy predicted that a decision changes |
| `reshards-left` | Shardy did not say by which collectives some values change their sharding |
| `unforeseen` | operations read other devices' shards, and Shardy leaves to XLA which collectives that takes |
| `unknown-loops` | totals leave out what a loop of unknown length does |
| `unknown-flops` | totals leave out the FLOPs of a kernel or library call that nobody says |
| `lowered-elsewhere` | JAX lowers the program for another platform than the one that was asked for |
| `ragged-as-plain` | a ragged product is lowered, and counted, as one of every group with all rows |
| `callbacks-left-out` | `jax.debug` callbacks are not part of what was explored |
| `options-left-out` | the plan has compiler options, and no compiler that takes them was at work |
| `simulated-devices` | the target cannot be compiled for here, so simulated CPU devices stood in for it |

Levels may differ, and neither is wrong. Shardy decides the shardings, XLA how to get from one to the next, and XLA may
choose another collective, put several into one, or cut a product in another way. `level_differences` lists all of it
for those who ask; `levels_differ` warns where it is more than a tenth of the bytes or FLOPs of the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from shardviz.costs.collective import whole_bytes
from shardviz.diagnose.case import noted, quoted_axes, total_bytes
from shardviz.notation.spec import axis_name, axis_text
from shardviz.program.unforeseen import Unforeseen
from shardviz.records import Collective, Finding, Frame, LevelDifference, Work, total_of
from shardviz.records.amounts import format_bytes, format_flops, plural
from shardviz.records.groups import grouped
from shardviz.records.report import ReportRecord

SHARE = 0.1
"""The part of a step's bytes or FLOPs beyond which a difference changes a decision."""
SMALL = 0.01
"""The part of the bytes of a device's arguments below which what moves changes none."""

_MOST_PLACES = 3


def level_differences(propagated: ReportRecord, partitioned: ReportRecord) -> tuple[LevelDifference, ...]:
    """A row for each output whose spec differs between the levels, for each kind of collective and mesh axes whose runs
    or bytes in a step differ, and for the FLOPs of one device's matrix products where they differ by more than 1 %."""
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
    flops = [report.cost.dot_flops for report in (propagated, partitioned) if report.cost is not None]
    if len(flops) == 2 and abs(flops[1] - flops[0]) > 0.01 * flops[0]:
        differences.append(LevelDifference("matrix products", *map(format_flops, flops)))
    return tuple(differences)


def _kind(c: Collective) -> str:
    axes = "no product of axes" if c.axes is None else " x ".join(sorted(map(axis_text, c.axes))) or "no axis"
    return f"{c.kind} over {axes}"


def levels_differ(propagated: ReportRecord, partitioned: ReportRecord) -> tuple[Finding, ...]:
    """What of the propagated level a decision must not be based on.

    One diagnostic for each mesh axis along which a device moves more or less than predicted, by more than a tenth
    of all bytes that it moves in a step (and more than a hundredth of the bytes of its arguments); one where its
    FLOPs of matrix products, and one where the bytes of its outputs, differ by more than a tenth.
    """
    rule = "a tenth of a device's communication in a step"
    ours, theirs = (_moved(report.collectives) for report in (propagated, partitioned))
    least = max(SHARE * max(sum(ours.values()), sum(theirs.values())), SMALL * total_bytes(partitioned.arguments))
    rows = [
        ("Collectives", axis, ours[axis], theirs[axis], "bytes", rule)
        for axis in propagated.mesh.names
        if abs(theirs[axis] - ours[axis]) > least
    ]
    if propagated.cost is not None and partitioned.cost is not None:
        flops = propagated.cost.dot_flops, partitioned.cost.dot_flops
        if abs(flops[1] - flops[0]) > SHARE * max(flops):
            rows.append(("Matrix products", "", *flops, "flops", "a tenth of them"))
    sizes = total_bytes(propagated.outputs), total_bytes(partitioned.outputs)
    if abs(sizes[1] - sizes[0]) > SHARE * max(sizes):
        rows.append(("Results", "", *sizes, "bytes", "a tenth of them"))
    return tuple(_differ(*each) for each in rows)


def _differ(what: str, axis: str, before: float, after: float, unit: str, rule: str) -> Finding:
    form = format_flops if unit == "flops" else format_bytes
    over = f" over {axis!r}" if axis else ""
    return Finding(
        f"levels-differ:{axis or what.lower()}",
        "note",
        f"{what}{over}: level 'propagated' predicted {form(before)} on each device in a step, and the compiler has "
        f"{form(after)}. The two differ by more than {rule}: decide by this level's numbers, not by the propagated "
        "ones.",
        why="both are right at their level: Shardy decides how values are sharded, XLA how to reshard them, and XLA "
        "may choose another collective or combine several",
        axes=(axis,) if axis else (),
        numbers={unit: after, f"foreseen_{unit}": before},
    )


def _moved(collectives: Iterable[Collective]) -> defaultdict[str, float]:
    """Bytes of whole arrays (V of the cost model, twice for an all-reduce) by mesh axis, on one device in a step."""
    moved: defaultdict[str, float] = defaultdict(float)
    for c in collectives:
        for name in {axis_name(axis) for axis in c.axes or ()}:
            moved[name] += (whole_bytes(c) or c.operand_bytes) * (1 + (c.kind == "all-reduce")) * (c.count or 1)
    return moved


def reshards_left(count: int) -> tuple[Finding, ...]:
    """A note if the propagated level's collectives are not complete."""
    what = "a resharding" if count == 1 else f"{count} reshardings"
    text = (
        f"Shardy did not turn {what} into collectives, so the collectives listed at this level are not all; level "
        "'partitioned' has them"
    )
    return noted("reshards-left", text if count else "")


def unforeseen(operations: Iterable[Unforeseen]) -> tuple[Finding, ...]:
    """A note of the operations whose collectives are not among those of level `propagated`, if there are any."""
    rows = list(dict.fromkeys(operations))
    axes = tuple(dict.fromkeys(axis for row in rows for axis in row.axes))
    places = list(dict.fromkeys(f"{row.op} at {row.source.short}" if row.source else row.op for row in rows))
    if len(places) > _MOST_PLACES:
        places[_MOST_PLACES:] = [plural(len(places) - _MOST_PLACES, "other")]
    read = "reads" if len(places) == 1 else "read"
    text = (
        f"{', '.join(places)} {read} other devices' shards along {quoted_axes(axes)}, and this level has no collective "
        "for it; level 'partitioned' has what XLA makes of it"
    )
    source = next((row.source for row in rows if row.source), None)
    return noted("unforeseen", text if rows else "", axes=axes, source=source)


def unknown_loops(count: int) -> tuple[Finding, ...]:
    """A warning if some loops' trip counts could not be found."""
    loops = "a loop's trip count" if count == 1 else f"the trip counts of {count} loops"
    text = (
        f"{loops} cannot be told from the program (a while_loop that ends on data, or counts otherwise than by equal "
        "steps of whole numbers): what runs inside has no count, and totals take one run of it"
    )
    return noted("unknown-loops", text if count else "", "warning")


def lowered_elsewhere(wanted: str, platform: str) -> tuple[Finding, ...]:
    """A note where JAX lowers a program for another platform only, as one with a Pallas kernel."""
    text = f"JAX does not lower this program for {wanted}: what is shown is its lowering for {platform}"
    return noted("lowered-elsewhere", text if platform != wanted else "")


def ragged_as_plain(lines: Iterable[Frame | None], platform: str) -> tuple[Finding, ...]:
    """A note for each line of `jax.lax.ragged_dot` that is lowered as plain products."""
    text = (
        f"jax.lax.ragged_dot is lowered for {platform} as a product of every group with all rows, and its FLOPs are "
        "counted so: as many times more as there are groups. A TPU's compiler multiplies each row with its own group "
        "alone; name the machine, as in program.propagate(plan, target='tpu v5e:2x4'), and that is counted"
    )
    return tuple(Finding("ragged-as-plain", "note", text, source=line) for line in dict.fromkeys(lines))


def unknown_flops(work: Iterable[Work]) -> tuple[Finding, ...]:
    """A warning for each kernel or library call, and each of its lines, whose FLOPs nobody says."""
    lines = {(name, row.source and row.source.bare): row.source for row in work for name in row.opaque}
    text = (
        "{0}: its FLOPs are not known, so totals and times are at least what they say; tell them by flops={{{0!r}: "
        "FLOPs of one run on one device}}, or a Pallas kernel by its cost_estimate"
    )
    calls = (Finding("unknown-flops", "warning", text.format(name), source=line) for (name, _), line in lines.items())
    return tuple(calls)


def callbacks_left_out(lines: Iterable[Frame | None]) -> tuple[Finding, ...]:
    """One note for each `jax.debug` callback of the program, by its source line."""
    text = "a jax.debug callback is left out here; when it runs, what it reports is gathered and copied to a host"
    return tuple(Finding("callbacks-left-out", "note", text, source=line) for line in lines)


def simulated(missing: str) -> tuple[Finding, ...]:
    """A note if nothing here can compile for the target; `missing` says why and what mends it."""
    text = f"partitioned on simulated devices, not by the target's own compiler: {missing}"
    return noted("simulated-devices", text if missing else "")


def without_options(names: Iterable[str]) -> tuple[Finding, ...]:
    """A note if a plan has compiler options that this report is without."""
    listed = ", ".join(names)
    text = f"the plan's compiler options ({listed}) change nothing here; the target's compiler takes them"
    return noted("options-left-out", text if listed else "")
