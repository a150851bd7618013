"""What is offered and asked beside the plan, as plain data: presets that were tried, a search, a question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardviz.explorer.answers import Known
from shardviz.study.mends import Mend, Mends

if TYPE_CHECKING:
    from shardviz.program.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A plan that can be taken.

    Attributes:
        name: what it is called; no two offers are called the same.
        text: what it does, in a sentence.
        plan: the plan.
        known: what is known of it; None where it could not be propagated.
        trouble: why not.
        tried: the mend that it is of, which may have been tried at a higher level than it is known at.
    """

    name: str
    text: str
    plan: Plan
    known: Known | None = None
    trouble: str = ""
    tried: Mend | None = None

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """What cannot be, and what cannot fit, comes last; then the shortest step first; without a time what moves
        least."""
        if self.known is None:
            return True, True, 0.0
        cost = self.known.cost()
        if cost is None:
            return False, False, sum(c.assumed_bytes for c in self.known.report.collectives)
        return False, cost.needs.fits is False, cost.lower if cost.upper is None else cost.upper


@dataclass(frozen=True)
class Offers:
    """The offers that are open, and how far the search is.

    Attributes:
        items: the best first.
        open: whether they are shown.
        busy: more are being tried.
        hunt: what the search does, in words; empty where none runs.
        share: how much of its time is over, 0 to 1.
        trouble: why there are none, or the search has ended.
    """

    items: tuple[Offer, ...] = ()
    open: bool = False
    busy: bool = False
    hunt: str = ""
    share: float = 0.0
    trouble: str = ""


@dataclass(frozen=True)
class Remedies:
    """What helps a plan, as far as it was tried.

    Attributes:
        of: the plan; None where nothing was tried.
        mends: what the study knows; None where nothing was tried.
        busy: more is being tried.
        trouble: why no more could be tried; empty where it could.
    """

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
        trouble: why there is none, or why the last change could not be tried.
        changes: which cause of the answer was taken away → the `Comparison` of the plan with that.
    """

    of: Plan | None = None
    name: str = ""
    axis: str = ""
    line: str = ""
    busy: bool = False
    tried: int = 0
    answer: Any = None
    trouble: str = ""
    changes: Mapping[int, Any] = field(default_factory=dict)
