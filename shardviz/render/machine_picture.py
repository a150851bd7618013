"""The geometry of a machine's picture: chips in their torus or GPUs on their hosts, links and frames around them.

Lengths are in pixels of a page. A torus of two axes lies flat, x to the right and y downwards; one of three is drawn as
leaning planes, one below the other. Of more chips than can be drawn a block of chips, or a host, stands for several.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.costs.routes import torus_links
from shardviz.render.hosts_picture import hosts_picture
from shardviz.render.machine_parts import MOST_NODES, WIDE, Frame, Node, Picture, box, place_of
from shardviz.render.machine_scene import axis_between
from shardviz.view.ranges import device_ranges

MOST_PLANES = 8
DENSE = 12.0
"""Pixels between rows of a leaning plane below which chips are dots, and links that wrap are not drawn one by one."""


@lru_cache(maxsize=8)
def picture(placed: Placement) -> Picture:
    """The geometry of a machine with a mesh on it."""
    return _torus(placed) if placed.machine.chip.kind == "tpu" else hosts_picture(placed)


def blocks(machine: Machine) -> tuple[int, int, int]:
    """How many chips along x, y and z one tile stands for: 1, 1, 1 where all can be drawn, else hosts, or more."""
    shape, found = machine.shape, [1, 1, 1]

    def many() -> int:
        return machine.num_slices * math.prod(-(-n // b) for n, b in zip(shape, found, strict=True))

    if many() > MOST_NODES or shape[2] > MOST_PLANES:
        found = [min(n, b) for n, b in zip(shape, machine.chip.host_bounds, strict=True)]
    while many() > MOST_NODES or shape[2] // found[2] > MOST_PLANES:
        axis = 2 if shape[2] // found[2] > MOST_PLANES else max(range(3), key=lambda a: shape[a] / found[a])
        found[axis] = next(b for b in range(found[axis] + 1, shape[axis] + 1) if shape[axis] % b == 0)
    return found[0], found[1], found[2]


def _torus(placed: Placement) -> Picture:
    machine = placed.machine
    block = blocks(machine)
    nx, ny, nz = (n // b for n, b in zip(machine.shape, block, strict=True))
    per_row = _per_row(machine.num_slices, nx, nz)
    titled = machine.num_slices > 1
    flat = nz == 1
    margin = 20.0 if any(machine.wrap) else 10.0
    room = WIDE / per_row - 2 * margin - 8
    if flat:
        pitch = max(11.0, min(44.0, room / nx, 560 / ny))
        lean, plane = (0.0, pitch), 0.0
        tile = (pitch * 0.68, pitch * 0.68)
    else:
        pitch = max(13.0, min(46.0, room / (nx + 0.34 * ny)))
        lean = (-pitch * 0.34, max(8.0, min(24.0, 520 / (nz * (ny + 1.2)))))
        plane = lean[1] * (ny + 1.2)
        tile = (pitch * 0.66, lean[1] * 0.66)
        if lean[1] < DENSE:
            tile = (min(12.0, pitch * 0.4), lean[1] * 0.72)
    beside = 0 if flat else 40 if machine.wrap[2] else 22  # room for the planes' names, and links that wrap from z to z
    left = margin + tile[0] / 2 - lean[0] * (ny - 1) + beside
    top = margin + tile[1] / 2 + (18 if titled else 4)
    wide = pitch * (nx - 1) + left + tile[0] / 2 + margin + (beside if machine.wrap[2] else 0)
    high = lean[1] * (ny - 1) + plane * (nz - 1) + top + tile[1] / 2 + margin

    def at(part: int, x: int, y: int, z: int) -> tuple[float, float]:
        x0, y0 = part % per_row * wide, part // per_row * high
        return x0 + left + x * pitch + y * lean[0], y0 + top + y * lean[1] + z * plane

    order = np.asarray(placed.order)
    coords, slices, hosts = machine.coords()[order], machine.slices()[order], machine.processes()[order]
    cell = coords[:, :3] // np.asarray(block)
    node_of = ((slices * nz + cell[:, 2]) * ny + cell[:, 1]) * nx + cell[:, 0]
    held: list[list[int]] = [[] for _ in range(machine.num_slices * nx * ny * nz)]
    for place, node in enumerate(node_of.tolist()):
        held[node].append(place)
    nodes, frames = [], []
    rank = len(machine.topology)
    for part in range(machine.num_slices):
        x0, y0 = part % per_row * wide, part // per_row * high
        if titled:
            frames.append(Frame("slice", box(x0 + 3, y0 + 3, wide - 6, high - 6), f"slice {part}"))
        for z in range(nz):
            if not flat:
                ends = [at(part, x, y, z) for x, y in ((0, 0), (nx - 1, 0), (nx - 1, ny - 1), (0, ny - 1))]
                w, h = tile[0] * 0.75, tile[1] * 0.8
                grown = zip(ends, ((-w, -h), (w, -h), (w, h), (-w, h)), strict=True)
                layer = f"z={z}" if block[2] == 1 else f"z={z * block[2]}-{(z + 1) * block[2] - 1}"
                frames.append(Frame("plane", tuple((x + dx, y + dy) for (x, y), (dx, dy) in grown), layer))
            for y, x in itertools.product(range(ny), range(nx)):
                number = ((part * nz + z) * ny + y) * nx + x
                text = _where(machine, (x, y, z), block, rank, sorted({int(hosts[p]) for p in held[number]}))
                text += f", slice {part}" if titled else ""
                chip = zip((x, y, z), block, machine.chip.host_bounds, strict=True)
                shade = sum(i * b // bound for i, b, bound in chip) % 2
                nodes.append(Node(*at(part, x, y, z), tuple(held[number]), text, shade))
    links, wraps = _links(placed, block, (nx, ny, nz), lean, plane)
    wraps = {} if not flat and lean[1] < DENSE else wraps
    grain = f"a tile is {_of_block(machine, block)}; all {machine.size:,} devices are too many to draw"
    grain = "" if block == (1, 1, 1) else grain
    rows = -(-machine.num_slices // per_row)
    whole = wide * min(per_row, machine.num_slices), high * rows
    return Picture(*whole, tile, tuple(nodes), node_of, tuple(frames), links, wraps, {}, grain, lean, pitch, block)


def _per_row(slices: int, nx: int, nz: int) -> int:
    most = 1 if nx > 16 else 2 if nx > 8 or nz > 1 else 4
    return max(1, min(slices, most))


def _of_block(machine: Machine, block: tuple[int, int, int]) -> str:
    host = all(min(n, b) == k for n, b, k in zip(machine.shape, machine.chip.host_bounds, block, strict=True))
    chips = f"{'x'.join(map(str, block))} chips"
    return f"a host of {chips}" if host else chips


def _where(machine: Machine, at: tuple[int, int, int], block: tuple[int, int, int], rank: int, hosts: list[int]) -> str:
    """`chip (3, 0, 1), host 4`."""
    parts = [str(i * b) if b == 1 else f"{i * b}-{(i + 1) * b - 1}" for i, b in zip(at, block, strict=True)]
    chip = f"chip{'' if block == (1, 1, 1) else 's'} ({', '.join(parts[: max(2, rank)])})"
    return f"{chip}, host{'s' if len(hosts) > 1 else ''} {device_ranges(hosts)}"


def _links(
    placed: Placement,
    block: tuple[int, int, int],
    shape: tuple[int, int, int],
    lean: tuple[float, float],
    plane: float,
) -> tuple[dict[str | None, list[tuple[int, int]]], dict[str | None, list[tuple[int, float, float]]]]:
    """The links between tiles, and the stubs of those that wrap, by the mesh axis that steps along them."""
    machine = placed.machine
    where = place_of(placed)
    torus = np.empty((machine.num_slices, *machine.shape), int)
    at, first = machine.coords(), machine.coords()[:, 3] == 0
    torus[machine.slices()[first], at[first, 0], at[first, 1], at[first, 2]] = where[first]
    nx, ny, nz = shape
    links: dict[str | None, list[tuple[int, int]]] = {}
    wraps: dict[str | None, list[tuple[int, float, float]]] = {}
    steps = ((1.0, 0.0), lean, (0.0, plane))
    for link in torus_links(machine):
        if any(link.one[a] % block[a] for a in range(3) if a != link.axis):
            continue
        one, other = (tuple(c // b for c, b in zip(end, block, strict=True)) for end in (link.one, link.other))
        if one == other:
            continue
        ends = torus[link.slice][link.one], torus[link.slice][link.other]
        name = axis_between(placed.mesh, *ends)
        numbers = [((link.slice * nz + z) * ny + y) * nx + x for x, y, z in (one, other)]
        if not link.wraps:
            links.setdefault(name, []).append((numbers[0], numbers[1]))
            continue
        dx, dy = steps[link.axis]
        norm = math.hypot(dx, dy) or 1.0
        for number, sign in ((numbers[0], 1), (numbers[1], -1)):
            wraps.setdefault(name, []).append((number, sign * dx / norm, sign * dy / norm))
    return links, wraps
