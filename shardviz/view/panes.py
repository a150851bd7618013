"""The Documents of the explorer's panes, from the state and the user's queries.

They use the builders of reports and costs. A pane adds filters and bars by four keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from shardviz.costs.step_cost import StepCost, memory_parts
from shardviz.errors import ShardvizError
from shardviz.explorer.snapshot import Snapshot
from shardviz.judge.report import Report
from shardviz.layouts import layout
from shardviz.plan.bind import RulesTable
from shardviz.records import Alive, Value
from shardviz.records.amounts import format_bytes, format_seconds, format_shape, plural
from shardviz.records.report import host_bytes, values_of
from shardviz.records.stages import Stage, StageLine
from shardviz.records.sums import total_of
from shardviz.records.values import on_device, unused_bytes
from shardviz.view import document as doc
from shardviz.view import step_cost
from shardviz.view.collectives import collectives_table, runs_section, sums_table, weight
from shardviz.view.picture import LETTERS
from shardviz.view.placement import CHOOSE, without_machine
from shardviz.view.program import of_rules
from shardviz.view.report import CPU_CAUTION, CPU_DETAIL, alive_table, differences_section, findings_table
from shardviz.view.rosetta import sharding_of
from shardviz.view.shard_map import held_words, shard_map
from shardviz.view.show import Shown
from shardviz.view.values import beside_words, found_value, roles, total_bytes, values_table

PAGE = 200
"""Maximum number of rows of a long table in a pane."""

_MOST_ALIVE = 30
_MOST_SUMS = 8

Query = Mapping[str, Any]


def found_values(report: Report, changed: Collection[str], query: Query) -> list[tuple[str, Value]]:
    """Return the role and the value of each match of a query.

    `text` must match in name, label, operation, source or spec; `changed` selects values resharded by the last change;
    `line` a source line; `sort` is `program` or `bytes`.
    """
    asked, line = str(query.get("text") or "").lower().split(), query.get("line") or ""

    def searched(role: str, v: Value) -> str:
        places = v.spec.brackets() if v.spec is not None else "", v.source.short if v.source else ""
        return " ".join((role, v.name, v.label, v.op, v.dtype, *places)).lower()

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
    """Return `showing 200 of 1,200 found in 4,000`, `12 of 4,000`, or `4,000 values`."""
    if matches > PAGE:
        return f"showing {PAGE} of {matches:,}" + (f" found in {total:,}" if matches < total else "")
    return f"{matches:,} of {total:,}" if matches < total else f"{total:,} values"


def values_pane(report: Report, matches: Sequence[tuple[str, Value]], changed: Collection[str]) -> doc.Document:
    """Return the matching values in one table."""
    shown = matches[:PAGE]
    roles = {value.name: role for role, value in shown}
    table = values_table([v for _, v in shown], roles=roles, changed=changed, most=PAGE, name="values-table")
    return doc.Document(blocks=(table,), mesh=report.mesh)


def collectives_pane(report: Report, cost: StepCost | None, query: Query) -> doc.Document:
    """Return the collectives, longest first (without a cost: most bytes), and their sums as bars.

    With `line` in the query, only those of a source line. With a cost, the report must be its `StepCost.partitioned`.
    """
    if not report.collectives:
        predicted = "Shardy's propagation needs no collective; waiting for XLA's partitioner."
        none = predicted if report.level == "propagated" else "No communication between devices."
        return doc.Document(blocks=(doc.paragraph(none, quiet=True, name="collectives-none"),), mesh=report.mesh)
    whole, line = total_of(report.collectives), query.get("line") or ""
    moved = doc.pieces(
        doc.words("predicted by Shardy:", strong=True, tone="warn") if report.level == "propagated" else None,
        doc.words(whole.bytes_text, strong=True),
        f"enter {plural(whole.operations, 'collective')} on each device in a step ({whole.runs_text} runs)",
    )
    if cost is not None:
        untimed = f", without {whole.untimed:,} of unknown time" if whole.untimed else ""
        took = doc.words(format_seconds(whole.seconds), strong=True), "on", doc.code(cost.machine.text)
        moved = doc.pieces(moved, ":", *took, f"without overlap{untimed}")
    sums = [
        sums_table(report.collectives, key, lines=report.source, timed=cost is not None, brief=True, most=_MOST_SUMS)
        for key in ("axes", "phase", "kind", "source")
    ]
    shown = [c for c in report.collectives if not line or (c.source is not None and c.source.short == line)]
    ordered, name = sorted(shown, key=weight), "collectives-table"
    table = collectives_table(ordered, lines=report.source, compact=True, asks=True, most=PAGE, name=name)
    timed = {c.name: c for c in cost.collectives} if cost is not None and cost.as_run else {}
    return doc.Document.of(
        doc.paragraph(moved, ".", name="collectives-moved"),
        doc.SideBySide(blocks=tuple(sums)),
        table,
        runs_section(report, timed, name="collectives-runs"),
        mesh=report.mesh,
    )


def memory_pane(now: Snapshot) -> doc.Document:
    """Return a device's required and available memory, and the largest values."""
    report, needs = now.report, None if now.cost is None else now.cost.needs
    plan = report.memory
    parts = memory_parts(report) if needs is None else needs.parts
    complete = plan is not None if needs is None else needs.complete
    fits, usable = (None, None) if needs is None else (needs.fits, needs.usable)
    verdict, needed = ("", unpriced_words(now)) if needs is None else step_cost.fit_words(needs)
    on = () if now.machine.target == "cpu" else (doc.words("on each device of"), doc.code(now.machine.target))
    choose = (doc.words("·", quiet=True), CHOOSE) if now.machine.target == "cpu" else ()
    fits_words = doc.words(verdict or "not known whether it fits", strong=True, tone=step_cost.FIT_TONES[fits])
    blocks: list[doc.Block] = [doc.paragraph(fits_words, on, f": {needed}", choose, name="memory-verdict")]
    if needs is None and plan is not None and plan.target == "cpu":
        blocks.append(doc.paragraph("Planned by the CPU compiler, for simulated devices:", quiet=True))
    blocks.append(step_cost.parts_table(parts, usable, whole="in all" if complete else "together"))
    if needs is not None and usable is not None:
        blocks.append(doc.paragraph(needs.source, label="usable", quiet=True))
    blocks += doc.notes(*beside_words(host_bytes(report), unused_bytes(report.arguments)))
    if plan is not None:
        peak = f"peak of live memory: {format_bytes(plan.peak)}"
        peak += f"; in on-chip memory: {format_bytes(plan.on_chip)}" if plan.on_chip else ""
        blocks.append(doc.paragraph(peak, quiet=True, name="memory-alive-at-once"))
        blocks += [doc.paragraph(CPU_CAUTION, CPU_DETAIL, quiet=True)] * (plan.target == "cpu")
    alive = _alive(report)[:_MOST_ALIVE]
    if alive:
        so_far = "Known so far, the largest first; not all of it is live at once"
        title = "Live at the peak, the largest first" if plan is not None and plan.alive_at_peak else so_far
        blocks.append(doc.section(title, alive_table(report, alive, bars=True, name="memory-alive")))
    return doc.Document(blocks=tuple(blocks), mesh=report.mesh)


def unpriced_words(now: Snapshot) -> str:
    """Return a device's required memory without a machine, and why it is unknown whether it fits."""
    text = ("" if now.report.memory else "about ") + format_bytes(sum(memory_parts(now.report).values()))
    if now.machine.trouble:
        return f"{text}; {now.machine.trouble}"
    if now.report.memory is None:
        return f"{text}: no compiler has planned the memory yet, and no machine is chosen"
    size, unknown = total_bytes(on_device(now.report.arguments))
    return f"{'at least ' if unknown else ''}{format_bytes(size)} of arguments; no machine is chosen"


def _alive(report: Report) -> Sequence[Alive]:
    """Return the values live at the peak of the compiler's plan; without a plan, arguments and residuals, largest
    first."""
    if report.memory is not None:
        return report.memory.alive_at_peak
    rows_of = [(v, "argument", v.name) for v in on_device(report.arguments)]
    residuals = [r.value for r in report.residuals if r.takes_memory]
    rows_of += [(v, "kept for the backward pass", v.label or v.name) for v in residuals]
    alive = (
        Alive(
            name=name,
            bytes=round(v.bytes_per_device or 0),
            kind=kind,
            dtype=v.dtype,
            shape=v.shard_shape or (),
            source=v.source,
        )
        for v, kind, name in rows_of
    )
    return sorted(alive, key=lambda a: (-a.bytes, a.name))


def cost_pane(cost: StepCost | None, trouble: str = "") -> doc.Document:
    """Return everything about a cost; without a cost, the reason."""
    if cost is None:
        return without_machine(trouble, "speed", "cost-why")
    blocks: list[doc.Block] = [step_cost.step_section(cost)]
    if cost.collectives:
        blocks.append(dataclasses.replace(step_cost.longest_section(cost), fold=None))
    blocks += [dataclasses.replace(work, fold=None) for work in step_cost.work_sections(cost)]
    blocks.append(step_cost.sources_section(cost))
    lead = (doc.code(cost.machine.text), doc.words(step_cost.level_words(cost), quiet=True))
    return doc.Document(lead=(lead,), blocks=tuple(blocks), mesh=cost.mesh)


_RULES = (
    "A rule gives a spec to every argument that its pattern matches. The first rule that matches an argument wins; an "
    "edit by hand wins over all rules. In a pattern, * stands for any characters."
)
_MOST_NAMES = 60


def rules_pane(rules: RulesTable) -> doc.Document:
    """Return what each rule matches and wins, and the arrays without a rule."""
    return dataclasses.replace(of_rules(rules, _MOST_NAMES), lead=(doc.words(_RULES, quiet=True),))


def shard_map_pane(
    report: Report,
    name: str,
    remark: str = "",
    *,
    cost: StepCost | None = None,
    room: tuple[float, float] | None = None,
    device: int = -1,
) -> doc.Document:
    """Return the shard map of a value, and the part of a picked device.

    Args:
        remark: which value this is, or why there is none.
        cost: the step on the machine whose hosts are outlined.
        room: width and height in pixels; None for as much as needed.
        device: a position in the mesh; below 0 for none.
    """
    value = found_value(report, name)[1]
    if value is None:
        missing = f"{name} does not occur at this level; select another value."
        none = missing if name else remark or "Select a value to see which device holds which slice."
        return doc.Document(blocks=(doc.paragraph(none, quiet=True, name="nothing-selected"),))
    name_piece, shape = doc.code(value.label or value.name, strong=True), doc.shape(value.shape, dtype=value.dtype)
    title = (name_piece, *doc.value_spec(value, asks=True), shape)
    link = doc.words("in every notation", tip="this sharding in every notation", selects=("tab", "rosetta"))
    ask = doc.why(value.name, tip="why it is sharded so, for every mesh axis (key w)")
    lead = (ask, doc.words("·", quiet=True), link, *([doc.words(f"· {remark}", quiet=True)] if remark else ()))
    try:
        sharded = layout(value.shape, sharding_of(value, report.mesh), report.mesh)
    except ShardvizError:  # a manual or unknown sharding of which the report knows the text only
        texts = "; ".join(f"{kind}: {text}" for kind, text in value.sharding.items())
        unknown = doc.paragraph(texts or "its sharding is not known at this level", quiet=True)
        return doc.Document(title=title, lead=(lead,), blocks=(unknown,), mesh=report.mesh)
    if cost is not None:
        sharded = dataclasses.replace(sharded, process_ids=np.asarray(cost.placement.processes()))
    shard = f"→ {format_shape(sharded.shard_shape)} · {format_bytes(value.bytes_per_device)} per device"
    drawn = shard_map(Shown(sharded, name, value.dtype), room and room[0])
    if room is not None:
        drawn = drawn.within((room[0], 2 * room[1]), LETTERS)
    blocks = (doc.Figure(of=drawn, name="cells"), *held_words(sharded, device))
    return doc.Document(title=(*title, doc.words(shard, quiet=True)), lead=(lead,), blocks=blocks, mesh=report.mesh)


def problems_pane(report: Report, cost: StepCost | None = None) -> doc.Document:
    """Return the report's findings, gravest first, with the cost's seconds if there is one."""
    findings, differences = report.findings_on(cost), report.level_differences
    none = doc.paragraph("Nothing to report at this level.", quiet=True, name="problems-none")
    return doc.Document.of(
        findings_table(findings, {v.name for v in values_of(report)}) if findings else none,
        differences_section(differences) if differences else None,
        mesh=report.mesh,
    )


MOST_LINES = 160
"""Maximum number of lines of a stage's text on the page."""
_LONGEST_LINE = 420
_STAGE_COLUMNS = (doc.Column("", right=True), doc.Column("program", wrap=True), doc.Column("line"))


def stages_shown(
    stages: Sequence[Stage], query: Mapping[str, Any], *, waits: str = "", trouble: str = ""
) -> tuple[doc.Document, dict[str, Any]]:
    """Return the Document of one stage text, and fields for the page's controls.

    The query has `stage` (a name), `find` (words of a line), `line` (`model.py:20`) and `at` (the first row). The
    fields are the text's `name`, all `names` with titles and languages, the number of rows `found`, and the first row
    `at`.
    """
    blocks: list[doc.Block] = [doc.paragraph(doc.words(trouble, tone="warn"), name="stages-trouble")] if trouble else []
    blocks += [doc.paragraph(waits, quiet=True, name="stages-busy")] if waits else []
    if not stages:
        facts = {"name": "", "names": (), "at": 0, "found": 0}
        return doc.Document(blocks=tuple(blocks) or doc.notes("There is no program text yet.")), facts
    stage = next((s for s in stages if s.name == query.get("stage")), stages[-1])
    matching = [(place, line) for place, line in enumerate(stage.lines, 1) if _matches(line, query)]
    at = max(0, min(int(query.get("at") or 0), (max(0, len(matching) - 1) // MOST_LINES) * MOST_LINES))
    rows = tuple(_row(*each) for each in matching[at : at + MOST_LINES])
    if not rows:
        blocks.append(doc.paragraph("No line matches.", quiet=True, name="stages-none"))
    else:
        look: dict[str, Any] = {"first": 24, "most": MOST_LINES, "noun": "line", "folds": "never", "name": "stage"}
        blocks.insert(0, doc.Table(columns=_STAGE_COLUMNS, rows=rows, **look))
    title = (doc.words(stage.title, strong=True), doc.words(stage.about, quiet=True))
    names = tuple((s.name, s.title, s.kind) for s in stages)
    facts = {"name": stage.name, "names": names, "at": at, "found": len(matching)}
    return doc.Document(title=title, blocks=tuple(blocks)), facts


def _matches(line: StageLine, query: Mapping[str, Any]) -> bool:
    """Return whether a line comes from the requested source line and has all words."""
    asked, at = str(query.get("find") or "").lower().split(), query.get("line") or ""
    return (not at or line.at == at) and all(word in f"{line.text} {line.at}".lower() for word in asked)


def _row(place: int, line: StageLine) -> doc.Row:
    at, text = line.at, line.text if len(line.text) <= _LONGEST_LINE else f"{line.text[: _LONGEST_LINE - 1]}…"
    where = doc.Piece(text=at, kind="line", value="", quiet=True, selects=("line", at)) if at else doc.words("")
    tip = line.text.strip()[:1200] if text != line.text else ""
    return doc.row(doc.words(f"{place:,}", quiet=True), doc.code(text, tip=tip), where)
