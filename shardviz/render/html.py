"""A Report in HTML: what its text says, with specs as coloured chips and the collectives as bars.

Nothing in it needs a style sheet or a script, so it survives untrusted notebooks and GitHub; every text that comes
from outside (names, tree paths, source lines) is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from shardviz.records import Cost, Diagnostic, Value
from shardviz.records.amounts import plural
from shardviz.records.report import Report
from shardviz.records.sums import sum_collectives
from shardviz.render.chips import QUIET, SANS, cell, code, mesh_html, table
from shardviz.render.collectives import bars_html, collectives_html, sorted_by_bytes
from shardviz.render.on_target import algorithms_text, alive_rows, run_rows, runs_text, stated_text
from shardviz.render.residuals import headline, residuals_html
from shardviz.render.text import (
    LEVEL_WORDS,
    MAX_LINES,
    MAX_VALUES,
    collectives_headline,
    cost_text,
    memory_text,
    values_headline,
)
from shardviz.render.values import values_html
from shardviz.render.work import memory_name, why_words, work_html

MAX_COLLECTIVES = 40


def report_html(report: Report) -> str:
    """The report as HTML that survives JupyterLab's sanitizer and GitHub.

    Args:
        report: what to show.

    Returns:
        One `<div>` with the headline, values, collectives, memory, cost and diagnostics, as far as it has them.
    """
    mesh = report.mesh
    axes = mesh_html(mesh)
    words = LEVEL_WORDS.get(report.level, "")
    level = f' <span style="{QUIET};font-size:13px">({escape(words)})</span>' if words else ""
    head = f"<b>{escape(report.program)}</b> · {escape(report.level)}{level}"
    where = f"{f'mesh {axes}, ' if axes else ''}{plural(mesh.size, 'device')} · target {code(report.target)}"
    parts = [f'<div style="font-size:15px;padding:4px 0">{head}</div><div style="padding:2px 0 6px 0">{where}</div>']
    parts += [diagnostics_html(report.diagnostics)] if report.diagnostics else []
    parts += [
        _values("Arguments", report.arguments, report),
        _values("Outputs", report.outputs, report),
        _collectives(report),
    ]
    if report.residuals:
        title = f"Residuals: {headline(report.residuals)}"
        parts.append(_folded(title, residuals_html(report.residuals, mesh)))
    if report.memory is not None:
        parts.append(_line("Memory on each device", "; ".join(memory_text(report.memory))))
        parts += _on_target(report)
    if report.cost is not None:
        parts.append(_line("Cost on each device", cost_text(report)))
        parts += _work(report, report.cost)
    if report.intermediates:
        parts.append(
            _folded(
                f"Intermediates: {plural(len(report.intermediates), 'value')}",
                values_html(report.intermediates[:MAX_VALUES], mesh) + _more(len(report.intermediates), MAX_VALUES),
            )
        )
    return f'<div style="{SANS};overflow-x:auto">{"".join(parts)}</div>'


def _line(title: str, text: str) -> str:
    return f'<div style="padding:4px 0"><b>{escape(title)}</b>: {escape(text)}</div>'


def _work(report: Report, cost: Cost) -> list[str]:
    """Where it is from, and why `cost_analysis()` says less."""
    memory = memory_name(report.target)
    why = f'<div style="{QUIET};padding:0 8px">{escape(text)}</div>' if (text := why_words(cost, memory)) else ""
    content = work_html(cost, memory, report.line)
    return [why, _folded("Cost by phase, line and module", content)] if content else [why]


def _quiet(text: str) -> str:
    return f'<div style="{QUIET};padding:0 8px">{escape(text)}</div>'


def _more(count: int, shown: int) -> str:
    return f'<div style="{QUIET}">… and {count - shown:,} more</div>' if count > shown else ""


def _folded(title: str, content: str, *, opened: bool = False) -> str:
    return (
        f'<details{" open" if opened else ""} style="padding:4px 0"><summary><b>{escape(title)}</b></summary>'
        f"{content}</details>"
    )


def _values(title: str, values: Sequence[Value], report: Report) -> str:
    if not values:
        return _line(title, "none")
    content = values_html(values[:MAX_VALUES], report.mesh) + _more(len(values), MAX_VALUES)
    return _folded(f"{title}: {values_headline(values)}", content, opened=len(values) <= 16)


def _collectives(report: Report) -> str:
    if not report.collectives:
        return _line("Collectives", "not looked for at this level" if report.level == "notation" else "none")
    lines = sum_collectives(report.collectives, "source")
    ordered = sorted_by_bytes(report.collectives)
    return (
        f'<div style="padding:4px 0"><b>Collectives</b>: {escape(collectives_headline(report))}</div>'
        + bars_html(sum_collectives(report.collectives, "axes"), report.mesh, caption="by mesh axes")
        + bars_html(lines[:MAX_LINES], report.mesh, line=report.line, caption="by source line")
        + _more(len(lines), MAX_LINES)
        + _folded(
            f"All {plural(len(ordered), 'collective')}, the most bytes first",
            collectives_html(ordered[:MAX_COLLECTIVES], report.mesh, line=report.line)
            + _more(len(ordered), MAX_COLLECTIVES),
        )
    )


def _on_target(report: Report) -> list[str]:
    """What is alive at the peak, and how the target runs the collectives; nothing for simulated devices."""
    parts = []
    if report.memory is not None and (text := stated_text(report.memory)):
        parts.append(_quiet(f"memory_analysis() says: {text}"))
    if rows := alive_rows(report):
        head, *body = rows
        cells = [[cell(escape(text), right=i == 0) for i, text in enumerate(row)] for row in body]
        parts.append(_folded("Heaviest values when the most is alive", table((f">{head[0]}", *head[1:]), cells)))
    if text := runs_text(report):
        head, *body = run_rows(report.target_collectives)
        cells = [[cell(escape(part), right=i == 2) for i, part in enumerate(row)] for row in body[:MAX_COLLECTIVES]]
        heads = (f">{name}" if i == 2 else name for i, name in enumerate(head))
        parts.append(
            _folded(f"As the target runs them: {text}", table(heads, cells) + _more(len(body), MAX_COLLECTIVES))
        )
        if words := algorithms_text(report.target_collectives):
            parts.append(_quiet(f"algorithms: {words}"))
    return parts


_MARKS = {"error": "✗", "warning": "⚠", "info": "ℹ"}


def diagnostics_html(diagnostics: Sequence[Diagnostic]) -> str:
    """Diagnostics as a table: severity in words and a mark, rule, message with its numbers, where."""
    rows = []
    for d in diagnostics:
        where = " ".join(filter(None, (d.value, d.source.short if d.source else "")))
        mark = f"{_MARKS.get(d.severity, '')} {escape(d.severity)}"
        rows.append(
            (cell(mark, wrap=True), cell(escape(d.rule)), cell(escape(d.message), wrap=True), cell(escape(where)))
        )
    return table(("severity", "rule", "what", "where"), rows, caption=plural(len(diagnostics), "diagnostic"))
