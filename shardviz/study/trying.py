"""One loop that tries plans: proposals are scored, the best of them are confirmed by a compiler, until it is stopped.

A search and the mends of a report are its uses. What is special of each is a generator of steps: a state (there is
news), None (something was done, and nothing is new) or a `Wait` (nothing can be done until then). A script waits where
the steps do; whoever has other things to do in between takes the `steps` and never waits.

>>> class Countdown(Trying[int]):
...     left = 2
...     def _run(self):
...         while self.left and not self.stopped:
...             self.left -= 1
...             yield self.state
...             yield None
...     @property
...     def state(self):
...         return self.left
>>> list(Countdown()), list(Countdown().steps())
([1, 0], [1, None, 0, None])
"""

from __future__ import annotations

import gc
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shardviz.ask.program import Program
from shardviz.ask.submitting import ReportFuture
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.program.plan import Plan

WAITING = "waiting"
"""A step in which nothing was done: what is waited for is not there."""

S = TypeVar("S")


@dataclass(frozen=True)
class Wait:
    """What a loop needs before it can go on: one of the futures done, or so late a time by `time.monotonic`."""

    futures: Sequence[Future[Any]]
    until: float = math.inf

    @property
    def over(self) -> bool:
        return not self.futures or any(f.done() for f in self.futures) or time.monotonic() >= self.until

    def block(self) -> None:
        if self.futures:
            seconds = None if self.until == math.inf else max(0.0, self.until - time.monotonic())
            wait(self.futures, seconds, FIRST_COMPLETED)


Step = Any
"""A state, None or a `Wait`."""


class Trying(ABC, Generic[S]):
    """What is being tried: an iterator of states, one for each step forward.

    It may be left at any time, or stopped, from another thread too; `state` is what is known by then.

    Attributes:
        begun: when it began, by `time.monotonic`.
        stopped: whether it was.
        shares: whether this process has other things to do in between.
        compiles: the compiles that go on, by their plans.
    """

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.stopped = self.shares = False
        self.compiles: dict[Plan, ReportFuture] = {}
        self._steps = self._all()

    @property
    @abstractmethod
    def state(self) -> S:
        """What is known now."""

    @abstractmethod
    def _run(self) -> Iterator[Step]:
        """The steps."""

    def __iter__(self) -> Iterator[S]:
        return self

    def __next__(self) -> S:
        for step in self._steps:
            if isinstance(step, Wait):
                step.block()
            elif step is not None:
                return step
        raise StopIteration

    def steps(self) -> Iterator[S | str | None]:
        """Its steps, none of which waits: a state, `WAITING`, or None where nothing is new."""
        self.shares = True
        try:
            for step in self._steps:
                while isinstance(step, Wait) and not step.over:
                    yield WAITING
                yield None if isinstance(step, Wait) else step
        finally:
            self.stop()
            self._steps.close()

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.begun

    def stop(self) -> None:
        """Ends it, from any thread: compiles are stopped, and what is known is the answer."""
        self.stopped = True
        for future in list(self.compiles.values()):
            future.stop()

    def _all(self) -> Generator[Step, None, None]:
        # a report is some hundred thousand objects; the collector would look at all that the kernel holds, too
        freezes = not gc.get_freeze_count()
        if freezes:
            gc.freeze()
        try:
            yield from self._run()
        finally:
            if freezes:
                gc.unfreeze()
            self._end()

    def _end(self) -> None:
        """Lets go of what it has, however it ends."""
        for future in list(self.compiles.values()):
            future.stop()

    def _submit(self, program: Program, plan: Plan, level: str, target: str, timeout: float | None = None) -> None:
        """Has a plan compiled in another process, which works while others are scored. Raises ShardvizError as
        `Program.submit`."""
        if not self.stopped and plan not in self.compiles:
            self.compiles[plan] = program.submit(plan, level, target=target, timeout=timeout)

    def _waits(self, plans: Sequence[Plan], until: float = math.inf) -> Iterator[Wait]:
        """Waits until all of the compiles of some plans are done."""
        for plan in plans:
            future = self.compiles.get(plan)
            while future is not None and not (self.stopped or future.done() or time.monotonic() >= until):
                yield Wait((future,), until)

    def _compiled(self, plan: Plan) -> Report | ShardvizError | None:
        """What came of a compile; None where none was asked for, or it is not done."""
        future = self.compiles.get(plan)
        if future is None or not future.done():
            return None
        error = future.exception()
        if error is not None and not isinstance(error, ShardvizError):
            raise error
        return future.result() if error is None else error
