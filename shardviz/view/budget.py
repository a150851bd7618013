"""Words on one memory budget for several programs: what is held, each program's parts, and the room for the cache."""

from __future__ import annotations

from shardviz.records.amounts import format_bytes, plural
from shardviz.records.budget import Budget, CacheRoom, Held
from shardviz.view import document as doc
from shardviz.view.report import counted, findings_table


@doc.document.register
def of_budget(budget: Budget) -> doc.Document:
    """Return what is left, the arrays that are held, and a row for each program with the parts of its memory."""
    most = budget.most
    head = f"{most.program} needs most: {format_bytes(most.total)} of a device while it runs"
    if budget.usable is not None and budget.left is not None:
        fits = f"{format_bytes(budget.left)} are left" if budget.left >= 0 else f"{format_bytes(-budget.left)} too much"
        head += f", of {format_bytes(budget.usable)} of {budget.target}: {fits}"
    more = budget.batches > 1
    programs = doc.table(
        budget.programs,
        ("program", lambda each: doc.words(each.program, strong=True)),
        (doc.right("arrays held"), lambda each: doc.nbytes(each.held)),
        (doc.right("batch"), lambda each: doc.nbytes(each.batch)),
        (doc.right("padding"), lambda each: _signed(each.padding)),
        (doc.right("outputs"), lambda each: doc.nbytes(each.outputs)),
        (doc.right("temporaries"), lambda each: doc.nbytes(each.temporaries)),
        (doc.right("constants, code"), lambda each: doc.nbytes(each.constants)),
        (doc.right("its own"), lambda each: doc.nbytes(each.own, strong=True)),
        (doc.right("more batches"), lambda each: doc.nbytes(each.more_batches)) if more else None,
        (doc.right("others' arrays"), lambda each: doc.nbytes(each.beside)),
        (doc.right("total"), lambda each: doc.nbytes(each.total, strong=True)),
        name="programs",
    )
    held = doc.table(
        budget.held,
        ("kind", lambda each: doc.words(each.kind, strong=True)),
        (doc.right("on a device"), lambda each: doc.nbytes(each.nbytes)),
        (doc.right("arrays"), lambda each: str(len(each.names))),
        ("programs", lambda each: ", ".join(each.programs)),
        (doc.wrapped("names"), _names),
        name="held",
    )
    whole = sum(each.nbytes for each in budget.held)
    return doc.Document.of(
        doc.paragraph(_room(budget.cache)) if budget.cache is not None else None,
        doc.section("Programs", programs, lead="they do not run at once, so the largest total counts"),
        doc.section("Held between calls", held, lead=format_bytes(whole)),
        doc.section("Findings", findings_table(budget.findings), lead=counted(budget.findings))
        if budget.findings
        else None,
        *doc.notes(*budget.notes, budget.usable_from and f"Source of the usable memory: {budget.usable_from}."),
        title=doc.words(head, strong=True),
        mesh=budget.mesh,
    )


def _signed(amount: float) -> str:
    return format_bytes(amount) if amount >= 0 else f"−{format_bytes(-amount)}"


def _names(each: Held) -> str:
    rest = len(each.names) - 3
    return ", ".join(each.names[:3]) + (f" and {rest} more" if rest > 0 else "")


def _room(cache: CacheRoom) -> str:
    group = f"{plural(cache.devices, cache.unit)} more take" + ("s" if cache.devices == 1 else "")
    words = f"the cache has {plural(cache.count, cache.unit)}; {group} {format_bytes(cache.unit_bytes)} on a device"
    return words if cache.most is None else f"{words}: {plural(cache.most, cache.unit)} fit"
