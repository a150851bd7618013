"""What a target's own compiler adds to a report, in plain text: whether it fits, what is alive, how collectives run."""

from __future__ import annotations

import textwrap
from collections import Counter

from shardviz.paint.columns import clip, columns
from shardviz.records import Memory, TargetCollective
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.report import Report
from shardviz.render.chips import axes_words

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


def code_text(memory: Memory) -> str:
    """`machine code 1.67 MB`, or why its size is not known."""
    if memory.code is not None:
        return f"machine code {format_bytes(memory.code)}"
    if memory.stated:
        return "machine code of a size that the compiler does not say"
    return "machine code not waited for (finish=True)"


def stated_text(memory: Memory) -> str:
    """What `memory_analysis()` says of a finished compile, and why its peak is another; empty where nobody asked."""
    found = {name.removesuffix("_bytes").removesuffix("_in"): n for name, n in memory.stated.items() if n}
    if not found:
        return ""
    said = ", ".join(f"{name.removesuffix('_size').replace('_', ' ')} {format_bytes(n)}" for name, n in found.items())
    peak = memory.stated.get("peak_memory_in_bytes", memory.peak)
    if memory.target == "cpu" and peak < memory.peak:
        said += " (a CPU's peak memory leaves temporaries out)"
    elif peak > memory.peak and memory.target.startswith("tpu"):
        said += " (peak memory with what is alive at once in the chip's own memory, in place of HBM's)"
    return said


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


def how_words(run: TargetCollective) -> str:
    """What was done to a collective, in words: `several in one, begun and ended apart`; empty where nothing was."""
    return ", ".join(_WORDS.get(word, word) for word in run.how)


def run_rows(runs: tuple[TargetCollective, ...]) -> list[tuple[str, ...]]:
    """A heading, and a row for each collective that does not run as it was partitioned, or whose algorithm is known."""
    told = any(run.algorithm for run in runs)
    heads = ("runs as", "axes", "operand bytes", "how", "stands for")
    rows: list[tuple[str, ...]] = [(*heads, "algorithm") if told else heads]
    for run in runs:
        if run.how or run.algorithm:
            c = run.collective
            row = f"{c.kind} {c.name}", axes_words(c.axes), format_bytes(c.operand_bytes), ", ".join(run.how)
            rows.append((*row, ", ".join(run.stands_for), *([run.algorithm] if told else [])))
    return rows


def algorithms_text(runs: tuple[TargetCollective, ...]) -> str:
    """How collectives go, in the compiler's own words, and how many go so; empty where it does not say."""
    found = Counter(run.algorithm for run in runs if run.algorithm)
    silent = len(runs) - found.total()
    if not found:
        return ""
    text = ", ".join(f"{words} ({count})" for words, count in sorted(found.items(), key=lambda row: (-row[1], row[0])))
    return text + (f"; not said of {silent}" if silent else "")


def on_target_lines(report: Report) -> list[str]:
    """The lines that `report_text` puts after the memory plan."""
    lines = []
    if report.memory is not None and (text := stated_text(report.memory)):
        lines += textwrap.wrap(f"memory_analysis() says: {text}", 100, initial_indent="  ", subsequent_indent="    ")
    if rows := alive_rows(report):
        lines += ["", "Heaviest values when the most is alive:"]
        lines += ["  " + line for line in columns(rows, right=(0,))]
    if text := runs_text(report):
        lines += ["", f"As the target runs them: {text}"]
        if words := algorithms_text(report.target_collectives):
            lines += textwrap.wrap(f"algorithms: {words}", 100, initial_indent="  ", subsequent_indent="    ")
    return lines
