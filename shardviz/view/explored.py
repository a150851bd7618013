"""An explorer as a whole: above its cards, in brief, in a few lines of text, and what is left where nothing is live.

A page to be kept has all of it, a saved notebook a short form. Both are made of what the explorer's panes are made of,
so they say the same. The summary is the same on every run: for tests, diffs, terminals and screen readers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.files import Looked, SavedSession
from shardviz.explorer.snapshot import Remedies
from shardviz.explorer.texts import Codes
from shardviz.records import Memory
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.sums import sum_collectives, total_of
from shardviz.view.collectives import sums_table
from shardviz.view.cost_pictures import machine_figure
from shardviz.view.document import (
    Beside,
    Block,
    Document,
    Figure,
    Listing,
    Paragraph,
    Piece,
    Row,
    Section,
    Table,
    axes,
    document,
    nbytes,
    notes,
    paragraph,
    right,
    section,
    shorten,
    table,
    value_spec,
    words,
)
from shardviz.view.most import most_document
from shardviz.view.panes import (
    collectives_pane,
    cost_pane,
    found_values,
    memory_pane,
    problems_pane,
    shard_map_pane,
    values_pane,
)
from shardviz.view.placement import placement_document
from shardviz.view.report import LEVEL_WORDS
from shardviz.view.source import source_pane
from shardviz.view.step_cost import headline, memory_words
from shardviz.view.values import values_headline, values_section, values_table


def headline_pane(state: Looked) -> Document:
    """The program, its mesh and machine, and how many values the last edit has changed."""
    report, changed = state.report, len(state.changed)
    texts = [str(report.mesh), plural(report.mesh.size, "device")][not report.mesh.names :]
    texts += [state.target] if state.target != "cpu" else []
    where = [piece for text in texts for piece in (words("·", quiet=True), words(text, quiet=True))][1:]
    link = words(f"{changed:,} of {len(report.values):,} values", tip="show these values", selects=("changed", ""))
    blocks = (paragraph(link, label="last edit changed", quiet=True, name="kpi-changed"),) if changed else ()
    return Document(title=(words(report.program, strong=True), *where), blocks=blocks, mesh=report.mesh)


_MOST = 400


@document.register
def summary(state: ExplorerState) -> Document:
    """The plan and the headline numbers; no timings, so that two runs can be compared word for word."""
    report = state.report
    mesh = str(report.mesh) or "a mesh with no axes"
    arguments = table(
        report.arguments,
        ("", lambda v: shorten(v.name, 40)),
        ("", value_spec),
        (right(), lambda v: nbytes(v.bytes_per_device)),
        most=_MOST,
        noun="argument",
    )
    moved = table(
        sum_collectives(report.collectives, "axes"), ("", lambda t: axes(t.axes)), (right(), lambda t: t.bytes_text)
    )
    whole = total_of(report.collectives)
    runs = f"{plural(whole.operations, 'operation')}, {whole.runs_text} runs a step" if whole.operations else "none"
    blocks: list[Block] = [
        section("arguments", arguments, lead=values_headline(report.arguments)),
        section("collectives", *((moved,) if moved.rows else ()), lead=runs),
    ]
    facts = [] if report.memory is None else [_plan(report.memory)]
    if state.cost is not None:
        facts.append((f"step on {state.target}", headline(state.cost)))
        facts.append((f"memory on {state.target}", memory_words(state.cost.needs)))
    facts.append((f"no cost on {state.target}", state.cost_error))
    problems = sorted({d.rule for d in report.findings if d.severity != "note"})
    count = sum(d.severity != "note" for d in report.diagnostics)
    facts.append((plural(count, "problem"), ", ".join(problems)))
    if state.failure:
        facts.append((state.failure["kind"], state.failure["message"].splitlines()[0]))
    if state.error:
        facts.append(("refused", state.error["message"].splitlines()[0]))
    blocks += [paragraph(said, label=label) for label, said in facts if said]
    if len(state.deck.cards) > 1:
        blocks.append(section("plans", *document(state.deck).blocks))
    title = words(f"{report.program} on {mesh} ({plural(report.mesh.size, 'device')}), {report.level}")
    return Document(title=title, blocks=tuple(blocks), mesh=report.mesh)


def _plan(memory: Memory) -> tuple[str, str]:
    parts = (
        f"{format_bytes(memory.set_aside)} set aside (arguments {format_bytes(memory.arguments)}, temporaries "
        f"{format_bytes(memory.temporaries)}, outputs not aliased {format_bytes(memory.outputs - memory.aliased)}); "
        f"alive at once, at most: {format_bytes(memory.peak)}"
    )
    return f"memory per device, {memory.target} plan", parts


_MOST_LINES, _MOST_VALUES, _MOST_FOUND = 6, 24, 8
_SUMS = ("axes", "source")


def still(state: Looked) -> Document:
    """The plan and what is known of it, short enough to stand in a notebook: about 30 kB as HTML."""
    report = state.report
    blocks: list[Block] = [*_plans(state)]
    if report.collectives:
        sums = (sums_table(report.collectives, by, line_text=report.line, brief=True, most=_MOST_LINES) for by in _SUMS)
        blocks += sums
    arguments, lead = values_table(report.arguments, most=_MOST_VALUES), values_headline(report.arguments)
    blocks.append(section("Arguments", arguments, lead=lead, fold="closed"))
    grave = [each for each in report.findings if each.severity != "note"]
    if grave:
        problems = (paragraph(f"• {each.text}") for each in grave[:_MOST_FOUND])
        blocks.append(section("Findings", *problems, lead=str(len(grave))))
    blocks += notes("An explorer without its kernel: what it showed last. Run the cell again to go on.")
    title = headline_pane(state).title
    return Document(title=title, lead=(_level(state),), blocks=tuple(blocks), mesh=report.mesh)


def _level(state: Looked) -> tuple[Piece, ...]:
    """Which of the levels the numbers are of, and for which machine."""
    level = state.level
    meaning = f"({LEVEL_WORDS[level]})" if level in LEVEL_WORDS else ""
    machine = (words(f", target {state.target}"),) if state.target != "cpu" else ()
    return (words(level, strong=True), words(meaning, quiet=True), *machine)


def _part(title: str, pane: Document, fold: Any, lead: Any = ()) -> Section:
    """A pane as a section of the page."""
    lines = tuple(Paragraph(pieces=line if isinstance(line, tuple) else (line,)) for line in pane.lead)
    return Section(title=title, lead=lead, blocks=(*lines, *pane.blocks), fold=fold)


@document.register
def _(saved: SavedSession) -> Document:
    return explored(saved)


def _plans(state: Looked) -> Iterator[Block]:
    """The cards, and which of them all else is about."""
    deck = state.deck
    yield from document(deck).blocks
    if len(deck.cards) > 1:
        yield paragraph(words("What follows is of the plan"), words(deck.now.name, strong=True), words("."))


def _most(state: Looked) -> Section:
    """What the step waits for; what helps was tried while the explorer lived."""
    remedies = state.now.remedies if isinstance(state, ExplorerState) else Remedies()
    most = most_document(state.deck, remedies)
    return _part("What costs you most", dataclasses.replace(most, blocks=tuple(map(_told, most.blocks))), "open")


def _told(block: Block) -> Block:
    """A table without its last column where that says nothing: what would help was not tried, and is not any more."""
    if not isinstance(block, Table) or any(row.cells[-1] for row in block.rows):
        return block
    rows = tuple(dataclasses.replace(row, cells=row.cells[:-1]) for row in block.rows)
    return dataclasses.replace(block, columns=block.columns[:-1], rows=rows)


def _coded(code: Codes) -> Iterator[Block]:
    """A plan's code in each form that there is."""
    if code.why:
        yield paragraph(f"There is no code for JAX alone: {code.why}")
    for text, lines in code.parts:
        yield paragraph(words(text[0].upper() + text[1:], strong=True))
        yield Figure(of=Listing(lines))


def explored(state: Looked, codes: Mapping[str, Codes] = MappingProxyType({})) -> Document:
    """All that the panes of an explorer say, one below the other, and the code of each card's plan by its name."""
    report, cost = state.report, state.cost
    timed = report if cost is None else dataclasses.replace(report, collectives=cost.partitioned)
    chosen = shard_map_pane(report, state.selected, state.remark)
    blocks: list[Block] = [
        *_plans(state),
        _most(state),
        _part("Findings", problems_pane(report, cost), "open"),
        _part("Source", source_pane(timed, cost), "open"),
        values_section("Arguments", report.arguments),
        values_section("Outputs", report.outputs),
        _part("Collectives", collectives_pane(timed, cost, {}), "closed"),
        _part("Memory", memory_pane(state), "closed"),
        _part("Cost", cost_pane(cost, state.cost_error), "closed"),
    ]
    if cost is not None:
        blocks.append(_part("Timeline", _walked(cost), "closed"))
        machine = placement_document(cost.placement)
        drawn = dataclasses.replace(machine, blocks=(Figure(of=machine_figure(cost)), *machine.blocks))
        blocks.append(_part("Machine", drawn, "closed"))
    if chosen.blocks:
        blocks.append(_part("Shard map", chosen, "closed", chosen.title))
    values = found_values(report, state.changed, {})
    blocks.append(_part("Values", values_pane(report, values, state.changed), "closed"))
    for name, code in codes.items():
        of = f"The plan {name!r} as Python" if len(codes) > 1 else "The plan as Python"
        blocks.append(Section(title=of, blocks=tuple(_coded(code)), fold="closed"))
    title = headline_pane(state).title
    return Document(title=title, lead=(_level(state),), blocks=_settled(tuple(blocks)), mesh=report.mesh)


def _walked(cost: StepCost) -> Document:
    """The step as it would run, or why nobody knows."""
    try:
        return document(cost.timeline)
    except ShardvizError as error:
        return Document(blocks=(paragraph(str(error)),))


def _settled(part: Any) -> Any:
    """A part of a document without what only asks the kernel for something: nobody would answer."""
    if isinstance(part, tuple):
        return tuple(_settled(each) for each in part if not _asks(each))
    if isinstance(part, Row):
        part = dataclasses.replace(part, cells=tuple(() if _asks(cell) else cell for cell in part.cells))
    if not isinstance(part, Section | Beside | Table | Row | Paragraph):
        return part
    held = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return dataclasses.replace(part, **{name: _settled(own) for name, own in held.items() if isinstance(own, tuple)})


def _asks(part: Any) -> bool:
    return isinstance(part, Piece) and part.kind == "words" and bool(part.selects) and part.selects[0] == "why"
