"""In which pass of a train step each HLO instruction stands, and which instruction tells where another stems from.

The rule is that of `records.phases` and `graph.flow`. Where the name stack is not the instruction's
own (inside a `shard_map`, or for what the compiler adds), `full_name` and `named_instruction` find it.
"""

from __future__ import annotations

from shardviz.compiler.graph import HloOperation, graph_of
from shardviz.compiler.module import Call, Computation, Instruction, Module
from shardviz.graph import Block, GraphFlow
from shardviz.kept import cached_property
from shardviz.records.phases import is_differentiated, phase


class Phases:
    """Says in which pass an instruction of one module stands.

    Args:
        module: any module; its fusions are taken as wholes.
    """

    def __init__(self, module: Module):
        self.module = module
        self.prefixes: dict[str, str] = {}
        names = (i.op_name for _, i in module if "(" in i.attributes_text)
        self.differentiated = is_differentiated(names)

    def __call__(self, computation: Computation, instruction: Instruction, name_stack: str) -> str:
        """`forward`, `backward`, `rematerialised` or `update`.

        Args:
            computation: where the instruction stands.
            instruction: whose operands and users tell where the name stack does not.
            name_stack: what tells first.
        """
        said = phase(name_stack, self.differentiated)
        if said != "update":
            return said
        flow, graph = self._flow, graph_of(self.module)
        while not flow.has(graph.blocks.get(computation.name, _NOWHERE)):  # in a fusion, or applied to single elements
            calls = self.module.callers.get(computation.name, ())
            if not calls:
                return "update"
            computation, instruction = calls[0].computation, calls[0].instruction
        operation = graph.operation(graph.blocks[computation.name], instruction)
        return "update" if operation is None else flow.phase_of(operation.results)

    @cached_property
    def _flow(self) -> GraphFlow:
        return GraphFlow(graph_of(self.module), self, by_calls=False)

    def phase_at(self, operation: HloOperation, place: None) -> str:
        """The pass that an operation's name stack says."""
        made = operation.native
        if not made.op_name:
            return "update"
        return phase(full_name(self.module, self.module.computations[operation.block.name], made, self.prefixes))

    def place_inside(self, operation: HloOperation, place: None) -> None:
        """Nothing: an instruction's own computation tells its callers."""


_FAR = 8
_NOWHERE = Block()


def full_name(module: Module, computation: Computation, instruction: Instruction, prefixes: dict[str, str]) -> str:
    """An instruction's whole name stack.

    Inside a `shard_map` JAX begins a new name stack (`psum`); the caller's (`jit(f)/transpose(jvp(shard_map))`) then
    is put before it.

    Args:
        module, computation, instruction: the instruction and where it stands.
        prefixes: a memory of the callers' name stacks, filled on the way.
    """
    return _within(_prefix(module, computation, prefixes), instruction.op_name)


def _within(prefix: str, name: str) -> str:
    if not prefix or name.partition("/")[0] == prefix.partition("/")[0]:
        return name
    return f"{prefix}/{name}" if name else prefix


def _prefix(module: Module, computation: Computation, prefixes: dict[str, str]) -> str:
    inwards: list[tuple[str, Call]] = []  # who is called, and by whom; callers may be nested as deeply as they like
    at = computation
    while at.name not in prefixes:
        prefixes[at.name] = ""
        calls = module.callers.get(at.name, ())
        if not calls:
            break
        inwards.append((at.name, calls[0]))
        at = calls[0].computation
    for name, call in reversed(inwards):
        prefixes[name] = _within(prefixes[call.computation.name], call.instruction.op_name)
    return prefixes[computation.name]


def named_instruction(
    module: Module, computation: Computation, instruction: Instruction
) -> tuple[Computation, Instruction]:
    """The instruction whose name stack and line say where an instruction stems from, and where it stands.

    What the compiler adds (a copy, a reshard) has none of its own: then it is a fusion's last instruction with a name,
    or the nearest maker of the first operand, or else the nearest user; itself where none is near.
    """
    if instruction.op_name and instruction.opcode != "parameter":
        return computation, instruction
    if instruction.opcode == "fusion":
        fused = module.computations[next(iter(instruction.called.values()))[0]]
        for inner in reversed(fused.instructions):
            if inner.op_name and inner.opcode != "parameter":
                return fused, inner
    at = instruction
    for _ in range(_FAR):
        if not at.operands:
            break
        at = computation.by_name[at.operands[0]]
        if at.op_name and at.opcode != "parameter":
            return computation, at
    at = instruction
    for _ in range(_FAR):
        users = computation.users.get(at.name, ())
        if not users:
            break
        at = users[0]
        if at.op_name:
            return computation, at
    return computation, instruction
