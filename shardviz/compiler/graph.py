"""An HLO module as an operation graph (`shardviz.graph`), without tuples: every value is one array.

`get-tuple-element`, `tuple` and parameters are not operations of the graph: their arrays are their operands' and the
block's arguments. The results of an asynchronous start are those of its done.

An asynchronous collective consists of several instructions. Most compilers start it with one and end it with another,
`all-gather-start` and `all-gather-done`. A TPU's compiler may instead write it into every fusion that runs at the same
time, as a chain; its links share `channel_id` and `chain_id`:

    fusion.1   all-gather, chain_id="0", custom-call AsyncCollectiveStart   ← begins: this is the collective
    fusion.2   all-gather, chain_id="0", and a matrix product               ← goes on
    fusion.3   all-gather, chain_id="0", custom-call AsyncCollectiveDone    ← goes on, and ends

>>> from shardviz.compiler.module import parse
>>> graph = graph_of(parse('''HloModule m
... %begin (a: f32[4]) -> (f32[4], f32[8]) {
...   %a = f32[4]{0} parameter(0)
...   %g1 = f32[8]{0} all-gather(%a), channel_id=7, dimensions={0}, frontend_attributes={chain_id="0"}
...   ROOT %s = (f32[4]{0}, f32[8]{0}) custom-call(%g1), custom_call_target="AsyncCollectiveStart"
... }
... ENTRY %main (b: f32[4]) -> f32[8] {
...   %b = f32[4]{0} parameter(0)
...   %one = (f32[4]{0}, f32[8]{0}) fusion(%b), kind=kCustom, calls=%begin
...   ROOT %g2 = f32[8]{0} all-gather(%b), channel_id=7, dimensions={0}, frontend_attributes={chain_id="0"}
... }'''))
>>> [(op.native.name, op.goes_on) for op in graph.operations if op.collective]
[('g1', False), ('g2', True)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from weakref import WeakKeyDictionary

from shardviz.compiler.module import CALLERS, Computation, Instruction, Module, Named, number
from shardviz.compiler.shapes import HloShape, ShapeTree, element, leaves
from shardviz.errors import ParseError
from shardviz.graph import Block, Contraction, Convolution, Dims, Graph, GraphValue, Operation
from shardviz.records import KINDS

Tree = GraphValue | tuple["Tree", ...]
"""An array, or a tuple of them."""

_TRIPS = re.compile(r'"?known_trip_count"?\s*:\s*\{\s*"?n"?\s*:\s*"?(\d{1,18})(?!\d)', re.ASCII)
_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"(\w+)=([\dx_\-]+)")
_NUMBER = re.compile(r"\d+")
_SHARDINGS = frozenset(("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding"))
_RUN = ("condition", "body", "calls", "called_computations", "branch_computations", "true_computation",
        "false_computation")  # fmt: skip
_RUNS = {"while": 2, "call": 1, "fusion": 1, "async-start": 1}
_APPLY = frozenset(("reduce", "reduce-window", "select-and-scatter", "map", "scatter"))
_COLLECTIVES = {name: kind for kind in KINDS for name in (kind, f"{kind}-start")}
_CHAINED = 'chain_id="'
_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
BEGINS, ENDS = '"AsyncCollectiveStart"', '"AsyncCollectiveDone"'
_GRAPHS: WeakKeyDictionary[Module, HloGraph] = WeakKeyDictionary()


class HloValue(GraphValue):
    """An array of HLO; `array` is its `HloShape`, with its layout, and `native` the `Instruction` that makes it."""

    __slots__ = ("array",)

    def __init__(self, owner: Operation | Block, index: int, array: HloShape, native: Instruction):
        super().__init__(owner, index, array.dims, array.dtype, native)
        self.array = array


class HloOperation(Operation):
    """An HLO instruction; `native` is the `Instruction`."""

    __slots__ = ("branches",)

    def __str__(self) -> str:
        return f"HLO instruction {self.native.name!r} ({self.native.opcode})"

    def branch_operands(self, branch: int) -> tuple[GraphValue, ...]:
        """Return the operands that a conditional passes to a branch."""
        return self.branches[branch] if branch < len(self.branches) else ()

    @property
    def known_trips(self) -> int | None:
        stated = _TRIPS.search(self.config)
        return int(stated[1]) if stated else None

    @property
    def collective(self) -> str:
        return _COLLECTIVES.get(self.kind, "")

    @property
    def is_chained(self) -> bool:
        """Whether it is a link of a chain."""
        return self.kind in _COLLECTIVES and _CHAINED in self.native.attributes_text

    @property
    def goes_on(self) -> bool:
        if self.kind == "custom-call":
            return ENDS in self.native.attributes_text
        if self.kind not in _COLLECTIVES:
            return self.kind.endswith("-done")
        return self.is_marked(ENDS) or (self.is_chained and not self.is_marked(BEGINS))

    def is_marked(self, mark: str) -> bool:
        """Return whether a custom call says that a collective in a fusion begins, or ends, there."""
        users = (user for value in self.results for user, _ in value.uses if isinstance(user, Operation))
        return any(user.kind == "custom-call" and mark in user.native.attributes_text for user in users)

    @property
    def constant(self) -> str:
        return self.native.operands_text.strip()

    @property
    def is_data(self) -> bool:  # of equal numbers XLA makes a broadcast
        return self.kind == "constant" and bool(self.result.shape)

    @property
    def direction(self) -> str:
        return self._attribute("direction")

    @property
    def target(self) -> str:
        return self._attribute("custom_call_target").strip('"')

    @property
    def config(self) -> str:
        return self._attribute("backend_config")

    @property
    def channel(self) -> str:
        """The channel's number; empty without one."""
        match = _CHANNEL.search(self.native.attributes_text)
        return match[1] if match else ""

    @property
    def spreads(self) -> bool:
        if self.kind == "slice":
            steps = (each.split(":")[2:] for each in self._attribute("slice").split(","))
            return any(step and step[0].strip("[]{} ") != "1" for step in steps)
        sizes = (each.split("_") for each in self._attribute("padding").split("x"))
        return any(len(size) == 3 and size[2] != "0" for size in sizes)

    @property
    def is_exact(self) -> bool:
        """Whether the library call in its `backend_config` has an exact `operand_precision`."""
        return "highest" in self._attribute("operand_precision") or _HIGHEST in self.config

    @property
    def contraction(self) -> Contraction:
        sides = [(self._numbers(f"{side}_contracting_dims"), self._numbers(f"{side}_batch_dims")) for side in _SIDES]
        (left, left_batch), (right, right_batch) = sides
        rank = self.array(0).shape
        if any(d >= len(rank) for d in left):
            raise ParseError(f"HLO instruction {self.native.name!r}: contracts dimensions {[*left]} of shape {rank}")
        return Contraction((left, right), (left_batch, right_batch))

    @property
    def met(self) -> Dims:
        return tuple(d for name in ("contracting", "batch", "group") for d in self._numbers(f"rhs_{name}_dims"))

    @property
    def convolution(self) -> Convolution:
        """The convolution's dimensions, from `dim_labels` (such as `b01f_01io->b01f`) and `window` (`size=3x3
        stride=2x2 pad=0_1x0_1`)."""
        labels = _LABELS.fullmatch(text := self.native.attributes["dim_labels"])
        shapes = [value.shape for value in (self.array(0), self.array(1), self.result)]
        if labels is None or any(len(s) != len(part) for s, part in zip(shapes, labels.groups(), strict=True)):
            raise ParseError(
                f"HLO instruction {self.native.name!r}: dim_labels {text!r} do not fit the shapes "
                f"{', '.join(map(str, shapes))}"
            )
        spatial = "".join(filter(str.isdecimal, labels[3]))
        window, named = self._window, zip(labels.groups(), _NAMES, strict=True)
        steps = (window.get(name, [one] * len(spatial)) for name, one in _STEPS.items())
        try:
            left, kernel, out = (tuple(map(part.index, names + spatial)) for part, names in named)
            strides, low, *holes = (tuple(int(step[int(d)].split("_")[0]) for d in spatial) for step in steps)
            groups = [int(self._attribute(f"{name}_group_count") or 1) for name in ("feature", "batch")]
            return Convolution(left, kernel, out, strides, low, holes[0], holes[1], groups[0], groups[1])
        except (IndexError, ValueError) as error:
            raise ParseError(
                f"HLO instruction {self.native.name!r}: dim_labels {text!r} and window "
                f"{self._attribute('window')!r} do not fit each other"
            ) from error

    @property
    def window_sizes(self) -> Dims:
        """The size of a window along each dimension."""
        return tuple(map(int, self._window.get("size", ())))

    @property
    def slice_sizes(self) -> Dims:
        return self._numbers("slice_sizes")

    @property
    def fft_lengths(self) -> Dims:
        return self._numbers("fft_length")

    @property
    def _window(self) -> dict[str, list[str]]:
        """Return the fields of the window attribute: for `window={size=3x3 pad=0_1x0_1}`, `size` is 3, 3 and `pad` is
        0_1, 0_1."""
        return {key: value.split("x") for key, value in _WINDOW.findall(self._attribute("window"))}

    def _attribute(self, name: str) -> str:
        return self.native.attributes.get(name, "")

    def _numbers(self, name: str) -> Dims:
        return tuple(map(int, _NUMBER.findall(self._attribute(name))))


_SIDES = ("lhs", "rhs")
_HIGHEST = '"operand_precision":["HIGHEST"'
_NAMES = ("bf", "io", "bf")
_STEPS = {"stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1"}


class HloGraph(Graph):
    """The graph of an HLO module; its blocks are the computations."""

    def __init__(self, module: Module):
        blocks = Named("module", ((name, Block(name)) for name in module.computations))
        super().__init__(blocks[module.entry.name], blocks)
        for name, block in blocks.items():
            self._read(module.computations[name], block)

    def _read(self, computation: Computation, block: Block) -> None:
        arrays: dict[str, Tree] = Named(f"computation {computation.name!r}")
        for _, parameter in sorted(computation.parameters.items()):
            start = len(block.arguments)
            values = tuple(HloValue(block, start + i, array, parameter) for i, array in enumerate(parameter.shapes))
            block.arguments += values
            arrays[parameter.name] = _like(parameter.shape, iter(values))
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                continue
            named = zip(instruction.operands, instruction.operand_parts, strict=True)
            operands = [element(arrays[name], part, _NO_TUPLE) for name, part in named]
            if instruction.opcode == "tuple":
                arrays[instruction.name] = tuple(operands)
            elif instruction.opcode == "async-update":
                arrays[instruction.name] = operands[0]
            elif instruction.opcode == "get-tuple-element":
                index = number(instruction.attributes["index"], instruction)
                arrays[instruction.name] = element(operands[0], (index,), _NO_TUPLE)
            else:
                arrays[instruction.name] = self._note_operation(block, instruction, operands)
        block.returns(leaves(arrays[computation.root.name]))

    def _note_operation(self, block: Block, instruction: Instruction, operands: list[Tree]) -> Tree:
        opcode, groups = instruction.opcode, [leaves(tree) for tree in operands]
        if opcode.endswith("-done"):
            groups = [tuple(v for v in values if v.maker and v in v.maker.results) or values for values in groups]
        operation = HloOperation(opcode, tuple(chain.from_iterable(groups)), block, instruction)
        if opcode == "custom-call" and operation.target in _SHARDINGS:
            operation.kind = "sharding"
        operation.branches = tuple(groups[1:])
        block.operations.append(operation)
        if opcode in CALLERS:
            for inner in _run(instruction):
                operation.calls(self.blocks[inner])
            if len(operation.blocks) != _RUNS.get(opcode, len(operation.blocks)):
                raise ParseError(f"{operation} runs {len(operation.blocks)} computations, not {_RUNS[opcode]}")
        elif opcode in _APPLY:
            names = (instruction.attributes[role] for role in _FUNCTIONS if role in instruction.attributes)
            operation.applied = tuple(self.blocks[name.lstrip("%")] for name in names)
        shape, place = instruction.shape, 0 if opcode == "copy-start" else 1
        begins = opcode.endswith("-start") and opcode != "all-reduce-start"
        if not begins or isinstance(shape, HloShape) or len(shape) <= place:
            operation.results = _values(operation, shape)
            return _like(shape, iter(operation.results))
        operation.results = _values(operation, shape[place])
        passed_on = (operation.results if i == place else _values(operation, part) for i, part in enumerate(shape))
        return tuple(_like(part, iter(values)) for part, values in zip(shape, passed_on, strict=True))


_FUNCTIONS = ("to_apply", "select", "scatter")
_NO_TUPLE = "what is no such tuple"


def graph_of(module: Module) -> HloGraph:
    """Return the graph of a module, cached. Raises ParseError, naming the instruction, if one cannot be read."""
    graph = _GRAPHS.get(module)
    if graph is None:
        graph = _GRAPHS[module] = HloGraph(module)
    return graph


def _values(operation: HloOperation, shape: ShapeTree) -> tuple[GraphValue, ...]:
    return tuple(HloValue(operation, i, leaf, operation.native) for i, leaf in enumerate(leaves(shape)))


def _run(instruction: Instruction) -> list[str]:
    """Return the computations that an instruction runs, a loop's condition before its body."""
    roles = (*_RUN, "to_apply") if instruction.opcode == "call" else _RUN
    return [name for role in roles if role in instruction.called for name in instruction.called[role]]


def _like(shape: ShapeTree, values: Iterator[GraphValue]) -> Tree:
    return next(values) if isinstance(shape, HloShape) else tuple(_like(part, values) for part in shape)
