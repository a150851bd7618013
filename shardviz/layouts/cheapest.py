"""The search for the cheapest sequence of collectives between two shardings.

The search is A*: no way brings a device less than what it lacks at the end. Two searches look one after the other. The
first follows the goal's own axes and is quick; if what it finds is no more than a device lacks at the start, there is
nothing better. Else the second tries all moves, first in haste, then all those that could come to less. Where there are
too many to try, a way may not be the cheapest, and says so: `Way.proved`.

>>> from shardviz.layouts.problem import problem_of
>>> from shardviz.notation import DeviceMesh, Spec
>>> mesh = DeviceMesh.of({"x": 8, "y": 2})
>>> problem = problem_of((16, 16), Spec.of(("x", "y")), Spec.of(("y", "x")), mesh)
>>> way = search(problem)
>>> [move.kind for move in way.moves], way.proved
(['all-to-all', 'collective-permute'], True)
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from shardviz.layouts.problem import Atom, Move, Problem, State, ways
from shardviz.layouts.successors import all_to_alls, every, joint, permute, rearranged, through_whole, towards_goal


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
    found = [_astar(one, towards_goal, _QUICK, None) for one in (problem.coarse, *(() if large else (problem,)))]
    known = [*(way for way in found if way is not None), Way(problem, tuple(through_whole(problem)), proved=False)]
    best = min(known, key=lambda way: (way.elements, len(way.moves)))
    if best.elements == problem.lacks(problem.start):
        return replace(best, proved=True)
    if large and best.moves:
        return replace(best, proved=False)
    hasty = _astar(problem, every, min(_QUICK, most), best.elements, haste=2)
    best = hasty if hasty is not None and hasty.moves else best
    whole = _astar(problem, every, most, best.elements)
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
            for move in all_to_alls(problem, state):
                tried += 1
                if set(so_far.atoms).isdisjoint(move.atoms) and (both := joint(problem, so_far, move)) is not None:
                    cost = elements - so_far.elements + both.elements, length
                    reach((both.after, None), cost, cost[0] + problem.lacks(both.after), both)
                    reach((both.after, opening(both)), cost, atleast(least, cost, both), both)
            continue
        for move in moves(problem, state):
            tried += 1
            cost = elements + move.elements, length + 1
            reach((move.after, None), cost, cost[0] + problem.lacks(move.after), move)
            if move.kind == "all-to-all" and len(problem.shape) > 1 and moves is every:
                reach((move.after, opening(move)), cost, atleast(least, cost, move), move)
        if moves is every:
            kind = (tuple(map(ways, state.dims)), state.unreduced)
            # All permutes of one kind cost the same: they start from the first state of it, and from a cheaper one
            # that has more to go and comes later.
            if kind not in permuted or elements < permuted[kind]:
                permuted[kind] = elements
                shard = problem.shard(state)
                if limit is None or elements + shard < limit:
                    same_sums = state.unreduced == problem.goal.unreduced
                    for dims in rearranged(problem, state):
                        tried += 1
                        if tried >= most:
                            return None
                        least = elements + shard + (problem.lacks_of(dims) if same_sums else problem.lacks(state))
                        if limit is None or least < limit:
                            move = permute(problem, state, dims)
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
