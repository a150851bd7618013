"""The long lists as the page gets them: values and collectives, filtered, sorted and cut to what is looked at.

A program may have thousands of intermediates; the page asks for the rows it wants (`query`) and gets at most a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from shardviz.costs.step_cost import StepCost
from shardviz.records import Collective, Frame, TargetCollective, Value
from shardviz.records.amounts import format_bytes, format_count, format_seconds, plural
from shardviz.records.collectives import axes_words
from shardviz.records.report import Report
from shardviz.records.sums import CollectiveTotal, sum_collectives, total_of
from shardviz.view.collectives import how_words, runs_text
from shardviz.view.document import plain, value_spec
from shardviz.widgets.payload import Json, axes_json, axis_json, dims

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
        row |= {"dims": None, "sharding": plain(value_spec(value))}
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


def collectives_view(report: Report, query: Mapping[str, Any], cost: StepCost | None = None) -> Json:
    """The collectives, the longest first (without a cost: most bytes), and their sums by axes, source line and phase.

    Args:
        report: whose collectives, with their seconds where there is a cost (`StepCost.partitioned`).
        query: `line`, to see only those of a source line (`model.py:20`).
        cost: what the step costs on a machine.
    """
    line = query.get("line") or ""
    weigh = attrgetter("assumed_bytes" if cost is None else "assumed_seconds")
    ordered = sorted(report.collectives, key=lambda c: (-weigh(c), -c.assumed_bytes, c.kind, c.name))
    found = [c for c in ordered if not line or (c.source is not None and c.source.short == line)]
    most = max(map(weigh, ordered), default=0.0) or 1.0
    whole = total_of(ordered)
    view: Json = {
        "rows": [_collective_row(c, report, weigh(c) / most, cost) for c in found[:PAGE]],
        "found": len(found),
        "total": len(ordered),
        "by_axes": _sums(report, "axes", cost),
        "by_line": _sums(report, "source", cost),
        "by_phase": _sums(report, "phase", cost),
        "by_kind": _sums(report, "kind", cost),
        "bytes": whole.bytes_text,
    }
    if cost is not None:
        view |= {"target": cost.machine.text, "seconds": format_seconds(whole.seconds), "untimed": whole.untimed}
    if words := runs_text(report):
        view |= {"runs": words, "added": _added(report, cost)}
        if cost is not None and cost.as_run:
            view["run_seconds"] = format_seconds(cost.step.communication)
    return view


def _collective_row(c: Collective, report: Report, share: float, cost: StepCost | None) -> Json:
    row: Json = {
        "kind": c.kind,
        "axes": axes_json(c.axes),
        "dtype": c.dtype,
        "shape": list(c.shape),
        "bytes": format_bytes(c.operand_bytes),
        "count": format_count(c.count),
        "total": format_bytes(c.total_bytes),
        "share": share,
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
    if cost is not None:
        extra |= {"formula": c.formula, "each": format_seconds(c.seconds)}
        extra["seconds"] = format_seconds(c.total_seconds)
    if report.target_collectives and report.target != "cpu":
        extra["as_run"] = [_run(t, c, cost) for t in report.runs_as(c.name)] or [{"text": "not found again"}]
    return row | {key: item for key, item in extra.items() if item}


def _run(run: TargetCollective, stands_for: Collective | None, cost: StepCost | None) -> Json:
    """What the target runs for one collective of the partitioner: what is otherwise, and how long it takes."""
    c = run.collective
    differs = []
    if stands_for is None or c.kind != stands_for.kind:
        differs.append(c.kind)
    if stands_for is None or c.axes != stands_for.axes:
        differs.append(f"over {axes_words(c.axes)}")
    if stands_for is None or c.dtype != stands_for.dtype:
        differs.append(c.dtype)
    if stands_for is None or c.operand_bytes != stands_for.operand_bytes:
        differs.append(format_bytes(c.operand_bytes))
    if stands_for is None or c.count != stands_for.count:
        differs.append(f"× {format_count(c.count)}")
    view = {"text": " ".join(differs), "name": c.name, "how": how_words(run), "algorithm": run.algorithm}
    if len(run.stands_for) > 1:
        view["how"] = f"{view['how']} ({plural(len(run.stands_for), 'collective')})".strip()
    if cost is not None and cost.as_run:
        timed = next((t for t in cost.collectives if t.name == c.name), None)
        if timed is not None and timed.total_seconds is not None:
            view |= {"seconds": format_seconds(timed.total_seconds), "formula": timed.formula or ""}
    if not differs and not view["how"]:
        view["text"] = "as partitioned"
    return {key: item for key, item in view.items() if item}


def _added(report: Report, cost: StepCost | None) -> list[Json]:
    """What the target's compiler added of its own."""
    return [_run(t, None, cost) for t in report.target_collectives if not t.stands_for][:PAGE]


def _sums(report: Report, key: str, cost: StepCost | None) -> list[Json]:
    """A bar for each group, of seconds where there is a cost; its parts have the colours of the axes they move over."""
    size = attrgetter("bytes" if cost is None else "assumed_seconds")
    totals = sorted(sum_collectives(report.collectives, key), key=size, reverse=True)
    most = max(map(size, totals), default=0.0) or 1.0

    def text(total: CollectiveTotal) -> str:
        if cost is None:
            return total.bytes_text
        return format_seconds(total.assumed_seconds) + (" + not known" if total.untimed else "")

    def part(total: CollectiveTotal) -> Json:
        amount = size(total)
        said = format_bytes(amount) if cost is None else format_seconds(amount)
        return {"axes": axes_json(total.axes), "share": amount / most, "text": said}

    return [
        {
            "label": t.label,
            "text": text(t),
            "bytes": t.bytes_text,
            "sentence": t.sentence,
            "collectives": t.operations,
            "axes": axes_json(t.axes) if key == "axes" else None,
            "parts": [part(p) for p in sorted(t.parts, key=size, reverse=True) if size(p)],
            "line": report.line(t.key) if isinstance(t.key, Frame) else "",
        }
        for t in totals
    ]
