"""The collectives that take an array from one sharding to another, in named mesh axes: a search for the cheapest.

Shardings are written as axes, or parts of axes, on dimensions; a collective moves some of them. Among all sequences of
such moves the one is taken that brings the fewest elements to a device:

| kind | what it does to the axes | elements that a device receives, of a shard of s, over n devices |
|---|---|---|
| `slice` | puts axes that hold copies behind a dimension's | 0 |
| `all-gather` | takes a dimension's last axes away | s (n - 1) |
| `all-to-all` | moves dimensions' last axes behind others' | s (n - 1) / n |
| `collective-permute` | exchanges axes, every dimension as many ways as before | s |
| `reduce-scatter` | puts unreduced axes behind a dimension's | s (n - 1) / n |
| `all-reduce` | adds up over unreduced axes | 2 s (n - 1) / n |

Where a dimension does not divide, tiles of one sharding may lie across those of the next. Such a step has its
neighbours' edges sent along (a halo exchange, which XLA makes of collective-permutes): a device receives what it needs
and does not have.

XLA's partitioner may choose another way; this one is a good one, and exact. Axes that neither sharding has are left
alone: to cut along them on the way and gather at the end could bring a device fewer elements still.

Axes are broken into atoms, parts of prime size, so that both specs are made of the same ones: going from `x` of size 8
to its part `x:(1)2`, the atoms are `x:(1)2`, `x:(2)2` and `x:(4)2`. A state says which atoms cut which dimension, major
to minor, and which are unreduced. The search is A*: no way brings a device less than what it lacks at the end. Two
searches look one after the other. The first follows the goal's own axes and is quick; if what it finds is no more than
a device lacks at the start, there is nothing better. Else the second tries all moves, first in haste, then all those
that could come to less. Where there are too many to try, a way may not be the cheapest, and says so: `Way.proved`.

>>> mesh = DeviceMesh.of({"x": 8, "y": 2})
>>> problem = problem_of((16, 16), Spec.of(("x", "y")), Spec.of(("y", "x")), mesh)
>>> way = search(problem)
>>> [move.kind for move in way.moves], way.proved
(['all-to-all', 'collective-permute'], True)
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from shardviz.kept import cached_property
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
        parts: of an all-to-all, all that it moves: (axes, the dimension that they are taken from, the one that they are
            put on). Of several parts `dimension` and `into` are None.
        before, after: the spec before and after it; None where no spec says it.
        elements: elements that a device receives, at most; padding counts, but not where `edges` is set.
        edges: the tiles before and after lie across each other, so that neighbours' edges are sent along.
    """

    kind: str
    axes: tuple[Axis, ...] | None = None
    dimension: int | None = None
    into: int | None = None
    parts: tuple[tuple[tuple[Axis, ...], int, int], ...] = ()
    before: Spec | None
    after: Spec | None
    elements: int = 0
    edges: bool = False

    def __str__(self) -> str:
        over = f" over {' '.join(map(axis_text, self.axes))}" if self.axes else ""
        done = {
            "slice": "is cut",
            "all-gather": "becomes whole" if self.after and not self._left() else "is gathered",
            "collective-permute": "is cut",
            "all-to-all": "becomes whole" if self.after and not self._left() else "is gathered",
            "reduce-scatter": "is added up and cut" if self._sums() else "is reduced and cut",
        }.get(self.kind, "")
        what = f": dimension {self.dimension} {done}" if self.dimension is not None else ""
        what += f", dimension {self.into} is cut" if self.into is not None else ""
        if len(self.parts) > 1:
            moved = (f"{' '.join(map(axis_text, part))} from dimension {d} to {e}" for part, d, e in self.parts)
            what = f": {', '.join(moved)}"
        what += ", with its neighbours' edges" if self.edges else ""
        way = f"; {self.before or 'no spec'} → {self.after or 'no spec'}"
        return f"{self.kind}{over}{what}{way}; {self.elements} elements"

    def _sums(self) -> bool:
        return self.before is None or self.before.unreduced_kind == "sum"

    def _left(self) -> tuple[Axis, ...]:
        return self.after.dims[self.dimension] if self.after and self.dimension is not None else ()


@dataclass(frozen=True)
class Steps:
    """The steps from one layout to another.

    Attributes:
        steps: in order.
        proved: whether no others bring a device fewer elements; False where there were too many to try.
    """

    steps: tuple[Step, ...]
    proved: bool


def steps_between(before: Layout, after: Layout) -> Steps:
    """The steps from one layout to another, whose rows are in the same order of devices."""
    problem = None
    if same_places(before.mesh, after.mesh) and before.spec is not None and after.spec is not None:
        problem = problem_of(before.shape, before.spec, after.spec, before.mesh)
    if problem is None:
        steps = tuple(_unnamed(before, after))
        low, high = np.maximum(before.starts, after.starts), np.minimum(before.stops, after.stops)
        kept = np.prod(np.maximum(high - low, 0), axis=1, dtype=np.int64) * (before.holds & after.holds)
        least = int((after.elements - kept * (before.partial_sums == after.partial_sums)).max(initial=0))
        return Steps(steps, sum(step.elements for step in steps) <= least)
    way = search(problem)
    return Steps(tuple(_step(way.problem, move) for move in way.moves), way.proved)


def _step(problem: Problem, move: Move) -> Step:
    parts = tuple((problem.axes(atoms), d, e) for atoms, d, e in move.parts)
    one = move.parts[0] if len(move.parts) == 1 else None
    return Step(
        kind=move.kind,
        axes=problem.axes(move.atoms),
        dimension=one[1] if one else move.dimension,
        into=one[2] if one else None,
        parts=parts,
        before=problem.spec(move.before),
        after=problem.spec(move.after),
        elements=move.elements,
        edges=move.edges,
    )


def _unnamed(before: Layout, after: Layout) -> list[Step]:
    """The way where axes do not tell it: through the tiles alone."""
    steps: list[Step] = []
    here, size = before.spec, int(np.prod(before.shape, dtype=np.int64))
    shard = int(np.prod(before.shard_shape, dtype=np.int64))
    if before.partial_sums != after.partial_sums:
        n = before.partial_sums // after.partial_sums
        axes = tuple(a for a in before.unreduced if a not in after.unreduced)
        summed = Spec(here.dims, after.unreduced, (), after.unreduced_kind) if here is not None else None
        elements = -(-2 * shard * (n - 1) // n)
        steps.append(Step(kind="all-reduce", axes=axes or None, before=here, after=summed, elements=elements))
        here = summed
    same = (before.starts == after.starts).all(axis=1) & (before.stops == after.stops).all(axis=1)
    if (same & (before.holds == after.holds)).all():
        return steps
    whole = Spec(((),) * len(before.shape), after.unreduced, (), after.unreduced_kind)
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


@dataclass(frozen=True)
class Way:
    """What a search found.

    Attributes:
        problem: the problem, whose atoms the moves are of.
        moves: the moves from the start to the goal.
        proved: whether no sequence of moves brings a device fewer elements; else there were too many to try.
        tried: the moves that were looked at.
    """

    problem: Problem
    moves: tuple[Move, ...]
    proved: bool
    tried: int = 0

    @property
    def elements(self) -> int:
        """Elements that a device receives on the whole way."""
        return sum(move.elements for move in self.moves)


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


_QUICK, _ALL = 1500, 60_000
"""The most moves that each of the two searches looks at."""
_WORK = 3 << 23
"""The most moves x devices of the second."""
_MANY = 8192
"""Above so many devices whole axes alone are moved, unless that is no way."""


def search(problem: Problem) -> Way:
    """The moves from the start to the goal that bring the fewest elements to a device, and of these the fewest.

    Of a mesh of many devices fewer moves are tried, as each takes longer.
    """
    most = min(_ALL, _WORK // problem.mesh.size)
    large = problem.mesh.size > _MANY
    found = [_astar(one, _towards_goal, _QUICK, None) for one in (problem.coarse, *(() if large else (problem,)))]
    known = [*(way for way in found if way is not None), Way(problem, tuple(_through_whole(problem)), proved=False)]
    best = min(known, key=lambda way: (way.elements, len(way.moves)))
    if best.elements == problem.lacks(problem.start):
        return replace(best, proved=True)
    if large and best.moves:
        return replace(best, proved=False)
    hasty = _astar(problem, _every, min(_QUICK, most), best.elements, haste=2)
    best = hasty if hasty is not None and hasty.moves else best
    whole = _astar(problem, _every, most, best.elements)
    if whole is None:
        return replace(best, proved=False, tried=most)
    return replace(whole if whole.moves else best, proved=True, tried=whole.tried)


Open = State | tuple[frozenset[Atom], tuple[int, ...]]
"""Of an all-to-all that may still take more along, all that its cost depends on besides where it has come to: the state
before it; where every dimension divides, the atoms moved and into how many tiles each dimension was cut before.
"""

Node = tuple[State, Open | None]
"""A state, and where it is in the middle of an all-to-all, what that began with."""


def _astar(
    problem: Problem,
    moves: Callable[[Problem, State], Iterator[Move]],
    most: int,
    limit: int | None,
    haste: int = 0,
) -> Way | None:
    """The cheapest way by some kind of moves.

    Args:
        problem: the problem.
        moves: gives the moves from a state.
        most: the most moves to look at.
        limit: what a way that is known already costs; None for none.
        haste: above 0, states near the goal go first: the way is found sooner, and need not be the cheapest.

    Returns:
        The way; without moves where there is none cheaper than `limit`; None where there were too many moves.
    """
    count = itertools.count()
    start: Node = problem.start, None
    best: dict[Node, tuple[int, int]] = {start: (0, 0)}
    came: dict[Node, Move] = {}
    lows: dict[Node, int] = {start: problem.lacks(problem.start)}
    queue: list[tuple[int, int, int, Node]] = [(problem.lacks(problem.start), 0, next(count), start)]
    done: set[Node] = set()
    permuted: dict[tuple[Any, ...], int] = {}
    uneven = any(size % ways(problem.atoms) for size in problem.shape)
    tried = 0

    def reach(node: Node, cost: tuple[int, int], least: int, move: Move) -> None:
        if (limit is not None and least >= limit) or (node in best and cost >= best[node]):
            return
        best[node], came[node], lows[node] = cost, move, least
        heapq.heappush(queue, (least + haste * (least - cost[0]), cost[1], next(count), node))

    def opening(move: Move) -> Open:
        return move.before if uneven else (frozenset(move.atoms), tuple(map(ways, move.before.dims)))

    def atleast(least: int, cost: tuple[int, int], move: Move) -> int:
        """What a way comes to that takes more along: as much at least, but across tiles' edges more may be less."""
        return least if move.edges or uneven else max(least, cost[0])

    while queue:
        _, _, _, node = heapq.heappop(queue)
        if node in done:
            continue
        done.add(node)
        state, opened = node
        if state == problem.goal and opened is None:
            return Way(problem, _path(came, node, problem), True, tried)
        if tried >= most:
            return None
        elements, length = best[node]
        least = lows[node]
        if opened is not None:  # only more of the same all-to-all
            so_far = came[node]
            for move in _all_to_alls(problem, state):
                tried += 1
                if set(so_far.atoms).isdisjoint(move.atoms) and (joint := _joint(problem, so_far, move)) is not None:
                    cost = elements - so_far.elements + joint.elements, length
                    reach((joint.after, None), cost, cost[0] + problem.lacks(joint.after), joint)
                    reach((joint.after, opening(joint)), cost, atleast(least, cost, joint), joint)
            continue
        for move in moves(problem, state):
            tried += 1
            cost = elements + move.elements, length + 1
            reach((move.after, None), cost, cost[0] + problem.lacks(move.after), move)
            if move.kind == "all-to-all" and len(problem.shape) > 1 and moves is _every:
                reach((move.after, opening(move)), cost, atleast(least, cost, move), move)
        if moves is _every:
            kind = (tuple(map(ways, state.dims)), state.unreduced)
            # All permutes of one kind cost the same: they start from the first state of it, and from a cheaper one
            # that has more to go and comes later.
            if kind not in permuted or elements < permuted[kind]:
                permuted[kind] = elements
                shard = problem.shard(state)
                if limit is None or elements + shard < limit:
                    same_sums = state.unreduced == problem.goal.unreduced
                    for dims in _rearranged(problem, state):
                        tried += 1
                        if tried >= most:
                            return None
                        least = elements + shard + (problem.lacks_of(dims) if same_sums else problem.lacks(state))
                        if limit is None or least < limit:
                            move = _permute(problem, state, dims)
                            reach((move.after, None), (elements + shard, length + 1), least, move)
    return Way(problem, (), True, tried)


def _path(came: dict[Node, Move], node: Node, problem: Problem) -> tuple[Move, ...]:
    """The moves that lead to a node, slices and gathers of one dimension that follow each other as one."""
    path: list[Move] = []
    while node in came:
        path.append(came[node])
        node = path[-1].before, None
    joined: list[Move] = []
    for move in reversed(path):
        last = joined[-1] if joined else None
        same = last is not None and last.kind == move.kind and last.dimension == move.dimension
        if last is not None and same and move.kind == "slice":
            joined[-1] = replace(last, atoms=last.atoms + move.atoms, after=move.after)
        elif last is not None and same and move.kind == "all-gather" and not (last.edges or move.edges):
            both = move.atoms + last.atoms
            joined[-1] = replace(last, atoms=both, after=move.after, elements=last.elements + move.elements)
        else:
            joined.append(move)
    return tuple(joined)


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
            path.append(_slice(problem, state, d, goal.dims[d]))
            state = path[-1].after
    return path


def _every(problem: Problem, state: State) -> Iterator[Move]:
    """Every move from a state but permutes, those of atoms one by one where several are the same in a row."""
    used = state.unreduced.union(*state.dims)
    free = tuple(atom for atom in problem.atoms if atom not in used)
    for d, atoms in enumerate(state.dims):
        divides = problem.shape[d] % ways(atoms + free) == 0  # else the tiles in between may not fit
        for many in range(1, 1 + (min(1, len(free)) if divides else len(free))):
            for some in itertools.permutations(free, many):
                yield _slice(problem, state, d, some)
        for atom in problem.atoms:
            if atom in state.unreduced and atom not in problem.goal.unreduced:
                after = _with(state, {d: (*atoms, atom)})
                if problem.nested(d, atoms, after.dims[d]):
                    yield _reduce_scatter(problem, state, d, (atom,))
        for k in range(1, len(atoms) + 1):
            yield _gather(problem, state, d, k)
    yield from _all_to_alls(problem, state)
    yield from _sums(problem, state)


def _all_to_alls(problem: Problem, state: State) -> Iterator[Move]:
    for d, atoms in enumerate(state.dims):
        for k in range(1, len(atoms) + 1):
            for e in range(len(state.dims)):
                if e != d:
                    yield _all_to_all(problem, state, d, k, e)


def _sums(problem: Problem, state: State) -> Iterator[Move]:
    if rest := state.unreduced - problem.goal.unreduced:
        yield _all_reduce(problem, state, rest)
        nowhere = rest - set().union(*problem.goal.dims)
        if nowhere and nowhere != rest:
            yield _all_reduce(problem, state, nowhere)


def _rearranged(problem: Problem, state: State) -> Iterator[Dims]:
    """Every way to cut each dimension into as many tiles by other atoms."""
    free = [atom for atom in problem.atoms if atom not in state.unreduced]
    wanted = tuple(map(ways, state.dims))

    def fill(d: int, left: int, dims: Dims, used: frozenset[Atom]) -> Iterator[Dims]:
        if left == 1:
            if d + 1 == len(wanted):
                yield dims
            else:
                yield from fill(d + 1, wanted[d + 1], (*dims, ()), used)
            return
        for atom in free:
            if atom not in used and left % atom[2] == 0:
                yield from fill(d, left // atom[2], (*dims[:-1], (*dims[-1], atom)), used | {atom})

    if wanted:
        yield from (dims for dims in fill(0, wanted[0], ((),), frozenset()) if dims != state.dims)


def _towards_goal(problem: Problem, state: State) -> Iterator[Move]:
    """The moves that follow the goal's axes, or cut as finely as it does by others, which a permute then exchanges."""
    goal = problem.goal
    used = state.unreduced.union(*state.dims)
    idle = [atom for atom in problem.atoms if atom not in used and any(atom in dim for dim in goal.dims)]
    wanted = [tuple(a for a in dim if a not in state.dims[d]) for d, dim in enumerate(goal.dims)]
    for d, atoms in enumerate(state.dims):
        free = tuple(a for a in wanted[d] if a not in used)
        for k in range(1, len(free) + 1):
            yield _slice(problem, state, d, free[:k])
        short = ways(goal.dims[d]) // ways(atoms) if ways(goal.dims[d]) % ways(atoms) == 0 else 1
        for atom in idle:
            if short % atom[2] == 0 and atom not in free[:1]:
                yield _slice(problem, state, d, (atom,))
        if atoms != goal.dims[d][: len(atoms)]:
            for k in range(1, len(atoms) + 1):
                yield _gather(problem, state, d, k)
                for e in range(len(goal.dims)):
                    if e != d and set(atoms[-k:]) <= set(goal.dims[e]):
                        yield _all_to_all(problem, state, d, k, e)
        scatter = tuple(a for a in wanted[d] if a in state.unreduced)
        for k in range(1, len(scatter) + 1):
            if problem.nested(d, atoms, atoms + scatter[:k]):
                yield _reduce_scatter(problem, state, d, scatter[:k])
    yield from _sums(problem, state)
    if all(ways(a) == ways(b) for a, b in zip(state.dims, goal.dims, strict=True)):
        if not (state.unreduced & set().union(*goal.dims)) and state.dims != goal.dims:
            yield _permute(problem, state, goal.dims)
        return
    for dims in {_towards(state, goal, exchange, leaving) for exchange in (False, True) for leaving in (False, True)}:
        if dims != state.dims:
            yield _permute(problem, state, dims)


def _with(state: State, changes: dict[int, tuple[Atom, ...]], unreduced: frozenset[Atom] | None = None) -> State:
    dims = tuple(changes.get(d, atoms) for d, atoms in enumerate(state.dims))
    return State(dims, state.unreduced if unreduced is None else unreduced)


def _slice(problem: Problem, state: State, d: int, atoms: tuple[Atom, ...]) -> Move:
    after = _with(state, {d: state.dims[d] + atoms})
    if problem.nested(d, state.dims[d], after.dims[d]):
        return Move(kind="slice", atoms=atoms, dimension=d, before=state, after=after)
    elements = problem.missing(state.dims, after.dims)
    kind = "collective-permute" if elements else "slice"
    return Move(kind=kind, atoms=atoms, dimension=d, before=state, after=after, elements=elements, edges=bool(elements))


def _gather(problem: Problem, state: State, d: int, k: int) -> Move:
    atoms, after = state.dims[d][-k:], _with(state, {d: state.dims[d][:-k]})
    edges = not problem.nested(d, after.dims[d], state.dims[d])
    elements = problem.missing(state.dims, after.dims) if edges else problem.shard(state) * (ways(atoms) - 1)
    return Move(kind="all-gather", atoms=atoms, dimension=d, before=state, after=after, elements=elements, edges=edges)


def _all_to_all(problem: Problem, state: State, d: int, k: int, e: int) -> Move:
    atoms = state.dims[d][-k:]
    after = _with(state, {d: state.dims[d][:-k], e: state.dims[e] + atoms})
    return _exchange(problem, state, after, ((atoms, d, e),))


def _exchange(problem: Problem, before: State, after: State, parts: tuple[Part, ...]) -> Move:
    """The all-to-all of some parts."""
    atoms = tuple(atom for moved, _, _ in parts for atom in moved)
    touched = {d for _, one, other in parts for d in (one, other)}
    edges = not all(problem.nested(d, *sorted((before.dims[d], after.dims[d]), key=ways)) for d in touched)
    if edges:
        elements = problem.missing(before.dims, after.dims)
    else:
        # a piece from each of the others: every dimension cut as finely as before or after
        finest = (max(old, new, key=ways) for old, new in zip(before.dims, after.dims, strict=True))
        elements = math.prod(problem.tile(d, dim) for d, dim in enumerate(finest)) * (ways(atoms) - 1)
    return Move(kind="all-to-all", atoms=atoms, parts=parts, before=before, after=after, elements=elements, edges=edges)


def _joint(problem: Problem, first: Move, second: Move) -> Move | None:
    """Two all-to-alls of other atoms as one; None where a dimension that one cuts is gathered by the other."""
    parts = first.parts + second.parts
    if {d for _, d, _ in parts} & {e for _, _, e in parts}:
        return None
    return _exchange(problem, first.before, second.after, parts)


def _reduce_scatter(problem: Problem, state: State, d: int, atoms: tuple[Atom, ...]) -> Move:
    after = _with(state, {d: state.dims[d] + atoms}, state.unreduced - set(atoms))
    elements = problem.shard(after) * (ways(atoms) - 1)
    return Move(kind="reduce-scatter", atoms=atoms, dimension=d, before=state, after=after, elements=elements)


def _all_reduce(problem: Problem, state: State, atoms: frozenset[Atom]) -> Move:
    ordered, after = problem.ordered(atoms), _with(state, {}, state.unreduced - atoms)
    elements = -(-2 * problem.shard(state) * (ways(ordered) - 1) // ways(ordered))
    return Move(kind="all-reduce", atoms=ordered, before=state, after=after, elements=elements)


def _permute(problem: Problem, state: State, dims: Dims) -> Move:
    changed = [d for d, (old, new) in enumerate(zip(state.dims, dims, strict=True)) if old != new]
    atoms = problem.ordered({atom for d in changed for atom in (*state.dims[d], *dims[d])})
    after, elements = State(dims, state.unreduced), problem.shard(state)
    return Move(kind="collective-permute", atoms=atoms, before=state, after=after, elements=elements)


def _towards(state: State, goal: State, exchange: bool, leaving: bool) -> Dims:
    """Atoms put where the goal has them, in its order.

    Args:
        state, goal: the states.
        exchange: also for others of the same size.
        leaving: behind those that stay, first those that the goal has nowhere, then those that go to other dimensions.
    """
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
        going = set().union(*goal.dims) if leaving else set[Atom]()
        dims[d].sort(key=lambda atom, place=place, going=going: place.get(atom, len(place) + (atom in going)))
    return tuple(tuple(atoms) for atoms in dims)
