"""Dimensions that do not divide: XLA pads them, JAX refuses them, and sometimes JAX silently drops the sharding.

With 17 rows over 8 devices, XLA would give each device 3 rows and pad. JAX refuses this sharding for an argument. For
the result of a jitted function, also under `with_sharding_constraint`, JAX silently drops the axes that do not divide,
and every device gets a full copy:

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
    """A dimension that does not divide into its tiles; the next smaller (0: none) and larger size that divide."""

    dimension: int
    size: int
    tiles: int
    smaller: int
    larger: int


def uneven(layout: Layout) -> tuple[Uneven, ...]:
    """Return the dimensions that do not divide, in order."""
    return tuple(
        Uneven(dimension=d, size=size, tiles=tiles, smaller=size // tiles * tiles, larger=-(-size // tiles) * tiles)
        for d, (size, tiles) in enumerate(zip(layout.shape, layout.tile_counts, strict=True))
        if size % tiles
    )


def fallback(asked: Layout) -> Layout:
    """Return the layout that JAX gives a result instead: each dimension keeps its major axes whose product divides. JAX
    versions differ if `indivisible`. Raises SpecError if the sharding has no spec."""
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
    """Return whether JAX 0.12 raises an `IndivisibleError` where JAX 0.10 replaces `asked` by `actual`. JAX 0.12 raises
    it if a part of the first dropped axis would divide the rest of the dimension, such as 4 of 8 devices for 20 rows.
    XLA shards along this part, but a PartitionSpec of full axes cannot express it."""
    if asked.spec is None or actual.spec is None:
        return False
    for size, axes, kept, tiles in zip(asked.shape, asked.spec.dims, actual.spec.dims, actual.tile_counts, strict=True):
        if len(axes) > len(kept) and math.gcd(size // tiles, axis_size(axes[len(kept)], asked.mesh)) > 1:
            return True
    return False


def shard_shape(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> tuple[int, ...]:
    """Return one device's shape; dimensions that do not divide are padded, as in XLA."""
    shard = list(shape)
    for dimension, axes in enumerate(spec.dims):
        if axes:
            shard[dimension] = -(-shard[dimension] // axes_size(axes, mesh))
    return tuple(shard)
