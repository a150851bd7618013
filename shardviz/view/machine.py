"""A machine's picture: chips in their torus or GPUs on their hosts, with links, frames and the mesh; and a device's
groups.

Lengths are in pixels. A torus of two axes lies flat, x to the right and y downwards. A torus of three axes is drawn as
leaning planes, one below the other. GPUs are on their hosts, grouped by NVLink domain. If there are too many chips, a
tile stands for a block of chips or a host.

>>> placed = Placement.of("data=4,model=2", "tpu v5e:2x4")
>>> stand = floor(placed)
>>> stand.nodes[1].text, stand.nodes[1].places
('chip (1, 0), host 0', (1,))
>>> [(group.axis, group.members) for group in device_groups(placed, 5)]
[('data', (1, 3, 5, 7)), ('model', (4, 5))]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.costs.routes import torus_links
from shardviz.notation import DeviceMesh
from shardviz.records.amounts import plural
from shardviz.view.document import device_ranges
from shardviz.view.picture import Labels, LegendKey, Lines, Picture, Point, Rects, Role, Shape, dash_of, group_along

MOST_NODES = 1024
WIDE = 600.0
MOST_PLANES = 8
DENSE = 12.0
"""Below this distance in pixels between rows of a leaning plane, chips are dots and wraparound links are not drawn."""
MOST_CYCLED = 8
"""Maximum devices of a tile that repeated clicks cycle through."""
_WAYS, _TILES, _LIT, _NAMES = 1, 2, 3, 4  # layers


@dataclass(frozen=True)
class Tile:
    """A tile around x, y: a chip, a GPU, or a block of chips or a host.

    It has the mesh positions on it, ascending, its location in words, and its shade, 0 or 1, which differs from
    neighbouring hosts.
    """

    x: float
    y: float
    places: tuple[int, ...]
    text: str
    shade: int = 0


@dataclass(frozen=True)
class Border:
    """An outline around tiles: a `plane` or a `slice` of a torus, a `host`, or an NVLink `domain`, with its text at the
    first corner."""

    kind: str
    points: tuple[tuple[float, float], ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class FloorPlan:
    """A machine with a mesh on it.

    Attributes:
        width, height: size of the picture.
        tile: width and height of a tile.
        nodes: the tiles.
        node_of: the node of each position of the mesh.
        frames: outlines, outer ones first.
        links: mesh axis along which they lead (None: several axes) → pairs of nodes, without wraparound links.
        wraps: the same for wraparound links: (node, x, y of the stub's end); empty if there are too many to draw.
        switch: node → y of the bar for its NVLink domain's switch; empty for a torus.
        grain: the meaning of a tile in words; empty for a chip or a GPU.
    """

    width: float
    height: float
    tile: tuple[float, float]
    nodes: tuple[Tile, ...]
    node_of: np.ndarray
    frames: tuple[Border, ...]
    links: dict[str | None, list[tuple[int, int]]]
    wraps: dict[str | None, list[tuple[int, float, float]]]
    switch: dict[int, float]
    grain: str


def place_of(placed: Placement) -> np.ndarray:
    """Return the mesh position of each device in the machine's list."""
    places = np.empty(placed.mesh.size, int)
    places[np.asarray(placed.order)] = np.arange(placed.mesh.size)
    return places


def box(x: float, y: float, wide: float, high: float) -> tuple[tuple[float, float], ...]:
    """Return the corners of a rectangle."""
    return (x, y), (x + wide, y), (x + wide, y + high), (x, y + high)


def axis_between(mesh: DeviceMesh, one: int, other: int) -> str | None:
    """Return the mesh axis along which two positions differ; None for several axes."""
    places = mesh.coordinates()
    different = np.flatnonzero(places[one] != places[other])
    return mesh.names[different[0]] if len(different) == 1 else None


@lru_cache(maxsize=8)
def floor(placed: Placement) -> FloorPlan:
    """Return the floor plan of a machine with a mesh."""
    return _torus(placed) if placed.machine.chip.kind == "tpu" else _hosts(placed)


def blocks(machine: Machine) -> tuple[int, int, int]:
    """Return how many chips along x, y and z a tile stands for: 1, 1, 1 if all can be drawn, else hosts or more."""
    shape, block = machine.shape, [1, 1, 1]

    def many() -> int:
        return machine.num_slices * math.prod(-(-n // b) for n, b in zip(shape, block, strict=True))

    if many() > MOST_NODES or shape[2] > MOST_PLANES:
        block = [min(n, b) for n, b in zip(shape, machine.chip.host_bounds, strict=True)]
    while many() > MOST_NODES or shape[2] // block[2] > MOST_PLANES:
        axis = 2 if shape[2] // block[2] > MOST_PLANES else max(range(3), key=lambda a: shape[a] / block[a])
        block[axis] = next(b for b in range(block[axis] + 1, shape[axis] + 1) if shape[axis] % b == 0)
    return block[0], block[1], block[2]


def _torus(placed: Placement) -> FloorPlan:
    machine = placed.machine
    block = blocks(machine)
    nx, ny, nz = (n // b for n, b in zip(machine.shape, block, strict=True))
    per_row = max(1, min(machine.num_slices, 1 if nx > 16 else 2 if nx > 8 or nz > 1 else 4))
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
    places_on: list[list[int]] = [[] for _ in range(machine.num_slices * nx * ny * nz)]
    for place, node in enumerate(node_of.tolist()):
        places_on[node].append(place)
    nodes, frames = [], []
    rank = len(machine.topology)
    for part in range(machine.num_slices):
        x0, y0 = part % per_row * wide, part // per_row * high
        if titled:
            frames.append(Border("slice", box(x0 + 3, y0 + 3, wide - 6, high - 6), f"slice {part}"))
        for z in range(nz):
            if not flat:
                ends = [at(part, x, y, z) for x, y in ((0, 0), (nx - 1, 0), (nx - 1, ny - 1), (0, ny - 1))]
                w, h = tile[0] * 0.75, tile[1] * 0.8
                grown = zip(ends, ((-w, -h), (w, -h), (w, h), (-w, h)), strict=True)
                layer = f"z={z}" if block[2] == 1 else f"z={z * block[2]}-{(z + 1) * block[2] - 1}"
                frames.append(Border("plane", tuple((x + dx, y + dy) for (x, y), (dx, dy) in grown), layer))
            for y, x in itertools.product(range(ny), range(nx)):
                number = ((part * nz + z) * ny + y) * nx + x
                text = _where(machine, (x, y, z), block, rank, sorted({int(hosts[p]) for p in places_on[number]}))
                text += f", slice {part}" if titled else ""
                chip = zip((x, y, z), block, machine.chip.host_bounds, strict=True)
                shade = sum(i * b // bound for i, b, bound in chip) % 2
                nodes.append(Tile(*at(part, x, y, z), tuple(places_on[number]), text, shade))
    links, wraps = _links(placed, block, (nx, ny, nz), lean, plane)
    wraps = {} if not flat and lean[1] < DENSE else wraps
    host = all(min(n, b) == k for n, b, k in zip(machine.shape, machine.chip.host_bounds, block, strict=True))
    grain = f"a tile is {'a host of ' * host}{'x'.join(map(str, block))} chips"
    grain = "" if block == (1, 1, 1) else f"{grain}; all {machine.size:,} devices are too many to draw"
    rows = -(-machine.num_slices // per_row)
    return FloorPlan(
        width=wide * min(per_row, machine.num_slices),
        height=high * rows,
        tile=tile,
        nodes=tuple(nodes),
        node_of=node_of,
        frames=tuple(frames),
        links=links,
        wraps=wraps,
        switch={},
        grain=grain,
    )


def _where(machine: Machine, at: tuple[int, int, int], block: tuple[int, int, int], rank: int, hosts: list[int]) -> str:
    parts = [str(i * b) if b == 1 else f"{i * b}-{(i + 1) * b - 1}" for i, b in zip(at, block, strict=True)]
    chip = f"chip{'' if block == (1, 1, 1) else 's'} ({', '.join(parts[: max(2, rank)])})"
    return f"{chip}, host{'s' if len(hosts) > 1 else ''} {device_ranges(hosts)}"


def _links(
    placed: Placement, block: tuple[int, int, int], shape: tuple[int, int, int], lean: tuple[float, float], plane: float
) -> tuple[dict[str | None, list[tuple[int, int]]], dict[str | None, list[tuple[int, float, float]]]]:
    """Return the links between tiles, and the stubs of wraparound links, by mesh axis."""
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


def _hosts(placed: Placement) -> FloorPlan:
    """Return the floor plan of GPUs on hosts in NVLink domains; with too many GPUs, a tile per host."""
    machine = placed.machine
    hosts, per_host = machine.topology
    whole, together = machine.size > MOST_NODES, hosts > machine.domains
    inside = 1 if whole else per_host
    per_row = inside if inside <= 4 else max(d for d in range(1, min(12, inside // 2) + 1) if inside % d == 0)
    size = max(12.0, min(34.0, WIDE / math.ceil(math.sqrt(hosts * 1.6)) - 4)) if whole else 22.0
    pitch = size + 3
    host_wide, host_high = per_row * pitch + 7, -(-inside // per_row) * pitch + (7 if whole else 21)
    groups = machine.domains if together else 1
    in_group = hosts // groups
    across = max(1, int(WIDE // (host_wide + 6)))
    if together:
        across = max(d for d in range(1, in_group + 1) if in_group % d == 0 and d <= across)
    elif not whole:
        across = min(across, hosts, max(2, 2 ** int(math.log2(across)))) if hosts > 1 else 1
    group_wide = min(across, in_group) * (host_wide + 6) + 10
    group_high = -(-in_group // across) * (host_high + 6) + (36 if together else 6)
    group_row = max(1, int((WIDE + 20) // group_wide)) if together else 1
    where, switch = place_of(placed), {}
    nodes: list[Tile] = []
    frames = []
    for host in range(hosts):
        group, index = divmod(host, in_group)
        gx, gy = group % group_row * (group_wide + 8), group // group_row * (group_high + 8)
        x0 = gx + 8 + index % across * (host_wide + 6)
        y0 = gy + (20 if together else 4) + index // across * (host_high + 6)
        if together and index == 0:
            corners = box(gx + 2, gy + 2, group_wide - 2, group_high - 2)
            frames.append(Border("domain", corners, f"NVLink domain {group}"))
        if not whole:
            frames.append(Border("host", box(x0, y0, host_wide, host_high), f"host {host}"))
        text = f"host {host}" + (f", NVLink domain {group}" if together else "")
        for i in range(inside):
            x, y = x0 + 5 + i % per_row * pitch, y0 + (4 if whole else 14) + i // per_row * pitch - 2
            first = host * per_host + i
            places = tuple(sorted(where[first : first + (per_host if whole else 1)].tolist()))
            switch[len(nodes)] = gy + group_high - 9 if together else y0 + host_high - 5
            what = f"{text}, {plural(per_host, 'GPU')}" if whole else f"GPU {i} of {text}"
            nodes.append(Tile(x + size / 2, y + size / 2, places, what))
    order = np.asarray(placed.order)
    return FloorPlan(
        width=min(group_row, groups) * (group_wide + 8) if together else group_wide + 4,
        height=-(-groups // group_row) * (group_high + 8) + 4,
        tile=(size, size - 3),
        nodes=tuple(nodes),
        node_of=order // per_host if whole else order,
        frames=tuple(frames),
        links={},
        wraps={},
        switch=switch,
        grain=f"a tile is a host of {per_host} GPUs; all {machine.size:,} are too many to draw" if whole else "",
    )


def machine_picture(placed: Placement) -> Picture:
    """Return the picture of a machine with a mesh; each tile selects its devices.

    A link has the colour and dash of its mesh axis. A stub with an open end is a wraparound link.
    """
    stand, machine, names = floor(placed), placed.machine, placed.mesh.names
    tpu = machine.chip.kind == "tpu"
    wide, strong = (0.8, 0.4) if tpu and not stand.wraps and len(stand.nodes) > 128 else (1.2, 0.6)
    shapes: list[Shape] = [*_frames(stand)]
    for name in (None, *sorted(names)):
        place = None if name is None else names.index(name)
        lines = tuple(_ends(stand, pair) for pair in stand.links.get(name, ()))
        stroke, dash = ("muted", 4) if place is None else (place, dash_of(place))
        if lines:
            shapes.append(Lines(lines=lines, width=wide, strength=strong, stroke=stroke, dash=dash))
    for name in (None, *sorted(names)):
        if lines := _stub_lines(stand, stand.wraps.get(name, [])):
            role = "muted" if name is None else names.index(name)
            shapes.append(Lines(lines=tuple(lines), stroke=role, width=1.2, strength=0.6))
            x, y = zip(*((x - 2, y - 2) for _, (x, y) in lines), strict=True)
            shapes.append(Rects(x=x, y=y, wide=4, high=4, corner=2, fill="ground", stroke=role))
    for shade in sorted({n.shade for n in stand.nodes}):
        nodes = [node for node in stand.nodes if node.shade == shade]
        keys = tuple(node.places if len(node.places) <= MOST_CYCLED else node.places[:1] for node in nodes)
        tip_parts = tuple(tile_words(placed, node) for node in nodes)
        look = {"fill": "shade" if shade else "tile", "stroke": "line", "select": "device", "layer": _TILES}
        shapes.append(_rects(stand, nodes, tip="{} · {}", tip_parts=tip_parts, keys=keys, **look))
    paths = [path for path in placed.paths if path.size > 1]

    def look_of(place):
        return {"stroke": place, "dash": dash_of(place)} if tpu else {"fill": place}

    title = f"mesh {placed.mesh.shown} on {machine.text}"
    return Picture(
        width=stand.width,
        height=stand.height,
        shapes=tuple(shapes),
        title=title,
        alt=f"{title}. " + " ".join(f"{p.name}: {p}." for p in paths or placed.paths),
        axes=names,
        keys=tuple(LegendKey(text=f"{p.name}={p.size}: {p}", **look_of(names.index(p.name))) for p in placed.paths),
        notes=tuple(_notes(placed, stand)),
    )


def device_groups_picture(placed: Placement, place: int) -> Picture:
    """Return the groups of a picked device as an overlay on the machine's picture: members and links."""
    stand, names = floor(placed), placed.mesh.names
    shapes: list[Shape] = []
    own = int(stand.node_of[place])

    def lit(numbers: list[int], role: Role) -> Rects:
        """Return the tiles again, filled with a colour."""
        nodes = [stand.nodes[n] for n in numbers]
        return _rects(stand, nodes, fill=role, keys=tuple(node.places[:1] for node in nodes), layer=_LIT)

    for group in reversed(device_groups(placed, place)):
        axis = names.index(group.axis)
        look: dict[str, Any] = {"stroke": axis, "dash": dash_of(axis), "width": 2.8, "layer": _WAYS}
        nodes = list(dict.fromkeys(int(stand.node_of[m]) for m in group.members))
        lines: list[tuple[Point, ...]] = [_ends(stand, p) for p in stand.links.get(group.axis, ()) if p[0] in nodes]
        lines += _stub_lines(stand, [stub for stub in stand.wraps.get(group.axis, ()) if stub[0] in nodes])
        if stand.switch and not stand.grain and placed.route((group.axis,)).per_domain > 1:
            bars: dict[float, list[float]] = {}  # from each member down to the bar of its domain's switch
            for x, y, bar in ((stand.nodes[n].x, stand.nodes[n].y, stand.switch[n]) for n in nodes):
                lines.append(((x, y), (x, bar)))
                bars.setdefault(bar, []).append(x)
            lines += [((min(xs), bar), (max(xs), bar)) for bar, xs in bars.items()]
        if lines:
            shapes.append(Lines(lines=tuple(lines), **look))
        shapes.append(lit([n for n in nodes if n != own], axis))
    shapes.append(lit([own], "ink"))
    word = f"device {place}" if not placed.mesh.device_ids else f"the device at place {place}"
    key = LegendKey(text=f"{word}; the groups of its axes have the axes' colours", fill="ink")
    keys = (key,) if names else ()
    return Picture(width=stand.width, height=stand.height, shapes=tuple(shapes), axes=names, keys=keys)


def tile_words(placed: Placement, node: Tile) -> tuple[str, str]:
    """Return a tile's devices with their mesh coordinates, and its location in the machine."""
    place, *others = node.places
    if floor(placed).grain or others:
        return f"devices {device_ranges(node.places)}", node.text
    mesh = placed.mesh.shown
    at = zip(mesh.names, mesh.coordinates()[place].tolist(), strict=True)
    return ": ".join(filter(None, (f"device {place}", ", ".join(f"{a} {i}" for a, i in at)))), node.text


def _ends(stand: FloorPlan, pair: tuple[int, int]) -> tuple[Point, Point]:
    one, other = (stand.nodes[n] for n in pair)
    return (one.x, one.y), (other.x, other.y)


def _frames(stand: FloorPlan) -> Iterator[Shape]:
    outer: dict[str, Any] = {"stroke": "muted", "dash": 1}
    looks: dict[str, tuple[dict[str, Any], float, float]] = {
        "plane": ({"stroke": None, "fill": "ink", "strength": 0.045}, -4, 6),
        "slice": (outer, 5, 9),
        "domain": (outer, 6, 9),
        "host": ({"stroke": "line"}, 4, 7),
    }
    for kind in dict.fromkeys(frame.kind for frame in stand.frames):
        frames, (look, dx, dy) = [frame for frame in stand.frames if frame.kind == kind], looks[kind]
        yield Lines(lines=tuple(frame.points for frame in frames), closed=True, **look)
        at = tuple((frame.points[0][0] + dx, frame.points[0][1] + dy) for frame in frames)
        text = {"texts": tuple(frame.text for frame in frames), "size": "small", "ink": "quiet", "layer": _NAMES}
        yield Labels(at=at, align="end" if kind == "plane" else "start", halo=kind == "plane", **text)


def _stub_lines(stand: FloorPlan, stubs: list[tuple[int, float, float]]) -> list[tuple[Point, Point]]:
    """Return wraparound links as short lines with open ends."""
    wide, high = stand.tile
    stub = max(wide, high) / 2 + 7
    lines = []
    for node, dx, dy in stubs:
        x, y = stand.nodes[node].x, stand.nodes[node].y
        along = stub if high < wide * 0.8 and dx else high / 2 + 6  # to the side of a leaning tile, or up and down
        lines.append(((x, y), (x + dx * stub, y + dy * along)))
    return lines


def _rects(stand: FloorPlan, nodes: Sequence[Tile], **look: Any) -> Rects:
    wide, high = stand.tile
    texts = (" ".join(map(str, node.places)) if len(node.places) <= 2 else "" for node in nodes)
    return Rects(
        x=tuple(node.x - wide / 2 for node in nodes),
        y=tuple(node.y - high / 2 for node in nodes),
        wide=wide,
        high=high,
        corner=min(3.0, high / 5),
        labels=tuple(text if len(text) * 5.8 <= wide else "" for text in texts) if high >= 11 else (),
        **look,
    )


def _notes(placed: Placement, stand: FloorPlan) -> Iterator[str]:
    if stand.grain:
        yield stand.grain
    if placed.machine.chip.kind == "gpu":
        yield "the GPUs of an NVLink domain reach each other through its switch; domains are joined by the network"
        return
    if len({n.shade for n in stand.nodes}) > 1:
        yield "tiles of another shade are on another host"
    if stand.wraps:
        yield "a short line with an open end is a wraparound link"
    elif any(placed.machine.wrap):
        yield "wraparound links are too many to draw"
    if None in stand.links:
        yield "a dotted link joins two chips that differ along several mesh axes"


class AxisGroup(NamedTuple):
    """A device's group along a mesh axis: its members in order, and their connection in words."""

    axis: str
    members: tuple[int, ...]
    text: str


def device_groups(placed: Placement, place: int) -> tuple[AxisGroup, ...]:
    """Return the groups of a device along each mesh axis of size above 1."""
    groups = []
    for axis, (name, size) in enumerate(placed.mesh.shape.items()):
        if size > 1:
            members = tuple(group_along(placed.mesh, place, axis))
            groups.append(AxisGroup(name, members, f"{device_ranges(members)}: {placed.route((name,))}"))
    return tuple(groups)
