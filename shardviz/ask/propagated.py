"""The result of Shardy's propagation as a `Report`, level `propagated`."""

from __future__ import annotations

import math
from dataclasses import replace

from shardviz.ask import rows
from shardviz.diagnose import levels
from shardviz.judge.report import Report
from shardviz.propagate.lower import CPU, Lowered, LowerFor
from shardviz.propagate.propagate import Propagated
from shardviz.propagate.propagated import PropagatedReading
from shardviz.propagate.residuals import residuals
from shardviz.propagate.roles import roles
from shardviz.records import Collectives, Cost, PlanRecord, Use
from shardviz.records.amounts import plural
from shardviz.tracing.call import Call


def report_of(
    call: Call, bound: PlanRecord, lowered: Lowered, propagated: Propagated, *, target: LowerFor = CPU
) -> Report:
    reading, base = propagated.reading, sketch_of(call, bound, lowered, propagated)
    renewals = dict(zip((output.name for output in base.outputs), reading.listing.renewals, strict=True))
    arguments = tuple(
        v if (read, renewal) == (None, "") else replace(v, use=Use(v.optimizer, v.becomes, read, renewal))
        for v in base.arguments
        for read, renewal in [(propagated.read.get(v.name), renewals.get(v.becomes, ""))]
    )
    of_backward = roles(lowered).gradients
    outputs = (
        v if (gradient, computed) == (False, None) else replace(v, gradient=gradient, computed=computed)
        for v in base.outputs
        for gradient, computed in [(v.name in of_backward, propagated.computed.get(v.name))]
    )
    values = rows.labelled(reading.values)
    intermediates = tuple(values[n] for n in reading.shown)
    cost = _cost(reading)
    report = replace(
        base,
        arguments=arguments,
        outputs=tuple(outputs),
        intermediates=intermediates,
        diagnostics=rows.notes(lowered, arguments, bound.mesh, cost, target.platform)
        + levels.note("reshards-left", plural(reading.reshards_left, "resharding") if reading.reshards_left else "")
        + levels.unforeseen(reading.unforeseen)
        + levels.note("options-left-out", ", ".join(bound.options)),
        source=rows.source(intermediates, (*reading.collectives, *cost.work)),
        versions=rows.versions(),
        residuals=residuals(propagated, lowered, bound),
        products=tuple(reading.products),
    )
    return rows.annotated(report, call, target.platform)


def sketch_of(call: Call, bound: PlanRecord, lowered: Lowered, propagated: Propagated) -> Report:
    """Return a report with arguments, outputs, collectives, FLOPs and their schedule only."""
    return Report(
        level="propagated",
        program=call.name,
        plan=bound,
        arguments=rows.arguments(lowered, bound),
        outputs=rows.outputs(lowered, propagated.outputs, bound),
        collectives=Collectives(propagated.reading.collectives),
        cost=_cost(propagated.reading),
        timings=propagated.seconds,
        schedule=propagated.reading.schedule,
    )


def _cost(reading: PropagatedReading) -> Cost:
    work = reading.tally.rows
    return Cost(dot_flops=math.fsum(row.dot_flops for row in work), unknown_loops=reading.unknown_loops, work=work)
