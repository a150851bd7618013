"""A timeline in the Trace Event format, for Perfetto and Chrome (`chrome://tracing`).

A lane is a thread, an event a complete event (`"ph": "X"`) in microseconds, and the memory in use a counter (`"C"`).
Loops stay folded: one trip is shown, and a separate lane has the number of the other trips and their time.
"""

from __future__ import annotations

from typing import Any

from shardviz.records.collectives import axes_words

_NAMES = {"FLOPs": "thread_state_running", "HBM": "thread_state_runnable", "host link": "terrible"}
"""What bounds an event → the reserved colour name."""


def trace_of(timeline: Any) -> dict[str, Any]:
    """Return a `Timeline`'s trace as plain data for JSON."""
    lanes = list(dict.fromkeys([*(lane.name for lane in timeline.lanes), *(e.lane for e in timeline.events)]))
    threads = {name: number for number, name in enumerate(lanes, 1)}
    rows: list[dict[str, Any]] = [_named("process_name", 0, f"{timeline.program} on {timeline.target}, one device")]
    for name, number in threads.items():
        rows += [_named("thread_name", number, name), _named("thread_sort_index", number, number, "sort_index")]
    for event in timeline.events:
        about = {"instruction": event.name, "bound by": event.bound, "phase": event.phase, "trips": event.trips}
        if event.source is not None:
            about |= {"line": event.source.short, "source": event.source.text_in(timeline.source)}
        if event.axes is not None:
            about["axes"] = axes_words(event.axes)
        rows.append(
            {
                "ph": "X",
                "pid": 1,
                "tid": threads[event.lane],
                "ts": event.begin * 1e6,
                "dur": event.seconds * 1e6,
                "name": _title(event),
                "cat": event.what or "event",
                "args": about,
            }
            | ({"cname": _NAMES[event.bound]} if event.bound in _NAMES else {})
        )
    if timeline.memory is not None:
        for begin, held in zip(timeline.memory.begins, timeline.memory.bytes, strict=True):
            counter = {"ph": "C", "pid": 1, "tid": 0, "ts": begin * 1e6, "name": "main memory held"}
            rows.append({**counter, "args": {"bytes": held}})
    other = {"seconds": timeline.seconds, "rests on": timeline.rests_on, "notes": list(timeline.notes)}
    return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": other}


def _title(event: Any) -> str:
    if event.what == "loop":
        return f"more trips of {event.name}"
    where = f" {event.source.short}" if event.source is not None else ""
    over = f" over {axes_words(event.axes)}" if event.axes else ""
    return f"{event.what or event.name}{over}{where}"


def _named(name: str, thread: int, value: Any, key: str = "name") -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": thread, "name": name, "args": {key: value}}
