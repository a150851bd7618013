"""Where a step's seconds go: one ranked list of what it would lose, against another plan's where there is one.

An entry is all that moves for one source line, by one kind of collective over the same axes; the matrix products
together; or the memory's traffic where it takes longest of all. What the step would lose most of if it took no time
comes first, by walking its schedule again: what other work hides sinks. What only the other plan has stands where it
stood there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shardviz.caching import Memo
from shardviz.costs.step_cost import StepCost, shares
from shardviz.costs.timeline import Change, each_task, no_products, no_traffic
from shardviz.costs.walk import Task
from shardviz.notation import Axis
from shardviz.notation.spec import axis_name
from shardviz.records import Collective, Frame
from shardviz.records.groups import grouped

_LEAST = 0.002
"""The share of the step below which a difference is none."""

Key = tuple[str, tuple[str, ...], tuple[str, int]]


@dataclass(frozen=True)
class Loss:
    """What a step would lose if something in it took no time: by how many seconds it would be shorter, and how many
    that takes in the schedule on its links, the chip's units or main memory."""

    lost: float
    busy: float

    @property
    def hidden(self) -> float:
        """Seconds of `busy` that something else hides."""
        return max(0.0, self.busy - self.lost)


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What a step spends time on.

    Attributes:
        what: `collective`, `compute` or `memory`.
        seconds: that it takes in a step, on one device, whatever goes on beside it; those of unknown time are left out.
        loss: what the step would lose without it; None where no schedule tells, or it is next to nothing.
        loss_before: the same in the other plan.
        before: the same in the other plan; None where there is no other.
        bytes: what a device sends in collectives, or reads and writes; 0 for compute.
        source: the line; None where it has none, or there are several.
        kind, axes: of collectives.
        collectives: they, in the program's order.
        lines: of compute, (file, line) → seconds, the longest first.
        lines_before: the same in the other plan.
    """

    what: Literal["collective", "compute", "memory"]
    seconds: float
    loss: Loss | None = None
    before: float | None = None
    loss_before: Loss | None = None
    bytes: float = 0.0
    source: Frame | None = None
    kind: str = ""
    axes: tuple[Axis, ...] | None = None
    collectives: tuple[Collective, ...] = ()
    lines: Mapping[tuple[str, int], float] = field(default_factory=dict)
    lines_before: Mapping[tuple[str, int], float] = field(default_factory=dict)

    def of_line(self, line: tuple[str, int]) -> Spending:
        """The compute of one line, by what it takes."""
        seconds, before = (lines.get(line, 0.0) for lines in (self.lines, self.lines_before))
        before = None if self.before is None else before
        return replace(self, seconds=seconds, before=before, loss=None, loss_before=None)

    @property
    def difference(self) -> float:
        """Seconds more than in the other plan; 0 where there is no other."""
        return 0.0 if self.before is None else self.seconds - self.before

    @property
    def weight(self) -> float:
        """Seconds by which it is ranked: what the step would lose, or where nobody knows that, what it takes."""
        return self.seconds if self.loss is None else self.loss.lost

    @property
    def weight_before(self) -> float:
        """The same in the other plan."""
        return (self.before or 0.0) if self.loss_before is None else self.loss_before.lost

    @property
    def gone(self) -> bool:
        """Only the other plan waits for it."""
        return not self.seconds and not self.collectives and bool(self.before)


def spendings(cost: StepCost, other: StepCost | None = None) -> tuple[Spending, ...]:
    """What a step spends time on, what it would lose most of first; `other` is the cost of the same program under
    another plan, at the same level, on the same machine."""
    losses, losses_before = _Losses.of_cost(cost), None if other is None else _Losses.of_cost(other)
    here, there = _alike_collectives(cost), {} if other is None else _alike_collectives(other)
    rows = []
    for key in dict.fromkeys((*here, *there)):
        moved, before = here.get(key, ()), there.get(key, ())
        one = (moved or before)[0]
        rows.append(
            Spending(
                what="collective",
                seconds=sum(c.assumed_seconds for c in moved),
                loss=losses.of(moved),
                before=None if other is None else sum(c.assumed_seconds for c in before),
                loss_before=losses_before and losses_before.of(before),
                bytes=sum(c.assumed_sent_bytes for c in moved),
                source=one.source,
                kind=one.kind,
                axes=one.axes,
                collectives=moved,
            )
        )

    def spent(what: Literal["compute", "memory"], before: float | None, change: Change, **fields: Any) -> None:
        loss, loss_before = losses.by(change), losses_before and losses_before.by(change)
        seconds = getattr(cost.step, what)
        rows.append(Spending(what=what, seconds=seconds, loss=loss, before=before, loss_before=loss_before, **fields))

    if cost.flops is not None:
        before = None if other is None or other.flops is None else other
        lines = {
            "lines": dict(sorted(cost.compute_by_line().items(), key=lambda item: -item[1])),
            "lines_before": {} if before is None else before.compute_by_line(),
        }
        spent("compute", before and before.step.compute, no_products, **lines)
    if cost.bound == "memory":
        spent("memory", None if other is None else other.step.memory, no_traffic, bytes=cost.hbm_bytes)
    least = _LEAST * (cost.seconds or cost.lower)
    return tuple(
        sorted(
            (s for s in rows if s.seconds or s.bytes or -s.difference > least),
            key=lambda s: (-(s.weight_before if s.gone else s.weight), -(s.seconds or s.before or 0.0)),
        )
    )


class _Losses(Memo):
    """What a step would lose without some of what it does: its schedule is walked again, once for each."""

    @classmethod
    def of_cost(cls, cost: StepCost) -> _Losses:
        """Those of a cost, which keeps them: verdict, rows and comparisons ask for the same."""
        return cost.once("losses", lambda: cls(cost))

    def __init__(self, cost: StepCost):
        self.timed, self.least = cost.timed, _LEAST * (cost.seconds or cost.lower)
        self.parts = {c.name: {c.name: 1.0} for c in cost.partitioned}  # of the schedule → the report's, their shares
        self.parts |= shares(cost.report)

    def of(self, collectives: Sequence[Collective]) -> Loss | None:
        """Of collectives: of one that stands for others too in the schedule, their share."""
        names = frozenset(c.name for c in collectives)
        return self.once(names, lambda: self._of(names))

    def by(self, change: Change) -> Loss | None:
        """Of a change of times, `no_products` say; a step cannot lose more than these come to."""
        return self.once(change, lambda: self._by(change))

    def _of(self, names: frozenset[str]) -> Loss | None:
        shares = {name: sum(parts.get(each, 0.0) for each in names) for name, parts in self.parts.items()}
        shares = {name: share for name, share in shares.items() if share}
        if not shares and not (names and self.timed is not None and self.timed.schedule == "listed"):
            return None  # a compiler's schedule does not tell which of it they are

        def without(task: Task) -> dict[str, float]:
            share = 0.0 if task.entry is None or not task.seconds else shares.get(task.entry.collective, 0.0)
            return {"seconds": task.seconds * (1.0 - share)} if share else {}

        return self._by(without)

    def _by(self, change: Change) -> Loss | None:
        if self.timed is None:
            return None

        tasks = each_task(self.timed.tasks)
        busy = sum(n * (getattr(task, name) - new) for task, n in tasks for name, new in change(task).items())
        return None if 0 < busy < self.least else Loss(self.timed.lost(change) if busy else 0.0, busy)


def _alike_collectives(cost: StepCost) -> dict[Key, tuple[Collective, ...]]:
    """The partitioner's collectives that are alike in kind, axes and source line."""

    def key(c: Collective) -> Key:
        named = ("irregular",) if c.axes is None else tuple(sorted({axis_name(a) for a in c.axes}))
        return c.kind, named, ("", 0) if c.source is None else (c.source.file, c.source.line)

    return {of: tuple(alike) for of, alike in grouped((key(c), c) for c in cost.partitioned).items()}
