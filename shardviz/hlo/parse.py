"""HLO text read into a module, line by line.

A module is a header, tables of source locations, and computations, the entry last. Every instruction is one line:

>>> module = parse('''HloModule jit_f, num_partitions=8
...
... ENTRY %main (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
...   %a = f32[4,8]{1,0} parameter(0), sharding={devices=[2,4]<=[8]}, metadata={op_name="a"}
...   %b = f32[8,2]{1,0} parameter(1)
...   ROOT %dot = f32[4,2]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
... }''')
>>> module.name, module.num_partitions, module.entry.root.operands
('jit_f', 8, ('a', 'b'))
>>> module.entry.root.shape, module.entry.root.attributes["lhs_contracting_dims"]
(Shape(dtype='float32', dims=(4, 2)), '{1}')

The format is that of XLA's `HloModule::ToString`. A line that cannot be read raises, and is shown.
"""

from __future__ import annotations

import re

from shardviz.errors import ParseError
from shardviz.hlo.module import NAME, Computation, Instruction, Module, Named

_OPCODE = re.compile(r" ([a-z][a-z0-9\-]*)\(")
_PARENTHESIS = re.compile(r"[()]")


def parse(text: str) -> Module:
    """Reads the text of an HLO module.

    Args:
        text: what XLA writes under `xla_dump_to`, or `Compiled.as_text()`.

    Returns:
        The module. Computations and instructions are found now, their parts are read on first use.

    Raises:
        ParseError: for a line that is no instruction, text without an entry computation, or a computation that does
            not end; the message shows the line.
    """
    start = text.find("HloModule ")
    if start < 0:
        raise ParseError(f"this is no HLO module: no line begins with 'HloModule' in {text[:80]!r}...")
    lines = text[start:].splitlines()
    computations: Named[Computation] = Named("module")
    entry: Computation | None = None
    tables: list[str] = []
    current: list[Instruction] = []
    name, is_entry = "", False
    for number, line in enumerate(lines[1:], 2):
        if not line or line.isspace():
            continue
        if line[0] in " \t":
            if not name:
                raise ParseError(f"HLO line {number}: an instruction outside of a computation: {_shown(line)}")
            current.append(_instruction(line, number))
        elif line[0] == "}":
            computation = computations[name] = Computation(name, tuple(current))
            entry = computation if is_entry else entry
            name = ""
        elif line.rstrip()[-1] == "{" and not line[0].isdecimal():
            if name:
                raise ParseError(f"HLO line {number}: computation {name!r} does not end before {_shown(line)}")
            is_entry = line.startswith("ENTRY ")
            found = NAME.match(line, 6 if is_entry else 0)
            if found is None:
                raise ParseError(
                    f"HLO line {number}: expected a computation such as '%name (...) -> ... {{', not {_shown(line)}"
                )
            name, current = found[1], []
        elif name:
            raise ParseError(
                f"HLO line {number}: expected an instruction such as '%x = f32[4] add(%a, %b)', not {_shown(line)}"
            )
        else:
            tables.append(line)
    if name:
        raise ParseError(f"HLO: computation {name!r} does not end; the text is cut short")
    if entry is None:
        raise ParseError("HLO: the module has no ENTRY computation; the text is cut short")
    header = lines[0]
    return Module(header[10:].partition(",")[0].strip(), entry, computations, header, "\n".join(tables))


def _instruction(line: str, number: int) -> Instruction:
    equals = line.find(" = ")
    found = _OPCODE.search(line, equals + 3) if equals > 0 else None
    if found is None:
        raise ParseError(
            f"HLO line {number}: expected an instruction such as '%x = f32[4] add(%a, %b)', not {_shown(line)}"
        )
    name = line[:equals].strip()
    is_root = name.startswith("ROOT ")
    if is_root:
        name = name[5:]
    begin = found.end()
    end = line.find(")", begin)
    if line.find("(", begin, end) >= 0:
        depth = 1
        end = -1
        for parenthesis in _PARENTHESIS.finditer(line, begin):
            depth += 1 if parenthesis[0] == "(" else -1
            if depth == 0:
                end = parenthesis.start()
                break
    if end < 0:
        raise ParseError(f"HLO line {number}: the operands do not end: {_shown(line)}")
    return Instruction(
        name.lstrip("%"), found[1], is_root, line[equals + 3 : found.start()], line[begin:end], line[end + 1 :]
    )


def _shown(line: str) -> str:
    line = line.strip()
    return repr(line if len(line) <= 200 else line[:200] + "...")
