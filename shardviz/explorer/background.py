"""What goes on beside the edits, in slices: presets, the search, mends, questions, texts. So the explorer stays live.

A chore is a generator that puts what it has found into the `Snapshot`, and lets others in where it yields. There is one
of a kind at most; a newer one ends it. The plans that it tries are those of the moment at which it began.

A question is asked by a name in the report that the person looks at, which may be the partitioner's. What is asked
about is the same thing at the propagated level, where there is one: `counterpart` finds values, the line and the axes
find collectives. An answer is of one plan and one machine; it goes when either does.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from shardviz.ask.derived import of_variant
from shardviz.ask.program import Program
from shardviz.ask.why import alike
from shardviz.costs.machine import Machine
from shardviz.costs.timeline import Timeline
from shardviz.errors import ShardvizError
from shardviz.explorer.apply import Answers
from shardviz.explorer.compile_loop import Inbox
from shardviz.explorer.logical import MOST_AT_ONCE, Logical
from shardviz.explorer.selection import counterpart
from shardviz.explorer.snapshot import Asked, Offer, Remedies, Snapshot, Timelines, merged_offers
from shardviz.explorer.texts import Stages
from shardviz.judge.report import Report
from shardviz.program.plan import Plan
from shardviz.records import Collective, Value
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.stages import Stage
from shardviz.study import mending
from shardviz.study.answer import Found, Search, WhyNot
from shardviz.study.mends import Mends
from shardviz.study.search import search
from shardviz.study.trying import WAITING

log = logging.getLogger(__name__)

Steps = Generator[Any, None, None]
T = TypeVar("T")
FOUND = "best found"

HUNT = 30.0
"""Seconds that the search may take."""
_IDLE = 1.5
"""Seconds without a change before what helps is tried."""
_CONFIRMED = 120.0
"""Seconds that the partitioner may take for a preset."""
_COUNTED = 0.5
"""Seconds after which it is said how many were tried, where nothing else is new."""
_MOST_REMEDIED = 24
_MOST_WHY = 8
_SLICE = 0.02
"""Seconds of work before others are asked."""
_PAUSE = 0.02
"""Seconds for others: a message passes through several turns of a kernel's loop before it is answered."""
_WAIT = 0.05
"""Seconds until a waiting step is tried again."""


class Chore:
    """Work in slices: a generator whose steps, each of tens of milliseconds, run where the inbox's owner is; one that
    yields `WAITING` can only wait. Where an event loop runs (a kernel) it is taken up again and again until it ends or
    is stopped, which closes the generator; where none runs (a script, a test) it is done at once. `running`: work is
    left.

    >>> done = []
    >>> chore = Chore(Inbox(), (done.append(n) for n in range(3)))
    >>> chore.start()
    >>> done, chore.running
    ([0, 1, 2], False)
    """

    def __init__(self, inbox: Inbox, steps: Generator[Any, None, None]):
        self._inbox, self._steps = inbox, steps
        self.running = True

    def start(self, delay: float = 0.0) -> None:
        """Starts the work. Under an event loop it returns at once, and the work begins after `delay` seconds."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            while self.running:
                if self._work():
                    time.sleep(_WAIT)
            return
        loop.call_later(delay, self._slice, loop)

    def stop(self) -> None:
        """Stops the work: the step that is running is its last."""
        if self.running:
            self.running = False
            with suppress(ValueError):  # it stops itself: then it ends by itself too
                self._steps.close()

    def _slice(self, loop: asyncio.AbstractEventLoop) -> None:
        waits = self.running and self._work()
        if self.running and not loop.is_closed():
            loop.call_later(_WAIT if waits else _PAUSE, self._slice, loop)

    def _work(self) -> bool:
        """Runs steps for the time of a slice; whether the last step can only wait."""
        until, waits = time.monotonic() + _SLICE, False
        try:
            while self.running and not waits and time.monotonic() < until:
                waits = self._inbox.run(lambda: next(self._steps)) is WAITING
        except BaseException as error:
            self.running = False
            if not isinstance(error, StopIteration):
                raise
        return waits


class Board(Protocol):
    """Where a chore reads what is known, and puts what it has found."""

    asking: Answers

    @property
    def now(self) -> Snapshot: ...

    def put(self, **parts: Any) -> None:
        """Replaces parts of it."""
        ...


class Background:
    """The chores of an explorer, by name those begun last: they read and change the board, done by the owner of the
    inbox. It rests while nobody looks on: then nothing is tried unasked."""

    def __init__(self, board: Board, inbox: Inbox):
        self.rests = True
        self.chores: dict[str, Chore] = {}
        self._board, self._inbox = board, inbox
        self._mended: dict[Any, Remedies] = {}
        self._card = ""  # that of the search
        self._question: object | None = None  # that is being answered

    def start(self, chore: str, about: Any = None) -> None:
        """Begins a chore that an edit asked for, by its name."""
        match chore:
            case "dimensions":
                self._find_dimensions()
            case "why":
                self._ask_why(about)
            case _:
                steps = {"presets": self._try_presets, "hunt": self._hunt, "mend": self._mend}
                self._begin(chore, steps[chore]())

    def _begin(self, name: str, steps: Steps, delay: float = 0.0) -> None:
        """Begins a chore; one of the same name is ended first."""
        self.end(name)
        self.chores[name] = Chore(self._inbox, steps)
        self.chores[name].start(delay)

    def end(self, name: str) -> None:
        """Ends a chore; what it has found stays."""
        if name == "why":
            self._question = None
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
        """What follows from a change of these parts of the `Snapshot`: an answer about another plan goes, and what
        helps is tried when nothing more has changed for a moment."""
        now = self._board.now
        if not changed & {"plan", "report", "machine", "progress"}:
            return
        self.end("mend")
        if now.why.name and ("machine" in changed or now.why.of != now.plan):
            self.end("why")
            self._board.put(why=Asked())
        key = now.plan, now.machine.machine
        if now.remedies.of != now.plan or "machine" in changed:
            remedies = self._mended.get(key, Remedies())
            if remedies != now.remedies:
                self._board.put(remedies=remedies)
        if self.rests or now.progress.busy or key in self._mended:
            return
        if now.logical.found is None and len(now.report.arguments) > MOST_AT_ONCE:
            return  # what helps is tried along the logical dimensions: nobody asked for these, and they take minutes
        with suppress(RuntimeError):  # a script has no loop, and asks itself
            asyncio.get_running_loop()
            self._begin("mend", self._mend(), _IDLE)

    # Presets, the search, mends.

    def _offers(self, **parts: Any) -> None:
        self._board.put(offers=replace(self._board.now.offers, **parts))

    def _try_presets(self) -> Steps:
        ask, now = self._board.asking, self._board.now
        variant = now.bound.variant
        try:
            varied = of_variant(ask.program, variant) if variant else ask.program
            presets = list(varied._untried_presets(now.plan.mesh))
        except ShardvizError as error:
            self._offers(busy=False, trouble=str(error))
            return
        tried: dict[str, Offer] = {}
        for preset in presets:
            yield
            plan = preset.plan.with_options(now.plan.options)._replace(variant=variant)
            offer = Offer(name=preset.name, text=preset.text, plan=plan)
            try:
                results = ask.results(plan, self._board.now.machine)
                report = results.reports["propagated"]
                if why := preset.broken(report):
                    offer = replace(offer, trouble=f"not offered: {why}")
                else:
                    offer = replace(offer, results=results)
            except ShardvizError as error:
                offer = replace(offer, trouble=str(error))
            tried[offer.name] = min(offer, tried.get(offer.name, offer), key=lambda o: o.rank)
            self._offers(items=tuple(sorted(merged_offers(tried.values()), key=lambda o: o.rank)))
        yield from self._confirm(list(self._board.now.offers.items))
        self._offers(busy=False)

    def _confirm(self, offers: list[Offer]) -> Steps:
        """Has the partitioner confirm what is first before it is first; what it refutes moves."""
        ask, machine = self._board.asking, self._board.now.machine
        while offers and (first := offers[0]).results is not None:
            if (
                first.results.level != "propagated"
                or first.results.cost() is None
                or ask.reach(machine) == "propagated"
            ):
                return
            job = None
            try:
                job = ask.program.submit(first.plan, level="partitioned", target=machine.target, timeout=_CONFIRMED)
                while not job.done():
                    yield WAITING
                results = first.results.told(job.result())
                ask.keep(first.plan, results)
                offers[0] = replace(first, results=results)
            except ShardvizError as error:
                offers[0] = replace(first, results=None, trouble=f"not confirmed: {error}")
            finally:
                if job is not None:
                    job.stop()
            offers.sort(key=lambda o: o.rank)
            self._offers(items=tuple(offers))

    def _hunt(self) -> Steps:
        now, best, state = self._board.now, None, None
        self._card = ""
        try:
            for state in searches(self._board.asking.program, now.plan, now.machine.machine):
                if state.best is not None and state.best is not best:
                    best = state.best
                    self._show(state, best)
                share = min(1.0, state.seconds / HUNT)
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

    def _show(self, state: Search, best: Found) -> None:
        """Makes the search's best plan a card, in the place of its card before, unless a person is at that one."""
        now, here = self._board.now, self._card
        results, deck = self._board.asking.results(best.plan, now.machine), now.deck
        note = f"found: {plural(len(state.tried), 'plan')} tried"
        if not any(c.id == here for c in deck.cards) or here == deck.at:
            deck, self._card = deck.added(best.plan, results, name=FOUND, note=note)
        why = (best.text, *map(_words, state.why_not[:_MOST_WHY]))
        self._board.put(deck=deck.filled(self._card, best.plan, results, note=note, why=why))

    def _mend(self) -> Steps:
        now, due = self._board.now, 0.0
        plan, machine = now.plan, now.machine.machine
        remedies = Remedies(of=plan)
        try:
            for step in mends(self._board.asking.program, now.report, machine, plan):
                if isinstance(step, Mends):
                    remedies = replace(remedies, mends=step)
                    if remedies.items != self._board.now.remedies.items or time.monotonic() >= due:
                        self._board.put(remedies=replace(remedies, busy=True))
                        due = time.monotonic() + _COUNTED
                yield step
        except ShardvizError as error:
            remedies = replace(remedies, trouble=str(error))
        except Exception:
            log.exception("internal error of shardviz while it tried mends")
            remedies = replace(remedies, trouble="internal error of shardviz; the kernel's log has it")
        self._mended[plan, machine] = remedies
        for oldest in list(self._mended)[:-_MOST_REMEDIED]:
            self._mended.pop(oldest)
        self._board.put(remedies=remedies)

    # Questions.

    def _ask_why(self, subject: Value | Collective) -> None:
        """Has a question answered; `Snapshot.why` has it. One that was asked before is given up."""
        now = self._board.now
        asked, machine = now.why, now.machine.machine
        question = self._question = object()
        meant, trouble = _meant(subject, now.report, now.results.reports["propagated"])
        target = None if machine.chip.kind == "cpu" else machine

        def put(**parts: Any) -> None:
            if self._question is question:
                self._board.put(why=replace(asked, **parts))

        def tell(tried: int) -> None:
            if self._question is not question:
                raise ShardvizError("nobody waits for this answer any more")
            self._inbox.post(lambda: put(tried=tried))

        def find() -> dict[str, Any]:
            if meant is None:
                return {"trouble": trouble}
            ask = self._board.asking.program.why
            return {"answer": ask(now.plan, meant, axis=asked.axis or None, target=target, pause=tell)}

        self._elsewhere("why", find, lambda why, trouble: put(busy=False, **(why or {"trouble": trouble})))

    def _find_dimensions(self) -> None:
        """Has the logical dimensions found: it takes a second for a large model."""
        find = lambda: self._board.asking.program.dimensions  # noqa: E731
        self._elsewhere(
            "dimensions",
            find,
            lambda dimensions, trouble: self._board.put(logical=Logical(dimensions, trouble=trouble)),
        )

    def _elsewhere(self, name: str, find: Callable[[], T], put: Callable[[T | None, str], None]) -> None:
        """Has something found on another thread (here, where no event loop runs); `put` takes it, or why there is none,
        where the state's owner is."""

        def run() -> None:
            result, trouble = None, f"internal error of shardviz while it looked for the {name}"
            try:
                result, trouble = find(), ""
            except ShardvizError as error:
                trouble = str(error)
            finally:  # a page must not wait for ever
                self._inbox.post(lambda: put(result, trouble))

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            run()
        else:
            threading.Thread(target=run, name=f"shardviz-{name}", daemon=True).start()

    # The step as it would run, walked while somebody looks at it.

    def find_timelines(self) -> None:
        """Has the timelines made of the open card and of the one that it is compared with."""
        card, other = self._board.now.deck.now, self._board.now.deck.other
        cards = (card, other) if other is not card and card.results.level in other.results.reports else (card,)
        costs = tuple(cost for each in cards if (cost := each.results.cost(card.results.level)) is not None)
        of = self._board.now.timelines.of
        if len(of) == len(costs) and all(map(operator.is_, of, costs)):
            return

        def put(timelines: tuple[Timeline, ...] | None, trouble: str) -> None:
            if self._board.now.timelines.of is costs:  # else others are asked for
                self._board.put(timelines=Timelines(costs, timelines or (), trouble))

        self._board.put(timelines=Timelines(costs))
        if costs:
            self._elsewhere("timeline", lambda: tuple(cost.timeline for cost in costs), put)

    # Texts, made while somebody looks at them.

    def find_stages(self) -> None:
        """Has the texts of the plan made."""
        plan, program = self._board.now.plan, self._board.asking.program
        if plan in self._board.now.stages:
            return

        def put(items: tuple[Stage, ...] | None, trouble: str) -> None:
            if plan in self._board.now.stages:  # else nobody looks at them any more
                self._board.put(stages={plan: Stages(items or (), trouble=trouble)})

        self._board.put(stages={plan: Stages(busy=True)})
        self._elsewhere("texts", lambda: tuple(program.stages(plan)), put)


def searches(program: Program, plan: Plan, machine: Machine) -> Iterator[Search]:
    """What a search knows after each of its steps, at level propagated (a card that is opened is compiled, not before).
    It begins with a plan where that has as many devices as the machine."""
    first = plan if plan.mesh.size == machine.size else None
    searching = search(program, machine, seconds=HUNT, plan=first, level="propagated", stream=True)
    state = searching.state
    for step in searching.steps():
        progress = replace(state, tried=tuple(searching.tried.values()), seconds=searching.elapsed)
        state = step if isinstance(step, Search) else progress
        yield state


def mends(program: Program, report: Report, machine: Machine, plan: Plan) -> Iterator[Any]:
    """What is known of what helps a plan, step by step; `WAITING` while a compile runs."""
    return mending.mends(program, report, machine.text, plan=plan, stream=True).steps()


def _meant(subject: Value | Collective, seen: Report, report: Report) -> tuple[Value | Collective | None, str]:
    """The same thing in the propagated report; where there is none, why."""
    if isinstance(subject, Collective):
        return alike(subject, report.collectives) or subject, ""  # it says what XLA's partitioner makes it for
    outer = next((v for v in (*report.arguments, *report.outputs) if v.name == subject.name), None)
    if outer is not None or seen.level == report.level:
        return outer or subject, ""
    match = counterpart(subject, seen.intermediates, report.intermediates)
    if match is None:
        why = "Shardy's propagation, which answers this, has no such value: XLA's partitioner made it from others"
        return None, why
    return next(v for v in report.intermediates if v.name == match.name), ""


def _words(why: WhyNot) -> str:
    """`w1:2 by model, not whole; which would cost +0.41 s, +3.2 GB memory: because ...`."""
    sign = "+" if why.seconds >= 0 else "−"
    moved = "+" if why.bytes >= 0 else "−"
    chosen = why.chosen if why.chosen.startswith(why.decision) else f"{why.decision} {why.chosen}"
    return (
        f"{chosen}, not {why.other}; which would cost {sign}{format_seconds(abs(why.seconds))}, "
        f"{moved}{format_bytes(abs(why.bytes))} memory: {why.reason}"
    )
