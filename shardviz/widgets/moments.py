"""Names of the moments that the page may have seen: it shows one at once that it comes back to, by an undo, a redo or
another card, and the kernel's answer takes its place.

A moment is what the cards were, which of them was open and compared with, for which machine, and how the dimensions
were called: whatever else is told follows from these, but for what the last edit has changed, and from where in the
page somebody is, which the page knows itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any

from shardviz.costs.machine import Machine
from shardviz.session.cards import Deck
from shardviz.session.explorer import ExplorerState
from shardviz.session.snapshot import Step

_MOST = 512
"""Moments whose names are kept; the page keeps far fewer."""


class Moments:
    """The names of an explorer's moments: the same moment has the same name each time, and no other has it."""

    def __init__(self) -> None:
        self._names: dict[Hashable, str] = {}
        self._fresh = map(str, itertools.count(1))

    def told(self, state: ExplorerState) -> dict[str, Any]:
        """By name: this moment; those that an undo and a redo come to, empty where there are none; and by the id of
        each card the one in which it is open."""
        deck, logical = state.deck, state.logical
        called = logical.found is None, *logical.names.items()

        def name(deck: Deck, machine: Machine) -> str:
            return self._name(
                (machine.text, called, deck.at, deck.against, tuple((c.id, c.name, c.plan) for c in deck.cards))
            )

        def after(steps: Sequence[Step]) -> str:
            if not steps:
                return ""
            step, known = steps[0], deck.now.known
            draft = None if step.draft is None else (step.draft, known)
            return name(deck.returned(step.plan, known, step.at, draft), step.machine)

        return {
            "now": name(deck, state.machine),
            "back": after(state.past[-1:]),
            "ahead": after(state.ahead),
            "cards": {card.id: name(deck.opened(card.id), card.known.machine) for card in deck.cards},
        }

    def _name(self, key: Hashable) -> str:
        found = self._names.pop(key, None) or next(self._fresh)
        self._names[key] = found  # at the end
        if len(self._names) > _MOST:
            del self._names[next(iter(self._names))]
        return found
