"""Dimensions that do not divide: XLA pads them, JAX refuses them, and sometimes JAX quietly gives up the cut.

An array of 17 rows over 8 devices: XLA would give each device 3 rows and pad. As an argument JAX refuses it. As the
result of a jitted function, with or without a `with_sharding_constraint`, JAX leaves out the axes that do not divide,
says nothing, and every device gets a full copy:

>>> print(silent_copies((17, 4), ("data", None), {"data": 8}, "float32"))
P('data', None): dimension 0 is 17, which is not divisible by 'data'=8; a result of this shape becomes P(None, None):
272 bytes per device instead of 48, 1904 bytes of copies on 8 devices; 16 or 24 would divide
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardviz.errors import SpecError
from shardviz.layouts.layout import Layout, itemsize, layout
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axis_size, axis_text


@dataclass(frozen=True, kw_only=True)
class Uneven:
    """A dimension that does not divide.

    Attributes:
        dimension: which.
        size: its size.
        ways: the number of tiles.
        axes: the axes that shard it; empty where they have no names.
        smaller: the largest size below that divides; 0 where only that would.
        larger: the smallest size above that divides.
    """

    dimension: int
    size: int
    ways: int
    axes: tuple[Axis, ...]
    smaller: int
    larger: int


def uneven(cut: Layout) -> tuple[Uneven, ...]:
    """The dimensions that do not divide, in order."""
    return tuple(
        Uneven(
            dimension=dimension,
            size=size,
            ways=ways,
            axes=cut.spec.dims[dimension] if cut.spec is not None else (),
            smaller=size // ways * ways,
            larger=-(-size // ways) * ways,
        )
        for dimension, (size, ways) in enumerate(zip(cut.shape, cut.ways, strict=True))
        if size % ways
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SilentCopies:
    """What JAX makes of a result whose sharding does not divide.

    Attributes:
        asked: the sharding that was asked for, with XLA's padding.
        made: the sharding that JAX makes of it.
        dimensions: the dimensions that do not divide.
        asked_bytes_per_device: bytes of one shard as it was meant, padding included.
        made_bytes_per_device: bytes of one shard as it is made.
        wasted_bytes: bytes over all devices that are there only because the sharding was given up.
        breaks: a part of an axis still divides (4 of 8 devices, for 20 rows). XLA then cuts along that part, which a
            PartitionSpec of whole axes cannot say: JAX 0.10 drops it, JAX 0.12 stops with an `IndivisibleError`.
    """

    asked: Layout
    made: Layout
    dimensions: tuple[Uneven, ...]
    asked_bytes_per_device: float
    made_bytes_per_device: float
    wasted_bytes: float
    breaks: bool

    def __str__(self) -> str:
        mesh = self.asked.mesh
        causes, mends = [], []
        for it in self.dimensions:
            by = " x ".join(f"{axis_text(axis)!r}={axis_size(axis, mesh)}" for axis in it.axes)
            causes.append(f"dimension {it.dimension} is {it.size}, which is not divisible by {by}")
            mends.append(f"{it.smaller} or {it.larger}" if it.smaller else f"{it.larger}")
        text = (
            f"{self.asked.spec}: {', '.join(causes)}; a result of this shape becomes {self.made.spec}:\n"
            f"{self.made_bytes_per_device:.0f} bytes per device instead of {self.asked_bytes_per_device:.0f}, "
            f"{self.wasted_bytes:.0f} bytes of copies on {mesh.size} devices; {', and '.join(mends)} would divide"
        )
        return text + ("\nJAX 0.12 stops with an IndivisibleError instead" if self.breaks else "")


def silent_copies(shape: Sequence[int], sharding: Any, mesh: Any, dtype: Any) -> SilentCopies | None:
    """What JAX silently makes of a result that does not divide.

    JAX keeps, of the axes of each dimension, the major ones whose product divides it, and drops the others; see
    `SilentCopies.breaks` for where its versions differ.

    Args:
        shape: the result's global shape.
        sharding: the sharding that was asked for; anything that `layout` reads.
        mesh: the mesh, as `layout` takes it.
        dtype: the type of its elements.

    Returns:
        What was meant and what is made, with the bytes wasted; None where every dimension divides, so that nothing is
        lost.

    Raises:
        SpecError: where the sharding does not fit, or does not divide and is one that no PartitionSpec says.
    """
    asked = layout(shape, sharding, mesh)
    dimensions = uneven(asked)
    if not dimensions:
        return None
    if asked.spec is None:
        raise SpecError(
            f"array of shape {asked.shape}: dimension {dimensions[0].dimension} does not divide, and {asked.why}; what "
            "JAX makes of that is known for a PartitionSpec only",
            dimension=dimensions[0].dimension,
        )
    made = layout(asked.shape, fallback(asked), asked.mesh)
    size = itemsize(dtype)
    return SilentCopies(
        asked=asked,
        made=made,
        dimensions=dimensions,
        asked_bytes_per_device=asked.bytes_per_device(dtype),
        made_bytes_per_device=made.bytes_per_device(dtype),
        wasted_bytes=float(made.elements.sum() - asked.elements.sum()) * size,
        breaks=_breaks(asked, made),
    )


def _breaks(asked: Layout, made: Layout) -> bool:
    """Whether a part of the first axis that was dropped from some dimension would divide what is left of it."""
    if asked.spec is None or made.spec is None:
        return False
    for size, axes, kept, ways in zip(asked.shape, asked.spec.dims, made.spec.dims, made.ways, strict=True):
        if len(axes) > len(kept) and math.gcd(size // ways, axis_size(axes[len(kept)], asked.mesh)) > 1:
            return True
    return False


def fallback(cut: Layout) -> Spec:
    """The spec that JAX gives a result instead: of each dimension's axes the major ones whose product divides.

    Raises:
        SpecError: if the sharding has no spec.
    """
    if cut.spec is None:
        raise SpecError(f"array of shape {cut.shape}: {cut.why}")
    dims: list[tuple[Axis, ...]] = []
    for size, axes in zip(cut.shape, cut.spec.dims, strict=True):
        sizes = [axis_size(axis, cut.mesh) for axis in axes]
        kept = len(axes)
        while size % math.prod(sizes[:kept]):
            kept -= 1
        dims.append(axes[:kept])
    return cut.spec.with_dims(tuple(dims))


def shard_shape(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> tuple[int, ...]:
    """One device's shape; dimensions that do not divide are padded, as XLA does."""
    cut = list(shape)
    for dimension, axes in enumerate(spec.dims):
        if axes:
            cut[dimension] = -(-cut[dimension] // math.prod(axis_size(a, mesh) for a in axes))
    return tuple(cut)
