"""A step's cost on a machine: times with their arithmetic, memory, collectives by time, and the source of each
number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

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
from shardviz.view import document as doc
from shardviz.view.collectives import sums_table
from shardviz.view.placement import axes_section, orders_section
from shardviz.view.report import phase_words, traffic_words, work_blocks
from shardviz.view.values import beside_words

SAME = 1e-3
"""Differences below this share of a step are ignored; three digits do not show them."""
BOUND_WORDS = {"memory": "HBM traffic", "nothing": "nothing known"}
_MOST_COLLECTIVES = 40


def comparable(
    one: StepCost, other: StepCost, here: float, there: float
) -> tuple[float, float, Callable[[float], str]]:
    """Return the seconds of two plans and their formatter; chip-seconds if the machines differ in their number of
    chips."""
    chips = one.machine.num_chips, other.machine.num_chips
    if chips[0] == chips[1]:
        return here, there, format_seconds
    return here * chips[0], there * chips[1], lambda amount: f"{format_number(amount)} chip-seconds"


@doc.document.register
def step_cost_document(cost: StepCost) -> doc.Document:
    """Return everything about a cost."""
    blocks: list[doc.Block] = [step_section(cost), memory_section(cost.needs)]
    blocks.append(axes_section(cost.placement))
    if cost.collectives:
        blocks.append(orders_section(cost))
        blocks += [longest_section(cost), sums_table(cost.collectives, "source", lines=cost.report.source, timed=True)]
    blocks += work_sections(cost)
    blocks.append(sources_section(cost))
    lead = (doc.words("mesh"), doc.mesh_axes(cost.mesh), doc.words(f"; {level_words(cost)}"))
    title = (doc.words(cost.program, strong=True), doc.words(f"on {cost.machine}"))
    return doc.Document(title=title, lead=(lead, *doc.folded_axes(cost.mesh)), blocks=tuple(blocks), mesh=cost.mesh)


def headline(cost: StepCost) -> str:
    """Return `7.60 s (6.61 – 8.21 s); bound by compute`."""
    bound = BOUND_WORDS.get(cost.bound, cost.bound)
    if cost.seconds is None:
        least = format_seconds(cost.lower)
        return f"at least {least}, by {bound}; a lower bound, because FLOPs are not known at level {cost.level}"
    band = band_words(cost)
    text = f"{step_words(cost)}{f' ({band})' if band else ''}; bound by {bound}"
    if cost.report.cost is not None and cost.report.cost.unknown_loops:
        text += f"; {plural(cost.report.cost.unknown_loops, 'loop')} of unknown trip count counted once"
    if cost.report.cost is not None and cost.report.cost.opaque:
        text += f"; compute leaves out {', '.join(cost.report.cost.opaque)}, whose FLOPs are not known"
    return text + (f"; without {plural(len(cost.unknown), 'collective')} of unknown time" if cost.unknown else "")


def step_words(cost: StepCost) -> str:
    """Return `7.60 s`, or `≥ 4.99 s` if some FLOPs are unknown."""
    return f"≥ {format_seconds(cost.lower)}" if cost.seconds is None else format_seconds(cost.seconds)


def band_words(cost: StepCost) -> str:
    """Return the step's band from measured steps, `6.61 – 8.21 s`; empty without measurements.

    If measured steps deviate to one side, so that the prediction is outside the band: `usually 1.3 – 1.6 times this`.
    """
    low, high, off = cost.step.low, cost.step.high, cost.step.accuracy
    if cost.seconds is None or low is None or high is None or off is None:
        return ""
    if not low <= cost.seconds <= high:
        return f"usually {off.low:.2g} – {off.high:.2g} times this"
    return pair(format_seconds(low), format_seconds(high), " – ")


def pair(one: str, other: str, between: str) -> str:
    """Return two amounts, with one unit if the units are equal: `17.9 – 31.2 s`."""
    (number, _, unit), (_, _, also) = one.rpartition(" "), other.rpartition(" ")
    return f"{number if unit == also else one}{between}{other}"


def seconds_words(cost: StepCost) -> str:
    """Return the basis of the step's seconds, their error, and the bounds of full and no overlap."""
    if cost.seconds is None:
        return ""
    overlap = f"{format_seconds(cost.lower)} with full overlap, {format_seconds(cost.upper)} with none"
    if not cost.rests_on:
        return f"no schedule is known, so no overlap is assumed; {overlap}"
    off = cost.step.accuracy or "no measured step was compared at this level"
    return f"simulated from its schedule ({cost.rests_on}); {off}; {overlap}"


def level_words(cost: StepCost) -> str:
    """Return the level of the program behind the numbers."""
    return f"program compiled for {cost.report.target}" if cost.level == "compiled" else f"{cost.level} program"


def step_section(cost: StepCost) -> doc.Section:
    """Return the times as bars with their arithmetic, and the machine's utilisation."""
    return doc.section("Step", times_table(cost), *doc.notes(*_facts(cost)), lead=headline(cost), name="step")


def _facts(cost: StepCost) -> Iterator[str]:
    """Yield the basis of the seconds, FLOPs and traffic by phase, utilisation, and the source of the collectives."""
    counted, step = cost.report.cost, cost.step
    yield seconds_words(cost)
    if counted is not None and (phases := phase_words(counted)):
        yield f"FLOPs: {phases}"
    if counted is not None and cost.hbm_exact and counted.hbm_bytes == cost.hbm_bytes:
        yield f"HBM traffic: {traffic_words(counted)}"
    if cost.busy is not None:
        yield f"peak FLOPs in use: {cost.busy:.1%} (all matrix products, recomputed ones too)"
    yield from (mfu_words(cost), tokens_words(cost))
    if cost.as_run:
        seconds = cost.partitioned_seconds
        before = f": {format_seconds(step.communication)}; as partitioned {format_seconds(seconds)}"
        yield "collectives are those of the final HLO" + ("" if seconds is None else before)


def times_table(cost: StepCost) -> doc.Table:
    """Return compute, HBM traffic and communication, then each set of mesh axes, with the arithmetic."""
    step, over = cost.step, cost.by("axes")
    longest = max(step.compute, step.memory, step.communication) or 1.0

    def formulas(moved: CollectiveTotal) -> tuple[doc.Block, ...]:
        """Return the arithmetic of the longest collectives over some mesh axes."""
        alike = [a for a in cost.by("alike") if a.axes == moved.axes and a.whole_seconds is not None]
        more = f"and {len(alike) - _MOST_FORMULAS} more" if len(alike) > _MOST_FORMULAS else ""
        return doc.notes(*map(run_formula, alike[:_MOST_FORMULAS]), more)

    moved = {m.label: doc.Part(share=m.seconds / longest, axes=m.axes, tip=m.label) for m in over}
    compute, memory = (doc.Part(share=amount / longest, role="work") for amount in (step.compute, step.memory))
    computed, took = f"not known at level {cost.level}", None
    if cost.flops is not None:
        least = cost.report.cost.at_least if cost.report.cost else ""
        computed, took = least + " + ".join(s.formula for s in step.computing), step.compute
        computed += _scheduled(step.at_peak, step.compute)
    about = "" if cost.hbm_exact else "at least " if cost.timed is None else "about "
    read = _scheduled(step.moving.seconds, step.memory, ", without what collectives read and write" * cost.hbm_exact)
    many = f"{plural(len(cost.collectives), 'collective')}, {plural(cost.total.runs, 'run')}"
    whole = (
        ("compute", took, [compute], computed),
        ("HBM traffic", step.memory, [memory], f"{about}{step.moving.formula}{read}: {cost.hbm_formula}"),
        ("communication", step.communication, moved.values(), many if cost.collectives else "no collectives"),
    )
    rows: list[tuple[Any, ...]] = [
        (doc.words(name, strong=True), doc.seconds(t, strong=True), *rest, ()) for name, t, *rest in whole
    ]
    for m in over:
        part, name = replace(moved[m.label], tip=""), (doc.words("over", quiet=True), doc.axes(m.axes))
        rows.append((name, doc.seconds(m.seconds), [part], moved_words(m), formulas(m)))
    return doc.Rows(rows, folds="always", name="step-times").table(
        ("", lambda row: row[0]),
        (doc.right("in a step"), lambda row: row[1]),
        ("", lambda row: doc.bar(row[2])),
        (doc.wrapped("how"), lambda row: row[3]),
        detail=lambda row: row[4],
    )


def _scheduled(at_peak: float, seconds: float, why: str = "") -> str:
    """Return ` = 569 ms at the peak rate; 662 ms as scheduled`, if these differ."""
    if format_seconds(at_peak) == format_seconds(seconds):
        return ""
    return f" = {format_seconds(at_peak)} at the peak rate; {format_seconds(seconds)} as scheduled{why}"


_MOST_FORMULAS = 4


def run_formula(alike: CollectiveTotal) -> str:
    """Return `8 × 80 × 5.22 ms all-gather = 3.34 s: V / (2 W)`."""
    formula = alike.collectives[0].formula or ""
    return f"{run_words(alike)} {alike.collectives[0].kind} = {format_seconds(alike.whole_seconds)}: {formula}"


def moved_words(moved: CollectiveTotal) -> str:
    """Return `640 runs, 34.4 GB of operands: all-gather, all-reduce`."""
    text = f"{plural(moved.runs, 'run')}, {format_bytes(moved.bytes)} of operands: {', '.join(moved.kinds)}"
    if moved.untimed:
        text += f"; without {moved.untimed} of unknown time"
    return ("at most " if moved.at_most else "") + text


def mfu_words(cost: StepCost) -> str:
    """Return the model FLOPs utilisation with its arithmetic."""
    if cost.step.model_flops is None:
        return ""
    if cost.mfu is None:
        return "model FLOPs utilisation: not known, as the step's time is not"
    chips, peak = cost.machine.num_chips, cost.step.peak_flops_per_s
    sums = f"{format_flops(cost.step.model_flops)} / ({chips} chips x {format_flops(peak / chips)}/s x time)"
    return f"model FLOPs utilisation: {cost.mfu:.1%} = {sums}"


def tokens_words(cost: StepCost) -> str:
    """Return tokens (or samples) per second, per second and chip, and per step."""
    rate, each = cost.tokens_per_s, cost.tokens_per_s_per_chip
    if rate is None or each is None or cost.step.tokens is None:
        return ""
    return (
        f"{cost.tokens_are}: {format_number(rate)}/s; a chip {format_number(each)}/s; "
        f"{cost.step.tokens:,.0f} in a step ({cost.tokens_from})"
    )


PARTS = {
    "arguments": "what is passed to the step",
    "outputs": "results, without those that reuse the memory of a donated argument",
    "temporaries": "one block for everything in between; values that are not live at the same time share it",
    "constants and other": "constants, padding, and what the compiler keeps for itself",
    "kept for the backward pass": "what the forward pass keeps, by the traced program; a compiler may recompute some",
    "results and temporaries": "what else the step makes and holds at once, the results included; an estimate",
}
"""Part of the memory → its meaning."""


def memory_words(needs: Needs) -> str:
    """Return whether it fits, by which source, and the margin."""
    return ": ".join(filter(None, fit_words(needs)))


def fit_words(needs: Needs) -> tuple[str, str]:
    """Return whether it fits (`likely` for an estimate; empty if unknown), and the required memory with its source."""
    if needs.usable is None:
        return "", f"{needs.text}; a device's memory is not known"
    of = f"{needs.text} of {format_bytes(needs.usable)}"
    spare = needs.usable - needs.total
    room = f", {format_bytes(abs(spare))} {'to spare' if spare >= 0 else 'too much'}"
    is_known = needs.margin or needs.fits is not None
    return fits_word(needs) or "not known whether it fits", f"{of}{room if is_known else ''}; {needs.verdict}"


FIT_TONES = {True: "good", False: "bad", None: ""}
"""Whether it fits → the tone of the words."""


def fits_word(needs: Needs) -> str:
    """Return `fits` or `does not fit`, for an estimate `likely fits` or `likely does not fit`; empty if unknown."""
    word = doc.fits_word(needs.fits)
    return f"likely {word}" if word and not needs.sure else word


def memory_section(needs: Needs) -> doc.Section:
    """Return the parts of the memory as bars against a device's memory."""
    parts, beside = parts_table(needs.parts, needs.usable), doc.notes(*beside_words(needs.host, needs.unused))
    return doc.section("Memory on each device", parts, beside, lead=memory_words(needs))


def parts_table(parts: Mapping[str, float], usable: float | None, whole: str = "") -> doc.Table:
    """Return the parts of the memory, their sum if named (`whole`), the rest or excess, and the usable memory if
    known."""
    total = sum(parts.values())
    longest = max(usable or 0.0, total) or 1.0
    stretches = {what: doc.Part(share=size / longest, role="work", tip=what) for what, size in parts.items()}
    names = {what: doc.words(what, tip=PARTS.get(what, "")) for what in parts}
    rows = [(names[what], doc.nbytes(size), [stretches[what]]) for what, size in parts.items()]
    if whole:
        rows.append((doc.words(whole, strong=True), doc.nbytes(total, strong=True), list(stretches.values())))
    if usable is not None:
        spare, room = usable - total, lambda size: [doc.Part(share=size / longest, role="room")]
        rows.append((doc.words("to spare" if spare >= 0 else "too much"), doc.nbytes(abs(spare)), room(abs(spare))))
        rows.append((doc.words("usable", strong=True), doc.nbytes(usable, strong=True), room(usable)))
    return doc.Rows(rows, name="memory-parts").table(
        ("", lambda row: row[0]), (doc.right(), lambda row: row[1]), ("", lambda row: doc.bar(row[2]))
    )


def run_words(alike: CollectiveTotal) -> str:
    """Return `8 × 80 × 5.22 ms`: operations, runs of each per step, seconds per run."""
    c, many = alike.collectives[0], f"{alike.operations} × " if alike.operations > 1 else ""
    return f"{'at most ' if c.conditional else ''}{many}{format_count(c.count)} × {format_seconds(c.seconds)}"


def where(alike: CollectiveTotal) -> str:
    """Return the distinct source lines: `llama.py:58, 59, 60`."""
    lines: dict[str, list[str]] = {}
    for frame in dict.fromkeys(c.source and c.source.bare for c in alike.collectives):
        name, _, number = (frame.short if frame else NO_SOURCE).rpartition(":")
        lines.setdefault(name or number, []).extend([number] if name else [])
    parts = (f"{name}:{', '.join(sorted(at, key=int))}" if at else name for name, at in lines.items())
    return "; ".join(parts)


def longest_section(cost: StepCost) -> doc.Section:
    """Return the collectives, longest first, equal ones in one row, each with its formula."""
    alike = cost.by("alike")

    def lines(same: CollectiveTotal) -> doc.Inline:
        first, *others = dict.fromkeys(c.source and c.source.bare for c in same.collectives)
        if not others:
            return doc.line(first, cost.report.source)
        return replace(doc.words(where(same), quiet=True), selects=("line", first.short) if first else None)

    rows = doc.Rows(alike, first=12, most=_MOST_COLLECTIVES, kept=_MOST_COLLECTIVES, noun="row", name="longest").table(
        (doc.right("in a step"), lambda same: doc.seconds(same.whole_seconds, strong=True)),
        (doc.right("runs × each"), run_words),
        ("kind", lambda same: doc.words(same.kinds[0], strong=True, tip=", ".join(c.name for c in same.collectives))),
        ("over", lambda same: doc.axes(same.axes, tip=same.collectives[0].groups)),
        (doc.wrapped("line"), lines),
        detail=lambda same: doc.notes(same.collectives[0].formula or ""),
        selects=lambda same: ("collective", same.collectives[0].name),
    )
    count = plural(len(cost.collectives), "collective").capitalize()
    title = f"{count}, the longest in a step first; identical ones share a row"
    return doc.section(title, rows, fold="open" if len(alike) <= 16 else "closed")


def work_lines(cost: StepCost | None) -> dict[tuple[str, int], Frame]:
    """Return (file, line) → the frame of each line with compute."""
    work = () if cost is None or cost.report.cost is None else cost.report.cost.work
    return {(each.source.file, each.source.line): each.source for each in work if each.source is not None}


def work_sections(cost: StepCost) -> tuple[doc.Section, ...]:
    """Return FLOPs and HBM traffic by phase, line and module; empty if unknown."""
    if cost.report.cost is None:
        return ()
    own = cost.report.cost.hbm_bytes == cost.hbm_bytes
    counted = cost.report.cost if own else replace(cost.report.cost, hbm_bytes=None, once_hbm_bytes=None)
    blocks = work_blocks(counted, "HBM", cost.report.source)
    title = f"{counted.at_least}{format_flops(counted.flops)} on each device"
    return (doc.section(title, *blocks, fold="closed", name="flops"),) if blocks else ()


def sources_section(cost: StepCost) -> doc.Section:
    """Return the source of each number: the level, and the chip's data."""
    rows = list(cost.levels.items())
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
    numbers = doc.Rows(rows, name="sources").table(
        ("number", lambda each: each[0]), (doc.wrapped("from"), lambda each: each[1])
    )
    return doc.section("Where the numbers are from", numbers, fold="closed")
