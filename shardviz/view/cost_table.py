"""What several plans or machines cost, side by side, the best of each column marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardviz.costs.step_cost import StepCost
from shardviz.records.amounts import format_bytes, format_count, format_number, format_seconds
from shardviz.study.costs import CostTable
from shardviz.view.document import Column, Document, Piece, Table, document, mesh_axes, notes, row, words
from shardviz.view.step_cost import BOUND_WORDS

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
_MARK = "★"


@document.register
def cost_table_document(compared: CostTable) -> Document:
    """A row for each plan or machine; what is the same in all stands above."""
    costs = list(compared.costs.values())
    same = {h: next(iter(v)) for h, v in _common(costs).items() if len(v) == 1 and len(costs) > 1}
    texts = {name: _texts(compared, name) for name in compared.costs}
    heads = [h for h in _HEADS if h not in same and any(text[h] for text in texts.values())]
    best = {h: compared.best(h) if h in _NUMBERS else frozenset() for h in heads}
    rows = tuple(
        row(*(_cell(compared.costs[name], h, text[h], name in best[h]) for h in heads)) for name, text in texts.items()
    )
    columns = tuple(Column(_head(compared, h), right=h in _NUMBERS) for h in heads)
    names = {"target": "machine", "runs": "runs of collectives"}
    said = [f"{names.get(h, h)} {value}" for h, value in same.items()]
    programs = ", ".join(dict.fromkeys(c.program for c in costs))
    what = "a step's time if all overlaps, and if no communication does; bytes that collectives move on each device"
    if len(compared.levels) > 1:
        what += f"; none is marked as best, as the rows are of several levels ({', '.join(compared.levels)})"
    else:
        what += "; the best of a column is marked"
    table = Table(columns=columns, rows=rows, first=len(rows), most=len(rows), noun="row")
    mesh = costs[0].mesh if "mesh" in same or len(costs) == 1 else None
    return Document(
        title=words(f"{programs}: {'; '.join(said)}" if said else programs),
        blocks=(*notes(what), table),
        mesh=mesh,
    )


def _common(costs: Sequence[StepCost]) -> Mapping[str, set[str]]:
    return {
        "target": {c.machine.text for c in costs},
        "mesh": {str(c.mesh) for c in costs},
        "level": {c.basis for c in costs},
        "runs": {format_count(c.total.runs) for c in costs},
    }


def _head(compared: CostTable, column: str) -> str:
    """What stands over a column: some rows may count samples where others count tokens."""
    if column != "tokens":
        return _HEADS[column]
    counted = {cost.tokens_are for cost in compared.costs.values() if cost.tokens_from} or {"tokens"}
    return _HEADS[column].replace("tokens", " or ".join(sorted(counted, reverse=True)))


def _cell(cost: StepCost, column: str, text: str, best: bool) -> Piece:
    if column == "mesh":
        return mesh_axes(cost.mesh)
    return words(f"{_MARK} {text}" if best else text, strong=best or column == "name", tip=_tip(cost, column))


def _texts(compared: CostTable, name: str) -> dict[str, str]:
    cost = compared.costs[name]
    each = cost.tokens_per_s_per_chip
    runs = compared.value(name, "runs")
    return {
        "name": name,
        "target": "" if cost.machine.text == name else cost.machine.text,
        "mesh": "" if str(cost.mesh) == name else str(cost.mesh),
        "level": cost.basis,
        "runs": format_count(None if runs is None else int(runs)),
        "bytes": format_bytes(compared.value(name, "bytes")),
        "lower": ("≥ " if cost.upper is None else "") + format_seconds(cost.lower),
        "upper": format_seconds(cost.upper),
        "bound": BOUND_WORDS.get(cost.bound, cost.bound),
        "memory": memory_text(cost),
        "mfu": f"{100 * cost.mfu[0]:.1f}–{cost.mfu[1]:.1%}" if cost.mfu else "",
        "tokens": f"{format_number(each[0])}–{format_number(each[1])}" if each else "",
    }


def memory_text(cost: StepCost) -> str:
    """`≥ 12.8 GB of 103 GB`, with `OVER` or `fits` where that is known."""
    needs = cost.needs
    text = f"{'' if needs.complete else '≥ '}{format_bytes(needs.total)}"
    if needs.usable is None:
        return text
    over = needs.total > needs.usable
    return f"{text} of {format_bytes(needs.usable)}" + (", OVER" if over else ", fits" if needs.fits else "")


def _tip(cost: StepCost, column: str) -> str:
    """What a number is made of."""
    return {
        "lower": f"compute {format_seconds(cost.step.compute)}, HBM {format_seconds(cost.step.memory)}, "
        f"communication {format_seconds(cost.step.communication)}",
        "memory": cost.needs.verdict,
        "target": str(cost.machine),
    }.get(column, "")
