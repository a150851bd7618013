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
from shardviz.records.amounts import format_bytes, plural
from shardviz.runs.run import Run
from shardviz.tracing.exports import ExportedArray, ExportRecord
from shardviz.view.document import (
    Block,
    Document,
    Piece,
    code,
    document,
    mesh_axes,
    notes,
    paragraph,
    right,
    section,
    shorten,
    spec,
    table,
    words,
    wrapped,
)
from shardviz.view.run import of_run
from shardviz.view.values import LONGEST_NAME

_MOST_TREE = 400


@document.register
def of_dimensions(dimensions: Dimensions) -> Document:
    """Return a row per dimension: its name, the size that must divide, the number of array dimensions, and their
    names."""

    def members(each: Dimension) -> Piece:
        """Return the first members, arguments first, each leaf once."""
        names = list(map(str, each.members))
        text = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
        return words(f"{text} (stacked, a scan runs over it)" if each.stacked else text, tip=", ".join(names))

    rows = table(
        dimensions,
        ("dimension", lambda each: words(each.name, strong=True)),
        (right("size"), lambda each: words(", ".join(map("{:,}".format, each.sizes)), tip="the sizes of its members")),
        (right("members"), lambda each: f"{len(each.members):,}"),
        (wrapped("in"), members),
        detail=lambda each: notes(_conflicts(each)),
        most=_MOST_TREE,
        noun="dimension",
    )
    heading = f"{plural(len(dimensions), 'logical dimension')}: each is sharded the same way wherever it occurs"
    return Document.of(rows, title=words(heading, quiet=True))


def _conflicts(of: Dimension) -> str:
    if not of.conflicts:
        return ""
    first = list(of.conflicts.items())[:4]
    arrays = ", ".join(f"{path} in dimensions {' and '.join(map(str, d))}" for path, d in first)
    more = f" and {len(of.conflicts) - 4} more" if len(of.conflicts) > 4 else ""
    return f"an axis can shard an array only once, so one of these takes it: {arrays}{more}"


@document.register
def _of_run(run: Run) -> Document:
    return of_run(run.record)


@document.register
def of_rules(caught: RulesTable, most: int = 4) -> Document:
    """Return a row per rule, with the arrays that it wins, loses and does not fit, at most `most` names of each."""
    rules = table(
        enumerate(caught.rows, 1),
        (right("rule"), lambda each: str(each[0])),
        ("filter", lambda each: words(each[1].rule, strong=True)),
        ("spec", lambda each: spec(each[1].spec)),
        (right("matches"), lambda each: str(each[1].caught)),
        (right("wins"), lambda each: str(len(each[1].wins))),
        detail=lambda each: [paragraph(*pieces, quiet=True) for pieces in _does(each[1], most)],
        folds="never",
        name="rules",
    )
    left: list[Piece] = [words("Every array has a rule.")]
    if caught.uncaught:
        left = [words(f"No rule matches {plural(len(caught.uncaught), 'array')}:")]
        left += _names([name for name, _ in caught.uncaught], most, [shown_spec for _, shown_spec in caught.uncaught])
    return Document(blocks=(rules, paragraph(*left, name="rules-left")) if caught.rows else (paragraph("No rules."),))


def _does(rule: Rule, most: int) -> Iterator[list[Piece]]:
    if not rule.caught:
        yield [words("matches none", tone="warn")]
        return
    yield [words("wins"), *_names(rule.wins, most)] if rule.wins else [words("wins none")]
    for winner, lost in groupby(sorted(rule.loses, key=lambda pair: pair[1]), key=lambda pair: pair[1]):
        yield [words(f"rule {winner} wins"), *_names([name for name, _ in lost], most)]
    if rule.edited:
        yield [words("edited by hand:"), *_names(rule.edited, most)]
    yield from ([words(f"does not fit: {why}", tone="bad")] for _, why in rule.unfit[:most])
    if len(rule.unfit) > most:
        yield [words(f"does not fit {len(rule.unfit) - most} more", tone="bad")]


def _names(names: Sequence[str], most: int, specs: Sequence[Spec | None] = ()) -> Iterator[Piece]:
    for place, name in enumerate(names[:most]):
        if place:
            yield words(",")
        yield words(name, selects=("value", name))
        if specs:
            yield words(str((specs[place] or Spec()).canonical()), quiet=True)
    if len(names) > most:
        yield words(f", … and {len(names) - most} more")


@document.register
def of_export(export: LoadedExport) -> Document:
    record: ExportRecord = export.record
    title = (words(record.name, strong=True), words("exported by jax.export"), words(f"({export.source})", quiet=True))
    over = (words("on no mesh"),) if record.mesh is None else (words("on the mesh"), mesh_axes(record.mesh))
    facts = table(
        _facts(record),
        ("what", lambda fact: words(fact[0], strong=True)),
        (wrapped("in this file"), lambda fact: fact[1]),
        name="facts",
    )
    blocks = _arrays("Arguments", record.arguments), _arrays("Results", record.results), facts
    return Document(title=title, lead=(over,), blocks=blocks, mesh=record.mesh)


def _arrays(title: str, arrays: Sequence[ExportedArray]) -> Block:
    if not arrays:
        return paragraph(f"{title}: none")

    def shown_spec(array: ExportedArray) -> Piece:
        if array.kept and array.spec is not None:
            return spec(array.spec)
        return words(shorten(array.sharding, 60) or "not stated" if array.kept else "not used", quiet=True)

    rows = table(
        arrays,
        ("name", lambda array: words(shorten(array.name, LONGEST_NAME), tip=array.name)),
        ("type and shape", lambda array: code(f"{array.dtype} [{', '.join(array.shape)}]")),
        ("spec", shown_spec),
    )
    return section(f"{title}: {len(arrays)}", rows)


def _facts(record: ExportRecord) -> Iterator[tuple[str, str]]:
    """Yield (subject, words) for an export, without its arrays and mesh."""
    yield "devices", f"{record.devices:,}"
    yield "platforms", ", ".join(record.platforms) or "none"
    if record.symbols:
        rules = f"; {', '.join(record.constraints)}" if record.constraints else ""
        yield "symbols", f"{', '.join(record.symbols)}{rules}"
    size = "" if record.file_bytes is None else f" in a file of {format_bytes(record.file_bytes)}"
    yield "size", f"{format_bytes(record.module_bytes)} of StableHLO{size}"
