"""The Document of a Report: values, collectives, residuals, memory, cost and findings, as far as known.

Findings come first, gravest first: a sentence, its place, its cause, and changes to try. Work is shown by phase, source
line and module: `forward 4.91 PFLOP, rematerialised 3.61 PFLOP, backward 9.81 PFLOP, update 35.3 GFLOP`. The update is
the optimizer's part. Loops are multiplied by their trips. XLA's `cost_analysis()` reports less; the document says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from shardviz.costs.step_cost import StepCost
from shardviz.judge.report import Report
from shardviz.records import Alive, Cost, Finding, Findings, Frame, LevelDifference, Memory, Suggestion
from shardviz.records.amounts import format_bytes, format_flops, format_times, plural
from shardviz.records.options import options_text
from shardviz.records.paths import segments
from shardviz.records.report import Constrained, host_bytes, values_of
from shardviz.records.sums import WorkTotal
from shardviz.records.values import SourceText, unused_bytes
from shardviz.view import document as doc
from shardviz.view.collectives import collectives_section, runs_section
from shardviz.view.values import LONGEST_NAME, beside_words, residuals_section, values_section, values_table

LEVEL_WORDS = {
    "notation": "from the specs alone",
    "propagated": "Shardy's propagation in the kernel; nothing was compiled",
    "partitioned": "XLA's SPMD partitioner, before the target's own passes",
    "compiled": "the target's optimised program",
}
_MOST_ALIVE, _KEPT = 8, 2000

CPU_CAUTION = "A TPU's or GPU's compiler makes another plan."
CPU_DETAIL = "The CPU compiler keeps some bf16 temporaries in f32, which doubles their bytes."
"""Remark on the memory plan of the CPU's compiler."""


@doc.document.register
def report_document(report: Report) -> doc.Document:
    """Return everything about a report; equal reports give equal documents without measured times."""
    return full_report(report, None)


def full_report(report: Report, cost: StepCost | None) -> doc.Document:
    """Return everything about a report, its collectives with a cost's seconds, or its own target's."""
    level = LEVEL_WORDS.get(report.level, "")
    lead = (
        *((doc.words("mesh"), doc.mesh_axes(report.mesh)) if report.mesh.names else ()),
        doc.words((", " if report.mesh.names else "") + f"{plural(report.mesh.size, 'device')}, target"),
        doc.code(report.target),
    )
    if report.plan.options:
        lead += (doc.words(", compiler options"), doc.code(options_text(report.plan.options)))
    planned = None if report.memory is None else float(report.memory.temporaries)
    inside, many = values_table(report.intermediates, kept=_KEPT), plural(len(report.intermediates), "value")
    meaning = doc.words(f"({level})" if level else "", quiet=True)
    return doc.Document.of(
        findings_section(report.findings),
        values_section("Arguments", report.arguments),
        values_section("Outputs", report.outputs),
        constraints_section(report.plan.constraints) if report.plan.constraints else None,
        collectives_section(report, cost),
        residuals_section(report.residuals, planned) if report.residuals else None,
        None if report.memory is None else memory_section(report, report.memory),
        None if report.cost is None else cost_section(report, report.cost),
        differences_section(report.level_differences) if report.level_differences else None,
        doc.section("Intermediates", inside, lead=many, fold="closed", brief=True) if report.intermediates else None,
        title=(doc.words(report.program, strong=True), doc.term(report.level), meaning),
        lead=(lead, *doc.folded_axes(report.mesh)),
        mesh=report.mesh,
    )


def constraints_section(constraints: Sequence[Constrained]) -> doc.Section:
    """Return the plan's constraints on values inside the function."""

    def name(c: Constrained) -> doc.Inline:
        if c.times == 1:
            return doc.code(doc.shorten(c.name, LONGEST_NAME))
        return doc.code(c.name), doc.words(f"x {c.times}", quiet=True)

    rows = doc.Rows(constraints, noun="value").table(
        ("value", name),
        ("spec", lambda c: doc.code(c.spec_text)),
        ("line", lambda c: doc.line(c.source)),
        ("shape", lambda c: " or ".join(map(str, map(list, c.shapes)))),
    )
    lead = f"{plural(len(constraints), 'value')} that the function itself does not constrain"
    return doc.section("Constraints of the plan", rows, lead=lead)


def differences_section(differences: Sequence[LevelDifference]) -> doc.Section:
    """Return the differences between Shardy's prediction and XLA's partitioned program."""
    rows = doc.Rows(differences, noun="difference").table(
        ("", lambda d: d.what),
        (doc.wrapped("Shardy predicted"), lambda d: d.propagated),
        (doc.wrapped("the partitioner made"), lambda d: d.partitioned),
    )
    explained = (
        "Neither is wrong: Shardy decides the shardings, and XLA how to reshard between them; it may use another "
        "collective, or combine several."
    )
    lead = plural(len(differences), "difference")
    return doc.section("Where the levels differ", *doc.notes(explained), rows, lead=lead, fold="closed", brief=True)


_MARKS = {"error": "✗", "warning": "⚠", "note": "ℹ"}
TONES = {"error": "bad", "warning": "warn"}
_MOST_TRIED = 3


@doc.document.register
def findings_document(findings: Findings) -> doc.Document:
    if not findings:
        return doc.Document(title=doc.words("No findings at this level.", quiet=True))
    title = (doc.words("Findings", strong=True), doc.words(counted(findings), quiet=True))
    return doc.Document(title=title, blocks=(findings_table(findings),))


@doc.document.register
def finding_document(finding: Finding) -> doc.Document:
    """Return a finding with its suggestions."""
    title = (_severity(finding), doc.words(finding.text, strong=True))
    lead = ((doc.code(finding.rule, quiet=True), *_where(finding, ())),)
    return doc.Document(title=title, lead=lead, blocks=_detail(finding, most=len(finding.suggestions)))


def findings_section(findings: Sequence[Finding]) -> doc.Section | None:
    """Return the findings under a heading with their number; None if there are none."""
    return doc.section("Findings", findings_table(findings), lead=counted(findings)) if findings else None


def counted(findings: Iterable[Finding]) -> str:
    """Return `1 error, 2 warnings, 6 notes`."""
    many = Counter(finding.severity for finding in findings)
    return ", ".join(plural(many[severity], severity) for severity in _MARKS if many[severity])


def findings_table(findings: Sequence[Finding], values: Collection[str] = ()) -> doc.Table:
    """Return a row per finding: severity, place and sentence; below it the cause and suggestions. `values` are
    selectable names."""
    return doc.Rows(findings, noun="finding", name="findings").table(
        ("severity", _severity),
        ("where", lambda finding: _where(finding, values)),
        (doc.wrapped("what"), lambda finding: " ".join(finding.text.split())),
        detail=_detail,
    )


def _severity(finding: Finding) -> doc.Piece:
    mark = _MARKS.get(finding.severity, "")
    return doc.words(f"{mark} {finding.severity}".strip(), tone=TONES.get(finding.severity, ""), tip=finding.rule)


def _where(finding: Finding, values: Collection[str]) -> tuple[doc.Piece, ...]:
    value = finding.value
    place = [doc.words(value, selects=("value", value) if value in values else None)] if value else []
    place += [doc.axes(finding.axes)] if finding.axes else []
    place += [doc.line(finding.source)] if finding.source else []
    return tuple(place) or (doc.words(""),)


def _detail(finding: Finding, most: int = _MOST_TRIED) -> tuple[doc.Paragraph, ...]:
    texts = {"why": " ".join(finding.why.split())}
    for label, by_hand in (("to try", False), ("by hand, not tried", True)):
        tries = _tries([fix for fix in finding.suggestions if (fix.kind == "code") == by_hand])
        also = f"; and {plural(len(tries) - most, 'other')}" if len(tries) > most else ""
        texts[label] = "; ".join(tries[:most]) + also
    return tuple(doc.paragraph(text, label=label) for label, text in texts.items() if text)


def _tries(fixes: Sequence[Suggestion]) -> list[str]:
    """Return the suggestions in words; donations of one argument's arrays are merged, because JAX donates whole
    arguments."""
    of = Counter(segments(fix.target)[0] for fix in fixes if fix.kind == "donate")
    tries = dict.fromkeys(
        f"donate {head} ({plural(of[head], 'array')} of it)"
        if fix.kind == "donate" and of[head := segments(fix.target)[0]] > 1
        else fix.words
        for fix in fixes
    )
    return list(tries)


def fit_text(memory: Memory) -> str:
    """Return `it fits: 60.3 GB of 103 GB, 42.5 GB to spare`; empty if the machine's memory is unknown."""
    if memory.hbm is None or memory.headroom is None:
        return ""
    of = f"{format_bytes(memory.takes)} of {format_bytes(memory.hbm)}"
    if memory.fits is False:
        return f"it DOES NOT FIT: {of}, {format_bytes(-memory.headroom)} too much"
    return f"it fits: {of}, {format_bytes(memory.headroom)} to spare"


def memory_section(report: Report, memory: Memory) -> doc.Section:
    """Return the memory plan, the values alive at the peak, and how the target runs collectives."""
    fits = f"; {text}" if (text := fit_text(memory)) else ""
    parts = (
        f"arguments {format_bytes(memory.arguments)}, outputs {format_bytes(memory.outputs)}, of which "
        f"{format_bytes(memory.aliased)} aliased, temporaries {format_bytes(memory.temporaries)}; peak of "
        f"live memory {format_bytes(memory.peak)}"
    )
    alive = alive_table(report, memory.alive_at_peak[:_MOST_ALIVE])
    is_shown = memory.hbm is not None and memory.alive_at_peak
    return doc.section(
        "Memory on each device",
        doc.paragraph(parts),
        doc.notes(*beside_words(host_bytes(report), unused_bytes(report.arguments))),
        doc.section("Largest values at the peak", alive, fold="closed") if is_shown else None,
        runs_section(report, fold="closed", brief=True),
        lead=f"{format_bytes(memory.set_aside)} allocated ({memory.target} compiler's plan){fits}",
    )


def alive_table(report: Report, alive: Sequence[Alive], *, bars: bool = False, name: str = "") -> doc.Table:
    """Return the values that take memory, in the given order, optionally with bars."""
    names, most = {v.name for v in values_of(report)}, max((a.bytes for a in alive), default=0) or 1

    def named(a: Alive) -> doc.Piece:
        tip = a.name_stack or (a.name if len(a.name) > 48 else "")
        return doc.words(doc.shorten(a.name, 48), tip=tip, selects=("value", a.name) if a.name in names else None)

    return doc.Rows(alive, most=48, name=name).table(
        (doc.right("bytes"), lambda a: doc.nbytes(a.bytes)),
        ("", lambda a: doc.bar([doc.Part(share=a.bytes / most, role="work")])) if bars else None,
        ("kind", lambda a: a.kind),
        ("name", named),
        ("on one device", lambda a: doc.shape(a.shape, dtype=a.dtype) if a.dtype else ""),
        ("line", lambda a: doc.line(a.source, report.source) if a.source else ""),
    )


PHASES: tuple[str, ...] = ("forward", "rematerialised", "backward", "update")
_SAME = 1.005
_MOST_WORK = 12


def cost_section(report: Report, cost: Cost) -> doc.Section:
    """Return FLOPs and memory traffic by phase, line and module."""
    memory = "HBM" if report.target.startswith(("tpu", "gpu")) else "main memory"
    facts = {"FLOPs": phase_words(cost), f"{memory} traffic": traffic_words(cost)}
    more = work_blocks(cost, memory, report.source)
    folded = doc.section("By phase, line and module", *more, fold="closed") if more else None
    labelled = (doc.paragraph(text, label=label) for label, text in facts.items() if text)
    return doc.section("Cost on each device", labelled, folded, lead=_cost_text(cost, memory))


def _cost_text(cost: Cost, memory: str) -> str:
    text = f"{cost.at_least}{format_flops(cost.dot_flops)} of matrix products in a step"
    if cost.other_flops:
        text += f" and {format_flops(cost.other_flops)} of other operations"
    if cost.hbm_bytes is not None:
        text += f"; {format_bytes(cost.hbm_bytes)} read from and written to {memory}"
    if cost.opaque:
        text += f"; FLOPs of {', '.join(cost.opaque)} not known"
    loops = cost.unknown_loops
    return text + (f"; {plural(loops, 'loop')} with unknown trip count, counted once" if loops else "")


def _by_phase(cost: Cost) -> list[WorkTotal]:
    return sorted(cost.by("phase"), key=lambda t: PHASES.index(str(t.key)) if t.key in PHASES else len(PHASES))


def phase_words(cost: Cost) -> str:
    """Return `forward 4.91 PFLOP, backward 9.81 PFLOP`; empty if unknown."""
    return ", ".join(f"{t.key} {t.at_least}{format_flops(t.flops)}" for t in _by_phase(cost) if t.flops or t.at_least)


def traffic_words(cost: Cost) -> str:
    """Return `forward 6.28 TB, backward 10.6 TB`; empty if unknown."""
    return ", ".join(f"{t.key} {format_bytes(t.hbm_bytes)}" for t in _by_phase(cost) if t.hbm_bytes)


def _analysis_words(cost: Cost) -> str:
    """Return what XLA's `cost_analysis()` reports and why it is less; empty if unknown."""
    if not cost.once_flops:
        return ""
    text = f"cost_analysis() counts each loop's body once: {format_flops(cost.once_flops)}"
    times = cost.flops / cost.once_flops
    text += f"; with all iterations it is {format_times(times)} as much" if times > _SAME else "; no loop adds to it"
    if cost.hbm_bytes and cost.once_hbm_bytes and cost.hbm_bytes > _SAME * cost.once_hbm_bytes:
        more = cost.hbm_bytes / cost.once_hbm_bytes
        text += f", and the memory traffic {format_times(more)} {format_bytes(cost.once_hbm_bytes)}"
    return text


def work_blocks(cost: Cost, memory: str, source: SourceText) -> tuple[doc.Block, ...]:
    """Return why `cost_analysis()` differs, and a table each by phase, line and module."""
    lines, modules = list(cost.by("source")), [t for t in cost.by("module") if t.key]
    sums = {"phase": _by_phase(cost), "line": lines, "module": modules if len(modules) > 1 else []}
    counted = any(t.flops or t.at_least for t in lines)
    tables = (_work_table(what, totals, cost, memory, source) for what, totals in sums.items() if counted and totals)
    return (*doc.notes(_analysis_words(cost)), *tables)


def _work_table(what: str, totals: Sequence[WorkTotal], cost: Cost, memory: str, source: SourceText) -> doc.Table:
    most = max((t.flops for t in totals), default=0.0) or 1.0

    def name(t: WorkTotal) -> doc.Piece:
        if what != "line":
            return doc.words(str(t.key), strong=True)
        return doc.line(t.key if isinstance(t.key, Frame) else None, source)

    return doc.Rows(totals, caption=f"By {what}", first=6, most=_MOST_WORK, noun=what).table(
        (doc.right("FLOPs"), lambda t: f"{t.at_least}{format_flops(t.flops)}"),
        (doc.right("share"), lambda t: f"{t.flops / cost.flops:.1%}" if cost.flops else ""),
        (doc.right(memory), lambda t: doc.nbytes(t.hbm_bytes or 0.0)) if cost.hbm_bytes is not None else None,
        ("", lambda t: doc.bar([doc.Part(share=t.flops / most, role="work")])),
        (what, name),
    )
