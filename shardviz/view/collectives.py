"""Collectives: sums by mesh axes, line, phase and kind as bars, a table of all, and how a target runs them.

Seconds are shown if there is a cost on a machine. If a target's own compiler has answered, the operations that replace
a collective are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardviz.costs.step_cost import StepCost
from shardviz.judge.report import Report
from shardviz.records import Collective, Frame, TargetCollective
from shardviz.records.amounts import COUNT_NOT_KNOWN, format_bytes, format_count, format_seconds, plural
from shardviz.records.collectives import axes_words, runs_as
from shardviz.records.sums import CollectiveTotal, sum_collectives, total_of
from shardviz.records.values import SourceText
from shardviz.view import document as doc

MOST = 40
_SUMS = {"axes": "By mesh axes", "source": "By source line", "phase": "By phase", "kind": "By kind"}

HOW_WORDS = {
    "asynchronous": "asynchronous",
    "combined": "combined",
    "split": "split or repeated",
    "moved": "moved out of a loop",
    "turned": "changed into another kind",
    "converted": "converted to another element type",
    "fused": "fused into a kernel",
    "added": "added by the target's compiler",
}
"""`TargetCollective.how` → words on how the target's program runs a collective."""


def total_text(collective: Collective) -> str:
    """Return the operand bytes per step: `34.4 GB`, `at most 1.05 MB` in a branch, or `count not known`."""
    if collective.total_bytes is None:
        return COUNT_NOT_KNOWN
    return ("at most " if collective.conditional else "") + format_bytes(collective.total_bytes)


def collectives_section(report: Report, cost: StepCost | None = None) -> doc.Section:
    """Return a report's collectives with a cost's seconds, longest first; without a cost the report's own target's, and
    without times by operand bytes."""
    collectives = report.collectives if cost is None else cost.partitioned
    if not collectives:
        return doc.section("Collectives", lead="not known at this level" if report.level == "notation" else "none")
    timed = any(c.seconds is not None for c in collectives)
    first = "the longest in a step" if timed else "the most operand bytes in a step"
    every = doc.section(
        f"All {plural(len(collectives), 'collective')}, {first} first",
        collectives_table(sorted(collectives, key=weight), lines=report.source),
        fold="closed",
        brief=True,
    )
    sums = (sums_table(collectives, key, lines=report.source, timed=timed) for key in ("axes", "source"))
    lead = f"{total_of(collectives).sentence}; {first} first"
    return doc.section("Collectives", kinds_table(collectives, timed), *sums, every, lead=lead)


def weight(c: Collective) -> tuple[float, float, str, str]:
    """Return a sort key: the longest first, then the most operand bytes."""
    return -c.assumed_seconds, -c.assumed_bytes, c.kind, c.name


def kinds_table(collectives: Sequence[Collective], timed: bool) -> doc.Table:
    """Return a row per kind and set of mesh axes."""
    return doc.Rows(sum_collectives(collectives, "kind_axes", order="seconds" if timed else "bytes"), most=MOST).table(
        ("kind", lambda t: t.kinds[0]),
        ("axes", lambda t: doc.axes(t.axes)),
        (doc.right("operations"), lambda t: f"{t.operations:,}"),
        (doc.right("runs"), lambda t: t.runs_text),
        (doc.right("operand bytes in a step"), lambda t: t.bytes_text),
        (doc.right("time in a step"), lambda t: doc.words(_seconds_text(t), strong=True)) if timed else None,
    )


def _seconds_text(total: CollectiveTotal) -> str:
    return format_seconds(total.assumed_seconds) + " + not known" * bool(total.untimed)


def sums_table(
    collectives: Sequence[Collective],
    key: str,
    *,
    lines: SourceText | None = None,
    timed: bool = False,
    brief: bool = False,
    most: int = 10,
) -> doc.Table:
    """Return a bar per group of collectives by `axes`, `source`, `phase` or `kind`, divided by mesh axes.

    Bars show seconds per step if `timed`, else bytes. `brief` omits the columns of runs and kinds.
    """
    totals = sum_collectives(collectives, key, order="seconds" if timed else "bytes")
    what, of = ("in a step", "seconds") if timed else ("operand bytes", "operand bytes per device")

    def amount(t: CollectiveTotal) -> float:
        return t.assumed_seconds if timed else t.bytes

    def stretch(part: CollectiveTotal) -> doc.Part:
        text = (format_seconds if timed else format_bytes)(amount(part))
        return doc.Part(share=amount(part) / longest, axes=part.axes, tip=f"{text} over {axes_words(part.axes)}")

    def text(t: CollectiveTotal) -> str:
        return _seconds_text(t) if timed else t.bytes_text

    longest = max(map(amount, totals), default=0.0) or 1.0
    return doc.Rows(totals, caption=f"{_SUMS[key]}, {of} in a step", most=most, noun="line").table(
        ("", lambda t: _key(t, key, lines)),
        ("", lambda t: doc.bar(map(stretch, t.parts))),
        (doc.right(what), lambda t: doc.words(text(t), strong=True, tip=t.sentence)),
        None if brief else (doc.right("runs"), lambda t: t.runs_text),
        None if brief else (doc.wrapped("kinds"), lambda t: doc.words(", ".join(t.kinds), quiet=True)),
    )


def _key(total: CollectiveTotal, key: str, lines: SourceText | None) -> doc.Piece:
    if key == "axes":
        return doc.axes(total.axes)
    if key == "source":
        return doc.line(total.key if isinstance(total.key, Frame) else None, lines)
    return doc.words(total.label)


def collectives_table(
    collectives: Sequence[Collective],
    *,
    lines: SourceText | None = None,
    compact: bool = False,
    asks: bool = False,
    most: int = MOST,
    name: str = "",
) -> doc.Table:
    """Return each collective in the given order: operand bytes per run and device, total and time per step, and the
    formula.

    Args:
        compact: put phase and line below the kind.
        asks: make each collective a question why it exists.
        lines: source texts; None shows line numbers only.
    """
    timed = any(c.seconds is not None for c in collectives)

    def source(c: Collective) -> tuple[doc.Piece, ...]:
        text = "" if c.constraint is None else f"for the constraint at {c.constraint.short}"
        return (doc.line(c.source, lines), *((doc.words(text, quiet=True),) if text else ()))

    def kind(c: Collective) -> tuple[doc.Piece, ...]:
        of = (doc.words(f"of {c.operand}", quiet=True),) if c.operand else ()
        where = ((_phase(c), *source(c)) if c.source else (_phase(c),)) if compact else ()
        return (doc.moved(c.kind, c.axes, c.source, tip=c.name), *of, *where)

    def over(c: Collective) -> tuple[doc.Piece, ...]:
        return (doc.axes(c.axes, tip=c.groups), *((doc.why(c.name),) if asks and c.name else ()))

    def time(c: Collective) -> doc.Piece:
        return doc.seconds(c.total_seconds, strong=True, tip=c.formula or "")

    def detail(c: Collective) -> Iterator[doc.Block]:
        if c.formula:
            each = doc.words(f"{format_seconds(c.seconds)} each time", quiet=True)
            yield doc.paragraph(doc.code(c.formula), each, quiet=True)

    return doc.Rows(collectives, most=most, kept=most, noun="collective", name=name).table(
        ("kind", kind),
        ("axes", over),
        ("result", lambda c: doc.shape(c.shape, dtype=c.dtype, tip="the result on one device")),
        (doc.right("operand bytes"), lambda c: doc.nbytes(c.operand_bytes)),
        (doc.right("count"), lambda c: format_count(c.count)),
        (doc.right("total per device"), lambda c: doc.words(total_text(c), strong=True)),
        (doc.right("time"), time) if timed else None,
        None if compact else ("phase", _phase),
        None if compact else ("source", source),
        detail=detail,
        selects=lambda c: ("collective", c.name),
    )


def _phase(c: Collective) -> doc.Piece:
    return doc.words(c.phase + (", written by the user" if c.origin == "user" else ""), quiet=True)


def runs_section(report: Report, timed: Mapping[str, Collective] | None = None, **more: Any) -> tuple[doc.Block, ...]:
    """Return how the target runs the collectives, with a row for each that differs from the partitioned one.

    `timed` has the collectives of a cost by name. Empty if unknown, and for simulated devices. `more` is as for
    `Section`.
    """
    runs, timed = report.target_collectives, timed or {}
    if not runs or report.target == "cpu":
        return ()
    done = Counter(word for run in runs for word in run.how)
    parts = [f"{done[word]} {text_of}" for word, text_of in HOW_WORDS.items() if done[word]]
    unmatched = sum(not runs_as(c.name, runs) for c in report.collectives)
    text = f"{plural(len(report.collectives), 'collective')} after the partitioner, {len(runs)} in the final HLO"
    text += f": {', '.join(parts)}" if parts else ""
    text += f"; {unmatched:,} of the partitioner's not matched" if unmatched else ""

    def kind(run: TargetCollective) -> doc.Inline:
        return doc.words(run.collective.kind, strong=True), doc.code(run.collective.name, quiet=True)

    def time(run: TargetCollective) -> doc.Piece:
        c = timed.get(run.collective.name)
        return doc.seconds(c and c.total_seconds, strong=True, tip=(c and c.formula) or "")

    rows = doc.Rows([run for run in runs if run.how], most=MOST, noun="collective", name="target-runs").table(
        ("runs as", kind),
        ("axes", lambda run: doc.axes(run.collective.axes)),
        (doc.right("operand bytes"), lambda run: doc.nbytes(run.collective.operand_bytes)),
        (doc.right("count"), lambda run: format_count(run.collective.count)),
        (doc.right("time"), time) if timed else None,
        (doc.wrapped("how"), lambda run: ", ".join(HOW_WORDS.get(word, word) for word in run.how)),
        (doc.wrapped("stands for"), lambda run: doc.words(", ".join(run.stands_for), quiet=True)),
        detail=lambda run: doc.notes((c.formula or "") if (c := timed.get(run.collective.name)) else ""),
    )
    return (doc.section("Final HLO", rows, lead=text, **more),)
