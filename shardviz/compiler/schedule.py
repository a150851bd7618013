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

from shardviz.compiler.asynchronous import goes_on, is_chained, kind_of
from shardviz.compiler.flops import array_operand, call_of, dot_flops_of, source_of_call
from shardviz.compiler.graph import HloOperation, graph_of
from shardviz.compiler.module import Computation, Instruction, Module
from shardviz.compiler.phases import Phases, full_name, named_instruction
from shardviz.compiler.traffic import Traffic
from shardviz.graph import trip_counts
from shardviz.graph.listed import listed
from shardviz.layouts.layout import itemsize
from shardviz.records import Frame
from shardviz.records.kernels import Known
from shardviz.records.schedule import Schedule, Scheduled, heaviest

_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)"')
_TRANSFER = re.compile(r'_xla_megascale_transfer_type="([^"]*)"')
_HOST = "S(5)"
_PASSES = frozenset(("get-tuple-element", "bitcast", "async-update", "tuple", "copy"))


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
    return _Reading(module, known or Known()).block(module.entry)


class _Reading:
    """One reading of a module."""

    def __init__(self, module: Module, known: Known):
        self.module, self.known, self.scheduled = module, known, is_scheduled(module)
        self.graph, self.traffic, self.phases = graph_of(module), Traffic(module), Phases(module)
        self.trips = {loop.native.name: trips for loop, trips in trip_counts(self.graph).items()}
        self._blocks: dict[str, Schedule] = {}
        self._chains: dict[str, str] = {}  # the channel of a chain → the collective that began it
        self._sources: dict[tuple[str, int], Frame | None] = {}

    def block(self, computation: Computation) -> Schedule:
        """A computation's schedule, made once."""
        if computation.name not in self._blocks:
            if self.scheduled:
                found = tuple(e for i in computation.instructions for e in self.entries(computation, i))
            else:
                operations = self.graph.blocks[computation.name]
                found = listed(operations, lambda op: self._of_operation(computation, op))
            self._blocks[computation.name] = found
        return self._blocks[computation.name]

    def _of_operation(self, computation: Computation, operation: HloOperation) -> Iterator[Scheduled]:
        return self.entries(computation, operation.native)

    def entries(self, computation: Computation, instruction: Instruction) -> Iterator[Scheduled]:
        """What an instruction does; nothing for what costs nothing."""
        opcode, name = instruction.opcode, instruction.name
        if opcode == "while":
            body = self.block(self.module.computations[instruction.called["body"][0]])
            yield self._made(computation, instruction, "loop", trips=self.trips.get(name), body=body)
        elif opcode == "conditional":
            yield from heaviest([self.block(self.module.computations[b]) for b in _branches(instruction)])
        elif opcode == "call":
            yield from self.block(self.module.computations[instruction.called["to_apply"][0]])
        elif opcode.endswith("-done"):
            if begun := _begun(computation, instruction):
                yield self._made(computation, instruction, "end", name=begun)
        elif kind_of(instruction):
            if not goes_on(computation, instruction):
                yield self._made(computation, instruction, "begin", collective=name)
                if not opcode.endswith("-start"):
                    yield self._made(computation, instruction, "end")
        elif opcode in ("copy-start", "async-start"):
            yield self._begin(computation, instruction)
        elif opcode == "send":
            given = array_operand(computation, instruction, 0).nbytes
            between = _named(_TRANSFER, instruction) or "send"
            name = _named(_RENDEZVOUS, instruction) or name
            yield self._made(computation, instruction, "begin", name, between=between, sent_bytes=float(given))
        elif opcode == "recv":  # what it gives is there when its send is done
            return
        elif opcode == "fusion":
            yield from self._fusion(computation, instruction)
        elif (_HOST in instruction.shape_text or _HOST in _operand_texts(computation, instruction)) and (
            moved := self._host_bytes(computation, instruction)
        ):
            yield self._made(computation, instruction, "begin", **_copied(instruction, moved))
            yield self._made(computation, instruction, "end")
        else:
            yield from self._work(computation, instruction)

    def _begin(self, computation: Computation, instruction: Instruction) -> Scheduled:
        """A copy, or what an `async-start` runs beside the rest."""
        where, inner = computation, instruction
        if instruction.opcode == "async-start":
            where = self.module.computations[next(iter(instruction.called.values()))[0]]
            inner = next((i for i in where.instructions if kind_of(i)), where.root)
            if kind_of(inner):
                return self._made(computation, instruction, "begin", collective=inner.name)
        if host := self._host_bytes(where, inner):
            return self._made(computation, instruction, "begin", **_copied(inner, host))
        return self._made(computation, instruction, "begin", hbm_bytes=self.traffic(where, inner))

    def _host_bytes(self, computation: Computation, instruction: Instruction) -> float:
        """Bytes that an instruction moves from the host's memory or into it."""
        given = [computation.by_name[name] for name in instruction.operands]
        if _HOST not in instruction.shape_text + "".join(i.shape_text for i in given):
            return 0.0
        if instruction.opcode == "dynamic-update-slice":
            return float(given[1].shapes[0].nbytes)
        if instruction.opcode in ("bitcast", "tuple", "get-tuple-element", "parameter", "custom-call", "opt-barrier"):
            return 0.0
        return float(instruction.shapes[0].nbytes)

    def _fusion(self, computation: Computation, instruction: Instruction) -> Iterator[Scheduled]:
        """A fusion's collectives and its own work."""
        fused = self.module.computations[instruction.called["calls"][0]]
        chained, ended, moved = False, list[Scheduled](), 0.0
        for inner in fused.instructions:
            if not kind_of(inner):
                continue
            chain = _named(_CHANNEL, inner) or inner.name
            if not goes_on(fused, inner):
                yield self._made(computation, instruction, "begin", name=inner.name, collective=inner.name)
                moved += self.traffic(fused, inner)
                if is_chained(inner) or _is_begun(fused, inner):
                    self._chains[chain] = inner.name
                else:
                    ended.append(self._made(computation, instruction, "end", name=inner.name))
                chained = True
            elif chain in self._chains and _is_ended(fused, inner):
                ended.append(self._made(computation, instruction, "end", name=self._chains[chain]))
        host = _HOST in instruction.shape_text and self._host_bytes(computation, instruction)
        if host:
            yield self._made(computation, instruction, "begin", **_copied(instruction, host))
            ended.append(self._made(computation, instruction, "end"))
        yield from self._work(computation, instruction, less=moved if chained else 0.0)
        yield from ended

    def _work(self, computation: Computation, instruction: Instruction, less: float = 0.0) -> Iterator[Scheduled]:
        """An instruction's own work on the chip's units, its HBM traffic less that of what it begins."""
        flops: dict[str, float] = {}
        opaque: list[str] = []
        inside = [(computation, instruction)]
        for where, each in inside:
            if each.opcode == "fusion":
                fused = self.module.computations[each.called["calls"][0]]
                inside += [(fused, inner) for inner in fused.instructions]
            elif call := call_of(self.module, where, each, self.known):
                flops[call.dtype] = flops.get(call.dtype, 0.0) + (call.flops or 0.0)
                opaque += [call.name] * (call.flops is None)
            elif dot := dot_flops_of(where, each):
                dtype = max((array_operand(where, each, n).dtype for n in (0, 1)), key=itemsize)
                flops[dtype] = flops.get(dtype, 0.0) + dot
        counted = self.scheduled or flops or opaque
        moved = max(0.0, self.traffic(computation, instruction) - less) if counted else 0.0
        if flops or moved or opaque:
            yield self._made(
                computation, instruction, "work", flops=flops, hbm_bytes=moved, opaque=tuple(sorted(set(opaque)))
            )

    def _made(
        self, computation: Computation, instruction: Instruction, kind: Any, name: str = "", **fields: Any
    ) -> Scheduled:
        where, named = named_instruction(self.module, computation, instruction)
        stack = full_name(self.module, where, named, self.phases.prefixes)
        key = stack, named.stack_frame_id
        if key not in self._sources or not named.stack_frame_id:
            self._sources[key] = self.module.source(named)
        source = self._sources[key]
        if source is None and instruction.opcode == "custom-call":
            source = source_of_call(self.module, computation, instruction)
        phase = self.phases(computation, instruction, stack)
        return Scheduled(kind=kind, name=name or instruction.name, source=source, phase=phase, **fields)


def _copied(instruction: Instruction, moved: float) -> dict[str, Any]:
    """What a copy to the host's memory, or from there, says; of a pair's start the first part is where it goes."""
    return {"host_bytes": moved, "to_host": _HOST in instruction.shape_text.split(", ")[0]}


def _branches(instruction: Instruction) -> tuple[str, ...]:
    called = instruction.called
    roles = ("branch_computations", "true_computation", "false_computation")
    return tuple(name for role in roles if role in called for name in called[role])


def _operand_texts(computation: Computation, instruction: Instruction) -> str:
    return "".join(computation.by_name[name].shape_text for name in instruction.operands)


def _begun(computation: Computation, done: Instruction) -> str:
    """The instruction that began what another ends; empty where that is not in the same computation."""
    at = computation.by_name[done.operands[0]] if done.operands else done
    while at.opcode in _PASSES and at.operands:
        at = computation.by_name[at.operands[0]]
    if at.opcode in ("send", "recv"):
        return _named(_RENDEZVOUS, at) or at.name
    return at.name if at.opcode.endswith("-start") else ""


def _named(pattern: re.Pattern[str], instruction: Instruction) -> str:
    found = pattern.search(instruction.attributes_text)
    return found[1] if found else ""


def _marked(computation: Computation, instruction: Instruction, mark: str) -> bool:
    users = computation.users.get(instruction.name, ())
    return any(u.opcode == "custom-call" and mark in u.attributes_text for u in users)


def _is_begun(computation: Computation, instruction: Instruction) -> bool:
    return _marked(computation, instruction, '"AsyncCollectiveStart"')


def _is_ended(computation: Computation, instruction: Instruction) -> bool:
    return _marked(computation, instruction, '"AsyncCollectiveDone"')
