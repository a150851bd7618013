"""Collectives: as the partitioner makes them, and as a target runs them."""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.notation import Axis
from shardviz.notation.spec import axis_text
from shardviz.records.values import Frame

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "collective-broadcast",
)


def axes_words(axes: tuple[Axis, ...] | None) -> str:
    """The axes of a collective in plain text: `data, model`, `no axis`, or `irregular groups`."""
    if axes is None:
        return "irregular groups"
    return ", ".join(map(axis_text, axes)) or "no axis"


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective operation of the program, as one device runs it.

    Attributes:
        kind: `all-gather`, `all-reduce`, `reduce-scatter`, `all-to-all`, `collective-permute`, `ragged-all-to-all`
            or `collective-broadcast`.
        axes: the mesh axes that its groups span, major to minor; a part of an axis as (name, sizes before it, size);
            None where the groups are no product of axes.
        dtype: the element type of what is moved, NumPy's name.
        shape: the shape of its result on one device.
        operand_bytes: bytes that go in, on one device, each time.
        result_bytes: bytes that come out, on one device, each time.
        count: how often it runs in a step, the trip counts of enclosing loops multiplied in; None where not known.
        groups: the replica groups (or source-target pairs) as HLO spells them; empty where the level has none.
        source: the innermost line of the person's code that it stems from.
        name_stack: JAX's name stack.
        phase: `forward`, `backward`, `rematerialised` (recomputed for the backward pass), or `update` (the optimizer's
            part: what is done with the gradients, and what is done for that alone).
        origin: `user` (written in the program) or `partitioner`.
        name: the instruction's name.
        operand: the argument or instruction that it moves.
        group_size: devices in a group.
        conditional: it stands in a branch that may not run; `count` then is the most that it can be.
        seconds, formula: the time of one run on the target and how it was reckoned; None where no target was given.
    """

    kind: str
    axes: tuple[Axis, ...] | None
    dtype: str
    shape: tuple[int, ...]
    operand_bytes: float
    result_bytes: float
    count: int | None
    groups: str = ""
    source: Frame | None = None
    name_stack: str = ""
    phase: str = "update"
    origin: str = "partitioner"
    name: str = ""
    operand: str = ""
    group_size: int | None = None
    conditional: bool = False
    seconds: float | None = None
    formula: str | None = None

    @property
    def total_bytes(self) -> float | None:
        """Operand bytes on one device over the whole step; None where the count is not known."""
        return None if self.count is None else self.operand_bytes * self.count

    @property
    def total_seconds(self) -> float | None:
        """The time on the target over the whole step; None where the time of a run or the count is not known."""
        return None if self.seconds is None or self.count is None else self.seconds * self.count

    @property
    def assumed_bytes(self) -> float:
        """Operand bytes on one device over the whole step; one run where the count is not known."""
        return self.operand_bytes * (1 if self.count is None else self.count)

    @property
    def assumed_seconds(self) -> float:
        """The time over the whole step; one run where the count is not known, none where the time is not."""
        return (self.seconds or 0.0) * (1 if self.count is None else self.count)


@dataclass(frozen=True, kw_only=True)
class TargetCollective:
    """A collective of the optimised program, as the target runs it, and what of the partitioner's it carries out.

    Attributes:
        collective: its kind, axes, bytes and count, as the optimised program has them.
        stands_for: the names of the partitioner's collectives that it carries out; empty for one that the target's
            compiler added.
        how: what was done to them: `combined` (several are one), `split` (one is several: parts, a loop's
            iterations apart, or the same again), `moved` (out of a loop, so that it runs less often), `turned` (into
            another kind: an all-reduce of which each device keeps a part into a reduce-scatter), `converted` (to
            another element type), `asynchronous` (begun and ended apart), `fused` (inside a kernel), `added`. Empty: as
            partitioned.
        algorithm: what the compiler says of how it goes, in its own words; empty where it does not say at this stage.
            A TPU's says once the compile was finished: `RotatedPincerEmitter UniDirection1DRingStrategy` (what emits
            the code, and its strategy; what the words mean is not published).
    """

    collective: Collective
    stands_for: tuple[str, ...] = ()
    how: tuple[str, ...] = ()
    algorithm: str = ""
