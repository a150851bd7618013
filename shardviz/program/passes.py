"""Shardy's passes one after the other, each with the program as it leaves it: what does which pass change?

`propagate` runs the same passes in one go. Here they run one at a time on a copy, and what a pass has left as it was is
left out. A line of the text keeps the line of the person's source that it comes from, which MLIR writes as locations.

>>> [name for name, _ in steps("builtin.module(symbol-dce,func.func(sdy-sink{a=1 b=2},sdy-close-shardings))")]
['symbol-dce', 'func.func(sdy-sink{a=1 b=2},sdy-close-shardings)']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager

from shardviz.program.lower import Lowered, edited, with_constraints
from shardviz.program.module import parse
from shardviz.program.propagate import PIPELINE, prepared
from shardviz.records import Frame, PlanRecord
from shardviz.records.stages import Stage, StageLine

_ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)$")
_USED = re.compile(r"#(loc\d*)\b")
_LINE = re.compile(r" loc\(#(loc\d*)\)$")
_ARGUMENTS = re.compile(r' loc\((?:"(?:[^"\\]|\\.)*"(?:\(#loc\d*\))?|#loc\d*|unknown)\)')
_FROM = re.compile(r"\s*# (\S.*):(\d+):\d+ \([^()]*\)$")
_WRITES_FILES = "sdy-save-module"  # for whoever asked for a dump, and no pass that can be run by itself
_NESTED = re.compile(r"^[\w.]+\((.*)\)$", re.DOTALL)
_TOLD = {
    "sdy-constant-or-scalar-splitter": "each use of a constant gets its own, so that each can be sharded otherwise",
    "symbol-dce": "functions that nobody calls go",
    "sdy-add-data-flow-edges": "what goes into a loop and what comes out of it are tied together",
    "sdy-add-func-data-flow-edges": "arguments and results of functions are tied to their calls",
    "sdy-flatten-call-graph": "each call gets a function of its own",
    "sdy-apply-sharding-constraints": "constraints that nobody disputes are put onto their values",
    "sdy-import-func-calls": "functions are put where they are called",
    "sdy-user-priority-propagate": "the specs go on from operation to operation, by priority: the propagation itself",
    "sdy-export-named-computations": "what was put where it is called becomes functions again",
    "sdy-propagate-to-func-results": "functions' results get the specs that were found",
    "sdy-unflatten-call-graph": "functions that are sharded alike become one again",
    "sdy-constant-or-scalar-merger": "constants that are sharded alike become one again",
    "sdy-sink-data-flow-edges": "the ties of loops go, and leave their specs",
    "sdy-sink-func-data-flow-edges": "the ties of functions go, and leave their specs",
    "sdy-sharding-constraint-to-reshard": "constraints become reshardings",
    "sdy-close-shardings": "nothing can be sharded further from here on",
    "sdy-drop-sharding-rules": "how operations hand specs on is no longer needed",
    "sdy-insert-explicit-reshards": "where operands disagree a resharding is put in, and each becomes collectives",
}


def steps(pipeline: str) -> Iterator[tuple[str, str]]:
    """The passes of a pipeline in order: each with its options, and as a pipeline of its own."""
    depth, start = 0, 0
    inside = pipeline.partition("(")[2].removesuffix(")")
    for at, letter in enumerate(f"{inside},"):
        depth += (letter in "({") - (letter in ")}")
        if letter == "," and not depth:
            step, start = inside[start:at], at + 1
            yield step, f"builtin.module({step})"


def plain_name(step: str) -> str:
    """`sdy-close-shardings` of `func.func(sdy-close-shardings{a=1},...)`."""
    nested = _NESTED.match(step)
    return re.split(r"[{,]", nested[1] if nested else step, maxsplit=1)[0].strip()


def before_shardy(lowered: Lowered, bound: PlanRecord) -> Iterator[Stage]:
    """The program before any compiler: its jaxpr, if it was traced here, and StableHLO under the plan."""
    if lowered.traced.closed is not None:
        jaxpr = with_constraints(lowered.traced, bound)
        read = partial(_jaxpr_read, jaxpr.jaxpr)
        yield Stage(name="jaxpr", title="jaxpr", kind="jaxpr", read=read, told="what JAX has traced")
    with lowered.entered(), ir.Location.unknown():
        text = _text(edited(lowered, bound))
    told = "what JAX hands to the compiler, with the plan's specs"
    yield Stage(name="stablehlo", title="StableHLO", kind="mlir", read=partial(mlir_lines, text), told=told)


def shardy_stages(lowered: Lowered, bound: PlanRecord) -> Iterator[Stage]:
    """The program after each of Shardy's passes that changes it; between two of them whoever else asks is let in."""
    with lowered.entered(), ir.Location.unknown():
        module = prepared(lowered, bound)
        last = _text(module)
        pipeline_steps = list(steps(str(PassManager.parse(PIPELINE))))
    count = 0
    named: dict[str, int] = {}
    for step, pipeline in pipeline_steps:
        name = plain_name(step)
        if name == _WRITES_FILES:
            continue
        with lowered.entered(), ir.Location.unknown():
            passes = PassManager.parse(pipeline)
            passes.enable_verifier(False)
            passes.run(module)
            text = _text(module)
        if text == last:
            continue
        last, count = text, count + 1
        short = name.removeprefix("sdy-")
        again = named[short] = named.get(short, 0) + 1
        yield Stage(
            name=f"shardy {short}" if again == 1 else f"shardy {short} ({again})",
            title=f"Shardy {count} · {short}",
            kind="mlir",
            read=partial(mlir_lines, text),
            told=_TOLD.get(name, ""),
        )


def _text(module: Any) -> str:
    text = module.get_asm(enable_debug_info=True)
    assert isinstance(text, str)  # it is bytes only if asked for with binary=True
    return text


def mlir_lines(text: str) -> tuple[StageLine, ...]:
    """The lines of a module that was printed with its locations; the locations are read, and left out."""
    meant: dict[str, str] = {}
    shown: list[str] = []
    for line in text.splitlines():
        alias = _ALIAS.match(line)
        if alias is None:
            shown.append(line)
        else:
            meant[alias[1]] = alias[2]
    whole: dict[str, str] = {}
    places: dict[str, str] = {}

    def expanded(name: str) -> str:
        if name not in whole:
            whole[name] = ""  # a location that would lead to itself ends there
            whole[name] = _USED.sub(lambda used: expanded(used[1]), meant.get(name, ""))
        return whole[name]

    def place(name: str) -> str:
        if name not in places:
            places[name] = _place(f"loc({expanded(name)})")
        return places[name]

    def read(line: str) -> StageLine:
        used = _LINE.search(line)
        return StageLine(_ARGUMENTS.sub("", line), place(used[1]) if used else "")

    return tuple(read(line) for line in shown)


@lru_cache(maxsize=8192)  # the same places stand in the text after every pass
def _place(location: str) -> str:
    frame = parse(location).frame
    return "" if frame is None else frame.short


def _jaxpr_read(jaxpr: Any) -> tuple[StageLine, ...]:
    return jaxpr_lines(jaxpr.pretty_print(source_info=True))


def jaxpr_lines(text: str) -> tuple[StageLine, ...]:
    """The lines of a jaxpr that was printed with its places."""
    lines = []
    for line in text.splitlines():
        place = _FROM.search(line)
        if place is None:
            lines.append(StageLine(line.rstrip()))
        else:
            lines.append(StageLine(line[: place.start()].rstrip(), Frame(place[1], int(place[2])).short))
    return tuple(lines)
