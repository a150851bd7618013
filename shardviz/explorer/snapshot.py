"""The explorer's whole state at a moment as plain data: cards, progress, presets, fixes and questions.

A `Snapshot` and its parts are immutable and replaced as a whole. `plan`, `report`, `machine` and `cost` are those of
the open card.

>>> history = History().after(UndoStep("plan 1", "cpu")).after(UndoStep("plan 2", "cpu"))
>>> [step.plan for step in history.undone(UndoStep("plan 3", "cpu")).past]
['plan 1']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shardviz.ask.presets import rank, step_of
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost
from shardviz.costs.timeline import Timeline
from shardviz.errors import ShardvizError
from shardviz.explorer.cards import Deck, Results
from shardviz.explorer.changes import Alternative
from shardviz.explorer.logical import Logical
from shardviz.explorer.machine_choice import MachineChoice
from shardviz.explorer.selection import Selection
from shardviz.explorer.sharing import Sharing
from shardviz.explorer.texts import Stages
from shardviz.judge.report import Report
from shardviz.records.groups import grouped
from shardviz.records.report import LEVELS, PlanRecord, values_of
from shardviz.study.fixes import Fix, Fixes
from shardviz.study.simulated import Simulated

if TYPE_CHECKING:
    from shardviz.plan.plan import Plan


@dataclass(frozen=True)
class Progress:
    """The progress of a plan's compile.

    Attributes:
        status: `propagating`, `compiling`, `partitioned`, `compiled`, `propagated` (if no more was wanted), `stopped`
            or `failed`.
        trouble: why the last compile failed.
        seconds: seconds from the change to the last answer; None while an answer is awaited.
        expected: seconds that the compile will take at the pace of the last one; None if nothing was compiled yet.
    """

    status: str
    message: str = ""
    busy: bool = False
    trouble: BaseException | None = None
    seconds: float | None = field(default=None, repr=False)
    expected: float | None = field(default=None, repr=False)

    @property
    def failure(self) -> dict[str, str] | None:
        """`trouble` as `kind`, `message` and `stderr`; None if nothing failed."""
        if not isinstance(self.trouble, ShardvizError):
            return None
        stderr = getattr(self.trouble, "stderr", "")
        return {"kind": type(self.trouble).__name__, "message": str(self.trouble), "stderr": stderr}


@dataclass(frozen=True)
class UndoStep:
    """A state that `undo` returns to: a plan, its machine, the open card, and the draft's plan if that differs."""

    plan: Plan
    machine: Machine
    at: str = field(default="", compare=False)
    draft: Plan | None = field(default=None, compare=False)


MOST_STEPS = 200
"""Maximum number of changes that can be undone."""


@dataclass(frozen=True, eq=False)
class History:
    """The steps for undo (`past`, newest last, at most `MOST_STEPS`) and for redo (`ahead`, next first)."""

    past: tuple[UndoStep, ...] = ()
    ahead: tuple[UndoStep, ...] = ()

    def after(self, here: UndoStep) -> History:
        """Return the history after a change, which clears `ahead`."""
        return History((*self.past, here)[-MOST_STEPS:])

    def undone(self, here: UndoStep) -> History:
        """Return the history one step back."""
        return History(self.past[:-1], (here, *self.ahead))

    def redone(self, here: UndoStep) -> History:
        """Return the history one step forward."""
        return replace(self.after(here), ahead=self.ahead[1:])


@dataclass(frozen=True, kw_only=True)
class TriedPreset:
    """A preset with a name and a sentence; its `results`, or the `trouble` that prevented them."""

    name: str
    text: str
    plan: Plan
    results: Results | None = None
    trouble: str = ""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Sort key of presets, by the highest level known; see `shardviz.ask.presets.rank`."""
        return rank(None, None) if self.results is None else rank(self.results.report, self.results.cost())


def merged_presets(presets: Iterable[TriedPreset]) -> Iterator[TriedPreset]:
    """Merge presets that lead to the same step: the first is kept and names the others."""

    def key(preset: TriedPreset) -> Any:
        return preset.name if preset.results is None else step_of(preset.results.reports["propagated"])

    for first, *others in grouped((key(preset), preset) for preset in presets).values():
        names = " and ".join(other.name for other in others)
        yield replace(first, text=f"{first.text} ({names}: the same step here)") if names else first


@dataclass(frozen=True)
class TriedPresets:
    """The presets and the search.

    Attributes:
        items: the presets, best first, while they are open or being tried.
        progress: the progress or result of the last search, in words.
        best: the card of the best plan that the search found.
        share: the elapsed share of the search's time, 0 to 1; None if no search runs.
        trouble: why there are no presets, or no search.
    """

    items: tuple[TriedPreset, ...] = ()
    open: bool = False
    busy: bool = False
    progress: str = ""
    best: str = ""
    share: float | None = None
    trouble: str = ""

    @property
    def dismissed(self) -> TriedPresets:
        """The same, without the words of a finished search."""
        return self if self.share is not None else replace(self, progress="", best="", trouble="")


@dataclass(frozen=True)
class TriedFixes:
    """The fixes for a plan tried so far; `of` and `fixes` are None if none were tried."""

    of: Plan | None = None
    fixes: Fixes | None = None
    busy: bool = False
    trouble: str = ""

    @property
    def items(self) -> tuple[Fix, ...]:
        """The fixes, largest saving first."""
        return () if self.fixes is None else self.fixes.fixes


@dataclass(frozen=True)
class Asked:
    """A question why something is as it is, and the answer.

    Attributes:
        of: the plan of the question; None without a question.
        name: the collective's or the value's name in the report; empty without a question.
        axis: the mesh axis asked about; empty for all.
        line: the source line of the value, `model.py:20`; empty for an argument or output.
        busy: whether the answer is being computed.
        tried: how often Shardy ran for it so far.
        answer: the `Why` or `CollectiveWhy`.
        trouble: why there is no answer.
    """

    of: Plan | None = None
    name: str = ""
    axis: str = ""
    line: str = ""
    busy: bool = False
    tried: int = 0
    answer: Any = None
    trouble: str = ""


@dataclass(frozen=True)
class Timelines:
    """The timelines of the open card and of the card it is compared with, while a view shows them.

    `of` are their step costs at one level. `items` is empty while they are computed, or if `trouble` says why not.
    """

    of: tuple[StepCost, ...] = ()
    items: tuple[Timeline, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The explorer's whole state at a moment.

    Attributes:
        deck: the cards, and which of them is open.
        before: level → report of the previous plan, or of this plan on another machine.
        changed: names of the values whose sharding differs from the previous plan's. Intermediates have other names at
            other levels, so they are compared at the same level only.
        progress: the progress of the compile.
        selection: the selected value.
        history: the steps for undo and redo.
        presets: the presets and the search.
        tried_fixes: the fixes tried so far.
        why: the current question and its answer.
        simulated: the last run of the plan's code on simulated devices.
        stages: the plan's texts, while a view shows them.
        timelines: the plan's timeline, while a view shows it.
        logical: the program's logical dimensions.
        sharing: the programs that share arrays with this one.
        error: a refused edit, or an internal error: `message`, `place` (`mesh`, `argument`, `output`, `value`,
            `dimension`, `rule`, `target`, `order`, `plan`, `card` or `internal`), `argument`, `dimension`, `axis`,
            `subject` (the edited object), `kind`, `detail`, `alternatives`; None without an error.
        alternatives: alternatives to the refused edit.
    """

    deck: Deck
    progress: Progress
    selection: Selection
    before: Mapping[str, Report] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    history: History = field(default_factory=History)
    presets: TriedPresets = field(default_factory=TriedPresets)
    tried_fixes: TriedFixes = field(default_factory=TriedFixes)
    why: Asked = field(default_factory=Asked)
    simulated: Simulated = field(default_factory=Simulated)
    stages: Mapping[Plan, Stages] = field(default_factory=dict)
    timelines: Timelines = field(default_factory=Timelines)
    logical: Logical = field(default_factory=Logical)
    sharing: Sharing = field(default_factory=Sharing)
    error: dict[str, Any] | None = None
    alternatives: tuple[Alternative, ...] = ()

    @property
    def plan(self) -> Plan:
        return self.deck.now.plan

    @property
    def results(self) -> Results:
        return self.deck.now.results

    @property
    def bound(self) -> PlanRecord:
        """The plan checked against the program, with a full spec for every argument."""
        return self.results.bound

    @property
    def report(self) -> Report:
        return self.results.report

    @property
    def machine(self) -> MachineChoice:
        """The machine of the plan."""
        return self.results.priced()[0]

    @property
    def cost(self) -> StepCost | None:
        """The step cost by the newest report; None for `cpu`, or if `machine.trouble` says why."""
        return self.results.cost()

    @property
    def here(self) -> UndoStep:
        """The step that an undo of the next edit returns to."""
        draft = self.deck.draft
        return UndoStep(self.plan, self.machine.machine, self.deck.at, None if draft is None else draft.plan)

    def with_report(self, report: Report) -> Snapshot:
        """Return the snapshot with a new report of the plan."""
        results = self.results.with_report(report)
        changed, selection = _changed(self.before, results), self.selection.carried(report)
        return replace(self, deck=self.deck.with_results(results), changed=changed, selection=selection)

    def moved(self, deck: Deck, history: History) -> Snapshot:
        """Return the snapshot at another plan or machine, without an error."""
        before, results = self.results.reports, deck.now.results
        changed, selection = _changed(before, results), self.selection.carried(results.report)
        parts: dict[str, Any] = {"before": before, "changed": changed, "selection": selection}
        return replace(self, deck=deck, history=history, error=None, alternatives=(), **parts)

    def new_since(self, before: Snapshot) -> frozenset[str]:
        """Return the names of the parts that changed, and `mesh` if the plan has another mesh."""
        new = {name for name in PARTS if getattr(self, name) is not getattr(before, name)}
        new -= {name for name in _BY_VALUE if getattr(self, name) == getattr(before, name)}
        return frozenset(new | ({"mesh"} if self.plan.mesh != before.plan.mesh else set()))


_BY_VALUE = ("machine", "progress", "selection", "changed")  # rebuilt at every step, often equal
PARTS = (
    *("plan", "report", "cost", "deck", "history", "presets", "tried_fixes"),
    *("why", "simulated", "stages", "timelines", "logical", "sharing", "error"),
    *_BY_VALUE,
)


def _changed(before: Mapping[str, Report], results: Results) -> frozenset[str]:
    """Return the names, in the highest report, of values whose sharding changed. Intermediates count only if both plans
    have a report of the same level."""
    report = results.report
    alike = ("partitioned", "compiled") if report.level in ("partitioned", "compiled") else (report.level,)
    earlier = next((before[level] for level in alike if level in before), None)
    if earlier is not None:
        return _differences(earlier, report)
    both = max(before.keys() & results.reports.keys(), key=LEVELS.index, default="")
    outer = frozenset(v.name for v in (*report.arguments, *report.outputs))
    return outer & _differences(before[both], results.reports[both]) if both else frozenset()


def _differences(before: Report, after: Report) -> frozenset[str]:
    old = {v.name: v.spec for v in values_of(before)}
    return frozenset(v.name for v in values_of(after) if v.name in old and old[v.name] != v.spec)
