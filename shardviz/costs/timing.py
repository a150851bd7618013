"""A schedule's entries with their times on a machine: work by its rooflines, collectives by the cost model."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardviz.costs.collective import time_of
from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.costs.walk import Task
from shardviz.errors import ShardvizError
from shardviz.notation import Axis, axis_name
from shardviz.notation.groups import parse_pairs
from shardviz.records import Collective
from shardviz.records.schedule import Schedule, Scheduled

HOST = ("to the host", "from the host")
SLICES = "other slices"
_UNKNOWN = ("unknown links",)
_BESIDE = {"tpu": ("collective-permute",), "v5e": ("collective-permute", "all-gather")}
"""Chip, or kind of chip → the collectives beside which its compiler has the chip go on, as it comes; all of others.

From libtpu's own schedules without flags, of a Llama's train step on v3 to v7x and of the gallery on v5p: of the others
no time is hidden.
"""


_FEATURES, _LEAST_FEATURES = 128, 8
"""Of a convolution's features cuDNN's kernels take so many at once: of 64 they reach half as much as of 256 (steps
`convolution of 64 features` and others, one H100). Fewer than 8 it pads to 8 for the tensor cores."""


def runs_as_sum(kind: str, axes: Sequence[Axis], place: Placement) -> bool:
    """Whether a TPU's compiler runs a reduce-scatter or an all-gather along mesh axes as an all-reduce. It then keeps a
    slice of the sum, or sums shards that are padded with zeros.

    Without flags it does so if a group is all chips of a slice. For a reduce-scatter, the slice must have three sides,
    or two equal sides of 4 or more. For an all-gather, the slice must have three sides of 4 or more, and the group's
    devices must not be in the order of their coordinates: 8 x 8 devices on 4x4x4 are not, 16 x 4 are.

    On tpu7x, whose chips are two devices, reduce-scatters stay as they are, on the sparse cores. Over some of the chips
    the compiler mostly keeps the collective. This was tried on 31 slices of v2 to tpu7x, with float32 and bfloat16, of
    4 MB to 2 GB, with libtpu 0.0.42 (one differed: bfloat16 on v3:4x8); gathers in 13 orders on joined slices of
    64 to 512 chips (two differed: 8 x 16 devices on tpu7x:4x4x4, 16 x 16 on tpu7x:4x4x8). A test tries some again.
    """
    machine, groups = place.machine, place.groups(axes)
    chip, sides = machine.chip, machine.topology
    if chip.kind != "tpu" or groups.shape[1] * machine.num_slices != machine.size:
        return False
    if kind == "all-gather":
        return chip.ici_axes == 3 and min(sides) >= 4 and not _in_coordinate_order(machine, groups[0])
    if chip.ici_axes == 3:
        return kind == "reduce-scatter" and chip.devices_per_chip == 1 and min(sides) >= 2
    return kind == "reduce-scatter" and len(set(sides)) == 1 and min(sides) >= 4


def _in_coordinate_order(machine: Machine, group: np.ndarray) -> bool:
    """Return whether devices are in the order of their coordinates, whichever of the torus's axes comes first."""
    coords, base = machine.coords()[group], max(machine.shape)
    numbers = (coords[:, list(order)] @ [base**2, base, 1] for order in itertools.permutations(range(3)))
    return any((np.diff(each) >= 0).all() for each in numbers)


class Timing:
    """A timer of schedule entries. `notes` are its assumptions, `axis_of` is the mesh axis of each lane, and `runs` has
    each collective timed as the chip runs it."""

    def __init__(self, place: Placement, collectives: Mapping[str, Collective], *, listed: bool = False):
        """Prepare the times of a program. `collectives` are those that its schedule names. `listed` is whether the
        schedule is the program's own order, in which a chip waits for work that its compiler would not overlap."""
        self.place, self.collectives = place, collectives
        self.chip = place.machine.chip
        self._beside = _BESIDE.get(self.chip.name, _BESIDE.get(self.chip.kind)) if listed else None
        self.notes: dict[str, None] = {}
        self.axis_of: dict[str, str] = {}
        self.runs: dict[str, Collective] = {}
        self.bandwidth = self.chip.needs("hbm_bytes_per_s") / self.chip.devices_per_chip * (self.chip.hbm_share or 1.0)
        self._ways = {name: self._way(c) for name, c in collectives.items() if c.kind == "collective-permute"}
        self._split = {axis for way in self._ways.values() if way for axis, _ in (way,)}

    def tasks(self, entries: Schedule) -> tuple[Task, ...]:
        combined: dict[Any, Collective] = {}
        return tuple(task for entry in entries for task in self._tasks(entry, combined))

    def slowest_slice(self, seconds: float) -> tuple[Task, ...]:
        """Return the seconds that a step over several slices waits for the slowest of them (`slice_wait`)."""
        wait = (self.chip.slice_wait or 0.0) * math.log2(self.place.machine.num_slices) * seconds
        begin = Task("begin", "slowest slice", lanes=(SLICES,), seconds=wait, what="the slowest slice")
        return begin, Task("end", begin.name)

    def _tasks(self, entry: Scheduled, combined: dict[Any, Collective]) -> Iterator[Task]:
        """Yield the task of an entry, unless only TPUs run it; for a collective that the chip waits for at once, also
        its end."""
        if entry.padding_bytes and not entry.hbm_bytes and self.chip.kind != "tpu":
            return
        yield self._task(entry, combined)
        if self._beside is not None and entry.kind == "begin":
            collective = self.collectives.get(entry.collective)
            if collective is not None and collective.kind not in self._beside:
                yield Task("end", entry.name, entry=entry)

    def _task(self, entry: Scheduled, combined: dict[Any, Collective]) -> Task:
        task = Task(entry.kind, entry.name, after=entry.after, entry=entry)
        if entry.kind == "work":
            task.products = sum(map(self._products, entry.flops.items()))
            own = {"attention": self.chip.attention_share, "convolution": self.chip.convolution_share}.get(entry.kernel)
            task.products /= self.fill(entry) * (own or self.chip.matrix_share or 1.0)
            task.hbm = entry.moved(self.chip.own_bytes, self.chip.kind == "tpu") / self.bandwidth
            task.launch = self.chip.launch_seconds or 0.0
            task.what, task.bound = ("products" if entry.flops else "other work"), _bound(task)
            for name in entry.opaque:
                self._note(f"the FLOPs are not known of {name}: it takes as long as its bytes")
        elif entry.kind == "loop":
            task.body, task.what = self.tasks(entry.body), "loop"
            task.trips = 1 if entry.trips is None else entry.trips
            if entry.trips is None:
                self._note(f"the trips of loop {entry.name} are not known: counted once")
        elif entry.collective:
            one = self._as_run(entry)
            if one is not None:
                self.runs[entry.collective] = one
            task.seconds, task.lanes, task.bound = self._timed(entry.collective, one)
            if one is not None and one.kind == "all-reduce" and entry.sums_before and self._beside is not None:
                task.seconds = self._together(entry, one, combined)
            task.what, task.axes = (one.kind, one.axes) if one else ("collective", None)
        elif entry.kind == "begin":
            task.what = "copy"
            if entry.host_bytes:
                task.lanes, task.bound = (HOST[not entry.to_host],), "host link"
                task.seconds = self._host(entry.host_bytes)
            elif entry.between:
                task.what, task.lanes, task.bound = _words(entry.between), ("DCN",), "DCN"
                task.seconds = self._between(entry)
            else:
                task.hbm, task.bound = entry.hbm_bytes / self.bandwidth, "HBM"
        return task

    def _note(self, text: str) -> None:
        self.notes[text] = None

    def _products(self, counted: tuple[str, float]) -> float:
        dtype, flops = counted
        if flops and self.chip.rate_of(dtype) is None:
            self._note(f"{self.chip.name} has no rate for products of {dtype}: counted as bfloat16")
            dtype = "bfloat16"
        return flops * self.chip.devices_per_chip / self.chip.flops(dtype) if flops else 0.0

    def fill(self, entry: Scheduled) -> float:
        """Return the share of full tiles that work fills: of a TPU's matrix unit, or of features for cuDNN."""
        tile, side = self.chip.matrix_unit, entry.side
        if self.chip.kind != "tpu":
            tile, side = (_FEATURES, max(side, _LEAST_FEATURES)) if entry.kernel == "convolution" else (None, side)
        return side / (-(-side // tile) * tile) if tile and entry.side else 1.0

    def _host(self, moved: float) -> float:
        rate = self.chip.host_bytes_per_s
        if rate is None:
            self._note(f"how fast a {self.chip.name} reaches its host is not known: copies to the host are taken as 0")
            return 0.0
        return moved * self.chip.devices_per_chip / rate

    def _between(self, entry: Scheduled) -> float:
        """Return the seconds of a transfer between all slices, by the formulas of `stages`."""
        rate, slices = self.chip.dcn_bytes_per_s, self.place.machine.num_slices
        times = {"ALL_REDUCE": 2 * (slices - 1) / slices, "REDUCE_SCATTER": (slices - 1) / slices}
        times |= {"ALL_GATHER": slices - 1.0, "ALL_TO_ALL": (slices - 1) / slices}
        if rate is None or entry.between not in times:
            self._note(f"nothing here tells the time of {_words(entry.between)}: taken as 0")
            return 0.0
        self._note("transfers between slices are taken to be between all of them")
        return entry.sent_bytes * times[entry.between] * self.chip.devices_per_chip / rate

    def _as_run(self, entry: Scheduled) -> Collective | None:
        one = self.collectives.get(entry.collective)
        # neither libtpu nor XLA's GPU compiler makes a reduce-scatter of a psum and a slice both written by hand
        own = one is not None and one.origin == "user" and "sliced" in one.facts
        if one is not None and not own and entry.slices > 1 and entry.slices == one.group_size:
            one = dataclasses.replace(one, kind="reduce-scatter")
        if one is None or self._beside is None:  # a compiler's own schedule, or no TPU: it runs as it is written
            return one
        if one.axes and runs_as_sum(one.kind, one.axes, self.place):
            whole = max(one.operand_bytes, one.result_bytes)
            self._note(f"{one.kind}s over all chips are shown as the all-reduces that a TPU's compiler makes of them")
            one = dataclasses.replace(one, kind="all-reduce", operand_bytes=whole, result_bytes=whole)
        if entry.narrows:
            sent = one.operand_bytes if one.kind == "all-reduce" else one.operand_bytes / 2  # zeros are of float32
            one = dataclasses.replace(one, dtype="bfloat16", operand_bytes=sent, result_bytes=one.result_bytes / 2)
        return one

    def _together(self, entry: Scheduled, one: Collective, combined: dict[Any, Collective]) -> float:
        """Return the seconds that an all-reduce adds to the all-reduces that a TPU's compiler merges it with: over the
        same devices, of one element type, independent of each other. So many small ones pay for their hops once."""
        key = one.axes, one.groups, one.dtype, entry.sums_before
        before = combined.get(key)
        if before is not None:
            sizes = before.operand_bytes + one.operand_bytes, before.result_bytes + one.result_bytes
            one = dataclasses.replace(one, operand_bytes=sizes[0], result_bytes=sizes[1])
        combined[key] = one
        earlier = 0.0 if before is None else self._timed(entry.collective, before)[0]
        return self._timed(entry.collective, one)[0] - earlier

    def _timed(self, name: str, collective: Collective | None) -> tuple[float, tuple[str, ...], str]:
        if collective is None:
            self._note(f"the report has no collective {name}: taken as 0 seconds")
            return 0.0, _UNKNOWN, ""
        try:
            time = time_of(collective, self.place, self.place.machine)
        except ShardvizError as error:
            self._note(f"the time of {name}, {collective.kind}, is not known ({error}): taken as 0 seconds")
            return 0.0, _UNKNOWN, ""
        return time.seconds, self._links(collective), time.bound

    def _links(self, collective: Collective) -> tuple[str, ...]:
        mesh = self.place.mesh
        axes = mesh.names if collective.axes is None else dict.fromkeys(map(axis_name, collective.axes))
        axes = [axis for axis in axes if mesh.shape[axis] > 1]
        if not axes:
            return _UNKNOWN
        over = self.place.route(collective.axes or tuple(axes))
        if self.chip.kind == "gpu":
            return ("NVLink",) * (over.per_domain > 1) + ("network",) * (over.domains > 1)
        lanes = ["DCN"] if over.slices > 1 else []
        way = self._ways.get(collective.name)
        for axis in axes if over.per_slice > 1 else ():
            ways = [""] if axis not in self._split else [f" {way[1]}"] if way else [" +", " -"]
            self.axis_of |= {f"ICI {axis}{each}": axis for each in ways}
            lanes += [f"ICI {axis}{each}" for each in ways]
        return tuple(lanes)

    def _way(self, permute: Collective) -> tuple[str, str] | None:
        """Return the mesh axis along which a permute sends, and the direction of most messages; None if there is no
        single axis."""
        if permute.axes is None or len(permute.axes) != 1 or not permute.groups.startswith("{{"):
            return None
        axis, mesh = axis_name(permute.axes[0]), self.place.mesh
        pairs, at = parse_pairs(permute.groups), mesh.names.index(axis)
        places = mesh.coordinates()[:, at]
        size = mesh.shape[axis]
        steps = (places[pairs[:, 1]] - places[pairs[:, 0]]) % size
        if self.chip.kind != "tpu" or size < 3 or np.any(pairs >= mesh.size):
            return None
        ahead = int(np.median(steps[steps > 0])) if np.any(steps > 0) else 0
        return (axis, "+" if 2 * ahead <= size else "-") if ahead else None


def _bound(task: Task) -> str:
    """Return the longest part of a task's time."""
    if task.launch > max(task.products, task.hbm):
        return "launch"
    return "FLOPs" if task.products >= task.hbm else "HBM"


def _words(between: str) -> str:
    """`ALL_REDUCE` → `all-reduce between slices`."""
    return f"{between.lower().replace('_', '-')} between slices"
