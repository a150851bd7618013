"""What a callable's kind adds to every report of it: its notes, and for a pmapped function pmap's own words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shardviz.notation import DeviceMesh
from shardviz.program.adapters import Call
from shardviz.program.adapters.pmap import sharding_spec
from shardviz.records import Value
from shardviz.report import Report


def annotated(report: Report, call: Call) -> Report:
    """The report with the call's notes; the arguments and outputs of a pmap also with `Value.sharding["pmap"]`."""
    if call.notes:
        report = replace(report, diagnostics=call.notes + report.diagnostics)
    if call.kind != "pmap":
        return report
    mesh = report.mesh
    return replace(report, arguments=_worded(report.arguments, mesh), outputs=_worded(report.outputs, mesh))


def _worded(values: Iterable[Value], mesh: DeviceMesh) -> tuple[Value, ...]:
    found = []
    for value in values:
        words = None if value.spec is None else sharding_spec(value.shape, value.spec, mesh)
        found.append(value if words is None else replace(value, sharding={**value.sharding, "pmap": str(words)}))
    return tuple(found)
