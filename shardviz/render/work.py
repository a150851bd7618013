"""Where a step's FLOPs and its memory traffic are from: by phase, by source line, by module, in text and in HTML.

`forward 4.91 PFLOP, rematerialised 3.61 PFLOP, backward 9.81 PFLOP, update 35.3 GFLOP`: the update is the optimizer's
part. Loops are multiplied in; what XLA's `cost_analysis()` would say, and why that is less, is said with its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from shardviz.paint.columns import clip, columns, wrap
from shardviz.records import Cost, Frame, WorkTotal
from shardviz.records.amounts import format_bytes, format_flops, plural
from shardviz.render.chips import cell, table

PHASES: tuple[str, ...] = ("forward", "rematerialised", "backward", "update")
MOST_LINES, MOST_MODULES = 6, 6
_SAME, _WIDTH = 1.005, 100

Line = Callable[[Frame | None], str]
"""The text of a source line."""


def memory_name(target: str) -> str:
    """What a target's main memory is called: `HBM` on an accelerator, `main memory` on a CPU."""
    return "HBM" if target.startswith(("tpu", "gpu")) else "main memory"


def by_phase(cost: Cost) -> list[WorkTotal]:
    """The sums by phase, in the order in which a step runs."""
    totals = cost.by("phase")
    return sorted(totals, key=lambda t: PHASES.index(str(t.key)) if t.key in PHASES else len(PHASES))


def phase_words(cost: Cost) -> str:
    """`forward 4.91 PFLOP, backward 9.81 PFLOP`; empty where nothing tells."""
    return ", ".join(f"{t.key} {format_flops(t.flops)}" for t in by_phase(cost) if t.flops)


def traffic_words(cost: Cost) -> str:
    """`forward 6.28 TB, backward 10.6 TB`; empty where the level does not tell."""
    return ", ".join(f"{t.key} {format_bytes(t.hbm_bytes)}" for t in by_phase(cost) if t.hbm_bytes)


def why_words(cost: Cost, memory: str) -> str:
    """What XLA's `cost_analysis()` says and why it says less; empty where the level does not tell."""
    if not cost.once_flops:
        return ""
    text = f"cost_analysis() counts each loop's body once: {format_flops(cost.once_flops)}"
    times = cost.flops / cost.once_flops
    text += f"; loops make it {times:,.3g} times as much" if times > _SAME else ", and no loop adds to it"
    if cost.hbm_bytes and cost.once_hbm_bytes and cost.hbm_bytes > _SAME * cost.once_hbm_bytes:
        more = cost.hbm_bytes / cost.once_hbm_bytes
        text += f", and the memory traffic {more:,.3g} times {format_bytes(cost.once_hbm_bytes)}"
    if cost.stated is not None and cost.stated.flops is not None:
        text += f"; of the finished program it says {format_flops(cost.stated.flops)}"
        if cost.stated.bytes_accessed is not None:
            text += f" and {format_bytes(cost.stated.bytes_accessed)}"
            text += ", on-chip memory counted too" if memory == "HBM" else ""
    return text


def work_lines(cost: Cost, memory: str, line: Line) -> list[str]:
    """Lines of plain text: FLOPs and memory traffic by phase, why `cost_analysis()` differs, lines and modules.

    Args:
        cost: a report's.
        memory: as `memory_name` calls it.
        line: gives a source line's text.
    """
    sentences = (
        ("FLOPs: ", phase_words(cost)),
        (f"{memory} traffic: ", traffic_words(cost)),
        ("", why_words(cost, memory)),
    )
    lines = [f"  {part}" for head, text in sentences if text for part in wrap(f"{head}{text}", _WIDTH - 2, "  ")]
    sources, modules = cost.by("source"), [t for t in cost.by("module") if t.key]
    if not any(t.flops for t in sources):
        return lines
    moved = cost.hbm_bytes is not None
    heads = ["FLOPs", "share", *([memory] if moved else [])]
    for what, totals, most in (("line", sources, MOST_LINES), ("module", modules, MOST_MODULES)):
        if what == "module" and len(totals) < 2:
            continue
        rows = [(*heads, what, "")]
        for total in totals[:most]:
            text = clip(line(total.key), 50) if isinstance(total.key, Frame) else ""
            rows.append((*_numbers(total, cost, moved), total.label, text))
        lines += ["", *("  " + each for each in columns(rows, right=range(len(heads))))]
        if len(totals) > most:
            lines.append(f"  … and {plural(len(totals) - most, f'more {what}')}")
    return lines


def _numbers(total: WorkTotal, cost: Cost, moved: bool) -> tuple[str, ...]:
    share = f"{total.flops / cost.flops:.1%}" if cost.flops else ""
    return format_flops(total.flops), share, *((format_bytes(total.hbm_bytes or 0.0),) if moved else ())


def work_html(cost: Cost, memory: str, line: Line) -> str:
    """The same as tables; empty where the report has no work. Texts from outside are escaped."""
    parts = []
    moved = cost.hbm_bytes is not None
    heads = [">FLOPs", ">share", *([f">{memory}"] if moved else [])]
    for what, totals, most in (
        ("phase", by_phase(cost), len(PHASES)),
        ("line", cost.by("source"), 2 * MOST_LINES),
        ("module", [t for t in cost.by("module") if t.key], 2 * MOST_MODULES),
    ):
        rows = [_row(total, cost, moved, line) for total in totals[:most]]
        more = f"; {len(totals) - most:,} more not shown" if len(totals) > most else ""
        if rows:
            parts.append(table((what, *heads, *([""] if what == "line" else [])), rows, caption=f"By {what}{more}"))
    return "".join(parts)


def _row(total: WorkTotal, cost: Cost, moved: bool, line: Line) -> Sequence[str]:
    cells = [cell(f"<b>{escape(total.label)}</b>")]
    cells += [cell(text, right=True) for text in _numbers(total, cost, moved)]
    if isinstance(total.key, Frame) or total.key is None:
        cells.append(cell(escape(clip(line(total.key) if total.key else "", 60)), quiet=True))
    return cells
