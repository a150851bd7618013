"""The pictures of a step's cost: its roofline, and its machine.

>>> list(KINDS)
['roofline', 'machine']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from shardviz.costs import Knee
from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.notation import axis_name
from shardviz.records.amounts import format_flops, format_number, format_rate, format_seconds, plural
from shardviz.view.document import shorten
from shardviz.view.machine import company_picture, machine_picture
from shardviz.view.picture import (
    DASHES,
    MARKS,
    Labels,
    LegendKey,
    Lines,
    Marks,
    Picture,
    Point,
    Shape,
    picture,
    text_wide,
)
from shardviz.view.placement import placed_words

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
        least = knee.name == "HBM" and not cost.hbm_exact and cost.timed is None
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
    lines: list[tuple[Point, ...]] = []
    for roof in roofline.roofs:  # up to its knee, and level from there
        knee = roof.knee
        low = max(roofline.x[0], roofline.y[0] / knee.bytes_per_s)  # where the line comes into the picture
        points = (low, knee.attainable(low)), (knee.intensity, roofline.peak), (roofline.x[1], roofline.peak)
        lines.append(tuple(roofline.at(*point) for point in points))
    names = _name_places(lines)
    keys = []
    for number, (roof, line, name_at) in enumerate(zip(roofline.roofs, lines, names, strict=True)):
        role = "ink" if roof.axis is None else cost.mesh.names.index(roof.axis)
        dash, mark, name = number % len(DASHES), MARKS[number % len(MARKS)], roof.knee.name
        shapes.append(Lines(lines=(line,), stroke=role, width=2, dash=dash, tip=roof.title, name=name, layer=_ROOFS))
        text, (x, y) = shorten(name, 24), name_at
        before = x - text_wide(text) - 5 > LEFT  # left of its line where there is room
        at, align = ((x - 6, y), "end") if before else ((x + 7, y), "start")
        look: dict[str, Any] = {"size": "small", "bold": True, "mono": True, "halo": True, "layer": _NAMES}
        shapes.append(Labels(at=(at,), texts=(text,), align=align, name=name, **look))
        if roof.intensity is not None and roof.attained is not None:
            tip = f"{name}: {roof.verdict}; at most {format_flops(roof.attained)}/s by this roof"
            at = roofline.at(roof.intensity, roof.attained)
            shapes.append(Marks(at=(at,), mark=mark, fill=role, stroke="ground", tip=tip, name=name, layer=_MARKS))
        mark = mark if roof.intensity is not None else ""
        told: dict[str, Any] = {"text": roof.title, "more": roof.verdict, "title": roof.knee.formula}
        keys.append(LegendKey(stroke=role, dash=dash, mark=mark, name=name, **told))
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


def machine_figure(cost: StepCost) -> Picture:
    """The mesh on its machine, with the first device's company."""
    drawn = machine_picture(cost.placement)
    drawn = replace(drawn, notes=(*drawn.notes, placed_words(cost.placement)))
    return drawn.over(company_picture(cost.placement, 0))


KINDS: dict[str, Callable[[StepCost], Picture]] = {
    "roofline": roofline_picture,
    "machine": machine_figure,
}


@picture.register
def _(cost: StepCost, kind: str = "") -> Picture:
    kind = kind or "roofline"
    if kind not in KINDS:
        raise ShardvizError(f"plot(kind={kind!r}): kind is {', '.join(map(repr, KINDS))}")
    return KINDS[kind](cost)
