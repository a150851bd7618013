"""A comparison of reports: how its numbers differ, and which specs and collectives are not the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shardviz.judge.changes import CollectiveChange
from shardviz.judge.comparison import Amount, Comparison, ValueChange
from shardviz.records import Value
from shardviz.records.amounts import format_bytes, format_count, format_flops, format_seconds, plural
from shardviz.view.bars import Bar, Stretch, bars
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
    document,
    line,
    mesh_axes,
    notes,
    row,
    shape,
    shorten,
    value_spec,
    words,
)
from shardviz.view.picture import Picture, picture

_MOST_SPECS, _MOST_COLLECTIVES = 24, 24
_TITLES = {"work": "Matrix products", "collectives": "Collectives", "memory": "Memory", "step": "Step"}
_WHAT = {
    "appeared": "appeared",
    "vanished": "vanished",
    "grew": "grew",
    "shrank": "shrank",
    "moved": "moved to another line",
    "other axes": "over other axes",
    "other kind": "of another kind",
    "other type": "of another element type",
    "other phase": "in another phase",
}
_FORMATS = {"FLOP": format_flops, "bytes": format_bytes, "s": format_seconds, "runs": lambda n: format_count(_whole(n))}


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def amount_text(number: float | None, unit: str) -> str:
    """A number of a comparison with its unit."""
    return _FORMATS[unit](number)


def difference_text(amount: Amount) -> str:
    """`+3.20 GB (+12 %)`, `−0.21 s (−4.2 %)`, `the same`, or `not known`."""
    if amount.difference is None:
        return "not known"
    if not amount.difference:
        return "the same"
    sign = "+" if amount.difference > 0 else "−"
    text = sign + amount_text(abs(amount.difference), amount.unit)
    if not amount.before:
        return text
    share = abs(amount.difference / amount.before)
    return f"{text} ({sign}{share:.2g} ×)" if share >= 10 else f"{text} ({sign}{100 * share:.2g} %)"


@document.register
def comparison_document(found: Comparison) -> Document:
    """First the numbers, then what made them: specs that differ, collectives that differ."""
    title = (words(f"{found.program}: comparison", strong=True), words(f"level {found.level}", quiet=True))
    blocks: list[Block] = [amounts_table(found)]
    several = len(found.names) > 2
    if found.specs:
        blocks.append(_specs_section(found, several))
    if found.collectives:
        blocks.append(_collectives_section(found, several))
    if found.same:
        blocks.append(*notes("Nothing differs."))
    return Document(
        title=title,
        lead=tuple(_who(found, name) for name in found.names),
        blocks=(*blocks, *notes(*found.notes)),
        mesh=found.meshes[found.names[0]],
    )


def _who(found: Comparison, name: str) -> Inline:
    first = (words("(baseline)", quiet=True),) if name == found.names[0] else ()
    return (code(name, strong=True), *first, mesh_axes(found.meshes[name]), code(found.targets[name], quiet=True))


def amounts_table(found: Comparison, groups: Collection[str] = tuple(_TITLES)) -> Table:
    """A row a number, a column a report; from the second on with its difference to the baseline.

    Args:
        found: the comparison.
        groups: which numbers: `work`, `collectives`, `memory`, `step`.
    """
    others = found.names[1:]
    by_name: dict[tuple[str, str], dict[str, Amount]] = {}
    for amount in (a for a in found.amounts if a.group in groups):
        by_name.setdefault((amount.group, amount.name), {})[amount.of] = amount
    columns = [Column(""), Column(""), Column(found.names[0], right=True)]
    for name in others:
        columns += [Column(name, right=True), Column("difference", right=True)]
    rows, last = list[Row](), ""
    for (group, name), each in by_name.items():
        one = next(iter(each.values()))
        if all(a.before == a.after == 0 for a in each.values()):
            continue
        over = name.startswith("operand bytes over")
        named: Inline = (words("operand bytes over"), axes(one.axes)) if over else words(name)
        cells: list[Inline] = [words("" if group == last else _TITLES[group], strong=True), named]
        cells.append(words(amount_text(one.before, one.unit)))
        for other in others:
            cells += [words(amount_text(each[other].after, one.unit)), _difference(each[other])]
        rows.append(row(*cells))
        last = group
    return Table(
        columns=tuple(columns),
        rows=tuple(rows),
        caption="On one device, in a step",
        first=len(rows),
        most=len(rows),
        noun="number",
        name="amounts",
    )


def _difference(amount: Amount) -> Piece:
    text = difference_text(amount)
    if not amount.difference:
        return words(text, quiet=True)
    return words(text, strong=True, tone="bad" if amount.difference > 0 else "good")


def _specs_section(found: Comparison, several: bool) -> Section:
    """Values that are cut otherwise; those that changed alike, layer by layer, are one row."""
    heads = (
        *([Column("in")] if several else []),
        Column("value"),
        Column("type and shape"),
        Column("before"),
        Column("after"),
        Column("per device", right=True),
    )
    alike: dict[tuple[object, ...], list[ValueChange]] = {}
    for change in found.specs:
        sides = [v and (v.shape, v.dtype, str(v.spec), v.shard_shape) for v in (change.before, change.after)]
        alike.setdefault((change.of, change.role, *sides), []).append(change)
    rows = tuple(_spec_row(group, several) for group in alike.values())
    table = Table(columns=heads, rows=rows, first=_MOST_SPECS, most=_MOST_SPECS, noun="change", name="specs")
    lead = words(f"{plural(len(found.specs), 'value')} cut otherwise")
    return Section(title="Specs", lead=(lead,), blocks=(table,))


def _spec_row(group: Sequence[ValueChange], several: bool) -> Row:
    first = group[0]
    known = first.after or first.before
    assert known is not None
    role = () if first.role == "argument" else (words(first.role, quiet=True),)
    names = ", ".join(c.name for c in group)
    more = (words(f"and {len(group) - 1} more", quiet=True, tip=names),) if len(group) > 1 else ()
    return row(
        *([code(first.of)] if several else []),
        (code(shorten(first.name, 44), tip=first.name), *more, *role),
        shape(known.shape, dtype=known.dtype),
        _side(first.before, first.after),
        _side(first.after, first.before),
        nbytes_difference(first.bytes),
    )


def _side(value: Value | None, other: Value | None) -> Inline:
    """How a value is cut, with its shape where that is another on the other side; `none` where there is none."""
    if value is None:
        return words("none", quiet=True)
    if other is not None and (value.shape, value.dtype) != (other.shape, other.dtype):
        return (shape(value.shape, dtype=value.dtype), *value_spec(value))
    return value_spec(value)


def nbytes_difference(difference: float) -> Piece:
    """`+1.20 GB`, in the colour of more or less; `the same` for 0."""
    if not difference:
        return words("the same", quiet=True)
    text = ("+" if difference > 0 else "−") + format_bytes(abs(difference))
    return words(text, tone="bad" if difference > 0 else "good")


def _collectives_section(found: Comparison, several: bool) -> Section:
    heads = (
        *([Column("in")] if several else []),
        Column("what"),
        Column("collective"),
        Column("over"),
        Column("runs", right=True),
        Column("operand bytes", right=True),
        Column("difference", right=True),
        Column("line"),
    )
    rows = tuple(_collective_row(found, change, several) for change in found.collectives)
    table = Table(
        columns=heads,
        rows=rows,
        first=_MOST_COLLECTIVES,
        most=_MOST_COLLECTIVES,
        noun="change",
        clip=True,
        name="collectives",
    )
    counts = ", ".join(f"{n} {_WHAT[what]}" for what, n in _counted(found.collectives))
    return Section(title="Collectives", lead=(words(counts),), blocks=(table,))


def _counted(changes: Iterable[CollectiveChange]) -> list[tuple[str, int]]:
    found = [change.what for change in changes]
    return [(what, found.count(what)) for what in _WHAT if what in found]


def _collective_row(found: Comparison, change: CollectiveChange, several: bool) -> Row:
    both = [t for t in (change.before, change.after) if t is not None]
    kinds = " → ".join(dict.fromkeys(t.collectives[0].kind for t in both))
    dtypes = " → ".join(dict.fromkeys(t.collectives[0].dtype for t in both))
    over = list(dict.fromkeys(t.axes for t in both))
    lines = list(dict.fromkeys(t.collectives[0].source for t in both)) if change.what == "moved" else [change.source]
    tone = "bad" if change.bytes > 0 else "good" if change.bytes < 0 else ""
    return row(
        *([code(change.of)] if several else []),
        words(_WHAT[change.what], strong=True, tone=tone),
        (words(kinds), words(dtypes, quiet=True)),
        tuple(piece for place, a in enumerate(over) for piece in (*([words("→")] if place else []), axes(a))),
        words(_arrow([t and t.runs_text for t in (change.before, change.after)])),
        words(_arrow([t and t.bytes_text for t in (change.before, change.after)])),
        nbytes_difference(change.bytes),
        tuple(line(f, found.line(f)) for f in lines),
    )


def _arrow(sides: Sequence[str | None]) -> str:
    """`1 → 3`, or one text where both are the same; a dash where a side has none."""
    shown = ["–" if side is None else side for side in sides]
    return shown[0] if shown[0] == shown[1] else " → ".join(shown)


@picture.register
def _(found: Comparison, kind: str = "") -> Picture:
    """Operand bytes over each mesh axis, and the bounds of the step, of every report: a bar each."""
    mesh = found.meshes[found.names[0]]
    rows: list[Bar] = []
    shown = [a for a in found.amounts if (a.group == "collectives" and a.unit == "bytes") or a.name.startswith("step")]
    for name in dict.fromkeys(a.name for a in shown):
        each = [a for a in shown if a.name == name]
        numbers = [(found.names[0], each[0].before), *((a.of, a.after) for a in each)]
        unit, most = each[0].unit, max(n or 0.0 for a in shown if a.unit == each[0].unit for n in (a.before, a.after))
        if not any(n for _, n in numbers):
            continue
        for of, number in numbers:
            named = each[0].axes
            place = mesh.names.index(named[0]) if named and named[0] in mesh.names else None
            part = Stretch((number or 0.0) / (most or 1.0), "work" if place is None else place, place)
            rows.append(Bar(f"{name}, {of}", (part,), amount_text(number, unit)))
    title = f"{found.program}: {' and '.join(found.names)}, level {found.level}"
    return bars(rows, title=title, mesh=mesh, notes=found.notes)
