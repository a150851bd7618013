"""What a step costs, as the page gets it: times with their arithmetic, the longest collectives, FLOPs, levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shardviz.costs import time_of
from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.records import CollectiveTotal, Cost, WorkTotal
from shardviz.records.amounts import format_flops, format_seconds, plural
from shardviz.records.report import Report
from shardviz.session.explorer import ExplorerState
from shardviz.view.document import plain
from shardviz.view.roofline import roofline_picture
from shardviz.view.step_cost import (
    as_run_words,
    busy_words,
    headline,
    level_words,
    mfu_words,
    moved_words,
    run_words,
    source_rows,
    times_table,
    tokens_words,
    where,
)
from shardviz.view.traffic import traffic_pictures
from shardviz.widgets.payload import Json, axes_json

MOST_COLLECTIVES, MOST_AXES, MOST_FORMULAS, MOST_WORK = 24, 8, 4, 8


def cost_view(state: ExplorerState) -> Json:
    """The cost of the step; where there is none, `why` alone says so."""
    if state.cost is None:
        return {"why": state.cost_error or "The target is cpu: simulated devices, with no speed to reckon with."}
    return cost_json(state.cost, state.report)


def cost_json(cost: StepCost, report: Report) -> Json:
    """`cost_view` of a cost and the report that it is of."""
    rows = cost.by("alike")
    return {
        "headline": headline(cost),
        "of": f"{cost.machine.text} · {level_words(cost)}",
        "words": [w for w in (mfu_words(cost), tokens_words(cost), busy_words(cost), as_run_words(cost)) if w],
        "step": _step(cost, rows),
        "collectives": [_collective(cost, row) for row in rows[:MOST_COLLECTIVES]],
        "more": f"{plural(len(rows) - MOST_COLLECTIVES, 'more row')}" if len(rows) > MOST_COLLECTIVES else "",
        "total": plural(len(cost.collectives), "collective"),
        "roofline": roofline_picture(cost).to_json(),
        "work": _work(report.cost, report),
        "levels": [list(row) for row in source_rows(cost)],
        "traffic": [picture.to_json() for picture in traffic_pictures(cost)],
    }


def _step(cost: StepCost, rows: Sequence[CollectiveTotal]) -> Json:
    """The bars; shares are of the longest time that the step can take."""
    whole = max(cost.upper or cost.step.upper, cost.lower) or 1.0
    moved = cost.by("axes")
    how = [plain(row.cells[3]) for row in times_table(cost).rows]
    compute = ("compute", None if cost.flops is None else cost.step.compute, how[0])
    hbm = ("HBM traffic", cost.step.memory, how[1])
    shown, rest = moved[:MOST_AXES], moved[MOST_AXES:]
    bars = [
        _bar("compute", "compute", compute[1], whole, [compute[2]], bound="matrix units"),
        _bar("HBM traffic", "HBM", hbm[1], whole, [hbm[2]], least=not cost.hbm_exact, bound="HBM"),
        *(_axes_bar(cost, m, whole, rows) for m in shown),
    ]
    if rest:
        seconds = math.fsum(m.seconds for m in rest)
        bars.append(_bar(f"over {plural(len(rest), 'more set')} of axes", "rest", seconds, whole, []))
    work = max(cost.step.compute, cost.step.memory)
    first = "compute" if cost.step.compute >= cost.step.memory else "HBM"
    stack: list[Json] = [{"name": first, "axes": None, "share": work / whole}]
    stack += [{"name": m.label, "axes": axes_json(m.axes), "share": m.seconds / whole} for m in shown]
    upper = cost.upper
    return {
        "bars": bars,
        "stack": [part for part in stack if part["share"]],
        "stack_text": format_seconds(upper) if upper is not None else f"at least {format_seconds(cost.step.upper)}",
        "lower": {"share": cost.lower / whole, "text": format_seconds(cost.lower)},
        "upper": None if upper is None else {"share": upper / whole, "text": format_seconds(upper)},
    }


def _bar(
    name: str,
    key: str,
    seconds: float | None,
    whole: float,
    lines: list[str],
    *,
    axes: Any = None,
    least: bool = False,
    bound: str = "",
) -> Json:
    text = format_seconds(seconds)
    return {
        "name": name,
        "key": key,
        "axes": axes,
        "share": (seconds or 0.0) / whole,
        "text": f"at least {text}" if least else text,
        "lines": lines,
        "bound": bound,
    }


def _axes_bar(cost: StepCost, moved: CollectiveTotal, whole: float, rows: Sequence[CollectiveTotal]) -> Json:
    """Of the axes: what moves, the arithmetic of what takes longest, and the link that it waits for."""
    own = [row for row in rows if row.axes == moved.axes]
    lines = [moved_words(moved)]
    for row in own[:MOST_FORMULAS]:
        c = row.collectives[0]
        lines.append(f"{run_words(row)} {c.kind} = {format_seconds(row.whole_seconds)}: {c.formula or ''}")
    if len(own) > MOST_FORMULAS:
        lines.append(f"and {len(own) - MOST_FORMULAS} more")
    name, axes = moved.label, axes_json(moved.axes)
    return _bar(name, f"axes-{name}", moved.seconds, whole, lines, axes=axes, bound=_bound(cost, own[0])["bound"])


def _collective(cost: StepCost, row: CollectiveTotal) -> Json:
    c = row.collectives[0]
    line = c.source and c.source.bare
    return {
        "seconds": format_seconds(row.whole_seconds),
        "runs": run_words(row),
        "kind": c.kind,
        "axes": axes_json(c.axes),
        "formula": c.formula or "",
        "at": line.short if line else "",
        "where": where(row),
        "line": cost.line(line),
        **_bound(cost, row),
    }


def _bound(cost: StepCost, row: CollectiveTotal) -> Json:
    """What one run waits for: a link, or the latency of its hops; and every bound that was reckoned."""
    try:
        found = time_of(row.collectives[0], cost.placement, cost.machine, exact=cost.exact)
    except ShardvizError:
        return {"bound": "", "floor": False, "terms": []}
    terms = [[t.bound, format_seconds(t.seconds), t.formula, t.source] for t in found.terms]
    return {"bound": found.bound, "floor": found.bound == "latency", "terms": terms}


def _work(cost: Cost | None, report: Report) -> Json:
    """FLOPs by phase, line and module as far as they are known, and what XLA's own analysis says."""
    if cost is None:
        return {}
    view: Json = {"total": format_flops(cost.dot_flops), "said": _analysis(cost)}
    if cost.work:
        view["phases"] = _sums(cost.by("phase"), lambda key: {"label": key})
        view["lines"] = _sums(
            [total for total in cost.by("source") if total.key is not None],
            lambda frame: {"label": frame.short, "at": frame.short, "line": report.line(frame)},
        )
        view["modules"] = _sums([total for total in cost.by("module") if total.key], lambda key: {"label": key})
    return view


def _sums(totals: Iterable[WorkTotal], label: Callable[[Any], Json]) -> Json:
    """FLOPs of all kinds, the most first."""
    ordered = [total for total in totals if total.flops]
    whole = math.fsum(total.flops for total in ordered)
    rows = [
        label(total.key)
        | {
            "text": format_flops(total.flops),
            "share": total.flops / ordered[0].flops,
            "part": f"{total.flops / whole:.1%}",
        }
        for total in ordered[:MOST_WORK]
    ]
    return {"rows": rows, "more": max(0, len(ordered) - MOST_WORK)}


def _analysis(cost: Cost) -> str:
    """One sentence: what `cost_analysis()` counts, beside what is counted here."""
    whole = cost.flops
    said = None if cost.stated is None else cost.stated.flops
    once = said if said is not None else cost.once_flops
    if once is None:
        return ""
    says = "says" if said is not None else "would say"
    text = f"XLA's cost_analysis() {says} {format_flops(once)} of {format_flops(whole)}"
    if once and whole / once > 1.01:
        return f"{text}: it counts each loop's body once, and here a body's FLOPs count as often as it runs."
    return f"{text}: no loop's body runs often enough to make a difference."
