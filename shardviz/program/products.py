"""Matrix products and convolutions of a StableHLO module: the FLOPs of each on one device, and how a product is cut.

A product's sizes are (batch, m, k, n): `m` rows times `n` columns, `k` summed over. The axes that cut none of its
factors nor its result are those along which devices repeat each other's work.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardviz.graph import Value
from shardviz.layouts import itemsize
from shardviz.notation import Axis
from shardviz.notation.spec import axis_name
from shardviz.program.graph import MlirGraph, MlirOperation
from shardviz.program.uses import root
from shardviz.records.counting import Window, convolution_flops, dot_flops, ragged_dot_flops
from shardviz.records.work import Sizes

PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution", "chlo.ragged_dot")


def sizes(op: MlirOperation, shape_of: Callable[[Value], Shape]) -> Sizes:
    """Batch, rows, what is summed over, and columns of a `dot_general`.

    Args:
        op: the product.
        shape_of: gives the shape of an operand: the whole, or one device's.
    """
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    left, right = (shape_of(value) for value in op.operands)
    summed, batch = list(numbers.lhs_contracting_dimensions), list(numbers.lhs_batching_dimensions)
    other = {*numbers.rhs_contracting_dimensions, *numbers.rhs_batching_dimensions}
    return (
        math.prod(left[d] for d in batch),
        math.prod(n for d, n in enumerate(left) if d not in {*summed, *batch}),
        math.prod(left[d] for d in summed),
        math.prod(n for d, n in enumerate(right) if d not in other),
    )


def summed_axes(graph: MlirGraph, op: MlirOperation, number: int, manual: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes that cut what a `dot_general` sums over in one of its factors, as that comes, and nothing of the other.

    An axis that the other has too is busy there: a weight that FSDP cuts over the batch's axis is put together.
    """
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    summed = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)[number]
    cut, other = (graph.cut(root(op.operands[n]), manual) for n in (number, 1 - number))
    if cut is None:
        return ()
    busy = {axis_name(a) for a in other.axes} if other is not None else set()
    return tuple(a for d in summed if d < len(cut.dims) for a in cut.dims[d] if axis_name(a) not in busy)


_MET = re.compile(r"rhs_(?:contracting|batching|group)_dimensions\s*=\s*\[([^\]]*)\]")

Shape = tuple[int, ...]


def product_flops(op: MlirOperation, shard_of: Callable[[Value], Shape]) -> float:
    """FLOPs of one run of a matrix product or a convolution on one device.

    Args:
        op: one of `PRODUCTS`.
        shard_of: gives one device's shape of an operand or a result.
    """
    if op.name == "stablehlo.dot_general":
        left = shard_of(op.operands[0])
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        return dot_flops(shard_of(op.results[0]), (left[d] for d in numbers.lhs_contracting_dimensions))
    if op.name == "chlo.ragged_dot":
        met = ",".join(_MET.findall(str(op.attributes["ragged_dot_dimension_numbers"])))
        left, right = (shard_of(value) for value in list(op.operands)[:2])
        return ragged_dot_flops(left, right, map(int, re.findall(r"\d+", met)))
    return _convolution(op, shard_of)


def _convolution(op: MlirOperation, shard_of: Callable[[Value], Shape]) -> float:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    left, kernel, out = (shard_of(value) for value in (*op.operands, op.results[0]))
    whole = op.operands[0].shape
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


def _groups(op: MlirOperation, name: str, left: Shape, dimension: int) -> int:
    """Groups on one device: cut with the dimension that they divide."""
    groups = ir.IntegerAttr(op.attributes[name]).value
    whole = op.operands[0].shape[dimension]
    return max(1, groups * left[dimension] // whole) if whole else groups


def _integers(op: MlirOperation, name: str, default: list[int]) -> list[int]:
    """The whole numbers of an attribute; the default where it is left out."""
    if name not in op.attributes:
        return default
    attribute = op.attributes[name]
    try:
        return list(ir.DenseI64ArrayAttr(attribute))
    except ValueError:
        return [int(n) for n in ir.DenseIntElementsAttr(attribute)]


def factor_dtype(op: MlirOperation) -> str:
    """The element type in which a product's factors are multiplied: the wider of the two."""
    return max((value.dtype for value in op.operands[:2]), key=itemsize)
