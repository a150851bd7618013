"""Why a value is sharded as it is, and why a collective exists: a sentence, then the chain of causes as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_flops, format_seconds, plural
from shardviz.records.values import SourceText
from shardviz.records.why import AxisWhy, Cause, CollectiveWhy, Contest, Effect, Source, TriedChange, Why
from shardviz.view import document as doc

_BOUNDARY = {"call": "call", "loop": "loop", "branch": "branch", "shard_map": "shard_map", "barrier": "barrier"}


@doc.document.register
def why_document(answer: Why) -> doc.Document:
    """Return a section per mesh axis of a value, then the contested dimensions."""
    value = answer.value
    name = value.label or value.name
    title = (doc.words("why"), doc.code(name, strong=True, selects=("value", value.name)))
    title += () if value.spec is None else (doc.spec(value.spec),)
    lead: list[doc.Inline] = [(doc.shape(value.shape, dtype=value.dtype), *_at(value.source, answer.source))]
    if value.computed is not None:
        lead.append((doc.words("computed as"), doc.spec(value.computed), doc.words("and then resharded")))
    if answer.also:
        first = f"the first of {len(answer.also) + 1} values called {name}"
        lead.append(doc.words(f"{first}; others: {', '.join(answer.also)}"))
    return doc.Document(title=title, lead=tuple(lead), blocks=tuple(_blocks(answer, name)), mesh=answer.mesh)


@doc.document.register
def collective_document(answer: CollectiveWhy) -> doc.Document:
    """Return a collective's cause, the origin of its axes, and how to avoid it."""
    c, need = answer.collective, answer.need
    title = (doc.words("why"), doc.words(c.kind, strong=True), doc.words("over"), doc.axes(c.axes))
    resharded: list[doc.Piece] = [doc.code(need.value)]
    if need.before is not None:
        resharded += [doc.spec(need.before), doc.words("→"), *([] if need.after is None else [doc.spec(need.after)])]
    lead = (*resharded, doc.words(format_bytes(c.operand_bytes)), *_at(c.source, answer.source))
    needed = doc.section("What needs it", doc.paragraph(need.words), name="need")
    return doc.Document(title=title, lead=(lead,), blocks=(needed, *_blocks(answer)), mesh=answer.mesh)


def _blocks(answer: Why | CollectiveWhy, name: str = "") -> Iterator[doc.Block]:
    """Yield the axes, the contest, alternatives to a collective, and the number of Shardy runs."""
    yield from (axis_section(each, answer.source, name) for each in answer.axes)
    need = answer.need.words if isinstance(answer, CollectiveWhy) else ""
    if answer.contest:
        places: list[doc.Block] = []
        for each in answer.contest:
            if each.words not in need:
                places.append(doc.paragraph(each.words + ".", _at(each.source, answer.source)))
            places.append(_choice(each))
        yield doc.section("Contest", *places, lead=plural(len(answer.contest), "place"), name="why-contest")
    if isinstance(answer, CollectiveWhy) and answer.changes:
        yield _changes(answer.changes)
    if answer.tried:
        runs = f"Tried: Shardy's propagation ran {plural(answer.tried, 'time')}; level propagated."
        yield doc.paragraph(doc.words(runs, tip=f"in {format_seconds(answer.seconds)}"), quiet=True)


def axis_section(why: AxisWhy, source: SourceText, name: str = "") -> doc.Section:
    """Return why an axis shards a value, or why not; `name` overrides the value's name."""
    name, there = name or why.value, why.dimension is not None
    blocks = [*(_present(name, why) if there else _absent(name, why, source))]
    if why.chain:
        blocks.append(_chain(why, source))
    if there:
        blocks += doc.notes(*why.notes, _TYPES if any(c.source.role == "type" for c in why.causes) else "")
    lead = f"dimension {why.dimension}" if there else "not sharded"
    return doc.section(f"axis {why.axis} on {name}", *blocks, lead=lead, name=f"why-{why.axis}")


_TYPES = (
    "Over Explicit axes an operation's type says how it is sharded. Types follow from the arguments' at tracing: to "
    "change them, change the arguments' specs."
)


def _present(name: str, why: AxisWhy) -> Iterable[doc.Block]:
    on, causes = doc.axes((why.axis,)), why.causes
    begin = (doc.code(name), doc.words("is sharded along"), on)
    if not causes:
        yield doc.paragraph(*begin, doc.words("; the cause was not found."))
        return
    first, *rest = causes
    if not why.chain and first.source.name == name:
        yield doc.paragraph(*begin, doc.words("because its own spec says so:"), doc.spec(first.source.spec))
        return
    begin = (*begin, doc.words("because of"), *_source(first.source))
    if any(c.verdict == "one of several" for c in causes):
        untried = any(c.verdict == "not tried" for c in causes)
        both = len(causes) == 2
        many = "any one of the first" if untried else "either" if both else f"any one of these {len(causes)}"
        without = "both" if both and not untried else "all of them"
        second = (doc.words("or"), *_source(rest[0].source)) if both and not untried else ()
        enough = f"; {many} is enough; without {without}, {name} is not sharded along"
        yield doc.paragraph(*begin, second, enough, on)
        yield _causes(causes)
    elif first.verdict == "needed" and rest:
        others = [piece for c in rest for piece in (doc.words(","), *_source(c.source))][1:]
        yield doc.paragraph(*begin, doc.words("together with"), *others, doc.words("; neither is enough."))
    elif first.verdict == "needed":
        yield doc.paragraph(*begin, doc.words(f"; without it {name} is not sharded along it."))
    elif rest:
        yield doc.paragraph(*begin, doc.words(", or of one of those below."))
        yield _causes(causes)
    else:
        yield doc.paragraph(*begin, doc.words("."))


def _causes(causes: Sequence[Cause]) -> doc.Table:
    return doc.Rows(causes, first=5, most=48, noun="cause", name="why-causes").table(
        ("cause", lambda c: _source(c.source)[:-1]),
        ("spec", lambda c: doc.spec(c.source.spec)),
        ("", lambda c: "enough alone" if c.verdict == "one of several" else c.verdict),
    )


def _source(source: Source) -> tuple[doc.Piece, ...]:
    before = (doc.words(source.lead),) if source.lead else ()
    selects = ("value" if source.role in ("argument", "output") else "line", source.name)
    return (*before, doc.code(source.name, selects=selects), doc.spec(source.spec))


def _chain(why: AxisWhy, source: SourceText) -> doc.Table:
    """Return a row per operation from the first cause to the value; intermediate functions, loops and branches share a
    row."""

    def operation(op: doc.Piece, frame: Frame | None) -> tuple[doc.Piece, ...]:
        return doc.pieces(op, None if frame is None else _short(frame, source))

    start, where = why.chain[0].before, why.causes[0].source if why.causes else None
    selects = ("value", start.name) if where is not None and where.role in ("argument", "output") else None
    head = operation(doc.words("from", strong=True), where and where.source)
    ends = doc.code(start.name, selects=selects), doc.spec(start.spec)
    rows: list[tuple[doc.Cell, ...]] = [(head, f"dimension {start.dimension}", *ends, "")]
    for boundary, run in groupby(why.chain, key=lambda hop: hop.op in _BOUNDARY):
        hops = [*run]
        if boundary:
            through, end = ", ".join(dict.fromkeys(_BOUNDARY[hop.op] for hop in hops)), hops[-1].after
            passed = doc.words("passed through unchanged", quiet=True)
            head = operation(doc.words(through, strong=True), hops[0].source)
            rows.append((head, passed, doc.code(end.name), doc.spec(end.spec), ""))
            continue
        for hop in hops:
            does = f"{hop.words} (backwards)" if hop.backwards else hop.words
            head, end = operation(doc.code(hop.op, strong=True), hop.source), doc.code(hop.after.name)
            rows.append((head, does, end, doc.spec(hop.after.spec), doc.code(hop.rule, quiet=True)))
    heads = doc.Column("step"), doc.wrapped("what it does"), doc.Column("value"), doc.Column("spec"), doc.Column("rule")
    steps = tuple(doc.row(*cells, selects=("step", f"{why.axis}:{n}")) for n, cells in enumerate(rows))
    return doc.Table(columns=heads, rows=steps, noun="step", name="why-chain", first=40, most=200)


def _absent(name: str, why: AxisWhy, source: SourceText) -> Iterable[doc.Block]:
    begin = (doc.code(name), doc.words("is not sharded along"), doc.axes((why.axis,)))
    if why.notes:
        yield doc.paragraph(*begin, doc.words(f": {'; '.join(why.notes)}."))
        return
    if why.stops:
        first = why.stops[0]
        at = doc.words("; the axis stops at"), doc.code(first.next.name), doc.words("; "), doc.words(f"{first.words}.")
        yield doc.paragraph(*begin, *at)
        yield doc.Rows(why.stops, caption="where the axis ends", noun="place", name="why-stops").table(
            ("last with it", lambda s: doc.code(s.last.name)),
            ("spec", lambda s: doc.spec(s.last.spec)),
            ("operation", lambda s: doc.code(s.op)),
            ("first without", lambda s: doc.code(s.next.name)),
            ("spec", lambda s: doc.spec(s.next.spec)),
            (doc.wrapped("why"), lambda s: s.words),
            ("line", lambda s: _short(s.source, source)),
        )
    else:
        yield doc.paragraph(*begin, doc.words("because none of its operands and users passes that axis on to it."))


def _choice(contest: Contest) -> doc.Table:
    tone = "warn" if contest.verdict == "wanted is cheaper" else ""
    verdict = contest.verdict + (f": {contest.reason}" if contest.reason else "")
    chosen = doc.words(f"chosen: {contest.value}", strong=True), contest.chosen_spec, contest.chosen, verdict
    wanted = doc.words(f"wanted by {contest.wanted_by}"), contest.wanted_spec, contest.wanted, ""
    return doc.Rows((chosen, wanted), noun="choice", name="why-choices").table(
        ("", lambda side: side[0]),
        ("spec", lambda side: doc.spec(side[1])),
        *_effects(contest.chosen, lambda side: side[2]),
        (doc.wrapped(), lambda side: doc.words(side[3], tone=tone)),
    )


def _effects(first: Effect, of: Any) -> list[Any]:
    amounts: list[tuple[str, Any]] = [
        ("collectives", lambda effect: f"{effect.collectives:,}"),
        ("operand bytes", lambda effect: format_bytes(effect.bytes)),
        ("matrix products", lambda effect: format_flops(effect.flops)),
        ("arguments", lambda effect: format_bytes(effect.held)),
        ("step", lambda effect: format_seconds(effect.seconds)),
    ][: 5 if first.seconds is not None else 4]

    def cell(text: Any, record: Any) -> str:
        effect = of(record)
        return "–" if effect is None else text(effect)

    return [(doc.right(head), partial(cell, text)) for head, text in amounts]


def _changes(changes: Sequence[TriedChange]) -> doc.Section:
    timed = any(change.after.seconds is not None for change in changes)
    judgements = {"wanted is cheaper": "cheaper", "chosen is cheaper": "but slower" if timed else "but it costs more"}

    def outcome(change: TriedChange | None) -> doc.Piece:
        if change is None:
            return doc.words("")
        judged = judgements.get(change.verdict, change.verdict)
        text = "; ".join((f"{'removed' if change.removed else 'stays'}, {judged}", *change.added))
        return doc.words(text, tone="good" if change.removed and judged == "cheaper" else "")

    tried = doc.Rows((None, *changes), noun="change", name="why-changes").table(
        (doc.wrapped("change"), lambda change: "this plan" if change is None else change.text),
        *_effects(changes[0].before, lambda change: changes[0].before if change is None else change.after),
        (doc.wrapped(), outcome),
    )
    level = "level propagated; on one device in a step" + ("; the step" if timed else "")
    stays = "XLA's partitioner may avoid one that stays here" if not all(change.removed for change in changes) else ""
    return doc.section("What would avoid it", *doc.notes(level, stays), tried, name="changes")


def _at(frame: Frame | None, source: SourceText) -> tuple[doc.Piece, ...]:
    return () if frame is None else (doc.line(frame, source),)


def _short(frame: Frame | None, source: SourceText) -> doc.Piece:
    """Return a source line for a table; its text is the tip."""
    return doc.words("") if frame is None else doc.line(frame, tip=frame.text_in(source))
