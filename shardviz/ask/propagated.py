"""What Shardy's propagation found as a `Report`, level `propagated`."""

from __future__ import annotations

import math
from dataclasses import replace

from shardviz import diagnose
from shardviz.ask import rows
from shardviz.judge.report import Report
from shardviz.program.call import Call
from shardviz.program.lower import CPU, Lowered, LowerFor
from shardviz.program.propagate import Propagated
from shardviz.program.residuals import residuals
from shardviz.program.roles import gradients
from shardviz.records import Collectives, Cost, PlanRecord, Use


def report_of(
    call: Call,
    bound: PlanRecord,
    lowered: Lowered,
    propagated: Propagated,
    *,
    target: LowerFor = CPU,
) -> Report:
    arguments = tuple(
        replace(v, use=Use(v.optimizer, v.becomes, spec)) if (spec := propagated.read.get(v.name)) is not None else v
        for v in rows.arguments(lowered, bound)
    )
    outputs = rows.outputs(lowered, propagated.outputs, bound, gradients(lowered))
    outputs = tuple(replace(v, computed=propagated.computed.get(v.name)) for v in outputs)
    values = rows.labelled(propagated.values)
    intermediates = tuple(values[n] for n in propagated.shown)
    report = Report(
        level="propagated",
        program=call.name,
        plan=bound,
        arguments=arguments,
        outputs=outputs,
        intermediates=intermediates,
        collectives=Collectives(propagated.collectives),
        cost=_work(propagated),
        diagnostics=rows.notes(lowered, arguments, bound.mesh)
        + diagnose.unknown_loops(propagated.unknown_loops)
        + diagnose.unknown_flops(propagated.work)
        + diagnose.lowered_elsewhere(target.platform, lowered.platform)
        + diagnose.reshards_left(propagated.reshards_left)
        + diagnose.unforeseen(propagated.unforeseen)
        + diagnose.without_options(bound.options)
        + diagnose.unused_arguments(arguments),
        source=rows.source(intermediates, (*propagated.collectives, *propagated.work)),
        timings=propagated.seconds,
        versions=rows.versions(),
        residuals=residuals(propagated, lowered, bound),
        products=propagated.products,
        schedule=propagated.schedule,
    )
    return rows.annotated(report, call, target.platform)


def sketch_of(call: Call, bound: PlanRecord, lowered: Lowered, propagated: Propagated) -> Report:
    """A report with arguments, outputs, collectives, FLOPs and their schedule alone."""
    return Report(
        level="propagated",
        program=call.name,
        plan=bound,
        arguments=rows.arguments(lowered, bound),
        outputs=rows.outputs(lowered, propagated.outputs, bound),
        collectives=Collectives(propagated.collectives),
        cost=_work(propagated),
        timings=propagated.seconds,
        schedule=propagated.schedule,
    )


def _work(propagated: Propagated) -> Cost:
    flops = math.fsum(row.dot_flops for row in propagated.work)
    return Cost(dot_flops=flops, unknown_loops=propagated.unknown_loops, work=propagated.work)
