"""The pictures of a step's cost: bars of time, memory, FLOPs by line; its roofline; and collectives by axes or by line.

>>> list(KINDS)
['step', 'roofline', 'memory', 'machine', 'work']
>>> moved = bars([("data", (BarPart(0.5, 0),), "20 ms"), ("model", (BarPart(1.0, 1),), "40 ms")], title="moved")
>>> [round(shape.wide) for shape in moved.shapes if isinstance(shape, Rects)]
[180, 360]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardviz.costs import Knee
from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.notation import Axis, DeviceMesh, axis_name
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_flops, format_number, format_rate, format_seconds, plural
from shardviz.records.sums import CollectiveTotal, WorkTotal, sum_collectives
from shardviz.view.machine_picture import company_picture, machine_picture
from shardviz.view.picture import (
    DASHES,
    MARKS,
    Labels,
    LegendKey,
    Lines,
    Marks,
    Picture,
    Point,
    Rects,
    Role,
    Shape,
    picture,
    shortened,
    text_wide,
)
from shardviz.view.placement import placed_words
from shardviz.view.report import PHASES, phase_words
from shardviz.view.step_cost import hbm_word, headline, memory_words, step_words

WIDE = 360.0
"""Pixels of the longest bar."""
MOST_AXES, MOST_LINES, MOST_SUMS = 8, 10, 12
_STEP, _THICK = 30.0, 18.0


@dataclass(frozen=True)
class BarPart:
    """A part of a bar: its share of the longest bar, what it is filled with, and its hatch."""

    share: float
    fill: Role = "work"
    hatch: int | None = None


Bar = tuple[str, Sequence[BarPart], str]
"""The name before a bar, its parts one after the other, and the words behind it."""
Bound = tuple[float, str, int]
"""An upright line through the bars: its share of the longest, its words above, its dash."""


def bars(
    rows: Sequence[Bar], *, title: str, bounds: Sequence[Bound] = (), alt: str = "", mesh: DeviceMesh | None = None
) -> Picture:
    """Bars below each other, and upright lines (`bounds`) through them; `mesh` has the axes that fills count."""
    left = max((text_wide(name) for name, _, _ in rows), default=0.0) + 10
    top = 16.0 * len(bounds) + 4
    middles = [top + _STEP * (number + 0.5) for number in range(len(rows))]
    shapes: list[Shape] = []
    ends = []
    for (_, parts, _), y in zip(rows, middles, strict=True):
        x = left
        for part in parts:
            look = {"fill": part.fill, "hatch": part.hatch}
            shapes.append(Rects(x=(x,), y=(y - _THICK / 2,), wide=WIDE * part.share, high=_THICK, **look))
            x += WIDE * part.share
        ends.append(x)
    names, behind = tuple(name for name, _, _ in rows), tuple(text for _, _, text in rows)
    shapes.append(Labels(at=tuple((left - 10, y) for y in middles), texts=names, align="end"))
    shapes.append(Labels(at=tuple((x + 8, y) for x, y in zip(ends, middles, strict=True)), texts=behind))
    shapes += _bounds(bounds, left, top + _STEP * len(rows))
    return Picture(
        width=max(left + WIDE, *(x + 8 + text_wide(text) for x, text in zip(ends, behind, strict=True)), 0.0),
        height=top + _STEP * max(len(rows), 1),
        shapes=tuple(shapes),
        title=title,
        alt=alt or f"{title}: " + "; ".join(f"{name} {text}" for name, _, text in rows),
        axes=() if mesh is None else mesh.names,
    )


def _bounds(bounds: Sequence[Bound], left: float, foot: float) -> Iterator[Shape]:
    """Each with its words in a line of their own, on the side where there is room."""
    for number, (share, text, dash) in enumerate(bounds):
        x, y = left + WIDE * share, 16.0 * number + 8
        before = text_wide(text) + 6 < x
        yield Lines(lines=(((x, y - 6), (x, foot)),), stroke="ink", dash=dash, layer=1)
        align = "end" if before else "start"
        yield Labels(at=((x - 5 if before else x + 5, y),), texts=(text,), align=align, size="small")


def axes_part(mesh: DeviceMesh, axes: Sequence[Axis] | None, share: float, other: Role = "muted") -> BarPart:
    """A stretch in the colour and hatch of the first of the axes; in the colour `other` where there are none."""
    first = axis_name(axes[0]) if axes else None
    if first not in mesh.names:
        return BarPart(share, other)
    place = mesh.names.index(first)
    return BarPart(share, place, place)


def step_bars(cost: StepCost) -> Picture:
    """The seconds of compute, HBM traffic and each mesh axis' communication, with the bounds of the step."""
    step, moved = cost.step, [m for m in cost.by("axes") if m.seconds]
    shown, rest = moved[:MOST_AXES], moved[MOST_AXES:]
    whole = max(step.seconds, step.upper) or 1.0
    memory = hbm_word(cost) + format_seconds(step.memory)
    compute = format_seconds(None if cost.flops is None else step.compute)
    rows: list[Bar] = [("compute", (BarPart(step.compute / whole),), compute)]
    rows.append(("HBM traffic", (BarPart(step.memory / whole),), memory))
    parts = [axes_part(cost.mesh, m.key if isinstance(m.key, tuple) else (), m.seconds / whole) for m in moved]
    rows += [(f"over {m.label}", (part,), format_seconds(m.seconds)) for m, part in zip(shown, parts, strict=False)]
    if rest:
        seconds = sum(m.seconds for m in rest)
        rows.append((f"over {len(rest)} more", (BarPart(seconds / whole, "muted"),), format_seconds(seconds)))
    alt = "Step time: " + "; ".join(f"{name} {text}" for name, _, text in rows) + f". {headline(cost)}."
    upper = f"at least {format_seconds(step.upper)}" if cost.upper is None else format_seconds(cost.upper)
    rows.append(("no overlap", (BarPart(max(step.compute, step.memory) / whole), *parts), upper))
    bounds: list[Bound] = [(cost.lower / whole, f"at least: {format_seconds(cost.lower)}", 2)]
    if cost.seconds is not None:
        bounds = [(cost.seconds / whole, f"the step: {step_words(cost)}", 1)]
    drawn = bars(rows, title=_title(cost, "step time"), bounds=bounds, alt=alt, mesh=cost.mesh)
    return replace(drawn, notes=(headline(cost),))


def _title(cost: StepCost, what: str) -> str:
    return f"{cost.program} on {cost.machine.text}: {what}"


_MEMORY_LOOKS: tuple[tuple[Role, int | None], ...] = (("part 0", None), ("part 1", 0), ("part 2", 2), ("part 3", 3))


def memory_bar(cost: StepCost) -> Picture:
    """A device's memory as one bar, and a line at what is usable."""
    needs, chip = cost.needs, cost.machine.chip
    whole = max(needs.total, needs.usable or 0.0) or 1.0
    parts = list(zip(needs.parts.items(), _MEMORY_LOOKS, strict=False))
    stretches = [BarPart(size / whole, *look) for (_, size), look in parts]
    keys = [LegendKey(text=f"{what} {format_bytes(size)}", fill=f, hatch=h) for (what, size), (f, h) in parts]
    left = 1 - sum(part.share for part in stretches)
    if not (needs.complete or needs.margin) and left > 0:
        stretches.append(BarPart(left, "tile"))
        keys.append(LegendKey(text="temporaries: not known", fill="tile"))
    bounds = []
    if needs.usable is not None:
        per = "" if chip.devices_per_chip == 1 else " a device"
        bounds.append((needs.usable / whole, f"{chip.name}{per}: {format_bytes(needs.usable)} usable", 0))
    parts_text = ", ".join(f"{what} {format_bytes(size)}" for what, size in needs.parts.items())
    alt = f"Memory on a device: {parts_text}. {memory_words(needs)}."
    drawn = bars([("", stretches, "")], title=_title(cost, "memory on a device"), bounds=bounds, alt=alt)
    return replace(drawn, keys=tuple(keys), notes=(memory_words(needs),))


_PHASE_HATCHES = {"forward": None, "rematerialised": 0, "backward": 2, "update": 3}


def work_bars(cost: StepCost) -> Picture:
    """FLOPs of one device by source line, each bar divided by phase."""
    counted = cost.report.cost
    totals = [t for t in counted.by("source") if t.flops] if counted is not None else []
    shown, rest = totals[:MOST_LINES], totals[MOST_LINES:]
    most = max((t.flops for t in shown), default=0.0) or 1.0
    rows: list[Bar] = []
    for total in shown:
        parts = [BarPart(flops / most, phase, _PHASE_HATCHES[phase]) for phase, flops in _phases(cost, total)]
        share = f"{total.at_least}{format_flops(total.flops)} · {total.flops / counted.flops:.0%}" if counted else ""
        rows.append((_line_name(total, cost.line), parts, share))
    phases = (phase_words(counted) if counted is not None else "") or f"not counted at level {cost.level}"
    lines = "; ".join(f"{t.label} {format_flops(t.flops)}" for t in shown) or "not known"
    present = {row.phase for row in counted.work if row.flops} if counted is not None else set()
    level = cost.basis if cost.level == "propagated" else "partitioned"
    alt = f"FLOPs of a device by line: {lines}. {phases}."
    return replace(
        bars(rows, title=f"{cost.program}: FLOPs of a device by line, {level}", alt=alt),
        keys=tuple(LegendKey(text=p, fill=p, hatch=_PHASE_HATCHES[p]) for p in PHASES if p in present),
        notes=(phases + (f"; {len(rest)} more lines not drawn" if rest else ""),),
    )


def _phases(cost: StepCost, total: WorkTotal) -> list[tuple[str, float]]:
    """The FLOPs of a line in each phase, in the order in which a step runs."""
    sums = dict.fromkeys(PHASES, 0.0)
    for row in cost.report.cost.work if cost.report.cost is not None else ():
        if (row.source and row.source.bare) == total.key:
            sums[row.phase] += row.flops
    return [(phase, flops) for phase, flops in sums.items() if flops]


def _line_name(total: WorkTotal | CollectiveTotal, line: Callable[[Frame], str]) -> str:
    text = line(total.key) if isinstance(total.key, Frame) else ""
    return f"{total.label}  {shortened(text, 40)}" if text else total.label


@picture.register
def collective_bars(report: Report, kind: str = "") -> Picture:
    """Operand bytes of collectives on one device in a step, by `axes` or `source`; a note counts the bars left out."""
    by = kind or "axes"
    if by not in ("axes", "source"):
        raise ShardvizError(f"collectives by {by!r}: by is 'axes' or 'source'")
    totals = sum_collectives(report.collectives, by)
    shown = totals[:MOST_SUMS]
    most = max((t.bytes for t in shown), default=0) or 1
    rows: list[Bar] = [
        (
            _line_name(total, report.line),
            [axes_part(report.mesh, part.axes, part.bytes / most) for part in total.parts],
            f"{total.bytes_text} · {', '.join(total.kinds)}",
        )
        for total in shown
    ]
    more = f"; {len(totals) - len(shown)} more not drawn" if len(totals) > len(shown) else ""
    note = f"operand bytes per device in a step; longest bar {format_bytes(most)}{more}"
    title = f"{report.program}: collectives by {'mesh axes' if by == 'axes' else 'source line'}, {report.level}"
    return replace(bars(rows, title=title, mesh=report.mesh), notes=(note if totals else "no collectives",))


# The roofline: how many FLOPs a byte of HBM, and of each mesh axis' links, a step does. Left of a roof's knee the bytes
# take longer than the FLOPs.

MOST_ROOFS = 6


@dataclass(frozen=True)
class Roof:
    """The roof of HBM or of the links of a mesh axis, whose colour it has, and the program under it: FLOPs that it does
    for each byte (`intensity`; None where it moves none, or FLOPs are not known), and FLOPs a second that the roof
    allows it."""

    knee: Knee
    axis: str | None
    intensity: float | None
    attained: float | None
    title: str
    verdict: str


@dataclass(frozen=True)
class Roofline:
    """All roofs of a step, HBM's first, then of the axes that take longest; one device's peak FLOPs a second, the
    limits of both axes (FLOPs a byte, FLOPs a second), and what is not drawn. `at` is where a place stands in the
    picture."""

    roofs: tuple[Roof, ...]
    peak: float
    x: tuple[float, float]
    y: tuple[float, float]
    rate: str
    left_out: str

    def at(self, intensity: float, rate: float) -> Point:
        across, up = (
            (math.log10(n) - math.log10(low)) / math.log10(high / low)
            for n, (low, high) in ((intensity, self.x), (rate, self.y))
        )
        return LEFT + across * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)


def roofline_of(cost: StepCost) -> Roofline:
    """The roofs of HBM and of each mesh axis' links. Bytes of an axis are its seconds x its roof's bandwidth, as in the
    cost model: left of the knee the bytes take longer than the FLOPs."""
    flops = cost.flops or 0.0
    times = {"HBM": cost.step.memory} | {m.label: m.seconds for m in cost.by("axes") if m.seconds}
    hbm, *links = cost.knees()
    counted = [k for k in links if times.get(k.name, 0.0) > cost.lower / 1000]
    knees = [hbm, *sorted(counted, key=lambda k: -times[k.name])[: MOST_ROOFS - 1]]
    rest = [name for name in times if name not in {k.name for k in knees}]
    roofs = tuple(_roof(cost, knee, times.get(knee.name, 0.0), flops) for knee in knees)
    peak = hbm.bytes_per_s * hbm.intensity
    marks = [r.knee.intensity for r in roofs] + [r.intensity for r in roofs if r.intensity]
    low, high = 10 ** math.floor(math.log10(min(marks)) - 0.6), 10 ** math.ceil(math.log10(max(marks)) + 0.4)
    floor = min([peak, *(r.attained for r in roofs if r.attained)])
    least = 10 ** math.floor(math.log10(min(floor, min(r.knee.attainable(low) for r in roofs) * 3)))
    left_out = f"{plural(len(rest), 'more roof')}: under a thousandth of the step" if rest else ""
    rate = f"peak {format_flops(peak)}/s of {cost.dtype}"
    return Roofline(roofs, peak, (low, high), (least, peak * 3), rate, left_out)


def _roof(cost: StepCost, knee: Knee, seconds: float, flops: float) -> Roof:
    at = flops / (seconds * knee.bytes_per_s) if seconds and flops else None
    first = axis_name(knee.name.split(",")[0].split(":")[0])
    verdict = "no traffic"
    if at is not None:
        least = knee.name == "HBM" and hbm_word(cost) == "at least "
        some, long = ("at most ", "at least ") if least else ("", "")
        wins = "bytes take longer" if at < knee.intensity else "FLOPs take longer"
        wins += ", as far as is known" if least and at >= knee.intensity else ""
        verdict = f"{some}{format_number(at)} FLOPs a byte; {long}{format_seconds(seconds)}: {wins}"
    elif cost.flops is None and seconds:
        verdict = "the program's FLOPs are not known"
    return Roof(
        knee,
        first if first in cost.mesh.names and knee.name != "HBM" else None,
        at,
        None if at is None else knee.attainable(at),
        f"{knee.name}: {format_rate(knee.bytes_per_s)}, knee at {format_number(knee.intensity)} FLOPs a byte",
        verdict,
    )


LEFT, RIGHT, TOP, BOTTOM = 78, 500, 20, 256
"""The edges of the room between the axes, in pixels."""
_ROOFS, _NAMES, _MARKS = 1, 2, 3  # layers


def roofline_picture(cost: StepCost) -> Picture:
    """The roofs of a step with the program's place under each."""
    roofline = roofline_of(cost)
    shapes: list[Shape] = list(_grid(roofline))
    lines = [_line(roofline, roof) for roof in roofline.roofs]
    names = _name_places(lines)
    keys = []
    for number, (roof, line, name_at) in enumerate(zip(roofline.roofs, lines, names, strict=True)):
        role = "ink" if roof.axis is None else cost.mesh.names.index(roof.axis)
        dash, mark, name = number % len(DASHES), MARKS[number % len(MARKS)], roof.knee.name
        shapes.append(Lines(lines=(line,), stroke=role, width=2, dash=dash, tip=roof.title, name=name, layer=_ROOFS))
        shapes.append(_name(shortened(name), name_at, name))
        if roof.intensity is not None and roof.attained is not None:
            tip = f"{name}: {roof.verdict}; at most {format_flops(roof.attained)}/s by this roof"
            at = roofline.at(roof.intensity, roof.attained)
            shapes.append(Marks(at=(at,), mark=mark, fill=role, stroke="ground", tip=tip, name=name, layer=_MARKS))
        keys.append(
            LegendKey(
                text=roof.title,
                more=roof.verdict,
                stroke=role,
                dash=dash,
                mark=mark if roof.intensity is not None else "",
                name=name,
                title=roof.knee.formula,
            )
        )
    return Picture(
        width=520,
        height=290,
        shapes=tuple(shapes),
        title=f"{cost.program} on {cost.machine.text}: roofline",
        alt=f"Roofline, {roofline.rate}. " + " ".join(f"{roof.title}: {roof.verdict}." for roof in roofline.roofs),
        axes=cost.mesh.names,
        keys=tuple(keys),
        notes=(roofline.left_out,) if roofline.left_out else (),
    )


def _grid(roofline: Roofline) -> Iterator[Shape]:
    """Lines at powers of ten with their numbers, and what the axes are."""
    xs = [(roofline.at(n, roofline.peak)[0], format_number(n)) for n in _decades(*roofline.x)]
    ys = [(roofline.at(roofline.x[0], n)[1], f"{format_flops(n)}/s") for n in _decades(*roofline.y)]
    upright = tuple(((x, float(TOP)), (x, float(BOTTOM))) for x, _ in xs)
    level = tuple(((float(LEFT), y), (float(RIGHT), y)) for y, _ in ys)
    yield Lines(lines=upright + level, width=0.6)
    names: dict[str, Any] = {"size": "small", "ink": "quiet"}
    yield Labels(at=tuple((x, BOTTOM + 11) for x, _ in xs), texts=tuple(t for _, t in xs), align="middle", **names)
    yield Labels(at=tuple((LEFT - 6, y) for y, _ in ys), texts=tuple(t for _, t in ys), align="end", **names)
    yield Labels(at=(((LEFT + RIGHT) / 2, 282),), texts=("FLOPs a byte",), align="middle", **names)
    yield Labels(
        at=((RIGHT, roofline.at(roofline.x[0], roofline.peak)[1] - 10),),
        texts=(roofline.rate,),
        align="end",
        size="small",
    )


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten, at most seven of them."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**n for n in range(first, last + 1, max(1, -(-(last - first + 1) // 7)))]


def _line(roofline: Roofline, roof: Roof) -> tuple[Point, ...]:
    """A roof: up to its knee, and level from there."""
    knee = roof.knee
    low = max(roofline.x[0], roofline.y[0] / knee.bytes_per_s)  # where the line comes into the picture
    points = [(low, knee.attainable(low)), (knee.intensity, roofline.peak), (roofline.x[1], roofline.peak)]
    return tuple(roofline.at(*point) for point in points)


def _name_places(lines: list[tuple[Point, ...]]) -> list[Point]:
    """Where each roof's name stands: beside its slope, those with the shortest slopes first, each at its own height."""
    places: dict[int, Point] = {}
    for number in sorted(range(len(lines)), key=lambda n: lines[n][0][1]):
        (x0, y0), (x1, y1), _ = lines[number]
        heights = [y1 + 14 + 4 * n for n in range(max(1, int((y0 - y1 - 18) / 4)))]
        free = (h for h in heights if all(abs(h - y) >= 17 for _, y in places.values()))
        y = next(free, heights[len(heights) // 2])
        part = min(max((y0 - y) / ((y0 - y1) or 1.0), 0.0), 1.0)
        places[number] = (x0 + (x1 - x0) * part, y)
    return [places[n] for n in range(len(lines))]


def _name(text: str, at: Point, name: str) -> Labels:
    """A roof's name, left of its line where there is room."""
    x, y = at
    before = x - text_wide(text) - 5 > LEFT
    look: dict[str, Any] = {"size": "small", "bold": True, "mono": True, "halo": True, "layer": _NAMES}
    return Labels(
        at=((x - 6 if before else x + 7, y),), texts=(text,), align="end" if before else "start", name=name, **look
    )


# The kinds.


def machine_figure(cost: StepCost) -> Picture:
    """The mesh on its machine, with the first device's company."""
    drawn = machine_picture(cost.placement)
    drawn = replace(drawn, notes=(*drawn.notes, placed_words(cost.placement)))
    return drawn.over(company_picture(cost.placement, 0))


KINDS: dict[str, Callable[[StepCost], Picture]] = {
    "step": step_bars,
    "roofline": roofline_picture,
    "memory": memory_bar,
    "machine": machine_figure,
    "work": work_bars,
}


@picture.register
def _(cost: StepCost, kind: str = "") -> Picture:
    kind = kind or "step"
    if kind not in KINDS:
        raise ShardvizError(f"plot(kind={kind!r}): kind is {', '.join(map(repr, KINDS))}")
    return KINDS[kind](cost)
