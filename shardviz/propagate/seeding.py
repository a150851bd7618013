"""To which dimensions an axis spreads from one of them, in a copy of a program in which nothing else is sharded.

What is done along each dimension of an argument is followed from there to the operations:

    scanned    a loop takes slices of size 1, one after the other: stacked layers
    batched    a product runs side by side along it, each slice on rows of its own: experts
    kept       a product has it in its result alone
    window     a convolution's kernel has it as its height or width

Along the dimensions of weights these words tell what shapes alone cannot: `(64, 4096, 1408)` may be 64 layers, experts
or heads. Stacked layers are scanned. Experts are batched, at the end of a layer perhaps summed, and kept by none but
the router; heads are kept by the projections that make them. A `jax.lax.ragged_dot` sums over copies of its rows,
of which a mask leaves each to one group, which is batched in other words. Structure cannot tell experts from the blocks
of any other block-diagonal matrix.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from shardviz import _jax
from shardviz._jax.mlir import ir
from shardviz.graph import Block, GraphValue
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axes_size, axis_name
from shardviz.propagate.lower import Lowered
from shardviz.propagate.propagate import PROPAGATION
from shardviz.records.groups import grouped
from shardviz.stablehlo.graph import MlirGraph, MlirOperation
from shardviz.stablehlo.module import (
    ENDS,
    MESH,
    Place,
    attributes_of,
    function_type,
    leave_out_constraints,
    main_of,
    mesh_in,
    place_of,
    sdy_spec,
    set_attributes,
    set_mesh,
    shardings_of,
    spec_of,
    verify,
)

SCANNED, BATCHED, KEPT, WINDOW = "scanned", "batched", "kept", "window"

_SEED = "_seed"
_MOST_SEEDED, _LARGEST = 60, 2**62
"""Axes that are tried together, and devices of their mesh, which Shardy counts in 64 bits."""
_EINSUM = re.compile(r"[A-Za-z.]{1,32}(?:,[A-Za-z.]{1,32}){0,7}->([A-Za-z]{0,16})")


class Member(NamedTuple):
    """A dimension of an array: its role `argument` or `output`, its tree path, and its position, from 0."""

    role: str
    path: str
    dimension: int

    def __str__(self) -> str:
        return f"{self.path}:{self.dimension}"


@dataclass
class Group:
    """Dimensions found to belong together so far; the fields are those of `dimensions.Dimension`."""

    members: set[Member]  # the dimensions of arguments and outputs to which an axis of their own spreads
    letters: Counter[str] = field(default_factory=Counter)  # those that einsums' results have at these dimensions
    mapped: tuple[str, ...] = ()
    stacked: bool = False
    experts: bool = False
    window: bool = False
    of: str = ""
    taken: tuple[str, ...] = ()

    def take(self, other: Group) -> None:
        """Add another group's dimensions."""
        self.members |= other.members
        self.letters += other.letters


class Opened:
    """A copy of a module in which every argument and result is open and no constraint is left."""

    def __init__(self, lowered: Lowered):
        self._lowered = lowered
        self._module = lowered.module.operation.clone()
        own = mesh_in(lowered.module) or DeviceMesh((), ())
        manual = _jax.walk(self._module, "sdy.manual_computation")
        self._mesh = own if manual else replace(own, sizes=(1,) * len(own.sizes))  # where no shape depends on them
        leave_out_constraints(self._module)
        self._maps = bool(manual)  # there is a shard_map inside
        for op in manual:
            for name in ("in_shardings", "out_shardings"):
                text = ", ".join(f"<@{MESH}, {_open(spec_of(each))}>" for each in shardings_of(op, name))
                op.attributes[name] = ir.Attribute.parse(f"#sdy.sharding_per_value<[{text}]>")
        self._manual: dict[Member, tuple[Axis, ...]] = {}  # the dimensions that a shard_map shards → by which axes

    def begin(self) -> None:
        """Find what the `shard_map`s inside shard."""
        if self._maps:
            _jax.run_passes(module := self.seeded({}), PROPAGATION)
            dims = (
                (role, name, d, axes) for role, name, spec in self._specs(module) for d, axes in enumerate(spec.dims)
            )
            self._manual = {Member(role, name, d): axes for role, name, d, axes in dims if axes}

    def batches(self, seeds: Sequence[Member], sizes: Mapping[Member, int]) -> Iterator[Sequence[Member]]:
        """Return groups of seeds that can be tried together, since a mesh with an axis for each seed must not become
        too large."""
        some: list[Member] = []
        devices = self._mesh.size
        for seed in seeds:
            factor = _smallest_factor(sizes[seed])
            if some and (devices * factor > _LARGEST or len(some) == _MOST_SEEDED):
                yield some
                some, devices = [], self._mesh.size
            some.append(seed)
            devices *= factor
        if some:
            yield some

    def uses(self) -> Mapping[str, set[Member]]:
        """Return the operations that run along dimensions of arguments."""
        uses: defaultdict[str, set[Member]] = defaultdict(set)
        values = MlirGraph(self._module).entry.arguments
        for argument, value in zip(self._lowered.traced.arguments, values, strict=True):
            for dimension, use in _along(value) if argument.shape else ():
                uses[use].add(Member("argument", argument.name, dimension))
        return uses

    def used_up(self, sizes: Mapping[Member, int]) -> dict[tuple[str, ...], set[Member]]:
        """Return axes → the dimensions that they shard into single elements, as a `shard_map` or `pmap` requires."""
        whole = (m for m, axes in self._manual.items() if axes_size(axes, self._mesh) == sizes[m] > 1)
        used = grouped((tuple(map(axis_name, self._manual[m])), m) for m in whole)
        return {axes: set(members) for axes, members in used.items()}

    def taken(self, members: Set[Member]) -> tuple[str, ...]:
        """Return the axes with which a `shard_map` shards most of these dimensions; empty if none does."""
        cut = Counter(tuple(map(axis_name, self._manual[m])) for m in members if m in self._manual)
        return max(cut, key=lambda axes: (cut[axes], axes), default=())

    def caught(self, seeds: Sequence[Sequence[Member]], sizes: Mapping[Member, int]) -> list[Group]:
        """Return what is found with an axis for each of these groups of dimensions of arguments of one size, along all
        of a group. The axis has the size of the smallest factor."""
        caught = {f"{_SEED}{number}": Group({*some}) for number, some in enumerate(seeds)}
        axes = {seed: axis for axis, group in caught.items() for seed in group.members}
        module = self.seeded(axes, {axes[some[0]]: _smallest_factor(sizes[some[0]]) for some in seeds})
        _jax.run_passes(module, PROPAGATION)
        for role, name, spec in self._specs(module):
            for d, axis in _seeds(spec):
                caught[axis].members.add(Member(role, name, d))
        einsums: dict[Any, tuple[str, Spec]] = {}  # the last value of each → its letters, and how it is sharded
        for op in _jax.walk(module):
            if op.name in ("stablehlo.dot_general", "stablehlo.transpose") and "sdy.sharding" in op.attributes:
                stack = self._place(op).name_stack
                if (einsum := _EINSUM.search(stack)) is not None and "transpose(" not in stack:
                    einsums.pop(op.operands[0], None)  # the product, which this brings into the einsum's order
                    einsums[op.results[0]] = einsum[1], spec_of(shardings_of(op, "sdy.sharding")[0])
        for letters, spec in einsums.values():
            for d, axis in _seeds(spec) if len(spec.dims) == len(letters) else ():
                caught[axis].letters[letters[d]] += 1
        return [*caught.values()]

    def _place(self, op: ir.Operation) -> Place:
        return place_of(op.location, self._lowered.locations)

    def _specs(self, module: ir.Operation) -> Iterator[tuple[str, str, Spec]]:
        """Return role, name and spec of the arguments and results that have a spec."""
        main, traced, read = main_of(module), self._lowered.traced, cache(spec_of)
        for role, arrays in (("argument", traced.arguments), ("output", traced.outputs)):
            for array, entry in zip(arrays, attributes_of(main, ENDS[role], len(arrays)), strict=True):
                if "sdy.sharding" in entry:
                    yield role, array.name, read(entry["sdy.sharding"])

    def seeded(self, axes: Mapping[Member, str], factors: Mapping[str, int] | None = None) -> ir.Operation:
        """Return a copy of the module with an axis for each seed. `factors`: axis → its size."""
        module = self._module.clone()
        body = module.regions[0].blocks[0]
        set_mesh(module, body, {**self._mesh.shape, **(factors or {})})
        main, traced = main_of(module), self._lowered.traced
        kind = function_type(main)
        cuts = {seed: (*self._manual.get(seed, ()), axis) for seed, axis in axes.items()}
        parsed = cache(lambda dims: ir.Attribute.parse(f"#sdy.sharding<@{MESH}, {_open(Spec(dims))}>"))
        ends = ("argument", kind.inputs, traced.arguments), ("output", kind.results, traced.outputs)
        for role, types, arrays in ends:
            entries = attributes_of(main, ENDS[role], len(types))
            for entry, of, array in zip(entries, types, arrays, strict=True):
                rank = range(ir.RankedTensorType(of).rank)
                entry["sdy.sharding"] = parsed(tuple(cuts.get(Member(role, array.name, d), ()) for d in rank))
            if entries:
                set_attributes(main, ENDS[role], entries)
        verify(module)
        return module


def _smallest_factor(size: int) -> int:
    return next((n for n in range(2, int(size**0.5) + 1) if size % n == 0), size)


def _seeds(spec: Spec) -> list[tuple[int, str]]:
    """Return the dimensions whose axes arrived in a spec, and the seeds of these axes."""
    return [(d, axis_name(a)) for d, axes in enumerate(spec.dims) for a in axes if axis_name(a).startswith(_SEED)]


def _open(spec: Spec) -> str:
    """Return a spec as Shardy writes it, with every dimension open behind its axes."""
    return re.sub(r'"\}', '", ?}', sdy_spec(spec, len(spec.dims), "?"))


_ENTERED = {"while": 1, "call": 0, "manual-computation": 0, "named-computation": 0}
"""What hands its operands to one of its blocks, and to which."""

Dims = tuple[int | None, ...]
"""For each dimension of a value the dimension of the argument that it is; None where it is none of them."""


class _Seen(NamedTuple):
    """A value that is computed from an argument by moving it."""

    value: GraphValue
    dims: Dims
    looped: bool


def _along(value: GraphValue) -> Iterator[tuple[int, str]]:
    """Yield a dimension of an argument and what an operation does along it, as often as it is found."""
    left, seen = [_Seen(value, tuple(range(len(value.shape))), False)], set[_Seen]()
    while left:
        at = left.pop()
        if at in seen or not any(d is not None for d in at.dims):
            continue
        seen.add(at)
        for op, place in at.value.uses:
            if isinstance(op, Block):
                continue
            if op.kind == "dot":
                yield from _of_product(op, place, at.dims)
            elif op.kind == "convolution" and place == 1:
                yield from ((d, WINDOW) for i in op.convolution.kernel[2:] if (d := at.dims[i]) is not None)
            elif (which := _ENTERED.get(op.kind)) is not None:
                left.append(_Seen(op.blocks[which].arguments[place], at.dims, at.looped or op.kind == "while"))
            elif op.kind == "opt-barrier":
                left.append(at._replace(value=op.results[place]))
            elif (dims := _after(op, place, at)) is not None:
                left.append(at._replace(value=op.result, dims=dims))
            if op.kind == "dynamic-slice" and at.looped and place == 0:
                pairs = zip(op.result.shape, at.value.shape, at.dims, strict=True)
                yield from ((d, SCANNED) for size, whole, d in pairs if size == 1 != whole and d is not None)


def _of_product(op: MlirOperation, place: int, dims: Dims) -> Iterator[tuple[int, str]]:
    """Yield what a product does along the dimensions of one of its factors."""
    summed, batched = op.contraction
    pairs = zip(summed[place], summed[1 - place], strict=True)
    chosen = {mine for mine, theirs in pairs if _masked(op.operands[1 - place], theirs)}
    kept = set(range(len(dims))).difference(batched[place], summed[place])
    is_matrix = bool(kept and set(summed[place]) - chosen)  # else it multiplies no rows: a scale for each feature
    for use, which in ((BATCHED, {*batched[place], *chosen} if is_matrix else ()), (KEPT, kept)):
        yield from ((d, use) for i in which if (d := dims[i]) is not None)


def _masked(value: GraphValue, dimension: int) -> bool:
    """Return whether a value is copies along a dimension, masked so that a sum over it adds zeros, as in a
    `ragged_dot`."""
    if value.maker is None or value.maker.kind != "select":
        return False
    copied = value.maker.operands[1].maker
    return (
        copied is not None
        and copied.kind == "broadcast-in-dim"
        and dimension not in ir.DenseI64ArrayAttr(copied.attributes["broadcast_dimensions"])
    )


def _after(op: MlirOperation, place: int, at: _Seen) -> Dims | None:
    """Return the argument's dimension for each dimension of an operation's result; None if it keeps none."""
    if op.kind in ("convert", "sharding"):
        return at.dims
    if op.kind == "transpose":
        return tuple(at.dims[i] for i in ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    if op.kind in ("slice", "dynamic-slice") and place == 0:
        sizes = zip(at.value.shape, op.result.shape, at.dims, strict=True)
        return tuple(d if was == now else None for was, now, d in sizes)
    return _reshaped(at.dims, at.value.shape, op.result.shape) if op.kind == "reshape" else None


def _reshaped(dims: Dims, before: Sequence[int], after: Sequence[int]) -> Dims:
    """Return for each dimension after a reshape the same dimension before it; None for those that are split or merged.

    >>> _reshaped((0, 1, 2), (1, 8, 6), (8, 2, 3))
    (1, None, None)
    """
    kept: list[int | None] = []
    i, passed = 0, 1  # how many of the dimensions before, and their elements
    written = 1
    for size in after:
        while i < len(before) and (passed < written or (before[i] == 1 != size)):
            passed, i = passed * before[i], i + 1
        fits = i < len(before) and passed == written and before[i] == size
        kept.append(dims[i] if fits else None)
        written *= size
        if fits:
            passed, i = passed * size, i + 1
    return tuple(kept)
