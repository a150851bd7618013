"""The order of work on the stages of a pipeline: `F2` is microbatch 2's forward pass, `B2` its backward pass.

>>> print(Schedule.of([["F0", "F1", "B0", "B1"]] * 2, stages=2, micro=2).drawn)
stage 0  F0 F1 .  .  B0 B1
stage 1  .  F0 F1 B0 B1 .
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule, turn by turn; in a turn each stage does one piece of work, or waits.

    Attributes:
        grid: stage → the work in each turn; empty for a turn in which the stage waits.
        kept: the most microbatches whose activations one stage keeps at once, until their backward pass.
        problem: why the schedule cannot run, one sentence; empty if it can.
    """

    grid: tuple[tuple[str, ...], ...] = ()
    kept: int = 0
    problem: str = ""

    @classmethod
    def of(cls, orders: Sequence[Sequence[str]], *, stages: int, micro: int) -> Schedule:
        """Run each stage's work in its order, each piece in the first turn in which its inputs are there."""
        wanted = {f"{way}{number}" for way in "FB" for number in range(micro)}
        for stage, order in enumerate(orders):
            works = f"; the work is F0 to F{micro - 1}, B0 to B{micro - 1}"
            wrong = (
                *(f"has {work!r}{works}" for work in order if work not in wanted),
                *(f"never does {work}" for work in sorted(wanted - set(order))),
                *(f"does {work} twice" for work in order if order.count(work) > 1),
            )
            if wrong:
                return cls(problem=f"Stage {stage} {wrong[0]}.")
        left, grid = [list(order) for order in orders], [[] for _ in orders]
        done: set[tuple[int, str]] = set()
        while any(left):
            missing = {s: _inputs(s, order[0], stages) - done for s, order in enumerate(left) if order}
            turn = {stage: left[stage].pop(0) for stage, inputs in missing.items() if not inputs}
            if not turn:
                stage, inputs = next(iter(missing.items()))
                return cls(
                    problem=f"Deadlock in turn {len(grid[0])}: stage {stage} waits with {left[stage][0]} for "
                    f"{min(inputs)[1]} of stage {min(inputs)[0]}, and no stage can go on."
                )
            for stage, row in enumerate(grid):
                row.append(turn.get(stage, ""))
            done |= turn.items()
        signs = ([1 if work[0] == "F" else -1 for work in order] for order in orders)
        return cls(grid=tuple(map(tuple, grid)), kept=max(max(itertools.accumulate(each)) for each in signs))

    @property
    def turns(self) -> int:
        """Number of turns."""
        return len(self.grid[0]) if self.grid else 0

    @property
    def drawn(self) -> str:
        """The schedule as text: a line per stage, a column per turn."""
        lines = (f"stage {s}  " + " ".join(f"{work or '.':2}" for work in row) for s, row in enumerate(self.grid))
        return "\n".join(line.rstrip() for line in lines)


def _inputs(stage: int, work: str, stages: int) -> set[tuple[int, str]]:
    """Return the (stage, work) that must be done before."""
    if work[0] == "F":
        return {(stage - 1, work)} if stage else set()
    return {(stage, f"F{work[1:]}")} | ({(stage + 1, work)} if stage < stages - 1 else set())
