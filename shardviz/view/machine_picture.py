"""A machine's picture: chips and links with the mesh on them, and over it one device's company along each mesh axis.

>>> from shardviz.costs.placement import Placement
>>> place = Placement.of("data=4,model=2", "tpu v5e:2x4")
>>> [(group.axis, group.members) for group in company(place, 5)]
[('data', (1, 3, 5, 7)), ('model', (4, 5))]
>>> picture = machine_picture(place)
>>> picture.over(company_picture(place, 5)).axes
('data', 'model')
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.costs.routes import Route, way
from shardviz.view.document import device_ranges
from shardviz.view.machine import FloorPlan, Tile, floor
from shardviz.view.picture import (
    Labels,
    LegendKey,
    Lines,
    Marks,
    Picture,
    Point,
    Rects,
    Role,
    Shape,
    dash_of,
    group_along,
    text_wide,
)

MOST_CYCLED = 8
"""Devices of a tile up to which clicking it again goes from one to the next."""
MOST_FAR = 128
"""Ways over the network of which more are not drawn."""
_WAYS, _TILES, _LIT, _NAMES = 1, 2, 3, 4  # layers


def machine_picture(placed: Placement) -> Picture:
    """A machine with a mesh on it; each tile selects its devices. A link has the colour and dash of the mesh axis that
    steps along it; a stub with an open end is a link that goes round to the other side."""
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
        if stubs := stand.wraps.get(name):
            shapes += _stubs(stand, stubs, "muted" if name is None else names.index(name))
    for shade in sorted({n.shade for n in stand.nodes}):
        nodes = [node for node in stand.nodes if node.shade == shade]
        keys = tuple(node.places if len(node.places) <= MOST_CYCLED else node.places[:1] for node in nodes)
        told = tuple(tile_words(placed, node) for node in nodes)
        look = {"fill": "shade" if shade else "tile", "stroke": "line", "select": "device", "layer": _TILES}
        shapes.append(_rects(stand, nodes, tip="{} · {}", told=told, keys=keys, **look))
    paths = [path for path in placed.paths if path.size > 1]
    look = lambda place: {"stroke": place, "dash": dash_of(place)} if tpu else {"fill": place}  # noqa: E731
    title = f"mesh {placed.mesh} on {machine.text}"
    return Picture(
        width=stand.width,
        height=stand.height,
        shapes=tuple(shapes),
        title=title,
        alt=f"{title}. " + " ".join(f"{p.name}: {p}." for p in paths or placed.paths),
        axes=names,
        keys=tuple(LegendKey(text=f"{p.name}={p.size}: {p}", **look(names.index(p.name))) for p in placed.paths),
        notes=tuple(_notes(placed, stand)),
    )


def company_picture(placed: Placement, place: int) -> Picture:
    """The groups of a picked device, to be drawn over the machine's picture: their members and links."""
    stand, names = floor(placed), placed.mesh.names
    shapes: list[Shape] = []
    named: set[str] = set()
    own = int(stand.node_of[place])

    def lit(numbers: list[int], role: Role) -> Rects:
        """The same tiles again, filled with a colour."""
        nodes = [stand.nodes[n] for n in numbers]
        return _rects(stand, nodes, fill=role, keys=tuple(node.places[:1] for node in nodes), layer=_LIT)

    for group in reversed(company(placed, place)):
        axis = names.index(group.axis)
        look: dict[str, Any] = {"stroke": axis, "dash": dash_of(axis), "width": 2.8, "layer": _WAYS, "name": group.axis}
        nodes = list(dict.fromkeys(int(stand.node_of[m]) for m in group.members))
        straight: list[tuple[Point, ...]] = [_ends(stand, pair) for pair in group.hops]
        if group.domains and stand.switch and not stand.grain:
            bars: dict[float, list[float]] = {}  # from each member down to the bar of its domain's switch
            for x, y, bar in ((stand.nodes[n].x, stand.nodes[n].y, stand.switch[n]) for n in nodes):
                straight.append(((x, y), (x, bar)))
                bars.setdefault(bar, []).append(x)
            straight += [((min(xs), bar), (max(xs), bar)) for bar, xs in bars.items()]
        if straight:
            shapes.append(Lines(lines=tuple(straight), **look))
        if group.arcs:
            shapes.append(Lines(lines=tuple(arc.curve for arc in group.arcs), curved=True, **look))
        if 0 < len(group.far) <= MOST_FAR:
            far = tuple(_ends(stand, pair) for pair in group.far)
            shapes.append(Lines(lines=far, **{**look, "width": 1.6, "strength": 0.8}))
        shapes.append(lit([n for n in nodes if n != own], axis))
        for arc in group.arcs:
            if arc.text not in named:  # one of them is enough to say it
                named.add(arc.text)
                half = text_wide(arc.text, "small") * 0.55
                at = min(max(arc.name_at[0], half), stand.width - half), arc.name_at[1]
                say: dict[str, Any] = {"align": "middle", "size": "small", "bold": True, "halo": True}
                shapes.append(Labels(at=(at,), texts=(arc.text,), layer=_NAMES, **say))
    shapes.append(lit([own], "ink"))
    word = f"device {place}" if not placed.mesh.device_ids else f"the device at place {place}"
    key = LegendKey(text=f"{word}; the groups of its axes have the axes' colours", fill="ink")
    keys = (key,) if names else ()
    return Picture(width=stand.width, height=stand.height, shapes=tuple(shapes), axes=names, keys=keys)


def tile_words(placed: Placement, node: Tile) -> tuple[str, str]:
    """The devices on a tile with their places along the mesh axes, and where in the machine it is."""
    place, *others = node.places
    if floor(placed).grain or others:
        return f"devices {device_ranges(node.places)}", node.text
    at = zip(placed.mesh.names, placed.mesh.coordinates()[place].tolist(), strict=True)
    return ": ".join(filter(None, (f"device {place}", ", ".join(f"{a} {i}" for a, i in at)))), node.text


def _ends(stand: FloorPlan, pair: tuple[int, int]) -> tuple[Point, Point]:
    one, other = (stand.nodes[n] for n in pair)
    return (one.x, one.y), (other.x, other.y)


def _frames(stand: FloorPlan) -> Iterator[Shape]:
    """Outlines, each with its name."""
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


def _stubs(stand: FloorPlan, stubs: list[tuple[int, float, float]], role: Role) -> list[Shape]:
    """Wraparound links: short lines with open ends."""
    wide, high = stand.tile
    stub = max(wide, high) / 2 + 7
    lines = []
    for node, dx, dy in stubs:
        x, y = stand.nodes[node].x, stand.nodes[node].y
        along = stub if high < wide * 0.8 and dx else high / 2 + 6  # to the side of a leaning tile, or up and down
        lines.append(((x, y), (x + dx * stub, y + dy * along)))
    ends = tuple(line[1] for line in lines)
    return [
        Lines(lines=tuple(lines), stroke=role, width=1.2, strength=0.6),
        Marks(at=ends, size=4, fill="ground", stroke=role),
    ]


def _rects(stand: FloorPlan, nodes: Sequence[Tile], **look: Any) -> Rects:
    """Tiles, with the numbers of their devices where there is room for them."""
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
    """What the picture's signs mean."""
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
        yield "wraparound links are drawn for the selected device"
    if None in stand.links:
        yield "a dotted link joins two chips that differ along several mesh axes"


class Arc(NamedTuple):
    """A link that wraps around, as a curve between two nodes; where its text (`x wraps`) stands, and that."""

    one: int
    other: int
    curve: tuple[Point, ...]
    name_at: Point
    text: str


@dataclass(frozen=True)
class AxisGroup:
    """The group of a device along a mesh axis: its members in order, the pairs of nodes on the way from each to the
    next (`hops`, `arcs` for links that wrap around, `far` for slices or NVLink domains joined by the network), and
    whether they reach each other through the switch of their NVLink domain (`domains`)."""

    axis: str
    members: tuple[int, ...]
    hops: tuple[tuple[int, int], ...]
    arcs: tuple[Arc, ...]
    far: tuple[tuple[int, int], ...]
    domains: bool
    text: str


def company(placed: Placement, place: int) -> tuple[AxisGroup, ...]:
    """The groups of the device at a place of the mesh, one for each mesh axis of more than one device."""
    return tuple(
        _group(placed, floor(placed), place, axis, name)
        for axis, (name, size) in enumerate(placed.mesh.shape.items())
        if size > 1
    )


def _group(placed: Placement, stand: FloorPlan, place: int, axis: int, name: str) -> AxisGroup:
    members = tuple(group_along(placed.mesh, place, axis))
    route, machine = placed.route((name,)), placed.machine
    hops: dict[tuple[int, int], None] = {}
    arcs: dict[tuple[int, int], Arc] = {}
    far: dict[tuple[int, int], None] = {}
    node, order = stand.node_of, np.asarray(placed.order)
    devices = order[list(members)]
    across = [stand.nodes[node[m]].x for m in members]
    right = 2 * sum(across) > len(across) * stand.width  # the nearer side, to go round
    where = (machine.nvlink_domains() if machine.chip.kind == "gpu" else machine.slices())[devices]
    if machine.chip.kind == "tpu":
        for part in np.unique(where).tolist():
            for one, other in _ring(machine, route, devices[where == part]):
                for hop, along, wraps in _hops(placed, stand, one, other):
                    if wraps:
                        arcs.setdefault((min(hop), max(hop)), _arc(stand, hop, along, right))
                    else:
                        hops.setdefault((min(hop), max(hop)))
    heads = [members[int(np.argmax(where == part))] for part in dict.fromkeys(where.tolist())]
    for one, other in itertools.pairwise(heads):
        if node[one] != node[other]:
            far.setdefault((int(node[one]), int(node[other])))
    domains = machine.chip.kind == "gpu" and route.per_domain > 1
    text = f"{device_ranges(members)}: {route}"
    return AxisGroup(name, members, tuple(hops), tuple(arcs.values()), tuple(far), domains, text)


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


def _hops(placed: Placement, stand: FloorPlan, one: int, other: int) -> Iterator[tuple[tuple[int, int], int, bool]]:
    """The nodes of each link of the way between two devices of a slice, its axis, and whether it wraps."""
    machine = placed.machine
    coords, part = machine.coords(), int(machine.slices()[one])
    counts = [n // b for n, b in zip(machine.shape, stand.block, strict=True)]
    chips = way(machine, *(tuple(map(int, coords[end, :3])) for end in (one, other)))  # type: ignore[arg-type]

    def number(chip: tuple[int, int, int]) -> int:
        x, y, z = (c // b for c, b in zip(chip, stand.block, strict=True))
        return ((part * counts[2] + z) * counts[1] + y) * counts[0] + x

    for a, b in itertools.pairwise(chips):
        along = next(i for i in range(3) if a[i] != b[i])
        pair = number(a), number(b)
        if pair[0] != pair[1]:
            yield pair, along, abs(a[along] - b[along]) > 1


def _arc(stand: FloorPlan, pair: tuple[int, int], along: int, right: bool) -> Arc:
    """A curve for a wraparound link, which bulges away from the tiles between its ends."""
    one, other = sorted((stand.nodes[n] for n in pair), key=lambda n: (n.x, n.y))
    bulge = min(34, 14 + 0.12 * (abs(other.x - one.x) + abs(other.y - one.y)))
    dx, dy = ((0.0, -bulge), (-bulge, 0.0), (0.0, 0.0))[along]
    if along == 2:
        edge = max(n.x for n in stand.nodes) + 30 if right else min(n.x for n in stand.nodes) - 30
        dx = (edge - one.x) / 0.75  # past the planes
    curve = (one.x, one.y), (one.x + dx, one.y + dy), (other.x + dx, other.y + dy), (other.x, other.y)
    middle = (one.x + other.x) / 2 + 0.75 * dx, (one.y + other.y) / 2 + 0.75 * dy
    return Arc(*pair, curve, middle, f"{'xyz'[along]} wraps")
