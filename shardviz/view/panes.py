"""The explorer's panes: the Document of each, from what is known of the state, and from what the person asks to see.

They say what a report's and a cost's own documents say, by the same builders; a pane has more of what a person looks
through: filters, bars by four keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

from shardviz.costs.step_cost import StepCost, memory_parts
from shardviz.errors import ShardvizError
from shardviz.explorer.snapshot import Snapshot
from shardviz.judge.report import Report
from shardviz.layouts import layout
from shardviz.program.bind import RulesTable
from shardviz.records import Alive, Value
from shardviz.records.amounts import format_bytes, format_seconds, format_shape, plural
from shardviz.records.report import host_bytes, values_of
from shardviz.records.sums import total_of
from shardviz.records.values import on_device, unused_bytes
from shardviz.view.collectives import collectives_table, runs_section, sums_table
from shardviz.view.document import (
    Beside,
    Block,
    Document,
    Figure,
    code,
    notes,
    paragraph,
    pieces,
    section,
    shape,
    value_spec,
    why,
    words,
)
from shardviz.view.picture import LETTERS
from shardviz.view.placement import CHOOSE, without_machine
from shardviz.view.program import of_rules
from shardviz.view.report import (
    CPU_CAUTION,
    CPU_DETAIL,
    alive_table,
    differences_section,
    findings_table,
)
from shardviz.view.rosetta import sharding_of
from shardviz.view.shard_map import held_words, shard_map
from shardviz.view.show import Shown
from shardviz.view.step_cost import (
    FIT_TONES,
    fit_words,
    level_words,
    longest_section,
    parts_table,
    sources_section,
    step_section,
    work_sections,
)
from shardviz.view.values import beside_words, found_value, roles, total_bytes, values_table

PAGE = 200
"""Rows of a long table that a pane shows."""

_MOST_ALIVE = 30
_MOST_SUMS = 8

Query = Mapping[str, Any]


def found_values(report: Report, changed: Collection[str], query: Query) -> list[tuple[str, Value]]:
    """The role and the record of each value that has all words of the query's `text` (in its name, label, operation,
    source or spec), that the last change resharded (`changed`), of a `line`, in the order of `sort` (`program` or
    `bytes`)."""
    asked, line = str(query.get("text") or "").lower().split(), query.get("line") or ""

    def searched(role: str, v: Value) -> str:
        told = v.spec.brackets() if v.spec is not None else "", v.source.short if v.source else ""
        return " ".join((role, v.name, v.label, v.op, v.dtype, *told)).lower()

    matches = [
        (role, v)
        for role, v in roles(report)
        if (not query.get("changed") or v.name in changed)
        and (not line or (v.source is not None and v.source.short == line))
        and (not asked or all(word in searched(role, v) for word in asked))
    ]
    if query.get("sort") == "bytes":
        matches.sort(key=lambda item: -(item[1].bytes_per_device or 0))
    return matches


def found_words(matches: int, total: int) -> str:
    """`showing 200 of 1,200 found in 4,000`, `12 of 4,000`, or `4,000 values`."""
    if matches > PAGE:
        return f"showing {PAGE} of {matches:,}" + (f" found in {total:,}" if matches < total else "")
    return f"{matches:,} of {total:,}" if matches < total else f"{total:,} values"


def values_pane(report: Report, matches: Sequence[tuple[str, Value]], changed: Collection[str]) -> Document:
    """The values that were found, in one table."""
    shown = matches[:PAGE]
    roles = {value.name: role for role, value in shown}
    table = values_table([v for _, v in shown], roles=roles, changed=changed, most=PAGE, name="values-table")
    return Document(blocks=(table,), mesh=report.mesh)


def collectives_pane(report: Report, cost: StepCost | None, query: Query) -> Document:
    """The collectives, the longest first (without a cost: the most bytes), and their sums as bars; of a source line
    alone where the query has one (`line`). The report's have their seconds where there is a cost
    (`StepCost.partitioned`)."""
    if not report.collectives:
        predicted = "Shardy's propagation needs no collective; waiting for XLA's partitioner."
        none = predicted if report.level == "propagated" else "No communication between devices."
        return Document(blocks=(paragraph(none, quiet=True, name="collectives-none"),), mesh=report.mesh)
    whole, line = total_of(report.collectives), query.get("line") or ""
    moved = pieces(
        words("predicted by Shardy:", strong=True, tone="warn") if report.level == "propagated" else None,
        words(whole.bytes_text, strong=True),
        f"enter {plural(whole.operations, 'collective')} on each device in a step",
    )
    if cost is not None:
        left = f", without {whole.untimed:,} of unknown time" if whole.untimed else ""
        took = words(format_seconds(whole.seconds), strong=True), "on", code(cost.machine.text)
        moved = pieces(moved, ":", *took, f"without overlap{left}")
    sums = [
        sums_table(report.collectives, key, lines=report.source, timed=cost is not None, brief=True, most=_MOST_SUMS)
        for key in ("axes", "phase", "kind", "source")
    ]
    weigh = attrgetter("assumed_bytes" if cost is None else "assumed_seconds")
    shown = [c for c in report.collectives if not line or (c.source is not None and c.source.short == line)]
    table = collectives_table(
        sorted(shown, key=lambda c: (-weigh(c), -c.assumed_bytes, c.kind, c.name)),
        lines=report.source,
        compact=True,
        asks=True,
        most=PAGE,
        name="collectives-table",
    )
    timed = {c.name: c for c in cost.collectives} if cost is not None and cost.as_run else {}
    return Document.of(
        paragraph(moved, "; loops are counted.", name="collectives-moved"),
        Beside(blocks=tuple(sums)),
        table,
        runs_section(report, timed, name="collectives-runs"),
        mesh=report.mesh,
    )


def memory_pane(now: Snapshot) -> Document:
    """What a device must hold and what it has, and the heaviest values."""
    report, needs = now.report, None if now.cost is None else now.cost.needs
    plan = report.memory
    parts = memory_parts(report) if needs is None else needs.parts
    complete = plan is not None if needs is None else needs.complete
    fits, usable = (None, None) if needs is None else (needs.fits, needs.usable)
    verdict, how = ("", unpriced_words(now)) if needs is None else fit_words(needs)
    on = () if now.machine.target == "cpu" else (words("on each device of"), code(now.machine.target))
    choose = (words("·", quiet=True), CHOOSE) if now.machine.target == "cpu" else ()
    blocks: list[Block] = [
        paragraph(
            words(verdict or "not known whether it fits", strong=True, tone=FIT_TONES[fits]),
            *on,
            words(f": {how}"),
            *choose,
            name="memory-verdict",
        )
    ]
    if needs is None and plan is not None and plan.target == "cpu":
        blocks.append(paragraph("Planned by the CPU compiler, for simulated devices:", quiet=True))
    blocks.append(parts_table(parts, usable, whole="in all" if complete else "together"))
    if needs is not None and usable is not None:
        blocks.append(paragraph(needs.source, label="usable", quiet=True))
    blocks += notes(*beside_words(host_bytes(report), unused_bytes(report.arguments)))
    if plan is not None:
        peak = f"peak of live memory: {format_bytes(plan.peak)}"
        peak += f"; in on-chip memory: {format_bytes(plan.on_chip)}" if plan.on_chip else ""
        blocks.append(paragraph(peak, quiet=True, name="memory-alive-at-once"))
        blocks += [paragraph(CPU_CAUTION, CPU_DETAIL, quiet=True)] * (plan.target == "cpu")
    alive = _alive(report)[:_MOST_ALIVE]
    if alive:
        so_far = "Known so far, the largest first; not all of it is live at once"
        title = "Live at the peak, the largest first" if plan is not None and plan.alive_at_peak else so_far
        blocks.append(section(title, alive_table(report, alive, bars=True, name="memory-alive")))
    return Document(blocks=tuple(blocks), mesh=report.mesh)


def unpriced_words(now: Snapshot) -> str:
    """What a device must hold where no machine has a price: so much, and why it is not known whether it fits."""
    text = ("" if now.report.memory else "about ") + format_bytes(sum(memory_parts(now.report).values()))
    if now.machine.trouble:
        return f"{text}; {now.machine.trouble}"
    if now.report.memory is None:
        return f"{text}: no compiler has planned the memory yet, and no machine is chosen"
    size, unknown = total_bytes(on_device(now.report.arguments))
    return f"{'at least ' if unknown else ''}{format_bytes(size)} of arguments; no machine is chosen"


def _alive(report: Report) -> Sequence[Alive]:
    """What is live at the peak by the compiler's plan; without one, arguments and residuals, the largest first."""
    if report.memory is not None:
        return report.memory.alive_at_peak
    held = [(v, "argument", v.name) for v in on_device(report.arguments)]
    residuals = [r.value for r in report.residuals if r.takes_memory]
    held += [(v, "kept for the backward pass", v.label or v.name) for v in residuals]
    alive = (
        Alive(
            name=name,
            bytes=round(v.bytes_per_device or 0),
            kind=kind,
            dtype=v.dtype,
            shape=v.shard_shape or (),
            source=v.source,
        )
        for v, kind, name in held
    )
    return sorted(alive, key=lambda a: (-a.bytes, a.name))


def cost_pane(cost: StepCost | None, trouble: str = "") -> Document:
    """All that a cost says; where there is none, why."""
    if cost is None:
        return without_machine(trouble, "speed", "cost-why")
    blocks: list[Block] = [step_section(cost)]
    if cost.collectives:
        blocks.append(dataclasses.replace(longest_section(cost), fold=None))
    blocks += [dataclasses.replace(work, fold=None) for work in work_sections(cost)]
    blocks.append(sources_section(cost))
    lead = (code(cost.machine.text), words(level_words(cost), quiet=True))
    return Document(lead=(lead,), blocks=tuple(blocks), mesh=cost.mesh)


_RULES = (
    "A rule gives a spec to every argument that its pattern matches. The first rule that matches an argument wins; an "
    "edit by hand wins over all rules. In a pattern, * stands for any characters."
)
_MOST_NAMES = 60


def rules_pane(rules: RulesTable) -> Document:
    """What each rule matches and wins, and what no rule matches."""
    return dataclasses.replace(of_rules(rules, _MOST_NAMES), lead=(words(_RULES, quiet=True),))


def shard_map_pane(
    report: Report, name: str, remark: str = "", room: tuple[float, float] | None = None, device: int = -1
) -> Document:
    """Which device holds which slice of a value, along which axes there are copies, and what a picked device holds (its
    place in the mesh; below 0 for none). `remark`: which value this is, or why there is none. `room`: pixels for the
    picture, across and down; None for as much as it needs."""
    value = found_value(report, name)[1]
    if value is None:
        missing = f"{name} does not occur at this level; select another value."
        none = missing if name else remark or "Select a value to see which device holds which slice."
        return Document(blocks=(paragraph(none, quiet=True, name="nothing-selected"),))
    title = (
        code(value.label or value.name, strong=True),
        *value_spec(value, asks=True),
        shape(value.shape, dtype=value.dtype),
    )
    link = words("in every notation", tip="this sharding in every notation", selects=("tab", "rosetta"))
    ask = why(value.name, tip="why it is sharded so, for every mesh axis (key w)")
    lead = (ask, words("·", quiet=True), link, *([words(f"· {remark}", quiet=True)] if remark else ()))
    try:
        cut = layout(value.shape, sharding_of(value, report.mesh), report.mesh)
    except ShardvizError:  # a manual or unknown sharding of which the report knows the text only
        texts = "; ".join(f"{kind}: {text}" for kind, text in value.sharding.items())
        unknown = paragraph(texts or "its sharding is not known at this level", quiet=True)
        return Document(title=title, lead=(lead,), blocks=(unknown,), mesh=report.mesh)
    size = words(f"→ {format_shape(cut.shard_shape)} · {format_bytes(value.bytes_per_device)} per device", quiet=True)
    drawn = shard_map(Shown(cut, name, value.dtype), room and room[0])
    if room is not None:
        drawn = drawn.within((room[0], 2 * room[1]), LETTERS)
    blocks = (Figure(of=drawn, name="cells"), *held_words(cut, device))
    return Document(title=(*title, size), lead=(lead,), blocks=blocks, mesh=report.mesh)


def problems_pane(report: Report, cost: StepCost | None = None) -> Document:
    """The report's findings, the gravest first, with the cost's seconds where there is one."""
    findings, differences = report.findings_on(cost), report.level_differences
    none = paragraph("Nothing to report at this level.", quiet=True, name="problems-none")
    return Document.of(
        findings_table(findings, {v.name for v in values_of(report)}) if findings else none,
        differences_section(differences) if differences else None,
        mesh=report.mesh,
    )
