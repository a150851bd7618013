"""The verdict: step time, memory, tokens per second and chip, and a sentence on what bounds the step.

The numbers are the cost's own. The sentence first says if the plan does not fit, then names unused mesh axes. Unless
both apply, the largest share of the step follows, with its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardviz.costs.spending import Spending, spendings
from shardviz.costs.step_cost import Needs, StepCost
from shardviz.explorer.cards import Results
from shardviz.notation.spec import axis_name
from shardviz.records.amounts import first_names, format_bytes, format_flops, format_number, format_seconds, plural
from shardviz.records.sums import sum_collectives
from shardviz.view import step_cost
from shardviz.view.document import Document, Paragraph, Piece, axes, line, paragraph, words
from shardviz.view.placement import no_times

_LEAST = 0.05
"""The smallest share of hidden communication that the verdict mentions."""
_VERBS = {
    "all-gather": "gathering",
    "all-reduce": "adding partial sums",
    "reduce-scatter": "adding partial sums",
    "all-to-all": "resharding",
    "ragged-all-to-all": "sending rows",
    "collective-permute": "passing shards on",
    "collective-broadcast": "broadcasting",
}


def verdict_document(results: Results) -> Document:
    """Return the paragraphs `top-step`, `top-memory` and `top-rate`, each an amount with words, and `verdict`; only the
    latter without a machine."""
    cost, report = results.cost(), results.report
    if cost is None:
        return Document(blocks=(paragraph(*_no_cost(results), name="verdict"),), mesh=report.mesh)
    room, idle = [*_no_room(cost)], [*_useless(results)]
    bound = [] if idle else _bound(cost, short=bool(room))  # three lines have no room for all
    verdict = paragraph(*room, *idle, *bound, name="verdict")
    step = words(step_cost.step_words(cost), strong=True, tip=step_cost.seconds_words(cost))
    label = f"a step, {step_cost.band_words(cost) or 'predicted'}"
    blocks = (paragraph(step, label=label, name="top-step"), _memory(cost.needs), _rate(cost), verdict)
    return Document.of(*blocks, mesh=report.mesh)


def _memory(needs: Needs) -> Paragraph:
    """Return `60.1 of 103 GB` and how much is free or missing; or that no compiler has planned it."""
    tab, tip = ("tab", "memory"), step_cost.memory_words(needs)
    if needs.usable is None:
        amount = words(needs.text, strong=True, tip=tip, selects=tab)
        return paragraph(amount, label="what a device has is not known", name="top-memory")
    spare = needs.usable - needs.total
    label = "estimated, may not fit" if spare < 0 else "estimated, not compiled"
    if needs.fits:
        label = f"{step_cost.fits_word(needs)}, {format_bytes(spare)} to spare"
    if needs.fits is False:
        label = f"{format_bytes(-spare)} too much" if spare < 0 else "does not fit"
    amount, _, rest = step_cost.pair(needs.text, format_bytes(needs.usable), " of ").partition(" of ")
    tone = "bad" if needs.fits is False else ""
    size = words(amount, strong=True, tone=tone, tip=tip, selects=tab)
    return paragraph(size, words(f"of {rest}"), label=label, name="top-memory")


def _rate(cost: StepCost) -> Paragraph | None:
    """Return tokens (or samples) per second and chip; chip-seconds if their number is unknown."""
    each = cost.tokens_per_s_per_chip
    if each is not None:
        rate = words(format_number(each), strong=True, tip=step_cost.tokens_words(cost))
        return paragraph(rate, label=f"{cost.tokens_are}/s a chip", name="top-rate")
    if cost.seconds is None:
        return None
    chips = cost.machine.num_chips
    tip = f"{chips:,} chips for {step_cost.step_words(cost)}"
    spent = words(format_number(cost.seconds * chips), strong=True, tip=tip)
    return paragraph(spent, label="chip-seconds a step", name="top-rate")


def _no_cost(results: Results) -> Iterator[Piece]:
    yield from no_times(results.priced()[0].trouble, "to see times, and what bounds the step.")
    moves = max(sum_collectives(results.report.collectives, "source"), key=lambda total: total.sent_bytes, default=None)
    if moves is not None:
        source = moves.collectives[0].source
        yield words("Most is sent" if source is not None else "Most is sent at a line that is not known")
        yield from () if source is None else (words("at"), line(source))
        yield words(f": {format_bytes(moves.sent_bytes)} by each device in a step.")


def _no_room(cost: StepCost) -> Iterator[Piece]:
    if cost.needs.fits is False:
        sentence, tip = f"{step_cost.fits_word(cost.needs).capitalize()}.", step_cost.memory_words(cost.needs)
        yield words(sentence, strong=True, tone="bad", tip=tip, selects=("tab", "memory"))
        if cost.needs.parts:
            part, size = max(cost.needs.parts.items(), key=lambda item: item[1])
            short = cost.bound == "compute"  # as what comes behind it is
            amount_text = f": {format_bytes(size)}." if short else f" take {format_bytes(size)} a device."
            yield words(part.capitalize() + amount_text, tip="on each device" if short else "")


def _useless(results: Results) -> Iterator[Piece]:
    """Yield the mesh axes that nothing is sharded along; the step needs as many times fewer chips."""
    idle = tuple(axis for f in results.findings if f.rule == "idle-axis" for axis in f.axes)
    if idle:
        mesh, chips = results.report.mesh, results.machine.num_chips
        size = math.prod(mesh.shape[axis_name(axis)] for axis in idle)
        yield axes(idle)
        tip = "the devices along them all hold the same arrays and repeat the same work"
        be = "is" if len(idle) == 1 else "are"
        yield words(f"{be} of no use:", strong=True, tone="warn", tip=tip)
        yield words(f"{chips:,} chips do what {chips // size:,} would.")


def _bound(cost: StepCost, *, short: bool) -> Iterator[Piece]:
    """Yield what takes longest; `short` if other sentences precede it, so that all fit three lines."""
    rows = spendings(cost)
    spent = {each.what: each for each in reversed(rows)}  # the one that costs most of each
    if cost.seconds is None:
        yield words("The compute is not known", strong=True)
        yield words(f"at level {cost.level}, so what bounds the step is not known.")
    elif cost.bound == "compute":
        yield from _compute(cost, spent.get("compute"), short=short)
    elif cost.bound == "memory":
        yield words("HBM-bound:", strong=True)
        yield words(f"{format_bytes(cost.hbm_bytes)} a device take {_of(cost.step.memory, cost)},")
        products = cost.step.compute
        yield words(f"the matrix products {format_seconds(products)}." if products else "there are no matrix products.")
    elif cost.bound == "communication":
        hidden = sum(each.loss.hidden for each in rows if each.what == "collective" and each.loss)
        yield from _communication(cost, spent.get("collective"), hidden)
    else:
        yield words("Nothing that is known takes time.")
    if cost.unknown:
        yield words(f"{plural(len(cost.unknown), 'collective')} of unknown time left out.", tone="warn")


def _compute(cost: StepCost, spent: Spending | None, *, short: bool) -> Iterator[Piece]:
    yield words("Compute-bound:", strong=True, tone="good" if cost.needs.fits is not False else "")
    taken = f"matrix products take {_of(cost.step.compute, cost)}{'.' if short else ''}"
    yield words(taken, tip=f"{format_flops(cost.flops)} on each device, as scheduled")
    if short:
        return
    lines = {} if spent is None else spent.lines
    if lines and (frame := step_cost.work_lines(cost).get(next(iter(lines)))) is not None:
        yield words(f", {lines[frame.file, frame.line] / sum(lines.values()):.0%} of that at")
        yield line(frame, tip=frame.text_in(cost.report.source))
    moved = cost.step.communication
    yield words(f"; communication {format_seconds(moved)}." if moved else "; nothing is communicated.")


def _communication(cost: StepCost, spent: Spending | None, hidden: float) -> Iterator[Piece]:
    """Yield `Communication-bound: collectives take 31 of 39 s, 4.1 s of it hidden; 30 s gathering x over data at
    llama.py:65.` `hidden`: seconds of communication behind other work."""
    yield words("Communication-bound:", strong=True, tone="bad")
    more = f", {format_seconds(hidden)} of it hidden" if hidden > _LEAST * cost.step.communication else ""
    yield words(f"collectives take {_of(cost.step.communication, cost)}{more}")
    if spent is None:
        yield words(".")
        return
    tip = f"{format_bytes(spent.bytes)} sent by each device"
    yield words(f"; {format_seconds(spent.seconds)} {_VERBS.get(spent.kind, spent.kind)}", tip=tip)
    names = dict.fromkeys(c.operand for c in spent.collectives)
    arguments = [v.name for v in cost.report.arguments if v.name in names]
    if arguments:
        yield words(first_names(arguments, 1), tip=", ".join(arguments), selects=("value", arguments[0]))
    yield words("over")
    yield axes(spent.axes)
    if spent.source is not None:
        yield words("at")
        yield line(spent.source, tip=spent.source.text_in(cost.report.source))
    asked = any("asked" in c.facts for c in spent.collectives)
    yield words(", which a sharding constraint asks for." if asked else ".")


def _of(seconds: float, cost: StepCost) -> str:
    """Return `4.99 of 8.35 s`."""
    return step_cost.pair(format_seconds(seconds), format_seconds(cost.seconds), " of ")
