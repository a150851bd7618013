"""The memory tab as the page gets it: what a device must hold, against what it has, and what is alive at the peak."""

from __future__ import annotations

from collections.abc import Sequence

from shardviz.costs.step_cost import memory_parts
from shardviz.diagnose.compiled import what_helps
from shardviz.records import Alive, Memory
from shardviz.records.amounts import format_bytes, format_shape
from shardviz.records.report import Report
from shardviz.session.explorer import ExplorerState
from shardviz.view.report import code_text, stated_text
from shardviz.view.step_cost import memory_words
from shardviz.widgets.headline import CPU_CAUTION, CPU_DETAIL, usable_text
from shardviz.widgets.payload import Json

MOST_ALIVE = 30

_MEANING = {
    "arguments": "what the step is given",
    "outputs": "what it gives back, but for what goes where a donated argument was",
    "temporaries": "one block for everything in between; values not alive at the same time share places in it",
    "constants and other": "constants, and what the compiler rounds up or keeps for itself",
    "kept for the backward pass": "what the forward pass keeps, by the traced program; a compiler may recompute some",
}


def memory_view(state: ExplorerState) -> Json:
    """The parts against the device's memory, the verdict in words, and the heaviest values.

    Below level `compiled` the parts are a lower bound, and the values are those that are in it.
    """
    report, cost = state.report, state.cost
    plan = report.memory
    if cost is not None:
        needs = cost.needs
        parts, usable, complete = dict(needs.parts), needs.usable, needs.complete
        verdict = {True: "yes", False: "no", None: "unknown"}[needs.fits]
        words, source, room = _after_verdict(memory_words(needs)), needs.source, usable_text(needs)
    else:
        parts, usable, complete = memory_parts(report), None, plan is not None
        verdict, words, source, room = "unknown", _words(state), "", ""
    total = sum(parts.values())
    scale = max(total, usable or 0.0) or 1.0
    return {
        "target": state.target,
        "verdict": verdict,
        "words": words,
        "complete": complete,
        "total": format_bytes(total),
        "usable": room,
        "source": source,
        "line": usable / scale if usable else None,
        "parts": [
            {"label": what, "text": format_bytes(n), "share": n / scale, "title": _MEANING.get(what, what)}
            for what, n in parts.items()
        ],
        "peak": _peak(plan) if plan is not None else "",
        "code": code_text(plan) if plan is not None else "",
        "stated": stated_text(plan) if plan is not None else "",
        "finishable": state.finishable,
        "helps": _helps(report, parts, usable) if verdict == "no" else [],
        "rows": _rows(report, _alive(report)),
        "alive": plan is not None and bool(plan.alive_at_peak),
        "caution": _caution(plan),
    }


def _after_verdict(words: str) -> str:
    """The words without the verdict that they begin with, which the page says in its own way."""
    head, colon, rest = words.partition(": ")
    return rest if colon and "fit" in head.lower() else words


def _words(state: ExplorerState) -> str:
    total = format_bytes(sum(memory_parts(state.report).values()))
    if state.cost_error:
        return f"at least {total}; {state.cost_error}"
    if state.report.memory is None:
        return f"at least {total}: no compiler has planned the memory yet, and no machine is chosen"
    return f"{total} by the plan of the compiler for {state.report.memory.target}; choose a machine to see if it fits"


def _peak(plan: Memory) -> str:
    text = f"alive at once, at most: {format_bytes(plan.peak)}"
    return text + (f"; in the chip's own memories: {format_bytes(plan.on_chip)}" if plan.on_chip else "")


def _caution(plan: Memory | None) -> str:
    if plan is None or plan.target != "cpu":
        return ""
    return f"{CPU_CAUTION} {CPU_DETAIL}"


def _helps(report: Report, parts: dict[str, float], usable: float | None) -> list[str]:
    plan = report.memory
    if plan is not None and plan.hbm:
        return what_helps(plan, plan.takes - plan.hbm, report.residual_bytes)
    over = sum(parts.values()) - (usable or 0.0)
    return [
        "cut the arguments over more mesh axes, or over larger ones",
        f"more devices, or chips with more memory ({format_bytes(over)} a device are missing)",
    ]


def _alive(report: Report) -> Sequence[Alive]:
    """What is alive at the peak by the compiler's plan; without one, the arguments and what is kept, heaviest first."""
    if report.memory is not None:
        return report.memory.alive_at_peak
    held = [
        Alive(
            name=v.name,
            bytes=round(v.bytes_per_device or 0),
            kind="argument",
            dtype=v.dtype,
            shape=v.shard_shape or (),
            source=v.source,
        )
        for v in report.arguments
    ]
    held += [
        Alive(
            name=r.value.label or r.value.name,
            bytes=round(r.value.bytes_per_device or 0),
            kind="kept for the backward pass",
            dtype=r.value.dtype,
            shape=r.value.shard_shape or (),
            source=r.value.source,
        )
        for r in report.residuals
        if r.takes_memory
    ]
    return sorted(held, key=lambda a: (-a.bytes, a.name))


def _rows(report: Report, alive: Sequence[Alive]) -> list[Json]:
    names = {v.name for v in report.values}
    most = max((a.bytes for a in alive), default=0) or 1
    rows = []
    for a in alive[:MOST_ALIVE]:
        row: Json = {
            "name": a.name,
            "text": format_bytes(a.bytes),
            "share": a.bytes / most,
            "kind": a.kind,
            "shape": f"{a.dtype}{format_shape(a.shape)}" if a.dtype else "",
            "source": a.source.short if a.source else "",
            "line": report.line(a.source),
        }
        if a.name in names:
            row["value"] = a.name
        rows.append({key: item for key, item in row.items() if item not in ("", None)})
    return rows
