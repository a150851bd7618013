"""A Report: values, collectives, residuals, memory, cost and findings, as far as it has them."""

from __future__ import annotations

from collections.abc import Sequence

from shardviz.judge.report import Report
from shardviz.records import Alive, LevelDifference, Memory
from shardviz.records.amounts import format_bytes, format_flops, plural
from shardviz.records.report import Constrained
from shardviz.view.collectives import collectives_section, runs_section
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Part,
    Section,
    Table,
    bar,
    code,
    document,
    line,
    mesh_axes,
    nbytes,
    notes,
    paragraph,
    row,
    shape,
    shorten,
    words,
)
from shardviz.view.findings import findings_section
from shardviz.view.values import LONGEST_NAME, beside_words, residuals_section, values_section, values_table
from shardviz.view.work import memory_name, phase_words, traffic_words, work_blocks

LEVEL_WORDS = {
    "notation": "from the specs alone",
    "propagated": "Shardy's propagation in the kernel; nothing was compiled",
    "partitioned": "XLA's SPMD partitioner, before the target's own passes",
    "compiled": "the target's optimised program",
}
_MOST_ALIVE, _KEPT = 8, 2000

CPU_CAUTION = "XLA's CPU compiler plans this; a TPU's or GPU's plan is another."
CPU_DETAIL = "The CPU's keeps bf16 temporaries in f32 in places, where they take twice the bytes."
"""What to know of a memory plan of the CPU's compiler."""


@document.register
def report_document(report: Report) -> Document:
    """All that a report says. The same report always gives the same document; no timings stand in it."""
    level = LEVEL_WORDS.get(report.level, "")
    lead = (
        *((words("mesh"), mesh_axes(report.mesh)) if report.mesh.names else ()),
        words((", " if report.mesh.names else "") + f"{plural(report.mesh.size, 'device')}, target"),
        code(report.target),
    )
    blocks: list[Block] = [findings_section(report.findings)] if report.findings else []
    blocks += [values_section("Arguments", report.arguments), values_section("Outputs", report.outputs)]
    blocks += [constraints_section(report.plan.constraints)] if report.plan.constraints else []
    blocks.append(collectives_section(report))
    blocks += [residuals_section(report.residuals)] if report.residuals else []
    blocks += [memory_section(report)] if report.memory is not None else []
    blocks += [cost_section(report)] if report.cost is not None else []
    blocks += [differences_section(report.level_differences)] if report.level_differences else []
    if report.intermediates:
        many = (words(plural(len(report.intermediates), "value")),)
        tables = (values_table(report.intermediates, kept=_KEPT),)
        blocks.append(Section(title="Intermediates", lead=many, blocks=tables, fold="closed", brief=True))
    title = (words(report.program, strong=True), words(report.level), words(f"({level})" if level else "", quiet=True))
    return Document(title=title, lead=(lead,), blocks=tuple(blocks), mesh=report.mesh)


def constraints_section(constraints: Sequence[Constrained]) -> Section:
    """The values inside the function that the plan constrains, which the function itself does not."""
    heads = (Column("value"), Column("spec"), Column("line"), Column("shape"))
    rows = tuple(
        row(
            code(shorten(c.name, LONGEST_NAME)) if c.times == 1 else (code(c.name), words(f"x {c.times}", quiet=True)),
            code(c.spec_text),
            line(c.source),
            words(" or ".join(map(str, map(list, c.shapes)))),
        )
        for c in constraints
    )
    said = (words(f"{plural(len(constraints), 'value')} that the function itself leaves open"),)
    table = Table(columns=heads, rows=rows, first=len(rows), most=len(rows), noun="value")
    return Section(title="Constraints of the plan", lead=said, blocks=(table,))


def differences_section(differences: Sequence[LevelDifference]) -> Section:
    """Where Shardy's prediction and what XLA's partitioner made are not the same."""
    rows = tuple(row(words(d.what), words(d.propagated), words(d.partitioned)) for d in differences)
    heads = (Column(""), Column("Shardy predicted", wrap=True), Column("the partitioner made", wrap=True))
    said = (
        "Neither is wrong: Shardy decides how values are cut, XLA how to get from one cut to the next, and it may take "
        "another collective or put several into one."
    )
    return Section(
        title="Where the levels differ",
        lead=(words(plural(len(differences), "difference")),),
        blocks=(*notes(said), Table(columns=heads, rows=rows, first=len(rows), most=len(rows), noun="difference")),
        fold="closed",
        brief=True,
    )


# Memory.


def fit_text(memory: Memory) -> str:
    """`it fits: 60.3 GB of 103 GB, 42.5 GB to spare`; empty where the machine's memory is not known."""
    if memory.hbm is None or memory.headroom is None:
        return ""
    of = f"{format_bytes(memory.takes)} of {format_bytes(memory.hbm)}"
    if memory.fits is False:
        return f"it DOES NOT FIT: {of}, {format_bytes(-memory.headroom)} too much"
    return f"it fits: {of}, {format_bytes(memory.headroom)} to spare"


def code_text(memory: Memory) -> str:
    """`machine code 1.67 MB`, or why its size is not known."""
    if memory.code is not None:
        return f"machine code {format_bytes(memory.code)}"
    if memory.stated:
        return "machine code of a size that the compiler does not say"
    return "machine code not waited for (finish=True)"


def stated_text(memory: Memory) -> str:
    """What `memory_analysis()` says of a finished compile, and why its peak is another; empty where nobody asked."""
    found = {name.removesuffix("_bytes").removesuffix("_in"): n for name, n in memory.stated.items() if n}
    if not found:
        return ""
    said = ", ".join(f"{name.removesuffix('_size').replace('_', ' ')} {format_bytes(n)}" for name, n in found.items())
    peak = memory.stated.get("peak_memory_in_bytes", memory.peak)
    if memory.target == "cpu" and peak < memory.peak:
        said += " (a CPU's peak memory leaves temporaries out)"
    elif peak > memory.peak and memory.target.startswith("tpu"):
        said += " (peak memory with what is alive at once in the chip's own memory, in place of HBM's)"
    return said


def memory_section(report: Report) -> Section:
    """The memory plan, what `memory_analysis()` says, what is alive at the peak, how the target runs collectives."""
    memory = report.memory
    assert memory is not None
    fits = f"; {text}" if (text := fit_text(memory)) else ""
    parts = (
        f"arguments {format_bytes(memory.arguments)}, outputs {format_bytes(memory.outputs)}, of which "
        f"{format_bytes(memory.aliased)} aliased, temporaries {format_bytes(memory.temporaries)}; alive at once, "
        f"at most {format_bytes(memory.peak)}; {code_text(memory)}"
    )
    stated = stated_text(memory)
    blocks: list[Block] = [paragraph(parts), *notes(f"memory_analysis() says: {stated}" if stated else "")]
    blocks += notes(*beside_words(report.host_bytes, report.unused_bytes))
    if memory.hbm is not None and memory.alive_at_peak:
        blocks.append(alive_section(report, memory))
    return Section(
        title="Memory on each device",
        lead=(words(f"{format_bytes(memory.set_aside)} set aside ({memory.target} compiler's plan){fits}"),),
        blocks=(*blocks, *runs_section(report)),
    )


def alive_section(report: Report, memory: Memory) -> Section:
    """The heaviest values when the most is alive."""
    table = alive_table(report, memory.alive_at_peak[:_MOST_ALIVE])
    return Section(title="Heaviest values when the most is alive", blocks=(table,), fold="closed")


def alive_table(report: Report, alive: Sequence[Alive], *, bars: bool = False, name: str = "") -> Table:
    """What takes memory, in the order given.

    Args:
        report: whose values may be selected.
        alive: what takes memory.
        bars: a column of bars more.
        name: as `Table.name`.
    """
    heads = (Column("bytes", right=True), Column("kind"), Column("name"), Column("on one device"), Column("line"))
    names, most = {v.name for v in report.values}, max((a.bytes for a in alive), default=0) or 1
    rows = tuple(
        row(
            nbytes(a.bytes),
            *([bar([Part(share=a.bytes / most, role="work")])] if bars else []),
            words(a.kind),
            words(
                shorten(a.name, 48),
                tip=a.name_stack or (a.name if len(a.name) > 48 else ""),
                selects=("value", a.name) if a.name in names else None,
            ),
            shape(a.shape, dtype=a.dtype) if a.dtype else words(""),
            line(a.source, report.line(a.source)) if a.source else words(""),
        )
        for a in alive
    )
    return Table(columns=(heads[0], Column(""), *heads[1:]) if bars else heads, rows=rows, name=name)


# What it computes.


def cost_text(report: Report) -> str:
    """FLOPs and memory traffic in a step, loops multiplied in, and loops that could not be counted."""
    cost = report.cost
    if cost is None:
        return "not known"
    text = f"{cost.at_least}{format_flops(cost.dot_flops)} of matrix products in a step"
    if cost.other_flops:
        text += f" and {format_flops(cost.other_flops)} of all else"
    if cost.hbm_bytes is not None:
        text += f"; {format_bytes(cost.hbm_bytes)} read from and written to {memory_name(report.target)}"
    if cost.opaque:
        text += f"; FLOPs of {', '.join(cost.opaque)} not known"
    loops = cost.unknown_loops
    return text + (f"; {plural(loops, 'loop')} with unknown trip count, counted once" if loops else "")


def cost_section(report: Report) -> Section:
    """FLOPs and memory traffic, by phase, line and module."""
    cost = report.cost
    assert cost is not None
    memory = memory_name(report.target)
    phases, traffic = phase_words(cost), traffic_words(cost)
    said = [paragraph(phases, label="FLOPs")] if phases else []
    said += [paragraph(traffic, label=f"{memory} traffic")] if traffic else []
    more = work_blocks(cost, memory, report.line)
    folded = (Section(title="By phase, line and module", blocks=more, fold="closed"),) if more else ()
    return Section(title="Cost on each device", lead=(words(cost_text(report)),), blocks=(*said, *folded))
