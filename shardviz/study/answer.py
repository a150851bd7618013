"""What a search gives: the best plan and its runners-up, the front, the floor, and why not otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from shardviz.costs.step_cost import StepCost
from shardviz.display import Displayed
from shardviz.judge.report import Report
from shardviz.program.plan import Plan
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.study.candidates import PARTS, Choice
from shardviz.study.scoring import Floor, Score

_Row = TypeVar("_Row")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A candidate that was scored at level propagated: what is decided, its plan, and what it costs."""

    choice: Choice
    plan: Plan
    score: Score

    @property
    def text(self) -> str:
        """What is decided, in a line."""
        return self.choice.text

    @property
    def alike(self) -> tuple[str, str]:
        """Seconds in three digits and bytes in two: what costs the same is the same, its mirror image, or nearly so."""
        return f"{self.score.seconds:.2e}", f"{self.score.needs.total:.1e}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A plan that a search offers: the candidate, its report of the level that was asked for and reached, and what its
    step costs by that; whether the target's own compiler took it and it fits (None where it was not asked), and who
    says that it fits, or why that is not known."""

    tried: Tried
    report: Report
    cost: StepCost
    accepted: bool | None
    verdict: str

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.tried.plan

    @property
    def text(self) -> str:
        """What it shards along what, in a line."""
        return self.tried.text

    @property
    def score(self) -> Score:
        """What it was judged by before any compiler saw it."""
        return self.tried.score

    @property
    def seconds(self) -> float:
        """The step's seconds, by the report."""
        return self.cost.step.seconds


@dataclass(frozen=True, kw_only=True)
class WhyNot:
    """A decision of the best plan (`w1:2`, `mesh`), what the plan has and what the nearest alternative that was tried
    has in its place, by how many seconds a step of that is longer and how many bytes more it needs on one device by the
    estimate (negative where less), and why."""

    decision: str
    chosen: str
    other: str
    seconds: float
    bytes: float
    reason: str
    alternative: Tried


@dataclass(frozen=True)
class Fallen:
    """A candidate that fell out: at which level, and why."""

    text: str
    level: str
    why: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Search(Displayed):
    """What a search has found, at its end or while it goes on.

    Attributes:
        program: the function's name.
        target: the machine.
        level: how far the best plans were taken: `propagated`, `partitioned` or `compiled`.
        given: the plan that was to be improved, or that the function brought along, as it was scored; None where there
            was none, or it was refused.
        offers: the plans that are offered, the best first; at level `compiled` only what the target's compiler took.
        leading: the best by its estimate, where the target's compiler has not accepted any yet; it is not offered.
        tried: every candidate that was scored.
        fallen: every candidate that was refused, crashed or does not fit.
        floor: what no plan can go below; None where it could not be found.
        why_not: for each decision of the best plan the nearest alternative.
        seconds: how long it has taken.
        finished: whether nothing was left to try; else time was up, or it was interrupted.
        note: what was not done, and why; empty where all was.
    """

    _width: ClassVar[int | None] = 140

    program: str
    target: str
    level: str
    offers: tuple[Found, ...]
    tried: tuple[Tried, ...]
    fallen: tuple[Fallen, ...]
    leading: Found | None = None
    floor: Floor | None = None
    why_not: tuple[WhyNot, ...] = ()
    given: Tried | None = None
    seconds: float = 0.0
    finished: bool = False
    note: str = ""

    @property
    def best(self) -> Found | None:
        """The best plan; None where there is none yet, as before the target's compiler has accepted one (`leading`)."""
        return self.offers[0] if self.offers else None

    @property
    def front(self) -> tuple[Tried, ...]:
        """The candidates than which none is both faster and smaller, the fastest first; only what may fit."""
        may_fit = (each for each in self.tried if each.score.needs.fits is not False)
        return pareto(may_fit, lambda each: (each.score.seconds, each.score.needs.total))

    @property
    def too_large(self) -> tuple[Tried, ...]:
        """The candidates that do not fit by their estimate, the fastest first."""
        return tuple(sorted((t for t in self.tried if t.score.needs.fits is False), key=lambda t: t.score.seconds))

    @property
    def reasons(self) -> Mapping[str, int]:
        """Why candidates fell out → how many."""
        return Counter(f"{f.level}: {f.why}" for f in self.fallen)


def pareto(rows: Iterable[_Row], of: Callable[[_Row], tuple[float, float]]) -> tuple[_Row, ...]:
    """The rows than which none is less in both of two numbers, in the first one's order."""
    front: list[_Row] = []
    for row in sorted(rows, key=of):
        if not front or of(row)[1] < of(front[-1])[1]:
            front.append(row)
    return tuple(front)


def why_not(best: Tried, alternatives: Sequence[tuple[str, Tried]]) -> tuple[WhyNot, ...]:
    """For each decision, of (what is decided otherwise, the candidate), the alternative nearest to the best."""
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
    """What a choice decides; where it is given for another's, all in which they differ."""
    if decision == "mesh":
        return choice.text.split(";")[0]
    if decision == "state":
        return (
            ", ".join(f"{part} by {' and '.join(axes)}" for part in PARTS if (axes := choice.by(part))) or "state whole"
        )
    own = f"{decision} by {' and '.join(choice.by(decision))}" if choice.by(decision) else f"{decision} whole"
    if than is None:
        return own
    names = [n for n, axes in choice.cuts if n not in (decision, *PARTS) and than.by(n) != axes]
    return ", ".join([own, *(f"{n} by {' and '.join(choice.by(n))}" for n in names)])


def reason(best: Score, other: Score) -> str:
    """Why another candidate is worse (or better): what of it takes longest more, and memory that it has not."""
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
