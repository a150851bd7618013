"""A loop that tries plans: proposals are scored and the best are confirmed by a compiler, until it is stopped.

`search` and `fixes` use it. Each implements a generator of steps: a state (news), None (work without news) or a `Wait`
(no work until a future is done). Iterating over a `Trying` blocks on each `Wait`. Its `steps` never block, for callers
with other work.

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
from shardviz.plan.plan import Plan

WAITING = "waiting"
"""A step without work, because a future is not done."""

S = TypeVar("S")


@dataclass(frozen=True)
class Wait:
    """A condition to wait for: any of the futures is done, or `time.monotonic` reaches `until`."""

    futures: Sequence[Future[Any]]
    until: float = math.inf

    @property
    def over(self) -> bool:
        return not self.futures or any(f.done() for f in self.futures) or time.monotonic() >= self.until


Step = Any
"""A state, None or a `Wait`."""


class Trying(ABC, Generic[S]):
    """An iterator of states, one per step forward.

    It may be left or stopped at any time, also from another thread; `state` is the result so far.

    Attributes:
        begun: the start, by `time.monotonic`.
        until: when the time is over, by `time.monotonic`.
        shares: whether this process has other work in between.
        compiles: plan and level → its running or finished compile.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self.begun = time.monotonic()
        self.until = self.begun + seconds
        self.shares = self._stopped = False
        self.compiles: dict[tuple[Plan, str], ReportFuture] = {}
        self._steps = self._all()

    @property
    @abstractmethod
    def state(self) -> S:
        """The result so far."""

    @abstractmethod
    def _run(self) -> Iterator[Step]: ...
    def __iter__(self) -> Iterator[S]:
        return self

    def __next__(self) -> S:
        for step in self._steps:
            if isinstance(step, Wait):
                until = min(step.until, self.until)
                seconds = None if until == math.inf else max(0.0, until - time.monotonic())
                wait(step.futures, seconds, FIRST_COMPLETED)
            elif step is not None:
                return step
        raise StopIteration

    def steps(self) -> Iterator[S | str | None]:
        """Yield a state, `WAITING`, or None for each step, without blocking."""
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
        """Seconds since the start."""
        return time.monotonic() - self.begun

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called, or the time is over."""
        return self._stopped or time.monotonic() >= self.until

    def stop(self) -> None:
        """Stop the loop and its compiles; may be called from any thread."""
        self._stopped = True
        for future in list(self.compiles.values()):
            future.stop()

    def _all(self) -> Generator[Step, None, None]:
        try:
            yield from self._run()
        finally:
            self._end()

    def _end(self) -> None:
        """Release all resources; called however the loop ends."""
        self.stop()

    def _submit(
        self, program: Program, plan: Plan, level: str, target: str, timeout: float | None = None
    ) -> ReportFuture | None:
        """Compile a plan in another process, once, and return its future; None if the loop was stopped. Raises
        ShardvizError as `Program.submit`."""
        if not self.stopped and (plan, level) not in self.compiles:
            self.compiles[plan, level] = program.submit(plan, level, target=target, timeout=timeout)
        return self.compiles.get((plan, level))


def outcome(future: ReportFuture | None) -> Report | ShardvizError | None:
    """Return a compile's report or error; None if it was not requested or is not done."""
    try:
        return future.result() if future is not None and future.done() else None
    except ShardvizError as error:
        return error
