"""What can be asked for beside the plan: presets, and the best plan; each is tried before it is shown.

Both go on in slices (`chores`), so that the explorer stays live, and both can be stopped. A preset is an `Offer`, which
becomes a card when it is taken. What the search finds are cards at once, which get better until it ends.
"""

from __future__ import annotations

import asyncio
import logging
import textwrap
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shardviz.costs.machine import Machine
from shardviz.errors import ShardvizError, excerpt
from shardviz.records.amounts import plural
from shardviz.records.report import Report
from shardviz.session.cards import LONGEST_NAME, Deck
from shardviz.session.chores import Chore
from shardviz.session.compile_loop import CompileLoop
from shardviz.session.logical import MOST_AT_ONCE
from shardviz.session.offers import Better, Offer, Remedies
from shardviz.session.questions import Questions
from shardviz.session.snapshot import Snapshot
from shardviz.session.stages import Passes, Stages

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.session.program import Program

log = logging.getLogger(__name__)

FOUND = "best found"

Finder = Callable[["Program", "Plan", Machine], Iterator[Better]]
"""Searches the best plan for a program on a machine, a step of some ten milliseconds at a time."""


Mender = Callable[["Program", Report, Machine, "Plan"], Iterator["Remedies | str | None"]]
"""Tries what helps a plan: some ten milliseconds at a time; a step is what is known, `chores.WAITING`, or nothing."""

_IDLE = 1.5
"""Seconds without a change before what helps is tried."""
_COUNTED = 0.5
"""Seconds after which it is said how many were tried, where nothing else is new."""
_MOST_REMEDIED = 24


@dataclass
class Chores:
    """What goes on beside the state, and the card that the search has made."""

    presets: Chore | None = None
    hunt: Chore | None = None
    mend: Chore | None = None
    why: Chore | None = None
    stages: Chore | None = None
    passes: Chore | None = None
    remedied: dict[Any, Remedies] = field(default_factory=dict)
    texts: dict[Any, Stages] = field(default_factory=dict)
    passed: dict[Any, Passes] = field(default_factory=dict)
    meant: tuple[Any, ...] = ()
    found: str = ""


class Offering(Questions):
    """What can be asked for beside the plan.

    Attributes:
        now, loop: as `ExplorerState` has them.
        finder: what searches; None where nothing does.
        mender: what tries changes that may help; None where nothing does.
        rests: whether nobody looks on, so that nothing is tried unasked.
    """

    now: Snapshot
    loop: CompileLoop
    finder: Finder | None = None
    mender: Mender | None = None
    rests: bool = False
    _chores: Chores

    @abstractmethod
    def _put(self, **parts: Any) -> None:
        """Replaces parts of the snapshot."""

    def offer_presets(self) -> None:
        """Has the presets tried on the plan's mesh and machine, and opens them."""
        self._stop("presets")
        self._offers(items=(), open=True, busy=True, trouble="")
        self._begin("presets", self._try_presets())

    def close_offers(self) -> None:
        """Closes the presets; what is being tried is stopped."""
        self._stop("presets")
        self._offers(open=False, busy=False)

    def take_offer(self, offer: str) -> bool:
        """Makes a preset a card and goes to its plan; an undo goes back."""

        def deal() -> Deck:
            found = next((o for o in self.now.offers.items if o.name == offer), None)
            if found is None or found.known is None:
                raise ShardvizError(f"there is no offer {offer!r} that could be taken")
            deck, made = self.deck.added(found.plan, found.known, name=found.name, note="a preset")
            return deck.opened(made)

        taken = self._deal(deal)
        if taken:
            self.close_offers()
        return taken

    def find_best(self) -> None:
        """Searches the best plan for the machine; what it finds are cards, which get better as it goes on."""
        self._stop("hunt")
        if self.finder is None or self.machine.chip.kind == "cpu":
            self._offers(trouble="choose a machine first: the best plan is the one with the shortest step on a machine")
            return
        self._offers(hunt="looking for what can be cut", share=0.0, trouble="")
        self._chores.found = ""
        self._begin("hunt", self._hunt(self.finder(self.program, self.plan, self.machine)))

    def stop_finding(self) -> None:
        """Ends the search; what it found stays."""
        self._stop("hunt")
        self._offers(hunt="", share=0.0)

    def try_remedies(self) -> None:
        """Tries now what helps the plan; where an event loop runs that is done anyway when nothing has changed for a
        moment."""
        self._mend(0.0)

    def take_remedy(self, action: str) -> bool:
        """Changes the plan as a remedy says, or the program, which makes a card; one undo takes it back."""
        remedies = self.now.remedies
        found = next((r for r in remedies.items if r.action == action and remedies.of == self.plan), None)

        def build() -> Plan:
            if found is None:
                raise ShardvizError(f"{excerpt(action)!r} was not tried on the plan as it is now")
            return found.plan

        def deal() -> Deck:
            plan = build()
            deck, made = self.deck.added(
                plan, self._first_known(plan), name=textwrap.shorten(action, LONGEST_NAME, placeholder=" …")
            )
            return deck.opened(made)

        return self._edit(build, "plan") if found is None or not found.write else self._deal(deal)

    def looked_at(self, what: str, name: str) -> Offer | None:
        """What an offer comes to, before it is taken: Shardy is asked where nobody knows.

        Args:
            what: `offer`, a preset, or `remedy`, which is of the plan as it is now.
            name: its name, or a remedy's action.

        Returns:
            It, with what is known of its plan, or why that cannot be; None where there is no such offer any more.
        """
        found = next((o for o in self.now.offers.items if what == "offer" and o.name == name), None)
        if what == "remedy" and self.now.remedies.of == self.plan:
            each = next((r for r in self.now.remedies.items if r.action == name), None)
            if each is not None:
                found = Offer(name=each.action, text=each.text, plan=each.plan, tried=each)
        if found is None or found.known is not None or found.trouble:
            return found
        offer = found
        try:
            return self.loop.inbox.run(lambda: replace(offer, known=self._first_known(offer.plan)))
        except ShardvizError as error:
            return replace(offer, trouble=str(error))

    def rest(self) -> None:
        """Nobody looks on: what is tried unasked waits until somebody does."""
        self.rests = True
        self._stop("mend")

    def wake(self) -> None:
        """Somebody looks on."""
        if self.rests:
            self.rests = False
            self._follow(frozenset({"progress"}))

    # How.

    def _follow(self, changed: frozenset[str]) -> None:
        """Begins to try what helps when nothing has changed for a moment."""
        if not changed & {"answers", "machine", "progress"}:
            return
        self._stop("mend")
        if self.now.why.name and ("machine" in changed or self.now.why.of != self.plan):
            self.close_why()
        if self.now.remedies.of != self.plan or "machine" in changed:
            known = self._chores.remedied.get((self.plan, self.machine), Remedies())
            if known != self.now.remedies:
                self._put(remedies=known)
        if self.rests or self.mender is None or self.now.progress.busy:
            return
        if (self.plan, self.machine) in self._chores.remedied:
            return
        if self.now.logical.found is None and len(self.report.arguments) > MOST_AT_ONCE:
            return  # what helps is tried along the logical dimensions: nobody asked for these, and they take minutes
        with suppress(RuntimeError):  # a script has no loop, and asks itself
            asyncio.get_running_loop()
            self._mend(_IDLE)

    def _mend(self, delay: float) -> None:
        self._stop("mend")
        if self.mender is None:
            return
        steps = self._try_remedies(self.mender(self.program, self.report, self.machine, self.plan))
        self._chores.mend = Chore(self.loop.inbox, steps)
        self._chores.mend.start(delay)

    def _try_remedies(self, steps: Iterator[Remedies | str | None]) -> Iterator[Any]:
        key = self.plan, self.machine
        found, due = Remedies(of=self.plan), 0.0
        try:
            for step in steps:
                if isinstance(step, Remedies):
                    found = replace(step, of=key[0])
                    if found.items != self.now.remedies.items or time.monotonic() >= due:
                        self._put(remedies=replace(found, busy=True))
                        due = time.monotonic() + _COUNTED
                yield step
        except ShardvizError as error:
            found = replace(found, trouble=str(error))
        except Exception:
            log.exception("shardviz met an error of its own while it tried what may help")
            found = replace(found, trouble="shardviz met an error of its own; the kernel's log has it")
        while len(self._chores.remedied) >= _MOST_REMEDIED:
            self._chores.remedied.pop(next(iter(self._chores.remedied)))
        self._chores.remedied[key] = found
        self._put(remedies=found)

    def _offers(self, **parts: Any) -> None:
        self._put(offers=replace(self.now.offers, **parts))

    def _begin(self, which: str, steps: Iterator[Any]) -> None:
        chore = Chore(self.loop.inbox, steps)
        setattr(self._chores, which, chore)
        chore.start()

    def _stop(self, which: str) -> None:
        chore = getattr(self._chores, which)
        if chore is not None:
            chore.stop()

    def _try_presets(self) -> Iterator[None]:
        try:
            varied = self.program.of_variant(self.bound.variant) if self.bound.variant else self.program
            presets = list(varied.untried_presets(self.plan.mesh))
        except ShardvizError as error:
            self._offers(busy=False, trouble=str(error))
            return
        tried: dict[str, Offer] = {}
        for preset in presets:
            yield
            variant = self.bound.variant
            plan = preset.plan.with_variant(variant) if variant else preset.plan
            offer = Offer(name=preset.name, text=preset.text, plan=plan)
            try:
                offer = replace(offer, known=self._first_known(plan))
            except ShardvizError as error:
                offer = replace(offer, trouble=str(error))
            other = tried.get(offer.name)
            if other is None or offer.rank < other.rank:
                tried[offer.name] = offer
            self._offers(items=tuple(sorted(tried.values(), key=lambda o: o.rank)))
        self._offers(busy=False)

    def _hunt(self, steps: Iterator[Better]) -> Iterator[None]:
        last = Better(tried=0, share=0.0)
        try:
            for last in steps:
                if last.plan is not None:
                    self._show(last)
                self._offers(hunt=f"{plural(last.tried, 'plan')} tried", share=last.share)
                yield
        except ShardvizError as error:
            self._offers(hunt="", share=0.0, trouble=str(error))
            return
        if not self._chores.found:
            self._offers(trouble=f"{plural(last.tried, 'plan')} tried, and none could be scored")
        self._offers(hunt="", share=0.0)

    def _show(self, better: Better) -> None:
        """Makes the best so far a card, or puts it in the place of the one that was; not of one that a person is at."""
        assert better.plan is not None
        known, deck = self._first_known(better.plan), self.deck
        note, here = f"found: {plural(better.tried, 'plan')} tried", self._chores.found
        if any(c.id == here for c in deck.cards) and here != deck.at:
            self._put(deck=deck.filled(here, better.plan, known, note=note, why=(better.text, *better.why)))
            return
        deck, self._chores.found = deck.added(better.plan, known, name=FOUND, note=note)
        self._put(deck=deck.filled(self._chores.found, better.plan, known, note=note, why=(better.text, *better.why)))
