"""What a search for the cheapest reshard looks through: shardings as states of atoms, and the moves between them.

Axes are broken into atoms, parts of prime size, so that both specs are made of the same ones: going from `x` of size 8
to its part `x:(1)2`, the atoms are `x:(1)2`, `x:(2)2` and `x:(4)2`. A state says which atoms cut which dimension, major
to minor, and which are unreduced.

>>> mesh = DeviceMesh.of({"x": 8})
>>> problem = problem_of((16,), Spec.of(("x",)), Spec.of((None,)), mesh)
>>> problem.atoms, problem.coarse.atoms
((('x', 1, 2), ('x', 2, 2), ('x', 4, 2)), (('x', 1, 8),))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from shardviz.kept import cached_property
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axis_name, axis_part
from shardviz.notation.strides import digits, merge

Atom = tuple[str, int, int]
Dims = tuple[tuple[Atom, ...], ...]
Part = tuple[tuple[Atom, ...], int, int]
"""Of an all-to-all: the atoms that it moves, and from which dimension to which."""


@dataclass(frozen=True)
class State:
    """Which atoms cut each dimension, major to minor, and which are unreduced."""

    dims: Dims
    unreduced: frozenset[Atom]


@dataclass(frozen=True, kw_only=True)
class Move:
    """One collective between two states: its kind, its atoms, its dimensions, and the elements a device receives."""

    kind: str
    atoms: tuple[Atom, ...]
    dimension: int | None = None
    parts: tuple[Part, ...] = ()
    before: State
    after: State
    elements: int = 0
    edges: bool = False


@dataclass(frozen=True, eq=False)
class Problem:
    """An array's shape, its mesh, the atoms that one of two states has, and these states, to go between."""

    shape: tuple[int, ...]
    mesh: DeviceMesh
    atoms: tuple[Atom, ...]
    start: State
    goal: State
    unreduced_kind: str = "sum"
    coarser: Problem | None = None

    @property
    def coarse(self) -> Problem:
        """The same, of as few atoms as the two specs need: of less choice, and quicker."""
        return self.coarser or self

    def axes(self, atoms: tuple[Atom, ...]) -> tuple[Axis, ...]:
        """Atoms as axes, neighbours joined."""
        return merge(atoms, self.mesh)

    def spec(self, state: State) -> Spec:
        """A state as a spec."""
        left = self.axes(self.ordered(state.unreduced))
        return Spec(tuple(map(self.axes, state.dims)), left, (), self.unreduced_kind)

    def ordered(self, atoms: Iterable[Atom]) -> tuple[Atom, ...]:
        """Atoms in the mesh's order."""
        return tuple(sorted(atoms, key=self.atoms.index))

    def tile(self, dimension: int, atoms: tuple[Atom, ...]) -> int:
        """The size of a tile of a dimension, padding included."""
        return -(-self.shape[dimension] // ways(atoms))

    def shard(self, state: State) -> int:
        """Elements of a shard, padding included."""
        return math.prod(self.tile(d, atoms) for d, atoms in enumerate(state.dims))

    def nested(self, dimension: int, outer: tuple[Atom, ...], inner: tuple[Atom, ...]) -> bool:
        """Whether each tile of a dimension is made of whole tiles of a finer cut."""
        if not outer:
            return True
        return self.tile(dimension, outer) * ways(outer) >= self.tile(dimension, inner) * ways(inner)

    @cached_property
    def _digits(self) -> dict[Atom, np.ndarray]:
        return {atom: digits((atom,), self.mesh) for atom in self.atoms}

    @cached_property
    def _bounds(self) -> dict[tuple[int, tuple[Atom, ...]], tuple[np.ndarray, np.ndarray]]:
        return {}

    def bounds(self, dimension: int, atoms: tuple[Atom, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Where each device's tile of a dimension begins and ends."""
        found = self._bounds.get((dimension, atoms))
        if found is None:
            index = np.zeros(self.mesh.size, np.int64)
            for atom in atoms:
                index = index * atom[2] + self._digits[atom]
            size, tile = self.shape[dimension], self.tile(dimension, atoms)
            found = np.minimum(index * tile, size), np.minimum((index + 1) * tile, size)
            self._bounds[dimension, atoms] = found
        return found

    @cached_property
    def _common(self) -> dict[tuple[int, tuple[Atom, ...], tuple[Atom, ...]], np.ndarray]:
        return {}

    def common(self, dimension: int, old: tuple[Atom, ...], new: tuple[Atom, ...]) -> np.ndarray:
        """How much of a dimension is in a device's tile under both of two cuts, one number a device."""
        found = self._common.get((dimension, old, new))
        if found is None:
            (begin, end), (low, high) = self.bounds(dimension, old), self.bounds(dimension, new)
            found = np.maximum(np.minimum(high, end) - np.maximum(low, begin), 0)
            self._common[dimension, old, new] = found
        return found

    def missing(self, before: Dims, after: Dims) -> int:
        """The most elements that a device needs after and does not have before."""
        pairs = list(zip(before, after, strict=True))
        have = math.prod(self.common(d, old, new) for d, (old, new) in enumerate(pairs))
        need = math.prod(self.common(d, new, new) for d, (_, new) in enumerate(pairs))
        return int(np.max(need - have))

    @cached_property
    def _needed(self) -> np.ndarray | int:
        return math.prod(self.common(d, atoms, atoms) for d, atoms in enumerate(self.goal.dims))

    def lacks(self, state: State) -> int:
        """The most elements that a device has still to receive, at least: of a partial sum each one that it needs."""
        if state.unreduced != self.goal.unreduced:
            return int(np.max(self._needed))
        return self.lacks_of(state.dims)

    def lacks_of(self, dims: Dims) -> int:
        """As `lacks`, of a state with the goal's partial sums."""
        pairs = enumerate(zip(dims, self.goal.dims, strict=True))
        return int(np.max(self._needed - math.prod(self.common(d, old, new) for d, (old, new) in pairs)))


@lru_cache(maxsize=4096)
def ways(atoms: tuple[Atom, ...]) -> int:
    """The number of tiles that atoms cut."""
    return math.prod(size for _, _, size in atoms)


def problem_of(shape: tuple[int, ...], before: Spec, after: Spec, mesh: DeviceMesh) -> Problem | None:
    """The problem of going from one spec to another; None where their parts of axes have no common atoms."""
    points: dict[str, list[int]] = {}
    for axis in (*before.axes, *before.unreduced, *after.axes, *after.unreduced):
        name, start, size = axis_part(axis, mesh)
        points.setdefault(name, [1, mesh.shape[name]]).extend((start, start * size))
    for name, found in points.items():
        points[name] = found = sorted(set(found))
        if any(b % a for a, b in itertools.pairwise(found)):
            return None
    coarse = _problem(shape, before, after, mesh, points)
    fine = {name: [1] for name in points}
    for name, found in points.items():
        for factor in itertools.chain.from_iterable(_primes(b // a) for a, b in itertools.pairwise(found)):
            fine[name].append(fine[name][-1] * factor)
    return replace(_problem(shape, before, after, mesh, fine), coarser=coarse)


def _problem(
    shape: tuple[int, ...], before: Spec, after: Spec, mesh: DeviceMesh, points: Mapping[str, list[int]]
) -> Problem:
    """The problem with axes broken at some points."""

    def broken(axes: tuple[Axis, ...]) -> tuple[Atom, ...]:
        return tuple(atom for axis in axes for atom in _atoms_of(axis, points[axis_name(axis)]))

    start, goal = (
        State(tuple(broken(dim) for dim in spec.dims), frozenset(broken(spec.unreduced))) for spec in (before, after)
    )
    named = start.unreduced.union(*start.dims, goal.unreduced, *goal.dims)
    every = broken(tuple(name for name in mesh.names if name in points))
    atoms = tuple(atom for atom in every if atom in named)
    return Problem(shape, mesh, atoms, start, goal, before.unreduced_kind)


def _primes(number: int) -> Iterator[int]:
    """The prime factors of a number, rising."""
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1


def _atoms_of(axis: Axis, points: list[int]) -> Iterator[Atom]:
    """The atoms of an axis or a part of one, where its sizes are cut at `points`."""
    name, low, high = (axis, 1, points[-1]) if isinstance(axis, str) else (axis[0], axis[1], axis[1] * axis[2])
    yield from ((name, a, b // a) for a, b in itertools.pairwise(points) if low <= a and b <= high)
