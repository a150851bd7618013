"""The moves that a search for the cheapest reshard tries: all from a state, or those that follow the goal's axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from shardviz.layouts.problem import Atom, Dims, Move, Part, Problem, State, ways


def through_whole(problem: Problem) -> list[Move]:
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


def every(problem: Problem, state: State) -> Iterator[Move]:
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
    yield from all_to_alls(problem, state)
    yield from _sums(problem, state)


def all_to_alls(problem: Problem, state: State) -> Iterator[Move]:
    """Every all-to-all from a state that moves the last atoms of one dimension to another."""
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


def rearranged(problem: Problem, state: State) -> Iterator[Dims]:
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


def towards_goal(problem: Problem, state: State) -> Iterator[Move]:
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
            yield permute(problem, state, goal.dims)
        return
    for dims in {_towards(state, goal, exchange, leaving) for exchange in (False, True) for leaving in (False, True)}:
        if dims != state.dims:
            yield permute(problem, state, dims)


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


def joint(problem: Problem, first: Move, second: Move) -> Move | None:
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


def permute(problem: Problem, state: State, dims: Dims) -> Move:
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
