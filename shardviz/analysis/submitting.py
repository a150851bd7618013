"""A compile begun, its milestones read as they come, and its end, whatever it is."""

from __future__ import annotations

from shardviz.analysis.finishing import unfinished
from shardviz.analysis.future import OnReport, ReportFuture
from shardviz.analysis.reading import Reading
from shardviz.errors import CompileError, CompileRefused, CompileStopped, ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.program import server
from shardviz.program.lower import edited_bytecode
from shardviz.program.server.job import MAX_CPU_DEVICES
from shardviz.report import Report


def last_milestone(level: str, finish: bool) -> str:
    """The milestone after which nothing more is wanted.

    Raises:
        ShardvizError: for a level that a compile does not reach, or one that cannot be finished.
    """
    if level not in server.LEVELS:
        raise ShardvizError(f"level {level!r}: a compile reaches one of {', '.join(map(repr, server.LEVELS))}")
    if finish and level != "compiled":
        raise ShardvizError(f"finish=True: only a compile of level 'compiled' can be finished, not {level!r}")
    return "finished" if finish else level


def submit(
    reading: Reading, until: str, timeout: float | None, memory_limit: float | None, on_report: OnReport | None
) -> ReportFuture:
    """Starts the compile that is to be read, or refuses it in the future that it returns.

    Args:
        reading: the plan, the lowered program and the target.
        until: the last milestone.
        timeout, memory_limit, on_report: as `Program.submit`.
    """
    bound, lowered, aimed = reading.bound, reading.lowered, reading.aimed
    future = ReportFuture(on_report)
    if aimed.lack and until != "partitioned":
        future.set_exception(CompileRefused(aimed.lack))
        return future
    if why := _not_compilable(bound.mesh, simulated=aimed.topology is None):
        future.set_exception(CompileRefused(f"{why}; level 'propagated' works all the same"))
        return future
    chosen = tuple(bound.out_specs[o.name] is None for o in lowered.traced.outputs)
    request = server.Request(edited_bytecode(lowered, bound), bound.mesh.size, chosen, until, topology=aimed.topology)

    def reached(job: server.Job, milestone: str, texts: dict[str, str]) -> None:
        future.deliver(milestone, lambda: reading.report(milestone, texts, job))

    job = server.submit(request, timeout=timeout, memory_limit=memory_limit, on_milestone=reached)
    future.job = job
    job.add_done_callback(lambda _: _end(future, job, until))
    return future


def answer(future: ReportFuture) -> Report:
    """Waits for a report; who interrupts the waiting stops the compile."""
    try:
        return future.result()
    finally:
        future.stop()


def _end(future: ReportFuture, job: server.Job, until: str) -> None:
    """Ends a future with the last report; where only machine code could not be made, with the report without it."""
    error, last = job.exception(), future.reports.get(until)
    if until == "finished" and last is None:
        last, until = future.reports.get("compiled"), "compiled"
        if last is not None and error is not None and not isinstance(error, CompileStopped):
            compiled, why = last, error
            future.deliver("finished", lambda: unfinished(compiled, why))
            last, error = future.reports.get("finished"), None
    future.finish(error or last or CompileError(f"the compile ended without reaching level {until!r}"))


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
