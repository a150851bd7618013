"""Collectives as a table and as bars: what moves, over which mesh axes, how much, how often, from which line.

>>> from shardviz.records import Collective
>>> gradient = Collective(kind="all-reduce", axes=("data",), dtype="float32", shape=(4,), operand_bytes=16,
...                       result_bytes=16, count=None)
>>> print(collectives_text([gradient]))
kind        axes  moves        operand bytes            count             total  source          phase
all-reduce  data  float32 [4]           16 B  count not known  count not known  no source line  update
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from shardviz.notation import axis_name
from shardviz.paint.columns import clip, columns
from shardviz.paint.theme import MUTED, AxisColour, axis_colours
from shardviz.records import Collective, Frame
from shardviz.records.amounts import COUNT_NOT_KNOWN, format_bytes, format_count, format_seconds, format_shape
from shardviz.records.sums import NO_SOURCE, CollectiveTotal
from shardviz.render.chips import QUIET, axes_html, axes_words, cell, code, table

LineText = Callable[[Frame], str]
"""From a source frame to the text of its line: `report.line`."""


def total_text(collective: Collective) -> str:
    """Operand bytes over the whole step: `34.4 GB`, `at most 1.05 MB` in a branch, or `count not known`."""
    if collective.total_bytes is None:
        return COUNT_NOT_KNOWN
    return ("at most " if collective.conditional else "") + format_bytes(collective.total_bytes)


def sorted_by_bytes(collectives: Sequence[Collective]) -> list[Collective]:
    """The most bytes over the step first; a count that is not known is taken as one run."""
    return sorted(collectives, key=lambda c: (-c.assumed_bytes, c.kind, c.name))


def collectives_text(collectives: Sequence[Collective]) -> str:
    """The collectives as aligned lines of plain text, in the order given.

    Returns:
        A head and one line a collective; bytes are operand bytes on one device, the total is over the whole step.
    """
    rows = [("kind", "axes", "moves", "operand bytes", "count", "total", "source", "phase")]
    rows += [
        (
            c.kind,
            axes_words(c.axes),
            f"{c.dtype} {format_shape(c.shape)}",
            format_bytes(c.operand_bytes),
            format_count(c.count),
            total_text(c),
            c.source.short if c.source else NO_SOURCE,
            _phase(c),
        )
        for c in collectives
    ]
    return "\n".join(columns(rows, right=(3, 4, 5)))


def _phase(collective: Collective) -> str:
    return collective.phase + (", user's own" if collective.origin == "user" else "")


def collectives_html(
    collectives: Sequence[Collective], mesh: Any, *, line: LineText | None = None, caption: str = ""
) -> str:
    """The collectives as an HTML table, in the order given.

    Args:
        collectives: of a report.
        mesh: the mesh, in any form that `DeviceMesh.of` reads; it sets the axes' colours.
        line: from a source frame to its text, `report.line`; without it only file and line number stand there.
        caption: plain text above the table.

    Returns:
        A `<table>`; bytes are operand bytes on one device, the total is over the whole step. The time on the target has
        a column where any is known. Every text from outside is escaped.
    """
    timed = any(c.seconds is not None for c in collectives)
    timing = [">time"] if timed else []
    heads = [
        "kind",
        "axes",
        "type",
        "result shape",
        ">operand bytes",
        ">count",
        ">total per device",
        *timing,
        "source",
        "phase",
    ]
    rows = []
    for c in collectives:
        row = [
            cell(escape(c.kind), title=c.name),
            cell(axes_html(c.axes, mesh), title=c.groups),
            cell(escape(c.dtype), quiet=True),
            cell(format_shape(c.shape)),
            cell(format_bytes(c.operand_bytes), right=True),
            cell(("" if c.count is None else "× ") + format_count(c.count), right=True),
            cell(f"<b>{total_text(c)}</b>", right=True),
        ]
        if timed:
            row.append(cell(format_seconds(c.total_seconds), right=True, title=c.formula or ""))
        row += [cell(source_html(c.source, line), title=c.name_stack), cell(escape(_phase(c)), wrap=True, quiet=True)]
        rows.append(row)
    return table(heads, rows, caption=caption)


def source_html(frame: Frame | None, line: LineText | None = None) -> str:
    """A source frame as `model.py:20` and, where it is known, the line's text."""
    if frame is None:
        return f'<span style="{QUIET}">{NO_SOURCE}</span>'
    text = line(frame) if line else ""
    return f'<span style="{QUIET}">{escape(frame.short)}</span>' + (f" {code(clip(text, 72))}" if text else "")


def bars_html(totals: Sequence[CollectiveTotal], mesh: Any, *, line: LineText | None = None, caption: str = "") -> str:
    """A bar chart of summed collectives that reads without any style: block characters, and the numbers beside them.

    Args:
        totals: as `sum_collectives` gives them.
        mesh: the mesh, in any form that `DeviceMesh.of` reads; it sets the axes' colours.
        line: from a source frame to its text, `report.line`.
        caption: plain text above the chart.

    Returns:
        A `<table>`: what, a bar, operand bytes on one device over the step, runs in a step, kinds.
    """
    most = max((t.bytes for t in totals), default=0)
    colours, rows = axis_colours(mesh), []
    for t in totals:
        if t.label == NO_SOURCE or isinstance(t.key, Frame):
            name = source_html(t.key if isinstance(t.key, Frame) else None, line)
        elif t.label == axes_words(t.axes):
            name = axes_html(t.axes, mesh)
        else:
            name = escape(t.label)
        rows.append(
            (
                cell(name),
                cell(_bar(t, most, colours)),
                cell(f"<b>{t.bytes_text}</b>", right=True),
                cell(t.runs_text, right=True),
                cell(escape(", ".join(t.kinds)), quiet=True),
            )
        )
    return table(("", "", ">operand bytes per device and step", ">runs", "kinds"), rows, caption=caption)


def _bar(total: CollectiveTotal, most: float, colours: dict[str, AxisColour], width: int = 24) -> str:
    """Blocks in the colours of the axes, one stretch for each combination of axes."""
    stretches, begin = [], 0
    for place, part in enumerate(total.parts):
        axes, nbytes = part.axes, part.bytes
        known = axes and axis_name(axes[0]) in colours
        colour = colours[axis_name(axes[0])].light if axes and known else MUTED
        last = place == len(total.parts) - 1
        end = round(8 * width * sum(p.bytes for p in total.parts[: place + 1]) / most) if most else 0
        end = end if last else end // 8 * 8
        full, rest = divmod(end - begin, 8)
        begin = end
        tip = "▏▎▍▌▋▊▉"[rest - 1] if rest else "" if full or not nbytes or not last else "▏"
        if full:
            stretches.append(f'<span style="color:{colour};background-color:{colour}">{"█" * full}</span>')
        if tip:
            stretches.append(f'<span style="color:{colour}">{tip}</span>')
    return f'<span style="white-space:nowrap;font-size:11px;line-height:1">{"".join(stretches)}</span>'
