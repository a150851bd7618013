"""Which mesh axes a collective spans, from the devices that it groups, at every level."""

from __future__ import annotations

from typing import Any

from shardviz.notation import Axis, DeviceMesh
from shardviz.notation.groups import axes_of, axes_of_pairs
from shardviz.notation.spec import axes_size


def span(
    kind: str, devices: Any, mesh: DeviceMesh, *, whole: bool = True
) -> tuple[tuple[Axis, ...] | None, int | None]:
    """Return the mesh axes that a collective's groups span, and the number of devices in a group. `devices` has a row
    for each group; of a permutation, a row for each pair of source and target. The axes are None if the groups are no
    product of axes, or if the mesh is not `whole` (one slice's); the number is None if the pairs do not determine
    it."""
    if kind != "collective-permute":
        return axes_of(devices, mesh) if whole else None, int(devices.shape[1])
    axes = axes_of_pairs(devices, mesh) if whole else None
    return axes, None if axes is None else axes_size(axes, mesh)
