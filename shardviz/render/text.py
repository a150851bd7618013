"""A Report in plain text: what terminals, diffs, tests and screen readers read.

The same report always gives the same text; no timings stand in it. `report_text(report)` opens with

    train_step  partitioned (XLA's SPMD partitioner, before the target's own passes)
    mesh data=8,model=8, 64 devices  target cpu
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from shardviz.paint.columns import clip, columns
from shardviz.records import Memory, Value
from shardviz.records.amounts import format_bytes, format_flops, plural
from shardviz.records.report import Report
from shardviz.records.sums import sum_collectives, total_of
from shardviz.render.chips import axes_words
from shardviz.render.on_target import code_text, fit_text, on_target_lines
from shardviz.render.residuals import residuals_text
from shardviz.render.values import total_bytes, values_text
from shardviz.render.work import memory_name, work_lines

MAX_VALUES, MAX_LINES = 48, 10

LEVEL_WORDS = {
    "notation": "from the specs alone",
    "propagated": "Shardy's propagation in the kernel; nothing was compiled",
    "partitioned": "XLA's SPMD partitioner, before the target's own passes",
    "compiled": "the target's optimised program",
}


def report_text(report: Report) -> str:
    """The report in plain text, about 100 columns wide, deterministic.

    Args:
        report: what to print.

    Returns:
        Headline, arguments, outputs, collectives by kind and axes, the lines that move most, memory, cost and
        diagnostics, as far as the report has them; joined by newlines, with none at the end.
    """
    level = f"{report.level} ({LEVEL_WORDS[report.level]})" if report.level in LEVEL_WORDS else report.level
    lines = [
        f"{report.program}  {level}",
        f"mesh {report.mesh}, {plural(report.mesh.size, 'device')}  target {report.target}",
    ]
    lines += _values("Arguments", report.arguments) + _values("Outputs", report.outputs)
    if report.intermediates:
        lines += ["", f"Intermediates: {plural(len(report.intermediates), 'value')}"]
    lines += _collectives(report)
    if report.residuals:
        lines += ["", *residuals_text(report.residuals)]
    if report.memory is not None:
        head, rest = memory_text(report.memory)
        lines += ["", f"Memory on each device: {head}"]
        lines += textwrap.wrap(rest, 100, initial_indent="  ", subsequent_indent="    ")
        lines += on_target_lines(report)
    if report.cost is not None:
        lines += ["", *textwrap.wrap(f"Cost on each device: {cost_text(report)}", 100, subsequent_indent="  ")]
        lines += work_lines(report.cost, memory_name(report.target), report.line)
    if report.diagnostics:
        lines += ["", f"Diagnostics: {len(report.diagnostics)}"]
        for d in report.diagnostics:
            where = " ".join(filter(None, (d.value, d.source.short if d.source else "")))
            lines.append(f"  {d.severity} {d.rule}{': ' + where if where else ''}")
            lines.append(f"    {' '.join(d.message.split())}")
    return "\n".join(line.rstrip() for line in lines)


def values_headline(values: Sequence[Value]) -> str:
    """`10 values, 3.37 GB per device`, and how many have bytes that are not known."""
    known, unknown = total_bytes(values)
    text = f"{plural(len(values), 'value')}, {format_bytes(known)} per device"
    return text + (f" and {plural(unknown, 'value')} whose bytes are not known" if unknown else "")


def _values(title: str, values: Sequence[Value]) -> list[str]:
    if not values:
        return ["", f"{title}: none"]
    lines = ["", f"{title}: {values_headline(values)}"]
    lines += ["  " + line for line in values_text(values[:MAX_VALUES]).splitlines()]
    rest = values[MAX_VALUES:]
    return lines + ([f"  … and {values_headline(rest)}"] if rest else [])


def collectives_headline(report: Report) -> str:
    """How many collectives, how often they run, what they move; counts that are not known are said."""
    return total_of(report.collectives).sentence


def _collectives(report: Report) -> list[str]:
    if not report.collectives:
        none = "not looked for at this level" if report.level == "notation" else "none"
        return ["", f"Collectives: {none}"]
    lines = ["", *textwrap.wrap(f"Collectives: {collectives_headline(report)}", 100, subsequent_indent="  ")]
    rows = [("kind", "axes", "operations", "runs", "operand bytes")]
    for t in sum_collectives(report.collectives, "kind_axes"):
        rows.append((t.kinds[0], axes_words(t.axes), f"{t.operations:,}", t.runs_text, t.bytes_text))
    lines += ["  " + line for line in columns(rows, right=(2, 3, 4))]
    totals = sum_collectives(report.collectives, "source")
    lines += ["", "Lines that move most, operand bytes per device in a step:"]
    rows = [
        (t.label, t.bytes_text, ", ".join(t.kinds), clip(report.line(t.key) if t.key else "", 50))  # pyright: ignore
        for t in totals[:MAX_LINES]
    ]
    lines += ["  " + line for line in columns(rows, right=(1,))]
    if len(totals) > MAX_LINES:
        lines.append(f"  … and {plural(len(totals) - MAX_LINES, 'more line')}")
    return lines


def memory_text(memory: Memory) -> tuple[str, str]:
    """The memory plan: all that it sets aside, with the compiler that made it, and what that consists of."""
    parts = (
        f"arguments {format_bytes(memory.arguments)}, outputs {format_bytes(memory.outputs)}, of which "
        f"{format_bytes(memory.aliased)} aliased, temporaries {format_bytes(memory.temporaries)}; alive at once, "
        f"at most {format_bytes(memory.peak)}; {code_text(memory)}"
    )
    fits = f"; {text}" if (text := fit_text(memory)) else ""
    return f"{format_bytes(memory.set_aside)} set aside ({memory.target} compiler's plan){fits}", parts


def cost_text(report: Report) -> str:
    """FLOPs and memory traffic in a step, loops multiplied in, and loops that could not be counted."""
    cost = report.cost
    if cost is None:
        return "not known"
    text = f"{format_flops(cost.dot_flops)} of matrix products in a step"
    if cost.other_flops:
        text += f" and {format_flops(cost.other_flops)} of all else"
    if cost.hbm_bytes is not None:
        text += f"; {format_bytes(cost.hbm_bytes)} read from and written to {memory_name(report.target)}"
    loops = cost.unknown_loops
    return text + (f"; {plural(loops, 'loop')} with unknown trip count, counted once" if loops else "")
