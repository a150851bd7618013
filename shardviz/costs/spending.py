"""The spendings of a step's seconds: one list, ranked by what the step would lose, compared with another plan's.

An entry is all collectives of one kind, source line and axes; all matrix products; or the memory traffic, if it takes
longest. Its rank is the time that the step would lose if the entry took no time, found by walking the schedule again.
So communication that compute hides ranks low. Entries of the other plan only keep their rank there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
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
    """The effect of one part of a step: the seconds by which the step would be shorter without it, and its seconds in
    the schedule on its links, the chip's units or main memory."""

    lost: float
    busy: float

    @property
    def hidden(self) -> float:
        """Seconds of `busy` that something else hides."""
        return max(0.0, self.busy - self.lost)


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Something that a step spends time on.

    Attributes:
        what: `collective`, `compute` or `memory`.
        seconds: its seconds in a step on one device, overlap ignored, without collectives of unknown time.
        loss: the seconds that the step would lose without it; None without a schedule, or if negligible.
        loss_before: the same in the other plan.
        before: its seconds in the other plan; None without another plan.
        bytes: the bytes that a device sends in collectives, or reads and writes; 0 for compute.
        source: the line; None if there is none or several.
        kind, axes: of collectives.
        collectives: the collectives, in the program's order.
        lines: for compute, (file, line) → seconds, longest first.
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

    @classmethod
    def of(cls, alike: Sequence[Collective], **fields: Any) -> Spending:
        """Return an entry for collectives of one kind, source line and axes."""
        return cls(what="collective", kind=alike[0].kind, source=alike[0].source, axes=alike[0].axes, **fields)

    def of_line(self, line: tuple[str, int]) -> Spending:
        """Return the compute of one line, ranked by its seconds."""
        seconds, before = (lines.get(line, 0.0) for lines in (self.lines, self.lines_before))
        before = None if self.before is None else before
        return replace(self, seconds=seconds, before=before, loss=None, loss_before=None)

    @property
    def difference(self) -> float:
        """Seconds more than in the other plan; 0 without another plan."""
        return 0.0 if self.before is None else self.seconds - self.before

    @property
    def weight(self) -> float:
        """The seconds that rank it: its loss, or its own seconds if the loss is unknown."""
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
    """Return a step's spendings, largest loss first; `other` is the cost of the same program under another plan, at the
    same level, on the same machine."""
    losses, losses_before = _Losses.of_cost(cost), None if other is None else _Losses.of_cost(other)
    here, there = (alike_collectives(() if of is None else of.partitioned) for of in (cost, other))
    rows = []
    for key in dict.fromkeys((*here, *there)):
        moved, before = here.get(key, ()), there.get(key, ())
        rows.append(
            Spending.of(
                moved or before,
                seconds=sum(c.assumed_seconds for c in moved),
                loss=losses.of(moved),
                before=None if other is None else sum(c.assumed_seconds for c in before),
                loss_before=losses_before and losses_before.of(before),
                bytes=sum(c.assumed_sent_bytes for c in moved),
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
    """The seconds that a step would lose without some of its work; its schedule is walked again for each."""

    @classmethod
    def of_cost(cls, cost: StepCost) -> _Losses:
        """Return the losses of a cost, which caches them for the verdict, the rows and comparisons."""
        return cost.once("losses", lambda: cls(cost))

    def __init__(self, cost: StepCost):
        self.timed, self.least = cost.timed, _LEAST * (cost.seconds or cost.lower)
        self.tasks = [] if cost.timed is None else [*each_task(cost.timed.tasks)]
        self.moving: dict[str, list[tuple[Task, int]]] = defaultdict(list)  # collective → its tasks, as in `tasks`
        for task, times in self.tasks:
            if task.entry is not None and task.entry.collective:
                self.moving[task.entry.collective].append((task, times))
        parts = {c.name: {c.name: 1.0} for c in cost.partitioned} | shares(cost.report)
        self.parts: dict[str, dict[str, float]] = defaultdict(dict)  # the report's → the schedule's, its share of each
        for scheduled, of in parts.items():
            for name, share in of.items():
                self.parts[name][scheduled] = share

    def of(self, collectives: Sequence[Collective]) -> Loss | None:
        """Return the loss without collectives; a collective that the schedule merges with others counts with its
        share."""
        names = frozenset(c.name for c in collectives)
        return self.once(names, lambda: self._of(names))

    def by(self, change: Change) -> Loss | None:
        """Return the loss with other times, such as `no_products`; at most the seconds that these take."""
        return self.once(change, lambda: self._by(change, self.tasks))

    def _of(self, names: frozenset[str]) -> Loss | None:
        shares: dict[str, float] = defaultdict(float)
        for name in sorted(names):
            for scheduled, share in self.parts.get(name, {}).items():
                shares[scheduled] += share
        if not any(shares.values()) and not (names and self.timed is not None and self.timed.schedule == "listed"):
            return None  # a compiler's schedule does not tell which of it they are

        def without(task: Task) -> dict[str, float]:
            share = 0.0 if task.entry is None or not task.seconds else shares.get(task.entry.collective, 0.0)
            return {"seconds": task.seconds * (1.0 - share)} if share else {}

        return self._by(without, chain.from_iterable(self.moving[name] for name in shares if name in self.moving))

    def _by(self, change: Change, tasks: Iterable[tuple[Task, int]]) -> Loss | None:
        """Return the loss with other times of these tasks."""
        if self.timed is None:
            return None
        busy = sum(n * (getattr(task, name) - new) for task, n in tasks for name, new in change(task).items())
        return None if 0 < busy < self.least else Loss(self.timed.lost(change) if busy else 0.0, busy)


def alike_collectives(collectives: Iterable[Collective]) -> dict[Key, tuple[Collective, ...]]:
    """Group collectives by kind, axes and source line."""

    def key(c: Collective) -> Key:
        named = ("irregular",) if c.axes is None else tuple(sorted({axis_name(a) for a in c.axes}))
        return c.kind, named, ("", 0) if c.source is None else (c.source.file, c.source.line)

    return {of: tuple(alike) for of, alike in grouped((key(c), c) for c in collectives).items()}
