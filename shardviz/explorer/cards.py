"""Plans side by side: the results of each, as cards; one card is open and is changed by edits.

The *baseline* is the plan as given. An edit of any other card makes a *draft* card, so that the card's plan is kept;
further edits change the draft. `pinned` keeps the draft under a name. A draft that an edit of another card would
replace is kept automatically.

>>> deck = Deck.of("plan A", "results A").edited("plan B", "results B")
>>> [card.name for card in deck.cards], deck.at
(['baseline', 'draft'], 'draft')
>>> deck = deck.opened("baseline").edited("plan C", "results C")   # the plan B is kept
>>> [(card.name, card.plan) for card in deck.cards]
[('baseline', 'plan A'), ('plan 1', 'plan B'), ('draft', 'plan C')]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardviz.caching import Memo, cached_property
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, untimed
from shardviz.errors import ShardvizError, excerpt
from shardviz.explorer.machine_choice import MachineChoice, WholeStep
from shardviz.judge.report import Report
from shardviz.records.findings import Finding
from shardviz.records.report import LEVELS, PlanRecord

if TYPE_CHECKING:
    from shardviz.plan.plan import Plan

BASELINE, DRAFT = "baseline", "draft"
MOST_CARDS = 24
"""Maximum number of cards, draft included; one less can be kept, so that each can still be edited."""
LONGEST_NAME = 60
_OF_A_MACHINE = "compiled"  # the level whose report is of one machine only


@dataclass(frozen=True, eq=False)
class Results(Memo):
    """The results of a plan on a machine.

    Attributes:
        bound: the plan checked against the program.
        reports: level → report.
        whole: the user's facts about a whole step.
        carried: whether the reports are from another machine, and this one has not answered yet.
    """

    bound: PlanRecord
    reports: Mapping[str, Report] = field(repr=False)
    choice: MachineChoice
    whole: WholeStep
    carried: bool = False

    @property
    def level(self) -> str:
        """The highest level reached."""
        return max(self.reports, key=LEVELS.index)

    @property
    def report(self) -> Report:
        """The report of the highest level."""
        return self.reports[self.level]

    @property
    def machine(self) -> Machine:
        return self.choice.machine

    @property
    def due(self) -> int:
        """The lowest level at which another report is news, as an index of `LEVELS`."""
        return LEVELS.index(self.level) + (not self.carried)

    def priced(self, level: str = "") -> tuple[MachineChoice, StepCost | None]:
        """Return the machine with its `trouble`, and the step cost by a level's report; empty for the highest level."""
        level = level or self.level
        return self.once(level, lambda: self.choice.priced(self.reports[level], self.whole))

    def cost(self, level: str = "") -> StepCost | None:
        """Return the step cost at a level; None if the machine has no known speed, or `priced` has the trouble."""
        return self.priced(level)[1]

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the highest level's report, with the machine's seconds."""
        return self.report.findings_on(self.cost())

    def with_report(self, report: Report) -> Results:
        """Return the results with a report added or replaced."""
        return replace(self, reports={**self.reports, report.level: report}, carried=False)

    def on(self, choice: MachineChoice) -> Results:
        """Return the results for another machine, without compiled reports and seconds."""
        if choice == self.choice:
            return self
        same = choice.machine == self.machine
        kept = {level: report for level, report in self.reports.items() if same or level != _OF_A_MACHINE}
        reports = kept if same else {level: untimed(report) for level, report in kept.items()}
        return replace(self, reports=reports, choice=choice, carried=self.carried or not same)


def equal_level(one: Results, other: Results) -> str:
    """Return the highest level that both have reached; empty if they have none in common and cannot be compared."""
    return max(one.reports.keys() & other.reports.keys(), key=LEVELS.index, default="")


@dataclass(frozen=True, kw_only=True)
class Card:
    """A plan kept beside others.

    Attributes:
        id: its identity; `baseline` or `draft` for these two.
        note: its origin: `as given`, `a preset`; empty for the user's own.
        why: for a plan from a search, sentences on its decisions.
    """

    id: str
    name: str
    plan: Plan
    results: Results
    note: str = ""
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deck:
    """The cards of an explorer in display order.

    Attributes:
        at: the id of the open card, which edits change.
        against: the id of the card that the others are compared with.
        made: number of ids used so far.
    """

    cards: tuple[Card, ...]
    at: str = BASELINE
    against: str = BASELINE
    made: int = 0

    @classmethod
    def of(cls, plan: Plan, results: Results) -> Deck:
        """Return the deck of a new explorer."""
        return cls((Card(id=BASELINE, name=BASELINE, plan=plan, results=results, note="as given"),))

    @property
    def now(self) -> Card:
        """The open card."""
        return self.card(self.at)

    @property
    def other(self) -> Card:
        """The card that the others are compared with."""
        return self.card(self.against)

    def card(self, name: str) -> Card:
        """Return a card by its id. Raises ShardvizError, with the existing ids, if there is none."""
        match = next((card for card in self.cards if card.id == name), None)
        if match is None:
            have = ", ".join(repr(card.id) for card in self.cards)
            raise ShardvizError(f"there is no card {excerpt(name)!r}; there are {have}")
        return match

    @property
    def draft(self) -> Card | None:
        """The draft; None if nothing was changed, or every change is kept under a name."""
        return next((card for card in self.cards if card.id == DRAFT), None)

    # What follows from a change of the plan.

    def with_results(self, results: Results) -> Deck:
        """Return the deck with new results of the open card."""
        return self._with(replace(self.now, results=results))

    def edited(self, plan: Plan, results: Results) -> Deck:
        """Return the deck after an edit: the draft has the new plan."""
        after = self._kept_draft() if self.at != DRAFT and self.draft is not None else self
        return replace(after._with_draft(plan, results), at=DRAFT)

    def returned(self, plan: Plan, results: Results, at: str, draft: tuple[Plan, Results] | None) -> Deck:
        """Return the deck after an undo or redo, with that step's open card and draft."""
        alike = [card for card in self.cards if card.id != DRAFT and card.plan == plan]
        there = next((card for card in alike if card.id == at), alike[0] if alike else None)
        if there is None:
            return replace(self._with_draft(plan, results), at=DRAFT)
        deck = replace(self, at=there.id)._with(replace(there, results=results))
        if draft is None or any(c.id != DRAFT and c.plan == draft[0] for c in self.cards):
            return deck._without(DRAFT)
        return deck._with_draft(*draft)

    def on(self, put: Callable[[Card], Results]) -> Deck:
        """Return the deck with every card but the open one on another machine."""
        return replace(self, cards=tuple(c if c.id == self.at else replace(c, results=put(c)) for c in self.cards))

    def opened(self, name: str) -> Deck:
        """Return the deck with another card open."""
        self.card(name)
        return replace(self, at=name)

    # What a person does with the cards.

    def pinned(self, name: str = "") -> Deck:
        """Keep the current plan as a card: the draft gets an id and a name, any other card is copied."""
        deck, card = self._fresh(name)
        if self.at == DRAFT:
            kept = replace(card, note=self.now.note)
            cards = tuple(kept if c.id == DRAFT else c for c in self.cards)
            against = kept.id if self.against == DRAFT else self.against
            return replace(deck, cards=cards, at=kept.id, against=against)
        return replace(deck, cards=(*self.cards, card), at=card.id)

    def added(self, plan: Plan, results: Results, *, name: str, note: str = "") -> tuple[Deck, str]:
        """Return the deck with a new last card, and the card's id."""
        deck, card = self._fresh(name)
        return replace(deck, cards=(*self.cards, replace(card, plan=plan, results=results, note=note))), card.id

    def filled(self, which: str, plan: Plan, results: Results, *, note: str, why: tuple[str, ...] = ()) -> Deck:
        """Replace the plan of a card that is not open, when a search finds a better plan."""
        return self._with(replace(self.card(which), plan=plan, results=results, note=note, why=why))

    def renamed(self, which: str, name: str) -> Deck:
        """Rename a card. Raises ShardvizError if the name is empty, too long or taken."""
        name = " ".join(name.split())
        if not name or len(name) > LONGEST_NAME:
            raise ShardvizError(f"a card's name has 1 to {LONGEST_NAME} characters, not {len(name)}")
        if any(card.name == name and card.id != which for card in self.cards):
            raise ShardvizError(f"another card is called {name!r}; choose a different name")
        if which == DRAFT and self.draft is not None:  # a named card is kept
            at = self.at
            pinned = replace(self, at=DRAFT).pinned(name)
            return pinned if at == DRAFT else replace(pinned, at=at)
        return self._with(replace(self.card(which), name=name))

    def moved(self, which: str, to: int) -> Deck:
        """Move a card to a position, from 0."""
        card = self.card(which)
        others = [c for c in self.cards if c.id != which]
        place = max(0, min(to, len(others)))
        return replace(self, cards=(*others[:place], card, *others[place:]))

    def deleted(self, which: str) -> Deck:
        """Delete a card. Raises ShardvizError for the baseline and for the open card."""
        card = self.card(which)
        if which == BASELINE:
            raise ShardvizError("the baseline cannot be deleted: it is the plan as given")
        if which == self.at:
            raise ShardvizError(f"{card.name!r} is open; open another card first")
        return self._without(which)

    def compared(self, against: str) -> Deck:
        """Compare the cards with another card."""
        self.card(against)
        return replace(self, against=against)

    # How.

    def _with(self, card: Card) -> Deck:
        return replace(self, cards=tuple(card if c.id == card.id else c for c in self.cards))

    def _with_draft(self, plan: Plan, results: Results) -> Deck:
        draft = Card(id=DRAFT, name=DRAFT, plan=plan, results=results)
        if self.draft is not None:
            return self._with(draft)
        if len(self.cards) >= MOST_CARDS:  # a file may have as many kept cards
            raise ShardvizError(f"there are {len(self.cards)} cards, and at most {MOST_CARDS}; delete one first")
        return replace(self, cards=(*self.cards, draft))

    def _without(self, which: str) -> Deck:
        against = BASELINE if self.against == which else self.against
        return replace(self, cards=tuple(c for c in self.cards if c.id != which), against=against)

    def _kept_draft(self) -> Deck:
        """Keep the draft under a generated name, unless another card has the same plan."""
        draft = self.card(DRAFT)
        if any(card.id != DRAFT and card.plan == draft.plan for card in self.cards):
            return self._without(DRAFT)
        return replace(replace(self, at=DRAFT).pinned(), at=self.at)

    def _fresh(self, name: str) -> tuple[Deck, Card]:
        """Return the deck and a card with a new id and name. Raises ShardvizError if there are too many cards."""
        kept = sum(card.id != DRAFT for card in self.cards)
        if kept >= MOST_CARDS - 1:
            raise ShardvizError(f"{kept} cards are kept, and at most {MOST_CARDS - 1} can be; delete one first")
        number = self.made + 1
        names = {card.name for card in self.cards}
        name = " ".join(name.split())[:LONGEST_NAME]
        if not name:
            name = next(n for n in (f"plan {i}" for i in range(1, MOST_CARDS + 2)) if n not in names)
        base, count = name, 1
        while name in names:
            count += 1
            name = f"{base} ({count})"
        card = Card(id=f"card-{number}", name=name, plan=self.now.plan, results=self.now.results)
        return replace(self, made=number), card
