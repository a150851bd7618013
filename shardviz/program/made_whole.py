"""Arrays that XLA's partitioner gathers for a matrix product, where Shardy's own reshards would have moved less.

Shardy cuts each product's loops, and moves the factors to fit. XLA's partitioner has rules of its own. Two of them hold
more than that:

* an axis cuts the same summed dimension of both factors: each device multiplies what it has, and the partial result is
  whole along that axis until it has been summed, even if the result is to be sharded along the axis;
* an axis cuts a summed dimension of one factor, and a free dimension of the other and of the result: the first factor
  is gathered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from shardviz.graph import GraphValue
from shardviz.graph.uses import root
from shardviz.notation import Axis, Spec
from shardviz.program.graph import MlirGraph, MlirOperation
from shardviz.program.uses import is_reshard


def made_whole(
    graph: MlirGraph, product: MlirOperation, manual: Sequence[Axis] = ()
) -> Iterator[tuple[GraphValue, Spec]]:
    """The arrays that XLA's partitioner holds for a `dot_general` (after Shardy's reshards) beyond its factors and its
    result: a value of the array's shape and type, and how the array is sharded."""
    summed, batched = product.contraction
    factors = [root(value, is_reshard) for value in product.operands]
    cuts = [_dims(graph, value, manual) for value in factors]
    sums = [{a for d in where for a in dims[d]} for dims, where in zip(cuts, summed, strict=True)]
    (result,) = product.results
    if both := {a for i, j in zip(*summed, strict=True) for a in cuts[0][i] if a in cuts[1][j]}:
        own = _dims(graph, result, manual)
        if both & {a for dim in own for a in dim}:
            yield result, _without(own, both)
    for one, other in ((0, 1), (1, 0)):
        taken = {*summed[other], *batched[other]}
        left = [d for d in range(len(cuts[other])) if d not in taken]
        if not any(a in sums[one] for d in left for a in cuts[other][d]):
            continue
        final = _dims(graph, _after(result), manual)
        start = len(batched[0]) if other == 0 else len(final) - len(left)  # batch, free of the first, of the second
        theirs = {a for at, d in enumerate(left, start) for a in cuts[other][d] if a in final[at]}
        kept = {
            a for dim in _dims(graph, product.operands[one], manual) for a in dim
        }  # what Shardy has not gathered itself
        if gathered := theirs & kept & sums[one]:
            yield factors[one], _without(cuts[one], gathered)


def _after(value: GraphValue) -> GraphValue:
    """A result after Shardy's reshards."""
    while len(value.uses) == 1 and is_reshard(user := value.uses[0][0]):
        value = user.result
    return value


def _dims(graph: MlirGraph, value: GraphValue, manual: Sequence[Axis]) -> tuple[tuple[Axis, ...], ...]:
    spec = graph.cut(value, manual)
    return ((),) * len(value.shape) if spec is None else spec.dims


def _without(dims: Sequence[tuple[Axis, ...]], gone: Collection[Axis]) -> Spec:
    return Spec(tuple(tuple(a for a in dim if a not in gone) for dim in dims))
