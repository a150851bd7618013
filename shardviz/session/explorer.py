"""The explorer's state: a plan, what follows from it, and every change that a person can make. It knows no view.

All that is known stands in one record, a `Snapshot`. Each change goes the same way: the new plan is checked against the
program; if it is wrong, `error` says what and where, and everything else stays as it was. If it is right, the
`propagated` report follows at once, and a moment later, when no newer change has come, a compile is started whose
answers (`partitioned`, then `compiled`) replace the report. Either way a new snapshot takes the place of the old one as
a whole, and whoever has subscribed hears once which of its parts are new.

>>> state = ExplorerState(program, plan)                                    # doctest: +SKIP
>>> state.set_dim("params['w1']", 1, ["model"])                             # doctest: +SKIP
True
>>> state.level, state.report.value("params['w1']").shard_shape             # doctest: +SKIP
('propagated', (1024, 512))
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from shardviz.costs.machine import Machine
from shardviz.costs.orders import exchanged, reordered
from shardviz.costs.step_cost import StepCost
from shardviz.errors import CompileError, CompileTimeout, ShardvizError, SpecError
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.records.report import LEVELS, PlanRecord, Report
from shardviz.session import edits
from shardviz.session.compile_loop import CompileLoop, Task
from shardviz.session.machine_choice import MachineChoice, WholeStep, missing_for, read
from shardviz.session.selection import Selection
from shardviz.session.snapshot import Answers, History, Progress, Snapshot, Step

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.records import Value
    from shardviz.session.program import Program
    from shardviz.session.submitting import OnReport, ReportFuture

log = logging.getLogger(__name__)

_TO_THE_END = 10  # how much longer than up to its plan a compile may take: it is 80 to 95 % machine code


def _read(path: str) -> Any:
    return property(attrgetter(f"now.{path}"))


class ExplorerState:
    """A program under a plan that can be changed, undone and compiled.

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

    Attributes:
        now: the `Snapshot`, which is replaced as a whole; what else is known is read from it.
        loop: the `CompileLoop`.
        timeout, memory_limit: what the next compile may take, in seconds and bytes (None: no limit); may be set.
        plan, bound: the plan, and the same checked against the program, with a full spec for every argument.
        report, level: what is known of it so far, at which level. After another target was chosen it is the old
            target's, until the compiler answers: its shardings are the same.
        changed, finishable: see `Answers`.
        machine, target: the machine that the plan is for, and its text. When the mesh gets another size, it becomes the
            same chip's most cube-like topology of that size, and `target_remark` says so.
        missing: why this installation cannot compile for the machine, and the command that mends it; then reports go
            no further than `partitioned`. Empty where it can.
        cost: what the report's step costs on the machine; None for `cpu`, and where `cost_error` says why.
        status, message, busy, failure: see `Progress`.
        error: a change that was refused, or an error of the explorer's own: `message`, `place` (`mesh`, `argument`,
            `output`, `rule`, `target`, `order`, `plan` or `internal`), `argument`, `dimension`, `axis`, `kind`,
            `detail`; None if all is well.
        selected, remark: the name of the value that is looked at, which may be set, and how it came to it; see
            `Selection`.
        past, ahead: the steps that `undo` and `redo` go to.

    Raises:
        ShardvizError: if the plan does not fit the program, or the target the mesh.
    """

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
        self.program = program
        self.timeout, self.memory_limit = timeout, memory_limit
        self.loop = CompileLoop(self._submit, self._hear, debounce)
        self._goal, self._whole = level, WholeStep(tokens, model_flops)
        self._subscribers: list[Callable[[frozenset[str]], None]] = []
        with self.loop.inbox.owned():
            bound = program.bind(plan)
            machine = MachineChoice.of(read(target, bound.mesh), bound.mesh)
            answers = Answers.of(program.propagate(plan), {})
            machine, cost = machine.priced(answers.report, self._whole)
            progress = self.loop.later(self._task(plan, answers, machine))
            largest = max(answers.report.arguments, key=lambda v: v.bytes_per_device or 0, default=None)
            self.now = Snapshot(
                plan=plan,
                bound=bound,
                answers=answers,
                machine=machine,
                cost=cost,
                progress=progress,
                selection=Selection() if largest is None else Selection.of(largest.name, answers.report),
                history=History(),
            )
            self.loop.hurry()

    def subscribe(self, callback: Callable[[frozenset[str]], None]) -> None:
        """Has `callback` called after each change with the names of the `Snapshot`'s parts that are new.

        `mesh` is among the names where the plan has another mesh. A change is told once, however much follows from it.
        """
        self._subscribers.append(callback)

    # What is known: each name, and where it stands in the snapshot.

    plan: Plan = _read("plan")
    bound: PlanRecord = _read("bound")
    report: Report = _read("answers.report")
    level: str = _read("answers.report.level")
    changed: frozenset[str] = _read("answers.changed")
    finishable: bool = _read("answers.finishable")
    machine: Machine = _read("machine.machine")
    target: str = _read("machine.target")
    target_remark: str = _read("machine.remark")
    missing: str = _read("machine.missing")
    cost: StepCost | None = _read("cost")
    cost_error: str = _read("machine.trouble")
    status: str = _read("progress.status")
    message: str = _read("progress.message")
    busy: bool = _read("progress.busy")
    failure: dict[str, str] | None = _read("progress.failure")
    error: dict[str, Any] | None = _read("error")
    remark: str = _read("selection.remark")
    past: tuple[Step, ...] = _read("history.past")
    ahead: tuple[Step, ...] = _read("history.ahead")

    @property
    def future(self) -> ReportFuture | None:
        """The compile that runs for this plan; None while none does."""
        return self.loop.future

    @property
    def selected(self) -> str:
        """The name of the value that is looked at; may be set."""
        return self.now.selection.name

    @selected.setter
    def selected(self, name: str) -> None:
        self.select(name)

    def select(self, name: str, level: str = "") -> None:
        """Selects a value.

        Args:
            name: its name.
            level: the level at which it has this name, where that may not be the report's own: a page may show an older
                report than the newest when it is clicked. Empty for the report's own.
        """
        with self.loop.inbox.owned():
            seen = self.now.answers.known.get(level, self.report)
            chosen = Selection.of(name, seen)
            if seen is not self.report and chosen.chosen is not None:
                self._put(selection=chosen.carried(self.report))
            elif name != self.selected:
                self._put(selection=Selection.of(name, self.report))

    # Specs. Each change returns whether it was taken.

    def set_spec(self, name: str, spec: Any, twins: bool = False) -> bool:
        """Sets the spec of an argument: a `Spec`, a PartitionSpec, a tuple, None, or text such as `P('data', None)`.

        Args:
            name: the argument's tree path.
            spec: how it shall be cut.
            twins: give the same to its `twins`.
        """
        return self._cut("argument", name, lambda: _read_spec(spec, name) or Spec(), twins=twins)

    def set_dim(self, name: str, dimension: int, axes: Iterable[Axis], twins: bool = False) -> bool:
        """Sets the mesh axes that cut one dimension of an argument, major to minor."""
        return self._cut_dim("argument", name, dimension, lambda s: edits.with_dim(s, dimension, axes), twins)

    def move_axis(self, name: str, axis: str, dimension: int, place: int | None = None, twins: bool = False) -> bool:
        """Moves or adds a mesh axis to a dimension of an argument, last or at a place among that dimension's axes."""
        return self._cut_dim("argument", name, dimension, lambda s: edits.moved(s, axis, dimension, place), twins)

    def set_out_spec(self, name: str, spec: Any) -> bool:
        """Sets the spec of an output, as `set_spec` does; None leaves it to the compiler."""
        return self._cut("output", name, lambda: _read_spec(spec, name))

    def set_out_dim(self, name: str, dimension: int, axes: Iterable[Axis]) -> bool:
        """Sets the axes on one dimension of an output; the others keep what they have, or what the compiler chose."""
        return self._cut_dim("output", name, dimension, lambda s: edits.with_dim(s, dimension, axes))

    def move_out_axis(self, name: str, axis: str, dimension: int, place: int | None = None) -> bool:
        """Moves or adds a mesh axis to a dimension of an output."""
        return self._cut_dim("output", name, dimension, lambda s: edits.moved(s, axis, dimension, place))

    def twins(self, name: str) -> tuple[tuple[str, str], ...]:
        """What stands at the same place of other trees, alike in shape and spec, as (`argument` or `output`, name)."""
        return edits.twins(name, self.report, self.bound)

    def legal_axes(self, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        """For each mesh axis, whether it may be added to a dimension of an argument, and why not."""
        return self._choices("argument", name, dimension)

    def legal_out_axes(self, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        """The same for an output."""
        return self._choices("output", name, dimension)

    def _choices(self, place: str, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        spec, value = self._spec(place, name, dimension), self._value(place, name)
        return edits.choices(value.shape, spec, self.plan.mesh, dimension)

    def _cut_dim(
        self, place: str, name: str, dimension: int, change: Callable[[Spec], Spec], twins: bool = False
    ) -> bool:
        return self._cut(place, name, lambda: change(self._spec(place, name, dimension)), dimension, twins)

    def _cut(
        self,
        place: str,
        name: str,
        build: Callable[[], Spec | None],
        dimension: int | None = None,
        twins: bool = False,
    ) -> bool:
        def plan() -> Plan:
            spec, changed = build(), self.plan
            for where, which in ((place, name), *(self.twins(name) if twins else ())):
                changed = changed.with_spec(which, spec) if where == "argument" else changed.with_out_spec(which, spec)
            return changed

        return self._edit(plan, place, name, dimension)

    def _spec(self, place: str, name: str, dimension: int) -> Spec:
        """The spec of an argument or output as it is now, an entry a dimension, of which there must be this one."""
        value = self._value(place, name)
        given = (self.bound.in_specs if place == "argument" else self.bound.out_specs).get(name)
        spec = Spec.of(value.spec if given is None else given, len(value.shape))
        if not 0 <= dimension < len(spec.dims):
            raise SpecError(f"{name!r} has no dimension {dimension}; it has {len(spec.dims)}", argument=name)
        return spec

    def _value(self, place: str, name: str) -> Value:
        return edits.named(self.report.arguments if place == "argument" else self.report.outputs, name, place)

    # The mesh and the machine.

    def add_axis(self, name: str, size: int) -> bool:
        """Adds a mesh axis, the minor one."""
        return self._edit(lambda: self.plan.with_mesh(edits.mesh_with_axis(self.plan.mesh, name, size)), "mesh", name)

    def remove_axis(self, name: str) -> bool:
        """Removes a mesh axis, from every spec too."""
        return self._edit(lambda: self.plan.without_axis(name), "mesh", name)

    def rename_axis(self, old: str, new: str) -> bool:
        """Renames a mesh axis, in every spec too."""
        return self._edit(lambda: self.plan.rename_axis(old, new), "mesh", old)

    def resize_axis(self, name: str, size: int) -> bool:
        """Sets the number of devices along a mesh axis."""
        return self._edit(lambda: self.plan.with_mesh(edits.mesh_with_size(self.plan.mesh, name, size)), "mesh", name)

    def set_mesh(self, mesh: Any) -> bool:
        """Sets the whole mesh: anything that `DeviceMesh.of` reads, such as `"data=8,model=4"`."""
        return self._edit(lambda: self.plan.with_mesh(DeviceMesh.of(mesh)), "mesh")

    def set_order(self, order: str | Iterable[int]) -> bool:
        """Sets the order of the mesh's devices on a machine: `mesh_utils` (as JAX would choose), `row-major` (device i
        at place i), or the devices' ids, as numbers or as text such as `0,1,3,2` or `[2,4]T(1,0)`."""
        return self._edit(lambda: self.plan.with_mesh(reordered(self.plan.mesh, order)), "order")

    def exchange_axes(self, one: str, other: str) -> bool:
        """Puts the devices in the order that JAX would choose if two mesh axes stood in each other's place."""
        return self._edit(lambda: self.plan.with_mesh(exchanged(self.plan.mesh, self.machine, one, other)), "order")

    def set_target(self, target: str | Machine) -> bool:
        """Chooses the machine: `tpu v5p:4x4x4`, `gpu h100:8x8`, `cpu`, a chip (`v5p`), `attached`, or a `Machine`.

        It must have as many devices as the mesh; see `machine_choice.read`.
        """
        return self._change(lambda: Step(self.plan, read(target, self.report.mesh)), "target")

    # The rules, and the plan as a whole.

    def add_rule(self, pattern: str, spec: str) -> bool:
        """Adds a rule, the last: a pattern of the tree path, and the spec of every argument that it catches."""
        return self._edit(lambda: edits.with_rule_added(self.plan, pattern, spec), "rule")

    def set_rule(self, place: int, pattern: str | None = None, spec: str | None = None) -> bool:
        """Gives the rule at a place (from 0) another pattern or spec."""
        return self._edit(lambda: edits.with_rule_changed(self.plan, place, pattern, spec), "rule")

    def move_rule(self, place: int, to: int) -> bool:
        """Moves a rule to another place: the first that catches an argument wins."""
        return self._edit(lambda: edits.with_rule_moved(self.plan, place, to), "rule")

    def remove_rule(self, place: int) -> bool:
        """Removes a rule."""
        return self._edit(lambda: edits.with_rule_removed(self.plan, place), "rule")

    def set_plan(self, plan: Plan) -> bool:
        """Takes another plan as a whole."""
        return self._edit(lambda: plan, "plan")

    def undo(self) -> bool:
        """Goes back to the plan and the target before the last change."""
        history = self.now.history
        if not history.past:
            return False
        return self._change(lambda: history.past[-1], "plan", history=history.undone(self._here))

    def redo(self) -> bool:
        """Goes forward to the plan and the target that `undo` left."""
        history = self.now.history
        if not history.ahead:
            return False
        return self._change(lambda: history.ahead[0], "plan", history=history.redone(self._here))

    @property
    def _here(self) -> Step:
        return Step(self.plan, self.machine)

    # How a change is taken: whole, or not at all.

    def _edit(
        self, build: Callable[[], Plan], place: str, argument: str | None = None, dimension: int | None = None
    ) -> bool:
        return self._change(lambda: Step(build(), self.machine), place, argument, dimension)

    def _change(
        self,
        build: Callable[[], Step],
        place: str,
        argument: str | None = None,
        dimension: int | None = None,
        history: History | None = None,
    ) -> bool:
        """Goes to the step that `build` gives; if that is refused, says so at its place."""
        with self.loop.inbox.owned(), self._shown():
            try:
                step, now = build(), self.now
                after = self._after(step, always=history is not None or place == "rule")
            except ShardvizError as error:
                self.refuse(error, place, argument, dimension)
                return False
            if after is None:
                self._put(error=None)
                return True
            # From here on nothing can fail.
            progress = self.loop.later(self._task(after.plan, after.answers, after.machine))
            history = history or now.history.after(self._here)
            self._become(replace(after, history=history, progress=progress, error=None))
            return True

    def _after(self, step: Step, always: bool) -> Snapshot | None:
        """What follows from a step; None where it is the present one.

        Args:
            step: a plan and a machine.
            always: a plan that says the same in other words is another one too.
        """
        now = self.now
        bound = now.bound if step.plan == now.plan else self.program.bind(step.plan)
        if bound is not now.bound and (always or not _same(bound, now.bound)):
            answers = Answers.of(self.program.propagate(step.plan), now.answers.known)
            after = replace(now, plan=step.plan, bound=bound, answers=answers)
        elif step.machine != self.machine:
            after = replace(now, answers=now.answers.for_another_machine())
        else:
            return None
        report = after.answers.report
        machine = MachineChoice.of(step.machine, report.mesh, now.machine)
        return self._priced(replace(after, machine=machine))

    def _priced(self, now: Snapshot) -> Snapshot:
        """A snapshot with what follows from its newest report: the cost, and where the selected value is in it."""
        report = now.answers.report
        machine, cost = now.machine.priced(report, self._whole)
        return replace(now, machine=machine, cost=cost, selection=now.selection.carried(report))

    def refuse(
        self, error: ShardvizError, place: str, argument: str | None = None, dimension: int | None = None
    ) -> None:
        """Shows why something was not done, at its place; everything else stays as it is."""
        named = getattr(error, "argument", None)
        where = getattr(error, "dimension", None)
        cause = error.__cause__
        self._put(
            error={
                "message": str(error),
                "place": place,
                "argument": named or argument,
                "kind": type(error).__name__,
                "axis": argument if place == "mesh" else None,
                "dimension": where if named else dimension,
                "detail": "".join(traceback.format_exception(cause)) if cause else "",
            }
        )

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Shows what nobody expected as an `error` too, and lets it go on to whoever called."""
        try:
            yield
        except BaseException as error:
            self._put(error=_internal(error))
            raise

    def _put(self, **parts: Any) -> None:
        """Replaces parts of the snapshot."""
        self._become(replace(self.now, **parts))

    def _become(self, now: Snapshot) -> None:
        """Replaces the snapshot, and tells who has subscribed."""
        before, self.now = self.now, now
        if new := now.new_since(before):
            for callback in tuple(self._subscribers):
                callback(new)

    # The compile.

    def stop(self) -> None:
        """Stops the compile that runs or is about to; the report stays as it is."""
        with self.loop.inbox.owned():
            if self.busy:
                self.loop.stop()

    def recompile(self) -> None:
        """Compiles the plan as it is once more, after a stop or a failure."""
        with self.loop.inbox.owned():
            missing = missing_for(self.machine, self.report.mesh)  # the person may have installed it
            self._put(machine=replace(self.now.machine, missing=missing))
            self.loop.now(self._task(self.plan, self.now.answers, self.now.machine))

    def finish(self) -> None:
        """Has the compile of this plan run to its end, for what only a finished one tells, such as its machine code.

        Nothing happens where it is not `finishable`, or while an answer is awaited.
        """
        with self.loop.inbox.owned():
            if self.finishable and not self.busy:
                task = self._task(self.plan, self.now.answers, self.now.machine)
                self.loop.now(replace(task, finish=True, due=LEVELS.index("compiled")))

    def wait(self, level: str = "compiled", timeout: float = 60.0) -> Report:
        """Blocks until the report has `level` (or as far as this state goes), and returns it.

        Raises:
            CompileError: why it cannot be reached: stopped, crashed, refused, out of time or memory.
            CompileTimeout: if `timeout` seconds were not enough; the compile goes on.
        """
        if level not in LEVELS:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, LEVELS))}")
        want = min(LEVELS.index(level), LEVELS.index(self._reach(self.now.machine)))
        old = lambda: self.now.answers.stale and want > LEVELS.index("propagated")  # noqa: E731
        there = lambda: LEVELS.index(self.level) >= want and not old()  # noqa: E731
        self.loop.hurry()
        if not self.loop.inbox.wait_until(lambda: there() or not self.busy, timeout):
            raise CompileTimeout(f"no {level} report within {timeout:g} s; the compile goes on")
        if not there():
            trouble = self.now.progress.trouble
            raise trouble if isinstance(trouble, CompileError) else CompileError(f"no {level} report: {self.message}")
        return self.report

    def _task(self, plan: Plan, answers: Answers, machine: MachineChoice) -> Task:
        """What is to be compiled."""
        simulated = f"{answers.report.mesh.size} simulated devices"
        return Task(
            plan=plan,
            target=machine.compiled_for,
            reach=self._reach(machine),
            due=answers.due,
            place=simulated if machine.simulated else machine.target,
        )

    def _reach(self, machine: MachineChoice) -> str:
        """How far the plan's report goes: less than is wanted where nothing here compiles for the machine."""
        return "partitioned" if self._goal == "compiled" and not machine.compilable else self._goal

    def _submit(self, task: Task, on_report: OnReport | None) -> ReportFuture:
        return self.program.submit(
            task.plan,
            level=task.reach,
            target=task.target,
            timeout=self.timeout * (_TO_THE_END if task.finish else 1),
            memory_limit=self.memory_limit,
            on_report=on_report,
            finish=task.finish,
        )

    def _hear(self, progress: Progress, report: Report | None) -> None:
        """Takes what the compile loop tells."""
        with self._shown():
            now = replace(self.now, progress=progress)
            if report is not None:
                now = self._priced(replace(now, answers=now.answers.reached(report)))
            if progress.trouble is not None and progress.failure is None:
                now = replace(now, error=_internal(progress.trouble))
            self._become(now)


def _internal(error: BaseException) -> dict[str, Any]:
    """An error of the explorer's own, as `ExplorerState.error` has it."""
    log.error("the explorer met an error of its own", exc_info=error)
    return {
        "message": f"{type(error).__name__}: {error}",
        "place": "internal",
        "argument": None,
        "axis": None,
        "dimension": None,
        "kind": type(error).__name__,
        "detail": "".join(traceback.format_exception(error)),
    }


def _read_spec(spec: Any, name: str) -> Spec | None:
    if isinstance(spec, str):
        return edits.parse_spec(spec, name)
    return None if spec is None else Spec.of(spec)


def _same(one: PlanRecord, other: PlanRecord) -> bool:
    key = lambda bound: (bound.mesh, dict(bound.in_specs), dict(bound.out_specs))  # noqa: E731
    return key(one) == key(other)
