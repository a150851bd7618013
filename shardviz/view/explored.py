"""A whole explorer: the heading above its cards, a text summary, a still for saved notebooks, and a page of all panes.

They use the builders of the panes, so that all say the same. The summary is equal on every run, for tests, diffs,
terminals and screen readers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from shardviz.errors import ShardvizError
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.snapshot import Snapshot
from shardviz.explorer.texts import Codes
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.report import values_of
from shardviz.view import document as doc
from shardviz.view import panes
from shardviz.view.cards import deck_document
from shardviz.view.collectives import sums_table
from shardviz.view.most import costs_documents
from shardviz.view.placement import machine_figure, placement_document
from shardviz.view.report import CPU_CAUTION, LEVEL_WORDS, fit_text
from shardviz.view.source import source_pane
from shardviz.view.step_cost import headline, memory_words
from shardviz.view.values import values_headline, values_section, values_table
from shardviz.view.verdict import verdict_document


def headline_pane(now: Snapshot) -> doc.Document:
    """Return the program, its mesh and machine, and the number of values that the last edit changed."""
    report, changed = now.report, len(now.changed)
    texts = [str(report.mesh.shown), plural(report.mesh.size, "device")][not report.mesh.names :]
    texts += [now.machine.target] if now.machine.target != "cpu" else []
    where = [piece for text in texts for piece in (doc.words("·", quiet=True), doc.words(text, quiet=True))][1:]
    count = f"{changed:,} of {len(values_of(report)):,} values"
    link = doc.words(count, tip="show these values", selects=("changed", ""))
    blocks = (doc.paragraph(link, label="last edit changed", quiet=True, name="kpi-changed"),) if changed else ()
    title = doc.words(report.program, strong=True), *where
    return doc.Document(title=title, lead=doc.folded_axes(report.mesh), blocks=blocks, mesh=report.mesh)


@doc.document.register
def summary(state: ExplorerState) -> doc.Document:
    """Return the still, the step, the memory and the last edit's error, without measured times, so that runs can be
    compared."""
    now = state.now
    shown, cost, plan = _brief(now), now.cost, now.report.memory
    target = now.machine.target
    if cost is not None:
        facts = {f"step on {target}": headline(cost), f"memory on {target}": memory_words(cost.needs)}
    else:
        facts = {f"no cost on {target}": now.machine.trouble, "memory": panes.unpriced_words(now)}
        if plan is not None:
            caution = f"{format_bytes(plan.set_aside)}. {CPU_CAUTION}" if plan.target == "cpu" else fit_text(plan)
            facts[f"{plan.target} compiler's plan"] = caution
    trouble = {"failed": now.progress.failure, "refused": now.error}
    facts |= {label: fact["message"].splitlines()[0] for label, fact in trouble.items() if fact}
    lines = (doc.paragraph(text, label=label) for label, text in facts.items() if text)
    return dataclasses.replace(shown, blocks=(*shown.blocks[:-1], *lines))


_MOST_LINES, _MOST_VALUES, _MOST_FOUND = 6, 24, 8


def still(now: Snapshot) -> doc.Document:
    """Return the verdict, the plan and its main numbers, short enough for a notebook: about 30 kB as HTML."""
    shown = _brief(now)
    verdict = () if now.cost is None else verdict_document(now.deck.now.results).blocks[-1:]
    plans = (_filled(each) if isinstance(each, doc.Table) else each for each in shown.blocks[:1])
    return dataclasses.replace(shown, blocks=(*verdict, *plans, *shown.blocks[1:]))


def _filled(table: doc.Table) -> doc.Table:
    """Return the table with the columns that have a head and words in some row: a notebook's cell is narrow."""
    cells = [[row.cells[n] for row in table.rows] for n in range(len(table.columns))]
    kept = [n for n, column in enumerate(table.columns) if column.title and any(map(doc.plain, cells[n]))]
    rows = tuple(dataclasses.replace(row, cells=tuple(row.cells[n] for n in kept)) for row in table.rows)
    return dataclasses.replace(table, columns=tuple(table.columns[n] for n in kept), rows=rows)


def _brief(now: Snapshot) -> doc.Document:
    report = now.report
    blocks: list[doc.Block] = [*_plans(now)]
    if report.collectives:
        moves, timed = (report.collectives, False) if now.cost is None else (now.cost.partitioned, True)
        look = {"lines": report.source, "timed": timed, "brief": True, "most": _MOST_LINES}
        blocks += (sums_table(moves, by, **look) for by in ("axes", "source"))
    arguments, lead = values_table(report.arguments, most=_MOST_VALUES), values_headline(report.arguments)
    blocks.append(doc.section("Arguments", arguments, lead=lead, fold="closed"))
    grave = [each for each in report.findings if each.severity != "note"]
    if grave:
        problems = (doc.paragraph(f"• {each.text}") for each in grave[:_MOST_FOUND])
        blocks.append(doc.section("Findings", *problems, lead=str(len(grave))))
    blocks += doc.notes("The explorer's last view, without its kernel. Run the cell again to continue.")
    return _whole(now, blocks)


def _whole(now: Snapshot, blocks: Iterable[doc.Block]) -> doc.Document:
    """Return a document with the program as its title, and the level and machine of the numbers."""
    level, target = now.report.level, now.machine.target
    meaning = f"({LEVEL_WORDS[level]})" if level in LEVEL_WORDS else ""
    machine = None if target == "cpu" else f", target {target}"
    lead = doc.pieces(doc.term(level, strong=True), doc.words(meaning, quiet=True), machine)
    return doc.Document.of(blocks, title=headline_pane(now).title, lead=(lead,), mesh=now.report.mesh)


def _part(title: str, pane: doc.Document, fold: Any, lead: Any = ()) -> doc.Section:
    lines = (doc.paragraph(*(line if isinstance(line, tuple) else (line,))) for line in pane.lead)
    return doc.section(title, *lines, *pane.blocks, lead=lead, fold=fold)


def _plans(now: Snapshot) -> Iterator[doc.Block]:
    deck = now.deck
    yield from deck_document(deck, now.sharing).blocks
    if len(deck.cards) > 1:
        yield doc.paragraph("Everything below is about the plan", doc.words(deck.now.name, strong=True), ".")


def _coded(code: Codes) -> Iterator[doc.Block]:
    if code.why:
        yield doc.paragraph(f"There is no code for JAX alone: {code.why}")
    for text, lines in code.parts:
        yield doc.paragraph(doc.words(text[0].upper() + text[1:], strong=True))
        yield doc.Figure(of=doc.Listing(lines))


def explored(now: Snapshot, codes: Mapping[str, Codes] = MappingProxyType({})) -> doc.Document:
    """Return all panes of an explorer; `codes` has the code of each card's plan by name."""
    report, cost = now.report, now.cost
    timed = report if cost is None else dataclasses.replace(report, collectives=cost.partitioned)
    chosen = panes.shard_map_pane(report, now.selection.name, now.selection.remark, cost=cost)
    blocks: list[doc.Block] = [
        verdict_document(now.deck.now.results).blocks[-1],
        *_plans(now),
        _part("What costs you most", costs_documents(now.deck, now.tried_fixes)[0], "open"),
        _part("Findings", panes.problems_pane(report, cost), "open"),
        _part("Source", source_pane(timed, cost), "open"),
        values_section("Arguments", report.arguments),
        values_section("Outputs", report.outputs),
        _part("Collectives", panes.collectives_pane(timed, cost, {}), "closed"),
        _part("Memory", panes.memory_pane(now), "closed"),
        _part("Cost", panes.cost_pane(cost, now.machine.trouble), "closed"),
    ]
    if cost is not None:
        try:
            walked = doc.document(cost.timeline)
        except ShardvizError as error:
            walked = doc.Document.of(doc.paragraph(str(error)))
        blocks.append(_part("Timeline", walked, "closed"))
        machine = placement_document(cost.placement)
        drawn = dataclasses.replace(machine, blocks=(doc.Figure(of=machine_figure(cost)), *machine.blocks))
        blocks.append(_part("Machine", drawn, "closed"))
    if chosen.blocks:
        blocks.append(_part("Shard map", chosen, "closed", chosen.title))
    values = panes.found_values(report, now.changed, {})
    blocks.append(_part("Values", panes.values_pane(report, values, now.changed), "closed"))
    for name, code in codes.items():
        of = f"The plan {name!r} as Python" if len(codes) > 1 else "The plan as Python"
        blocks.append(doc.section(of, *_coded(code), fold="closed"))
    return _whole(now, blocks)
