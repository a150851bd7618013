"""Words on several programs that share arrays: their cost under each assignment, their conflicts, the best plans that a
search found, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shardviz.records import together as records
from shardviz.records.amounts import first_names, format_bytes, format_seconds, plural
from shardviz.records.budget import Budget, CacheRoom
from shardviz.records.groups import grouped
from shardviz.records.paths import without_numbers
from shardviz.view import document as doc
from shardviz.view.report import findings_section

_FIRST, _MOST = 12, 200


@doc.document.register
def of_together(record: records.TogetherRecord) -> doc.Document:
    """Return each program's step and memory under each assignment, the findings, the conflicts, and the arrays."""
    programs = ", ".join(record.programs)
    on = f" on {record.target}" if record.target else ""
    head = f"{plural(len(record.shared), 'array')} shared by {programs}{on}"
    priced = [each for each in record.conflicts if each.costs]
    lead = plural(sum(len(each.names) for each in record.conflicts), "array") if record.conflicts else "none"
    if len(priced) < len(record.conflicts):
        lead += f"; the cost is computed for the {len(priced)} kinds of arrays with most bytes"
    return doc.Document.of(
        *_assignments(record),
        findings_section(record.findings),
        doc.section("Conflicts", _conflicts(record) if record.conflicts else None, lead=lead),
        doc.section("Shared arrays", _arrays(record), lead=plural(len(record.shared), "array"), fold="closed"),
        *doc.notes(*record.notes),
        title=doc.words(head, strong=True),
        mesh=record.mesh,
    )


def _assignments(record: records.TogetherRecord) -> list[doc.Block]:
    """Return a row for each program, with its time and memory under each assignment; then the sums of each."""
    timed = bool(record.target)

    def calls(name: str) -> str:
        return f"{record.calls[name]:,.10g}" if name in record.calls else ""

    def all_calls(each: records.Assignment) -> doc.Piece:
        return doc.seconds(each.seconds(record.calls))

    def time(each: records.Assignment, name: str) -> doc.Piece:
        cost = _cost_of(each, name)
        return doc.words("no", tone="warn") if cost.why_not else doc.seconds(cost.seconds)

    def needs(each: records.Assignment, name: str) -> doc.Piece:
        return doc.nbytes(_cost_of(each, name).needs_bytes)

    columns = []
    for number, each in enumerate(record.assignments):
        columns += [(doc.right(each.name if number else "own plan"), partial(time, each))] if timed else []
        columns.append((doc.right("needs"), partial(needs, each)))
    programs = doc.Rows(record.programs, folds="never", name="programs").table(
        ("program", lambda name: doc.words(name, strong=True)),
        (doc.right("calls"), calls) if record.calls else None,
        *columns,
        detail=lambda name: [
            doc.paragraph(f"{each.name}: {_cost_of(each, name).why_not}", quiet=True)
            for each in record.assignments
            if _cost_of(each, name).why_not
        ],
    )
    sums = doc.Rows(record.assignments, name="assignments").table(
        (doc.wrapped("shared arrays sharded"), lambda each: doc.words(each.name, strong=True)),
        (doc.right("all calls"), all_calls) if timed and record.calls else None,
        (doc.right("resharded"), lambda each: doc.nbytes(each.moved_bytes)),
        (doc.right("in"), lambda each: doc.seconds(each.move_seconds)) if timed else None,
    )
    return [programs, sums] if record.conflicts else [programs]


def _cost_of(each: records.Assignment | records.SharedPlan, program: str) -> records.ProgramCost:
    return next(cost for cost in each.costs if cost.program == program)


@doc.document.register
def of_conflict(conflict: records.Conflict) -> doc.Document:
    """Return each program's sharding, what each adds under the other shardings, and the resharding between calls."""
    texts = [_wishes(conflict), *map(_cost, conflict.costs)]
    for move in conflict.moves:
        timed = "" if move.seconds is None else f" in {format_seconds(move.seconds)}"
        texts.append(f"{move.before} → {move.after} between calls: {format_bytes(move.moved_bytes)}{timed}")
    return doc.Document.of(doc.paragraph(text, quiet=True) for text in (*texts, "level propagated"))


def _conflicts(record: records.TogetherRecord) -> doc.Table:
    def names(each: records.Conflict) -> doc.Piece:
        return doc.code(first_names(each.names, 1), tip=", ".join(each.names[:40]))

    return doc.Rows(record.conflicts, folds="never", first=_FIRST, most=_MOST, noun="conflict", name="conflicts").table(
        ("array", names),
        ("type and shape", lambda each: doc.shape(each.shape, dtype=each.dtype)),
        (doc.wrapped("each program's plan"), _wishes),
        detail=lambda each: of_conflict(each).blocks[1:-1],
    )


def _wishes(conflict: records.Conflict) -> str:
    return "; ".join(f"{', '.join(wish.programs)}: {wish.spec}" for wish in conflict.wishes)


def _cost(cost: records.WishCost) -> str:
    if cost.why_not:
        return f"{cost.program} cannot take it as {cost.spec}: {cost.why_not}"
    memory = "" if cost.needs_bytes is None else doc.signed_text(cost.needs_bytes, format_bytes)
    time = "" if cost.seconds is None else f"{doc.signed_text(cost.seconds, format_seconds)} a call, "
    return f"{cost.program} with {cost.spec}: {time}{memory} on a device"


def _arrays(record: records.TogetherRecord) -> doc.Table:
    """Return a row for each kind of array. Paths of one kind differ only in numbers, as unrolled layers' do."""

    def key(array: records.SharedArray) -> tuple[object, ...]:
        members = ((m.program, m.role, without_numbers(m.path), m.spec) for m in array.members)
        return without_numbers(array.name), array.shape, array.dtype, tuple(members)

    def members(each: list[records.SharedArray]) -> str:
        specs = grouped((m.spec or "as the compiler decides", _place(m, each[0].name)) for m in each[0].members)
        return "; ".join(f"{spec}: {', '.join(places)}" for spec, places in specs.items())

    def size(each: list[records.SharedArray]) -> doc.Piece:
        return doc.nbytes(sum(max(member.bytes_per_device for member in array.members) for array in each))

    kinds = grouped((key(array), array) for array in record.shared).values()
    return doc.Rows(kinds, first=_FIRST, most=_MOST, noun="kind of array", name="shared").table(
        ("array", lambda each: doc.code(each[0].name)),
        (doc.right("alike"), lambda each: str(len(each))),
        ("type and shape", lambda each: doc.shape(each[0].shape, dtype=each[0].dtype)),
        (doc.right("on a device"), size),
        (doc.wrapped("as arguments and outputs (→)"), members),
    )


def _place(member: records.SharedMember, name: str) -> str:
    if member.role == "output":
        return f"{member.program} → {member.path}"
    return member.program if member.path == name else f"{member.program} {member.path}"


@doc.document.register
def of_search(record: records.TogetherSearchRecord) -> doc.Document:
    """Return the best plans and the others, then the arguments' specs."""
    counts = ((name, count) for name, count in record.weights.items() if count)
    calls = ", ".join(f"{count:,.10g} call{'' if count == 1 else 's'} of {name}" for name, count in counts)
    rows = [record.predicted or record.best, *record.others]

    def seconds(program: str):
        return doc.right(program), lambda each: doc.seconds(_cost_of(each, program).seconds)

    def verdict(each: records.SharedPlan) -> str:
        why = next((f"{cost.program}: {cost.why_not}" for cost in each.costs if cost.why_not), "")
        return why or doc.fits_word(each.fits)

    def plans(rows: Sequence[records.SharedPlan], name: str) -> doc.Block:
        return doc.Rows(rows, name=name).table(
            (doc.wrapped("plans"), lambda each: doc.words(each.name, strong=each is rows[0])),
            ("mesh", lambda each: "several" if each.mesh is None else str(each.mesh)),
            *(seconds(program) for program in record.weights),
            (doc.right("all calls"), lambda each: doc.seconds(each.seconds, strong=each is rows[0])),
            (doc.right("needs"), lambda each: doc.nbytes(each.needs_bytes)),
            (doc.wrapped(""), verdict),
            marked=lambda each: each is rows[0],
        )

    shared_first = sorted(record.specs, key=lambda each: not each.shared)
    specs = doc.Rows(shared_first, first=_FIRST, most=_MOST, noun="argument", name="specs").table(
        ("program", lambda each: each.program),
        ("argument", lambda each: doc.code(each.path)),
        ("spec", lambda each: doc.code(each.spec)),
        ("", lambda each: "shared" if each.shared else ""),
    )
    head = f"best plans together on {record.target} for {calls}: {format_seconds(record.best.seconds)}, {record.level}"
    return doc.Document.of(
        plans(record.confirmed, "confirmed") if record.confirmed else None,
        doc.section("Predicted", plans(rows, "plans"), lead="at level propagated")
        if record.confirmed
        else plans(rows, "plans"),
        doc.section("Specs", specs, lead="of the best plans"),
        *doc.notes(f"{record.tried} sets of plans were tried in {format_seconds(record.seconds)}.", *record.notes),
        title=doc.words(head, strong=True),
        mesh=record.best.mesh,
    )


@doc.document.register
def of_budget(budget: Budget) -> doc.Document:
    """Return the room for the cache, a row for each program with the parts of its memory, and the shared arrays."""
    most = budget.most
    head = f"{most.program} needs most: {format_bytes(most.total)} of a device while it runs"
    if budget.usable is not None and budget.left is not None:
        fits = f"{format_bytes(budget.left)} are left" if budget.left >= 0 else f"{format_bytes(-budget.left)} too much"
        head += f", of {format_bytes(budget.usable)} of {budget.target}: {fits}"
    more = budget.batches > 1
    programs = doc.Rows(budget.programs, name="programs").table(
        ("program", lambda each: doc.words(each.program, strong=True)),
        (doc.right("arrays held"), lambda each: doc.nbytes(each.held)),
        (doc.right("batch"), lambda each: doc.nbytes(each.batch)),
        (doc.right("padding"), lambda each: format_bytes(each.padding).replace("-", "−")),
        (doc.right("outputs"), lambda each: doc.nbytes(each.outputs)),
        (doc.right("temporaries"), lambda each: doc.nbytes(each.temporaries)),
        (doc.right("constants, code"), lambda each: doc.nbytes(each.constants)),
        (doc.right("its own"), lambda each: doc.nbytes(each.own, strong=True)),
        (doc.right("more batches"), lambda each: doc.nbytes(each.more_batches)) if more else None,
        (doc.right("others' arrays"), lambda each: doc.nbytes(each.beside)),
        (doc.right("total"), lambda each: doc.nbytes(each.total, strong=True)),
    )
    held = doc.Rows(budget.held, name="held").table(
        ("kind", lambda each: doc.words(each.kind, strong=True)),
        (doc.right("on a device"), lambda each: doc.nbytes(each.nbytes)),
        (doc.right("arrays"), lambda each: str(len(each.names))),
        ("programs", lambda each: ", ".join(each.programs)),
        (doc.wrapped("names"), lambda each: first_names(each.names, 3)),
    )
    total = sum(each.nbytes for each in budget.held)
    return doc.Document.of(
        doc.paragraph(_room(budget.cache)) if budget.cache is not None else None,
        doc.section("Programs", programs, lead="they do not run at once, so the largest total counts"),
        doc.section("Held between calls", held, lead=format_bytes(total)),
        findings_section(budget.findings),
        *doc.notes(*budget.notes, budget.usable_from and f"Source of the usable memory: {budget.usable_from}."),
        title=doc.words(head, strong=True),
        mesh=budget.mesh,
    )


def _room(cache: CacheRoom) -> str:
    group = f"{plural(cache.devices, cache.unit)} more take" + ("s" if cache.devices == 1 else "")
    words = f"the cache has {plural(cache.count, cache.unit)}; {group} {format_bytes(cache.unit_bytes)} on a device"
    return words if cache.most is None else f"{words}: {plural(cache.most, cache.unit)} fit"
