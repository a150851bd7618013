"""The open card and the one that it is compared with: all differences."""

from __future__ import annotations

from dataclasses import replace

from shardviz.explorer.cards import Deck, equal_level
from shardviz.judge.comparison import Comparison, compare
from shardviz.view.comparison import comparison_document
from shardviz.view.document import Document, paragraph, words


def compared(deck: Deck) -> Comparison | None:
    """The comparison at the highest level that both cards have reached; None where there is nothing to compare."""
    now, other = deck.now, deck.other
    level = "" if now.id == other.id else equal_level(now.results, other.results)
    if not level:
        return None
    before, after = other.results.reports[level], now.results.reports[level]
    here, there = now.results.cost(level), other.results.cost(level)
    if here is not None and there is not None and here.machine == there.machine:
        return compare((other.name, before), (now.name, after), target=here.machine.text)
    before, after = replace(before, target="cpu"), replace(after, target="cpu")  # which has no times
    return compare((other.name, before), (now.name, after))


def difference_pane(deck: Deck) -> Document:
    """Everything that differs: numbers, specs and collectives, matched by meaning."""
    both = compared(deck)
    if both is None:
        return Document(blocks=(paragraph(_nothing(deck), quiet=True, name="difference-none"),))
    title = words(f"{deck.now.name} compared with {deck.other.name}", strong=True)
    return replace(comparison_document(both), title=(title, words(f"level {both.level}", quiet=True)), lead=())


def _nothing(deck: Deck) -> str:
    if len(deck.cards) < 2:
        return "There is one plan. After a change or a preset, this shows the difference."
    return (
        f"{deck.other.name} is the plan that others are compared with: open another card, or compare with another one."
    )
