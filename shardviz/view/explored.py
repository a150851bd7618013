"""What is left of an explorer where nothing is live: all of it as a page to be kept, and in short for a saved notebook.

Both are made of what the explorer's panes are made of, so they say the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.files import Looked, SavedSession
from shardviz.explorer.snapshot import Remedies
from shardviz.explorer.texts import Codes
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
    document,
    notes,
    paragraph,
    words,
)
from shardviz.view.headline import headline_pane
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
from shardviz.view.values import values_headline, values_section, values_table

_MOST_LINES, _MOST_VALUES, _MOST_FOUND = 6, 24, 8


def still(state: Looked) -> Document:
    """The plan and what is known of it, short enough to stand in a notebook: about 30 kB as HTML."""
    report, head = state.report, headline_pane(state)
    blocks: list[Block] = [*_plans(state)]
    if report.collectives:
        more = {"line_text": report.line, "timed": False, "brief": True}
        blocks.append(sums_table(report.collectives, "axes", most=_MOST_LINES, **more))
        blocks.append(sums_table(report.collectives, "source", most=_MOST_LINES, **more))
    table = values_table(report.arguments, most=_MOST_VALUES)
    lead = (words(values_headline(report.arguments)),)
    blocks.append(Section(title="Arguments", lead=lead, blocks=(table,), fold="closed"))
    grave = [each for each in report.findings if each.severity != "note"]
    found = tuple(paragraph(f"• {each.text}") for each in grave[:_MOST_FOUND])
    blocks += [Section(title="Problems", lead=(words(str(len(grave))),), blocks=found)] if found else []
    blocks += notes("An explorer without its kernel: what it showed last. Run the cell again to go on.")
    return Document(title=head.title, lead=(_level(state),), blocks=tuple(blocks), mesh=report.mesh)


def _level(state: Looked) -> tuple[Piece, ...]:
    """Which of the levels the numbers are of, and for which machine."""
    level = state.level
    told = f"({LEVEL_WORDS[level]})" if level in LEVEL_WORDS else ""
    machine = (words(f", target {state.target}"),) if state.target != "cpu" else ()
    return (words(level, strong=True), words(told, quiet=True), *machine)


def _part(title: str, pane: Document, fold: Any, lead: Any = ()) -> Section:
    """A pane as a section of the page."""
    said = tuple(Paragraph(pieces=line if isinstance(line, tuple) else (line,)) for line in pane.lead)
    return Section(title=title, lead=lead, blocks=(*said, *pane.blocks), fold=fold)


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
    found = most_document(state.deck, remedies)
    return _part("What costs you most", dataclasses.replace(found, blocks=tuple(map(_told, found.blocks))), "open")


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
    """All that the panes of an explorer say, one below the other.

    Args:
        state: the explorer's.
        codes: the name of each card's plan → the code of it.
    """
    report, cost = state.report, state.cost
    timed = report if cost is None else dataclasses.replace(report, collectives=cost.partitioned)
    chosen = shard_map_pane(report, state.selected, state.remark)
    blocks: list[Block] = [
        *_plans(state),
        _most(state),
        _part("Problems", problems_pane(report, cost), "open"),
        _part("Source", source_pane(timed, cost), "open"),
        values_section("Arguments", report.arguments),
        values_section("Outputs", report.outputs),
        _part("Collectives", collectives_pane(timed, cost, {}), "closed"),
        _part("Memory", memory_pane(state), "closed"),
        _part("Cost", cost_pane(cost, state.cost_error), "closed"),
    ]
    if cost is not None:
        machine = placement_document(cost.placement)
        drawn = dataclasses.replace(machine, blocks=(Figure(of=machine_figure(cost)), *machine.blocks))
        blocks.append(_part("Machine", drawn, "closed"))
    if chosen.blocks:
        blocks.append(_part("Shard map", chosen, "closed", chosen.title))
    found = found_values(report, state.changed, {})
    blocks.append(_part("Values", values_pane(report, found, state.changed), "closed"))
    for name, code in codes.items():
        of = f"The plan {name!r} as Python" if len(codes) > 1 else "The plan as Python"
        blocks.append(Section(title=of, blocks=tuple(_coded(code)), fold="closed"))
    title = headline_pane(state).title
    return Document(title=title, lead=(_level(state),), blocks=_settled(tuple(blocks)), mesh=report.mesh)


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
