"""The two pictures as the page gets them: the person's source with what happens on each line, and a shard map."""

from __future__ import annotations

from operator import attrgetter

from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.layouts import layout
from shardviz.paint.json import axes_json, axis_json
from shardviz.records import Collective, Value
from shardviz.records.amounts import format_bytes, format_seconds, format_shape
from shardviz.records.report import Report
from shardviz.records.sums import sum_collectives
from shardviz.view.rosetta import sharding_of
from shardviz.view.scene import Scene, Side, build_scene, coarsen, describe, notes
from shardviz.widgets.payload import Json, dims

MOST_LINES = 600
MOST_CELLS = 32
MOST_DEVICES = 4096


def source_view(report: Report, cost: StepCost | None = None) -> Json:
    """File by file the lines that the report knows, each with its values, its collectives and its share of the step.

    The share is of the seconds of a step where a cost is given, else of the bytes that move.

    Args:
        report: whose lines; its collectives with their seconds where there is a cost (`StepCost.partitioned`).
        cost: what its step costs.
    """
    at: dict[tuple[str, int], tuple[list[Value], list[Collective]]] = {}
    place = lambda frame: at.setdefault((frame.file, frame.line), ([], []))  # noqa: E731
    for value in report.intermediates:
        if value.source is not None:
            place(value.source)[0].append(value)
    for c in report.collectives:
        if c.source is not None:
            place(c.source)[1].append(c)
    computes = {} if cost is None else cost.compute_by_line()
    weigh = attrgetter("assumed_bytes" if cost is None else "assumed_seconds")
    moves = {where: sum(map(weigh, cs)) for where, (_, cs) in at.items()}
    most = max((moves.get(w, 0.0) + computes.get(w, 0.0) for w in {*moves, *computes}), default=0.0) or 1.0
    files, left = [], MOST_LINES
    for file, lines in sorted(report.source.items(), key=lambda item: -len(item[1])):
        numbers = sorted(lines)[:left]
        left -= len(numbers)
        rows = []
        for n in numbers:
            values, collectives = at.get((file, n), ([], []))
            row = _line(report, file, n, values, collectives)
            if n_seconds := computes.get((file, n), 0.0):
                row["compute"] = format_seconds(n_seconds)
                row["computing"] = n_seconds / most
            if collectives:
                row["heat"] = moves.get((file, n), 0.0) / most
                if cost is not None:
                    row["seconds"] = format_seconds(moves.get((file, n), 0.0))
            rows.append(row)
        files.append(
            {"file": file.replace("\\", "/").rsplit("/", 1)[-1] if "ipykernel_" not in file else "cell", "lines": rows}
        )
    run = cost is not None and cost.as_run
    return {
        "files": [f for f in files if f["lines"]],
        "communication": "communication as partitioned" if run else "communication",
    }


def _line(report: Report, file: str, number: int, values: list[Value], collectives: list[Collective]) -> Json:
    row: Json = {"n": number, "text": report.source[file][number].rstrip("\n")}
    frame = next((x.source for x in (*values, *collectives) if x.source is not None), None)
    if frame is not None:
        row["at"] = frame.short
    if values:
        shown = _main_values(values)
        row["values"] = [
            {
                "name": v.name,
                "label": v.label or v.op or v.name,
                "dims": dims(v.spec, len(v.shape)),
                "shape": format_shape(v.shape),
            }
            for v in shown
        ]
        row["more"] = len(values) - len(shown)
    if collectives:
        row["moved"], row["collectives"] = format_bytes(sum(c.assumed_bytes for c in collectives)), _merged(collectives)
    return row


def _main_values(values: list[Value]) -> list[Value]:
    """What the line is about: the value it assigns, in the forward pass if it has one there; at most two."""
    later = ("transpose(", "rematted_computation")
    forward = [v for v in values if not any(word in v.name_stack for word in later)] or values
    labelled = {v.label: v for v in forward if v.label}
    return list(labelled.values())[-2:] or forward[-1:]


def _merged(collectives: list[Collective]) -> list[Json]:
    """One entry for each kind over each set of axes."""
    rows = []
    for total in sum_collectives(collectives, "kind_axes"):
        sizes = {c.operand_bytes for c in total.collectives}
        rows.append(
            {
                "kind": total.kinds[0],
                "axes": axes_json(total.axes),
                "total": total.bytes_text,
                "count": total.runs_text,
                "bytes": format_bytes(sizes.pop()) if len(sizes) == 1 else "",
                "phases": sorted({c.phase for c in total.collectives}),
                "seconds": "" if total.untimed else format_seconds(total.seconds),
            }
        )
    return rows


def shards_view(report: Report, name: str, remark: str = "") -> Json:
    """The shard map of a value: the grid of slices, the devices in each, and the axes along its sides.

    Args:
        report: where the value is.
        name: the value's name; empty where none is selected.
        remark: what is to be said about which value this is, or why there is none.
    """
    value = next((v for v in report.values if v.name == name), None)
    if value is None:
        return {"name": name, "missing": bool(name), "remark": remark}
    view: Json = {
        "name": name,
        "label": value.label,
        "shape": format_shape(value.shape),
        "dtype": value.dtype,
        "dims": dims(value.spec, len(value.shape)),
        "bytes": format_bytes(value.bytes_per_device),
        "source": value.source.short if value.source else "",
        "line": report.line(value.source),
        "remark": remark,
    }
    try:
        cut = layout(value.shape, sharding_of(value, report.mesh), report.mesh)
    except ShardvizError:  # a manual or unknown sharding of which the report knows the text only
        return view | {"sharding": "; ".join(f"{k}: {s}" for k, s in value.sharding.items())}
    scene = coarsen(build_scene(cut), rows=MOST_CELLS, columns=MOST_CELLS, panels=16)
    panels = scene.devices.shape[0]
    return view | {
        "shard": format_shape(cut.shard_shape),
        "text": describe(scene),
        "notes": notes(scene),
        "merged": scene.merged,
        "replicas": cut.replicas,
        "labels": scene.labels(),
        "cells": _cells(scene),
        "aspect": scene.aspect,
        "rows": _side(scene.rows),
        "columns": _side(scene.columns),
        "panels": [
            {"text": scene.panel_text(p), "index": scene.index_text(p, 0, 0)[1:-1].split(", ")} for p in range(panels)
        ],
    }


def _cells(scene: Scene) -> list[int]:
    """The cell, counted through all panels, of the device at each place of the mesh; -1 where it holds nothing.

    Empty for meshes of very many devices.
    """
    ids = scene.mesh.ids()
    if len(ids) > MOST_DEVICES:
        return []
    held = scene.devices.reshape(scene.cells, -1)
    cell = {int(device): number for number, row in enumerate(held) for device in row}
    return [cell.get(int(device), -1) for device in ids]


def _side(side: Side) -> Json:
    bars = [{"axis": axis_json(axis), "spans": [list(s) for s in spans]} for axis, spans in side.coordinates()]
    return {
        "dimension": side.dimension,
        "size": side.size,
        "text": side.text(),
        "bars": bars,
        "cut": side.ways > 1,
        "slices": [side.slice_text(i) for i in range(side.cells)],
    }
