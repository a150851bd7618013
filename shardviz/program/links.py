"""How the dimensions of a program's values hang together: what of one value is along which dimension of another.

A propagated module is read once, calls entered where they stand. Every value is a node with a key that does not depend
on the plan, every operation hands axes between dimensions of its operands and results that its rule gives the same
factor: `([i, k], [k, j])->([i, j])` hands `i` from the left operand to the result. Calls, loops and branches hand on
every dimension as it is.

`Links.paths` goes from a value's dimension along those that carry an axis: what it meets first is nearest.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardviz import _jax
from shardviz.graph import Value
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_name
from shardviz.program.graph import MlirGraph, MlirOperation
from shardviz.program.module import Place, attributes_of, spec_of
from shardviz.program.stablehlo import Around, Walker

TAG = "shardviz.tag"
"""The attribute that numbers a module's operations; Shardy's passes leave it where it is."""

MANUAL = 2**16
"""Which array of a manual computation a number is of stands below this, the operation's number above it."""

RULE = "sdy.sharding_rule"
RULES = "func.func(sdy-populate-op-sharding-rules)"
"""The pass that writes every operation's rule onto it."""


class Key(NamedTuple):
    """What a value is known by under every plan.

    Attributes:
        calls: the numbers of the calls that lead to it.
        tag: the number of the operation that makes it, or that it is inside of; -1 for a function.
        kind: `result`, `argument` (of the program), or `inside 0`, `inside 1`, ...: an argument of a block of what was
            entered.
        place: which of them.
        copy: which of several copies that the compiler made of a constant's operation.
    """

    calls: tuple[int, ...]
    tag: int
    kind: str
    place: int
    copy: int = 0


class Cut(NamedTuple):
    """A dimension of a value: its node, and which dimension."""

    node: int
    dim: int


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """An operation, or a boundary, over which dimensions hang together.

    Attributes:
        op: the operation.
        kind: `rule`; or `call`, `return`, `loop`, `branch`, `manual`, `output`, `same`, `constraint`, `reshard`
            (the compiler's own): it hands on every dimension as it is.
        ins, outs: nodes of its operands and results; at a boundary what is tied together, all of them in `ins`.
        around: what stands around it.
        place: of a manual computation's operand or result, which of them, the operands first.
    """

    op: Any
    kind: str
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    around: Around
    place: int = 0


class Hop(NamedTuple):
    """From a dimension to one that hangs together with it.

    Attributes:
        step: over what.
        factor: the rule's number of what both are along; None at a boundary.
        to: the other dimension.
    """

    step: int
    factor: int | None
    to: Cut


class Rule(NamedTuple):
    """An operation's sharding rule in plain data.

    Attributes:
        ins, outs: for each operand and result the factors of each dimension, the major one first.
        sizes: of the factors.
        reduced: factors that are summed over, or reduced otherwise.
        whole: factors that the operation needs uncut, or that it cannot hand on.
        moved: factors along which elements move from device to device.
        text: the rule as einsum, `([i, k], [k, j])->([i, j])`.
    """

    ins: tuple[tuple[tuple[int, ...], ...], ...]
    outs: tuple[tuple[tuple[int, ...], ...], ...]
    sizes: tuple[int, ...]
    reduced: frozenset[int]
    whole: frozenset[int]
    blocked: frozenset[int]
    moved: frozenset[int]
    text: str

    def dims(self, operand: bool, place: int) -> tuple[tuple[int, ...], ...]:
        """The factors of each dimension of an operand or a result."""
        return (self.ins if operand else self.outs)[place]


def rule_of(attribute: Any) -> Rule:
    """Reads an `#sdy.op_sharding_rule`."""
    rule = sdy.OpShardingRuleAttr(attribute)

    def mapped(mappings: Any) -> tuple[tuple[tuple[int, ...], ...], ...]:
        return tuple(
            tuple(tuple(sdy.DimMappingAttr(d).factor_indices) for d in sdy.TensorMappingAttr(m).dim_mappings)
            for m in mappings
        )

    ins, outs = mapped(rule.operand_mappings), mapped(rule.result_mappings)
    return Rule(
        ins,
        outs,
        tuple(rule.factor_sizes),
        frozenset(rule.reduction_factors),
        frozenset(rule.need_replication_factors),
        frozenset(rule.blocked_propagation_factors),
        frozenset(rule.permutation_factors),
        einsum(ins, outs),
    )


def letter(factor: int) -> str:
    """What a factor is called in einsums: `i`, `j`, ..., as Shardy names them."""
    return chr(ord("i") + factor) if factor < 18 else f"z_{factor - 17}"


def einsum(ins: Iterable[Iterable[Iterable[int]]], outs: Iterable[Iterable[Iterable[int]]]) -> str:
    """A rule's text.

    >>> einsum([[[0], [2]], [[2], [1]]], [[[0], [1]]])
    '([i, k], [k, j])->([i, j])'
    """
    return f"{_side(ins)}->{_side(outs)}"


def _side(many: Iterable[Iterable[Iterable[int]]]) -> str:
    arrays = (", ".join("".join(map(letter, dim)) or "1" for dim in dims) for dims in many)
    return f"({', '.join(f'[{dims}]' for dims in arrays)})"


class Links(Walker):
    """A propagated module as a graph; specs, rules and places are read only where they are asked for."""

    def __init__(self, module: ir.Operation, locations: dict[Any, Place]):
        super().__init__(MlirGraph(module), locations)
        self.keys: list[Key] = []
        self.nodes: dict[Key, int] = {}
        self.steps: list[Step] = []
        self._values: list[Value] = []
        self._manual: list[tuple[Axis, ...]] = []
        self._made: list[int | None] = []
        self._touching: list[list[int]] = []
        self._known: dict[tuple[tuple[MlirOperation, ...], Value], int] = {}
        self._specs: dict[int, Spec] = {}
        self._rules: dict[Any, Rule] = {}
        self._tags: tuple[int, ...] = ()
        self.arguments = [self._new(v, Key((), -1, "argument", i), None) for i, v in enumerate(self.main.arguments)]
        made = self.read(self.main)
        main = self.graph.functions["main"]
        self.outputs = [self._new(v, Key((), -1, "output", i), None) for i, v in enumerate(made)]
        for node, value, said in zip(self.outputs, made, attributes_of(main, "res_attrs", len(made)), strict=True):
            if "sdy.sharding" in said:
                self._specs[node] = spec_of(said["sdy.sharding"])
            self._step(main, "output", (self._known[(), value], node))

    # Reading.

    def _new(self, value: Value, key: Key, made: int | None) -> int:
        """A node; the value is found by it from now on, if it is not an output."""
        while key in self.nodes:
            key = key._replace(copy=key.copy + 1)
        node = self.nodes[key] = len(self.keys)
        self.keys.append(key)
        self._values.append(value)
        self._manual.append(self.around.manual)
        self._made.append(made)
        self._touching.append([])
        if key.kind != "output":
            self._known[self.around.calls, value] = node
        return node

    def _of(self, value: Value, calls: tuple[MlirOperation, ...] | None = None) -> int:
        return self._known[self.around.calls if calls is None else calls, value]

    def _step(self, op: Any, kind: str, ins: Iterable[int], outs: Iterable[int] = (), place: int = 0) -> None:
        number, ins, outs = len(self.steps), tuple(ins), tuple(outs)
        self.steps.append(Step(op, kind, ins, outs, self.around, place))
        for node in dict.fromkeys((*ins, *outs)):
            self._touching[node].append(number)

    def visit(self, op: MlirOperation) -> None:
        name, tag, first = op.name, number_of(op), len(self.steps)
        operands = [self._of(value) for value in op.operands]
        results = [
            self._new(
                value,
                Key(self._tags, tag, "result", i),
                None if op.blocks else first + i if name in _SAME else first,
            )
            for i, value in enumerate(op.results)
        ]
        if not op.blocks:
            kind = _kind(name, tag) if operands else "rule"
            if kind != "rule":
                for pair in zip(operands, results, strict=True):
                    self._step(op, kind, pair)
            else:
                self._step(op, "rule", operands, results)
            return
        tags = self._tags
        with self.inside(op) as blocks:
            if name == "func.call":
                self._tags, tag = (*tags, tag), -1
            inside = [
                [
                    self._new(value, Key(self._tags, tag, f"inside {n}", i), None)
                    for i, value in enumerate(block.arguments)
                ]
                for n, block in enumerate(blocks)
            ]
            made = [[self._of(value) for value in self.read(block)] for block in blocks]
            self._tags = tags
        self._bind(op, name, operands, results, inside, made)

    def _bind(self, op: Any, name: str, operands: Any, results: Any, inside: Any, made: Any) -> None:
        """The steps over a boundary."""
        if name == "stablehlo.while":
            for tied in zip(operands, results, *inside, made[1], strict=True):
                self._step(op, "loop", dict.fromkeys(tied))
            return
        if name in ("stablehlo.case", "stablehlo.if"):
            for tied in zip(results, *made, strict=True):
                self._step(op, "branch", tied)
            return
        kind = "call" if name in ("func.call", "sdy.named_computation") else "manual"
        for place, pair in enumerate(zip(operands, inside[0], strict=True)):
            self._step(op, kind, pair, place=place)
        for place, pair in enumerate(zip(made[0], results, strict=True), len(operands)):
            self._step(op, "return" if kind == "call" else "manual", pair, place=place)

    # Asking.

    def spec(self, node: int) -> Spec:
        """How a value is cut."""
        if node not in self._specs:
            self._specs[node] = Spec.of(self.graph.cut(self._values[node], self._manual[node]), self.rank(node))
        return self._specs[node]

    def closed(self, node: int, axis: str) -> str:
        """Why no spec whatever could cut a value along an axis; empty where one could."""
        if axis in self._manual[node]:
            return f"it is inside a shard_map over {axis}, along which every device has an array of its own"
        return "" if self.rank(node) else "it is a single number"

    def rank(self, node: int) -> int:
        """How many dimensions a value has."""
        return len(self.shape(node))

    def shape(self, node: int) -> tuple[int, ...]:
        """A value's shape; of what is no array, none."""
        return self._values[node].shape

    def carries(self, cut: Cut, axis: str) -> bool:
        """Whether a mesh axis, or a part of it, cuts a dimension."""
        dims = self.spec(cut.node).dims
        return cut.dim < len(dims) and any(axis_name(a) == axis for a in dims[cut.dim])

    def rule(self, step: Step) -> Rule | None:
        """An operation's rule; None where it has none."""
        attributes = step.op.attributes
        if RULE not in attributes:
            return None
        attribute = attributes[RULE]
        if attribute not in self._rules:
            self._rules[attribute] = rule_of(attribute)
        return self._rules[attribute]

    def maker(self, node: int) -> Step | None:
        """The operation that makes a value; None for an argument, and inside of what is entered."""
        made = self._made[node]
        return None if made is None else self.steps[made]

    def origin(self, node: int) -> int:
        """A value before the compiler moved it."""
        while (made := self.maker(node)) is not None and made.kind == "reshard":
            node = made.ins[0]
        return node

    def readers(self, node: int) -> Iterator[tuple[int, Step]]:
        """What reads a value, past the compiler's reshards: as which node, and what."""
        for step in self.touching(node):
            if step.kind == "reshard" and step.ins[0] == node:
                yield from self.readers(step.ins[1])
            elif node in step.ins and not (step.kind in ("constraint", "same", "reshard") and step.ins[0] != node):
                yield node, step

    def number(self, step: Step) -> int:
        """The number of a step's operation."""
        return number_of(step.op)

    def touching(self, node: int) -> list[Step]:
        """The steps that a value is part of."""
        return [self.steps[number] for number in self._touching[node]]

    def place_of(self, step: Step) -> Place:
        """The line and name stack of a step."""
        return self._places.at(step.op.location, step.around.place)

    def hops(self, cut: Cut) -> Iterator[Hop]:
        """The dimensions that hang together with one."""
        for number in self._touching[cut.node]:
            step = self.steps[number]
            if step.kind != "rule":
                for other in step.ins:
                    if other != cut.node:
                        yield Hop(number, None, Cut(other, cut.dim))
                continue
            rule = self.rule(step)
            if rule is None:
                continue
            sides = [*zip(step.ins, rule.ins, strict=True), *zip(step.outs, rule.outs, strict=True)]
            mine = [factor for node, dims in sides if node == cut.node for factor in dims[cut.dim]]
            for node, dims in sides:
                for d, factors in enumerate(dims):
                    if (node, d) == cut:
                        continue
                    shared = next((f for f in mine if f in factors and f not in rule.blocked), None)
                    if shared is not None:
                        yield Hop(number, shared, Cut(node, d))

    def reach(
        self, start: Cut, through: Callable[[Cut], bool], ends: Callable[[Cut], bool] = lambda _: False
    ) -> dict[Cut, tuple[Cut, Hop] | None]:
        """Every dimension that hangs together with one over others that all pass a test, nearest first.

        Args:
            start: a dimension.
            through: the test.
            ends: which of them nothing goes on from.

        What a value is made from is nearer than what is made of it, or used beside it: the way from a source along the
        data reads as the program does.

        Returns:
            Dimension → (the one nearer to the start, how it is reached from there); None for the start.
        """
        found: dict[Cut, tuple[Cut, Hop] | None] = {}
        count = itertools.count()
        left: list[tuple[int, int, Cut, tuple[Cut, Hop] | None]] = [(0, next(count), start, None)]
        while left:
            distance, _, cut, before = heapq.heappop(left)
            if cut in found:
                continue
            found[cut] = before
            if ends(cut):
                continue
            for hop in self.hops(cut):
                if hop.to not in found and through(hop.to):
                    far = distance + self._length(hop.step, cut.node, hop.to.node)
                    heapq.heappush(left, (far, next(count), hop.to, (cut, hop)))
        return found

    def _length(self, number: int, node: int, other: int) -> int:
        """How far it is over a step: what asks for a value right behind it is near too."""
        behind = _BEHIND if self.steps[number].kind in ("constraint", "output", "reshard", "same") else _ASIDE
        return 1 if self.upstream(number, node, other) else behind

    def upstream(self, number: int, node: int, other: int) -> bool:
        """Whether a step goes from a value to what it is made from."""
        step = self.steps[number]
        if step.kind == "rule":
            return node in step.outs and other in step.ins
        if step.kind == "loop":  # operand, result, inside of the condition and the body, what the body gives back
            rank = {0: 0, 1: 3, 2: 1, 3: 1}
            places = {each: place for place, each in reversed(list(enumerate(step.ins)))}
            return rank.get(places[other], 2) < rank.get(places[node], 2)
        if step.kind == "branch":
            return step.ins.index(node) < step.ins.index(other)
        return step.ins.index(node) > step.ins.index(other)


_BEHIND, _ASIDE = 2, 8
"""How much farther than upstream other ways are."""

_SAME = frozenset(("stablehlo.optimization_barrier", "sdy.propagation_barrier"))


def _kind(name: str, number: int) -> str:
    """What kind of step an operation is."""
    if name in ("sdy.reshard", "sdy.sharding_constraint") and number != -2:
        return "constraint"
    return "same" if name in _SAME else "reshard" if name.startswith("sdy.") and number == -2 else "rule"


def number_of(op: Any) -> int:
    """The number of an operation; -2 for one that the compiler added."""
    return ir.IntegerAttr(op.attributes[TAG]).value if TAG in op.attributes else -2


def manual_place(number: int, place: int) -> int:
    """One number for an array of a manual computation: the operation's and which of its operands and results."""
    return number * MANUAL + place


def tag(module: ir.Operation) -> None:
    """Numbers every operation of a module."""
    i64, number = ir.IntegerType.get_signless(64), 0

    def visit(op: ir.Operation) -> Any:
        nonlocal number
        op.attributes[TAG] = ir.IntegerAttr.get(i64, number)
        number += 1
        return ir.WalkResult.ADVANCE

    _jax.walk(module, visit)
