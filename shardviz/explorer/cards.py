"""Plans side by side: what is known of each, and the cards, of which one is the plan that is being changed.

There is always the *baseline*, the plan as it was given. A change of any card makes the *draft*, a card of its own, so
that no card's plan is lost by an edit; the draft itself is what the next changes go on with. `pinned` keeps it under a
name, and a draft that would be overwritten from another card is kept the same way.

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
from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError, excerpt
from shardviz.explorer.machine_choice import MachineChoice, WholeStep
from shardviz.judge.report import Report
from shardviz.records.findings import Finding
from shardviz.records.report import LEVELS, PlanRecord

if TYPE_CHECKING:
    from shardviz.program.plan import Plan

BASELINE, DRAFT = "baseline", "draft"
MOST_CARDS = 24
"""Cards that there can be, the draft among them: so many but one can be kept, and every one of these can be edited."""
LONGEST_NAME = 60
_OF_A_MACHINE = "compiled"  # the level whose report is of one machine only


@dataclass(frozen=True, eq=False)
class Results(Memo):
    """What is known of a plan, checked against the program, on a machine: its reports by level, `carried` from another
    machine where nothing has been answered for this one, and what a person says of a whole step."""

    bound: PlanRecord
    reports: Mapping[str, Report] = field(repr=False)
    choice: MachineChoice
    whole: WholeStep
    carried: bool = False

    @property
    def level(self) -> str:
        """The highest level that was reached."""
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
        """The lowest level, by its place in `LEVELS`, at which another report tells something new."""
        return LEVELS.index(self.level) + (not self.carried)

    def priced(self, level: str = "") -> tuple[MachineChoice, StepCost | None]:
        """The machine with what is wrong with it, and what the step costs there by a level's report (empty: the
        highest's)."""
        level = level or self.level
        return self.once(level, lambda: self.choice.priced(self.reports[level], self.whole))

    def cost(self, level: str = "") -> StepCost | None:
        """What the step costs at a level; None where the machine has no speed, or `priced` says why."""
        return self.priced(level)[1]

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What a person should look at in the report of the highest level, with the machine's seconds."""
        return self.report.findings_on(self.cost())

    def told(self, report: Report) -> Results:
        """With one report more, or a newer one of its level."""
        return replace(self, reports={**self.reports, report.level: report}, carried=False)

    def on(self, choice: MachineChoice) -> Results:
        """What stays known on another machine: all but what its compiler said."""
        if choice == self.choice:
            return self
        same = choice.machine == self.machine
        reports = {level: r for level, r in self.reports.items() if same or level != _OF_A_MACHINE}
        return replace(self, reports=reports, choice=choice, carried=self.carried or not same)


def equal_level(one: Results, other: Results) -> str:
    """The highest level that both have reached; empty where there is none: then the two cannot be compared."""
    return max(one.reports.keys() & other.reports.keys(), key=LEVELS.index, default="")


@dataclass(frozen=True, kw_only=True)
class Card:
    """A plan that is kept beside others: with an id of its own, `baseline` or `draft`; a note on how it came to be (`as
    given`, `a preset`; empty for what a person made), and sentences on why it is so, of one that a search has found."""

    id: str
    name: str
    plan: Plan
    results: Results
    note: str = ""
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deck:
    """The cards of an explorer in the order in which they are shown; the ids of the one that is being changed (`at`)
    and of the one that the others are compared with (`against`), and how many cards have had an id of their own
    (`made`)."""

    cards: tuple[Card, ...]
    at: str = BASELINE
    against: str = BASELINE
    made: int = 0

    @classmethod
    def of(cls, plan: Plan, results: Results) -> Deck:
        """The deck of an explorer that is opened on a plan."""
        return cls((Card(id=BASELINE, name=BASELINE, plan=plan, results=results, note="as given"),))

    @property
    def now(self) -> Card:
        """The card that is being changed."""
        return self.card(self.at)

    @property
    def other(self) -> Card:
        """The card that the others are compared with."""
        return self.card(self.against)

    def card(self, name: str) -> Card:
        """A card by its id; the `ShardvizError` where there is none lists those that there are."""
        match = next((card for card in self.cards if card.id == name), None)
        if match is None:
            have = ", ".join(repr(card.id) for card in self.cards)
            raise ShardvizError(f"there is no card {excerpt(name)!r}; there are {have}")
        return match

    @property
    def draft(self) -> Card | None:
        """The draft; None where nothing was changed, or all that was is kept under a name."""
        return next((card for card in self.cards if card.id == DRAFT), None)

    # What follows from a change of the plan.

    def told(self, results: Results) -> Deck:
        """More is known of the card that is being changed."""
        return self._with(replace(self.now, results=results))

    def edited(self, plan: Plan, results: Results) -> Deck:
        """The plan was changed: the draft has it now."""
        after = self._kept_draft() if self.at != DRAFT and self.draft is not None else self
        return replace(after._with_draft(plan, results), at=DRAFT)

    def returned(self, plan: Plan, results: Results, at: str, draft: tuple[Plan, Results] | None) -> Deck:
        """An undo or a redo led back to a plan, to the card that it was then, and to the draft of then."""
        alike = [card for card in self.cards if card.id != DRAFT and card.plan == plan]
        there = next((card for card in alike if card.id == at), alike[0] if alike else None)
        if there is None:
            return replace(self._with_draft(plan, results), at=DRAFT)
        left = replace(self, at=there.id)._with(replace(there, results=results))
        if draft is None or any(c.id != DRAFT and c.plan == draft[0] for c in self.cards):
            return left._without(DRAFT)
        return left._with_draft(*draft)

    def on(self, put: Callable[[Card], Results]) -> Deck:
        """Every card but the one that is being changed is put on another machine."""
        return replace(self, cards=tuple(c if c.id == self.at else replace(c, results=put(c)) for c in self.cards))

    def opened(self, name: str) -> Deck:
        """Another card is the one that is being changed."""
        self.card(name)
        return replace(self, at=name)

    # What a person does with the cards.

    def pinned(self, name: str = "") -> Deck:
        """Keeps the present plan as a card of its own: the draft gets an id and a name, any other card is copied."""
        deck, card = self._fresh(name)
        if self.at == DRAFT:
            kept = replace(card, note=self.now.note)
            cards = tuple(kept if c.id == DRAFT else c for c in self.cards)
            against = kept.id if self.against == DRAFT else self.against
            return replace(deck, cards=cards, at=kept.id, against=against)
        return replace(deck, cards=(*self.cards, card), at=card.id)

    def added(self, plan: Plan, results: Results, *, name: str, note: str = "") -> tuple[Deck, str]:
        """With a card more, the last; and its id."""
        deck, card = self._fresh(name)
        return replace(deck, cards=(*self.cards, replace(card, plan=plan, results=results, note=note))), card.id

    def filled(self, which: str, plan: Plan, results: Results, *, note: str, why: tuple[str, ...] = ()) -> Deck:
        """A card that is not open gets another plan: that of a search, which has found a better one."""
        return self._with(replace(self.card(which), plan=plan, results=results, note=note, why=why))

    def renamed(self, which: str, name: str) -> Deck:
        """A card gets another name; a `ShardvizError` where that is empty, too long, or another card's."""
        name = " ".join(name.split())
        if not name or len(name) > LONGEST_NAME:
            raise ShardvizError(f"a card's name has 1 to {LONGEST_NAME} characters, not {len(name)}")
        if any(card.name == name and card.id != which for card in self.cards):
            raise ShardvizError(f"another card is called {name!r}; give each a name of its own")
        if which == DRAFT and self.draft is not None:  # what has a name is kept
            at = self.at
            pinned = replace(self, at=DRAFT).pinned(name)
            return pinned if at == DRAFT else replace(pinned, at=at)
        return self._with(replace(self.card(which), name=name))

    def moved(self, which: str, to: int) -> Deck:
        """A card at another place, from 0."""
        card = self.card(which)
        others = [c for c in self.cards if c.id != which]
        place = max(0, min(to, len(others)))
        return replace(self, cards=(*others[:place], card, *others[place:]))

    def deleted(self, which: str) -> Deck:
        """Without a card; a `ShardvizError` for the baseline and for the card that is being changed."""
        card = self.card(which)
        if which == BASELINE:
            raise ShardvizError("the baseline stays: it is the plan as it was given")
        if which == self.at:
            raise ShardvizError(f"{card.name!r} is the plan that you are at; open another card first")
        return self._without(which)

    def compared(self, against: str) -> Deck:
        """The differences are to another card."""
        self.card(against)
        return replace(self, against=against)

    # How.

    def _with(self, card: Card) -> Deck:
        return replace(self, cards=tuple(card if c.id == card.id else c for c in self.cards))

    def _with_draft(self, plan: Plan, results: Results) -> Deck:
        """With this draft, which replaces the one before."""
        draft = Card(id=DRAFT, name=DRAFT, plan=plan, results=results)
        if self.draft is not None:
            return self._with(draft)
        if len(self.cards) >= MOST_CARDS:  # those of a file may all be kept
            raise ShardvizError(f"there are {len(self.cards)} cards, and at most {MOST_CARDS}; delete one first")
        return replace(self, cards=(*self.cards, draft))

    def _without(self, which: str) -> Deck:
        against = BASELINE if self.against == which else self.against
        return replace(self, cards=tuple(c for c in self.cards if c.id != which), against=against)

    def _kept_draft(self) -> Deck:
        """Keeps the draft under a name of its own, unless another card has the same plan."""
        draft = self.card(DRAFT)
        if any(card.id != DRAFT and card.plan == draft.plan for card in self.cards):
            return self._without(DRAFT)
        return replace(replace(self, at=DRAFT).pinned(), at=self.at)

    def _fresh(self, name: str) -> tuple[Deck, Card]:
        """A card with an id and a name that no other has; a `ShardvizError` where there are too many cards."""
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
        return replace(self, made=number), Card(
            id=f"card-{number}", name=name, plan=self.now.plan, results=self.now.results
        )
