"""The step as it would run: a schedule walked on a machine, each instruction at its own roofline, links shared.

    timeline(report, "tpu v5p:4x4x4").seconds

The chip does one piece of work after the other, in the schedule's order (`records.schedule`). Work takes the larger of
its products' FLOPs at the chip's peak and its bytes at HBM's bandwidth. What is begun goes on beside it:

| what | on | how long |
|---|---|---|
| a collective | the lanes of its links, behind what began before on any of them | the cost model's time (`collective`) |
| a copy to the host or from it | the host's link, likewise | bytes / the host link's bandwidth |
| a copy within main memory, or to VMEM | HBM, one after the other, in the bandwidth that the work leaves | its bytes |

Where the chip waits for its end, the wait is an event too. Of a loop trips are walked until one begins in the state in
which the one before it began, which is mostly the second; the rest is like it, and is multiplied.

Nothing is fitted: all rates are those of `chips.toml`. Not in it: the HBM traffic of collectives, what of the matrix
unit's peak small or uneven shapes reach, launch overheads, and links that two mesh axes share.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from shardviz.compiler import count_flops, parse
from shardviz.compiler.schedule import is_scheduled, schedule_of
from shardviz.costs.collective import time_of
from shardviz.costs.machine import Machine, machine_of, natural
from shardviz.costs.placement import Placement, other_size
from shardviz.costs.trace import trace_of
from shardviz.errors import MeshError, ShardvizError, excerpt
from shardviz.files import write_whole
from shardviz.notation import Axis, DeviceMesh, axis_name
from shardviz.notation.groups import parse_pairs
from shardviz.records import Collective, Frame
from shardviz.records.amounts import format_flops
from shardviz.records.report import ReportRecord
from shardviz.records.schedule import Schedule, Scheduled
from shardviz.visible import Visible

COMPUTE, WAITS, COPIES, HOST, FOLDED = "compute", "waits", "HBM copies", "host", "more trips"
SCHEMA_VERSION = 1
_MOST_TRIPS = 64
_MOST_LINES = 12
_ALIKE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that takes place on a lane, once or in several trips of a loop.

    Attributes:
        name: the instruction; of a wait what is waited for.
        lane: where.
        begin: seconds from the step's begin, the first time.
        seconds: how long, each time.
        trips: how often it is so.
        what: `products`, `other work`, a kind of collective, `copy`, `loop`.
        bound: what its time is bound by: `FLOPs`, `HBM`, `ICI link`, ...
        source, phase: as of `Scheduled`.
        axes: of a collective.
        more: of trips that are like the one before: how many.
    """

    name: str
    lane: str
    begin: float
    seconds: float
    trips: int = 1
    more: int = 0
    what: str = ""
    bound: str = ""
    source: Frame | None = None
    phase: str = "update"
    axes: tuple[Axis, ...] | None = None

    @property
    def total(self) -> float:
        """Seconds in the step."""
        return self.seconds * self.trips


@dataclass(frozen=True)
class Lane:
    """A lane, and how its step is spent.

    Attributes:
        name: `compute`, `HBM copies`, `host`, or links: `ICI data`, `ICI data +` and `ICI data -` where collectives
            send one way only, `DCN`, `NVLink`, `network`.
        busy, waiting: seconds.
        axis: the mesh axis whose links it is; empty for others.
    """

    name: str
    busy: float
    waiting: float
    axis: str = ""


@dataclass(frozen=True)
class Exposed:
    """Communication that no work hides.

    Attributes:
        what: the kind of collective, or `copy` for one to or from the host.
        axes: that it runs over; None for what follows none.
        source: the line.
        seconds: that the chip waits for it in a step.
    """

    what: str
    axes: tuple[Axis, ...] | None
    source: Frame | None
    seconds: float


@dataclass(frozen=True)
class Critical:
    """What the step would lose if something took no time at all, all else as it is.

    Attributes:
        kind: `products`, `HBM`, `links`, `host` or `line`.
        name: of which links, or which line.
        seconds: by how much the step would be shorter. Where links are shared it may be below 0: what comes sooner may
            stand in the way of what the step waits for.
        source: the line.
    """

    kind: str
    name: str
    seconds: float
    source: Frame | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Timeline(Visible):
    """A step as it would run on one device.

    It shows itself: `print(timeline)`, `timeline.html()`, `timeline.save("step.svg")`; `timeline.save("step.trace.json")`
    is for Perfetto and Chrome.

    Attributes:
        program: the function's name.
        level: of the report.
        target: the machine that it runs on.
        compiled_for: the report's own target.
        schedule: `the compiler's`, or `listed`: the program's order, each collective begun when its operand is there
            and waited for where it is first needed.
        mesh: the mesh.
        seconds: the step's.
        lanes: each lane's busy and waiting time.
        events: what takes place, in the order in which it begins.
        exposed: communication that nothing hides, the longest first.
        critical: what would make the step shorter, the most first.
        notes: what is not known, and what was taken in its place.
        source: file → line number → text, the report's.
    """

    width: ClassVar[int | None] = 100

    program: str
    level: str
    target: str
    compiled_for: str
    schedule: str
    mesh: DeviceMesh
    seconds: float
    lanes: tuple[Lane, ...]
    events: tuple[Event, ...]
    exposed: tuple[Exposed, ...] = ()
    critical: tuple[Critical, ...] = ()
    notes: tuple[str, ...] = ()
    source: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    @property
    def rests_on(self) -> str:
        """Level and schedule in words."""
        if self.schedule == "listed":
            return f"level {self.level}, listed: the program's own order, no compiler's schedule"
        return f"level {self.level}, the schedule of the compiler for {self.compiled_for}"

    def line(self, frame: Frame | None) -> str:
        """The text of a source line, stripped; empty where it is not known."""
        return "" if frame is None else self.source.get(frame.file, {}).get(frame.line, "").strip()

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """The lanes as a matplotlib figure: draws on `ax`, or on a new figure's, and returns the Axes."""
        from shardviz.visible import paint

        return paint("plot", self, ax, "", dark=dark)

    def save(self, path: str | os.PathLike[str], kind: str = "", *, dark: bool = False) -> Path:
        """Writes it to a file, as `Visible.save`; one that ends in `.trace.json` is in the Trace Event format.

        Args:
            path: the file.
            kind, dark: as `Visible.save`.

        Returns:
            The path.

        Raises:
            ShardvizError: for another ending, and where the file cannot be written.
        """
        if os.fspath(path).endswith(".trace.json"):
            return write_whole(path, json.dumps(trace_of(self)))
        return super().save(path, kind, dark=dark)

    def to_json(self, *, indent: int | None = None) -> str:
        """It as JSON text with a schema version."""
        data = msgspec.to_builtins(self, str_keys=True)
        return json.dumps({"shardviz_timeline": SCHEMA_VERSION, **data}, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote.

        Raises:
            ShardvizError: if the text is no timeline, or of a schema version that this shardviz does not know; or if a
                field is missing or of another type than it should be, which the message names.
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ShardvizError(f"this is no shardviz timeline: not JSON ({error})") from error
        version = data.pop("shardviz_timeline", None) if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ShardvizError(
                f"this is no shardviz timeline of schema version {SCHEMA_VERSION} (found {excerpt(repr(version))}); "
                "a newer shardviz may read it"
            )
        try:
            return msgspec.convert(data, cls, str_keys=True)
        except (msgspec.ValidationError, ShardvizError) as error:
            raise ShardvizError(f"this shardviz timeline is damaged: {error}") from error


# The walk.


@dataclass(slots=True)
class Task:
    """An entry of a schedule with its times on a machine.

    Attributes:
        kind, name, after, trips: as of `Scheduled`; trips that are not known are 1.
        products, hbm: seconds of work's FLOPs and bytes; of a copy within main memory `hbm`.
        lanes, seconds: of `begin`: the links that it takes, and how long; no lanes for a copy within main memory.
        body: of `loop`.
        what, bound, axes, entry: what events say of it.
    """

    kind: str
    name: str
    products: float = 0.0
    hbm: float = 0.0
    lanes: tuple[str, ...] = ()
    seconds: float = 0.0
    after: tuple[str, ...] = ()
    trips: int = 1
    body: tuple[Task, ...] = ()
    what: str = ""
    bound: str = ""
    axes: tuple[Axis, ...] | None = None
    entry: Scheduled | None = None


class Walk:
    """A walk over tasks.

    Attributes:
        now: seconds from the begin.
        events: (task, lane, begin, seconds, trips, more) of each event; empty where they are not wanted.
    """

    def __init__(self, tasks: Sequence[Task], *, events: bool = True, most_trips: int = _MOST_TRIPS):
        """Walks.

        Args:
            tasks: the schedule.
            events: note them.
            most_trips: of a loop that are walked one by one, though no two begin alike; the rest then is taken to be
                like the last.
        """
        self.now, self.events = 0.0, list[list[Any]]()
        self._noted, self._most = events, most_trips
        self._free: dict[str, float] = {}  # a lane of links → when it has nothing more to do
        self._ends: dict[str, float] = {}  # what was begun → when it ends
        self._begun: dict[str, Task] = {}
        self._copies: deque[list[Any]] = deque()  # the task, the seconds of HBM that it still needs, when it began
        self._walk(tasks)
        self._copy(self.now, self.now + sum(left for _, left, _ in self._copies), 1.0)
        self.now = max([self.now, *self._ends.values()])

    def _walk(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.kind == "work":
                self._work(task)
            elif task.kind == "begin":
                self._begin(task)
            elif task.kind == "end":
                self._end(task)
            else:
                self._loop(task)

    def _work(self, task: Task) -> None:
        seconds = max(task.products, task.hbm)
        if not seconds:
            return
        self._note(task, COMPUTE, self.now, seconds)
        self._copy(self.now, self.now + seconds, 1.0 - task.hbm / seconds)
        self.now += seconds

    def _begin(self, task: Task) -> None:
        self._begun[task.name] = task
        begin = max([self.now, *(self._ends.get(name, 0.0) for name in task.after)])
        if not task.lanes:
            self._ends.pop(task.name, None)
            self._copies.append([task, task.hbm, None])
            return
        begin = max([begin, *(self._free.get(lane, 0.0) for lane in task.lanes)])
        self._ends[task.name] = begin + task.seconds
        for lane in task.lanes if task.seconds else ():
            self._free[lane] = begin + task.seconds
            self._note(task, lane, begin, task.seconds)

    def _end(self, task: Task) -> None:
        began = self._begun.get(task.name)
        if began is None:
            return
        ahead = 0.0
        for copy, left, _ in self._copies if not began.lanes else ():
            ahead += left
            if copy.name == task.name:
                self._ends[task.name] = self.now + ahead
                break
        wait = self._ends.get(task.name, 0.0) - self.now
        if wait <= 0:
            return
        self._note(began, WAITS, self.now, wait)
        self._copy(self.now, self.now + wait, 1.0)
        self.now += wait

    def _copy(self, begin: float, end: float, share: float) -> None:
        """Goes on with the copies while a share of HBM's bandwidth is free."""
        now = begin
        while self._copies and share > _ALIKE:
            copy = self._copies[0]
            task, left = copy[0], copy[1]
            copy[2] = now if copy[2] is None else copy[2]
            needs = left / share
            if now + needs > end * (1 + 1e-12):
                copy[1] -= (end - now) * share
                return
            now = min(now + needs, end)
            self._ends[task.name] = now
            if now > copy[2]:
                self._note(task, COPIES, copy[2], now - copy[2])
            self._copies.popleft()

    def _state(self) -> dict[Any, float]:
        """What is under way, and for how long yet."""
        under_way = {name: at - self.now for of in (self._free, self._ends) for name, at in of.items() if at > self.now}
        return under_way | {place: left for place, (_, left, _) in enumerate(self._copies)}

    def _loop(self, loop: Task) -> None:
        before: dict[Any, float] | None = None
        last, mark = self.now, 0
        for trip in range(loop.trips):
            state, length = self._state(), self.now - last
            if trip >= self._most or (before is not None and _alike(state, before, _ALIKE * length)):
                return self._repeat(loop, loop.trips - trip, length, mark)
            before, last, mark = state, self.now, len(self.events)
            self._walk(loop.body)
        return None

    def _repeat(self, loop: Task, times: int, length: float, mark: int) -> None:
        """So many trips more like the last one, whose events are those from `mark` on."""
        for event in self.events[mark:]:
            event[4] *= times + 1
        more = times * length
        if more:
            self._note(loop, FOLDED, self.now, more, times)
        for times_of in (self._free, self._ends):
            for name, at in times_of.items():
                if at > self.now:
                    times_of[name] = at + more
        for copy in self._copies:
            copy[2] = None if copy[2] is None else copy[2] + more
        self.now += more

    def _note(self, task: Task, lane: str, begin: float, seconds: float, more: int = 0) -> None:
        if self._noted:
            self.events.append([task, lane, begin, seconds, 1, more])


def _alike(one: Mapping[Any, float], other: Mapping[Any, float], within: float) -> bool:
    return one.keys() == other.keys() and all(abs(at - other[name]) <= within for name, at in one.items())


# From a report.


def timeline(report: ReportRecord, target: str | Machine | None = None) -> Timeline:
    """The step of a report as it would run on a machine.

    Args:
        report: of any level that has a program: compiled for this machine, its optimised program is walked in the
            compiler's own schedule; else the partitioned program, or what Shardy propagated, in the program's order.
        target: the machine, as `cost` takes it; the report's own if not given.

    Returns:
        The timeline.

    Raises:
        MeshError: if the machine has another number of devices than the report's mesh.
        TargetError: if there is no such machine, or it has no speed (`cpu`).
        ShardvizError: if `report` is no report, or it has no program to walk.
    """
    if not isinstance(report, ReportRecord):
        raise ShardvizError(
            f"timeline(report={type(report).__name__}): expected a Report, such as program.partition(plan) gives"
        )
    machine = machine_of(report.target if target is None else target, report.mesh.size)
    machine.chip.needs("hbm_bytes_per_s")
    if report.mesh.size != machine.size:
        other = natural(machine.chip, report.mesh.size)
        raise MeshError(
            other_size(report.mesh, machine) + (f"; a target that would do: {other.text}" if other else "")
        )
    entries, collectives, schedule = _program(report, machine)
    timing = _Timing(report, Placement.of(report.mesh, machine), collectives)
    tasks = timing.tasks(entries)
    walk = Walk(tasks)
    events = tuple(sorted((_event(*event) for event in walk.events), key=lambda event: event.begin))
    exposed = _exposed(events, timing)
    return Timeline(
        program=report.program,
        level=report.level,
        target=machine.text,
        compiled_for=report.target,
        schedule=schedule,
        mesh=report.mesh,
        seconds=walk.now,
        lanes=_lanes(events, walk.now, timing),
        events=events,
        exposed=exposed,
        critical=_critical(tasks, walk.now, events, timing),
        notes=(*timing.notes, *_notes(report, schedule, entries)),
        source=report.source,
    )


def _program(report: ReportRecord, machine: Machine) -> tuple[Schedule, Mapping[str, Collective], str]:
    """The schedule, the collectives that it names, and what it rests on."""
    if "optimized" in report.stages and report.target == machine.text:
        module = parse(report.stages["optimized"])
        if is_scheduled(module):
            made = {t.collective.name: t.collective for t in report.target_collectives}
            return schedule_of(module), made, "the compiler's"
    made = {c.name: c for c in report.collectives}
    if "partitioned" in report.stages:
        return schedule_of(parse(report.stages["partitioned"])), made, "listed"
    if report.schedule:
        return report.schedule, made, "listed"
    raise ShardvizError(
        f"timeline: this report, level {report.level}, has no program to walk: it was saved without its stages "
        "(to_json(stages=False)), or by a shardviz that kept no schedule; ask the program again"
    )


def _notes(report: ReportRecord, schedule: str, entries: Schedule) -> Iterator[str]:
    if schedule == "listed":
        yield "listed: of the bytes in HBM only those of matrix products are counted; what is fused is not known yet"
        return
    flops = sum(entry.total[0] for entry in entries)
    if report.cost is not None and report.cost.dot_flops and flops > 1.02 * report.cost.dot_flops:
        yield (
            f"the optimised program computes some products again, or pads them: {format_flops(flops)} on each device, "
            f"{format_flops(report.cost.dot_flops)} in the partitioned program"
        )
    if report.memory is not None and report.memory.fits is False:
        yield f"the program does not fit {report.target}'s memory; it is timed as if it did"


class _Timing:
    """Puts times on a schedule's entries.

    Attributes:
        notes: what is not known.
        axis_of: lane → the mesh axis.
    """

    def __init__(self, report: ReportRecord, place: Placement, collectives: Mapping[str, Collective]):
        self.report, self.place, self.collectives = report, place, collectives
        self.chip = place.machine.chip
        self.notes: dict[str, None] = {}
        self.axis_of: dict[str, str] = {}
        self._bandwidth = self.chip.needs("hbm_bytes_per_s") / self.chip.devices_per_chip
        self._ways = {name: self._way(c) for name, c in collectives.items() if c.kind == "collective-permute"}
        self._split = {axis for way in self._ways.values() if way for axis, _ in (way,)}
        self._known: dict[str, tuple[float, tuple[str, ...], str]] = {}
        self._kernels: dict[Frame | None, float] | None = None

    def tasks(self, entries: Schedule) -> tuple[Task, ...]:
        """The entries with their times."""
        return tuple(map(self._task, entries))

    def _task(self, entry: Scheduled) -> Task:
        task = Task(entry.kind, entry.name, after=entry.after, entry=entry)
        if entry.kind == "work":
            task.products = sum(map(self._products, entry.flops.items()))
            if entry.opaque and (said := self._kernel(entry)):
                task.products += self._products((max(entry.flops, default="bfloat16"), said))
                entry = dataclasses.replace(entry, opaque=())
            task.hbm = entry.hbm_bytes / self._bandwidth
            at_least = task.products >= task.hbm
            task.what, task.bound = ("products" if entry.flops else "other work"), "FLOPs" if at_least else "HBM"
            for name in entry.opaque:
                self._note(f"nobody says the FLOPs of {name}: it takes as long as its bytes")
        elif entry.kind == "loop":
            task.body, task.what = self.tasks(entry.body), "loop"
            task.trips = 1 if entry.trips is None else entry.trips
            if entry.trips is None:
                self._note(f"the trips of loop {entry.name} are not known: counted once")
        elif entry.collective:
            task.seconds, task.lanes, task.bound = self._collective(entry.collective)
            known = self.collectives.get(entry.collective)
            task.what, task.axes = (known.kind, known.axes) if known else ("collective", None)
        elif entry.kind == "begin":
            task.what = "copy"
            if entry.host_bytes:
                task.lanes, task.bound = (HOST,), "host link"
                task.seconds = self._host(entry.host_bytes)
            elif entry.untimed:
                self._note(f"nothing here tells the time of {entry.untimed}: taken as 0")
                task.lanes = ("untimed",)
            else:
                task.hbm, task.bound = entry.hbm_bytes / self._bandwidth, "HBM"
        return task

    def _note(self, text: str) -> None:
        self.notes[text] = None

    def _products(self, counted: tuple[str, float]) -> float:
        dtype, flops = counted
        if flops and self.chip.rate_of(dtype) is None:
            self._note(f"{self.chip.name} has no rate for products of {dtype}: counted as bfloat16")
            dtype = "bfloat16"
        return flops * self.chip.devices_per_chip / self.chip.flops(dtype) if flops else 0.0

    def _kernel(self, entry: Scheduled) -> float:
        """FLOPs of one run of a kernel whose text does not say them: what the report counts more on its line than the
        partitioned program's text says, shared by the kernel's runs there; 0 where that is nothing."""
        if self._kernels is None:
            self._kernels = {}
            module = parse(self.report.stages["partitioned"]) if "partitioned" in self.report.stages else None
            texts = count_flops(module).work if module is not None else ()
            for sign, rows in ((1.0, self.report.cost.work if module and self.report.cost else ()), (-1.0, texts)):
                for row in rows:
                    self._kernels[row.source] = self._kernels.get(row.source, 0.0) + sign * row.dot_flops
            runs = _runs(schedule_of(module)) if module is not None else {}
            self._kernels = {at: more / runs[at] for at, more in self._kernels.items() if more > 0 and at in runs}
        return self._kernels.get(entry.source, 0.0)

    def _host(self, moved: float) -> float:
        rate = self.chip.host_bytes_per_s
        if rate is None:
            self._note(f"how fast a {self.chip.name} reaches its host is not known: copies to the host are taken as 0")
            return 0.0
        return moved * self.chip.devices_per_chip / rate

    def _collective(self, name: str) -> tuple[float, tuple[str, ...], str]:
        if name not in self._known:
            self._known[name] = self._timed(name)
        return self._known[name]

    def _timed(self, name: str) -> tuple[float, tuple[str, ...], str]:
        """Seconds, lanes and bound of a collective."""
        collective = self.collectives.get(name)
        if collective is None:
            self._note(f"the report has no collective {name}: taken as 0 seconds")
            return 0.0, ("unknown links",), ""
        try:
            time = time_of(collective, self.place, self.place.machine)
        except ShardvizError as error:
            self._note(f"the time of {name}, {collective.kind}, is not known ({error}): taken as 0 seconds")
            return 0.0, ("unknown links",), ""
        return time.seconds, self._links(collective), time.bound

    def _links(self, collective: Collective) -> tuple[str, ...]:
        """The lanes that it takes."""
        mesh = self.place.mesh
        axes = mesh.names if collective.axes is None else dict.fromkeys(map(axis_name, collective.axes))
        axes = [axis for axis in axes if mesh.shape[axis] > 1]
        if not axes:
            return ("unknown links",)
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
        """The one mesh axis along which a permute sends, and which way round most go; None where there is no one."""
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


def _runs(entries: Schedule, times: int = 1) -> dict[Frame | None, int]:
    """Line → how often kernels run there whose FLOPs their text does not say."""
    found: dict[Frame | None, int] = {}
    for entry in entries:
        inner = _runs(entry.body, times * (entry.trips or 1)) if entry.kind == "loop" else {}
        for line, count in (inner | ({entry.source: times * len(entry.opaque)} if entry.opaque else {})).items():
            found[line] = found.get(line, 0) + count
    return found


def _event(task: Task, lane: str, begin: float, seconds: float, trips: int, more: int) -> Event:
    entry = task.entry
    return Event(
        name=task.name,
        lane=lane,
        begin=begin,
        seconds=seconds,
        trips=trips,
        more=more,
        what=task.what,
        bound=task.bound,
        source=entry and entry.source,
        phase=entry.phase if entry else "update",
        axes=task.axes,
    )


def _lanes(events: Iterable[Event], seconds: float, timing: _Timing) -> tuple[Lane, ...]:
    busy: dict[str, float] = {COMPUTE: 0.0}
    for event in events:
        busy[event.lane] = busy.get(event.lane, 0.0) + event.total
    order = sorted(busy, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return tuple(
        Lane(name, busy[name], seconds - busy[name], timing.axis_of.get(name, ""))
        for name in order
        if name not in (FOLDED, WAITS)
    )


_ORDER = {COMPUTE: 0, COPIES: 1, HOST: 2}


def _exposed(events: Iterable[Event], timing: _Timing) -> tuple[Exposed, ...]:
    found: dict[Any, float] = {}
    for event in events:
        if event.lane == WAITS and event.bound != "HBM":
            key = event.what, event.axes, event.source
            found[key] = found.get(key, 0.0) + event.total
    return tuple(Exposed(*key, seconds) for key, seconds in sorted(found.items(), key=lambda item: -item[1]))


def _critical(
    tasks: tuple[Task, ...], seconds: float, events: Sequence[Event], timing: _Timing
) -> tuple[Critical, ...]:
    """The step walked again for each thing that could be infinitely fast."""
    spent: dict[Frame, float] = {}
    for event in events:
        if event.source is not None and event.lane in (COMPUTE, WAITS):
            spent[event.source] = spent.get(event.source, 0.0) + event.total
    lanes = {event.lane for event in events} - {COMPUTE, WAITS, COPIES, HOST, FOLDED}
    links = {timing.axis_of.get(lane, lane) for lane in lanes}
    asked: list[tuple[str, str, Frame | None, Callable[[Task], dict[str, float]]]] = [
        ("products", "matrix products", None, lambda task: {"products": 0.0}),
        ("HBM", "main memory", None, lambda task: {"hbm": 0.0}),
    ]
    for link in sorted(links):
        of_link = frozenset(lane for lane in lanes if timing.axis_of.get(lane, lane) == link)
        asked.append(("links", link, None, lambda task, of=of_link: {"seconds": 0.0} if of & {*task.lanes} else {}))
    if any(event.lane == HOST for event in events):
        asked.append(("host", "host link", None, lambda task: {"seconds": 0.0} if HOST in task.lanes else {}))
    for line in sorted(spent, key=lambda frame: -spent[frame])[:_MOST_LINES]:
        nothing = {"products": 0.0, "hbm": 0.0, "seconds": 0.0}
        asked.append(
            ("line", line.short, line, lambda task, at=line: nothing if task.entry and task.entry.source == at else {})
        )
    found = [
        Critical(kind, name, seconds - Walk(_changed(tasks, change), events=False).now, source)
        for kind, name, source, change in asked
    ]
    return tuple(sorted(found, key=lambda each: -each.seconds))


def _changed(tasks: Iterable[Task], change: Callable[[Task], dict[str, float]]) -> tuple[Task, ...]:
    """The tasks with other times."""
    return tuple(
        dataclasses.replace(task, body=_changed(task.body, change))
        if task.kind == "loop"
        else dataclasses.replace(task, **new) if (new := change(task)) else task
        for task in tasks
    )
