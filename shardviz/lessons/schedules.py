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
            if strange := [work for work in order if work not in wanted]:
                return cls(
                    problem=f"Stage {stage} has {strange[0]!r}; the work is F0 to F{micro - 1}, B0 to B{micro - 1}."
                )
            if missing := sorted(wanted - set(order)):
                return cls(problem=f"Stage {stage} never does {missing[0]}.")
            if len(order) > len(wanted):
                twice = next(work for work in order if order.count(work) > 1)
                return cls(problem=f"Stage {stage} does {twice} twice.")
        done: set[tuple[int, str]] = set()
        at, grid = [0] * stages, [[] for _ in range(stages)]
        while any(place < 2 * micro for place in at):
            ready = [
                stage
                for stage in range(stages)
                if at[stage] < 2 * micro and _inputs(stage, orders[stage][at[stage]], stages) <= done
            ]
            if not ready:
                stage = next(s for s in range(stages) if at[s] < 2 * micro)
                work = orders[stage][at[stage]]
                waits = min(_inputs(stage, work, stages) - done)
                return cls(
                    problem=f"Deadlock in turn {len(grid[0])}: stage {stage} waits with {work} for {waits[1]} of stage "
                    f"{waits[0]}, and no stage can go on."
                )
            for stage in range(stages):
                grid[stage].append(orders[stage][at[stage]] if stage in ready else "")
            for stage in ready:
                done.add((stage, orders[stage][at[stage]]))
                at[stage] += 1
        return cls(grid=tuple(map(tuple, grid)), kept=max(map(_kept, orders)))

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


def _kept(order: Sequence[str]) -> int:
    return max(itertools.accumulate((1 if work[0] == "F" else -1 for work in order), initial=0))
