"""Shardy's own propagation, in the kernel, without devices: how every value is cut, and what moves.

The passes that `jax.jit` would run inside the compiler run here on an edited copy of the lowered module; then Shardy's
pass that makes every resharding explicit writes the collectives down. MLIR's verifier between passes is left out: it
would take two thirds of the time. The tests run it once at the end.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.extend.mlir.passmanager import PassManager

from shardviz.layout import itemsize
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_size
from shardviz.program import server
from shardviz.program.attributes import axes_by_dimension, axes_of, dtype_of, spec_of
from shardviz.program.locations import Place, place_of
from shardviz.program.lower import Lowered, edited, edited_bytecode
from shardviz.program.trips import trip_count
from shardviz.records import Collective, PlanRecord, Value

PIPELINE = (
    "builtin.module(sdy-propagation-pipeline,sdy-close-shardings,"
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true},sdy-reshard-to-collectives))"
)
_REHEARSAL = 120.0
KINDS = {
    "sdy.all_gather": ("all-gather", "gathering_axes"),
    "sdy.all_reduce": ("all-reduce", "reduction_axes"),
    "sdy.reduce_scatter": ("reduce-scatter", "reduce_scatter_axes"),
    "sdy.all_to_all": ("all-to-all", "params"),
    "sdy.collective_permute": ("collective-permute", ""),
}
SKIPPED = {
    "sdy.constant",
    "stablehlo.constant",
    "stablehlo.iota",
    "stablehlo.while",
    "stablehlo.return",
    "func.return",
    "func.call",
    "func.func",
    "sdy.mesh",
    "stablehlo.case",
    "stablehlo.optimization_barrier",
    "sdy.all_slice",
}


@dataclass(frozen=True)
class Propagated:
    """What Shardy found.

    Attributes:
        outputs: a spec for every output.
        intermediates: every value inside that has a sharding.
        collectives: what Shardy would put in, per-device bytes.
        unknown_loops: loops whose trip count could not be found; what runs inside has no count.
        reshards_left: reshardings that Shardy did not turn into collectives.
        seconds: what each step took.
        module: the module after propagation, for its text.
    """

    outputs: tuple[Spec, ...]
    intermediates: tuple[Value, ...]
    collectives: tuple[Collective, ...]
    unknown_loops: int
    reshards_left: int
    seconds: dict[str, float]
    module: Any


def rehearse(lowered: Lowered, bound: PlanRecord) -> None:
    """Runs Shardy on a program in a process of its own first, which may die of it where the kernel must not.

    Shardy ends its process where one of its checks fails. Where no process can be had, nothing is rehearsed.

    Raises:
        CompileError: if the process died or Shardy refused the program.
    """
    request = server.Request(edited_bytecode(lowered, bound), bound.mesh.size, (), passes=PIPELINE)
    job = server.submit(request, timeout=_REHEARSAL)
    error = job.exception()
    if error is not None and job.begun:
        raise error


def propagate(lowered: Lowered, bound: PlanRecord) -> Propagated:
    """Runs Shardy on a program under a plan, here."""
    with lowered.lock, lowered.module.context, ir.Location.unknown():
        start = time.perf_counter()
        module = edited(lowered, bound)
        edit = time.perf_counter()
        passes = PassManager.parse(PIPELINE)
        passes.enable_verifier(False)
        passes.run(module)
        done = time.perf_counter()
        walk = _Walk(lowered, bound.mesh)
        walk.run(module)
        outputs = walk.outputs(module, bound)
        seconds = {"edit": edit - start, "shardy": done - edit, "read": time.perf_counter() - done}
        found = tuple(walk.values), tuple(walk.collectives)
        return Propagated(outputs, *found, walk.unknown_loops, walk.reshards_left, seconds, module)


def text_of(propagated: Propagated, lowered: Lowered) -> str:
    """The propagated module as text, without source locations."""
    with lowered.lock, lowered.module.context:
        return propagated.module.get_asm(enable_debug_info=False)


def stablehlo_text(lowered: Lowered, bound: PlanRecord) -> str:
    """The lowered module under a plan as text, before propagation, without source locations."""
    with lowered.lock, lowered.module.context, ir.Location.unknown():
        text = edited(lowered, bound).get_asm(enable_debug_info=False)
        assert isinstance(text, str)  # it is bytes only if asked for with binary=True
        return text


class _Walk:
    """One reading of a propagated module, in program order."""

    def __init__(self, lowered: Lowered, mesh: DeviceMesh):
        self.lowered, self.mesh = lowered, mesh
        self.values: list[Value] = []
        self.collectives: list[Collective] = []
        self.unknown_loops = self.reshards_left = 0
        self.specs: dict[Any, tuple[Spec, str]] = {}
        self.types: dict[Any, tuple[tuple[int, ...], str]] = {}
        self.shards: dict[Any, tuple[int, ...]] = {}
        self.numbers: dict[str, int] = {}
        self.branches = 0
        self.calls: list[ir.Operation] = []
        self.differentiated = lowered.traced.differentiated

    def run(self, module: ir.Operation) -> None:
        self.functions = {
            ir.StringAttr(op.attributes["sym_name"]).value: op.operation
            for op in module.regions[0].blocks[0].operations
            if op.operation.name == "func.func"
        }
        self._inside(self.functions["main"], 1)

    def _inside(self, operation: ir.Operation, count: int | None, where: str = "") -> None:
        for region in operation.regions:
            for block in region.blocks:
                for op in block.operations:
                    self._visit(op.operation, count, where)

    def _visit(self, op: ir.Operation, count: int | None, where: str) -> None:
        name = op.name
        if name in KINDS:
            self._collective(op, count, where)
        elif name == "sdy.reshard":
            self.reshards_left += 1
        elif name not in SKIPPED:
            self._value(op, count, where)
        if name == "func.call":
            callee = self.functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
            self.calls.append(op)
            self._inside(callee, count, where or place_of(op.location, self.lowered.locations).name_stack)
            self.calls.pop()
        elif name == "stablehlo.while":
            trips = trip_count(op)
            self.unknown_loops += trips is None
            self._inside(op, None if trips is None or count is None else count * trips, where)
        elif name in ("stablehlo.case", "stablehlo.if"):
            self.branches += 1
            self._inside(op, count, where)
            self.branches -= 1
        elif name in ("sdy.manual_computation", "sdy.named_computation"):
            self._inside(op, count, where)

    def _place(self, op: ir.Operation, where: str) -> Place:
        place = place_of(op.location, self.lowered.locations)
        if where and not place.name_stack.startswith("jit("):
            place = replace(place, name_stack=f"{where}/{place.name_stack}")
        return place

    def _value(self, op: ir.Operation, count: int | None, where: str) -> None:
        attributes = op.attributes
        if "sdy.sharding" not in attributes or not len(op.results):
            return
        if op.name == "stablehlo.broadcast_in_dim" and not self._type(op.operands[0].type)[0]:
            return
        attribute = attributes["sdy.sharding"]
        found = self.specs.get(attribute)
        if found is None:
            first = sdy.TensorShardingPerValueAttr(attribute).shardings[0]
            found = self.specs[attribute] = spec_of(first), str(first)
        spec, text = found
        shape, dtype = self._type(op.results[0].type)
        place = self._place(op, where)
        short = op.name.split(".", 1)[1]
        number = self.numbers[short] = self.numbers.get(short, -1) + 1
        shard = self.shards.get((shape, attribute))
        if shard is None:
            shard = self.shards[shape, attribute] = shard_shape(shape, spec, self.mesh)
        self.values.append(
            Value(
                f"{short}.{number}",
                shape,
                dtype,
                spec,
                shard,
                math.prod(shard) * itemsize(dtype),
                {"sdy": text},
                place.frame,
                place.op or short,
                place.name_stack,
                "",
                count,
            )
        )

    def _collective(self, op: ir.Operation, count: int | None, where: str) -> None:
        kind, attribute = KINDS[op.name]
        after = spec_of(op.attributes["out_sharding"])
        shape, dtype = self._type(op.results[0].type)
        before = self._before(op, after, len(shape))
        if attribute:
            axes = axes_of(str(op.attributes[attribute]))
        else:
            axes = tuple(a for a in (*before.axes, *after.axes) if isinstance(a, str))
            axes = tuple(dict.fromkeys(axes))
        result = shard_shape(shape, after, self.mesh)
        size = itemsize(dtype)
        place = self._used_at(op, where)
        self.collectives.append(
            Collective(
                kind,
                axes,
                dtype,
                result,
                math.prod(shard_shape(shape, before, self.mesh)) * size,
                math.prod(result) * size,
                count,
                source=place.frame,
                name_stack=place.name_stack,
                phase=place.phase(self.differentiated),
                name=f"{op.name.split('.')[1]}.{len(self.collectives)}",
                operand=self._operand(op.operands[0]),
                group_size=math.prod(axis_size(a, self.mesh) for a in axes),
                conditional=self.branches > 0,
            )
        )

    def _used_at(self, op: ir.Operation, where: str) -> Place:
        """Where the result is used, for a collective on an argument's way in: its own line is only where a scan
        starts.
        """
        own = self._place(op, where)
        if not self._operand(op.operands[0]):
            return own
        value = op.results[0]
        for _ in range(8):
            use = next(iter(value.uses), None)
            if use is None:
                break
            op = use.owner.operation
            if op.name == "func.return" and self.calls:
                value = self.calls[-1].results[use.operand_number]
            elif op.name == "stablehlo.optimization_barrier":
                value = op.results[use.operand_number]
            elif op.name in _TRIVIAL:
                value = op.results[0]
            else:
                used = self._place(op, where)
                return used if used.frame else own
        return own

    def _before(self, op: ir.Operation, after: Spec, rank: int) -> Spec:
        """The operand's spec: the result's, undone."""
        dims = list(Spec.of(after, rank).dims)
        if op.name == "sdy.all_gather":
            for i, axes in enumerate(axes_by_dimension(str(op.attributes["gathering_axes"]))):
                dims[i] = (*dims[i], *axes)
        elif op.name == "sdy.reduce_scatter":
            for i, axes in enumerate(axes_by_dimension(str(op.attributes["reduce_scatter_axes"]))):
                dims[i] = dims[i][: len(dims[i]) - len(axes)]
        elif op.name == "sdy.collective_permute":
            return self._spec_of(op.operands[0]) or after
        return Spec(tuple(dims))

    def _spec_of(self, value: Any) -> Spec | None:
        owner = value.owner
        attributes = getattr(owner, "attributes", None)
        if attributes is None:
            return None
        if "out_sharding" in attributes:
            return spec_of(attributes["out_sharding"])
        if "sdy.sharding" in attributes:
            return spec_of(sdy.TensorShardingPerValueAttr(attributes["sdy.sharding"]).shardings[0])
        return None

    def _operand(self, value: Any) -> str:
        """The argument that a value is a slice, a copy or a rearrangement of; empty if it is none."""
        calls = list(self.calls)
        for _ in range(64):
            owner = value.owner
            if isinstance(owner, ir.Block):
                parent, place = owner.owner.operation, ir.BlockArgument(value).arg_number
                if parent.name == "stablehlo.while":
                    value = parent.operands[place]
                elif parent == self.functions["main"]:
                    return self.lowered.traced.arguments[place].name
                elif parent.name == "func.func" and calls:
                    value = calls.pop().operands[place]
                else:
                    return ""
                continue
            if owner.name == "func.call":
                callee = self.functions[ir.FlatSymbolRefAttr(owner.attributes["callee"]).value]
                block = callee.regions[0].blocks[0]
                calls.append(owner.operation)
                value = block.operations[len(block.operations) - 1].operands[ir.OpResult(value).result_number]
            elif owner.name == "stablehlo.optimization_barrier":
                value = owner.operands[ir.OpResult(value).result_number]
            elif owner.name in _TRIVIAL:
                value = owner.operands[0]
            else:
                return ""
        return ""

    def outputs(self, module: ir.Operation, bound: PlanRecord) -> tuple[Spec, ...]:
        main = self.functions["main"]
        traced = self.lowered.traced
        found = (
            ir.ArrayAttr(main.attributes["res_attrs"])
            if "res_attrs" in main.attributes
            else [None] * len(traced.outputs)
        )
        specs = []
        for output, entry in zip(traced.outputs, found, strict=True):
            entry = {} if entry is None else {n.name: n.attr for n in ir.DictAttr(entry)}
            sharding = entry.get("sdy.sharding")
            spec = Spec.of(None if sharding is None else spec_of(sharding), len(output.shape))
            specs.append(Spec(spec.dims[: len(output.shape)], spec.unreduced))  # a PRNG key has a hidden dimension
        return tuple(specs)

    def _type(self, kind: Any) -> tuple[tuple[int, ...], str]:
        found = self.types.get(kind)
        if found is None:
            try:
                tensor = ir.RankedTensorType(kind)
                found = tuple(tensor.shape), dtype_of(str(tensor.element_type))
            except ValueError:
                found = (), str(kind)
            self.types[kind] = found
        return found


_TRIVIAL = {
    "stablehlo.convert",
    "stablehlo.reshape",
    "stablehlo.transpose",
    "stablehlo.dynamic_slice",
    "stablehlo.slice",
    "stablehlo.broadcast_in_dim",
    "sdy.sharding_constraint",
    "sdy.all_slice",
    "sdy.all_gather",
    "sdy.all_to_all",
    "sdy.collective_permute",
    "sdy.reshard",
}


def shard_shape(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> tuple[int, ...]:
    """One device's shape; dimensions that do not divide are padded, as XLA does."""
    cut = list(shape)
    for dimension, axes in enumerate(spec.dims):
        if axes:
            cut[dimension] = -(-cut[dimension] // math.prod(axis_size(a, mesh) for a in axes))
    return tuple(cut)
