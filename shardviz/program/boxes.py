"""The partitions that flax.linen's boxes ask for: `nn.Partitioned` and `nn.LogicallyPartitioned` around parameters."""

from __future__ import annotations

import sys
from typing import Any

import jax

from shardviz.notation import DeviceMesh, Spec


def box_specs(tree: Any) -> list[tuple[Spec | None, DeviceMesh | None]]:
    """For each array in a tree the spec and the mesh of the box around it; None where there is no box, or it says none.

    Logical names become mesh axes by the box's own rules or by those of `nn.logical_axis_rules` around the call; where
    there are no rules nothing is known.
    """
    meta, spmd = sys.modules.get("flax.core.meta"), sys.modules.get("flax.linen.spmd")
    kind = getattr(meta, "AxisMetadata", ())
    is_box = lambda x: isinstance(x, kind)  # noqa: E731
    found: list[tuple[Spec | None, DeviceMesh | None]] = []
    for box in jax.tree.leaves(tree, is_leaf=is_box):
        spec = mesh = None
        if is_box(box) and hasattr(box, "get_partition_spec"):
            spec, mesh = box.get_partition_spec(), getattr(box, "mesh", None)
            if spmd is not None and isinstance(box, spmd.LogicallyPartitioned):
                rules = box.rules or spmd.get_logical_axis_rules()
                spec = spmd.logical_to_mesh_axes(tuple(spec), rules) if rules else None
        both = (None if spec is None else Spec.of(spec), None if mesh is None else DeviceMesh.of(mesh))
        found += [both] * len(jax.tree.leaves(box))
    return found
