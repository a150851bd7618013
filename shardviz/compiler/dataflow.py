"""Where a value really comes from: back through copies, converts, tuples, calls and loops that only pass it on.

After the partitioner a gathered weight may be `convert(dynamic-slice(get-tuple-element(loop)))`. A person wants to read
that it is the argument `params['wq']`. `Origin(module)` follows a value back to the instruction that made it:

    all-gather(%squeeze) ← reshape ← dynamic-slice ← element 7 of the loop's tuple, passed through unchanged
                         ← tuple(..., %param.4, ...) ← parameter 4 of the entry
"""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.compiler.module import Computation, Instruction, Module, number
from shardviz.errors import ParseError

MOVES = frozenset(
    (
        "convert",
        "copy",
        "bitcast",
        "bitcast-convert",
        "reshape",
        "transpose",
        "dynamic-slice",
        "slice",
        "pad",
        "reduce-precision",
        "copy-start",
        "copy-done",
        "all-gather",
        "all-to-all",
        "collective-permute",
        "collective-broadcast",
        "all-gather-start",
        "all-gather-done",
        "collective-permute-start",
        "collective-permute-done",
        "add-dependency",
    )
)
"""Operations whose result is their first operand's values, or some of them, moved or converted."""

KEEPS = frozenset(("copy", "bitcast", "reshape", "broadcast", "copy-start", "copy-done", "add-dependency"))
"""Operations that keep a scalar's value and type."""

_PASSING_CUSTOM_CALLS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding")


@dataclass(frozen=True)
class Place:
    """A value: an instruction's result, or an element of its tuple.

    Attributes:
        computation: where the instruction stands.
        instruction: what made the value.
        path: which element of the tuple; empty for the whole.
    """

    computation: Computation
    instruction: Instruction
    path: tuple[int, ...] = ()


class Origin:
    """Follows values of one module back to where they were made.

    Args:
        module: the module.
        through: the opcodes that count as passing their first operand on, beside tuples, calls and loops.
    """

    def __init__(self, module: Module, through: frozenset[str] = MOVES):
        self.module = module
        self.through = through
        self._invariant: dict[tuple[str, tuple[int, ...]], bool] = {}

    def __call__(
        self, computation: Computation, name: str, path: tuple[int, ...] = (), *, inside: bool = False
    ) -> Place:
        """Where a value was made.

        Args:
            computation: where it is used.
            name: the instruction whose result it is.
            path: which element of the tuple.
            inside: stop at the computation's own parameters.

        Returns:
            The place beyond which nothing merely passes it on.
        """
        place = Place(computation, computation.by_name[name], path)
        while (before := self._step(place, inside)) is not None:
            place = before
        return place

    def operand(
        self, computation: Computation, instruction: Instruction, index: int = 0, *, inside: bool = False
    ) -> Place:
        """Where an instruction's operand was made."""
        if index >= len(instruction.operands):
            raise ParseError(f"HLO instruction {instruction.name!r} ({instruction.opcode}) has no operand {index}")
        return self(computation, instruction.operands[index], instruction.operand_parts[index], inside=inside)

    def passes_on(self, body: Computation, path: tuple[int, ...]) -> bool:
        """Whether a loop's body hands this element of its tuple on unchanged."""
        key = (body.name, path)
        if key not in self._invariant:
            self._invariant[key] = False  # while it is being found out
            end = self(body, body.root.name, path, inside=True)
            self._invariant[key] = end.instruction.opcode == "parameter" and end.path == path
        return self._invariant[key]

    def _step(self, place: Place, inside: bool) -> Place | None:
        _computation, instruction, path = place.computation, place.instruction, place.path
        opcode = instruction.opcode
        if opcode == "parameter":
            return None if inside else self._caller(place)
        if opcode == "get-tuple-element":
            return self._operand(place, 0, (number(instruction.attributes["index"], instruction), *path))
        if opcode == "tuple":
            return self._operand(place, path[0], path[1:]) if path else None
        if opcode == "while":
            body = self.module.computations[instruction.called["body"][0]]
            return self._operand(place, 0, path) if path and self.passes_on(body, path) else None
        if opcode in ("call", "fusion", "async-start"):
            callee = self.module.computations[next(iter(instruction.called.values()))[0]]
            if opcode == "async-start":
                if path[:1] != (1,):
                    return None
                path = path[1:]
            end = self(callee, callee.root.name, path, inside=True)
            if end.instruction.opcode == "parameter":
                return self._operand(place, number(end.instruction.operands_text, end.instruction), end.path)
            return None if inside else end
        if opcode == "async-done":
            return self._operand(place, 0, (1, *path))
        if opcode == "opt-barrier":
            if len(instruction.operands) == 1:
                return self._operand(place, 0, path)
            return self._operand(place, path[0], path[1:]) if path else None
        if (
            opcode == "custom-call"
            and instruction.attributes.get("custom_call_target", "").strip('"') in _PASSING_CUSTOM_CALLS
        ):
            return self._operand(place, 0, path)
        if opcode in self.through and instruction.operands:
            if opcode.endswith("-start"):
                return self._operand(place, 0, path[2:])
            if opcode.endswith("-done"):
                return self._operand(place, 0, (1, *path))
            return self._operand(place, path[0] if path else 0, path[1:])
        return None

    def _operand(self, place: Place, index: int, path: tuple[int, ...]) -> Place | None:
        instruction = place.instruction
        if index >= len(instruction.operands):
            return None
        return Place(
            place.computation,
            place.computation.by_name[instruction.operands[index]],
            instruction.operand_parts[index] + path,
        )

    def _caller(self, place: Place) -> Place | None:
        """What the callers of a computation hand to its parameter, if they all hand over the same."""
        found: set[tuple[str, str, tuple[int, ...]]] = set()
        result: Place | None = None
        at = number(place.instruction.operands_text, place.instruction)
        for call in self.module.callers.get(place.computation.name, ()):
            if call.role in ("body", "condition"):
                body = self.module.computations[call.instruction.called["body"][0]]
                if not place.path or not self.passes_on(body, place.path):
                    return None
                index = 0
            elif call.role in ("branch_computations", "true_computation", "false_computation"):
                index = 1 + call.index + (call.role == "false_computation")
            elif call.instruction.opcode in ("call", "fusion", "async-start"):
                index = at
            else:
                return None
            before = self._operand(Place(call.computation, call.instruction), index, place.path)
            if before is None:
                return None
            found.add((before.computation.name, before.instruction.name, before.path))
            result = before
        return result if len(found) == 1 else None
