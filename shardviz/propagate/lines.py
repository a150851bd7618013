"""The lines of a program's texts before XLA, each with the line of the person's source that it comes from.

There are three texts: the jaxpr, StableHLO under the plan, and what Shardy makes of that. MLIR prints where a line
comes from as locations, a jaxpr as comments; they are read, and left out of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache, partial
from typing import Any

from shardviz import _jax
from shardviz.propagate.lower import Lowered, edited
from shardviz.propagate.propagate import PIPELINE, prepared
from shardviz.records import Frame, PlanRecord
from shardviz.records.stages import Stage, StageLine
from shardviz.stablehlo.module import parse
from shardviz.tracing.trace import Traced

_ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)$")
_USED = re.compile(r"#(loc\d*)\b")
_LINE = re.compile(r" loc\(#(loc\d*)\)$")
_ARGUMENTS = re.compile(r' loc\((?:"(?:[^"\\]|\\.)*"(?:\(#loc\d*\))?|#loc\d*|unknown)\)')
_FROM = re.compile(r"\s*# (\S.*):(\d+):\d+ \([^()]*\)$")
_FROM_NOWHERE = re.compile(r"\s+#\s*$")


def stages_of(traced: Traced, lowered: Lowered, bound: PlanRecord) -> Iterator[Stage]:
    """Return the text of the program's stages: the jaxpr, if the program was traced here; StableHLO under the plan;
    StableHLO after Shardy's passes."""
    if traced.closed is not None:
        read = partial(_jaxpr_lines, traced.closed.jaxpr)
        yield Stage(name="jaxpr", title="jaxpr", kind="jaxpr", read=read, about="what JAX has traced")
    with lowered.entered():
        text = str(edited(lowered, bound).get_asm(enable_debug_info=True))
        module = prepared(lowered, bound)
        _jax.run_passes(module, PIPELINE)
        after = str(module.get_asm(enable_debug_info=True))
    about = "what JAX hands to the compiler, with the plan's specs"
    yield Stage(name="stablehlo", title="StableHLO", kind="mlir", read=partial(mlir_lines, text), about=about)
    about = "the specs that Shardy found, and the collectives that follow from them"
    yield Stage(name="shardy", title="after Shardy", kind="mlir", read=partial(mlir_lines, after), about=about)


def mlir_lines(text: str) -> tuple[StageLine, ...]:
    """Return the lines of a module that was printed with locations, without these; each line has its source place."""
    lines = [(line, _ALIAS.match(line)) for line in text.splitlines()]
    meant = {alias[1]: alias[2] for _, alias in lines if alias}
    expanded = cache(lambda name: _USED.sub(lambda used: expanded(used[1]), meant.get(name, "")))
    place = cache(lambda name: _place(f"loc({expanded(name)})"))

    def read(line: str) -> StageLine:
        used = _LINE.search(line)
        return StageLine(_ARGUMENTS.sub("", line), place(used[1]) if used else "")

    return tuple(read(line) for line, alias in lines if not alias)


@lru_cache(maxsize=8192)  # the same places stand in each text, under each plan
def _place(location: str) -> str:
    frame = parse(location).frame
    return "" if frame is None else frame.short


def _jaxpr_lines(jaxpr: Any) -> tuple[StageLine, ...]:
    """Return the lines of a jaxpr that was printed with source places, without these; each line has its place."""
    lines = []
    for line in jaxpr.pretty_print(source_info=True).splitlines():
        place = _FROM.search(line)
        if place is None:
            lines.append(StageLine(_FROM_NOWHERE.sub("", line).rstrip()))
        else:
            lines.append(StageLine(line[: place.start()].rstrip(), Frame(place[1], int(place[2])).short))
    return tuple(lines)
