"""The verbs as tools for coding agents: asked by the protocol's own client, and by the command line's words."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
from typing import Any

import click
import pytest

from shardviz.cli import main
from shardviz.cli.mcp import VERBS, bounds_for, input_schema, server, words
from shardviz.cli.verbs import cli
from shardviz.errors import ShardvizError
from tests.cli.conftest import command, environment

TRAIN = """\
[tool.shardviz.steps.train]
function = "mlp"
forbid = ["all-reduce"]
"""


def ask(tool: str, **arguments: Any) -> Any:
    """What a tool answers to the protocol's own client, without a transport."""

    async def asked() -> Any:
        import mcp

        async with mcp.Client(server(bounds_for(()))) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(asked())


@pytest.mark.mcp
def test_the_verbs_are_tools_with_their_options_and_those_that_run_code_are_not_read_only():
    async def listed() -> Any:
        import mcp

        async with mcp.Client(server(bounds_for(()))) as client:
            return (await client.list_tools()).tools, client.instructions

    tools, instructions = asyncio.run(listed())
    assert tuple(tool.name for tool in tools) == VERBS and "## 3. Report" in instructions
    read_only = {tool.name for tool in tools if tool.annotations.read_only_hint}
    assert read_only == {"compare", "show", "targets", "doctor"}, "the others import what a step is written with"
    report = next(tool for tool in tools if tool.name == "report")
    assert report.input_schema["properties"]["level"]["enum"] == ["propagated", "partitioned", "compiled"]
    assert not {"out", "json", "as_json"} & {*report.input_schema["properties"]}
    assert "--mesh data=8,model=8" in report.description


@pytest.mark.mcp
def test_a_tool_answers_as_its_verb_does(capsys):
    asked = {"array": "bf16[8192,4096]", "spec": "P('data')", "mesh": "data=4,model=2"}
    answer = ask("show", **asked)
    assert main(["show", asked["array"], asked["spec"], "--mesh", asked["mesh"], "--json"]) == 0
    assert answer.structured_content == json.loads(answer.content[0].text) == json.loads(capsys.readouterr().out)
    assert not answer.is_error


@pytest.mark.mcp
def test_what_is_wrong_is_told():
    answer = ask("show", array="bf16[8,4]", spec="P('nonesuch')", mesh="data=4")
    assert answer.is_error and "nonesuch" in answer.content[0].text and answer.structured_content is None
    answer = ask("report", fun="model:step")
    assert answer.is_error and "report: there is no 'fun'; there are function, " in answer.content[0].text


@pytest.mark.mcp
def test_calls_wait_for_their_turn(monkeypatch):
    now, most = [], []

    async def slow(*_: Any) -> tuple[str, bool]:
        now.append(None)
        most.append(len(now))
        await asyncio.sleep(0.01)
        now.pop()
        return "{}", False

    async def flood() -> None:
        import mcp

        async with mcp.Client(server(bounds_for(()))) as client:
            await asyncio.gather(*(client.call_tool("targets", {}) for _ in range(20)))

    monkeypatch.setattr("shardviz.cli.mcp.answer", slow)
    asyncio.run(flood())
    assert len(most) == 20 and max(most) == 2


@pytest.mark.mcp
def test_a_check_that_fails_is_an_answer(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    answer = ask("check", names=["train"])
    assert not answer.is_error and answer.structured_content["ok"] is False
    assert [each["rule"] for each in answer.structured_content["steps"][0]["failures"]] == ["forbid:all-reduce"]


@pytest.mark.mcp
@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_it_ends_with_its_input_and_by_an_interruption(tmp_path):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
    pipe = subprocess.PIPE
    for number, code in ((signal.SIGINT, 130), (None, 0)):
        start = {"cwd": tmp_path, "env": environment(), "stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True}
        with subprocess.Popen(command("mcp"), **start) as process:
            process.stdin.write(line)
            process.stdin.flush()
            assert "shardviz" in process.stdout.readline()
            if number is not None:
                process.send_signal(number)
            _, err = process.communicate(timeout=60)
        assert process.returncode == code and err.strip() == ("shardviz mcp: interrupted" if code else "")
    assert not list(tmp_path.iterdir())


# Without the package.


@pytest.mark.skipif(importlib.util.find_spec("mcp") is not None, reason="mcp is installed")
def test_without_the_package_it_says_what_to_install(capsys):
    assert main(["mcp"]) == 2
    assert "pip install 'shardviz[mcp]'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_a_schema_of_its_options(verb):
    schema = input_schema(cli.commands[verb])
    assert {kind["type"] for kind in schema["properties"].values()} <= {"string", "number", "boolean", "array"}
    assert {*schema["required"]} <= {*schema["properties"]}


def test_the_options_become_words():
    check = cli.commands["check"]
    asked = {"names": ["train"], "base": "main", "forbid": ["all-gather inside loop", "all-to-all"]}
    assert [*words(check, asked)] == [
        *("train", "--forbid=all-gather inside loop", "--forbid=all-to-all", "--base=main")
    ]
    assert [*words(cli.commands["report"], {"function": "mlp", "full": True})] == ["mlp", "--full"]
    for wrong in ({"names": ["--out=x"]}, {"out": "x"}, {"update": True}):
        with pytest.raises(ShardvizError):
            [*words(check, wrong)]
    assert isinstance(check, click.Command)
