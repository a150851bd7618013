"""One device's company on its machine: along each mesh axis who is in its group, and the links that they use."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.costs.routes import Route, way
from shardviz.render.machine_parts import Picture
from shardviz.view.ranges import device_ranges


@dataclass(frozen=True)
class Arc:
    """A link that wraps around, drawn as a curve between two nodes.

    Attributes:
        one, other: the nodes.
        path: the curve, as SVG's `d`.
        x, y: where its name stands.
        text: `x wraps`.
    """

    one: int
    other: int
    path: str
    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Group:
    """The devices that one device has for company along a mesh axis.

    Attributes:
        axis: the mesh axis.
        members: places of the mesh, in order along the axis.
        hops: pairs of nodes that a link joins, on the way from each member to the next.
        arcs: likewise the links that wrap around.
        far: pairs of nodes that stand for their slices or NVLink domains, from each to the next over the network.
        domains: whether the group's members reach each other through the switch of their NVLink domain.
        text: the members' places, and what joins them.
    """

    axis: str
    members: tuple[int, ...]
    hops: tuple[tuple[int, int], ...]
    arcs: tuple[Arc, ...]
    far: tuple[tuple[int, int], ...]
    domains: bool
    text: str


def company(placed: Placement, drawn: Picture, place: int) -> tuple[Group, ...]:
    """The groups of the device at a place of the mesh, one for each mesh axis of more than one device."""
    return tuple(
        _group(placed, drawn, place, axis, name)
        for axis, (name, size) in enumerate(placed.mesh.shape.items())
        if size > 1
    )


def _group(placed: Placement, drawn: Picture, place: int, axis: int, name: str) -> Group:
    grid = np.arange(placed.mesh.size).reshape(placed.mesh.sizes)
    index = list(np.unravel_index(place, placed.mesh.sizes))
    index[axis] = slice(None)  # type: ignore[call-overload]
    members = tuple(grid[tuple(index)].tolist())
    route, machine = placed.route((name,)), placed.machine
    hops: dict[tuple[int, int], None] = {}
    arcs: dict[tuple[int, int], Arc] = {}
    far: dict[tuple[int, int], None] = {}
    node, order = drawn.node_of, np.asarray(placed.order)
    devices = order[list(members)]
    across = [drawn.nodes[node[m]].x for m in members]
    right = 2 * sum(across) > len(across) * drawn.width  # the nearer side, to go round
    where = (machine.nvlink_domains() if machine.chip.kind == "gpu" else machine.slices())[devices]
    if machine.chip.kind == "tpu":
        for part in np.unique(where).tolist():
            for one, other in _ring(machine, route, devices[where == part]):
                for hop, along, wraps in _hops(placed, drawn, one, other):
                    if wraps:
                        arcs.setdefault((min(hop), max(hop)), _arc(drawn, hop, along, right))
                    else:
                        hops.setdefault((min(hop), max(hop)))
    heads = [members[int(np.argmax(where == part))] for part in dict.fromkeys(where.tolist())]
    for one, other in itertools.pairwise(heads):
        if node[one] != node[other]:
            far.setdefault((int(node[one]), int(node[other])))
    domains = machine.chip.kind == "gpu" and route.per_domain > 1
    text = f"{device_ranges(members)}: {route}"
    return Group(name, members, tuple(hops), tuple(arcs.values()), tuple(far), domains, text)


def _ring(machine: Machine, route: Route, devices: np.ndarray) -> Iterator[tuple[int, int]]:
    """Which of a group's devices in one slice pass data to each other: along every leg of a block of the torus, else in
    the group's order, round a ring."""
    if not route.regular:
        yield from zip(devices.tolist(), np.roll(devices, -1).tolist(), strict=True)
        return
    coords = machine.coords()[devices]
    for leg in route.legs:
        axis = "xyz".index(leg.axis)
        rest = np.delete(coords, axis, axis=1)
        for line in np.unique(rest, axis=0):
            along = devices[(rest == line).all(axis=1)]
            along = along[np.argsort(machine.coords()[along, axis])]
            gaps = np.diff(machine.coords()[along, axis], append=machine.coords()[along[0], axis] + machine.shape[axis])
            if machine.wrap[axis] and not leg.ring:  # a line ends at its largest gap, which may not be the torus' end
                along = np.roll(along, -int(gaps.argmax()) - 1)
            yield from zip(along[:-1].tolist(), along[1:].tolist(), strict=True)
            if leg.ring and len(along) > 2:
                yield int(along[-1]), int(along[0])


def _hops(placed: Placement, drawn: Picture, one: int, other: int) -> Iterator[tuple[tuple[int, int], int, bool]]:
    """The nodes of each link of the way between two devices of a slice, its axis, and whether it wraps."""
    machine = placed.machine
    coords, part = machine.coords(), int(machine.slices()[one])
    counts = [n // b for n, b in zip(machine.shape, drawn.block, strict=True)]
    chips = way(machine, *(tuple(map(int, coords[end, :3])) for end in (one, other)))  # type: ignore[arg-type]

    def number(chip: tuple[int, int, int]) -> int:
        x, y, z = (c // b for c, b in zip(chip, drawn.block, strict=True))
        return ((part * counts[2] + z) * counts[1] + y) * counts[0] + x

    for a, b in itertools.pairwise(chips):
        along = next(i for i in range(3) if a[i] != b[i])
        pair = number(a), number(b)
        if pair[0] != pair[1]:
            yield pair, along, abs(a[along] - b[along]) > 1


def _arc(drawn: Picture, pair: tuple[int, int], along: int, right: bool) -> Arc:
    """A curve that bulges away from the row, column or pile that its ends close."""
    one, other = sorted((drawn.nodes[n] for n in pair), key=lambda n: (n.x, n.y))
    bulge = 14 + 0.12 * (abs(other.x - one.x) + abs(other.y - one.y))
    if along == 0:
        dx, dy = 0.0, -min(bulge, 34)
    elif along == 1:
        dx, dy = -min(bulge, 34), 0.0
    else:
        edge = max(n.x for n in drawn.nodes) + 30 if right else min(n.x for n in drawn.nodes) - 30
        dx, dy = (edge - one.x) / 0.75, 0.0  # past the planes
    start, end = ((n.x, n.y) for n in (one, other))
    path = f"M{start[0]:.1f} {start[1]:.1f}C{start[0] + dx:.1f} {start[1] + dy:.1f} "
    path += f"{end[0] + dx:.1f} {end[1] + dy:.1f} {end[0]:.1f} {end[1]:.1f}"
    x, y = (start[0] + end[0]) / 2 + 0.75 * dx, (start[1] + end[1]) / 2 + 0.75 * dy
    return Arc(*pair, path, x, y, f"{'xyz'[along]} wraps")
