"""What several plans or machines cost, as a table: in plain text and in HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from shardviz.costs.step_cost import StepCost
from shardviz.paint.columns import columns, text_width, wrap
from shardviz.records.amounts import format_bytes, format_count, format_number, format_seconds
from shardviz.render.chips import QUIET, SANS, cell, mesh_html, table
from shardviz.render.cost_words import BOUND_WORDS
from shardviz.study.costs import CostTable

# column → head
_HEADS = {
    "name": "",
    "target": "machine",
    "mesh": "mesh",
    "level": "level",
    "runs": "runs",
    "bytes": "moved",
    "lower": "overlapped",
    "upper": "not",
    "bound": "bound by",
    "memory": "memory of usable",
    "mfu": "MFU",
    "tokens": "tokens/s, chip",
}
_NUMBERS = ("runs", "bytes", "lower", "upper", "memory", "mfu", "tokens")


def cost_table_text(compared: CostTable, width: int = 120) -> str:
    """The table in plain text, deterministic; where it is too wide, a paragraph for each row.

    Args:
        compared: what `compare_costs` gives.
        width: the most columns of a line, 40 or more.
    """
    width = max(width, 40)
    rows = {name: _cells(compared, name, "*") for name in compared.costs}
    heads = [h for h in _HEADS if any(row[h] for row in rows.values()) and h not in _same(compared)]
    lines = [*_said(compared, width)]
    right = tuple(i for i, head in enumerate(heads) if head in _NUMBERS)
    top = tuple(_head(compared, h) for h in heads)
    grid = columns([top, *(tuple(row[h] for h in heads) for row in rows.values())], right)
    if max(map(text_width, grid)) <= width:
        return "\n".join([*lines, *grid])
    for row in rows.values():
        lines += ["", *wrap(row["name"], width)]
        given = [h for h in heads if h != "name" and row[h]]
        pairs = columns([(_head(compared, h), "|") for h in given])
        for h, pair in zip(given, pairs, strict=True):
            begin = f"  {pair[:-1]}"
            first, *rest = wrap(row[h], width - text_width(begin)) or [""]
            lines += [begin + first, *(" " * text_width(begin) + part for part in rest)]
    return "\n".join(line.rstrip() for line in lines)


def cost_table_html(compared: CostTable) -> str:
    """The table in HTML; every text from outside is escaped."""
    rows = {name: _cells(compared, name, "★") for name in compared.costs}
    heads = [h for h in _HEADS if any(row[h] for row in rows.values()) and h not in _same(compared)]
    body = []
    for name, row in rows.items():
        cost, cells = compared.costs[name], []
        for head in heads:
            text = mesh_html(cost.mesh) if head == "mesh" else escape(row[head])
            strong = head == "name" or row[head].startswith("★")
            cells.append(
                cell(
                    f"<b>{text}</b>" if strong else text,
                    right=head in _NUMBERS,
                    wrap=head in ("name", "bound", "level"),
                    title=_title(cost, head),
                )
            )
        body.append(cells)
    top = [(">" if h in _NUMBERS else "") + _head(compared, h) for h in heads]
    said = "".join(f'<div style="{QUIET};padding:2px 8px">{escape(line)}</div>' for line in _said(compared, 1000))
    return f'<div style="{SANS};overflow-x:auto">{table(top, body)}{said}</div>'


def _same(compared: CostTable) -> tuple[str, ...]:
    """Columns that are the same in every row, and stand above the table."""
    costs = list(compared.costs.values())
    return tuple(h for h, values in _common(costs).items() if len(values) == 1 and len(costs) > 1)


def _common(costs: list[StepCost]) -> Mapping[str, set[str]]:
    return {
        "target": {c.machine.text for c in costs},
        "mesh": {str(c.mesh) for c in costs},
        "level": {c.basis for c in costs},
        "runs": {format_count(sum(x.count or 0 for x in c.collectives)) for c in costs},
    }


def _said(compared: CostTable, width: int) -> list[str]:
    costs = list(compared.costs.values())
    words = {"target": "machine", "runs": "runs of collectives"}
    common = [f"{words.get(h, h)} {next(iter(v))}" for h, v in _common(costs).items() if h in _same(compared)]
    programs = ", ".join(dict.fromkeys(c.program for c in costs))
    lines = wrap(f"{programs}: {'; '.join(common)}" if common else programs, width, "  ")
    what = "a step's time if all overlaps, and if no communication does; bytes that collectives move on each device"
    if len(compared.levels) > 1:
        what += f"; none is marked as best, as the rows are of several levels ({', '.join(compared.levels)})"
    else:
        what += "; the best of a column is marked"
    lines += wrap(what, width, "  ")
    return lines


def _head(compared: CostTable, column: str) -> str:
    """What stands over a column: some rows may count samples where others count tokens."""
    if column != "tokens":
        return _HEADS[column]
    counted = {cost.tokens_are for cost in compared.costs.values() if cost.tokens_from} or {"tokens"}
    return _HEADS[column].replace("tokens", " or ".join(sorted(counted, reverse=True)))


def _cells(compared: CostTable, name: str, mark: str) -> dict[str, str]:
    cost = compared.costs[name]
    values = {
        "name": name,
        "target": cost.machine.text,
        "mesh": str(cost.mesh),
        "level": cost.basis,
        "runs": format_count(_whole(compared.value(name, "runs"))),
        "bytes": format_bytes(compared.value(name, "bytes")),
        "lower": ("≥ " if cost.upper is None else "") + format_seconds(cost.lower),
        "upper": format_seconds(cost.upper),
        "bound": BOUND_WORDS.get(cost.bound, cost.bound),
        "memory": _memory(cost),
        "mfu": f"{100 * cost.mfu[0]:.1f}–{cost.mfu[1]:.1%}" if cost.mfu else "",
        "tokens": _tokens(cost),
    }
    if cost.machine.text == name:
        values["target"] = ""
    for column in _NUMBERS:
        if name in compared.best(column):
            values[column] = f"{mark} {values[column]}"
    return values


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _memory(cost: StepCost) -> str:
    needs = cost.needs
    text = f"{'' if needs.complete else '≥ '}{format_bytes(needs.total)}"
    if needs.usable is None:
        return text
    over = needs.total > needs.usable
    return f"{text} of {format_bytes(needs.usable)}" + (", OVER" if over else ", fits" if needs.fits else "")


def _tokens(cost: StepCost) -> str:
    each = cost.tokens_per_s_per_chip
    return f"{format_number(each[0])}–{format_number(each[1])}" if each else ""


def _title(cost: StepCost, head: str) -> str:
    """What a number is made of, shown when hovering."""
    return {
        "lower": f"compute {format_seconds(cost.step.compute)}, HBM {format_seconds(cost.step.memory)}, "
        f"communication {format_seconds(cost.step.communication)}",
        "memory": cost.needs.verdict,
        "target": str(cost.machine),
    }.get(head, "")
