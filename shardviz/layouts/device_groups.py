"""Which mesh axes the groups of a collective span, from the devices in them.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> axes_of(np.array([[0, 4], [1, 5], [2, 6], [3, 7]]), mesh), axes_of_pairs(np.array([[0, 1], [1, 0]]), mesh)
(('data',), ('model',))
"""

from __future__ import annotations

import numpy as np

from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis
from shardviz.notation.strides import axes_along, places


def axes_of(groups: np.ndarray, mesh: DeviceMesh) -> tuple[Axis, ...] | None:
    """The mesh axes that the groups of a collective span.

    Args:
        groups: integers, groups x members, as `parse_groups` gives them.
        mesh: the mesh.

    Returns:
        Axes, and parts of axes as (name, sizes before it, size), major to minor in the order of the group's members (in
        mesh order where the members' order is no such count). Axes of size 1 are never named; groups of one device
        span no axes. None where the groups are no product of axes, or leave devices out.
    """
    if groups.size != mesh.size or not np.array_equal(np.sort(groups, axis=None), np.arange(mesh.size)):
        return None
    for table in (groups, np.sort(groups, axis=1)):
        row = table[np.flatnonzero(table[:, 0] == table[:, 0].min())[0]]
        axes = axes_along(row, mesh)
        if axes is not None and np.array_equal(table - table[:, :1], np.broadcast_to(places(axes, mesh), table.shape)):
            return axes
    return None


def axes_of_pairs(pairs: np.ndarray, mesh: DeviceMesh) -> tuple[Axis, ...] | None:
    """The mesh axes along which a collective-permute moves data.

    Args:
        pairs: integers, pairs x 2: the source and the target of each message.
        mesh: the mesh.

    Returns:
        The axes, in mesh order, on which the source and the target of any pair differ; None where a device is not on
        the mesh.
    """
    if pairs.size and (pairs.max() >= mesh.size or pairs.min() < 0):
        return None
    coordinates = mesh.coordinates()
    differs = (coordinates[pairs[:, 0]] != coordinates[pairs[:, 1]]).any(axis=0)
    return tuple(name for name, moved in zip(mesh.names, differs, strict=True) if moved)
