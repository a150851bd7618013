"""How often each block of a graph runs when the program runs once.

A scan over 80 layers is one `while` whose body stands in the text once. `runs` multiplies the trip counts of all
enclosing loops:

    entry               1
      while layers      80 trips (as the text states, or counted from the condition)
        body            80
          while heads   4 trips
            body        320

A text mostly states no trip count; the count then follows from the arithmetic of the loop's counters, where they start
at constants (see `shardviz.graph.trips`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardviz.errors import ParseError
from shardviz.graph.operations import Block, Graph, Operation
from shardviz.graph.origins import KEEPS, Origins
from shardviz.graph.trips import trip_count
from shardviz.notation.bounds import MOST_CALLS

_MOST_RUNS = 1 << 63
Trips = Mapping[Operation, int | None]
"""How many trips each loop makes; None where that is not known."""


@dataclass(frozen=True)
class Runs:
    """How often a block runs in one run of the program, if each loop of unknown trip count makes one trip and each
    branch is taken; how many such loops enclose it (on the path with the most), and whether it is in a branch."""

    times: int
    unknown_loops: int = 0
    conditional: bool = False

    @property
    def count(self) -> int | None:
        """Return `times`; None if a loop's trip count is unknown."""
        return None if self.unknown_loops else self.times


def trip_counts(graph: Graph) -> Trips:
    """Return the trips of each loop that the entry reaches."""
    origins = Origins(KEEPS)
    return {
        loop: trip_count(loop, origins=origins)
        for block in _callers_first(graph.entry)
        for loop in block.operations
        if loop.kind == "while"
    }


def runs(graph: Graph, trips: Trips | None = None) -> dict[Block, Runs]:
    """Return how often each block that the entry reaches runs in one run of the program."""
    trips = trip_counts(graph) if trips is None else trips
    by_block = {graph.entry: Runs(1)}
    for block in _callers_first(graph.entry):
        outer = by_block[block]
        for operation in block.operations:
            for place, inner in enumerate(operation.blocks):
                times, unknown = 1, 0
                if operation.kind == "while":
                    trip = trips[operation]
                    times, unknown = (1, 1) if trip is None else (trip + (place == 0), 0)
                if outer.times * times > _MOST_RUNS:
                    times, unknown = 1, unknown + 1
                conditional = outer.conditional or operation.kind == "conditional"
                one, other = by_block.get(inner), Runs(outer.times * times, outer.unknown_loops + unknown, conditional)
                by_block[inner] = other if one is None else _both(one, other)
    return by_block


def heaviest_runs(
    graph: Graph, cost: Callable[[Block], float], trips: Trips, *, fused: bool = True
) -> dict[Block, int]:
    """Return how often each block runs in one run of the entry, if every conditional takes the branch with the highest
    `cost` of its block; the other branches run 0 times. A loop without `trips` makes one trip; without `fused`, fusions
    are not entered."""
    order = _callers_first(graph.entry, frozenset() if fused else frozenset(("fusion",)))
    reached = frozenset(order)
    calls: dict[Block, list[tuple[int, Block]]] = {}
    total: dict[Block, float] = {}
    for block in reversed(order):
        calls[block], total[block] = [], cost(block)
        for operation in block.operations:
            run: list[Block] = [inner for inner in operation.blocks if inner in reached]
            if operation.kind == "conditional" and run:
                run = [max(run, key=total.__getitem__)]
            trip = trips.get(operation)
            for inner in run:
                times = 1 if trip is None else trip + (inner is operation.blocks[0])
                calls[block].append((times, inner))
                total[block] += times * total[inner]
    by_block = dict.fromkeys(order, 0)
    by_block[graph.entry] = 1
    for block in order:
        for times, inner in calls[block]:
            by_block[inner] += by_block[block] * times
    return by_block


def _callers_first(entry: Block, skipped: frozenset[str] = frozenset()) -> list[Block]:
    """Return the blocks that a block reaches, each after all that call it, without entering operations of the kinds
    `skipped`."""
    order: list[Block] = []
    seen: set[Block] = set()
    stack: list[tuple[Block, bool]] = [(entry, False)]
    called: dict[Block, list[Block]] = {}
    while stack:
        block, done = stack.pop()
        if done:
            order.append(block)
            continue
        if block in seen:
            continue
        seen.add(block)
        stack.append((block, True))
        called[block] = [
            inner for each in block.operations if each.blocks and each.kind not in skipped for inner in each.blocks
        ]
        stack.extend((inner, False) for inner in called[block] if inner not in seen)
    depth = dict.fromkeys(order, 0)
    for block in reversed(order):
        for inner in called[block]:
            depth[inner] = max(depth[inner], depth[block] + 1)
    if max(depth.values()) > MOST_CALLS:
        raise ParseError(f"the program has calls within calls more than {MOST_CALLS} deep")
    return order[::-1]


def _both(one: Runs, other: Runs) -> Runs:
    unknown = max(one.unknown_loops, other.unknown_loops)
    return Runs(one.times + other.times, unknown, one.conditional and other.conditional)
