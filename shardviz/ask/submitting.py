"""Starting a compile: a `ReportFuture` says how far it has come, can be stopped, and ends with a report or an error."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from concurrent.futures import InvalidStateError

from shardviz import processes
from shardviz.ask.reading import Reading, unfinished_report
from shardviz.errors import CompileCrashed, CompileError, CompileRefused, CompileStopped, ShardvizError
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.processes import Job, Own
from shardviz.processes.job import MAX_CPU_DEVICES
from shardviz.program.lower import edited_bytecode
from shardviz.records.options import nearest, options_text

OnReport = Callable[[Report], None]


class ReportFuture(Own[Report]):
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
        `crashed`, `timeout`, `memory`, `refused`, or `failed` where the system gave no room, process or the like.
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
        """Builds the report of a level and hands it to `on_report`. An error in either ends the future."""
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


def last_milestone(level: str, finish: bool) -> str:
    """The milestone after which nothing more is wanted.

    Raises:
        ShardvizError: for a level that a compile does not reach, or one that cannot be finished.
    """
    if level not in processes.LEVELS:
        raise ShardvizError(f"level {level!r}: a compile reaches one of {', '.join(map(repr, processes.LEVELS))}")
    if finish and level != "compiled":
        raise ShardvizError(f"finish=True: only a compile of level 'compiled' can be finished, not {level!r}")
    return "finished" if finish else level


def submit(
    reading: Reading, until: str, timeout: float | None, memory_limit: float | None, future: ReportFuture
) -> None:
    """Starts a compile; one that cannot be made is refused in the future.

    Args:
        reading: the plan, the lowered program and the target.
        until: the last milestone.
        timeout, memory_limit: as `Program.submit`.
        future: what the answer goes to; whoever is interrupted in this can stop it.
    """
    try:
        request = request_of(reading, until)
    except CompileRefused as error:
        future.set_exception(error)
        return

    def reached(job: processes.Job, milestone: str, texts: dict[str, str]) -> None:
        future.deliver(milestone, lambda: reading.report(milestone, texts, job))

    job = future.job = processes.Job(request, reached)
    job.add_done_callback(lambda _: _end(future, job, until, reading))
    processes.begin(job, timeout=timeout, memory_limit=memory_limit)


def request_of(reading: Reading, until: str, passes: bool = False) -> processes.Request:
    """What the compile server is asked for.

    Raises:
        CompileRefused: for a target that cannot be compiled for here, or a mesh that XLA cannot be given.
    """
    bound, lowered, resolved = reading.bound, reading.lowered, reading.resolved
    if resolved.missing and until != "partitioned":
        raise CompileRefused(resolved.missing)
    if why := _not_compilable(bound.mesh, simulated=resolved.topology is None):
        raise CompileRefused(f"{why}; level 'propagated' works all the same")
    return processes.Request(
        module=edited_bytecode(lowered, bound),
        devices=bound.mesh.size,
        out_chosen=tuple(bound.out_specs[o.name] is None for o in lowered.traced.outputs),
        until=until,
        options=reading.options,
        topology=resolved.topology,
        passes=passes,
    )


def answer(start: Callable[[ReportFuture], None]) -> Report:
    """Starts a compile and waits for its report; who interrupts either stops the compile."""
    future = ReportFuture()
    try:
        start(future)
        return future.result()
    finally:
        future.stop()


def _end(future: ReportFuture, job: processes.Job, until: str, reading: Reading) -> None:
    """Ends a future with the last report; where only machine code could not be made, with the report without it."""
    error, last = _about_options(job.exception(), reading), future.reports.get(until)
    if until == "finished" and last is None:
        last, until = future.reports.get("compiled"), "compiled"
        if last is not None and error is not None and not isinstance(error, CompileStopped):
            compiled, why = last, error
            future.deliver("finished", lambda: unfinished_report(compiled, why))
            last, error = future.reports.get("finished"), None
    future.finish(error or last or CompileError(f"the compile ended without reaching level {until!r}"))


def _about_options(error: BaseException | None, reading: Reading) -> BaseException | None:
    """What ended a compile, with the compiler option that the compiler names, or with all that it was given."""
    options = reading.options
    if not options or not isinstance(error, CompileRefused | CompileCrashed):
        return error
    text = str(error)
    name = next((name for name in options if re.search(rf"\b{name}\b", text)), "")
    if not name:
        return type(error)(f"{text} (compiled with {options_text(options)})", stderr=error.stderr)
    near = nearest(name) if "No such compile option" in text else ""
    meant = f"; did you mean {near!r}?" if near else ""
    return type(error)(f"options[{name!r}] for {reading.resolved.text}: {text}{meant}", stderr=error.stderr)


def _not_compilable(mesh: DeviceMesh, *, simulated: bool = True) -> str:
    """Why XLA cannot be given a mesh, on simulated CPU devices or others; empty if it can."""
    if simulated and mesh.size > MAX_CPU_DEVICES:
        return f"the mesh {mesh} has {mesh.size} devices and XLA's CPU compiler simulates at most {MAX_CPU_DEVICES}"
    for name in mesh.names:
        if marks := sorted({c for c in name if c in "'\"\\,=[]{}" or not c.isprintable()}):
            return (
                f"mesh axis {name!r} has {', '.join(map(repr, marks))} in its name, which the compiler's texts use for "
                "other things, so rename the axis"
            )
    return ""
