"""The explorer's state: a plan, what follows from it, and every change that a person can make. It knows no view.

All that is known stands in one record, a `Snapshot`. Each change goes the same way: the new plan is checked against the
program; if it is wrong, `error` says what and where, and everything else stays as it was. If it is right, the
`propagated` report follows at once, and a moment later, when no newer change has come, a compile is started whose
answers (`partitioned`, then `compiled`) replace the report; a plan that was answered before is answered at once. Either
way a new snapshot takes the place of the old one as a whole, and whoever has subscribed hears once which of its parts
are new.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost
from shardviz.errors import CompileError, CompileTimeout, ShardvizError
from shardviz.records.report import LEVELS, PlanRecord, Report
from shardviz.session.answers import AnswerBook, Known
from shardviz.session.cards import Deck
from shardviz.session.compile_loop import CompileLoop, Task
from shardviz.session.logical import Logical
from shardviz.session.machine_choice import MachineChoice, WholeStep, missing_for, read
from shardviz.session.offering import Chores
from shardviz.session.selection import Selection
from shardviz.session.snapshot import Answers, History, Progress, Snapshot, Step
from shardviz.session.staging import Staging
from shardviz.session.ways import Way, ways_to
from shardviz.session.ways import ways as ways_on

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.session.program import Program
    from shardviz.session.submitting import OnReport, ReportFuture

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_TO_THE_END = 10  # how much longer than up to its plan a compile may take: it is 80 to 95 % machine code


def _read(path: str) -> Any:
    return property(attrgetter(f"now.{path}"))


def _whole(method: Callable[Concatenate[ExplorerState, P], T]) -> Callable[Concatenate[ExplorerState, P], T]:
    """A method that changes the state while nobody else does: what compiles answer meanwhile is taken afterwards."""

    @wraps(method)
    def whole(self: ExplorerState, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.loop.inbox.run(lambda: method(self, *args, **kwargs))

    return whole


class ExplorerState(Staging):
    """A program under a plan that can be changed, undone and compiled.

    Args:
        program: what `sv.trace` gave.
        plan: the plan to begin with.
        level: how far to go with each plan: `propagated`, `partitioned` or `compiled`.
        debounce: seconds without a newer plan before a compile is started.
        timeout: seconds that a compile may take.
        memory_limit: bytes that a compile may use; None for no limit.
        target: the machine to compile for and to cost the step on.
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
            `output`, `value`, `dimension`, `rule`, `target`, `order`, `plan` or `internal`), `argument`, `dimension`,
            `axis`, `subject` (what the change was to), `kind`, `detail`, `ways`; None if all is well.
        ways: the ways on from a refused change, in the order of `error["ways"]`.
        logical: what is known of the program's logical dimensions; see `find_dimensions`.
        selected, remark: the name of the value that is looked at, which may be set, and how it came to it; see
            `Selection`.
        deck: the plan's card and those beside it; see `Deck`.
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
        debounce: float = 0.03,
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
        self._book, self._chores = AnswerBook(), Chores()
        self._subscribers: list[Callable[[frozenset[str]], None]] = []
        self._telling = False
        self.loop.inbox.run(lambda: self._open(plan, target))

    def _open(self, plan: Plan, target: str | Machine) -> None:
        plan = self.program.settled(plan)
        bound = self.program.bind(plan)
        machine = MachineChoice.of(read(target, bound.mesh), bound.mesh)
        report = self.program.propagate(plan)
        known = Known(bound, {report.level: report}, machine, self._whole)
        machine, cost = known.priced()
        answers = Answers.of(known.reports, {})
        self._book.keep(plan, known)
        task = self._task(plan, answers, machine)
        largest = max(answers.report.arguments, key=lambda v: v.bytes_per_device or 0, default=None)
        self._told = self.now = Snapshot(
            plan=plan,
            bound=bound,
            answers=answers,
            machine=machine,
            cost=cost,
            progress=self.loop.expected(task),
            selection=Selection() if largest is None else Selection.of(largest.name, answers.report),
            deck=Deck.of(plan, known),
            history=History(),
        )
        self.loop.later(task)
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
    ways: tuple[Way, ...] = _read("ways")
    logical: Logical = _read("logical")
    remark: str = _read("selection.remark")
    deck: Deck = _read("deck")
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

    @_whole
    def select(self, name: str, level: str = "") -> None:
        """Selects a value.

        Args:
            name: its name.
            level: the level at which it has this name, where that may not be the report's own: a page may show an older
                report than the newest when it is clicked. Empty for the report's own.
        """
        seen = self.now.answers.known.get(level, self.report)
        chosen = Selection.of(name, seen)
        if seen is not self.report and chosen.chosen is not None:
            self._put(selection=chosen.carried(self.report))
        elif name != self.selected:
            self._put(selection=Selection.of(name, self.report))

    def set_target(self, target: str | Machine) -> bool:
        """Chooses the machine: `tpu v5p:4x4x4`, `gpu h100:8x8`, `cpu`, a chip (`v5p`), `attached`, or a `Machine`.

        It must have as many devices as the mesh; see `machine_choice.read`. The other cards follow.
        """
        return self._change(lambda: Step(self.plan, read(target, self.report.mesh)), "target", str(target))

    def take_way(self, place: int) -> bool:
        """Takes one of the `ways` on from the change that was refused last, by its place among them."""

        def step() -> Step:
            way = self.ways[place] if 0 <= place < len(self.ways) else None
            if way is None or way.plan is None:
                raise ShardvizError("there is no such way on any more: nothing is refused now, or something else")
            return Step(way.plan, way.machine or self.machine)

        return self._change(step, "plan")

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
        deck = self.deck
        return Step(self.plan, self.machine, deck.at, None if deck.draft is None else deck.draft.plan)

    @_whole
    def find_dimensions(self) -> None:
        """Has the logical dimensions found in the background; `logical` has them when they are there."""
        if self.logical.busy or self.logical.found is not None:
            return
        self._put(logical=replace(self.logical, busy=True, trouble=""))

        def find() -> None:
            made = Logical(trouble="shardviz met an error of its own while it looked for them")
            try:
                made = Logical(self.program.dimensions)
            except ShardvizError as error:
                made = Logical(trouble=str(error))
            finally:  # a page must not wait for ever
                self.loop.inbox.post(lambda: self._put(logical=made))

        threading.Thread(target=find, name="shardviz-dimensions", daemon=True).start()

    # How a change is taken: whole, or not at all.

    def _edit(
        self, build: Callable[[], Plan], place: str, argument: str | None = None, dimension: int | None = None
    ) -> bool:
        return self._change(lambda: Step(build(), self.machine), place, argument, dimension)

    @_whole
    def _change(
        self,
        build: Callable[[], Step],
        place: str,
        argument: str | None = None,
        dimension: int | None = None,
        history: History | None = None,
    ) -> bool:
        """Goes to the step that `build` gives, or back in `history`; if that is refused, says so at its place."""
        with self._shown():
            now, step = self.now, None
            try:
                step = build()
                known = self._known(step, always=history is not None or place == "rule")
                deck = None if known is None else self._dealt(step, known, back=history is not None)
            except ShardvizError as error:
                self.refuse(error, place, argument, dimension, None if step is None else step.plan)
                return False
            if known is None or deck is None:
                self._put(error=None, ways=())
                return True
            self._go(step.plan, known, deck, history or now.history.after(self._here))
            return True

    def _go(self, plan: Plan, known: Known, deck: Deck, history: History) -> None:
        """Makes a plan of which something is known the present one."""
        now = self.now
        answers = Answers.of(known.reports, now.answers.known, known.carried)
        machine, cost = known.priced()
        after = replace(now, plan=plan, bound=known.bound, answers=answers, machine=machine, cost=cost, deck=deck)
        after = replace(after, selection=now.selection.carried(answers.report), history=history, error=None, ways=())
        task = self._task(plan, answers, machine)
        self._book.keep(plan, known)
        self._commit(replace(after, progress=self.loop.expected(task)), task)

    @_whole
    def _deal(self, deal: Callable[[], Deck]) -> bool:
        with self._shown():
            try:
                deck, now = deal(), self.now
            except ShardvizError as error:
                self.refuse(error, "card")
                return False
            card = deck.now
            if card.plan == now.plan:
                self._put(deck=deck, error=None, ways=())
            else:
                known = self._on(card.plan, card.known, card.known.machine)
                self._go(card.plan, known, deck.told(known), now.history.after(self._here))
            return True

    @_whole
    def restore(self, deck: Callable[[Callable[[Plan], Known]], Deck]) -> None:
        """Takes the cards of an explorer that was saved, of which the one that is open has the present plan.

        Args:
            deck: makes them, given what tells what is known of a plan.

        Raises:
            ShardvizError: if one of the plans does not fit the program.
        """
        self._put(deck=deck(self._first_known))

    def _first_known(self, plan: Plan) -> Known:
        """What is known of a plan that need not be the present one; Shardy is asked where nothing is.

        Raises:
            ShardvizError: if the plan does not fit the program.
        """
        found = self._book.find(plan, self.machine)
        if found is None:
            bound, report = self.program.bind(plan), self.program.propagate(plan)
            found = Known(bound, {report.level: report}, self.now.machine, self._whole)
        known = self._on(plan, found, self.machine)
        self._book.keep(plan, known)
        return known

    def _dealt(self, step: Step, known: Known, back: bool) -> Deck:
        """The cards after a step, or after one back."""
        deck = self.deck
        if step.plan == self.plan and (not back or step.at == deck.at):  # another machine, for every card
            on = known.machine
            deck = deck.on(lambda card: self._on(card.plan, card.known, on) if card.known.machine != on else card.known)
            return deck.told(known)
        if not back:
            return deck.edited(step.plan, known)
        draft = None if step.draft is None else (step.draft, self._first_known(step.draft))
        return deck.returned(step.plan, known, step.at, draft)

    def _on(self, plan: Plan, known: Known, machine: Machine) -> Known:
        """What is known of a plan on a machine, or on one of its chip that has as many devices as the plan's mesh."""
        choice = MachineChoice.of(machine, known.bound.mesh, known.choice)
        found = self._book.find(plan, choice.machine)
        return (known if found is None or found.machine != choice.machine else found).on(choice)

    def _commit(self, now: Snapshot, task: Task) -> None:
        """Puts a snapshot in the place of the old one, which nothing can prevent, and has its task begun: where that is
        interrupted, once more."""
        try:
            self.now = now
            self.loop.later(task)
            self._tell()
        except Exception:
            raise
        except BaseException:
            if self.now is now:
                self.loop.later(task)
            raise

    def _known(self, step: Step, always: bool = False) -> Known | None:
        """What is known of a step: at least Shardy's answer; None where it is the present one.

        Args:
            step: a plan and a machine.
            always: a plan that says the same in other words is another one too.

        Raises:
            ShardvizError: if the plan does not fit the program.
        """
        now, here = self.now, self.now.deck.now.known
        found = here if step.plan == now.plan else self._book.find(step.plan, step.machine)
        bound = self.program.bind(step.plan) if found is None else found.bound
        if bound is now.bound or not (always or bound != now.bound):
            if step.machine == self.machine:
                return None
            found = here
        elif found is None:
            report = self.program.propagate(step.plan)
            found = Known(bound, {report.level: report}, now.machine, self._whole)
        return self._on(step.plan, found, step.machine)

    def refuse(
        self,
        error: ShardvizError,
        place: str,
        argument: str | None = None,
        dimension: int | None = None,
        wanted: Plan | None = None,
    ) -> None:
        """Shows why something was not done, at its place, and the ways on; everything else stays as it is.

        Args:
            error: why.
            place, argument, dimension: where; see `error`.
            wanted: the plan that was refused.
        """
        axis = argument if place == "mesh" else None
        ways = () if wanted is None else ways_on(self.program, wanted, self.bound, axis or "")
        if place == "target" and argument:
            ways = ways_to(self.program, self.plan, argument)
        named = getattr(error, "argument", None)
        where = getattr(error, "dimension", None)
        cause = error.__cause__
        self._put(
            error={
                "message": str(error),
                "place": place,
                "argument": named or (None if place == "target" else argument),
                "kind": type(error).__name__,
                "axis": axis,
                "subject": argument,
                "dimension": where if named else dimension,
                "detail": "".join(traceback.format_exception(cause)) if cause else "",
                "ways": [{"text": way.text, "tip": way.tip, "take": way.plan is not None} for way in ways],
            },
            ways=ways,
        )

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Shows what nobody expected as an `error` too, and lets it go on to whoever called. After an interrupt, what
        was done is told."""
        try:
            yield
        except Exception as error:
            self._put(error=_internal(error))
            raise
        except BaseException:
            self._tell()
            raise

    def _put(self, **parts: Any) -> None:
        """Replaces parts of the snapshot."""
        self._become(replace(self.now, **parts))

    def _become(self, now: Snapshot) -> None:
        """Replaces the snapshot, and tells who has subscribed."""
        self.now = now
        self._tell()

    def _tell(self) -> None:
        """Tells who has subscribed what is new since they were told last, also what an interrupt kept from them.

        What a subscriber changes while it is told is told afterwards, once; what follows from a change is told with it.
        """
        if self._telling:
            return
        self._telling = True
        try:
            while self._told is not (now := self.now):
                self._follow(now.new_since(self._told))
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

    @_whole
    def stop(self) -> None:
        """Stops the compile that runs or is about to; the report stays as it is."""
        if self.busy:
            self.loop.stop()

    @_whole
    def recompile(self) -> None:
        """Compiles the plan as it is once more, after a stop or a failure."""
        missing = missing_for(self.machine, self.report.mesh)  # the person may have installed it
        self._put(machine=replace(self.now.machine, missing=missing))
        self.loop.now(self._task(self.plan, self.now.answers, self.now.machine))

    @_whole
    def finish(self) -> None:
        """Has the compile of this plan run to its end, for what only a finished one tells, such as its machine code.

        Nothing happens where it is not `finishable`, or while an answer is awaited.
        """
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
                known = replace(now.deck.now.known, choice=now.machine).told(report)
                machine, cost = known.priced()
                selection, answers = now.selection.carried(report), now.answers.reached(report)
                self._book.keep(now.plan, known)
                told = {"machine": machine, "cost": cost, "selection": selection, "answers": answers}
                now = replace(now, deck=now.deck.told(known), **told)
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
        "subject": None,
        "ways": [],
        "dimension": None,
        "kind": type(error).__name__,
        "detail": "".join(traceback.format_exception(error)),
    }
