"""The ways of moving arrays between meshes: the bytes on each device, the chunks that keep a limit, and the seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.costs.collective import with_seconds
from shardviz.costs.exchange import Devices, links, through_hosts
from shardviz.costs.machine import Machine
from shardviz.layouts import Layout, layout
from shardviz.layouts.transfers import Transfers, transfers
from shardviz.notation.spec import axis_name
from shardviz.records import Collective
from shardviz.records.amounts import format_seconds
from shardviz.records.collectives import axes_words
from shardviz.records.resharding import HOST, JIT, PIECES, PUT, SPREAD, ReshardLink, ReshardWay
from shardviz.stablehlo.resharding import moves_between


@dataclass(frozen=True)
class MovedArray:
    """An array with its layouts on both sides."""

    name: str
    new_name: str
    before: Layout
    after: Layout
    dtype: str
    new_dtype: str


@dataclass(frozen=True)
class BothSides:
    """The devices of both sides, numbered through.

    Attributes:
        devices: the machines; None if no machine is known.
        size: how many numbers there are.
        ids: for each array, the numbers of its devices before and after, in the order of its layouts.
    """

    devices: Devices | None
    size: int
    ids: list[tuple[np.ndarray, np.ndarray]]


@dataclass
class Load:
    """The elements of an array on each device, by its number.

    Attributes:
        old, new: before and after.
        out: of the copies, only the first: what goes to the host.
        sent, received: to and from other devices.
        reused: shards that are the same before and after.
        rows: who sends what to whom.
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


def exchanged(loads: list[Load], sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    """The ways of moving some arrays, with their bytes on each device."""

    arrays: list[MovedArray]
    loads: list[Load]
    spread: Sequence[Load]
    firsts: Sequence[Layout]
    sizes: np.ndarray
    places: BothSides
    limit: float | None

    def every(self) -> Iterator[ReshardWay]:
        names = [JIT] * all(np.array_equal(*ids) for ids in self.places.ids) + [PUT, PIECES, HOST]
        names += [SPREAD] * any(first is not each.after for first, each in zip(self.firsts, self.arrays, strict=True))
        for cast in ("before", "after") if (self.sizes[:, 0] != self.sizes[:, 1]).any() else ("",):
            for name in names:
                way = self._way(name, cast, False)
                if name == PUT or way.fits is not False:
                    yield way
                if way.fits is False and name != HOST and len(self.arrays) > 1:
                    yield self._way(name, cast, True)

    def _way(self, name: str, cast: str, chunked: bool) -> ReshardWay:
        travel = self.sizes[:, 0 if cast == "after" else 1][:, None]
        used = self.spread if name == SPREAD else self.loads
        table = lambda field: np.array([getattr(load, field) for load in self.loads])  # noqa: E731
        changes = (self.sizes[:, 0] != self.sizes[:, 1])[:, None]
        old, new = table("old") * self.sizes[:, :1], table("new") * self.sizes[:, 1:]
        between = table("new" if cast == "after" else "old") * travel * changes
        passed = [
            load.sent + load.received + load.new * (load is not end) for load, end in zip(used, self.loads, strict=True)
        ]
        transit = np.array(passed) * travel if name in (PIECES, SPREAD) else 0.0
        by_put = np.array([load.taken in ("nothing", "copies") for load in self.loads])[:, None]
        reused = table("reused") * travel * (1.0 if name == PIECES else by_put if name == PUT else 0.0)
        through = np.array([name == HOST or (name == PUT and load.taken == "the host") for load in self.loads])
        extra, limit = between + transit + new - reused, math.inf
        if name == HOST:  # which frees each array before the next
            back = new + between if cast == "after" else new
            extra, limit = np.maximum(between if cast == "before" else 0.0, back - old).clip(0), -math.inf
        elif chunked and self.limit is not None:
            limit = self.limit
        chunks, peak = _chunks(old, new, extra, limit)
        if name == JIT:
            seconds, formula = self._by_collectives([each.before for each in self.arrays], cast)
        else:
            seconds, formula = self._seconds(used, through, travel[:, 0])
        if name == SPREAD and seconds is not None:
            gathered, more = self._by_collectives(self.firsts, cast)
            seconds, formula = None if gathered is None else seconds + gathered, f"{formula}; then {more}"
        sides = [np.unique(np.concatenate([pair[side] for pair in self.places.ids])) for side in (0, 1)]
        peaks = [float(peak[side].max()) for side in sides]
        whole = sum(
            np.prod(a.before.shape) * size
            for a, size, host in zip(self.arrays, travel[:, 0], through, strict=True)
            if host
        )
        return ReshardWay(
            name=name,
            cast=cast,
            chunks=chunks,
            seconds=seconds,
            formula=formula,
            before_peak=peaks[0],
            after_peak=peaks[1],
            host_bytes=float(whole),
            fits=None if self.limit is None else max(peaks) <= self.limit,
        )

    def _seconds(self, used: Sequence[Load], through: np.ndarray, travel: np.ndarray) -> tuple[float | None, str]:
        """Return the seconds of a way whose arrays go `through` the host or over links between devices."""
        devices = self.places.devices
        if devices is None:
            return None, ""
        found: list[ReshardLink] = []
        for host in (False, True):
            loads = [load for load, there in zip(used, through, strict=True) if there == host]
            sizes = travel[through == host]
            if not loads:
                continue
            rows = exchanged(loads, sizes)
            if not host:
                found += links(devices, *rows)[:1]
                continue
            out, back = (sum(getattr(x, end) * n for x, n in zip(loads, sizes, strict=True)) for end in ("out", "new"))
            if (hosted := through_hosts(devices, np.asarray(out), np.asarray(back), rows)) is None:
                return None, "not known: the vendor does not publish the rate to the host"
            found += hosted
        return sum(link.seconds or 0.0 for link in found), " + ".join(f"{x.kind}: {x.formula}" for x in found)

    def _by_collectives(self, starts: Sequence[Layout], cast: str) -> tuple[float | None, str]:
        """Return the seconds of the collectives that Shardy chooses from these layouts to those after, one by one."""
        if self.places.devices is None:
            return None, ""
        known: dict[Any, list[Collective] | None] = {}
        totals: dict[str, float] = {}
        for start, each in zip(starts, self.arrays, strict=True):
            dtype = each.dtype if cast == "after" else each.new_dtype
            key = id(start), id(each.after), dtype
            if key not in known:
                known[key] = _collectives(start, each.after, dtype, self.places.devices.machines[-1])
            if (steps := known[key]) is None:
                return None, f"not known: the collectives of {each.name or 'the array'}"
            for step in steps:
                what = f"{step.kind} over {axes_words(step.axes)}"
                totals[what] = totals.get(what, 0.0) + (step.seconds or 0.0)
        return sum(totals.values()), " + ".join(f"{what} {format_seconds(total)}" for what, total in totals.items())


def _chunks(old: np.ndarray, new: np.ndarray, extra: np.ndarray, limit: float) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the fewest chunks, of arrays in this order, that keep the peak within the limit if that is possible, and
    the most bytes on each device: arrays that have not moved yet, those that have, and `extra` of the chunk under way.

    Each chunk takes as many arrays as it can. That is fewest: a later start never needs more for the same end.
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
        one = Collective(
            kind=step.kind,
            axes=step.axes,
            dtype=dtype,
            shape=ends[1].shard_shape,
            operand_bytes=ends[0].bytes_per_device(dtype),
            result_bytes=ends[1].bytes_per_device(dtype),
            count=1,
        )
        found.append(with_seconds(one, after.mesh, machine))
    return found if all(each.seconds is not None for each in found) else None
