"""The way from one sharding to another is the cheapest: against every way there is, and against Shardy's own."""

from __future__ import annotations

import heapq
import itertools
import math
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager

from shardviz import _jax
from shardviz.layouts import layout, moves
from shardviz.notation import DeviceMesh, Spec
from shardviz.paint import text
from shardviz.program.lower import sdy_spec
from shardviz.program.module import spec_of
from shardviz.view.layouts import of_moves

Dims = tuple[tuple[int, ...], ...]


class Everything:
    """Every move there is, told by devices and slices alone; atoms are mesh axes of prime size, by their number."""

    def __init__(self, shape: tuple[int, ...], sizes: tuple[int, ...], atoms: frozenset[int]):
        self.shape, self.sizes, self.atoms = shape, sizes, atoms
        self.mesh = DeviceMesh(tuple(f"a{i}" for i in range(len(sizes))), sizes)
        self.known: dict[Dims, tuple[np.ndarray, np.ndarray]] = {}

    def ways(self, dim: tuple[int, ...]) -> int:
        return math.prod(self.sizes[a] for a in dim)

    def tile(self, d: int, dim: tuple[int, ...]) -> int:
        return -(-self.shape[d] // self.ways(dim))

    def slices(self, dims: Dims) -> tuple[np.ndarray, np.ndarray]:
        if dims not in self.known:
            cut = layout(self.shape, Spec(tuple(tuple(f"a{a}" for a in dim) for dim in dims)), self.mesh)
            self.known[dims] = cut.starts, cut.stops
        return self.known[dims]

    def missing(self, one: Dims, other: Dims) -> int:
        (a, b), (c, d) = self.slices(one), self.slices(other)
        kept = np.prod(np.maximum(np.minimum(b, d) - np.maximum(a, c), 0), axis=1)
        return int((np.prod(d - c, axis=1) - kept).max())

    def shard(self, dims: Dims) -> int:
        return math.prod(self.tile(d, dim) for d, dim in enumerate(dims))

    def nest(self, one: Dims, other: Dims) -> bool:
        """Whether the tiles of each dimension are made of whole tiles of the other cut, or it is whole."""
        for d, (a, b) in enumerate(zip(one, other, strict=True)):
            few, many = sorted((a, b), key=self.ways)
            if few and self.tile(d, few) * self.ways(few) != self.tile(d, many) * self.ways(many):
                return False
        return True

    def exchanges(self, start: Dims, dims: Dims, moved: tuple[int, ...], sources: frozenset, targets: frozenset):
        """All that one all-to-all can come to: atoms taken off some dimensions, put behind others."""
        for d, e in itertools.permutations(range(len(dims)), 2):
            if d in targets or e in sources:
                continue
            for k in range(1, len(dims[d]) + 1):
                if set(dims[d][-k:]) & set(moved):
                    continue
                new = list(dims)
                new[d], new[e] = dims[d][:-k], dims[e] + dims[d][-k:]
                both = (*moved, *dims[d][-k:])
                yield tuple(new), both
                yield from self.exchanges(start, tuple(new), both, sources | {d}, targets | {e})

    def moves(self, dims: Dims):
        """(what follows, what it costs)."""
        used = set(itertools.chain(*dims))
        for d, dim in enumerate(dims):
            free = self.atoms - used
            for some in itertools.chain.from_iterable(itertools.permutations(free, n + 1) for n in range(len(free))):
                new = (*dims[:d], (*dim, *some), *dims[d + 1 :])
                yield new, 0 if self.nest(dims, new) else self.missing(dims, new)
            for k in range(1, len(dim) + 1):
                new = (*dims[:d], dim[:-k], *dims[d + 1 :])
                each = self.shard(dims) * (self.ways(dim[-k:]) - 1)
                yield new, each if self.nest(dims, new) else self.missing(dims, new)
        for new, moved in self.exchanges(dims, dims, (), frozenset(), frozenset()):
            finest = math.prod(
                min(self.tile(d, a), self.tile(d, b)) for d, (a, b) in enumerate(zip(dims, new, strict=True))
            )
            yield new, finest * (self.ways(moved) - 1) if self.nest(dims, new) else self.missing(dims, new)
        for order in itertools.permutations(self.atoms, len(used)):
            cuts = itertools.accumulate((len(dim) for dim in dims), initial=0)
            new = tuple(tuple(order[a:b]) for a, b in itertools.pairwise(cuts))
            if new != dims and all(self.ways(a) == self.ways(b) for a, b in zip(dims, new, strict=True)):
                yield new, self.shard(dims)

    def cheapest(self, start: Dims, goal: Dims) -> int:
        """By Dijkstra's algorithm, over all of it."""
        queue, done = [(0, start)], set()
        while queue:
            cost, dims = heapq.heappop(queue)
            if dims == goal:
                return cost
            if dims in done:
                continue
            done.add(dims)
            for new, more in self.moves(dims):
                if new not in done:
                    heapq.heappush(queue, (cost + more, new))
        raise AssertionError("there is always a way")


@st.composite
def resharding(draw):
    """A shape, mesh axes of prime size, and which of them cut which dimension before and after."""
    sizes = tuple(draw(st.lists(st.sampled_from([2, 2, 3]), min_size=1, max_size=3)))
    rank = draw(st.integers(1, 3))

    def cut() -> Dims:
        found: list[list[int]] = [[] for _ in range(rank)]
        for atom in draw(st.permutations(range(len(sizes)))):
            where = draw(st.sampled_from([None, *range(rank)]))
            if where is not None:
                found[where].append(atom)
        return tuple(map(tuple, found))

    sides = st.sampled_from([12, 24]) if draw(st.booleans()) else st.integers(1, 13)
    return tuple(draw(sides) for _ in range(rank)), sizes, cut(), cut()


@settings(max_examples=150, deadline=None)
@given(resharding())
def test_no_way_at_all_brings_a_device_fewer_elements(case):
    shape, sizes, before, after = case
    every = Everything(shape, sizes, frozenset(itertools.chain(*before, *after)))
    one, other = (Spec(tuple(tuple(f"a{a}" for a in dim) for dim in dims)) for dims in (before, after))
    way = moves(shape, one, other, every.mesh)
    assert way.proved
    assert sum(step.elements for step in way.steps) == every.cheapest(before, after)
    assert sum(step.elements for step in way.steps) >= int(way.receive.max())


# Shardy's own way.

_MODULE = """
sdy.mesh @mesh = <[{axes}]>
func.func @main(%arg0: tensor<{shape}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {before}>}}) -> tensor<{shape}xf32> {{
  %0 = sdy.reshard %arg0 <@mesh, {after}> : tensor<{shape}xf32>
  return %0 : tensor<{shape}xf32>
}}
"""


def shardys(shape: tuple[int, ...], before: Spec, after: Spec, mesh: DeviceMesh) -> list[Spec]:
    """The specs that Shardy goes through, by its pass that turns reshardings into collectives."""
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.shape.items())
    rank = len(shape)
    source = _MODULE.format(
        axes=axes, shape="x".join(map(str, shape)), before=sdy_spec(before, rank), after=sdy_spec(after, rank)
    )
    with _jax.mlir_context():
        module = ir.Module.parse(source)
        PassManager.parse("builtin.module(func.func(sdy-reshard-to-collectives))").run(module.operation)
        main = module.body.operations[1]
        found = [before]
        for op in main.regions[0].blocks[0].operations:
            if op.operation.name != "func.return":
                assert op.operation.name != "sdy.reshard"
                found.append(spec_of(op.operation.attributes["out_sharding"]))
        return found


def received(shape: tuple[int, ...], specs: list[Spec], mesh: DeviceMesh) -> int:
    """Elements that a device receives at each step, at most, added up: what it needs then and did not have before."""
    total = 0
    for one, other in itertools.pairwise(layout(shape, spec, mesh) for spec in specs):
        low, high = np.maximum(one.starts, other.starts), np.minimum(one.stops, other.stops)
        total += int((other.elements - np.prod(np.maximum(high - low, 0), axis=1)).max())
    return total


MESHES = ("x=2,y=2,z=2", "x=4,y=2", "x=2,y=8", "x=4,y=2,z=4", "x=2,y=2,z=4,w=2", "x=6,y=2")


@st.composite
def on_a_mesh(draw):
    """Two specs of whole axes on a mesh of Shardy's tests."""
    mesh = DeviceMesh.of(draw(st.sampled_from(MESHES)))
    rank = draw(st.integers(1, 3))

    def cut() -> Spec:
        found: list[list[str]] = [[] for _ in range(rank)]
        for name in draw(st.permutations(mesh.names)):
            where = draw(st.sampled_from([None, *range(rank)]))
            if where is not None:
                found[where].append(name)
        return Spec(tuple(map(tuple, found)))

    return (192,) * rank, mesh, cut(), cut()


@settings(max_examples=150, deadline=None)
@given(on_a_mesh())
def test_shardy_moves_no_fewer_elements(case):
    shape, mesh, before, after = case
    way = moves(shape, before, after, mesh)
    ours = sum(step.elements for step in way.steps)
    assert way.proved and ours <= received(shape, shardys(shape, before, after, mesh), mesh)


@pytest.mark.parametrize(
    ("shape", "before", "after", "mesh", "elements"),
    [
        ((64, 64), (("x", "y"),), ("x", ("y", "z")), "x=2,y=2,z=2", 384),  # sliced first
        ((64, 64), ("x", "y"), ("y", "x"), "x=4,y=2", 768),
        ((4096, 4096), (("x", "y"), None), ("y", "x"), "x=4,y=4,z=4", 1769472),
    ],
)
def test_ways_that_were_missed(shape, before, after, mesh, elements):
    way = moves(shape, before, after, mesh)
    assert way.proved and sum(step.elements for step in way.steps) == elements
    mesh = DeviceMesh.of(mesh)
    there = shardys(shape, Spec.of(before, len(shape)), Spec.of(after, len(shape)), mesh)
    assert received(shape, there, mesh) >= elements


def test_a_way_that_may_not_be_the_cheapest_says_so():
    mesh = "a=16,b=16,c=16"
    start = time.perf_counter()
    way = moves((4096, 4096, 4096), (("a", "b"), "c", None), ("c", None, ("b", "a")), mesh)
    assert time.perf_counter() - start < 10
    assert not way.proved
    assert "a cheaper one may exist" in text(of_moves(way))
    assert sum(step.elements for step in way.steps) >= int(way.receive.max())
    easy = moves((4096, 4096, 4096), (("a", "b"), "c", None), (("b", "a"), "c", None), mesh)
    assert easy.proved and not re.search("may exist", text(of_moves(easy)))
