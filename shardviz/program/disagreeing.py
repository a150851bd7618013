"""Products whose factors disagree on how what is summed over is sharded: XLA's partitioner gathers one, or both.

    h: rows over data=4             h^T g: summed over the rows, which are cut into 4 pieces in one, into 8 in the other
    g: rows over data=4, model=2

Shardy's pass for reshardings would shard h's rows further, for nothing, and sum up over both axes. XLA runs its own
partitioner in its place (`jax.jit` leaves that pass out), which gathers the rows of both factors, and each device
computes the whole product: here 8 times the FLOPs. So the gathering is written down before that pass runs. Where
other dimensions of the factors are sharded too, or the pieces are as many, the partitioner finds better ways, and
Shardy's are left as they are.

    x: rows over data=8             x w: data shards what is summed over in w, and the rows of x and of the result
    w: rows over data=8

Here Shardy's pass would move a few rows of x, as in a step of decoding; the partitioner always gathers w.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from jax.extend.mlir import ir

from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_size
from shardviz.program.graph import contraction_of, cut_of
from shardviz.program.module import sharding


def gather_disagreeing(operations: Iterable[ir.Operation], mesh: DeviceMesh) -> None:
    """Puts reshardings in front of such products, in place, so that what is summed over is whole as XLA has it."""
    for op in operations:
        if op.name != "stablehlo.dot_general":
            continue
        cuts = [cut_of(value) or Spec() for value in op.operands]
        summed, batched = contraction_of(op)
        result_dims = (cut_of(op.results[0]) or Spec()).dims
        if not _disagree(cuts, summed, mesh):
            _gather_for_rows(op, cuts, summed, batched, result_dims)
        else:
            for place, dims in enumerate(summed):
                left = [d for d in range(len(cuts[place].dims)) if d not in dims]
                theirs = result_dims[: len(left)] if place == 0 else result_dims[-len(left) :] if left else ()
                _reshard(op, place, cuts[place], dict(zip(left, theirs, strict=False)))


def _gather_for_rows(
    op: ir.Operation,
    cuts: Sequence[Spec],
    summed: Sequence[Sequence[int]],
    batched: Sequence[Sequence[int]],
    result_dims: Sequence[Sequence[Axis]],
) -> None:
    """Gathers what a factor sums over where its axes shard a free dimension of the other and of the result."""
    begin = len(batched[0])
    for one, other in ((0, 1), (1, 0)):
        free = [d for d in range(len(cuts[other].dims)) if d not in (*summed[other], *batched[other])]
        theirs = result_dims[begin : begin + len(free)] if other == 0 else result_dims[len(result_dims) - len(free) :]
        kept = {a for d, axes in zip(free, theirs, strict=False) for a in axes if a in cuts[other].dims[d]}
        dims = list(cuts[one].dims)
        for d, opposite in zip(summed[one], summed[other], strict=True):
            if dims and kept & {*dims[d]}:
                left = tuple(a for a in dims[d] if a not in kept)
                dims[d] = left if left == tuple(cuts[other].dims[opposite]) else ()
        if tuple(dims) != tuple(cuts[one].dims):
            _put(op, one, Spec(tuple(dims)))


def _disagree(cuts: Sequence[Spec], summed: Sequence[Sequence[int]], mesh: DeviceMesh) -> bool:
    """Whether one summed dimension alone is sharded, in both factors, into other numbers of pieces."""
    places, pieces = [], []
    for spec, where in zip(cuts, summed, strict=True):
        cut = [d for d, axes in enumerate(spec.dims) if axes]
        if len(cut) != 1 or cut[0] not in where:
            return False
        places.append(where.index(cut[0]))
        pieces.append(math.prod(axis_size(axis, mesh) for axis in spec.dims[cut[0]]))
    return places[0] == places[1] and pieces[0] != pieces[1]


def _reshard(op: ir.Operation, place: int, cut: Spec, after: Mapping[int, Sequence[Axis]]) -> None:
    """Puts a resharding in front of an operand that leaves the summed dimensions whole, and has the axes go to another
    one, of which the result (`after`: dimension → axes) is sharded by them: an all-to-all."""
    (axes,) = filter(None, cut.dims)
    new: list[tuple[Axis, ...]] = [()] * len(cut.dims)
    for d in [d for d, theirs in after.items() if tuple(theirs[: len(axes)]) == tuple(axes)][:1]:
        new[d] = axes
    _put(op, place, Spec(tuple(new)))


def _put(op: ir.Operation, place: int, spec: Spec) -> None:
    """Puts a resharding in front of an operand."""
    value = op.operands[place]
    attributes = {"sharding": sharding(spec, len(spec.dims))}
    at = {"loc": op.location, "ip": ir.InsertionPoint(op)}
    reshard = ir.Operation.create("sdy.reshard", [value.type], [value], attributes, **at)
    op.operands[place] = reshard.results[0]
