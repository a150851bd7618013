"""An HLO module as an operation graph (`shardviz.graph`): tuples are taken apart, so that a value is one array.

`get-tuple-element` and `tuple` are no operations of the graph, nor are parameters: their arrays are their operands' and
the block's arguments. Of an asynchronous start only what its done will give is a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from weakref import WeakKeyDictionary

from shardviz.compiler.module import CALLERS, Instruction, Module, Named, number
from shardviz.compiler.shapes import Shape, ShapeTree, leaves
from shardviz.errors import ParseError
from shardviz.graph import Block, Graph, Operation, Value

Tree = Value | tuple["Tree", ...]
"""An array, or a tuple of them."""

_KNOWN = re.compile(r'"?known_trip_count"?\s*:\s*\{\s*"?n"?\s*:\s*"?(\d{1,18})(?!\d)', re.ASCII)
_SHARDINGS = frozenset(("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding"))
_RUN = ("condition", "body", "calls", "called_computations", "branch_computations", "true_computation",
        "false_computation")  # fmt: skip
_GRAPHS: WeakKeyDictionary[Module, HloGraph] = WeakKeyDictionary()


class HloOperation(Operation):
    """An HLO instruction; `native` is the `Instruction`."""

    __slots__ = ("branches",)

    def branch_operands(self, branch: int) -> tuple[Value, ...]:
        """What a conditional hands to a branch."""
        return self.branches[branch] if branch < len(self.branches) else ()

    @property
    def known_trips(self) -> int | None:
        """`known_trip_count`."""
        stated = _KNOWN.search(self.native.attributes.get("backend_config", ""))
        return int(stated[1]) if stated else None

    @property
    def constant(self) -> str:
        """The text of a constant."""
        return self.native.operands_text.strip()

    @property
    def direction(self) -> str:
        """A comparison's direction."""
        return self.native.attributes.get("direction", "")


class HloGraph(Graph):
    """The graph of an HLO module.

    Attributes:
        arrays: computation → instruction → the arrays that it gives.
    """

    def __init__(self, module: Module):
        super().__init__(Block(module.entry.name), {})
        self.arrays: dict[str, dict[str, Tree]] = {}
        self._operations: dict[tuple[str, str], HloOperation] = {}
        for name in _reached(module):
            self.blocks[name] = self.entry if name == module.entry.name else Block(name)
        for name in self.blocks:
            self._read(module, name)

    def operation(self, block: Block, instruction: Instruction) -> HloOperation | None:
        """The operation of an instruction; None for a tuple, an element of one, and a parameter."""
        return self._operations.get((block.name, instruction.name))

    def operand(self, computation: str, instruction: Instruction, index: int = 0) -> Value:
        """An operand's array; a tuple's first.

        Raises:
            ParseError: if there is no such operand.
        """
        if index < len(instruction.operands):
            tree = self._operand(computation, instruction, index)
            if (first := next(_leaves(tree), None)) is not None:
                return first
        raise ParseError(f"HLO instruction {instruction.name!r} ({instruction.opcode}) has no operand {index}")

    def _operand(self, computation: str, instruction: Instruction, index: int) -> Tree:
        arrays = self.arrays[computation]
        return _part(arrays[instruction.operands[index]], instruction.operand_parts[index])

    def _read(self, module: Module, name: str) -> None:
        computation, block = module.computations[name], self.blocks[name]
        arrays = self.arrays[name] = Named(f"computation {name!r}")
        parameters = computation.parameters
        for at in sorted(parameters):
            given = parameters[at]
            start = len(block.arguments)
            values = tuple(
                Value(block, start + i, shape.dims, shape.dtype, given) for i, shape in enumerate(given.shapes)
            )
            block.arguments += values
            arrays[given.name] = _like(given.shape, iter(values))
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                continue
            operands = [self._operand(name, instruction, i) for i in range(len(instruction.operands))]
            if instruction.opcode == "tuple":
                arrays[instruction.name] = tuple(operands)
            elif instruction.opcode == "async-update":
                arrays[instruction.name] = operands[0]
            elif instruction.opcode == "get-tuple-element":
                index = number(instruction.attributes["index"], instruction)
                arrays[instruction.name] = _part(operands[0], (index,))
            else:
                arrays[instruction.name] = self._made(block, instruction, operands)
        block.returns(tuple(_leaves(arrays[computation.root.name])))

    def _made(self, block: Block, instruction: Instruction, operands: list[Tree]) -> Tree:
        """Notes an operation; the arrays that its instruction gives."""
        opcode, given = instruction.opcode, [tuple(_leaves(tree)) for tree in operands]
        if opcode.endswith("-done"):
            given = [tuple(filter(_is_result, values)) or values for values in given]
        kind = "sharding" if opcode == "custom-call" and _target(instruction) in _SHARDINGS else opcode
        operation = HloOperation(kind, tuple(chain.from_iterable(given)), block, instruction)
        operation.branches = tuple(given[1:])
        self._operations[block.name, instruction.name] = operation
        block.operations.append(operation)
        if opcode in CALLERS:
            for inner in _run(instruction):
                operation.calls(self.blocks[inner])
        shape = instruction.shape
        place = 0 if opcode == "copy-start" else 1
        if not opcode.endswith("-start") or isinstance(shape, Shape) or len(shape) <= place:
            return _like(shape, iter(self._results(operation, shape)))
        trees: list[Tree] = [_like(part, iter(_others(operation, part))) for part in shape]
        trees[place] = _like(shape[place], iter(self._results(operation, shape[place])))
        return tuple(trees)

    def _results(self, operation: HloOperation, shape: ShapeTree) -> tuple[Value, ...]:
        operation.results = _others(operation, shape)
        return operation.results


def graph_of(module: Module) -> HloGraph:
    """The graph of a module, made once.

    Raises:
        ParseError: if an instruction cannot be read; the message names it.
    """
    graph = _GRAPHS.get(module)
    if graph is None:
        graph = _GRAPHS[module] = HloGraph(module)
    return graph


def _others(operation: HloOperation, shape: ShapeTree) -> tuple[Value, ...]:
    made = operation.native
    return tuple(Value(operation, i, leaf.dims, leaf.dtype, made) for i, leaf in enumerate(leaves(shape)))


def _is_result(value: Value) -> bool:
    return value.maker is not None and value in value.maker.results


def _target(instruction: Instruction) -> str:
    return instruction.attributes.get("custom_call_target", "").strip('"')


def _run(instruction: Instruction) -> list[str]:
    """The computations that an instruction runs as a whole, a loop's condition before its body."""
    roles = (*_RUN, "to_apply") if instruction.opcode == "call" else _RUN
    return [name for role in roles if role in instruction.called for name in instruction.called[role]]


def _reached(module: Module) -> dict[str, None]:
    """The computations that the entry reaches, as they are run as wholes, in the text's order."""
    reached, waiting = {module.entry.name}, [module.entry.name]
    while waiting:
        for instruction in module.computations[waiting.pop()].instructions:
            if instruction.opcode in CALLERS:
                for name in _run(instruction):
                    if name not in reached:
                        reached.add(name)
                        waiting.append(name)
    return {name: None for name in module.computations if name in reached}


def _leaves(tree: Tree) -> Iterator[Value]:
    if isinstance(tree, Value):
        yield tree
    else:
        for part in tree:
            yield from _leaves(part)


def _like(shape: ShapeTree, values: Iterator[Value]) -> Tree:
    """Arrays in the tree of a shape."""
    return next(values) if isinstance(shape, Shape) else tuple(_like(part, values) for part in shape)


def _part(tree: Tree, path: tuple[int, ...]) -> Tree:
    for index in path:
        if isinstance(tree, Value) or index >= len(tree):
            raise ParseError(f"HLO: there is no element {path} of what is no such tuple")
        tree = tree[index]
    return tree
