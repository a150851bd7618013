"""Rules about mesh axes. `brief.BRIEFS` describes each in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from shardviz.costs.batch import inputs_of, samples_of
from shardviz.costs.orders import Order, orders
from shardviz.diagnose.case import Case, quoted_axes, severity
from shardviz.diagnose.policy import GRAVE
from shardviz.diagnose.specs import divides, suggest_specs
from shardviz.notation import Spec
from shardviz.notation.spec import axis_name
from shardviz.records import Finding, Suggestion
from shardviz.records.amounts import format_seconds, plural
from shardviz.records.report import values_of


def idle_axes(case: Case) -> Iterator[Finding]:
    """Find mesh axes that shard nothing and that no collective spans: their devices repeat each other's work."""
    report = case.report
    unread = any(v.spec is None and not v.manual for v in values_of(report))
    if unread or any(c.axes is None for c in report.collectives):
        return  # a sharding or a collective is not expressible in axes
    for axis, size in report.mesh.shape.items():
        if size == 1 or axis in case.used_axes:
            continue
        lost = (case.flop_seconds(report.products) or 0.0) * (1 - 1 / size)
        seconds = {"seconds": lost, "share": lost / case.step} if lost and case.step and not case.spared_flops else {}
        yield Finding(
            f"idle-axis:{axis}",
            "warning",
            f"Nothing is sharded along the mesh axis {axis!r}: its {plural(size, 'device')} all hold the same arrays "
            "and repeat the same work.",
            why="no argument, output or constraint names it, so propagation has nothing to start from",
            axes=(axis,),
            numbers={"size": float(size), "bytes": case.argument_bytes, **seconds},
            suggestions=(*_batch_along(case, axis), *case.largest_over([axis])),
        )


def _batch_along(case: Case, axis: str) -> Iterator[Suggestion]:
    """Suggest the batch sharded along an axis too, then in place of axes that also shard other arrays."""
    report = case.report
    batch = [v for v in inputs_of(report) or samples_of(report) if v.spec is not None and v.shape and not v.manual]
    own = {v.name for v in batch}
    others = {axis_name(a) for v in case.arguments if v.name not in own and v.spec is not None for a in v.spec.axes}
    all_dims = [(v, Spec.of(v.spec, len(v.shape)).dims) for v in batch if not v.scanned]
    also = [(v, Spec(((*dims[0], axis), *dims[1:]))) for v, dims in all_dims]
    instead = [(v, Spec(((axis,), *dims[1:]))) for v, dims in all_dims if others & set(map(axis_name, dims[0]))]
    for specs in (also, instead):
        rows = [(v.name, spec) for v, spec in specs if divides(v, spec, report.mesh)]
        along = quoted_axes(rows[0][1].dims[0]) if rows else ""
        yield from suggest_specs("argument", rows, f"shard the batch of {plural(len(rows), 'argument')} along {along}")


def slow_order(case: Case) -> Iterator[Finding]:
    """Find a device order that saves a twentieth of the step in communication."""
    cost = case.cost
    if cost is None or not case.step or cost.unknown or cost.machine.chip.kind == "cpu":
        return
    tried = orders(cost)
    now = next((order for order in tried if order.now), None)
    best = min(tried, key=lambda order: order.communication, default=None)
    if now is None or best is None or now.communication - best.communication < GRAVE * case.step:
        return
    saved = now.communication - best.communication
    heaviest = cost.by("axes")[0]
    route = cost.placement.route(heaviest.axes) if heaviest.axes else None
    where = f" over {heaviest.label!r} ({route})" if route is not None else ""
    exposed = None if cost.timed is None else sum(each.seconds for each in cost.timeline.exposed)
    yield Finding(
        "slow-order",
        severity(exposed is None or exposed >= GRAVE * case.step),
        f"This device order of {cost.machine.text} sends most of the traffic{where} over slow links: in another order, "
        f"a step's communication would take {format_seconds(best.communication)} instead of "
        f"{format_seconds(now.communication)}.",
        why="the device order of the mesh decides which devices are neighbours along a mesh axis; arrays and specs "
        "stay as they are",
        axes=heaviest.axes or (),
        numbers={
            "seconds": saved,
            "share": saved / case.step,
            "communication_seconds": now.communication,
            "best_seconds": best.communication,
            "bytes": heaviest.bytes,
        },
        suggestions=(_laid_out(best, case),),
    )


def _laid_out(order: Order, case: Case) -> Suggestion:
    if isinstance(order.key, str):
        return Suggestion(kind="device-order", policy=order.key)
    one, other = order.key
    exchange = {one: other, other: one}
    return Suggestion(kind="device-order", axes=tuple(exchange.get(a, a) for a in case.report.mesh.names))
