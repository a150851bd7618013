"""The explorer's state: a program under a plan that can be changed, undone and compiled. It knows no view.

All that is known stands in one record, a `Snapshot`. Each edit (`edits.py`) goes one way: `apply` says what is known
after it and what follows from it; the new snapshot takes the place of the old one as a whole; then whoever has
subscribed hears once which of its parts are new, and what follows is done: a compile a moment later, whose answers
replace the report, or a chore in the background.

>>> state = ExplorerState(program, plan)                                    # doctest: +SKIP
>>> state.set_dim("params['w1']", 1, ["model"])                             # doctest: +SKIP
True
>>> state.level, state.report.value("params['w1']").shard_shape             # doctest: +SKIP
('propagated', (1024, 512))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost
from shardviz.errors import CompileError, CompileTimeout, ShardvizError
from shardviz.explorer.apply import Answers, ChoreEffect, Compile, Effect, apply, internal, refused
from shardviz.explorer.background import Background
from shardviz.explorer.cards import Deck, Results
from shardviz.explorer.compile_loop import CompileLoop, CompileTask
from shardviz.explorer.edits import EDITS, Edit
from shardviz.explorer.logical import Logical
from shardviz.explorer.machine_choice import MachineChoice, WholeStep, read
from shardviz.explorer.selection import Selection
from shardviz.explorer.snapshot import Progress, Snapshot, UndoStep
from shardviz.explorer.ways import WayOn
from shardviz.judge.report import Report
from shardviz.records.report import ASKED, LEVELS, PlanRecord

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.ask.submitting import OnReport, ReportFuture
    from shardviz.program.plan import Plan

T = TypeVar("T")


def _read(path: str) -> Any:
    return property(attrgetter(f"now.{path}"))


class ExplorerState:
    """A program under a plan that can be changed, undone and compiled.

    Each edit of `edits.py` is a method too, by its `op`, that says whether the edit was taken: `state.undo()`,
    `state.set_dim("x", 0, ["data"])`. All that is known is in `now`, a `Snapshot` that is replaced as a whole; most
    attributes read it. `background` says what goes on beside the edits, and makes the texts of the plans.

    Args:
        program: what `sv.trace` gave.
        plan: the plan to begin with.
        level: how far to go with each plan: `propagated`, `partitioned` or `compiled`.
        debounce: seconds without a newer plan before a compile is started.
        timeout: seconds that a compile may take; may be set later.
        memory_limit: bytes that a compile may use; None for no limit; may be set later.
        target: the machine to compile for and to cost the step on. When the mesh gets another size, it becomes the same
            chip's most cube-like topology of that size, and `target_remark` says so.
        tokens: tokens (or samples) of a whole step, for tokens a second; None for what the arguments tell, False: none.
        model_flops: FLOPs of a whole step that the model needs, for its utilisation.

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
        tokens: float | bool | None = None,
        model_flops: float | None = None,
    ):
        if level not in ASKED:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, ASKED))}")
        self.program = program
        self.timeout, self.memory_limit = timeout, memory_limit
        self.asking = Answers(program, level, WholeStep(tokens, model_flops))
        self.loop = CompileLoop(self._submit, self._hear, debounce)
        self.background = Background(self, self.loop.inbox)
        self._subscribers: list[Callable[[frozenset[str]], None]] = []
        self._telling = False
        self.loop.inbox.run(lambda: self._open(plan, target))

    def _open(self, plan: Plan, target: str | Machine) -> None:
        plan = self.program._settled(plan)
        bound = self.program.bind(plan)
        report = self.program.propagate(plan)
        choice = MachineChoice.of(read(target, bound.mesh), bound.mesh)
        results = Results(bound, {report.level: report}, choice, self.asking.whole)
        results.priced()  # what cannot be priced is not opened
        self.asking.keep(plan, results)
        task = self.asking.task(plan, results)
        largest = max(report.arguments, key=lambda v: v.bytes_per_device or 0, default=None)
        self._told = Snapshot(
            deck=Deck.of(plan, results),
            progress=self.loop.expected(task),
            selection=Selection() if largest is None else Selection.of(largest.name, report),
        )
        self._held: tuple[Snapshot, tuple[Effect, ...]] = self._told, ()
        self.loop.later(task)
        self.loop.hurry()

    @property
    def now(self) -> Snapshot:
        return self._held[0]

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
    busy: bool = _read("progress.busy")
    failure: dict[str, str] | None = _read("progress.failure")
    error: dict[str, Any] | None = _read("error")
    ways: tuple[WayOn, ...] = _read("ways")
    logical: Logical = _read("logical")
    remark: str = _read("selection.remark")
    deck: Deck = _read("deck")
    past: tuple[UndoStep, ...] = _read("history.past")
    ahead: tuple[UndoStep, ...] = _read("history.ahead")

    # Edits.

    def __getattr__(self, op: str) -> Callable[..., bool]:
        """An edit of this `op` as a method."""
        if op not in EDITS:
            raise AttributeError(f"an explorer has no {op!r}")
        return lambda *args, **kwargs: self.do(EDITS[op](*args, **kwargs))  # type: ignore[arg-type]

    def do(self, edit: Edit) -> bool:
        """Does an edit; says whether it was taken. Where it is refused, `error` says why, and all else stays."""

        def done() -> bool:
            applied = apply(self.now, edit, self.asking)
            self._held = applied.now, (*self._held[1], *applied.effects)
            self._settle()
            return applied.taken

        return self._alone(done)

    def refuse(self, error: ShardvizError, place: str) -> None:
        """Shows why something was not done, at its place."""
        self._alone(lambda: self._put(refused(self.now, error, place, self.asking)))

    @property
    def selected(self) -> str:
        """The name of the value that is looked at; may be set."""
        return self.now.selection.name

    @selected.setter
    def selected(self, name: str) -> None:
        self.select(name)

    def restore(self, deck: Callable[[Callable[[Plan], Results]], Deck]) -> None:
        """Takes the cards of a saved explorer, which `deck` makes, given what tells what is known of a plan. The card
        that is open has the present plan. A `ShardvizError` where one of the plans does not fit the program."""
        self.loop.inbox.run(lambda: self.put(deck=deck(lambda plan: self.asking.results(plan, self.now.machine))))

    # How what is known is replaced: as a whole, and told once.

    def subscribe(self, callback: Callable[[frozenset[str]], None]) -> None:
        """Has `callback` called once after each change, with the names of the `Snapshot`'s parts that are new, and
        `mesh` where the plan has another mesh."""
        self._subscribers.append(callback)

    def put(self, **parts: Any) -> None:
        """Replaces parts of what is known, and tells it."""
        self._put(replace(self.now, **parts))

    def _put(self, now: Snapshot) -> None:
        self._held = now, self._held[1]
        self._tell()

    def _alone(self, change: Callable[[], T]) -> T:
        """Does a change while nobody else does: what compiles answer meanwhile is taken afterwards.

        What nobody expected is shown as an `error` and raised. After a Ctrl-C the snapshot is the old or the new one;
        what follows from it is done before the interrupt goes on.
        """

        def whole() -> T:
            try:
                return change()
            except Exception as error:
                self.put(error=internal(error))
                raise
            except BaseException:
                self._settle()
                raise

        return self.loop.inbox.run(whole)

    def _settle(self) -> None:
        """Does what follows from the snapshot: its compile, what is told of it, and the chores."""
        while compiles := [effect for effect in self._held[1] if isinstance(effect, Compile)]:
            self._compile(compiles[0])  # once more where it is interrupted: a newer one takes the place of an older one
            now, effects = self._held
            self._held = now, tuple(effect for effect in effects if effect is not compiles[0])
        self._tell()
        while effects := self._held[1]:
            self._held = self.now, effects[1:]
            if isinstance(chore := effects[0], ChoreEffect):
                self.background.start(chore.name, chore.about) if chore.begins else self.background.end(chore.name)

    def _compile(self, effect: Compile) -> None:
        if effect.task is None:
            self.loop.stop()
        else:
            (self.loop.now if effect.at_once else self.loop.later)(effect.task)

    def _tell(self) -> None:
        """Tells the subscribers, once, what is new since they were told last, also what an interrupt kept from them;
        what one of them changes is told afterwards."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._told is not (now := self.now):
                self.background.follow(now.new_since(self._told))
                now = self.now
                if new := now.new_since(self._told):
                    for callback in tuple(self._subscribers):
                        callback(new)
                self._told = now
        except Exception:  # what cannot be shown would not be the next time either
            self._told = self.now
            raise
        finally:
            self._telling = False

    # The compile.

    def wait(self, level: str = "compiled", timeout: float = 60.0) -> Report:
        """Blocks until the report has `level` (or as far as this state goes), and returns it. A `CompileError` says why
        it cannot be reached; a `CompileTimeout` if `timeout` seconds were not enough: the compile goes on."""
        if level not in LEVELS:
            raise ShardvizError(f"level {level!r}: expected one of {', '.join(map(repr, LEVELS))}")
        want = min(LEVELS.index(level), LEVELS.index(self.asking.reach(self.now.machine)))
        old = lambda: self.now.results.carried and want > LEVELS.index("propagated")  # noqa: E731
        there = lambda: LEVELS.index(self.level) >= want and not old()  # noqa: E731
        self.loop.hurry()
        if not self.loop.inbox.wait_until(lambda: there() or not self.busy, timeout):
            raise CompileTimeout(f"no {level} report within {timeout:g} s; the compile goes on")
        if not there():
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

    def _hear(self, progress: Progress, report: Report | None) -> None:
        """Takes what the compile loop tells."""

        def heard() -> None:
            now = replace(self.now, progress=progress)
            if report is not None:
                now = now.told(report)
                now.results.priced()
                self.asking.keep(now.plan, now.results)
            if progress.trouble is not None and progress.failure is None:
                now = replace(now, error=internal(progress.trouble))
            self._put(now)

        self._alone(heard)
