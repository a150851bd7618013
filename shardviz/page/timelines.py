"""Steps as they would run, as the page gets them: the open card's, and the one that it is compared with, on one scale.

An event is a row of numbers, most of them places in lists of what many events have in common: lane, begin, seconds that
it is wide, look, words of its time, of what it is and its name, line (below 0: none), and what is said where it is
chosen.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from shardviz.costs.timeline import Event, Timeline
from shardviz.costs.walk import FOLDED
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.payload import Json, pane
from shardviz.paint.json import json_of
from shardviz.records.amounts import format_seconds
from shardviz.records.collectives import KINDS
from shardviz.view.document import Document, Inline, axes, line, moved, paragraph, words
from shardviz.view.placement import without_machine
from shardviz.view.timeline import STRETCHED, Stretch, event_words, lanes_of, look_of, looks_of, timeline_tables

_MOST_VALUES = 4  # of a line


def timeline_view(state: ExplorerState) -> Json:
    """The timelines as far as they are made; empty while they are being made."""
    now = state.now
    timelines, trouble = now.timelines.items, now.timelines.trouble or state.cost_error
    if trouble or state.cost is None:
        return pane(without_machine(trouble, "speed to reckon with", "timeline-why"))
    if not timelines:
        return {}
    card, other = now.deck.now, now.deck.other
    lists: dict[str, dict[Any, int]] = {name: {} for name in ("looks", "words", "lines", "chosen")}
    looks = looks_of(*timelines)
    for look in looks:
        _place(lists["looks"], look)
    cards = [_card(each.name, one, lists) for each, one in zip((card, other), timelines, strict=False)]
    own = timelines[0]
    beside = () if other is card or len(timelines) > 1 else (f"{other.name} is not known at level {own.level}",)
    names: dict[str, list[str]] = {}
    for value in state.report.intermediates:
        if value.source is not None and len(held := names.setdefault(value.source.short, [])) < _MOST_VALUES:
            held.append(value.name)
    return pane(
        Document(blocks=timeline_tables(own), mesh=own.mesh),
        cards=cards,
        seconds=max(each.seconds for each in timelines),
        looks=[
            {"text": look.text, **({"axis": own.mesh.names[look.fill]} if isinstance(look.fill, int) else {})}
            for look in looks
        ],
        words=list(lists["words"]),
        lines=[[at, names.get(at, [])] for at in lists["lines"]],
        chosen=_pieces(list(lists["chosen"])),
        notes=[STRETCHED, "what is waited for is paler", *beside],
    )


def _place(of: dict[Any, int], what: Hashable) -> int:
    return of.setdefault(what, len(of))


def _card(name: str, timeline: Timeline, lists: dict[str, dict[Any, int]]) -> Json:
    stretch, lanes = Stretch(timeline), lanes_of(timeline)
    events = [event for event in timeline.events if event.lane != FOLDED]
    places = stretch.places(events)
    return {
        "name": name,
        "said": format_seconds(timeline.seconds),
        "rests": timeline.rests_on,
        "seconds": timeline.seconds,
        "lanes": list(lanes),
        "axes": [next((one.axis for one in timeline.lanes if one.name == lane), "") for lane in lanes],
        "busy": [next((format_seconds(one.busy) for one in timeline.lanes if one.name == lane), "") for lane in lanes],
        "loops": [
            [_round(o.begin), _round(o.end - o.begin), o.depth, o.event.more + 1, _place(lists["words"], o.words)]
            for o in stretch.loops
        ],
        "events": [
            [lanes.index(event.lane), _round(begin), _round(end - begin), *_numbers(timeline, event, lists)]
            for event, (begin, end) in zip(events, places, strict=True)
        ],
    }


def _numbers(timeline: Timeline, event: Event, lists: dict[str, dict[Any, int]]) -> list[int]:
    time, about = event_words(timeline, event)
    return [
        _place(lists["looks"], look_of(timeline, event)),
        *(_place(lists["words"], text) for text in (time, about, event.name)),
        -1 if event.source is None else _place(lists["lines"], event.source.short),
        _place(lists["chosen"], _chosen(timeline, event)),
    ]


def _chosen(timeline: Timeline, event: Event) -> Inline:
    """What is said of an event that is chosen beside its name: what it is, where, and what else there is on its line."""
    kind = words(event.what, strong=True)
    about = (moved(event.what, event.axes, event.source), axes(event.axes)) if event.what in KINDS else (kind,)
    if event.source is None:
        return about
    at = event.source.short
    return (
        *about,
        line(event.source, timeline.line(event.source)),
        words("its collectives", tip=f"all collectives of {at}", selects=("collectives of", at)),
        words("its values", tip=f"all values of {at}", selects=("values of", at)),
    )


def _pieces(chosen: list[Inline]) -> list[Any]:
    return [block["pieces"] for block in json_of(Document(blocks=tuple(paragraph(*each) for each in chosen)))["blocks"]]


def _round(seconds: float) -> float:
    return float(f"{seconds:.9g}")
