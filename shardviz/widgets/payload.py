"""What the page is told, as plain JSON: the mesh, the inputs and outputs with their choices, and the headline.

Numbers come with their text, so that they read the same here, in a terminal and in a table: the page formats nothing.
A spec is a list of dimensions, each a list of axes, each a name or `[name, before, size]` for a part of an axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardviz.notation import Axis, Spec
from shardviz.records import Collective, Memory, Value
from shardviz.render.format import format_bytes, format_flops, plural
from shardviz.render.theme import axis_colours
from shardviz.render.totals import Total, total_of, totals_by
from shardviz.report import Report
from shardviz.widgets.edits import choices
from shardviz.widgets.names import tree
from shardviz.widgets.state import ExplorerState

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


def head_view(state: ExplorerState) -> Json:
    """The headline: what moves over which axis, how often, memory, problems."""
    report = state.report
    totals = totals_by(report.collectives, "axes")
    shown = _worth_showing(totals)
    problems, notes = severities(report)
    runs = total_of(report.collectives).runs_text
    view: Json = {
        "program": report.program,
        "mesh": str(report.mesh) or "no mesh axes",
        "devices": plural(report.mesh.size, "device"),
        "moved": [{"axes": axes_json(t.axes), "text": t.bytes_text, "title": t.sentence} for t in shown],
        "moved_rest": [f"{t.label}: {t.bytes_text}" for t in totals if t not in shown],
        "collectives": len(report.collectives),
        "runs": f"{runs} run" if runs == "1" else f"{runs} runs",
        "problems": problems,
        "notes": notes,
        "changed": len(state.changed),
        "values": len(report.arguments) + len(report.outputs) + len(report.intermediates),
        "arguments": format_bytes(_total(report.arguments)),
    }
    if report.cost is not None:
        view["flops"] = format_flops(report.cost.dot_flops)
    if report.memory is not None:
        view["memory"] = _memory_view(report.memory)
    return view


def _worth_showing(totals: Sequence[Total]) -> list[Total]:
    """At most four, and none whose bytes are less than a thousandth of all; what moves how often unknown stays."""
    least = sum(t.bytes for t in totals) / 1000
    return [t for t in totals if t.unknown or t.bytes >= least][:4]


def _memory_view(memory: Memory) -> Json:
    """The parts that are set aside, their sum, and the most that is alive at once."""
    whole, fresh = memory.set_aside, memory.outputs - memory.aliased
    together = "a block for everything in between; values that are not alive at the same time share places in it"
    in_place = f"of {format_bytes(memory.outputs)}, {format_bytes(memory.aliased)} go where donated arguments were"
    parts = [
        ("arguments", memory.arguments, "what the step is given"),
        ("temporaries", memory.temporaries, together),
        ("outputs not aliased", fresh, in_place),
    ]
    cpu = memory.target == "cpu"
    caution = "XLA's CPU compiler plans this; a TPU's or GPU's plan is another." if cpu else ""
    detail = "The CPU's keeps bf16 temporaries in f32 in places, where they take twice the bytes." if cpu else ""
    return {
        "parts": [
            {"label": label, "text": format_bytes(n), "share": n / (whole or 1), "title": title}
            for label, n, title in parts
        ],
        "total": format_bytes(whole),
        "peak": format_bytes(memory.peak),
        "peak_title": "the most that is in use at any one moment, by the live ranges of all values",
        "target": memory.target,
        "caution": caution,
        "detail": detail,
    }


def severities(report: Report) -> tuple[int, int]:
    """How many diagnostics are problems (warnings and errors), and how many are notes."""
    notes = sum(d.severity == "info" for d in report.diagnostics)
    return len(report.diagnostics) - notes, notes


def known_bytes(collective: Collective) -> float:
    """Operand bytes over the step; a run of unknown count is counted once."""
    return collective.operand_bytes * (1 if collective.count is None else collective.count)


def status_view(state: ExplorerState, seq: int, seconds: float | None) -> Json:
    """How far the answer is, what went wrong, and which change it answers."""
    return {
        "level": state.level,
        "status": state.status,
        "message": state.message,
        "busy": state.busy,
        "error": state.error,
        "failure": state.failure,
        "undo": len(state.past),
        "redo": len(state.ahead),
        "seq": seq,
        "seconds": None if seconds is None else round(seconds, 2),
    }


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


def _total(values: Iterable[Value]) -> float | None:
    known = [v.bytes_per_device for v in values]
    return None if any(n is None for n in known) else sum(n for n in known if n is not None)


def _sum(sizes: Iterable[float | None]) -> str:
    known = list(sizes)
    return format_bytes(None if any(n is None for n in known) else sum(n for n in known if n is not None))
