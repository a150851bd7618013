"""What a target's own compiler adds to a report, in plain text: whether it fits, what is alive, how collectives run."""

from __future__ import annotations

from collections import Counter

from shardviz.records import Memory, TargetCollective
from shardviz.render.chips import axes_words
from shardviz.render.format import clip, format_bytes, plural
from shardviz.render.values import columns
from shardviz.report import Report

MOST_ALIVE = 8

_WORDS = {
    "asynchronous": "begun and ended apart",
    "combined": "several in one",
    "split": "parts of one, or one again",
    "moved": "moved out of a loop",
    "turned": "turned into another kind",
    "converted": "in another element type",
    "fused": "inside a kernel",
    "added": "added by the target's compiler",
}


def fit_text(memory: Memory) -> str:
    """`it fits: 60.3 GB of 103 GB, 42.5 GB to spare`; empty where the machine's memory is not known."""
    if memory.hbm is None or memory.headroom is None:
        return ""
    of = f"{format_bytes(memory.takes)} of {format_bytes(memory.hbm)}"
    if memory.fits is False:
        return f"it DOES NOT FIT: {of}, {format_bytes(-memory.headroom)} too much"
    return f"it fits: {of}, {format_bytes(memory.headroom)} to spare"


def alive_rows(report: Report) -> list[tuple[str, ...]]:
    """The heaviest values at the peak: a heading, and a row for each; none for simulated devices."""
    if report.memory is None or report.memory.hbm is None or not report.memory.alive_at_peak:
        return []
    rows: list[tuple[str, ...]] = [("bytes", "kind", "name", "on one device", "line")]
    for a in report.memory.alive_at_peak[:MOST_ALIVE]:
        shape = f"{a.dtype}[{', '.join(map(str, a.shape))}]" if a.dtype else ""
        line = clip(report.line(a.source), 40)
        where = f"{a.source.short} {line}".strip() if a.source else ""
        rows.append((format_bytes(a.bytes), a.kind, clip(a.name, 48), shape, where))
    return rows


def runs_text(report: Report) -> str:
    """How the target runs the collectives; empty where that is not known, and for simulated devices."""
    runs = report.target_collectives
    if not runs or report.target == "cpu":
        return ""
    done = Counter(word for run in runs for word in run.how)
    parts = [f"{done[word]} {words}" for word, words in _WORDS.items() if done[word]]
    left = [c for c in report.collectives if not report.runs_as(c.name)]
    text = f"{plural(len(report.collectives), 'collective')} of the partitioner, {len(runs)} of the target's"
    text += f": {', '.join(parts)}" if parts else ""
    return text + (f"; {len(left):,} of the partitioner's not found again" if left else "")


def run_rows(runs: tuple[TargetCollective, ...]) -> list[tuple[str, ...]]:
    """A heading, and a row for each collective that does not run as it was partitioned."""
    rows: list[tuple[str, ...]] = [("runs as", "axes", "operand bytes", "how", "stands for")]
    for run in runs:
        if run.how:
            c = run.collective
            axes = axes_words(c.axes)
            stands_for = ", ".join(run.stands_for)
            rows.append((f"{c.kind} {c.name}", axes, format_bytes(c.operand_bytes), ", ".join(run.how), stands_for))
    return rows


def on_target_lines(report: Report) -> list[str]:
    """The lines that `report_text` puts after the memory plan."""
    lines = []
    if rows := alive_rows(report):
        lines += ["", "Heaviest values when the most is alive:"]
        lines += ["  " + line for line in columns(rows, right=(0,))]
    if text := runs_text(report):
        lines += ["", f"As the target runs them: {text}"]
    return lines
