"""The best of a search, taken to the partitioner or through the target's own compiler, one after the other.

What the target's compiler has not accepted as fitting is not offered, where that compiler is there. What it says
teaches. By as much as it needs more memory than the estimate said, the estimates of the others are taken higher from
then on. And where it disagrees on the seconds, more are asked about than are wanted: as long as the next one's
prediction, times the least that compiled by predicted came to of those before it (1 at most), is below the best's.

    predicted   10.0  10.2  10.4  11.0  12.5  13.0      compiled   12.6  12.2  10.4 ...

Three are wanted. The third takes the 10.4 that were predicted, so the fourth (11.0) can be no better: enough. Had it
taken 12.8 as the others do, the best would be 12.2, and the fourth would be asked about, but not the fifth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shardviz.costs import Machine
from shardviz.costs.footprint import span_words
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.records.amounts import format_bytes
from shardviz.study.answer import Fallen, Found, Tried
from shardviz.study.scoring import short

_MOST_REFUSED = 16
"""How many the compiler refuses before no more are asked about."""
_MOST_TIMES, _WORTH = 3, 0.02
"""How many times as many as are wanted are asked about at most, and the share of its time that is worth a compile."""


@dataclass(eq=False)
class Finalists:
    """Candidates before a compiler, as far as `level` (None where no compiler is asked), until as many are `wanted` as
    came through (`offers`). `unasked` says why the target's compiler is not asked."""

    machine: Machine
    level: str | None
    wanted: int
    unasked: str = ""
    offers: list[Found] = field(default_factory=list)
    fallen: list[Fallen] = field(default_factory=list)
    asked: list[Tried] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._higher = 1.0

    @property
    def full(self) -> bool:
        """Whether no more are to be asked about."""
        return self.level is None or len(self.offers) >= self.wanted or len(self.fallen) >= _MOST_REFUSED

    def may_fit(self, each: Tried) -> bool:
        """Whether the estimate, its error and what the compiler said of others leave it possible that it fits."""
        needs = each.score.needs
        less = needs.margin[0] if needs.margin else 0.0
        return needs.usable is None or needs.total * self._higher * (1 - less) <= needs.usable

    def hope(self, each: Tried) -> bool:
        """Whether it is worth asking about; what costs the same as another that was asked about is nearly the same."""
        return self.may_fit(each) and all(each.alike != other.alike for other in self.asked)

    def rivals(self, given: Tried) -> bool:
        """Whether the plan that a search began with is to be asked about too: what takes its place is then no worse."""
        asked = any(given is each for each in self.asked)
        return self.level is not None and bool(self.offers) and not asked and self.may_fit(given)

    def may_win(self, each: Tried) -> bool:
        """Whether it is asked about though as many as are wanted came through: if it errs as the others, it may win."""
        if self.level is None or len(self.fallen) >= _MOST_REFUSED or not len(self.offers) < _MOST_TIMES * self.wanted:
            return False
        least = min(offer.seconds / offer.score.seconds for offer in self.offers)
        best = min(offer.seconds for offer in self.offers)
        return each.score.seconds * min(1.0, least) < (1 - _WORTH) * best

    def next(self, tried: Iterable[Tried]) -> Tried | None:
        """The best candidate that nobody asked about and that may fit; None where there is none."""
        return min(filter(self.hope, tried), key=lambda t: t.score.rank_at(self._higher), default=None)

    def refuse(self, each: Tried, error: ShardvizError) -> None:
        """Takes in why a candidate does not come through."""
        self.fallen.append(Fallen(each.text, self.level or "", short(error)))

    def take(self, each: Tried, report: Report) -> None:
        """Takes in what the compiler made of a candidate."""
        level, memory = self.level or "", report.memory
        accepted: bool | None = None
        if level == "compiled" and memory is not None:
            accepted = memory.fits
        if accepted is False and memory is not None:
            self._higher = max(self._higher, memory.takes / each.score.needs.total)
            why = f"does not fit: {format_bytes(memory.takes)} of {format_bytes(memory.hbm or 0)}"
            self.fallen.append(Fallen(each.text, level, why))
            return
        cost = cost_of(report, self.machine)
        verdict = "it fits: the compiler's own plan" if accepted else self.estimate_of(each, cost)
        self.offers.append(Found(tried=each, report=report, cost=cost, accepted=accepted, verdict=verdict))

    def estimate_of(self, each: Tried, cost: StepCost) -> str:
        """Whether a candidate fits, by the estimate of its cost's level, and why no compiler says so."""
        needs = cost.needs
        if needs.usable is None:
            return "how much memory the chip has is not known"
        told = {True: "it fits", False: "it does not fit", None: "whether it fits is not known"}[needs.fits]
        if needs.complete:
            return f"{told}: {needs.text} of {format_bytes(needs.usable)}, {needs.verdict}"
        span = f" ({span_words(needs.total)})" if needs.margin else ""
        asked = any(each is other for other in self.asked)
        why = f"the target's compiler {'has not answered' if asked else 'was not asked about it'} in the time given"
        return f"{told} by an estimate, {needs.text}{span} of {format_bytes(needs.usable)}; {self.unasked or why}"
