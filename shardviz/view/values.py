"""Tables of values: the shardings and bytes per device of arguments, outputs, intermediates and residuals.

>>> from shardviz.notation import Spec
>>> from shardviz.view.document import plain
>>> w = Value(name="w", shape=(8, 4), dtype="float32", spec=Spec.of(("x", None)), bytes_per_device=64)
>>> [plain(cell) for cell in values_table([w]).rows[0].cells]
['w', 'float32 [8, 4]', "P('x')", 'not known', '64 B']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from shardviz.records import Residual, Value
from shardviz.records.amounts import format_bytes, format_count, plural
from shardviz.records.report import ReportRecord
from shardviz.records.values import on_device
from shardviz.view import document as doc

LONGEST_NAME = 44
"""Maximum number of characters of an array's name in a table; a longer name ends in `…`."""

MOST = 48
_MOST_UNUSED = 5


def roles(report: ReportRecord) -> Iterator[tuple[str, Value]]:
    """Yield every value of a report with its role: `argument`, `output` or `intermediate`."""
    for role in ("argument", "output", "intermediate"):
        yield from ((role, value) for value in getattr(report, f"{role}s"))


def found_value(report: ReportRecord, name: str) -> tuple[str, Value | None]:
    """Return the role and the value with this name; None if the report has none."""
    return next((pair for pair in roles(report) if pair[1].name == name), ("", None))


def total_bytes(values: Sequence[Value]) -> tuple[float, int]:
    """Return the bytes per device of all values with known bytes, and the number of the others."""
    sizes = [v.bytes_per_device for v in values if v.bytes_per_device is not None]
    return sum(sizes), len(values) - len(sizes)


def values_headline(values: Sequence[Value]) -> str:
    """Return `10 values, 3.37 GB per device`, with values on the host, unused values, and values of unknown size."""
    total, unknown = total_bytes(on_device(values))
    host, _ = total_bytes([v for v in values if v.on_host and not v.unused])
    unused, _ = total_bytes([v for v in values if v.unused])
    text = f"{plural(len(values), 'value')}, {format_bytes(total)} per device"
    text += f", {format_bytes(host)} on its host" if host else ""
    text += f", {format_bytes(unused)} unused" if unused else ""
    return text + (f" and {plural(unknown, 'value')} whose bytes are not known" if unknown else "")


def beside_words(host: float, unused: Mapping[str, float]) -> tuple[str, ...]:
    """Return words on what the memory sums omit: bytes on the host, and arguments that no result needs (tree path →
    bytes)."""
    sentences = [f"in the host's memory for each device: {format_bytes(host)}"] if host else []
    if unused:
        ordered = sorted(unused, key=lambda name: (-unused[name], name))
        few = [f"{doc.shorten(name, LONGEST_NAME)} ({format_bytes(unused[name])})" for name in ordered[:_MOST_UNUSED]]
        few += [f"{len(ordered) - _MOST_UNUSED} more"] if len(ordered) > _MOST_UNUSED else []
        sentences.append(
            f"no result needs {', '.join(few)}: JAX drops them from the program. These "
            f"{format_bytes(sum(unused.values()))} are not counted; they take memory while the caller keeps them"
        )
    return tuple(sentences)


def values_section(title: str, values: Sequence[Value]) -> doc.Section | doc.Block:
    """Return arguments or outputs under a heading with their total."""
    if not values:
        return doc.section(title, lead="none")
    fold = "open" if len(values) <= 16 else "closed"
    return doc.section(title, values_table(values), lead=values_headline(values), fold=fold)


def values_table(
    values: Sequence[Value],
    *,
    roles: Mapping[str, str] | None = None,
    changed: Collection[str] = (),
    most: int = MOST,
    kept: int = 0,
    name: str = "",
) -> doc.Table:
    """Return the values in the given order, `roles` beside their names, the `changed` ones marked; `kept` rows
    unfold."""
    return doc.Rows(values, most=most, first=MOST, kept=max(most, kept), noun="value", name=name).table(
        ("name", lambda value: _name(value, (roles or {}).get(value.name, ""))),
        ("type and shape", lambda value: doc.shape(value.shape, dtype=value.dtype)),
        ("spec", lambda value: doc.value_spec(value, asks=True)),
        ("shard", lambda value: doc.shape(value.shard_shape)),
        (doc.right("per device"), lambda value: doc.nbytes(value.bytes_per_device)),
        selects=lambda value: ("value", value.name),
        marked=lambda value: value.name in changed,
    )


def _name(value: Value, role: str) -> tuple[doc.Piece, ...]:
    shown = value.label or value.name
    parts = (shown if len(shown) > LONGEST_NAME else "", value.op, value.source.short if value.source else "")
    tip = " · ".join(filter(None, (*parts, value.name_stack))) or value.name
    named: list[doc.Piece] = [doc.words(doc.shorten(shown, LONGEST_NAME), strong=True, tip=tip)]
    if value.label and value.label != value.name:
        named.append(doc.words(doc.shorten(value.name, LONGEST_NAME), quiet=True))
    if value.count != 1:
        named.append(doc.words(f"× {format_count(value.count)}", quiet=True))
    if value.on_host:
        named.append(doc.words(value.memory_kind, quiet=True, tip="in the memory of the device's host"))
    if value.unused:
        named.append(doc.words("unused", quiet=True, tip="no result needs it, so JAX drops it from the program"))
    if role:
        named.append(doc.words(value.op or role, quiet=True))
    if role and value.source is not None:
        named.append(doc.line(value.source))
    return tuple(named)


_KINDS = {
    "kept": "kept",
    "outside": "kept, from outside",
    "offloaded": "kept in the host's memory",
    "recomputed": "recomputed",
    "argument": "argument",
    "constant": "constant",
}
_BESIDES: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("offloaded", lambda n: f"{plural(n, 'value')} kept in the host's memory"),
    ("argument", lambda n: f"{plural(n, 'argument')} used again"),
    ("constant", lambda n: f"{plural(n, 'constant')}"),
    ("recomputed", lambda n: f"{plural(n, 'value')} dropped by jax.checkpoint and recomputed"),
)


def residuals_headline(residuals: Sequence[Residual], planned: float | None = None) -> str:
    """Return the number of kept values, their bytes per device, and how many take no memory of their own.

    `planned` is the bytes per device of all temporaries in the compiler's plan.
    """
    kept = [r for r in residuals if r.takes_memory]
    size = sum(r.value.bytes_per_device or 0 for r in kept)
    text = f"{plural(len(kept), 'value')} kept for the backward pass, {format_bytes(size)} per device"
    if planned is not None and size > planned:
        text += f" as traced (the compiler's plan keeps less: all its temporaries are {format_bytes(planned)})"
    more = [say(n) for kind, say in _BESIDES if (n := sum(r.kind == kind for r in residuals))]
    return text + (f"; also {', '.join(more)}" if more else "")


def residuals_section(residuals: Sequence[Residual], planned: float | None = None) -> doc.Section:
    """Return the activations that the forward pass keeps, and those that are recomputed, largest first."""

    def made_by(r: Residual) -> doc.Piece:
        return doc.words(doc.shorten(residual_name(r), LONGEST_NAME), strong=True, tip=r.value.name_stack)

    ordered = sorted(residuals, key=lambda r: (list(_KINDS).index(r.kind), -(r.value.bytes_per_device or 0)))
    rows = doc.Rows(ordered, first=10, most=40, noun="value").table(
        ("what", lambda r: _KINDS[r.kind]),
        ("made by", made_by),
        ("type and shape", lambda r: doc.shape(r.value.shape, dtype=r.value.dtype)),
        ("spec", lambda r: doc.value_spec(r.value)),
        ("shard", lambda r: doc.shape(r.value.shard_shape)),
        (doc.right("per device"), lambda r: doc.nbytes(r.value.bytes_per_device)),
        ("line", lambda r: doc.line(r.value.source) if r.value.source else ""),
    )
    return doc.section("Residuals", rows, lead=residuals_headline(residuals, planned), fold="closed")


def residual_name(residual: Residual) -> str:
    """Return the operation, its `checkpoint_name`, and the number of scan iterations that it is kept or recomputed
    in."""
    text = residual.value.name
    if residual.checkpoint_name:
        text += f" '{residual.checkpoint_name}'"
    if residual.layers is None:
        text += ", stacked by a scan"
    elif residual.layers > 1:
        text += f", {residual.layers} iterations stacked"
    elif residual.value.count is None:
        text += ", in a loop"
    elif residual.value.count > 1:
        text += f", {residual.value.count} times"
    return text
