"""FLOPs of one run of one operation.

A matrix product or a convolution counts 2 for every product of two numbers (`product_flops`); all else counts as in
XLA's `HloCostAnalysis` (`OtherFlops`):

| operation | FLOPs |
|---|---|
| elementwise (add, select, convert, compare, ...) | 1 for each element of the result |
| transcendental (exp, tanh, rsqrt, power, ...), random bits | 0: XLA counts them apart, as `transcendentals` |
| reduce | what its function does x (elements that go in - elements that come out) |
| reduce-window | what its function does x (window size - 1) x elements that come out |
| map, scatter | what its function does x elements of the result, of the updates |
| all-reduce | 1 for each element |
| sort | elements x log2 of their number, rounded up |
| what only moves or makes values | 0 |

A call of a kernel or a library is opaque; what is known of it stands in `records.kernels` (`call_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from shardviz.graph.operations import Block, Dims, Graph, GraphValue, Operation
from shardviz.layouts.layout import itemsize
from shardviz.records import Frame
from shardviz.records.counting import Window, convolution_flops, dot_flops, ragged_dot_flops
from shardviz.records.kernels import ATTENTION, CONVOLUTIONS, Array, Kernel, KernelFacts, factor_dtype, kernel_name
from shardviz.records.work import Sizes

PRODUCTS = frozenset(("dot", "scaled-dot", "ragged-dot", "convolution"))
"""Matrix products and convolutions."""

ELEMENTWISE = frozenset(
    ("abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "complex", "convert", "count-leading-zeros",
     "divide", "floor", "imag", "is-finite", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "real",
     "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "select", "shift-left",
     "shift-right-arithmetic", "shift-right-logical", "sign", "stochastic-convert", "subtract", "xor")
)  # fmt: skip


shape_of: Callable[[GraphValue], Dims] = attrgetter("shape")
"""The shape of a value as its text has it."""


def product_flops(op: Operation, shard_of: Callable[[GraphValue], Dims] = shape_of) -> float:
    """Return the FLOPs of one run of a matrix product or convolution; 0 for any other operation. `shard_of` returns one
    device's shape of an array, where the text has shapes of whole arrays. Raises ParseError, naming the operation, if
    its dimensions or its window do not fit."""
    if op.kind in ("dot", "scaled-dot"):
        left = shard_of(op.array(0))
        return dot_flops(shard_of(op.result), [left[d] for d in op.contraction.summed[0]])
    if op.kind == "ragged-dot":
        return ragged_dot_flops(shard_of(op.array(0)), shard_of(op.array(1)), op.met)
    return _convolution(op, shard_of) if op.kind == "convolution" else 0.0


def _convolution(op: Operation, shard_of: Callable[[GraphValue], Dims]) -> float:
    dims, whole = op.convolution, op.array(0).shape
    left, kernel, out = shard_of(op.array(0)), shard_of(op.array(1)), shard_of(op.result)
    windows = []
    for i, (at, over, to) in enumerate(zip(dims.input[2:], dims.kernel[2:], dims.output[2:], strict=True)):
        size, width, produced = left[at], kernel[over], out[to]
        if size < whole[at]:  # what lies beyond a device's edge comes from its neighbours
            windows.append(Window((produced - 1) + width, produced, width))
        else:
            steps = (way[i] for way in (dims.strides, dims.low, dims.input_dilation, dims.kernel_dilation))
            windows.append(Window(size, produced, width, *steps))
    batch, features = dims.input[:2]
    return convolution_flops(
        batch=left[batch],
        input_features=left[features],
        output_features=out[dims.output[1]],
        windows=windows,
        feature_group_count=_groups(dims.feature_groups, left[features], whole[features]),
        batch_group_count=_groups(dims.batch_groups, left[batch], whole[batch]),
    )


def _groups(groups: int, size: int, whole: int) -> int:
    """Return the number of groups on one device; they are sharded with the dimension that they divide."""
    return max(1, groups * size // whole) if whole else groups


def fourier_on_tpu(kind: str, lengths: Sequence[int], points: float) -> tuple[float, float]:
    """Return the FLOPs, in full precision, and the bytes of main memory of the products with which a TPU computes a
    Fourier transform (`FFT`, `IFFT`, `RFFT`, `IRFFT`) of so many complex points along dimensions of these lengths.

    One of at most 256 points, or of no multiple of 128, is one product of each row with the whole matrix of roots; a
    longer one is two, of 128 (or 256) points and of the rest; one back to real numbers is one whatever its length.
    Each takes six FLOPs for a point and a root, and moves real and imaginary parts some four times. Asked of libtpu on
    v5p, of 64 to 65,536 points: its bytes are 0.6 to 1.2 times these.

    >>> flops, moved = fourier_on_tpu("FFT", [1024], 2**20)
    >>> flops / 2**20 == 6 * (128 + 8), moved / (16 * 2**20)
    (True, 9.25)
    """
    factors = [_factors_of(length) if kind != "IRFFT" else (length,) for length in lengths]
    flops = 6.0 * points * sum(map(sum, factors))
    return flops, 16.0 * points * (1.25 + 4 * sum(map(len, factors)))


def _factors_of(length: int) -> tuple[int, ...]:
    """Return the lengths of the transforms into which a TPU's compiler divides one of this length."""
    pairs = ((first, length // first) for first in (128, 256) if length > 256 and length % first == 0)
    return next(((first, rest) for first, rest in pairs if rest <= 256), (length,))


def product_dtype(op: Operation) -> str:
    """Return the element type in which a product's factors are multiplied: the wider of the two."""
    return max((op.array(0).dtype, op.array(1).dtype), key=itemsize)


def multiplied_in(op: Operation, dtype: str) -> str:
    """Return the element type whose rate counts for a product in `dtype`: its own, or float32 in full precision."""
    return f"{dtype} highest" if dtype == "float32" and op.is_exact else dtype


def product_sizes(op: Operation, shard_of: Callable[[GraphValue], Dims] = shape_of) -> Sizes:
    """Return a matrix product's sizes: batch, rows, summed elements, columns."""
    left, right = shard_of(op.array(0)), shard_of(op.array(1))
    (summed, others), (batch, other_batch) = op.contraction
    return (
        math.prod(left[d] for d in batch),
        math.prod(n for d, n in enumerate(left) if d not in {*summed, *batch}),
        math.prod(left[d] for d in summed),
        math.prod(n for d, n in enumerate(right) if d not in {*others, *other_batch}),
    )


def shortest_side(op: Operation, shard_of: Callable[[GraphValue], Dims] = shape_of) -> int:
    """Return the shortest of a product's rows, columns and summed elements; for a convolution, the number of elements
    summed for one result; 0 if unknown."""
    if op.kind in ("dot", "scaled-dot"):
        return min(product_sizes(op, shard_of)[1:])
    if op.kind == "convolution":
        return round(product_flops(op, shard_of) / 2 / max(1, math.prod(shard_of(op.result))))
    return 0


def side_of_product(op: Operation) -> int:
    """Return the shortest side of the convolution that a TPU's compiler makes of a matrix product. Its spatial
    dimensions stand for the batch (dilated), for rows (windows of one element), for columns (images of one element) and
    for the summed dimension (one result)."""
    dims = op.convolution
    left, kernel, out = (value.shape for value in (op.array(0), op.array(1), op.result))
    rows, columns = left[dims.input[0]], out[dims.output[1]]
    spatial = zip(dims.input[2:], dims.kernel[2:], dims.output[2:], dims.input_dilation, strict=True)
    for at, over, to, dilation in spatial:
        if dilation == 1 and kernel[over] == 1:
            rows *= out[to]
        elif dilation == 1 and left[at] == 1:
            columns *= out[to]
    return min(rows, columns, shortest_side(op))


def shortest(sides: Iterable[int]) -> int:
    """Return the shortest known side; 0 if none is known."""
    return min(filter(None, sides), default=0)


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel or a library: its name or target; the FLOPs of one run on one device, if somebody states them;
    the element type in which it computes; the shortest side that its products can have; and which of cuDNN's kernels it
    is (`Scheduled.kernel`)."""

    name: str
    flops: float | None
    dtype: str
    side: int = 0
    kernel: Kernel = ""


def call_of(
    op: Operation,
    name_stack: str,
    source: Frame | None,
    kernels: KernelFacts,
    array_of: Callable[[GraphValue], Array] = lambda value: Array(value.shape, value.dtype),
) -> KernelCall | None:
    """Return what is known about the FLOPs of a custom call; None for a call that computes nothing."""
    ins, outs = [array_of(v) for v in op.operands], [array_of(v) for v in op.results]
    name = kernel_name(op.target, name_stack)
    count = kernels.flops(name, op.target, ins, outs, op.config, source)
    side = shortest(a.dims[-1] for a in (*ins, *outs) if len(a.dims) > 1 and "int" not in a.dtype)
    kernel = "attention" if op.target.startswith(ATTENTION) else "convolution" if op.target in CONVOLUTIONS else ""
    return None if count == 0 else KernelCall(name, count, factor_dtype(ins, outs), side, kernel)


class OtherFlops:
    """Counts the FLOPs of operations that are no matrix products. Functions that an operation applies to elements are
    counted before it, as in the text."""

    def __init__(self, graph: Graph):
        self._applied: dict[Block, float] = {}
        for block in graph.blocks.values():
            for op in block.operations:
                for function in op.applied:
                    self._of(function)

    def __call__(self, op: Any) -> float:
        """Return the FLOPs of one run of an operation other than a matrix product. The blocks that it runs are not
        counted."""
        if op.kind in ELEMENTWISE:
            return float(_elements(op))
        count = _COUNTS.get(op.kind)
        return 0.0 if count is None else float(count(self, op))

    def applied(self, op: Operation, number: int = 0) -> float:
        """Return the FLOPs of one application of an operation's function to its elements; 0 if it has none."""
        return self._of(op.applied[number]) if number < len(op.applied) else 0.0

    def _of(self, block: Block) -> float:
        if block not in self._applied:
            self._applied[block] = 0.0  # no function applies itself
            self._applied[block] = math.fsum(
                self(op) + product_flops(op) + (self._of(op.blocks[0]) if op.kind == "call" else 0.0)
                for op in block.operations
            )
        return self._applied[block]


def _elements(op: Operation) -> int:
    return sum(value.elements for value in op.results)


def _select_and_scatter(count: OtherFlops, op: Any) -> float:
    selects = count.applied(op, 0) * (math.prod(op.window_sizes) - 1)
    return op.array(1).elements * (selects + count.applied(op, 1))


def _sort(_: OtherFlops, op: Any) -> float:
    size = op.array(0).elements
    return size * math.ceil(math.log2(size)) if size > 1 else 0.0


def _all_reduce(_: OtherFlops, op: Any) -> float:
    return 0.0 if op.goes_on else _elements(op)


_COUNTS: dict[str, Callable[[OtherFlops, Any], float]] = {
    "reduce": lambda count, op: count.applied(op) * (op.array(0).elements - op.results[0].elements),
    "reduce-window": lambda count, op: count.applied(op) * (math.prod(op.window_sizes) - 1) * op.results[0].elements,
    "select-and-scatter": _select_and_scatter,
    "map": lambda count, op: count.applied(op) * op.results[0].elements,
    "scatter": lambda count, op: count.applied(op) * op.array(len(op.operands) // 2 + 1).elements,
    "all-reduce": _all_reduce,
    "all-reduce-start": _all_reduce,
    "sort": _sort,
    "fft": lambda _, op: 8.0 * math.prod(max(n, 1).bit_length() - 1 for n in op.fft_lengths) * op.array(0).elements,
    "triangular-solve": lambda _, op: 2.0 * op.array(0).shape[-1] * op.array(1).elements,
    "cholesky": lambda _, op: op.array(0).shape[-1] * op.array(0).elements / 3,
}
