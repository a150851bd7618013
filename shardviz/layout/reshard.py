"""The collectives that take an array from one sharding to another, in named mesh axes.

Shardings are written as axes, or parts of axes, on dimensions; a collective moves some of them. Among all sequences of
such moves the one is taken that brings the fewest elements to a device, and of these the shortest:

| kind | what it does to the axes | elements that a device receives, of a shard of s, over n devices |
|---|---|---|
| `slice` | puts axes that hold copies behind a dimension's | 0 |
| `all-gather` | takes a dimension's last axes away | s (n - 1) |
| `all-to-all` | moves a dimension's last axes behind another's | s (n - 1) / n |
| `collective-permute` | exchanges axes, every dimension as many ways as before | what is not there, at most s |
| `reduce-scatter` | puts unreduced axes behind a dimension's | s (n - 1) / n |
| `all-reduce` | adds up over unreduced axes | 2 s (n - 1) / n |

XLA's partitioner may choose another way; this one is a good one, and exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardviz.layout.axes_search import Move, Problem, problem_of, search
from shardviz.layout.layout import Layout, data_keys
from shardviz.layout.reading import same_places
from shardviz.notation.spec import Axis, Spec, axis_text


@dataclass(frozen=True)
class Step:
    """One collective on the way, or a slice, which needs none.

    Attributes:
        kind: as in the table of this module; `collective-broadcast` where one device has all.
        axes: the axes, or parts of axes, that it is over; None where they have no names.
        dimension: the dimension that it gathers, cuts or scatters; None where it is not one.
        into: for an all-to-all the dimension that is cut instead.
        before, after: the spec before and after it; None where no spec says it.
        elements: elements that a device receives, at most; padding counts.
    """

    kind: str
    axes: tuple[Axis, ...] | None
    dimension: int | None
    into: int | None
    before: Spec | None
    after: Spec | None
    elements: int

    def __str__(self) -> str:
        over = f" over {' '.join(map(axis_text, self.axes))}" if self.axes else ""
        done = {
            "slice": "is cut",
            "all-gather": "becomes whole" if self.after and not self._left() else "is gathered",
            "all-to-all": "becomes whole" if self.after and not self._left() else "is gathered",
            "reduce-scatter": "is added up and cut",
        }.get(self.kind, "")
        what = f": dimension {self.dimension} {done}" if self.dimension is not None else ""
        what += f", dimension {self.into} is cut" if self.into is not None else ""
        way = f"; {self.before or 'no spec'} → {self.after or 'no spec'}"
        return f"{self.kind}{over}{what}{way}; {self.elements} elements"

    def _left(self) -> tuple[Axis, ...]:
        return self.after.dims[self.dimension] if self.after and self.dimension is not None else ()


def steps_between(before: Layout, after: Layout) -> list[Step]:
    """The steps from one layout to another, whose rows are in the same order of devices."""
    problem = None
    if same_places(before.mesh, after.mesh) and before.spec is not None and after.spec is not None:
        problem = problem_of(before.shape, before.spec, after.spec, before.mesh)
    return _unnamed(before, after) if problem is None else [_step(problem, move) for move in search(problem)]


def _step(problem: Problem, move: Move) -> Step:
    elements = move.elements
    before, after = problem.spec(move.before), problem.spec(move.after)
    if move.kind == "collective-permute":
        elements = problem.missing(before, after)
    return Step(move.kind, problem.axes(move.atoms), move.dimension, move.into, before, after, elements)


def _unnamed(before: Layout, after: Layout) -> list[Step]:
    """The way where axes do not tell it: through the tiles alone."""
    steps: list[Step] = []
    here, size = before.spec, int(np.prod(before.shape, dtype=np.int64))
    shard = int(np.prod(before.shard_shape, dtype=np.int64))
    if before.partial_sums != after.partial_sums:
        n = before.partial_sums // after.partial_sums
        axes = tuple(a for a in before.unreduced if a not in after.unreduced)
        summed = Spec(here.dims, after.unreduced) if here is not None else None
        steps.append(Step("all-reduce", axes or None, None, None, here, summed, -(-2 * shard * (n - 1) // n)))
        here = summed
    same = (before.starts == after.starts).all(axis=1) & (before.stops == after.stops).all(axis=1)
    if (same & (before.holds == after.holds)).all():
        return steps
    whole = Spec(((),) * len(before.shape), after.unreduced)
    inside = ((before.starts <= after.starts) & (before.stops >= after.stops)).all(axis=1) & before.holds
    if (inside | ~after.holds).all():
        steps.append(Step("slice", None, None, None, here, after.spec, 0))
    elif before.ways == after.ways and before.replicas == after.replicas and _as_many(before, after):
        missing = after.elements * ~(same & before.holds)
        steps.append(Step("collective-permute", None, None, None, here, after.spec, int(missing.max())))
    else:
        kind = "collective-broadcast" if before.maximal else "all-gather"
        received = size if before.maximal else size - shard
        steps.append(Step(kind, None, None, None, here, whole, received))
        if any(n > 1 for n in after.ways) or after.maximal:
            steps.append(Step("slice", None, None, None, whole, after.spec, 0))
    return steps


def _as_many(before: Layout, after: Layout) -> bool:
    """Whether every slice is on as many devices before as after, within each manual array."""
    tiles = max(1, int(np.prod(before.ways, dtype=np.int64)))
    keys = [data_keys(cut)[cut.holds] % tiles + cut.manual_ids[cut.holds] * tiles for cut in (before, after)]
    return np.array_equal(np.sort(keys[0]), np.sort(keys[1]))
