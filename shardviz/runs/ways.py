"""The ways of moving arrays between meshes: the bytes on each device, the chunks that keep a limit, and the seconds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.caching import cached_property
from shardviz.costs.collective import with_seconds
from shardviz.costs.exchange import Devices, links, pcie, through_hosts
from shardviz.costs.machine import Machine
from shardviz.layouts import Layout, itemsize, layout
from shardviz.layouts.transfers import Transfers, transfers
from shardviz.notation.spec import DEVICE_MEMORY, Axis, axis_name
from shardviz.records import Collective
from shardviz.records.amounts import format_seconds
from shardviz.records.collectives import axes_words
from shardviz.records.move_code import HOST, JIT, PIECES, PUT, SPREAD, reduced_dims
from shardviz.records.resharded import ReshardLink, ReshardWay
from shardviz.runs.sides import SideArray, scales_layout
from shardviz.stablehlo.resharding import moves_between


@dataclass(frozen=True)
class MovedArray:
    """An array with its layouts on both sides.

    Attributes:
        old, new: the sides.
        scales: empty, or how scales come: `made` of an array of which they are the scales after the move, or `used` to
            make one of numbers and scales before it.
        joins: it goes in one step with the array before it: scales with their numbers, layers with the first one.
        numbers: of scales, the array that they belong to.
    """

    old: SideArray
    new: SideArray
    scales: str = ""
    joins: bool = False
    numbers: MovedArray | None = None

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """Equal for arrays that differ in their paths only."""
        own = id(self.before), id(self.after), *self.old[2:], *self.new[2:], self.scales, self.joins
        return own if self.numbers is None else (*own, *self.numbers.kind)

    @property
    def name(self) -> str:
        """Its path before, or its layers' pattern."""
        return self.old.paths.name

    @property
    def new_name(self) -> str:
        """Its path after, or its layers' pattern."""
        return self.new.paths.name

    @property
    def before(self) -> Layout:
        """Its layout before."""
        return self.old.layout

    @property
    def after(self) -> Layout:
        """Its layout after."""
        return self.new.layout

    @property
    def sizes(self) -> tuple[float, float]:
        """Bytes of an element before and after; 0 where there are no scales."""
        return (
            0.0 if self.scales == "made" else itemsize(self.old.dtype),
            0.0 if self.scales == "used" else itemsize(self.new.dtype),
        )

    @property
    def casts(self) -> bool:
        """Whether its element type changes, or scales come or go."""
        return bool(self.scales) or self.old.dtype != self.new.dtype

    @property
    def on_host(self) -> tuple[bool, bool]:
        """Whether its shards are in the host's memory before, and after."""
        return self.old.memory != DEVICE_MEMORY, self.new.memory != DEVICE_MEMORY


@dataclass(frozen=True)
class BothSides:
    """The devices of both sides, with one numbering.

    Attributes:
        devices: the machines; None if no machine is known.
        size: the number of devices.
        ids: for each kind of array, the numbers of its devices before and after, in the order of its layouts.
    """

    devices: Devices | None
    size: int
    ids: list[tuple[np.ndarray, np.ndarray]]


@dataclass
class Load:
    """The elements of an array on each device, by its number.

    Attributes:
        old, new: before and after.
        out: elements that go to the host: of several copies, only the first.
        sent, received: to and from other devices.
        reused: shards that are the same before and after.
        rows: senders, receivers and elements.
        taken: how `jax.device_put` moves it, as in `ReshardedLeaf`.
    """

    old: np.ndarray
    new: np.ndarray
    out: np.ndarray
    sent: np.ndarray
    received: np.ndarray
    reused: np.ndarray
    rows: Transfers
    taken: str


def one_copy(after: Layout) -> Layout:
    """Return a layout with fewer copies: axes that shard nothing shard a dimension that they divide."""
    if after.spec is None or after.maximal:
        return after
    dims, ways, used = list(after.spec.dims), list(after.tile_counts), set(map(axis_name, after.spec.axes))
    for name, size in after.mesh.shape.items():
        place = next((d for d, n in enumerate(after.shape) if n and n % (ways[d] * size) == 0), None)
        if size > 1 and name not in used and place is not None:
            dims[place], ways[place] = (*dims[place], name), ways[place] * size
    changed = tuple(dims) != after.spec.dims
    return layout(after.shape, after.spec.with_dims(tuple(dims)), after.mesh) if changed else after


def load_of(before: Layout, after: Layout, ids: tuple[np.ndarray, np.ndarray], places: BothSides) -> Load:
    """Return the elements of an array on each device."""
    near = () if places.devices is None else (places.devices.hosts, places.devices.islands)
    rows = transfers(before, after, *ids, near)
    moved = rows.senders != rows.receivers

    def spread_out(numbers: np.ndarray, values: Any) -> np.ndarray:
        return np.bincount(numbers, np.broadcast_to(values, numbers.shape), places.size)

    old, new = spread_out(ids[0], before.elements), spread_out(ids[1], after.elements)
    kept = spread_out(rows.receivers[~moved], rows.elements[~moved])
    same_order, same_devices = np.array_equal(*ids), set(ids[0].tolist()) == set(ids[1].tolist())
    same_tiles = before.shard_shape == after.shard_shape
    if same_order and np.array_equal(before.starts, after.starts):
        taken = "nothing"
    elif same_devices and not same_order and len(ids[1]) > 1:
        taken = "a program"
    else:
        taken = "copies" if same_tiles or len(ids[0]) == 1 else "the host"
    return Load(
        old,
        new,
        spread_out(ids[0], before.elements * (before.replica_ids == 0)),
        spread_out(rows.senders[moved], rows.elements[moved]),
        spread_out(rows.receivers[moved], rows.elements[moved]),
        kept * (kept == old) * (kept == new),
        rows,
        taken,
    )


def exchanged(loads: Sequence[Load], sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the bytes that pairs of devices exchange in all arrays: senders, receivers, bytes."""
    totals: dict[int, tuple[Load, float]] = {}
    for load, size in zip(loads, sizes.tolist(), strict=True):
        totals[id(load)] = load, totals.get(id(load), (load, 0.0))[1] + size
    if not totals:
        none = np.zeros(0, np.int64)
        return none, none, np.zeros(0)
    senders, receivers = (
        np.concatenate([getattr(load.rows, end) for load, _ in totals.values()]) for end in ("senders", "receivers")
    )
    nbytes = np.concatenate([load.rows.elements * size for load, size in totals.values()])
    width = int(max(senders.max(initial=0), receivers.max(initial=0))) + 1
    keys, which = np.unique(senders * width + receivers, return_inverse=True)
    return keys // width, keys % width, np.bincount(which.reshape(-1), nbytes, len(keys))


@dataclass(frozen=True)
class Ways:
    """The ways of moving some arrays, with their bytes on each device.

    Attributes:
        arrays: one of each kind.
        order: the kinds of all arrays, in the order in which they move.
        loads, spread: the elements that an array of each kind has on each device; `spread` if only one copy moves.
        firsts: the layouts of that one copy.
        sizes: bytes of an element before and after, kind x 2.
        places: the devices.
        limit: bytes per device.
    """

    arrays: list[MovedArray]
    order: np.ndarray
    loads: Sequence[Load]
    spread: Sequence[Load]
    firsts: Sequence[Layout]
    sizes: np.ndarray
    places: BothSides
    limit: float | None

    def every(self) -> Iterator[ReshardWay]:
        names = [JIT] * all(np.array_equal(*ids) for ids in self.places.ids) + [PUT, PIECES, HOST]
        names += [SPREAD] * any(first is not each.after for first, each in zip(self.firsts, self.arrays, strict=True))
        for cast in ("before", "after") if any(each.casts for each in self.arrays) else ("",):
            for name in names:
                way = self._way(name, cast, False)
                if name == PUT or way.fits is not False:
                    yield way
                if way.fits is False and name != HOST and len(self.order) > 1:
                    yield self._way(name, cast, True)

    @cached_property
    def counts(self) -> np.ndarray:
        """How many arrays of each kind move."""
        return np.bincount(self.order, minlength=len(self.arrays))

    @cached_property
    def _stacks(self) -> np.ndarray:
        """Whether layers are stacked or split, before and after the move."""
        return np.array([[side.dim is not None for side in (each.old, each.new)] for each in self.arrays])

    @cached_property
    def _casts(self) -> np.ndarray:
        return np.array([each.casts for each in self.arrays])

    @cached_property
    def _hosted(self) -> np.ndarray:
        """Whether an array's shards are in the host's memory, before and after."""
        return np.array([each.on_host for each in self.arrays])

    @cached_property
    def staged(self) -> np.ndarray:
        """Whether an array's shards are copied to the device before the move, and to the host after it."""
        still = self._hosted.all(axis=1) & ~self._stacks.any(axis=1) & ~self._casts & self._taken("nothing")
        still &= np.array([each.old.memory == each.new.memory for each in self.arrays])
        return self._hosted & ~still[:, None]

    def _taken(self, *ways: str) -> np.ndarray:
        return np.array([load.taken in ways for load in self.loads])

    def _table(self, field: str) -> np.ndarray:
        """Return a field of the loads: numbers, array x device."""
        return np.array([getattr(load, field) for load in self.loads])

    def host_links(self, staged: np.ndarray) -> tuple[ReshardLink, ...] | None:
        """Return the links of the copies between devices and their hosts; None if their rate is not known."""
        if self.places.devices is None:
            return None
        found = list[ReshardLink | None]()
        for side, (field, what) in enumerate((("old", "from the host"), ("new", "to the host"))):
            amounts = self._table(field) * (self.counts * self.sizes[:, side] * staged[:, side])[:, None]
            if staged[:, side].any():
                found.append(pcie(self.places.devices, amounts.sum(axis=0), what))
        return None if None in found else tuple(link for link in found if link is not None)

    def _way(self, name: str, cast: str, chunked: bool) -> ReshardWay:
        travel = self.sizes[:, 0 if cast == "after" else 1][:, None]
        used = self.spread if name == SPREAD else self.loads
        casts = self._casts[:, None] & np.array([cast == "before", cast == "after"])
        moves = np.asarray(~self._hosted.all(axis=1) | self.staged.any(axis=1))
        staged = self._hosted & (self._stacks | casts) if name == HOST else self.staged
        both = self._table("old"), self._table("new")
        ends = [elements * self.sizes[:, side, None] for side, elements in enumerate(both)]
        copies = [  # of what is cast, stacked, or between a device and its host
            both[side] * travel * casts[:, side, None] + ends[side] * (self._stacks + 1.0 * staged)[:, side, None]
            for side in (0, 1)
        ]
        old, new = (ends[side] * ~self._hosted[:, side, None] for side in (0, 1))
        passed = [
            load.sent + load.received + load.new * (load is not end) for load, end in zip(used, self.loads, strict=True)
        ]
        transit = np.array(passed) * travel if name in (PIECES, SPREAD) else 0.0
        by_put = self._taken("nothing", "copies")[:, None]
        reused = self._table("reused") * travel * (1.0 if name == PIECES else by_put if name == PUT else 0.0)
        through = moves & self._taken("the host") if name == PUT else np.full(len(moves), name == HOST)
        extra, limit = sum(copies) + transit + new - reused * moves[:, None], math.inf
        if name == HOST:  # which frees each array before the next
            extra, limit = np.maximum(copies[0], copies[1] + new - old).clip(0), -math.inf
        elif chunked and self.limit is not None:
            limit = self.limit
        joins = np.array([each.joins for each in self.arrays])[self.order]
        starts = np.flatnonzero(~joins)
        every = (each[self.order] for each in (old, new, extra))
        old, new, extra = (np.add.reduceat(each, starts) if joins.any() else each for each in every)
        chunks, peak = _chunks(old, new, extra, limit)
        last = np.array([*starts[1:], len(self.order)])[np.cumsum(chunks) - 1]
        chunks = tuple(np.diff(last, prepend=0).tolist())
        if name == JIT:
            seconds, formula = self._by_collectives([each.before for each in self.arrays], travel[:, 0], cast)
        else:
            seconds, formula = self._seconds(used, through, travel[:, 0], self._hosted & ~staged)
        if name == SPREAD and seconds is not None:
            gathered, more = self._by_collectives(self.firsts, travel[:, 0], cast)
            seconds = None if gathered is None else seconds + gathered
            formula = "; then ".join(filter(None, (formula, more)))
        if self.places.devices is not None and staged.any():
            up, down = (self.host_links(staged & np.array(side)) for side in ([True, False], [False, True]))
            if up is None or down is None:
                seconds, formula = None, _UNKNOWN
            elif seconds is not None:
                seconds += _seconds_of((*up, *down))
                formula = " + ".join(filter(None, (_formulas(up), formula, _formulas(down))))
        if seconds is not None and (rows := self._of_scales(cast)):
            known = [(count, step) for count, step in rows if step is not None and step.seconds is not None]
            seconds += sum(count * (step.seconds or 0.0) for count, step in known)
            terms = [f"{step.kind} of scales over {axes_words(step.axes)}: {n} x ({step.formula})" for n, step in known]
            formula = " + ".join(filter(None, (formula, *terms, _PARTIAL * (len(known) < len(rows)))))
        sides = [np.unique(np.concatenate([pair[side] for pair in self.places.ids])) for side in (0, 1)]
        peaks = [float(peak[side].max()) for side in sides]
        whole = np.array([math.prod(each.before.shape) for each in self.arrays]) * travel[:, 0] * through
        kept = sum(ends[side].sum(axis=1) * self._hosted[:, side] for side in (0, 1))
        return ReshardWay(
            name=name,
            cast=cast,
            chunks=chunks,
            seconds=seconds,
            formula=formula,
            before_peak=peaks[0],
            after_peak=peaks[1],
            host_bytes=float(((whole + kept) * self.counts).sum()),
            fits=None if self.limit is None else max(peaks) <= self.limit,
        )

    def _seconds(
        self, used: Sequence[Load], through: np.ndarray, travel: np.ndarray, direct: np.ndarray
    ) -> tuple[float | None, str]:
        """Return the seconds of a way whose arrays go `through` the host or over links between devices. `direct` says
        which arrays leave the host's memory, and which end there, without a device."""
        devices = self.places.devices
        if devices is None:
            return None, ""
        found: list[ReshardLink] = []
        for host in (False, True):
            loads = [load for load, there in zip(used, through, strict=True) if there == host]
            sizes, ends = (travel * self.counts)[through == host], ~direct[through == host]
            if not loads:
                continue
            rows = exchanged(loads, sizes)
            if not host:
                found += links(devices, *rows)[:1]
                continue
            out, back = (
                sum(getattr(load, field) * n for load, n in zip(loads, (sizes * ends[:, side]).tolist(), strict=True))
                for side, field in enumerate(("out", "new"))
            )
            if (hosted := through_hosts(devices, np.asarray(out), np.asarray(back), rows)) is None:
                return None, _UNKNOWN
            found += hosted
        return _seconds_of(found), _formulas(found)

    def _of_scales(self, cast: str) -> list[tuple[int, Collective | None]]:
        """Return the collectives that compute the scales before or after the move, and how many times each runs; None
        for those that are not known."""
        if self.places.devices is None or not cast:
            return []
        side = ("before", "after").index(cast)
        machine, found = self.places.devices.machines[-side], list[tuple[int, Collective | None]]()
        for each, count in zip(self.arrays, self.counts.tolist(), strict=True):
            if each.scales == "made" and each.numbers is not None:
                array, scales = ((end.before, end.after)[side] for end in (each.numbers, each))
                assert array.spec is not None
                own = scales_layout(array, scales.shape)
                axes = tuple(a for d in reduced_dims(array.shape, scales.shape) or () for a in array.spec.dims[d])
                steps = [_collective("all-reduce", axes, "float32", own, own, machine)] if axes else []
                then = _collectives(own, scales, each.new.dtype, machine)
                found += [(count, step) for step in (*steps, *((None,) if then is None else then))]
        return found

    def _by_collectives(self, starts: Sequence[Layout], travel: np.ndarray, cast: str) -> tuple[float | None, str]:
        """Return the seconds of the collectives that Shardy chooses from these layouts to those after, one by one."""
        if self.places.devices is None:
            return None, ""
        known: dict[Any, list[Collective] | None] = {}
        totals: dict[str, float] = {}
        for start, each, size, count in zip(starts, self.arrays, travel.tolist(), self.counts.tolist(), strict=True):
            if not size:
                continue
            dtype = each.old.dtype if cast == "after" else each.new.dtype
            key = id(start), id(each.after), dtype
            if key not in known:
                known[key] = _collectives(start, each.after, dtype, self.places.devices.machines[-1])
            if (steps := known[key]) is None:
                return None, f"not known: the collectives of {each.name or 'the array'}"
            for step in steps:
                what = f"{step.kind} over {axes_words(step.axes)}"
                totals[what] = totals.get(what, 0.0) + (step.seconds or 0.0) * count
        return sum(totals.values()), " + ".join(f"{what} {format_seconds(total)}" for what, total in totals.items())


_PARTIAL = "collectives of scales, not counted: their seconds on a part of a machine are not known"
_UNKNOWN = "not known: the vendor does not publish the rate to the host"


def _seconds_of(found: Sequence[ReshardLink]) -> float:
    return sum(link.seconds or 0.0 for link in found)


def _formulas(found: Sequence[ReshardLink]) -> str:
    return " + ".join(f"{link.kind}: {link.formula}" for link in found)


def _chunks(old: np.ndarray, new: np.ndarray, extra: np.ndarray, limit: float) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the fewest chunks, of arrays in this order, that keep the peak within the limit if that is possible, and
    the most bytes on each device: arrays that have not moved yet, those that have, and `extra` of the chunk under way.

    Each chunk takes as many arrays as it can. This gives the fewest chunks: a chunk that starts later never ends
    earlier.
    """
    chunks, at, left, peak = [], 0, old.sum(axis=0), np.zeros(old.shape[1])
    sums = np.cumsum(extra, axis=0)
    while at < len(old):
        base, count = left - (sums[at - 1] if at else 0.0), 1
        if limit > 0:
            totals = (base + sums[at:]).max(axis=1)
            count = max(1, int(np.searchsorted(totals, limit, side="right")))
        part = slice(at, at + count)
        peak = np.maximum(peak, base + sums[at + count - 1])
        left, at = left - old[part].sum(axis=0) + new[part].sum(axis=0), at + count
        chunks.append(count)
    return tuple(chunks), np.maximum(peak, left)


def _collectives(before: Layout, after: Layout, dtype: str, machine: Machine) -> list[Collective] | None:
    """Return the collectives between two layouts with their seconds; None if one of these is not known."""
    found = []
    for step in moves_between(before, after).steps:
        if step.kind == "slice":
            continue
        if step.before is None or step.after is None or step.edges or after.mesh.size != machine.size:
            return None
        ends = [layout(before.shape, spec, after.mesh) for spec in (step.before, step.after)]
        found.append(_collective(step.kind, step.axes, dtype, ends[0], ends[1], machine))
    return found if all(each.seconds is not None for each in found) else None


def _collective(
    kind: str, axes: tuple[Axis, ...] | None, dtype: str, before: Layout, after: Layout, machine: Machine
) -> Collective:
    one = Collective(
        kind=kind,
        axes=axes,
        dtype=dtype,
        shape=after.shard_shape,
        operand_bytes=before.bytes_per_device(dtype),
        result_bytes=after.bytes_per_device(dtype),
        count=1,
    )
    return with_seconds(one, after.mesh, machine)
