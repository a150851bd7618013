"""One device's shape."""

from __future__ import annotations

import math

from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_size


def shard_shape(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> tuple[int, ...]:
    """One device's shape; dimensions that do not divide are padded, as XLA does."""
    cut = list(shape)
    for dimension, axes in enumerate(spec.dims):
        if axes:
            cut[dimension] = -(-cut[dimension] // math.prod(axis_size(a, mesh) for a in axes))
    return tuple(cut)
