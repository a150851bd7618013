"""The result of a search: the best plans, the Pareto front, the floor, and an alternative for each decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from shardviz.costs.step_cost import StepCost
from shardviz.display import Displayed
from shardviz.judge.report import Report
from shardviz.plan.plan import Plan
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.study.candidates import PARTS, Choice
from shardviz.study.scoring import Floor, Score

_Row = TypeVar("_Row")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A candidate scored at level propagated."""

    choice: Choice
    plan: Plan
    score: Score

    @property
    def text(self) -> str:
        """The decisions in one line."""
        return self.choice.text

    @property
    def alike(self) -> tuple[str, str]:
        """A key of rounded seconds and bytes: candidates with equal keys are the same, mirror images, or nearly so."""
        return f"{self.score.seconds:.2e}", f"{self.score.needs.total:.1e}"


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """A plan that a search offers.

    Attributes:
        tried: the candidate.
        report: its report, at the requested level if that was reached.
        cost: the cost of a step by the report.
        accepted: whether the target's compiler accepted it as fitting; None if not asked.
        verdict: the source of the answer whether it fits, or why that is unknown.
    """

    tried: Tried
    report: Report
    cost: StepCost
    accepted: bool | None
    verdict: str

    @property
    def plan(self) -> Plan:
        return self.tried.plan

    @property
    def text(self) -> str:
        """The decisions in one line."""
        return self.tried.text

    @property
    def score(self) -> Score:
        """The score before any compile."""
        return self.tried.score

    @property
    def seconds(self) -> float:
        """Seconds per step, by the report."""
        return self.cost.step.seconds


@dataclass(frozen=True, kw_only=True)
class WhyNot:
    """The nearest alternative for one decision of the best plan, compared at level propagated.

    Attributes:
        decision: the decision: `w1:2`, say, or `mesh`.
        chosen, other: the best plan's choice, and the alternative's.
        seconds, bytes: seconds per step and bytes per device that the alternative needs more; negative for less.
        reason: why it is slower or faster.
        alternative: the alternative candidate.
    """

    decision: str
    chosen: str
    other: str
    seconds: float
    bytes: float
    reason: str
    alternative: Tried


@dataclass(frozen=True)
class Fallen:
    """A rejected candidate: the level that rejected it, the reason, and its score if it has one."""

    text: str
    level: str
    why: str
    tried: Tried | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Search(Displayed):
    """The result of a search, final or so far.

    Attributes:
        program: the function's name.
        target: the machine.
        level: the level of the offered plans: `propagated`, `partitioned` or `compiled`.
        given: the plan to improve, or the function's own, as scored; None if there was none, or it was refused.
        ranked: the offered plans, best first; at level `compiled` only those that the target's compiler accepted.
        leading: the best candidate by estimate while the target's compiler has accepted none; not offered.
        tried: every scored candidate.
        fallen: every candidate that was refused, crashed or does not fit.
        floor: a lower bound for every plan; None if unknown.
        why_not: the nearest alternative for each decision of the best plan.
        seconds: duration in seconds.
        finished: whether nothing was left to try; False if time was up, or the search was interrupted.
        note: a part of the search that was skipped, and why; empty if none.
    """

    _width: ClassVar[int | None] = 140

    program: str
    target: str
    level: str
    ranked: tuple[Finalist, ...]
    tried: tuple[Tried, ...]
    fallen: tuple[Fallen, ...]
    leading: Finalist | None = None
    floor: Floor | None = None
    why_not: tuple[WhyNot, ...] = ()
    given: Tried | None = None
    seconds: float = 0.0
    finished: bool = False
    note: str = ""

    @property
    def best(self) -> Finalist | None:
        """The best plan; None until one is offered (see `leading`)."""
        return self.ranked[0] if self.ranked else None

    @property
    def front(self) -> tuple[Tried, ...]:
        """The Pareto front of time and memory by the scores, fastest first; only candidates that may fit and were not
        refused."""
        refused = {id(each.tried) for each in self.fallen}
        may_fit = (each for each in self.tried if each.score.needs.fits is not False and id(each) not in refused)
        return pareto(may_fit, lambda each: (each.score.seconds, each.score.needs.total))

    def finalist_of(self, tried: Tried | None) -> Finalist | None:
        """Return a candidate's offer; None if it is not offered."""
        return next((each for each in self.ranked if each.tried is tried), None)

    @property
    def too_large(self) -> tuple[Tried, ...]:
        """The candidates that do not fit by their estimate, fastest first."""
        return tuple(sorted((t for t in self.tried if t.score.needs.fits is False), key=lambda t: t.score.seconds))

    @property
    def reasons(self) -> Mapping[str, int]:
        """Reason for rejecting candidates → how many."""
        return Counter(f"{f.level}: {f.why}" for f in self.fallen)


def pareto(rows: Iterable[_Row], of: Callable[[_Row], tuple[float, float]]) -> tuple[_Row, ...]:
    """Return the rows that no other row beats in both of two numbers, ordered by the first."""
    front: list[_Row] = []
    for row in sorted(rows, key=of):
        if not front or of(row)[1] < of(front[-1])[1]:
            front.append(row)
    return tuple(front)


def why_not(best: Tried, alternatives: Sequence[tuple[str, Tried]]) -> tuple[WhyNot, ...]:
    """Return the alternative nearest to the best for each decision; `alternatives` are (decision, candidate)."""
    nearest: dict[str, Tried] = {}
    for decision, other in alternatives:
        if decision not in nearest or other.score.rank < nearest[decision].score.rank:
            nearest[decision] = other
    return tuple(
        WhyNot(
            decision=decision,
            chosen=_decided(decision, best.choice),
            other=_decided(decision, other.choice, best.choice),
            seconds=other.score.seconds - best.score.seconds,
            bytes=other.score.needs.total - best.score.needs.total,
            reason=reason(best.score, other.score),
            alternative=other,
        )
        for decision, other in nearest.items()
    )


def _decided(decision: str, choice: Choice, than: Choice | None = None) -> str:
    """Return in words what a choice decides; with `than`, also its other differences from that choice."""
    if decision == "mesh":
        return choice.text.split(";")[0]
    if decision == "state":
        return (
            ", ".join(f"{part} by {' and '.join(axes)}" for part in PARTS if (axes := choice.by(part))) or "state whole"
        )
    own = f"{decision} by {' and '.join(choice.by(decision))}" if choice.by(decision) else f"{decision} whole"
    if than is None:
        return own
    names = [n for n, axes in choice.decisions if n not in (decision, *PARTS) and than.by(n) != axes]
    return ", ".join([own, *(f"{n} by {' and '.join(choice.by(n))}" for n in names)])


def reason(best: Score, other: Score) -> str:
    """Return why another candidate is slower or faster: the largest time differences, and excess memory."""
    reasons = []
    if other.over and other.needs.usable is not None:
        reasons.append(f"needs {format_bytes(other.needs.total)} of {format_bytes(other.needs.usable)}")
    ours = {(m.kind, m.axes): m for m in best.moved}
    parts: list[tuple[float, str]] = []
    for m in other.moved:
        before = ours.pop((m.kind, m.axes), None)
        more = m.seconds - (before.seconds if before else 0.0)
        grown = m.bytes - (before.bytes if before else 0.0)
        word = f"{m.kind}s of {format_bytes(abs(grown))} {'more' if grown >= 0 else 'less'} over {m.axes}"
        if not grown:
            word = f"{'slower' if more > 0 else 'faster'} {m.kind}s over {m.axes}"
        parts.append((more, word))
    for m in ours.values():
        parts.append((-m.seconds, f"no {m.kind}s of {format_bytes(m.bytes)} over {m.axes}"))
    if best.compute:
        parts.append((other.compute - best.compute, f"{other.compute / best.compute:.3g} x the FLOPs on each device"))
    # memory traffic hides behind compute until it is longer
    hidden = [max(0.0, s.memory - s.compute) for s in (best, other)]
    parts.append((hidden[1] - hidden[0], "more memory traffic"))
    slower = other.seconds >= best.seconds
    parts = [p for p in parts if abs(p[0]) > 1e-3 * best.seconds and (p[0] > 0) == slower]
    parts.sort(key=lambda p: -abs(p[0]))
    reasons += [f"{words}: {format_seconds(abs(s))} {'longer' if s > 0 else 'shorter'}" for s, words in parts[:2]]
    return "; ".join(reasons) or "no difference"
