"""Where a step's FLOPs and its memory traffic are from: by phase, by source line, by module.

`forward 4.91 PFLOP, rematerialised 3.61 PFLOP, backward 9.81 PFLOP, update 35.3 GFLOP`: the update is the optimizer's
part. Loops are multiplied in; what XLA's `cost_analysis()` says, and why that is less, is said with its numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from shardviz.records import Cost, Frame
from shardviz.records.amounts import format_bytes, format_flops
from shardviz.records.sums import WorkTotal
from shardviz.view.document import Block, Column, Inline, Part, Table, bar, flops, line, nbytes, notes, row, words

PHASES: tuple[str, ...] = ("forward", "rematerialised", "backward", "update")
_SAME = 1.005
_MOST = 12

LineText = Callable[[Frame | None], str]


def memory_name(target: str) -> str:
    """What a target's main memory is called: `HBM` on an accelerator, `main memory` on a CPU."""
    return "HBM" if target.startswith(("tpu", "gpu")) else "main memory"


def by_phase(cost: Cost) -> list[WorkTotal]:
    """The sums by phase, in the order in which a step runs."""
    totals = cost.by("phase")
    return sorted(totals, key=lambda t: PHASES.index(str(t.key)) if t.key in PHASES else len(PHASES))


def phase_words(cost: Cost) -> str:
    """`forward 4.91 PFLOP, backward 9.81 PFLOP`; empty where nothing tells."""
    return ", ".join(f"{t.key} {t.at_least}{format_flops(t.flops)}" for t in by_phase(cost) if t.flops or t.at_least)


def traffic_words(cost: Cost) -> str:
    """`forward 6.28 TB, backward 10.6 TB`; empty where the level does not tell."""
    return ", ".join(f"{t.key} {format_bytes(t.hbm_bytes)}" for t in by_phase(cost) if t.hbm_bytes)


def analysis_words(cost: Cost, memory: str) -> str:
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


def work_blocks(cost: Cost, memory: str, line_text: LineText) -> tuple[Block, ...]:
    """Why `cost_analysis()` differs, and a table each by phase, line and module, as far as the report tells.

    Args:
        cost: a report's.
        memory: as `memory_name` calls it.
        line_text: gives a source line's text.
    """
    said = notes(analysis_words(cost, memory))
    if not any(t.flops or t.at_least for t in cost.by("source")):
        return said
    modules = [t for t in cost.by("module") if t.key]
    tables = [_table("phase", by_phase(cost), cost, memory, line_text)]
    tables.append(_table("line", list(cost.by("source")), cost, memory, line_text))
    if len(modules) > 1:
        tables.append(_table("module", modules, cost, memory, line_text))
    return (*said, *tables)


def _table(what: str, totals: list[WorkTotal], cost: Cost, memory: str, line_text: LineText) -> Table:
    moved = cost.hbm_bytes is not None
    heads = (
        Column("FLOPs", right=True),
        Column("share", right=True),
        *([Column(memory, right=True)] if moved else []),
        Column(""),
        Column(what),
    )
    most = max((t.flops for t in totals), default=0.0) or 1.0
    rows = []
    for t in totals:
        share = words(f"{t.flops / cost.flops:.1%}" if cost.flops else "")
        known = words(f"{t.at_least}{format_flops(t.flops)}") if t.at_least else flops(t.flops)
        cells: list[Inline] = [known, share]
        cells += [nbytes(t.hbm_bytes or 0.0)] if moved else []
        cells.append(bar([Part(share=t.flops / most, role="work")]))
        if what == "line":
            frame = t.key if isinstance(t.key, Frame) else None
            cells.append(line(frame, line_text(frame) if frame else ""))
        else:
            cells.append(words(str(t.key), strong=True))
        rows.append(row(*cells))
    return Table(columns=heads, rows=tuple(rows), caption=f"By {what}", first=6, most=_MOST, noun=what)
