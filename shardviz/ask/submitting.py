"""The start of a compile: a `ReportFuture` has its progress, can be stopped, and ends with a report or an error."""

from __future__ import annotations

import re
from collections.abc import Callable

from shardviz import processes
from shardviz.ask.reading import CompileReading
from shardviz.errors import CompileCrashed, CompileError, CompileRefused, ShardvizError
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.processes import Job
from shardviz.processes.job import MAX_CPU_DEVICES
from shardviz.propagate.lower import edited_bytecode
from shardviz.records.options import nearest, options_text

OnReport = Callable[[Report], None]


class ReportFuture(Job[Report]):
    """The report of a running compile.

    `result(timeout)` waits for the report, or raises a `CompileError` that says what happened. `on_report`, if given to
    `Program.submit`, is called with the report of each level as it is reached. `stop()` stops the compile; the future
    then ends with `CompileStopped`. `state` and similar attributes are those of a `Job`.

    Attributes:
        reports: the reports so far, by level: `partitioned`, `compiled`.
    """

    def __init__(self, on_report: OnReport | None = None):
        super().__init__()
        self.on_report = on_report
        self.reports: dict[str, Report] = {}
        self._reading: CompileReading | None = None
        self._until = ""

    def begin(self, reading: CompileReading, until: str, timeout: float | None, memory_limit: float | None) -> None:
        """Start the compile up to the last requested level; an impossible compile fails the future."""
        self._reading, self._until = reading, until
        self.on_milestone = lambda _, name, texts: self._deliver(name, lambda: reading.report(name, texts, self))
        try:
            self.request = request_of(reading, until)
        except CompileRefused as error:
            self.finish(error)
            return
        processes.begin(self, timeout=timeout, memory_limit=memory_limit)

    def conclude(self, error: CompileError | None) -> None:
        """End with the last report, or with the error."""
        why, last = _about_options(error, self._reading), self.reports.get(self._until)
        self.finish(why or last or CompileError(f"the compile ended without reaching level {self._until!r}"))

    def _deliver(self, level: str, build: Callable[[], Report]) -> None:
        """Build the report of a level and pass it to `on_report`. An error in either ends the future."""
        if self.done():
            return
        try:
            report = self.reports[level] = build()
            if self.on_report is not None:
                self.on_report(report)
        except BaseException as error:  # noqa: BLE001 - it runs on a thread of its own, where nobody else would see it
            self.stop()
            self.finish(error)


def check_level(level: str) -> None:
    """Raise ShardvizError for a level that a compile does not reach."""
    if level not in processes.LEVELS:
        raise ShardvizError(f"level {level!r}: a compile reaches one of {', '.join(map(repr, processes.LEVELS))}")


def request_of(reading: CompileReading, until: str) -> processes.Request:
    """Return the request to the compile server. Raises CompileRefused if this installation cannot compile for the
    target, or XLA does not accept the mesh."""
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
    )


def _about_options(error: CompileError | None, reading: CompileReading | None) -> CompileError | None:
    """Return a compile's error with the compiler option that its message names, or with all options that were given;
    None if it is not about options."""
    options = {} if reading is None else reading.options
    if reading is None or not options or not isinstance(error, CompileRefused | CompileCrashed):
        return error
    text = str(error)
    name = next((name for name in options if re.search(rf"\b{name}\b", text)), "")
    if not name:
        return type(error)(f"{text} (compiled with {options_text(options)})", stderr=error.stderr)
    near = nearest(name) if "No such compile option" in text else ""
    meant = f"; did you mean {near!r}?" if near else ""
    return type(error)(f"options[{name!r}] for {reading.resolved.text}: {text}{meant}", stderr=error.stderr)


def _not_compilable(mesh: DeviceMesh, *, simulated: bool = True) -> str:
    """Return why XLA does not accept a mesh, on simulated CPU devices or on others; empty if it does."""
    if simulated and mesh.size > MAX_CPU_DEVICES:
        return f"the mesh {mesh} has {mesh.size} devices and XLA's CPU compiler simulates at most {MAX_CPU_DEVICES}"
    for name in mesh.names:
        if marks := sorted({c for c in name if c in "'\"\\,=[]{}" or not c.isprintable()}):
            return (
                f"mesh axis {name!r} has {', '.join(map(repr, marks))} in its name, which the compiler's texts use for "
                "other things, so rename the axis"
            )
    return ""
