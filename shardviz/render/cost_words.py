"""What the text, the HTML and the figures of a step's cost say: sentences, names and rows."""

from __future__ import annotations

from shardviz.costs.step_cost import Needs, StepCost
from shardviz.records import Frame
from shardviz.records.amounts import (
    format_bytes,
    format_count,
    format_flops,
    format_number,
    format_rate,
    format_seconds,
    plural,
)
from shardviz.records.sums import NO_SOURCE, CollectiveTotal
from shardviz.render.work import phase_words, traffic_words

BOUND_WORDS = {"memory": "HBM traffic", "nothing": "nothing that is known"}


def headline(cost: StepCost) -> str:
    """`4.99 s if all overlaps, 8.55 s if no communication does; bound by compute`."""
    best, bound = format_seconds(cost.lower), BOUND_WORDS.get(cost.bound, cost.bound)
    if cost.upper is None:
        return f"at least {best}, by {bound}; FLOPs are not known at level {cost.level}, so neither is how much longer"
    text = f"{best} if all overlaps, {format_seconds(cost.upper)} if no communication does; bound by {bound}"
    if cost.counted is not None and cost.counted.unknown_loops:
        text += f"; {plural(cost.counted.unknown_loops, 'loop')} of unknown trip count taken once"
    return text + (
        "; {} of unknown time left out".format(plural(len(cost.unknown), "collective")) if cost.unknown else ""
    )


def level_words(cost: StepCost) -> str:
    """Which program the numbers are of."""
    level = {"compiled": f"program compiled for {cost.compiled_for}"}.get(cost.level, f"{cost.level} program")
    return level + ("" if cost.exact else "; rings without the factor (N-1)/N")


def time_rows(cost: StepCost) -> list[tuple[str, float | None, str]]:
    """(what, seconds or None where not known, the arithmetic): compute, HBM, communication, then each of its axes."""
    step = cost.step
    compute = " + ".join(share.formula for share in step.computing)
    rows: list[tuple[str, float | None, str]] = [
        ("compute", None, f"not known at level {cost.level}")
        if cost.flops is None
        else ("compute", step.compute, compute),
        (
            "HBM traffic",
            step.memory,
            ("" if cost.hbm_exact else "at least ") + f"{step.moving.formula}: {cost.hbm_formula}",
        ),
        ("communication", step.communication, _communication(cost)),
    ]
    for moved in cost.by("axes"):
        rows.append((f"  {moved.label}", moved.seconds, moved_words(moved)))
    return rows


def _communication(cost: StepCost) -> str:
    if not cost.collectives:
        return "no collectives"
    runs = sum(c.count or 0 for c in cost.collectives)
    return f"{plural(len(cost.collectives), 'collective')}, {plural(runs, 'run')}"


def moved_words(moved: CollectiveTotal) -> str:
    """`640 runs, 34.4 GB of operands: all-gather, all-reduce`."""
    text = f"{plural(moved.runs, 'run')}, {format_bytes(moved.bytes)} of operands: {', '.join(moved.kinds)}"
    if moved.untimed:
        text += f"; {moved.untimed} of unknown time left out"
    return ("at most " if moved.at_most else "") + text


def phases_words(cost: StepCost) -> str:
    """FLOPs by phase, the optimizer's (`update`) apart; empty where the report does not tell."""
    words = "" if cost.counted is None else phase_words(cost.counted)
    return f"FLOPs: {words}" if words else ""


def moved_phases_words(cost: StepCost) -> str:
    """HBM traffic by phase, where it was counted for this machine; else empty."""
    counted = cost.counted
    if counted is None or not cost.hbm_exact or counted.hbm_bytes != cost.hbm_bytes:
        return ""
    return f"HBM traffic: {traffic_words(counted)}"


def heaviest(cost: StepCost) -> list[tuple[str, str, str, str, str]]:
    """FLOPs, their share, HBM bytes, name and text of each line that computes, the most FLOPs first."""
    counted = cost.counted
    if counted is None:
        return []
    rows = []
    for total in counted.by("source"):
        if total.flops:
            share = f"{total.flops / counted.flops:.1%}"
            moved = format_bytes(total.hbm_bytes) if counted.hbm_bytes == cost.hbm_bytes and total.hbm_bytes else ""
            text = cost.line(total.key) if isinstance(total.key, Frame) else ""
            rows.append((format_flops(total.flops), share, moved, total.label, text))
    return rows


def busy_words(cost: StepCost) -> str:
    """How much of the peak the matrix products are."""
    if cost.busy is None:
        return ""
    least, most = cost.busy
    return f"peak FLOPs in use: {least:.1%} to {most:.1%} (all matrix products, recomputed ones too)"


def mfu_words(cost: StepCost) -> str:
    """Model FLOPs utilisation with its arithmetic."""
    if cost.step.model_flops is None:
        return ""
    if cost.mfu is None:
        return "model FLOPs utilisation: not known, as the step's longest time is not"
    chips, peak = cost.machine.num_chips, cost.step.peak_flops_per_s
    sums = f"{format_flops(cost.step.model_flops)} / ({chips} chips x {format_flops(peak / chips)}/s x time)"
    return f"model FLOPs utilisation: {cost.mfu[0]:.1%} to {cost.mfu[1]:.1%} = {sums}"


def tokens_words(cost: StepCost) -> str:
    """Tokens (or samples) a second, and for each chip, and how many a step has."""
    both, each = cost.tokens_per_s, cost.tokens_per_s_per_chip
    if both is None or each is None or cost.step.tokens is None:
        return ""
    return (
        f"{cost.tokens_are}: {format_number(both[0])}/s to {format_number(both[1])}/s; "
        f"a chip {format_number(each[0])}/s to {format_number(each[1])}/s; "
        f"{cost.step.tokens:,.0f} in a step ({cost.tokens_from})"
    )


def as_run_words(cost: StepCost) -> str:
    """That the collectives are as the target's compiler runs them, and what the partitioner's would take."""
    if not cost.as_run:
        return ""
    text = "collectives are as the target's compiler runs them"
    if cost.partitioned_seconds is None:
        return text
    partitioned = format_seconds(cost.partitioned_seconds)
    return f"{text}: {format_seconds(cost.step.communication)}; as partitioned {partitioned}"


def memory_words(needs: Needs) -> str:
    """Whether it fits, who says so, and by how much."""
    total = format_bytes(needs.total)
    if needs.usable is None:
        return f"{'' if needs.complete else 'at least '}{total}; what a device has is not known"
    of = f"{total} of {format_bytes(needs.usable)}"
    left = needs.usable - needs.total
    room = f"{format_bytes(abs(left))} {'to spare' if left >= 0 else 'too much'}"
    if needs.complete:
        return f"{'fits' if needs.fits else 'DOES NOT FIT'}: {of}, {room}; {needs.verdict}"
    if needs.fits is False:
        return f"DOES NOT FIT: at least {of}, {room}; {needs.verdict}"
    over = "" if left >= 0 else f", {room} unless the compiler recomputes some of it"
    return f"not known whether it fits: at least {of}{over}; {needs.verdict}"


def placed_words(cost: StepCost) -> str:
    """Who chose the order of the devices."""
    return "in the mesh's own order" if cost.placement.chosen else "in the order that JAX's mesh_utils would choose"


def from_rows(cost: StepCost) -> list[tuple[str, ...]]:
    """Where each number is from: the level, and the chip's numbers with their sources."""
    rows: list[tuple[str, ...]] = [(what, where) for what, where in cost.levels.items()]
    chip = cost.machine.chip
    for what, name, of in (
        ("HBM", "hbm_bytes_per_s", "chip"),
        ("ICI link, one way", "ici_link_bytes_per_s", "chip"),
        ("DCN", "dcn_bytes_per_s", "chip"),
        ("NVLink, one way", "nvlink_bytes_per_s", "GPU"),
        ("out of an NVLink domain", "node_egress_bytes_per_s", "domain"),
    ):
        width = getattr(chip, name)
        if width and (name != "dcn_bytes_per_s" or cost.machine.num_slices > 1):
            rows.append((what, f"{format_rate(width)} a {of}: {chip.source(name)}"))
    if cost.needs.usable is not None:
        rows.append(("usable memory", f"{format_bytes(cost.needs.usable)} a device: {cost.needs.source}"))
    return rows


def longest(cost: StepCost) -> tuple[CollectiveTotal, ...]:
    """The collectives, those alike together, the longest in a step first; those of unknown time last."""
    return cost.by("alike")


def run_words(alike: CollectiveTotal) -> str:
    """`8 × 80 × 5.22 ms`: so many operations, runs of each in a step, seconds of a run."""
    c, many = alike.collectives[0], f"{alike.operations} × " if alike.operations > 1 else ""
    return f"{'at most ' if c.conditional else ''}{many}{format_count(c.count)} × {format_seconds(c.seconds)}"


def where(alike: CollectiveTotal) -> str:
    """The source lines, each once: `llama.py:58, 59, 60`."""
    lines: dict[str, list[str]] = {}
    for frame in dict.fromkeys(c.source and c.source.bare for c in alike.collectives):
        name, _, line = (frame.short if frame else NO_SOURCE).rpartition(":")
        lines.setdefault(name or line, []).extend([line] if name else [])
    parts = (f"{name}:{', '.join(sorted(at, key=int))}" if at else name for name, at in lines.items())
    return "; ".join(parts)
