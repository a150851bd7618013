"""A step as it would run: what it takes, what holds it up, what would make it shorter; and its lanes drawn.

Where a loop's trips are alike, the lanes have one of them, and a narrow gap for the rest: the picture's time is that of
what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from shardviz.costs.timeline import Event, Timeline
from shardviz.costs.timing import HOST
from shardviz.costs.walk import COMPUTE, COPIES, FOLDED, WAITS
from shardviz.notation import axis_name
from shardviz.records.amounts import format_seconds, plural
from shardviz.records.collectives import KINDS, axes_words
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Figure,
    Part,
    Row,
    Section,
    Table,
    axes,
    bar,
    document,
    line,
    moved,
    notes,
    row,
    seconds,
    words,
)
from shardviz.view.picture import Key, Labels, Lines, Picture, Rects, Role, Shape, picture, text_wide

_MOST = 12
_WORDS = {"copy": "copy to or from the host"}
_PHASES = ("forward", "rematerialised", "backward", "update")


@document.register
def timeline_document(timeline: Timeline) -> Document:
    """The seconds, what they rest on, what they go to, what is exposed, what would make the step shorter."""
    title = (
        words(timeline.program, strong=True),
        words(f"as it would run on {timeline.target}:"),
        words(format_seconds(timeline.seconds), strong=True),
        words("a step"),
    )
    lead = words(f"rests on {timeline.rests_on}", quiet=True)
    blocks: tuple[Block, ...] = (
        Figure(of=timeline_picture(timeline), caption="Lanes", brief=True, name="timeline-lanes"),
        Section(title="What the chip does", blocks=(_spent(timeline),)),
        Section(title="Lanes", blocks=(_lanes(timeline),)),
        *_exposed(timeline),
        *_critical(timeline),
        *((Section(title="What is not known", blocks=notes(*timeline.notes)),) if timeline.notes else ()),
    )
    return Document(title=title, lead=(lead,), blocks=blocks, mesh=timeline.mesh)


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
    rows = (
        row(
            seconds(spent),
            words(_share(timeline, spent)),
            bar([Part(share=spent / most, role="moved" if key.startswith("waits") else "work")]),
            words(key),
        )
        for key, spent in sorted(sums.items(), key=lambda item: -item[1])
    )
    columns = (Column("in a step", right=True), Column("share", right=True), Column(""), Column("what"))
    return Table(columns=columns, rows=tuple(rows), noun="sum", folds="never", name="timeline-spent")


def _lanes(timeline: Timeline) -> Table:
    columns = (Column("lane"), Column("busy", right=True), Column("share", right=True), Column("waiting", right=True))
    rows = (
        row(
            (words("ICI"), axes((lane.axis,)), words(lane.name.removeprefix(f"ICI {lane.axis}").strip()))
            if lane.axis
            else words(lane.name),
            seconds(lane.busy),
            words(_share(timeline, lane.busy)),
            seconds(lane.waiting),
        )
        for lane in timeline.lanes
    )
    return Table(columns=columns, rows=tuple(rows), noun="lane", folds="never", name="timeline-busy")


def _exposed(timeline: Timeline) -> Iterator[Section]:
    """Communication that nothing hides."""
    total = sum(each.seconds for each in timeline.exposed)
    title = "Communication that nothing hides"
    if not timeline.exposed:
        yield Section(title=title, lead=(words("none"),))
        return
    columns = (
        Column("in a step", right=True),
        Column("share", right=True),
        Column("what"),
        Column("over"),
        Column("line"),
    )
    rows: Sequence[Row] = [
        row(
            seconds(each.seconds),
            words(_share(timeline, each.seconds)),
            moved(each.what, each.axes, each.source) if each.what in KINDS else words(_WORDS.get(each.what, each.what)),
            axes(each.axes) if each.what in KINDS else words(""),
            line(each.source, timeline.line(each.source)),
        )
        for each in timeline.exposed
    ]
    table = Table(columns=columns, rows=tuple(rows), first=_MOST, noun="row", clip=True, name="timeline-exposed")
    lead = (words(f"{format_seconds(total)}, {_share(timeline, total)} of the step"),)
    yield Section(title=title, lead=lead, blocks=(table,))


def _critical(timeline: Timeline) -> Iterator[Section]:
    """What the step would lose if something took no time."""
    known = [each for each in timeline.critical if abs(each.seconds) > timeline.seconds * 1e-6]
    if not known:
        return
    columns = (Column("shorter by", right=True), Column("share", right=True), Column("if this took no time", wrap=True))
    rows = []
    for each in known:
        if each.kind == "line":
            what: Any = line(each.source, timeline.line(each.source))
        elif each.kind == "links":
            what = words(f"links of {each.name}")
        else:
            what = words(each.name)
        rows.append(row(seconds(each.seconds), words(_share(timeline, each.seconds)), what))
    table = Table(columns=columns, rows=tuple(rows), first=_MOST, noun="row", clip=True, name="timeline-critical")
    lead = (words("each alone, all else as it is; walked again, so that overlap counts", quiet=True),)
    yield Section(title="What would make the step shorter", lead=lead, blocks=(table,))


# The picture.

_WIDE, _HIGH, _STEP, _TOP = 720.0, 16.0, 22.0, 14.0
_GAP = 16.0  # pixels of trips that are folded
_LEAST = 0.4  # pixels of the shortest event that is drawn on its own


@picture.register
def timeline_picture(timeline: Timeline, kind: str = "") -> Picture:
    """The lanes, one below the other, with what takes place on each."""
    place = _Places(timeline)
    lanes = [*(lane.name for lane in timeline.lanes), *([WAITS] if _has(timeline, WAITS) else [])]
    left = max(map(text_wide, lanes), default=0.0) + 10
    high = _TOP + _STEP * len(lanes)
    shapes: list[Shape] = [Rects(x=(left,), y=(_TOP,), wide=place.wide, high=_STEP * len(lanes), fill="tile")]
    middles = [_TOP + _STEP * (n + 0.5) for n in range(len(lanes))]
    shapes.append(Labels(at=tuple((left - 8, y) for y in middles), texts=tuple(lanes), align="end"))
    for name, y in zip(lanes, middles, strict=True):
        shapes += _lane(timeline, name, left, y - _HIGH / 2, place)
    for event in place.folds:
        x = left + place(event.begin)
        tip = f"{plural(event.more, 'more trip')} of {event.name}, like the one before"
        shapes.append(
            Rects(
                x=(x,),
                y=(_TOP,),
                wide=_GAP,
                high=_STEP * len(lanes),
                fill="ground",
                stroke="line",
                dash=2,
                tip="{}: {}",
                told=((tip, format_seconds(event.seconds)),),
                layer=2,
            )
        )
    if place.folds:
        at = tuple((left + place(event.begin) + _GAP / 2, _TOP - 7) for event in place.folds)
        more = tuple(f"+{event.more:,}" for event in place.folds)
        shapes.append(Labels(at=at, texts=more, align="middle", size="small", ink="quiet"))
    shapes += _scale(place, left + place.wide, high + 8)
    total = format_seconds(timeline.seconds)
    spent = "; ".join(f"{lane.name} busy {format_seconds(lane.busy)}" for lane in timeline.lanes)
    return Picture(
        width=left + place.wide + 4,
        height=high + 16,
        shapes=tuple(shapes),
        title=f"{timeline.program} on {timeline.target}: {total} a step",
        alt=f"Lanes of a step of {total}: {spent}.",
        axes=timeline.mesh.names,
        keys=tuple(_keys(timeline)),
        notes=(
            f"rests on {timeline.rests_on}",
            "work is fainter where HBM bounds it",
            *(("trips of a loop that are alike are drawn once; a gap stands for the rest",) if place.folds else ()),
        ),
    )


def _has(timeline: Timeline, lane: str) -> bool:
    return any(event.lane == lane for event in timeline.events)


class _Places:
    """Seconds of the step → pixels, the folded trips left out but for a gap.

    Attributes:
        folds: the folded trips, in order.
        wide: pixels in all.
        rate: pixels a second.
    """

    def __init__(self, timeline: Timeline):
        self.folds = [event for event in timeline.events if event.lane == FOLDED]
        shown = timeline.seconds - sum(event.seconds for event in self.folds)
        self.wide = _WIDE + _GAP * len(self.folds)
        self.rate = _WIDE / shown if shown > 0 else 0.0
        ends = [event.begin + event.seconds for event in self.folds]
        self._before = list(accumulate((event.seconds for event in self.folds), initial=0.0))
        self._ends, self._timeline = ends, timeline

    def __call__(self, at: float) -> float:
        count = sum(end <= at + 1e-12 for end in self._ends)
        inside = self.folds[count].begin if count < len(self.folds) else at
        return (min(at, inside) - self._before[count]) * self.rate + _GAP * count


def _scale(place: _Places, right: float, y: float) -> Iterator[Shape]:
    """A bar as long as a round time, at most a fifth of what is drawn, which ends at `right`."""
    if not place.rate:
        return
    most = _WIDE / 5 / place.rate
    power = 10.0 ** math.floor(math.log10(most))
    time = max(step * power for step in (1, 2, 5) if step * power <= most)
    begin = right - time * place.rate
    ends = tuple(((x, y - 3), (x, y + 3)) for x in (begin, right))
    yield Lines(lines=(*ends, ((begin, y), (right, y))), stroke="quiet")
    yield Labels(at=((begin - 6, y),), texts=(format_seconds(time),), align="end", size="small", ink="quiet")


def _lane(timeline: Timeline, name: str, left: float, y: float, place: _Places) -> Iterator[Rects]:
    """What takes place on a lane; what is too short to be seen is drawn together."""
    looks: dict[tuple[Role, int | None, float], list[tuple[float, float, str]]] = {}
    for event in timeline.events:
        if event.lane != name:
            continue
        begin, end = place(event.begin), place(event.begin + event.seconds)
        boxes = looks.setdefault(_look(timeline, event), [])
        if boxes and begin - boxes[-1][0] - boxes[-1][1] < _LEAST and max(end - begin, boxes[-1][1]) < _LEAST:
            x, _, tip = boxes[-1]
            boxes[-1] = (x, end - x, tip)
        elif end - begin > _LEAST / 8:
            boxes.append((begin, end - begin, _tip(timeline, event)))
    for (fill, hatch, strength), boxes in looks.items():
        if boxes:
            yield Rects(
                x=tuple(left + x for x, _, _ in boxes),
                y=(y,) * len(boxes),
                wide=tuple(max(wide, _LEAST) for _, wide, _ in boxes),
                high=_HIGH,
                fill=fill,
                hatch=hatch,
                strength=strength,
                tip="{}",
                told=tuple((tip,) for _, _, tip in boxes),
                layer=1,
            )


def _look(timeline: Timeline, event: Event) -> tuple[Role, int | None, float]:
    """Fill, hatch and strength: work by its pass, links by their mesh axis."""
    if event.lane == COMPUTE:
        return event.phase if event.phase in _PHASES else "muted", None, 1.0 if event.bound == "FLOPs" else 0.5
    names = {axis_name(axis) for axis in event.axes or ()}
    if event.lane not in (COPIES, *HOST) and len(names) == 1:
        number = timeline.mesh.names.index(names.pop())
        return number, number, 0.5 if event.lane == WAITS else 1.0
    return "muted", None, 1.0


def _tip(timeline: Timeline, event: Event) -> str:
    where = f", {event.source.short} {timeline.line(event.source)}" if event.source is not None else ""
    over = f" over {axes_words(event.axes)}" if event.axes else ""
    waits = "waits for " if event.lane == WAITS else ""
    times = f" x {event.trips:,}" if event.trips > 1 else ""
    what = f"{waits}{event.what}{over}, {format_seconds(event.seconds)}{times}, bound by {event.bound}"
    return f"{what}, {event.phase}{where}"


def _keys(timeline: Timeline) -> Iterator[Key]:
    for phase in _PHASES:
        if any(event.lane == COMPUTE and event.phase == phase for event in timeline.events):
            yield Key(text=phase, fill=phase)
    for number, name in enumerate(timeline.mesh.names):
        if any({axis_name(a) for a in event.axes or ()} == {name} for event in timeline.events):
            yield Key(text=f"over {name}", fill=number, hatch=number)
    if any(e.lane not in (COMPUTE, FOLDED) and _look(timeline, e)[0] == "muted" for e in timeline.events):
        yield Key(text="over several axes, and copies", fill="muted")
