"""A step as it would run: what it takes, what holds it up, what would make it shorter; and its lanes drawn.

Where a loop's trips are alike, the lanes have one of them, as wide as all: what is wide takes much of the step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardviz.costs.timeline import Critical, Event, HeldMemory, Lane, Timeline
from shardviz.costs.timing import HOST
from shardviz.costs.walk import COMPUTE, COPIES, FOLDED, WAITS
from shardviz.notation import axis_name
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.collectives import KINDS, axes_words
from shardviz.view.document import (
    Block,
    Document,
    Figure,
    Inline,
    Part,
    Section,
    Table,
    axes,
    bar,
    document,
    line,
    moved,
    nbytes,
    notes,
    right,
    seconds,
    section,
    table,
    words,
    wrapped,
)
from shardviz.view.picture import Labels, LegendKey, Lines, Picture, Rects, Shape, picture, text_wide
from shardviz.view.step_cost import pair

_MOST = 12
_WORDS = {"copy": "copy to or from the host"}


@document.register
def timeline_document(timeline: Timeline) -> Document:
    """The seconds and their basis, what they go to, what is exposed, and what would make the step shorter."""
    title = (
        words(timeline.program, strong=True),
        words(f"predicted on {timeline.target}:"),
        words(format_seconds(timeline.seconds), strong=True),
        words("a step"),
    )
    lead = words(f"based on {timeline.rests_on}", quiet=True)
    figure = Figure(of=timeline_picture(timeline), caption="Lanes", brief=True, name="timeline-lanes")
    return Document(title=title, lead=(lead,), blocks=(figure, *timeline_tables(timeline)), mesh=timeline.mesh)


def timeline_tables(timeline: Timeline) -> tuple[Block, ...]:
    """All but the picture."""
    return (
        section("What the chip does", _spent(timeline)),
        *_critical(timeline),
        *_exposed(timeline),
        section("Lanes", _lanes(timeline)),
        _memory(timeline),
        *((section("What is not known", *notes(*timeline.notes)),) if timeline.notes else ()),
    )


def _share(timeline: Timeline, amount: float) -> str:
    return f"{amount / timeline.seconds:.1%}" if timeline.seconds else ""


def _spent(timeline: Timeline) -> Table:
    """The step's seconds on the chip: work by what bounds it, and waits by what is waited for."""
    sums: dict[str, float] = {}
    for event in timeline.events:
        if event.lane == COMPUTE:
            key = f"{event.what}, bound by {event.bound}"
        elif event.lane == WAITS:
            kind = {"copy": "copies to the host" if event.bound == "host link" else "copies within memory"}
            key = f"waits for {kind.get(event.what, 'collectives')}"
        else:
            continue
        sums[key] = sums.get(key, 0.0) + event.total
    most = max(sums.values(), default=1.0)
    role = lambda key: "moved" if key.startswith("waits") else "work"  # noqa: E731
    return table(
        sorted(sums.items(), key=lambda item: -item[1]),
        (right("in a step"), lambda item: seconds(item[1])),
        (right("share"), lambda item: _share(timeline, item[1])),
        ("", lambda item: bar([Part(share=item[1] / most, role=role(item[0]))])),
        ("what", lambda item: item[0]),
        noun="sum",
        folds="never",
        name="timeline-spent",
    )


def _lanes(timeline: Timeline) -> Table:
    def name(lane: Lane) -> Inline:
        if not lane.axis:
            return words(lane.name)
        return (words("ICI"), axes((lane.axis,)), words(lane.name.removeprefix(f"ICI {lane.axis}").strip()))

    return table(
        timeline.lanes,
        ("lane", name),
        (right("busy"), lambda lane: seconds(lane.busy)),
        (right("share"), lambda lane: _share(timeline, lane.busy)),
        (right("waiting"), lambda lane: seconds(lane.waiting)),
        noun="lane",
        folds="never",
        name="timeline-busy",
    )


def _memory(timeline: Timeline) -> Section:
    """The main memory in use: for the whole step, at the peak, and at the end."""
    memory, title = timeline.memory, "Memory over the step"
    if memory is None:
        return section(title, lead=MEMORY_NOT_KNOWN)
    most = max(memory.peak, memory.usable or 0.0) or 1.0
    at = memory.peak_begin
    there = next(
        (e for e in timeline.events if e.lane in (COMPUTE, WAITS) and e.begin <= at < e.begin + e.seconds), None
    )
    moments = (
        (memory.standing, "the whole step", None),
        (memory.peak, f"the peak, first at {format_seconds(at)}", there and there.source),
        (memory.bytes[-1], "at the end", None),
    )
    held = table(
        moments,
        (right("in use"), lambda it: nbytes(it[0], strong=it[0] == memory.peak)),
        (right("share"), lambda it: f"{it[0] / memory.usable:.1%}" if memory.usable else ""),
        ("", lambda it: bar([Part(share=it[0] / most, role="work")])),
        ("when", lambda it: it[1]),
        ("line", lambda it: "" if it[2] is None else line(it[2], timeline.source)),
        noun="moment",
        folds="never",
        name="timeline-memory",
    )
    lead = words(f"{memory_words(memory)}; {memory.rests_on}", quiet=True)
    return section(title, held, *notes(*memory.beside), lead=lead)


MEMORY_NOT_KNOWN = "not known: the report has no buffer assignment, or an older shardviz wrote it"


def memory_words(memory: HeldMemory) -> str:
    """`57.6 of 103 GB`."""
    usable = "not known" if memory.usable is None else format_bytes(memory.usable)
    return pair(format_bytes(memory.peak), usable, " of ")


def _exposed(timeline: Timeline) -> Iterator[Section]:
    total = sum(each.seconds for each in timeline.exposed)
    title = "Exposed communication"
    if not timeline.exposed:
        yield section(title, lead="none")
        return
    waits = table(
        timeline.exposed,
        (right("in a step"), lambda it: seconds(it.seconds)),
        (right("share"), lambda it: _share(timeline, it.seconds)),
        ("what", lambda it: moved(it.what, it.axes, it.source) if it.what in KINDS else _WORDS.get(it.what, it.what)),
        ("over", lambda it: axes(it.axes) if it.what in KINDS else ""),
        ("line", lambda it: line(it.source, timeline.source)),
        first=_MOST,
        noun="row",
        name="timeline-exposed",
    )
    yield section(title, waits, lead=f"{format_seconds(total)}, {_share(timeline, total)} of the step")


def _critical(timeline: Timeline) -> Iterator[Section]:
    """What the step would lose if something took no time."""
    rows = [each for each in timeline.critical if abs(each.seconds) > timeline.seconds * 1e-6]
    if not rows:
        return

    def what(each: Critical) -> Inline:
        if each.kind == "line":
            return line(each.source, timeline.source)
        return words(f"links of {each.name}" if each.kind == "links" else each.name)

    saved = table(
        rows,
        (right("shorter by"), lambda each: seconds(each.seconds)),
        (right("share"), lambda each: _share(timeline, each.seconds)),
        (wrapped("if this took no time"), what),
        first=_MOST,
        noun="row",
        name="timeline-critical",
    )
    lead = words("each alone, with everything else unchanged and overlap counted", quiet=True)
    yield section("What would make the step shorter", saved, lead=lead)


_WIDE, _HIGH, _STEP, _TOP = 820.0, 16.0, 22.0, 4.0
_BAND = 14.0  # pixels of a row of loops
_HELD = 64.0  # pixels of the memory's curve
_NEAR = 4.0  # times its peak up to which a device's memory is drawn on its scale
_LEAST = 0.4  # pixels of the shortest event that is drawn on its own


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trips of a loop that are alike, drawn as one (the others are `event`): begin and end of all, in seconds of the
    stretched step, and in how many such loops it lies."""

    event: Event
    begin: float
    end: float
    depth: int

    @property
    def trips(self) -> int:
        """How many they are."""
        return self.event.more + 1

    @property
    def words(self) -> str:
        """`80 identical iterations of while.7, 29.5 ms each, drawn as one`."""
        each = format_seconds(self.event.seconds / self.event.more)
        return f"{self.trips:,} identical iterations of {self.event.name}, {each} each, drawn as one"


class Stretch:
    """Seconds of the step → where they are drawn, in seconds too.

    Of a loop's trips that are alike one is drawn, as wide as all of them: so an event is as wide as all that it takes
    of the step, and a step is as wide as it is long.

    Attributes:
        loops: the loops in which it stretches, the outer ones first.
    """

    def __init__(self, timeline: Timeline):
        inner_first = sorted((e for e in timeline.events if e.lane == FOLDED), key=lambda e: e.seconds)
        self._folds = [(e.begin - e.seconds / e.more, e.begin, e.seconds, e.more) for e in inner_first]
        loops: list[Loop] = []
        for event, (first, *_) in zip(reversed(inner_first), reversed(self._folds), strict=True):
            begin, end = self([first, event.begin])
            loops.append(Loop(event, begin, end, sum(o.begin <= begin and end <= o.end for o in loops)))
        self.loops = tuple(loops)

    def __call__(self, at: Sequence[float]) -> list[float]:
        times = np.asarray(at, float)
        for first, begin, rest, more in self._folds:
            one = (times >= first) & (times < begin)
            others = (times >= begin) & (times < begin + rest)
            times = np.where(one, first + (times - first) * (1 + more), np.where(others, begin + rest, times))
        return times.tolist()

    def places(self, events: Sequence[Event]) -> list[tuple[float, float]]:
        """Begin and end of each event."""
        begins, ends = self([e.begin for e in events]), self([e.begin + e.seconds for e in events])
        return list(zip(begins, ends, strict=True))


def lanes_of(timeline: Timeline) -> tuple[str, ...]:
    """The lanes that are drawn: each with something to do, and waits."""
    waits = any(event.lane == WAITS for event in timeline.events)
    return (*(lane.name for lane in timeline.lanes), *((WAITS,) if waits else ()))


@picture.register
def timeline_picture(timeline: Timeline, kind: str = "") -> Picture:
    """The lanes, one below the other, with what takes place on each."""
    stretch, lanes = Stretch(timeline), lanes_of(timeline)
    left = max(map(text_wide, lanes), default=0.0) + 10
    rate = _WIDE / timeline.seconds if timeline.seconds else 0.0
    top = _TOP + _BAND * max((loop.depth + 1 for loop in stretch.loops), default=0)
    high = top + _STEP * len(lanes)
    shapes: list[Shape] = [Rects(x=(left,), y=(top,), wide=_WIDE, high=_STEP * len(lanes), fill="tile")]
    middles = [top + _STEP * (n + 0.5) for n in range(len(lanes))]
    shapes.append(Labels(at=tuple((left - 8, y) for y in middles), texts=lanes, align="end"))
    for name, y in zip(lanes, middles, strict=True):
        shapes += _lane(timeline, name, left, y - _HIGH / 2, rate, stretch)
    for loop in stretch.loops:
        shapes += _loop(loop, left, rate, high)
    if timeline.memory is not None and rate:
        shapes += _held(timeline, timeline.memory, left, rate, high + 6, stretch)
        high += _HELD + 10
    shapes += _scale(timeline.seconds, left, rate, high)
    total = format_seconds(timeline.seconds)
    spent = "; ".join(f"{lane.name} busy {format_seconds(lane.busy)}" for lane in timeline.lanes)
    held = "" if timeline.memory is None else f"; memory in use {memory_words(timeline.memory)}"
    return Picture(
        width=left + _WIDE + 24,
        height=high + 20,
        shapes=tuple(shapes),
        title=f"{timeline.program} on {timeline.target}: {total} a step",
        alt=f"Lanes of a step of {total}: {spent}{held}.",
        axes=timeline.mesh.names,
        keys=looks_of(timeline),
        notes=(f"based on {timeline.rests_on}", "waits are paler", *(STRETCHED,) * bool(stretch.loops)),
    )


STRETCHED = "identical iterations of a loop are drawn as one block, as wide as all of them"


def _loop(loop: Loop, left: float, rate: float, bottom: float) -> Iterator[Shape]:
    """A bar above the lanes as long as the loop, with how many trips it stands for, and the loop's begin and end."""
    x, end, y = left + loop.begin * rate, left + loop.end * rate, _TOP + _BAND * loop.depth
    text = f"× {loop.trips:,}"
    told = ((loop.words,),)
    wide = max(end - x, _LEAST)
    yield Rects(x=(x,), y=(y + 1,), wide=wide, high=_BAND - 3, fill="shade", tip="{}", told=told, layer=2)
    if end - x > text_wide(text):
        look: dict[str, Any] = {"align": "middle", "size": "small", "ink": "quiet", "layer": 2}
        yield Labels(at=(((x + end) / 2, y + _BAND / 2),), texts=(text,), **look)
    if not loop.depth:
        yield Lines(lines=tuple(((at, y + 1), (at, bottom)) for at in (x, end)), stroke="line", dash=2, layer=2)


def memory_top(*memories: HeldMemory) -> float:
    """The bytes at the top of the memory's scale: what a device has, unless that is far above the peak."""
    most = max(each.peak for each in memories)
    usable = max((each.usable or 0.0 for each in memories), default=0.0)
    return max(most, usable if usable <= _NEAR * most else 0.0) or 1.0


def _held(
    timeline: Timeline, memory: HeldMemory, left: float, rate: float, y: float, stretch: Stretch
) -> Iterator[Shape]:
    """The memory in use as a filled curve over the same time, and a line at what a device has."""
    top, bottom = memory_top(memory), y + _HELD
    high = {size: bottom - size / top * (_HELD - 12) for size in (*memory.bytes, memory.usable or 0.0)}
    points, before = [(left, bottom)], bottom
    for begin, size in zip(stretch(memory.begins), memory.bytes, strict=True):
        points += ((left + begin * rate, before), (left + begin * rate, before := high[size]))
    points += ((left + timeline.seconds * rate, before), (left + timeline.seconds * rate, bottom))
    tip = f"memory in use: {memory_words(memory)}, {memory.rests_on}"
    yield Lines(lines=(tuple(points),), stroke="muted", fill="muted", closed=True, strength=0.6, tip=tip)
    yield Labels(at=((left - 8, bottom - _HELD / 2 + 6),), texts=("memory",), align="end")
    (at,) = stretch([memory.peak_begin])
    place = min(max(left + at * rate, left + 40), left + _WIDE - 40)
    at, text = (place, high[memory.peak] - 6), format_bytes(memory.peak)
    yield Labels(at=(at,), texts=(text,), align="middle", size="small", halo=True)
    if memory.usable is not None and memory.usable <= top:
        level = high[memory.usable]
        yield Lines(lines=(((left, level), (left + _WIDE, level)),), stroke="quiet", dash=1, tip="usable memory")
        has = f"{format_bytes(memory.usable)} usable"
        yield Labels(at=((left + _WIDE, level - 6),), texts=(has,), align="end", size="small", ink="quiet", halo=True)


def _scale(total: float, left: float, rate: float, y: float) -> Iterator[Shape]:
    """The time below the lanes, at round steps."""
    if not rate:
        return
    power = 10.0 ** math.floor(math.log10(total / 4))
    step = max(times * power for times in (1, 2, 5) if times * power <= total / 4)
    times = [n * step for n in range(math.floor(total / step * (1 + 1e-9)) + 1)]
    yield Lines(lines=tuple(((left + t * rate, y), (left + t * rate, y + 4)) for t in times), stroke="quiet")
    at = tuple((left + t * rate, y + 11) for t in times)
    yield Labels(at=at, texts=tuple(map(format_seconds, times)), align="middle", size="small", ink="quiet")


def _lane(timeline: Timeline, name: str, left: float, y: float, rate: float, stretch: Stretch) -> Iterator[Rects]:
    """What takes place on a lane; what is too short to be seen is drawn together."""
    looks: dict[LegendKey, list[tuple[float, float, str]]] = {}
    events = [event for event in timeline.events if event.lane == name]
    for event, (begin, end) in zip(events, stretch.places(events), strict=True):
        begin, end = begin * rate, end * rate
        boxes = looks.setdefault(look_of(timeline, event), [])
        if boxes and begin - boxes[-1][0] - boxes[-1][1] < _LEAST and max(end - begin, boxes[-1][1]) < _LEAST:
            x, _, tip = boxes[-1]
            boxes[-1] = (x, end - x, tip)
        elif end - begin > _LEAST / 8:
            boxes.append((begin, end - begin, f"{event_time(event)}: {event_about(timeline, event)}"))
    for look, boxes in looks.items():
        if boxes:
            yield Rects(
                x=tuple(left + x for x, _, _ in boxes),
                y=(y,) * len(boxes),
                wide=tuple(max(wide, _LEAST) for _, wide, _ in boxes),
                high=_HIGH,
                fill=look.fill,
                hatch=look.hatch,
                strength=0.5 if name == WAITS else 1.0,
                tip="{}",
                told=tuple((tip,) for _, _, tip in boxes),
                layer=1,
            )


def look_of(timeline: Timeline, event: Event) -> LegendKey:
    """How an event looks, and what that means: by what bounds its time, links by their mesh axis."""
    names = {axis_name(axis) for axis in event.axes or ()}
    if event.lane not in (COMPUTE, COPIES, *HOST) and len(names) == 1:
        number = timeline.mesh.names.index(name := names.pop())
        return LegendKey(text=f"over {name}", fill=number, hatch=number)
    return _BOUNDS.get(event.bound, LegendKey(text="several axes or other links", fill="rematerialised"))


_BOUNDS = {
    "FLOPs": LegendKey(text="bound by FLOPs", fill="work"),
    "HBM": LegendKey(text="bound by HBM", fill="muted", hatch=4),  # mesh axes have the hatches before
    "launch": LegendKey(text="bound by launches", fill="rematerialised"),
}


def looks_of(*timelines: Timeline) -> tuple[LegendKey, ...]:
    """How the events of timelines look, by name."""
    looks = {look_of(each, event) for each in timelines for event in each.events if event.lane != FOLDED}
    return tuple(sorted(looks, key=lambda look: look.text))


def event_time(event: Event) -> str:
    """How long an event takes, and how often."""
    times = f" x {event.trips:,}" if event.trips > 1 else ""
    return f"{format_seconds(event.seconds)}{times}"


def event_about(timeline: Timeline, event: Event) -> str:
    """What an event is, what bounds it, and where it is from."""
    where = f", {event.source.short} {event.source.text_in(timeline.source)}" if event.source is not None else ""
    over = f" over {axes_words(event.axes)}" if event.axes else ""
    waits = "waits for " if event.lane == WAITS else ""
    return f"{waits}{event.what}{over}, bound by {event.bound}, {event.phase}{where}"
