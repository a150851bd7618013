"""`shardviz mcp`: the verbs as tools for a coding agent, through the Model Context Protocol (the package `mcp`).

A tool takes the options of its verb and returns the output of `shardviz VERB --json`. Each call is a separate process
within the server's `Bounds`. It imports and traces the current code of the steps that the server was started for. That
code may do anything; shardviz itself writes no files, so `--out`, `--update` and similar options are not offered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from shardviz.cli.bounds import Bounds
from shardviz.cli.frame import FAILED, cli
from shardviz.cli.naming import gallery_names
from shardviz.cli.steps import project
from shardviz.errors import ShardvizError

VERBS = (
    *("report", "why", "fixes", "search", "sweep", "timeline", "compare", "check", "show", "reshard"),
    *("targets", "doctor"),
)
"""The verbs that are offered as tools."""
_READ_ONLY = ("compare", "show", "targets", "doctor")
"""The verbs that run no code of the project."""
_NOT_OFFERED = ("as_json", "out", "width", "quiet", "update", "exit_code", "help")
"""Options that write files or change the form of the answer."""
_AT_ONCE, _LONGEST, _ENDING = 2, 1800.0, 5.0
"""The number of parallel calls, a call's time limit in seconds, and the seconds that it then has to end."""
_CALL = """
import sys
sys.path.append(sys.argv[1])
from shardviz.cli.mcp import question
from shardviz.cli.verbs import run
words, bounds = question()
sys.exit(run(words, own=True, bounds=bounds))
"""
_MOST_WORDS = 4000
"""The number of last characters of standard error that are returned."""


def bounds_for(steps: Sequence[str]) -> Bounds:
    """Return the bounds of a server in this folder for these steps; for all steps of `pyproject.toml` if none are
    given. Raises ShardvizError for a name that is neither a step nor `module:function`."""
    of = project()
    limits = Bounds(root=str(Path(of.folder).resolve()), steps=tuple(steps))
    for name in steps:
        if ":" not in name and name not in of.steps:
            raise ShardvizError(
                f"--steps {name!r}: there is no such step in pyproject.toml; it has {', '.join(of.steps) or 'none'}. "
                "Name one of these, or module:function"
            )
    return limits


def serve(steps: Sequence[str]) -> None:
    """Serve on standard input and output until the input ends. Raises as `bounds_for` and `server`."""
    asyncio.run(_serve(bounds_for(steps)))


async def _serve(limits: Bounds) -> None:
    serving = server(limits)
    asyncio.get_running_loop().set_exception_handler(_report)
    from mcp.server.stdio import stdio_server  # pyright: ignore[reportMissingImports]

    async with stdio_server() as (read, write):
        await serving.run(read, write, serving.create_initialization_options())


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report a task's exception, except Ctrl-C, which the command itself reports."""
    error = context.get("exception")
    if not (isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt)):
        loop.default_exception_handler(context)


def server(limits: Bounds) -> Any:
    """Return a protocol server with the verbs as tools within these bounds. Raises ShardvizError if the package `mcp`
    is not installed or too old."""
    try:
        from mcp.server import Server  # pyright: ignore[reportMissingImports]
        from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ShardvizError(f"shardviz mcp needs the package mcp: pip install 'shardviz[mcp]' ({error})") from error

    from shardviz.cli.here import guide

    some = ", ".join(limits.steps) or "those of pyproject.toml"
    offered = f"These tools know the steps {some}, and of the gallery {', '.join(gallery_names())}.\n\n"
    turns = asyncio.Semaphore(_AT_ONCE)

    def hints(verb: str) -> Any:
        if verb in _READ_ONLY:
            return ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return ToolAnnotations(read_only_hint=False)  # it imports the project's code, which may do anything

    async def listed(*_: Any) -> Any:
        tools = [
            Tool(
                name=name,
                description="\n\n".join(part.replace("\b\n", "") for part in (verb.help, verb.epilog) if part),
                input_schema=input_schema(verb),
                annotations=hints(name),
            )
            for name, verb in ((name, cli.commands[name]) for name in VERBS)
        ]
        return ListToolsResult(tools=tools)

    async def called(_: Any, asked: Any) -> Any:
        try:
            async with turns:
                text, failed = await answer(asked.name, asked.arguments or {}, limits)
        except ShardvizError as error:
            text, failed = str(error), True
        data = None if failed else json.loads(text)
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=data, is_error=failed)

    about: dict[str, Any] = {"version": version("shardviz"), "instructions": offered + guide()}
    return Server("shardviz", **about, on_list_tools=listed, on_call_tool=called)


async def answer(verb: str, arguments: Mapping[str, Any], limits: Bounds | None = None) -> tuple[str, bool]:
    """Return a verb's `--json` output, or its error output and True if it failed. Without `limits`, all steps of this
    folder's `pyproject.toml` are allowed. Raises ShardvizError for an unknown verb or option, and after the time
    limit."""
    limits = limits or bounds_for(())
    if verb not in VERBS:
        raise ShardvizError(f"there is no tool {verb!r}; there are {', '.join(VERBS)}")
    asked = [verb, "--json", "--quiet", *words(cli.commands[verb], arguments)]
    call = json.dumps({"words": asked, "root": limits.root, "steps": limits.steps}).encode()
    # -P: what lies in the working folder is not imported in place of a package
    command = (sys.executable, "-P", "-c", _CALL, str(Path(__file__).parents[2]))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(_LONGEST):
            out, err = await process.communicate(call)
    except TimeoutError as error:
        raise ShardvizError(f"{verb}: there was no answer within {_LONGEST:g} s; ask for less") from error
    finally:
        if process.returncode is None:
            process.terminate()
            asyncio.get_running_loop().call_later(_ENDING, _kill, process)
    failed = process.returncode not in (0, FAILED) or not out.strip()  # a check that fails has an answer too
    if failed:
        message = err.decode(errors="replace").strip()[-_MOST_WORDS:]
        return message or f"exit code {process.returncode}", True
    return out.decode(), False


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def question() -> tuple[list[str], Bounds]:
    """Return the words and the bounds of a call from standard input, which is empty afterwards."""
    asked = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return asked["words"], Bounds(root=asked["root"], steps=tuple(asked["steps"]))


def words(command: click.Command, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield a verb's options as words of a command line. Raises ShardvizError for an unknown option, and for a
    positional argument that begins with a dash."""
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
    """Return the JSON Schema of a tool's arguments: the verb's options with their help texts."""
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
