"""The connections between dimensions of a program's values: which dimension of one value corresponds to which of
another.

A propagated module is read once, with calls entered where they occur. Every value is a node with a key that does not
depend on the plan: each operation has a number that Shardy's passes preserve. An operation connects the dimensions of
its operands and results that have the same factor in its rule: `([i, k], [k, j])->([i, j])` connects `i` of the left
operand with the result. Calls, loops and branches connect equal dimensions.

`reach` starts from a value's dimension and follows those that carry an axis, nearest first.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from shardviz import _jax
from shardviz._jax.mlir import ir, sdy
from shardviz.caching import cached_property
from shardviz.foresee.simplified import chlo_rule
from shardviz.graph import At, GraphValue
from shardviz.notation import Spec
from shardviz.notation.spec import axis_name
from shardviz.records import Value as Row
from shardviz.stablehlo.graph import MlirGraph, MlirOperation, is_moved
from shardviz.stablehlo.module import Place, attributes_of, spec_of
from shardviz.stablehlo.walker import Walker

TAG = "shardviz.tag"
"""The attribute that numbers a module's operations."""

RULE = "sdy.sharding_rule"
RULES = "func.func(sdy-populate-op-sharding-rules)"
"""The pass that writes every operation's rule onto it."""


class NodeKey(NamedTuple):
    """A value's identity under every plan: the numbers of the calls that lead to it, and of the operation that makes it
    or contains it (-1 for a function).

    Its kind is `result`, as the operation computes it; `value`, the same after propagation, which the compiler may have
    to reshard; `argument` or `output` (of the program); or `inside 0`, `inside 1`, ... for the arguments of an entered
    block. `place` is its position, and `copy` the number of the copy that the compiler made of a constant's operation.
    """

    calls: tuple[int, ...]
    tag: int
    kind: str
    place: int
    copy: int = 0


@dataclass(eq=False)
class Node:
    """A value of the program, with the same key under every plan.

    Attributes:
        shape: `()` for values that are not arrays.
        read_spec: reads its spec.
        maker: the operation that makes it; None for an argument, of the program or of a block.
        steps: the operations that it is part of.
    """

    key: NodeKey
    number: int
    shape: tuple[int, ...]
    manual: tuple[Any, ...]
    read_spec: Callable[[], Spec | None]
    maker: LinkStep | None = None
    steps: list[LinkStep] = field(default_factory=list)

    @cached_property
    def spec(self) -> Spec:
        return Spec.of(self.read_spec(), len(self.shape))

    @property
    def dims(self) -> list[NodeDim]:
        return [NodeDim(self, d) for d in range(len(self.shape))]

    @property
    def origin(self) -> Node:
        """The value before the compiler resharded it."""
        moved = self.maker is not None and self.maker.kind == "reshard"
        return self.maker.ins[0].origin if moved and self.maker else self

    def readers(self) -> Iterator[tuple[Node, LinkStep]]:
        """Return the readers behind the compiler's reshards: the node that is read, and the operation."""
        for step in self.steps:
            if step.kind == "reshard" and step.ins[0] is self:
                yield from step.ins[1].readers()
            elif self in step.ins and not (step.kind in ("constraint", "same", "reshard") and step.ins[0] is not self):
                yield self, step


class NodeDim(NamedTuple):
    node: Node
    dim: int

    def carries(self, axis: str) -> bool:
        """Return whether it is sharded along a mesh axis, or a part of it."""
        dims = self.node.spec.dims
        return self.dim < len(dims) and axis in map(axis_name, dims[self.dim])

    def links(self) -> Iterator[DimLink]:
        """Return the directly connected dimensions."""
        for step in self.node.steps:
            if step.kind != "rule":
                yield from (
                    DimLink(step, None, NodeDim(other, self.dim)) for other in step.ins if other is not self.node
                )
            elif step.rule is not None:
                mine = [f for node, dims in step.arrays if node is self.node for f in dims[self.dim]]
                mine = [f for f in mine if f not in step.rule.blocked]
                for node, dims in step.arrays:
                    for d, factors in enumerate(dims):
                        shared = next((f for f in mine if f in factors), None)
                        if shared is not None and (node, d) != self:
                            yield DimLink(step, shared, NodeDim(node, d))


class DimLink(NamedTuple):
    """A connected dimension: the step that connects it, and the factor (None at a boundary)."""

    step: LinkStep
    factor: int | None
    to: NodeDim


_SAME = frozenset(("stablehlo.optimization_barrier", "sdy.propagation_barrier"))
_CONSTRAINTS = frozenset(("sdy.reshard", "sdy.sharding_constraint"))
_ASKS = frozenset(("constraint", "output", "reshard", "same"))
"""Kinds of steps that ask for a value right behind it, so that they are near though not upstream."""


@dataclass(eq=False)
class LinkStep:
    """An operation or a boundary that connects dimensions; at a boundary `ins` are all connected values.

    Its kind is `rule`, for an operation; or, for boundaries, which connect equal dimensions: `call`, `return`, `loop`,
    `branch`, `manual`, `output`, `same`, `constraint`, `reshard` (the compiler's own). `array` is the number of the
    operand or result of a manual computation.
    """

    op: Any
    kind: str
    ins: tuple[Node, ...]
    outs: tuple[Node, ...]
    where: Callable[[], Place]
    array: int = 0

    @cached_property
    def rule(self) -> FactorRule | None:
        """The operation's rule; None if it has none, and at a boundary."""
        if self.kind != "rule":
            return None
        attributes, name = self.op.attributes, self.op.name
        rule = (
            attributes[RULE] if RULE in attributes else chlo_rule(self.op.native) if name.startswith("chlo.") else None
        )
        return None if rule is None else FactorRule.of(rule)

    @cached_property
    def arrays(self) -> list[tuple[Node, Factors]]:
        """The operands and then the results, with the factors of each dimension; empty without a rule."""
        return [] if self.rule is None else list(zip((*self.ins, *self.outs), self.rule.arrays, strict=True))

    @property
    def number(self) -> int:
        return number_of(self.op)

    @cached_property
    def place(self) -> Place:
        return self.where()

    @property
    def name(self) -> str:
        """JAX's name of the operation."""
        if self.op.name in _CONSTRAINTS:
            return "sharding_constraint"
        return self.place.op.split("[")[0] or self.op.name.split(".", 1)[1]

    def upstream(self, node: Node, other: Node) -> bool:
        """Return whether it goes from a value to what that is made from."""
        if self.kind == "rule":
            return node in self.outs and other in self.ins
        if self.kind == "loop":  # operand, result, inside of the condition and the body, what the body gives back
            rank = {0: 0, 1: 3, 2: 1, 3: 1}
            return rank.get(self.ins.index(other), 2) < rank.get(self.ins.index(node), 2)
        earlier = self.ins.index(other) < self.ins.index(node)
        return earlier != (self.kind == "branch")


Factors = tuple[tuple[int, ...], ...]
"""For each dimension of an array its factors in a rule, the major one first."""


class FactorRule(NamedTuple):
    """An operation's sharding rule as plain data: the factors of each operand and then of each result; the factors that
    are summed over or reduced, that must not be sharded, and that do not propagate an axis; and the rule as einsum,
    `([i, k], [k, j])->([i, j])`."""

    arrays: tuple[Factors, ...]
    reduced: frozenset[int]
    whole: frozenset[int]
    blocked: frozenset[int]
    text: str

    @classmethod
    def of(cls, attribute: Any) -> FactorRule:
        rule = sdy.OpShardingRuleAttr(attribute)
        ins, outs = (
            [
                tuple(tuple(sdy.DimMappingAttr(d).factor_indices) for d in sdy.TensorMappingAttr(array).dim_mappings)
                for array in side
            ]
            for side in (rule.operand_mappings, rule.result_mappings)
        )
        reduced, whole = frozenset(rule.reduction_factors), frozenset(rule.need_replication_factors)
        return cls((*ins, *outs), reduced, whole, frozenset(rule.blocked_propagation_factors), einsum(ins, outs))


def einsum(*sides: Iterable[Factors]) -> str:
    """Return a rule's text, with its factors named as Shardy names them.

    >>> einsum([((0,), (2,)), ((2,), (1,))], [((0,), (1,))])
    '([i, k], [k, j])->([i, j])'
    """

    def letter(factor):
        return chr(ord("i") + factor) if factor < 18 else f"z_{factor - 17}"

    def array(dims):
        return f"[{', '.join(''.join(map(letter, dim)) or '1' for dim in dims)}]"

    return "->".join(f"({', '.join(map(array, side))})" for side in sides)


class Links(Walker):
    """A propagated module as a graph of nodes by key; specs, rules and places are read on demand."""

    def __init__(self, module: ir.Operation, locations: dict[Any, Any]):
        super().__init__(MlirGraph(module), locations)
        self.nodes: dict[NodeKey, Node] = {}
        self._scope: dict[GraphValue, Node] = {}  # of the function that is read
        self._propagated: dict[Node, Spec] = {}  # of what is computed otherwise
        self._tags: tuple[int, ...] = ()
        for i, value in enumerate(self.main.arguments):
            self._new(value, NodeKey((), -1, "argument", i))
        returned, main = self.read(self.main), self.graph.functions["main"]
        for i, (value, attributes) in enumerate(
            zip(returned, attributes_of(main, "res_attrs", len(returned)), strict=True)
        ):
            inner = self._scope[value]
            output = self._new(value, NodeKey((), -1, "output", i))
            if "sdy.sharding" in attributes:
                output.read_spec = partial(spec_of, attributes["sdy.sharding"])
            self._step(main, "output", (inner, output))

    def node(self, key: NodeKey) -> Node:
        node = self.find(key)
        assert node is not None, key
        return node

    def find(self, key: NodeKey) -> Node | None:
        """Return the node with a key; None if it no longer exists."""
        if key.kind != "value":
            return self.nodes.get(key)
        computed = self.nodes.get(key._replace(kind="result"))
        spec = None if computed is None else self._propagated.get(computed)
        if computed is None or spec is None:
            return computed
        moved = [computed]
        for node in moved:  # a sum over devices may come first
            if node.spec == spec:
                return node
            moved += [s.ins[1] for s in node.steps if s.kind == "reshard" and s.ins[0] is node]
        return computed

    def dim(self, key: NodeKey, dim: int) -> NodeDim | None:
        """Return a dimension of the node with a key; None if the node no longer exists."""
        node = self.find(key)
        return None if node is None else NodeDim(node, dim)

    def _new(self, value: GraphValue, key: NodeKey) -> Node:
        """Return a new node, registered under its key."""
        while key in self.nodes:
            key = key._replace(copy=key.copy + 1)
        manual = self.around.manual
        node = Node(key, len(self.nodes), value.shape, manual, partial(self.graph.spec_of, value, manual))
        self.nodes[key] = node
        if key.kind != "output":
            self._scope[value] = node
        if key.kind == "result" and is_moved(value.owner.attributes):
            self._propagated[node] = Spec.of(self.graph.propagated(value), len(value.shape))
        return node

    def _step(self, op: Any, kind: str, ins: Iterable[Node], outs: Iterable[Node] = (), array: int = 0) -> LinkStep:
        where = partial(self._places.at, op.location, self.around.place)
        step = LinkStep(op, kind, tuple(ins), tuple(outs), where, array)
        for node in dict.fromkeys((*step.ins, *step.outs)):
            node.steps.append(step)
        return step

    def visit(self, op: MlirOperation) -> None:
        operands = [self._scope[value] for value in op.operands]
        tag = number_of(op)
        results = [self._new(value, NodeKey(self._tags, tag, "result", i)) for i, value in enumerate(op.results)]
        kind = "rule"
        if op.name in _CONSTRAINTS and tag != ADDED:
            kind = "constraint"
        elif op.name in _SAME:
            kind = "same"
        elif op.name.startswith("sdy.") and tag == ADDED and operands:
            kind = "reshard"
        if op.blocks:
            self._enter(op, tag, operands, results)
        elif kind == "rule":
            step = self._step(op, kind, operands, results)
            for result in results:
                result.maker = step
        else:
            for operand, result in zip(operands, results, strict=True):
                result.maker = self._step(op, kind, (operand, result))

    def _enter(self, op: MlirOperation, tag: int, operands: list[Node], results: list[Node]) -> None:
        """Read an operation's blocks, and connect their values with those around the operation."""
        scope, tags = self._scope, self._tags
        with self.inside(op) as blocks:
            if op.name == "func.call":
                self._scope, self._tags, tag = {}, (*tags, tag), -1
            inside = [
                [
                    self._new(value, NodeKey(self._tags, tag, f"inside {n}", i))
                    for i, value in enumerate(block.arguments)
                ]
                for n, block in enumerate(blocks)
            ]
            results_of_blocks = []
            for block in blocks:
                returned = self.read(block)
                results_of_blocks.append([self._scope[value] for value in returned])
            self._scope, self._tags = scope, tags
        if op.name == "stablehlo.while":
            for tied in zip(operands, results, *inside, results_of_blocks[1], strict=True):
                self._step(op, "loop", dict.fromkeys(tied))
        elif op.name in ("stablehlo.case", "stablehlo.if"):
            for tied in zip(results, *results_of_blocks, strict=True):
                self._step(op, "branch", tied)
        else:
            called = op.name in ("func.call", "sdy.named_computation")
            ins, outs = zip(operands, inside[0], strict=True), zip(results_of_blocks[0], results, strict=True)
            for array, pair in enumerate(ins):
                self._step(op, "call" if called else "manual", pair, array=array)
            for array, pair in enumerate(outs, len(operands)):
                self._step(op, "return" if called else "manual", pair, array=array)


_Reached = tuple[int, NodeDim | None, DimLink | None]


def reach(
    start: NodeDim,
    through: Callable[[NodeDim], bool],
    ends: Callable[[NodeDim], bool] = lambda _: False,
    *,
    even: bool = False,
) -> dict[NodeDim, _Reached]:
    """Return every dimension that is reachable through dimensions that pass a test, nearest first: dimension →
    (distance, the previous dimension, the link). The search does not continue beyond dimensions in `ends`. Operands are
    nearer than results and siblings; with `even` all are equally far."""
    reached: dict[NodeDim, _Reached] = {}
    count = itertools.count()
    queue: list[tuple[int, int, NodeDim, NodeDim | None, DimLink | None]] = [(0, next(count), start, None, None)]
    while queue:
        distance, _, cut, nearer, over = heapq.heappop(queue)
        if cut in reached:
            continue
        reached[cut] = distance, nearer, over
        if ends(cut):
            continue
        for link in cut.links():
            if link.to not in reached and through(link.to):
                near = even or link.step.upstream(cut.node, link.to.node)
                length = 1 if near else 2 if link.step.kind in _ASKS else 8
                heapq.heappush(queue, (distance + length, next(count), link.to, cut, link))
    return reached


ADDED = -2
"""The number of an operation that the compiler added."""


def number_of(op: Any) -> int:
    return ir.IntegerAttr(op.attributes[TAG]).value if TAG in op.attributes else ADDED


def tag(module: ir.Operation) -> None:
    i64 = ir.IntegerType.get_signless(64)
    for number, op in enumerate(_jax.walk(module)):
        op.attributes[TAG] = ir.IntegerAttr.get(i64, number)


def keys_of(values: Iterable[At]) -> Iterator[NodeKey]:
    """Return the keys of operations' results, in the order of a numbered module."""
    copies: Counter[tuple[tuple[int, ...], int]] = Counter()
    for value, calls in values:
        at = tuple(map(number_of, calls)), number_of(value.owner)
        yield NodeKey(*at, "result", value.index, copies[at])
        copies[at] += 1


def key_before(at: At) -> NodeKey:
    """Return the key of a collective's original operand, before all collectives and reshards of the compiler on its
    way."""
    value, calls = at.value, tuple(map(number_of, at.calls))
    while isinstance(owner := value.owner, MlirOperation) and owner.name.startswith("sdy.") and owner.operands:
        if number_of(owner) != ADDED and owner.name != "sdy.reshard":
            break
        value = owner.operands[0]
    if isinstance(owner, MlirOperation):
        return NodeKey(calls, number_of(owner), "result", value.index)
    if owner.name:  # a function
        return NodeKey(calls, -1, "inside 0" if calls else "argument", value.index)
    (around,) = owner.callers
    return NodeKey(calls, number_of(around), f"inside {around.blocks.index(owner)}", value.index)


Named = Callable[[Node], str]
"""Returns a value's name."""

_PARTS = frozenset(f"stablehlo.{op}" for op in ("dynamic_slice", "slice", "reshape", "transpose", "convert"))
"""Operations whose result is a part of an argument, or the argument in another form."""


def namer(arguments: Sequence[str], outputs: Sequence[str], rows: Mapping[NodeKey, Row]) -> Named:
    """Return a function that names values: by tree path, by variable (`rows` are the report's values), or by operation.
    Values that are only passed on have their operand's name, and a slice of an argument is called a part of it."""
    names: dict[NodeKey, str] = {}

    def named(node: Node) -> str:
        if node.key not in names:
            names[node.key] = ""  # where a loop hands itself on
            names[node.key] = name(node)
        return names[node.key]

    def name(node: Node) -> str:
        key, maker = node.key, node.maker
        if key.kind in ("argument", "output"):
            return (arguments if key.kind == "argument" else outputs)[key.place]
        if (row := rows.get(key)) is not None and row.label:
            return row.label
        if maker is not None and maker.kind != "rule":
            return named(maker.ins[0]) + (", constrained" if maker.kind == "constraint" else "")
        if maker is not None:
            inner = named(maker.ins[0]) if maker.op.name in _PARTS else ""
            if inner.startswith(("a part of ", *arguments)):
                return inner if inner.startswith("a part of ") else f"a part of {inner}"
            return maker.name
        for step in node.steps:
            if step.kind in ("loop", "call", "return", "manual") and node is not step.ins[0]:
                return named(step.ins[0])
            if step.kind == "branch" and node is step.ins[0]:
                return named(step.ins[1])
        return "a value"

    return named
