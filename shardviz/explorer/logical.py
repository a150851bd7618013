"""Logical dimensions as an explorer shows them: the axes that shard each, the arrays that disagree, and the axes to
add.

They are computed in the background, because that takes a second for a large model, and several where its layers are
not scanned.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardviz.explorer.changes import AxisChoice, undivided
from shardviz.layouts import itemsize
from shardviz.notation import Axis, DeviceMesh, axis_name
from shardviz.records.amounts import plural
from shardviz.records.paths import short_name

if TYPE_CHECKING:
    from shardviz.propagate.dimensions import Dimension, Dimensions, Member
    from shardviz.records import Value
    from shardviz.records.report import PlanRecord

Axes = tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Logical:
    """A program's logical dimensions.

    Attributes:
        found: the dimensions; None before they are computed.
        busy: whether they are being computed, and `share` of that is done.
        trouble: why they could not be computed; empty if they could.
    """

    found: Dimensions | None = None
    busy: bool = False
    share: float = 0.0
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class DimensionSharding:
    """A logical dimension's sharding under a plan.

    Attributes:
        axes: the axes in most of its arguments, major first.
        otherwise: the arguments sharded by other axes.
        share: those arguments' share of the bytes.
        arrays: its arguments by the last part of their paths, each once.
        choices: the axes that may be added.
    """

    dimension: Dimension
    axes: Axes
    otherwise: Mapping[Member, Axes]
    share: float
    arrays: tuple[str, ...]
    choices: tuple[AxisChoice, ...]


def dimension_shardings(
    dimensions: Dimensions, bound: PlanRecord, arguments: Iterable[Value]
) -> tuple[DimensionSharding, ...]:
    """Return the sharding of each logical dimension that arguments have: data dimensions first, stacked layers last."""
    values = {value.name: value for value in arguments}
    every = (_dimension_sharding(each, bound, values) for each in dimensions if each.arguments)
    return tuple(sorted(every, key=lambda each: (each.dimension.stacked, not each.dimension.of)))


def sharded_places(dimension: Dimension, bound: PlanRecord) -> dict[str, int]:
    """Return path → dimension for arrays that have a logical dimension several times: the one that is sharded now. For
    `Plan.with_dimension`."""
    return {
        path: next((d for d in several if bound.in_specs[path].dims[d]), several[0])
        for path, several in dimension.conflicts.items()
        if path in bound.in_specs
    }


def _dimension_sharding(dimension: Dimension, bound: PlanRecord, values: Mapping[str, Value]) -> DimensionSharding:
    places = dimension.chosen(sharded_places(dimension, bound))
    now = {m: bound.in_specs[m.path].dims[m.dimension] for m in places if m.role == "argument"}
    axes = Counter(now.values()).most_common(1)[0][0]
    sizes = {m: values[m.path].shape[m.dimension] for m in now}
    weights = {m: math.prod(values[m.path].shape) * itemsize(values[m.path].dtype) for m in now}
    otherwise = {m: other for m, other in now.items() if other != axes}
    return DimensionSharding(
        dimension=dimension,
        axes=axes,
        otherwise=dict(sorted(otherwise.items(), key=lambda item: -weights[item[0]])),
        share=sum(weights[m] for m in otherwise) / max(1, sum(weights.values())),
        arrays=tuple(dict.fromkeys(short_name(m.path) for m in now)),
        choices=tuple(_choice(axis, axes, sizes, bound.mesh) for axis in bound.mesh.names),
    )


def _choice(axis: str, axes: Axes, sizes: Mapping[Member, int], mesh: DeviceMesh) -> AxisChoice:
    """Return whether an axis may be added; `move` if only some of the arrays divide by it."""
    if any(axis_name(a) == axis for a in axes):
        return AxisChoice(axis, False, "already shards this dimension")
    odd = {m: why for m, size in sizes.items() if (why := undivided(size, (*axes, axis), mesh))}
    if not odd or len(odd) == len(sizes):
        return AxisChoice(axis, not odd, next(iter(odd.values()), ""))
    names = ", ".join(dict.fromkeys(short_name(m.path) for m in odd))
    return AxisChoice(axis, False, f"{plural(len(odd), 'array')} of {len(sizes)} would not divide: {names}", move=True)
