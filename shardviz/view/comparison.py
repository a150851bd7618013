"""A comparison of reports: how its numbers differ, and which specs and collectives are not the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from shardviz.judge.changes import CollectiveChange
from shardviz.judge.comparison import Amount, Comparison, ValueChange
from shardviz.records import Collective, Value
from shardviz.records.amounts import format_bytes, format_change, format_count, format_flops, format_seconds, plural
from shardviz.records.groups import grouped
from shardviz.records.options import options_text
from shardviz.records.sums import CollectiveTotal
from shardviz.view import document as doc

_MOST_SPECS, _MOST_COLLECTIVES = 24, 24
_TITLES = {"work": "Matrix products", "collectives": "Collectives", "memory": "Memory", "step": "Step"}
_FORMATS = {
    "FLOP": format_flops,
    "bytes": format_bytes,
    "s": format_seconds,
    "runs": lambda number: format_count(None if number is None else round(number)),
}


def amount_text(number: float | None, unit: str) -> str:
    """Return a comparison's number with its unit."""
    return _FORMATS[unit](number)


def difference_text(amount: Amount) -> str:
    """Return `+3.20 GB (+12 %)`, `+8.10 s (2.4 times)`, `the same`, or `not known`."""
    if amount.difference is None:
        return "not known"
    if not amount.difference:
        return "the same"
    text = doc.signed_text(amount.difference, _FORMATS[amount.unit])
    return text if not amount.before else f"{text} ({format_change(1 + amount.difference / amount.before)})"


@doc.document.register
def comparison_document(comparison: Comparison) -> doc.Document:
    """Return the numbers, then their causes: the specs and collectives that differ."""
    level = doc.words(f"level {comparison.level}", quiet=True)
    return doc.Document.of(
        amounts_table(comparison),
        _specs_section(comparison) if comparison.specs else None,
        _collectives_section(comparison) if comparison.collectives else None,
        doc.notes("Nothing differs." if comparison.same else "", *comparison.notes),
        title=(doc.words(f"{comparison.program}: comparison", strong=True), level),
        lead=tuple(_who(comparison, name) for name in comparison.names),
        mesh=comparison.meshes[comparison.names[0]],
    )


def _who(comparison: Comparison, name: str) -> doc.Inline:
    first = (doc.words("(baseline)", quiet=True),) if name == comparison.names[0] else ()
    target = doc.code(comparison.targets[name], quiet=True)
    flags = options_text(comparison.options.get(name, {}))
    options = (doc.words("with"), doc.code(flags, quiet=True)) if flags else ()
    return (doc.code(name, strong=True), *first, doc.mesh_axes(comparison.meshes[name]), target, *options)


_Number = tuple[Amount, dict[str, Amount]]
"""The first of a number's amounts, and all of them by the report that they are of."""


def amounts_table(comparison: Comparison) -> doc.Table:
    """Return a row per number and a column per report, from the second report on with its difference to the
    baseline."""
    by_name = grouped(((amount.group, amount.name), amount) for amount in comparison.amounts).values()
    rows = [(each[0], {a.of: a for a in each}) for each in by_name if any(a.before or a.after for a in each)]
    heads = {id(first) for n, (first, _) in enumerate(rows) if n == 0 or rows[n - 1][0].group != first.group}

    def name(row: _Number) -> doc.Inline:
        over = row[0].name.startswith("operand bytes over")
        return (doc.words("operand bytes over"), doc.axes(row[0].axes)) if over else doc.words(row[0].name)

    def after(of: str, row: _Number) -> str:
        return amount_text(row[1][of].after, row[0].unit) if of in row[1] else ""

    def changed(of: str, row: _Number) -> doc.Piece:
        """Return a difference, coloured by its sign."""
        amount = row[1].get(of)
        tone = "" if amount is None or not amount.difference else "bad" if amount.difference > 0 else "good"
        text = "" if amount is None else difference_text(amount)
        return doc.words(text, quiet=not tone and bool(text), strong=bool(tone), tone=tone)

    columns = [(doc.right(comparison.names[0]), lambda row: amount_text(row[0].before, row[0].unit))]
    for of in comparison.names[1:]:
        columns += [
            (doc.right(of), partial(after, of)),
            (doc.Column("difference", right=True, wrap=True), partial(changed, of)),
        ]
    return doc.Rows(rows, caption="On one device, in a step", noun="number", name="amounts").table(
        ("", lambda row: doc.words(_TITLES[row[0].group] if id(row[0]) in heads else "", strong=True)),
        ("", name),
        *columns,
    )


def _specs_section(comparison: Comparison) -> doc.Section:
    """Return the values whose spec differs; equal changes, such as those of all layers, share a row."""

    def sides(change: ValueChange) -> list[object]:
        return [v and (v.shape, v.dtype, str(v.spec), v.shard_shape) for v in (change.before, change.after)]

    alike = grouped(((change.of, change.role, *sides(change)), change) for change in comparison.specs)

    def names(group: Sequence[ValueChange]) -> Iterator[doc.Piece]:
        first, *others = group
        yield doc.code(doc.shorten(first.name, 44), tip=first.name)
        if others:
            yield doc.words(f"and {len(others)} more", quiet=True, tip=", ".join(change.name for change in group))
        if first.role != "argument":
            yield doc.words(first.role, quiet=True)

    def typed(group: Sequence[ValueChange]) -> doc.Piece:
        value = group[0].after or group[0].before
        return doc.words("") if value is None else doc.shape(value.shape, dtype=value.dtype)

    rows = doc.Rows(alike.values(), most=_MOST_SPECS, noun="change", name="specs").table(
        ("in", lambda group: doc.code(group[0].of)) if len(comparison.names) > 2 else None,
        ("value", names),
        ("before", lambda group: _side(group[0].before, group[0].after)),
        ("after", lambda group: _side(group[0].after, group[0].before)),
        (doc.right("per device"), lambda group: nbytes_difference(group[0].bytes)),
        ("type and shape", typed),
    )
    return doc.section("Specs", rows, lead=f"{plural(len(comparison.specs), 'value')} with a different spec")


def _side(value: Value | None, other: Value | None) -> doc.Inline:
    """Return a value's sharding, after its shape if the other side has another; `none` without a value."""
    if value is None:
        return doc.words("none", quiet=True)
    if other is not None and (value.shape, value.dtype) != (other.shape, other.dtype):
        return (doc.shape(value.shape, dtype=value.dtype), *doc.value_spec(value))
    return doc.value_spec(value)


def nbytes_difference(amount: float) -> doc.Piece:
    """Return `+1.20 GB`, coloured by its sign; `the same` for 0."""
    return doc.difference(amount, format_bytes) if amount else doc.words("the same", quiet=True)


def _collectives_section(comparison: Comparison) -> doc.Section:
    def one(change: CollectiveChange) -> Collective:
        total = change.after or change.before
        assert total is not None
        return total.collectives[0]

    def both(change: CollectiveChange, text: Callable[[CollectiveTotal], str]) -> str:
        return doc.before_after(*("–" if total is None else text(total) for total in (change.before, change.after)))

    def what(change: CollectiveChange) -> doc.Piece:
        tone = "bad" if change.bytes > 0 else "good" if change.bytes < 0 else ""
        return doc.words(change.what, strong=True, tone=tone)

    rows = doc.Rows(comparison.collectives, most=_MOST_COLLECTIVES, noun="change", name="collectives").table(
        ("in", lambda change: doc.code(change.of)) if len(comparison.names) > 2 else None,
        ("what", what),
        ("collective", lambda change: (doc.words(one(change).kind), doc.words(one(change).dtype, quiet=True))),
        ("over", lambda change: doc.axes(one(change).axes)),
        (doc.right("runs"), lambda change: both(change, lambda total: total.runs_text)),
        (doc.right("operand bytes"), lambda change: both(change, lambda total: total.bytes_text)),
        (doc.right("difference"), lambda change: nbytes_difference(change.bytes)),
        ("line", lambda change: doc.line(change.source, change.lines)),
    )
    counts = Counter(change.what for change in comparison.collectives)
    lead = ", ".join(f"{counts[what]} {what}" for what in ("appeared", "vanished", "grew", "shrank") if counts[what])
    return doc.section("Collectives", rows, lead=lead)
