"""In which pass of a train step each instruction stands: forward, backward, rematerialised, or the update.

JAX's name stack tells what is inside of a derivative: `jvp(...)` is forward, `transpose(...)` backward. What stands
outside may come before the derivative (a batch made ready) or after it (the optimizer), and there the values tell:

    tokens ── one-hot ──▶ jvp ... ──▶ transpose ... ──▶ clip ──▶ add ──▶ parameters
              forward     forward     backward          update   ▲ update
                                      moment ── x 0.9 ───────────┘ update

An instruction outside that a gradient reaches, past no other derivative, is the optimizer's part, `update`. One that no
gradient reaches and whose result a derivative uses, or that uses the forward pass's, is `forward`. One with neither is
`update` too.

Where the name stack is not the instruction's own (inside a `shard_map`, or for what the compiler adds), `full_name` and
`teller` find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import cached_property

from shardviz.compiler.loops import BRANCHES
from shardviz.compiler.module import Computation, Instruction, Module, number
from shardviz.compiler.shapes import Shape
from shardviz.records.source import is_differentiated, phase

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
        return self._flow.phase(computation, instruction) if said == "update" else said

    @cached_property
    def _flow(self) -> _Flow:
        return _Flow(self.module, self.prefixes)


class _Flow:
    """Which values a gradient reaches, and which reach the forward pass. A value is an instruction's result; where a
    tuple is only made, carried or called with, each of its elements is one.
    """

    def __init__(self, module: Module, prefixes: dict[str, str]):
        self.module = module
        self.first: dict[str, dict[str, int]] = {}
        self.parts: dict[int, int] = {}  # first value → how many elements
        self.users: list[list[int]] = []
        self.makers: list[list[int]] = []
        kinds: dict[str, list[int]] = {"forward": [], "backward": [], "rematerialised": [], "update": []}
        waiting = [module.entry]
        while waiting:
            computation = waiting.pop()
            if computation.name in self.first:
                continue
            self.first[computation.name] = self._numbered(computation)
            for instruction in computation.instructions:
                waiting.extend(module.computations[name] for name in _followed(instruction))
                if instruction.opcode not in _PASSING and instruction.op_name:
                    said = phase(full_name(module, computation, instruction, prefixes))
                    kinds[said].append(self.first[computation.name][instruction.name])
        for name in self.first:
            for instruction in module.computations[name].instructions:
                self._connect(module.computations[name], instruction)
        named = {value for said in ("forward", "backward", "rematerialised") for value in kinds[said]}
        self.after = self._reached(kinds["backward"], self.users, but=named)
        self.from_forward = self._reached(kinds["forward"], self.users, but=named)
        self.before = self._reached(named, self.makers, but=named | self.after)

    def phase(self, computation: Computation, instruction: Instruction) -> str:
        while computation.name not in self.first:  # in a fusion, or applied to single elements
            calls = self.module.callers.get(computation.name, ())
            if not calls:
                return "update"
            computation, instruction = calls[0].computation, calls[0].instruction
        values = self._all(computation, instruction.name)
        if any(v in self.after for v in values):
            return "update"
        return "forward" if any(v in self.before or v in self.from_forward for v in values) else "update"

    def _numbered(self, computation: Computation) -> dict[str, int]:
        found = {}
        for instruction in computation.instructions:
            found[instruction.name] = at = len(self.users)
            many = 1
            if instruction.opcode in _PASSING and not isinstance(instruction.shape, Shape):
                many = self.parts[at] = max(1, len(instruction.shape))
            self.users.extend([] for _ in range(many))
            self.makers.extend([] for _ in range(many))
        return found

    def _all(self, computation: Computation, name: str) -> range:
        at = self.first[computation.name][name]
        return range(at, at + self.parts.get(at, 1))

    def _operand(self, computation: Computation, name: str, path: tuple[int, ...]) -> range:
        values = self._all(computation, name)
        return values[path[0] : path[0] + 1] if path and len(values) > 1 else values

    def _edges(self, makers: range, users: range) -> None:
        """From element to element where both have as many; else from each to each."""
        pairs: Iterable[tuple[int, int]] = (
            zip(makers, users, strict=True)
            if len(makers) == len(users)
            else ((maker, user) for maker in makers for user in users)
        )
        for maker, user in pairs:
            self.users[maker].append(user)
            self.makers[user].append(maker)

    def _connect(self, computation: Computation, instruction: Instruction) -> None:
        result = self._all(computation, instruction.name)
        operands = [
            self._operand(computation, name, path)
            for name, path in zip(instruction.operands, instruction.operand_parts, strict=True)
        ]
        opcode = instruction.opcode
        if opcode == "tuple":
            for i, operand in enumerate(operands):
                self._edges(operand, result[i : i + 1])
        elif opcode == "get-tuple-element":
            index = number(instruction.attributes["index"], instruction)
            whole = operands[0]
            self._edges(whole[index : index + 1] if len(whole) > 1 else whole, result)
        elif opcode == "while" and operands:
            body, condition = (self.module.computations[instruction.called[role][0]] for role in ("body", "condition"))
            for callee in (body, condition):
                self._given(operands[:1], callee)
            made = self._all(body, body.root.name)
            self._edges(made, result)
            for carried in body.parameters.values():  # the next trip's; a gradient does not reach into it
                for maker, user in zip(made, self._all(body, carried.name), strict=False):
                    self.makers[user].append(maker)
        elif opcode == "conditional":
            branches = [name for role in BRANCHES for name in instruction.called.get(role, ())]
            for name, operand in zip(branches, operands[1:], strict=False):
                callee = self.module.computations[name]
                self._given([operand], callee)
                self._edges(self._all(callee, callee.root.name), result)
        elif opcode == "call":
            callee = self.module.computations[next(iter(instruction.called.values()))[0]]
            self._given(operands, callee)
            self._edges(self._all(callee, callee.root.name), result)
        elif opcode == "opt-barrier" and len(operands) == 1:
            self._edges(operands[0], result)
        elif opcode == "opt-barrier":
            for i, operand in enumerate(operands):
                self._edges(operand, result[i : i + 1])
        else:
            for operand in operands:
                self._edges(operand, result)

    def _given(self, operands: list[range], callee: Computation) -> None:
        for at, parameter in callee.parameters.items():
            if at < len(operands):
                self._edges(operands[at], self._all(callee, parameter.name))

    @staticmethod
    def _reached(starts: Iterable[int], following: list[list[int]], but: Set[int]) -> set[int]:
        """What the starts lead to through values that are not in `but`, the starts themselves left out."""
        found: set[int] = set()
        waiting = list(starts)
        while waiting:
            for value in following[waiting.pop()]:
                if value not in found and value not in but:
                    found.add(value)
                    waiting.append(value)
        return found


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
