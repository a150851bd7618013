"""What costs you most: one ranked list of what a step spends, each row with its cause and its own mend.

A row is ranked by what the step would lose if it took no time, so that what other work hides sinks; compared with
another card, each row has its difference. A finding of memory is ranked by its share of what a device needs, as if that
were its share of the step, where it costs less time than that. A finding about the same line and axes gives the row its
words; any other finding has a row of its own, a note only if a mend of it helps. A mend stands beside its finding, or
beside the collectives that it lessens; what mends no row stands apart. A source line has its own rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardviz.caching import cached_property
from shardviz.costs.spending import Spending, spendings
from shardviz.costs.step_cost import StepCost
from shardviz.explorer.cards import Deck, Results, equal_level
from shardviz.explorer.snapshot import Remedies
from shardviz.notation.spec import axis_name
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_count, format_flops, format_seconds
from shardviz.records.findings import Finding
from shardviz.records.sums import sum_collectives
from shardviz.study.mends import Mend
from shardviz.view.document import (
    Block,
    Document,
    Piece,
    Table,
    axes,
    code,
    difference,
    line,
    listed,
    moved,
    notes,
    paragraph,
    section,
    shorten,
    table,
    term,
    why,
    words,
    wrapped,
)
from shardviz.view.placement import no_times
from shardviz.view.report import TONES
from shardviz.view.step_cost import SAME, comparable, pair, work_lines

MOST = 14
_LEAST = 0.001  # of the step
_LONGEST = 220
_CAUSES = {
    "all-reduce": "partial sums are added across devices",
    "reduce-scatter": "partial sums are added across devices, and each keeps its shard",
    "all-gather": "this operation needs the full array, so its shards are gathered",
    "all-to-all": "the sharding changes from one dimension to another",
    "ragged-all-to-all": "rows go to the devices that need them",
    "collective-permute": "shards pass to the next device",
    "collective-broadcast": "one device's shard is sent to the others",
}
_PHASES = {"rematerialised": "recomputed"}
_WHERE = {"compute": "on the matrix unit", "memory": "in HBM", "collective": "on the link"}


@dataclass(frozen=True)
class _Entry:
    """A row: what is spent, what was found there, and what mends it; at least one of the three."""

    spent: Spending | None = None
    finding: Finding | None = None
    mend: Mend | None = None

    @property
    def finding_seconds(self) -> float:
        """What the finding costs; where it has no seconds, what its mend saves."""
        own = self.finding.numbers.get("seconds", 0.0) if self.finding is not None else 0.0
        return own or max(0.0, (self.mend and self.mend.seconds) or 0.0)


@dataclass(frozen=True)
class _ComparedStep:
    """The open card's step, and the one that it is compared with: at one level, or None."""

    results: Results
    cost: StepCost | None
    before: StepCost | None

    @cached_property
    def frames(self) -> dict[tuple[str, int], Frame]:
        return work_lines(self.cost)

    @classmethod
    def of(cls, deck: Deck) -> _ComparedStep:
        results, other = deck.now.results, deck.other.results
        alike = deck.other is not deck.now and equal_level(results, other) == results.level
        return cls(results, results.cost(), other.cost(results.level) if alike else None)

    def entries(self, remedies: Remedies, plan: object) -> tuple[list[_Entry], list[_Entry]]:
        """The rows, and the mends that belong to no row: each mend goes to the first row that it helps."""
        mends = remedies.mends if remedies.of == plan else None
        findings = self.results.findings
        entries = self._entries([finding for finding in findings if finding.severity != "note"])
        if mends is None:
            return entries, []
        left = {mend.action: mend for mend in mends}
        for place, entry in enumerate(entries):
            own = mends.of(entry.finding) if entry.finding is not None else left.values()
            alone = entry.finding is None  # then only what no finding suggests can be its mend
            helps = (m for m in own if m.action in left and not (alone and (m.finding or not _lessens(m, entry.spent))))
            if (mend := next(helps, None)) is not None:
                entries[place] = replace(entry, mend=left.pop(mend.action))
        notes = {finding.id: finding for finding in findings}
        for entry in entries:
            notes.pop(entry.finding.id if entry.finding is not None else "", None)
        for mend in [*left.values()]:
            finding = next((notes.pop(each.id) for each in mend.findings if each.id in notes), None)
            if finding is not None:
                entries.append(_Entry(finding=finding, mend=left.pop(mend.action)))
        return sorted(entries, key=self._order), [_Entry(mend=mend) for mend in left.values()]

    def _entries(self, findings: list[Finding]) -> list[_Entry]:
        """What is spent, each with its finding, and the other findings."""
        rows, least = [], _LEAST * self._seconds
        for each in _by_bytes(self.results) if self.cost is None else spendings(self.cost, self.before):
            if self.cost is None or abs(each.difference) >= least or each.seconds >= least:
                finding = next((f for f in findings if _about(f, each)), None)
                findings = [f for f in findings if f is not finding]
                rows.append(_Entry(each, finding))
        return sorted((*rows, *(_Entry(finding=finding) for finding in findings)), key=self._order)

    def _order(self, entry: _Entry) -> tuple[bool, float, float]:
        """Errors first, then what costs most."""
        spent, finding = entry.spent, entry.finding
        if spent is not None:
            return True, -(spent.weight_before if spent.gone else spent.weight), -spent.seconds
        if finding is not None and finding.severity == "error":
            return False, 0.0, 0.0
        return True, -max(entry.finding_seconds, self.held_seconds(finding)), 0.0

    @property
    def _seconds(self) -> float:
        return 0.0 if self.cost is None else self.cost.seconds or self.cost.lower

    def held_seconds(self, finding: Finding | None) -> float:
        """Seconds that rank a finding's unneeded bytes: the step's, times their share of what a device needs."""
        if finding is None or self.cost is None or not self.cost.needs.total:
            return 0.0
        return min(1.0, finding.numbers.get("saved_bytes", 0.0) / self.cost.needs.total) * self._seconds

    def lines(self, entry: _Entry) -> set[str]:
        """The source lines that a row is about."""
        frames: list[Frame | None] = [each.source for each in (entry.spent, entry.finding) if each is not None]
        if entry.spent is not None:
            frames += map(self.frames.get, entry.spent.lines)
        elif entry.finding is None and entry.mend is not None:
            frames += entry.mend.lines
        return {frame.short for frame in frames if frame is not None}


def costs_documents(deck: Deck, remedies: Remedies) -> tuple[Document, dict[str, Document]]:
    """What the open card's step spends most on, compared with another card, with the mends of that card's plan; and for
    each source line (`model.py:20`) with a cost or a finding its own. What was tried and belongs to no row stands below
    the rows, or above them where it saves more than a mend of theirs."""
    step = _ComparedStep.of(deck)
    entries, apart = step.entries(remedies, deck.now.plan)
    mesh = step.results.bound.mesh
    lines: dict[str, list[_Entry]] = {}
    for entry in (*entries, *apart):
        for at in step.lines(entry):
            lines.setdefault(at, []).append(entry)
    by_line = {at: Document.of(_table(step, here, "line-costs", at), mesh=mesh) for at, here in lines.items()}
    blocks: list[Block] = []
    if step.cost is None:
        then = "to see times; until then, rows are sorted by the bytes that each device sends."
        blocks.append(paragraph(*no_times(step.results.priced()[0].trouble, then), name="most-no-machine"))
    if entries:
        blocks.append(_table(step, entries, "most"))
    elif step.cost is not None:
        blocks.append(paragraph("No costs are known.", quiet=True))
    if apart:
        most = lambda some: max(((each.mend and each.mend.seconds) or 0.0 for each in some), default=0.0)  # noqa: E731
        also = section("Also tried", _table(step, apart, "most-apart"))
        blocks.insert(0 if most(apart) > most(entries) else len(blocks), also)
    lead = (words(_compared(deck), quiet=True), *_progress(remedies, deck))
    return Document.of(blocks, title=words("What costs you most", strong=True), lead=(lead,), mesh=mesh), by_line


def _table(step: _ComparedStep, entries: Sequence[_Entry], name: str, at: str = "") -> Table:
    """The rows; those of one line without the column of lines."""
    tried = any(piece for entry in entries for piece in _try(entry))
    return table(
        entries,
        ("costs", lambda entry: _amount(entry, step, at)),
        None if step.before is None else ("difference", lambda entry: _difference(entry.spent, step)),
        None if at else ("line", lambda entry: _place(entry, step)),
        (wrapped("what, and why"), lambda entry: _sentence(entry, step, at)),
        (wrapped("try this"), _try) if tried else None,
        detail=lambda entry: _detail(entry.finding),
        first=6,
        most=MOST,
        kept=MOST,
        noun="row",
        name=name,
    )


def _compared(deck: Deck) -> str:
    card, other = deck.now, deck.other
    at = f"at level {card.results.level}"
    if other is card:
        return f"{card.name}, {at}"
    if equal_level(card.results, other.results) == card.results.level:
        return f"{card.name} compared with {other.name}, {at}"
    return f"{card.name}, {at}; no comparison: {other.name} has not reached this level"


def _progress(remedies: Remedies, deck: Deck) -> Iterator[Piece]:
    """How many mends were tried."""
    mends = remedies.mends
    if remedies.of != deck.now.plan:
        return
    if not remedies.busy and remedies.trouble:
        yield words("· mends could not be tried", tone="warn", tip=remedies.trouble)
    elif remedies.busy and mends is not None and mends.candidates:
        text = f"· {mends.tried} of {mends.candidates} changes tried"
        yield words(text, quiet=True, tip="mends are tried while the explorer is idle")


def _lessens(mend: Mend, spent: Spending | None) -> bool:
    """Whether a mend reduces the collectives of a row."""
    if spent is None or spent.what != "collective" or spent.source is None:
        return False
    names = {axis_name(a) for a in spent.axes or ()}
    more = 0.0
    for change in mend.difference.collectives:
        for sign, total in ((-1.0, change.before), (1.0, change.after)):
            for one in total.collectives if total else ():
                same = one.kind == spent.kind and {axis_name(a) for a in one.axes or ()} == names
                if same and one.source is not None and one.source.bare == spent.source.bare:
                    more += sign * one.assumed_bytes
    return more < 0


def _about(finding: Finding, spent: Spending) -> bool:
    """Whether a finding is about what is spent: the same line and axes, and a collective."""
    if spent.what != "collective" or finding.source is None or spent.source is None or not finding.axes:
        return False
    same = (finding.source.file, finding.source.line) == (spent.source.file, spent.source.line)
    return same and {axis_name(a) for a in finding.axes} == {axis_name(a) for a in spent.axes or ()}


def _by_bytes(results: Results) -> Sequence[Spending]:
    """Without a machine: by the bytes that each device sends."""
    rows = [
        Spending(
            what="collective",
            seconds=0.0,
            bytes=part.sent_bytes,
            source=part.collectives[0].source,
            kind=part.kinds[0],
            axes=part.axes,
            collectives=part.collectives,
        )
        for total in sum_collectives(results.report.collectives, "source")
        for part in sum_collectives(total.collectives, "kind_axes")
    ]
    return sorted(rows, key=lambda spent: -spent.bytes)


def _place(entry: _Entry, step: _ComparedStep) -> tuple[Piece, ...]:
    subject = entry.spent or entry.finding
    source = None if subject is None else subject.source
    if entry.spent is not None and entry.spent.lines:
        source = step.frames.get(next(iter(entry.spent.lines)))
    return () if source is None else (line(source, tip=source.text_in(step.results.report.source)),)


def _detail(finding: Finding | None) -> tuple[Block, ...]:
    """The whole text of a finding that its row shortens, and its cause."""
    if finding is None:
        return ()
    whole = None if _brief(finding.text) == finding.text else paragraph(finding.text)
    return listed(whole, notes(finding.why))


def _amount(entry: _Entry, step: _ComparedStep, at: str = "") -> Piece:
    """`0.28 s`; without a time its bytes."""
    spent, finding, mend = entry.spent, entry.finding, entry.mend
    if spent is not None:
        text, tip = format_seconds(spent.weight), "in a step, on each device"
        if not spent.seconds and not spent.difference:
            text, tip = format_bytes(spent.bytes), "sent by each device in a step"
        elif (own := _own(spent, step, at)) is not None:
            text, tip = format_seconds(own), "of this line in a step, on each device"
        elif spent.loss is not None:
            tip = "the step would be this much shorter if this took no time"
        return words(text, strong=True, tip=tip)
    if finding is None:
        assert mend is not None
        return _saved(mend)[0]
    seconds, size = entry.finding_seconds, finding.numbers.get("bytes")
    tip = "what the mend saves in a step" if seconds and not finding.numbers.get("seconds") else ""
    if step.held_seconds(finding) > seconds:
        seconds, size, tip = 0.0, finding.numbers["saved_bytes"], "more than is needed, on each device"
    text = format_seconds(seconds) if seconds else format_bytes(size) if size else finding.severity
    return words(text, strong=True, tone=TONES.get(finding.severity, ""), tip=tip)


def _own(spent: Spending, step: _ComparedStep, at: str) -> float | None:
    """The compute of one line, where that is asked for."""
    if not at or not spent.lines:
        return None
    return sum(spent.lines[place] for place in spent.lines if place in step.frames and step.frames[place].short == at)


def _difference(spent: Spending | None, step: _ComparedStep) -> tuple[Piece, ...]:
    """`+17.4 s` where it takes that much longer than on the other card; in chip-seconds where the chips differ."""
    cost, other = step.cost, step.before
    if spent is None or spent.before is None or cost is None or other is None:
        return ()
    here, before, form = comparable(cost, other, spent.weight, spent.weight_before)
    more = here - before
    return (difference(more, form, tip=f"{form(before)} there"),) * (abs(more) > 0.02 * max(here, before))


def _sentence(entry: _Entry, step: _ComparedStep, at: str) -> Iterator[Piece]:
    """What a row says: what is spent and why, the finding, or what a mend alone brings."""
    spent, finding = entry.spent, entry.finding
    if spent is not None:
        yield from _spent(spent, step, at)
    if finding is not None:
        if spent is not None:
            yield words("·", quiet=True)
        text = _brief(finding.text)
        yield words(
            text,
            strong=spent is None,
            tone="bad" if finding.severity == "error" else "",
            tip=finding.text if text != finding.text else "",
            selects=("value", finding.value) if finding.value else None,
        )
    if spent is None and finding is None and (mend := entry.mend) is not None:
        if mend.for_memory:
            yield words("frees memory", strong=True)
        elif mend.seconds and mend.seconds > 0 and mend.step:
            yield words(f"saves {pair(format_seconds(mend.seconds), format_seconds(mend.step), ' of ')}", strong=True)
        yield words(", ".join(mend.effects if mend.for_memory else mend.collectives), quiet=True)


def _spent(spent: Spending, step: _ComparedStep, at: str) -> Iterator[Piece]:
    """`all-reduce data: partial sums are added across devices · 2.10 s on the link, 1.49 s of it hidden · 80 runs`."""
    cost, own = step.cost, _own(spent, step, at)
    if spent.what == "collective":
        yield moved(spent.kind, spent.axes, spent.source)
        yield axes(spent.axes)
        if spent.gone:
            yield words("removed", tone="good")
            return
        if spent.seconds and spent.before is not None and not spent.before:
            yield words("new", tone="bad")
        yield words(":")
        yield from _cause(spent, step)
    else:
        yield term("matrix products" if spent.what == "compute" else "HBM-bound", strong=True)
    if own is not None and cost is not None:
        yield words(f"· {own / spent.seconds:.0%} of the step's {format_seconds(spent.seconds)} of matrix products")
        return
    yield from _loss(spent, cost)
    yield words("·", quiet=True)
    if spent.what == "compute" and cost is not None:
        share = next(iter(spent.lines.values()), 0.0) / (spent.seconds or 1.0)
        yield words(f"{format_flops(cost.flops)} on each device, {share:.0%} of it on this line")
    elif spent.what == "memory":
        yield words(f"{format_bytes(spent.bytes)} a device take longer than the compute")
    else:
        runs = sum(c.count or 1 for c in spent.collectives)
        phases = ", ".join(dict.fromkeys(_PHASES.get(c.phase, c.phase) for c in spent.collectives))
        operands = sum(c.assumed_bytes for c in spent.collectives)
        tip = f"{format_bytes(operands)} of operands on each device"
        yield words(f"{format_count(runs)} {'run' if runs == 1 else 'runs'}", tip=tip)
        yield words(f"({phases})", quiet=True)
        if at and spent.collectives[0].name:
            yield why(spent.collectives[0].name)


def _loss(spent: Spending, cost: StepCost | None) -> Iterator[Piece]:
    """`· 2.10 s on the link, 1.49 s of it hidden, 8% of the step`."""
    loss, where = spent.loss, _WHERE[spent.what]
    if cost is None or not spent.seconds:
        yield words(f"· {format_bytes(spent.bytes)} sent by each device")
    elif loss is None or not cost.seconds:
        yield words(f"· {format_seconds(spent.seconds)} {where}")
    elif not loss.busy:
        yield words("· no time of its own: the schedule combines it with another")
    else:
        hidden = f"{format_seconds(loss.hidden)} of it" if loss.hidden > 0.01 * loss.busy else "none"
        share = f"{loss.lost / cost.seconds:.0%} of the step"
        yield words(f"· {format_seconds(loss.busy)} {where}, {hidden} hidden: {share}")


def _cause(spent: Spending, step: _ComparedStep) -> Iterator[Piece]:
    """Why a collective is there: the array that it gathers, where that has a name, else what its kind is for."""
    arguments = {v.name for v in step.results.report.arguments}
    names = [*dict.fromkeys(c.operand for c in spent.collectives if c.operand in arguments)]
    if not names or spent.kind != "all-gather":
        yield words(_CAUSES.get(spent.kind, "data is exchanged between devices"))
        return
    first, *more = names
    yield code(first, selects=("value", first))
    if more:
        yield words(f"and {len(more)} more", tip=", ".join(more))
    yield words("are sharded along" if more else "is sharded along")
    yield axes(spent.axes)
    yield words(f"and gathered: {'this line' if spent.source else 'a line that is not known'} needs the full array")


def _brief(text: str) -> str:
    """A finding's first sentence; its row, opened, has the whole text."""
    if len(text) <= _LONGEST:
        return text
    return shorten(re.split(r"(?<=[.;]) ", text, maxsplit=1)[0], _LONGEST)


def _try(entry: _Entry) -> Iterator[Piece]:
    """The mend that was tried and helps, with what it saves; else what a person can write."""
    mend = entry.mend
    if mend is not None:
        does = "click to change the plan; undo takes it back"
        if mend.write:
            does = f"click to open a card whose program has it; undo takes it back; in your program write {mend.write}"
        tip = f"{mend.text} (tried at level {mend.level}); {does}"
        yield words(mend.action, tip=tip, selects=("remedy", mend.action))
        yield words("→")
        yield from _saved(mend, tip)
        return
    by_hand = (m for m in (entry.finding.mends if entry.finding is not None else ()) if m.kind == "code")
    for suggestion in list(by_hand)[:1]:  # what a plan can say is tried, and stands here if it helps
        yield words(suggestion.words, quiet=True, tip="not tried: only a person can write it")


def _saved(mend: Mend, tip: str = "") -> list[Piece]:
    """`−17.4 s` `+2 GB memory`, without a time `−41 GB of communication`; what the mend is for comes first."""
    amounts, look = [], {"worse": "warn", "strong": True, "tip": tip}
    if mend.seconds and abs(mend.seconds) >= SAME * (mend.step or 0.0):
        amounts.append(difference(-mend.seconds, format_seconds, **look))
    elif mend.bytes and not mend.seconds:
        amounts.append(difference(-mend.bytes, lambda n: f"{format_bytes(n)} of communication", **look))
    if amounts and mend.levels:
        amounts.append(words(mend.levels, quiet=True, tip=tip))
    if abs(mend.memory) >= 0.5e6:
        look |= {"strong": mend.for_memory}
        look["tip"] = "" if mend.level == "compiled" else "predicted, before a compiler plans it"
        more = difference(mend.memory, lambda n: f"{format_bytes(n)} memory", **look)
        amounts.insert(0 if mend.for_memory else len(amounts), more)
    return amounts or [words("no change", quiet=True, tip=tip)]
