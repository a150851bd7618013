"""Animations of reshardings and collectives. A device is a tile with a map of the array; messages are boxes that move.

A `Film` is the geometry of all steps: the boxes on each device with their first and last step, and the messages of
each step. Each step also has a sentence, and a frame in characters.

>>> print(animate((8, 4), ("x",), (None, None), {"x": 2}, dtype="float32").text())
animation: P('x', None) → P(None, None), 128 B between devices
2 devices, level propagated
<BLANKLINE>
0. Each device holds 64 B.
  0 ████  1 ····
    ····    ████
<BLANKLINE>
1. all-gather over x: 2 devices send 64 B each; 128 B sent so far, 64 B in all on each step's busiest link.
  0 ████  1 ▒▒▒▒
    ▒▒▒▒    ████
<BLANKLINE>
█ held  ▒ received in this step  ░ partial sum  · not held
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardviz.caching import cached_property
from shardviz.costs import motion as motions
from shardviz.costs.machine import Machine, machine_of
from shardviz.costs.placement import Placement
from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.layouts import Moves
from shardviz.notation import DeviceMesh, axis_name
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.collectives import axes_words
from shardviz.stablehlo.resharding import moves_between
from shardviz.view import document as doc
from shardviz.view.picture import Film, Flight, Patch, Rect
from shardviz.view.show import read_one

MOST_DEVICES, MOST_STEPS, MOST_ROWS, MOST_COLUMNS = 16, 24, 8, 16
_IN_A_ROW = 8  # the most tiles side by side
_TILE, _HEAD, _BETWEEN = 92.0, 18.0, 16.0  # pixels: the width of a tile, the height of its number, the room between
HELD, RECEIVED, PARTIAL, SOME, NOTHING = "█▒░▄·"

Box = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False, repr=False)
class Animation(Displayed):
    """An animation of a resharding or a collective, which plays in a notebook without scripts.

    Attributes:
        motion: the messages, step by step.
    """

    motion: motions.Motion
    _width = 100

    @cached_property
    def film(self) -> Film:
        """The geometry of all steps."""
        return _Director(self.motion).film()


def animate(
    what: Any,
    before: Any = None,
    after: Any = None,
    mesh: Any = None,
    *,
    dtype: Any = None,
    target: str | Machine | None = None,
) -> Animation:
    """Animate a resharding or a collective: the shards travel between the devices step by step, and a counter shows the
    bytes on the links.

    A notebook plays it without scripts; arrow keys go from step to step. Readers who prefer reduced motion, and copies
    that do not move (GitHub, PDF), get a frame per step. `.save("file.html")` writes one self-contained page.

    Args:
        what: a resharding, as `sv.moves` returns it; a collective of a report (then `mesh=report.mesh`); or a shape or
            an array as `sv.show` takes it, with `before` and `after`.
        before, after: the two shardings of a shape or an array, as in `sv.show`; `before=None` is the array's own.
        mesh: the mesh. If `after` is a sharding on other devices, the messages are those of `sv.reshard`.
        dtype: the element type, for bytes; by default the array's own. Without one, elements are counted.
        target: the machine, such as `tpu v5e:2x4`, whose links are counted. Rings then run as the machine's links
            allow: both ways around a torus, both ways along a line.

    Returns:
        An `Animation`, which shows itself; `.motion` has the messages as arrays.

    Raises:
        ShardvizError: if `before`, `after` or the mesh is missing, or the mesh has more than 512 devices.
        SpecError: if a sharding does not fit, or the change cannot be made.
        TargetError: if the machine is unknown, or has another number of devices.

    Examples:
        >>> import shardviz as sv
        >>> gather = sv.animate((8, 4), ("x",), (), {"x": 4}, dtype="bfloat16")
        >>> [len(step.senders) for step in gather.motion.steps]
        [4, 4, 4]
    """
    if isinstance(what, Collective):
        if mesh is None:
            raise ShardvizError(f"animate({what.kind}): a collective does not carry its mesh; give mesh=report.mesh")
        own, level = DeviceMesh.of(mesh), "partitioned" if what.groups else "propagated"
        return Animation(motions.motion_of_collective(what, own, _placed(own, target), level))
    if isinstance(what, Moves):
        return Animation(motions.motion_of_moves(what, dtype, _placed(what.before.mesh, target)))
    if after is None:
        raise ShardvizError(
            "animate: `after` is missing; give the sharding after, as in animate((8, 8), ('x',), (None, 'x'), {'x': 4})"
        )
    old = read_one(what, before, mesh)
    own_mesh = getattr(after, "mesh", None)
    new = read_one(old.layout.shape, after, own_mesh if own_mesh is not None else old.layout.mesh)
    dtype = old.dtype if dtype is None else dtype
    if set(old.layout.device_ids.tolist()) != set(new.layout.device_ids.tolist()):
        if target is not None:
            raise ShardvizError("animate: target is for one set of devices; leave it out between two meshes")
        return Animation(motions.motion_between(old.layout, new.layout, dtype))
    return animate(moves_between(old.layout, new.layout), dtype=dtype, target=target)


def _placed(mesh: DeviceMesh, target: str | Machine | None) -> Placement | None:
    return None if target is None else Placement.of(mesh, target)


def amount(motion: motions.Motion, elements: float) -> str:
    """Return a number of elements in bytes; as elements if their type is unknown."""
    if motion.bytes_per_element is None:
        return plural(round(elements), "element")
    return format_bytes(elements * motion.bytes_per_element)


@dataclass
class _Holding:
    """A box on a device, while the steps are played."""

    box: Box
    since: int
    role: int | str | None
    count: int = 0
    """The partial sums in it; 0 for final elements."""
    until: int | None = None


class _Director:
    """Plays a motion on the devices that are drawn, and lays it out."""

    def __init__(self, motion: motions.Motion):
        self.motion = motion
        self.devices = _drawn(motion)
        self.last = min(len(motion.steps), MOST_STEPS)
        self.holdings: dict[int, list[_Holding]] = {device: [] for device in self.devices}
        self.map = _Map.of(motion)
        sizes = motion.mesh.sizes
        across = sizes[-1] if sizes and 1 < sizes[-1] <= _IN_A_ROW else _IN_A_ROW
        if len(sizes) == 2 and sizes[1] < sizes[0] <= _IN_A_ROW and self.devices == motion.mesh.ids().tolist():
            across, turned = sizes[0], motion.mesh.ids().reshape(sizes).T  # the longer axis goes to the right
            self.devices = turned.ravel().tolist()
        self.columns = min(across, max(1, len(self.devices)))
        self.tiles = self._tiles()

    def film(self) -> Film:
        """Return the geometry of all steps."""
        motion, flights = self.motion, []
        sums = motion.start.sums
        for device, start, stop in motions.holders(motion.start):
            if device in self.holdings:
                boxes = self._added(device) or {(start, stop): None}
                self.holdings[device] += [_Holding(box, 0, None, int(sums > 1)) for box in boxes]
        captions, counts, frames = [_first(motion)], [_count(motion, 0)], [self._frame()]
        for number, step in enumerate(motion.steps, 1):
            at, messages = min(number, self.last), _messages(step)
            if number == at:
                flights += self._flights(step, at)
            self._arrive(step, at)
            if step.keeps is not None:
                self._keep(step.keeps, at)
            if number < self.last or number == len(motion.steps):
                counts.append(_count(motion, number))
                captions.append(f"{_caption(motion, number, self.last)}; {counts[-1]}.")
                frames.append(self._frame(messages))
        wide = max(x + w for x, _, w, _ in self.tiles.values()) + 4
        high = max(y + h for _, y, _, h in self.tiles.values()) + 4
        at_once = self.last == len(motion.steps)  # of steps that are one picture, only what stays is drawn
        patches = [
            Patch(
                rects=self._at(device, held.box),
                since=held.since,
                until=held.until,
                role=held.role,
                label=f"{held.count}/{sums}" if held.count else "",
            )
            for device, each in self.holdings.items()
            for held in each
            if at_once or held.until is None or held.since < held.until
        ]
        places = {f.role for f in flights if isinstance(f.role, int)}
        return Film(
            title=f"{motion.title}, {amount(motion, int(motion.sent().sum()))} between devices",
            axes={place: motion.mesh.names[place] for place in sorted(places)},
            legend=LEGEND,
            width=wide,
            height=high,
            tiles=self.tiles,
            patches=tuple(patches),
            flights=tuple(flights),
            captions=tuple(captions),
            counts=tuple(counts),
            frames=tuple(frames),
        )

    def _tiles(self) -> dict[int, Rect]:
        """Return the map of each device: rows and columns as the mesh has them, as far as there is room."""
        across, down = _TILE + _BETWEEN, self.map.high + _HEAD + _BETWEEN
        places = ((device, divmod(n, self.columns)) for n, device in enumerate(self.devices))
        return {d: (c * across + 4, r * down + _HEAD + 2, _TILE, self.map.high) for d, (r, c) in places}

    def _at(self, device: int, box: Box) -> tuple[Rect, ...]:
        x, y, wide, high = self.tiles[device]
        return tuple((x + a * wide, y + b * high, c * wide, d * high) for a, b, c, d in self.map.places(box))

    def _flights(self, step: motions.MotionStep, at: int) -> Iterator[Flight]:
        role = _role(step, self.motion.mesh)
        for sender, receiver, box in _messages(step):
            if sender in self.tiles and receiver in self.tiles:
                (x, y, *_), (to_x, to_y, *_) = self.tiles[sender], self.tiles[receiver]
                yield Flight(rects=self._at(sender, box), step=at, way=(to_x - x, to_y - y), role=role)

    def _added(self, device: int) -> dict[Box, None]:
        """Return the boxes of the first reduction's messages from or to a device, which divide its partial sums."""
        boxes: dict[Box, None] = {}
        for step in self.motion.steps:
            if step.adds:
                boxes |= {box: None for *ends, box in _messages(step) if device in ends}
            if step.keeps is not None:
                break
        return boxes

    def _arrive(self, step: motions.MotionStep, at: int) -> None:
        role, came = _role(step, self.motion.mesh), []
        for sender, receiver, box in _messages(step):
            if receiver in self.holdings:
                drawn = sender if sender in self.holdings else receiver  # neighbours add equally much
                count = self._count(receiver, box) + self._count(drawn, box) if step.adds else 0
                came.append((receiver, _Holding(box, at, role, count if count < self.motion.start.sums else 0)))
        for receiver, holding in came:
            for held in self.holdings[receiver]:
                if held.until is None and held.box == holding.box:
                    held.until = at
            self.holdings[receiver].append(holding)

    def _count(self, device: int, box: Box) -> int:
        """Return the partial sums that a device has added up in a box."""
        starts, stops = box
        for held in reversed(self.holdings[device]):
            begins, ends = held.box
            if all(map(operator.le, begins, starts)) and all(map(operator.ge, ends, stops)):
                return held.count
        return 1

    def _keep(self, keeps: motions.Boxes, at: int) -> None:
        boxes = {device: (start, stop) for device, start, stop in motions.holders(keeps)}
        for device, each in self.holdings.items():
            now = [held for held in each if held.until is None]
            if len(now) == 1 and boxes.get(device) == now[0].box and now[0].since < at:
                continue
            for held in now:
                held.until = at
            if device in boxes:
                count = min((held.count for held in now if held.count), default=0) if keeps.sums > 1 else 0
                each.append(_Holding(boxes[device], at, None, count))

    def _frame(self, messages: Sequence[tuple[int, int, Box]] = ()) -> str:
        """Return what each drawn device holds after a step with these messages, in characters."""
        rows = []
        for device in self.devices:
            canvas = np.full(self.map.cells, NOTHING, "<U1")
            for held in self.holdings[device]:
                if held.until is None:
                    self.map.mark(canvas, held.box, PARTIAL if held.count else HELD)
            for _, receiver, box in messages:
                if receiver == device:
                    self.map.mark(canvas, box, RECEIVED, only=np.isin(canvas, (HELD, PARTIAL)))
            rows.append(["".join(row) for row in np.repeat(canvas, max(1, 4 // self.map.cells[1]), axis=1)])
        wide, lines = max(len(str(device)) for device in self.devices), []
        for first in range(0, len(rows), self.columns):
            these = range(first, min(first + self.columns, len(rows)))
            for row in range(self.map.cells[0]):
                cells = (f"{self.devices[n] if row == 0 else '':>{wide}} {rows[n][row]}" for n in these)
                lines.append("  " + "  ".join(cells))
            if self.map.cells[0] > 1 and these[-1] + 1 < len(rows):
                lines.append("")
        return "\n".join(lines)


def _messages(step: motions.MotionStep) -> list[tuple[int, int, Box]]:
    boxes = zip(map(tuple, step.starts.tolist()), map(tuple, step.stops.tolist()), strict=True)
    return list(zip(step.senders.tolist(), step.receivers.tolist(), boxes, strict=True))


def _role(step: motions.MotionStep, mesh: DeviceMesh) -> int | str:
    """Return the mesh axis over which a step's messages travel, by its position; `muted` for none."""
    name = axis_name(step.axes[0]) if step.axes else None
    return mesh.names.index(name) if name in mesh.names else "muted"


def _drawn(motion: motions.Motion) -> list[int]:
    """Return the devices to draw: all, or the first ones with the devices that they exchange messages with."""
    devices = motion.devices
    if len(devices) <= MOST_DEVICES:
        return devices
    partners: dict[int, set[int]] = {device: set() for device in devices}
    for step in motion.steps:
        for sender, receiver in zip(step.senders.tolist(), step.receivers.tolist(), strict=True):
            partners[sender].add(receiver)
            partners[receiver].add(sender)
    chosen: dict[int, None] = {}
    for device in devices:
        reached, new = {device}, {device}
        while new := set().union(*(partners[each] for each in new)) - reached:
            reached |= new
        if device not in chosen and (not chosen or len(chosen) + len(reached) <= MOST_DEVICES):
            chosen |= dict.fromkeys(each for each in devices if each in reached)
    order = {device: n for n, device in enumerate(devices)}
    return sorted(list(chosen)[:MOST_DEVICES], key=order.__getitem__)


@dataclass(frozen=True)
class _Map:
    """Where a box of the array lies on a device's map, as shares of its width and height.

    Attributes:
        rows: the dimension downwards; None for none.
        columns: the dimensions to the right, the last innermost.
        shape: the array's shape.
        edges: for `rows` and each of `columns`, where boxes begin and end.
    """

    rows: int | None
    columns: tuple[int, ...]
    shape: tuple[int, ...]
    edges: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, motion: motions.Motion) -> _Map:
        shape, rank = motion.shape, len(motion.shape)
        ends = [motion.start, *(step.keeps for step in motion.steps if step.keeps is not None)]
        sides = [side for held in ends for side in held[1:3]]
        sides += [side for step in motion.steps for side in (step.starts, step.stops)]
        edges = {d: sorted({0, shape[d], *np.concatenate([s[:, d] for s in sides]).tolist()}) for d in range(rank)}
        varied = [d for d in range(rank) if len(edges[d]) > 2]
        if len(varied) < 2:
            varied = sorted({*varied, *range(max(0, rank - 2 + len(varied)), rank)})[-2:]
            varied = varied if len(varied) == 2 or rank < 2 else [rank - 2, rank - 1]
        rows = varied[0] if len(varied) > 1 else None
        return cls(rows, tuple(varied[1:] if rows is not None else varied), shape, {d: tuple(edges[d]) for d in edges})

    @property
    def high(self) -> float:
        """The height of a map in pixels."""
        if self.rows is None:
            return 22.0
        size = max(1, math.prod(self.shape[d] for d in self.columns))
        return float(np.clip(_TILE * (self.shape[self.rows] / size) ** 0.35, 34, 96))

    def _spans(self, box: Box, d: int) -> tuple[float, float]:
        size = max(1, self.shape[d])
        return box[0][d] / size, box[1][d] / size

    def places(self, box: Box) -> Iterator[Rect]:
        """Yield the rectangles of a box: x, y, width and height; several where outer dimensions are side by side."""
        top, bottom = (0.0, 1.0) if self.rows is None else self._spans(box, self.rows)
        bands = [(0.0, 1.0)]
        for d in self.columns[:-1]:
            low, high = box[0][d], box[1][d]
            parts = [n for n, (a, b) in enumerate(itertools.pairwise(self.edges[d])) if low <= a and b <= high]
            count = len(self.edges[d]) - 1
            bands = [(left + wide * n / count, wide / count) for left, wide in bands for n in parts]
        low, high = self._spans(box, self.columns[-1]) if self.columns else (0.0, 1.0)
        if high > low and bottom > top:
            for left, wide in bands:
                yield left + wide * low, top, wide * (high - low), bottom - top

    @cached_property
    def _lines(self) -> tuple[list[float], list[float]]:
        """The edges of the characters' rows and columns, as shares."""
        down = [0.0, 1.0] if self.rows is None else [e / max(1, self.shape[self.rows]) for e in self.edges[self.rows]]
        across = [0.0, 1.0]
        for d in self.columns:
            last = d == self.columns[-1]
            count = len(self.edges[d]) - 1
            inner = [e / max(1, self.shape[d]) if last else n / count for n, e in enumerate(self.edges[d])]
            across = [a + (b - a) * each for a, b in itertools.pairwise(across) for each in inner[:-1]] + [1.0]
        return tuple(
            lines if len(lines) <= most + 1 else [n / most for n in range(most + 1)]
            for lines, most in ((down, MOST_ROWS), (across, MOST_COLUMNS))
        )  # type: ignore[return-value]

    @property
    def cells(self) -> tuple[int, int]:
        """Rows and columns of a map in characters."""
        return len(self._lines[0]) - 1, len(self._lines[1]) - 1

    def mark(self, canvas: np.ndarray, box: Box, mark: str, only: np.ndarray | None = None) -> None:
        """Write a character into the cells of a box, and `▄` into cells that the box covers in part."""
        for x, y, wide, high in self.places(box):
            shares = [
                np.array([max(0.0, min(b, at + size) - max(a, at)) / (b - a) for a, b in itertools.pairwise(lines)])
                for lines, at, size in zip(self._lines, (y, x), (high, wide), strict=True)
            ]
            share = np.outer(*shares)
            some, full = share > 1e-6, share > 1 - 1e-6
            for where, letter in ((some & ~full & (canvas == NOTHING), SOME), (full, mark)):
                canvas[where if only is None else where & only] = letter


def _first(motion: motions.Motion) -> str:
    """Return the sentence of the start."""
    boxes = np.prod(motion.start.stops - motion.start.starts, axis=1)
    partial = f" of one of {motion.start.sums} partial sums" if motion.start.sums > 1 else ""
    most = int(boxes.max(initial=0))
    where = "Each device" if len(boxes) == motion.mesh.size else f"{plural(len(boxes), 'device')} of {motion.mesh.size}"
    return f"{where} {'holds' if where == 'Each device' else 'hold'} {amount(motion, most)}{partial}."


def _caption(motion: motions.Motion, number: int, last: int) -> str:
    """Return the sentence of a step: who sends, how much, and the bytes on the links so far."""
    step = motion.steps[number - 1]
    over = f" over {axes_words(step.axes)}" if step.axes else ""
    part = f", {step.number} of {step.count}" if step.count > 1 else ""
    if number > last:
        part = f", {last} to {number} together"
    if not len(step.senders):
        sent = "nothing is sent, each device keeps its shard"
    else:
        senders = len(np.unique(step.senders))
        sizes = np.bincount(np.unique(step.senders, return_inverse=True)[1], step.elements)
        each = f"{amount(motion, sizes.max())}{' each' if (sizes == sizes.max()).all() else ' or less'}"
        verb = "sends" if senders == 1 else "send"
        sent = f"{plural(senders, 'device')} {verb} {each}{' to add up' if step.adds else ''}"
    return f"{step.kind}{over}{part}: {sent}"


def _count(motion: motions.Motion, number: int) -> str:
    """Return the bytes that have travelled after so many steps, and those on each step's busiest link, added up."""
    so_far = sum(int(each.elements.sum()) for each in motion.steps[:number])
    on_links = amount(motion, sum(motion.on_links[:number]))
    busiest = f"each step's busiest {motions.links_text(motion)}"
    return f"{amount(motion, so_far)} sent so far, {on_links} in all on {busiest}"


LEGEND = f"{HELD} held  {RECEIVED} received in this step  {PARTIAL} partial sum  {NOTHING} not held"


def facts(animation: Animation) -> list[str]:
    """Return sentences on the devices, the rings, the machine, the level, and the parts that are not drawn."""
    motion, film = animation.motion, animation.film
    ring = any(step.kind in ("all-gather", "all-reduce", "reduce-scatter") and step.count > 1 for step in motion.steps)
    way = f"gathers and sums run {motion.way}" if ring else ""
    on = f"on {motion.placement.machine.text}" if motion.placement is not None else ""
    sentences = [", ".join(filter(None, (plural(len(motion.devices), "device"), way, on, f"level {motion.level}")))]
    if len(film.tiles) < len(motion.devices):
        drawn = f"{len(film.tiles)} of {len(motion.devices)} devices are drawn"
        sentences.append(f"{drawn}; the numbers count all of them.")
    if len(motion.steps) > MOST_STEPS:
        sentences.append(f"Steps {MOST_STEPS} to {len(motion.steps)} are one picture.")
    return [*sentences, *motion.notes]


def collective_section(collective: Collective, mesh: DeviceMesh, target: str | None) -> doc.Section:
    """Return an animation of a report's collective, on the target's links if the target is a machine of this size."""
    try:
        own = None if target in (None, "cpu") else target
        with_links = own is not None and machine_of(own, mesh.size).size == mesh.size
        animation = animate(collective, mesh=mesh, target=own if with_links else None)
    except ShardvizError as error:
        return doc.section("How it moves", *doc.notes(str(error)), name="motion")
    film, notes = animation.film, doc.notes(*facts(animation))
    return doc.section("How it moves", notes, doc.Figure(of=film), lead=film.title, name="motion")


@doc.document.register
def of_animation(animation: Animation) -> doc.Document:
    """Return the facts, and the film: it plays where it can, elsewhere it is a filmstrip."""
    film = animation.film
    return doc.Document.of(
        *doc.notes(*facts(animation)),
        doc.Figure(of=film),
        title=doc.words(f"animation: {film.title}", strong=True),
        mesh=animation.motion.mesh,
    )
