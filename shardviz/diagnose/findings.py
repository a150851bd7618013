"""All findings of a report: its diagnostics, and the findings of each rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from shardviz.diagnose.axes import idle_axes, slow_order
from shardviz.diagnose.case import Case
from shardviz.diagnose.compiled import with_seconds
from shardviz.diagnose.feeding import comes_back_otherwise, donated, gathered_results, laid_otherwise
from shardviz.diagnose.memory import kept_dominates, kept_whole, padded, too_much
from shardviz.diagnose.moves import moves
from shardviz.diagnose.products import repeated_work, unfitting
from shardviz.diagnose.siblings import less_sharded, read_in_slices, stepped_along, unlike_parameter
from shardviz.notation.spec import axis_name
from shardviz.records import Finding, Findings
from shardviz.records.report import ReportRecord, values_of

RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    *(idle_axes, slow_order, moves, repeated_work, unfitting),
    *(less_sharded, unlike_parameter, read_in_slices, stepped_along, kept_whole, padded),
    *(comes_back_otherwise, gathered_results, donated, laid_otherwise),
    *(too_much, kept_dominates),
)
"""Every rule that needs a finished report."""


def findings(report: ReportRecord, target: Any = None) -> Findings:
    """Return a report's findings, gravest first.

    Args:
        report: a report of any level.
        target: the machine whose seconds count, or the report's cost on it; None for the report's own target.

    Returns:
        The report's diagnostics and the findings of all rules: errors first, then by seconds, then by bytes. Ids are
            unique.

    Raises:
        TargetError, MeshError: for a given target, as `sv.cost`.
    """
    case = Case(report, target)
    rules = RULES if _agrees(report) else ()
    all_findings = [*with_seconds(report.diagnostics, case), *(finding for rule in rules for finding in rule(case))]
    seen: dict[str, int] = {}
    for place, finding in enumerate(all_findings):
        seen[finding.id] = times = seen.get(finding.id, 0) + 1
        if times > 1:
            all_findings[place] = replace(finding, id=f"{finding.id}#{times}")
    return Findings(sorted(all_findings, key=lambda finding: finding.weight))


def _agrees(report: ReportRecord) -> bool:
    """Return whether all specs and axes fit the report's mesh and shapes; in a damaged file they may not."""
    mesh = report.mesh
    sharded = [(v.spec, v.shape, v.shard_shape) for v in (*values_of(report), *(r.value for r in report.residuals))]
    sharded += [(spec, v.shape, v.shard_shape) for v in values_of(report) for spec in (v.read, v.computed)]
    arrays = ((c, c.shape if c.array is None else c.array) for c in report.collectives)
    sharded += [(spec, shape, shape) for c, shape in arrays for spec in (c.before, c.after)]
    names = set(mesh.names)
    axes = {axis_name(a) for spec, _, _ in sharded if spec is not None for a in spec.axes}
    axes |= {axis_name(a) for c in report.collectives for a in c.axes or ()}
    axes |= {axis_name(a) for v in values_of(report) for a in v.manual}
    factors = ((p, (axes for f in p.factors for axes in (f.batch, f.crossed))) for p in report.products)
    of_products = (some for p, rest in factors for some in (p.repeated, p.left_axes, p.right_axes, *rest))
    axes |= {axis_name(a) for some in of_products for a in some}
    return axes <= names and all(
        (shard is None or len(shard) == len(shape)) and (spec is None or len(spec.dims) <= len(shape))
        for spec, shape, shard in sharded
    )
