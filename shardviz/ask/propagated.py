"""What Shardy's propagation found as a `Report`, level `propagated`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

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
    found: Propagated,
    *,
    target: LowerFor = CPU,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """The whole report.

    Args:
        call: what was traced.
        bound: the plan.
        lowered: the program.
        found: what Shardy found.
        target: what it was to be lowered for.
        texts: the program's texts.
    """
    arguments = tuple(
        replace(v, use=Use(v.optimizer, v.becomes, spec)) if (spec := found.read.get(v.name)) is not None else v
        for v in rows.arguments(lowered, bound)
    )
    outputs = rows.outputs(lowered, found.outputs, bound, gradients(lowered))
    outputs = tuple(replace(v, computed=found.computed.get(v.name)) for v in outputs)
    values = rows.labelled(found.values)
    intermediates = tuple(values[n] for n in found.shown)
    report = Report(
        level="propagated",
        program=call.name,
        plan=bound,
        arguments=arguments,
        outputs=outputs,
        intermediates=intermediates,
        collectives=Collectives(found.collectives),
        cost=_work(found),
        diagnostics=rows.notes(lowered, arguments, bound.mesh)
        + diagnose.unknown_loops(found.unknown_loops)
        + diagnose.unknown_flops(found.work)
        + diagnose.lowered_elsewhere(target.platform, lowered.platform)
        + diagnose.reshards_left(found.reshards_left)
        + diagnose.without_options(bound.options)
        + diagnose.unused_arguments(arguments),
        source=rows.source(intermediates, (*found.collectives, *found.work)),
        stages=texts,
        timings=found.seconds,
        versions=rows.versions(),
        residuals=residuals(found, lowered, bound),
        products=found.products,
        schedule=found.schedule,
    )
    return rows.annotated(report, call, target.platform)


def sketch_of(call: Call, bound: PlanRecord, lowered: Lowered, found: Propagated) -> Report:
    """A report with arguments, outputs, collectives and FLOPs alone."""
    return Report(
        level="propagated",
        program=call.name,
        plan=bound,
        arguments=rows.arguments(lowered, bound),
        outputs=rows.outputs(lowered, found.outputs, bound),
        collectives=Collectives(found.collectives),
        cost=_work(found),
        timings=found.seconds,
    )


def _work(found: Propagated) -> Cost:
    flops = math.fsum(row.dot_flops for row in found.work)
    return Cost(dot_flops=flops, unknown_loops=found.unknown_loops, work=found.work)
