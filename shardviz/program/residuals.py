"""What a differentiated program keeps from its forward pass to its backward pass.

The propagated module is read in program order, as if every call were written out where it stands. Each value's pass
follows from JAX's name stack; a value that an operation of the backward pass uses and that was made before it is kept
until then. A scan on the way forward stacks what its body leaves for the scan on the way back, so that one row stands
for all its iterations.

What the walk calls kept is what JAX's own partial evaluation keeps; a compiler may do better, by making a value again
instead of keeping it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardviz import _jax
from shardviz.layouts import itemsize
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_size
from shardviz.program.lower import Lowered
from shardviz.program.module import Place, axes_of, dtype_of, place_of, spec_of, within
from shardviz.program.propagate import Propagated
from shardviz.program.shards import shard_shape
from shardviz.program.stablehlo import trip_count
from shardviz.program.trace import Traced
from shardviz.records import Frame, PlanRecord, Residual, Value

_MADE_HERE = {"stablehlo.constant", "sdy.constant", "stablehlo.iota"}
_MOVED = {  # the value as it was made is what is kept, not what this gathers or moves of it
    "sdy.all_gather",
    "sdy.all_to_all",
    "sdy.collective_permute",
    "sdy.reshard",
    "stablehlo.optimization_barrier",
}
_CUT = {"sdy.all_reduce", "sdy.all_slice", "sdy.reduce_scatter", "sdy.sharded_to_unreduced", "sdy.sharding_constraint"}
_RETURNS = {"stablehlo.return", "func.return", "sdy.return"}
_KEPT = {"forward": "kept", "update": "outside", "argument": "argument", "carried": "argument", "constant": "constant"}


@dataclass(eq=False, slots=True)
class _Origin:
    """Where a value was made.

    Attributes:
        made: `forward`, `backward`, `rematerialised`, `update`, `argument`, `constant`; `carry` for what a loop hands
            from one iteration to the next, `carried` if whole steps with both passes run inside the loop.
        value: the MLIR value as it was made.
        by: the operation and the number of its result that says how it is cut; None for an argument.
        place: its line and name stack.
        op: the operation that made it.
        phase: for a constant, in which pass it was made.
        name: an argument's name.
        count: how often it is made in a step; None where not known.
        layers: how many iterations of scans are stacked in it.
        depth: how many leading dimensions of it are scans' iterations.
        stacks: for a value that a scan's body writes into a stack: what it writes.
        forward: whether the forward pass uses it.
        manual: the mesh axes of the `shard_map`s around, along which every device has its own.
    """

    made: str
    value: Any
    by: tuple[ir.Operation, int] | None
    place: Place
    op: str = ""
    phase: str = ""
    name: str = ""
    count: int | None = 1
    layers: int | None = 1
    depth: int = 0
    stacks: _Origin | None = None
    forward: bool = False
    manual: tuple[Axis, ...] = ()


def residuals(propagated: Propagated, lowered: Lowered, bound: PlanRecord) -> tuple[Residual, ...]:
    """Every value that is kept for the backward pass, and every one that is made again for it.

    Args:
        propagated: what Shardy found; its module is read.
        lowered: the program.
        bound: the plan.

    Returns:
        Rows in the order in which the backward pass first uses them; none for a program without a backward pass.
    """
    if not lowered.traced.differentiated:
        return ()
    with lowered.lock, lowered.module.context, ir.Location.unknown():
        walk = _Walk(lowered, propagated.module)
        known = _known(lowered.traced)
        return tuple(_row(o, kind, bound, known) for o, kind in walk.rows())


class _Walk:
    """One reading of a propagated module, calls written out."""

    def __init__(self, lowered: Lowered, module: ir.Operation):
        self.known = lowered.locations
        self.functions = {
            ir.StringAttr(op.attributes["sym_name"]).value: op.operation
            for op in module.regions[0].blocks[0].operations
            if op.operation.name == "func.func"
        }
        self.origins: dict[Any, _Origin] = {}
        self.used: dict[_Origin, str] = {}
        self.phases: dict[str, str] = {}
        self.placed: dict[tuple[Any, int], tuple[Place, str, Place | None]] = {}
        self.manual: tuple[Axis, ...] = ()
        block = self.functions["main"].regions[0].blocks[0]
        for value, argument in zip(block.arguments, lowered.traced.arguments, strict=True):
            self.origins[value] = _Origin("argument", value, None, Place("", None), name=argument.name)
        self._block(block, 1, None)

    def rows(self) -> Iterable[tuple[_Origin, str]]:
        """What the backward pass uses, and how it comes to have it."""
        for origin, kind in self.used.items():
            # what only the backward pass uses, such as a cotangent, is not kept for it
            if kind == "argument" and not origin.forward:
                continue
            if kind != "constant" or _shape(origin.value):
                yield origin, kind

    def _block(self, block: Any, count: int | None, outer: Place | None) -> list[_Origin]:
        """Reads a block; the origins of what it returns."""
        for op in block.operations:
            op = op.operation
            if op.name in _RETURNS:
                return [self._of(v) for v in op.operands]
            self._visit(op, count, outer)
        return []

    def _of(self, value: Any) -> _Origin:
        found = self.origins.get(value)
        if found is None:  # an index of a reduction's own region, say
            found = self.origins[value] = _Origin("constant", value, None, Place("", None))
        return found

    def _visit(self, op: ir.Operation, count: int | None, outer: Place | None) -> None:
        name = op.name
        key = op.location.attr, id(outer)
        place, made, _ = self.placed.get(key) or self._place(op, key, outer)
        operands = [self._of(v) for v in op.operands]
        if name in _MOVED:
            for result, origin in zip(op.results, operands, strict=True):
                self.origins[result] = origin
            return
        if name in _CUT:
            self._cut(op, operands[0], count)
            return
        if name == "func.call":
            self._call(op, operands, count, place)
            return
        if name == "sdy.named_computation":
            self._bind(op.regions[0].blocks[0], operands)
            self._bind_results(op, self._block(op.regions[0].blocks[0], count, outer))
            return
        self._uses(operands, made)
        if name == "stablehlo.while":
            self._while(op, operands, count, outer, made, place)
            return
        if name == "sdy.manual_computation":
            self._manual(op, operands, count, outer, place)
            return
        constant = name in _MADE_HERE or (
            bool(operands)
            and operands[0].made == "constant"
            and all(o.made == "constant" for o in operands)
            and not op.regions
        )
        kind, short = "constant" if constant else made, name.split(".", 1)[1]
        for i, result in enumerate(op.results):
            self.origins[result] = _Origin(
                kind, result, (op, i), place, short, made, "", count, 1, 0, None, False, self.manual
            )
        if name == "stablehlo.dynamic_update_slice" and operands[0].made in ("carry", "carried", "constant"):
            self.origins[op.results[0]].stacks = self._written(op.operands[1])
        if name in ("stablehlo.case", "stablehlo.if"):
            for region in op.regions:
                self._block(region.blocks[0], count, outer)

    def _place(self, op: ir.Operation, key: tuple[Any, int], outer: Place | None) -> tuple[Place, str, Place | None]:
        """An operation's place and pass, kept for those at the same location in the same call; `outer` for its id."""
        place = within(place_of(op.location, self.known), outer)
        made = self.phases.get(place.name_stack)
        if made is None:
            made = self.phases[place.name_stack] = place.phase(True)
        found = self.placed[key] = place, made, outer
        return found

    def _written(self, value: Any) -> _Origin:
        """What is written into a stack, before a dimension of size one was put in front of it."""
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name not in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
            return self._of(value)
        given = owner.operands[0]
        return self._of(given if math.prod(_shape(value)) == math.prod(_shape(given)) else value)

    def _uses(self, operands: list[_Origin], made: str) -> None:
        """Notes what an operation uses of another pass."""
        for origin in operands:
            if made in ("backward", "rematerialised"):
                if origin.made == "constant" and origin.phase not in ("forward", "update"):
                    continue
                if origin.made in _KEPT:
                    self.used.setdefault(origin, _KEPT[origin.made])
                elif origin.made == "rematerialised" and made == "backward":
                    self.used.setdefault(origin, "recomputed")
            else:
                origin.forward = True

    def _cut(self, op: ir.Operation, origin: _Origin, count: int | None) -> None:
        """A value that is summed over devices, or cut further: that is how it is kept. An argument stays one."""
        result = op.results[0]
        if origin.made in ("argument", "carry", "carried", "constant"):
            self.origins[result] = origin
            return
        self.origins[result] = replace(origin, value=result, by=(op, 0), count=count, forward=False)

    def _bind(self, block: Any, operands: list[_Origin]) -> None:
        for argument, origin in zip(block.arguments, operands, strict=True):
            self.origins[argument] = origin

    def _bind_results(self, op: ir.Operation, origins: list[_Origin]) -> None:
        for result, origin in zip(op.results, origins, strict=True):
            self.origins[result] = origin

    def _call(self, op: ir.Operation, operands: list[_Origin], count: int | None, place: Place) -> None:
        callee = self.functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value].regions[0].blocks[0]
        self._bind(callee, operands)
        self._bind_results(op, self._block(callee, count, place))

    def _manual(
        self, op: ir.Operation, operands: list[_Origin], count: int | None, outer: Place | None, place: Place
    ) -> None:
        """A `shard_map`: inside, arrays are single devices'; what it gives is the whole array again."""
        block, around = op.regions[0].blocks[0], self.manual
        self._bind(block, operands)
        self.manual = (*around, *axes_of(str(op.attributes["manual_axes"])))
        made = self._block(block, count, place)  # JAX names what is inside as it names a nested function's
        self.manual = around
        for i, (result, origin) in enumerate(zip(op.results, made, strict=True)):
            if origin.made == "argument":
                origin = _Origin(place.phase(True), result, None, place, "shard_map", count=count)
            self.origins[result] = replace(origin, value=result, by=(op, i), forward=False, manual=around)

    def _while(
        self,
        op: ir.Operation,
        operands: list[_Origin],
        count: int | None,
        outer: Place | None,
        made: str,
        place: Place,
    ) -> None:
        """A loop: what it hands on unchanged is what it was given; what it stacks is as many as it runs."""
        condition, body = (region.blocks[0] for region in op.regions)
        trips = trip_count(op)
        times = None if trips is None or count is None else count * trips
        last = body.operations[len(body.operations) - 1].operation
        carry = "carried" if made == "update" else "carry"
        for i, origin in enumerate(operands):
            kept = last.operands[i] == body.arguments[i]
            inside = origin if kept else _Origin(carry, body.arguments[i], (op, i), place, "while", manual=self.manual)
            self.origins[body.arguments[i]] = inside
            self.origins[condition.arguments[i]] = inside
        self._block(condition, times, outer)
        ends = self._block(body, times, outer)
        for argument, end in zip(body.arguments, ends, strict=True):
            inside = self.origins[argument]
            if inside.made == carry:  # the line that makes it is one of the body's
                inside.place, inside.op = end.place, end.op
        for i, (result, end) in enumerate(zip(op.results, ends, strict=True)):
            if last.operands[i] == body.arguments[i]:
                self.origins[result] = operands[i]
                continue
            inner = end.stacks or end
            found = _Origin(made, result, (op, i), inner.place, inner.op, count=count, manual=self.manual)
            if not inner.place.name_stack:
                found.place, found.op = place, "while"
            if end.stacks is not None:
                found.layers = None if trips is None or inner.layers is None else inner.layers * trips
                found.depth = inner.depth + 1
            self.origins[result] = found


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def _spec(op: ir.Operation, index: int) -> Spec:
    """How an operation's result is cut; one without a sharding is whole on every device."""
    attributes = op.attributes
    for name in ("out_sharding", "sharding"):
        if name in attributes:
            return spec_of(attributes[name])
    for name in ("sdy.sharding", "out_shardings"):
        if name in attributes:
            return spec_of(sdy.TensorShardingPerValueAttr(attributes[name]).shardings[index])
    return Spec()


_Key = tuple[Frame | None, tuple[int, ...], str]


@dataclass(frozen=True)
class _Known:
    """What a trace says of values, by the line that makes a value, its shape and its dtype.

    Attributes:
        names: what `checkpoint_name` calls it.
        offloaded: those that a checkpoint policy puts into the host's memory.
    """

    names: dict[_Key, str]
    offloaded: frozenset[_Key]


@lru_cache(maxsize=8)
def _known(traced: Traced) -> _Known:
    if traced.closed is None:
        return _Known({}, frozenset())
    names: dict[_Key, str] = {}
    for name, shape, dtype, frames in _jax.checkpoint_names(traced.closed.jaxpr):
        for frame in frames:
            if frame is not None:
                names[Frame(*frame), tuple(shape), dtype] = name
    offloaded = _jax.offloaded(traced.closed.jaxpr)
    return _Known(names, frozenset((Frame(*frame), shape, dtype) for frame, shape, dtype in offloaded))


def _row(origin: _Origin, kind: str, bound: PlanRecord, known: _Known) -> Residual:
    shape, dtype = _shape(origin.value), dtype_of(str(ir.RankedTensorType(origin.value.type).element_type))
    spec = Spec.of(bound.in_specs.get(origin.name) if origin.by is None else _spec(*origin.by), len(shape))
    shard = shard_shape(shape, spec, bound.mesh)
    left = any(size > 1 and name not in origin.manual for name, size in bound.mesh.shape.items())
    key = origin.place.frame, shape[origin.depth :], dtype
    if kind in ("kept", "outside") and key in known.offloaded:
        kind = "offloaded"
    place = origin.place
    value = Value(
        name=origin.name or place.op or origin.op,
        shape=shape,
        dtype=dtype,
        spec=spec if not origin.manual or left else None,
        shard_shape=shard,
        bytes_per_device=math.prod(shard) * itemsize(dtype),
        sharding={},
        source=place.frame,
        op=place.op or origin.op,
        name_stack=place.name_stack,
        label="",
        count=origin.count,
        manual=tuple(a for a in origin.manual if axis_size(a, bound.mesh) > 1),
    )
    return Residual(value, kind, origin.layers, known.names.get(key, ""))
