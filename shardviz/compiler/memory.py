"""A compiler's memory plan, and the values alive at its peak, from the text of its buffer assignment.

XLA writes where each value is stored (`*-buffer-assignment.txt`) and when it is alive (`*-live-range.txt`):

>>> buffers = Buffers('''BufferAssignment:
... allocation 0: size 8, page 0, parameter 0, shape |f32[2]| at ShapeIndex {}, maybe-live-out:
...  value: <0 x @0> (size=8,offset=0): f32[2]{0}
... allocation 1: size 24, page 0, preallocated-temp:
...  value: <1 a @0> (size=16,offset=0): f32[4]{0}
...  value: <2 loop{0} (phi) @0> (size=16,offset=0): f32[4]{0}
...  value: <3 b @0> (size=8,offset=16): f32[2]{0}
... ''', '''  BufferLiveRange:
...     x{}:0-3
...     a{}:1-2
...     loop{0}:2-3
...     b{}:2-2
... ''')
>>> buffers.moment, buffers.temporaries  # `loop{0}` lies where `a` does
(2, 24)
>>> plan = memory(buffers)
>>> plan.arguments, plan.outputs, plan.aliased, plan.temporaries, plan.peak
(8, 8, 8, 24, 32)

The sums are those of `Compiled.memory_analysis()`, long before the compile ends; only a TPU's `temp_size_in_bytes` is
larger, and more than what is allocated (`total_allocation_bytes`). XLA's own list of what is alive at the peak counts
values that share a place (a loop's parameter and what it was given) several times, and may therefore be of another
moment. Its heap simulator counts a place once, and no tables of a tuple's parts; this file does the same. Main memory
is color 0; a TPU's VMEM is color 1, its SMEM color 2; the host's memory is color 5. A GPU's other colors are parts of
its main memory too (what collectives use, what is temporary). The formats are those of `BufferAllocation::ToString` and
`HloLiveRange::ToString`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardviz.caching import cached_property
from shardviz.compiler.module import Instruction, Module
from shardviz.compiler.shapes import HloShape, element
from shardviz.errors import ParseError
from shardviz.records import Alive, HostMemory, Memory
from shardviz.records.groups import grouped

HOST = 5
"""The color of the host's memory."""

_ALLOCATION = re.compile(r"^\s*allocation \d+: (?:0x[0-9a-fA-F]+, )?size (\d+)(.*)$", re.MULTILINE)
_SHAPE = re.compile(r"\|[^|]*\|")
_COLOR = re.compile(r", color (\d+)")
_VALUE = re.compile(
    r"^\s*value: <\d+ ([\w.\-]+)((?:\{[\d,]*\})?)(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\)(?:: (\(?))?",
    re.MULTILINE,
)
_MOMENT = re.compile(r"^\s+\d+:([\w.\-]+)$", re.MULTILINE)
_RANGE = re.compile(r"^\s+([\w.\-]+)\{([\d,]*)\}:(\d+)-(\d+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A block of memory: its bytes, the memory space (`color`: 0 main memory, 1 a TPU's VMEM, 2 its SMEM, 5 the
    host's), its purposes, and its position in the text."""

    size: int
    color: int
    is_argument: bool
    is_output: bool
    is_temporary: bool
    is_constant: bool
    begin: int
    end: int

    @property
    def stands(self) -> bool:
        """Whether it is main memory that is held from the beginning to the end of the step."""
        return self.color == 0 and (self.is_argument or self.is_output or self.is_constant)


@dataclass(frozen=True, kw_only=True)
class PlacedValue:
    """A value's name, its index in a tuple, and where it is stored."""

    name: str
    part: str
    allocation: int
    offset: int
    size: int
    is_table: bool  # of a tuple's parts


class Buffers:
    """A buffer assignment with its live ranges, from the texts of `*-buffer-assignment.txt` and `*-live-range.txt`
    (empty if missing). The meaning of colors depends on the target's compiler."""

    def __init__(self, assignment: str, live_range: str = "", target: str = "cpu"):
        self.text, self.live_range, self.target = assignment, live_range, target

    @cached_property
    def allocations(self) -> tuple[Allocation, ...]:
        """Every allocation, including those in on-chip memory and of threads."""
        matches = list(_ALLOCATION.finditer(self.text))
        ends = itertools.chain((m.start() for m in matches[1:]), (len(self.text),))
        gpu = self.target.startswith("gpu")
        return tuple(_allocation(m, end, gpu) for m, end in zip(matches, ends, strict=False))

    @cached_property
    def placed(self) -> dict[tuple[str, str], PlacedValue]:
        """Every value of main memory, by its name and its index in a tuple."""
        placed = {}
        for number, a in enumerate(self.allocations):
            if a.stands or (a.is_temporary and a.color == 0):
                for v in _VALUE.finditer(self.text, a.begin, a.end):
                    part = v[2].strip("{}")
                    placed[v[1], part] = PlacedValue(
                        name=v[1], part=part, allocation=number, offset=int(v[4]), size=int(v[3]), is_table=v[5] == "("
                    )
        return placed

    @cached_property
    def ranges(self) -> tuple[tuple[PlacedValue, int, int], ...]:
        """The first and last moment of each value of main memory, without tuple tables."""
        body = self.live_range.partition("BufferLiveRange:")[2].partition("Live ranges at")[0]
        rows = ((self.placed.get((m[1], m[2])), int(m[3]), int(m[4])) for m in _RANGE.finditer(body))
        return tuple((value, first, last) for value, first, last in rows if value is not None and not value.is_table)

    @cached_property
    def _alive(self) -> tuple[tuple[int, int], ...]:
        """Return (moment, bytes of temporaries alive in main memory from then on) for each change."""
        ranges = [row for row in self.ranges if self.allocations[row[0].allocation].is_temporary]
        begin = grouped((first, value) for value, first, _ in ranges)
        end = grouped((last + 1, value) for value, _, last in ranges)
        held: dict[tuple[int, int], list[int]] = {}
        used, alive = 0, []
        for time in sorted({*begin, *end}):
            for value, comes in [(v, False) for v in end.get(time, ())] + [(v, True) for v in begin.get(time, ())]:
                sizes = held.setdefault((value.allocation, value.offset), [])
                used -= max(sizes, default=0)
                (sizes.append if comes else sizes.remove)(value.size)
                used += max(sizes, default=0)
            alive.append((time, used))
        return tuple(alive)

    @cached_property
    def temporaries(self) -> int:
        """The most bytes of temporaries alive at once in main memory."""
        return max((alive for _, alive in self._alive), default=0)

    @cached_property
    def moment(self) -> int:
        """The first moment with the most bytes of temporaries; -1 if there is none."""
        most = self.temporaries
        return next((moment for moment, alive in self._alive if alive and alive == most), -1)

    @property
    def moments(self) -> tuple[tuple[str, int], ...]:
        """The instruction of each moment, and the bytes of temporaries alive; empty if unknown."""
        names = _MOMENT.findall(self.live_range.partition("BufferLiveRange:")[0])
        alive = [0] * len(names)
        for (begin, size), (end, _) in itertools.pairwise((*self._alive, (len(names), 0))):
            alive[begin:end] = [size] * (min(end, len(names)) - begin)
        return tuple(zip(names, alive, strict=True))

    @property
    def standing(self) -> int:
        """Bytes of main memory that are held for the whole step: arguments, outputs and constants."""
        return sum(a.size for a in self.allocations if a.stands)

    def held(self) -> tuple[tuple[Allocation, tuple[PlacedValue, ...]], ...]:
        """Return what occupies main memory at the peak, largest first: for each place its allocation and its values.
        Values alive at the peak come first, then those just before and after: a loop's operand, carry and result. A
        place held for the whole step has all its values."""
        if not self.ranges:
            return ()
        at = grouped(((row[0].allocation, row[0].offset), row) for row in self.ranges)
        places = []
        for (number, _), rows in at.items():
            allocation = self.allocations[number]
            values = [v for v, _, _ in rows] if allocation.stands else _around(rows, self.moment)
            if values:
                places.append((allocation, tuple(values)))
        return tuple(sorted(places, key=lambda row: -largest(row[1])))


def largest(values: Iterable[PlacedValue]) -> int:
    """Return the bytes of a place: those of its largest value."""
    return max(v.size for v in values)


def _allocation(match: re.Match[str], end: int, gpu: bool) -> Allocation:
    uses = _SHAPE.sub("", match[2])
    stated = _COLOR.search(uses)
    color = int(stated[1]) if stated else 0
    return Allocation(
        size=int(match[1]),
        color=0 if gpu and color != HOST else color,
        is_argument=", parameter " in uses,
        is_output=", maybe-live-out" in uses,
        is_temporary=", preallocated-temp" in uses,
        is_constant=", constant" in uses,
        begin=match.start(),
        end=end,
    )


def _around(rows: Sequence[tuple[PlacedValue, int, int]], moment: int) -> list[PlacedValue]:
    """Return the values at one place that are alive at a moment, then those that adjoin them in time."""
    alive = [value for value, first, last in rows if first <= moment <= last]
    if not alive:
        return []
    groups: list[list[PlacedValue]] = []
    until = -1
    for value, first, last in sorted(rows, key=lambda row: row[1:]):
        if first > until:
            groups.append([])
        groups[-1].append(value)
        until = max(until, last)
    near = next(group for group in groups if alive[0] in group)
    return alive + [value for value in near if value not in alive]


_TOTAL = re.compile(r"Memory Space: default \(color=0\)\s*\nTotal bytes: (\d+)")
_NO_ROOM = (
    re.compile(r"memory required[^()]*\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)"),
    re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm"),
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PASSING = frozenset(("while", "conditional", "call", "parameter", "get-tuple-element"))  # what others made
MOST_ALIVE = 24


def memory(buffers: Buffers, *, target: str = "cpu", report: str = "", no_room: str = "") -> Memory:
    """Return the memory plan of a compiled program, in bytes on one device, from XLA's dumps; `no_room` is its message
    if memory is exhausted. On-chip buffers and host memory are counted separately. `peak` is the memory held for the
    whole step plus the most temporaries alive at once; without live ranges it is everything allocated, with aliased
    arrays counted once. `fits` is False with `no_room`, else None. Raises ParseError if the text has no allocations."""
    if not buffers.allocations and "BufferAssignment" not in buffers.text:
        raise ParseError(f"this is no buffer assignment: no line 'allocation 0: size ...' in {buffers.text[:80]!r}...")
    main = [a for a in buffers.allocations if a.color == 0]
    arguments, outputs, aliased, temporaries = _sums(main)
    host = HostMemory(*_sums([a for a in buffers.allocations if a.color == HOST]))
    total = _TOTAL.search(report)
    needed, hbm = _stated(no_room)
    return Memory(
        arguments=arguments,
        outputs=outputs,
        aliased=aliased,
        temporaries=temporaries,
        peak=buffers.standing + (buffers.temporaries if buffers.ranges else temporaries),
        target=target,
        host=host if host.total else None,
        on_chip=sum(a.size for a in buffers.allocations if a.color not in (0, HOST)),
        needed=int(total[1]) if total else needed,
        hbm=hbm,
        fits=False if no_room else None,
        constants=sum(a.size for a in main if a.is_constant and not (a.is_argument or a.is_output)),
    )


def _sums(allocations: Sequence[Allocation]) -> tuple[int, int, int, int]:
    """Return the bytes of arguments, of outputs, of aliased arrays, and of temporaries."""
    return (
        sum(a.size for a in allocations if a.is_argument),
        sum(a.size for a in allocations if a.is_output),
        sum(a.size for a in allocations if a.is_argument and a.is_output),
        sum(a.size for a in allocations if a.is_temporary),
    )


def alive_at_peak(
    buffers: Buffers, module: Module, arguments: Sequence[str] = (), most: int = MOST_ALIVE
) -> tuple[Alive, ...]:
    """Return the largest values when most bytes are alive in main memory, arguments and outputs included. A place
    shared by several values is named after one that is alive then; if a loop only passed that one on, after the value
    that was made there."""
    heaviest = buffers.held()[:most]
    wanted = {value.name for _, values in heaviest for value in values}
    instructions = {i.name: i for _, i in module if i.name in wanted}
    entry = {i.name: number for number, i in module.entry.parameters.items()}
    more = {"module": module, "arguments": arguments}
    return tuple(_alive(allocation, values, instructions, entry, **more) for allocation, values in heaviest)


def _alive(
    allocation: Allocation,
    values: Sequence[PlacedValue],
    instructions: dict[str, Instruction],
    entry: dict[str, int],
    *,
    module: Module,
    arguments: Sequence[str],
) -> Alive:
    size = largest(values)
    if allocation.is_argument and (parameter := next((v for v in values if v.name in entry), None)):
        instruction, number = instructions[parameter.name], entry[parameter.name]
        name = arguments[number] if number < len(arguments) else instruction.op_name or parameter.name
        dtype, shape = _array(instruction, parameter)
        return Alive(name=name, bytes=size, kind="argument", dtype=dtype, shape=shape)
    kind = "output" if allocation.is_output else "constant" if allocation.is_constant else "temporary"
    tellers = {v: _teller(instructions[v.name], module) for v in values if v.name in instructions}
    if not tellers:
        return Alive(name=values[0].name, bytes=size, kind=kind)
    placed = [v for v, teller in tellers.items() if module.source(teller) is not None]
    makers = [v for v in placed if instructions[v.name].opcode not in _PASSING]
    stacked = [v for v in makers if "dynamic_update_slice" in tellers[v].op_name]  # filled, trip by trip of a loop
    value = (stacked or makers or placed or list(tellers))[0]
    teller = tellers[value]
    dtype, shape = _array(instructions[value.name], value)
    return Alive(
        name=value.name,
        bytes=size,
        kind=kind,
        dtype=dtype,
        shape=shape,
        source=module.source(teller),
        name_stack=teller.op_name,
    )


def _teller(instruction: Instruction, module: Module) -> Instruction:
    """Return the instruction that says where a value comes from: a fusion's root if the fusion itself does not."""
    if instruction.op_name or instruction.opcode != "fusion":
        return instruction
    return module.computations[next(iter(instruction.called.values()))[0]].root


def _array(instruction: Instruction, value: PlacedValue) -> tuple[str, tuple[int, ...]]:
    """Return a value's element type and shape; empty if it is not an array."""
    shape = element(instruction.shape, tuple(int(n) for n in value.part.split(",") if n))
    return (shape.dtype, shape.dims) if isinstance(shape, HloShape) else ("", ())


def _stated(message: str) -> tuple[int | None, int | None]:
    """Return the required and the available bytes (in GiB, rounded) from a compiler's message about exhausted
    memory."""
    for pattern in _NO_ROOM:
        if match := pattern.search(message):
            return round(float(match[1]) * _UNITS[match[2]]), round(float(match[3]) * _UNITS[match[4]])
    return None, None
