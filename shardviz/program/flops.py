"""FLOPs that one device does of StableHLO's matrix products and convolutions, from how Shardy cuts them.

After the pass that makes every resharding explicit, the operands of a product are cut as it uses them: a dimension that
is summed over and cut on both sides is summed over in part by each device, and an all-reduce follows. So one device's
FLOPs follow from one device's shapes. Dimensions that do not divide are padded, as XLA pads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardviz.layouts.layout import itemsize
from shardviz.program.mlir import Place, dtype_of
from shardviz.records import Frame, Work
from shardviz.records.products import Window, convolution_flops, dot_flops
from shardviz.records.source import module_of

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


class Tally:
    """What one device computes, summed up by phase, line, module and element type."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, Frame | None, str, str], float] = {}

    def add(self, op: ir.Operation, flops: float, place: Place, phase: str) -> None:
        """Counts an operation's FLOPs at its place; the element type of the wider of its two factors is the row's."""
        factors = (dtype_of(str(ir.RankedTensorType(op.operands[n].type).element_type)) for n in (0, 1))
        dtype = max(factors, key=itemsize)
        key = phase, place.frame, module_of(place.name_stack, place.frame), dtype
        self._rows[key] = self._rows.get(key, 0.0) + flops

    def join(self, other: Tally) -> None:
        """Adds another's rows."""
        for key, flops in other._rows.items():
            self._rows[key] = self._rows.get(key, 0.0) + flops

    @property
    def total(self) -> float:
        """FLOPs of all rows."""
        return sum(self._rows.values())

    @property
    def rows(self) -> tuple[Work, ...]:
        """The rows, the most FLOPs first."""
        found = [
            Work(phase=phase, source=source, module=module, dtype=dtype, dot_flops=flops)
            for (phase, source, module, dtype), flops in self._rows.items()
        ]
        return tuple(sorted(found, key=lambda row: -row.dot_flops))
