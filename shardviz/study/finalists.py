"""The best candidates of a search before a compiler, one after the other.

A plan is offered only if the target's compiler, where installed, accepts it as fitting. Each answer corrects the
estimates of the rest. If a plan needs more memory than estimated, the other estimates are raised by the same factor. If
compiled seconds differ from predicted ones, more candidates are compiled than wanted. Compiling continues while the
next prediction, times the smallest compiled/predicted ratio so far (at most 1), is below the best.

    predicted   10.0  10.2  10.4  11.0  12.5  13.0      compiled   12.6  12.2  10.4 ...

Three are wanted. The third takes the predicted 10.4, so the fourth (11.0) cannot be better: enough. Had the third taken
12.8, the best would be 12.2, and the fourth would be compiled, but not the fifth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shardviz.costs.footprint import span_words
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.diagnose import policy
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.records.amounts import format_bytes
from shardviz.study.answer import Fallen, Finalist, Tried
from shardviz.study.scoring import short


@dataclass(eq=False)
class Finalists:
    """Candidates compiled to `level` (None: no compiler) until `wanted` of them are accepted (`ranked`).

    `unasked` says why the target's compiler is not used.
    """

    machine: Machine
    level: str | None
    wanted: int
    unasked: str = ""
    ranked: list[Finalist] = field(default_factory=list)
    fallen: list[Fallen] = field(default_factory=list)
    asked: list[Tried] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._higher = 1.0

    @property
    def full(self) -> bool:
        """Whether no more candidates are to be compiled."""
        return self.level is None or len(self.ranked) >= self.wanted or len(self.fallen) >= policy.REFUSED

    def may_fit(self, each: Tried) -> bool:
        """Return whether a candidate may fit, given its estimate, the estimate's error and the corrections so far."""
        needs = each.score.needs
        less = needs.margin[0] if needs.margin else 0.0
        return needs.usable is None or needs.total * self._higher * (1 - less) <= needs.usable

    def hope(self, each: Tried) -> bool:
        """Return whether a candidate may fit and differs in cost from all compiled candidates."""
        return self.may_fit(each) and all(each.alike != other.alike for other in self.asked)

    def rivals(self, given: Tried) -> bool:
        """Return whether to compile the plan that the search started with too, so that the result is not worse."""
        asked = any(given is each for each in self.asked)
        return self.level is not None and bool(self.ranked) and not asked and self.may_fit(given)

    def may_win(self, each: Tried) -> bool:
        """Return whether a candidate may beat the accepted ones, if its prediction errs as theirs did."""
        enough = len(self.ranked) >= policy.MOST_TIMES * self.wanted or len(self.fallen) >= policy.REFUSED
        if self.level is None or enough:
            return False
        least = min(finalist.seconds / finalist.score.seconds for finalist in self.ranked)
        best = min(finalist.seconds for finalist in self.ranked)
        return each.score.seconds * min(1.0, least) < (1 - policy.WORTH_COMPILING) * best

    def next(self, tried: Iterable[Tried]) -> Tried | None:
        """Return the best candidate that was not compiled and may fit; None if there is none."""
        return min(filter(self.hope, tried), key=lambda t: t.score.rank_at(self._higher), default=None)

    def refuse(self, each: Tried, error: ShardvizError) -> None:
        """Record why the compiler refused a candidate."""
        self.fallen.append(Fallen(each.text, self.level or "", short(error), each))

    def take(self, each: Tried, report: Report) -> None:
        """Record a candidate's compiled report."""
        level, memory = self.level or "", report.memory
        accepted: bool | None = None
        if level == "compiled" and memory is not None:
            accepted = memory.fits
        if accepted is False and memory is not None:
            self._higher = max(self._higher, memory.takes / each.score.needs.total)
            why = f"does not fit: {format_bytes(memory.takes)} of {format_bytes(memory.hbm or 0)}"
            self.fallen.append(Fallen(each.text, level, why, each))
            return
        cost = cost_of(report, self.machine)
        verdict = "it fits: the compiler's own plan" if accepted else self.estimate_of(each, cost)
        self.ranked.append(Finalist(tried=each, report=report, cost=cost, accepted=accepted, verdict=verdict))

    def estimate_of(self, each: Tried, cost: StepCost) -> str:
        """Return in words whether a candidate fits by the estimate, and why no compiler confirms it."""
        needs = cost.needs
        if needs.usable is None:
            return "how much memory the chip has is not known"
        fits = {True: "it fits", False: "it does not fit", None: "whether it fits is not known"}[needs.fits]
        if needs.complete:
            return f"{fits}: {needs.text} of {format_bytes(needs.usable)}, {needs.verdict}"
        span = f" ({span_words(needs.total)})" if needs.margin else ""
        asked = any(each is other for other in self.asked)
        why = f"the target's compiler {'has not answered' if asked else 'was not asked about it'} in the time given"
        return f"{fits} by an estimate, {needs.text}{span} of {format_bytes(needs.usable)}; {self.unasked or why}"
