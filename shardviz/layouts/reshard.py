"""The collectives that take an array from one sharding to another, in named mesh axes, as cheap as can be.

Shardings are written as axes, or parts of axes, on dimensions; a collective moves some of them. Among all sequences of
such moves the one is taken that brings the fewest elements to a device:

| kind | what it does to the axes | elements that a device receives, of a shard of s, over n devices |
|---|---|---|
| `slice` | puts axes that hold copies behind a dimension's | 0 |
| `all-gather` | takes a dimension's last axes away | s (n - 1) |
| `all-to-all` | moves dimensions' last axes behind others' | s (n - 1) / n |
| `collective-permute` | exchanges axes, every dimension as many ways as before | s |
| `reduce-scatter` | puts unreduced axes behind a dimension's | s (n - 1) / n |
| `all-reduce` | adds up over unreduced axes | 2 s (n - 1) / n |

Where a dimension does not divide, tiles of one sharding may lie across those of the next. Such a step has its
neighbours' edges sent along (a halo exchange, which XLA makes of collective-permutes): a device receives what it needs
and does not have.

XLA's partitioner may choose another way; this one is a good one, and exact. Axes that neither sharding has are left
alone: to cut along them on the way and gather at the end could bring a device fewer elements still.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardviz.layouts.cheapest import search
from shardviz.layouts.layout import Layout, data_keys, same_places
from shardviz.layouts.problem import Move, Problem, problem_of
from shardviz.notation.spec import Axis, Spec, axis_text


@dataclass(frozen=True, kw_only=True)
class Step:
    """One collective on the way, or a slice, which needs none.

    Attributes:
        kind: as in the table of this module; `collective-broadcast` where one device has all.
        axes: the axes, or parts of axes, that it is over; None where they have no names.
        dimension: the dimension that it gathers, cuts or scatters; None where it is not one.
        into: for an all-to-all the dimension that is cut instead.
        parts: of an all-to-all, all that it moves: (axes, the dimension that they are taken from, the one that they are
            put on). Of several parts `dimension` and `into` are None.
        before, after: the spec before and after it; None where no spec says it.
        elements: elements that a device receives, at most; padding counts, but not where `edges` is set.
        edges: the tiles before and after lie across each other, so that neighbours' edges are sent along.
    """

    kind: str
    axes: tuple[Axis, ...] | None = None
    dimension: int | None = None
    into: int | None = None
    parts: tuple[tuple[tuple[Axis, ...], int, int], ...] = ()
    before: Spec | None
    after: Spec | None
    elements: int = 0
    edges: bool = False

    def __str__(self) -> str:
        over = f" over {' '.join(map(axis_text, self.axes))}" if self.axes else ""
        done = {
            "slice": "is cut",
            "all-gather": "becomes whole" if self.after and not self._left() else "is gathered",
            "collective-permute": "is cut",
            "all-to-all": "becomes whole" if self.after and not self._left() else "is gathered",
            "reduce-scatter": "is added up and cut" if self._sums() else "is reduced and cut",
        }.get(self.kind, "")
        what = f": dimension {self.dimension} {done}" if self.dimension is not None else ""
        what += f", dimension {self.into} is cut" if self.into is not None else ""
        if len(self.parts) > 1:
            moved = (f"{' '.join(map(axis_text, part))} from dimension {d} to {e}" for part, d, e in self.parts)
            what = f": {', '.join(moved)}"
        what += ", with its neighbours' edges" if self.edges else ""
        way = f"; {self.before or 'no spec'} → {self.after or 'no spec'}"
        return f"{self.kind}{over}{what}{way}; {self.elements} elements"

    def _sums(self) -> bool:
        return self.before is None or self.before.unreduced_kind == "sum"

    def _left(self) -> tuple[Axis, ...]:
        return self.after.dims[self.dimension] if self.after and self.dimension is not None else ()


@dataclass(frozen=True)
class Steps:
    """The steps from one layout to another.

    Attributes:
        steps: in order.
        proved: whether no others bring a device fewer elements; False where there were too many to try.
    """

    steps: tuple[Step, ...]
    proved: bool


def steps_between(before: Layout, after: Layout) -> Steps:
    """The steps from one layout to another, whose rows are in the same order of devices."""
    problem = None
    if same_places(before.mesh, after.mesh) and before.spec is not None and after.spec is not None:
        problem = problem_of(before.shape, before.spec, after.spec, before.mesh)
    if problem is None:
        steps = tuple(_unnamed(before, after))
        low, high = np.maximum(before.starts, after.starts), np.minimum(before.stops, after.stops)
        kept = np.prod(np.maximum(high - low, 0), axis=1, dtype=np.int64) * (before.holds & after.holds)
        least = int((after.elements - kept * (before.partial_sums == after.partial_sums)).max(initial=0))
        return Steps(steps, sum(step.elements for step in steps) <= least)
    way = search(problem)
    return Steps(tuple(_step(way.problem, move) for move in way.moves), way.proved)


def _step(problem: Problem, move: Move) -> Step:
    parts = tuple((problem.axes(atoms), d, e) for atoms, d, e in move.parts)
    one = move.parts[0] if len(move.parts) == 1 else None
    return Step(
        kind=move.kind,
        axes=problem.axes(move.atoms),
        dimension=one[1] if one else move.dimension,
        into=one[2] if one else None,
        parts=parts,
        before=problem.spec(move.before),
        after=problem.spec(move.after),
        elements=move.elements,
        edges=move.edges,
    )


def _unnamed(before: Layout, after: Layout) -> list[Step]:
    """The way where axes do not tell it: through the tiles alone."""
    steps: list[Step] = []
    here, size = before.spec, int(np.prod(before.shape, dtype=np.int64))
    shard = int(np.prod(before.shard_shape, dtype=np.int64))
    if before.partial_sums != after.partial_sums:
        n = before.partial_sums // after.partial_sums
        axes = tuple(a for a in before.unreduced if a not in after.unreduced)
        summed = Spec(here.dims, after.unreduced, (), after.unreduced_kind) if here is not None else None
        elements = -(-2 * shard * (n - 1) // n)
        steps.append(Step(kind="all-reduce", axes=axes or None, before=here, after=summed, elements=elements))
        here = summed
    same = (before.starts == after.starts).all(axis=1) & (before.stops == after.stops).all(axis=1)
    if (same & (before.holds == after.holds)).all():
        return steps
    whole = Spec(((),) * len(before.shape), after.unreduced, (), after.unreduced_kind)
    inside = ((before.starts <= after.starts) & (before.stops >= after.stops)).all(axis=1) & before.holds
    if (inside | ~after.holds).all():
        steps.append(Step(kind="slice", before=here, after=after.spec))
    elif before.ways == after.ways and before.replicas == after.replicas and _as_many(before, after):
        missing = after.elements * ~(same & before.holds)
        steps.append(Step(kind="collective-permute", before=here, after=after.spec, elements=int(missing.max())))
    else:
        kind = "collective-broadcast" if before.maximal else "all-gather"
        received = size if before.maximal else size - shard
        steps.append(Step(kind=kind, before=here, after=whole, elements=received))
        if any(n > 1 for n in after.ways) or after.maximal:
            steps.append(Step(kind="slice", before=whole, after=after.spec))
    return steps


def _as_many(before: Layout, after: Layout) -> bool:
    """Whether every slice is on as many devices before as after, within each manual array."""
    tiles = max(1, int(np.prod(before.ways, dtype=np.int64)))
    keys = [data_keys(cut)[cut.holds] % tiles + cut.manual_ids[cut.holds] * tiles for cut in (before, after)]
    return np.array_equal(np.sort(keys[0]), np.sort(keys[1]))
