"""What one device computes, and what it reads and writes, in a step: counted instruction by instruction, with loops.

FLOPs are those of the partitioned program, the same for every target; bytes are those of the program as the target runs
it, whose products may be calls of a library that say no FLOPs. Each is summed by the place that it stems from:

    dot in a scan's body, 80 trips, jit(step)/transpose(jvp(block))/while/body/dot_general, model.py:31
    → Work(phase="backward", source=model.py:31, module="block", dtype="bfloat16", dot_flops=80 x 2 x ...)

A conditional counts the branch that costs most. A loop whose trip count is not known counts once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from shardviz.hlo.flops import array_operand, dot_flops_of
from shardviz.hlo.loops import heaviest_runs, trip_counts
from shardviz.hlo.module import Computation, Instruction, Module
from shardviz.hlo.name_stacks import full_name, teller
from shardviz.hlo.other_flops import OtherFlops
from shardviz.hlo.phases import Phases
from shardviz.hlo.traffic import Traffic
from shardviz.layout.layout import itemsize
from shardviz.records import Frame, Work
from shardviz.source import module_of

Key = tuple[str, Frame | None, str, str]


@dataclass(frozen=True)
class FlopCount:
    """The FLOPs of a module on one device.

    Attributes:
        dot, other: of matrix products and convolutions, and of all else; loops multiplied in.
        once: of both, each loop's body counted once.
        unknown_loops: how many loops' trip counts are not known.
        work: the same by phase, line, module and element type, the most first.
    """

    dot: float
    other: float
    once: float
    unknown_loops: int
    work: tuple[Work, ...]


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


def count_flops(module: Module, phases: Phases | None = None) -> FlopCount:
    """Counts the FLOPs of a module.

    Args:
        module: the partitioned module, whose shapes are one device's, or any other.
        phases: of this module, where they are there already.

    Raises:
        ParseError: if an instruction cannot be read; the message names it.
    """
    other_of = OtherFlops(module)
    found = {
        name: [
            (instruction, dot, other)
            for instruction in computation.instructions
            if (dot := dot_flops_of(computation, instruction)) + (other := other_of(computation, instruction))
        ]
        for name, computation in module.computations.items()
    }
    own = {name: sum(dot + other for _, dot, other in rows) for name, rows in found.items()}
    trips = trip_counts(module)
    once = heaviest_runs(module, own.__getitem__, {})
    tally = _Tally(module, phases or Phases(module))
    for name, times in heaviest_runs(module, own.__getitem__, trips).items():
        computation = module.computations[name]
        for instruction, dot, other in found[name] if times else ():
            dtype = _factors(computation, instruction) if dot else instruction.shapes[0].dtype
            tally.add(computation, instruction, dtype, times * dot, times * other)
    rows = tally.rows()
    return FlopCount(
        sum(row.dot_flops for row in rows),
        sum(row.other_flops for row in rows),
        float(sum(times * own[name] for name, times in once.items())),
        sum(trip is None for trip in trips.values()),
        rows,
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

    def own(name: str) -> float:
        if name not in found:
            computation = module.computations[name]
            sizes = ((instruction, bytes_of(computation, instruction)) for instruction in computation.instructions)
            found[name] = [(instruction, size) for instruction, size in sizes if size]
        return sum(size for _, size in found[name])

    tally = _Tally(module, phases or Phases(module))
    for name, times in heaviest_runs(module, own, trip_counts(module), fused=False).items():
        computation = module.computations[name]
        for instruction, size in found[name] if times else ():
            tally.add(computation, instruction, _largest_dtype(instruction), nbytes=times * size)
    rows = tally.rows()
    once = heaviest_runs(module, own, {}, fused=False)
    return ByteCount(
        sum(row.hbm_bytes or 0.0 for row in rows), float(sum(times * own(name) for name, times in once.items())), rows
    )


def joined(computed: Iterable[Work], moved: Iterable[Work]) -> tuple[Work, ...]:
    """Rows of FLOPs and rows of bytes in one: those of the same place are one row, the most FLOPs first."""
    found = {_key(row): dataclasses.replace(row, hbm_bytes=0.0) for row in computed}
    for row in moved:
        other = found.get(_key(row))
        found[_key(row)] = row if other is None else dataclasses.replace(other, hbm_bytes=row.hbm_bytes)
    return _ordered(found.values())


class _Tally:
    """Sums by place."""

    def __init__(self, module: Module, phases: Phases):
        self.module, self.phases = module, phases
        self.sums: dict[Key, list[float]] = {}
        self.places: dict[tuple[str, int], tuple[Frame | None, str]] = {}

    def add(
        self,
        computation: Computation,
        instruction: Instruction,
        dtype: str,
        dot: float = 0.0,
        other: float = 0.0,
        nbytes: float = 0.0,
    ) -> None:
        where, told = teller(self.module, computation, instruction)
        name_stack = full_name(self.module, where, told, self.phases.prefixes)
        phase = self.phases(computation, instruction, name_stack)
        frame_id = told.stack_frame_id
        if (name_stack, frame_id) not in self.places or not frame_id:
            source = self.module.source(told)
            self.places[name_stack, frame_id] = source, module_of(name_stack, source)
        source, module = self.places[name_stack, frame_id]
        row = self.sums.setdefault((phase, source, module, dtype), [0.0, 0.0, 0.0])
        row[0] += dot
        row[1] += other
        row[2] += nbytes

    def rows(self) -> tuple[Work, ...]:
        return _ordered(Work(*key, dot, other, nbytes or None) for key, (dot, other, nbytes) in self.sums.items())


def _key(row: Work) -> Key:
    return row.phase, row.source, row.module, row.dtype


def _ordered(rows: Iterable[Work]) -> tuple[Work, ...]:
    def weight(row: Work) -> tuple[float, float, str, str, str, str]:
        where = row.source.short if row.source else ""
        return -(row.dot_flops + row.other_flops), -(row.hbm_bytes or 0.0), where, row.phase, row.module, row.dtype

    return tuple(sorted(rows, key=weight))


def _factors(computation: Computation, instruction: Instruction) -> str:
    """The element type in which a product's factors are multiplied: the wider of the two."""
    return max((array_operand(computation, instruction, n).dtype for n in (0, 1)), key=itemsize)


def _largest_dtype(instruction: Instruction) -> str:
    """The element type of most elements of a result; empty where it gives none."""
    largest = max(instruction.shapes, key=lambda shape: shape.size, default=None)
    return "" if largest is None else largest.dtype
