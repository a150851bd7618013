"""What a candidate costs, and about how much memory it takes: from Shardy's propagation and the cost model alone.

A `Scorer` makes a `Score` of a plan in little more than the time of Shardy's passes. What nobody reads of a report is
not built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardviz.ask.program import Program, sketch
from shardviz.costs import Machine
from shardviz.costs.step_cost import Needs, StepCost, cost_of, flops_by_dtype
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.program.lower import LowerFor
from shardviz.program.plan import Plan
from shardviz.records.collectives import axes_words
from shardviz.records.values import on_device

_HIDDEN = 0.02
"""The share of communication that counts though the walk hides it: of two steps as long, that with less is better."""
_TOO_MUCH = 10.0
"""By how much of its time a step is judged longer for each share of the memory that it takes too much."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """Collectives of one kind over the same axes: seconds and operand bytes of one device in a step."""

    kind: str
    axes: str
    seconds: float
    bytes: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a plan costs.

    Attributes:
        seconds: of a step, by a walk of its schedule as it is propagated; candidates are ranked by it.
        compute, memory: seconds of matrix products, and of reading and writing memory.
        moved: what is communicated, the longest first; what is of unknown time or count is left out.
        needs: the memory that one device needs, an estimate.
    """

    seconds: float
    compute: float
    memory: float
    moved: tuple[Moved, ...]
    needs: Needs

    @property
    def over(self) -> float:
        """The share of the memory that is too much, as the estimate stands; 0 where it fits."""
        return self._over(1.0)

    @property
    def rank(self) -> float:
        """What is made least: the seconds, a little for communication, and more for what takes too much memory."""
        return self.rank_at(1.0)

    def rank_at(self, higher: float) -> float:
        """The rank if so many times the memory is needed as is estimated."""
        over, seconds = self._over(higher), self.seconds + _HIDDEN * self.communication
        return seconds * (1 + _TOO_MUCH * over) + (seconds if over else 0.0)

    def _over(self, higher: float) -> float:
        return 0.0 if self.needs.usable is None else max(0.0, self.needs.total * higher / self.needs.usable - 1)

    @property
    def communication(self) -> float:
        return sum(m.seconds for m in self.moved)


def score_of(cost: StepCost) -> Score:
    """The score of a step whose cost is known."""
    moved = []
    for total in cost.by("kind_axes"):
        one, size = total.collectives[0], sum(c.assumed_bytes for c in total.collectives)
        moved.append(Moved(kind=one.kind, axes=axes_words(one.axes), seconds=total.assumed_seconds, bytes=size))
    return Score(
        seconds=cost.step.seconds,
        compute=cost.step.compute,
        memory=cost.step.memory,
        moved=tuple(sorted(moved, key=lambda m: -m.seconds)),
        needs=cost.needs,
    )


@dataclass
class Scorer:
    """Scores plans of a program on a machine.

    Attributes:
        lowered_for: what it is lowered for.
    """

    program: Program
    machine: Machine
    lowered_for: LowerFor

    def __call__(self, plan: Plan) -> Score:
        """The score of a plan. Raises ShardvizError if the plan does not fit the program, or Shardy refuses it."""
        return score_of(cost_of(sketch(self.program, plan, self.lowered_for), self.machine, tokens=False))


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What no plan of this program can go below on this machine, in seconds.

    Attributes:
        compute: the program's FLOPs, shared evenly, at the chips' peak.
        memory: every argument read once and every output written once, shared evenly, at the memories' rate.
    """

    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        """The longer of compute and memory: no step of the program is shorter, whatever the plan."""
        return max(self.compute, self.memory)


def floor_of(scorer: Scorer, axes: Sequence[str]) -> Floor | None:
    """The program on one device, on a mesh with these axes, shared evenly among all; None where it cannot be propagated
    there."""
    try:
        alone = Plan(DeviceMesh(tuple(axes), (1,) * len(axes)))
        whole = sketch(scorer.program, alone, scorer.lowered_for)
    except ShardvizError:
        return None
    chip, count = scorer.machine.chip, scorer.machine.num_chips
    flops = flops_by_dtype(whole, scorer.machine)
    seconds = sum(flops[dtype] / (chip.flops(dtype) * count) for dtype in flops)
    nbytes = sum(v.bytes_per_device or 0.0 for v in (*on_device(whole.arguments), *whole.outputs))
    return Floor(compute=seconds, memory=nbytes / (chip.needs("hbm_bytes_per_s") * count))


def score_there(scorer: Scorer, plan: Plan) -> Score | str:
    """A score, or why there is none: a task for another process."""
    try:
        return scorer(plan)
    except ShardvizError as error:
        return short(error)


def short(error: BaseException) -> str:
    """An error in a line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
