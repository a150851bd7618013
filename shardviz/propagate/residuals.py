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

from shardviz import _jax
from shardviz.graph import GraphValue as Array
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_size
from shardviz.propagate.lower import Lowered
from shardviz.propagate.propagate import Propagated
from shardviz.records import Frame, PlanRecord, Residual, Value
from shardviz.records.phases import phase
from shardviz.stablehlo.graph import MlirGraph, MlirOperation, spec_of_value
from shardviz.stablehlo.module import Place
from shardviz.stablehlo.walker import Walker
from shardviz.tracing.trace import Traced

_MADE_HERE = {"stablehlo.constant", "sdy.constant", "stablehlo.iota"}
_MOVED = {  # the value as it was made is what is kept, not what this gathers or moves of it
    *("sdy.all_gather", "sdy.all_to_all", "sdy.collective_permute", "sdy.reshard", "stablehlo.optimization_barrier")
}
_CUT = {"sdy.all_reduce", "sdy.all_slice", "sdy.reduce_scatter", "sdy.sharded_to_unreduced", "sdy.sharding_constraint"}
_KEPT = {"forward": "kept", "update": "outside", "argument": "argument", "carried": "argument", "constant": "constant"}


@dataclass(eq=False, slots=True)
class _MadeAt:
    """Where a value is computed."""

    # `forward`, `backward`, `rematerialised`, `update`, `argument`, `constant`; `carry` for what a loop hands from one
    # iteration to the next, `carried` if whole steps with both passes run inside the loop
    made: str
    value: Array  # as it was made
    place: Place
    op: str = ""
    phase: str = ""  # for a constant, in which pass it was made
    name: str = ""  # an argument's
    count: int | None = 1  # how often it is made in a step; None where not known
    layers: int | None = 1  # how many iterations of scans are stacked in it
    depth: int = 0  # how many of its leading dimensions are scans' iterations
    stacks: _MadeAt | None = None  # for a value that a scan's body writes into a stack: what it writes
    manual: tuple[Axis, ...] = ()  # the mesh axes of the `shard_map`s around, along which every device has its own


def residuals(propagated: Propagated, lowered: Lowered, bound: PlanRecord) -> tuple[Residual, ...]:
    """Return every value that is kept for the backward pass, or rematerialised for it, in the order of use there."""
    if not lowered.traced.differentiated:
        return ()
    with lowered.entered():
        facts, used = _known(lowered.traced), _ResidualWalk(lowered, propagated.graph).used
        rows = ((origin, kind) for origin, kind in used.items() if kind != "constant" or origin.value.shape)
        return tuple(_row(origin, kind, bound, facts) for origin, kind in rows)


class _ResidualWalk(Walker):
    """A walk that finds where every value is computed, and which values of other passes the backward pass uses."""

    def __init__(self, lowered: Lowered, graph: MlirGraph):
        super().__init__(graph, lowered.locations)
        self.origins: dict[Array, _MadeAt] = {}
        self.used: dict[_MadeAt, str] = {}
        for value, argument in zip(self.main.arguments, lowered.traced.arguments, strict=True):
            self.origins[value] = _MadeAt("argument", value, Place("", None), name=argument.name)
        self.read(self.main)

    def _of(self, value: Array) -> _MadeAt:
        origin = self.origins.get(value)
        if origin is None:  # an index of a reduction's own region, say
            origin = self.origins[value] = _MadeAt("constant", value, Place("", None))
        return origin

    def visit(self, op: MlirOperation) -> None:
        name, operands = op.name, [self._of(v) for v in op.operands]
        if name in _MOVED:
            return self._set(op.results, operands)
        if name in _CUT:
            return self._cut(op, operands[0])
        if name in ("func.call", "sdy.named_computation"):
            with self.inside(op) as (block,):
                self._set(block.arguments, operands)
                return self._set(op.results, map(self._of, self.read(block)))
        place = self.place(op)
        phase_here = phase(place.name_stack)
        self._uses(operands, phase_here)
        if name == "stablehlo.while":
            return self._while(op, operands, phase_here, place)
        if name == "sdy.manual_computation":
            return self._manual(op, operands, place)
        constant = name in _MADE_HERE or (
            bool(operands)
            and operands[0].made == "constant"
            and all(o.made == "constant" for o in operands)
            and not op.native.regions
        )
        kind, short = "constant" if constant else phase_here, name.split(".", 1)[1]
        count, manual = self.around.count, self.around.manual
        for result in op.results:
            self.origins[result] = _MadeAt(kind, result, place, short, phase_here, count=count, manual=manual)
        if name == "stablehlo.dynamic_update_slice" and operands[0].made in ("carry", "carried", "constant"):
            self.origins[op.results[0]].stacks = self._written(op.operands[1])
        if op.blocks:  # a branch
            with self.inside(op) as blocks:
                for block in blocks:
                    self.read(block)
        return None

    def _written(self, value: Array) -> _MadeAt:
        """Return the value that is written into a stack, before its new dimension of size 1."""
        if value.maker is None or value.maker.kind not in ("broadcast-in-dim", "reshape"):
            return self._of(value)
        (before,) = value.maker.operands
        return self._of(before if math.prod(value.shape) == math.prod(before.shape) else value)

    def _uses(self, operands: list[_MadeAt], phase_here: str) -> None:
        """Note the values of another pass that an operation uses."""
        for origin in operands:
            if phase_here in ("backward", "rematerialised"):
                if origin.made == "constant" and origin.phase not in ("forward", "update"):
                    continue
                if origin.made in _KEPT:
                    self.used.setdefault(origin, _KEPT[origin.made])
                elif origin.made == "rematerialised" and phase_here == "backward":
                    self.used.setdefault(origin, "recomputed")

    def _cut(self, op: MlirOperation, origin: _MadeAt) -> None:
        """Note a value that is summed over devices or sharded further, since this is the form in which it is kept. An
        argument remains an argument."""
        result = op.results[0]
        if origin.made not in ("argument", "carry", "carried", "constant"):
            origin = replace(origin, value=result, count=self.around.count)
        self.origins[result] = origin

    def _set(self, values: Iterable[Array], origins: Iterable[_MadeAt]) -> None:
        self.origins.update(zip(values, origins, strict=True))

    def _manual(self, op: MlirOperation, operands: list[_MadeAt], place: Place) -> None:
        """Walk a `shard_map`: inside, arrays are those of single devices; its results are whole arrays."""
        with self.inside(op) as (block,):
            self._set(block.arguments, operands)
            returned = [self._of(v) for v in self.read(block)]
        for result, origin in zip(op.results, returned, strict=True):
            if origin.made == "argument":
                origin = _MadeAt(phase(self.place(op).name_stack), result, place, "shard_map", count=self.around.count)
            self.origins[result] = replace(origin, value=result, manual=self.around.manual)

    def _while(self, op: MlirOperation, operands: list[_MadeAt], phase_here: str, place: Place) -> None:
        """Walk a loop. What it passes on unchanged is the value from outside; a stack that it fills has an element for
        each trip."""
        count, manual = self.around.count, self.around.manual
        carry = "carried" if phase_here == "update" else "carry"
        with self.inside(op) as (condition, body):
            kept = [end is argument for end, argument in zip(body.returned, body.arguments, strict=True)]
            for origin, stays, argument, tested in zip(
                operands, kept, body.arguments, condition.arguments, strict=True
            ):
                inside = origin if stays else _MadeAt(carry, argument, place, "while", manual=manual)
                self.origins[argument] = self.origins[tested] = inside
            self.read(condition)
            ends = [self._of(v) for v in self.read(body)]
            trips = self.around.trips
        for argument, end in zip(body.arguments, ends, strict=True):
            inside = self.origins[argument]
            if inside.made == carry:  # the line that makes it is one of the body's
                inside.place, inside.op = end.place, end.op
        for result, origin, stays, end in zip(op.results, operands, kept, ends, strict=True):
            if stays:
                self.origins[result] = origin
                continue
            inner = end.stacks or end
            result_origin = _MadeAt(phase_here, result, inner.place, inner.op, count=count, manual=manual)
            if not inner.place.name_stack:
                result_origin.place, result_origin.op = place, "while"
            if end.stacks is not None:
                result_origin.layers = None if trips is None or inner.layers is None else inner.layers * trips
                result_origin.depth = inner.depth + 1
            self.origins[result] = result_origin


def _spec(origin: _MadeAt, bound: PlanRecord) -> Spec:
    """Return the sharding in which a value is computed; a value without one is replicated."""
    if origin.made == "argument":
        return bound.in_specs[origin.name]
    return spec_of_value(origin.value.native) or Spec()


_Key = tuple[Frame | None, tuple[int, ...], str]


@dataclass(frozen=True)
class _CheckpointFacts:
    """What a trace knows about values, by the source line that computes a value, its shape and dtype: the name that
    `checkpoint_name` gives it, and the values that a checkpoint policy moves to host memory."""

    names: dict[_Key, str]
    offloaded: frozenset[_Key]


@lru_cache(maxsize=8)
def _known(traced: Traced) -> _CheckpointFacts:
    if traced.closed is None:
        return _CheckpointFacts({}, frozenset())
    names: dict[_Key, str] = {}
    for name, shape, dtype, frames in _jax.checkpoint_names(traced.closed.jaxpr):
        for frame in frames:
            if frame is not None:
                names[Frame(*frame), tuple(shape), dtype] = name
    offloaded = _jax.offloaded(traced.closed.jaxpr)
    return _CheckpointFacts(names, frozenset((Frame(*frame), shape, dtype) for frame, shape, dtype in offloaded))


def _row(origin: _MadeAt, kind: str, bound: PlanRecord, facts: _CheckpointFacts) -> Residual:
    shape, dtype = origin.value.shape, origin.value.dtype
    spec = Spec.of(_spec(origin, bound), len(shape))
    shard = shard_shape(shape, spec, bound.mesh)
    left = any(size > 1 and name not in origin.manual for name, size in bound.mesh.shape.items())
    key = origin.place.frame, shape[origin.depth :], dtype
    if kind in ("kept", "outside") and key in facts.offloaded:
        kind = "offloaded"
    place = origin.place
    value = Value(
        name=origin.name or place.op or origin.op,
        shape=shape,
        dtype=dtype,
        spec=spec if not origin.manual or left else None,
        shard_shape=shard,
        bytes_per_device=math.prod(shard) * itemsize(dtype),
        source=place.frame,
        op=place.op or origin.op,
        name_stack=place.name_stack,
        count=origin.count,
        manual=tuple(a for a in origin.manual if axis_size(a, bound.mesh) > 1),
    )
    return Residual(value, kind, origin.layers, facts.names.get(key, ""))
