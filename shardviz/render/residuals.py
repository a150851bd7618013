"""What the backward pass needs of what ran before it, in text and in HTML: what is kept, and what is made again."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from shardviz.notation import DeviceMesh
from shardviz.paint.columns import clip, columns
from shardviz.records import Residual
from shardviz.records.amounts import format_bytes, format_shape, plural
from shardviz.render.chips import QUIET, cell, spec_html, table
from shardviz.render.values import spec_text

MAX_TEXT, MAX_HTML = 10, 40


def headline(residuals: Sequence[Residual]) -> str:
    """How many values are kept and their bytes on one device; how many more are needed and take no memory of their own.

    Args:
        residuals: a report's.
    """
    kept = [r for r in residuals if r.takes_memory]
    size = sum(r.value.bytes_per_device or 0 for r in kept)
    text = f"{plural(len(kept), 'value')} kept for the backward pass, {format_bytes(size)} per device"
    counts = [
        (kind, sum(r.kind == kind for r in residuals)) for kind in ("offloaded", "argument", "constant", "recomputed")
    ]
    words = {
        "offloaded": lambda n: f"{plural(n, 'value')} kept in the host's memory",
        "argument": lambda n: f"{plural(n, 'argument')} needed again",
        "constant": lambda n: f"{plural(n, 'constant')} made from no argument",
        "recomputed": lambda n: f"{plural(n, 'value')} dropped by jax.checkpoint and computed again",
    }
    more = [words[kind](n) for kind, n in counts if n]
    return text + (f"; besides, {', '.join(more)}" if more else "")


def residuals_text(residuals: Sequence[Residual]) -> list[str]:
    """Lines of plain text: the headline, then the largest of those kept and of those recomputed."""
    lines = [f"Residuals: {headline(residuals)}"]
    tables = (
        ("", ("kept", "outside")),
        ("In the host's memory, bytes of one device's:", ("offloaded",)),
        ("Recomputed, bytes each time:", ("recomputed",)),
    )
    for title, kinds in tables:
        found = by_size([r for r in residuals if r.kind in kinds])
        if not found:
            continue
        if title:
            lines.append(title)
        rows = [("made by", "type and shape", "spec", "shard", "per device", "line")]
        rows += [_text_row(r) for r in found[:MAX_TEXT]]
        lines += ["  " + line for line in columns(rows, right=(4,))]
        if len(found) > MAX_TEXT:
            rest = sum(r.value.bytes_per_device or 0 for r in found[MAX_TEXT:])
            lines.append(f"  … and {plural(len(found) - MAX_TEXT, 'more value')}, {format_bytes(rest)} per device")
    return lines


def _text_row(residual: Residual) -> tuple[str, ...]:
    v = residual.value
    typed = f"{v.dtype} {format_shape(v.shape)}"
    where = v.source.short if v.source else ""
    return (
        clip(called(residual), 40),
        typed,
        spec_text(v),
        format_shape(v.shard_shape),
        format_bytes(v.bytes_per_device),
        where,
    )


def called(residual: Residual) -> str:
    """The operation that made it, its `checkpoint_name`, and how many of a scan's iterations it has or is made in."""
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


def by_size(residuals: Sequence[Residual]) -> list[Residual]:
    """The largest on one device first; equal ones in the order in which the backward pass uses them."""
    return sorted(residuals, key=lambda r: -(r.value.bytes_per_device or 0))


def residuals_html(residuals: Sequence[Residual], mesh: DeviceMesh) -> str:
    """A table, the largest first, in the order kept, offloaded, recomputed, arguments, constants.

    Args:
        residuals: a report's.
        mesh: its mesh, which sets the axes' colours.
    """
    order = ("kept", "outside", "offloaded", "recomputed", "argument", "constant")
    ordered = sorted(by_size(residuals), key=lambda r: order.index(r.kind))
    rows = []
    for r in ordered[:MAX_HTML]:
        v = r.value
        spec = spec_html(v.spec, mesh) if v.spec is not None and not v.manual else escape(spec_text(v))
        rows.append(
            (
                cell(escape(_KINDS[r.kind])),
                cell(f"<b>{escape(called(r))}</b>", title=v.name_stack),
                cell(format_shape(v.shape)),
                cell(escape(v.dtype), quiet=True),
                cell(spec, title=str(v.spec or "")),
                cell(format_shape(v.shard_shape)),
                cell(format_bytes(v.bytes_per_device), right=True),
                cell(escape(v.source.short if v.source else "")),
            )
        )
    head = ("what", "made by", "shape", "type", "spec", "shard", ">bytes per device", "line")
    more = len(ordered) - MAX_HTML
    return table(head, rows) + (f'<div style="{QUIET}">… and {more:,} more</div>' if more > 0 else "")


_KINDS = {
    "kept": "kept",
    "outside": "kept, made outside",
    "offloaded": "kept in the host's memory",
    "recomputed": "computed again",
    "argument": "argument",
    "constant": "constant",
}
