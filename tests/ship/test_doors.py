"""The command line, the page, and the door for agents give the same answers."""

from __future__ import annotations

import asyncio
import json

import pytest

import shardviz as sv
from shardviz.cli import main
from shardviz.cli.mcp import answer
from shardviz.records.amounts import format_bytes, format_seconds

pytestmark = pytest.mark.long

TARGET = "tpu v5p:2x2x2"
APART = ("timings", "stages")
"""How long it took, and texts in which the compiler numbers what it compiles."""


def asked(capsys, *words: str) -> dict:
    """What a verb prints with `--json`."""
    capsys.readouterr()
    assert main([*words, "--json", "--quiet"]) == 0
    return json.loads(capsys.readouterr().out)


def tool(verb: str, **arguments: object) -> dict:
    """What a tool for agents answers."""
    text, failed = asyncio.run(answer(verb, arguments))
    assert not failed, text
    return json.loads(text)


@pytest.fixture(scope="module")
def explorer():
    mlp = sv.gallery.mlp()
    explorer = sv.explore(mlp.program, plan=mlp.plan, target=TARGET, level="partitioned")
    explorer.wait("partitioned")
    yield explorer
    explorer.close()


def test_a_report_is_one_in_a_terminal_on_the_page_and_for_agents(capsys, explorer):
    report = asked(capsys, "report", "mlp", "--target", TARGET)
    for_agents = tool("report", function="mlp", target=TARGET)
    assert [each for each in report if report[each] != for_agents[each] and each not in APART] == []
    state, read = explorer.state, sv.Report.from_json(json.dumps(report))
    assert (state.report.collectives, state.report.arguments) == (read.collectives, read.arguments)
    assert state.cost.seconds == report["step"]["seconds"] and state.cost.needs.total == report["step"]["memory_bytes"]
    assert [f.id for f in state.report.findings_on(state.cost)] == [f["id"] for f in report["findings"]]
    page = json.dumps(explorer.head, ensure_ascii=False)
    assert main(["report", "mlp", "--target", TARGET, "--quiet"]) == 0
    told = capsys.readouterr().out
    for amount in (format_seconds(report["step"]["seconds"]), format_bytes(report["step"]["memory_bytes"])):
        assert amount in page and amount in told, amount


def test_a_why_is_one_in_a_terminal_on_the_page_and_for_agents(capsys, explorer):
    value = "params[0]['w']"
    why = asked(capsys, "why", "mlp", value)
    for_agents = tool("why", words=["mlp", value])
    of_api = json.loads(explorer.state.program.why(explorer.state.plan, value).to_json())
    assert [each for each in why if why[each] != for_agents[each] and each != "seconds"] == []
    assert why["axes"] == of_api["axes"] and why["value"] == of_api["value"]
