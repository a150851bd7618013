"""Logical dimensions as an explorer shows them: what shards each, which arrays disagree, and what may shard it.

They are found in the background, as it takes a second for a large model; until then nothing is known, which is said.
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
from shardviz.records.paths import label, segments

if TYPE_CHECKING:
    from shardviz.program.dimensions import Dimension, Dimensions, Member
    from shardviz.records import Value
    from shardviz.records.report import PlanRecord

Axes = tuple[Axis, ...]

MOST_AT_ONCE = 600
"""Arguments of a program whose logical dimensions are looked for unasked: more take minutes."""


@dataclass(frozen=True, eq=False)
class Logical:
    """What is known of a program's logical dimensions; whether they are being looked for, and why they were not
    found."""

    found: Dimensions | None = None
    busy: bool = False
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How a plan shards a logical dimension: the axes in most of its arguments, major first, those that something else
    shards and their share of the bytes; its arguments by the last part of their paths, each once; and which axes may be
    added."""

    dimension: Dimension
    axes: Axes
    otherwise: Mapping[Member, Axes]
    share: float
    arrays: tuple[str, ...]
    choices: tuple[AxisChoice, ...]


def cuts(dimensions: Dimensions, bound: PlanRecord, arguments: Iterable[Value]) -> tuple[Cut, ...]:
    """How a plan shards each logical dimension that arguments have: the data's first; layers, which are seldom sharded,
    last."""
    values = {value.name: value for value in arguments}
    all_cuts = (_cut(each, bound, values) for each in dimensions if each.arguments)
    return tuple(sorted(all_cuts, key=lambda cut: (cut.dimension.stacked, not cut.dimension.of)))


def standing(dimension: Dimension, bound: PlanRecord) -> dict[str, int]:
    """Of arrays that have a logical dimension several times, the one that is sharded now, for `Plan.with_dimension`."""
    return {
        path: next((d for d in several if bound.in_specs[path].dims[d]), several[0])
        for path, several in dimension.conflicts.items()
        if path in bound.in_specs
    }


def _cut(dimension: Dimension, bound: PlanRecord, values: Mapping[str, Value]) -> Cut:
    places = dimension.chosen(standing(dimension, bound))
    now = {m: bound.in_specs[m.path].dims[m.dimension] for m in places if m.role == "argument"}
    axes = Counter(now.values()).most_common(1)[0][0]
    sizes = {m: values[m.path].shape[m.dimension] for m in now}
    weights = {m: math.prod(values[m.path].shape) * itemsize(values[m.path].dtype) for m in now}
    otherwise = {m: other for m, other in now.items() if other != axes}
    return Cut(
        dimension=dimension,
        axes=axes,
        otherwise=dict(sorted(otherwise.items(), key=lambda item: -weights[item[0]])),
        share=sum(weights[m] for m in otherwise) / max(1, sum(weights.values())),
        arrays=tuple(dict.fromkeys(map(called, now))),
        choices=tuple(_choice(axis, axes, sizes, bound.mesh) for axis in bound.mesh.names),
    )


def called(member: Member) -> str:
    """What a person calls an array: the last part of its path."""
    return label(segments(member.path)[-1]) if member.path else ""


def _choice(axis: str, axes: Axes, sizes: Mapping[Member, int], mesh: DeviceMesh) -> AxisChoice:
    """Whether an axis may be added; `move` where some of the arrays do not divide by it and others do."""
    if any(axis_name(a) == axis for a in axes):
        return AxisChoice(axis, False, "already shards this dimension")
    odd = {m: why for m, size in sizes.items() if (why := undivided(size, (*axes, axis), mesh))}
    if not odd or len(odd) == len(sizes):
        return AxisChoice(axis, not odd, next(iter(odd.values()), ""))
    names = ", ".join(dict.fromkeys(map(called, odd)))
    return AxisChoice(axis, False, f"{plural(len(odd), 'array')} of {len(sizes)} would not divide: {names}", move=True)
