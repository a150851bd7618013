"""What follows from a plan: the propagated report at once, then a compile's answers, and how that may end.

`Following` holds one plan at a time. Each new plan begins a new turn; whatever still comes for an older one is dropped.
Compiles answer on threads of their own; their answers pass through an `Inbox`, so that traits change in one place.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import traitlets

from shardviz.costs.machine import Machine
from shardviz.errors import CompileError, CompileStopped, CompileTimeout, ShardvizError
from shardviz.notation import Spec
from shardviz.records.report import LEVELS, Report
from shardviz.session import aiming
from shardviz.session.inbox import Inbox
from shardviz.session.on_machine import OnMachine

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.session.program import Program
    from shardviz.session.submitting import ReportFuture

log = logging.getLogger(__name__)

_TO_THE_END = 10  # how much longer than up to its plan a compile may take: it is 80 to 95 % machine code


class Following(OnMachine):
    """A program under a plan, and what is known of it so far.

    Args:
        program: what `sv.trace` gave.
        plan: the plan to begin with.
        level: how far to go with each plan: `propagated`, `partitioned` or `compiled`.
        debounce: seconds without a newer plan before a compile is started.
        timeout: seconds that a compile may take.
        memory_limit: bytes that a compile may use; None for no limit.
        target: the machine to compile for and to reckon the cost on.
        tokens: tokens (or samples) of a whole step, for tokens a second; None for what the arguments tell, False: none.
        model_flops: FLOPs of a whole step that the model needs, for its utilisation.

    Attributes, besides those of `OnMachine`:
        plan, bound: the plan, and the same checked against the program, with a full spec for every argument.
        report: what is known about this plan so far. `level` is its level. After another target was chosen it is the
            old target's, until the compiler answers: its shardings are the same.
        status: `propagating`, `compiling`, `partitioned`, `compiled`, `finishing`, `propagated` (where no more was
            wanted), `stopped` or `failed`; `message` says it in words; `busy` while an answer is awaited.
        error: a change that was refused, or an error of the explorer's own: `message`, `place` (`mesh`, `argument`,
            `output`, `rule`, `target`, `order`, `plan` or `internal`), `argument`, `dimension`, `axis`, `kind`,
            `detail`; None if all is well.
        failure: why the last compile gave no answer: `kind`, `message`, `stderr`; None if nothing failed.
        timeout, memory_limit: what the next compile may take, in seconds and bytes (None: no limit); may be set.
        changed: names of the values that this plan shards otherwise than the one before. Intermediates have other names
            at other levels, so they are compared with the earlier plan's report of the same level, if it got so far.
    """

    plan = traitlets.Any()
    bound = traitlets.Any()
    level = traitlets.Unicode("notation")
    status = traitlets.Unicode("idle")
    message = traitlets.Unicode("")
    busy = traitlets.Bool(False)
    error = traitlets.Dict(allow_none=True, default_value=None)
    failure = traitlets.Dict(allow_none=True, default_value=None)
    changed = traitlets.Any(frozenset())
    timeout = traitlets.Float(60.0)
    memory_limit = traitlets.Float(allow_none=True, default_value=None)

    def __init__(
        self,
        program: Program,
        plan: Plan,
        *,
        level: str = "compiled",
        debounce: float = 0.15,
        timeout: float = 60.0,
        memory_limit: float | None = None,
        target: str | Machine = "cpu",
        tokens: float | bool | None = None,
        model_flops: float | None = None,
    ):
        if level not in LEVELS[1:]:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, LEVELS[1:]))}")
        for name, number in (("tokens", tokens), ("model_flops", model_flops)):
            if number is not None and not number >= 0:
                raise ShardvizError(f"{name}={number!r}: expected a number of a whole step, 0 or more")
        super().__init__(timeout=timeout, memory_limit=memory_limit)
        self.program = program
        self._goal, self._debounce = level, debounce
        self._inbox = Inbox()
        self._job: Any = None
        self._timer: threading.Timer | None = None
        self._pending: Callable[[], None] | None = None
        self._turn = 0
        self._known: dict[str, Report] = {}
        self._before: dict[str, Report] = {}
        self._trouble: CompileError | None = None
        self._stale = False  # the report is of an older target
        self._tokens, self._model_flops = tokens, model_flops
        with self._inbox.owned():
            bound = program.bind(plan)
            self._take(plan, bound, aiming.read(target, bound.mesh))
            self._start(self._turn)

    @property
    def future(self) -> ReportFuture | None:
        """The compile that runs for this plan; None while none does."""
        return self._job

    def stop(self) -> None:
        """Stops the compile that runs or is about to; the report stays as it is."""
        with self._inbox.owned():
            if not self.busy:
                return
            self._cancel()
            self._settle_failure(CompileStopped("stopped; what is shown is what was known so far"))

    def recompile(self) -> None:
        """Compiles the plan as it is once more, after a stop or a failure."""
        with self._inbox.owned():
            self._cancel()
            self.lack = aiming.lack_of(self.machine, self.report.mesh)  # the person may have installed it
            self._start(self._turn)

    def finish(self) -> None:
        """Has the compile of this plan run to its end, for what only a finished one tells, such as its machine code.

        Nothing happens where it is not `finishable`, or while an answer is awaited.
        """
        with self._inbox.owned():
            if self.finishable and not self.busy:
                self._start(self._turn, finish=True)

    @property
    def finishable(self) -> bool:
        """Whether a finished compile would tell more: a compiler has planned the memory, it fits, and that is all."""
        plan = self.report.memory
        planned = self.level == "compiled" and not self._stale and plan is not None and plan.fits is not False
        return planned and "finished" not in self.report.stages

    def wait(self, level: str = "compiled", timeout: float = 60.0) -> Report:
        """Blocks until the report has `level` (or as far as this state goes), and returns it.

        Raises:
            CompileError: why it cannot be reached: stopped, crashed, refused, out of time or memory.
            CompileTimeout: if `timeout` seconds were not enough; the compile goes on.
        """
        if level not in LEVELS:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, LEVELS))}")
        want = min(LEVELS.index(level), LEVELS.index(self._reach))
        self._hurry()
        old = lambda: self._stale and want > LEVELS.index("propagated")  # noqa: E731
        there = lambda: LEVELS.index(self.level) >= want and not old()  # noqa: E731
        if not self._inbox.wait_until(lambda: there() or not self.busy, timeout):
            raise CompileTimeout(f"no {level} report within {timeout:g} s; the compile goes on")
        if not there():
            raise self._trouble or CompileError(f"no {level} report: {self.message}")
        return self.report

    @property
    def _reach(self) -> str:
        """How far this plan's report goes: less than is wanted where nothing here compiles for the machine."""
        short = self.lack or not self._as_many
        return "partitioned" if self._goal == "compiled" and short else self._goal

    def _take(self, plan: Plan, bound: Any, machine: Machine | None = None) -> None:
        """Shows what follows from a plan at once, on this machine or one that has followed. Nothing is changed if that
        raises."""
        report = self.program.propagate(plan)
        found = aiming.aimed(machine or self.machine, report.mesh)
        self._cancel()
        self._turn += 1
        with self.hold_trait_notifications():
            self._before, self._known = self._known, {report.level: report}
            self.changed = _differences(self._before.get(report.level), report)
            self.plan, self.bound = plan, bound
            self.report, self.level, self._stale = report, report.level, False
            self._aim(found)
            self._awaiting()

    def _retarget(self, machine: Machine) -> None:
        """Has the plan compiled for another machine; what is known of it apart from the machine stays."""
        self._cancel()
        self._turn += 1
        with self.hold_trait_notifications():
            self._before, self._known = self._known, {k: r for k, r in self._known.items() if k != "compiled"}
            self.report = self._known.get("partitioned") or self._known["propagated"]
            self.level, self._stale, self.changed = self.report.level, True, frozenset()
            self._aim(aiming.aimed(machine, self.report.mesh))
            self._awaiting()

    def _awaiting(self) -> None:
        self.error = self.failure = self._trouble = None
        self.busy = self._goal != "propagated"
        self.status = "propagating" if self.busy else "propagated"
        self.message = "asking XLA's partitioner" if self.busy else ""

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Shows what nobody expected in the status too, and lets it go on to whoever called."""
        try:
            yield
        except BaseException as error:
            self.error = {
                "message": f"{type(error).__name__}: {error}",
                "place": "internal",
                "argument": None,
                "axis": None,
                "dimension": None,
                "kind": type(error).__name__,
                "detail": traceback.format_exc(),
            }
            log.error("the explorer met an error of its own", exc_info=error)
            raise

    def _later(self) -> None:
        """Starts a compile when there has been no newer change for a moment."""
        if self._goal == "propagated":
            return
        turn = self._turn
        self._pending = lambda: self._start(turn)
        self._timer = threading.Timer(self._debounce, lambda: self._inbox.post(self._fire))
        self._timer.daemon = True
        self._timer.start()

    def _fire(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending()

    def _hurry(self) -> None:
        """Does not let a waiting person wait for the pause after a change as well."""
        with self._inbox.owned():
            if self._timer is not None:
                self._timer.cancel()
            self._fire()

    def _cancel(self) -> None:
        """Stops the older compile; its answers, if any still come, belong to no turn."""
        self._pending = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        job, self._job = self._job, None
        if job is not None and not job.done():
            job.stop()

    def _start(self, turn: int, finish: bool = False) -> None:
        if turn != self._turn or self._goal == "propagated":
            return
        self.busy, self.status, self.failure = True, "finishing" if finish else "compiling", None
        real = self._as_many and aiming.nameable(self.machine)
        target: Any = self.machine if real else "cpu"
        reach = self._reach
        simulated = target == "cpu" or self.machine.chip.kind == "cpu" or self.lack
        on = f"{self.report.mesh.size} simulated devices" if simulated else self.target
        self.message = f"compiling for {on}" + (", to the end" if finish else "")
        tell = lambda report: self._inbox.post(partial(self._milestone, turn, report))  # noqa: E731
        with self._shown():
            try:
                job = self._job = self.program.submit(
                    self.plan,
                    level=reach,
                    target=target,
                    timeout=self.timeout * (_TO_THE_END if finish else 1),
                    memory_limit=self.memory_limit,
                    on_report=None if finish else tell,  # what comes before the end is there
                    finish=finish,
                )
            except ShardvizError as error:
                self._settle_failure(error)
                return
        job.add_done_callback(lambda done: self._inbox.post(partial(self._finished, turn, done)))

    def _milestone(self, turn: int, report: Report) -> None:
        """Takes a report of a level that was not reached before, or a finished one; one for an older plan is nobody's
        any more."""
        reached = LEVELS.index(report.level)
        new = self._stale or self.status == "finishing" or reached > LEVELS.index(self.level)
        if turn != self._turn or not self.busy or reached < LEVELS.index(self.level) or not new:
            return
        with self._shown(), self.hold_trait_notifications():
            self._stale = False
            self._known[report.level] = report
            earlier = self._before.get("partitioned") or self._before.get("compiled")
            self.changed = _differences(earlier, report) if earlier else _outer(report) & self.changed
            self.report, self.level, self.status = report, report.level, report.level
            self._reckon()
            self.busy = reached < LEVELS.index(self._reach)
            self.message = f"{self.message.partition(';')[0]}; the memory plan follows" if self.busy else ""

    def _finished(self, turn: int, job: Any) -> None:
        if turn != self._turn or job is not self._job:
            return
        self._job = None
        if job.cancelled():
            self._settle_failure(CompileStopped("stopped; what is shown is what was known so far"))
            return
        with self._shown():
            error = job.exception()
            if isinstance(error, ShardvizError):
                self._settle_failure(error)
            elif error is not None:
                self.busy, self.status = False, "failed"
                self.message = f"{type(error).__name__}: {error}"
                raise error
            else:
                self._milestone(turn, job.result())
                with self.hold_trait_notifications():  # also where it told nothing new, such as a compile done again
                    self.busy, self.status, self.message = False, self.level, ""

    def _settle_failure(self, error: ShardvizError) -> None:
        with self.hold_trait_notifications():
            self._trouble = error if isinstance(error, CompileError) else CompileError(str(error))
            self.busy = False
            self.status = "stopped" if isinstance(error, CompileStopped) else "failed"
            self.message = str(error)
            self.failure = {"kind": type(error).__name__, "message": str(error), "stderr": getattr(error, "stderr", "")}


def _differences(before: Report | None, after: Report) -> frozenset[str]:
    if before is None:
        return frozenset()
    old: Mapping[str, Spec | None] = {v.name: v.spec for v in before.values}
    return frozenset(v.name for v in after.values if v.name in old and old[v.name] != v.spec)


def _outer(report: Report) -> frozenset[str]:
    return frozenset(v.name for v in (*report.arguments, *report.outputs))
