"""Which mesh axes a StableHLO collective spans: from its replica groups, of devices or of axes, or its pairs."""

from __future__ import annotations

import math
import re

import numpy as np
from jax.extend.mlir import ir

from shardviz.layout.device_groups import axes_of, axes_of_pairs
from shardviz.notation import Axis, DeviceMesh
from shardviz.notation.scan import unescaped
from shardviz.notation.spec import axis_size

_AXIS = re.compile(r'axis_ref<name = "((?:[^"\\]|\\.)*)"(?:,\s*sub_axis_info = [^(>]*\((\d+)\)(\d+))?')


def span(op: ir.Operation, kind: str, mesh: DeviceMesh) -> tuple[tuple[Axis, ...] | None, int | None]:
    """The mesh axes and the number of devices in a group; None where the groups are no product of axes."""
    name = "source_target_pairs" if kind == "collective-permute" else "replica_groups"
    attributes = op.attributes
    if name not in attributes:  # of a custom call
        attributes = ir.DictAttr(attributes["backend_config"])
    attribute = attributes[name]
    if "replica_group_mesh_axes" in (text := str(attribute)):
        found = [
            (unescaped(n), int(before), int(size)) if size else unescaped(n) for n, before, size in _AXIS.findall(text)
        ]
        axes = tuple(a for a in found if axis_size(a, mesh) > 1)
        return axes, math.prod(axis_size(a, mesh) for a in axes)
    table = np.array(ir.DenseIntElementsAttr(attribute)).reshape(tuple(ir.RankedTensorType(attribute.type).shape))
    axes = axes_of_pairs(table, mesh) if kind == "collective-permute" else axes_of(table, mesh)
    if kind == "collective-permute":
        return axes, None if axes is None else math.prod(axis_size(a, mesh) for a in axes)
    return axes, int(table.shape[1])
