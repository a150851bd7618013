"""The explorer's state, without a view: a program under a plan that can be changed, undone and compiled.

The whole state is one record, a `Snapshot`. `apply` turns an edit (`edits.py`) into a new snapshot and its effects. The
new snapshot replaces the old one. Subscribers are notified once of the parts that changed. Then the effects run: a
compile after a moment, whose reports update the snapshot, or a chore in the background.

>>> state = ExplorerState(program, plan)                                    # doctest: +SKIP
>>> state.set_dim("params['w1']", 1, ["model"])                             # doctest: +SKIP
True
>>> state.level, state.report.value("params['w1']").shard_shape             # doctest: +SKIP
('propagated', (1024, 512))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, getdoc, signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from shardviz.caching import collection_paused
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost
from shardviz.errors import CompileError, CompileTimeout, ShardvizError
from shardviz.explorer import edits
from shardviz.explorer.apply import Answers, ChoreEffect, Compile, Effect, apply, internal, refused
from shardviz.explorer.background import Background
from shardviz.explorer.cards import Deck, Results
from shardviz.explorer.changes import Alternative
from shardviz.explorer.compile_loop import CompileLoop, CompileTask
from shardviz.explorer.edits import Edit
from shardviz.explorer.logical import Logical
from shardviz.explorer.machine_choice import MachineChoice, WholeStep, read
from shardviz.explorer.selection import Selection
from shardviz.explorer.snapshot import Progress, Snapshot, UndoStep
from shardviz.judge.report import Report
from shardviz.records.report import ASKED, LEVELS, PlanRecord

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.ask.submitting import OnReport, ReportFuture
    from shardviz.plan.plan import Plan

P = ParamSpec("P")
T = TypeVar("T")


def _read(path: str) -> Any:
    return property(attrgetter(f"now.{path}"))


def _edit(kind: Callable[P, Edit]) -> Callable[Concatenate[ExplorerState, P], bool]:
    """Return a method that does an edit; it takes what the edit has."""

    def edit(self: ExplorerState, *args: P.args, **kwargs: P.kwargs) -> bool:
        return self.do(kind(*args, **kwargs))

    edit.__doc__, fields = getdoc(kind), signature(kind)
    itself = Parameter("self", Parameter.POSITIONAL_ONLY)
    edit.__signature__ = fields.replace(parameters=[itself, *fields.parameters.values()])  # pyright: ignore
    return edit


class ExplorerState:
    """A program under a plan that can be changed, undone and compiled.

    Each edit of `edits.py` is also a method, named by its `op`, that returns whether the edit was accepted:
    `state.undo()`, `state.set_dim("x", 0, ["data"])`. The state is in `now`, a `Snapshot`; most attributes read it.
    `background` runs chores.

    Args:
        program: the traced program.
        plan: the starting plan.
        debounce: seconds without a newer plan before a compile starts.
        target: as for `sv.explore`. If the mesh changes its size, the same chip's most cube-like topology of that size
            is chosen, and `target_remark` says so.
        remark: the initial `target_remark`.
        level, timeout, memory_limit, tokens, model_flops: as for `sv.explore`.

    Raises:
        ShardvizError: if the plan does not fit the program, or the target the mesh.
    """

    def __init__(
        self,
        program: Program,
        plan: Plan,
        *,
        level: str = "compiled",
        debounce: float = 0.03,
        timeout: float = 60.0,
        memory_limit: float | None = None,
        target: str | Machine = "cpu",
        remark: str = "",
        tokens: float | bool | None = None,
        model_flops: float | None = None,
    ):
        if level not in ASKED:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, ASKED))}")
        self.program = program
        self.timeout, self.memory_limit = timeout, memory_limit
        self.asking = Answers(program, level, WholeStep(tokens, model_flops))
        self.loop = CompileLoop(self._submit, self._take_progress, debounce)
        self.background = Background(self, self.loop.inbox)
        self._subscribers: list[Callable[[frozenset[str]], None]] = []
        self._telling = False
        self.loop.inbox.run(lambda: self._open(plan, target, remark))

    def _open(self, plan: Plan, target: str | Machine, remark: str) -> None:
        plan = self.program._settled(plan)
        bound = self.program.bind(plan)
        report = self.program.propagate(plan)
        choice = replace(MachineChoice.of(read(target, bound.mesh), bound.mesh), remark=remark)
        results = Results(bound, {report.level: report}, choice, self.asking.whole)
        results.priced()  # raises before the explorer opens
        self.asking.keep(plan, results)
        task = self.asking.task(plan, results)
        largest = max(report.arguments, key=lambda v: v.bytes_per_device or 0, default=None)
        self._notified = Snapshot(
            deck=Deck.of(plan, results),
            progress=self.loop.expected(task),
            selection=Selection() if largest is None else Selection.of(largest.name, report),
        )
        self._state: tuple[Snapshot, tuple[Effect, ...]] = self._notified, ()
        self.loop.later(task)
        self.loop.hurry()

    @property
    def now(self) -> Snapshot:
        return self._state[0]

    # What is known: each name, and where it stands in the snapshot.

    plan: Plan = _read("plan")
    bound: PlanRecord = _read("bound")
    report: Report = _read("report")
    level: str = _read("report.level")
    changed: frozenset[str] = _read("changed")
    machine: Machine = _read("machine.machine")
    target: str = _read("machine.target")
    target_remark: str = _read("machine.remark")
    missing: str = _read("machine.missing")
    cost: StepCost | None = _read("cost")
    cost_error: str = _read("machine.trouble")
    status: str = _read("progress.status")
    message: str = _read("progress.message")
    expected: float | None = _read("progress.expected")
    busy: bool = _read("progress.busy")
    failure: dict[str, str] | None = _read("progress.failure")
    error: dict[str, Any] | None = _read("error")
    alternatives: tuple[Alternative, ...] = _read("alternatives")
    logical: Logical = _read("logical")
    remark: str = _read("selection.remark")
    deck: Deck = _read("deck")
    past: tuple[UndoStep, ...] = _read("history.past")
    ahead: tuple[UndoStep, ...] = _read("history.ahead")

    # Edits: each has a method by its `op`.

    set_spec = _edit(edits.SetSpec)
    set_dim = _edit(edits.SetDim)
    move_axis = _edit(edits.MoveAxis)
    set_memory = _edit(edits.SetMemory)
    constrain = _edit(edits.ConstrainValue)
    shard_dimension = _edit(edits.ShardDimension)
    add_axis = _edit(edits.AddAxis)
    remove_axis = _edit(edits.RemoveAxis)
    rename_axis = _edit(edits.RenameAxis)
    resize_axis = _edit(edits.ResizeAxis)
    set_target = _edit(edits.SetTarget)
    set_options = _edit(edits.SetOptions)
    set_order = _edit(edits.SetOrder)
    exchange_axes = _edit(edits.ExchangeAxes)
    add_rule = _edit(edits.AddRule)
    make_rule = _edit(edits.MakeRule)
    set_rule = _edit(edits.SetRule)
    move_rule = _edit(edits.MoveRule)
    remove_rule = _edit(edits.RemoveRule)
    take_alternative = _edit(edits.TakeAlternative)
    dismiss = _edit(edits.Dismiss)
    undo = _edit(edits.Undo)
    redo = _edit(edits.Redo)
    pin = _edit(edits.Pin)
    open_card = _edit(edits.OpenCard)
    rename_card = _edit(edits.RenameCard)
    move_card = _edit(edits.MoveCard)
    delete_card = _edit(edits.DeleteCard)
    compare_with = _edit(edits.CompareWith)
    take_preset = _edit(edits.TakePreset)
    take_fix = _edit(edits.TakeFix)
    try_presets = _edit(edits.TryPresets)
    close_presets = _edit(edits.ClosePresets)
    begin_search = _edit(edits.BeginSearch)
    stop_search = _edit(edits.StopSearch)
    try_fixes = _edit(edits.TryFixes)
    run_code = _edit(edits.RunCode)
    stop_code = _edit(edits.StopCode)
    ask_why = _edit(edits.AskWhy)
    close_why = _edit(edits.CloseWhy)
    stop = _edit(edits.Stop)
    recompile = _edit(edits.Recompile)
    set_mesh = _edit(edits.SetMesh)
    set_plan = _edit(edits.SetPlan)
    add_card = _edit(edits.AddCard)
    find_dimensions = _edit(edits.FindDimensions)
    select = _edit(edits.Select)

    def do(self, edit: Edit) -> bool:
        """Apply an edit and return whether it was accepted. If refused, only `error` changes."""

        def done() -> bool:
            applied = apply(self.now, edit, self.asking)
            self._state = applied.now, (*self._state[1], *applied.effects)
            self._settle()
            return applied.taken

        return self._alone(done)

    def refuse(self, error: ShardvizError, place: str) -> None:
        """Show an error at a place of the view."""
        self._alone(lambda: self._put(refused(self.now, error, place, ask=self.asking)))

    @property
    def selected(self) -> str:
        """The name of the selected value; may be set."""
        return self.now.selection.name

    @selected.setter
    def selected(self, name: str) -> None:
        self.select(name)

    def restore(self, deck: Callable[[Callable[[Plan], Results]], Deck]) -> None:
        """Restore the cards of a saved explorer.

        `deck` builds them, given a function from a plan to its results. The open card must have the current plan.
        Raises ShardvizError if a plan does not fit the program.
        """
        self.loop.inbox.run(lambda: self.put(deck=deck(lambda plan: self.asking.results(plan, self.now.machine))))

    # How what is known is replaced: as a whole, and told once.

    def subscribe(self, callback: Callable[[frozenset[str]], None]) -> None:
        """Call `callback` once after each change with the names of the changed parts of the `Snapshot`, and `mesh` if
        the plan has another mesh."""
        self._subscribers.append(callback)

    def put(self, **parts: Any) -> None:
        """Replace parts of the snapshot, and notify the subscribers."""
        self._put(replace(self.now, **parts))

    def _put(self, now: Snapshot) -> None:
        self._state = now, self._state[1]
        self._notify()

    def _alone(self, change: Callable[[], T]) -> T:
        """Run a change exclusively; answers of compiles are handled afterwards.

        Unexpected errors are shown as an `error` and raised. After a Ctrl-C the snapshot is the old or the new one, and
        its effects run before the interrupt continues.
        """

        def whole() -> T:
            try:
                return change()
            except Exception as error:  # whatever it is, the page shows it
                self.put(error=internal(error))
                raise
            except BaseException:  # a Ctrl-C
                self._settle()
                raise

        with collection_paused():
            return self.loop.inbox.run(whole)

    def _settle(self) -> None:
        """Run the effects of the snapshot: the compile, the notifications and the chores."""
        while compiles := [effect for effect in self._state[1] if isinstance(effect, Compile)]:
            self._compile(compiles[0])  # repeated after an interrupt; a newer compile replaces an older one
            now, effects = self._state
            self._state = now, tuple(effect for effect in effects if effect is not compiles[0])
        self._notify()
        while effects := self._state[1]:
            self._state = self.now, effects[1:]
            if isinstance(chore := effects[0], ChoreEffect):
                self.background.start(chore.name, chore.about) if chore.begins else self.background.end(chore.name)

    def _compile(self, effect: Compile) -> None:
        if effect.task is None:
            self.loop.stop()
        else:
            (self.loop.now if effect.at_once else self.loop.later)(effect.task)

    def _notify(self) -> None:
        """Notify the subscribers once of all changes since the last notification. Changes made by a subscriber are
        notified afterwards."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._notified is not (now := self.now):
                self.background.follow(now.new_since(self._notified))
                now = self.now
                if new := now.new_since(self._notified):
                    for callback in tuple(self._subscribers):
                        callback(new)
                self._notified = now
        except Exception:  # showing the same snapshot again would fail again
            self._notified = self.now
            raise
        finally:
            self._telling = False

    def close(self) -> None:
        """Stop the chores and the running compile."""
        self.loop.inbox.run(self.background.close)
        if self.now.progress.busy:
            self.loop.inbox.run(self.loop.stop)

    # The compile.

    def wait(self, level: str = "compiled", timeout: float = 60.0) -> Report:
        """Wait until the report has `level`, or this state's highest level, and return it.

        Raises CompileError if the level cannot be reached; CompileTimeout after `timeout` seconds, while the compile
        goes on.
        """
        if level not in LEVELS:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, LEVELS))}")
        want = min(LEVELS.index(level), LEVELS.index(self.asking.reach(self.now.machine)))

        def is_old():
            return self.now.results.carried and want > LEVELS.index("propagated")

        def reached():
            return LEVELS.index(self.level) >= want and not is_old()

        self.loop.hurry()
        if not self.loop.inbox.wait_until(lambda: reached() or not self.busy, timeout):
            raise CompileTimeout(f"no {level} report within {timeout:g} s; the compile continues")
        if not reached():
            trouble = self.now.progress.trouble
            raise trouble if isinstance(trouble, CompileError) else CompileError(f"no {level} report: {self.message}")
        return self.report

    def _submit(self, task: CompileTask, on_report: OnReport) -> ReportFuture:
        return self.program.submit(
            task.plan,
            level=task.reach,
            target=task.target,
            timeout=self.timeout,
            memory_limit=self.memory_limit,
            on_report=on_report,
        )

    def _take_progress(self, progress: Progress, report: Report | None) -> None:
        def take() -> None:
            now = replace(self.now, progress=progress)
            if report is not None:
                now = now.with_report(report)
                now.results.priced()
                self.asking.keep(now.plan, now.results)
            if progress.trouble is not None and progress.failure is None:
                now = replace(now, error=internal(progress.trouble))
            self._put(now)

        self._alone(take)
