"""The FLOPs and bytes of one device in a step: summed over a module's instructions, with loops multiplied.

FLOPs are those of the partitioned program, equal for every target. Bytes are those of the target's program, in which
products may be library calls without known FLOPs. Both are summed by place in the user's program:

    dot in a scan's body, 80 trips, jit(step)/transpose(jvp(block))/while/body/dot_general, model.py:31
    → Work(phase="backward", source=model.py:31, module="block", dtype="bfloat16", dot_flops=80 x 2 x ...)

A conditional counts its most expensive branch. A loop with an unknown trip count counts once.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardviz.compiler.graph import HloOperation, graph_of
from shardviz.compiler.module import Module
from shardviz.compiler.phases import Phases
from shardviz.compiler.traffic import moved_bytes
from shardviz.graph import Block, heaviest_runs, trip_counts
from shardviz.graph.flops import KernelCall, OtherFlops, call_of, product_dtype, product_flops
from shardviz.records import Cost, Work, WorkTally
from shardviz.records.kernels import KernelFacts
from shardviz.records.work import joined


@dataclass(frozen=True)
class ByteCount:
    """The bytes that a module's instructions read from and write to main memory on one device: with loops multiplied,
    with each loop's body `once`, and by phase, line, module and element type, most first."""

    bytes: float
    once: float
    work: tuple[Work, ...]


def count_flops(module: Module, phases: Phases | None = None, kernels: KernelFacts | None = None) -> Cost:
    """Return a module's FLOPs on one device. Raises ParseError, naming the instruction, if one cannot be read."""
    phases, kernels, other_of = phases or Phases(module), kernels or KernelFacts(), OtherFlops(graph_of(module))

    def called(op: HloOperation) -> KernelCall | None:
        return call_of(op, op.native.op_name, phases.source_around(op), kernels) if op.kind == "custom-call" else None

    def cost(op: HloOperation) -> float | None:
        if op.kind != "custom-call":
            return product_flops(op) + other_of(op) or None
        call = called(op)
        return None if call is None else call.flops or 0.0

    counted, tally = _Counted(module, cost), WorkTally()
    for op, times in counted.rows:
        call = called(op)
        dot, other = (call.flops or 0.0, 0.0) if call else (product_flops(op), other_of(op))
        dtype = call.dtype if call else product_dtype(op) if dot else op.results[0].dtype
        opaque = (call.name,) if call and call.flops is None else ()
        phase, source, where = phases.place_of(op)
        source = source or (phases.source_around(op) if call else None)
        tally.add(phase, source, where, dtype, times * dot, other_flops=times * other, opaque=opaque)
    rows = tally.rows
    return Cost(
        dot_flops=sum(row.dot_flops for row in rows),
        unknown_loops=sum(trip is None for trip in counted.trips.values()),
        other_flops=sum(row.other_flops for row in rows),
        once_flops=counted.once,
        work=rows,
    )


def count_bytes(module: Module, phases: Phases | None = None) -> ByteCount:
    """Return the bytes of main memory that an optimised module moves (see `traffic`); errors as `count_flops`."""
    counted = _Counted(module, lambda op: moved_bytes(op) or None, fused=False)
    phases, tally = phases or Phases(module), WorkTally()
    for op, times in counted.rows:
        largest = max(op.results, key=lambda value: value.elements, default=None)
        dtype = "" if largest is None else largest.dtype
        tally.add(*phases.place_of(op), dtype, hbm_bytes=times * moved_bytes(op))
    rows = tally.rows
    return ByteCount(sum(row.hbm_bytes or 0.0 for row in rows), counted.once, rows)


def with_bytes(cost: Cost, moved: ByteCount) -> Cost:
    """Merge FLOPs and bytes, which may be of two programs: as partitioned, and as the target runs it."""
    work = joined(cost.work, moved.work)
    return dataclasses.replace(cost, hbm_bytes=moved.bytes, once_hbm_bytes=moved.once, work=work)


class _Counted:
    """The cost of each operation of a module in one run (None: not counted), and its number of runs."""

    def __init__(self, module: Module, cost: Callable[[HloOperation], float | None], *, fused: bool = True):
        self.graph, self.fused, self._cost_of = graph_of(module), fused, cost
        self.trips = trip_counts(self.graph)
        self._costs: dict[Block, dict[HloOperation, float]] = {}

    def _cost(self, block: Block) -> float:
        if block not in self._costs:
            self._costs[block] = {op: c for op in block.operations if (c := self._cost_of(op)) is not None}
        return sum(self._costs[block].values())

    @property
    def rows(self) -> Iterator[tuple[HloOperation, int]]:
        """The counted operations with their numbers of runs, where each conditional takes its most expensive branch."""
        for block, times in heaviest_runs(self.graph, self._cost, self.trips, fused=self.fused).items():
            yield from ((op, times) for op in self._costs[block] if times)

    @property
    def once(self) -> float:
        """The total cost with each loop's body run once."""
        runs = heaviest_runs(self.graph, self._cost, {}, fused=self.fused)
        return float(sum(times * self._cost(block) for block, times in runs.items()))
