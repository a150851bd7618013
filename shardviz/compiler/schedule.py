"""The schedule of an HLO module: what its instructions do, in the order in which they run.

The optimised program of a TPU or a GPU has `is_scheduled=true`: its instructions are in the order in which they start.
An asynchronous operation is started by one instruction and ended by another:

| in the text | begun | ended |
|---|---|---|
| `all-gather-start` and its like, `copy-start`, `async-start`, `fusion-start` | there | at its `-done` |
| `send` to other slices | there | at the `recv-done` of its rendezvous |
| fusions with one `channel_id` | at `AsyncCollectiveStart` | after `AsyncCollectiveDone` |
| a collective, or a fusion of one, without such a mark | there | there: the chip waits |

A program that is not scheduled (the partitioned one) gets the order and the fusions of `foresee.listed`.

>>> from shardviz.compiler.module import parse
>>> module = parse('''HloModule m, is_scheduled=true
... ENTRY %main (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
...   %a = f32[4,8]{1,0} parameter(0)
...   %b = f32[8,2]{1,0} parameter(1)
...   %g = f32[8,2]{1,0} all-reduce(%b), replica_groups={}
...   ROOT %dot = f32[4,2]{1,0} dot(%a, %g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
... }''')
>>> [(e.kind, e.name, dict(e.flops)) for e in schedule_of(module)]
[('begin', 'g', {}), ('end', 'g', {}), ('work', 'dot', {'float32': 128.0})]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shardviz.compiler.graph import BEGINS, ENDS, HloOperation, graph_of
from shardviz.compiler.memory import Buffers
from shardviz.compiler.module import Module
from shardviz.compiler.phases import Phases
from shardviz.compiler.traffic import moved_bytes
from shardviz.foresee.listed import ScheduleBuilder
from shardviz.foresee.tiles import ragged_as_dense
from shardviz.graph import Block, GraphValue, trip_counts
from shardviz.graph.flops import (
    PRODUCTS,
    call_of,
    multiplied_in,
    product_dtype,
    product_flops,
    shape_of,
    shortest,
    shortest_side,
    side_of_product,
)
from shardviz.records.kernels import Kernel, KernelFacts
from shardviz.records.schedule import Schedule, Scheduled, heaviest

_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)"')
_TRANSFER = re.compile(r'_xla_megascale_transfer_type="([^"]*)"')
_HOST = "S(5)"
_STAYS = frozenset(("bitcast", "custom-call", "opt-barrier"))
"""Operations that move nothing, although their operands and results are in different memories."""


def is_scheduled(module: Module) -> bool:
    """Return whether a module's instructions stand in the order in which they run."""
    return module.attributes.get("is_scheduled") == "true"


def schedule_of(
    module: Module,
    kernels: KernelFacts | None = None,
    buffers: Buffers | None = None,
    donated: Sequence[float] = (),
    phases: Phases | None = None,
) -> Schedule:
    """Return what a module's instructions do, in the compiler's order if it is scheduled (`buffers` is its buffer
    assignment), else in the order of `foresee.listed` (`donated` is the bytes on one device of each argument whose
    memory a result may take). Raises ParseError, naming the instruction, if one cannot be read."""
    moments = () if buffers is None else buffers.moments
    reading = _ScheduleReader(module, phases or Phases(module), kernels or KernelFacts(), moments)
    return reading.block(reading.graph.entry, donated=donated)


class _ScheduleReader:
    def __init__(self, module: Module, phases: Phases, kernels: KernelFacts, moments: Sequence[tuple[str, int]]):
        self.graph, self.kernels, self.scheduled = graph_of(module), kernels, is_scheduled(module)
        self.phases, self.trips = phases, trip_counts(self.graph)
        self.listing = ScheduleBuilder(lambda value: value.shape, _nbytes, lambda op: self._entry(op, "work"))
        self._moments = {name: moment for moment, (name, _) in enumerate(moments)}
        self._alive, self._moment = [alive for _, alive in moments], 0  # the first moment that no entry has yet
        self._blocks: dict[Block, Schedule] = {}
        self._chains: dict[str, str] = {}  # the channel of a chain → the collective that began it

    def block(self, block: Block, initial: Sequence[GraphValue] = (), donated: Sequence[float] = ()) -> Schedule:
        """Return a block's schedule, cached in a scheduled module; `initial` is what a loop begins with."""
        if not self.scheduled:
            self.listing.open(block, initial)
            self._list(block)
            return self.listing.close(block.returned, donated)
        if block not in self._blocks:
            self._blocks[block] = tuple(entry for op in block.operations for entry in self.entries(op))
        return self._blocks[block]

    def _list(self, block: Block) -> None:
        for op in block.operations:
            if op.kind == "call":
                self.listing.same(op.blocks[0].arguments, op.operands)
                self._list(op.blocks[0])
                self.listing.same(op.results, op.blocks[0].returned)
            else:
                self.listing.add(op, self.entries(op), _over(op) if op.collective else None)

    def entries(self, op: HloOperation) -> Iterator[Scheduled]:
        """Yield the schedule entries of an operation; none if it costs nothing."""
        kind, name = op.kind, op.native.name
        if kind == "while":
            yield self._entry(op, "loop", trips=self.trips.get(op), body=self.block(op.blocks[1], op.operands))
        elif kind == "conditional":
            yield from heaviest([self.block(block) for block in op.blocks])
        elif kind == "call":
            yield from self.block(op.blocks[0])
        elif kind.endswith("-done"):
            if begun := _begun(op):
                yield self._entry(op, "end", begun)
        elif op.collective:
            if not op.goes_on:
                yield self._entry(op, "begin", collective=name)
                if not kind.endswith("-start"):
                    yield self._entry(op, "end")
        elif kind in ("copy-start", "async-start", "fusion-start"):
            yield self._begin(op)
        elif kind == "send":
            between = _named(_TRANSFER, op) or "send"
            yield self._entry(op, "begin", _named(_RENDEZVOUS, op), between=between, sent_bytes=_nbytes(op.array(0)))
        elif kind == "fusion":
            yield from self._fusion(op)
        elif kind != "recv" and (copied := _copied(op)):  # what is received is there when its send is done
            yield self._entry(op, "begin", **copied)
            yield self._entry(op, "end")
        elif kind != "recv":
            yield from self._work(op)

    def _begin(self, op: HloOperation) -> Scheduled:
        """Return the entry of a copy, or of the operation that an `async-start` runs asynchronously."""
        inner = op
        while inner.kind in ("async-start", "call"):  # a call of what the sparse cores run
            operations = inner.blocks[0].operations
            inner = next((each for each in operations if each.collective), operations[-1])
        if inner.collective:
            return self._entry(op, "begin", collective=inner.native.name)
        return self._entry(op, "begin", **(_copied(inner) or {"hbm_bytes": moved_bytes(inner)}))

    def _fusion(self, op: HloOperation) -> Iterator[Scheduled]:
        """Yield a fusion's collectives and its own work."""
        ended, moved = list[Scheduled](), 0.0
        for inner in op.blocks[0].operations:
            if not inner.collective:
                continue
            name, chain = inner.native.name, inner.channel
            if not inner.goes_on:
                yield self._entry(op, "begin", name, collective=name)
                moved += moved_bytes(inner)
                if inner.is_chained or inner.is_marked(BEGINS):
                    self._chains[chain] = name
                else:
                    ended.append(self._entry(op, "end", name))
            elif chain in self._chains and inner.is_marked(ENDS):
                ended.append(self._entry(op, "end", self._chains[chain]))
        if _is_on_host(op.results) and (copied := _copied(op)):
            yield self._entry(op, "begin", **copied)
            ended.append(self._entry(op, "end"))
        yield from self._work(op, less=moved)
        yield from ended

    def _work(self, op: HloOperation, less: float = 0.0) -> Iterator[Scheduled]:
        """Yield an operation's own work on the chip's units, with its HBM traffic reduced by that of the copies it
        starts."""
        flops: dict[str, float] = {}
        opaque: set[str] = set()
        sides: list[int] = []
        kernel: Kernel = ""
        inside = [op]
        for each in inside:
            if each.kind == "fusion":
                inside += each.blocks[0].operations
            elif each.kind in PRODUCTS:
                dtype, (groups, side) = multiplied_in(each, product_dtype(each)), ragged_as_dense(each, shape_of)
                flops[dtype] = flops.get(dtype, 0.0) + groups * product_flops(each)
                is_convolution = each.kind == "convolution"
                was_product = is_convolution and "dot_general" in each.native.op_name
                sides.append(side_of_product(each) if was_product else side or shortest_side(each))
                kernel = "convolution" if is_convolution else kernel
            elif each.kind == "custom-call":
                call = call_of(each, each.native.op_name, self.phases.source_around(each), self.kernels)
                if call is not None:
                    dtype = multiplied_in(each, call.dtype)
                    flops[dtype] = flops.get(dtype, 0.0) + (call.flops or 0.0)
                    sides.append(call.side)
                    kernel = call.kernel or kernel
                    opaque |= {call.name} if call.flops is None else set()
        moved = max(0.0, moved_bytes(op) - less) if self.scheduled else 0.0
        if flops or moved or opaque:
            done = {"flops": flops, "side": shortest(sides), "kernel": kernel, "hbm_bytes": moved}
            yield self._entry(op, "work", opaque=tuple(sorted(opaque)), **done)

    def _entry(self, op: HloOperation, kind: Any, name: str = "", **fields: Any) -> Scheduled:
        phase, source, _ = self.phases.place_of(op)
        if source is None and op.kind == "custom-call":
            source = self.phases.source_around(op)
        if (moment := self._moments.get(op.native.name)) is not None:
            fields["alive_bytes"] = float(max(self._alive[min(self._moment, moment) : moment + 1]))
            self._moment = moment + 1
        return Scheduled(kind=kind, name=name or op.native.name, source=source, phase=phase, **fields)


def _over(op: HloOperation) -> tuple[str, ...]:
    """Return a key that is equal for equal collectives of one array."""
    attributes = op.native.attributes
    return op.kind, *(attributes.get(name, "") for name in ("replica_groups", "source_target_pairs", "dimensions"))


def _nbytes(value: Any) -> float:
    return float(value.array.nbytes)


def _is_on_host(values: Iterable[Any]) -> bool:
    return any(_HOST in value.array.layout for value in values)


def _copied(op: HloOperation) -> dict[str, Any]:
    """Return the fields of a copy to or from the host's memory; empty for other operations."""
    if op.kind in _STAYS or not _is_on_host((*op.operands, *op.results)):
        return {}
    part = op.array(1) if op.kind == "dynamic-update-slice" else op.results[0]
    return {"host_bytes": _nbytes(part), "to_host": _is_on_host(op.results[:1])}


def _begun(done: HloOperation) -> str:
    """Return the name of the start of an asynchronous operation, given its end; empty if it is in another
    computation."""
    began = done.operands[0].maker if done.operands else None
    while began is not None and began.kind == "bitcast":
        began = began.array(0).maker
    if began is None or not began.kind.endswith(("-start", "send", "recv")):
        return ""
    return _named(_RENDEZVOUS, began) or began.native.name


def _named(pattern: re.Pattern[str], op: HloOperation) -> str:
    match = pattern.search(op.native.attributes_text)
    return match[1] if match else ""
