"""Specs that shard an array further, for the rules to suggest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shardviz.diagnose.policy import BETWEEN
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axes_size, axis_name
from shardviz.records import Suggestion, Value


def free(value: Value, axis: str) -> bool:
    """Return whether a value's spec leaves an axis out."""
    return value.spec is not None and axis not in {axis_name(a) for a in (*value.spec.axes, *value.manual)}


def divides(value: Value, spec: Spec, mesh: DeviceMesh) -> bool:
    """Return whether a PartitionSpec can express a spec, and a value's dimensions divide by it."""
    counts = (math.prod(mesh.shape[axis_name(a)] for a in dim) for dim in spec.dims)
    named = all(isinstance(axis, str) for axis in spec.axes)
    return named and all(n % count == 0 for n, count in zip(value.shape, counts, strict=False))


def steps_along(value: Value) -> bool:
    """Return whether a loop steps along the first dimension of a value, and that dimension is sharded."""
    return value.scanned and value.spec is not None and any(value.spec.dims[:1])


def further(value: Value, axis: str, mesh: DeviceMesh) -> Spec | None:
    """Return the value's spec with one more axis, on the dimension with the longest shard; None if none divides.

    A dimension that a loop steps along is excluded, because each device would hold slices that the others need.
    """
    if value.spec is None or not free(value, axis):
        return None
    spec, shard, size = Spec.of(value.spec, len(value.shape)), value.shard_shape or value.shape, mesh.shape[axis]
    even = [d for d, n in enumerate(shard) if n % size == 0 and n >= size and value.shape[d] % n == 0]
    even = [d for d in even if d or not value.scanned]
    return onto(spec, (axis,), max(even, key=lambda d: (shard[d], not spec.dims[d], -d), default=None))


def onto(spec: Spec, axes: Sequence[str], to: int | None) -> Spec | None:
    """Return the spec with these axes on dimension `to` too; None for no dimension."""
    dims = ((*dim, *axes) if d == to else dim for d, dim in enumerate(spec.dims))
    return None if to is None else spec.with_dims(tuple(dims))


def over_all(v: Value, axes: Iterable[str], mesh: DeviceMesh) -> Spec | None:
    """Return the value's spec with as many of the axes as divide; None if none does."""
    spec_over = None
    for axis in axes:
        spec = further(v if spec_over is None else recut(v, spec_over, mesh), axis, mesh)
        spec_over = spec_over if spec is None else spec
    return spec_over


def recut(v: Value, spec: Spec, mesh: DeviceMesh) -> Value:
    return replace(v, spec=spec, shard_shape=shard_shape(v.shape, spec, mesh))


def moved_off(v: Value, axes: Iterable[str], mesh: DeviceMesh) -> Spec | None:
    """Return the value's spec with these axes moved to another dimension; None if no other dimension divides."""
    names = [axis_name(a) for a in (v.spec.axes if v.spec is not None else ())]
    moved = [name for name in names if name in set(axes)]
    if v.spec is None or not moved or any(not isinstance(axis, str) for axis in v.spec.axes):
        return None
    spec = Spec.of(v.spec, len(v.shape))
    was = {d for d, dim in enumerate(spec.dims) if any(axis_name(a) in moved for a in dim)}
    was |= {0} if v.scanned else set()
    spec = spec.with_dims(tuple(tuple(a for a in dim if axis_name(a) not in moved) for dim in spec.dims))
    size, shard = math.prod(mesh.shape[name] for name in moved), shard_shape(v.shape, spec, mesh)
    others = [d for d, n in enumerate(shard) if d not in was and n % size == 0 and n >= size]
    return onto(spec, moved, max(others, key=lambda d: (not spec.dims[d], shard[d], -d), default=None))


def suggest_specs(kind: str, specs: Sequence[tuple[str, Spec]], text: str = "") -> tuple[Suggestion, ...]:
    """Suggest these specs for arguments (or outputs) in one change; `text` describes it if there are several. Empty for
    none."""
    if not specs:
        return ()
    (target, spec), *rest = specs
    ins, outs = (tuple(rest), ()) if kind == "argument" else ((), tuple(rest))
    return (Suggestion(kind=kind, target=target, spec=spec, specs=ins, out_specs=outs, text=text if rest else ""),)


def between(before: Spec, after: Spec, shape: tuple[int, ...], mesh: DeviceMesh) -> list[Spec]:
    """Return specs between two specs that share no sharded dimension: one axis is moved or dropped.

    Specs from which a single reshard reaches the target come first.

    >>> mesh = DeviceMesh.of("x=4,y=2")
    >>> one, other = Spec((("y",), (), ("x",))), Spec(((), ("x", "y"), ()))
    >>> [str(spec) for spec in between(one, other, (16, 16, 16), mesh)]
    ["P('y', 'x', None)", "P(None, 'y', 'x')", "P('y', None, None)"]
    """
    if any(not isinstance(axis, str) for axis in (*before.axes, *after.axes)):
        return []
    rank, specs = len(shape), []
    start, end = Spec.of(before, rank), Spec.of(after, rank)
    goes_to = {axis: d for d, dim in enumerate(end.dims) for axis in dim}
    for axis in dict.fromkeys((*end.axes, *start.axes)):
        if axis not in start.axes or axis in start.dims[goes_to.get(axis, 0)]:
            continue
        gone = [tuple(a for a in dim if a != axis) for dim in start.dims]
        dims = [(*dim, axis) if d == goes_to.get(axis) else dim for d, dim in enumerate(gone)]
        straight = axis in goes_to and end.dims[goes_to[axis]][: len(dims[goes_to[axis]])] == dims[goes_to[axis]]
        specs += [(not straight, Spec(tuple(dims))), (2, Spec(tuple(gone)))]
    ordered = [spec for _, spec in sorted(specs, key=lambda each: each[0])]
    even = [s for s in ordered if all(n % axes_size(dim, mesh) == 0 for n, dim in zip(shape, s.dims, strict=True))]
    return [spec for spec in dict.fromkeys(even) if spec not in (start, end)][:BETWEEN]
