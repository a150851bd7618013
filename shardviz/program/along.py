"""What a program does along each dimension of its arguments, followed from the argument to the operations.

    scanned    a loop takes slices of size 1, one after the other: stacked layers
    batched    a product runs side by side along it, each slice on rows of its own: experts
    summed     a product contracts it
    kept       a product has it in its result alone

Along the dimensions of weights these words tell what shapes alone cannot: `(64, 4096, 1408)` may be 64 layers, experts
or heads. Stacked layers are scanned. Experts are batched, at the end of a layer perhaps summed, and kept by none but
the router; heads are kept by the projections that make them. A `jax.lax.ragged_dot` sums over copies of its rows,
of which a mask leaves each to one group, which is batched in other words. Structure cannot tell experts from the blocks
of any other block-diagonal matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

SCANNED, BATCHED, SUMMED, KEPT = "scanned", "batched", "summed", "kept"

_PASSED = frozenset(("stablehlo.convert", "stablehlo.optimization_barrier", "sdy.sharding_constraint"))

Dims = tuple[int | None, ...]
"""For each dimension of a value the dimension of the argument that it is; None where it is none of them."""


class _Seen(NamedTuple):
    """A value that an argument has become."""

    value: Any
    dims: Dims
    looped: bool


def along_of(value: Any, functions: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """A dimension of an argument and what is done along it, as often as it is found.

    Args:
        value: the argument, a value of StableHLO.
        functions: the module's functions by their symbols.
    """
    rank = len(_shape(value) or ())
    left, seen = [_Seen(value, tuple(range(rank)), False)], set[_Seen]()
    while left:
        at = left.pop()
        if at in seen or not any(d is not None for d in at.dims):
            continue
        seen.add(at)
        for use in at.value.uses:
            op, place = use.owner.operation, use.operand_number
            if op.name == "stablehlo.dot_general":
                yield from _of_product(op, place, at.dims)
                continue
            if op.name == "stablehlo.dynamic_slice" and at.looped and place == 0:
                sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
                whole = _shape(at.value) or ()
                sliced = [i for i, size in enumerate(sizes) if size == 1 != whole[i]]
                yield from ((d, SCANNED) for i in sliced if (d := at.dims[i]) is not None)
            left += [_Seen(*after) for after in _after(op, place, at, functions)]


def _of_product(op: ir.Operation, place: int, dims: Dims) -> Iterator[tuple[int, str]]:
    """What a product does along the dimensions of one of its factors."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batched = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)[place]
    summed = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)[place]
    others = (numbers.rhs_contracting_dimensions, numbers.lhs_contracting_dimensions)[place]
    chosen = {mine for mine, theirs in zip(summed, others, strict=True) if _masked(op.operands[1 - place], theirs)}
    batched, summed = [*batched, *chosen], [d for d in summed if d not in chosen]
    kept = set(range(len(dims))).difference(batched, summed)
    for said, which in ((BATCHED, batched), (SUMMED, summed), (KEPT, kept)):
        yield from ((d, said) for i in which if (d := dims[i]) is not None)


def _masked(value: Any, dimension: int) -> bool:
    """Whether a value is copies along a dimension of which a mask leaves parts: so `jax.lax.ragged_dot` gives each
    group its rows, and a sum over it adds zeros.
    """
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "stablehlo.select":
        return False
    copied = value.owner.operation.operands[1]
    if isinstance(copied.owner, ir.Block) or copied.owner.operation.name != "stablehlo.broadcast_in_dim":
        return False
    return dimension not in ir.DenseI64ArrayAttr(copied.owner.operation.attributes["broadcast_dimensions"])


def _after(op: ir.Operation, place: int, at: _Seen, functions: Mapping[str, Any]) -> Iterable[tuple[Any, Dims, bool]]:
    """What the value becomes by an operation that hands its dimensions on."""
    name = op.name
    if name == "stablehlo.while":
        yield op.regions[1].blocks[0].arguments[place], at.dims, True
    elif name == "func.call":
        callee = functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
        yield callee.regions[0].blocks[0].arguments[place], at.dims, at.looped
    elif name in ("sdy.manual_computation", "sdy.named_computation"):
        yield op.regions[0].blocks[0].arguments[place], at.dims, at.looped
    elif name in _PASSED:
        yield op.results[place if name == "stablehlo.optimization_barrier" else 0], at.dims, at.looped
    elif name == "stablehlo.transpose":
        order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        yield op.results[0], tuple(at.dims[i] for i in order), at.looped
    elif name in ("stablehlo.slice", "stablehlo.dynamic_slice") and place == 0:
        sizes = zip(_shape(at.value) or (), _shape(op.results[0]) or (), at.dims, strict=True)
        yield op.results[0], tuple(d if was == now else None for was, now, d in sizes), at.looped
    elif name == "stablehlo.reshape":
        yield op.results[0], reshaped(at.dims, _shape(at.value) or (), _shape(op.results[0]) or ()), at.looped


def reshaped(dims: Dims, before: Sequence[int], after: Sequence[int]) -> Dims:
    """Which dimension is which after a reshape: those that are neither split nor joined.

    >>> reshaped((0, 1, 2), (1, 8, 6), (8, 2, 3))
    (1, None, None)
    """
    found: list[int | None] = []
    i, passed = 0, 1  # how many of the dimensions before, and their elements
    made = 1
    for size in after:
        while i < len(before) and (passed < made or (before[i] == 1 != size)):
            passed, i = passed * before[i], i + 1
        fits = i < len(before) and passed == made and before[i] == size
        found.append(dims[i] if fits else None)
        made *= size
        if fits:
            passed, i = passed * size, i + 1
    return tuple(found)


def _shape(value: Any) -> tuple[int, ...] | None:
    try:
        return tuple(ir.RankedTensorType(value.type).shape)
    except ValueError:  # a token
        return None
