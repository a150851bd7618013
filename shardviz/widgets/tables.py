"""The long lists as the page gets them: values and collectives, filtered, sorted and cut to what is looked at.

A program may have thousands of intermediates; the page asks for the rows it wants (`query`) and gets at most a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardviz.records import Collective, Frame, Value
from shardviz.render.format import format_bytes, format_count
from shardviz.render.totals import total_of, totals_by
from shardviz.render.values import spec_text
from shardviz.report import Report
from shardviz.widgets.payload import Json, axes_json, axis_json, dims, known_bytes

PAGE = 200


def values_view(report: Report, changed: frozenset[str], query: Mapping[str, Any]) -> Json:
    """The values that a query finds.

    Args:
        report: where they are.
        changed: the names that the last change sharded differently.
        query: `text` (words that must all occur in the name, label, operation, source or spec), `changed` (only those),
            `line` (only those of a source line, `model.py:20`), `sort` (`program` or `bytes`).
    """
    everything = [("argument", v) for v in report.arguments] + [("output", v) for v in report.outputs]
    everything += [("intermediate", v) for v in report.intermediates]
    words = str(query.get("text") or "").lower().split()
    line = query.get("line") or ""
    found = [
        (role, v)
        for role, v in everything
        if (not query.get("changed") or v.name in changed)
        and (not line or (v.source is not None and v.source.short == line))
        and (not words or all(w in _words(role, v) for w in words))
    ]
    if query.get("sort") == "bytes":
        found.sort(key=lambda item: -(item[1].bytes_per_device or 0))
    rows = [_value_row(role, v, changed) for role, v in found[:PAGE]]
    return {"rows": rows, "found": len(found), "total": len(everything), "changed": len(changed)}


def _words(role: str, value: Value) -> str:
    spec = value.spec.brackets() if value.spec is not None else ""
    source = value.source.short if value.source else ""
    return " ".join((role, value.name, value.label, value.op, source, value.dtype, spec)).lower()


def _value_row(role: str, value: Value, changed: frozenset[str]) -> Json:
    row: Json = {
        "role": role,
        "name": value.name,
        "shape": list(value.shape),
        "dtype": value.dtype,
        "dims": dims(value.spec, len(value.shape)),
        "bytes": format_bytes(value.bytes_per_device),
    }
    if value.spec is not None and value.spec.unreduced:
        row["unreduced"] = [axis_json(a) for a in value.spec.unreduced]
    if value.manual:
        row |= {"dims": None, "sharding": spec_text(value)}
    elif value.spec is None and value.sharding:
        row["sharding"] = next(iter(value.sharding.values()))
    if value.shard_shape is not None:
        row["shard"] = list(value.shard_shape)
    extra = {
        "label": value.label,
        "op": value.op,
        "source": value.source.short if value.source else "",
        "changed": value.name in changed,
        "count": format_count(value.count) if value.count != 1 else "",
    }
    return row | {key: item for key, item in extra.items() if item}


def collectives_view(report: Report, query: Mapping[str, Any]) -> Json:
    """The collectives, most bytes first, and their sums by mesh axes, by source line and by phase."""
    line = query.get("line") or ""
    ordered = sorted(report.collectives, key=lambda c: (-known_bytes(c), c.kind, c.name))
    found = [c for c in ordered if not line or (c.source is not None and c.source.short == line)]
    most = max((known_bytes(c) for c in ordered), default=0.0) or 1.0
    return {
        "rows": [_collective_row(c, report, most) for c in found[:PAGE]],
        "found": len(found),
        "total": len(ordered),
        "by_axes": _sums(report, "axes"),
        "by_line": _sums(report, "source"),
        "by_phase": _sums(report, "phase"),
        "by_kind": _sums(report, "kind"),
        "bytes": total_of(ordered).bytes_text,
    }


def _collective_row(c: Collective, report: Report, most: float) -> Json:
    row: Json = {
        "kind": c.kind,
        "axes": axes_json(c.axes),
        "dtype": c.dtype,
        "shape": list(c.shape),
        "bytes": format_bytes(c.operand_bytes),
        "count": format_count(c.count),
        "total": format_bytes(c.total_bytes),
        "share": known_bytes(c) / most,
        "phase": c.phase,
    }
    extra = {
        "origin": c.origin if c.origin != "partitioner" else "",
        "operand": c.operand,
        "group": c.group_size,
        "source": c.source.short if c.source else "",
        "line": report.line(c.source),
        "name": c.name,
        "conditional": c.conditional,
        "result": format_bytes(c.result_bytes),
    }
    return row | {key: item for key, item in extra.items() if item}


def _sums(report: Report, key: str) -> list[Json]:
    """A bar for each group; its parts have the colours of the axes that they move over."""
    totals = totals_by(report.collectives, key)
    most = max((t.bytes for t in totals), default=0.0) or 1.0
    return [
        {
            "label": t.label,
            "text": t.bytes_text,
            "sentence": t.sentence,
            "collectives": t.operations,
            "axes": axes_json(t.axes) if key == "axes" else None,
            "parts": [
                {"axes": axes_json(axes), "share": n / most, "text": format_bytes(n)} for axes, n in t.parts if n
            ],
            "line": report.line(t.key) if isinstance(t.key, Frame) else "",
        }
        for t in totals
    ]
