"""Which device gets how many bytes of which, whatever way they go.

An all-gather brings each member of a group the other members' shards, V/N of each; a reduce-scatter as much; an
all-reduce is both; an all-to-all brings operand/N of each; a permute the operand of one. The way that they take, rings
or trees, is not in it: the sum over a device's row is what its links have to bring, at least.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardviz.compiler.collectives import parse_groups, parse_pairs
from shardviz.costs.placement import groups_along
from shardviz.costs.step_cost import StepCost
from shardviz.notation import DeviceMesh
from shardviz.records import Collective

MOST_PAIRS = 1 << 22


def traffic(cost: StepCost) -> np.ndarray:
    """Bytes from each device to each other in a step.

    Returns:
        Floats, device x device in mesh order: row sends, column receives; the diagonal is 0. Collectives whose count is
        not known, or whose groups are not, are left out, as are groups of more than four million pairs.
    """
    size = cost.mesh.size
    found = np.zeros((size, size))
    for sources, targets, nbytes in _pairs(cost, cost.collectives):
        np.add.at(found, (sources, targets), nbytes)
    np.fill_diagonal(found, 0.0)
    return found


def axis_traffic(cost: StepCost) -> dict[str, np.ndarray]:
    """The same seen along one mesh axis at a time, for meshes of too many devices to draw each.

    Returns:
        Axis name → floats, place x place along the axis: what one device at a place sends, in a step, to all devices at
        another place, on the average over the devices of that place.
    """
    mesh = cost.mesh
    found = {name: np.zeros((size, size)) for name, size in mesh.shape.items() if size > 1}
    irregular = []
    for c in cost.collectives:
        if c.kind == "collective-permute" or c.kind == "collective-broadcast" or c.axes is None:
            irregular.append(c)
        elif c.count is not None:
            parts = [(a, 1, mesh.shape[a]) if isinstance(a, str) else a for a in c.axes]
            whole = int(np.prod([size for _, _, size in parts]))
            share = _share(c, whole) * c.count
            for name, before, size in parts:
                if name in found:
                    found[name] += _beside(mesh.shape[name], before, size) * share * (whole // size)
    places = mesh.coordinates()
    for sources, targets, nbytes in _pairs(cost, irregular):
        for axis, name in enumerate(mesh.names):
            if name in found:
                each = nbytes * mesh.shape[name] / mesh.size
                np.add.at(found[name], (places[sources, axis], places[targets, axis]), each)
    for table in found.values():
        np.fill_diagonal(table, 0.0)
    return found


def _share(c: Collective, size: int) -> float:
    """What one member of a group of so many gets of another in one run."""
    if c.kind == "all-gather":
        return c.result_bytes / size
    if c.kind == "collective-broadcast":
        return c.operand_bytes
    return c.operand_bytes / size * (2 if c.kind == "all-reduce" else 1)


def _beside(length: int, before: int, size: int) -> np.ndarray:
    """1 where two places of an axis are in one group along its part (before, size), else 0."""
    at = np.arange(length)
    step = length // (before * size)
    leader = at - at // step % size * step
    return (leader[:, None] == leader[None, :]).astype(float)


def _pairs(cost: StepCost, collectives: tuple[Collective, ...] | list[Collective]) -> Iterator[tuple]:
    """(sources, targets, bytes in a step of each pair) of every collective whose groups and count are known."""
    mesh = cost.mesh
    for c in collectives:
        if c.count is None:
            continue
        if c.kind == "collective-permute" and c.groups.startswith("{{"):
            pairs = parse_pairs(c.groups)
            yield pairs[:, 0], pairs[:, 1], c.operand_bytes * c.count
            continue
        groups = _groups(c, mesh)
        if groups is None or groups.size * groups.shape[1] > MOST_PAIRS:
            continue
        share = _share(c, groups.shape[1]) * c.count
        if c.kind == "collective-permute":
            yield groups.ravel(), np.roll(groups, -1, axis=1).ravel(), c.operand_bytes * c.count
        elif c.kind == "collective-broadcast":
            yield np.repeat(groups[:, 0], groups.shape[1]), groups.ravel(), share
        else:
            yield np.repeat(groups, groups.shape[1], axis=1).ravel(), np.tile(groups, groups.shape[1]).ravel(), share


def _groups(c: Collective, mesh: DeviceMesh) -> np.ndarray | None:
    if c.axes is not None:
        return groups_along(c.axes, mesh)
    if not c.groups:
        return None
    groups = parse_groups(c.groups, mesh.size)
    return None if (groups < 0).any() else groups
