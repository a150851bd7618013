"""The headline as the page gets it: does it fit, how long is a step, bound by what, what moves, how many problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shardviz.costs.step_cost import Needs, StepCost
from shardviz.paint.json import axes_json
from shardviz.records import Memory, Value
from shardviz.records.amounts import format_bytes, format_flops, format_seconds, plural
from shardviz.records.sums import CollectiveTotal, sum_collectives, total_of
from shardviz.session.explorer import ExplorerState
from shardviz.view.report import CPU_CAUTION, CPU_DETAIL
from shardviz.view.step_cost import BOUND_WORDS, level_words, memory_words, mfu_words, tokens_words
from shardviz.widgets.payload import Json, severities


def head_view(state: ExplorerState) -> Json:
    """The headline. What hangs on a machine is in it where there is one: `fit`, `step`, `bound`, or `trouble`."""
    report = state.report
    totals = sum_collectives(report.collectives, "axes")
    shown = _worth_showing(totals)
    problems, notes = severities(report)
    runs = total_of(report.collectives).runs_text
    view: Json = {
        "program": report.program,
        "mesh": str(report.mesh) or "no mesh axes",
        "devices": plural(report.mesh.size, "device"),
        "target": state.target,
        "moved": [{"axes": axes_json(t.axes), "text": t.bytes_text, "title": t.sentence} for t in shown],
        "moved_rest": [f"{t.label}: {t.bytes_text}" for t in totals if t not in shown],
        "collectives": len(report.collectives),
        "runs": "" if not report.collectives else f"{runs} run" if runs == "1" else f"{runs} runs",
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
    if state.cost is not None:
        view |= {"fit": _fit(state.cost), "step": _step(state.cost), "bound": _bound(state.cost)}
    elif state.cost_error:
        view["trouble"] = state.cost_error
    return view


def _worth_showing(totals: Sequence[CollectiveTotal]) -> list[CollectiveTotal]:
    """At most four, and none whose bytes are less than a thousandth of all; what moves how often unknown stays."""
    least = sum(t.bytes for t in totals) / 1000
    return [t for t in totals if t.unknown or t.bytes >= least][:4]


def _total(values: Iterable[Value]) -> float | None:
    known = [v.bytes_per_device for v in values]
    return None if any(n is None for n in known) else sum(n for n in known if n is not None)


# What hangs on the machine.

_VERDICTS = {True: ("yes", "fits"), False: ("no", "does not fit"), None: ("unknown", "memory on")}


def _fit(cost: StepCost) -> Json:
    """`41.2 / 103 GB`, and whether it fits: yes, no, or not known."""
    needs, target = cost.needs, cost.machine.text
    verdict, words = _VERDICTS[needs.fits]
    over = 0.0 if needs.usable is None else needs.total - needs.usable
    return {
        "verdict": verdict,
        "label": f"{words} {target}",
        "text": ("" if needs.complete else "≥ ") + _pair(format_bytes(needs.total), _usable_text(needs), " / "),
        "share": needs.total / needs.usable if needs.usable else 0.0,
        "over": f"{format_bytes(over)} too much" if needs.fits is False and over > 0 else "",
        "title": memory_words(needs),
    }


def _usable_text(needs: Needs) -> str:
    """What one device of the machine gives a program."""
    return format_bytes(needs.usable) if needs.usable is not None else "not known"


def _pair(one: str, other: str, between: str) -> str:
    """Two amounts, the unit said once where it is the same: `17.9 – 31.2 s`."""
    (number, _, unit), (_, _, also) = one.partition(" "), other.partition(" ")
    return f"{number if unit == also else one}{between}{other}"


def _step(cost: StepCost) -> Json:
    """`4.99 – 8.55 s`: from all overlapped to nothing overlapped."""
    best = format_seconds(cost.lower)
    if cost.upper is None:
        label, text = "step, at least", best
        title = f"{best} if all overlaps. FLOPs are not known at level {cost.level}, so neither is how much longer"
    else:
        label, worst = "step, full overlap – none", format_seconds(cost.upper)
        text = _pair(best, worst, " – ") if best != worst else best
        title = (
            f"{best} if communication, compute and HBM traffic all overlap: no step is shorter. {worst} if no "
            "communication overlaps with work on the chip"
        )
    more = [f"of the {level_words(cost)}", mfu_words(cost), tokens_words(cost)]
    if cost.unknown:
        more.append(f"{plural(len(cost.unknown), 'collective')} of unknown time left out")
    return {"label": label, "text": text, "title": "; ".join([title, *filter(None, more)])}


def _bound(cost: StepCost) -> Json:
    """What takes longest, and what comes next; communication by the axes that it takes longest over."""
    step, moved = cost.step, cost.by("axes")
    times = {"communication": step.communication, "memory": step.memory}
    if cost.flops is not None:
        times["compute"] = step.compute
    order = sorted((name for name in times if times[name]), key=lambda name: -times[name])
    most = moved[0] if moved and moved[0].axes and moved[0].seconds > 0.5 * step.communication else None
    links = "" if most is None else f" over {most.label}"
    word = {name: BOUND_WORDS.get(name, name) for name in times}
    over = {name: links if name == "communication" else "" for name in times}
    title = "; ".join(f"{word[name]}{over[name]} {format_seconds(times[name])}" for name in order)
    if cost.flops is None:
        title += f"; compute is not known at level {cost.level}"
    return {
        "what": word[order[0]] if order else BOUND_WORDS["nothing"],
        "over": over[order[0]] if order else "",
        "then": word[order[1]] + over[order[1]] if len(order) > 1 else "",
        "title": title,
    }


# The memory plan.


def _memory_view(memory: Memory) -> Json:
    """The parts that are set aside, their sum, and the most that is alive at once."""
    whole, fresh = memory.set_aside, memory.outputs - memory.aliased
    together = "a block for everything in between; values that are not alive at the same time share places in it"
    in_place = f"of {format_bytes(memory.outputs)}, {format_bytes(memory.aliased)} go where donated arguments were"
    parts: list[tuple[str, int, str]] = [
        ("arguments", memory.arguments, "what the step is given"),
        ("temporaries", memory.temporaries, together),
        ("outputs not aliased", fresh, in_place),
    ]
    cpu = memory.target == "cpu"
    return {
        "parts": [
            {"label": label, "text": format_bytes(n), "share": n / (whole or 1), "title": title}
            for label, n, title in parts
        ],
        "total": format_bytes(whole),
        "peak": format_bytes(memory.peak),
        "peak_title": "the most that is in use at any one moment, by the live ranges of all values",
        "target": memory.target,
        "room": _room(memory),
        "caution": CPU_CAUTION if cpu else "",
        "detail": CPU_DETAIL if cpu else "",
    }


def _room(memory: Memory) -> Any:
    """`of 103 GB, 42.5 GB to spare`; None where the device's memory is not known."""
    if memory.hbm is None or memory.headroom is None:
        return None
    fits = memory.fits is not False
    left = f"{format_bytes(abs(memory.headroom))} {'to spare' if memory.headroom >= 0 else 'too much'}"
    return {"fits": fits, "text": f"{'fits' if fits else 'does not fit'}: {format_bytes(memory.hbm)} usable, {left}"}
