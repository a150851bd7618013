"""What a step costs on a machine, as plain data that shows itself: times, memory, and where each number is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from shardviz.costs.collective import collective_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.costs.step import Knee, StepTime, roofline
from shardviz.notation import DeviceMesh
from shardviz.records import Collective, CollectiveTotal, Cost, Frame, sum_collectives, total_of
from shardviz.visible import Visible

_LARGE = 1e15  # bytes: so many that no hop's time counts


@dataclass(frozen=True)
class Needs:
    """The memory that a program takes on one device, as far as the report's level tells.

    Attributes:
        parts: what → bytes, in the order in which they are drawn.
        complete: it is all, from a compiler's plan; else a lower bound.
        plan_of: the target whose compiler planned it; empty where none did.
        usable: bytes that one device of the machine gives a program; None where not known.
        fits: whether it fits; None where that cannot be told.
        verdict: who says so, in words.
        source: where `usable` is from.
    """

    parts: Mapping[str, float]
    complete: bool
    plan_of: str
    usable: float | None
    fits: bool | None
    verdict: str
    source: str

    @property
    def total(self) -> float:
        """Bytes in all; at least so many where it is not `complete`."""
        return sum(self.parts.values())


@dataclass(frozen=True, repr=False)
class StepCost(Visible):
    """What a step costs on a machine.

    It shows itself: `print(cost)`, `cost.text(width)`, `cost.html()`, `cost.plot(kind="step")`.

    Attributes:
        program: the function's name.
        level: of the report, `propagated`, `partitioned` or `compiled`: what collectives and FLOPs are from.
        compiled_for: the report's own target.
        placement: the mesh on the machine: what each mesh axis rides on.
        collectives: the report's, each with `seconds` and `formula`: the partitioner's, or with `as_run` those of the
            target's optimised program.
        step: compute, memory traffic and communication in seconds, on one device.
        flops: of one device; None where the level does not count them.
        dtype: the element type at whose rate they, or most of them, are counted.
        hbm_bytes: what one device reads and writes of its memory.
        hbm_exact: those bytes are counted; else they are a lower bound.
        hbm_formula: how they were found.
        needs: the memory that it takes.
        exact: whether rings keep the factor (N-1)/N.
        as_run: whether `collectives` are as the target's compiler runs them.
        partitioned_seconds: with `as_run`, what the partitioner's own collectives would take; None where not known.
        levels: which number → where it is from.
        source: file → line number → text, the report's.
        tokens_are: what is counted in a step: `tokens` or `samples`.
        tokens_from: how their number was found: `512 x 4096, from argument tokens`, or `given`; empty where there is
            none.
        counted: the report's FLOPs and HBM traffic, by phase, line and module: `cost.counted.by("phase")`; None where
            the level does not count them.
    """

    width: ClassVar[int | None] = 100

    program: str
    level: str
    compiled_for: str
    placement: Placement
    collectives: tuple[Collective, ...]
    step: StepTime
    flops: float | None
    dtype: str
    hbm_bytes: float
    hbm_exact: bool
    hbm_formula: str
    needs: Needs
    exact: bool = True
    as_run: bool = False
    partitioned_seconds: float | None = None
    levels: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    tokens_are: str = "tokens"
    tokens_from: str = ""
    counted: Cost | None = None

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.placement.machine

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh."""
        return self.placement.mesh

    @property
    def basis(self) -> str:
        """Which program the collectives are of: `propagated`, `partitioned`, or `as run` by the target."""
        return "as run" if self.as_run else "partitioned" if self.level == "compiled" else self.level

    @property
    def lower(self) -> float:
        """The step's seconds if everything overlaps: no step is shorter."""
        return self.step.lower

    @property
    def upper(self) -> float | None:
        """The step's seconds if no communication overlaps with work on the chip; None where the FLOPs are not known."""
        return None if self.flops is None or self.level == "notation" else self.step.upper

    @property
    def bound(self) -> str:
        """What takes longest of what is known: `compute`, `memory`, `communication`, or `nothing`."""
        return self.step.bound

    @property
    def mfu(self) -> tuple[float, float] | None:
        """Model FLOPs utilisation at `upper` and at `lower`; None without `model_flops` or FLOPs."""
        return None if self.upper is None else self.step.mfu

    @property
    def busy(self) -> tuple[float, float] | None:
        """The share of the peak FLOPs that all matrix products are, recomputed ones too, at `upper` and at `lower`."""
        if not self.upper or not self.step.compute:
            return None
        return self.step.compute / self.upper, self.step.compute / self.lower

    @property
    def tokens_per_s(self) -> tuple[float, float] | None:
        """Tokens (or samples: `tokens_are`) a second at `upper` and at `lower`; None without their number or FLOPs."""
        return None if self.upper is None else self.step.tokens_per_s

    @property
    def tokens_per_s_per_chip(self) -> tuple[float, float] | None:
        """The same for one chip (not for one JAX device, where a chip is two)."""
        both = self.tokens_per_s
        return both and (both[0] / self.machine.num_chips, both[1] / self.machine.num_chips)

    @property
    def unknown(self) -> tuple[Collective, ...]:
        """The collectives whose time or count is not known; no sum has them."""
        return tuple(c for c in self.collectives if c.total_seconds is None)

    @property
    def total(self) -> CollectiveTotal:
        """All collectives in one sum."""
        return total_of(self.collectives)

    def by(self, key: str) -> tuple[CollectiveTotal, ...]:
        """The collectives summed, the longest first.

        Args:
            key: `axes`, `source` (the line), `kind` or another key of `sum_collectives`.

        Raises:
            ShardvizError: for another key.
        """
        return sum_collectives(self.collectives, key, order="seconds")

    def knees(self) -> tuple[Knee, ...]:
        """The knees of the roofline: HBM, and the links of each mesh axis and of axes that collectives join."""
        found = list(roofline(self.placement, self.machine, dtype=self.dtype))
        peak = self.machine.chip.flops(self.dtype) / self.machine.chip.devices_per_chip
        for moved in self.by("axes"):
            if moved.axes is None or not moved.seconds or moved.label in {k.name for k in found}:
                continue
            gather = collective_seconds("all-gather", _LARGE, moved.axes, self.placement, self.machine, exact=False)
            width = _LARGE / gather.seconds
            found.append(Knee(moved.label, width, peak / width, ""))
        return tuple(found)

    def line(self, frame: Frame | None) -> str:
        """The text of a source line, stripped; empty where it is not known."""
        return "" if frame is None else self.source.get(frame.file, {}).get(frame.line, "").strip()

    def plot(self, ax: Any = None, kind: str = "step", *, dark: bool = False) -> Any:
        """It as a matplotlib figure: draws on `ax`, or on a new figure's, and returns the Axes.

        Args:
            ax: where to draw.
            kind: `step` (what the time goes to), `roofline`, `memory`, `traffic` (which device gets how many bytes of
                which), `machine` (the mesh on its chips and links) or `work` (FLOPs by line and phase).
            dark: colours for a dark page.

        Raises:
            ShardvizError: for another kind.
        """
        from shardviz.render.mpl_cost import cost_axes

        return cost_axes(self, ax, kind, dark=dark)
