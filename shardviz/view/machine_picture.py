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

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shardviz.costs.placement import Placement
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
)

MOST_CYCLED = 8
"""Devices of a tile up to which clicking it again goes from one to the next."""
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
        if lines := _stub_lines(stand, stand.wraps.get(name, [])):
            role = "muted" if name is None else names.index(name)
            shapes.append(Lines(lines=tuple(lines), stroke=role, width=1.2, strength=0.6))
            shapes.append(Marks(at=tuple(end for _, end in lines), size=4, fill="ground", stroke=role))
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
    """The groups of a picked device, to be drawn over the machine's picture: their members, and the links between
    them."""
    stand, names = floor(placed), placed.mesh.names
    shapes: list[Shape] = []
    own = int(stand.node_of[place])

    def lit(numbers: list[int], role: Role) -> Rects:
        """The same tiles again, filled with a colour."""
        nodes = [stand.nodes[n] for n in numbers]
        return _rects(stand, nodes, fill=role, keys=tuple(node.places[:1] for node in nodes), layer=_LIT)

    for group in reversed(company(placed, place)):
        axis = names.index(group.axis)
        look: dict[str, Any] = {"stroke": axis, "dash": dash_of(axis), "width": 2.8, "layer": _WAYS, "name": group.axis}
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


def _stub_lines(stand: FloorPlan, stubs: list[tuple[int, float, float]]) -> list[tuple[Point, Point]]:
    """Wraparound links: short lines with open ends."""
    wide, high = stand.tile
    stub = max(wide, high) / 2 + 7
    lines = []
    for node, dx, dy in stubs:
        x, y = stand.nodes[node].x, stand.nodes[node].y
        along = stub if high < wide * 0.8 and dx else high / 2 + 6  # to the side of a leaning tile, or up and down
        lines.append(((x, y), (x + dx * stub, y + dy * along)))
    return lines


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
        yield "wraparound links are too many to draw"
    if None in stand.links:
        yield "a dotted link joins two chips that differ along several mesh axes"


class AxisGroup(NamedTuple):
    """The group of a device along a mesh axis: its members in order, and what joins them in words."""

    axis: str
    members: tuple[int, ...]
    text: str


def company(placed: Placement, place: int) -> tuple[AxisGroup, ...]:
    """The groups of the device at a place of the mesh, one for each mesh axis of more than one device."""
    groups = ((name, group_along(placed.mesh, place, axis)) for axis, name in enumerate(placed.mesh.names))
    return tuple(
        AxisGroup(name, tuple(members), f"{device_ranges(members)}: {placed.route((name,))}")
        for name, members in groups
        if len(members) > 1
    )
