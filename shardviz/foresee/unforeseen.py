"""Operations that read other devices' shards, and for which Shardy puts in no collective.

A convolution whose image is sharded by height reads rows of its neighbours' shards; a slice of a sharded dimension lies
on other devices than its result does. Shardy calls such a dimension a permutation factor (`permutation={i}` in the
operation's rule), keeps it sharded, and leaves to XLA's partitioner which collectives that takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardviz._jax.mlir import ir
from shardviz.graph.uses import root
from shardviz.notation import Spec
from shardviz.notation.spec import Axis
from shardviz.records import Frame
from shardviz.stablehlo.graph import MlirGraph, MlirOperation
from shardviz.stablehlo.uses import is_reshard


class Unforeseen(NamedTuple):
    """An operation (HLO's kind) whose communication level `propagated` does not show, and the axes along which it reads
    other shards."""

    op: str
    axes: tuple[Axis, ...]
    source: Frame | None


def dims_crossed(op: MlirOperation) -> Iterator[int]:
    """Return the dimensions of an operation's first operand that XLA may be unable to keep sharded."""
    if op.kind == "convolution":
        where, kernel = op.convolution, op.operands[1].shape
        yield from (d for d, k in zip(where.input[2:], where.kernel[2:], strict=True) if kernel[k] > 1)
    elif op.kind in ("reduce-window", "select-and-scatter"):
        window = op.integers("window_dimensions", ())
        strides = op.integers("window_strides", [1] * len(window))
        padding = op.integers("padding", [0] * (2 * len(window)))
        for d, (size, stride) in enumerate(zip(window, strides, strict=True)):
            if size > stride or any(padding[2 * d : 2 * d + 2]):  # else windows lie side by side, each in one shard
                yield d
    elif op.kind in ("slice", "pad"):
        sizes = zip(op.operands[0].shape, op.results[0].shape, strict=True)
        yield from (d for d, (before, after) in enumerate(sizes) if before != after)
    elif op.kind == "concatenate":
        yield ir.IntegerAttr(op.attributes["dimension"]).value
    elif op.kind == "reverse":
        yield from op.integers("dimensions", ())


def partial_cut(graph: MlirGraph, product: MlirOperation, manual: Sequence[Axis] = ()) -> Spec | None:
    """Return how the partitioner shards a matrix product's partial sum. It is whole along the axes that shard the
    summed dimensions of both factors before they are resharded, even if these axes shard the result later. None if it
    is sharded as the result."""
    first, second = (graph.spec_of(root(value, is_reshard), manual) for value in product.operands)
    own = graph.spec_of(product.result, manual)
    if first is None or second is None or own is None:
        return None
    meeting = zip(*product.contraction.summed, strict=True)
    both = {a for i, j in meeting for a in first.dims[i] if a in second.dims[j]}
    whole = tuple(tuple(a for a in dim if a not in both) for dim in own.dims)
    return None if whole == own.dims else Spec(whole)
