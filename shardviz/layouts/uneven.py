"""Dimensions that do not divide: XLA pads them, JAX refuses them, and sometimes JAX quietly gives up the sharding.

An array of 17 rows over 8 devices: XLA would give each device 3 rows and pad. As an argument JAX refuses it. As the
result of a jitted function, with or without a `with_sharding_constraint`, JAX leaves out the axes that do not divide,
says nothing, and every device gets a full copy:

>>> asked = layout((17, 4), ("data", None), {"data": 8})
>>> asked.shard_shape, fallback(asked).shard_shape
((3, 4), (17, 4))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardviz.errors import SpecError
from shardviz.layouts.layout import Layout, layout
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axes_size, axis_size


@dataclass(frozen=True, kw_only=True)
class Uneven:
    """A dimension that does not divide into so many tiles; the next smaller (0: none) and larger size that do."""

    dimension: int
    size: int
    ways: int
    smaller: int
    larger: int


def uneven(cut: Layout) -> tuple[Uneven, ...]:
    """The dimensions that do not divide, in order."""
    return tuple(
        Uneven(dimension=d, size=size, ways=ways, smaller=size // ways * ways, larger=-(-size // ways) * ways)
        for d, (size, ways) in enumerate(zip(cut.shape, cut.ways, strict=True))
        if size % ways
    )


def fallback(asked: Layout) -> Layout:
    """The layout that JAX gives a result instead: of each dimension's axes the major ones whose product divides;
    versions differ where `indivisible` says so. A `SpecError` if the sharding has no spec."""
    if asked.spec is None:
        raise SpecError(f"array of shape {asked.shape}: {asked.why}")
    dims: list[tuple[Axis, ...]] = []
    for size, axes in zip(asked.shape, asked.spec.dims, strict=True):
        sizes = [axis_size(axis, asked.mesh) for axis in axes]
        kept = len(axes)
        while size % math.prod(sizes[:kept]):
            kept -= 1
        dims.append(axes[:kept])
    return layout(asked.shape, asked.spec.with_dims(tuple(dims)), asked.mesh)


def indivisible(asked: Layout, actual: Layout) -> bool:
    """Whether JAX 0.12 stops with an `IndivisibleError`, where JAX 0.10 makes `actual` of `asked`. It does where a part
    of the first axis that was dropped from some dimension would divide what is left of it (4 of 8 devices, for 20
    rows): XLA shards along that part, which a PartitionSpec of whole axes cannot say."""
    if asked.spec is None or actual.spec is None:
        return False
    for size, axes, kept, ways in zip(asked.shape, asked.spec.dims, actual.spec.dims, actual.ways, strict=True):
        if len(axes) > len(kept) and math.gcd(size // ways, axis_size(axes[len(kept)], asked.mesh)) > 1:
            return True
    return False


def shard_shape(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> tuple[int, ...]:
    """One device's shape; dimensions that do not divide are padded, as XLA does."""
    cut = list(shape)
    for dimension, axes in enumerate(spec.dims):
        if axes:
            cut[dimension] = -(-cut[dimension] // axes_size(axes, mesh))
    return tuple(cut)
