"""An instruction's whole name stack, and which instruction tells where one without a name stems from."""

from __future__ import annotations

from shardviz.hlo.module import Computation, Instruction, Module

_FAR = 8


def full_name(module: Module, computation: Computation, instruction: Instruction, prefixes: dict[str, str]) -> str:
    """An instruction's whole name stack.

    Inside a `shard_map` JAX begins the name stack anew (`psum`); the caller's (`jit(f)/transpose(jvp(shard_map))`) then
    is put before it.

    Args:
        module, computation, instruction: the instruction and where it stands.
        prefixes: a memory of the callers' name stacks, filled on the way.
    """
    name = instruction.op_name
    prefix = _prefix(module, computation, prefixes)
    if not prefix or name.partition("/")[0] == prefix.partition("/")[0]:
        return name
    return f"{prefix}/{name}" if name else prefix


def _prefix(module: Module, computation: Computation, prefixes: dict[str, str]) -> str:
    if computation.name not in prefixes:
        prefixes[computation.name] = ""
        calls = module.callers.get(computation.name, ())
        if calls:
            call = calls[0]
            prefixes[computation.name] = full_name(module, call.computation, call.instruction, prefixes)
    return prefixes[computation.name]


def teller(module: Module, computation: Computation, instruction: Instruction) -> tuple[Computation, Instruction]:
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
