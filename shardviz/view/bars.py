"""Bars: the time of a step, its memory, its FLOPs by line, and collectives by mesh axes or by line.

>>> moved = bars((Bar("data", (Stretch(0.5, 0),), "20 ms"), Bar("model", (Stretch(1.0, 1),), "40 ms")), title="moved")
>>> [round(shape.wide) for shape in moved.shapes if isinstance(shape, Rects)]
[180, 360]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.notation import Axis, DeviceMesh, axis_name
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_flops, format_seconds
from shardviz.records.sums import CollectiveTotal, WorkTotal, sum_collectives
from shardviz.view.picture import Key, Labels, Lines, Picture, Rects, Role, Shape, picture, shortened, text_wide
from shardviz.view.step_cost import headline, memory_words
from shardviz.view.work import PHASES, phase_words

WIDE = 360.0
"""Pixels of the longest bar."""
MOST_AXES, MOST_LINES = 8, 10
_STEP, _THICK = 30.0, 18.0


@dataclass(frozen=True)
class Stretch:
    """A part of a bar: its share of the longest bar, what it is filled with, and its hatch."""

    share: float
    fill: Role = "work"
    hatch: int | None = None


@dataclass(frozen=True)
class Bar:
    """A bar: its name before it, its parts one after the other, and the words behind it."""

    name: str
    parts: tuple[Stretch, ...]
    end: str = ""


@dataclass(frozen=True)
class Bound:
    """An upright line through the bars, at a share of the longest, with its words above."""

    share: float
    text: str
    dash: int


def bars(
    rows: Sequence[Bar],
    *,
    title: str,
    bounds: Sequence[Bound] = (),
    alt: str = "",
    mesh: DeviceMesh | None = None,
    keys: tuple[Key, ...] = (),
    notes: tuple[str, ...] = (),
) -> Picture:
    """Bars below each other.

    Args:
        rows: the bars, from the first to the last.
        title: what they show.
        bounds: upright lines through them.
        alt: the picture in words; names and the words behind the bars if empty.
        mesh: whose axes fills count.
        keys, notes: what stands below.
    """
    left = max((text_wide(row.name) for row in rows), default=0.0) + 10
    top = 16.0 * len(bounds) + 4
    ends = [left + WIDE * sum(part.share for part in row.parts) for row in rows]
    middles = [top + _STEP * (number + 0.5) for number in range(len(rows))]
    shapes: list[Shape] = []
    for row, y in zip(rows, middles, strict=True):
        x = left
        for part in row.parts:
            look = {"fill": part.fill, "hatch": part.hatch}
            shapes.append(Rects(x=(x,), y=(y - _THICK / 2,), wide=WIDE * part.share, high=_THICK, **look))
            x += WIDE * part.share
    names = tuple(row.name for row in rows)
    shapes.append(Labels(at=tuple((left - 10, y) for y in middles), texts=names, align="end"))
    behind = tuple((x + 8, y) for x, y in zip(ends, middles, strict=True))
    shapes.append(Labels(at=behind, texts=tuple(row.end for row in rows)))
    shapes += _bounds(bounds, left, top + _STEP * len(rows))
    words = max((x + 8 + text_wide(row.end) for x, row in zip(ends, rows, strict=True)), default=left + WIDE)
    return Picture(
        width=max(words, left + WIDE),
        height=top + _STEP * max(len(rows), 1),
        shapes=tuple(shapes),
        title=title,
        alt=alt or f"{title}: " + "; ".join(f"{row.name} {row.end}" for row in rows),
        axes=() if mesh is None else mesh.names,
        keys=keys,
        notes=notes,
    )


def _bounds(bounds: Sequence[Bound], left: float, foot: float) -> Iterator[Shape]:
    """Each with its words in a line of their own, on the side where there is room."""
    for number, bound in enumerate(bounds):
        x, y = left + WIDE * bound.share, 16.0 * number + 8
        before = text_wide(bound.text) + 6 < x
        yield Lines(lines=(((x, y - 6), (x, foot)),), stroke="ink", dash=bound.dash, layer=1)
        align = "end" if before else "start"
        yield Labels(at=((x - 5 if before else x + 5, y),), texts=(bound.text,), align=align, size="small")


def step_bars(cost: StepCost) -> Picture:
    """The seconds of compute, HBM traffic and each mesh axis' communication, with the bounds of the step."""
    step, moved = cost.step, [m for m in cost.by("axes") if m.seconds]
    shown, rest = moved[:MOST_AXES], moved[MOST_AXES:]
    whole = cost.upper or step.upper or 1.0
    rows = [
        Bar("compute", (Stretch(step.compute / whole),), format_seconds(None if cost.flops is None else step.compute)),
        Bar(
            "HBM traffic",
            (Stretch(step.memory / whole),),
            ("" if cost.hbm_exact else "at least ") + format_seconds(step.memory),
        ),
    ]
    parts = [_axes_part(cost.mesh, _axes(m), m.seconds / whole) for m in moved]
    rows += [Bar(f"over {m.label}", (part,), format_seconds(m.seconds)) for m, part in zip(shown, parts, strict=False)]
    if rest:
        seconds = sum(m.seconds for m in rest)
        rows.append(Bar(f"over {len(rest)} more", (Stretch(seconds / whole, "muted"),), format_seconds(seconds)))
    alt = "Step time: " + "; ".join(f"{row.name} {row.end}" for row in rows) + f". {headline(cost)}."
    parts.insert(0, Stretch(max(step.compute, step.memory) / whole))
    upper = format_seconds(cost.upper) if cost.upper is not None else f"at least {format_seconds(step.upper)}"
    rows.append(Bar("one after the other", tuple(parts), upper))
    word = "at least" if cost.upper is None else "all overlaps"
    bounds = [Bound(cost.lower / whole, f"{word}: {format_seconds(cost.lower)}", 2)]
    if cost.upper is not None:
        bounds.append(Bound(cost.upper / whole, f"nothing overlaps: {upper}", 1))
    title = f"{cost.program} on {cost.machine.text}: step time"
    return bars(rows, title=title, bounds=bounds, alt=alt, mesh=cost.mesh, notes=(headline(cost),))


def _axes(total: CollectiveTotal) -> tuple[Axis, ...]:
    return total.key if isinstance(total.key, tuple) else ()


def _axes_part(mesh: DeviceMesh, axes: Sequence[Axis] | None, share: float) -> Stretch:
    """A stretch in the colour and hatch of the first of the axes; muted for none."""
    first = axis_name(axes[0]) if axes else None
    if first not in mesh.names:
        return Stretch(share, "muted")
    place = mesh.names.index(first)
    return Stretch(share, place, place)


def memory_bar(cost: StepCost) -> Picture:
    """What one device's memory holds, as one bar, and the line of what it has."""
    needs = cost.needs
    whole = max(needs.total, needs.usable or 0.0) or 1.0
    looks: tuple[tuple[Role, int | None], ...] = (("part 0", None), ("part 1", 0), ("part 2", 2), ("part 3", 3))
    parts = list(zip(needs.parts.items(), looks, strict=False))
    stretches = [Stretch(size / whole, *look) for (_, size), look in parts]
    left = 1 - sum(part.share for part in stretches)
    keys = tuple(Key(text=f"{what} {format_bytes(size)}", fill=f, hatch=h) for (what, size), (f, h) in parts)
    if not needs.complete and left > 0:
        stretches.append(Stretch(left, "tile"))
        keys += (Key(text="what is made in between: not known", fill="tile"),)
    bounds = []
    if needs.usable is not None:
        chip = cost.machine.chip
        per = "" if chip.devices_per_chip == 1 else " a device"
        bounds.append(Bound(needs.usable / whole, f"{chip.name}{per}: {format_bytes(needs.usable)} usable", 0))
    said = ", ".join(f"{what} {format_bytes(size)}" for what, size in needs.parts.items())
    return bars(
        (Bar("", tuple(stretches)),),
        title=f"{cost.program} on {cost.machine.text}: memory on a device",
        bounds=bounds,
        alt=f"Memory on a device: {said}. {memory_words(needs)}.",
        keys=keys,
        notes=(memory_words(needs),),
    )


def work_bars(cost: StepCost) -> Picture:
    """FLOPs of one device by source line, each bar cut by phase."""
    counted = cost.counted
    totals = [t for t in counted.by("source") if t.flops] if counted is not None else []
    shown, rest = totals[:MOST_LINES], totals[MOST_LINES:]
    most = max((t.flops for t in shown), default=0.0) or 1.0
    rows = []
    for total in shown:
        parts = tuple(Stretch(flops / most, phase, _PHASE_HATCHES[phase]) for phase, flops in _phases(cost, total))
        share = f"{total.at_least}{format_flops(total.flops)} · {total.flops / counted.flops:.0%}" if counted else ""
        rows.append(Bar(_line_name(total, cost.line(total.key) if isinstance(total.key, Frame) else ""), parts, share))
    said = (phase_words(counted) if counted is not None else "") or f"not counted at level {cost.level}"
    lines = "; ".join(f"{t.label} {format_flops(t.flops)}" for t in shown)
    found = {row.phase for row in counted.work if row.flops} if counted is not None else set()
    level = cost.basis if cost.level == "propagated" else "partitioned"
    return bars(
        rows,
        title=f"{cost.program}: FLOPs of a device by line, {level}",
        alt=f"FLOPs of a device by line: {lines or 'not known'}. {said}.",
        keys=tuple(Key(text=p, fill=p, hatch=_PHASE_HATCHES[p]) for p in PHASES if p in found),
        notes=(said + (f"; {len(rest)} more lines not drawn" if rest else ""),),
    )


_PHASE_HATCHES = {"forward": None, "rematerialised": 0, "backward": 2, "update": 3}


def _phases(cost: StepCost, total: WorkTotal) -> list[tuple[str, float]]:
    """The FLOPs of a line in each phase, in the order in which a step runs."""
    sums = dict.fromkeys(PHASES, 0.0)
    for row in cost.counted.work if cost.counted is not None else ():
        if (row.source and row.source.bare) == total.key:
            sums[row.phase] += row.flops
    return [(phase, flops) for phase, flops in sums.items() if flops]


def _line_name(total: WorkTotal | CollectiveTotal, line: str) -> str:
    return f"{total.label}  {shortened(line, 40)}" if line else total.label


def collective_bars(report: Report, by: str = "axes", limit: int = 12) -> Picture:
    """Operand bytes of the collectives on one device over the step.

    Args:
        report: whose collectives.
        by: `axes` (mesh axes) or `source` (source line).
        limit: the most bars; a note says how many more there are.

    Raises:
        ShardvizError: for another `by`.
    """
    if by not in ("axes", "source"):
        raise ShardvizError(f"collectives by {by!r}: by is 'axes' or 'source'")
    totals = sum_collectives(report.collectives, by)
    shown = totals[:limit]
    most = max((t.bytes for t in shown), default=0) or 1
    rows = [
        Bar(
            _line_name(t, report.line(t.key) if isinstance(t.key, Frame) else ""),
            tuple(_axes_part(report.mesh, part.axes, part.bytes / most) for part in t.parts),
            f"{t.bytes_text} · {', '.join(t.kinds)}",
        )
        for t in shown
    ]
    more = f"; {len(totals) - limit} more not drawn" if len(totals) > limit else ""
    note = f"operand bytes per device in a step; longest bar {format_bytes(most)}{more}"
    title = f"{report.program}: collectives by {'mesh axes' if by == 'axes' else 'source line'}, {report.level}"
    return bars(rows, title=title, mesh=report.mesh, notes=(note if totals else "no collectives",))


@picture.register
def _(report: Report, kind: str = "") -> Picture:
    return collective_bars(report, kind or "axes")
