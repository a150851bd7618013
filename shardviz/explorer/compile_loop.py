"""The compile loop: one compile at a time, for the newest plan, a moment after the last change.

Each plan makes a `CompileTask`. `later` starts its compile after a moment without a newer task. Milestones and the end
are reported as `Progress`, some with a report. Answers to older tasks are dropped. Compiles answer on their own
threads; an `Inbox` runs their callbacks one at a time.

>>> task = CompileTask(plan=None, target="cpu", reach="partitioned", due=2, place="8 simulated devices")
>>> CompileLoop.expected(task)
Progress(status='propagating', message="asking XLA's partitioner", busy=True, trouble=None)
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from shardviz.errors import CompileStopped, ShardvizError
from shardviz.explorer.snapshot import Progress
from shardviz.judge.report import Report
from shardviz.records.report import LEVELS

if TYPE_CHECKING:
    from shardviz.ask.submitting import OnReport, ReportFuture


@dataclass(frozen=True, kw_only=True)
class CompileTask:
    """A compile to run.

    Attributes:
        plan, target: the plan, and the target to compile for.
        reach: the highest level wanted; `propagated` compiles nothing.
        due: the lowest level that is news, as an index of `LEVELS`.
        place: the machine in words.
        operations: how many operations the program has.
    """

    plan: Any
    target: Any
    reach: str
    due: int
    place: str
    operations: int = 0


_STOPPED = "stopped; the results so far are shown"


class CompileLoop:
    """Runs the newest task's compile after `debounce` seconds without a newer task, and reports its progress.

    Args:
        submit: starts a compile, given the task and a callback for reports.
        tell: called with the progress, and with a report if there is a new one.

    `inbox` serialises calls from other threads. `future` is the running compile, or None. `paces` are the seconds per
    operation of the last compile in this process: (the machine in words, level reached) → seconds.
    """

    paces: ClassVar[dict[tuple[str, str], float]] = {}

    def __init__(
        self,
        submit: Callable[[CompileTask, OnReport], ReportFuture],
        notify: Callable[[Progress, Report | None], None],
        debounce: float,
    ):
        self.inbox = Inbox()
        self.future: ReportFuture | None = None
        self._submit, self._notify, self._debounce = submit, notify, debounce
        self._pending: CompileTask | None = None
        self._turn = self._due = 0
        self._began = 0.0
        self._seconds: float | None = None

    def later(self, task: CompileTask) -> None:
        """Drop the older task, and start this task's compile after a moment without a newer task."""
        self._begin()
        if not self.expected(task).busy:
            return
        self._pending = task
        fire = partial(self._fire, self._turn)  # does nothing if there is a newer task by then
        try:
            threading.Thread(target=lambda: (time.sleep(self._debounce), self.inbox.post(fire)), daemon=True).start()
        except RuntimeError:  # the system allows no new thread: start right after this change
            self.inbox.post(fire)

    @staticmethod
    def expected(task: CompileTask) -> Progress:
        """Return the progress of a task before its compile starts."""
        if task.reach == "propagated" or task.due > LEVELS.index(task.reach):
            return Progress(LEVELS[max(task.due - 1, LEVELS.index("propagated"))], seconds=0.0)
        return Progress("propagating", "asking XLA's partitioner", busy=True)

    def hurry(self) -> None:
        """Start a waiting compile now."""
        self.inbox.run(partial(self._fire, self._turn))

    def now(self, task: CompileTask) -> None:
        """Drop the older task, and start this task's compile at once."""
        self._begin()
        self._start(task)

    def _begin(self) -> None:
        self.cancel()
        self._began, self._seconds = time.monotonic(), None

    def cancel(self) -> None:
        """Drop the task; later answers to it are ignored. If a Ctrl-C interrupts this call, it can be repeated."""
        self._turn += 1
        self._pending = None
        if self.future is not None and not self.future.done():
            self.future.stop()
        self.future = None

    def stop(self) -> None:
        """Drop the task and report that."""
        try:
            self.cancel()
        finally:
            self._fail(CompileStopped(_STOPPED))

    def _fire(self, turn: int) -> None:
        if turn == self._turn and self._pending is not None:
            self._start(self._pending)

    def _start(self, task: CompileTask) -> None:
        if task.reach == "propagated":
            return
        turn, self._due = self._turn, task.due

        def notify(report):
            return self.inbox.post(partial(self._reached, turn, task, report))

        try:
            self._pending = None
            message = f"compiling for {task.place}"
            self._notify(Progress("compiling", message, busy=True, expected=self._expected(task)), None)
            future = self.future = self._submit(task, notify)

            def ended(_: Any) -> None:
                if task.operations and not future.cancelled() and future.exception() is None:
                    self.paces[task.place, task.reach] = future.elapsed / task.operations
                self.inbox.post(partial(self._ended, turn, task, future))

            future.add_done_callback(ended)
        except BaseException as error:  # interrupts too, because the progress already says "compiling"
            self.cancel()
            self._fail(error)
            if isinstance(error, ShardvizError):
                return
            raise

    def _expected(self, task: CompileTask) -> float | None:
        pace = self.paces.get((task.place, task.reach))
        return None if pace is None else pace * task.operations

    def _reached(self, turn: int, task: CompileTask, report: Report) -> None:
        level = LEVELS.index(report.level)
        if turn != self._turn or level < self._due:
            return
        self._due = level + 1
        more = level < LEVELS.index(task.reach)
        if more:
            message = f"compiling for {task.place}; the memory plan follows"
            self._notify(Progress(report.level, message, busy=True, expected=self._expected(task)), report)
        else:
            self._notify(Progress(report.level, seconds=self._elapsed), report)

    def _ended(self, turn: int, task: CompileTask, future: ReportFuture) -> None:
        if turn != self._turn or future is not self.future:
            return
        self.future = None
        error = CompileStopped(_STOPPED) if future.cancelled() else future.exception()
        if error is None:
            try:
                report = future.result()
                self._reached(turn, task, report)
                # also if no report was new, as after a repeated compile
                self._notify(Progress(report.level, seconds=self._elapsed), None)
            except BaseException as interrupt:
                self._fail(interrupt)  # otherwise the progress would stay busy
                raise
            return
        self._fail(error)
        if not isinstance(error, ShardvizError):
            raise error

    def _fail(self, error: BaseException) -> None:
        expected = isinstance(error, ShardvizError)
        status = "stopped" if isinstance(error, CompileStopped) else "failed"
        message = str(error) if expected else f"{type(error).__name__}: {error}"
        self._notify(Progress(status, message, trouble=error, seconds=self._elapsed), None)

    @property
    def _elapsed(self) -> float:
        """Seconds from the change to its last answer."""
        if self._seconds is None:
            self._seconds = time.monotonic() - self._began
        return self._seconds


T = TypeVar("T")


class Inbox:
    """Calls from other threads, run one at a time by the state's owner.

    A compile answers on its own thread, but the state, and messages to a browser, belong to the kernel's main thread.
    So every answer is posted here and runs

    - on the kernel's event loop, if one is running;
    - or at once, in the posting thread, without a loop (a script, a test);
    - or in `wait_until`, while the owner waits for it, because a waiting cell blocks the loop.

    >>> inbox, seen = Inbox(), []
    >>> inbox.post(lambda: seen.append("answer"))
    >>> seen
    ['answer']
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._depth = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = threading.Event()

    def run(self, change: Callable[[], T]) -> T:
        """Run `change` while posted calls wait; then run the posted calls.

        This is a function and no context manager, because a Ctrl-C can arrive at any call. Leaving a context manager is
        a call, so its cleanup could be skipped.
        """
        with suppress(RuntimeError):  # there is no running loop in a script
            self._loop = asyncio.get_running_loop()
        with self._lock:
            depth = self._depth
            try:
                self._depth = depth + 1
                result = change()
            finally:
                self._depth = depth
        if self._loop is None:
            self.drain()
        return result

    def post(self, call: Callable[[], None]) -> None:
        """Have the state's owner run `call`; return at once if a loop can do it."""
        self._calls.put(call)
        loop = self._loop
        try:
            if loop is None or not loop.is_running():
                self.drain()
            else:
                self._later()
        finally:
            self._news.set()

    def drain(self) -> None:
        """Run the posted calls. If another thread holds the state, that thread runs them afterwards."""
        while not self._calls.empty():
            if not self._lock.acquire(blocking=False):
                return
            try:
                if self._depth:
                    return
                try:
                    self._depth = 1
                    with suppress(queue.Empty):
                        self._calls.get_nowait()()
                except BaseException:  # a Ctrl-C too
                    if not self._calls.empty():  # the other calls must still run
                        self._later()
                    raise
                finally:
                    self._depth = 0
            finally:
                self._lock.release()

    def _later(self) -> None:
        """Let the loop run the remaining calls; without a loop the next poster or waiter runs them."""
        with suppress(RuntimeError):  # the loop is closed
            if self._loop is not None and self._loop.is_running():
                self._loop.call_soon_threadsafe(self.drain)

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Run posted calls until `condition` holds or `timeout` seconds passed; return whether it holds."""
        deadline = time.monotonic() + timeout
        while True:
            self._news.clear()
            self.drain()
            with self._lock:  # wait for a call in another thread to notify its observers
                holds = condition()
            if holds:
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self._news.wait(min(remaining, 0.1))
