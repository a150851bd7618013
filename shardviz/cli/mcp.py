"""`shardviz mcp`: the verbs as tools for a coding agent, by the Model Context Protocol; the package `mcp` speaks it.

A tool takes what its verb takes and gives what `shardviz VERB --json` prints. Each call is a process of its own: it
sees the files as they are then. No tool writes a file: `--out`, `--update` and their like are not offered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import click

from shardviz.cli.frame import FAILED, cli
from shardviz.errors import ShardvizError

VERBS = (
    *("report", "why", "mends", "search", "sweep", "timeline", "compare", "check", "show", "reshard"),
    *("targets", "doctor"),
)
"""The verbs that are offered."""
_NOT_OFFERED = ("as_json", "out", "width", "quiet", "update", "exit_code", "help")
"""What writes files, or changes the form of the answer."""


def serve() -> None:
    """Serves on standard input and output until the input ends."""
    asyncio.run(_serve())


async def _serve() -> None:
    serving = server()
    from mcp.server.stdio import stdio_server  # pyright: ignore[reportMissingImports]

    async with stdio_server() as (read, write):
        await serving.run(read, write, serving.create_initialization_options())


def server() -> Any:
    """A server of the protocol that has the verbs as its tools; a `ShardvizError` if the package `mcp` is not
    installed, or too old."""
    try:
        from mcp.server import Server  # pyright: ignore[reportMissingImports]
        from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ShardvizError(f"shardviz mcp needs the package mcp: pip install 'shardviz[mcp]' ({error})") from error

    from shardviz.cli.here import guide

    async def listed(*_: Any) -> Any:
        tools = [
            Tool(
                name=verb.name,
                description="\n\n".join(part.replace("\b\n", "") for part in (verb.help, verb.epilog) if part),
                input_schema=input_schema(verb),
                annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for verb in (cli.commands[name] for name in VERBS)
        ]
        return ListToolsResult(tools=tools)

    async def called(_: Any, asked: Any) -> Any:
        try:
            text, failed = await answer(asked.name, asked.arguments or {})
        except ShardvizError as error:
            text, failed = str(error), True
        data = None if failed else json.loads(text)
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=data, is_error=failed)

    return Server(
        "shardviz", version=version("shardviz"), instructions=guide(), on_list_tools=listed, on_call_tool=called
    )


async def answer(verb: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """What a verb of `VERBS` prints with `--json`, or what it says on standard error, and that it failed. A
    `ShardvizError` if there is no such verb or option."""
    if verb not in VERBS:
        raise ShardvizError(f"there is no tool {verb!r}; there are {', '.join(VERBS)}")
    command = (sys.executable, "-m", "shardviz.cli", verb, "--json", "--quiet", *words(cli.commands[verb], arguments))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        raise
    failed = process.returncode not in (0, FAILED) or not out.strip()  # a check that fails has an answer too
    if failed:
        return err.decode(errors="replace").strip() or f"exit code {process.returncode}", True
    return out.decode(), False


def words(command: click.Command, arguments: Mapping[str, Any]) -> Iterator[str]:
    """A verb's options as words of a command line; a `ShardvizError` for an option that there is not, or a positional
    one that begins with a dash."""
    parameters = {parameter.name: parameter for parameter in _parameters(command)}
    if unknown := [name for name in arguments if name not in parameters]:
        raise ShardvizError(f"{command.name}: there is no {unknown[0]!r}; there are {', '.join(map(str, parameters))}")
    for name, parameter in parameters.items():
        value = arguments.get(str(name))
        for each in value if isinstance(value, list) else [value]:
            if isinstance(parameter, click.Argument) and each is not None:
                if str(each).startswith("-"):
                    raise ShardvizError(f"{command.name}: {name} {each!r} begins with a dash")
                yield str(each)
            elif getattr(parameter, "is_flag", False):
                yield from [parameter.opts[-1]] * bool(each)
            elif each is not None:
                yield f"{parameter.opts[-1]}={each}"


def input_schema(command: click.Command) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments: the verb's options, with the words of its help."""
    parameters = _parameters(command)
    return {
        "type": "object",
        "properties": {str(parameter.name): _schema(parameter) for parameter in parameters},
        "required": [parameter.name for parameter in parameters if parameter.required],
        "additionalProperties": False,
    }


def _parameters(command: click.Command) -> list[click.Parameter]:
    return [parameter for parameter in command.params if parameter.name not in _NOT_OFFERED]


def _schema(parameter: click.Parameter) -> dict[str, Any]:
    if getattr(parameter, "is_flag", False):
        kind: dict[str, Any] = {"type": "boolean"}
    elif isinstance(parameter.type, click.Choice):
        kind = {"type": "string", "enum": list(parameter.type.choices)}
    else:
        number = isinstance(parameter.type, click.types.FloatParamType | click.types.IntParamType)
        kind = {"type": "number" if number else "string"}
    if parameter.multiple or parameter.nargs == -1:
        kind = {"type": "array", "items": kind}
    text = getattr(parameter, "help", None)
    return kind | ({"description": text} if text else {})
