"""Why a value is sharded as it is, and why a collective is there: a sentence first, then the chain as a table.

In the explorer what would change without each cause stands below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from shardviz.explorer.snapshot import Asked
from shardviz.judge.comparison import Amount, Comparison
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_flops, format_seconds, plural
from shardviz.records.why import AxisWhy, Cause, CollectiveWhy, Contest, Effect, End, Giver, Hop, Source, Stop, Way, Why
from shardviz.view.comparison import difference_text
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Inline,
    Paragraph,
    Piece,
    Row,
    Section,
    Table,
    axes,
    code,
    document,
    line,
    notes,
    paragraph,
    row,
    shape,
    spec,
    words,
)

_BOUNDARY = {"call": "function", "loop": "loop", "branch": "branch", "shard_map": "shard_map", "barrier": "barrier"}
Lines = dict[str, dict[int, str]]


@document.register
def why_document(found: Why) -> Document:
    """A value: a section for each mesh axis, then where its dimensions were contested."""
    value = found.value
    name = value.label or value.name
    title = (words("why"), code(name, strong=True, selects=("value", value.name)))
    title += () if value.spec is None else (spec(value.spec),)
    lead: list[Inline] = [(shape(value.shape, dtype=value.dtype), *_at(value.source, found.source))]
    if value.computed is not None:
        lead.append((words("computed as"), spec(value.computed), words("and then resharded")))
    if found.also:
        lead.append(words(f"the first of {len(found.also) + 1} values called {name}; others: {', '.join(found.also)}"))
    blocks: list[Block] = [axis_section(each, found.source, name) for each in found.axes]
    if found.contest:
        blocks.append(contest_section(found.contest, found.source))
    blocks.append(_tried(found.tried, found.seconds))
    return Document(title=title, blocks=tuple(blocks), mesh=found.mesh, lead=tuple(lead))


@document.register
def collective_document(found: CollectiveWhy) -> Document:
    """A collective: what needs it, where the axes come from, what would avoid it."""
    c, need = found.collective, found.need
    title = (words("why"), words(c.kind, strong=True), words("over"), axes(c.axes))
    moves: list[Piece] = [code(need.value)]
    if need.before is not None:
        moves += [spec(need.before), words("→"), *([] if need.after is None else [spec(need.after)])]
    lead: list[Inline] = [(*moves, words(format_bytes(c.operand_bytes)), *_at(c.source, found.source))]
    blocks: list[Block] = [Section(title="What needs it", blocks=(paragraph(need.words),), name="need")]
    blocks += [axis_section(each, found.source) for each in found.axes]
    if found.contest:
        blocks.append(contest_section(found.contest, found.source, said=need.words))
    if found.ways:
        blocks.append(ways_section(found.ways))
    blocks.append(_tried(found.tried, found.seconds))
    return Document(title=title, blocks=tuple(blocks), mesh=found.mesh, lead=tuple(lead))


def axis_section(found: AxisWhy, source: Lines, name: str = "") -> Section:
    """Why one axis is on a value, or is not; the value is called as the answer has it, where no other name is given."""
    name = name or found.value
    blocks: list[Block] = list(_present(name, found) if found.dimension is not None else _absent(name, found, source))
    if found.chain:
        blocks.append(chain_table(found, source))
    typed = any(c.source.role == "type" for c in found.causes)
    if found.dimension is not None:
        blocks += notes(*found.notes, _TYPES if typed else "")
    sharded = "not sharded" if found.dimension is None else f"dimension {found.dimension}"
    return Section(
        title=f"axis {found.axis} on {name}", lead=(words(sharded),), blocks=tuple(blocks), name=f"why-{found.axis}"
    )


_TYPES = (
    "Over Explicit axes an operation's type says how it is sharded. Types follow from the arguments' at tracing: to "
    " change them, change the arguments' specs."
)


# An axis that is there.


def _present(name: str, found: AxisWhy) -> Iterable[Block]:
    on = (axes((found.axis,)),)
    causes = found.causes
    if not causes:
        yield paragraph(code(name), words("is sharded along"), *on, words("; the cause was not found."))
        return
    first = causes[0]
    if not found.chain and first.source.name == name:
        yield paragraph(
            code(name), words("is sharded along"), *on, words("because its own spec says so:"), spec(first.source.spec)
        )
        return
    begin = (code(name), words("is sharded along"), *on, words("because of"), *source_pieces(first.source))
    several = [c for c in causes if c.verdict == "one of several"]
    together = [c for c in causes[1:] if first.verdict == "needed"]
    if several:
        untried = any(c.verdict == "not tried" for c in causes)
        both = len(causes) == 2
        many = "any one of the first" if untried else "either" if both else f"any one of these {len(causes)}"
        without = "both" if both and not untried else "all of them"
        yield paragraph(*begin, words(f"; {many} is enough; without {without}, {name} is not sharded along"), *on)
        yield causes_table(causes)
    elif together:
        others = [piece for c in together for piece in (words(","), *source_pieces(c.source))][1:]
        yield paragraph(*begin, words("together with"), *others, words("; neither is enough."))
    elif first.verdict == "needed":
        yield paragraph(*begin, words(f"; without it {name} is not sharded along it."))
    elif len(causes) > 1:
        yield paragraph(*begin, words(", or of one of those below."))
        yield causes_table(causes)
    else:
        yield paragraph(*begin, words("."))


def causes_table(causes: Sequence[Cause]) -> Table:
    """A row a cause, the nearest first."""
    verdicts = ("enough alone" if c.verdict == "one of several" else c.verdict for c in causes)
    rows = tuple(row(*_source_cells(c.source), words(v)) for c, v in zip(causes, verdicts, strict=True))
    columns = (Column("cause"), Column("spec"), Column(""))
    return Table(columns=columns, rows=rows, first=5, noun="cause", name="why-causes")


def _source_cells(source: Source) -> tuple[Inline, Inline]:
    """A source, and its spec."""
    *pieces, cut = source_pieces(source)
    return tuple(pieces), cut


def source_pieces(source: Source) -> tuple[Piece, ...]:
    """A source with its spec."""
    before = (words(source.lead),) if source.lead else ()
    selects = ("value", source.name) if source.role in ("argument", "output") else ("line", source.name)
    return (*before, code(source.name, selects=selects), spec(source.spec))


def chain_table(found: AxisWhy, source: Lines) -> Table:
    """From the first cause to the value, an operation a row; what functions and loops only hand on is one row.

    Each row selects itself, as a step: `("step", "model:3")`.
    """
    rows: list[Row] = []
    if found.chain:
        start, none = found.chain[0].before, words("")
        where = found.causes[0].source if found.causes else None
        outer = where is not None and where.role in ("argument", "output")
        name = code(start.name, selects=("value", start.name) if outer else None)
        head = _made(words("from", strong=True), None if where is None else where.source, source)
        rows.append(row(head, words(f"dimension {start.dimension}"), name, spec(start.spec), none))
    for boundary, some in groupby(found.chain, key=lambda hop: hop.op in _BOUNDARY):
        run = list(some)
        rows += [_handed(run, source)] if boundary else [_hop(hop, source) for hop in run]
    steps = [replace(each, selects=("step", f"{found.axis}:{n}")) for n, each in enumerate(rows)]
    columns = (Column("step"), Column("what it does", wrap=True), *map(Column, ("value", "spec", "rule")))
    return Table(columns=columns, rows=tuple(steps), noun="step", name="why-chain", first=40, most=200)


def _hop(hop: Hop, source: Lines) -> Row:
    said = words(f"{hop.words} (backwards)" if hop.backwards else hop.words)
    head = _made(code(hop.op, strong=True), hop.source, source)
    return row(head, said, *_end(hop.after), code(hop.rule, quiet=True))


def _handed(hops: Sequence[Hop], source: Lines) -> Row:
    """What is handed on through functions, loops and branches."""
    through = ", ".join(dict.fromkeys(_BOUNDARY[hop.op] for hop in hops))
    head = _made(words(through, strong=True), hops[0].source, source)
    return row(head, words("passed through unchanged", quiet=True), *_end(hops[-1].after), words(""))


def _made(op: Piece, frame: Frame | None, source: Lines) -> tuple[Piece, ...]:
    """An operation, and its line."""
    return (op,) if frame is None else (op, _short(frame, source))


def _end(found: End) -> tuple[Piece, Piece]:
    return code(found.name), spec(found.spec)


# An axis that is not there.


def _absent(name: str, found: AxisWhy, source: Lines) -> Iterable[Block]:
    begin = (code(name), words("is not sharded along"), axes((found.axis,)))
    if found.notes:
        yield paragraph(*begin, words(f": {'; '.join(found.notes)}."))
        return
    if found.stops:
        first = found.stops[0]
        yield paragraph(
            *begin,
            words("; the axis stops at"),
            code(first.next.name),
            words("; "),
            words(f"{first.words}."),
        )
        yield _stops(found.stops, source)
    else:
        yield paragraph(*begin, words("because none of its operands and users passes that axis on to it."))
    if found.givers:
        yield _givers(name, found.givers)
    else:
        yield paragraph(
            "None of the nearest specs and constraints that were tried would shard it along this axis.", quiet=True
        )


def _stops(stops: Sequence[Stop], source: Lines) -> Table:
    heads = ("last with it", "spec", "operation", "first without", "spec", "why", "line")
    columns = tuple(Column(head, wrap=head == "why") for head in heads)
    rows = (row(*_end(s.last), code(s.op), *_end(s.next), words(s.words), _short(s.source, source)) for s in stops)
    return Table(columns=columns, rows=tuple(rows), caption="where the axis ends", noun="place", name="why-stops")


def _givers(name: str, givers: Sequence[Giver]) -> Table:
    columns = (Column("change"), Column("from"), Column("to"), Column(f"then shards {name} in", right=True))
    rows = []
    for g in givers:
        change, cut = _source_cells(g.source)
        rows.append(row(change, spec(g.was), cut, words(f"dimension {g.dimension}")))
    return Table(
        columns=columns, rows=tuple(rows), caption="what would shard it (tried)", noun="change", name="why-givers"
    )


# The contest, and ways round a collective.


def contest_section(contests: Sequence[Contest], source: Lines, said: str = "") -> Section:
    """Where axes competed: chosen against wanted, with what each costs; `said` has the words that stand already."""
    blocks: list[Block] = []
    for each in contests:
        if each.words not in said:
            blocks.append(paragraph(words(each.words + "."), *_at(each.source, source)))
        blocks.append(_chosen(each))
    return Section(
        title="Contest", lead=(words(plural(len(contests), "place")),), blocks=tuple(blocks), name="why-contest"
    )


def _chosen(found: Contest) -> Table:
    """Chosen against wanted, and who is cheaper."""
    timed = found.chosen.seconds is not None
    tone = "warn" if found.verdict == "wanted is cheaper" else ""
    verdict = found.verdict + (f": {found.reason}" if found.reason else "")
    chosen, wanted = words(f"chosen: {found.value}", strong=True), words(f"wanted by {found.wanted_by}")
    rows = (
        row(chosen, spec(found.chosen_spec), *_effect(found.chosen, timed), words(verdict, tone=tone)),
        row(wanted, spec(found.wanted_spec), *_effect(found.wanted, timed), words("")),
    )
    columns = (Column(""), Column("spec"), *_columns(timed), Column("", wrap=True))
    return Table(columns=columns, rows=rows, noun="choice", name="why-choices")


def _columns(timed: bool) -> tuple[Column, ...]:
    heads = ("collectives", "operand bytes", "matrix products", "arguments", *(("step",) if timed else ()))
    return tuple(Column(head, right=True) for head in heads)


def _effect(found: Effect | None, timed: bool) -> tuple[Inline, ...]:
    if found is None:
        return (words("–"),) * len(_columns(timed))
    cells = (f"{found.collectives:,}", format_bytes(found.bytes), format_flops(found.flops), format_bytes(found.held))
    step = (format_seconds(found.seconds),) if timed else ()
    return tuple(words(cell) for cell in (*cells, *step))


def ways_section(ways: Sequence[Way]) -> Section:
    """What would avoid a collective, each tried: what it costs everywhere."""
    timed = any(way.after.seconds is not None for way in ways)
    judgements = {"wanted is cheaper": "cheaper", "chosen is cheaper": "but slower" if timed else "but it costs more"}
    rows = [row(words("this plan"), *_effect(ways[0].before, timed), words(""))]
    for way in ways:
        outcome = "removed" if way.gone else "stays"
        new = f"; {'; '.join(way.added)}" if way.added else ""
        judged = judgements.get(way.verdict, way.verdict)
        tone = "good" if way.gone and judged == "cheaper" else ""
        rows.append(row(words(way.text), *_effect(way.after, timed), words(f"{outcome}, {judged}{new}", tone=tone)))
    columns = (Column("change", wrap=True), *_columns(timed), Column("", wrap=True))
    table = Table(columns=columns, rows=tuple(rows), noun="way", name="why-ways")
    level = "level propagated; on one device in a step" + ("; the step" if timed else "")
    return Section(title="What would avoid it", blocks=(*notes(level), table), name="ways")


# Pieces.


def _at(frame: Frame | None, source: Lines) -> tuple[Piece, ...]:
    """A source line, with its text."""
    if frame is None:
        return ()
    return (line(frame, source.get(frame.file, {}).get(frame.line, "")),)


def _short(frame: Frame | None, source: Lines) -> Piece:
    """A source line in a table: its text is the tip."""
    return words("") if frame is None else line(frame, tip=source.get(frame.file, {}).get(frame.line, "").strip())


def _tried(runs: int, seconds: float) -> Paragraph:
    """How often Shardy was run; how long that took is on hovering, as it is another time each time."""
    tip = f"in {format_seconds(seconds)}"
    said = f"Tried: Shardy's propagation ran {plural(runs, 'time')}; level propagated."
    return Paragraph(pieces=(words(said, tip=tip),), quiet=True)


# What would change without each cause.

_CHANGES = (
    Column("without this"),
    Column("spec"),
    Column("values resharded", right=True),
    *(Column(title, right=True) for title in ("operand bytes", "arguments", "step")),
)
_AMOUNTS = ("operand bytes", "arguments", "step")
_MOST_CAUSES = 8
_FOLLOWS = {
    "shard_map": "the shapes inside follow from it: change the function",
    "type": "it follows from the arguments' types",
}


def asked_document(asked: Asked) -> Document | None:
    """The answer as the explorer shows it; None while there is none."""
    answer = asked.answer
    if answer is None:
        return None
    told = document(answer)
    if not isinstance(answer, Why) or not answer.causes:
        return told
    return replace(told, blocks=(*told.blocks[:-1], changes_section(answer, asked.changes), *told.blocks[-1:]))


def changes_section(answer: Why, changes: Mapping[int, Any]) -> Section:
    """What would change in the whole program without each cause, as far as that was asked.

    Args:
        answer: the answer.
        changes: which cause → the `Comparison`.
    """
    rows = tuple(_change(n, cause, changes.get(n)) for n, cause in enumerate(answer.causes[:_MOST_CAUSES]))
    left = max(0, len(answer.causes) - _MOST_CAUSES)
    table = Table(columns=_CHANGES, rows=rows, first=_MOST_CAUSES, noun="cause", hidden=left, name="why-changes")
    blocks: list[Block] = [table]
    for each in changes.values():
        fold = Section(title=each.names[1], blocks=document(each).blocks, fold="closed")
        blocks.append(fold)
    lead = words("in the whole program, on one device in a step, propagated again", quiet=True)
    return Section(title="What would change", lead=(lead,), blocks=tuple(blocks), name="changes")


def _change(number: int, cause: Cause, found: Comparison | None) -> Row:
    said: tuple[Inline, ...] = _source_cells(cause.source)
    none = (words(""),) * len(_AMOUNTS)
    if cause.source.role in _FOLLOWS:
        return row(*said, words(_FOLLOWS[cause.source.role], quiet=True), *none)
    if found is None:
        return row(*said, words("try it", selects=("without", str(number))), *none)
    known = {a.name: a for a in found.amounts}
    specs = words(plural(len(found.specs), "value"))
    return row(*said, specs, *(_difference(known.get(name)) for name in _AMOUNTS))


def _difference(amount: Amount | None) -> Inline:
    if amount is None:
        return words("–", quiet=True)
    tone = "" if not amount.difference else "bad" if amount.difference > 0 else "good"
    return words(difference_text(amount), quiet=not tone, tone=tone)
