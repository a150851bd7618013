"""The pictures of a step's cost, most of them bars: time, memory, FLOPs by line; and collectives by axes or by line.

>>> list(KINDS)
['step', 'roofline', 'memory', 'machine', 'work']
>>> moved = bars([("data", (BarPart(0.5, 0),), "20 ms"), ("model", (BarPart(1.0, 1),), "40 ms")], title="moved")
>>> [round(shape.wide) for shape in moved.shapes if isinstance(shape, Rects)]
[180, 360]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.notation import Axis, DeviceMesh, axis_name
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_flops, format_seconds
from shardviz.records.sums import CollectiveTotal, WorkTotal, sum_collectives
from shardviz.view.machine_picture import company_picture, machine_picture
from shardviz.view.picture import Labels, LegendKey, Lines, Picture, Rects, Role, Shape, picture, shortened, text_wide
from shardviz.view.placement import placed_words
from shardviz.view.report import PHASES, phase_words
from shardviz.view.roofline import roofline_picture
from shardviz.view.step_cost import headline, memory_words, step_words

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
    memory = ("" if cost.hbm_exact else "at least ") + format_seconds(step.memory)
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
    if not needs.complete and left > 0:
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
    counted = cost.counted
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
    for row in cost.counted.work if cost.counted is not None else ():
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
