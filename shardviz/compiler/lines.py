"""The lines of an HLO module, each with the line of the person's source that it comes from.

>>> body = '  ROOT %x = f32[8] parameter(0), metadata={op_name="x"}'
>>> text = "\\n".join(["HloModule m", "", "ENTRY %main (x: f32[8]) -> f32[8] {", body, "}"])
>>> [line.text for line in hlo_lines(text)][-2:]
['  ROOT %x = f32[8] parameter(0)', '}']
"""

from __future__ import annotations

import re

from shardviz.compiler.module import parse
from shardviz.records.stages import StageLine

_NAME = re.compile(r"^\s+(?:ROOT )?%?([^\s%=]+) = ")
_METADATA = re.compile(r',? ?metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}')
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


def hlo_lines(text: str) -> tuple[StageLine, ...]:
    """The lines of a module, without the tables of places and what instructions say of theirs. Raises ParseError as
    `parse`."""
    module = parse(text)
    places = {}
    for _, instruction in module:
        frame = module.source(instruction)
        if frame is not None:
            places[instruction.name] = frame.short
    lines: list[StageLine] = []
    table = False
    for line in text[text.find("HloModule ") :].splitlines():
        table = (table or line.startswith(_TABLES)) and not line.rstrip().endswith("{")
        if table or (not line.strip() and lines and not lines[-1].text):
            continue
        named = _NAME.match(line)
        lines.append(StageLine(_METADATA.sub("", line).rstrip(), "" if named is None else places.get(named[1], "")))
    while lines and not lines[-1].text:
        lines.pop()
    return tuple(lines)
