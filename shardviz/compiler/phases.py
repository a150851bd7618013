"""The origin of each HLO instruction and its pass of a train step, from JAX's name stack.

The passes are those of `records.phases` and `graph.flow`. If the name stack is not the instruction's own (inside a
`shard_map`, or for instructions that the compiler added), `full_name` and `named_instruction` find it.
"""

from __future__ import annotations

from shardviz.caching import cached_property
from shardviz.compiler.graph import HloOperation, graph_of
from shardviz.compiler.module import Computation, Instruction, Module
from shardviz.graph import Block, Flow
from shardviz.records import Frame
from shardviz.records.phases import is_differentiated, phase
from shardviz.records.source import module_of

_FAR = 8


class Phases:
    """The name stacks of a module, in which a fusion counts as one instruction, and the passes that they show."""

    def __init__(self, module: Module):
        self.module, self.graph = module, graph_of(module)
        self._prefixes: dict[Block, str] = {}
        names = (i.op_name for _, i in module if "(" in i.attributes_text)
        self.differentiated = is_differentiated(names)

    def __call__(self, operation: HloOperation, name_stack: str) -> str:
        """Return an operation's phase, `forward`, `backward`, `rematerialised` or `update`, by its name stack, else by
        its operands and users."""
        stated = phase(name_stack, self.differentiated)
        if stated != "update":
            return stated
        while not self._flow.has(operation.block):  # in a fusion, or applied to single elements
            if not operation.block.callers:
                return "update"
            operation = operation.block.callers[0]
        return self._flow.phase_of(operation.results)

    @cached_property
    def _flow(self) -> Flow:
        def phase_at(operation: HloOperation, _: None) -> str:
            instruction = operation.native
            return phase(self.full_name(operation.block, instruction)) if instruction.op_name else "update"

        return Flow(self.graph, phase_at)

    def full_name(self, block: Block, instruction: Instruction) -> str:
        """Return an instruction's whole name stack; inside a `shard_map` the caller's stack is put before it."""
        return _within(self._prefix(block), instruction.op_name)

    def _prefix(self, block: Block) -> str:
        inwards: list[Block] = []  # callers may be nested as deeply as they like
        while block not in self._prefixes:
            self._prefixes[block] = ""
            inwards.append(block)
            if not block.callers:
                break
            block = block.callers[0].block
        for inner in reversed(inwards):
            if inner.callers:
                call = inner.callers[0]
                self._prefixes[inner] = _within(self._prefixes[call.block], call.native.op_name)
        return self._prefixes[inwards[0] if inwards else block]

    def place_of(self, operation: HloOperation) -> tuple[str, Frame | None, str]:
        """Return an operation's place in the user's program: phase, line and module."""
        computation = self.module.computations[operation.block.name]
        where, named = named_instruction(self.module, computation, operation.native)
        name_stack, source = self.full_name(self.graph.blocks[where.name], named), self.module.source(named)
        return self(operation, name_stack), source, module_of(name_stack, source)

    def source_around(self, operation: HloOperation) -> Frame | None:
        """Return the innermost known source line of an operation and the calls around it."""
        source = self.module.source(operation.native)
        while source is None and operation.block.callers:
            operation = operation.block.callers[0]
            source = self.module.source(operation.native)
        return source


def _within(prefix: str, name: str) -> str:
    if not prefix or name.partition("/")[0] == prefix.partition("/")[0]:
        return name
    return f"{prefix}/{name}" if name else prefix


def named_instruction(
    module: Module, computation: Computation, instruction: Instruction
) -> tuple[Computation, Instruction]:
    """Return the named instruction, with its computation, that one comes from. For an instruction that the compiler
    added (a copy, a reshard) it is the last named one of a fusion, or else the nearest maker of the first operand, or
    user; the instruction itself if none is near."""
    if _is_named(instruction):
        return computation, instruction
    if instruction.opcode == "fusion":
        fused = module.computations[next(iter(instruction.called.values()))[0]]
        for inner in reversed(fused.instructions):
            if _is_named(inner):
                return fused, inner

    def first_maker(at):
        return computation.by_name[at.operands[0]] if at.operands else None

    def first_user(at):
        return next(iter(computation.users.get(at.name, ())), None)

    for beside in (first_maker, first_user):
        at = beside(instruction)
        for _ in range(_FAR):
            if at is not None and _is_named(at):
                return computation, at
            at = at and beside(at)
    return computation, instruction


def _is_named(instruction: Instruction) -> bool:
    return bool(instruction.op_name) and instruction.opcode != "parameter"
