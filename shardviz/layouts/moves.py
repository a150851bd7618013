"""From one sharding to another: what each device keeps, receives and drops.

>>> from shardviz.layouts import layout
>>> mesh = {"data": 4}
>>> way = shares(layout((8, 8), ("data", None), mesh), layout((8, 8), (None, "data"), mesh))
>>> way.keep.tolist(), way.receive.tolist(), way.drop.tolist()
([4, 4, 4, 4], [12, 12, 12, 12], [12, 12, 12, 12])

The collectives that do it, `Moves.steps`, are Shardy's: see `shardviz.program.resharding`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardviz.display import Displayed
from shardviz.errors import MeshError, SpecError
from shardviz.layouts.layout import Layout, itemsize
from shardviz.notation.spec import Axis, Spec, axis_text


@dataclass(frozen=True, kw_only=True)
class MoveStep:
    """One collective on the way, or a slice, which needs none.

    Attributes:
        kind: `slice`, `all-gather`, `all-to-all`, `collective-permute`, `reduce-scatter`, `all-reduce`, or
            `collective-broadcast` where one device has all.
        axes: the axes, or parts of axes, that it is over; None where they have no names.
        gathered, sharded: the dimensions that are in fewer tiles afterwards, and in more.
        before, after: the spec before and after it; None where no spec says it.
        elements: elements that a device receives, at most; padding is not counted.
        edges: the tiles before and after lie across each other, so that neighbours' edges are sent along.
    """

    kind: str
    axes: tuple[Axis, ...] | None = None
    gathered: tuple[int, ...] = ()
    sharded: tuple[int, ...] = ()
    before: Spec | None
    after: Spec | None
    elements: int = 0
    edges: bool = False

    @property
    def done(self) -> str:
        """What it does to the dimensions: `dimension 0 is no longer sharded, dimension 1 is sharded`."""
        gathered = [
            f"dimension {d} {'is gathered' if self.after is None or self.after.dims[d] else 'is no longer sharded'}"
            for d in self.gathered
        ]
        summed = "added up" if self.before is None or self.before.unreduced_kind == "sum" else "reduced"
        more = f"is {summed} and sharded" if self.kind == "reduce-scatter" else "is sharded"
        sharded = [f"dimension {d} {more}" for d in self.sharded]
        return ", ".join([*gathered, *sharded, *(["with its neighbours' edges"] if self.edges else [])])

    def __str__(self) -> str:
        over = f" over {' '.join(map(axis_text, self.axes))}" if self.axes else ""
        done = f": {self.done}" if self.done else ""
        specs = f"{self.before or 'no spec'} → {self.after or 'no spec'}"
        return f"{self.kind}{over}{done}; {specs}; {self.elements} elements"


@dataclass(frozen=True, eq=False, repr=False)
class Moves(Displayed):
    """What moves between two shardings of the same array.

    Counts are of elements, integers, one a device, in the mesh order of `before`; padding is not counted. An element of
    a partial sum is not yet the element, so none of it is kept where the sum is asked for.

    Attributes:
        before, after: the two layouts, both in the mesh order of `before`.
        keep: elements that the device has and still needs.
        receive: elements that it needs and does not have: `keep + receive` is what it holds afterwards.
        drop: elements that it has and no longer needs: `keep + drop` is what it holds before.
        steps: the collectives that do it, in order; empty where nothing changes.
    """

    before: Layout
    after: Layout
    keep: np.ndarray
    receive: np.ndarray
    drop: np.ndarray
    steps: tuple[MoveStep, ...] = ()

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices that the counts are of."""
        return self.before.device_ids

    @property
    def free(self) -> bool:
        """Whether no device needs anything from another."""
        return not self.receive.any()

    @property
    def elements(self) -> int:
        """Elements that a device receives by all steps, at most; it needs `receive` of them."""
        return sum(step.elements for step in self.steps)

    def bytes(self, dtype: Any) -> dict[str, np.ndarray]:
        """`keep`, `receive` and `drop` in bytes."""
        size = itemsize(dtype)
        return {"keep": self.keep * size, "receive": self.receive * size, "drop": self.drop * size}


def shares(before: Layout, after: Layout) -> Moves:
    """What each device keeps, receives and drops; without steps. A `SpecError` for different shapes, and from a sum to
    partial sums or between different manual axes; a `MeshError` for different devices."""
    if before.shape != after.shape:
        raise SpecError(f"layouts of shapes {before.shape} and {after.shape}: expected two of the same array")
    after = in_order_of(before, after)
    _check(before, after)
    keep = kept_elements(before, after)
    if before.partial_sums != after.partial_sums:
        keep = np.zeros_like(keep)
    return Moves(before, after, keep, after.elements - keep, before.elements - keep)


def kept_elements(before: Layout, after: Layout) -> np.ndarray:
    """Elements that a device has under both of two layouts with rows in one order: integers, one a device."""
    low, high = np.maximum(before.starts, after.starts), np.minimum(before.stops, after.stops)
    return np.prod(np.maximum(high - low, 0), axis=1, dtype=np.int64) * (before.holds & after.holds)


def in_order_of(before: Layout, after: Layout) -> Layout:
    """`after` with its rows in the mesh order of `before`; a `MeshError` if the two are on different devices."""
    if np.array_equal(before.device_ids, after.device_ids):
        return after
    theirs = np.argsort(after.device_ids)
    ours = np.argsort(before.device_ids)
    if len(ours) != len(theirs) or not np.array_equal(before.device_ids[ours], after.device_ids[theirs]):
        raise MeshError(
            f"the meshes {before.mesh} and {after.mesh} have different devices; expected two shardings over the same"
        )
    rows = np.empty_like(theirs)
    rows[ours] = theirs
    names = ("tiles", "starts", "stops", "replica_ids", "device_ids", "padding", "partial_ids", "manual_ids", "holds")
    return replace(after, **{name: getattr(after, name)[rows] for name in names})


def _check(before: Layout, after: Layout) -> None:
    if before.manual_ways != after.manual_ways or not np.array_equal(before.manual_ids, after.manual_ids):
        edge = "a shard_map's edge is no resharding, so compare shardings on the same side of it"
        raise _refused(before, after, f"they are manual over different axes; {edge}")
    if before.partial_sums > 1 and after.partial_sums > 1 and before.unreduced_kind != after.unreduced_kind:
        kinds = f"partial results of a {before.unreduced_kind} become none of a {after.unreduced_kind}"
        raise _refused(before, after, f"{kinds}; leave out the unreduced axes of the second")
    pairs = before.partial_ids * after.partial_sums + after.partial_ids
    if after.partial_sums > 1 and len(np.unique(pairs)) > len(np.unique(before.partial_ids)):
        back = "an array can go from partial sums to their sum, not back"
        raise _refused(before, after, f"{back}; leave out the unreduced axes of the second")


def _refused(before: Layout, after: Layout, why: str) -> SpecError:
    ends = (str(c.spec) if c.spec is not None else f"a sharding with no spec ({c.why})" for c in (before, after))
    return SpecError(f"from {' to '.join(ends)}: {why}")
