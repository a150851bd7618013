"""What is drawn over a machine's picture where one plan is told against another: the links that are busy for longer or
for less time, the chips that hold more or less. Red and an arrow upwards is more, green and an arrow downwards less.

A link is busy with what moves along the mesh axis that steps along it. So two plans can be compared link by link, be
their meshes the same or not, as long as the machine is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from shardviz.costs.step_cost import StepCost
from shardviz.notation import axis_name
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.view.machine import Floor, floor
from shardviz.view.picture import Key, Lines, Marks, Picture, Point, Shape

MOST_MARKS = 48
"""Arrows on links, of which more are not drawn: they stand on every other link then, and so on."""
LEAST = 0.005
"""The least difference that is drawn, of the time that all links are busy, or of the memory."""
_UNDER, _BETWEEN, _OVER = -1, 1, 3  # layers: below the links, below the tiles, above them

Between = tuple[str | None, str | None]


def busy_along(cost: StepCost) -> dict[str, float]:
    """Mesh axis → seconds in a step for which the links along it are busy."""
    found: dict[str, float] = {}
    for total in cost.by("axes"):
        for name in dict.fromkeys(axis_name(axis) for axis in total.axes or ()):
            found[name] = found.get(name, 0.0) + (total.seconds or 0.0)
    return found


def machine_difference(here: StepCost, there: StepCost) -> Picture | None:
    """What is different on the machine's links and chips.

    Args:
        here: a step on a machine, of which the picture under it is.
        there: another on the same machine.

    Returns:
        The picture that lies over `machine_picture(here.placement)`; None where nothing is different that could be
        drawn, or where the machines are others.
    """
    if here.machine != there.machine or here.machine.chip.kind == "cpu":
        return None
    stand, other = floor(here.placement), floor(there.placement)
    shapes: list[Shape] = []
    keys: list[Key] = []
    seconds = busy_along(here), busy_along(there)
    most = max(*(sum(each.values()) for each in seconds), 1e-12)
    groups = _by_axes(stand, other)
    more = {over: _busy(seconds[0], over[0]) - _busy(seconds[1], over[1]) for over in groups}
    drawn = {over: change for over, change in more.items() if abs(change) >= LEAST * most}
    strongest = max(map(abs, drawn.values()), default=1.0)
    for over, change in sorted(drawn.items(), key=lambda item: -abs(item[1])):
        lines, role = groups[over], _role(change)
        wide = 4 + 6 * abs(change) / strongest
        shapes.append(
            Lines(
                lines=tuple(line for line, _ in lines),
                stroke=role,
                strength=0.4,
                width=wide,
                name=f"links {over}",
                layer=_UNDER,
            )
        )
        whole = [line for line, stub in lines if not stub] or [line for line, _ in lines]
        some = whole[:: -(-len(whole) // MOST_MARKS)]
        middles = tuple((sum(x for x, _ in line) / len(line), sum(y for _, y in line) / len(line)) for line in some)
        shapes.append(Marks(at=middles, mark=_mark(change), size=8, fill=role, stroke="ground", layer=_BETWEEN))
        text = f"{_links(over)}: busy {_said(change, format_seconds(abs(change)))}"
        keys.append(Key(text=text, stroke=role, mark=_mark(change), name=f"links {over}"))
    seen = {axis for over in groups for axis in over}
    for axis in dict.fromkeys((*seconds[0], *seconds[1])):
        change = _busy(seconds[0], axis) - _busy(seconds[1], axis)
        if axis not in seen and abs(change) >= LEAST * most:  # a switch's, a network's, or inside a chip
            text = f"what {axis} rides on: busy {_said(change, format_seconds(abs(change)))}"
            keys.append(Key(text=text, stroke=_role(change), mark=_mark(change)))
    holds = sum(here.needs.parts.values()), sum(there.needs.parts.values())
    change = holds[0] - holds[1]
    if here.needs.complete == there.needs.complete and abs(change) >= LEAST * max(*holds, 1.0):
        shapes.append(_chips(stand, change))
        text = (
            f"each {'chip' if here.machine.chip.kind == 'tpu' else 'GPU'}: {_said(change, format_bytes(abs(change)))}"
        )
        keys.append(Key(text=f"{text} of memory", stroke=_role(change), mark=_mark(change), name="chips"))
    if not keys:
        return None
    return Picture(width=stand.width, height=stand.height, shapes=tuple(shapes), axes=here.mesh.names, keys=tuple(keys))


def _busy(seconds: dict[str, float], axis: str | None) -> float:
    return seconds.get(axis, 0.0) if axis is not None else 0.0


def _role(change: float) -> str:
    return "more" if change > 0 else "less"


def _mark(change: float) -> str:
    return "up" if change > 0 else "down"


def _said(change: float, amount: str) -> str:
    return f"{amount} {_role(change)}"


def _links(over: Between) -> str:
    here, there = over
    if here == there:
        return f"links along {here}"
    return f"links along {here or 'no one axis'}, there along {there or 'no one axis'}"


def _by_axes(stand: Floor, other: Floor) -> dict[Between, list[tuple[tuple[Point, ...], bool]]]:
    """The links by the mesh axes that step along them here and there: where each is drawn, and whether as a stub."""
    along = dict(_links_of(other))
    found: dict[Between, list[tuple[tuple[Point, ...], bool]]] = {}
    for link, axis in _links_of(stand):
        if axis is not None or along.get(link) is not None:
            found.setdefault((axis, along.get(link)), []).append(_drawn(stand, link))
    return found


def _links_of(stand: Floor) -> Iterator[tuple[Hashable, str | None]]:
    """Every link that is drawn, by its nodes or by its node and the way that its stub points, with its mesh axis."""
    for axis, pairs in stand.links.items():
        for one, two in pairs:
            yield (min(one, two), max(one, two)), axis
    for axis, stubs in stand.wraps.items():
        for stub in stubs:
            yield stub, axis


def _drawn(stand: Floor, link: Hashable) -> tuple[tuple[Point, ...], bool]:
    first, *rest = link  # type: ignore[misc]
    node = stand.nodes[first]
    if len(rest) == 1:
        end = stand.nodes[rest[0]]
        return ((node.x, node.y), (end.x, end.y)), False
    dx, dy = rest
    reach = max(stand.tile) / 2 + 7
    return ((node.x, node.y), (node.x + dx * reach, node.y + dy * reach)), True


def _chips(stand: Floor, change: float) -> Lines:
    """Outlines of the tiles."""
    wide, high = (side / 2 + 1 for side in stand.tile)
    boxes = tuple(
        ((n.x - wide, n.y - high), (n.x + wide, n.y - high), (n.x + wide, n.y + high), (n.x - wide, n.y + high))
        for n in stand.nodes
    )
    return Lines(lines=boxes, closed=True, stroke=_role(change), width=1.6, name="chips", layer=_OVER)
