"""What one device computes, reads and writes in a step: summed over a module's instructions, loops multiplied in.

FLOPs are those of the partitioned program, the same for every target; bytes are those of the program as the target runs
it, whose products may be calls of a library that say no FLOPs. Both are summed by place in the person's program:

    dot in a scan's body, 80 trips, jit(step)/transpose(jvp(block))/while/body/dot_general, model.py:31
    → Work(phase="backward", source=model.py:31, module="block", dtype="bfloat16", dot_flops=80 x 2 x ...)

A conditional counts the branch that costs most. A loop whose trip count is not known counts once.

>>> from shardviz.compiler.module import parse
>>> module = parse('''HloModule m
... ENTRY %main (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
...   %a = f32[4,8]{1,0} parameter(0)
...   %b = f32[8,2]{1,0} parameter(1)
...   ROOT %dot = f32[4,2]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
... }''')
>>> count_flops(module).dot_flops, count_bytes(module).bytes
(128.0, 224.0)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from shardviz.compiler.flops import Call, OtherFlops, array_operand, call_of, dot_flops_of, source_of_call
from shardviz.compiler.graph import graph_of
from shardviz.compiler.module import Computation, Instruction, Module
from shardviz.compiler.phases import Phases, full_name, named_instruction
from shardviz.compiler.traffic import Traffic
from shardviz.graph import Block, heaviest_runs, trip_counts
from shardviz.layouts.layout import itemsize
from shardviz.records import Cost, Frame, Work, WorkTally
from shardviz.records.kernels import Known
from shardviz.records.source import module_of
from shardviz.records.work import joined


@dataclass(frozen=True)
class ByteCount:
    """What a module's instructions read from and write to main memory, on one device.

    Attributes:
        bytes: loops multiplied in.
        once: each loop's body counted once.
        work: the bytes by phase, line, module and element type, the most first; without FLOPs.
    """

    bytes: float
    once: float
    work: tuple[Work, ...]


def count_flops(module: Module, phases: Phases | None = None, known: Known | None = None) -> Cost:
    """Counts the FLOPs of a module on one device.

    Args:
        module: the partitioned module, whose shapes are one device's, or any other.
        phases: of this module, where they are there already.
        known: what is known of kernels and library calls besides their text.

    Raises:
        ParseError: if an instruction cannot be read; the message names it.
    """
    other_of = OtherFlops(module)
    calls: dict[str, Call] = {}
    found: dict[str, list[tuple[Instruction, float, float]]] = {}
    for name, computation in module.computations.items():
        rows = found[name] = []
        for instruction in computation.instructions:
            if call := call_of(module, computation, instruction, known or Known()):
                calls[instruction.name] = call
                rows.append((instruction, call.flops or 0.0, 0.0))
                continue
            dot, other = dot_flops_of(computation, instruction), other_of(computation, instruction)
            if dot + other:
                rows.append((instruction, dot, other))
    flops = {name: sum(dot + other for _, dot, other in rows) for name, rows in found.items()}
    graph = graph_of(module)
    trips = trip_counts(graph)

    def own(block: Block) -> float:
        return flops[block.name]

    place_of, tally = _Places(module, phases or Phases(module)), WorkTally()
    for block, times in heaviest_runs(graph, own, trips).items():
        computation = module.computations[block.name]
        for instruction, dot, other in found[block.name] if times else ():
            call = calls.get(instruction.name)
            dtype = call.dtype if call else _factors(computation, instruction) if dot else instruction.shapes[0].dtype
            opaque = (call.name,) if call and call.flops is None else ()
            phase, source, where = place_of(computation, instruction)
            source = source or (source_of_call(module, computation, instruction) if call else None)
            tally.add(phase, source, where, dtype, times * dot, times * other, opaque=opaque)
    rows = tally.rows
    return Cost(
        dot_flops=sum(row.dot_flops for row in rows),
        unknown_loops=sum(trip is None for trip in trips.values()),
        other_flops=sum(row.other_flops for row in rows),
        once_flops=float(sum(times * own(block) for block, times in heaviest_runs(graph, own, {}).items())),
        work=rows,
    )


def count_bytes(module: Module, phases: Phases | None = None) -> ByteCount:
    """Counts the bytes that a module's instructions read from and write to main memory; see `traffic`.

    Args:
        module: a module as a target runs it: optimised, with its fusions.
        phases: of this module, where they are there already.

    Raises:
        ParseError: if an instruction cannot be read; the message names it.
    """
    bytes_of = Traffic(module)
    found: dict[str, list[tuple[Instruction, float]]] = {}

    def own(block: Block) -> float:
        if block.name not in found:
            computation = module.computations[block.name]
            sizes = ((instruction, bytes_of(computation, instruction)) for instruction in computation.instructions)
            found[block.name] = [(instruction, size) for instruction, size in sizes if size]
        return sum(size for _, size in found[block.name])

    place_of, tally = _Places(module, phases or Phases(module)), WorkTally()
    graph = graph_of(module)
    for block, times in heaviest_runs(graph, own, trip_counts(graph), fused=False).items():
        computation = module.computations[block.name]
        for instruction, size in found[block.name] if times else ():
            tally.add(*place_of(computation, instruction), _largest_dtype(instruction), hbm_bytes=times * size)
    rows = tally.rows
    once = heaviest_runs(graph, own, {}, fused=False)
    return ByteCount(
        sum(row.hbm_bytes or 0.0 for row in rows), float(sum(times * own(block) for block, times in once.items())), rows
    )


def with_bytes(cost: Cost, moved: ByteCount) -> Cost:
    """FLOPs and bytes in one, which may be of two programs: as partitioned, and as the target runs it."""
    work = joined(cost.work, moved.work)
    return dataclasses.replace(cost, hbm_bytes=moved.bytes, once_hbm_bytes=moved.once, work=work)


class _Places:
    """Says where in the person's program an instruction stems from: phase, line and module."""

    def __init__(self, module: Module, phases: Phases):
        self.module, self.phases = module, phases
        self.known: dict[tuple[str, int], tuple[Frame | None, str]] = {}

    def __call__(self, computation: Computation, instruction: Instruction) -> tuple[str, Frame | None, str]:
        where, told = named_instruction(self.module, computation, instruction)
        name_stack = full_name(self.module, where, told, self.phases.prefixes)
        phase = self.phases(computation, instruction, name_stack)
        frame_id = told.stack_frame_id
        if (name_stack, frame_id) not in self.known or not frame_id:
            source = self.module.source(told)
            self.known[name_stack, frame_id] = source, module_of(name_stack, source)
        return phase, *self.known[name_stack, frame_id]


def _factors(computation: Computation, instruction: Instruction) -> str:
    """The element type in which a product's factors are multiplied: the wider of the two."""
    return max((array_operand(computation, instruction, n).dtype for n in (0, 1)), key=itemsize)


def _largest_dtype(instruction: Instruction) -> str:
    """The element type of most elements of a result; empty where it gives none."""
    largest = max(instruction.shapes, key=lambda shape: shape.size, default=None)
    return "" if largest is None else largest.dtype
