"""Values as a table: name, shape, element type, spec, shard and bytes on each device.

>>> from shardviz.notation import Spec
>>> from shardviz.records import Value
>>> w = Value(name="w", shape=(8, 4), dtype="float32", spec=Spec.of(("x", None)), shard_shape=(4, 4),
...           bytes_per_device=64)
>>> print(values_text([w]))
name  type and shape  spec    shard   per device
w     float32 [8, 4]  P('x')  [4, 4]        64 B
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from shardviz.notation.spec import axis_text
from shardviz.paint.columns import clip, columns
from shardviz.records import Value
from shardviz.records.amounts import format_bytes, format_count, format_shape
from shardviz.render.chips import QUIET, cell, spec_html, table

MAX_NAME = 44


def spec_text(value: Value) -> str:
    """The spec as Python writes it; the sharding in another notation where no PartitionSpec says it.

    Of a value inside a `shard_map`, over which axes every device has its own; of one whose type fixes it, that too.
    """
    if value.manual:
        own = f"per device over {', '.join(map(axis_text, value.manual))}"
        return own if value.spec is None else f"{own}; {value.spec.canonical()}"
    if value.spec is not None:
        return str(value.spec.canonical()) + (" fixed by type" if value.fixed is not None else "")
    return clip(next(iter(value.sharding.values()), "not known"), 40)


def values_text(values: Sequence[Value]) -> str:
    """The values as aligned lines of plain text, in the order given.

    Args:
        values: arguments, outputs or intermediates of a report.

    Returns:
        A head, then one line a value: name, type and shape, spec (without trailing None), shard shape, bytes on each
        device.
    """
    rows = [("name", "type and shape", "spec", "shard", "per device")]
    for v in values:
        typed = f"{v.dtype} {format_shape(v.shape)}"
        rows.append(
            (clip(v.name, MAX_NAME), typed, spec_text(v), format_shape(v.shard_shape), format_bytes(v.bytes_per_device))
        )
    return "\n".join(columns(rows, right=(4,)))


def values_html(values: Sequence[Value], mesh: Any, *, caption: str = "") -> str:
    """The values as an HTML table with specs as coloured chips.

    Args:
        values: arguments, outputs or intermediates of a report.
        mesh: the mesh, in any form that `DeviceMesh.of` reads; it sets the axes' colours.
        caption: plain text above the table.

    Returns:
        A `<table>`; every text from outside is escaped.
    """
    rows = []
    for v in values:
        spec = spec_html(v.spec, mesh) if v.spec is not None and not v.manual else escape(spec_text(v))
        if v.fixed is not None and not v.manual:
            spec += f' <span style="{QUIET}">fixed by type</span>'
        made = " · ".join(filter(None, (v.op, v.source.short if v.source else "", v.name_stack)))
        label = f' <span style="{QUIET}">{escape(v.label)}</span>' if v.label and v.label != v.name else ""
        times = "" if v.count == 1 else f" × {escape(format_count(v.count))}"
        rows.append(
            (
                cell(f"<b>{escape(v.name)}</b>{label}{times}", title=made),
                cell(format_shape(v.shape)),
                cell(escape(v.dtype), quiet=True),
                cell(spec, title=str(v.spec or "")),
                cell(format_shape(v.shard_shape)),
                cell(format_bytes(v.bytes_per_device), right=True),
            )
        )
    return table(("name", "shape", "type", "spec", "shard", ">bytes per device"), rows, caption=caption)


def total_bytes(values: Sequence[Value]) -> tuple[float, int]:
    """(bytes on each device of the values whose bytes are known, number of values whose bytes are not known)."""
    known = [v.bytes_per_device for v in values if v.bytes_per_device is not None]
    return sum(known), len(values) - len(known)
