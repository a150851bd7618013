"""What the page is told, as plain JSON: the mesh, the inputs and outputs with their choices, problems and the status.

Numbers come with their text, so that they read the same here, in a terminal and in a table: the page formats nothing.
A spec is a list of dimensions, each a list of axes, each a name or `[name, before, size]` for a part of an axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardviz.notation import Axis, Spec
from shardviz.paint.theme import axis_colours
from shardviz.records import Value
from shardviz.records.amounts import format_bytes
from shardviz.records.report import Report
from shardviz.session.edits import choices, tree
from shardviz.session.explorer import ExplorerState

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
    return None if spec is None else [[axis_json(a) for a in entry] for entry in Spec.of(spec, rank).dims]


def axis_json(axis: Axis) -> Any:
    """A name, or `[name, before, size]`."""
    return axis if isinstance(axis, str) else list(axis)


def axes_json(axes: tuple[Axis, ...] | None) -> list[Any] | None:
    """The axes that a collective moves over; None where they are no product of axes."""
    return None if axes is None else [axis_json(a) for a in axes]


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


_LEADS = {
    "levels-differ": "Where Shardy's prediction and XLA's partitioner differ; neither is wrong: Shardy decides how "
    "values are cut, XLA how to get from one cut to the next, and it may take another collective or put several into "
    "one. Once it has answered, everything shown here is XLA's.",
}
"""A sentence that introduces all diagnostics of a rule."""


def problems_view(state: ExplorerState) -> Json:
    """The report's diagnostics, the gravest first; those of a rule stand together."""
    order = {"error": 0, "warning": 1, "info": 2}
    found = sorted(state.report.diagnostics, key=lambda d: (order.get(d.severity, 3), d.rule))
    problems, notes = severities(state.report)
    rows = [
        {
            "severity": d.severity,
            "rule": d.rule,
            "message": d.message,
            "value": d.value,
            "source": d.source.short if d.source else "",
            "line": state.report.line(d.source),
        }
        for d in found
    ]
    leads = {rule: lead for rule, lead in _LEADS.items() if any(d.rule == rule for d in found)}
    return {"rows": rows, "problems": problems, "notes": notes, "leads": leads}


def _sum(sizes: Iterable[float | None]) -> str:
    known = list(sizes)
    return format_bytes(None if any(n is None for n in known) else sum(n for n in known if n is not None))
