"""Rules about a level of the ladder of truth: what it leaves out, and where two levels differ.

| rule | what it says |
|---|---|
| `levels-differ` | what Shardy predicted and what XLA's partitioner made are not the same |
| `reshards-left` | Shardy did not say by which collectives some values change their sharding |
| `unknown-loops` | totals leave out what a loop of unknown length does |
| `callbacks-left-out` | `jax.debug` callbacks are not part of what was explored |
| `simulated-devices` | the target cannot be compiled for here, so simulated CPU devices stood in for it |

A difference of levels is no fault of either. Shardy decides the shardings, XLA how to get from one to the next, and XLA
may choose another collective, put several into one, or cut a product in another way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shardviz.notation import DeviceMesh
from shardviz.notation.spec import axis_text
from shardviz.records import Collective, Diagnostic, Frame, Value
from shardviz.records.amounts import format_flops, plural

Key = tuple[str, str]


def levels_differ(
    propagated: tuple[Iterable[Value], Iterable[Collective]],
    partitioned: tuple[Iterable[Value], Iterable[Collective]],
    mesh: DeviceMesh,
    flops: tuple[float, float] | None = None,
) -> tuple[Diagnostic, ...]:
    """What is different between the two levels.

    Args:
        propagated: outputs and collectives that Shardy predicted.
        partitioned: outputs and collectives of the partitioner.
        mesh: the mesh of both.
        flops: of one device's matrix products, predicted and made.

    Returns:
        One diagnostic an output whose spec differs, one a kind of collective and mesh axes whose number of runs in
        a step differs, and one where FLOPs differ by more than 1 %.
    """
    found = []
    for ours, theirs in zip(propagated[0], partitioned[0], strict=True):
        if ours.spec is None or theirs.spec is None or ours.spec.same_as(theirs.spec, mesh):
            continue
        found.append(
            Diagnostic(
                "levels-differ",
                "info",
                f"{ours.name}: propagated as {ours.spec}, partitioned as {theirs.spec}",
                value=ours.name,
            )
        )
    before, after = _runs(propagated[1]), _runs(partitioned[1])
    for key in sorted(before.keys() | after.keys()):
        if before[key] != after[key]:
            kind, axes = key
            found.append(
                Diagnostic(
                    "levels-differ",
                    "info",
                    f"{kind} over {axes}: Shardy predicted {plural(before[key], 'run')} in a step, "
                    f"the partitioner made {plural(after[key], 'run')}",
                )
            )
    if flops is not None and abs(flops[1] - flops[0]) > 0.01 * flops[0]:
        ours, theirs = map(format_flops, flops)
        found.append(
            Diagnostic(
                "levels-differ",
                "info",
                f"matrix products: Shardy predicted {ours} on each device, the partitioner made {theirs}",
            )
        )
    return tuple(found)


def _runs(collectives: Iterable[Collective]) -> Counter[Key]:
    runs: Counter[Key] = Counter()
    for c in collectives:
        axes = "no product of axes" if c.axes is None else " x ".join(sorted(map(axis_text, c.axes))) or "no axis"
        runs[c.kind, axes] += c.count or 1
    return runs


def reshards_left(count: int) -> tuple[Diagnostic, ...]:
    """A note if the propagated level's collectives are not complete."""
    if not count:
        return ()
    what = "a resharding" if count == 1 else f"{count} reshardings"
    return (
        Diagnostic(
            "reshards-left",
            "info",
            f"Shardy did not turn {what} into collectives, so the collectives listed at this level are not all; "
            "level 'partitioned' has them",
        ),
    )


def unknown_loops(count: int) -> tuple[Diagnostic, ...]:
    """A warning if some loops' trip counts could not be found."""
    if not count:
        return ()
    loops = "a loop's trip count" if count == 1 else f"the trip counts of {count} loops"
    return (
        Diagnostic(
            "unknown-loops",
            "warning",
            f"{loops} cannot be told from the program (a while_loop that ends on data): what runs inside has no count, "
            "and totals take one run of it",
        ),
    )


def callbacks_left_out(lines: Iterable[Frame | None]) -> tuple[Diagnostic, ...]:
    """One note for each `jax.debug` callback of the program, by its source line."""
    return tuple(
        Diagnostic(
            "callbacks-left-out",
            "info",
            "a jax.debug callback is left out here; when it runs, what it reports is gathered and copied to a host",
            source=line,
        )
        for line in lines
    )


def simulated(missing: str) -> tuple[Diagnostic, ...]:
    """A note if nothing here can compile for the target; `missing` says why and what mends it."""
    if not missing:
        return ()
    return (
        Diagnostic(
            "simulated-devices",
            "info",
            f"partitioned on simulated devices, not by the target's own compiler: {missing}",
        ),
    )
