"""Rules about the program itself, under any plan.

| rule | what it says |
|---|---|
| `own-partitioning` | an operation says in Python how it is partitioned, which is not asked |
| `constraint-without-effect` | the plan constrains a value that no result needs |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardviz.records import Finding, Frame


def own_partitioning(operations: Iterable[tuple[str, Frame | None]]) -> tuple[Finding, ...]:
    """One warning for each line whose operation has a partitioning of its own, which is not asked here."""
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


def without_effect(idle: Sequence[tuple[str, Frame]]) -> tuple[Finding, ...]:
    """A note for each constraint of the plan on a value that no result needs."""
    return tuple(
        Finding(
            f"constraint-without-effect:{name}@{source.short}",
            "note",
            f"the plan constrains {name}, which no result needs: JAX drops it from the program, so the constraint "
            "changes nothing",
            source=source,
        )
        for name, source in idle
    )
