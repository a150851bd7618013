"""A report that is on its way: a future that can be stopped, and that says how far it has come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError

from shardviz.program.server import Job
from shardviz.report import Report

OnReport = Callable[[Report], None]


class ReportFuture(Future[Report]):
    """The report of a compile under way.

    `result(timeout)` waits for the report, or raises a `CompileError` that says what happened. `on_report`, if given to
    `Program.submit`, is called with the report of each level as it is reached, and with that of a finished compile.

    Attributes:
        reports: what was reached so far: `partitioned`, `compiled`, and `finished` (level `compiled` too).
        job: the compile server's side of it.
    """

    def __init__(self, on_report: OnReport | None = None):
        super().__init__()
        self.on_report = on_report
        self.reports: dict[str, Report] = {}
        self.job: Job | None = None

    @property
    def state(self) -> str:
        """`queued`, `running`, `partitioned`, `compiled`, `finished` where that was asked for, then `done`, `stopped`,
        `crashed`, `timeout`, `memory` or `refused`.
        """
        return "queued" if self.job is None else self.job.state

    @property
    def stderr(self) -> str:
        """What the compiler wrote to its standard error; there when the job has ended."""
        return "" if self.job is None else self.job.stderr

    @property
    def elapsed(self) -> float:
        """Seconds since the report was asked for, until it came."""
        return 0.0 if self.job is None else self.job.elapsed

    def stop(self) -> None:
        """Stops the compile; the future then ends with `CompileStopped`."""
        if self.job is not None:
            self.job.stop()

    def cancel(self) -> bool:
        """As `stop`; True if the report had not come."""
        running = not self.done()
        self.stop()
        return running

    def deliver(self, level: str, build: Callable[[], Report]) -> None:
        """Builds the report of a level and tells of it. What goes wrong in it ends the future, and is not lost."""
        if self.done():
            return
        try:
            report = self.reports[level] = build()
            if self.on_report is not None:
                self.on_report(report)
        except BaseException as error:  # noqa: BLE001 - it runs on a thread of its own, where nobody else would see it
            self.finish(error)

    def finish(self, outcome: Report | BaseException) -> None:
        """Ends the future, once."""
        with contextlib.suppress(InvalidStateError):
            if isinstance(outcome, BaseException):
                self.set_exception(outcome)
            else:
                self.set_result(outcome)
