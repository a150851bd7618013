"""The turns of a pipeline schedule: each stage's order of work, run as soon as its inputs are there.

`F2` is the forward pass of microbatch 2, `B2` its backward pass. In a turn a stage does one piece of work, or waits.

>>> print(drawn(scheduled([["F0", "F1", "B0", "B1"]] * 2, 2)))
stage 0  F0 F1 .  .  B0 B1
stage 1  .  F0 F1 B0 B1 .
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shardviz.errors import ShardvizError, excerpt


def scheduled(orders: Sequence[Sequence[str]], micro: int) -> list[list[str]]:
    """Return stage → its work in each turn (empty for a turn in which the stage waits) of `micro` microbatches.

    Args:
        orders: stage → the order of its work.
        micro: the number of microbatches.

    Raises:
        ShardvizError: if an order is no list of work, or does not have each piece once; for a deadlock.
    """
    wanted = {f"{way}{number}" for way in "FB" for number in range(micro)}
    stages = len(orders)
    for stage, order in enumerate(orders):
        if not isinstance(order, list | tuple) or not all(isinstance(work, str) for work in order):
            got = excerpt(repr(order))
            raise ShardvizError(f"Stage {stage}: the function returns {got}, expected a list such as ['F0', 'B0'].")
        wrong = (
            *(f"has {w!r}; the work is F0 to F{micro - 1}, B0 to B{micro - 1}" for w in order if w not in wanted),
            *(f"never does {work}" for work in sorted(wanted - set(order))),
            *(f"does {work} twice" for work in order if order.count(work) > 1),
        )
        if wrong:
            raise ShardvizError(f"Stage {stage} {wrong[0]}.")
    left, done, grid = [list(order) for order in orders], set(), [[] for _ in orders]
    while any(left):
        missing = {stage: _needs(stage, order[0], stages) - done for stage, order in enumerate(left) if order}
        turn = {stage: left[stage].pop(0) for stage, inputs in missing.items() if not inputs}
        if not turn:
            stage, inputs = next(iter(missing.items()))
            raise ShardvizError(
                f"Deadlock in turn {len(grid[0])}: stage {stage} waits with {left[stage][0]} for "
                f"{min(inputs)[1]} of stage {min(inputs)[0]}, and no stage can go on."
            )
        for stage, row in enumerate(grid):
            row.append(turn.get(stage, ""))
        done |= turn.items()
    return grid


def _needs(stage: int, work: str, stages: int) -> set[tuple[int, str]]:
    """Return the (stage, work) that must be done before."""
    if work[0] == "F":
        return {(stage - 1, work)} if stage else set()
    return {(stage, f"F{work[1:]}")} | ({(stage + 1, work)} if stage < stages - 1 else set())


def most_kept(grid: Sequence[Sequence[str]]) -> int:
    """Return the most microbatches whose activations one stage keeps at once, until their backward pass."""
    changes = ([{"F": 1, "B": -1}.get(work[:1], 0) for work in row] for row in grid)
    return max(max(itertools.accumulate(each)) for each in changes)


def drawn(grid: Sequence[Sequence[str]]) -> str:
    """Return a schedule as text: a line per stage, a column per turn."""
    lines = (f"stage {s}  " + " ".join(f"{work or '.':2}" for work in row) for s, row in enumerate(grid))
    return "\n".join(line.rstrip() for line in lines)
