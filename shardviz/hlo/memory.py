"""A compiler's memory plan, from the text of its buffer assignment.

XLA writes one line an allocation, and what it is for:

>>> plan = memory('''BufferAssignment:
... allocation 0: size 1024, page 0, parameter 0, shape |f32[256]| at ShapeIndex {}, maybe-live-out:
...  value: <3 x @0> (size=1024,offset=0): f32[256]{0}
... allocation 1: size 512, page 0, parameter 1, shape |f32[128]| at ShapeIndex {}:
... allocation 2: size 4096, page 0, preallocated-temp:
... ''')
>>> plan.arguments, plan.outputs, plan.aliased, plan.temporaries, plan.peak
(1536, 1024, 1024, 4096, 5632)

The format is that of XLA's `BufferAllocation::ToString` (the dump `*-buffer-assignment.txt`); the sums are those of
`Compiled.memory_analysis()`, but for what a TPU's code generator sets aside later. Main memory is color 0; a TPU's VMEM
is color 1, its SMEM color 2.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from shardviz.errors import ParseError
from shardviz.hlo.module import Instruction, Module
from shardviz.hlo.shape import Shape, element
from shardviz.records import Alive, Memory

_ALLOCATION = re.compile(r"^\s*allocation \d+: (?:0x[0-9a-fA-F]+, )?size (\d+)(.*)$", re.MULTILINE)
_SHAPE = re.compile(r"\|[^|]*\|")
_COLOR = re.compile(r", color (\d+)")
_VALUE = re.compile(
    r"^\s*value: <\d+ ([\w.\-]+)((?:\{[\d,]*\})?)(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\)", re.MULTILINE
)
_PEAK = re.compile(r"Live ranges at \d+ \(peak\):\s*\n((?:\s+.*: \d+ bytes \(cumulative: \d+ bytes\)\n?)*)")
_LIVE = re.compile(r"^\s+([\w.\-]+)(\{[\d,]*\}): (\d+) bytes \(cumulative", re.MULTILINE)
_TOTAL = re.compile(r"Memory Space: default \(color=0\)\s*\nTotal bytes: (\d+)")
_NO_ROOM = (
    re.compile(r"memory required[^()]*\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)"),
    re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm"),
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
MOST_ALIVE = 24


def memory(
    buffer_assignment: str, live_range: str = "", *, target: str = "cpu", report: str = "", no_room: str = ""
) -> Memory:
    """The memory plan of a compiled program, bytes on one device.

    Args:
        buffer_assignment: the text of the dump `*-buffer-assignment.txt`.
        live_range: the text of `*-live-range.txt`, if there is one.
        target: the compiler whose plan it is.
        report: the text of `*-memory-usage-report.txt`, if there is one.
        no_room: the compiler's message where the program does not fit.

    Returns:
        The plan. Only main memory (color 0) counts, not constants or what a thread keeps to itself; on-chip buffers
        are counted apart. `peak` is the largest set of values alive at one time, from the live ranges; without them,
        all that is set aside: arguments, outputs and temporaries, aliased ones once. `fits` is False with `no_room`,
        else None: who knows the machine may say more.

    Raises:
        ParseError: if the text has no allocations.
    """
    arguments = outputs = aliased = temporaries = on_chip = 0
    found = _ALLOCATION.findall(buffer_assignment)
    if not found and "BufferAssignment" not in buffer_assignment:
        raise ParseError(
            f"this is no buffer assignment: no line 'allocation 0: size ...' in {buffer_assignment[:80]!r}..."
        )
    for size_text, rest in found:
        size, uses = int(size_text), _SHAPE.sub("", rest)
        if (color := _COLOR.search(uses)) and color[1] != "0":
            on_chip += size
            continue
        is_argument, is_output = ", parameter " in uses, ", maybe-live-out" in uses
        arguments += size * is_argument
        outputs += size * is_output
        aliased += size * (is_argument and is_output)
        temporaries += size * (", preallocated-temp" in uses)
    peak = sum(size for _, _, size in _alive(buffer_assignment, live_range))
    total = _TOTAL.search(report)
    needed, hbm = _stated(no_room)
    return Memory(
        arguments,
        outputs,
        aliased,
        temporaries,
        peak or arguments + outputs - aliased + temporaries,
        target,
        on_chip=on_chip,
        needed=int(total[1]) if total else needed,
        hbm=hbm,
        fits=False if no_room else None,
    )


def alive_at_peak(
    buffer_assignment: str,
    live_range: str,
    module: Module,
    arguments: Sequence[str] = (),
    *,
    most: int = MOST_ALIVE,
) -> tuple[Alive, ...]:
    """The heaviest values at the moment when the most is alive in main memory.

    Args:
        buffer_assignment, live_range: as for `memory`.
        module: the optimised module.
        arguments: the entry parameters' names by number.
        most: how many values, at most.
    """
    heaviest = sorted(_alive(buffer_assignment, live_range), key=lambda value: -value[2])[:most]
    wanted = {name for name, _, _ in heaviest}
    made = {i.name: i for _, i in module if i.name in wanted}
    entry = {i.name: number for number, i in module.entry.parameters.items()}
    return tuple(_value(name, path, size, made.get(name), entry, module, arguments) for name, path, size in heaviest)


def _value(
    name: str,
    path: tuple[int, ...],
    size: int,
    instruction: Instruction | None,
    entry: dict[str, int],
    module: Module,
    arguments: Sequence[str],
) -> Alive:
    if instruction is None:
        return Alive(name, size)
    shape = element(instruction.shape, path)
    dtype, dims = (shape.dtype, shape.dims) if isinstance(shape, Shape) else ("", ())
    if (number := entry.get(name)) is not None:
        known = number < len(arguments)
        return Alive(arguments[number] if known else instruction.op_name or name, size, "argument", dtype, dims)
    kind = "constant" if instruction.opcode == "constant" else "temporary"
    teller = instruction
    if not teller.op_name and instruction.opcode == "fusion":
        teller = module.computations[next(iter(instruction.called.values()))[0]].root
    return Alive(name, size, kind, dtype, dims, module.source(teller), teller.op_name)


def _alive(buffer_assignment: str, live_range: str) -> list[tuple[str, tuple[int, ...], int]]:
    """Name, part of a tuple and bytes (padding included) of what is alive in main memory at the peak, heaviest first.

    Values that share a place (a loop's parameter and what it was given) count once, though the live ranges have both.
    """
    found = _PEAK.search(live_range)
    if found is None:
        return []
    places: dict[tuple[str, str], tuple[int, int, int] | None] = {}  # None: not in main memory
    starts = [m.start() for m in _ALLOCATION.finditer(buffer_assignment)] + [len(buffer_assignment)]
    for number, (begin, end) in enumerate(itertools.pairwise(starts)):
        text = buffer_assignment[begin:end]
        color = _COLOR.search(_SHAPE.sub("", text.partition("\n")[0]))
        main = color is None or color[1] == "0"
        for value in _VALUE.finditer(text):
            places[value[1], value[2].strip("{}")] = (number, int(value[4]), int(value[3])) if main else None
    alive = []
    taken: dict[int, list[tuple[int, int]]] = {}
    for name, braced, size in sorted(_LIVE.findall(found[1]), key=lambda row: -int(row[2])):
        key = (name, braced.strip("{}"))
        place = places.get(key, (-1 - len(alive), 0, int(size)))
        if place is None:
            continue
        number, begin, size = place
        spans = taken.setdefault(number, [])
        if any(begin < end and start < begin + size for start, end in spans):
            continue
        spans.append((begin, begin + size))
        alive.append((name, tuple(int(n) for n in key[1].split(",") if n), size))
    return alive


def _stated(message: str) -> tuple[int | None, int | None]:
    """Bytes needed and bytes there are, as a compiler's refusal states them (in GiB, rounded)."""
    for pattern in _NO_ROOM:
        if found := pattern.search(message):
            return round(float(found[1]) * _UNITS[found[2]]), round(float(found[3]) * _UNITS[found[4]])
    return None, None
