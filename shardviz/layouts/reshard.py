"""The collectives that take an array from one sharding to another, in named mesh axes: a search for the cheapest.

Shardings are written as axes, or parts of axes, on dimensions; a collective moves some of them. Among all sequences of
such moves the one is taken that brings the fewest elements to a device, and of these the shortest:

| kind | what it does to the axes | elements that a device receives, of a shard of s, over n devices |
|---|---|---|
| `slice` | puts axes that hold copies behind a dimension's | 0 |
| `all-gather` | takes a dimension's last axes away | s (n - 1) |
| `all-to-all` | moves a dimension's last axes behind another's | s (n - 1) / n |
| `collective-permute` | exchanges axes, every dimension as many ways as before | what is not there, at most s |
| `reduce-scatter` | puts unreduced axes behind a dimension's | s (n - 1) / n |
| `all-reduce` | adds up over unreduced axes | 2 s (n - 1) / n |

XLA's partitioner may choose another way; this one is a good one, and exact.

Axes are broken into atoms, so that both specs are made of the same ones: going from `x` of size 8 to its part
`x:(1)2`, the atoms are `x:(1)2` and `x:(2)4`. A state says which atoms cut which dimension, major to minor, and which
are unreduced; a move is one collective; the search is Dijkstra's.

>>> mesh = DeviceMesh.of({"x": 8, "y": 2})
>>> problem = problem_of((16, 16), Spec.of(("x", "y")), Spec.of(("y", "x")), mesh)
>>> [move.kind for move in search(problem)]
['all-to-all', 'collective-permute', 'all-to-all']
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from shardviz.layouts.layout import Layout, data_keys, same_places
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axis_name, axis_part, axis_text
from shardviz.notation.strides import digits, merge


@dataclass(frozen=True, kw_only=True)
class Step:
    """One collective on the way, or a slice, which needs none.

    Attributes:
        kind: as in the table of this module; `collective-broadcast` where one device has all.
        axes: the axes, or parts of axes, that it is over; None where they have no names.
        dimension: the dimension that it gathers, cuts or scatters; None where it is not one.
        into: for an all-to-all the dimension that is cut instead.
        before, after: the spec before and after it; None where no spec says it.
        elements: elements that a device receives, at most; padding counts.
    """

    kind: str
    axes: tuple[Axis, ...] | None = None
    dimension: int | None = None
    into: int | None = None
    before: Spec | None
    after: Spec | None
    elements: int = 0

    def __str__(self) -> str:
        over = f" over {' '.join(map(axis_text, self.axes))}" if self.axes else ""
        done = {
            "slice": "is cut",
            "all-gather": "becomes whole" if self.after and not self._left() else "is gathered",
            "all-to-all": "becomes whole" if self.after and not self._left() else "is gathered",
            "reduce-scatter": "is added up and cut",
        }.get(self.kind, "")
        what = f": dimension {self.dimension} {done}" if self.dimension is not None else ""
        what += f", dimension {self.into} is cut" if self.into is not None else ""
        way = f"; {self.before or 'no spec'} → {self.after or 'no spec'}"
        return f"{self.kind}{over}{what}{way}; {self.elements} elements"

    def _left(self) -> tuple[Axis, ...]:
        return self.after.dims[self.dimension] if self.after and self.dimension is not None else ()


def steps_between(before: Layout, after: Layout) -> list[Step]:
    """The steps from one layout to another, whose rows are in the same order of devices."""
    problem = None
    if same_places(before.mesh, after.mesh) and before.spec is not None and after.spec is not None:
        problem = problem_of(before.shape, before.spec, after.spec, before.mesh)
    return _unnamed(before, after) if problem is None else [_step(problem, move) for move in search(problem)]


def _step(problem: Problem, move: Move) -> Step:
    elements = move.elements
    before, after = problem.spec(move.before), problem.spec(move.after)
    if move.kind == "collective-permute":
        elements = problem.missing(before, after)
    return Step(
        kind=move.kind,
        axes=problem.axes(move.atoms),
        dimension=move.dimension,
        into=move.into,
        before=before,
        after=after,
        elements=elements,
    )


def _unnamed(before: Layout, after: Layout) -> list[Step]:
    """The way where axes do not tell it: through the tiles alone."""
    steps: list[Step] = []
    here, size = before.spec, int(np.prod(before.shape, dtype=np.int64))
    shard = int(np.prod(before.shard_shape, dtype=np.int64))
    if before.partial_sums != after.partial_sums:
        n = before.partial_sums // after.partial_sums
        axes = tuple(a for a in before.unreduced if a not in after.unreduced)
        summed = Spec(here.dims, after.unreduced) if here is not None else None
        elements = -(-2 * shard * (n - 1) // n)
        steps.append(Step(kind="all-reduce", axes=axes or None, before=here, after=summed, elements=elements))
        here = summed
    same = (before.starts == after.starts).all(axis=1) & (before.stops == after.stops).all(axis=1)
    if (same & (before.holds == after.holds)).all():
        return steps
    whole = Spec(((),) * len(before.shape), after.unreduced)
    inside = ((before.starts <= after.starts) & (before.stops >= after.stops)).all(axis=1) & before.holds
    if (inside | ~after.holds).all():
        steps.append(Step(kind="slice", before=here, after=after.spec))
    elif before.ways == after.ways and before.replicas == after.replicas and _as_many(before, after):
        missing = after.elements * ~(same & before.holds)
        steps.append(Step(kind="collective-permute", before=here, after=after.spec, elements=int(missing.max())))
    else:
        kind = "collective-broadcast" if before.maximal else "all-gather"
        received = size if before.maximal else size - shard
        steps.append(Step(kind=kind, before=here, after=whole, elements=received))
        if any(n > 1 for n in after.ways) or after.maximal:
            steps.append(Step(kind="slice", before=whole, after=after.spec))
    return steps


def _as_many(before: Layout, after: Layout) -> bool:
    """Whether every slice is on as many devices before as after, within each manual array."""
    tiles = max(1, int(np.prod(before.ways, dtype=np.int64)))
    keys = [data_keys(cut)[cut.holds] % tiles + cut.manual_ids[cut.holds] * tiles for cut in (before, after)]
    return np.array_equal(np.sort(keys[0]), np.sort(keys[1]))


Atom = tuple[str, int, int]
_MOST_STATES = 2000


@dataclass(frozen=True)
class State:
    """Which atoms cut each dimension, major to minor, and which are unreduced."""

    dims: tuple[tuple[Atom, ...], ...]
    unreduced: frozenset[Atom]


@dataclass(frozen=True, kw_only=True)
class Move:
    """One collective between two states: its kind, its atoms, its dimensions, and the elements a device receives."""

    kind: str
    atoms: tuple[Atom, ...]
    dimension: int | None = None
    into: int | None = None
    before: State
    after: State
    elements: int = 0


@dataclass(frozen=True)
class Problem:
    """An array's shape, its mesh, and the states to go between."""

    shape: tuple[int, ...]
    mesh: DeviceMesh
    start: State
    goal: State

    def axes(self, atoms: tuple[Atom, ...]) -> tuple[Axis, ...]:
        """Atoms as axes, neighbours joined."""
        return merge(atoms, self.mesh)

    def spec(self, state: State) -> Spec:
        """A state as a spec."""
        return Spec(tuple(map(self.axes, state.dims)), self.axes(self.ordered(state.unreduced)))

    def ordered(self, atoms: Iterable[Atom]) -> tuple[Atom, ...]:
        """Atoms in the mesh's order."""
        return tuple(sorted(atoms, key=lambda atom: (self.mesh.names.index(atom[0]), atom[1])))

    def shard(self, state: State) -> int:
        """Elements of a shard, padding included."""
        return math.prod(-(-size // ways(atoms)) for size, atoms in zip(self.shape, state.dims, strict=True))

    def fits(self, state: State, other: State) -> bool:
        """Whether tiles of one state are made of whole tiles of the other, or every changed dimension is whole."""
        for size, old, new in zip(self.shape, state.dims, other.dims, strict=True):
            a, b = ways(old), ways(new)
            if a != b and 1 not in (a, b) and (size % a or size % b):
                return False
        return True

    def missing(self, before: Spec, after: Spec) -> int:
        """The most elements, padding included, that a device needs and does not have; both cut in as many ways."""
        common = np.ones(self.mesh.size, np.int64)
        total = 1
        for size, old, new in zip(self.shape, before.dims, after.dims, strict=True):
            shard = -(-size // (int(digits(old, self.mesh).max(initial=0)) + 1))
            common *= np.where(digits(old, self.mesh) == digits(new, self.mesh), shard, 0)
            total *= shard
        return total - int(common.min())


def ways(atoms: tuple[Atom, ...]) -> int:
    """The number of tiles that atoms cut."""
    return math.prod(size for _, _, size in atoms)


def problem_of(shape: tuple[int, ...], before: Spec, after: Spec, mesh: DeviceMesh) -> Problem | None:
    """The problem of going from one spec to another; None where their parts of axes have no common atoms."""
    atoms: dict[str, list[int]] = {}
    for axis in (*before.axes, *before.unreduced, *after.axes, *after.unreduced):
        name, start, size = axis_part(axis, mesh)
        atoms.setdefault(name, [1, mesh.shape[name]]).extend((start, start * size))
    for name, points in atoms.items():
        atoms[name] = points = sorted(set(points))
        if any(b % a for a, b in itertools.pairwise(points)):
            return None

    def broken(axes: tuple[Axis, ...]) -> tuple[Atom, ...]:
        return tuple(atom for axis in axes for atom in _atoms_of(axis, atoms[axis_name(axis)]))

    start, goal = (
        State(tuple(broken(dim) for dim in spec.dims), frozenset(broken(spec.unreduced))) for spec in (before, after)
    )
    return Problem(shape, mesh, start, goal)


def _atoms_of(axis: Axis, points: list[int]) -> Iterator[Atom]:
    """The atoms of an axis or a part of one, where its sizes are cut at `points`."""
    name, low, high = (axis, 1, points[-1]) if isinstance(axis, str) else (axis[0], axis[1], axis[1] * axis[2])
    yield from ((name, a, b // a) for a, b in itertools.pairwise(points) if low <= a and b <= high)


def search(problem: Problem) -> list[Move]:
    """The moves from the start to the goal that bring the fewest elements to a device, and of these the fewest."""
    count = itertools.count()
    queue: list[tuple[int, int, int, State]] = [(0, 0, next(count), problem.start)]
    best: dict[State, tuple[int, int]] = {problem.start: (0, 0)}
    came: dict[State, Move] = {}
    done: set[State] = set()
    while queue and len(done) < _MOST_STATES:
        elements, length, _, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        if state == problem.goal:
            return _path(came, problem)
        for move in filter(lambda move: problem.fits(move.before, move.after), _moves(problem, state)):
            cost = (elements + move.elements, length + 1)
            if move.after not in best or cost < best[move.after]:
                best[move.after] = cost
                came[move.after] = move
                heapq.heappush(queue, (*cost, next(count), move.after))
    return _through_whole(problem)


def _path(came: dict[State, Move], problem: Problem) -> list[Move]:
    path: list[Move] = []
    state = problem.goal
    while state != problem.start:
        path.append(came[state])
        state = came[state].before
    return path[::-1]


def _through_whole(problem: Problem) -> list[Move]:
    """The way that always works: add up, gather the dimensions that change, cut them again."""
    path: list[Move] = []
    state, goal = problem.start, problem.goal
    if rest := state.unreduced - goal.unreduced:
        path.append(_all_reduce(problem, state, rest))
        state = path[-1].after
    changed = [d for d, (old, new) in enumerate(zip(state.dims, goal.dims, strict=True)) if old != new]
    for d in changed:
        if state.dims[d]:
            path.append(_gather(problem, state, d, len(state.dims[d])))
            state = path[-1].after
    for d in changed:
        if goal.dims[d]:
            path.append(_slice(state, d, goal.dims[d]))
            state = path[-1].after
    return path


def _moves(problem: Problem, state: State) -> Iterator[Move]:
    """The moves from a state that can be of use, whether the array's sizes allow them or not."""
    goal = problem.goal
    used = state.unreduced.union(*state.dims)
    wanted = [tuple(a for a in dim if a not in state.dims[d]) for d, dim in enumerate(goal.dims)]
    for d, atoms in enumerate(state.dims):
        free = tuple(a for a in wanted[d] if a not in used)
        for k in range(1, len(free) + 1):
            yield _slice(state, d, free[:k])
        settled = atoms == goal.dims[d][: len(atoms)] and problem.shape[d] % ways(goal.dims[d]) == 0
        if not settled:
            for k in range(1, len(atoms) + 1):
                yield _gather(problem, state, d, k)
                for e in range(len(goal.dims)):
                    if e != d and set(atoms[-k:]) <= set(goal.dims[e]):
                        yield _all_to_all(problem, state, d, k, e)
        scatter = tuple(a for a in wanted[d] if a in state.unreduced)
        for k in range(1, len(scatter) + 1):
            yield _reduce_scatter(problem, state, d, scatter[:k])
    if rest := state.unreduced - goal.unreduced:
        yield _all_reduce(problem, state, rest)
        nowhere = rest - set().union(*goal.dims)
        if nowhere and nowhere != rest:
            yield _all_reduce(problem, state, nowhere)
    yield from _permutes(problem, state)


def _with(state: State, changes: dict[int, tuple[Atom, ...]], unreduced: frozenset[Atom] | None = None) -> State:
    dims = tuple(changes.get(d, atoms) for d, atoms in enumerate(state.dims))
    return State(dims, state.unreduced if unreduced is None else unreduced)


def _slice(state: State, d: int, atoms: tuple[Atom, ...]) -> Move:
    after = _with(state, {d: state.dims[d] + atoms})
    return Move(kind="slice", atoms=atoms, dimension=d, before=state, after=after)


def _gather(problem: Problem, state: State, d: int, k: int) -> Move:
    atoms, after = state.dims[d][-k:], _with(state, {d: state.dims[d][:-k]})
    elements = problem.shard(state) * (ways(atoms) - 1)
    return Move(kind="all-gather", atoms=atoms, dimension=d, before=state, after=after, elements=elements)


def _all_to_all(problem: Problem, state: State, d: int, k: int, e: int) -> Move:
    atoms = state.dims[d][-k:]
    cut = {e: state.dims[e] + atoms}
    after = _with(state, {d: state.dims[d][:-k], **cut})
    elements = problem.shard(_with(state, cut)) * (ways(atoms) - 1)  # a piece from each of the others
    return Move(kind="all-to-all", atoms=atoms, dimension=d, into=e, before=state, after=after, elements=elements)


def _reduce_scatter(problem: Problem, state: State, d: int, atoms: tuple[Atom, ...]) -> Move:
    after = _with(state, {d: state.dims[d] + atoms}, state.unreduced - set(atoms))
    elements = problem.shard(after) * (ways(atoms) - 1)
    return Move(kind="reduce-scatter", atoms=atoms, dimension=d, before=state, after=after, elements=elements)


def _all_reduce(problem: Problem, state: State, atoms: frozenset[Atom]) -> Move:
    ordered, after = problem.ordered(atoms), _with(state, {}, state.unreduced - atoms)
    elements = -(-2 * problem.shard(state) * (ways(ordered) - 1) // ways(ordered))
    return Move(kind="all-reduce", atoms=ordered, before=state, after=after, elements=elements)


def _permutes(problem: Problem, state: State) -> Iterator[Move]:
    """Exchanges of atoms that leave every dimension as many ways: to the goal, or towards it."""
    goal = problem.goal
    if all(ways(a) == ways(b) for a, b in zip(state.dims, goal.dims, strict=True)):
        if not (state.unreduced & set().union(*goal.dims)) and state.dims != goal.dims:
            yield _permute(problem, state, goal.dims)
        return
    for exchange in (False, True):
        dims = _towards(state, goal, exchange)
        if dims != state.dims:
            yield _permute(problem, state, dims)


def _permute(problem: Problem, state: State, dims: tuple[tuple[Atom, ...], ...]) -> Move:
    changed = [d for d, (old, new) in enumerate(zip(state.dims, dims, strict=True)) if old != new]
    atoms = problem.ordered({atom for d in changed for atom in (*state.dims[d], *dims[d])})
    after, elements = State(dims, state.unreduced), problem.shard(state)
    return Move(kind="collective-permute", atoms=atoms, before=state, after=after, elements=elements)


def _towards(state: State, goal: State, exchange: bool) -> tuple[tuple[Atom, ...], ...]:
    """Atoms put where the goal has them, in its order; with `exchange` also for others of the same size."""
    dims = [list(atoms) for atoms in state.dims]
    if exchange:
        for d, target in enumerate(goal.dims):
            for atom in target:
                if atom in dims[d] or atom in state.unreduced:
                    continue
                given = next((a for a in dims[d] if a not in target and a[2] == atom[2]), None)
                if given is None:
                    continue
                owner = next((e for e, atoms in enumerate(dims) if atom in atoms), None)
                if owner is not None:
                    dims[owner][dims[owner].index(atom)] = given
                dims[d][dims[d].index(given)] = atom
    for d, target in enumerate(goal.dims):
        place = {atom: i for i, atom in enumerate(target)}
        dims[d].sort(key=lambda atom, place=place: place.get(atom, len(place)))
    return tuple(tuple(atoms) for atoms in dims)
