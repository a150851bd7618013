"""All that an explorer knows at a moment, as plain data: the plan, its reports, its machine, how far its compile is.

A `Snapshot` and its parts are never changed, only replaced, so that a change is whole or is not at all.

>>> history = History().after(Step("plan 1", "cpu")).after(Step("plan 2", "cpu"))
>>> [step.plan for step in history.undone(Step("plan 3", "cpu")).past]
['plan 1']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.explorer.cards import Deck
from shardviz.explorer.logical import Logical
from shardviz.explorer.machine_choice import MachineChoice
from shardviz.explorer.offers import Asked, Offers, Remedies
from shardviz.explorer.selection import Selection
from shardviz.explorer.stages import Stages
from shardviz.explorer.ways import Way
from shardviz.judge.report import Report
from shardviz.records.report import LEVELS, PlanRecord

if TYPE_CHECKING:
    from shardviz.program.plan import Plan


@dataclass(frozen=True, eq=False)
class Answers:
    """What is known of a plan so far.

    Attributes:
        report: the newest report.
        known: every report of this plan, by level.
        before: those of the plan before.
        changed: names of the values that this plan shards otherwise than the one before. Intermediates have other names
            at other levels, so they are compared with the earlier plan's report of the same level, if it got so far.
        stale: the newest report is of an older target. Its shardings are the same.
    """

    report: Report
    known: Mapping[str, Report] = field(default_factory=dict)
    before: Mapping[str, Report] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    stale: bool = False

    @classmethod
    def of(cls, known: Mapping[str, Report], before: Mapping[str, Report], stale: bool = False) -> Answers:
        """What is known of a plan when it is come to, after the answers to another.

        Args:
            known: level → report; of a new plan Shardy's alone.
            before: the other plan's, or this one's on another machine.
            stale: what is known is of another machine.
        """
        report = known[max(known, key=LEVELS.index)]
        return cls(report, known, before, _changed(before, known), stale)

    def reached(self, report: Report) -> Answers:
        """The answers with one more, of a higher level or of the machine that is now meant."""
        earlier = self.before.get("partitioned") or self.before.get("compiled")
        outer = frozenset(v.name for v in (*report.arguments, *report.outputs))
        changed = _differences(earlier, report) if earlier else outer & self.changed
        return replace(self, report=report, known={**self.known, report.level: report}, changed=changed, stale=False)

    @property
    def due(self) -> int:
        """The lowest level, by its place in `LEVELS`, at which another report tells something new."""
        return LEVELS.index(self.report.level) + (not self.stale)

    @property
    def finishable(self) -> bool:
        """Whether a finished compile would tell more: a compiler has planned the memory, it fits, and that is all."""
        plan = self.report.memory
        planned = self.report.level == "compiled" and not self.stale and plan is not None and plan.fits is not False
        return planned and "finished" not in self.report.stages


def _changed(before: Mapping[str, Report], known: Mapping[str, Report]) -> frozenset[str]:
    """The names, in the highest report that is known, of what is cut otherwise than before; of intermediates only where
    both have a report of the level at which they have these names.
    """
    report = known[max(known, key=LEVELS.index)]
    alike = ("partitioned", "compiled") if report.level in ("partitioned", "compiled") else (report.level,)
    earlier = next((before[level] for level in alike if level in before), None)
    if earlier is not None:
        return _differences(earlier, report)
    both = max((level for level in known if level in before), key=LEVELS.index, default="")
    outer = frozenset(v.name for v in (*report.arguments, *report.outputs))
    return outer & _differences(before[both], known[both]) if both else frozenset()


def _differences(before: Report | None, after: Report) -> frozenset[str]:
    if before is None:
        return frozenset()
    old = {v.name: v.spec for v in before.values}
    return frozenset(v.name for v in after.values if v.name in old and old[v.name] != v.spec)


@dataclass(frozen=True)
class Progress:
    """How far the answer to a plan is.

    Attributes:
        status: `propagating`, `compiling`, `partitioned`, `compiled`, `finishing`, `propagated` (where no more was
            wanted), `stopped` or `failed`.
        message: the same in words.
        busy: an answer is awaited.
        trouble: why the last compile gave no answer; None if nothing failed.
        seconds: from the change to the last answer; None while one is awaited.
    """

    status: str
    message: str = ""
    busy: bool = False
    trouble: BaseException | None = None
    seconds: float | None = field(default=None, repr=False)

    @property
    def failure(self) -> dict[str, str] | None:
        """`trouble` as `kind`, `message` and `stderr`; None if nothing failed."""
        if not isinstance(self.trouble, ShardvizError):
            return None
        stderr = getattr(self.trouble, "stderr", "")
        return {"kind": type(self.trouble).__name__, "message": str(self.trouble), "stderr": stderr}


@dataclass(frozen=True)
class Step:
    """What `undo` goes back to.

    Attributes:
        plan, machine: the plan, and the machine that it was for.
        at: the card that it was.
        draft: the draft's plan, where it was another one.
    """

    plan: Plan
    machine: Machine
    at: str = field(default="", compare=False)
    draft: Plan | None = field(default=None, compare=False)


MOST_STEPS = 200
"""Changes that can be undone."""


@dataclass(frozen=True, eq=False)
class History:
    """The steps that undo and redo go to.

    Attributes:
        past: those before, the newest last; of more than `MOST_STEPS` the oldest are forgotten.
        ahead: those that were undone, the next one first.
    """

    past: tuple[Step, ...] = ()
    ahead: tuple[Step, ...] = ()

    def after(self, here: Step) -> History:
        """The history after a change, which forgets what was ahead."""
        return History((*self.past, here)[-MOST_STEPS:])

    def undone(self, here: Step) -> History:
        """The history one step back."""
        return History(self.past[:-1], (here, *self.ahead))

    def redone(self, here: Step) -> History:
        """The history one step on."""
        return History((*self.past, here)[-MOST_STEPS:], self.ahead[1:])


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that is known at a moment.

    Attributes:
        plan, bound: the plan, and the same checked against the program, with a full spec for every argument.
        answers: what is known of the plan so far: its reports.
        machine: the machine that it is for.
        cost: what the newest report's step costs there; None where `machine.trouble` says why, and for `cpu`.
        progress: how far the compile is.
        selection: the value that is looked at.
        deck: the plan's card, and those beside it.
        history: what undo and redo go to.
        offers: what is offered beside the plan.
        remedies: what helps it, as far as it was tried.
        why: what was asked of a collective, and the answer.
        stages: its texts, where somebody looks at them.
        logical: what is known of the program's logical dimensions.
        error: an edit that was refused, or an error of the explorer's own: `message`, `place` (`mesh`, `argument`,
            `output`, `value`, `dimension`, `rule`, `target`, `order`, `plan`, `card` or `internal`), `argument`,
            `dimension`, `axis`, `subject` (what the edit was to), `kind`, `detail`, `ways`; None if all is well.
        ways: the ways on from it.
    """

    plan: Plan
    bound: PlanRecord
    answers: Answers
    machine: MachineChoice
    cost: StepCost | None
    progress: Progress
    selection: Selection
    deck: Deck
    history: History
    offers: Offers = field(default_factory=Offers)
    remedies: Remedies = field(default_factory=Remedies)
    why: Asked = field(default_factory=Asked)
    stages: Stages = field(default_factory=Stages)
    logical: Logical = field(default_factory=Logical)
    error: dict[str, Any] | None = None
    ways: tuple[Way, ...] = ()

    @property
    def report(self) -> Report:
        """The newest report."""
        return self.answers.report

    @property
    def here(self) -> Step:
        """What an undo of the next edit goes back to."""
        draft = self.deck.draft
        return Step(self.plan, self.machine.machine, self.deck.at, None if draft is None else draft.plan)

    def new_since(self, before: Snapshot) -> frozenset[str]:
        """The names of the parts that are other ones than before, and `mesh` where the plan has another mesh."""
        by_value = ("machine", "progress", "selection")  # made anew at every step, often the same again
        names = {field.name for field in fields(self)}
        names = {n for n in names if getattr(self, n) is not getattr(before, n)}
        names -= {n for n in by_value if getattr(self, n) == getattr(before, n)}
        return frozenset(names | ({"mesh"} if self.plan.mesh != before.plan.mesh else set()))
