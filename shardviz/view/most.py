"""The largest costs of a step: one ranked list, each row with its cause and its fix.

Rows with a fix come first, ranked by what the fix saves. The others are ranked by the seconds that the step would lose
if the row took no time, so hidden work ranks low. With another card, each row has its difference. Memory is ranked by
its share of a device's memory, if that exceeds its share of the step. A finding about the same line and axes gives a
row its words. Other findings have their own rows, notes only if a fix helps. A fix is shown beside its finding, or
beside the collectives that it reduces. Other fixes have rows of their own. Each source line also has its own rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardviz.costs.spending import Spending, alike_collectives, spendings
from shardviz.costs.step_cost import COMBINED, StepCost
from shardviz.diagnose import policy
from shardviz.diagnose.findings import brief
from shardviz.explorer.cards import Deck, Results, equal_level
from shardviz.explorer.snapshot import TriedFixes
from shardviz.notation.spec import axis_name
from shardviz.records import Collective, Frame
from shardviz.records.amounts import format_bytes, format_count, format_flops, format_seconds
from shardviz.records.findings import Finding
from shardviz.records.groups import grouped
from shardviz.study.fixes import Fix
from shardviz.view import document as doc
from shardviz.view.placement import no_times
from shardviz.view.report import TONES
from shardviz.view.step_cost import SAME, comparable, pair, work_lines

MOST = 14
_CAUSES = {
    "all-reduce": "partial sums are added across devices",
    "reduce-scatter": "partial sums are added across devices, and each keeps its shard",
    "all-gather": "this operation needs the other devices' shards, so they are gathered",
    "all-to-all": "the sharding changes from one dimension to another",
    "ragged-all-to-all": "rows go to the devices that need them",
    "collective-permute": "shards pass to the next device",
    "collective-broadcast": "one device's shard is sent to the others",
}
_WHERE = {"compute": "on the matrix unit", "memory": "in HBM", "collective": "on the link"}


@dataclass(frozen=True)
class _Entry:
    """A row: a cost, its finding and its fix; at least one of the three. `whole` is the step's compute if the cost is
    only that of a line."""

    spent: Spending | None = None
    finding: Finding | None = None
    fix: Fix | None = None
    whole: Spending | None = None

    @property
    def finding_seconds(self) -> float:
        """The finding's seconds; if it has none, its fix's saving."""
        own = self.finding.numbers.get("seconds", 0.0) if self.finding is not None else 0.0
        return own or max(0.0, (self.fix and self.fix.seconds) or 0.0)

    def is_helped(self, fix: Fix) -> bool:
        """Return whether a fix that removes no finding reduces the collectives of this row."""
        spent = self.spent
        if fix.findings or spent is None or spent.what != "collective" or spent.source is None:
            return False
        changes = ((change.after or change.before, change.bytes) for change in fix.difference.collectives)
        alike = ((total.collectives[0], more) for total, more in changes if total is not None)
        return sum(more for c, more in alike if c.kind == spent.kind and _about(c, spent)) < 0


@dataclass(frozen=True)
class _ComparedStep:
    """The open card's step, and the step it is compared with at the same level, or None."""

    results: Results
    cost: StepCost | None
    before: StepCost | None
    frames: Mapping[tuple[str, int], Frame]

    @classmethod
    def of(cls, deck: Deck) -> _ComparedStep:
        results, other, cost = deck.now.results, deck.other.results, deck.now.results.cost()
        alike = deck.other is not deck.now and equal_level(results, other) == results.level
        return cls(results, cost, other.cost(results.level) if alike else None, work_lines(cost))

    def entries(self, tried_fixes: TriedFixes, plan: object) -> list[_Entry]:
        """Return the rows: each finding goes to the first cost that it is about, each fix to the first row that it
        helps; the others have rows of their own, notes only with a fix."""
        findings = {finding.id: finding for finding in self.results.findings}
        grave = [finding for finding in findings.values() if finding.severity != "note"]
        rows, least = [], policy.TINY * self._seconds
        for each in _by_bytes(self.results) if self.cost is None else spendings(self.cost, self.before):
            if self.cost is None or abs(each.difference) >= least or each.seconds >= least:
                finding = next((f for f in grave if f.id in findings and _about(f, each)), None)
                rows.append(_Entry(each, finding and findings.pop(finding.id)))
        rows += [_Entry(finding=findings.pop(finding.id)) for finding in grave if finding.id in findings]
        unplaced = {fix.action: fix for fix in tried_fixes.items if tried_fixes.of == plan}
        for place, row in sorted(enumerate(rows), key=lambda each: self._order(each[1])):
            if row.finding is not None:
                helps = (fix for fix in unplaced.values() if row.finding.id in {f.id for f in fix.findings})
            else:  # then only what no finding suggests can be its fix
                helps = (fix for fix in unplaced.values() if row.is_helped(fix))
            if (fix := next(helps, None)) is not None:
                rows[place] = replace(row, fix=unplaced.pop(fix.action))
        for fix in unplaced.values():
            note = next((findings.pop(each.id) for each in fix.findings if each.id in findings), None)
            rows.append(_Entry(finding=note, fix=fix))
        return sorted(rows, key=self._order)

    def _order(self, entry: _Entry) -> tuple[int, float, float]:
        spent, finding, fix = entry.spent, entry.finding, entry.fix
        if finding is not None and finding.severity == "error":
            return 0, 0.0, 0.0
        if fix is not None:
            return 1, -max(fix.seconds or 0.0, self.held_seconds(-fix.memory)), -fix.bytes
        if spent is not None:
            return 2, -(spent.weight_before if spent.gone else spent.weight), -spent.seconds
        saved = finding.numbers.get("saved_bytes", 0.0) if finding is not None else 0.0
        return 2, -max(entry.finding_seconds, self.held_seconds(saved)), 0.0

    @property
    def _seconds(self) -> float:
        return 0.0 if self.cost is None else self.cost.seconds or self.cost.lower

    def held_seconds(self, held: float) -> float:
        """Return seconds to rank bytes by: the step times their share of the memory that a device needs."""
        total = 0.0 if self.cost is None else self.cost.needs.total
        return max(0.0, min(1.0, held / total)) * self._seconds if total else 0.0

    def lines(self, entry: _Entry) -> dict[str, _Entry]:
        """Return the source lines of a row, each with the row's part for it."""
        spent, fix = entry.spent, entry.fix
        frames = [each.source for each in (spent, entry.finding) if each is not None] or [*(fix.lines if fix else ())]
        rows = {frame.short: entry for frame in frames if frame is not None}
        for line in spent.lines if spent is not None else ():
            if (frame := self.frames.get(line)) is not None and spent is not None:
                rows[frame.short] = replace(entry, spent=spent.of_line(line), whole=spent)
        return rows


def costs_documents(deck: Deck, tried_fixes: TriedFixes) -> tuple[doc.Document, dict[str, doc.Document]]:
    """Return the largest costs of the open card, and a Document for each source line (`model.py:20`) with a cost or
    finding.

    Differences are to the compared card.
    """
    step = _ComparedStep.of(deck)
    entries = step.entries(tried_fixes, deck.now.plan)
    mesh = step.results.bound.mesh
    lines = grouped(row for entry in entries for row in step.lines(entry).items())
    by_line = {at: doc.Document.of(_table(step, here, "line-costs"), mesh=mesh) for at, here in lines.items()}
    blocks: list[doc.Block] = []
    if step.cost is None:
        then = "to see times; until then, rows are sorted by the bytes that each device sends."
        blocks.append(doc.paragraph(*no_times(step.results.priced()[0].trouble, then), name="most-no-machine"))
    if entries:
        blocks.append(_table(step, entries, "most"))
    elif step.cost is not None:
        blocks.append(doc.paragraph("No costs are known.", quiet=True))
    lead, title = (doc.words(_compared(deck), quiet=True), *_progress(tried_fixes, deck)), "What costs you most"
    return doc.Document.of(blocks, title=doc.words(title, strong=True), lead=(lead,), mesh=mesh), by_line


def _table(step: _ComparedStep, entries: Sequence[_Entry], name: str) -> doc.Table:
    """Return the rows as a table; those of a single line without the column of lines, and with questions."""
    tried, of_line = any(piece for entry in entries for piece in _try(entry)), name == "line-costs"
    return doc.Rows(entries, first=6, most=MOST, kept=MOST, noun="row", name=name).table(
        ("costs", lambda entry: _amount(entry, step)),
        None if step.before is None else ("difference", lambda entry: _difference(entry.spent, step)),
        None if of_line else ("line", lambda entry: _place(entry, step)),
        (doc.wrapped("what, and why"), lambda entry: _sentence(entry, step, of_line)),
        (doc.wrapped("try this"), _try) if tried else None,
        detail=lambda entry: _detail(entry.finding),
    )


def _compared(deck: Deck) -> str:
    card, other = deck.now, deck.other
    at = f"at level {card.results.level}"
    if other is card:
        return f"{card.name}, {at}"
    if equal_level(card.results, other.results) == card.results.level:
        return f"{card.name} compared with {other.name}, {at}"
    return f"{card.name}, {at}; no comparison: {other.name} has not reached this level"


def _progress(tried_fixes: TriedFixes, deck: Deck) -> Iterator[doc.Piece]:
    fixes = tried_fixes.fixes
    if tried_fixes.of != deck.now.plan:
        return
    if not tried_fixes.busy and tried_fixes.trouble:
        yield doc.words("· fixes could not be tried", tone="warn", tip=tried_fixes.trouble)
    elif tried_fixes.busy and fixes is not None and fixes.candidates:
        text = f"· {fixes.tried} of {fixes.candidates} changes tried"
        yield doc.words(text, quiet=True, tip="fixes are tried while the explorer is idle")


def _about(one: Finding | Collective, spent: Spending) -> bool:
    """Return whether a finding or a collective is about a cost: the same line and axes, and a collective."""
    if spent.what != "collective" or one.source is None or spent.source is None or not one.axes:
        return False
    names = [{axis_name(a) for a in axes or ()} for axes in (one.axes, spent.axes)]
    return one.source.bare == spent.source.bare and names[0] == names[1]


def _by_bytes(results: Results) -> Sequence[Spending]:
    alike = alike_collectives(results.report.collectives).values()
    rows = (Spending.of(c, seconds=0.0, bytes=sum(e.assumed_sent_bytes for e in c), collectives=c) for c in alike)
    return sorted(rows, key=lambda spent: -spent.bytes)


def _place(entry: _Entry, step: _ComparedStep) -> tuple[doc.Piece, ...]:
    subject = entry.spent or entry.finding
    source = None if subject is None else subject.source
    if entry.spent is not None and entry.spent.lines:
        source = step.frames.get(next(iter(entry.spent.lines)))
    return () if source is None else (doc.line(source, tip=source.text_in(step.results.report.source)),)


def _detail(finding: Finding | None) -> tuple[doc.Block, ...]:
    if finding is None:
        return ()
    return doc.listed(None if brief(finding) == finding.text else doc.paragraph(finding.text), doc.notes(finding.why))


def _amount(entry: _Entry, step: _ComparedStep) -> doc.Piece:
    """Return `0.28 s`; the bytes without a time."""
    spent, finding, fix = entry.spent, entry.finding, entry.fix
    if spent is not None:
        text, tip = format_seconds(spent.weight), f"{'of this line ' if entry.whole else ''}in a step, on each device"
        if not spent.seconds and not spent.difference:
            text, tip = format_bytes(spent.bytes), "sent by each device in a step"
        elif spent.loss is not None:
            tip = "the step would be this much shorter if this took no time"
        return doc.words(text, strong=True, tip=tip)
    if finding is None:
        assert fix is not None
        return _saved(fix)[0]
    seconds, size = entry.finding_seconds, finding.numbers.get("bytes")
    tip = "what the fix saves in a step" if seconds and not finding.numbers.get("seconds") else ""
    saved = finding.numbers.get("saved_bytes", 0.0)
    if step.held_seconds(saved) > seconds:
        seconds, size, tip = 0.0, saved, "more than is needed, on each device"
    text = format_seconds(seconds) if seconds else format_bytes(size) if size else finding.severity
    return doc.words(text, strong=True, tone=TONES.get(finding.severity, ""), tip=tip)


def _difference(spent: Spending | None, step: _ComparedStep) -> tuple[doc.Piece, ...]:
    """Yield `+17.4 s` relative to the other card; chip-seconds if the chips differ in number."""
    cost, other = step.cost, step.before
    if spent is None or spent.before is None or cost is None or other is None:
        return ()
    here, before, form = comparable(cost, other, spent.weight, spent.weight_before)
    more = here - before
    return (doc.difference(more, form, tip=f"{form(before)} there"),) * (abs(more) > policy.LESS * max(here, before))


def _sentence(entry: _Entry, step: _ComparedStep, asks: bool) -> Iterator[doc.Piece]:
    """Yield a row's text: the cost and its cause, the finding, or a fix's effect."""
    if entry.spent is not None:
        yield from _spent(entry.spent, entry, step, asks)
    elif entry.finding is not None:
        yield _finding(entry.finding)
    elif (fix := entry.fix) is not None:
        if fix.for_memory:
            yield doc.words("frees memory", strong=True)
        elif fix.seconds and fix.seconds > 0 and fix.step:
            yield doc.words(f"saves {pair(format_seconds(fix.seconds), format_seconds(fix.step), ' of ')}", strong=True)
            yield doc.words(fix.level, quiet=True)
        yield doc.words(", ".join(fix.effects if fix.for_memory else fix.collectives), quiet=True)


def _finding(finding: Finding) -> doc.Piece:
    text = brief(finding)
    return doc.words(
        text,
        strong=True,
        tone="bad" if finding.severity == "error" else "",
        tip=finding.text if text != finding.text else "",
        selects=("value", finding.value) if finding.value else None,
    )


def _spent(spent: Spending, entry: _Entry, step: _ComparedStep, asks: bool) -> Iterator[doc.Piece]:
    """Yield `all-reduce data: partial sums are added across devices · 2.10 s on the link, 1.49 s of it hidden · 80
    runs`. A finding about the collective replaces all behind its axes: the opened row has the finding's numbers."""
    cost = step.cost
    if spent.what == "collective":
        yield doc.moved(spent.kind, spent.axes, spent.source)
        yield doc.axes(spent.axes)
        if spent.gone:
            yield doc.words("removed", tone="good")
            return
        if spent.seconds and spent.before is not None and not spent.before:
            yield doc.words("new", tone="bad")
        yield doc.words(":")
        if entry.finding is not None:
            yield _finding(entry.finding)
            return
        yield from _cause(spent, step)
    else:
        yield doc.term("matrix products" if spent.what == "compute" else "HBM-bound", strong=True)
    if entry.whole is not None:
        share = f"{spent.seconds / entry.whole.seconds:.0%} of the step's {format_seconds(entry.whole.seconds)}"
        yield doc.words(f"· {share} of matrix products")
        return
    yield from _loss(spent, cost)
    yield doc.words("·", quiet=True)
    if spent.what == "compute" and cost is not None:
        share = next(iter(spent.lines.values()), 0.0) / (spent.seconds or 1.0)
        yield doc.words(f"{format_flops(cost.flops)} on each device, {share:.0%} of it on this line")
    elif spent.what == "memory":
        yield doc.words(f"{format_bytes(spent.bytes)} a device take longer than the compute")
    else:
        runs = sum(c.count or 1 for c in spent.collectives)
        phases = ", ".join(dict.fromkeys(c.phase for c in spent.collectives)).replace("rematerialised", "recomputed")
        operands = sum(c.assumed_bytes for c in spent.collectives)
        tip = f"{format_bytes(operands)} of operands on each device"
        yield doc.words(f"{format_count(runs)} {'run' if runs == 1 else 'runs'}", tip=tip)
        yield doc.words(f"({phases})", quiet=True)
        if asks and spent.collectives[0].name:
            yield doc.why(spent.collectives[0].name)


def _loss(spent: Spending, cost: StepCost | None) -> Iterator[doc.Piece]:
    """Yield `· 2.10 s on the link, 1.49 s of it hidden, 8% of the step`."""
    loss, where = spent.loss, _WHERE[spent.what]
    if cost is not None and loss is not None and not loss.busy:
        yield doc.words(f"· {COMBINED}")
    elif cost is None or not spent.seconds:
        yield doc.words(f"· {format_bytes(spent.bytes)} sent by each device")
    elif loss is None or not cost.seconds:
        yield doc.words(f"· {format_seconds(spent.seconds)} {where}")
    else:
        hidden = f"{format_seconds(loss.hidden)} of it" if loss.hidden > policy.SLIGHT * loss.busy else "none"
        share = f"{loss.lost / cost.seconds:.0%} of the step"
        yield doc.words(f"· {format_seconds(loss.busy)} {where}, {hidden} hidden: {share}")


def _cause(spent: Spending, step: _ComparedStep) -> Iterator[doc.Piece]:
    """Yield a collective's cause: the array that it gathers, if named, else the purpose of its kind."""
    arguments = {v.name for v in step.results.report.arguments}
    names = [*dict.fromkeys(c.operand for c in spent.collectives if c.operand in arguments)]
    if not names or spent.kind != "all-gather":
        yield doc.words(_CAUSES.get(spent.kind, "data is exchanged between devices"))
        return
    first, *more = names
    yield doc.code(first, selects=("value", first))
    if more:
        yield doc.words(f"and {len(more)} more", tip=", ".join(more))
    yield doc.words("are sharded along" if more else "is sharded along")
    yield doc.axes(spent.axes)
    line = "this line" if spent.source else "a line that is not known"
    yield doc.words(f"and gathered: {line} needs the other devices' shards")


def _try(entry: _Entry) -> Iterator[doc.Piece]:
    """Yield the fix with its saving; else a suggestion for the user."""
    fix = entry.fix
    if fix is not None:
        does = "click to change the plan; undo takes it back"
        if fix.write:
            does = f"click to open a card whose program has it; undo takes it back; in your program write {fix.write}"
        tip = f"{fix.text} (tried at level {fix.level}); {does}"
        yield doc.words(fix.action, tip=tip, selects=("fix", fix.action))
        yield doc.words("→")
        yield from _saved(fix, tip)
        return
    by_hand = (m for m in (entry.finding.suggestions if entry.finding is not None else ()) if m.kind == "code")
    for suggestion in list(by_hand)[:1]:  # what a plan can say is tried, and stands here if it helps
        yield doc.words(suggestion.words, quiet=True, tip="not tried: only a person can write it")


def _saved(fix: Fix, tip: str = "") -> list[doc.Piece]:
    """Return `−17.4 s` `+2 GB memory`, without a time `−41 GB of communication`; the fix's purpose comes first."""
    amounts, look = [], {"worse": "warn", "strong": True, "tip": tip}
    if fix.seconds and abs(fix.seconds) >= SAME * (fix.step or 0.0):
        amounts.append(doc.difference(-fix.seconds, format_seconds, **look))
    elif fix.bytes and not fix.seconds:
        amounts.append(doc.difference(-fix.bytes, lambda n: f"{format_bytes(n)} of communication", **look))
    if amounts:
        amounts.append(doc.words(fix.levels or fix.level, quiet=True, tip=tip))
    if abs(fix.memory) >= policy.MENTIONED:
        look |= {"strong": fix.for_memory}
        look["tip"] = "" if fix.level == "compiled" else "predicted, before a compiler plans it"
        more = doc.difference(fix.memory, lambda n: f"{format_bytes(n)} memory", **look)
        amounts.insert(0 if fix.for_memory else len(amounts), more)
    return amounts or [doc.words("no change", quiet=True, tip=tip)]
