"""The compile loop: one compile at a time, for the newest plan, a moment after the last change.

Each plan makes a `CompileTask`. `later` waits until there has been no newer one for a moment, then the compile is
started; its milestones and its end are delivered as `Progress`, some with a report. Answers for an older task are
dropped. Compiles answer on threads of their own, so their answers pass through an `Inbox`, which runs one call at a
time.

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
from typing import TYPE_CHECKING, Any, TypeVar

from shardviz.errors import CompileStopped, ShardvizError
from shardviz.explorer.snapshot import Progress
from shardviz.judge.report import Report
from shardviz.records.report import LEVELS

if TYPE_CHECKING:
    from shardviz.ask.submitting import OnReport, ReportFuture


@dataclass(frozen=True, kw_only=True)
class CompileTask:
    """A compile to be made: a plan, for a target; the last level that is wanted (`reach`; nothing is compiled for
    `propagated`), the lowest, by its place in `LEVELS`, whose report is news (`due`), and the machine in words."""

    plan: Any
    target: Any
    reach: str
    due: int
    place: str


_STOPPED = "stopped; what is shown is what was known so far"


class CompileLoop:
    """Runs the newest task's compile once there was no newer one for `debounce` seconds, and tells how it goes.

    `submit` starts a compile, given the task and what to call with each report; `tell` is called with the progress, and
    with a report where one has come. All that other threads say goes through `inbox`; `future` is the compile that
    runs, None while none does.
    """

    def __init__(
        self,
        submit: Callable[[CompileTask, OnReport], ReportFuture],
        tell: Callable[[Progress, Report | None], None],
        debounce: float,
    ):
        self.inbox = Inbox()
        self.future: ReportFuture | None = None
        self._submit, self._tell, self._debounce = submit, tell, debounce
        self._pending: CompileTask | None = None
        self._turn = self._due = 0
        self._began = 0.0
        self._seconds: float | None = None

    def later(self, task: CompileTask) -> None:
        """Drops the older task, and starts this one's compile when there has been no newer one for a moment."""
        self._begin()
        if not self.expected(task).busy:
            return
        self._pending = task
        fire = partial(self._fire, self._turn)  # which does nothing where a newer task has come by then
        try:
            threading.Thread(target=lambda: (time.sleep(self._debounce), self.inbox.post(fire)), daemon=True).start()
        except RuntimeError:  # the system gives no thread: then as soon as this change is taken
            self.inbox.post(fire)

    @staticmethod
    def expected(task: CompileTask) -> Progress:
        """The progress of a task until its compile is started."""
        if task.reach == "propagated" or task.due > LEVELS.index(task.reach):
            return Progress(LEVELS[max(task.due - 1, LEVELS.index("propagated"))], seconds=0.0)
        return Progress("propagating", "asking XLA's partitioner", busy=True)

    def hurry(self) -> None:
        """Starts a compile that waits for its moment."""
        self.inbox.run(partial(self._fire, self._turn))

    def now(self, task: CompileTask) -> None:
        """Drops the older task, and starts this one's compile at once."""
        self._begin()
        self._start(task)

    def _begin(self) -> None:
        self.cancel()
        self._began, self._seconds = time.monotonic(), None

    def cancel(self) -> None:
        """Drops the task; answers to it that come later belong to an older turn. After a Ctrl-C in the midst of it, it
        can be called again."""
        self._turn += 1
        self._pending = None
        if self.future is not None and not self.future.done():
            self.future.stop()
        self.future = None

    def stop(self) -> None:
        """Drops the task and says so."""
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
        tell = lambda report: self.inbox.post(partial(self._reached, turn, task, report))  # noqa: E731
        try:
            self._pending = None
            self._tell(Progress("compiling", f"compiling for {task.place}", busy=True), None)
            future = self.future = self._submit(task, tell)
            future.add_done_callback(lambda _: self.inbox.post(partial(self._ended, turn, task, future)))
        except BaseException as error:  # an interrupt too: nobody would end what is told to be under way
            self.cancel()
            self._fail(error)
            if isinstance(error, ShardvizError):
                return
            raise

    def _reached(self, turn: int, task: CompileTask, report: Report) -> None:
        """Tells of a report that is news."""
        level = LEVELS.index(report.level)
        if turn != self._turn or level < self._due:
            return
        self._due = level + 1
        more = level < LEVELS.index(task.reach)
        message = f"compiling for {task.place}; the memory plan follows" if more else ""
        self._tell(Progress(report.level, message, busy=more, seconds=None if more else self._elapsed), report)

    def _ended(self, turn: int, task: CompileTask, future: ReportFuture) -> None:
        if turn != self._turn or future is not self.future:
            return
        self.future = None
        error = CompileStopped(_STOPPED) if future.cancelled() else future.exception()
        if error is None:
            try:
                report = future.result()
                self._reached(turn, task, report)
                # also where it told nothing new, such as a compile done again
                self._tell(Progress(report.level, seconds=self._elapsed), None)
            except BaseException as interrupt:
                self._fail(interrupt)  # else it would be busy for ever
                raise
            return
        self._fail(error)
        if not isinstance(error, ShardvizError):
            raise error

    def _fail(self, error: BaseException) -> None:
        expected = isinstance(error, ShardvizError)
        status = "stopped" if isinstance(error, CompileStopped) else "failed"
        message = str(error) if expected else f"{type(error).__name__}: {error}"
        self._tell(Progress(status, message, trouble=error, seconds=self._elapsed), None)

    @property
    def _elapsed(self) -> float:
        """Seconds from the change to its last answer."""
        if self._seconds is None:
            self._seconds = time.monotonic() - self._began
        return self._seconds


T = TypeVar("T")


class Inbox:
    """Calls that come from other threads, run one at a time where the state's owner is.

    A compile answers on a thread of its own, but the state (and the messages to a browser that follow from it) belongs
    to the kernel's main thread. So every answer is posted here and runs

    - on the kernel's event loop, where one is running;
    - or at once, in the thread that posted it, where there is none (a script, a test);
    - or in `wait_until`, where the owner waits for it: a cell that waits blocks the loop, so the loop cannot do it.

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
        """Runs `change` while all posted calls wait; they run afterwards.

        This is a function that takes a function, and no context manager: a Ctrl-C can arrive at every call in Python,
        and to leave a context manager is a call, so what it has to put back could be left undone.
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
        """Has `call` run by the state's owner; returns at once where there is a loop to do it."""
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
        """Runs the posted calls. While another thread holds the state, that thread runs them when it lets go."""
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
                except BaseException:
                    if not self._calls.empty():  # what others said is not lost with this call
                        self._later()
                    raise
                finally:
                    self._depth = 0
            finally:
                self._lock.release()

    def _later(self) -> None:
        """Has the rest run by the loop, if there is one; else whoever posts or waits next runs it."""
        with suppress(RuntimeError):  # it is closed
            if self._loop is not None and self._loop.is_running():
                self._loop.call_soon_threadsafe(self.drain)

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Runs posted calls until `condition` holds or `timeout` seconds are over; says whether it holds."""
        deadline = time.monotonic() + timeout
        while True:
            self._news.clear()
            self.drain()
            with self._lock:  # another thread may be amid a call, whose observers have not heard of it yet
                holds = condition()
            if holds:
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self._news.wait(min(remaining, 0.1))
