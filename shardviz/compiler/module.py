"""HLO text parsed into a module: computations of instructions, each with its shape, operands and attributes.

>>> module = parse('''HloModule jit_f, num_partitions=8
...
... ENTRY %main (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
...   %a = f32[4,8]{1,0} parameter(0), sharding={devices=[2,4]<=[8]}, metadata={op_name="a"}
...   %b = f32[8,2]{1,0} parameter(1)
...   ROOT %dot = f32[4,2]{1,0} dot(%a, %b#1), lhs_contracting_dims={1}, metadata={op_name="jit(f)/dot"}
... }''')
>>> module.name, module.num_partitions, module.entry.root.shape
('jit_f', 8, HloShape(dtype='float32', dims=(4, 2)))
>>> dot = module.entry.root
>>> dot.operands, dot.operand_parts, dot.attributes["lhs_contracting_dims"], dot.op_name
(('a', 'b'), ((), (1,)), '{1}', 'jit(f)/dot')

The text is a header, tables of source locations, and computations, the entry last; the format is that of XLA's
`HloModule::ToString`. Most of a line is never looked at: an instruction's parts are read when they are asked for, so
that a module of a thousand instructions is there in two milliseconds. What cannot be read raises a `ParseError` that
shows the line or names the instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from shardviz.caching import cached_property
from shardviz.compiler.frames import TABLES, FrameTable, unescape
from shardviz.compiler.shapes import HloShape, ShapeTree, leaves, parse_shape
from shardviz.errors import ParseError, excerpt
from shardviz.notation.bounds import MOST_DIGITS
from shardviz.records import Frame
from shardviz.records.groups import grouped
from shardviz.records.stages import StageLine

T = TypeVar("T")
# Modules may be long, so each of these takes time in proportion to the text: a word is looked at from its beginning
# only, and a quotation that does not end is read once.
_OPCODE = re.compile(r" ([a-z][a-z0-9\-]*+)\(")
_PARENTHESIS = re.compile(r"[()]")
_OPERAND = re.compile(r"%([\w.\-]++)((?>(?:#\d++)*))", re.ASCII)
_LAST_OPERAND = re.compile(r"(?<![\w.\-])([\w.\-]++)((?>(?:#\d++)*))\s*+\Z", re.ASCII)
_STRING = r'"(?>(?:[^"\\]++|\\.)*)(?:"|\\?\Z)'
_ATTRIBUTE_TOKEN = re.compile(_STRING + r"|[{}\[\]()]|, ")
_OPERAND_TOKEN = re.compile(_STRING + r"|[{}\[\]()]|, ?")
_METADATA = re.compile(r'(?<!\w)(\w++)=(?:"((?>(?:[^"\\]++|\\.)*))"|([^\s"{}]++))')
_OP_NAME = re.compile(r'metadata=\{op_name="([^"\\]*)"')
_CALLED = (
    *("to_apply", "calls", "condition", "body", "branch_computations", "true_computation", "false_computation"),
    *("called_computations", "async_wrapped_computation"),
)
CALLERS = frozenset(("while", "call", "fusion", "conditional", "async-start", "fusion-start", "custom-call"))
"""Opcodes that run a full computation."""
NAME = re.compile(r"%?([\w.\-]+)")
_LITERAL_OPCODES = frozenset(("constant", "parameter", "iota", "partition-id", "replica-id"))


class Named(dict[str, T]):
    """A dictionary whose missing entries raise a ParseError that names them and their `owner`."""

    def __init__(self, owner: str, entries: Iterable[tuple[str, T]] = ()):
        super().__init__(entries)
        self.owner = owner

    def __missing__(self, key: str) -> T:
        raise ParseError(f"HLO {self.owner} has no {key!r}")


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """An instruction: its name, without the `%`, its opcode, such as `all-gather-start`, and the parts of its line."""

    name: str
    opcode: str
    is_root: bool
    shape_text: str
    operands_text: str
    attributes_text: str

    @cached_property
    def shape(self) -> ShapeTree:
        """The result's shape; a tuple of shapes for a tuple."""
        return parse_shape(self.shape_text)

    @property
    def shapes(self) -> tuple[HloShape, ...]:
        """The shapes of the result's arrays, with tuples flattened."""
        return leaves(self.shape)

    @cached_property
    def _operands(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        text = self.operands_text
        if not text or self.opcode in _LITERAL_OPCODES:
            return ()
        if "%" in text:
            matches = _OPERAND.findall(text)
        else:
            parts = _split(text.replace("/*", '"').replace("*/", '"'), _OPERAND_TOKEN)
            matches = [(last[1], last[2]) for part in parts if (last := _LAST_OPERAND.search(part))]
        return tuple(
            (name, tuple(number(part, self) for part in tail.split("#")[1:]) if tail else ()) for name, tail in matches
        )

    @cached_property
    def operands(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._operands)

    @cached_property
    def operand_parts(self) -> tuple[tuple[int, ...], ...]:
        """For each operand, the index in its tuple, which newer texts write as `%loop#2`; empty for the whole
        operand."""
        return tuple(part for _, part in self._operands)

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Attribute name → text, such as `{"dimensions": "{0}"}`."""
        attributes: Named[str] = Named(f"instruction {self.name!r} ({self.opcode})")
        last = ""
        for part in _split(self.attributes_text):
            key, equals, value = part.partition("=")
            if not equals:
                continue
            if key == "device_ids" and last:  # the one attribute whose text has a comma outside brackets
                attributes[last] += ", " + part
                continue
            attributes[key] = value
            last = key
        return attributes

    @cached_property
    def metadata(self) -> dict[str, str]:
        """`op_name`, `stack_frame_id`, `source_file`, ...: what is known about its origin."""
        text = self.attributes.get("metadata", "")
        return {key: unescape(quoted) if quoted else plain for key, quoted, plain in _METADATA.findall(text)}

    @cached_property
    def op_name(self) -> str:
        """JAX's name stack and operation (for an entry parameter, the argument's tree path); empty if unknown."""
        if match := _OP_NAME.search(self.attributes_text):
            return match[1]
        return self.metadata.get("op_name", "") if "op_name" in self.attributes_text else ""

    @property
    def stack_frame_id(self) -> int:
        """The row in the module's table of stack frames; 0 if there is none."""
        if "stack_frame_id" not in self.attributes_text:
            return 0
        return number(self.metadata.get("stack_frame_id", "0"), self)

    @property
    def sharding(self) -> str:
        """The text of its sharding; empty without one."""
        return self.attributes.get("sharding", "")

    @property
    def parameter_number(self) -> int | None:
        """The number of the parameter; None for other instructions."""
        return number(self.operands_text, self) if self.opcode == "parameter" else None

    @cached_property
    def called(self) -> dict[str, tuple[str, ...]]:
        """Attribute → names of the computations that it calls, such as `{"condition": ("c",), "body": ("b",)}`."""
        owner = f"instruction {self.name!r} ({self.opcode})"
        named = ((key, tuple(NAME.findall(self.attributes[key]))) for key in _CALLED if key in self.attributes)
        return Named(owner, ((key, names) for key, names in named if names))


@dataclass(frozen=True)
class Computation:
    """A named list of instructions, operands before users."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return Named(f"computation {self.name!r}", ((i.name, i) for i in self.instructions))

    @cached_property
    def root(self) -> Instruction:
        for instruction in reversed(self.instructions):
            if instruction.is_root:
                return instruction
        raise ParseError(f"HLO computation {self.name!r} has no ROOT instruction; is the text incomplete?")

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        return {at: i for i in self.instructions if (at := i.parameter_number) is not None}

    @cached_property
    def users(self) -> dict[str, tuple[Instruction, ...]]:
        """Instruction name → the instructions that use it, in program order."""
        by_name = grouped((operand, i) for i in self.instructions for operand in dict.fromkeys(i.operands))
        return {name: tuple(users) for name, users in by_name.items()}


@dataclass(frozen=True, eq=False)
class Module:
    """A module of HLO: computations by name, in text order, its first line, and its tables of source lines."""

    name: str
    entry: Computation
    computations: dict[str, Computation]
    header: str
    tables: str

    def __iter__(self) -> Iterator[tuple[Computation, Instruction]]:
        """Yield every instruction with its computation, in text order."""
        for computation in self.computations.values():
            for instruction in computation.instructions:
                yield computation, instruction

    @cached_property
    def frames(self) -> FrameTable:
        """The stack frames that instructions refer to."""
        return FrameTable.parse(self.tables)

    @cached_property
    def attributes(self) -> dict[str, str]:
        """The header's attributes, such as `entry_computation_layout`."""
        parts = _split(self.header)[1:]
        return {key: value for key, equals, value in (p.partition("=") for p in parts) if equals}

    @property
    def num_partitions(self) -> int:
        """The number of devices that it is partitioned over."""
        text = self.attributes.get("num_partitions", "1")
        if not _is_whole(text):
            raise ParseError(f"HLO module {self.name!r}: num_partitions is {excerpt(text)!r}, not a number")
        return int(text)

    def source(self, instruction: Instruction) -> Frame | None:
        """Return the innermost line of the user's code that an instruction comes from; None if unknown."""
        if frame_id := instruction.stack_frame_id:
            return self.frames.innermost(frame_id)
        if file := instruction.metadata.get("source_file"):
            return Frame(file, number(instruction.metadata.get("source_line", "0"), instruction))
        return None


def parse(text: str) -> Module:
    """Parse the text of an HLO module; the parts of instructions are parsed at first use. Raises ParseError, which
    shows the line, if the text is no module or is incomplete."""
    start = text.find("HloModule ")
    if start < 0:
        raise ParseError(f"this is no HLO module: no line begins with 'HloModule' in {excerpt(text, 80)!r}")
    lines = text[start:].splitlines()
    computations: Named[Computation] = Named("module")
    entry: Computation | None = None
    tables: list[str] = []
    current: list[Instruction] = []
    name, is_entry, last = "", False, ""
    for at, line in enumerate(lines[1:], 2):
        if not line or line.isspace():
            continue
        if line[0] in " \t":
            if not name:
                raise ParseError(f"HLO line {at}: an instruction outside of a computation: {_shown(line)}")
            current.append(_instruction(line, at))
            last = line
        elif name and current and _is_open(line, last):  # an attribute's value may have line breaks
            last += "\n" + line
            current[-1] = _instruction(last, at)
        elif line[0] == "}":
            computation = computations[name] = Computation(name, tuple(current))
            entry = computation if is_entry else entry
            name = ""
        elif line.rstrip()[-1] == "{" and not line[0].isdecimal():
            if name:
                raise ParseError(f"HLO line {at}: computation {name!r} does not end before {_shown(line)}")
            is_entry = line.startswith("ENTRY ")
            named = NAME.match(line, 6 if is_entry else 0)
            if named is None:
                raise ParseError(
                    f"HLO line {at}: expected a computation such as '%name (...) -> ... {{', not {_shown(line)}"
                )
            name, current = named[1], []
        elif name:
            raise ParseError(
                f"HLO line {at}: expected an instruction such as '%x = f32[4] add(%a, %b)', not {_shown(line)}"
            )
        else:
            tables.append(line)
    if name:
        raise ParseError(f"HLO: computation {name!r} does not end; the text is incomplete")
    if entry is None:
        raise ParseError("HLO: the module has no ENTRY computation; the text is incomplete")
    header = lines[0]
    return Module(header[10:].partition(",")[0].strip(), entry, computations, header, "\n".join(tables))


def _is_open(line: str, text: str) -> bool:
    """Return whether a line continues an instruction whose brackets are not all closed yet."""
    if line.startswith("}") and (line.rstrip() == "}" or line.startswith("}, execution_thread=")):
        return False
    brackets = [token[0][0] for token in _ATTRIBUTE_TOKEN.finditer(text) if token[0][0] in "{[()]}"]
    return sum(1 if bracket in "{[(" else -1 for bracket in brackets) > 0


def _instruction(line: str, at: int) -> Instruction:
    equals = line.find(" = ")
    opcode = _OPCODE.search(line, equals + 3) if equals > 0 else None
    if opcode is None:
        raise ParseError(
            f"HLO line {at}: expected an instruction such as '%x = f32[4] add(%a, %b)', not {_shown(line)}"
        )
    name = line[:equals].strip()
    is_root = name.startswith("ROOT ")
    if is_root:
        name = name[5:]
    begin = opcode.end()
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
        raise ParseError(f"HLO line {at}: the operands do not end: {_shown(line)}")
    return Instruction(
        name=name.lstrip("%"),
        opcode=opcode[1],
        is_root=is_root,
        shape_text=line[equals + 3 : opcode.start()],
        operands_text=line[begin:end],
        attributes_text=line[end + 1 :],
    )


def _shown(line: str) -> str:
    return repr(excerpt(line.strip()))


def _split(text: str, token: re.Pattern[str] = _ATTRIBUTE_TOKEN) -> list[str]:
    """Split a text at commas outside brackets and strings."""
    parts, depth, begin = [], 0, 0
    for match in token.finditer(text):
        first = match[0][0]
        if first in "{[(":
            depth += 1
        elif first in "}])":
            depth -= 1
        elif first == "," and depth == 0:
            parts.append(text[begin : match.start()])
            begin = match.end()
    parts.append(text[begin:])
    return parts


def number(text: str, instruction: Instruction) -> int:
    """Return the whole number in a part of an instruction. Raises ParseError, which names the instruction, if it is
    none."""
    if not _is_whole(text.strip()):
        named = f"HLO instruction {excerpt(instruction.name)!r} ({instruction.opcode})"
        raise ParseError(f"{named}: {excerpt(text)!r} is not a number")
    return int(text)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


_NAMED_LINE = re.compile(r"^\s+(?:ROOT )?%?([^\s%=]+) = ")
_METADATA_TEXT = re.compile(r',? ?metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}')


def hlo_lines(text: str) -> tuple[StageLine, ...]:
    """Return the lines of a module, each with its source line; tables of source places and instructions' references to
    them are omitted. Raises ParseError as `parse`.

    >>> body = '  ROOT %x = f32[8] parameter(0), metadata={op_name="x"}'
    >>> text = "\\n".join(["HloModule m", "", "ENTRY %main (x: f32[8]) -> f32[8] {", body, "}"])
    >>> [line.text for line in hlo_lines(text)][-2:]
    ['  ROOT %x = f32[8] parameter(0)', '}']
    """
    module = parse(text)
    places = {}
    for _, instruction in module:
        frame = module.source(instruction)
        if frame is not None:
            places[instruction.name] = frame.short
    lines: list[StageLine] = []
    table = False
    for line in text[text.find("HloModule ") :].splitlines():
        table = (table or line.startswith(TABLES)) and not line.rstrip().endswith("{")
        if table or (not line.strip() and lines and not lines[-1].text):
            continue
        named = _NAMED_LINE.match(line)
        lines.append(
            StageLine(_METADATA_TEXT.sub("", line).rstrip(), "" if named is None else places.get(named[1], ""))
        )
    while lines and not lines[-1].text:
        lines.pop()
    return tuple(lines)
