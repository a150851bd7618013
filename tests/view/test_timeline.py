"""A timeline's document and picture: its sums are the record's, loops are folded, all lies inside, text is escaped."""

from __future__ import annotations

import dataclasses
import itertools
from xml.etree import ElementTree

import pytest

from shardviz import paint
from shardviz.costs.timeline import Event, Timeline, timeline_of
from shardviz.costs.walk import FOLDED, Task, Walk
from shardviz.notation import DeviceMesh
from shardviz.paint.columns import text_width
from shardviz.records import Collectives, Frame
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.schedule import Scheduled
from shardviz.view.document import Section, Table, plain
from shardviz.view.picture import Labels, Lines, Rects, picture
from shardviz.view.subjects import document
from shardviz.view.timeline import Stretch, look_of
from tests.collectives import collective, report_of
from tests.view.sample import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def made(evil: str = "") -> Timeline:
    """A loop of 80 trips: a gather beside a product, a sum that nothing hides; then a copy to the host and a kernel."""
    mesh = DeviceMesh((f"data{evil}", "model"), (4, 4))
    at = [Frame(f"/src/{evil}model.py", line, "block") for line in range(4)]
    gather = collective("all-gather", (mesh.names[0],), 1e7, 4e7, 80, name="g", source=at[1])
    total = collective("all-reduce", ("model",), 1e7, 1e7, 80, name="r", source=at[2])
    work = {"flops": {"bfloat16": 2e12}, "hbm_bytes": 1e8, "phase": "forward", "source": at[1]}
    body = (
        Scheduled(kind="begin", name="g", collective="g", source=at[1], alive_bytes=2e9),
        Scheduled(kind="work", name="dot", alive_bytes=6e9, **work),
        Scheduled(kind="end", name="g"),
        Scheduled(kind="begin", name="r", collective="r", source=at[2]),
        Scheduled(kind="end", name="r"),
    )
    schedule = (
        Scheduled(kind="loop", name=f"layers{evil}", trips=80, body=body),
        Scheduled(kind="begin", name="h", host_bytes=1e8, to_host=True, source=at[3]),
        Scheduled(kind="begin", name="c", hbm_bytes=1e8),
        Scheduled(kind="work", name="add", hbm_bytes=1e9, opaque=(f"kernel{evil}",), alive_bytes=1e9),
    )
    facts = {"collectives": Collectives((gather, total)), "source": {at[1].file: {1: f"y = x @ w  # {evil}"}}}
    report = report_of(mesh, level="propagated", program=f"step{evil}", schedule=schedule, **facts)
    return timeline_of(report, "tpu v5e:4x4")


def test_the_text_says_what_the_record_says():
    timeline = made()
    text = timeline.text(100)
    assert all(text_width(line) <= 100 for line in text.splitlines())
    head = text.splitlines()[0]
    assert head == f"step predicted on tpu v5e:4x4: {format_seconds(timeline.seconds)} a step"
    assert "level propagated, listed" in text
    words = " ".join(text.split())
    for lane in timeline.lanes:
        assert f"{lane.name} busy {format_seconds(lane.busy)}" in words
    for each in timeline.exposed:
        assert format_seconds(each.seconds) in words
    for note in timeline.notes:
        assert note in words
    for section in ("What the chip does", "Lanes", "What would make the step shorter", "What is not known"):
        assert section in text


def test_what_the_chip_does_adds_up_to_the_step():
    timeline = made()
    sections = {block.title: block for block in document(timeline).blocks if isinstance(block, Section)}
    (spent,) = sections["What the chip does"].blocks
    assert isinstance(spent, Table)
    shares = [float(plain(row.cells[1]).rstrip("%")) for row in spent.rows]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares) + 0.01)
    assert {plain(row.cells[3]) for row in spent.rows} >= {"products, bound by FLOPs", "waits for collectives"}


def nested() -> Timeline:
    """80 trips of a loop in which another has 3."""
    timeline = made()
    inner = Task("loop", "inner", trips=3, body=(Task("work", "dot", products=2.0), Task("work", "add", hbm=1.0)))
    gather = Task("begin", "g", lanes=("ICI data",), seconds=5.0)
    walk = Walk(
        [Task("work", "first", hbm=4.0), Task("loop", "outer", trips=80, body=(gather, Task("end", "g"), inner))]
    )
    events = tuple(
        Event(name=task.name, lane=lane, begin=begin, seconds=seconds, trips=trips, more=more, axes=("data",))
        for task, lane, begin, seconds, trips, more in walk.events
    )
    return dataclasses.replace(timeline, seconds=walk.now, events=events)


@pytest.mark.parametrize("make", [made, nested])
def test_an_event_is_as_wide_as_all_that_it_takes_of_the_step(make):
    timeline = make()
    stretch = Stretch(timeline)
    assert stretch([0.0, timeline.seconds]) == pytest.approx([0.0, timeline.seconds])
    events = [event for event in timeline.events if event.lane != FOLDED]
    for event, (begin, end) in zip(events, stretch.places(events), strict=True):
        assert end - begin == pytest.approx(event.total), event
    for lane in {event.lane for event in events}:
        places = sorted(stretch.places([event for event in events if event.lane == lane]))
        assert all(one[1] <= other[0] + 1e-9 for one, other in itertools.pairwise(places)), lane


def test_loops_in_loops_are_told_with_their_trips():
    outer, inner = Stretch(nested()).loops
    assert (outer.depth, outer.trips, inner.depth, inner.trips) == (0, 80, 1, 3)
    assert (outer.begin, outer.end) == pytest.approx((4.0, 4.0 + 80 * 14.0)) and outer.begin <= inner.begin
    assert inner.end <= outer.end and outer.words == "80 identical iterations of outer, 14.0 s each, drawn as one"


def test_loops_are_folded_and_everything_lies_in_its_lane():
    timeline = made()
    drawn = picture(timeline)
    texts = [text for shape in drawn.shapes if isinstance(shape, Labels) for text in shape.texts]
    assert any("× 80" in shape.labels for shape in drawn.shapes if isinstance(shape, Rects))
    assert {lane.name for lane in timeline.lanes} | {"waits"} <= set(texts)
    rows: dict[float, list[tuple[float, float]]] = {}
    for shape in drawn.shapes:
        if isinstance(shape, Rects):
            for x, y, wide, high in shape.boxes:
                assert x >= 0 and y >= 0 and x + wide <= drawn.width and y + high <= drawn.height
                if shape.layer == 1 and not shape.tips[0].startswith("memory"):
                    rows.setdefault(y, []).append((x, x + wide))
    assert len(rows) == len(timeline.lanes) + 1
    for boxes in rows.values():
        boxes.sort()
        assert all(one[1] <= other[0] + 0.5 for one, other in itertools.pairwise(boxes))
    tips = [tip for shape in drawn.shapes if isinstance(shape, Rects) for tip in shape.tips]
    assert any(tip.startswith("80 identical iterations of layers") for tip in tips)


def test_memory_is_drawn_below_the_lanes_on_their_axis():
    """What a device has is a line on the same scale; the highest point is the peak, over the trips that have it."""
    timeline = made()
    memory = timeline.memory
    assert memory is not None and (memory.constant_bytes, memory.peak, memory.bytes[-1]) == (0.0, 6e9, 1e9)
    drawn, usable = picture(timeline), format_bytes(memory.usable)
    (held,) = [shape for shape in drawn.shapes if isinstance(shape, Rects) and "memory: 6.00 GB held" in shape.tips]
    (limit,) = [shape for shape in drawn.shapes if isinstance(shape, Lines) and shape.tip == "usable memory"]
    boxes = list(held.boxes)
    bottoms, tops = {round(y + high, 6) for _, y, _, high in boxes}, [y for _, y, _, _ in boxes]
    (bottom,), level = bottoms, limit.lines[0][0][1]
    assert (bottom - min(tops)) / (bottom - level) == pytest.approx(6e9 / memory.usable)
    (lane,) = [s for s in drawn.shapes if isinstance(s, Rects) and s.layer == 0]
    begin, end = min(x for x, *_ in boxes), max(x + wide for x, _, wide, _ in boxes)
    assert begin >= lane.x[0] and end == pytest.approx(lane.x[0] + lane.wide) and min(tops) > lane.y[0] + lane.high
    assert sum(wide for _, y, wide, _ in boxes if y == min(tops)) > 0.9 * (end - begin)  # the 80 trips
    texts = [text for shape in drawn.shapes if isinstance(shape, Labels) for text in shape.texts]
    assert {"memory", "6.00 GB", f"{usable} usable"} <= set(texts)
    text = " ".join(timeline.text(100).split())
    assert f"6.00 of {usable} at the peak" in text and "estimated at level propagated" in text
    small = dataclasses.replace(memory, bytes=tuple(size / 100 for size in memory.bytes))
    drawn = picture(dataclasses.replace(timeline, memory=small))
    assert not [shape for shape in drawn.shapes if isinstance(shape, Lines) and shape.tip == "usable memory"]


@pytest.mark.parametrize("dark", [None, True])
def test_pictures_and_pages_are_whole_and_escaped(dark, tmp_path):
    timeline = made(HOSTILE)
    root = ElementTree.fromstring(paint.svg(timeline, dark=dark))
    assert root.get("aria-label") == picture(timeline).alt
    assert not list(root.iter("img")) and not list(root.iter(f"{SVG}img"))
    assert "<img src=x" not in timeline.html()
    for name in ("step.svg", "step.png", "step.html", "step.md", "step.txt", "step.json", "step.trace.json"):
        assert timeline.save(tmp_path / name).stat().st_size > 500
    assert Timeline.from_json((tmp_path / "step.json").read_text(encoding="utf-8")) == timeline


def test_a_step_of_nothing_is_said():
    empty = dataclasses.replace(made(), seconds=0.0, lanes=(), events=(), exposed=(), critical=(), notes=())
    assert "0 s a step" in empty.text() and picture(empty).width > 0


@pytest.mark.parametrize("bound", ["FLOPs", "HBM", "launch"])
def test_what_bounds_work_is_in_the_legend(bound):
    event = Event(name="k", lane="compute", begin=0.0, seconds=1e-6, what="other work", bound=bound)
    assert look_of(made(), event).text == {"launch": "bound by launches"}.get(bound, f"bound by {bound}")
