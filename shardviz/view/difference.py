"""The open card and the one that it is compared with: all differences, one pane's numbers, the lines, the links."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from shardviz.costs.step_cost import StepCost
from shardviz.explorer.cards import Deck, Results, equal_level
from shardviz.judge.comparison import Comparison, compare
from shardviz.judge.report import Report
from shardviz.notation import Axis
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.sums import CollectiveTotal
from shardviz.view.cards import signed
from shardviz.view.comparison import amounts_table, comparison_document
from shardviz.view.document import Document, Inline, Piece, axes, paragraph, right, section, table, words


def _level(deck: Deck) -> str:
    """The highest level that both cards have reached; empty where there is nothing to compare."""
    return "" if deck.now.id == deck.other.id else equal_level(deck.now.results, deck.other.results)


def compared(deck: Deck) -> Comparison | None:
    """The comparison at the highest level that both cards have reached; None where there is nothing to compare."""
    now, other, level = deck.now, deck.other, _level(deck)
    if not level:
        return None
    before, after = other.results.reports[level], now.results.reports[level]
    here, there = now.results.cost(level), other.results.cost(level)
    if here is not None and there is not None and here.machine == there.machine:
        return compare((other.name, before), (now.name, after), target=here.machine.text)
    before, after = replace(before, target="cpu"), replace(after, target="cpu")  # which has no times
    return compare((other.name, before), (now.name, after))


def difference_pane(deck: Deck) -> Document:
    """Everything that differs: numbers, specs and collectives, matched by meaning."""
    both = compared(deck)
    if both is None:
        return Document(blocks=(paragraph(_nothing(deck), quiet=True, name="difference-none"),))
    title = words(f"{deck.now.name} compared with {deck.other.name}", strong=True)
    return replace(comparison_document(both), title=(title, words(f"level {both.level}", quiet=True)), lead=())


def _nothing(deck: Deck) -> str:
    if len(deck.cards) < 2:
        return "There is one plan. After a change or a preset, this shows the difference."
    return (
        f"{deck.other.name} is the plan that others are compared with: open another card, or compare with another one."
    )


def with_difference(pane: Document, deck: Deck, groups: Collection[str]) -> Document:
    """A pane, and below it what differs in the numbers of these groups: `work`, `collectives`, `memory`, `step`."""
    both = compared(deck)
    if both is None or not any(a.group in groups for a in both.amounts):
        return pane
    lead = words(f"{deck.now.name}, at level {both.level}", quiet=True)
    amounts = replace(amounts_table(both, groups), name="difference-amounts")
    here = section(f"Compared with {deck.other.name}", amounts, lead=lead, name="difference-here")
    return replace(pane, blocks=(*pane.blocks, here))


# What each source line costs more, or less.

Line = tuple[str, int]
Moved = tuple[str, tuple[Axis, ...] | None]

_LEAST = 0.0005  # of the whole step, or of all that moves
_SHARE = 0.01  # of what the line costs on either side


@dataclass(frozen=True, kw_only=True)
class LineDifference:
    """How the lines of a program differ from those of the card `name`, at a level: by (file, line) seconds, or bytes
    that a device sends, more than there, and the kinds and axes of collectives that only one of the two has (`new`
    here, `gone` there)."""

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
        than = f"{'more' if amount > 0 else 'less'} than on {self.name} in a step, at level {self.level}"
        return signed(amount, text, of=f"{text} {than}: compute and communication")


def line_difference(deck: Deck) -> LineDifference | None:
    """The open card's lines against those of the card that is compared with; None where there is no other."""
    now, other, level = deck.now.results, deck.other.results, _level(deck)
    if not level:
        return None
    timed = now.cost(level) is not None and other.cost(level) is not None
    ours, theirs = _amounts(now, level, timed), _amounts(other, level, timed)
    least = _LEAST * max(sum(ours.values()), sum(theirs.values()))
    both = {at: (ours.get(at, 0.0), theirs.get(at, 0.0)) for at in {*ours, *theirs}}
    more = {at: one - two for at, (one, two) in both.items() if abs(one - two) > max(least, _SHARE * max(one, two))}
    mine, its = _moved(now.reports[level]), _moved(other.reports[level])
    none: frozenset[Moved] = frozenset()
    return LineDifference(
        name=deck.other.name,
        level=level,
        timed=timed,
        more=more,
        new={at: kinds for at in mine if (kinds := mine[at] - its.get(at, none))},
        gone={at: kinds for at in its if (kinds := its[at] - mine.get(at, none))},
    )


def _amounts(results: Results, level: str, timed: bool) -> dict[Line, float]:
    """Seconds of each line, its compute and its communication; or the bytes that a device sends."""
    cost: StepCost | None = results.cost(level) if timed else None
    sums: dict[Line, float] = {} if cost is None else dict(cost.compute_by_line())
    for at, each in _placed(results.reports[level].collectives if cost is None else cost.partitioned):
        sums[at] = sums.get(at, 0.0) + (each.assumed_sent_bytes if cost is None else each.assumed_seconds)
    return sums


def _moved(report: Report) -> dict[Line, frozenset[Moved]]:
    kinds: dict[Line, frozenset[Moved]] = {}
    for at, each in _placed(report.collectives):
        kinds[at] = kinds.get(at, frozenset()) | {(each.kind, each.axes)}
    return kinds


def _placed(collectives: Collection[Collective]) -> Iterator[tuple[Line, Collective]]:
    return (((each.source.file, each.source.line), each) for each in collectives if each.source is not None)


# The links of the machine.


def with_links(pane: Document, deck: Deck) -> Document:
    """The machine's document, with how long its links are busy along each mesh axis here and on the other card."""
    level, other = _level(deck), deck.other
    costs = [card.results.cost(level) for card in (deck.now, other)] if level else []
    now, before = costs or (None, None)
    if now is None or before is None:
        return pane
    here, there = ({total.axes: total for total in cost.by("axes")} for cost in (now, before))
    links = table(
        dict.fromkeys((*here, *there)),
        ("over", lambda over: axes(over)),
        (right(deck.now.name), lambda over: _busy_words(here.get(over))),
        (right(other.name), lambda over: _busy_words(there.get(over))),
        (right(), lambda over: _longer(_seconds(here.get(over)) - _seconds(there.get(over)))),
        noun="axis",
        folds="never",
        name="links-difference",
    )
    what = "communication along each mesh axis, and how long its links are busy"
    own = {(path.name, str(path)) for path in now.placement.paths}
    lines = tuple(
        paragraph(axes((path.name,)), words(f"on {other.name}: {path}", quiet=True))
        for path in before.placement.paths
        if path.size > 1 and (path.name, str(path)) not in own
    )
    none = paragraph("Neither plan communicates between devices.", quiet=True)
    lead = words(f"{what}, at level {level}", quiet=True)
    busy = section(f"Compared with {other.name}", links if links.rows else none, *lines, lead=lead, name="links-here")
    return replace(pane, blocks=(*pane.blocks, busy))


def _seconds(total: CollectiveTotal | None) -> float:
    return (total.seconds if total is not None else 0.0) or 0.0


def _busy_words(total: CollectiveTotal | None) -> Inline:
    if total is None:
        return words("nothing", quiet=True)
    return (words(total.bytes_text), words(format_seconds(_seconds(total)), strong=True))


def _longer(more: float) -> Piece:
    text = format_seconds(abs(more))
    return words("the same", quiet=True) if text == "0 s" else signed(more, text, of="seconds of a step on the links")
