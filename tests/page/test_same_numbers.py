"""Each quantity is one number: on the page, in the terminal and in JSON, for programs on machines at every level.

All texts of the page's traits, of the terminal's report and of its JSON are walked. A text that names a quantity gives
its number; what names the same quantity must have the same number, sums are those of their parts, and a difference is
that of the two numbers beside it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import shardviz as sv
from shardviz.cli.answers import ReportAnswer, report_document
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import VIEWS, Explorer
from shardviz.paint import text
from shardviz.paint.json import json_of
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.sums import total_of
from shardviz.view.subjects import document
from tests.page.documents import said
from tests.programs import decode

pytestmark = pytest.mark.slow

NUMBER = r"((?:about |≥ )?[\d.,]+(?: [µmn]?s| [kMGTP]?B)?)"
MEANINGS = {
    # quantity → how texts name it; (N) is the number
    "step": (
        r"^step: (N) ",
        r"takes? [\d.]+ [µmn]?s of (N)",
        r"step on \S+ \S+: (N) \(",
        r"step on \S+ \S+: (N);",
        r"^JSON step\.seconds: (N)$",
    ),
    "compute": (
        r"matrix products take (N) of",
        r"^compute(?:; in a step:| +) (N)",
        r"matrix products? · (N) on the matrix unit",
        r"matrix products (N)\.",
        r"^JSON step\.compute: (N)$",
    ),
    "HBM": (
        r"^HBM traffic(?:; in a step:| +) (N)",
        r"a device take (N) of",
        r"HBM-bound · (N) in HBM",
        r"^JSON step\.hbm: (N)$",
    ),
    "communication": (
        r"collectives take (N) of",
        r"communication (N)\.",
        r"^communication(?:; in a step:| +) (N)",
        r"enter [\d,]+ collectives? on each device in a step : (N) on",
        r"^JSON step\.communication: (N)$",
    ),
    "memory": (
        r"^memory per device: (N) /",
        r"^(N) of [\d.]+ [kMGT]B ",
        r"on each device of .*: (N) of",
        r"^memory: [a-z ]+: (N) of",
        r"^JSON step\.memory_bytes: (N)$",
    ),
    "operands": (
        r"(N) enter [\d,]+ collective",
        r"^Collectives: .*runs? and (N) of operands per device in a step;",
        r"^JSON collectives: (N)$",
    ),
}


@dataclass(frozen=True)
class Case:
    """A program on a machine, as far as a level."""

    name: str
    make: Any
    target: str
    level: str


def served(mesh):
    """A decode step whose weights and caches are sharded by heads."""
    program = decode(d=1024, ff=4096, heads=16, kv=16, hd=64, length=2048, vocabulary=32_000)
    return program, program.presets(mesh)["tensor parallel"]


def example(name, **options):
    made = getattr(sv.gallery, name)(**options)
    return made.program, made.plan


CASES = (
    Case("mlp", lambda: example("mlp", mesh="data=4,model=2"), "tpu v5e:2x4", "propagated"),
    Case("mlp", lambda: example("mlp", mesh="data=4,model=2"), "gpu h100:1x8", "partitioned"),
    Case("mlp", lambda: example("mlp", mesh="data=4,model=2"), "tpu v5e:2x4", "compiled"),
    Case("llama", lambda: example("llama", layers=4, batch=16, mesh="data=4,model=4"), "tpu v5e:4x4", "propagated"),
    Case("llama", lambda: example("llama", layers=4, batch=16, mesh="data=4,model=4"), "tpu v5e:4x4", "compiled"),
    Case("70b", lambda: example("llama", size="70b", batch=512, mesh="data=64,model=8"), "tpu v5p:8x8x8", "propagated"),
    Case("decode", lambda: served("model=16"), "tpu v5e:4x4", "propagated"),
    Case("moe", lambda: example("moe"), "tpu v5p:2x4x4", "partitioned"),
    Case("ring", lambda: example("ring"), "gpu h100:2x8", "propagated"),
    Case("pipeline", lambda: example("pipeline"), "gpu a100:4x8", "partitioned"),
)


def params():
    for case in CASES:
        marks = [pytest.mark.tpu] if case.level == "compiled" else []
        yield pytest.param(
            case, id=f"{case.name}-{case.target.split(':')[0]}-{case.level}".replace(" ", "-"), marks=marks
        )


@pytest.fixture(scope="module", params=params())
def explorer(request):
    case = request.param
    program, plan = case.make()
    state = ExplorerState(program, plan, level=case.level, target=case.target, debounce=0.01)
    state.wait(case.level, 300)
    return Explorer(state)


def texts(data: Any) -> Iterator[str]:
    """The sentences of a trait's JSON: paragraphs, labels and tips, and each row with the titles of its columns."""
    if isinstance(data, list):
        for each in data:
            yield from texts(each)
    if not isinstance(data, dict):
        return
    if data.get("block") == "p":
        yield " ".join(filter(None, (said(data["pieces"]), data.get("label", ""))))
    if isinstance(data.get("on"), list):  # what stands below a source line
        yield from map(said, data["on"])
    titles = [column.get("title", "") for column in data.get("columns", ())]
    for row in data.get("rows", ()) if titles else ():
        cells = [said(cell) for cell in row["cells"]]
        yield "; ".join(
            f"{title}: {cell}" if title else cell for title, cell in zip(titles, cells, strict=True) if cell
        )
        yield from (f"{title}: {cell}" for title, cell in zip(titles, cells, strict=True) if title and cell)
    if isinstance(tip := data.get("tip"), str):
        yield tip
    yield from texts(list(data.values()))


def page(explorer: Explorer) -> Iterator[str]:
    for name, view in VIEWS.items():
        if name not in ("stages", "rosetta", "codes", "presets", "difference"):
            explorer.tab = view.tab or "most"
            yield from texts(view.build(explorer))


def terminal(explorer: Explorer) -> Iterator[str]:
    state = explorer.state
    for shown in (report_document(state.report, state.cost), report_document(state.report, state.cost, brief=True)):
        yield from (re.sub(r"^  +", "", line) for line in text(shown, width=2000).splitlines())


def answered(explorer: Explorer) -> Iterator[str]:
    state = explorer.state
    data = json.loads(ReportAnswer(state.report, state.cost).to_json())
    for name, value in data["step"].items():
        if isinstance(value, float):
            yield f"JSON step.{name}: {format_bytes(value) if name.endswith('bytes') else format_seconds(value)}"
    size = sum(c["operand_bytes"] * (c["count"] or 1) for c in data["collectives"])
    yield f"JSON collectives: {format_bytes(size)}"


def quantities(lines: Iterator[str]) -> dict[str, set[str]]:
    """Quantity → its numbers. `4.99 of 8.35 s` has one unit for both."""
    numbers: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        line = re.sub(r"([\d.]+) (of|/|–) ([\d.]+) ([µmn]?s|[kMGTP]?B)\b", r"\1 \4 \2 \3 \4", line)
        for what, patterns in MEANINGS.items():
            for pattern in patterns:
                for number in re.findall(pattern.replace("(N)", NUMBER), line):
                    numbers[what].add(re.sub("^(about|≥) ", "", number))
    return numbers


def test_a_quantity_is_one_number_wherever_it_is_named(explorer):
    walks = {
        name: quantities(walk(explorer)) for name, walk in (("page", page), ("terminal", terminal), ("JSON", answered))
    }
    named = [(what, name) for name, numbers in walks.items() for what in numbers]
    missing = {(what, name) for what in MEANINGS for name in walks} - {*named} - {("operands", "JSON")}
    assert not missing, "each is named in each"
    for what in MEANINGS:
        assert len(set().union(*(numbers[what] for numbers in walks.values()))) == 1, (what, walks)


def tables(data: Any) -> Iterator[dict[str, Any]]:
    for each in data if isinstance(data, list) else data.values() if isinstance(data, dict) else ():
        if isinstance(each, dict) and each.get("block") == "table":
            yield each
        yield from tables(each)


def amount(text: str) -> float:
    """`about 1.45 ms` as a number."""
    number, unit = re.search(r"([\d.]+)(?: ([µmnkMGTP]?)[sB])?$", text.strip()).groups()
    return float(number) * {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(unit, 1.0)


def column(table, title):
    at = [each.get("title", "") for each in table["columns"]].index(title)
    return [said(row["cells"][at]) for row in table["rows"]]


def test_sums_are_those_of_their_parts(explorer):
    cost, views = (
        explorer.state.cost,
        {name: VIEWS[name].build(explorer) for name in ("collectives", "costs", "memory")},
    )
    sums = [
        t
        for t in tables(views["collectives"])
        if t.get("caption", "").endswith("seconds in a step") and not t.get("more")
    ]
    assert sums or not cost.collectives
    for table in sums:
        rows = column(table, "in a step")
        known = sum(amount(row.removesuffix(" + not known")) for row in rows)
        assert known == pytest.approx(total_of(cost.partitioned).seconds, rel=0.01)
        if not any(row.endswith("not known") for row in rows):
            assert known == pytest.approx(cost.step.communication, rel=0.01)
    (times,) = [t for t in tables(views["costs"]) if t.get("name") == "step-times"]
    taken = dict(zip(column(times, ""), column(times, "in a step"), strict=True))
    over = [amount(seconds) for name, seconds in taken.items() if name.startswith("over")]
    assert sum(over) == pytest.approx(amount(taken["communication"]), rel=0.01)
    (memory,) = [t for t in tables(views["memory"]) if t.get("name") == "memory-parts"]
    *parts, whole, left, usable = [amount(said(row["cells"][1])) for row in memory["rows"]]
    assert sum(parts) == pytest.approx(whole, rel=0.01)
    assert usable - whole == pytest.approx(
        left if said(memory["rows"][-2]["cells"][0]) == "to spare" else -left, rel=0.01
    )


def test_bytes_of_a_collective_are_said_to_be_its_operands(explorer):
    moved = {format_bytes(c.operand_bytes) for c in explorer.state.report.collectives}
    explorer.tab = "source"
    VIEWS["texts"].build(explorer)
    margin = " ".join(texts(VIEWS["source"].build(explorer)))
    named = re.findall(rf"{NUMBER} operand × [\d,]+", margin)
    assert named and {*named} <= moved
    assert not re.findall(rf"{NUMBER} × [\d,]+", margin), "no other bytes stand beside a count"


def test_what_is_kept_is_no_more_than_is_needed(explorer):
    """What the forward pass keeps is no more than the memory that is planned or estimated."""
    findings = explorer.state.report.findings_on(explorer.state.cost)
    for finding in findings:
        if finding.rule in ("kept-dominates", "kept-whole"):
            assert finding.numbers["bytes"] <= explorer.state.cost.needs.total


def differences(documents: Any) -> Iterator[tuple[float, float, float]]:
    """What a row costs, what it cost before, and the difference that it has."""
    for table in tables(documents):
        titles = [each.get("title", "") for each in table["columns"]]
        for row in table["rows"] if "difference" in titles and "costs" in titles else ():
            cell = row["cells"][titles.index("difference")]
            for piece in cell if isinstance(cell, list) else [cell]:
                if piece and (there := piece["tip"].removesuffix(" there")) != piece["tip"]:
                    sign = -1 if piece["t"].startswith("−") else 1
                    yield (
                        amount(said(row["cells"][titles.index("costs")])),
                        amount(there),
                        sign * amount(piece["t"][1:]),
                    )


@pytest.mark.parametrize("target", ["tpu v5e:4x4", "gpu h100:2x8"])
def test_a_difference_is_that_of_the_two_numbers_beside_it(target):
    """Of the whole step and of each line, against the same program sharded otherwise."""
    program, plan = example("llama", layers=4, batch=16, mesh="data=4,model=4")
    explorer = Explorer(ExplorerState(program, plan, level="propagated", target=target, debounce=60))
    before = explorer.state.cost.seconds
    explorer.state.set_plan(
        next(row.plan for row in program.presets(plan.mesh).rows if row.plan != plan and row.report)
    )
    explorer.tab, explorer.opened = (
        "most",
        [frame.short for frame in {c.source for c in explorer.report.collectives if c.source}],
    )
    rows = [*differences(VIEWS["most"].build(explorer)), *differences(VIEWS["lines"].build(explorer))]
    assert len(rows) > 8
    for here, there, more in rows:
        assert here - there == pytest.approx(more, abs=0.011 * max(here, there, abs(more)))
    (change,) = re.findall(rf"[▲▼] {NUMBER}", " ".join(texts(VIEWS["cards"].build(explorer))))[:1]
    assert abs(explorer.state.cost.seconds - before) == pytest.approx(amount(change), rel=0.01)


def test_collectives_are_listed_by_what_is_said_of_them():
    """With a target they have seconds, in JSON too, and the longest stands first; without one the one of most bytes."""
    program, plan = example("mlp", mesh="data=4,model=2")
    for target, order in (("tpu v5e:2x4", "the longest in a step"), ("cpu", "the most operand bytes in a step")):
        report = program.propagate(plan, target)
        shown = document(report)
        (section,) = [block for block in shown.blocks if getattr(block, "title", "") == "Collectives"]
        assert order in section.lead[0].text
        (rows,) = [t for t in tables(json_of(shown)) if "total per device" in [c.get("title") for c in t["columns"]]]
        amounts = [*map(amount, column(rows, "time" if target != "cpu" else "total per device"))]
        assert amounts == sorted(amounts, reverse=True) and len(amounts) == len(report.collectives)
        seconds = [c["seconds"] for c in json.loads(report.to_json())["collectives"]]
        assert (None in seconds) == (target == "cpu")
