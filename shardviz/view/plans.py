"""Several plans of one program: a sweep, a row a point, failures and misfits among them; and presets."""

from __future__ import annotations

from shardviz.ask.presets import Presets
from shardviz.costs.step_cost import StepCost
from shardviz.judge.report import Report
from shardviz.records.amounts import format_bytes, format_number, format_seconds, plural
from shardviz.study.resuming import value_text
from shardviz.study.sweep import Sweep, SweepRow
from shardviz.view.cost_table import memory_text
from shardviz.view.document import Column, Document, Inline, Table, code, document, notes, row, words
from shardviz.view.picture import Labels, Lines, Picture, Rects, Shape, picture
from shardviz.view.values import total_bytes

_WIDE, _HIGH, _LEFT, _TOP = 420.0, 240.0, 70.0, 10.0


@document.register
def sweep_document(found: Sweep) -> Document:
    """A row for each point that was answered; what is not known is said so."""
    names = list(found.over)
    front, best = found.pareto, found.best
    columns = (
        *(Column(name) for name in names),
        *(Column("overlapped", right=True), Column("not", right=True), Column("memory", right=True)),
        *(Column("moved", right=True), Column("tokens/s", right=True), Column("", wrap=True)),
    )
    rows = tuple(
        row(
            *(code(value_text(each.point[name])) for name in names),
            *_numbers(each),
            _verdict(each, each in front, each is best),
            marked=each is best,
        )
        for each in found.rows
    )
    what = f"level {found.level}; a step's time if all overlaps, and if no communication does; memory on one device"
    left = f"{plural(found.left, 'point')} not answered: it was interrupted; previous= goes on" if found.left else ""
    table = Table(columns=columns, rows=rows, first=len(rows), most=len(rows), noun="point")
    title = (words(plural(len(found.rows), "point"), strong=True), words(f"over {', '.join(names)}", quiet=True))
    return Document(title=title, blocks=(*notes(what), table, *notes(left)))


@document.register
def presets_document(found: Presets) -> Document:
    """A row for each preset: what it cuts, and what Shardy and the cost model make of it."""
    timed = any(each.cost is not None for each in found.rows)
    columns = (
        *(
            Column("preset"),
            Column("what it does", wrap=True),
            Column("arguments", right=True),
            Column("moved", right=True),
        ),
        *((Column("memory", right=True), Column("overlapped", right=True), Column("not", right=True)) if timed else ()),
        Column("", wrap=True),
    )
    rows = tuple(
        row(
            code(each.name, strong=True),
            words(each.text, tip=each.cut),
            *_held(each.report),
            *(_timed(each.cost) if timed else ()),
            words(each.trouble, tone="bad"),
        )
        for each in found.rows
    )
    what = "level propagated; arguments and operands of collectives, bytes on one device in a step"
    if timed:
        what += "; a step's time if all overlaps, and if no communication does; what cannot fit stands last"
    table = Table(columns=columns, rows=rows, first=len(rows), most=len(rows), noun="preset")
    title = words(f"{plural(len(rows), 'plan')} to begin with", strong=True)
    return Document(title=title, blocks=(*notes(what), table), mesh=found.rows[0].plan.mesh if rows else None)


def _held(report: Report | None) -> tuple[Inline, ...]:
    """Bytes of the arguments, and of what collectives move."""
    if report is None:
        return words(""), words("")
    moved = sum(c.assumed_bytes for c in report.collectives)
    return words(format_bytes(total_bytes(report.arguments)[0])), words(format_bytes(moved))


def _timed(cost: StepCost | None) -> tuple[Inline, ...]:
    if cost is None:
        return words(""), words(""), words("")
    over = cost.needs.fits is False
    memory = words(memory_text(cost), tone="bad" if over else "", tip=cost.needs.verdict)
    return memory, words(format_seconds(cost.lower)), words(format_seconds(cost.upper))


def _numbers(each: SweepRow) -> tuple[Inline, ...]:
    cost = each.cost
    if cost is None:
        moved = None if each.report is None else sum(c.assumed_bytes for c in each.report.collectives)
        return words(""), words(""), words(""), words("" if moved is None else format_bytes(moved)), words("")
    rates = cost.tokens_per_s
    return (
        words(format_seconds(cost.lower)),
        words(format_seconds(cost.upper)),
        words(("" if cost.needs.complete else "≥ ") + format_bytes(cost.needs.total), tip=cost.needs.verdict),
        words(format_bytes(cost.total.bytes)),
        words("" if rates is None else format_number(rates[0])),
    )


def _verdict(each: SweepRow, front: bool, best: bool) -> Inline:
    if each.report is None:
        return words(each.trouble, tone="bad")
    if each.fits is False:
        return words("does not fit", tone="bad")
    said = [word for word, so in (("★ best", best), ("on the front", front and not best)) if so]
    return words(", ".join([*said, *([each.trouble] if each.trouble else [])]), tone="good" if said else "")


@picture.register
def _(found: Sweep, kind: str = "") -> Picture:
    """Step time against memory: a square a row, with its point; the front joined by a line."""
    rows = [r for r in found.rows if r.time is not None and r.memory is not None]
    longest, most = max((r.time or 0.0 for r in rows), default=1.0), max((r.memory or 0.0 for r in rows), default=1.0)

    def at(each: SweepRow) -> tuple[float, float]:
        return _LEFT + _WIDE * (each.time or 0.0) / longest, _TOP + _HIGH * (1 - (each.memory or 0.0) / most)

    front = found.pareto
    shapes: list[Shape] = [
        Lines(lines=(((_LEFT, _TOP), (_LEFT, _TOP + _HIGH), (_LEFT + _WIDE, _TOP + _HIGH)),), stroke="ink", dash=0)
    ]
    if len(front) > 1:
        shapes.append(Lines(lines=(tuple(at(r) for r in front),), stroke="ink", dash=1))
    for each in sorted(rows, key=lambda r: r in front):  # the front lies over the others
        x, y = at(each)
        shapes.append(Rects(x=(x - 4,), y=(y - 4,), wide=8, high=8, fill="work" if each in front else "muted"))
    named = [r for r in rows if r in front]
    shapes.append(Labels(at=tuple((at(r)[0] + 8, at(r)[1] - 8) for r in named), texts=tuple(r.label for r in named)))
    ends = (format_seconds(longest), format_bytes(most))
    shapes.append(Labels(at=((_LEFT + _WIDE, _TOP + _HIGH + 12),), texts=(f"step {ends[0]}",), align="end"))
    shapes.append(Labels(at=((_LEFT - 6, _TOP),), texts=(ends[1],), align="end"))
    said = "; ".join(f"{r.label}: {format_seconds(r.time)}, {format_bytes(r.memory)}" for r in rows)
    return Picture(
        width=_LEFT + _WIDE + 180,
        height=_TOP + _HIGH + 24,
        shapes=tuple(shapes),
        title="step time (nothing overlaps) against memory on a device",
        alt=f"Step time against memory: {said or 'nothing is known'}.",
        notes=("dark and named: the Pareto front, than which nothing is both faster and smaller",) if rows else (),
    )
