"""Background work of an explorer in short slices: presets, the search, fixes, questions and texts.

A chore is a generator that puts its results into the `Snapshot` and yields to let other work run. There is at most one
chore per kind; a newer one replaces it. It uses the plan from the moment it began.

A question names a value or collective of the displayed report, which may be the partitioner's. It is answered at the
propagated level: `counterpart` maps values, and line and axes map collectives. An answer belongs to one plan and one
machine and is removed when either changes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import operator
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from shardviz import processes
from shardviz.ask.derived import of_variant
from shardviz.ask.program import Program
from shardviz.ask.why import alike
from shardviz.costs.machine import Machine
from shardviz.costs.timeline import Timeline
from shardviz.errors import ShardvizError
from shardviz.explorer.apply import Answers
from shardviz.explorer.compile_loop import Inbox
from shardviz.explorer.logical import Logical
from shardviz.explorer.selection import counterpart
from shardviz.explorer.sharing import Sharing
from shardviz.explorer.snapshot import Asked, Snapshot, Timelines, TriedFixes, TriedPreset, merged_presets
from shardviz.explorer.texts import Stages
from shardviz.judge.report import Report
from shardviz.plan.plan import Plan
from shardviz.records import Collective, Value
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.stages import Stage
from shardviz.runs.sets import ProgramSet
from shardviz.study import fixing, simulated
from shardviz.study.answer import Finalist, Search, WhyNot
from shardviz.study.fixes import Fixes
from shardviz.study.search import search
from shardviz.study.simulated import Simulated
from shardviz.study.trying import WAITING

log = logging.getLogger(__name__)

Steps = Generator[Any, None, None]
T = TypeVar("T")
FOUND = "best found"

SEARCH_SECONDS = 30.0
"""Time limit of the search in seconds."""
_IDLE = 1.5
"""Seconds without a change before fixes are tried."""
_CONFIRMED = 120.0
"""Time limit in seconds for partitioning a preset."""
_COUNTED = 0.5
"""Seconds between updates that only change the number of tried fixes."""
_MOST_FIXED = 24
_MOST_WHY = 8
_SLICE = 0.02
"""Seconds of work per slice."""
_PAUSE = 0.02
"""Seconds between slices, for other work: a kernel's loop needs several turns to answer a message."""
_WAIT = 0.05
"""Seconds until a waiting step is tried again."""


class Chore:
    """Work in slices: a generator whose steps take tens of milliseconds and run in the inbox owner's thread.

    A step that yields `WAITING` has nothing to do yet. Under an event loop (a kernel) slices run until the generator
    ends or is stopped. Without one (a script, a test) all steps run at once. `running` says whether work is left.

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
        """Start the work. Under an event loop this returns at once, and the work begins after `delay` seconds."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            while self.running:
                if self._work():
                    time.sleep(_WAIT)
            return
        loop.call_later(delay, self._slice, loop)

    def stop(self) -> None:
        """Stop the work after the current step."""
        if self.running:
            self.running = False
            with suppress(ValueError):  # it stops itself: then it ends by itself too
                self._steps.close()

    def _slice(self, loop: asyncio.AbstractEventLoop) -> None:
        waits = self.running and self._work()
        if self.running and not loop.is_closed():
            loop.call_later(_WAIT if waits else _PAUSE, self._slice, loop)

    def _work(self) -> bool:
        """Run steps for one slice, and return whether the last step waits."""
        until, waits = time.monotonic() + _SLICE, False
        try:
            while self.running and not waits and time.monotonic() < until:
                waits = self._inbox.run(lambda: next(self._steps)) is WAITING
        except BaseException as error:  # a Ctrl-C too ends the chores
            self.running = False
            if not isinstance(error, StopIteration):
                raise
        return waits


class Board(Protocol):
    """The place where chores read the snapshot and put their results."""

    asking: Answers

    @property
    def now(self) -> Snapshot: ...

    def put(self, **parts: Any) -> None:
        """Replace parts of the snapshot."""
        ...


class Background:
    """The chores of an explorer, by name.

    They read and change the board in the inbox owner's thread. While no view is open it rests: no fixes are tried
    without a request.
    """

    def __init__(self, board: Board, inbox: Inbox):
        self.rests = True
        self.chores: dict[str, Chore] = {}
        self._board, self._inbox = board, inbox
        self._fixed: dict[Any, TriedFixes] = {}
        self._card = ""  # the search's card
        self._question: object | None = None  # the current question

    def start(self, chore: str, about: Any = None) -> None:
        """Start a chore by its name."""
        match chore:
            case "dimensions":
                self._find_dimensions()
            case "why":
                self._ask_why(about)
            case _:
                steps = {"presets": self._try_presets, "search": self._search, "fix": self._fix, "code": self._run_code}
                self.begin(chore, steps[chore]())

    def begin(self, name: str, steps: Steps, delay: float = 0.0) -> None:
        """Begin a chore in place of an earlier one of its name."""
        self.end(name)
        self.chores[name] = Chore(self._inbox, steps)
        self.chores[name].start(delay)

    def end(self, name: str) -> None:
        """End a chore; its results stay."""
        if name == "why":
            self._question = None
        if name in self.chores:
            self.chores.pop(name).stop()

    def rest(self) -> None:
        """Pause fixes until a view opens."""
        self.rests = True
        self.end("fix")

    def close(self) -> None:
        """End all chores, and the worker that tries fixes."""
        self.rests = True
        for name in list(self.chores):
            self.end(name)
        fixing.end_worker()

    def wake(self) -> None:
        """Resume when a view opens."""
        if self.rests:
            self.rests = False
            self.follow(frozenset({"progress"}))

    def follow(self, changed: frozenset[str]) -> None:
        """React to changed parts of the `Snapshot`: remove answers about another plan, and try fixes after a moment
        without changes."""
        now = self._board.now
        if now.sharing.programs is not None and not self.rests and changed - {"progress", "sharing"}:
            self.begin("sharing", self._share())
        if not changed & {"plan", "report", "machine", "progress", "logical"}:
            return
        self.end("fix")
        if now.why.name and ("machine" in changed or now.why.of != now.plan):
            self.end("why")
            self._board.put(why=Asked())
        if now.simulated.of not in (None, now.plan):
            self.end("code")
            self._board.put(simulated=Simulated())
        key = now.plan, now.machine.machine
        if now.tried_fixes.of != now.plan or "machine" in changed:
            tried_fixes = self._fixed.get(key, TriedFixes())
            if tried_fixes != now.tried_fixes:
                self._board.put(tried_fixes=tried_fixes)
        if self.rests or now.progress.busy or now.logical.busy or key in self._fixed:
            return  # fixes need the logical dimensions, too
        with suppress(RuntimeError):  # a script has no loop; it asks for fixes explicitly
            asyncio.get_running_loop()
            self.begin("fix", self._fix(), _IDLE)

    # Presets, the search, fixes.

    def _presets(self, **parts: Any) -> None:
        self._board.put(presets=replace(self._board.now.presets, **parts))

    def _try_presets(self) -> Steps:
        ask, now = self._board.asking, self._board.now
        variant = now.bound.variant
        try:
            varied = of_variant(ask.program, variant) if variant else ask.program
            presets = list(varied._untried_presets(now.plan.mesh))
        except ShardvizError as error:
            self._presets(busy=False, trouble=str(error))
            return
        tried: dict[str, TriedPreset] = {}
        for preset in presets:
            yield
            plan = preset.plan.with_options(now.plan.options)._replace(variant=variant)
            trial = TriedPreset(name=preset.name, text=preset.text, plan=plan)
            try:
                results = ask.results(plan, self._board.now.machine)
                report = results.reports["propagated"]
                if why := preset.broken(report):
                    trial = replace(trial, trouble=f"not offered: {why}")
                else:
                    trial = replace(trial, results=results)
            except ShardvizError as error:
                trial = replace(trial, trouble=str(error))
            tried[trial.name] = min(trial, tried.get(trial.name, trial), key=lambda o: o.rank)
            self._presets(items=tuple(sorted(merged_presets(tried.values()), key=lambda o: o.rank)))
        yield from self._confirm(list(self._board.now.presets.items))
        self._presets(busy=False)

    def _confirm(self, presets: list[TriedPreset]) -> Steps:
        """Partition the first preset before it is shown as the best, and reorder if its rank changes."""
        ask, machine = self._board.asking, self._board.now.machine
        while presets and (first := presets[0]).results is not None:
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
                results = first.results.with_report(job.result())
                ask.keep(first.plan, results)
                presets[0] = replace(first, results=results)
            except ShardvizError as error:
                presets[0] = replace(first, results=None, trouble=f"not confirmed: {error}")
            finally:
                if job is not None:
                    job.stop()
            presets.sort(key=lambda o: o.rank)
            self._presets(items=tuple(presets))

    def _search(self) -> Steps:
        now, best, state = self._board.now, None, None
        self._card = ""
        try:
            level = "propagated" if self._board.asking.goal == "propagated" else "partitioned"
            for step in searches(self._board.asking.program, now.plan, now.machine.machine, level):
                if step is not WAITING:
                    state = step
                    if state.best is not None and state.best is not best:
                        best = state.best
                        self._show(state, best)
                    share = min(1.0, state.seconds / SEARCH_SECONDS)
                    self._presets(progress=f"{plural(len(state.tried), 'plan')} tried", share=share)
                yield step
            if state is not None and state.best is not None:
                self._show(state, state.best)  # adds the alternatives of each decision
        except ShardvizError as error:
            self._presets(progress="", share=None, trouble=str(error))
            return
        if not self._card:
            tried = 0 if state is None else len(state.tried)
            self._presets(progress="", trouble=f"{plural(tried, 'plan')} tried, and none could be scored")
        self._presets(share=None)

    def _show(self, state: Search, best: Finalist) -> None:
        """Make the search's best plan a card. It replaces the search's earlier card, unless that card is open."""
        now, here = self._board.now, self._card
        results, deck = self._board.asking.results(best.plan, now.machine), now.deck
        if best.report.level != "propagated":
            results = results.with_report(best.report)
            self._board.asking.keep(best.plan, results)
        note = "found by the search"
        if not any(c.id == here for c in deck.cards) or here == deck.at:
            deck, self._card = deck.added(best.plan, results, name=FOUND, note=note)
        why = (best.text, *map(_words, state.why_not[:_MOST_WHY]))
        self._board.put(deck=deck.filled(self._card, best.plan, results, note=note, why=why))
        self._presets(best=self._card)

    def _fix(self) -> Steps:
        now, due = self._board.now, 0.0
        plan, machine = now.plan, now.machine.machine
        tried_fixes = TriedFixes(of=plan)
        try:
            for step in fixes(self._board.asking.program, now.report, machine, plan):
                if isinstance(step, Fixes):
                    tried_fixes = replace(tried_fixes, fixes=step)
                    if tried_fixes.items != self._board.now.tried_fixes.items or time.monotonic() >= due:
                        self._board.put(tried_fixes=replace(tried_fixes, busy=True))
                        due = time.monotonic() + _COUNTED
                yield step
        except ShardvizError as error:
            tried_fixes = replace(tried_fixes, trouble=str(error))
        except Exception:  # a fault of shardviz must not end the explorer
            log.exception("internal error of shardviz while it tried fixes")
            tried_fixes = replace(tried_fixes, trouble="internal error of shardviz; the kernel's log has it")
        self._fixed[plan, machine] = tried_fixes
        for oldest in list(self._fixed)[:-_MOST_FIXED]:
            self._fixed.pop(oldest)
        self._board.put(tried_fixes=tried_fixes)

    # The programs that share arrays.

    def share(self, programs: ProgramSet, name: str) -> None:
        """Compute the wishes and costs of programs that share arrays with this one, which is `name` in the set."""
        self._board.put(sharing=Sharing(programs, name))
        self.begin("sharing", self._share())

    def _share(self) -> Steps:
        now = self._board.now
        for sharing in now.sharing.steps(now.deck, now.selection.name):
            if sharing is not self._board.now.sharing:
                self._board.put(sharing=sharing)
            yield

    # The plan's code, run.

    def _run_code(self) -> Steps:
        plan, begun, job = self._board.now.plan, time.monotonic(), None
        running = Simulated(of=plan, busy=True)
        try:
            running = replace(running, run=(yield from simulated.small_run(self._board.asking.program, plan)))
            assert running.run is not None
            job = processes.submit(running.run.trial, timeout=simulated.SECONDS, memory_limit=simulated.MEMORY)
            while not job.done():
                seconds = float(int(time.monotonic() - begun))
                if seconds != running.seconds or self._board.now.simulated.run is None:
                    running = replace(running, seconds=seconds)
                    self._board.put(simulated=running)
                yield WAITING
            running = replace(running, results=simulated.compared(job))
        except ShardvizError as error:
            running = replace(running, trouble=str(error))
        except Exception:  # a fault of shardviz must not end the explorer
            log.exception("internal error of shardviz while it ran the code")
            running = replace(running, trouble="internal error of shardviz; the kernel's log has it")
        finally:
            if job is not None:
                job.stop()
        self._board.put(simulated=replace(running, busy=False))

    # Questions.

    def _ask_why(self, subject: Value | Collective) -> None:
        """Answer a question for `Snapshot.why`; an earlier question is dropped."""
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
                raise ShardvizError("this question was replaced by a newer one")
            self._inbox.post(lambda: put(tried=tried))

        def find() -> dict[str, Any]:
            if meant is None:
                return {"trouble": trouble}
            ask = self._board.asking.program.why
            return {"answer": ask(now.plan, meant, axis=asked.axis or None, target=target, pause=tell)}

        self._elsewhere("why", find, lambda why, trouble: put(busy=False, **(why or {"trouble": trouble})))

    def _find_dimensions(self) -> None:
        last_shown = time.monotonic()

        def tell(share: float) -> None:
            nonlocal last_shown
            if time.monotonic() >= last_shown + _COUNTED:
                last_shown = time.monotonic()
                self._inbox.post(lambda: self._board.put(logical=Logical(busy=True, share=share)))

        self._elsewhere(
            "dimensions",
            lambda: self._board.asking.program._find_dimensions(tell),
            lambda dimensions, trouble: self._board.put(logical=Logical(dimensions, trouble=trouble)),
        )

    def _elsewhere(self, name: str, find: Callable[[], T], put: Callable[[T | None, str], None]) -> None:
        """Run `find` on another thread and pass its result, or an error text, to `put` in the state owner's thread.

        Without an event loop, or if no thread can be started, `find` runs here.
        """

        def run() -> None:
            result, trouble = None, f"internal error of shardviz while it looked for the {name}"
            try:
                result, trouble = find(), ""
            except ShardvizError as error:
                trouble = str(error)
            finally:  # the page is told in every case
                self._inbox.post(lambda: put(result, trouble))

        try:
            asyncio.get_running_loop()
            threading.Thread(target=run, name=f"shardviz-{name}", daemon=True).start()
        except RuntimeError:
            run()

    # The step as it would run, walked while somebody looks at it.

    def find_timelines(self) -> None:
        """Compute the timelines of the open card and of the card it is compared with."""
        card, other = self._board.now.deck.now, self._board.now.deck.other
        cards = (card, other) if other is not card and card.results.level in other.results.reports else (card,)
        costs = tuple(cost for each in cards if (cost := each.results.cost(card.results.level)) is not None)
        of = self._board.now.timelines.of
        if len(of) == len(costs) and all(map(operator.is_, of, costs)):
            return

        def put(timelines: tuple[Timeline, ...] | None, trouble: str) -> None:
            if self._board.now.timelines.of is costs:  # otherwise newer timelines were requested
                self._board.put(timelines=Timelines(costs, timelines or (), trouble))

        self._board.put(timelines=Timelines(costs))
        if costs:
            self._elsewhere("timeline", lambda: tuple(cost.timeline for cost in costs), put)

    # Texts, made while somebody looks at them.

    def find_stages(self) -> None:
        """Compute the texts of the plan."""
        plan, program = self._board.now.plan, self._board.asking.program
        if plan in self._board.now.stages:
            return

        def put(items: tuple[Stage, ...] | None, trouble: str) -> None:
            if plan in self._board.now.stages:  # otherwise no view shows them any more
                self._board.put(stages={plan: Stages(items or (), trouble=trouble)})

        self._board.put(stages={plan: Stages(busy=True)})
        self._elsewhere("texts", lambda: tuple(program.stages(plan)), put)


def searches(program: Program, plan: Plan, machine: Machine, level: str) -> Iterator[Any]:
    """Yield a search's state after each of its steps; `WAITING` while a compile runs.

    The search starts with the plan if that has as many devices as the machine. `level` confirms the best plans.
    """
    first = plan if plan.mesh.size == machine.size else None
    searching = search(program, machine, seconds=SEARCH_SECONDS, plan=first, level=level, stream=True)
    state = searching.state
    for step in searching.steps():
        progress = replace(state, tried=tuple(searching.tried.values()), seconds=searching.elapsed)
        state = step if isinstance(step, Search) else progress
        yield WAITING if step is WAITING else state


def fixes(program: Program, report: Report, machine: Machine, plan: Plan) -> Iterator[Any]:
    """Yield the fixes for a plan step by step; `WAITING` while a compile runs."""
    return fixing.fixes(program, report, machine.text, plan=plan, seconds=math.inf, stream=True).steps()


def _meant(subject: Value | Collective, seen: Report, report: Report) -> tuple[Value | Collective | None, str]:
    """Return the same value or collective in the propagated report; None and the reason if there is none."""
    if isinstance(subject, Collective):
        return alike(subject, report.collectives) or subject, ""  # the subject itself says why the partitioner added it
    outer = next((v for v in (*report.arguments, *report.outputs) if v.name == subject.name), None)
    if outer is not None or seen.level == report.level:
        return outer or subject, ""
    match = counterpart(subject, seen.intermediates, report.intermediates)
    if match is None:
        why = "Shardy's propagation, which answers this, has no such value: XLA's partitioner made it from other values"
        return None, why
    return next(v for v in report.intermediates if v.name == match.name), ""


def _words(why: WhyNot) -> str:
    """Return `w1:2 by model, not whole; predicted to cost +0.41 s, +3.2 GB memory: because ...`."""
    sign = "+" if why.seconds >= 0 else "−"
    moved = "+" if why.bytes >= 0 else "−"
    chosen = why.chosen if why.chosen.startswith(why.decision) else f"{why.decision} {why.chosen}"
    return (
        f"{chosen}, not {why.other}; predicted to cost {sign}{format_seconds(abs(why.seconds))}, "
        f"{moved}{format_bytes(abs(why.bytes))} memory: {why.reason}"
    )
