"""The messages of a resharding or a collective, step by step: sender, receiver, and box of the array.

Gathers and reductions run around a ring, a shard per step; on a torus ring half of each shard goes each way, on a line
without wraparound shards go to both ends. Other messages go straight to the receiver, in rounds. In a round a
device sends at most one message and receives at most one.

>>> from shardviz.stablehlo.resharding import moves
>>> gathered = motion_of_moves(moves((8, 4), ("x", None), (None, None), {"x": 4}))
>>> [(step.kind, len(step.senders), int(step.elements.sum())) for step in gathered.steps]
[('all-gather', 4, 32), ('all-gather', 4, 32), ('all-gather', 4, 32)]
>>> gathered.received().tolist(), gathered.on_links
([24, 24, 24, 24], (8.0, 8.0, 8.0))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from shardviz.caching import cached_property
from shardviz.costs.collective import whole_bytes
from shardviz.costs.placement import Placement, groups_along
from shardviz.costs.routes import Route, link_loads, route
from shardviz.errors import MeshError, ShardvizError
from shardviz.layouts import Layout, Moves, itemsize, layout
from shardviz.layouts.transfers import transfers
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.groups import parse_groups, parse_pairs
from shardviz.notation.spec import axis_text
from shardviz.records import Collective

MOST_DEVICES = 512
"""The most devices whose messages are computed."""
ONE_WAY, BOTH_WAYS, LINE = "one way around the ring", "both ways around the ring", "both ways along the line"


class Boxes(NamedTuple):
    """The boxes of the array that devices hold, one per row. A device without a row holds nothing.

    `devices` are device ids; `starts` and `stops` are integers, row x dimension. `sums` is the number of partial sums
    of each box, of which a device holds one; 1 if there is nothing to add.
    """

    devices: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    sums: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionStep:
    """Messages that travel at the same time.

    Attributes:
        kind: the collective that they are part of; `slice` if no message travels, `exchange` between two meshes.
        axes: the mesh axes of the collective; None if no axes express it.
        number, count: the step is number `number` (from 1) of the `count` of its collective.
        senders, receivers: device ids: integers, one per message.
        starts, stops: the box of the array that each message carries: integers, message x dimension.
        adds: whether the receiver adds the message to the partial sum that it holds.
        keeps: the boxes that devices hold afterwards; they drop all others. None if they keep everything.
    """

    kind: str
    axes: tuple[Axis, ...] | None
    number: int = 1
    count: int = 1
    senders: np.ndarray
    receivers: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    adds: bool = False
    keeps: Boxes | None = None

    @property
    def elements(self) -> np.ndarray:
        """Elements of each message: integers."""
        return np.prod(self.stops - self.starts, axis=1, dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Motion:
    """All messages of a resharding or a collective, in steps.

    Attributes:
        title: the resharding or the collective in words.
        shape: the shape of the array; of a collective, the array that one group of devices gathers or reduces.
        mesh, after: the mesh before, and the one after; None if that is the same.
        start: what devices hold at first.
        steps: the steps, in order.
        bytes_per_element: bytes of an element; None if unknown. It may be a fraction.
        placement: the mesh on the machine whose links are used; None without one.
        way: how gathers and reductions run: around a ring one way or both ways, or along a line.
        level: the level of the answer that is shown: `notation`, `propagated`, `partitioned` or `compiled`.
        notes: sentences about what the steps leave out.
    """

    title: str
    shape: tuple[int, ...]
    mesh: DeviceMesh
    start: Boxes
    steps: tuple[MotionStep, ...]
    bytes_per_element: float | None = None
    placement: Placement | None = None
    way: str = ONE_WAY
    level: str = "notation"
    notes: tuple[str, ...] = ()
    after: DeviceMesh | None = None

    @property
    def devices(self) -> list[int]:
        """The ids of all devices, those of the mesh before first, each in mesh order."""
        meshes = (self.mesh, self.after or self.mesh)
        return [*dict.fromkeys(device for mesh in meshes for device in mesh.ids().tolist())]

    def sent(self) -> np.ndarray:
        """Return the elements that each device sends in all steps, in the order of `devices`: integers."""
        return self._by_device("senders")

    def received(self) -> np.ndarray:
        """Return the elements that each device receives in all steps, in the order of `devices`: integers."""
        return self._by_device("receivers")

    def _by_device(self, ends: str) -> np.ndarray:
        place = {device: n for n, device in enumerate(self.devices)}
        totals = np.zeros(len(place), np.int64)
        for step in self.steps:
            np.add.at(totals, [place[device] for device in getattr(step, ends).tolist()], step.elements)
        return totals

    @cached_property
    def on_links(self) -> tuple[float, ...]:
        """For each step, the elements on its busiest link, one direction.

        With a TPU machine a link joins two neighbouring chips of the torus; with GPUs it is a GPU's NVLink port, in or
        out. Without a machine each pair of sender and receiver is a link. Messages between slices are not counted.
        """
        return tuple(map(self._busiest, self.steps))

    def _busiest(self, step: MotionStep) -> float:
        if not len(step.senders):
            return 0.0
        if self.placement is None:
            _, pair = np.unique(np.stack([step.senders, step.receivers]), axis=1, return_inverse=True)
            return float(np.bincount(pair.reshape(-1), step.elements).max())
        where = np.zeros(max(self.devices) + 1, np.int64)
        where[self.mesh.ids()] = self.placement.order
        ends = where[step.senders], where[step.receivers]
        if self.placement.machine.chip.kind == "gpu":
            return float(max(np.bincount(end, step.elements).max() for end in ends))
        return float(link_loads(self.placement.machine, *ends, step.elements)[0].max(initial=0))


def motion_of_moves(moves: Moves, dtype: Any = None, placement: Placement | None = None) -> Motion:
    """Return the messages of a resharding on one set of devices: Shardy's collectives, one after the other.

    Raises:
        ShardvizError: for more than 512 devices.
    """
    before = moves.before
    _check_size(before.mesh)
    steps: list[MotionStep] = []
    here, ways = before, set()
    for step in moves.steps:
        there = moves.after if step is moves.steps[-1] or step.layout is None else step.layout
        groups = _groups(step.kind, step.axes, here, there, moves)
        way = _way(placement, groups, before.device_ids)
        around = _collective(step.kind, groups, here, there, way)
        ways |= set() if around is None else {way}
        steps += _numbered(step.kind, step.axes, around or _straight(here, there, groups), _held(there))
        here = there
    if here is not moves.after and not moves.steps and not moves.free:
        steps = _numbered("exchange", None, _straight(here, moves.after, None), _held(moves.after))
    return Motion(
        title=f"{_spec(before)} → {_spec(moves.after)}",
        shape=before.shape,
        mesh=before.mesh,
        start=_held(before),
        steps=tuple(steps),
        bytes_per_element=None if dtype is None else itemsize(dtype),
        placement=placement,
        way=ways.pop() if len(ways) == 1 else ONE_WAY,
        level="propagated" if moves.steps else "notation",
    )


def motion_between(before: Layout, after: Layout, dtype: Any = None) -> Motion:
    """Return the messages from one mesh to another, as in `sv.reshard`: each device receives the elements of its new
    shard from the nearest device that has them.

    Raises:
        SpecError: for different shapes, partial sums and manual axes.
        ShardvizError: for more than 512 devices.
    """
    _check_size(before.mesh)
    _check_size(after.mesh)
    sent = transfers(before, after)
    rows = _boxes(before, after, sent.senders, sent.receivers)
    return Motion(
        title=f"{_spec(before)} on {before.mesh.shown} → {_spec(after)} on {after.mesh.shown}",
        shape=before.shape,
        mesh=before.mesh,
        after=after.mesh,
        start=_held(before),
        steps=tuple(_numbered("exchange", None, _rounds(*rows), _held(after))),
        bytes_per_element=None if dtype is None else itemsize(dtype),
    )


def motion_of_collective(
    collective: Collective, mesh: DeviceMesh, placement: Placement | None = None, level: str = "notation"
) -> Motion:
    """Return the messages of one run of a report's collective, for all of its groups at once.

    Each group has its own array. A report has only its bytes, so the array is drawn as a row with one chunk per device,
    or as a square of chunks for an all-to-all.

    Raises:
        ShardvizError: if neither mesh axes nor replica groups say which devices take part, and for more than 512
            devices.
    """
    _check_size(mesh)
    kind = collective.kind
    groups, pairs = _members(collective, mesh)
    count = groups.shape[1]
    way = _way(placement, groups, mesh.ids())
    if kind == "collective-permute":
        shape, start, messages, end = _permuted(mesh.ids()[groups], mesh.ids()[pairs])
    else:
        shape, start, messages, end = _in_groups(kind, mesh.ids()[groups], way)
    nbytes = collective.operand_bytes * count if kind == "collective-permute" else whole_bytes(collective, count)
    over = f" over {', '.join(map(axis_text, collective.axes))}" if collective.axes else ""
    notes = ("A ragged all-to-all sends at most this: as if all rows were sent.",) if kind.startswith("ragged") else ()
    return Motion(
        title=f"{kind}{over}" + (f" of {collective.operand}" if collective.operand else ""),
        shape=shape,
        mesh=mesh,
        start=start,
        steps=tuple(_numbered(kind, collective.axes, messages, end)),
        bytes_per_element=None if nbytes is None else nbytes / math.prod(shape),
        placement=placement,
        way=way,
        level=level,
        notes=notes,
    )


def _members(collective: Collective, mesh: DeviceMesh) -> tuple[np.ndarray, np.ndarray]:
    """Return a collective's groups, and its (sender, receiver) pairs if it is a permute, as positions in the mesh."""
    if collective.kind == "collective-permute" and collective.groups.startswith("{{"):
        return np.arange(mesh.size)[None], parse_pairs(collective.groups)
    name = collective.name or collective.kind
    if collective.axes is None and not collective.groups:
        raise ShardvizError(
            f"{name}: this level does not say which devices take part; give a collective of program.partition(plan)"
        )
    along = collective.axes is not None
    groups = groups_along(collective.axes or (), mesh) if along else parse_groups(collective.groups, mesh.size)
    if (groups < 0).any():
        raise ShardvizError(f"{name}: its groups have different sizes; animate takes groups of one size")
    return groups, np.stack([groups.ravel(), np.roll(groups, -1, axis=1).ravel()], axis=1)


_Played = tuple[tuple[int, ...], Boxes, "list[_Messages]", Boxes]
"""The shape of a group's array, what its devices hold at first, the steps, and what they hold in the end."""


def _permuted(devices: np.ndarray, pairs: np.ndarray) -> _Played:
    """Return a permute: each member has a chunk, which goes to the receiver of its pair."""
    place = {int(device): n % devices.shape[1] for n, device in enumerate(devices.ravel())}
    own = np.array([place[int(device)] for device in devices.ravel()])[:, None]
    sent = np.array([place[int(device)] for device in pairs[:, 0]], np.int64).reshape(-1, 1)
    moved = pairs[:, 0] != pairs[:, 1]
    messages = [(*pairs[moved].T, sent[moved], sent[moved] + 1, False)]
    return ((devices.shape[1],), Boxes(devices.ravel(), own, own + 1), messages, Boxes(pairs[:, 1], sent, sent + 1))


def _in_groups(kind: str, devices: np.ndarray, way: str) -> _Played:
    """Return a collective within each group, as a resharding of an array that the group has for itself."""
    count = devices.shape[1]
    mesh = DeviceMesh(("group", "member"), devices.shape, (), tuple(devices.ravel().tolist()))
    replicated, sharded, partial = Spec(((),)), Spec((("member",),)), Spec(((),), unreduced=("member",))
    shape: tuple[int, ...] = (2 * count,)  # a chunk has two elements, so that it has halves
    if kind in ("all-to-all", "ragged-all-to-all"):
        shape, before, after = (count, count), Spec((("member",), ())), Spec(((), ("member",)))
    elif kind in ("all-gather", "collective-broadcast"):
        before, after = sharded, replicated
    else:
        before, after = partial, sharded if kind == "reduce-scatter" else replicated
    here, there = layout(shape, before, mesh), layout(shape, after, mesh)
    rows = np.arange(devices.size).reshape(devices.shape)
    if kind == "collective-broadcast":
        starts, stops = there.starts[: len(devices)], there.stops[: len(devices)]
        messages = [(devices[:, n], devices[:, n + 1], starts, stops, False) for n in range(count - 1)]
        return shape, Boxes(devices[:, 0], starts, stops), messages, _held(there)
    return shape, _held(here), _collective(kind, rows, here, there, way) or _straight(here, there, rows), _held(there)


def _spec(layout: Layout) -> str:
    return str(layout.spec) if layout.spec is not None else "a sharding without a spec"


def _check_size(mesh: DeviceMesh) -> None:
    if mesh.size > MOST_DEVICES:
        raise ShardvizError(
            f"mesh {mesh.shown}: {mesh.size:,} devices; animate takes at most {MOST_DEVICES}: give a smaller mesh"
        )


def _held(layout: Layout) -> Boxes:
    rows = np.flatnonzero(layout.holds)
    return Boxes(layout.device_ids[rows], layout.starts[rows], layout.stops[rows], layout.partial_sums)


_Messages = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]
"""Senders, receivers, starts and stops of messages, and whether receivers add them."""


def _numbered(kind: str, axes: tuple[Axis, ...] | None, rounds: Sequence[_Messages], keeps: Boxes) -> list[MotionStep]:
    """Return the steps of one collective. After the last, devices drop what they no longer need."""
    nothing, box = np.zeros(0, np.int64), np.zeros((0, keeps.starts.shape[1]), np.int64)
    rounds = [messages for messages in rounds if len(messages[0])] or [(nothing, nothing, box, box, False)]
    steps = [
        MotionStep(
            kind=kind, axes=axes, number=n, count=len(rounds),
            senders=senders, receivers=receivers, starts=starts, stops=stops, adds=adds,
        )
        for n, (senders, receivers, starts, stops, adds) in enumerate(rounds, 1)
    ]  # fmt: skip
    return [*steps[:-1], replace(steps[-1], keeps=keeps)]


def _way(placement: Placement | None, groups: np.ndarray | None, ids: np.ndarray) -> str:
    """Return how a ring runs on the machine's links: one way, unless the links form one ring or one line."""
    if placement is None or groups is None or placement.machine.chip.kind == "gpu":
        return ONE_WAY
    over: Route = route(placement.machine, np.asarray(placement.order)[groups])
    if not over.regular or len(over.legs) != 1 or over.on_chip > 1 or over.slices > 1:
        return ONE_WAY
    return BOTH_WAYS if over.legs[0].ring else LINE


def _groups(kind: str, axes: tuple[Axis, ...] | None, here: Layout, there: Layout, moves: Moves) -> np.ndarray | None:
    """Return the groups of rows that a step's collective runs over; None where no axes express them."""
    for mesh in (here.mesh, there.mesh, moves.before.mesh, moves.after.mesh) if axes else ():
        try:
            places = groups_along(axes or (), mesh)
        except MeshError:
            continue
        row = np.zeros(int(mesh.ids().max()) + 1, np.int64)
        row[here.device_ids] = np.arange(len(here.device_ids))
        groups = row[mesh.ids()[places]]
        if kind not in ("all-gather", "all-reduce", "reduce-scatter") or _fits(kind, groups, here, there):
            return groups
    return None


def _fits(kind: str, groups: np.ndarray, here: Layout, there: Layout) -> bool:
    """Return whether a ring within each group does the step: the members' chunks tile one box."""
    whole, parts = (there, here) if kind == "all-gather" else (here, there)
    leaders = groups[:, :1]
    same = (whole.starts[groups] == whole.starts[leaders]).all() and (whole.stops[groups] == whole.stops[leaders]).all()
    if not same or not (here.holds.all() and there.holds.all()):
        return False
    if kind == "all-gather":
        ids = here.partial_ids[groups]
        same = (ids == ids[:, :1]).all()
    else:
        ids = np.sort(here.partial_ids[groups], axis=1)
        same = bool((np.diff(ids, axis=1) > 0).all()) and groups.shape[1] * there.partial_sums == here.partial_sums
    if not same or kind == "all-reduce":
        return bool(same)
    boxes = np.concatenate([parts.starts, parts.stops], axis=1)[groups]
    full = parts.elements[groups].sum(axis=1) == whole.elements[groups[:, 0]]
    return bool(full.all()) and all(len(np.unique(each[_sized(each)], axis=0)) == _sized(each).sum() for each in boxes)


def _sized(boxes: np.ndarray) -> np.ndarray:
    """Return whether each box of (starts, stops) has elements."""
    rank = boxes.shape[-1] // 2
    return np.all(boxes[..., rank:] > boxes[..., :rank], axis=-1)


def _collective(kind: str, groups: np.ndarray | None, here: Layout, there: Layout, way: str) -> list[_Messages] | None:
    """Return the steps of a gather or a reduction around the rings of its groups; None for another kind."""
    if kind in ("all-reduce", "reduce-scatter") and groups is None:
        raise ShardvizError(f"{kind} from {_spec(here)} to {_spec(there)}: no mesh axes express its groups")
    if groups is None or kind not in ("all-gather", "all-reduce", "reduce-scatter"):
        return None
    devices = here.device_ids[groups]
    if kind == "all-gather":
        return list(_gathers(devices, here.starts[groups], here.stops[groups], way))
    if kind == "reduce-scatter":
        return list(_scatters(devices, there.starts[groups], there.stops[groups], way))
    starts, stops = here.starts[groups], here.stops[groups]
    rank = starts.shape[2]
    if not rank:  # a scalar goes around as an array of one element
        starts, stops = np.zeros((*groups.shape, 1), np.int64), np.ones((*groups.shape, 1), np.int64)
    chunks = _split(starts, stops, groups.shape[1])
    steps = [*_scatters(devices, *chunks, way), *_gathers(devices, *chunks, way)]
    return [(senders, receivers, low[:, :rank], high[:, :rank], adds) for senders, receivers, low, high, adds in steps]


def _split(starts: np.ndarray, stops: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Split boxes (group x member x dimension) along their longest dimension; each member gets its own part."""
    starts, stops, n = starts.copy(), stops.copy(), np.arange(parts)
    d = int(np.argmax((stops - starts).max(axis=(0, 1))))
    low, size = starts[..., d].copy(), (stops - starts)[..., d]
    starts[..., d], stops[..., d] = low + size * n // parts, low + size * (n + 1) // parts
    return starts, stops


def _gathers(devices: np.ndarray, starts: np.ndarray, stops: np.ndarray, way: str) -> Iterator[_Messages]:
    """Yield the steps in which each member of each group gets all members' chunks: group x member (x dimension)."""
    count = devices.shape[1]
    onwards = np.arange(count)
    halves = _halves(starts, stops) if way == BOTH_WAYS else [(starts, stops)] * 2
    flows = [(onwards, *halves[0]), (onwards[::-1], *halves[1])][: 1 if way == ONE_WAY else 2]
    for t in range(count - 1):
        parts = []
        for order, low, high in flows:
            n = onwards[t:-1] if way == LINE else onwards
            sender, receiver, chunk = order[n], order[(n + 1) % count], order[(n - t) % count]
            parts.append((devices[:, sender], devices[:, receiver], low[:, chunk], high[:, chunk]))
        rows = [
            np.concatenate([each.reshape(-1, *each.shape[2:]) for each in part]) for part in zip(*parts, strict=True)
        ]
        some = (rows[3] > rows[2]).all(axis=1)
        yield rows[0][some], rows[1][some], rows[2][some], rows[3][some], False


def _halves(starts: np.ndarray, stops: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the two halves of boxes, along each array's longest dimension."""
    d = int(np.argmax((stops - starts).max(axis=(0, 1))))
    first, second = stops.copy(), starts.copy()
    first[..., d] = second[..., d] = (starts[..., d] + stops[..., d]) // 2
    return [(starts, first), (second, stops)]


def _scatters(devices: np.ndarray, starts: np.ndarray, stops: np.ndarray, way: str) -> Iterator[_Messages]:
    """Yield the steps in which each member adds up its own chunk: those of a gather in reverse."""
    back = _gathers(devices[:, ::-1], starts[:, ::-1], stops[:, ::-1], way)
    for senders, receivers, low, high, _ in reversed(list(back)):
        yield receivers, senders, low, high, True


def _straight(here: Layout, there: Layout, groups: np.ndarray | None) -> list[_Messages]:
    """Return messages straight to the receivers, from the own group if its members have the elements."""
    arrays = {"partial_ids": np.zeros_like(here.partial_ids), "unreduced": (), "manual": (), "partial_sums": 1}
    own = here.manual_ids * max(1, here.partial_sums) + here.partial_ids
    group = np.zeros(len(own), np.int64)
    if groups is not None:
        group[groups] = np.arange(len(groups))[:, None]
    size = int(here.device_ids.max()) + 1
    near = [np.zeros(size, np.int64) for _ in range(2)]
    near[0][here.device_ids] = own * (int(group.max()) + 1) + group
    near[1][here.device_ids] = own
    sent = transfers(replace(here, **arrays), replace(there, **arrays), near=near)
    boxes = _boxes(here, there, sent.senders, sent.receivers)
    if groups is None:
        return _rounds(*boxes)
    member = np.zeros(size, np.int64)
    member[here.device_ids[groups]] = np.arange(groups.shape[1])
    return _rounds(*boxes, (member[boxes[1]] - member[boxes[0]]) % groups.shape[1])


def _boxes(
    before: Layout, after: Layout, senders: np.ndarray, receivers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the messages between different devices. Their boxes are the overlaps of the sender's old shard and the
    receiver's new shard."""
    moved = senders != receivers
    senders, receivers = senders[moved], receivers[moved]
    old, new = ({int(d): n for n, d in enumerate(side.device_ids)} for side in (before, after))
    had, needs = [old[int(d)] for d in senders], [new[int(d)] for d in receivers]
    starts = np.maximum(before.starts[had], after.starts[needs])
    return senders, receivers, starts, np.minimum(before.stops[had], after.stops[needs])


def _rounds(
    senders: np.ndarray, receivers: np.ndarray, starts: np.ndarray, stops: np.ndarray, hops: np.ndarray | None = None
) -> list[_Messages]:
    """Return messages in rounds in which a device sends at most one and receives at most one. Messages over an equal
    `hops` between the members of a group are in one round: an all-to-all over N devices has N - 1 rounds."""
    busy: set[tuple[int, int, bool]] = set()
    rounds = np.zeros(len(senders), np.int64)
    hops = receivers - senders if hops is None else hops
    for n in np.lexsort((senders, hops)).tolist():
        at, out, into = 0, int(senders[n]), int(receivers[n])
        while (at, out, True) in busy or (at, into, False) in busy:
            at += 1
        busy |= {(at, out, True), (at, into, False)}
        rounds[n] = at
    masks = (rounds == n for n in range(int(rounds.max(initial=0)) + 1))
    return [(senders[mask], receivers[mask], starts[mask], stops[mask], False) for mask in masks]


def links_text(motion: Motion) -> str:
    """Return the kind of link that `Motion.on_links` counts."""
    if motion.placement is None:
        return "link"
    return "NVLink port" if motion.placement.machine.chip.kind == "gpu" else "ICI link"


def holders(held: Boxes) -> Iterable[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Yield device id, start and stop of each row."""
    return zip(held.devices.tolist(), map(tuple, held.starts.tolist()), map(tuple, held.stops.tolist()), strict=True)
