"""All findings of a report: its diagnostics, and the findings of each rule. A finding also has a brief form, for a row
beside its cost, its line and its fix.

>>> brief(Finding("table-gathered:embed", "warning", "A lookup gathers ...", value="embed", axes=("data",)))
"A lookup gathers the whole table embed over 'data'"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from shardviz.diagnose.case import Case, quoted_axes
from shardviz.diagnose.compiled import with_seconds
from shardviz.diagnose.feeding import comes_back_otherwise, donated, gathered_results, laid_otherwise
from shardviz.diagnose.memory import kept_dominates, kept_whole, padded, too_much
from shardviz.diagnose.moves import moves, slow_order
from shardviz.diagnose.products import idle_axes, repeated_work, unfitting
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
    values, collectives, products = values_of(report), report.collectives, report.products
    sharded = [(v.spec, v.shape, v.shard_shape) for v in (*values, *(r.value for r in report.residuals))]
    sharded += [(spec, v.shape, None) for v in values for spec in (v.read, v.computed)]
    sharded += [
        (spec, c.shape if c.array is None else c.array, None) for c in collectives for spec in (c.before, c.after)
    ]
    axes = [spec.axes for spec, _, _ in sharded if spec is not None]
    axes += [*(c.axes or () for c in collectives), *(v.manual for v in values)]
    axes += [some for p in products for some in (p.repeated, p.left_axes, p.right_axes)]
    axes += [some for p in products for factor in p.factors for some in (factor.batch, factor.crossed)]
    return {axis_name(axis) for some in axes for axis in some} <= set(report.mesh.names) and all(
        (shard is None or len(shard) == len(shape)) and (spec is None or len(spec.dims) <= len(shape))
        for spec, shape, shard in sharded
    )


BRIEFS = {
    "idle-axis": "Nothing is sharded along {axes}; devices repeat the same work",
    "slow-order": "This device order sends most of the traffic over slow links",
    "involuntary-rematerialisation": "XLA gathers a whole array on every device as last resort",
    "comes-back-otherwise": "{value} comes back with another sharding, so the step compiles twice",
    "result-gathered": "{value} is computed sharded, but the plan asks for it gathered",
    "not-donated": "{value} could be donated; its new value takes new memory",
    "donation-copied": "A loop computes the new {value} elsewhere, then copies it",
    "laid-otherwise": "A TPU copies {value} at each call, to read its rows",
    "kept-whole": "Activations kept for the backward pass are replicated along {axes}",
    "padded": "A dimension does not divide by its axes, so devices hold padding",
    "kept-dominates": "Activations kept for the backward pass take most of the memory",
    "gathered-each-run": "Each run of a loop gathers {value}, which stays the same",
    "stack-gathered": "A whole stack is gathered, though a loop reads single slices",
    "summed-each-run": "Each run of a loop adds partial sums over {axes}",
    "operands-unlike": "{value} is sharded unlike an array that it is combined with",
    "halo": "A convolution runs along a sharded dimension and exchanges borders",
    "there-and-back": "An array is resharded and back again, unused in between",
    "along-shards": "An operation runs along a dimension that {axes} shards",
    "table-gathered": "A lookup gathers the whole table {value} over {axes}",
    "gathered-wide": "An array is communicated in a wider type than it needs",
    "sum-sliced": "A psum gives each device the whole sum; it keeps a slice",
    "gathered-then-sliced": "An all_gather gives each device everything; it keeps a slice",
    "gathered-then-summed": "An all_gather collects all arrays only to add them",
    "repeated-work": "The devices along {axes} repeat the same matrix products",
    "conflict": "The operands of a product are sharded along different axes",
    "partial-sums": "A product sums over a dimension that only its weight shards",
    "unpaired": "The two operands of a product are both sharded by columns",
    "large-constant": "The function closes over large arrays, replicated on each device",
    "less-sharded": "{values} replicated along {axes}, unlike others",
    "unlike-parameter": "{values} sharded unlike the parameters",
    "read-in-slices": "{values} replicated; each device reads only a slice",
    "steps-along": "A loop steps along a dimension that {axes} shards",
    "not-divided": "No dimension of {value} divides by {axes}",
}
"""Rule → what its findings say; `values` counts the further arrays, and has their verb."""


def brief(finding: Finding) -> str:
    """Return a finding's cause in at most twelve words; or the beginning of its text if the rule has no such words."""
    if finding.rule not in BRIEFS:
        return re.split(r"(?<=[.;]) ", finding.text, maxsplit=1)[0]
    more, value = round(finding.numbers.get("arrays", 1.0)) - 1, finding.value or "an array"
    values = f"{value} and {more} more are" if more > 0 else f"{value} is"
    return BRIEFS[finding.rule].format(axes=quoted_axes(finding.axes), value=value, values=values)
