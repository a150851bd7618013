"""Where a step's seconds go: one ranked list of what a device waits for, against another plan's where there is one.

An entry is all that moves for one source line, by one kind of collective over the same axes; the matrix products
together; or the memory's traffic where it takes longest of all. What takes longest comes first; what only the other
plan waits for stands where it stood there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from shardviz.costs.step_cost import StepCost
from shardviz.notation import Axis
from shardviz.notation.spec import axis_name
from shardviz.records import Collective, Frame

_LEAST = 0.002
"""The share of the step below which a difference is none."""

Key = tuple[str, tuple[str, ...], tuple[str, int]]


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What a step waits for.

    Attributes:
        what: `collective`, `compute` or `memory`.
        seconds: in a step, on one device; those of unknown time are left out.
        before: the same in the other plan; None where there is no other.
        bytes: operand bytes of collectives, or bytes read and written; 0 for compute.
        source: the line; None where it has none, or there are several.
        kind, axes: of collectives.
        collectives: they, in the program's order.
        lines: of compute, (file, line) → seconds, the longest first.
    """

    what: Literal["collective", "compute", "memory"]
    seconds: float
    before: float | None = None
    bytes: float = 0.0
    source: Frame | None = None
    kind: str = ""
    axes: tuple[Axis, ...] | None = None
    collectives: tuple[Collective, ...] = ()
    lines: Mapping[tuple[str, int], float] = field(default_factory=dict)

    @property
    def difference(self) -> float:
        """Seconds more than in the other plan; 0 where there is no other."""
        return 0.0 if self.before is None else self.seconds - self.before

    @property
    def gone(self) -> bool:
        """Only the other plan waits for it."""
        return not self.seconds and not self.collectives and bool(self.before)


def spendings(cost: StepCost, other: StepCost | None = None) -> tuple[Spending, ...]:
    """What a step waits for, the longest first.

    Args:
        cost: of the step.
        other: of the same program under another plan, at the same level, on the same machine.
    """
    here = dict(_moved(cost.partitioned))
    there = {} if other is None else dict(_moved(other.partitioned))
    found = []
    for key in dict.fromkeys((*here, *there)):
        moved, before = here.get(key, ()), there.get(key, ())
        one = (moved or before)[0]
        found.append(
            Spending(
                what="collective",
                seconds=sum(c.assumed_seconds for c in moved),
                before=None if other is None else sum(c.assumed_seconds for c in before),
                bytes=sum(c.assumed_bytes for c in moved),
                source=one.source,
                kind=one.kind,
                axes=one.axes,
                collectives=tuple(moved),
            )
        )
    if cost.flops is not None:
        lines = dict(sorted(cost.compute_by_line().items(), key=lambda item: -item[1]))
        before = None if other is None or other.flops is None else other.step.compute
        found.append(Spending(what="compute", seconds=cost.step.compute, before=before, lines=lines))
    if cost.bound == "memory":
        before = None if other is None else other.step.memory
        found.append(Spending(what="memory", seconds=cost.step.memory, before=before, bytes=cost.hbm_bytes))
    least = _LEAST * (cost.seconds or cost.lower)
    return tuple(
        sorted(
            (s for s in found if s.seconds or s.bytes or -s.difference > least),
            key=lambda s: -(s.seconds or s.before or 0.0),
        )
    )


def _moved(collectives: Iterable[Collective]) -> Iterable[tuple[Key, tuple[Collective, ...]]]:
    """Collectives that are alike in kind, axes and source line."""
    groups: dict[Key, list[Collective]] = {}
    for c in collectives:
        named = ("irregular",) if c.axes is None else tuple(sorted({axis_name(a) for a in c.axes}))
        at: tuple[str, int] = ("", 0) if c.source is None else (c.source.file, c.source.line)
        groups.setdefault((c.kind, named, at), []).append(c)
    return [(key, tuple(found)) for key, found in groups.items()]
