"""A step's timeline: its seconds, what delays it, what would shorten it, and its lanes as a picture.

Equal trips of a loop are drawn as one trip as wide as all, so that width is time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.costs.timeline import Critical, Event, Exposed, HeldMemory, Timeline
from shardviz.costs.timing import HOST
from shardviz.costs.walk import COMPUTE, COPIES, FOLDED, WAITS
from shardviz.notation import axis_name
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.collectives import KINDS, axes_words
from shardviz.view import document as doc
from shardviz.view.picture import Labels, LegendKey, Lines, Picture, Rects, Shape, picture, text_wide
from shardviz.view.step_cost import pair

_MOST = 12
_WORDS = {"copy": "copy to or from the host"}


@doc.document.register
def timeline_document(timeline: Timeline) -> doc.Document:
    """Return the seconds and their basis, their parts, the exposed communication, and what would shorten the step."""
    title = (
        doc.words(timeline.program, strong=True),
        doc.words(f"predicted on {timeline.target}:"),
        doc.words(format_seconds(timeline.seconds), strong=True),
        doc.words("a step"),
    )
    lead = doc.words(f"based on {timeline.rests_on}", quiet=True)
    figure = doc.Figure(of=timeline_picture(timeline), caption="Lanes", name="timeline-lanes")
    return doc.Document(title=title, lead=(lead,), blocks=(figure, *timeline_tables(timeline)), mesh=timeline.mesh)


def timeline_tables(timeline: Timeline) -> tuple[doc.Block, ...]:
    """Return everything but the picture."""
    return (
        doc.section("What the chip does", _spent(timeline)),
        *_critical(timeline),
        *_exposed(timeline),
        _memory(timeline),
        *((doc.section("What is not known", *doc.notes(*timeline.notes)),) if timeline.notes else ()),
    )


def _share(timeline: Timeline, amount: float) -> str:
    return f"{amount / timeline.seconds:.1%}" if timeline.seconds else ""


def _spent(timeline: Timeline) -> doc.Table:
    """Return the step's seconds on the chip: work by its bound, and waits by their cause."""
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

    def role(key):
        return "moved" if key.startswith("waits") else "work"

    longest_first = sorted(sums.items(), key=lambda item: -item[1])
    return doc.Rows(longest_first, noun="sum", folds="never", name="timeline-spent").table(
        (doc.right("in a step"), lambda item: doc.seconds(item[1])),
        (doc.right("share"), lambda item: _share(timeline, item[1])),
        ("", lambda item: doc.bar([doc.Part(share=item[1] / most, role=role(item[0]))])),
        ("what", lambda item: item[0]),
    )


def _memory(timeline: Timeline) -> doc.Section:
    memory, title = timeline.memory, "Memory over the step"
    if memory is None:
        return doc.section(title, lead=MEMORY_NOT_KNOWN)
    at = memory.peak_begin
    during = (e for e in timeline.events if e.lane in (COMPUTE, WAITS) and e.begin <= at < e.begin + e.seconds)
    source = next((event.source for event in during), None)
    peak = doc.words(f"at the peak, first after {format_seconds(at)}"), *(() if source is None else (doc.line(source),))
    lead = (doc.words(memory_words(memory)), *peak)
    return doc.section(title, doc.notes(memory.rests_on, *memory.beside), lead=lead)


MEMORY_NOT_KNOWN = "not known: the report has no buffer assignment, or an older shardviz wrote it"


def memory_words(memory: HeldMemory) -> str:
    """Return `57.6 of 103 GB`."""
    usable = "not known" if memory.usable is None else format_bytes(memory.usable)
    return pair(format_bytes(memory.peak), usable, " of ")


def _exposed(timeline: Timeline) -> Iterator[doc.Section]:
    total = sum(each.seconds for each in timeline.exposed)
    title = "Exposed communication"
    if not timeline.exposed:
        yield doc.section(title, lead="none")
        return

    def what(it: Exposed) -> doc.Cell:
        return doc.moved(it.what, it.axes, it.source) if it.what in KINDS else _WORDS.get(it.what, it.what)

    waits = doc.Rows(timeline.exposed, first=_MOST, noun="row", name="timeline-exposed").table(
        (doc.right("in a step"), lambda it: doc.seconds(it.seconds)),
        (doc.right("share"), lambda it: _share(timeline, it.seconds)),
        ("what", what),
        ("over", lambda it: doc.axes(it.axes) if it.what in KINDS else ""),
        ("line", lambda it: doc.line(it.source, timeline.source)),
    )
    yield doc.section(title, waits, lead=f"{format_seconds(total)}, {_share(timeline, total)} of the step")


def _critical(timeline: Timeline) -> Iterator[doc.Section]:
    """Yield how much shorter the step would be if something took no time."""
    rows = [each for each in timeline.critical if abs(each.seconds) > timeline.seconds * 1e-6]
    if not rows:
        return

    def what(each: Critical) -> doc.Inline:
        if each.kind == "line":
            return doc.line(each.source, timeline.source)
        return doc.words(f"links of {each.name}" if each.kind == "links" else each.name)

    saved = doc.Rows(rows, first=_MOST, noun="row", name="timeline-critical").table(
        (doc.right("shorter by"), lambda each: doc.seconds(each.seconds)),
        (doc.right("share"), lambda each: _share(timeline, each.seconds)),
        (doc.wrapped("if this took no time"), what),
    )
    lead = doc.words("each alone, with everything else unchanged and overlap counted", quiet=True)
    yield doc.section("What would make the step shorter", saved, lead=lead)


@dataclass(frozen=True)
class Loop:
    """Equal trips of a loop, drawn as one.

    Attributes:
        event: the event of the other trips, which are not drawn.
        depth: the number of such loops around it.
    """

    event: Event
    begin: float
    end: float
    depth: int

    @property
    def trips(self) -> int:
        """Number of trips."""
        return self.event.more + 1

    @property
    def words(self) -> str:
        """`80 identical iterations of while.7, 29.5 ms each, drawn as one`."""
        each = format_seconds(self.event.seconds / self.event.more)
        return f"{self.trips:,} identical iterations of {self.event.name}, {each} each, drawn as one"


class Stretch:
    """A map from seconds of the step to seconds in the drawing.

    One of a loop's equal trips is drawn, as wide as all together. So an event's width is its total time in the step.

    Attributes:
        loops: the stretched loops, outer ones first.
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
        """Return begin and end of each event in the drawing."""
        begins, ends = self([e.begin for e in events]), self([e.begin + e.seconds for e in events])
        return list(zip(begins, ends, strict=True))


_WIDE, _HIGH, _STEP, _TOP = 800.0, 16.0, 22.0, 4.0
_BAND = 14.0  # pixels of a row of loops
_HELD = 64.0  # pixels of the memory
_NEAR = 4.0  # times its peak up to which a device's memory is drawn on its scale
_LEAST = 0.4  # pixels of the shortest thing that is drawn on its own


@dataclass(frozen=True)
class Item:
    """An item on a row of the picture: begin and end in stretched seconds, look, tip, label, selected line, and share
    of the row's height."""

    begin: float
    end: float
    look: LegendKey
    tip: str
    text: str = ""
    line: str = ""
    share: float = 1.0


@dataclass(frozen=True)
class Ruler:
    """A map from seconds of the step to pixels, for the visible seconds."""

    left: float
    begin: float
    end: float

    def __call__(self, at: float) -> float:
        wide = _WIDE * (at - self.begin) / (self.end - self.begin) if self.end > self.begin else 0.0
        return self.left + min(max(wide, 0.0), _WIDE)

    def rects(self, items: Iterable[Item], y: float, high: float, **more: Any) -> Iterator[Rects]:
        """Yield a row's visible items by look; items too short to see are merged."""
        looks: dict[LegendKey, list[tuple[float, float, Item]]] = {}
        for item in items:
            x, end = self(item.begin), self(item.end)
            boxes = looks.setdefault(item.look, [])
            if boxes and x - boxes[-1][1] < _LEAST and max(end - x, boxes[-1][1] - boxes[-1][0]) < _LEAST:
                before, _, first = boxes[-1]
                boxes[-1] = before, end, max(first, item, key=lambda item: item.share)
            elif end - x > _LEAST / 8:
                boxes.append((x, end, item))
        for look, boxes in looks.items():
            if boxes:
                yield Rects(
                    x=tuple(x for x, _, _ in boxes),
                    y=tuple(y + high * (1 - item.share) for _, _, item in boxes),
                    wide=tuple(max(end - x, _LEAST) for x, end, _ in boxes),
                    high=tuple(high * item.share for _, _, item in boxes),
                    labels=tuple(item.text if text_wide(item.text) + 6 < end - x else "" for x, end, item in boxes),
                    fill=look.fill,
                    hatch=look.hatch,
                    tip="{}",
                    tip_parts=tuple((item.tip,) for _, _, item in boxes),
                    selects=tuple(("line", item.line) if item.line else None for _, _, item in boxes),
                    **more,
                )

    def scale(self, y: float) -> Iterator[Shape]:
        """Yield the time axis, at round steps."""
        if (long := self.end - self.begin) <= 0:
            return
        power = 10.0 ** math.floor(math.log10(long / 4))
        step = max(times * power for times in (1, 2, 5) if times * power <= long / 4)
        first, last = math.ceil(self.begin / step * (1 - 1e-9)), math.floor(self.end / step * (1 + 1e-9))
        times = [n * step for n in range(first, last + 1)]
        yield Lines(lines=tuple(((self(t), y), (self(t), y + 4)) for t in times), stroke="quiet")
        at, texts = tuple((self(t), y + 11) for t in times), tuple(map(format_seconds, times))
        yield Labels(at=at, texts=texts, align="middle", size="small", ink="quiet")


@picture.register
def timeline_picture(timeline: Timeline, *, span: tuple[float, float] | None = None) -> Picture:
    """Return the lanes, one below the other, with the memory in use; only the seconds of `span` if given."""
    stretch, memory = Stretch(timeline), timeline.memory
    waits = any(event.lane == WAITS for event in timeline.events)
    lanes = (*(lane.name for lane in timeline.lanes), *(WAITS,) * waits)
    ruler = Ruler(max(map(text_wide, (*lanes, "memory"))) + 10, *(span or (0.0, timeline.seconds)))
    left = ruler.left
    y = _TOP + _BAND * max((loop.depth + 1 for loop in stretch.loops), default=0)
    high = y + _STEP * len(lanes)
    shapes: list[Shape] = [Rects(x=(left,), y=(y,), wide=_WIDE, high=_STEP * len(lanes), fill="tile")]
    for loop in stretch.loops:
        item, top_of = Item(loop.begin, loop.end, _LOOP, loop.words, f"× {loop.trips:,}"), _TOP + _BAND * loop.depth
        shapes += ruler.rects([item], top_of + 1, _BAND - 3, layer=2)
        ends = tuple(((x, top_of + 1), (x, high)) for x in (ruler(loop.begin), ruler(loop.end)))
        shapes += [Lines(lines=ends, stroke="line", dash=2, layer=2)] * (not loop.depth)
    for name in lanes:
        events = [event for event in timeline.events if event.lane == name]
        items = (_item(timeline, *each) for each in zip(events, stretch.places(events), strict=True))
        shapes += ruler.rects(items, y + (_STEP - _HIGH) / 2, _HIGH, layer=1, strength=0.5 if name == WAITS else 1.0)
        y += _STEP
    middles = tuple((left - 8, high - _STEP * (len(lanes) - n - 0.5)) for n in range(len(lanes)))
    shapes.append(Labels(at=middles, texts=lanes, align="end"))
    if memory is not None and timeline.seconds:
        shapes += _memory_in_use(timeline, memory, ruler, high + 6, stretch)
        high += _HELD + 10
    total = format_seconds(timeline.seconds)
    spent = "; ".join(f"{lane.name} busy {format_seconds(lane.busy)}" for lane in timeline.lanes)
    held = "" if memory is None else f"; memory in use {memory_words(memory)}"
    return Picture(
        width=left + _WIDE + 24,
        height=high + 20,
        shapes=(*shapes, *ruler.scale(high)),
        title=f"{timeline.program} on {timeline.target}: {total} a step",
        alt=f"Lanes of a step of {total}: {spent}{held}.",
        axes=timeline.mesh.names,
        keys=tuple(sorted({look_of(timeline, e) for e in timeline.events if e.lane != FOLDED}, key=lambda k: k.text)),
        notes=(f"based on {timeline.rests_on}", "waits are paler", *(STRETCHED,) * bool(stretch.loops)),
    )


STRETCHED = "identical iterations of a loop are drawn as one block, as wide as all of them"
_LOOP, _MEMORY = LegendKey(text="loop", fill="shade"), LegendKey(text="memory", fill="muted")


def _item(timeline: Timeline, event: Event, place: tuple[float, float]) -> Item:
    over = f" over {axes_words(event.axes)}" if event.axes else ""
    text = f"{'waits for ' if event.lane == WAITS else ''}{event.what}{over}"
    times = f" x {event.trips:,}" if event.trips > 1 else ""
    tip = f"{format_seconds(event.seconds)}{times}: {text}, bound by {event.bound}, {event.phase}"
    if event.source is None:
        return Item(*place, look_of(timeline, event), f"{tip} ({event.name})", text)
    at = event.source.short
    tip += f", {at} {event.source.text_in(timeline.source)} ({event.name})"
    return Item(*place, look_of(timeline, event), tip, at if event.lane == COMPUTE else text, at)


def _memory_in_use(timeline: Timeline, memory: HeldMemory, ruler: Ruler, y: float, stretch: Stretch) -> Iterator[Shape]:
    """Yield the memory in use, and a line at the device's memory, unless that is far above the peak."""
    usable = memory.usable or 0.0
    top = max(memory.peak, usable if usable <= _NEAR * memory.peak else 0.0) or 1.0
    low, right = y + _HELD, ruler.left + _WIDE

    def level(size):
        return low - size / top * (_HELD - 12)

    begins = [*stretch(memory.begins), timeline.seconds]
    steps = zip(itertools.pairwise(begins), memory.bytes, strict=True)
    items = (Item(*ends, _MEMORY, f"memory: {format_bytes(n)} held", share=n / top) for ends, n in steps)
    yield from ruler.rects(items, y + 12, _HELD - 12, layer=1, strength=0.6)
    yield Labels(at=((ruler.left - 8, low - _HELD / 2 + 6),), texts=("memory",), align="end")
    at = min(max(ruler(stretch([memory.peak_begin])[0]), ruler.left + 40), right - 40)
    look: dict[str, Any] = {"size": "small", "halo": True, "layer": 2}
    yield Labels(at=((at, level(memory.peak) - 6),), texts=(format_bytes(memory.peak),), align="middle", **look)
    if memory.usable is not None and memory.usable <= top:
        line = (ruler.left, level(memory.usable)), (right, level(memory.usable))
        yield Lines(lines=(line,), stroke="quiet", dash=1, tip="usable memory", layer=2)
        has = f"{format_bytes(memory.usable)} usable"
        yield Labels(at=((right, line[1][1] - 6),), texts=(has,), align="end", ink="quiet", **look)


def look_of(timeline: Timeline, event: Event) -> LegendKey:
    """Return an event's look with its meaning: by its bound, links by their mesh axis."""
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


def timeline_pane(timelines: Mapping[str, Timeline], span: Sequence[float], lacks: str = "") -> doc.Document:
    """Return the first step and the named step that it is compared with, each on its own scale.

    `span` is the visible part of each, as shares 0 to 1. `lacks` says why there is no second step.
    """
    (begin, end), own = span, next(iter(timelines.values()))
    figures = [
        doc.Figure(
            of=timeline_picture(each, span=(begin * each.seconds, end * each.seconds)),
            caption=f"{name}: {format_seconds(each.seconds)} a step",
            name=f"timeline-{n}",
        )
        for n, (name, each) in enumerate(timelines.items())
    ]
    return doc.Document.of(figures, doc.notes(lacks), timeline_tables(own), mesh=own.mesh)
