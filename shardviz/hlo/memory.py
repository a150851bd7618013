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

The format is that of XLA's `BufferAllocation::ToString` (the dump `*-buffer-assignment.txt`). The sums are those of
`Compiled.memory_analysis()`, long before it can be asked; only a TPU's `temp_size_in_bytes` is another, in which the
gaps between temporaries count twice. Main memory is color 0; a TPU's VMEM is color 1, its SMEM color 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardviz.errors import ParseError
from shardviz.hlo.live import Allocation, Buffers, Placed, largest
from shardviz.hlo.module import Instruction, Module
from shardviz.hlo.shape import Shape, element
from shardviz.records import Alive, Memory

_TOTAL = re.compile(r"Memory Space: default \(color=0\)\s*\nTotal bytes: (\d+)")
_NO_ROOM = (
    re.compile(r"memory required[^()]*\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)"),
    re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm"),
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PASSING = frozenset(("while", "conditional", "call", "parameter", "get-tuple-element"))  # what others made
MOST_ALIVE = 24


def memory(
    buffer_assignment: str | Buffers, live_range: str = "", *, target: str = "cpu", report: str = "", no_room: str = ""
) -> Memory:
    """The memory plan of a compiled program, bytes on one device.

    Args:
        buffer_assignment: the text of the dump `*-buffer-assignment.txt`; or both texts, as `Buffers`.
        live_range: the text of `*-live-range.txt`, if there is one.
        target: the compiler whose plan it is.
        report: the text of `*-memory-usage-report.txt`, if there is one.
        no_room: the compiler's message where the program does not fit.

    Returns:
        The plan. Only main memory (color 0) counts, not what a thread keeps to itself; on-chip buffers are counted
        apart. `peak` is what is held for the whole step, and the most of the temporaries that are alive at one time,
        as XLA's heap simulator counts them; without live ranges, all that is set aside: arguments, outputs and
        temporaries, aliased ones once. `fits` is False with `no_room`, else None: who knows the machine may say more.

    Raises:
        ParseError: if the text has no allocations.
    """
    given = buffer_assignment
    buffers = given if isinstance(given, Buffers) else Buffers(given, live_range)
    if not buffers.allocations and "BufferAssignment" not in buffers.text:
        raise ParseError(f"this is no buffer assignment: no line 'allocation 0: size ...' in {buffers.text[:80]!r}...")
    main = [a for a in buffers.allocations if a.color == 0]
    arguments = sum(a.size for a in main if a.is_argument)
    outputs = sum(a.size for a in main if a.is_output)
    aliased = sum(a.size for a in main if a.is_argument and a.is_output)
    temporaries = sum(a.size for a in main if a.is_temporary)
    total = _TOTAL.search(report)
    needed, hbm = _stated(no_room)
    return Memory(
        arguments,
        outputs,
        aliased,
        temporaries,
        buffers.standing + (buffers.temporaries if buffers.ranges else temporaries),
        target,
        on_chip=sum(a.size for a in buffers.allocations if a.color != 0),
        needed=int(total[1]) if total else needed,
        hbm=hbm,
        fits=False if no_room else None,
        constants=sum(a.size for a in main if a.is_constant and not (a.is_argument or a.is_output)),
    )


def alive_at_peak(
    buffers: Buffers,
    module: Module,
    arguments: Sequence[str] = (),
    *,
    most: int = MOST_ALIVE,
) -> tuple[Alive, ...]:
    """The heaviest values at the moment when the most is alive in main memory.

    Arguments and outputs are held for the whole step. A place that several values share is called after one that is
    alive then; where that was only passed on (a loop's parameter), after the one that was made there before or after.

    Args:
        buffers: the buffer assignment, with its live ranges.
        module: the optimised module.
        arguments: the entry parameters' names by number.
        most: how many values, at most.
    """
    heaviest = buffers.held()[:most]
    wanted = {value.name for _, values in heaviest for value in values}
    made = {i.name: i for _, i in module if i.name in wanted}
    entry = {i.name: number for number, i in module.entry.parameters.items()}
    return tuple(_alive(allocation, values, made, entry, module, arguments) for allocation, values in heaviest)


def _alive(
    allocation: Allocation,
    values: Sequence[Placed],
    made: dict[str, Instruction],
    entry: dict[str, int],
    module: Module,
    arguments: Sequence[str],
) -> Alive:
    size = largest(values)
    if allocation.is_argument and (given := next((v for v in values if v.name in entry), None)):
        instruction, number = made[given.name], entry[given.name]
        name = arguments[number] if number < len(arguments) else instruction.op_name or given.name
        return Alive(name, size, "argument", *_array(instruction, given))
    kind = "output" if allocation.is_output else "constant" if allocation.is_constant else "temporary"
    tellers = {v: _teller(made[v.name], module) for v in values if v.name in made}
    if not tellers:
        return Alive(values[0].name, size, kind)
    told = [v for v, teller in tellers.items() if module.source(teller) is not None]
    makers = [v for v in told if made[v.name].opcode not in _PASSING]
    stacked = [v for v in makers if "dynamic_update_slice" in tellers[v].op_name]  # filled, trip by trip of a loop
    value = (stacked or makers or told or list(tellers))[0]
    teller = tellers[value]
    return Alive(value.name, size, kind, *_array(made[value.name], value), module.source(teller), teller.op_name)


def _teller(instruction: Instruction, module: Module) -> Instruction:
    """The instruction that says where a value comes from: a fusion's root, where the fusion itself says nothing."""
    if instruction.op_name or instruction.opcode != "fusion":
        return instruction
    return module.computations[next(iter(instruction.called.values()))[0]].root


def _array(instruction: Instruction, value: Placed) -> tuple[str, tuple[int, ...]]:
    """The element type and shape of a value; empty where it is no array."""
    shape = element(instruction.shape, tuple(int(n) for n in value.part.split(",") if n))
    return (shape.dtype, shape.dims) if isinstance(shape, Shape) else ("", ())


def _stated(message: str) -> tuple[int | None, int | None]:
    """Bytes needed and bytes there are, as a compiler's refusal states them (in GiB, rounded)."""
    for pattern in _NO_ROOM:
        if found := pattern.search(message):
            return round(float(found[1]) * _UNITS[found[2]]), round(float(found[3]) * _UNITS[found[4]])
    return None, None
