"""A step over time: its schedule walked on a machine, each instruction at its own roofline, with shared links.

    timeline(report, "tpu v5p:4x4x4").seconds

Work takes the longer of its products (FLOPs at the reached share of the chip's peak) and its traffic (bytes at HBM's
bandwidth). A collective takes the cost model's time on the links of its axes, and a copy to the host its bytes at the
host link's bandwidth (`timing`). `walk` decides about overlap and waiting. The main memory in use has the same time
axis: from the compiler's buffer assignment, or from the lifetimes of arrays in the listed program.

The share of the peak that products reach is the share of the matrix unit that their shortest side fills, times
`matrix_share`. That was measured for some chips; for three it comes from one published step each, and is tested on all
other published steps (`gallery.published`). The shares of fused attention and HBM, and the time of a kernel launch, are
known for measured GPUs (`gallery.measured`). Everything else comes from data sheets (`chips.toml`). Omitted are the HBM
traffic of collectives, and links that two mesh axes share.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from shardviz.caching import cached_property
from shardviz.compiler import parse, schedule_of
from shardviz.costs.footprint import alive_in, memory_of, span_words, zeros_of
from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement, placed
from shardviz.costs.timing import HOST, SLICES, Timing
from shardviz.costs.trace import trace_of
from shardviz.costs.walk import COMPUTE, COPIES, FOLDED, WAITS, Task, Walk
from shardviz.display import paint
from shardviz.errors import ShardvizError
from shardviz.files import write_whole
from shardviz.notation import Axis, DeviceMesh
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_flops
from shardviz.records.groups import summed
from shardviz.records.report import ReportRecord
from shardviz.records.schedule import Schedule
from shardviz.records.values import SourceText, donated_bytes, on_device
from shardviz.records.versioned import Versioned

SCHEMA_VERSION = 1
_MOST_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event on a lane, once or in several trips of a loop.

    Attributes:
        name: the instruction; for a wait, the awaited instruction.
        lane: the lane.
        begin: seconds from the step's begin, the first time.
        seconds: its duration each time.
        trips: the number of times.
        what: `products`, `other work`, a kind of collective, `copy`, `loop`.
        bound: its bottleneck: `FLOPs`, `HBM`, `launch`, `ICI link`, ...
        source, phase: as in `Scheduled`.
        axes: the mesh axes of a collective.
        more: for folded trips of a loop, which equal the previous trip: their number.
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
    """A lane, and for how many seconds it is busy and waits: `compute`, `HBM copies`, `to the host`, `from the host`;
    or links, `DCN`, `NVLink`, `network`, `ICI data` (`ICI data +` and `ICI data -` where collectives send one way
    only), and the mesh axis whose they are."""

    name: str
    busy: float
    waiting: float
    axis: str = ""


@dataclass(frozen=True)
class Exposed:
    """Communication that no work hides, and the seconds that the chip waits for it in a step: the kind of collective,
    or `copy` for one to or from the host; the axes (None for what follows none), and the line."""

    what: str
    axes: tuple[Axis, ...] | None
    source: Frame | None
    seconds: float


@dataclass(frozen=True)
class Critical:
    """The seconds by which a step would be shorter if one thing took no time, with all else unchanged: `products`,
    `HBM`, `links`, `slices`, `host` or a `line`; `name` says which of them."""

    kind: str
    name: str
    seconds: float
    source: Frame | None = None


@dataclass(frozen=True, kw_only=True)
class HeldMemory:
    """The main memory in use on one device over a step.

    Attributes:
        begins: seconds from the step's begin at which the amount changes, in order. Equal trips of a loop appear once,
            as for events; several changes may be at one moment.
        bytes: the bytes in use from each of these moments on.
        standing: bytes in use all the time: the arguments; in a compiler's plan also results and constants.
        usable: bytes of a device that a program may use; None if unknown.
        rests_on: `the buffer assignment of the compiler for tpu v5p:4x4x4`, or that it is an estimate.
        beside: other numbers for the same memory, and why they differ.
    """

    begins: tuple[float, ...]
    bytes: tuple[float, ...]
    constant_bytes: float
    usable: float | None
    rests_on: str
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.bytes or len(self.begins) != len(self.bytes):
            raise ShardvizError(
                f"{len(self.begins)} begins and {len(self.bytes)} bytes: expected equal numbers, at least one"
            )

    @property
    def peak(self) -> float:
        """The most bytes in use at one moment."""
        return max(self.bytes)

    @property
    def peak_begin(self) -> float:
        """Seconds from the step's begin at which that is so for the first time."""
        return self.begins[self.bytes.index(self.peak)]


@dataclass(frozen=True, kw_only=True, repr=False)
class Timeline(Versioned, kind="timeline", version=SCHEMA_VERSION):
    """A step over time on one device. It displays itself: `print(timeline)`, `timeline.html()`,
    `timeline.save("step.svg")`; a file that ends in `.trace.json` is for Perfetto and Chrome.

    Attributes:
        program: the function's name.
        level: the report's level.
        target: the machine that it runs on.
        compiled_for: the report's own target.
        schedule: `the compiler's`, or `listed`: the program's order, where each collective begins when its operand is
            ready and is waited for at its first use.
        mesh: the mesh.
        seconds: the step's seconds.
        lanes: each lane's busy and waiting time.
        events: the events, in the order of their begin.
        exposed: exposed communication, longest first.
        critical: what would make the step shorter, largest effect first.
        memory: the memory in use on one device; None if unknown.
        notes: what is unknown, and the assumptions instead.
        source: file → line number → text, the report's.
    """

    _width: ClassVar[int | None] = 100

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
    memory: HeldMemory | None = None
    notes: tuple[str, ...] = ()
    source: SourceText = field(default_factory=dict)

    @property
    def rests_on(self) -> str:
        """Level and schedule in words."""
        return _rests_on(self.level, self.schedule, self.compiled_for)

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """Draw the lanes on the Axes `ax`, or on a new matplotlib figure's, and return the Axes."""
        return paint("plot", self, ax, dark=dark)

    def save(self, path: str | os.PathLike[str], *, dark: bool = False) -> Path:
        """Write it to a file, as `Displayed.save`; a file that ends in `.trace.json` has the Trace Event format.

        Args:
            path: the file.
            dark: as `Displayed.save`.

        Returns:
            The path.

        Raises:
            ShardvizError: for another ending, or if the file cannot be written.
        """
        if os.fspath(path).endswith(".trace.json"):
            return write_whole(path, json.dumps(trace_of(self)))
        return super().save(path, dark=dark)


def timeline_of(report: ReportRecord, target: str | Machine | None = None) -> Timeline:
    """Return the timeline of a report's step on a machine.

    Args:
        report: of any level with a program. If compiled for this machine, its optimised program is walked in the
            compiler's own schedule; otherwise the partitioned or the propagated program is walked in its own order.
        target: the machine, as for `cost`; the report's own if not given.

    Returns:
        The timeline.

    Raises:
        MeshError: if the machine has another number of devices than the report's mesh.
        TargetError: for an unknown machine, or one without a known speed (`cpu`).
        ShardvizError: if `report` is not a report, or has no program to walk.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> report = mlp.program.propagate(mlp.plan)
        >>> sv.timeline(report, "tpu v5e:2x4").seconds <= sv.cost(report, "tpu v5e:2x4").step.seconds
        True
    """
    place = placed(report, target, "timeline")
    timed = timed_program(report, place)
    if timed is None:
        raise ShardvizError(
            f"timeline: this report, level {report.level}, has no schedule to walk: its program has no matrix product "
            "and no collective, or an older shardviz wrote the report; compile for the target, or ask the program again"
        )
    timing, walk = timed.timing, Walk(timed.tasks)
    events = tuple(sorted(map(_event, walk.events), key=lambda event: event.begin))
    exposed = _exposed(events)
    return Timeline(
        program=report.program,
        level=report.level,
        target=place.machine.text,
        compiled_for=report.target,
        schedule=timed.schedule,
        mesh=report.mesh,
        seconds=walk.now,
        lanes=_lanes(events, walk.now, timing),
        events=events,
        exposed=exposed,
        critical=_critical(timed, events),
        memory=_memory(timed, walk),
        notes=(*timed.notes, *_launches(events, timing)),
        source=report.source,
    )


timeline = timeline_of  # its name in `shardviz`


Change = Callable[[Task], dict[str, float]]
"""Returns a task's changed times by name; empty if none changes."""


@dataclass(frozen=True)
class TimedProgram:
    """A report's schedule (as of `Timeline`) with its times on a machine as tasks, ready to be walked."""

    report: ReportRecord
    schedule: str
    entries: Schedule
    timing: Timing
    tasks: tuple[Task, ...]

    @cached_property
    def seconds(self) -> float:
        return Walk(self.tasks, events=False).now

    @cached_property
    def products(self) -> float:
        """Seconds of matrix products on one device in a step, overlap ignored."""
        return sum(times * task.products for task, times in each_task(self.tasks))

    @cached_property
    def traffic(self) -> float:
        """Seconds of main memory traffic on one device in a step, overlap ignored."""
        return sum(times * task.hbm for task, times in each_task(self.tasks))

    @property
    def hbm_bytes(self) -> float:
        """Bytes that one device reads from main memory and writes there in a step."""
        return self.traffic * self.timing.bandwidth

    def lost(self, change: Change) -> float:
        """Return the seconds by which the step is shorter with other times, from a new walk, so that overlap counts."""
        return max(0.0, self.seconds - Walk(_changed(self.tasks, change), events=False).now)

    @property
    def rests_on(self) -> str:
        """Level and schedule in words."""
        return _rests_on(self.report.level, self.schedule, self.report.target)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known, and the assumption in its place."""
        return (*self.timing.notes, *_notes(self.report, self.schedule, self.entries))


def timed_program(report: ReportRecord, place: Placement) -> TimedProgram | None:
    """Return a report's program with its times on a machine; None if the report has none."""
    entries, collectives = report.schedule, {c.name: c for c in report.collectives}
    own = report.level == "compiled" and report.target == place.machine.text
    if own:
        collectives |= {t.collective.name: t.collective for t in report.target_collectives}
    elif report.level == "compiled" and "partitioned" in report.stages:  # another machine's compiler would order it so
        entries = schedule_of(parse(report.stages["partitioned"]), donated=donated_bytes(report.arguments))
    if not entries:
        return None
    schedule = "the compiler's" if own and report.scheduled else "listed"
    timing = Timing(place, collectives, listed=schedule == "listed")
    tasks = timing.tasks(entries)
    if place.machine.num_slices > 1 and timing.chip.slice_wait:
        walk = Walk(tasks)
        tasks += timing.slowest_slice(walk.now) if any(lane == "DCN" for _, lane, *_ in walk.events) else ()
    return TimedProgram(report, schedule, entries, timing, tasks)


def each_task(tasks: Iterable[Task], times: int = 1) -> Iterator[tuple[Task, int]]:
    """Yield each task that is no loop, with its number of runs in a step."""
    for task in tasks:
        if task.kind == "loop":
            yield from each_task(task.body, times * task.trips)
        else:
            yield task, times


def _rests_on(level: str, schedule: str, compiled_for: str) -> str:
    if schedule == "listed":
        return f"level {level}, listed: the program's own order, no compiler's schedule"
    return f"level {level}, the schedule of the compiler for {compiled_for}"


def _notes(report: ReportRecord, schedule: str, entries: Schedule) -> Iterator[str]:
    if schedule == "listed":
        yield "listed: the fusion of elementwise operations is estimated"
        return
    flops = sum(entry.total[0] for entry in entries)
    if report.cost is not None and report.cost.dot_flops and flops > 1.02 * report.cost.dot_flops:
        yield (
            f"the optimised program computes some products again, or pads them: {format_flops(flops)} on each device, "
            f"{format_flops(report.cost.dot_flops)} in the partitioned program"
        )
    if report.memory is not None and report.memory.fits is False:
        yield f"the program does not fit {report.target}'s memory; it is timed as if it did"


def _memory(timed: TimedProgram, walk: Walk) -> HeldMemory | None:
    """Return the memory in use during a walk; None if the schedule does not know it."""
    if not walk.alive:
        return None
    report, machine = timed.report, timed.timing.place.machine
    chip, has, zeros = machine.chip, memory_of(machine), dict[str, float]()
    plan = None if timed.schedule == "listed" else report.memory
    if plan is None:
        constant_bytes = sum(value.bytes_per_device or 0.0 for value in on_device(report.arguments))
        zeros = zeros_of(report, machine)
        rests_on = (
            f"estimated at level {report.level}: each array is held from where it is written until it is read last"
        )
    else:
        constant_bytes = float(plan.arguments + plan.outputs - plan.aliased + plan.constants)
        rests_on = f"the buffer assignment of the compiler for {report.target}"
    changes = [(0.0, constant_bytes)]
    for begin, entry in walk.alive:
        alive = alive_in(entry, has, zeros)
        if constant_bytes + alive != changes[-1][1]:
            changes.append((begin, constant_bytes + alive))
    begins, held = zip(*changes, strict=True)
    usable, peak = chip.hbm_usable_bytes or chip.hbm_bytes, max(held)
    beside = []
    if plan is None:
        beside.append(span_words(peak))
        if any(value.kind == "offloaded" for value in report.residuals):
            beside.append("arrays in the host's memory are counted here too")
    elif plan.takes > peak:
        more = format_bytes(plan.takes - peak)
        beside.append(
            f"the compiler takes {format_bytes(plan.takes)}, {more} more: gaps between arrays, and small change"
        )
    return HeldMemory(
        begins=begins,
        bytes=held,
        constant_bytes=constant_bytes,
        usable=usable and usable / chip.devices_per_chip,
        rests_on=rests_on,
        beside=tuple(beside),
    )


def _launches(events: Iterable[Event], timing: Timing) -> Iterator[str]:
    if timing.chip.kind == "gpu" and timing.chip.launch_seconds is None:
        launched = sum(event.trips for event in events if event.lane == COMPUTE)
        yield f"the time to launch {launched:,} kernels is not counted: it is not published for this chip"


def _event(event: Sequence[Any]) -> Event:
    task, lane, begin, seconds, trips, more = event
    entry = {} if task.entry is None else {"source": task.entry.source, "phase": task.entry.phase}
    words = {"what": task.what, "bound": task.bound, "axes": task.axes}
    return Event(name=task.name, lane=lane, begin=begin, seconds=seconds, trips=trips, more=more, **words, **entry)


def _lanes(events: Iterable[Event], seconds: float, timing: Timing) -> tuple[Lane, ...]:
    busy = {COMPUTE: 0.0} | summed((event.lane, event.total) for event in events)
    order = sorted(busy, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return tuple(
        Lane(name, busy[name], max(0.0, seconds - busy[name]), timing.axis_of.get(name, ""))
        for name in order
        if name not in (FOLDED, WAITS)
    )


_ORDER = {name: place for place, name in enumerate((COMPUTE, COPIES, *HOST))}


def _exposed(events: Iterable[Event]) -> tuple[Exposed, ...]:
    waits = [event for event in events if event.lane == WAITS and event.bound != "HBM"]
    alike = summed(((event.what, event.axes, event.source), event.total) for event in waits)
    longest = sorted(alike.items(), key=lambda item: -item[1])
    return tuple(Exposed(what, axes, source, seconds) for (what, axes, source), seconds in longest)


def _critical(timed: TimedProgram, events: Sequence[Event]) -> tuple[Critical, ...]:
    """Return the effects on the step if one thing were infinitely fast, from a new walk for each."""
    timing = timed.timing
    spent = summed((e.source, e.total) for e in events if e.source is not None and e.lane in (COMPUTE, WAITS))

    def shorter(kind: str, name: str, change: Change, source: Frame | None = None) -> Critical:
        return Critical(kind, name, timed.lost(change), source)

    def on(lanes: Set[str]) -> Change:
        return lambda task: {"seconds": 0.0} if lanes & {*task.lanes} else {}

    def at(line: Frame) -> Change:
        return lambda task: _NOTHING if task.entry is not None and task.entry.source == line else {}

    savings = [shorter("products", "matrix products", no_products), shorter("HBM", "main memory", no_traffic)]
    lanes = {event.lane for event in events} - {COMPUTE, WAITS, COPIES, FOLDED}
    for link in sorted({timing.axis_of.get(lane, lane) for lane in lanes}):
        kind, name = ("host", f"copies {link}") if link in HOST else ("links", link)
        kind, name = ("slices", "the wait for the slowest slice") if link == SLICES else (kind, name)
        savings.append(shorter(kind, name, on({lane for lane in lanes if timing.axis_of.get(lane, lane) == link})))
    for line in sorted(spent, key=lambda frame: -spent[frame])[:_MOST_LINES]:
        savings.append(shorter("line", line.short, at(line), line))
    return tuple(sorted(savings, key=lambda each: -each.seconds))


def no_products(task: Task) -> dict[str, float]:
    """Return the changes of a task if products took no time."""
    return {"products": 0.0} if task.products else {}


def no_traffic(task: Task) -> dict[str, float]:
    """Return the changes of a task if main memory took no time."""
    return {"hbm": 0.0} if task.hbm else {}


_NOTHING = {"products": 0.0, "hbm": 0.0, "launch": 0.0, "seconds": 0.0}


def _changed(tasks: Iterable[Task], change: Change) -> tuple[Task, ...]:
    return tuple(
        dataclasses.replace(task, body=_changed(task.body, change))
        if task.kind == "loop"
        else dataclasses.replace(task, **new)
        if (new := change(task))
        else task
        for task in tasks
    )
