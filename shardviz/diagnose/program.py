"""Rules about the program itself, under any plan.

| rule | what it says |
|---|---|
| `own-partitioning` | an operation says in Python how it is partitioned, which is not asked |
"""

from __future__ import annotations

from collections.abc import Iterable

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
