"""The links between the devices of a group: which axes of the torus, ring or line, how many slices, NVLink domains.

>>> v5e = Machine.of("tpu v5e:8x4")
>>> ids = v5e.ids().argsort().reshape(4, 8)           # y, x
>>> print(route(v5e, ids.T))                         # the groups run along y
line of 4 along y
>>> print(route(Machine.of("tpu v4:4x4x4"), [[0, 1, 4, 5]]))
ring of 4 along x

And the links of a torus one by one: which chips they join.

>>> v5e = Machine.of("tpu v5e:4x2")
>>> links = torus_links(v5e)
>>> len(links), links[0]
(10, Link(one=(0, 0, 0), other=(1, 0, 0), axis=0, slice=0, wraps=False))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from shardviz.costs.machine import Machine

_MOST_PAIRS = 1 << 22


@dataclass(frozen=True)
class Leg:
    """The part of a group along one axis of the torus.

    Attributes:
        axis: `x`, `y` or `z`.
        size: the group's chips along it.
        stride: links between neighbours (the most, if they differ); above 1, as many groups share the links.
        ring: whether it closes to a ring, so that both directions are useful; otherwise it is a line.
        load: for chips that are not evenly spaced, the most transfers on a link in one direction when all groups pass
            data in both directions; otherwise 0.
    """

    axis: str
    size: int
    stride: int
    ring: bool
    load: int = 0

    @property
    def hops(self) -> int:
        """The links that the farthest message passes."""
        return (self.size // 2 if self.ring else self.size - 1) * self.stride

    @property
    def links(self) -> float:
        """How many links' bandwidth, one direction, a chip gets its data over: 2 on a ring, 1 at a line's end."""
        return 2 / self.load if self.load else (2 if self.ring else 1) / self.stride

    def __str__(self) -> str:
        apart = f", {'up to ' if self.load else ''}{self.stride} hops apart" if self.stride > 1 else ""
        return f"{'ring' if self.ring else 'line'} of {self.size} along {self.axis}{apart}"


@dataclass(frozen=True)
class Route:
    """The links between the devices of a group.

    Attributes:
        size: devices in a group.
        legs: the axes of the torus that it uses within one slice (TPU).
        on_chip: its devices on one chip.
        slices: the TPU slices that it spans.
        domains: the NVLink domains that it spans.
        hosts: the most hosts that a group spans.
        regular: whether its chips within a slice are a block of the torus (some positions along each axis, in all
            combinations), the same in each slice. Otherwise `legs` is empty, and `load` and `hops` are for a ring
            through its members in order.
        load: the most transfers that share a link in one direction when all groups pass data around their rings in both
            directions.
        hops: the most links between neighbours in the group's order.
    """

    size: int
    _: KW_ONLY
    legs: tuple[Leg, ...] = ()
    on_chip: int = 1
    slices: int = 1
    domains: int = 1
    hosts: int = 1
    regular: bool = True
    load: int = 0
    hops: int = 0

    @property
    def per_slice(self) -> int:
        """Devices of a group in one slice."""
        return self.size // self.slices

    @property
    def per_domain(self) -> int:
        """Devices of a group in one NVLink domain (the most, if they differ)."""
        return -(-self.size // self.domains)

    @property
    def chips(self) -> int:
        """Chips of a group in one slice."""
        return self.per_slice // self.on_chip

    @property
    def even(self) -> bool:
        """Whether it is a block of the torus, evenly spaced along each axis."""
        return self.regular and not any(leg.load for leg in self.legs)

    @property
    def ring(self) -> bool:
        """Whether every leg closes to a ring."""
        return self.regular and all(leg.ring for leg in self.legs)

    @property
    def neighbours(self) -> bool:
        """Whether devices next to each other in the group are next to each other in the machine."""
        return all(leg.stride == 1 for leg in self.legs) if self.regular else self.hops <= 1

    def __str__(self) -> str:
        if self.size == 1:
            return "one device"
        parts = [str(leg) for leg in self.legs]
        if not self.regular:
            parts.append(f"no block of the torus: neighbours up to {self.hops} hops apart, {self.load} to a link")
        if self.on_chip > 1:
            parts.append(f"{self.on_chip} devices of a chip")
        if self.slices > 1:
            parts.append(f"{self.slices} slices over DCN")
        if self.domains > 1:
            parts.append(f"{self.domains} NVLink domains over the network")
            if self.per_domain > 1:
                parts.insert(0, f"{self.per_domain} in an NVLink domain")
        elif not parts:
            parts.append(f"{self.size} in an NVLink domain")
        return ", ".join(parts)


def route(machine: Machine, groups: Sequence[Sequence[int]] | np.ndarray) -> Route:
    """Return the links of groups of devices (groups x members, positions in the machine's list); if they differ, the
    worst."""
    table = np.asarray(groups)
    count, size = table.shape
    if size <= 1:
        return Route(size)
    hosts = _distinct(machine.processes()[table])
    if machine.chip.kind != "tpu":
        return Route(size, domains=_distinct(machine.nvlink_domains()[table]), hosts=hosts)
    slices = machine.slices()[table]
    coords = machine.coords()[table]
    wrap = np.array([n if w else 1 << 30 for n, w in zip(machine.shape, machine.wrap, strict=True)] + [1 << 30])
    apart = np.concatenate([(coords - coords[:, :1]) % wrap, (slices - slices[:, :1])[..., None]], axis=2)
    _, first = np.unique(apart.reshape(count, -1), axis=0, return_index=True)
    routes = {_of_group(machine, table, g, hosts) for g in first.tolist()}
    if None in routes:
        load, hops = ring_load(machine, table)
        return Route(size, slices=_distinct(slices), hosts=hosts, regular=False, load=load, hops=hops)
    return min((r for r in routes if r is not None), key=lambda r: (sum(leg.links for leg in r.legs), -r.slices))


def _of_group(machine: Machine, groups: np.ndarray, group: int, hosts: int) -> Route | None:
    """Return the route of one group; None if it is no block of the torus."""
    coords, slices = machine.coords()[groups[group]], machine.slices()[groups[group]]
    which, counts = np.unique(slices, return_counts=True)
    inside = [coords[slices == s] for s in which]
    if len({np.unique(block - block.min(axis=0), axis=0).tobytes() for block in inside}) > 1:
        return None
    places = [np.unique(inside[0][:, axis]) for axis in range(4)]
    on_chip = len(places[3])
    if math.prod(map(len, places)) != counts[0]:
        return None
    legs = []
    for axis, size, wraps in zip(range(3), machine.shape, machine.wrap, strict=True):
        if len(places[axis]) > 1:
            leg = _leg("xyz"[axis], places[axis], size, wraps)
            legs.append(leg or _uneven_leg(machine, groups, axis, places[axis]))
    return Route(len(coords), legs=tuple(legs), on_chip=on_chip, slices=len(which), hosts=hosts)


def _leg(axis: str, values: np.ndarray, size: int, wraps: bool) -> Leg | None:
    """Return a leg of evenly spaced positions along an axis, across its end too if it wraps around; None if uneven."""
    gaps = np.diff(values)
    if wraps:
        around = np.append(gaps, values[0] + size - values[-1])
        if (around == around[0]).all():
            return Leg(axis, len(values), int(around[0]), True)
        gaps = np.delete(np.roll(around, -int(around.argmax())), 0)  # the largest gap is where the line ends
    return Leg(axis, len(values), int(gaps[0]), False) if (gaps == gaps[0]).all() else None


def _uneven_leg(machine: Machine, groups: np.ndarray, axis: int, values: np.ndarray) -> Leg:
    """Return a leg of unevenly spaced positions along an axis, with the messages of all groups counted on its links."""
    devices = groups.ravel()
    coords = machine.coords()[devices]
    group = np.repeat(np.arange(len(groups)), groups.shape[1])
    across = [coords[:, other] for other in range(4) if other != axis]
    lines = devices[np.lexsort((coords[:, axis], *across, machine.slices()[devices], group))].reshape(-1, len(values))
    load = ring_load(machine, lines)[0] // machine.chip.devices_per_chip  # every device of a chip was counted
    return Leg("xyz"[axis], len(values), int(np.diff(values).max()), False, load)


def _distinct(values: np.ndarray) -> int:
    """Return the most different values in a row."""
    return 1 + int((np.diff(np.sort(values, axis=1), axis=1) != 0).sum(axis=1).max())


def ring_load(machine: Machine, groups: np.ndarray) -> tuple[int, int]:
    """Return the most transfers on a link, and the most hops of one, for rings through each group's members in both
    directions."""
    here, following = groups.ravel(), np.roll(groups, -1, axis=1).ravel()
    return link_load(machine, np.concatenate([here, following]), np.concatenate([following, here]))


def exchange_load(machine: Machine, groups: np.ndarray) -> tuple[int, int] | None:
    """Return the most messages on a link, and the most hops of one, if each member sends to each other; None for too
    many to count."""
    count, size = groups.shape
    if count * size * size > _MOST_PAIRS:
        return None
    sources = np.repeat(groups, size, axis=1)
    return link_load(machine, sources.ravel(), np.tile(groups, (1, size)).ravel())


def link_load(
    machine: Machine, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> tuple[int, int]:
    """Return the most messages from sources to targets that use one link in one direction, and the most links of one
    message. With `weights`, whole bytes of each message, the most bytes in place of messages."""
    load, hops = link_loads(machine, sources, targets, weights)
    return int(load.max(initial=0)), int(hops.max(initial=0))


def link_loads(
    machine: Machine, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the messages (or `weights`) on each link in one direction, and the number of links of each message.

    Messages go along x, then y, then z, in the shorter direction (for equal lengths, alternating chips alternate).
    Messages between slices are omitted.
    """
    coords, slices = machine.coords(), machine.slices()
    same = slices[sources] == slices[targets]
    sources, targets = sources[same], targets[same]
    each = np.ones(len(same), int) if weights is None else weights
    at, goal, which, each = coords[sources, :3].copy(), coords[targets, :3], slices[sources], each[same]
    shape = (machine.num_slices, *machine.shape, 3, 2)  # slice, x, y, z, axis, direction
    load = np.zeros(math.prod(shape), int)
    hops = np.zeros(len(at), int)
    for axis, (size, wraps) in enumerate(zip(machine.shape, machine.wrap, strict=True)):
        ahead = goal[:, axis] - at[:, axis]
        far, up = np.abs(ahead), ahead > 0
        if wraps:
            right, left = ahead % size, -ahead % size
            far, up = np.minimum(right, left), np.where(right == left, at[:, axis] % 2 == 0, right < left)
        hops += far
        for step in range(int(far.max(initial=0))):
            on = np.flatnonzero(far > step)
            link = np.ravel_multi_index((which[on], *at[on].T, np.full(len(on), axis), up[on].astype(int)), shape)
            load += np.bincount(link, each[on], minlength=len(load)).astype(int)
            at[on, axis] = (at[on, axis] + np.where(up[on], 1, -1)) % size
    return load, hops


Chip = tuple[int, int, int]


@dataclass(frozen=True)
class Link:
    """A link between two chips of a slice, by their x, y, z; `other` is the next along the axis (0, 1 or 2), or the
    first after the last if the axis wraps around."""

    one: Chip
    other: Chip
    axis: int
    slice: int
    wraps: bool


def torus_links(machine: Machine) -> list[Link]:
    """Return every link of every slice; none for GPUs. On an axis of two chips that wraps around, the second link is
    the one that wraps."""
    if machine.chip.kind != "tpu":
        return []
    return [
        Link(at, _stepped(at, axis, 1, size), axis, part, at[axis] == size - 1)
        for part in range(machine.num_slices)
        for z, y, x in itertools.product(*(range(n) for n in reversed(machine.shape)))
        for at in [(x, y, z)]
        for axis, (size, wraps) in enumerate(zip(machine.shape, machine.wrap, strict=True))
        if size > 1 and (wraps or at[axis] < size - 1)
    ]


def _stepped(at: Chip, axis: int, step: int, size: int) -> Chip:
    moved = list(at)
    moved[axis] = (moved[axis] + step) % size
    return moved[0], moved[1], moved[2]
