"""Rules about a level of the ladder of truth: its omissions, and its differences from the next level.

| rule | meaning |
|---|---|
| `reshards-left` | Shardy left some reshardings without collectives |
| `unforeseen` | operations read other devices' shards, and Shardy leaves the collectives to XLA |
| `unknown-loops` | totals count one run of a loop whose trip count is unknown |
| `unknown-flops` | totals omit a kernel or library call whose FLOPs are unknown |
| `flops-at-most` | a kernel skips blocks depending on its data, and is counted as if it skipped none |
| `lowered-elsewhere` | JAX lowers the program for another platform than the requested one |
| `ragged-as-plain` | a ragged product is lowered, and counted, as a product of every group with all rows |
| `callbacks-left-out` | `jax.debug` callbacks are omitted |
| `options-left-out` | the plan's compiler options had no effect, because no compiler that takes them ran |
| `simulated-devices` | the target's compiler is missing, so simulated CPU devices replaced it |

Levels may differ, and neither is wrong. Shardy decides the shardings, XLA how to reshard between them. XLA may choose
another collective, combine several, or shard a product in another way.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardviz.diagnose.case import noted, quoted_axes
from shardviz.foresee.unforeseen import Unforeseen
from shardviz.notation.spec import axis_text
from shardviz.records import Collective, Finding, Frame, LevelDifference, Work, total_of
from shardviz.records.amounts import format_flops, plural
from shardviz.records.groups import grouped
from shardviz.records.kernels import Estimate
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
    flops = [report.cost.dot_flops for report in (propagated, partitioned) if report.cost is not None]
    words = [format_flops(count) for count in flops]
    if len(set(words)) == 2:
        differences.append(LevelDifference("matrix products", *words))
    return tuple(differences)


def _kind(c: Collective) -> str:
    axes = "no product of axes" if c.axes is None else " x ".join(sorted(map(axis_text, c.axes))) or "no axis"
    return f"{c.kind} over {axes}"


def reshards_left(count: int) -> tuple[Finding, ...]:
    """Return a note if the propagated level's collectives are incomplete."""
    what = "a resharding" if count == 1 else f"{count} reshardings"
    text = (
        f"Shardy did not turn {what} into collectives, so the collectives listed at this level are not all; level "
        "'partitioned' has them"
    )
    return noted("reshards-left", text if count else "")


def unforeseen(operations: Iterable[Unforeseen]) -> tuple[Finding, ...]:
    """Return a note about operations whose collectives are missing at level `propagated`, if there are any."""
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
    """Return a warning if the trip counts of some loops are unknown."""
    loops = "a loop's trip count" if count == 1 else f"the trip counts of {count} loops"
    text = (
        f"{loops} cannot be told from the program (a while_loop that ends on data, or counts otherwise than by equal "
        "steps of whole numbers): what runs inside has no count, and totals take one run of it"
    )
    return noted("unknown-loops", text if count else "", "warning")


def lowered_elsewhere(wanted: str, platform: str) -> tuple[Finding, ...]:
    """Return a note if JAX lowers the program for another platform, as with a Pallas kernel."""
    text = f"JAX does not lower this program for {wanted}: what is shown is its lowering for {platform}"
    return noted("lowered-elsewhere", text if platform != wanted else "")


def ragged_as_plain(lines: Iterable[Frame | None], platform: str) -> tuple[Finding, ...]:
    """Return a note per line of `jax.lax.ragged_dot` that is lowered as plain products."""
    text = (
        f"jax.lax.ragged_dot is lowered for {platform} as a product of every group with all rows, and its FLOPs are "
        "counted so: as many times more as there are groups. A TPU's compiler multiplies each row with its own group "
        "alone; name the machine, as in program.propagate(plan, target='tpu v5e:2x4'), and that is counted"
    )
    return tuple(Finding("ragged-as-plain", "note", text, source=line) for line in dict.fromkeys(lines))


def unknown_flops(work: Iterable[Work]) -> tuple[Finding, ...]:
    """Return a warning per line of a kernel or library call whose FLOPs are unknown."""
    lines = {(name, row.source and row.source.bare): row.source for row in work for name in row.opaque}
    text = (
        "{0}: its FLOPs are not known, so totals and times are at least what they say; tell them by flops={{{0!r}: "
        "FLOPs of one run on one device}}, or a Pallas kernel by its cost_estimate"
    )
    calls = (Finding("unknown-flops", "warning", text.format(name), source=line) for (name, _), line in lines.items())
    return tuple(calls)


def flops_at_most(estimates: Iterable[Estimate]) -> tuple[Finding, ...]:
    """Return a note per line of a kernel whose FLOPs are an upper bound."""
    most = {e.source and e.source.bare: (e.source, e.flops) for e in estimates if e.at_most}
    text = (
        "a Pallas kernel skips blocks as its data say: its FLOPs, {} in each run on one device, are counted as if it "
        "skipped none. Tell fewer by its cost_estimate, or by flops= and its name"
    )
    return tuple(
        Finding("flops-at-most", "note", text.format(format_flops(flops)), source=line) for line, flops in most.values()
    )


def callbacks_left_out(lines: Iterable[Frame | None]) -> tuple[Finding, ...]:
    """Return a note per `jax.debug` callback of the program, at its source line."""
    text = "a jax.debug callback is left out here; when it runs, what it reports is gathered and copied to a host"
    return tuple(Finding("callbacks-left-out", "note", text, source=line) for line in lines)


def simulated(missing: str) -> tuple[Finding, ...]:
    """Return a note if no compiler for the target is installed; `missing` says why and how to fix that."""
    text = f"partitioned on simulated devices, not by the target's own compiler: {missing}"
    return noted("simulated-devices", text if missing else "")


def without_options(names: Iterable[str]) -> tuple[Finding, ...]:
    """Return a note if the report ignores the plan's compiler options."""
    listed = ", ".join(names)
    text = f"the plan's compiler options ({listed}) change nothing here; the target's compiler takes them"
    return noted("options-left-out", text if listed else "")
