"""In which pass of a train step each HLO instruction stands, and which instruction tells where another stems from.

The rule is that of `records.phases`; here a module becomes its `Flow`. Where the name stack is not the instruction's
own (inside a `shard_map`, or for what the compiler adds), `full_name` and `named_instruction` find it.
"""

from __future__ import annotations

from shardviz.compiler.loops import BRANCHES
from shardviz.compiler.module import Call, Computation, Instruction, Module, number
from shardviz.compiler.shapes import Shape
from shardviz.kept import cached_property
from shardviz.records.phases import Flow, is_differentiated, phase

_PASSING = frozenset(
    ("tuple", "get-tuple-element", "while", "conditional", "call", "parameter", "constant", "opt-barrier")
)


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
        flow = self._flow
        while computation.name not in flow.values_of:  # in a fusion, or applied to single elements
            calls = self.module.callers.get(computation.name, ())
            if not calls:
                return "update"
            computation, instruction = calls[0].computation, calls[0].instruction
        return flow.phase(flow.values_of[computation.name][instruction.name])

    @cached_property
    def _flow(self) -> _ModuleFlow:
        return _ModuleFlow(self.module, self.prefixes)


class _ModuleFlow(Flow):
    """The `Flow` of a module. Where a tuple is only made, carried or called with, each of its elements is a value."""

    def __init__(self, module: Module, prefixes: dict[str, str]):
        super().__init__()
        self.module = module
        self.values_of: dict[str, dict[str, range]] = {}
        waiting = [module.entry]
        while waiting:
            computation = waiting.pop()
            if computation.name in self.values_of:
                continue
            here = self.values_of[computation.name] = {}
            for instruction in computation.instructions:
                passing = instruction.opcode in _PASSING
                many = 1 if not passing or isinstance(instruction.shape, Shape) else max(1, len(instruction.shape))
                here[instruction.name] = self.values(many)
                waiting.extend(module.computations[name] for name in _followed(instruction))
                if not passing and instruction.op_name:
                    self.mark(here[instruction.name], phase(full_name(module, computation, instruction, prefixes)))
        for name in self.values_of:
            for instruction in module.computations[name].instructions:
                self._read(module.computations[name], instruction)

    def _operand(self, computation: Computation, name: str, path: tuple[int, ...]) -> range:
        values = self.values_of[computation.name][name]
        return values[path[0] : path[0] + 1] if path and len(values) > 1 else values

    def _read(self, computation: Computation, instruction: Instruction) -> None:
        result = self.values_of[computation.name][instruction.name]
        operands = [
            self._operand(computation, name, path)
            for name, path in zip(instruction.operands, instruction.operand_parts, strict=True)
        ]
        opcode = instruction.opcode
        if opcode == "tuple" or (opcode == "opt-barrier" and len(operands) > 1):
            for i, operand in enumerate(operands):
                self.connect(operand, result[i : i + 1])
        elif opcode == "get-tuple-element":
            index = number(instruction.attributes["index"], instruction)
            whole = operands[0]
            self.connect(whole[index : index + 1] if len(whole) > 1 else whole, result)
        elif opcode == "while" and operands:
            body, condition = _followed(instruction)
            made = self._call(body, operands[:1], result)
            self._call(condition, operands[:1], range(0))
            for carried in self.module.computations[body].parameters.values():
                self.carry(made, self.values_of[body][carried.name])
        elif opcode == "conditional":
            for name, operand in zip(_followed(instruction), operands[1:], strict=False):
                self._call(name, [operand], result)
        elif opcode == "call":
            (name,) = _followed(instruction)
            self._call(name, operands, result)
        else:
            for operand in operands:
                self.connect(operand, result)

    def _call(self, name: str, operands: list[range], result: range) -> range:
        """Hands operands to a computation, and what that makes to a result."""
        callee, here = self.module.computations[name], self.values_of[name]
        for at, parameter in callee.parameters.items():
            if at < len(operands):
                self.connect(operands[at], here[parameter.name])
        made = here[callee.root.name]
        self.connect(made, result)
        return made


def _followed(instruction: Instruction) -> list[str]:
    """The computations that an instruction hands its operands to."""
    if instruction.opcode == "while":
        return [instruction.called[role][0] for role in ("body", "condition")]
    if instruction.opcode == "call":
        return [next(iter(instruction.called.values()))[0]]
    if instruction.opcode == "conditional":
        return [name for role in BRANCHES for name in instruction.called.get(role, ())]
    return []


_FAR = 8


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
