"""The predicted cost and memory of a candidate, from Shardy's propagation and the cost model alone.

A `Scorer` scores a plan in little more than the time of Shardy's passes, because it builds no complete report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardviz.ask.program import Program, sketch
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import Needs, StepCost, cost_of, flops_by_dtype
from shardviz.diagnose import policy
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.plan.plan import Plan
from shardviz.propagate.lower import LowerFor
from shardviz.records.collectives import axes_words
from shardviz.records.values import on_device


@dataclass(frozen=True, kw_only=True)
class Moved:
    """Collectives of one kind over the same axes: seconds and operand bytes per device and step."""

    kind: str
    axes: str
    seconds: float
    bytes: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """The predicted cost of a plan.

    Attributes:
        seconds: seconds per step by the schedule of the propagated program; candidates are ranked by it.
        compute, memory: seconds of matrix products, and of reading and writing memory.
        moved: the collectives, longest first; those of unknown time or count are omitted.
        needs: the estimated memory of one device.
    """

    seconds: float
    compute: float
    memory: float
    moved: tuple[Moved, ...]
    needs: Needs

    @property
    def over(self) -> float:
        """The share by which the estimate exceeds a device's memory; 0 if it fits."""
        return self._over(1.0)

    @property
    def rank(self) -> float:
        """The number to minimise: the seconds, plus a little for communication, plus a penalty for excess memory."""
        return self.rank_at(1.0)

    def rank_at(self, higher: float) -> float:
        """Return the rank if memory estimates are raised by a factor."""
        over, seconds = self._over(higher), self.seconds + policy.HIDDEN * self.communication
        return seconds * (1 + policy.TOO_MUCH * over) + (seconds if over else 0.0)

    def _over(self, higher: float) -> float:
        return 0.0 if self.needs.usable is None else max(0.0, self.needs.total * higher / self.needs.usable - 1)

    @property
    def communication(self) -> float:
        return sum(m.seconds for m in self.moved)


def score_of(cost: StepCost) -> Score:
    """Return the score of a step cost."""
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
    """A scorer of plans for a program on a machine; `lowered_for` is the platform that the program is lowered for."""

    program: Program
    machine: Machine
    lowered_for: LowerFor

    def __call__(self, plan: Plan) -> Score:
        """Score a plan. Raises ShardvizError if the plan does not fit the program, or Shardy refuses it."""
        return score_of(cost_of(sketch(self.program, plan, self.lowered_for), self.machine, tokens=False))


@dataclass(frozen=True, kw_only=True)
class Floor:
    """A lower bound on the step time of every plan on this machine, in seconds.

    Attributes:
        compute: the program's FLOPs, evenly sharded, at the chips' peak rate.
        memory: one read of every argument and one write of every output, evenly sharded, at the memory bandwidth.
    """

    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        """The larger of compute and memory."""
        return max(self.compute, self.memory)


def floor_of(scorer: Scorer, axes: Sequence[str]) -> Floor | None:
    """Return the floor from the program propagated on one device; None if it cannot be propagated."""
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
    """Return a plan's score, or the error in one line; a task for another process."""
    try:
        return scorer(plan)
    except ShardvizError as error:
        return short(error)


def short(error: BaseException) -> str:
    """Return an error's type and first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
