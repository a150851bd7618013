"""The schedule of an HLO module: what its instructions do, in the order in which they run.

The optimised program of a TPU or a GPU says `is_scheduled=true`: its instructions stand in the order in which they
begin. What goes on beside the others is begun by one instruction and ended by another:

| in the text | begun | ended |
|---|---|---|
| `all-gather-start` and its like, `copy-start`, `async-start` | there | at its `-done` |
| `send` to other slices | there | at the `recv-done` of its rendezvous |
| fusions with one `channel_id` | at `AsyncCollectiveStart` | after `AsyncCollectiveDone` |
| a collective, or a fusion of one, without such a mark | there | there: the chip waits |

The order of a program that is not scheduled (the partitioner's) is `graph.listed`'s, and of its bytes only those of
matrix products are counted: the rest will be fused.

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
from collections.abc import Iterator
from typing import Any

from shardviz.compiler.graph import HloOperation, HloValue, graph_of
from shardviz.compiler.module import Module
from shardviz.compiler.phases import Phases, named_instruction
from shardviz.compiler.traffic import moved_bytes
from shardviz.graph import Block, Value, trip_counts
from shardviz.graph.flops import call_of, product_dtype, product_flops
from shardviz.graph.listed import listed
from shardviz.records import Frame
from shardviz.records.kernels import Known
from shardviz.records.schedule import Schedule, Scheduled, heaviest

_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)"')
_TRANSFER = re.compile(r'_xla_megascale_transfer_type="([^"]*)"')
_STAYS = frozenset(("bitcast", "custom-call", "opt-barrier"))


def is_scheduled(module: Module) -> bool:
    """Whether a module's instructions stand in the order in which they run."""
    return module.attributes.get("is_scheduled") == "true"


def schedule_of(module: Module, known: Known | None = None) -> Schedule:
    """What a module's instructions do, in the compiler's order where it is scheduled, else in `graph.listed`'s.

    Args:
        module: the optimised module, or the partitioned one.
        known: what is known of kernels and library calls besides their text.

    Raises:
        ParseError: if an instruction cannot be read; the message names it.
    """
    reading = _Reading(module, known or Known())
    return reading.block(reading.graph.entry)


class _Reading:
    """One reading of a module."""

    def __init__(self, module: Module, known: Known):
        self.module, self.known, self.scheduled = module, known, is_scheduled(module)
        self.graph, self.phases = graph_of(module), Phases(module)
        self.trips = trip_counts(self.graph)
        self._blocks: dict[Block, Schedule] = {}
        self._chains: dict[str, str] = {}  # the channel of a chain → the collective that began it
        self._sources: dict[tuple[str, int], Frame | None] = {}

    def block(self, block: Block) -> Schedule:
        """A computation's schedule, made once."""
        if block not in self._blocks:
            if self.scheduled:
                self._blocks[block] = tuple(entry for op in block.operations for entry in self.entries(op))
            else:
                self._blocks[block] = listed(block, self.entries)
        return self._blocks[block]

    def entries(self, op: HloOperation) -> Iterator[Scheduled]:
        """What an operation does; nothing for what costs nothing."""
        kind, name = op.kind, op.native.name
        if kind == "while":
            yield self._made(op, "loop", trips=self.trips.get(op), body=self.block(op.blocks[1]))
        elif kind == "conditional":
            yield from heaviest([self.block(branch) for branch in op.blocks])
        elif kind == "call":
            yield from self.block(op.blocks[0])
        elif kind.endswith("-done"):
            if begun := _begun(op):
                yield self._made(op, "end", name=begun)
        elif op.collective:
            if not op.goes_on:
                yield self._made(op, "begin", collective=name)
                if not kind.endswith("-start"):
                    yield self._made(op, "end")
        elif kind in ("copy-start", "async-start"):
            yield self._begin(op)
        elif kind == "send":
            between = _named(_TRANSFER, op) or "send"
            name = _named(_RENDEZVOUS, op) or name
            yield self._made(op, "begin", name, between=between, sent_bytes=float(op.array(0).array.nbytes))
        elif kind == "recv":  # what it gives is there when its send is done
            return
        elif kind == "fusion":
            yield from self._fusion(op)
        elif moved := _host_bytes(op):
            yield self._made(op, "begin", **_copied(op, moved))
            yield self._made(op, "end")
        else:
            yield from self._work(op)

    def _begin(self, op: HloOperation) -> Scheduled:
        """A copy, or what an `async-start` runs beside the rest."""
        inner = op
        if op.kind == "async-start":
            operations = op.blocks[0].operations
            inner = next((each for each in operations if each.collective), operations[-1])
            if inner.collective:
                return self._made(op, "begin", collective=inner.native.name)
        if host := _host_bytes(inner):
            return self._made(op, "begin", **_copied(inner, host))
        return self._made(op, "begin", hbm_bytes=moved_bytes(inner))

    def _fusion(self, op: HloOperation) -> Iterator[Scheduled]:
        """A fusion's collectives and its own work."""
        ended, moved = list[Scheduled](), 0.0
        for inner in op.blocks[0].operations:
            if not inner.collective:
                continue
            name = inner.native.name
            chain = _named(_CHANNEL, inner) or name
            if not inner.goes_on:
                yield self._made(op, "begin", name=name, collective=name)
                moved += moved_bytes(inner)
                if inner.is_chained or inner.is_marked_begun:
                    self._chains[chain] = name
                else:
                    ended.append(self._made(op, "end", name=name))
            elif chain in self._chains and inner.is_marked_ended:
                ended.append(self._made(op, "end", name=self._chains[chain]))
        if any(map(_is_on_host, op.results)) and (host := _host_bytes(op)):
            yield self._made(op, "begin", **_copied(op, host))
            ended.append(self._made(op, "end"))
        yield from self._work(op, less=moved)
        yield from ended

    def _work(self, op: HloOperation, less: float = 0.0) -> Iterator[Scheduled]:
        """An operation's own work on the chip's units, its HBM traffic less that of what it begins."""
        flops: dict[str, float] = {}
        opaque: list[str] = []
        inside = [op]
        for each in inside:
            if each.kind == "fusion":
                inside += each.blocks[0].operations
            elif each.kind == "custom-call":
                source = self.phases.source_around(each)
                if call := call_of(each, each.native.op_name, source, self.known):
                    flops[call.dtype] = flops.get(call.dtype, 0.0) + (call.flops or 0.0)
                    opaque += [call.name] * (call.flops is None)
            elif dot := product_flops(each):
                flops[product_dtype(each)] = flops.get(product_dtype(each), 0.0) + dot
        counted = self.scheduled or flops or opaque
        moved = max(0.0, moved_bytes(op) - less) if counted else 0.0
        if flops or moved or opaque:
            yield self._made(op, "work", flops=flops, hbm_bytes=moved, opaque=tuple(sorted(set(opaque))))

    def _made(self, op: HloOperation, kind: Any, name: str = "", **fields: Any) -> Scheduled:
        where, named = named_instruction(self.module, self.module.computations[op.block.name], op.native)
        stack = self.phases.full_name(self.graph.blocks[where.name], named)
        key = stack, named.stack_frame_id
        if key not in self._sources or not named.stack_frame_id:
            self._sources[key] = self.module.source(named)
        source = self._sources[key]
        if source is None and op.kind == "custom-call":
            source = self.phases.source_around(op)
        phase = self.phases(op, stack)
        return Scheduled(kind=kind, name=name or op.native.name, source=source, phase=phase, **fields)


def _is_on_host(value: HloValue) -> bool:
    return "S(5)" in value.array.layout


def _host_bytes(op: HloOperation) -> float:
    """Bytes that an operation moves from the host's memory or into it."""
    if op.kind in _STAYS or not op.results or not any(map(_is_on_host, (*op.operands, *op.results))):
        return 0.0
    moved = op.array(1) if op.kind == "dynamic-update-slice" else op.results[0]
    return float(moved.array.nbytes)


def _copied(op: HloOperation, moved: float) -> dict[str, Any]:
    """What a copy to the host's memory, or from there, says."""
    return {"host_bytes": moved, "to_host": _is_on_host(op.results[0])}


def _begun(done: HloOperation) -> str:
    """The operation that began what another ends; empty where that is not in the same computation."""
    at: Value = done.operands[0] if done.operands else done.results[0]
    while (maker := at.maker) is not None and maker.kind in ("bitcast", "copy") and maker.operands:
        at = maker.operands[0]
    if maker is None:
        return ""
    if maker.kind in ("send", "recv"):
        return _named(_RENDEZVOUS, maker) or maker.native.name
    return maker.native.name if maker.kind.endswith("-start") else ""


def _named(pattern: re.Pattern[str], op: HloOperation) -> str:
    found = pattern.search(op.native.attributes_text)
    return found[1] if found else ""
