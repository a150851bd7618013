"""All that an explorer knows at a moment, as plain data: the cards, how far the compile is, what is offered and asked.

A `Snapshot` and its parts are never changed, only replaced, so that a change is whole or is not at all. The plan, its
reports, its machine and their cost are those of the card that is open.

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
from shardviz.explorer.logical import Logical
from shardviz.explorer.machine_choice import MachineChoice
from shardviz.explorer.selection import Selection
from shardviz.explorer.texts import Stages
from shardviz.explorer.ways import WayOn
from shardviz.judge.report import Report
from shardviz.records.report import LEVELS, PlanRecord, values_of
from shardviz.study.mends import Mend, Mends

if TYPE_CHECKING:
    from shardviz.program.plan import Plan


@dataclass(frozen=True)
class Progress:
    """How far the answer to a plan is: `propagating`, `compiling`, `partitioned`, `compiled`, `propagated` (where
    no more was wanted), `stopped` or `failed`; why the last compile failed (`trouble`), and seconds from the
    change to the last answer, None while one is awaited."""

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
class UndoStep:
    """What `undo` goes back to: a plan, its machine, the card that it was, and the draft's plan, where it was another
    one."""

    plan: Plan
    machine: Machine
    at: str = field(default="", compare=False)
    draft: Plan | None = field(default=None, compare=False)


MOST_STEPS = 200
"""Changes that can be undone."""


@dataclass(frozen=True, eq=False)
class History:
    """The steps that undo (`past`, the newest last, at most `MOST_STEPS`) and redo (`ahead`, the next first) go to."""

    past: tuple[UndoStep, ...] = ()
    ahead: tuple[UndoStep, ...] = ()

    def after(self, here: UndoStep) -> History:
        """The history after a change, which forgets what was ahead."""
        return History((*self.past, here)[-MOST_STEPS:])

    def undone(self, here: UndoStep) -> History:
        """The history one step back."""
        return History(self.past[:-1], (here, *self.ahead))

    def redone(self, here: UndoStep) -> History:
        """The history one step on."""
        return replace(self.after(here), ahead=self.ahead[1:])


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A plan that can be taken, under a name of its own, with a sentence on what it does; its `results`, or the
    `trouble` that kept it from being propagated."""

    name: str
    text: str
    plan: Plan
    results: Results | None = None
    trouble: str = ""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """The order of offers, by the highest level that is known; see `shardviz.ask.presets.rank`."""
        return rank(None, None) if self.results is None else rank(self.results.report, self.results.cost())


def merged_offers(offers: Iterable[Offer]) -> Iterator[Offer]:
    """The offers, of those that come out as the same step the first alone, which names the others."""
    same: dict[Any, list[Offer]] = {}
    for offer in offers:
        key = offer.name if offer.results is None else step_of(offer.results.reports["propagated"])
        same.setdefault(key, []).append(offer)
    for first, *others in same.values():
        names = " and ".join(other.name for other in others)
        yield replace(first, text=f"{first.text} ({names}: the same step here)") if names else first


@dataclass(frozen=True)
class Offers:
    """The presets, the best first, while they are open or being tried; what a search does, in words (empty: none runs),
    the share of its time that is over, 0 to 1; and why there are none, or the search has ended."""

    items: tuple[Offer, ...] = ()
    open: bool = False
    busy: bool = False
    hunt: str = ""
    share: float = 0.0
    trouble: str = ""


@dataclass(frozen=True)
class Remedies:
    """What helps a plan, as far as it was tried; `of` and `mends` are None where nothing was."""

    of: Plan | None = None
    mends: Mends | None = None
    busy: bool = False
    trouble: str = ""

    @property
    def items(self) -> tuple[Mend, ...]:
        """What saves most first."""
        return () if self.mends is None else self.mends.mends


@dataclass(frozen=True)
class Asked:
    """A question why something is as it is, and the answer.

    Attributes:
        of: the plan that it is asked of; None where nothing was asked.
        name: the collective's or the value's name in the report that was asked about; empty where nothing was asked.
        axis: the mesh axis that was asked about on a value; empty for all of them.
        line: the line that makes it, `model.py:20`; empty for an argument or output.
        busy: it is being tried.
        tried: how often Shardy was run for it so far.
        answer: the `Why` or `CollectiveWhy`.
        trouble: why there is none.
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
    """Steps as they would run, where somebody looks at them, of these costs (the open card's, and of the one that it is
    compared with, at one level); none while they are walked, and where `trouble` says why."""

    of: tuple[StepCost, ...] = ()
    items: tuple[Timeline, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that is known at a moment.

    Attributes:
        deck: the cards, and which of them is open.
        before: the reports, by level, of the plan before, or of this one on another machine.
        changed: names of the values that this plan shards otherwise than the one before. Intermediates have other names
            at other levels, so they are compared with the earlier plan's report of the same level, if it got so far.
        progress: how far the compile is.
        selection: the value that is looked at.
        history: what undo and redo go to.
        offers: what is offered beside the plan.
        remedies: what helps it, as far as it was tried.
        why: what was asked of a collective, and the answer.
        stages: the texts of the plan, where somebody looks at them.
        timelines: its step as it would run, where somebody looks at it.
        logical: what is known of the program's logical dimensions.
        error: an edit that was refused, or an error of the explorer's own: `message`, `place` (`mesh`, `argument`,
            `output`, `value`, `dimension`, `rule`, `target`, `order`, `plan`, `card` or `internal`), `argument`,
            `dimension`, `axis`, `subject` (what the edit was to), `kind`, `detail`, `ways`; None if all is well.
        ways: the ways on from it.
    """

    deck: Deck
    progress: Progress
    selection: Selection
    before: Mapping[str, Report] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    history: History = field(default_factory=History)
    offers: Offers = field(default_factory=Offers)
    remedies: Remedies = field(default_factory=Remedies)
    why: Asked = field(default_factory=Asked)
    stages: Mapping[Plan, Stages] = field(default_factory=dict)
    timelines: Timelines = field(default_factory=Timelines)
    logical: Logical = field(default_factory=Logical)
    error: dict[str, Any] | None = None
    ways: tuple[WayOn, ...] = ()

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
        """The machine that the plan is for."""
        return self.results.priced()[0]

    @property
    def cost(self) -> StepCost | None:
        """What the newest report's step costs there; None where `machine.trouble` says why, and for `cpu`."""
        return self.results.cost()

    @property
    def here(self) -> UndoStep:
        """What an undo of the next edit goes back to."""
        draft = self.deck.draft
        return UndoStep(self.plan, self.machine.machine, self.deck.at, None if draft is None else draft.plan)

    def told(self, report: Report) -> Snapshot:
        """With one report more of the plan, of a higher level or of the machine that is now meant."""
        results = self.results.told(report)
        changed, selection = _changed(self.before, results), self.selection.carried(report)
        return replace(self, deck=self.deck.told(results), changed=changed, selection=selection)

    def moved(self, deck: Deck, history: History) -> Snapshot:
        """At another plan or machine, of which something is known; nothing is refused any more."""
        before, results = self.results.reports, deck.now.results
        changed, selection = _changed(before, results), self.selection.carried(results.report)
        known: dict[str, Any] = {"before": before, "changed": changed, "selection": selection}
        return replace(self, deck=deck, history=history, error=None, ways=(), **known)

    def new_since(self, before: Snapshot) -> frozenset[str]:
        """The names of the parts that are other ones than before, and `mesh` where the plan has another mesh."""
        new = {name for name in PARTS if getattr(self, name) is not getattr(before, name)}
        new -= {name for name in _BY_VALUE if getattr(self, name) == getattr(before, name)}
        return frozenset(new | ({"mesh"} if self.plan.mesh != before.plan.mesh else set()))


_BY_VALUE = ("machine", "progress", "selection", "changed")  # made anew at every step, often the same again
PARTS = (
    *("plan", "report", "cost", "deck", "history", "offers", "remedies"),
    *("why", "stages", "timelines", "logical", "error"),
    *_BY_VALUE,
)


def _changed(before: Mapping[str, Report], results: Results) -> frozenset[str]:
    """The names, in the highest report that is known, of what is sharded otherwise than before; of intermediates only
    where both have a report of the level at which they have these names."""
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
