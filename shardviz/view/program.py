"""Documents about a program's specs and calls: dimensions, rules, calls and an exported file.

>>> from shardviz.plan.bind import RuleRow, RulesTable
>>> rule = RuleRow(rule="'*kernel'", spec=Spec.of(("data",)), wins=("a.kernel",), loses=(("b.kernel", 2),))
>>> RulesTable((rule,), ())
rule  filter     spec       matches  wins
   1  '*kernel'  P('data')        2     1
    wins a.kernel
    rule 2 wins b.kernel
Every array has a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from shardviz.compat.export_files import LoadedExport
from shardviz.notation import Spec
from shardviz.plan.bind import RuleRow as Rule
from shardviz.plan.bind import RulesTable
from shardviz.propagate.dimensions import Dimension, Dimensions
from shardviz.records.amounts import first_names, format_bytes, plural
from shardviz.runs.run import Run
from shardviz.runs.together import Together, TogetherSearch
from shardviz.tracing.exports import ExportedArray, ExportRecord
from shardviz.view import document as doc
from shardviz.view.values import LONGEST_NAME

_MOST_TREE = 400


@doc.document.register
def of_dimensions(dimensions: Dimensions) -> doc.Document:
    """Return a row per dimension: its name, the size that must divide, the number of array dimensions, and their
    names."""

    def sizes(each: Dimension) -> doc.Piece:
        return doc.words(", ".join(map("{:,}".format, each.sizes)), tip="the sizes of its members")

    def members(each: Dimension) -> doc.Piece:
        """Return the first members, arguments first, each leaf once."""
        names = list(map(str, each.members))
        text = first_names(names, 3)
        return doc.words(f"{text} (stacked, a scan runs over it)" if each.stacked else text, tip=", ".join(names))

    def conflicts(each: Dimension) -> tuple[doc.Block, ...]:
        arrays = (f"{path} in dimensions {' and '.join(map(str, d))}" for path, d in each.conflicts.items())
        return doc.notes(f"an axis can shard an array only once, so one of these takes it: {first_names(arrays, 4)}")

    rows = doc.Rows(dimensions, most=_MOST_TREE, noun="dimension").table(
        ("dimension", lambda each: doc.words(each.name, strong=True)),
        (doc.right("size"), sizes),
        (doc.right("members"), lambda each: f"{len(each.members):,}"),
        (doc.wrapped("in"), members),
        detail=lambda each: conflicts(each) if each.conflicts else (),
    )
    heading = f"{plural(len(dimensions), 'logical dimension')}: each is sharded the same way wherever it occurs"
    return doc.Document.of(rows, title=doc.words(heading, quiet=True))


@doc.document.register
def of_recorded(subject: Run | Together | TogetherSearch) -> doc.Document:
    """Return the Document of a subject's record."""
    return doc.document(subject.record)


@doc.document.register
def of_rules(caught: RulesTable, most: int = 4) -> doc.Document:
    """Return a row per rule, with the arrays that it wins, loses and does not fit, at most `most` names of each."""
    if not caught.rows:
        return doc.Document.of(doc.paragraph("No rules."))
    rules = doc.Rows(enumerate(caught.rows, 1), folds="never", name="rules").table(
        (doc.right("rule"), lambda each: str(each[0])),
        ("filter", lambda each: doc.words(each[1].rule, strong=True)),
        ("spec", lambda each: doc.spec(each[1].spec)),
        (doc.right("matches"), lambda each: str(each[1].caught)),
        (doc.right("wins"), lambda each: str(len(each[1].wins))),
        detail=lambda each: [doc.paragraph(*pieces, quiet=True) for pieces in _does(each[1], most)],
    )
    others = doc.pieces("Every array has a rule.")
    if caught.uncaught:
        names, specs = zip(*caught.uncaught, strict=True)
        others = doc.pieces(f"No rule matches {plural(len(names), 'array')}:", _names(names, most, specs))
    return doc.Document.of(rules, doc.paragraph(others, name="rules-left"))


def _does(rule: Rule, most: int) -> Iterator[list[doc.Piece]]:
    if not rule.caught:
        yield [doc.words("matches none", tone="warn")]
        return
    yield [doc.words("wins"), *_names(rule.wins, most)] if rule.wins else [doc.words("wins none")]
    for winner, lost in groupby(sorted(rule.loses, key=lambda pair: pair[1]), key=lambda pair: pair[1]):
        yield [doc.words(f"rule {winner} wins"), *_names([name for name, _ in lost], most)]
    if rule.edited:
        yield [doc.words("edited by hand:"), *_names(rule.edited, most)]
    yield from ([doc.words(f"does not fit: {why}", tone="bad")] for _, why in rule.unfit[:most])
    if len(rule.unfit) > most:
        yield [doc.words(f"does not fit {len(rule.unfit) - most} more", tone="bad")]


def _names(names: Sequence[str], most: int, specs: Sequence[Spec | None] = ()) -> Iterator[doc.Piece]:
    for place, name in enumerate(names[:most]):
        if place:
            yield doc.words(",")
        yield doc.words(name, selects=("value", name))
        if specs:
            yield doc.words(str((specs[place] or Spec()).canonical()), quiet=True)
    if len(names) > most:
        yield doc.words(f", … and {len(names) - most} more")


@doc.document.register
def of_export(export: LoadedExport) -> doc.Document:
    record: ExportRecord = export.record
    source = doc.words(f"({export.source})", quiet=True)
    title = (doc.words(record.name, strong=True), doc.words("exported by jax.export"), source)
    over = (doc.words("on no mesh"),) if record.mesh is None else (doc.words("on the mesh"), doc.mesh_axes(record.mesh))
    facts = doc.Rows(_facts(record), name="facts").table(
        ("what", lambda fact: doc.words(fact[0], strong=True)), (doc.wrapped("in this file"), lambda fact: fact[1])
    )
    blocks = _arrays("Arguments", record.arguments), _arrays("Results", record.results), facts
    return doc.Document(title=title, lead=(over,), blocks=blocks, mesh=record.mesh)


def _arrays(title: str, arrays: Sequence[ExportedArray]) -> doc.Block:
    if not arrays:
        return doc.paragraph(f"{title}: none")

    def shown_spec(array: ExportedArray) -> doc.Piece:
        if array.kept and array.spec is not None:
            return doc.spec(array.spec)
        return doc.words(doc.shorten(array.sharding, 60) or "not stated" if array.kept else "not used", quiet=True)

    rows = doc.Rows(arrays).table(
        ("name", lambda array: doc.words(doc.shorten(array.name, LONGEST_NAME), tip=array.name)),
        ("type and shape", lambda array: doc.code(f"{array.dtype} [{', '.join(array.shape)}]")),
        ("spec", shown_spec),
    )
    return doc.section(f"{title}: {len(arrays)}", rows)


def _facts(record: ExportRecord) -> Iterator[tuple[str, str]]:
    """Yield (subject, words) for an export, without its arrays and mesh."""
    yield "devices", f"{record.devices:,}"
    yield "platforms", ", ".join(record.platforms) or "none"
    if record.symbols:
        rules = f"; {', '.join(record.constraints)}" if record.constraints else ""
        yield "symbols", f"{', '.join(record.symbols)}{rules}"
    size = "" if record.file_bytes is None else f" in a file of {format_bytes(record.file_bytes)}"
    yield "size", f"{format_bytes(record.module_bytes)} of StableHLO{size}"
