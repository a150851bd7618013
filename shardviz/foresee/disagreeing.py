"""Operations whose operands disagree, where XLA's partitioner gathers and Shardy's pass for reshardings does not.

Products whose factors disagree on how what is summed over is sharded:

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

    tables: over data=8                          a lookup of each id in the table of its column, under `vmap`: data
    ids: rows over data=8, a column for each     shards the stack of tables, and rows that each of them is asked for

Here Shardy's pass would move ids and results; the partitioner gathers the tables, and each device looks its rows up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardviz._jax.mlir import ir, sdy, stablehlo
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_size
from shardviz.stablehlo.graph import contraction_of, spec_of_value
from shardviz.stablehlo.module import SHARDING, sharding


def gather_disagreeing(operations: Iterable[ir.Operation], mesh: DeviceMesh) -> None:
    """Insert reshardings around such operations, in place, so that what XLA gathers is whole."""
    for op in operations:
        if op.name in ("stablehlo.gather", "stablehlo.scatter"):
            _gather_tables(op)
        if op.name != "stablehlo.dot_general":
            continue
        specs = [spec_of_value(value) or Spec() for value in op.operands]
        summed, batched = contraction_of(op)
        result_dims = (spec_of_value(op.results[0]) or Spec()).dims
        if not _disagree(specs, summed, mesh):
            _gather_for_rows(op, specs, summed, batched, result_dims)
        else:
            for place, dims in enumerate(summed):
                left = [d for d in range(len(specs[place].dims)) if d not in dims]
                theirs = result_dims[: len(left)] if place == 0 else result_dims[-len(left) :] if left else ()
                _reshard(op, place, specs[place], dict(zip(left, theirs, strict=False)))


def _gather_for_rows(
    op: ir.Operation,
    specs: Sequence[Spec],
    summed: Sequence[Sequence[int]],
    batched: Sequence[Sequence[int]],
    result_dims: Sequence[Sequence[Axis]],
) -> None:
    """Gather a factor's summed dimensions where their axes also shard a free dimension of the other factor and of the
    result."""
    begin = len(batched[0])
    for one, other in ((0, 1), (1, 0)):
        free = [d for d in range(len(specs[other].dims)) if d not in (*summed[other], *batched[other])]
        theirs = result_dims[begin : begin + len(free)] if other == 0 else result_dims[len(result_dims) - len(free) :]
        kept = {a for d, axes in zip(free, theirs, strict=False) for a in axes if a in specs[other].dims[d]}
        dims = list(specs[one].dims)
        for d, opposite in zip(summed[one], summed[other], strict=True):
            if dims and kept & {*dims[d]}:
                left = tuple(a for a in dims[d] if a not in kept)
                dims[d] = left if left == tuple(specs[other].dims[opposite]) else ()
        if tuple(dims) != tuple(specs[one].dims):
            _put(op, one, Spec(tuple(dims)))


def _gather_tables(op: ir.Operation) -> None:
    """Gather a stack of tables if an axis shards both the stack and the ids that are looked up in each table. A
    scatter, such as a lookup's gradient, adds to whole tables."""
    looks_up = op.name == "stablehlo.gather"
    if looks_up:
        numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        stack, columns = numbers.operand_batching_dims, numbers.start_indices_batching_dims
        features, rows_of = numbers.offset_dims, op.results[0]
    else:
        numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
        stack, columns = numbers.input_batching_dims, numbers.scatter_indices_batching_dims
        features, rows_of = numbers.update_window_dims, op.operands[2]
    if not stack or (not looks_up and len(op.operands) != 3):
        return
    tables, ids, rows = (_dims_of(value) for value in (*op.operands[:2], rows_of))
    asked = [() if d in columns else axes for d, axes in enumerate(ids) if d != numbers.index_vector_dim]
    over = {axis for axes in asked for axis in axes}
    if not over & {axis for d in stack for axis in tables[d]}:
        return
    left, own = iter(asked), [tuple(axis for axis in axes if axis not in over) for axes in rows]
    new_rows = Spec(tuple(own[d] if d in features else next(left) for d in range(len(rows))))
    new_tables = Spec(tuple(() if d in stack else axes for d, axes in enumerate(tables)))
    _put(op, 0, new_tables)
    if looks_up:
        _put_behind(op, new_rows)
    else:
        _put(op, 2, new_rows)
        _put_behind(op, new_tables)


def _dims_of(value: ir.Value) -> tuple[tuple[Axis, ...], ...]:
    """Return the axes of each dimension of an array."""
    return Spec.of(spec_of_value(value), ir.RankedTensorType(value.type).rank).dims


def _disagree(specs: Sequence[Spec], summed: Sequence[Sequence[int]], mesh: DeviceMesh) -> bool:
    """Return whether only one summed dimension is sharded, in both factors, and into different numbers of pieces."""
    places, pieces = [], []
    for spec, where in zip(specs, summed, strict=True):
        cut = [d for d, axes in enumerate(spec.dims) if axes]
        if len(cut) != 1 or cut[0] not in where:
            return False
        places.append(where.index(cut[0]))
        pieces.append(math.prod(axis_size(axis, mesh) for axis in spec.dims[cut[0]]))
    return places[0] == places[1] and pieces[0] != pieces[1]


def _reshard(op: ir.Operation, place: int, cut: Spec, after: Mapping[int, Sequence[Axis]]) -> None:
    """Insert a resharding before an operand that leaves its summed dimensions whole. The axes move to another dimension
    along which they shard the result (`after`: dimension → axes): an all-to-all."""
    (axes,) = filter(None, cut.dims)
    new: list[tuple[Axis, ...]] = [()] * len(cut.dims)
    for d in [d for d, theirs in after.items() if tuple(theirs[: len(axes)]) == tuple(axes)][:1]:
        new[d] = axes
    _put(op, place, Spec(tuple(new)))


def _put(op: ir.Operation, place: int, spec: Spec) -> None:
    """Insert a resharding before an operand. A repeated scalar without other readers is computed in the new
    sharding."""
    value = op.operands[place]
    if _is_filled(value) and len([*value.uses]) == 1:
        value.owner.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get([sharding(spec, len(spec.dims))])
        return
    attributes = {"sharding": sharding(spec, len(spec.dims))}
    at = {"loc": op.location, "ip": ir.InsertionPoint(op)}
    reshard = ir.Operation.create("sdy.reshard", [value.type], [value], attributes, **at)
    op.operands[place] = reshard.results[0]


def _is_filled(value: ir.Value) -> bool:
    """Return whether an array is one number, repeated."""
    maker: Any = value.owner
    if isinstance(maker, ir.Block) or maker.name != "stablehlo.broadcast_in_dim":
        return False
    return not ir.RankedTensorType(maker.operands[0].type).rank


def _put_behind(op: ir.Operation, computed: Spec) -> None:
    """Let an operation compute its result in another sharding, and insert a resharding behind it."""
    (result,) = op.results
    before = _dims_of(result)
    if before == tuple(computed.dims):
        return
    attributes = {"sharding": sharding(Spec(before), len(before))}
    at = {"loc": op.location, "ip": ir.InsertionPoint(op)}
    reshard = ir.Operation.create("sdy.reshard", [result.type], [op.operands[0]], attributes, **at)
    reshard.move_after(op)
    result.replace_all_uses_with(reshard.results[0])
    reshard.operands[0] = result
    op.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get([sharding(computed, len(before))])
