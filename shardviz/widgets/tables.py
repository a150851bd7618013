"""The long lists as the page gets them: values and collectives, filtered, sorted and cut to what is looked at.

A program may have thousands of intermediates; the page asks for the rows it wants (`query`) and gets at most a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardviz.records import Collective, Frame, Value
from shardviz.render.format import format_bytes, format_count
from shardviz.report import Report
from shardviz.widgets.payload import Json, axes_key, axis_json, dims, known_bytes

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
        (role, v) for role, v in everything
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
    row: Json = {"role": role, "name": value.name, "shape": list(value.shape), "dtype": value.dtype,
                 "dims": dims(value.spec, len(value.shape)), "bytes": format_bytes(value.bytes_per_device)}
    if value.spec is not None and value.spec.unreduced:
        row["unreduced"] = [axis_json(a) for a in value.spec.unreduced]
    if value.spec is None and value.sharding:
        row["sharding"] = next(iter(value.sharding.values()))
    if value.shard_shape is not None:
        row["shard"] = list(value.shard_shape)
    for key, item in (("label", value.label), ("op", value.op), ("source", value.source and value.source.short),
                      ("changed", value.name in changed), ("count", format_count(value.count) if value.count != 1 else "")):
        if item:
            row[key] = item
    return row


def collectives_view(report: Report, query: Mapping[str, Any]) -> Json:
    """The collectives, most bytes first, and their sums by mesh axes, by source line and by phase."""
    line = query.get("line") or ""
    ordered = sorted(report.collectives, key=lambda c: (-known_bytes(c), c.kind, c.name))
    found = [c for c in ordered if not line or (c.source is not None and c.source.short == line)]
    most = max((known_bytes(c) for c in ordered), default=0.0) or 1.0
    return {
        "rows": [_collective_row(c, report, most) for c in found[:PAGE]], "found": len(found), "total": len(ordered),
        "by_axes": _sums(ordered, lambda c: axes_key(c.axes), report),
        "by_line": _sums(ordered, lambda c: c.source.short if c.source else "no source line", report),
        "by_phase": _sums(ordered, lambda c: c.phase, report),
        "by_kind": _sums(ordered, lambda c: c.kind, report),
        "bytes": format_bytes(sum(map(known_bytes, ordered))),
    }


def _collective_row(c: Collective, report: Report, most: float) -> Json:
    row: Json = {
        "kind": c.kind, "axes": None if c.axes is None else [axis_json(a) for a in c.axes], "dtype": c.dtype,
        "shape": list(c.shape), "bytes": format_bytes(c.operand_bytes), "count": format_count(c.count),
        "total": format_bytes(c.total_bytes), "share": known_bytes(c) / most, "phase": c.phase,
    }
    extra = {"origin": c.origin if c.origin != "partitioner" else "", "operand": c.operand, "group": c.group_size,
             "source": c.source.short if c.source else "", "line": report.line(c.source), "name": c.name,
             "conditional": c.conditional, "result": format_bytes(c.result_bytes)}
    return row | {key: item for key, item in extra.items() if item}


def _sums(collectives: Iterable[Collective], key: Any, report: Report) -> list[Json]:
    groups: dict[str, list[Collective]] = {}
    for c in collectives:
        groups.setdefault(key(c), []).append(c)
    totals = {name: sum(map(known_bytes, group)) for name, group in groups.items()}
    most = max(totals.values(), default=0.0) or 1.0
    rows = []
    for name in sorted(groups, key=lambda n: (-totals[n], n)):
        group = groups[name]
        axes = group[0].axes
        rows.append({
            "label": name, "text": format_bytes(totals[name]), "share": totals[name] / most, "collectives": len(group),
            "axes": None if axes is None or axes_key(axes) != name else [axis_json(a) for a in axes],
            "parts": _parts(group, most), "line": report.line(_first_source(group)),
        })
    return rows


def _first_source(group: list[Collective]) -> Frame | None:
    return group[0].source


def _parts(group: list[Collective], most: float) -> list[Json]:
    """A bar's parts: one for each mesh axis, so that it has their colours."""
    sums: dict[tuple[Any, ...] | None, float] = {}
    for c in group:
        sums[c.axes] = sums.get(c.axes, 0.0) + known_bytes(c)
    ordered = sorted(sums.items(), key=lambda item: (-item[1], axes_key(item[0])))
    return [{"axes": None if axes is None else [axis_json(a) for a in axes], "share": n / most, "text": format_bytes(n)}
            for axes, n in ordered if n]
