"""What the page is told, as plain JSON: Documents, the mesh, the inputs and outputs with their choices, the status.

Numbers come with their text, so that they read the same here, in a terminal and in a table: the page formats nothing.
A spec is a list of dimensions, each a list of axes, each a name or `[name, before, size]` for a part of an axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardviz.notation import Spec
from shardviz.paint.json import axes_json, json_of
from shardviz.paint.theme import axis_colours
from shardviz.records import Value
from shardviz.records.amounts import format_bytes
from shardviz.records.report import Report
from shardviz.session.edits import choices, tree
from shardviz.session.explorer import ExplorerState
from shardviz.view.document import Document

Json = dict[str, Any]
MOST_ROWS = 400


def mesh_view(state: ExplorerState) -> Json:
    """The mesh axes with their sizes and colours, and the number of devices."""
    mesh = state.plan.mesh
    colours = axis_colours(mesh)
    axes = [
        {
            "name": name,
            "size": size,
            "type": kind,
            "light": colours[name].light,
            "dark": colours[name].dark,
            "ink": colours[name].ink,
            "dark_ink": colours[name].dark_ink,
        }
        for name, size, kind in zip(mesh.names, mesh.sizes, mesh.types, strict=True)
    ]
    return {"axes": axes, "devices": mesh.size, "text": str(mesh), "ids": list(mesh.device_ids)}


def inputs_view(state: ExplorerState) -> Json:
    """The arguments as the rows of a tree; every leaf with its spec and, a dimension, what may be added to it."""
    specs = state.bound.in_specs
    donated = {a.name for a in state.program.arguments if a.donated}
    twins = {v.name: [name for _, name in state.twins(v.name)] for v in state.report.arguments[:MOST_ROWS]}
    return _tree_view(
        state,
        state.report.arguments,
        {v.name: specs.get(v.name) for v in state.report.arguments},
        lambda value: {"donated": value.name in donated, "twins": twins.get(value.name, [])},
    )


def outputs_view(state: ExplorerState) -> Json:
    """The outputs, likewise; `chosen` is true where the compiler chose."""
    specs = state.bound.out_specs
    return _tree_view(
        state,
        state.report.outputs,
        {v.name: specs.get(v.name) for v in state.report.outputs},
        lambda value: {"chosen": specs.get(value.name) is None},
    )


def _tree_view(state: ExplorerState, values: Sequence[Value], specs: Mapping[str, Spec | None], more: Any) -> Json:
    by_name = {v.name: v for v in values}
    branches = tree(by_name)
    rows = []
    for branch in branches[:MOST_ROWS]:
        row: Json = {"path": branch.path, "label": branch.label, "depth": branch.depth}
        if branch.leaves:
            inside = [v for n, v in by_name.items() if n.startswith(branch.path)]
            row |= {"leaves": branch.leaves, "bytes": _sum(v.bytes_per_device for v in inside)}
        else:
            value = by_name[branch.path]
            given = specs[branch.path]
            spec = given if given is not None else value.spec
            row |= _value_core(value, state.changed) | more(value)
            row["dims"] = dims(spec, len(value.shape))
            row["text"] = str((spec or Spec()).canonical())
            row["choices"] = _menus(value, spec, state)
        rows.append(row)
    return {"rows": rows, "hidden": max(0, len(branches) - MOST_ROWS), "leaves": len(by_name)}


def _menus(value: Value, spec: Spec | None, state: ExplorerState) -> list[list[Any]]:
    """By dimension and axis of the mesh: 1 (may be added), a reason, or [reason] where it may be moved here."""
    full = Spec.of(spec, len(value.shape))
    code = lambda c: 1 if c.legal else [c.reason] if c.move else c.reason  # noqa: E731
    return [[code(c) for c in choices(value.shape, full, state.plan.mesh, d)] for d in range(len(value.shape))]


def _value_core(value: Value, changed: Iterable[str]) -> Json:
    row: Json = {
        "name": value.name,
        "shape": list(value.shape),
        "dtype": value.dtype,
        "bytes": format_bytes(value.bytes_per_device),
        "changed": value.name in changed,
    }
    if value.shard_shape is not None:
        row["shard"] = list(value.shard_shape)
    return row


def dims(spec: Spec | None, rank: int) -> list[list[Any]] | None:
    """A spec as JSON; None where no PartitionSpec says it."""
    return None if spec is None else [axes_json(dim) or [] for dim in Spec.of(spec, rank).dims]


def pane(document: Document, **more: Any) -> Json:
    """What a tab shows: a Document, and what is no part of one."""
    return {"document": json_of(document), **more}


def severities(report: Report) -> tuple[int, int]:
    """How many diagnostics are problems (warnings and errors), and how many are notes."""
    notes = sum(d.severity == "info" for d in report.diagnostics)
    return len(report.diagnostics) - notes, notes


def status_view(state: ExplorerState, seq: int, seconds: float | None) -> Json:
    """How far the answer is, what went wrong, and which change it answers."""
    return {
        "level": state.level,
        "status": state.status,
        "message": state.message,
        "doing": _doing(state),
        "busy": state.busy,
        "error": state.error,
        "failure": state.failure,
        "undo": len(state.past),
        "redo": len(state.ahead),
        "seq": seq,
        "seconds": None if seconds is None else round(seconds, 2),
    }


def _doing(state: ExplorerState) -> str:
    """What a busy state is doing, in a few words; `message` is the whole sentence."""
    if not state.busy:
        return ""
    if state.status == "finishing":
        return "making machine code"
    if state.status != "propagating" and "simulated" not in state.message:
        return state.message.partition(";")[0]
    return "planning memory" if state.status == "partitioned" else "partitioning"


def _sum(sizes: Iterable[float | None]) -> str:
    known = list(sizes)
    return format_bytes(None if any(n is None for n in known) else sum(n for n in known if n is not None))
