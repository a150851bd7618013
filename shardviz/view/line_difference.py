"""What each source line costs more, or less, than under another card's plan, at a level that both have reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardviz.costs.step_cost import StepCost
from shardviz.explorer.cards import Deck, Known, equal_level
from shardviz.judge.report import Report
from shardviz.notation import Axis
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.view.document import Piece, words

Line = tuple[str, int]
Moved = tuple[str, tuple[Axis, ...] | None]

_LEAST = 0.0005  # of the whole step, or of all that moves
_SHARE = 0.01  # of what the line costs on either side


@dataclass(frozen=True, kw_only=True)
class LineDifference:
    """How the lines of a program differ between two plans.

    Attributes:
        name: of the card that is compared with.
        level: at which they are compared.
        timed: whether the amounts are seconds; else operand bytes.
        more: (file, line) → seconds or bytes more than there, of lines where that is worth saying.
        new: (file, line) → the kinds and axes of collectives that are not there.
        gone: (file, line) → those that are there only.
    """

    name: str
    level: str
    timed: bool
    more: Mapping[Line, float] = field(default_factory=dict)
    new: Mapping[Line, frozenset[Moved]] = field(default_factory=dict)
    gone: Mapping[Line, frozenset[Moved]] = field(default_factory=dict)

    def said(self, at: Line) -> Piece:
        """`▲ 17.4 s`, `▼ 12 GB`; empty words where the line costs the same."""
        amount = self.more.get(at, 0.0)
        if not amount:
            return words("")
        text = format_seconds(abs(amount)) if self.timed else format_bytes(abs(amount))
        arrow, tone = ("▲", "bad") if amount > 0 else ("▼", "good")
        less = "more" if amount > 0 else "less"
        tip = f"{text} {less} than on {self.name} in a step, at level {self.level}: compute and communication"
        return words(f"{arrow} {text}", strong=True, tone=tone, tip=tip)


def line_difference(deck: Deck) -> LineDifference | None:
    """The open card's lines against those of the card that is compared with; None where there is no other."""
    now, other = deck.now, deck.other
    level = "" if now.id == other.id else equal_level(now.known, other.known)
    if not level:
        return None
    costs = now.known.cost(level), other.known.cost(level)
    timed = costs[0] is not None and costs[1] is not None
    ours, theirs = _amounts(now.known, level, timed), _amounts(other.known, level, timed)
    least = _LEAST * max(sum(ours.values()), sum(theirs.values()))
    more = {}
    for at in {*ours, *theirs}:
        one, two = ours.get(at, 0.0), theirs.get(at, 0.0)
        if abs(one - two) > max(least, _SHARE * max(one, two)):
            more[at] = one - two
    mine, its = _moved(now.known.reports[level]), _moved(other.known.reports[level])
    none: frozenset[Moved] = frozenset()
    return LineDifference(
        name=other.name,
        level=level,
        timed=timed,
        more=more,
        new={at: found for at in mine if (found := mine[at] - its.get(at, none))},
        gone={at: found for at in its if (found := its[at] - mine.get(at, none))},
    )


def _amounts(known: Known, level: str, timed: bool) -> dict[Line, float]:
    """Seconds of each line, what it computes and what it moves; or its operand bytes."""
    cost: StepCost | None = known.cost(level) if timed else None
    found: dict[Line, float] = {} if cost is None else dict(cost.compute_by_line())
    collectives = known.reports[level].collectives if cost is None else cost.partitioned
    for each in collectives:
        at = _at(each)
        if at is not None:
            found[at] = found.get(at, 0.0) + (each.assumed_bytes if cost is None else each.assumed_seconds)
    return found


def _moved(report: Report) -> dict[Line, frozenset[Moved]]:
    found: dict[Line, set[Moved]] = {}
    for each in report.collectives:
        at = _at(each)
        if at is not None:
            found.setdefault(at, set()).add((each.kind, each.axes))
    return {at: frozenset(kinds) for at, kinds in found.items()}


def _at(collective: Collective) -> Line | None:
    return None if collective.source is None else (collective.source.file, collective.source.line)
