"""Steps as they would run, as the page gets them: the open card's, and the one that it is compared with, on one scale.

An event is a row: lane, begin, seconds that it is wide, the place of what it is among `kinds`, its time, its name. The
memory that is held is a row wherever it changes: begin, bytes, in words.
"""

from __future__ import annotations

from typing import Any

from shardviz.costs.timeline import Event, HeldMemory, Timeline
from shardviz.costs.walk import FOLDED
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.payload import Json, pane
from shardviz.paint.json import json_of
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.collectives import KINDS
from shardviz.view.document import Document, Piece, axes, line, moved, paragraph, words
from shardviz.view.placement import without_machine
from shardviz.view.timeline import (
    STRETCHED,
    Stretch,
    event_about,
    event_time,
    lanes_of,
    look_of,
    looks_of,
    memory_top,
    memory_words,
)
from shardviz.view.timeline import timeline_tables as tables

_MOST_VALUES = 4  # of a line
_FILLS = {"work": "flops", "muted": "hbm"}


def timeline_view(state: ExplorerState) -> Json:
    """The timelines as far as they are made; empty while they are being made."""
    timelines, trouble = state.now.timelines.items, state.now.timelines.trouble or state.cost_error
    if trouble or state.cost is None:
        return pane(without_machine(trouble, "speed to reckon with", "timeline-why"))
    if not timelines:
        return {}
    card, other = state.deck.now, state.deck.other
    own, names = timelines[0], state.plan.mesh.names
    alone = other is not card and len(timelines) == 1
    kinds: dict[Any, tuple[Timeline, Event]] = {}
    looks = looks_of(*timelines)
    values: dict[str, list[str]] = {}
    for value in state.report.intermediates:
        if value.source is not None and len(held := values.setdefault(value.source.short, [])) < _MOST_VALUES:
            held.append(value.name)
    memories = [each.memory for each in timelines if each.memory is not None]
    cards = [_card(each.name, one, kinds) for each, one in zip((card, other), timelines, strict=False)]
    chosen: dict[tuple[Piece, ...], int] = {}
    rows = [
        [looks.index(look_of(of, event)), _at(event), event_about(of, event), chosen.setdefault(pieces, len(chosen))]
        for of, event in kinds.values()
        for pieces in (_chosen(of, event),)
    ]
    told = Document(blocks=tuple(paragraph(*each) for each in chosen))
    return pane(
        Document(blocks=tables(own), mesh=own.mesh),
        seconds=max(each.seconds for each in timelines),
        top=memory_top(*memories) if memories else 0.0,
        cards=cards,
        kinds=rows,
        chosen=[block["pieces"] for block in json_of(told)["blocks"]],
        looks=[
            [look.text, "axis" if look.fill in range(len(names)) else _FILLS.get(str(look.fill), "other"), look.hatch]
            for look in looks
        ],
        values=values,
        notes=[
            STRETCHED,
            "what is waited for is paler",
            *([f"{other.name} is not known at level {own.level}"] if alone else []),
        ],
    )


def _card(name: str, timeline: Timeline, kinds: dict[Any, tuple[Timeline, Event]]) -> Json:
    stretch, lanes = Stretch(timeline), lanes_of(timeline)
    busy = {lane.name: (lane.axis, format_seconds(lane.busy)) for lane in timeline.lanes}
    places, numbers = {name: number for number, name in enumerate(lanes)}, {key: n for n, key in enumerate(kinds)}
    events = [event for event in timeline.events if event.lane != FOLDED]
    rows: list[list[Any]] = []
    loops = [[_round(o.begin), _round(o.end - o.begin), o.depth, f"× {o.trips:,}", o.words] for o in stretch.loops]
    for event, (begin, end) in zip(events, stretch.places(events), strict=True):
        key = event.lane, event.what, event.bound, event.axes, event.source, event.phase
        kinds.setdefault(key, (timeline, event))
        kind = numbers.setdefault(key, len(numbers))
        rows.append([places[event.lane], _round(begin), _round(end - begin), kind, event_time(event), event.name])
    return {
        "name": name,
        "said": format_seconds(timeline.seconds),
        "rests": timeline.rests_on,
        "seconds": timeline.seconds,
        "lanes": [[lane, *busy.get(lane, ("", ""))] for lane in lanes],
        "loops": loops,
        "events": rows,
        "memory": timeline.memory and _memory(timeline.memory, stretch),
    }


def _memory(memory: HeldMemory, stretch: Stretch) -> Json:
    steps = zip(stretch(memory.begins), memory.bytes, strict=True)
    return {
        "peak": format_bytes(memory.peak),
        "said": f"{memory_words(memory)}; {memory.rests_on}",
        "usable": memory.usable and [memory.usable, f"{format_bytes(memory.usable)} usable"],
        "steps": [[_round(begin), held, f"{format_bytes(held)} held"] for begin, held in steps],
    }


def _round(seconds: float) -> float:
    return float(f"{seconds:.9g}")


def _at(event: Event) -> str:
    return "" if event.source is None else event.source.short


def _chosen(timeline: Timeline, event: Event) -> tuple[Piece, ...]:
    """What is said of an event that is chosen: what it is, where, and what else there is on its line."""
    about: tuple[Piece, ...] = (words(event.what, strong=True),)
    if event.what in KINDS:
        about = (moved(event.what, event.axes, event.source), axes(event.axes))
    if event.source is None:
        return about
    ways = (words(f"its {what}", selects=(f"{what} of", _at(event))) for what in ("collectives", "values"))
    return (*about, line(event.source, timeline.source), *ways)
