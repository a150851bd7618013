"""What a step costs on a machine, in plain text."""

from __future__ import annotations

from collections.abc import Sequence

from shardviz.costs.step_cost import Needs, StepCost
from shardviz.paint.columns import clip, columns, pad, text_width, wrap
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.render.chips import axes_words
from shardviz.render.cost_words import (
    as_run_words,
    busy_words,
    from_rows,
    headline,
    heaviest,
    level_words,
    longest,
    memory_words,
    mfu_words,
    moved_phases_words,
    phases_words,
    placed_words,
    run_words,
    time_rows,
    tokens_words,
    where,
)

MOST_COLLECTIVES, MOST_LINES = 12, 8
BAR = 24


def step_cost_text(cost: StepCost, width: int = 100) -> str:
    """What a step costs, in plain text, deterministic.

    Args:
        cost: what `cost_of` gives.
        width: the most columns of a line, 40 or more.

    Returns:
        Headline, the times with bars, memory, the mesh on the machine, collectives by time with their formulas, the
        lines that cost most, and where each number is from; joined by newlines.
    """
    width = max(width, 40)
    lines = wrap(f"{cost.program} on {cost.machine}", width, "  ")
    lines += wrap(f"mesh {cost.mesh}; {level_words(cost)}", width, "  ")
    lines += ["", *wrap(f"Step: {headline(cost)}", width, "  ")]
    lines += _times(cost, width)
    for text in (
        phases_words(cost),
        moved_phases_words(cost),
        busy_words(cost),
        mfu_words(cost),
        tokens_words(cost),
        as_run_words(cost),
    ):
        lines += [f"  {line}" for line in wrap(text, width - 2, "  ")] if text else []
    lines += ["", *wrap(f"Memory on each device: {memory_words(cost.needs)}", width, "  ")]
    lines += _memory(cost.needs, width)
    lines += ["", *wrap(f"Mesh on the machine, {placed_words(cost)}:", width, "  ")]
    lines += _fitted([(p.name, str(p.size), str(p)) for p in cost.placement.paths], width, right=(1,))
    if cost.collectives:
        lines += ["", *_collectives(cost, width), "", *_lines(cost, width)]
    lines += _computing(cost, width)
    lines += ["", "Where the numbers are from:"]
    lines += _fitted(from_rows(cost), width)
    return "\n".join(line.rstrip() for line in lines)


def bar(part: float, whole: float, width: int = BAR) -> str:
    """Blocks: an eighth of a column at least where there is anything."""
    eighths = round(8 * width * part / whole) if whole else 0
    if part and not eighths:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return "█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else "")


def _times(cost: StepCost, width: int) -> list[str]:
    rows = time_rows(cost)
    most = max((seconds or 0.0 for _, seconds, _ in rows), default=0.0)
    names = max(text_width(name) for name, _, _ in rows)
    across = max(8, min(BAR, width // 5))
    lines = []
    for name, seconds, text in rows:
        blocks = pad(bar(seconds or 0.0, most, across), across)
        head = f"  {pad(name, names)}  {pad(format_seconds(seconds), 9, 'right')}  {blocks}  "
        room = width - text_width(head)
        if room >= 24:
            first, *rest = wrap(text, room) or [""]
            lines += [head + first, *(" " * text_width(head) + line for line in rest)]
        else:
            lines += [head, *(f"    {line}" for line in wrap(text, width - 4))]
    return lines


def _memory(needs: Needs, width: int) -> list[str]:
    whole = max(needs.usable or 0.0, needs.total)
    sizes = dict(needs.parts) | ({} if needs.usable is None else {"usable": needs.usable})
    across = max(8, min(BAR, width - max(map(len, sizes), default=0) - 16))
    rows = [(what, format_bytes(size), bar(size, whole, across)) for what, size in sizes.items()]
    return _fitted(rows, width, right=(1,))


def _collectives(cost: StepCost, width: int) -> list[str]:
    ordered, count = longest(cost), len(cost.collectives)
    head = f"Collectives, the longest in a step first ({plural(count, 'collective')}, those alike in one row):"
    lines = wrap(head, width, "  ")
    rows = [("in a step", "runs × each", "kind", "axes", "line")]
    for row in ordered[:MOST_COLLECTIVES]:
        c = row.collectives[0]
        seconds, at = format_seconds(row.whole_seconds), clip(where(row), 48)
        rows.append((seconds, run_words(row), c.kind, axes_words(c.axes), at))
    table = columns(rows, right=(0, 1))
    lines += _fold(table[0], width)
    for text, row in zip(table[1:], ordered, strict=False):
        lines += _fold(text, width)
        lines += [f"      {line}" for line in wrap(row.collectives[0].formula or "", width - 6, "  ")]
    rest = ordered[MOST_COLLECTIVES:]
    if rest:
        seconds = format_seconds(sum(row.seconds for row in rest))
        lines.append(f"  … and {sum(row.operations for row in rest):,} more, {seconds}")
    return lines


def _lines(cost: StepCost, width: int) -> list[str]:
    totals = cost.by("source")
    lines = wrap("Lines whose collectives take longest:", width, "  ")
    rows = []
    for moved in totals[:MOST_LINES]:
        frame = moved.key if isinstance(moved.key, Frame) else None
        seconds = None if moved.untimed == moved.operations else moved.seconds
        rows.append((format_seconds(seconds), moved.label, clip(cost.line(frame), 60)))
    lines += _fitted(rows, width, right=(0,))
    left = totals[MOST_LINES:]
    if left:
        seconds = format_seconds(sum(m.seconds for m in left))
        lines.append(f"  … and {plural(len(left), 'more line')}, {seconds}")
    return lines


def _computing(cost: StepCost, width: int) -> list[str]:
    """The lines with the most FLOPs."""
    rows = heaviest(cost)
    if not rows:
        return []
    lines = ["", *wrap("Lines that compute most:", width, "  ")]
    lines += _fitted([(*row[:-1], clip(row[-1], 60)) for row in rows[:MOST_LINES]], width, right=(0, 1, 2))
    return lines + ([f"  … and {plural(len(rows) - MOST_LINES, 'more line')}"] if len(rows) > MOST_LINES else [])


def _fitted(rows: Sequence[tuple[str, ...]], width: int, right: tuple[int, ...] = ()) -> list[str]:
    """Aligned columns, indented by two; the last column is wrapped where it does not fit."""
    if not rows:
        return []
    heads = columns([(*row[:-1], "|") for row in rows], right=right)
    lines = []
    for row, head in zip(rows, heads, strict=True):
        begin = "  " + head[:-1]
        room = width - text_width(begin)
        if room < 16:
            lines += _fold(f"{begin}{row[-1]}", width)
            continue
        first, *rest = wrap(row[-1], room) or [""]
        lines += [begin + first, *(" " * text_width(begin) + line for line in rest)]
    return lines


def _fold(line: str, width: int) -> list[str]:
    """A line of a table, indented by two, broken where it is too long."""
    return [f"  {line}"] if text_width(line) + 2 <= width else [f"  {part}" for part in wrap(line, width - 2, "  ")]
