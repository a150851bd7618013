"""The user's source: below each line its values with their specs, its compute and its collectives.

If the text cannot be read (`exec`, `python -c`, a deleted file), only line numbers are shown. A bar beside a line is
its share of the step: of the seconds if there is a cost, else of the bytes moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from shardviz.costs.step_cost import StepCost
from shardviz.judge.report import Report
from shardviz.records import Collective, Frame, Value
from shardviz.records.amounts import format_bytes, format_seconds, format_shape
from shardviz.records.groups import grouped
from shardviz.records.sums import CollectiveTotal, sum_collectives, total_of
from shardviz.view import document as doc
from shardviz.view.step_cost import work_lines

MOST_LINES = 600
_UNREADABLE = "(no source text)"
_Placed = TypeVar("_Placed", Value, Collective)
_MOST_KINDS = 3
_HOT = 0.5  # of the line that takes longest
_PHASES = {"forward": "fwd", "backward": "bwd", "rematerialised": "remat", "update": ""}
_LATER = ("transpose(", "rematted_computation")
_COLUMNS = (doc.Column("", right=True), doc.Column(""), doc.Column(""), doc.Column("", right=True))
_TAKEN = "compute and communication of this line in a step", "sent by each device in a step"
_COMPUTE = "matrix products of this line, forward, backward and recomputed, in a step"


def source_pane(report: Report, cost: StepCost | None = None) -> doc.Document:
    """Return the lines of the report, file by file, with the step's cost if known."""
    values, collectives = _by_line(report.intermediates), _by_line(report.collectives)
    computes = {} if cost is None else cost.compute_by_line()
    works = work_lines(cost)
    weigh = attrgetter("sent_bytes" if cost is None else "seconds")  # what collectives take
    moves = {at: weigh(total_of(each)) for at, each in collectives.items()}
    most = max((moves.get(at, 0.0) + computes.get(at, 0.0) for at in {*moves, *computes}), default=0.0) or 1.0
    blocks: list[doc.Block] = []
    room = MOST_LINES
    for file, lines in sorted(report.source.items(), key=lambda item: -len(item[1])):
        with_facts = {n for at, n in (*values, *collectives, *computes) if at == file}
        numbers = [n for n in sorted(lines) if n in with_facts or lines[n].strip()][:room]
        room -= len(numbers)
        texts = (lines[n] for n in numbers if lines[n].strip())
        margin = min((len(text) - len(text.lstrip()) for text in texts), default=0)
        rows = []
        for n in numbers:
            at, line_values = (file, n), values.get((file, n), [])
            text = lines[n][margin:].rstrip() or _UNREADABLE
            moved, computed = collectives.get(at, []), computes.get(at, 0.0)
            frame = next((each.source for each in (*line_values, *moved) if each.source is not None), works.get(at))
            parts = _share(computed, most, moved, cost)
            compute = (doc.words("compute"), doc.words(format_seconds(computed), strong=True, tip=_COMPUTE))
            products = (doc.paragraph(*compute),) if computed else ()
            below = [*_values(line_values, frame), *products, *_moves(moved, frame)]
            amount = computed + moves.get(at, 0.0)
            line = doc.code(text, quiet=frame is None, tip=text.strip())
            selects = None if frame is None else ("line", frame.short)
            hot, form = amount > _HOT * most, format_bytes if cost is None else format_seconds
            text = form(amount) + " sent" * (cost is None)
            taken = doc.words(text, strong=hot, quiet=not hot, tip=_TAKEN[cost is None]) if amount else ""
            number = doc.words(str(n), quiet=True)
            rows.append(doc.row(number, doc.bar(parts), line, taken, detail=below, selects=selects))
        if rows:
            every: dict[str, Any] = {"first": MOST_LINES, "most": MOST_LINES}
            table = doc.Table(columns=_COLUMNS, rows=tuple(rows), folds="never", noun="line", **every)
            name = "cell" if "ipykernel_" in file else file.replace("\\", "/").rsplit("/", 1)[-1]
            blocks.append(doc.section(name, table))
    none = doc.paragraph("No source lines are known for this program.", quiet=True)
    if cost is not None and cost.seconds is not None and most > cost.seconds:
        blocks += doc.notes("A line's compute and communication overlap, so their sum may exceed the step.")
    return doc.Document(blocks=tuple(blocks) or (none,), mesh=report.mesh)


def _by_line(placed: Iterable[_Placed]) -> dict[tuple[str, int], list[_Placed]]:
    return grouped(((each.source.file, each.source.line), each) for each in placed if each.source is not None)


def _share(computed: float, most: float, collectives: Sequence[Collective], cost: StepCost | None) -> list[doc.Part]:
    """Return a line's bar relative to the longest line: its compute, then its communication by axes."""
    compute = f"{format_seconds(computed)} of compute in a step"
    parts = [doc.Part(share=computed / most, role="work", tip=compute)] if computed else []
    kind = "communication as partitioned" if cost is not None and cost.as_run else "communication"
    for total in sum_collectives(collectives, "axes"):
        moved = total.sent_bytes if cost is None else total.seconds
        tip = f"{total.label}: {format_bytes(total.sent_bytes)} sent by each device in a step"
        if cost is not None:
            tip = f"{format_seconds(moved)} of {kind} over {tip}"
        parts.append(doc.Part(share=moved / most, axes=total.axes, role="axes" if total.axes else "moved", tip=tip))
    return parts


def _values(values: Sequence[Value], frame: Frame | None) -> Iterator[doc.Paragraph]:
    """Yield the values that a line assigns, at most two; those of the forward pass if there are any."""
    forward = [v for v in values if not any(word in v.name_stack for word in _LATER)] or values
    labelled = {v.label: v for v in forward if v.label}
    shown = list(labelled.values())[-2:] or forward[-1:]
    others = len(values) - len(shown)
    for place, v in enumerate(shown, 1):
        tip, more = f"{v.name} {format_shape(v.shape)}", None
        name = doc.words(v.label or v.op or v.name, strong=True, tip=tip, selects=("value", v.name))
        if others and frame is not None and place == len(shown):
            every = ("values of", frame.short)
            more = doc.words(f"+{others}", quiet=True, tip="all values of this line", selects=every)
        yield doc.paragraph(name, doc.value_spec(v, asks=True), more)


def _moves(collectives: Sequence[Collective], frame: Frame | None) -> Iterator[doc.Paragraph]:
    totals = sum_collectives(collectives, "kind_axes")
    for total in totals[:_MOST_KINDS]:
        yield doc.paragraph(*_moved(total))
    others = len(totals) - _MOST_KINDS
    if others > 0 and frame is not None:
        yield doc.paragraph(doc.words(f"+{others} more kinds", selects=("collectives of", frame.short)))


def _moved(total: CollectiveTotal) -> Iterator[doc.Piece]:
    """Yield `all-gather` `model` `2.10 MB operand × 80` `4.35 ms` `fwd`."""
    each, *others = {c.operand_bytes for c in total.collectives}
    yield doc.moved(total.kinds[0], total.axes, total.collectives[0].source)
    yield doc.axes(total.axes)
    yield doc.words(
        f"{total.runs_text} runs" if others else f"{format_bytes(each)} operand × {total.runs_text}",
        tip=f"{total.bytes_text} of operands on each device in a step",
    )
    sent = f"{format_bytes(total.sent_bytes)} sent"
    yield doc.words(sent if total.untimed else format_seconds(total.seconds), strong=True, tip=f"{sent} in a step")
    one = max(total.collectives, key=lambda c: c.assumed_seconds or c.assumed_bytes)
    phases = [_PHASES.get(phase, phase) for phase in sorted({c.phase for c in total.collectives})]
    if any(phases):
        yield doc.words(", ".join(filter(None, phases)), quiet=True)
    if one.name and one.source is not None:
        yield doc.why(one.name)
