"""The open card against the one that it is compared with: all of it, or the numbers that a place is about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shardviz.session.answers import equal_level
from shardviz.session.cards import Deck
from shardviz.study.comparison import Comparison, compare
from shardviz.view.comparison import amounts_table, comparison_document
from shardviz.view.document import Document, Section, paragraph, words


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
