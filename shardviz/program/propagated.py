"""What Shardy leaves of a module, read once: every value and how it is cut, every collective, every product's FLOPs.

How a value is cut stands on the operation that makes it, or around it. Outside a `shard_map` the collectives are
Shardy's own (`sdy.all_gather`), with named axes and global shapes. Inside one (`sdy.manual_computation`) shapes are
single devices' already, and the collectives are those that the program says; which mesh axes those span follows from
their replica groups, of devices or of axes, or their pairs.

After the pass that makes every resharding explicit, the operands of a product are cut as it uses them: a dimension that
is summed over and cut on both sides is summed over in part by each device, and an all-reduce follows. So one device's
FLOPs follow from one device's shapes. Dimensions that do not divide are padded, as XLA pads them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.groups import axes_of, axes_of_pairs
from shardviz.notation.record import Sharding
from shardviz.notation.scan import unescaped
from shardviz.notation.spec import axis_name, axis_size
from shardviz.program.explicit import type_of
from shardviz.program.lower import Lowered
from shardviz.program.module import Place, axes_by_dimension, call_target, dtype_of, spec_of
from shardviz.program.module import axes_of as axes_in
from shardviz.program.stablehlo import ENTERED, Walker, pass_of
from shardviz.records import Collective, Value, WorkTally
from shardviz.records.counting import Window, convolution_flops, dot_flops
from shardviz.records.source import module_of


def cut_of(value: Any, manual: Sequence[Axis] = ()) -> Spec | None:
    """The spec of any value; None for one that is whole on every device.

    Args:
        value: an operation's result, or an argument of a function, a loop or a manual computation.
        manual: the axes of the manual computations around it, which its spec leaves out.
    """
    owner = value.owner
    if isinstance(owner, ir.Block):
        return _of_argument(ir.BlockArgument(value), manual)
    attributes = owner.attributes
    if "out_sharding" in attributes:
        return spec_of(attributes["out_sharding"])
    for name in ("sdy.sharding", "out_shardings"):
        if name in attributes:
            return _nth(attributes[name], ir.OpResult(value).result_number)
    return None


def _of_argument(value: Any, manual: Sequence[Axis]) -> Spec | None:
    parent, place = value.owner.owner.operation, value.arg_number
    attributes = parent.attributes
    if parent.name == "func.func":
        if "arg_attrs" not in attributes:
            return None
        known = ir.DictAttr(ir.ArrayAttr(attributes["arg_attrs"])[place])
        return spec_of(known["sdy.sharding"]) if "sdy.sharding" in known else None
    if parent.name == "stablehlo.while":
        return _nth(attributes["sdy.sharding"], place) if "sdy.sharding" in attributes else None
    if parent.name not in ("sdy.manual_computation", "sdy.named_computation"):
        return None
    dims = _nth(attributes["in_shardings"], place).dims
    return Spec(tuple(tuple(a for a in dim if axis_name(a) not in manual) for dim in dims))


def _nth(attribute: Any, place: int) -> Spec:
    """The spec of one of several values."""
    return spec_of(sdy.TensorShardingPerValueAttr(attribute).shardings[place])


KINDS = {
    "sdy.all_gather": ("all-gather", "gathering_axes"),
    "sdy.all_reduce": ("all-reduce", "reduction_axes"),
    "sdy.reduce_scatter": ("reduce-scatter", "reduce_scatter_axes"),
    "sdy.all_to_all": ("all-to-all", "params"),
    "sdy.collective_permute": ("collective-permute", ""),
}
USER_KINDS = {
    "stablehlo.all_gather": "all-gather",
    "stablehlo.all_reduce": "all-reduce",
    "stablehlo.reduce_scatter": "reduce-scatter",
    "stablehlo.all_to_all": "all-to-all",
    "stablehlo.collective_permute": "collective-permute",
    "stablehlo.collective_broadcast": "collective-broadcast",
    "ragged_all_to_all": "ragged-all-to-all",
}
"""What a program says itself, in a `shard_map`; the last is the target of a custom call."""

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
    "sdy.return",
    "sdy.manual_computation",
}
"""Operations that make nothing to show: constants, loops and branches, whose insides are read, and ends."""

TRIVIAL = {
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
"""Operations whose result is their operand, moved or a part of it."""


_AXIS = re.compile(r'axis_ref<name = "((?:[^"\\]|\\.)*)"(?:,\s*sub_axis_info = [^(>]*\((\d+)\)(\d+))?')


def span(op: ir.Operation, kind: str, mesh: DeviceMesh) -> tuple[tuple[Axis, ...] | None, int | None]:
    """The mesh axes and the number of devices in a group; None where the groups are no product of axes."""
    name = "source_target_pairs" if kind == "collective-permute" else "replica_groups"
    attributes = op.attributes
    if name not in attributes:  # of a custom call
        attributes = ir.DictAttr(attributes["backend_config"])
    attribute = attributes[name]
    if "replica_group_mesh_axes" in (text := str(attribute)):
        found = [
            (unescaped(n), int(before), int(size)) if size else unescaped(n) for n, before, size in _AXIS.findall(text)
        ]
        axes = tuple(a for a in found if axis_size(a, mesh) > 1)
        return axes, math.prod(axis_size(a, mesh) for a in axes)
    table = np.array(ir.DenseIntElementsAttr(attribute)).reshape(tuple(ir.RankedTensorType(attribute.type).shape))
    axes = axes_of_pairs(table, mesh) if kind == "collective-permute" else axes_of(table, mesh)
    if kind == "collective-permute":
        return axes, None if axes is None else math.prod(axis_size(a, mesh) for a in axes)
    return axes, int(table.shape[1])


class _Cut(NamedTuple):
    """What values of one shape, type and sharding have in common, as `Value` has it."""

    spec: Spec | None
    shard: tuple[int, ...]
    nbytes: float
    notations: dict[str, str]
    manual: tuple[Axis, ...]


class Reading(Walker):
    """One reading of a propagated module: every value that has a sharding, every collective, every product's FLOPs."""

    def __init__(self, module: ir.Operation, lowered: Lowered, mesh: DeviceMesh):
        super().__init__(module, lowered.locations)
        self.mesh, self.traced = mesh, lowered.traced
        self.values: list[Value] = []
        self.collectives: list[Collective] = []
        self.reshards_left = 0
        self.cuts: dict[Any, _Cut] = {}
        self.types: dict[Any, tuple[tuple[int, ...], str]] = {}
        self.numbers: dict[str, int] = {}
        self.tally = WorkTally()
        self.read(self.main)

    def caller(self, op: ir.Operation) -> Place | None:
        stack = self.place(op).name_stack
        return Place(stack, None) if stack else None  # what has no line of its own has none

    def visit(self, op: ir.Operation) -> None:
        name = op.name
        said = USER_KINDS.get(name) or (name == "stablehlo.custom_call" and USER_KINDS.get(call_target(op)))
        if said:
            self._user_collective(op, said)
        if name in KINDS:
            self._collective(op)
        elif name == "sdy.reshard":
            self.reshards_left += 1
        elif name not in SKIPPED:
            self._value(op)
        if name in PRODUCTS:
            place = self.place(op)
            flops = self.around.times * product_flops(op, self._shard_of)
            module = module_of(place.name_stack, place.frame)
            self.tally.add(self._phase(op, place), place.frame, module, factor_dtype(op), flops)
        if name in ENTERED:
            with self.inside(op) as blocks:
                if name in ("stablehlo.case", "stablehlo.if"):
                    self._branches(blocks)
                else:
                    for block in blocks:
                        self.read(block)

    def _branches(self, blocks: Sequence[Any]) -> None:
        """Every branch's values and collectives; the FLOPs of the branch that has most."""
        around, found = self.tally, []
        for block in blocks:
            self.tally = WorkTally()
            self.read(block)
            found.append(self.tally)
        self.tally = around
        self.tally.join(max(found, key=lambda tally: tally.flops).rows)

    def _phase(self, op: ir.Operation, place: Place) -> str:
        said = place.phase(self.traced.differentiated)
        return said if said != "update" else pass_of(op, lambda near: self.place(near).phase(True))

    def _value(self, op: ir.Operation) -> None:
        attributes = op.attributes
        cut = "sdy.sharding" in attributes
        if not len(op.results) or not (cut or self.around.manual):
            return
        if op.name == "stablehlo.broadcast_in_dim" and not self._type(op.operands[0].type)[0]:
            return
        shape, dtype = self._type(op.results[0].type)
        key = shape, dtype, attributes["sdy.sharding"] if cut else None, self.around.manual
        known = self.cuts.get(key)
        if known is None:
            known = self.cuts[key] = self._cut(*key)
        place = self.place(op)
        short = op.name.split(".", 1)[1]
        number = self.numbers[short] = self.numbers.get(short, -1) + 1
        self.values.append(
            Value(
                name=f"{short}.{number}",
                shape=shape,
                dtype=dtype,
                spec=known.spec,
                shard_shape=known.shard,
                bytes_per_device=known.nbytes,
                sharding=known.notations,
                source=place.frame,
                op=place.op or short,
                name_stack=place.name_stack,
                label="",
                count=self.around.count,
                manual=known.manual,
                fixed=type_of(op),
            )
        )

    def _cut(self, shape: tuple[int, ...], dtype: str, attribute: Any, manual: tuple[Axis, ...]) -> _Cut:
        spec, text = Spec(((),) * len(shape)), ""
        if attribute is not None:
            first = sdy.TensorShardingPerValueAttr(attribute).shardings[0]
            spec, text = spec_of(first), str(first)
        notations = {"sdy": text}
        if manual:
            notations = {"hlo": Sharding.from_spec(spec, self.mesh, len(shape), manual=manual).to("hlo-v3")}
        shard = shard_shape(shape, spec, self.mesh)
        return _Cut(
            spec if not manual or self._left() else None,
            shard,
            math.prod(shard) * itemsize(dtype),
            notations,
            tuple(a for a in manual if axis_size(a, self.mesh) > 1),
        )

    def _left(self) -> bool:
        """Whether any axis is left that is not manual here."""
        return any(size > 1 and name not in self.around.manual for name, size in self.mesh.shape.items())

    def _user_collective(self, op: ir.Operation, kind: str) -> None:
        """A collective that stands in the program, on single devices' shapes."""
        ins, outs = (
            [(*self._type(v.type), cut_of(v, self.around.manual) or Spec()) for v in values]
            for values in (op.operands, op.results)
        )
        size = lambda row: math.prod(shard_shape(row[0], row[2], self.mesh)) * itemsize(row[1])  # noqa: E731
        shape, dtype, spec = max(outs, key=size)
        axes, members = span(op, kind, self.mesh)
        place = self.place(op)
        self.collectives.append(
            Collective(
                kind=kind,
                axes=axes,
                dtype=dtype,
                shape=shard_shape(shape, spec, self.mesh),
                operand_bytes=sum(map(size, ins)),
                result_bytes=sum(map(size, outs)),
                count=self.around.count,
                source=place.frame,
                name_stack=place.name_stack,
                phase=self._phase(op, place),
                origin="user",
                name=f"{kind.replace('-', '_')}.{len(self.collectives)}",
                operand=self._operand(op.operands[0]),
                group_size=members,
                conditional=self.around.conditional,
            )
        )

    def _collective(self, op: ir.Operation) -> None:
        kind, attribute = KINDS[op.name]
        after = spec_of(op.attributes["out_sharding"])
        shape, dtype = self._type(op.results[0].type)
        before = self._before(op, after, len(shape))
        if attribute:
            axes = axes_in(str(op.attributes[attribute]))
        else:
            axes = tuple(a for a in (*before.axes, *after.axes) if isinstance(a, str))
            axes = tuple(dict.fromkeys(axes))
        result = shard_shape(shape, after, self.mesh)
        size = itemsize(dtype)
        operand = self._operand(op.operands[0])
        place = self._used_at(op) if operand else self.place(op)
        self.collectives.append(
            Collective(
                kind=kind,
                axes=axes,
                dtype=dtype,
                shape=result,
                operand_bytes=math.prod(shard_shape(shape, before, self.mesh)) * size,
                result_bytes=math.prod(result) * size,
                count=self.around.count,
                source=place.frame,
                name_stack=place.name_stack,
                phase=self._phase(op, place),
                name=f"{op.name.split('.')[1]}.{len(self.collectives)}",
                operand=operand,
                group_size=math.prod(axis_size(a, self.mesh) for a in axes),
                conditional=self.around.conditional,
            )
        )

    def _used_at(self, op: ir.Operation) -> Place:
        """Where the result is used, for a collective on an argument's way in: its own line is only where a scan
        starts.
        """
        own = self.place(op)
        value = op.results[0]
        for _ in range(8):
            use = next(iter(value.uses), None)
            if use is None:
                break
            op = use.owner.operation
            if op.name == "func.return" and self.around.calls:
                value = self.around.calls[-1].results[use.operand_number]
            elif op.name == "stablehlo.optimization_barrier":
                value = op.results[use.operand_number]
            elif op.name in TRIVIAL:
                value = op.results[0]
            else:
                used = self.place(op)
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
            return cut_of(op.operands[0], self.around.manual) or after
        return Spec(tuple(dims))

    def _shard_of(self, value: Any) -> tuple[int, ...]:
        """One device's shape; what has no sharding is whole on every device."""
        shape, dtype = self._type(value.type)
        owner = value.owner
        if not isinstance(owner, ir.Block) and "sdy.sharding" in owner.attributes and len(owner.results) == 1:
            known = self.cuts.get((shape, dtype, owner.attributes["sdy.sharding"], self.around.manual))
            if known is not None:
                return known.shard
        return shard_shape(shape, cut_of(value, self.around.manual) or Spec(), self.mesh)

    def _operand(self, value: Any) -> str:
        """The argument that a value is a slice, a copy or a rearrangement of; empty if it is none."""
        calls = list(self.around.calls)
        for _ in range(64):
            owner = value.owner
            if isinstance(owner, ir.Block):
                parent, place = owner.owner.operation, ir.BlockArgument(value).arg_number
                if parent.name in ("stablehlo.while", "sdy.manual_computation"):
                    value = parent.operands[place]
                elif owner == self.main:
                    return self.traced.arguments[place].name
                elif parent.name == "func.func" and calls:
                    value = calls.pop().operands[place]
                else:
                    return ""
                continue
            if owner.name == "func.call":
                block = self.callee(owner.operation)
                calls.append(owner.operation)
                value = block.operations[len(block.operations) - 1].operands[ir.OpResult(value).result_number]
            elif owner.name == "stablehlo.optimization_barrier":
                value = owner.operands[ir.OpResult(value).result_number]
            elif owner.name in TRIVIAL:
                value = owner.operands[0]
            else:
                return ""
        return ""

    def outputs(self) -> tuple[Spec, ...]:
        """How every output is cut."""
        main = self.functions["main"]
        traced = self.traced
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


PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")

Shape = tuple[int, ...]


def product_flops(op: ir.Operation, shard_of: Callable[[Any], Shape]) -> float:
    """FLOPs of one run of a matrix product or a convolution on one device.

    Args:
        op: one of `PRODUCTS`.
        shard_of: gives one device's shape of an operand or a result.
    """
    if op.name == "stablehlo.dot_general":
        left = shard_of(op.operands[0])
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        return dot_flops(shard_of(op.results[0]), (left[d] for d in numbers.lhs_contracting_dimensions))
    return _convolution(op, shard_of)


def _convolution(op: ir.Operation, shard_of: Callable[[Any], Shape]) -> float:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    left, kernel, out = (shard_of(value) for value in (*op.operands, op.results[0]))
    whole = ir.RankedTensorType(op.operands[0].type).shape
    many = len(numbers.input_spatial_dimensions)
    strides, holes, kernel_holes = (
        _integers(op, name, [1] * many) for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    padding = _integers(op, "padding", [0] * (2 * many))
    windows = []
    for i in range(many):
        at = numbers.input_spatial_dimensions[i]
        size, made = left[at], out[numbers.output_spatial_dimensions[i]]
        over = kernel[numbers.kernel_spatial_dimensions[i]]
        if size < whole[at]:  # what lies beyond a device's edge comes from its neighbours
            windows.append(Window((made - 1) + over, made, over))
        else:
            windows.append(Window(size, made, over, strides[i], padding[2 * i], holes[i], kernel_holes[i]))
    return convolution_flops(
        batch=left[numbers.input_batch_dimension],
        input_features=left[numbers.input_feature_dimension],
        output_features=out[numbers.output_feature_dimension],
        windows=windows,
        feature_group_count=_groups(op, "feature_group_count", left, numbers.input_feature_dimension),
        batch_group_count=_groups(op, "batch_group_count", left, numbers.input_batch_dimension),
    )


def _groups(op: ir.Operation, name: str, left: Shape, dimension: int) -> int:
    """Groups on one device: cut with the dimension that they divide."""
    groups = ir.IntegerAttr(op.attributes[name]).value
    whole = ir.RankedTensorType(op.operands[0].type).shape[dimension]
    return max(1, groups * left[dimension] // whole) if whole else groups


def _integers(op: ir.Operation, name: str, default: list[int]) -> list[int]:
    """The whole numbers of an attribute; the default where it is left out."""
    if name not in op.attributes:
        return default
    attribute = op.attributes[name]
    try:
        return list(ir.DenseI64ArrayAttr(attribute))
    except ValueError:
        return [int(n) for n in ir.DenseIntElementsAttr(attribute)]


def factor_dtype(op: ir.Operation) -> str:
    """The element type in which a product's factors are multiplied: the wider of the two."""
    factors = (dtype_of(str(ir.RankedTensorType(op.operands[n].type).element_type)) for n in (0, 1))
    return max(factors, key=itemsize)
