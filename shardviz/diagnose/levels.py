"""Rule `levels-differ`: what Shardy foretold and what XLA's partitioner made are not the same.

That is no fault of either. Shardy decides the shardings, XLA how to get from one to the next, and XLA may choose
another collective, put several into one, or cut a product in another way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shardviz.cost.amounts import flops_text
from shardviz.notation import DeviceMesh
from shardviz.notation.spec import axis_text
from shardviz.records import Collective, Diagnostic, Value

Key = tuple[str, str]


def levels_differ(
    propagated: tuple[Iterable[Value], Iterable[Collective]],
    partitioned: tuple[Iterable[Value], Iterable[Collective]],
    mesh: DeviceMesh,
    flops: tuple[float, float] | None = None,
) -> tuple[Diagnostic, ...]:
    """What is different between the two levels.

    Args:
        propagated: outputs and collectives that Shardy foretold.
        partitioned: outputs and collectives of the partitioner.
        mesh: the mesh of both.
        flops: of one device's matrix products, foretold and made.

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
                    f"{kind} over {axes}: Shardy foretold {_times(before[key])} in a step, "
                    f"the partitioner made {_times(after[key])}",
                )
            )
    if flops is not None and abs(flops[1] - flops[0]) > 0.01 * flops[0]:
        ours, theirs = map(flops_text, flops)
        found.append(
            Diagnostic(
                "levels-differ",
                "info",
                f"matrix products: Shardy foretold {ours} on each device, the partitioner made {theirs}",
            )
        )
    return tuple(found)


def _runs(collectives: Iterable[Collective]) -> Counter[Key]:
    runs: Counter[Key] = Counter()
    for c in collectives:
        axes = "no product of axes" if c.axes is None else " x ".join(sorted(map(axis_text, c.axes))) or "no axis"
        runs[c.kind, axes] += c.count or 1
    return runs


def _times(count: int) -> str:
    return f"{count:,} run" + ("" if count == 1 else "s")
