"""What goes on beside the edits, in slices: presets, the search, mends, questions, texts. So the explorer stays live.

A chore is a generator that puts what it has found into the `Snapshot`, and lets others in where it yields. There is one
of a kind at most; a newer one ends it. The plans that it tries are those of the moment at which it began.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from shardviz.ask.derived import of_variant
from shardviz.errors import ShardvizError
from shardviz.explorer import questions, tries
from shardviz.explorer.asking import Board
from shardviz.explorer.chores import Chore
from shardviz.explorer.compile_loop import Inbox
from shardviz.explorer.logical import MOST_AT_ONCE, Logical
from shardviz.explorer.offers import Asked, Offer, Remedies
from shardviz.explorer.staging import Texts
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.study.answer import Found, Search, WhyNot
from shardviz.study.mends import Mends

log = logging.getLogger(__name__)

FOUND = "best found"

_IDLE = 1.5
"""Seconds without a change before what helps is tried."""
_COUNTED = 0.5
"""Seconds after which it is said how many were tried, where nothing else is new."""
_MOST_REMEDIED = 24
_MOST_WHY = 8


class Background:
    """The chores of an explorer.

    Args:
        board: what they read and change.
        inbox: whose owner does them.

    Attributes:
        rests: whether nobody looks on, so that nothing is tried unasked.
        texts: the texts of the plans.
        chores: name → the chore that was begun last.
    """

    def __init__(self, board: Board, inbox: Inbox):
        self.rests = True
        self.texts = Texts(board, self.begin, self.end)
        self._board, self._inbox = board, inbox
        self.chores: dict[str, Chore] = {}
        self._mended: dict[Any, Remedies] = {}
        self._card = ""  # that of the search
        self._makers: dict[str, Callable[[Any], Iterator[Any]]] = {
            "presets": lambda _: self._try_presets(),
            "hunt": lambda _: self._hunt(),
            "mend": lambda _: self._mend(),
            "why": lambda subject: questions.why(board, subject),
            "without": lambda cause: questions.without(board, cause),
            "passes": lambda _: self.texts.passes(),
        }

    def start(self, chore: str, about: Any = None) -> None:
        """Begins a chore that an edit asked for, by its name."""
        if chore == "dimensions":
            self._find_dimensions()
            return
        self.begin("why" if chore == "without" else chore, self._makers[chore](about))

    def begin(self, name: str, steps: Iterator[Any], delay: float = 0.0) -> None:
        """Begins a chore in the place of the one of this name."""
        self.end(name)
        self.chores[name] = Chore(self._inbox, steps)
        self.chores[name].start(delay)

    def end(self, name: str) -> None:
        """Ends a chore; what it has found stays."""
        if name in self.chores:
            self.chores.pop(name).stop()

    def rest(self) -> None:
        """Nobody looks on: what is tried unasked waits until somebody does."""
        self.rests = True
        self.end("mend")

    def wake(self) -> None:
        """Somebody looks on."""
        if self.rests:
            self.rests = False
            self.follow(frozenset({"progress"}))

    def follow(self, changed: frozenset[str]) -> None:
        """What follows from a change: an answer of another plan goes, and what helps is tried when nothing more has
        changed for a moment.

        Args:
            changed: the names of the `Snapshot`'s parts that are new.
        """
        now = self._board.now
        if not changed & {"answers", "machine", "progress"}:
            return
        self.end("mend")
        if now.why.name and ("machine" in changed or now.why.of != now.plan):
            self.end("why")
            self._board.put(why=Asked())
        key = now.plan, now.machine.machine
        if now.remedies.of != now.plan or "machine" in changed:
            known = self._mended.get(key, Remedies())
            if known != now.remedies:
                self._board.put(remedies=known)
        if self.rests or now.progress.busy or key in self._mended:
            return
        if now.logical.found is None and len(now.report.arguments) > MOST_AT_ONCE:
            return  # what helps is tried along the logical dimensions: nobody asked for these, and they take minutes
        with suppress(RuntimeError):  # a script has no loop, and asks itself
            asyncio.get_running_loop()
            self.begin("mend", self._mend(), _IDLE)

    # The chores.

    def _offers(self, **parts: Any) -> None:
        self._board.put(offers=replace(self._board.now.offers, **parts))

    def _try_presets(self) -> Iterator[None]:
        ask, now = self._board.asking, self._board.now
        variant = now.bound.variant
        try:
            varied = of_variant(ask.program, variant) if variant else ask.program
            presets = list(varied.untried_presets(now.plan.mesh))
        except ShardvizError as error:
            self._offers(busy=False, trouble=str(error))
            return
        tried: dict[str, Offer] = {}
        for preset in presets:
            yield
            plan = preset.plan.with_variant(variant) if variant else preset.plan
            offer = Offer(name=preset.name, text=preset.text, plan=plan)
            try:
                offer = replace(offer, known=ask.known(self._board.now, plan))
            except ShardvizError as error:
                offer = replace(offer, trouble=str(error))
            other = tried.get(offer.name)
            if other is None or offer.rank < other.rank:
                tried[offer.name] = offer
            self._offers(items=tuple(sorted(tried.values(), key=lambda o: o.rank)))
        self._offers(busy=False)

    def _hunt(self) -> Iterator[None]:
        now, best, state = self._board.now, None, None
        self._card = ""
        try:
            for state in tries.searches(self._board.asking.program, now.plan, now.machine.machine):
                if state.best is not None and state.best is not best:
                    best = state.best
                    self._show(state, best)
                share = min(1.0, state.seconds / tries.SECONDS)
                self._offers(hunt=f"{plural(len(state.tried), 'plan')} tried", share=share)
                yield
            if state is not None and state.best is not None:
                self._show(state, state.best)  # now with each decision's alternative
        except ShardvizError as error:
            self._offers(hunt="", share=0.0, trouble=str(error))
            return
        if not self._card:
            tried = 0 if state is None else len(state.tried)
            self._offers(trouble=f"{plural(tried, 'plan')} tried, and none could be scored")
        self._offers(hunt="", share=0.0)

    def _show(self, search: Search, best: Found) -> None:
        """Makes the best so far a card, or puts it in the place of the one that was; not of one that a person is at."""
        known, deck = self._board.asking.known(self._board.now, best.plan), self._board.now.deck
        note, here = f"found: {plural(len(search.tried), 'plan')} tried", self._card
        if not any(c.id == here for c in deck.cards) or here == deck.at:
            deck, self._card = deck.added(best.plan, known, name=FOUND, note=note)
        why = (best.text, *map(_words, search.why_not[:_MOST_WHY]))
        self._board.put(deck=deck.filled(self._card, best.plan, known, note=note, why=why))

    def _mend(self) -> Iterator[Any]:
        now, due = self._board.now, 0.0
        key = now.plan, now.machine.machine
        remedies = Remedies(of=now.plan)
        try:
            for step in tries.mends(self._board.asking.program, now.report, now.machine.machine, now.plan):
                if isinstance(step, Mends):
                    remedies = replace(remedies, mends=step)
                    if remedies.items != self._board.now.remedies.items or time.monotonic() >= due:
                        self._board.put(remedies=replace(remedies, busy=True))
                        due = time.monotonic() + _COUNTED
                yield step
        except ShardvizError as error:
            remedies = replace(remedies, trouble=str(error))
        except Exception:
            log.exception("shardviz met an error of its own while it tried what may help")
            remedies = replace(remedies, trouble="shardviz met an error of its own; the kernel's log has it")
        while len(self._mended) >= _MOST_REMEDIED:
            self._mended.pop(next(iter(self._mended)))
        self._mended[key] = remedies
        self._board.put(remedies=remedies)

    def _find_dimensions(self) -> None:
        """Has the logical dimensions found on another thread, as they take a second for a large model."""

        def find() -> None:
            logical = Logical(trouble="shardviz met an error of its own while it looked for them")
            try:
                logical = Logical(self._board.asking.program.dimensions)
            except ShardvizError as error:
                logical = Logical(trouble=str(error))
            finally:  # a page must not wait for ever
                self._inbox.post(lambda: self._board.put(logical=logical))

        threading.Thread(target=find, name="shardviz-dimensions", daemon=True).start()


def _words(why: WhyNot) -> str:
    """`w1:2 by model, not whole; the other way +0.41 s, +3.2 GB: since ...`."""
    sign = "+" if why.seconds >= 0 else "−"
    moved = "+" if why.bytes >= 0 else "−"
    chosen = why.chosen if why.chosen.startswith(why.decision) else f"{why.decision} {why.chosen}"
    return (
        f"{chosen}, not {why.other}; the other way {sign}{format_seconds(abs(why.seconds))}, "
        f"{moved}{format_bytes(abs(why.bytes))} memory: {why.reason}"
    )
