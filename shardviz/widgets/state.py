"""The explorer's state: a plan, what follows from it, and every change that a person can make. It knows no view.

Each change goes the same way: the new plan is checked against the program; if it is wrong, `error` says what and where,
and everything else stays as it was. If it is right, the `propagated` report follows at once, and a moment later, when
no newer change has come, a compile is started whose answers (`partitioned`, then `compiled`) replace the report.

>>> state = ExplorerState(program, plan)                                    # doctest: +SKIP
>>> state.set_dim("params['w1']", 1, ["model"])                             # doctest: +SKIP
True
>>> state.level, state.report.value("params['w1']").shard_shape             # doctest: +SKIP
('propagated', (1024, 512))
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import traitlets

from shardviz.errors import CompileError, CompileStopped, CompileTimeout, ShardvizError, SpecError
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.report import LEVELS, Report
from shardviz.widgets import edits
from shardviz.widgets.inbox import Inbox

if TYPE_CHECKING:
    from shardviz.analysis import Program
    from shardviz.program.plan import Plan

log = logging.getLogger(__name__)


class ExplorerState(traitlets.HasTraits):
    """A program under a plan that can be changed, undone and compiled.

    Args:
        program: what `sv.trace` gave.
        plan: the plan to begin with.
        level: how far to go after each change: `propagated`, `partitioned` or `compiled`.
        debounce: seconds without a newer change before a compile is started.
        timeout: seconds that a compile may take.
        memory_limit: bytes that a compile may use; None for no limit.

    Attributes:
        plan, bound: the plan, and the same checked against the program, with a full spec for every argument.
        report: what is known about this plan so far. `level` is its level.
        status: `propagating`, `compiling`, `partitioned`, `compiled`, `propagated` (where no more was wanted),
            `stopped` or `failed`; `message` says it in words; `busy` while an answer is awaited.
        error: a change that was refused: `message`, `argument`, `dimension`, `place` (`mesh`, `argument`, `output`,
            `plan` or `internal`) and `detail`; None when the last change was good.
        failure: why the last compile gave no answer: `kind`, `message`, `stderr`; None if nothing failed.
        selected: the name of the one value that is looked at, everywhere.
        changed: names of the values that the last change sharded differently.
        past, ahead: the plans that `undo` and `redo` go to.
    """

    plan = traitlets.Any()
    bound = traitlets.Any()
    report = traitlets.Instance(Report)
    level = traitlets.Unicode("notation")
    status = traitlets.Unicode("idle")
    message = traitlets.Unicode("")
    busy = traitlets.Bool(False)
    error = traitlets.Dict(allow_none=True, default_value=None)
    failure = traitlets.Dict(allow_none=True, default_value=None)
    selected = traitlets.Unicode("")
    changed = traitlets.Any(frozenset())
    past = traitlets.Tuple()
    ahead = traitlets.Tuple()

    def __init__(self, program: Program, plan: Plan, *, level: str = "compiled", debounce: float = 0.15,
                 timeout: float = 60.0, memory_limit: int | None = None):
        if level not in LEVELS[1:]:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, LEVELS[1:]))}")
        super().__init__()
        self.program = program
        self._goal, self._debounce, self._timeout, self._memory_limit = level, debounce, timeout, memory_limit
        self._inbox = Inbox()
        self._job: Any = None
        self._timer: threading.Timer | None = None
        self._pending: Callable[[], None] | None = None
        self._turn = 0
        self._propagated: Report | None = None
        self._trouble: CompileError | None = None
        with self._inbox.owned():
            self._take(plan, program.bind(plan))
            self._start(self._turn)
        if self.report.arguments:
            self.selected = max(self.report.arguments, key=lambda v: v.bytes_per_device or 0).name

    # What a person changes. Each returns whether the change was taken.

    def set_plan(self, plan: Plan) -> bool:
        """Takes another plan as a whole."""
        return self._change(lambda: plan, "plan")

    def set_spec(self, name: str, spec: Any) -> bool:
        """Sets the spec of an argument: a `Spec`, a PartitionSpec, a tuple, None, or text such as `P('data', None)`."""
        return self._change(lambda: self.plan.with_spec(name, self._read(spec, name) or Spec()), "argument", name)

    def set_dim(self, name: str, dimension: int, axes: Iterable[Axis]) -> bool:
        """Sets the mesh axes that cut one dimension of an argument, major to minor."""
        axes = tuple(axes)
        return self._change(
            lambda: self.plan.with_spec(name, edits.with_dim(self._spec(name, dimension), dimension, axes)),
            "argument", name, dimension)

    def move_axis(self, name: str, axis: str, dimension: int, place: int | None = None) -> bool:
        """Moves or adds a mesh axis to a dimension of an argument, last or at a place among that dimension's axes."""
        return self._change(
            lambda: self.plan.with_spec(name, edits.moved(self._spec(name, dimension), axis, dimension, place)),
            "argument", name, dimension)

    def set_out_spec(self, name: str, spec: Any) -> bool:
        """Sets the spec of an output, as `set_spec` does; None leaves it to the compiler."""
        return self._change(lambda: self.plan.with_out_spec(name, self._read(spec, name)), "output", name)

    def set_out_dim(self, name: str, dimension: int, axes: Iterable[Axis]) -> bool:
        """Sets the axes on one dimension of an output; the others keep what they have, or what the compiler chose."""
        axes = tuple(axes)
        return self._change(
            lambda: self.plan.with_out_spec(name, edits.with_dim(self._out_spec(name, dimension), dimension, axes)),
            "output", name, dimension)

    def move_out_axis(self, name: str, axis: str, dimension: int, place: int | None = None) -> bool:
        """Moves or adds a mesh axis to a dimension of an output."""
        return self._change(
            lambda: self.plan.with_out_spec(name, edits.moved(self._out_spec(name, dimension), axis, dimension, place)),
            "output", name, dimension)

    def add_axis(self, name: str, size: int) -> bool:
        """Adds a mesh axis, the minor one."""
        return self._change(lambda: self.plan.with_mesh(edits.mesh_with_axis(self.plan.mesh, name, size)), "mesh", name)

    def remove_axis(self, name: str) -> bool:
        """Removes a mesh axis, from every spec too."""
        return self._change(lambda: self.plan.without_axis(name), "mesh", name)

    def rename_axis(self, old: str, new: str) -> bool:
        """Renames a mesh axis, in every spec too."""
        return self._change(lambda: self.plan.rename_axis(old, new), "mesh", old)

    def resize_axis(self, name: str, size: int) -> bool:
        """Sets the number of devices along a mesh axis."""
        return self._change(lambda: self.plan.with_mesh(edits.mesh_with_size(self.plan.mesh, name, size)), "mesh", name)

    def set_mesh(self, mesh: Any) -> bool:
        """Sets the whole mesh: anything that `DeviceMesh.of` reads, such as `"data=8,model=4"`."""
        return self._change(lambda: self.plan.with_mesh(DeviceMesh.of(mesh)), "mesh")

    def undo(self) -> bool:
        """Goes back to the plan before the last change."""
        if not self.past:
            return False
        plan, rest, here = self.past[-1], self.past[:-1], self.plan
        return self._change(lambda: plan, "plan", history=(rest, (here, *self.ahead)))

    def redo(self) -> bool:
        """Goes forward to the plan that `undo` left."""
        if not self.ahead:
            return False
        plan, rest, here = self.ahead[0], self.ahead[1:], self.plan
        return self._change(lambda: plan, "plan", history=((*self.past, here), rest))

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
            self._start(self._turn)

    # What a person asks.

    def legal_axes(self, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        """For each mesh axis, whether it may be added to a dimension of an argument, and why not."""
        value = self._argument(name)
        return edits.choices(value.shape, self._spec(name, dimension), self.plan.mesh, dimension)

    def legal_out_axes(self, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        """The same for an output."""
        spec = self._out_spec(name, dimension)
        return edits.choices(self._output(name).shape, spec, self.plan.mesh, dimension)

    def wait(self, level: str = "compiled", timeout: float = 60.0) -> Report:
        """Blocks until the report has `level` (or as far as this state goes), and returns it.

        Raises:
            CompileError: why it cannot be reached: stopped, crashed, refused, out of time or memory.
            CompileTimeout: if `timeout` seconds were not enough; the compile goes on.
        """
        if level not in LEVELS:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, LEVELS))}")
        want = min(LEVELS.index(level), LEVELS.index(self._goal))
        self._hurry()
        there = lambda: LEVELS.index(self.level) >= want  # noqa: E731
        if not self._inbox.wait_until(lambda: there() or not self.busy, timeout):
            raise CompileTimeout(f"no {level} report within {timeout:g} s; the compile goes on")
        if not there():
            raise self._trouble or CompileError(f"no {level} report: {self.message}")
        return self.report

    def summary(self) -> str:
        """The plan and the headline numbers as text that is the same on every run; what tests and diffs read."""
        from shardviz.widgets.summary import summary  # the words stand beside the view's data, not in the state

        return summary(self)

    # How a change is taken.

    def _change(self, build: Callable[[], Plan], place: str, argument: str | None = None, dimension: int | None = None,
                history: tuple[tuple[Any, ...], tuple[Any, ...]] | None = None) -> bool:
        with self._inbox.owned(), self._shown():
            try:
                plan = build()
                if plan == self.plan or _same(bound := self.program.bind(plan), self.bound):
                    self.error = None
                    return True
                before = self.plan
                self._take(plan, bound)
            except ShardvizError as error:
                self._refuse(error, place, argument, dimension)
                return False
            self.past, self.ahead = history or ((*self.past, before), ())
            self._later()
            return True

    def _take(self, plan: Plan, bound: Any) -> None:
        """Shows what follows from a plan at once. Nothing is changed if that raises."""
        report = self.program.propagate(plan)
        self._cancel()
        self._turn += 1
        with self.hold_trait_notifications():
            self.changed = _differences(self._propagated, report)
            self._propagated = report
            self.plan, self.bound = plan, bound
            self.report, self.level = report, report.level
            self.error = self.failure = self._trouble = None
            self.busy = self._goal != "propagated"
            self.status = "propagating" if self.busy else "propagated"
            self.message = ""

    def _refuse(self, error: ShardvizError, place: str, argument: str | None, dimension: int | None) -> None:
        named = getattr(error, "argument", None)
        where = getattr(error, "dimension", None)
        self.error = {
            "message": str(error), "place": place, "argument": named or argument, "kind": type(error).__name__,
            "axis": argument if place == "mesh" else None,
            "dimension": where if named else dimension,
            "detail": "".join(traceback.format_exception(error.__cause__)) if error.__cause__ else "",
        }

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Shows what nobody expected in the status too, and lets it go on to whoever called."""
        try:
            yield
        except BaseException as error:
            self.error = {"message": f"{type(error).__name__}: {error}", "place": "internal", "argument": None, "axis": None,
                          "dimension": None, "kind": type(error).__name__, "detail": traceback.format_exc()}
            log.error("the explorer met an error of its own", exc_info=error)
            raise

    # How a compile is started and answers.

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

    def _start(self, turn: int) -> None:
        if turn != self._turn or self._goal == "propagated":
            return
        self.busy, self.status, self.failure = True, "compiling", None
        self.message = f"compiling for {self.report.mesh.size} devices"
        with self._shown():
            try:
                job = self._job = self.program.submit(
                    self.plan, level=self._goal, timeout=self._timeout, memory_limit=self._memory_limit,
                    on_report=lambda report: self._inbox.post(partial(self._milestone, turn, report)))
            except ShardvizError as error:
                self._settle_failure(error)
                return
        job.add_done_callback(lambda done: self._inbox.post(partial(self._finished, turn, done)))

    def _milestone(self, turn: int, report: Report) -> None:
        if turn != self._turn or not self.busy or LEVELS.index(report.level) < LEVELS.index(self.level):
            return
        with self._shown(), self.hold_trait_notifications():
            self.report, self.level = report, report.level
            self.status = report.level
            self.busy = LEVELS.index(report.level) < LEVELS.index(self._goal)
            self.message = "memory plan follows" if self.busy else ""

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
                self.busy = True
                self._milestone(turn, job.result())
                self.busy = False

    def _settle_failure(self, error: ShardvizError) -> None:
        with self.hold_trait_notifications():
            self._trouble = error if isinstance(error, CompileError) else CompileError(str(error))
            self.busy = False
            self.status = "stopped" if isinstance(error, CompileStopped) else "failed"
            self.message = str(error)
            self.failure = {"kind": type(error).__name__, "message": str(error), "stderr": getattr(error, "stderr", "")}

    # Names and specs.

    def _argument(self, name: str) -> Any:
        return _named(self.report.arguments, name, "argument")

    def _output(self, name: str) -> Any:
        return _named(self.report.outputs, name, "output")

    def _spec(self, name: str, dimension: int) -> Spec:
        value = self._argument(name)
        return _checked(Spec.of(self.bound.in_specs[name], len(value.shape)), name, dimension)

    def _out_spec(self, name: str, dimension: int) -> Spec:
        value = self._output(name)
        spec = self.bound.out_specs.get(name)
        return _checked(Spec.of(value.spec if spec is None else spec, len(value.shape)), name, dimension)

    def _read(self, spec: Any, name: str) -> Spec | None:
        if isinstance(spec, str):
            return edits.parse_spec(spec, name)
        return None if spec is None else Spec.of(spec)


def _named(values: Iterable[Any], name: str, what: str) -> Any:
    for value in values:
        if value.name == name:
            return value
    raise SpecError(f"the program has no {what} {name!r}", argument=name)


def _checked(spec: Spec, name: str, dimension: int) -> Spec:
    if not 0 <= dimension < len(spec.dims):
        raise SpecError(f"{name!r} has no dimension {dimension}; it has {len(spec.dims)}", argument=name)
    return spec


def _same(one: Any, other: Any) -> bool:
    key = lambda bound: (bound.mesh, dict(bound.in_specs), dict(bound.out_specs))  # noqa: E731
    return key(one) == key(other)


def _differences(before: Report | None, after: Report) -> frozenset[str]:
    if before is None:
        return frozenset()
    old: Mapping[str, Spec | None] = {v.name: v.spec for v in _values(before)}
    return frozenset(v.name for v in _values(after) if v.name in old and old[v.name] != v.spec)


def _values(report: Report) -> tuple[Any, ...]:
    return (*report.arguments, *report.outputs, *report.intermediates)
