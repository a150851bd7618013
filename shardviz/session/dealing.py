"""What a person does with the cards, each a method that says whether it was done; see `cards` for what a card is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from shardviz.session.answers import Known
from shardviz.session.cards import Deck
from shardviz.session.editing import Editing

if TYPE_CHECKING:
    from shardviz.program.plan import Plan


class Dealing(Editing):
    """What can be done with the cards beside a plan.

    Attributes:
        deck: the plan's card and those beside it.
    """

    deck: Deck

    @abstractmethod
    def _deal(self, deal: Callable[[], Deck]) -> bool:
        """Takes the deck that `deal` gives, or says why not; where another card is open in it, its plan is gone to."""

    @abstractmethod
    def _first_known(self, plan: Plan) -> Known:
        """What is known of a plan that need not be the present one; Shardy is asked where nothing is.

        Raises:
            ShardvizError: if the plan does not fit the program.
        """

    def pin(self, name: str = "") -> bool:
        """Keeps the plan as it is now as a card; without a name it gets one."""
        return self._deal(lambda: self.deck.pinned(name))

    def open_card(self, card: str) -> bool:
        """Goes on with the plan of another card, by its id; an undo goes back."""
        return self._deal(lambda: self.deck.opened(card))

    def add_card(self, name: str, plan: Plan, note: str = "") -> bool:
        """Adds a card for a plan; it is not opened.

        Args:
            name: what it is called; with a number behind it where another card is called so.
            plan: the plan.
            note: how it came to be.
        """

        def dealt() -> Deck:
            settled = self.program.settled(plan)
            return self.deck.added(settled, self._first_known(settled), name=name, note=note)[0]

        return self._deal(dealt)

    def rename_card(self, card: str, name: str) -> bool:
        """Gives a card another name; a draft with a name is kept."""
        return self._deal(lambda: self.deck.renamed(card, name))

    def move_card(self, card: str, to: int) -> bool:
        """Puts a card at another place, from 0."""
        return self._deal(lambda: self.deck.moved(card, to))

    def delete_card(self, card: str) -> bool:
        """Deletes a card; neither the baseline nor the one that is open."""
        return self._deal(lambda: self.deck.deleted(card))

    def compare_with(self, card: str) -> bool:
        """Has all differences told to a card, the baseline at first."""
        return self._deal(lambda: self.deck.compared(card))
