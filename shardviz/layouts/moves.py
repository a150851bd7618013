"""The move of an array from one sharding to another: the elements that each device keeps, receives and drops.

>>> from shardviz.layouts import layout
>>> mesh = {"data": 4}
>>> moves = shares(layout((8, 8), ("data", None), mesh), layout((8, 8), (None, "data"), mesh))
>>> moves.keep.tolist(), moves.receive.tolist(), moves.drop.tolist()
([4, 4, 4, 4], [12, 12, 12, 12], [12, 12, 12, 12])

Shardy's collectives for the move, `Moves.steps`, come from `shardviz.stablehlo.resharding`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardviz.display import Displayed
from shardviz.errors import MeshError, SpecError
from shardviz.layouts.layout import Layout, itemsize
from shardviz.notation.spec import Axis, Spec, axis_text


@dataclass(frozen=True, kw_only=True)
class MoveStep:
    """One collective of a resharding, or a slice, which needs no communication.

    Attributes:
        kind: `slice`, `all-gather`, `all-to-all`, `collective-permute`, `reduce-scatter`, `all-reduce`, or
            `collective-broadcast` if one device has the full array.
        axes: the axes, or parts of axes, that the collective runs over; None if no axes express its groups.
        gathered, sharded: the dimensions that have fewer tiles after the step, and more tiles.
        before, after: the specs before and after the step; None if no spec expresses the sharding.
        elements: the most elements that a device receives, without padding.
        edges: whether the tiles before and after overlap only partly, so that neighbours exchange edges.
        layout: the layout after the step; None if it is not known.
    """

    kind: str
    axes: tuple[Axis, ...] | None = None
    gathered: tuple[int, ...] = ()
    sharded: tuple[int, ...] = ()
    before: Spec | None
    after: Spec | None
    elements: int = 0
    edges: bool = False
    layout: Layout | None = field(default=None, compare=False, repr=False)

    @property
    def done(self) -> str:
        """The change of the dimensions: `dimension 0 is no longer sharded, dimension 1 is sharded`."""
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
    """The elements that devices exchange between two shardings of the same array.

    Counts are elements without padding: integers, one per device, in the mesh order of `before`. A device that holds a
    partial sum does not have the summed element: it keeps none of these.

    Attributes:
        before, after: the two layouts, both in the mesh order of `before`.
        keep: elements that the device has and still needs.
        receive: elements that the device needs and does not have; afterwards it holds `keep + receive`.
        drop: elements that the device has and no longer needs; before, it holds `keep + drop`.
        steps: the collectives of the move, in order; empty if nothing changes.
    """

    before: Layout
    after: Layout
    keep: np.ndarray
    receive: np.ndarray
    drop: np.ndarray
    steps: tuple[MoveStep, ...] = ()

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices, in the order of the counts."""
        return self.before.device_ids

    @property
    def free(self) -> bool:
        """Whether no device receives anything from another."""
        return not self.receive.any()

    @property
    def elements(self) -> int:
        """The most elements that a device receives in all steps; the move itself needs only `receive` of them."""
        return sum(step.elements for step in self.steps)

    def bytes(self, dtype: Any) -> dict[str, np.ndarray]:
        """Return `keep`, `receive` and `drop` in bytes per device."""
        size = itemsize(dtype)
        return {"keep": self.keep * size, "receive": self.receive * size, "drop": self.drop * size}


def shares(before: Layout, after: Layout) -> Moves:
    """Return the elements that each device keeps, receives and drops, without steps. Raises SpecError for different
    shapes, for a move from a sum to partial sums, and for different manual axes; MeshError for different devices."""
    if before.shape != after.shape:
        raise SpecError(f"layouts of shapes {before.shape} and {after.shape}: expected two layouts of the same array")
    after = in_order_of(before, after)
    _check(before, after)
    keep = kept_elements(before, after)
    if before.partial_sums != after.partial_sums:
        keep = np.zeros_like(keep)
    return Moves(before, after, keep, after.elements - keep, before.elements - keep)


def kept_elements(before: Layout, after: Layout) -> np.ndarray:
    """Return the elements that each device has under both layouts, given in one order of devices: integers."""
    low, high = np.maximum(before.starts, after.starts), np.minimum(before.stops, after.stops)
    return np.prod(np.maximum(high - low, 0), axis=1, dtype=np.int64) * (before.holds & after.holds)


def in_order_of(before: Layout, after: Layout) -> Layout:
    """Return `after` with its rows in the mesh order of `before`; raise MeshError for different devices."""
    if np.array_equal(before.device_ids, after.device_ids):
        return after
    old, new = np.argsort(before.device_ids), np.argsort(after.device_ids)
    if not np.array_equal(before.device_ids[old], after.device_ids[new]):
        raise MeshError(
            f"the meshes {before.mesh} and {after.mesh} have different devices; expected two shardings over the same "
            "devices (sv.reshard takes arrays to other devices)"
        )
    rows = np.empty_like(new)
    rows[old] = new
    ids = ("replica_ids", "device_ids", "partial_ids", "manual_ids", "process_ids")
    names = ("tiles", "starts", "stops", "padding", "holds", *ids)
    return replace(after, **{name: getattr(after, name)[rows] for name in names})


def _check(before: Layout, after: Layout) -> None:
    if before.manual_count != after.manual_count or not np.array_equal(before.manual_ids, after.manual_ids):
        edge = "the boundary of a shard_map is not a resharding, so compare shardings on the same side of it"
        raise _refused(before, after, f"they are manual over different axes; {edge}")
    if before.partial_sums > 1 and after.partial_sums > 1 and before.unreduced_kind != after.unreduced_kind:
        kinds = f"partial results of a {before.unreduced_kind} cannot become those of a {after.unreduced_kind}"
        raise _refused(before, after, f"{kinds}; leave out the unreduced axes of the second")
    pairs = before.partial_ids * after.partial_sums + after.partial_ids
    if after.partial_sums > 1 and len(np.unique(pairs)) > len(np.unique(before.partial_ids)):
        back = "an array can go from partial sums to their sum, not back"
        raise _refused(before, after, f"{back}; leave out the unreduced axes of the second")


def _refused(before: Layout, after: Layout, why: str) -> SpecError:
    ends = (str(c.spec) if c.spec is not None else f"a sharding with no spec ({c.why})" for c in (before, after))
    return SpecError(f"from {' to '.join(ends)}: {why}")
