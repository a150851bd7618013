"""What costs you most: one ranked list of what a step would lose, each with its cause in the sentence.

What the step would lose most of if it took no time comes first, so that what other work hides sinks; against another
card each row has its difference. A finding about the same line and axes says it in its own words; a finding about
something else has a row of its own. What mends a finding stands beside it, and what lessens a row's own collectives
beside the row; what else was tried stands apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardviz.costs.spending import Spending, spendings
from shardviz.costs.step_cost import StepCost
from shardviz.explorer.cards import Card, Deck, Known, equal_level
from shardviz.explorer.snapshot import Remedies
from shardviz.judge.report import Report
from shardviz.notation.spec import axis_name
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_count, format_flops, format_seconds
from shardviz.records.findings import Finding
from shardviz.records.sums import sum_collectives
from shardviz.study.mends import Mend, Mends
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Inline,
    Piece,
    Row,
    Section,
    Table,
    axes,
    code,
    line,
    moved,
    paragraph,
    row,
    shorten,
    words,
)
from shardviz.view.placement import CHOOSE
from shardviz.view.step_cost import pair

COLUMNS = (Column("costs"), Column("line"), Column("what, and why", wrap=True), Column("try this", wrap=True))
COMPARED = (COLUMNS[0], Column("difference"), *COLUMNS[1:])
MOST = 14
_LEAST = 0.001  # of the step
_CAUSES = {
    "all-reduce": "partial sums are added across devices",
    "reduce-scatter": "partial sums are added across devices, and each keeps its shard",
    "all-gather": "this operation needs the full array, so its shards are gathered",
    "all-to-all": "the sharding moves from one dimension to another",
    "ragged-all-to-all": "rows go to the devices that need them",
    "collective-permute": "shards pass to the next device",
    "collective-broadcast": "one device's shard is sent to the others",
}


@dataclass(frozen=True)
class _Entry:
    """A row: what is spent, what was found of it, what helps; one of them at least."""

    spent: Spending | None = None
    finding: Finding | None = None
    remedy: Mend | None = None


def most_document(deck: Deck, remedies: Remedies) -> Document:
    """What the open card's step would lose most of, against the card that is compared with.

    Args:
        deck: the cards.
        remedies: what helps the open card's plan; those of another plan are left out.
    """
    card, other = deck.now, deck.other
    known = card.known
    level = equal_level(known, other.known) if other is not card else ""
    against = other if level == known.level else None
    cost, before = known.cost(), None if against is None else against.known.cost(level)
    blocks: list[Block] = []
    title = words("What costs you most", strong=True)
    lead: tuple[Piece, ...] = (words(_against(card, other, against), quiet=True),)
    mends = remedies.mends
    helps = remedies.mends if remedies.of == card.plan else None
    if remedies.of == card.plan and remedies.busy:
        said = f"· {mends.tried} of {mends.candidates} changes tried" if mends is not None and mends.candidates else ""
        lead = (*lead, words(said, quiet=True, tip="what helps is tried while nothing else is asked for"))
    elif remedies.of == card.plan and remedies.trouble:
        lead = (*lead, words("· what may help could not be tried", tone="warn", tip=remedies.trouble))
    unnamed = () if helps is None else helps.unnamed
    entries, apart = _helped(list(_entries(known, (*known.findings, *unnamed), cost, before)), helps)
    if cost is None:
        blocks.append(paragraph(*_no_machine(known), name="most-no-machine"))

    def table(of: Sequence[_Entry], name: str) -> Table:
        return Table(
            columns=COLUMNS if before is None else COMPARED,
            rows=tuple(_row(entry, known, cost, before is not None) for entry in of[:MOST]),
            first=6,
            most=MOST,
            noun="row",
            hidden=max(0, len(of) - MOST),
            folds="page",
            name=name,
        )

    if entries:
        blocks.append(table(entries, "most"))
    elif cost is not None:
        blocks.append(paragraph("Nothing is waited for that is known.", quiet=True))
    if apart:
        blocks.append(Section(title="Also tried", blocks=(table(apart, "most-apart"),)))
    return Document(title=title, lead=(lead,), blocks=tuple(blocks), mesh=known.bound.mesh)


def _against(card: Card, other: Card, against: Card | None) -> str:
    if against is not None:
        return f"{card.name} against {other.name}, at level {card.known.level}"
    if other is card:
        return f"of {card.name}, at level {card.known.level}"
    return f"of {card.name}, at level {card.known.level}; {other.name} is not known at this level"


def _no_machine(known: Known) -> Iterator[Piece]:
    trouble = known.priced()[0].trouble
    if trouble:
        yield words(f"No times: {trouble}", tone="warn")
    else:
        yield CHOOSE
        yield words("to see what takes how long; until then by bytes.", quiet=True)


# The rows.


def _entries(
    known: Known, findings: Sequence[Finding], cost: StepCost | None, before: StepCost | None
) -> Iterator[_Entry]:
    """Errors first; then what is spent, with what was found of it; then what else was found."""
    findings = [f for f in findings if f.severity != "note"]
    spent = spendings(cost, before) if cost is not None else _by_bytes(known.report)
    least = _LEAST * (cost.seconds or cost.lower) if cost is not None else 0.0
    told: dict[str, None] = {}
    rows: list[_Entry] = []
    for each in spent:
        if abs(each.difference) < least and each.seconds < least and cost is not None:
            continue
        found = next((f for f in findings if f.id not in told and _about(f, each)), None)
        if found is not None:
            told[found.id] = None
        rows.append(_Entry(each, found))
    others = [_Entry(finding=f) for f in findings if f.id not in told]
    yield from (e for e in others if e.finding is not None and e.finding.severity == "error")
    grave = [e for e in others if e.finding is not None and e.finding.severity != "error"]
    yield from sorted([*rows, *grave], key=_rank)


def _helped(entries: list[_Entry], mends: Mends | None) -> tuple[list[_Entry], list[_Entry]]:
    """The rows with what mends them: their findings, or where they have none their collectives; and what mends none."""
    if mends is None:
        return entries, []
    left, helped = {mend.action: mend for mend in mends}, []
    for entry in entries:
        if entry.finding is not None:
            helps = (mend for mend in mends.of(entry.finding) if mend.action in left)
        else:
            helps = (mend for mend in left.values() if mend.finding is None and _lessens(mend, entry.spent))
        remedy = next(helps, None)
        if remedy is not None:
            del left[remedy.action]
        helped.append(replace(entry, remedy=remedy))
    return helped, [_Entry(remedy=mend) for mend in left.values()]


def _lessens(remedy: Mend, spent: Spending | None) -> bool:
    """Whether a remedy makes the collectives of a row move less."""
    if spent is None or spent.what != "collective" or spent.source is None:
        return False
    names = {axis_name(a) for a in spent.axes or ()}
    more = 0.0
    for change in remedy.difference.collectives:
        for sign, total in ((-1.0, change.before), (1.0, change.after)):
            for one in total.collectives if total else ():
                same = one.kind == spent.kind and {axis_name(a) for a in one.axes or ()} == names
                if same and one.source is not None and one.source.bare == spent.source.bare:
                    more += sign * one.assumed_bytes
    return more < 0


def _rank(entry: _Entry) -> tuple[float, float]:
    spent, finding = entry.spent, entry.finding
    if spent is not None:
        return -(spent.weight_before if spent.gone else spent.weight), -spent.seconds
    return -(finding.numbers.get("seconds", 0.0) if finding is not None else 0.0), 0.0


def _about(finding: Finding, spent: Spending) -> bool:
    """Whether a finding is about what is spent: the same line and axes, and a collective."""
    if spent.what != "collective" or finding.source is None or spent.source is None or not finding.axes:
        return False
    same = (finding.source.file, finding.source.line) == (spent.source.file, spent.source.line)
    return same and {axis_name(a) for a in finding.axes} == {axis_name(a) for a in spent.axes or ()}


def _by_bytes(report: Report) -> Sequence[Spending]:
    """Without a machine: what moves most."""
    found = []
    for total in sum_collectives(report.collectives, "source"):
        for part in sum_collectives(total.collectives, "kind_axes"):
            one = part.collectives[0]
            found.append(
                Spending(
                    what="collective",
                    seconds=0.0,
                    bytes=part.bytes,
                    source=one.source,
                    kind=one.kind,
                    axes=one.axes,
                    collectives=part.collectives,
                )
            )
    return sorted(found, key=lambda s: -s.bytes)


def _row(entry: _Entry, known: Known, cost: StepCost | None, compared: bool) -> Row:
    report, spent, finding = known.report, entry.spent, entry.finding
    source = finding.source if spent is None and finding is not None else spent.source if spent is not None else None
    if spent is not None and spent.what == "compute" and spent.lines:
        source = next((f for f in _frames(cost) if (f.file, f.line) == next(iter(spent.lines))), None)
    at: Inline = words("") if source is None else line(source, tip=report.line(source))
    said = () if spent is None else tuple(_sentence(spent, report, cost))
    if finding is not None:
        said = (*said, *((words("·", quiet=True),) if said else ()), *_finding(finding, brief=spent is not None))
    whole = [paragraph(finding.text)] if finding is not None and _brief(finding.text) != finding.text else []
    detail = [*whole, *([paragraph(finding.why, quiet=True)] if finding is not None and finding.why else [])]
    if spent is None and finding is None and entry.remedy is not None:
        said = tuple(_brings(entry.remedy))
    return row(
        _amount(entry), *((_difference(spent),) if compared else ()), at, said, tuple(_try(entry)), detail=detail
    )


def _brings(remedy: Mend) -> Iterator[Piece]:
    """`saves 17.2 of 19.8 s` and the collectives that it changes."""
    if remedy.for_memory:
        yield words("makes room", strong=True)
    elif remedy.seconds and remedy.seconds > 0 and remedy.step:
        saved = pair(format_seconds(remedy.seconds), format_seconds(remedy.step), " of ")
        yield words(f"saves {saved}", strong=True)
    effects = remedy.effects if remedy.for_memory else remedy.collectives
    yield words(", ".join(effects), quiet=True)


def _frames(cost: StepCost | None) -> Iterator[Frame]:
    for each in () if cost is None or cost.counted is None else cost.counted.work:
        if each.source is not None:
            yield each.source


def _amount(entry: _Entry) -> Piece:
    """`0.28 s`; without a time its bytes."""
    spent, finding = entry.spent, entry.finding
    if spent is None and finding is None:
        assert entry.remedy is not None
        return _saved(entry.remedy)[0]
    if spent is None:
        assert finding is not None
        seconds, size = finding.numbers.get("seconds"), finding.numbers.get("bytes")
        text = format_seconds(seconds) if seconds else format_bytes(size) if size else finding.severity
        return words(text, strong=True, tone="bad" if finding.severity == "error" else "warn")
    if not spent.seconds and not spent.difference:
        return words(format_bytes(spent.bytes), strong=True)
    tip = (
        "in a step, on each device" if spent.loss is None else "the step would be so much shorter if this took no time"
    )
    return words(format_seconds(spent.weight), strong=True, tip=tip)


def _difference(spent: Spending | None) -> Piece:
    """`+17.4 s` where it takes so much longer than on the other card; empty where it takes about as long."""
    if spent is None or spent.before is None:
        return words("")
    here, before = spent.weight, spent.weight_before
    if abs(here - before) <= 0.02 * max(here, before):
        return words("")
    sign, tone = ("+", "bad") if here > before else ("−", "good")
    return words(f"{sign}{format_seconds(abs(here - before))}", tone=tone, tip=f"{format_seconds(before)} there")


def _sentence(spent: Spending, report: Report, cost: StepCost | None) -> Iterator[Piece]:
    if spent.what == "compute":
        assert cost is not None
        yield words("matrix products", strong=True)
        first = next(iter(spent.lines.values()), 0.0)
        yield from _loss(spent, cost, "on the matrix unit")
        yield words(f"{format_flops(cost.flops)} on each device; {_share(first, spent)}")
        return
    if spent.what == "memory":
        yield words("HBM-bound", strong=True)
        yield from _loss(spent, cost, "in main memory")
        yield words(f"{format_bytes(spent.bytes)} a device take longer than the compute")
        return
    yield moved(spent.kind, spent.axes, spent.source)
    yield axes(spent.axes)
    if spent.gone:
        yield words("is no more")
        return
    runs = sum(c.count or 1 for c in spent.collectives)
    phases = dict.fromkeys(_PHASES.get(c.phase, c.phase) for c in spent.collectives)
    if spent.seconds and spent.before is not None and not spent.before:
        yield words("new", tone="bad")
    yield from _loss(spent, cost, "on the link")
    amount = f"{format_count(runs)} {'run' if runs == 1 else 'runs'}"
    if cost is None or not spent.seconds:
        yield words(f"{format_bytes(spent.bytes)} in {amount}")
    else:
        yield words(amount, tip=f"{format_bytes(spent.bytes)} of operands on each device")
    yield words(f"({', '.join(phases)})", quiet=True)
    yield words(":")
    yield from _cause(spent, report)


def _loss(spent: Spending, cost: StepCost | None, where: str) -> Iterator[Piece]:
    """`loses 0.61 s of 7.60 s; 2.10 s on the link, 1.49 s hidden ·`."""
    loss = spent.loss
    if cost is None or not spent.seconds:
        return
    if loss is None or cost.seconds is None:
        yield words(f"{format_seconds(spent.seconds)} {where}")
    elif not loss.busy:
        yield words("loses nothing: the schedule has it in one with another")
    else:
        lost = pair(format_seconds(loss.lost), format_seconds(cost.seconds), " of ")
        more = ", nothing hidden"
        if loss.hidden > 0.01 * loss.busy:
            more = f"; {format_seconds(loss.busy)} {where}, {format_seconds(loss.hidden)} hidden"
        yield words(f"loses {lost}{more}")
    yield words("·", quiet=True)


_PHASES = {"forward": "forward", "backward": "backward", "rematerialised": "recomputed", "update": "update"}


def _share(seconds: float, spent: Spending) -> str:
    return f"{seconds / spent.seconds:.0%} of it on this line" if spent.seconds else ""


def _cause(spent: Spending, report: Report) -> Iterator[Piece]:
    """Why it is there: which array it moves where that has a name, or what the kind of collective is for."""
    arguments = {v.name: v for v in report.arguments}
    named = dict.fromkeys(c.operand for c in spent.collectives if c.operand in arguments)
    if named and spent.kind == "all-gather":
        first, *more = named
        yield code(first, selects=("value", first))
        if more:
            yield words(f"and {len(more)} more", tip=", ".join(more))
        yield words("is sharded along" if not more else "are sharded along")
        yield axes(spent.axes)
        yield words(f"and gathered: {'this line' if spent.source else 'a line that is not known'} needs the full array")
        return
    yield words(_CAUSES.get(spent.kind, "values go between devices"))


def _finding(finding: Finding, brief: bool) -> Iterator[Piece]:
    tone = "bad" if finding.severity == "error" else ""
    text = _brief(finding.text)
    tip = finding.text if text != finding.text else ""
    yield words(text, strong=not brief, tone=tone, tip=tip, selects=("value", finding.value) if finding.value else None)


_LONGEST = 220


def _brief(text: str) -> str:
    """A finding's first sentence, which says what is wrong; the whole of it is told where its row is opened."""
    if len(text) <= _LONGEST:
        return text
    return shorten(re.split(r"(?<=[.;]) ", text, maxsplit=1)[0], _LONGEST)


def _try(entry: _Entry) -> Iterator[Piece]:
    """What was tried and helps, with what it saves; else a guess."""
    remedy = entry.remedy
    if remedy is not None:
        does = "a click changes the plan, one undo takes it back"
        if remedy.write:
            does = f"a click opens a card whose program has it, one undo goes back; in yours write {remedy.write}"
        tip = f"{remedy.text} (tried at level {remedy.level}); {does}"
        yield words(remedy.action, tip=tip, selects=("remedy", remedy.action))
        yield words("→")
        yield from _saved(remedy, tip)
        return
    by_hand = (m for m in (entry.finding.mends if entry.finding is not None else ()) if m.kind == "code")
    for mend in list(by_hand)[:1]:  # what a plan can say is tried, and stands here if it helps
        yield words(mend.words, quiet=True, tip="a guess that was not tried")


def _saved(remedy: Mend, tip: str = "") -> list[Piece]:
    """`−17.4 s` `+2 GB memory`, without a time `−41 GB`; what it is taken for, time or memory, first."""
    found = []
    if remedy.seconds:
        found.append(_signed(-remedy.seconds, format_seconds(abs(remedy.seconds)), tip))
    elif remedy.bytes:
        found.append(_signed(-remedy.bytes, f"{format_bytes(abs(remedy.bytes))} moved", tip))
    if abs(remedy.memory) >= 0.5e6:
        about = "about; before a compiler plans it"
        held = _signed(remedy.memory, f"{format_bytes(abs(remedy.memory))} memory", about, strong=remedy.for_memory)
        found.insert(0 if remedy.for_memory else len(found), held)
    return found or [words("as much", quiet=True, tip=tip)]


def _signed(more: float, amount: str, tip: str, strong: bool = True) -> Piece:
    return words(f"{'+' if more > 0 else '−'}{amount}", strong=strong, tone="warn" if more > 0 else "good", tip=tip)
