"""The open card against the one that it is compared with: all of it, a place's numbers, or the links."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shardviz.costs.step_cost import StepCost
from shardviz.explorer.cards import Deck, equal_level
from shardviz.judge.comparison import Comparison, compare
from shardviz.notation import Axis
from shardviz.records.amounts import format_seconds
from shardviz.records.sums import CollectiveTotal
from shardviz.view.cards import signed
from shardviz.view.comparison import amounts_table, comparison_document
from shardviz.view.document import Column, Document, Inline, Row, Section, Table, axes, paragraph, row, words


def compared(deck: Deck) -> Comparison | None:
    """The comparison at the highest level that both cards have reached; None where there is nothing to compare."""
    now, other = deck.now, deck.other
    level = "" if now.id == other.id else equal_level(now.known, other.known)
    if not level:
        return None
    before, after = other.known.reports[level], now.known.reports[level]
    costs = now.known.cost(level), other.known.cost(level)
    if costs[0] is not None and costs[1] is not None and costs[0].machine == costs[1].machine:
        return compare((other.name, before), (now.name, after), target=costs[0].machine.text)
    before, after = replace(before, target="cpu"), replace(after, target="cpu")  # which has no times
    return compare((other.name, before), (now.name, after))


def difference_pane(deck: Deck) -> Document:
    """All that is different: numbers, specs and collectives, by meaning."""
    found = compared(deck)
    if found is None:
        return Document(blocks=(paragraph(_nothing(deck), quiet=True, name="difference-none"),))
    told = comparison_document(found)
    title = words(f"{deck.now.name} against {deck.other.name}", strong=True)
    return replace(told, title=(title, words(f"level {found.level}", quiet=True)), lead=())


def _nothing(deck: Deck) -> str:
    if len(deck.cards) < 2:
        return "There is one plan; what a change or a preset makes different is told here."
    return f"{deck.other.name} is what the others are compared with; open another card, or compare with another one."


def with_difference(told: Document, deck: Deck, groups: Collection[str]) -> Document:
    """A place's document, with what is different in the numbers that it is about.

    Args:
        told: the document.
        deck: the cards.
        groups: of the numbers: `work`, `collectives`, `memory`, `step`.
    """
    found = compared(deck)
    if found is None or not any(a.group in groups for a in found.amounts):
        return told
    lead = words(f"{deck.now.name}, at level {found.level}", quiet=True)
    table = replace(amounts_table(found, groups), name="difference-amounts")
    section = Section(title=f"Against {deck.other.name}", lead=(lead,), blocks=(table,), name="difference-here")
    return replace(told, blocks=(*told.blocks, section))


def costs_of(deck: Deck) -> tuple[StepCost, StepCost] | None:
    """What the open card and the other cost at the highest level that both have reached; None where not known."""
    now, other = deck.now, deck.other
    level = "" if now.id == other.id else equal_level(now.known, other.known)
    here, there = (now.known.cost(level), other.known.cost(level)) if level else (None, None)
    return None if here is None or there is None else (here, there)


def with_links(told: Document, deck: Deck) -> Document:
    """The machine's document, with how long its links are busy along each mesh axis here and on the other card."""
    now, other, costs = deck.now, deck.other, costs_of(deck)
    if costs is None:
        return told
    level = equal_level(now.known, other.known)
    sums = [{total.axes: total for total in cost.by("axes")} for cost in costs]
    rows = [_links(over, *(found.get(over) for found in sums)) for over in dict.fromkeys((*sums[0], *sums[1]))]
    heads = (Column("over"), Column(now.name, right=True), Column(other.name, right=True), Column("", right=True))
    table = Table(columns=heads, rows=tuple(rows), noun="axis", folds="never", name="links-difference")
    lead = words(
        f"what moves along each mesh axis, and how long its links are busy with it, at level {level}", quiet=True
    )
    there = costs[1].placement
    lines = tuple(
        paragraph(axes((path.name,)), words(f"rides there on {path}", quiet=True))
        for path in there.paths
        if path.size > 1 and str(path) not in {str(p) for p in costs[0].placement.paths if p.name == path.name}
    )
    blocks = ((table,) if rows else (paragraph("Neither moves anything between devices.", quiet=True),)) + lines
    section = Section(title=f"Against {other.name}", lead=(lead,), blocks=blocks, name="links-here")
    return replace(told, blocks=(*told.blocks, section))


def _links(over: tuple[Axis, ...] | None, here: CollectiveTotal | None, there: CollectiveTotal | None) -> Row:
    def told(total: CollectiveTotal | None) -> Inline:
        if total is None:
            return words("nothing", quiet=True)
        return (words(total.bytes_text), words(format_seconds(total.seconds or 0.0), strong=True))

    more = ((here.seconds if here else 0.0) or 0.0) - ((there.seconds if there else 0.0) or 0.0)
    text = format_seconds(abs(more))
    difference = words("the same", quiet=True) if text == "0 s" else signed(more, text, of="of a step on the links")
    return row(axes(over), told(here), told(there), difference)
