"""How long a step takes: compute, memory and communication, what bounds it, and how much of the machine it uses.

>>> from shardviz.costs.machine import Machine, machine_of
>>> step = step_time(Machine.of("tpu v5p:4x4x4"), flops=2.3e12, hbm_bytes=5.6e9, model_flops=1.2e14, tokens=8192)
>>> step.compute, step.memory, step.bound
(0.005010893246187364, 0.002, 'compute')
>>> f"{step.mfu:.1%}", f"{step.tokens_per_s:.3g}"
('81.5%', '1.63e+06')

A report's step is walked in its schedule (`costs.timeline`), which gives its seconds. Without a schedule they are those
of a step whose compute and memory overlap while communication waits for both (*How to Scale Your Model*, part 1).

Whether a program fits a device's memory:

>>> fits(110e9, "tpu v5p:4x4x4").fits, fits(9.1e10, "tpu tpu7x:2x2x1").fits
(False, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardviz.costs.accuracy import Accuracy
from shardviz.costs.chips import Chip, family
from shardviz.costs.collective import collective_seconds
from shardviz.costs.machine import Machine, machine_of
from shardviz.costs.placement import Placement
from shardviz.errors import ShardvizError
from shardviz.notation import Axis
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes, format_flops, format_number, format_rate

_LARGE = 1e15  # bytes: so many that no hop's time counts


@dataclass(frozen=True)
class Share:
    """One kind of work in a step, on one device: how many seconds, and the arithmetic."""

    seconds: float
    formula: str


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The time of a step.

    Attributes:
        computing: one entry for each element type, at the chip's peak rate.
        moving: memory traffic, at the memory's peak rate.
        communication: seconds of collectives with known time and count.
        peak_flops_per_s: the full machine's, for the first element type.
        model_flops: FLOPs per step that the model needs; None if not given.
        tokens: tokens (or samples) per step; None if not given.
        walked: seconds of the walked schedule (`costs.timeline`); None without a schedule.
        products, traffic: seconds of the schedule's matrix products and memory traffic at the rates that they reach;
            None without a schedule.
        accuracy: the error of walked steps against measured ones; None if there are no measurements.
    """

    computing: tuple[Share, ...]
    moving: Share
    communication: float
    peak_flops_per_s: float
    model_flops: float | None = None
    tokens: float | None = None
    walked: float | None = None
    products: float | None = None
    traffic: float | None = None
    accuracy: Accuracy | None = None

    @property
    def seconds(self) -> float:
        """The step's seconds: walked if there is a schedule, otherwise without any overlap of communication."""
        return self.upper if self.walked is None else self.walked

    @property
    def low(self) -> float | None:
        """The lower end of the step's seconds, by the error of measured steps; None if unknown."""
        return None if self.walked is None or self.accuracy is None else self.walked * self.accuracy.band[0]

    @property
    def high(self) -> float | None:
        """The upper end of the step's seconds, by the error of measured steps; None if unknown."""
        return None if self.walked is None or self.accuracy is None else self.walked * self.accuracy.band[1]

    @property
    def compute(self) -> float:
        """Seconds of matrix products: as scheduled; without a schedule at the chip's peak rate."""
        return self.products or self.at_peak

    @property
    def at_peak(self) -> float:
        """Seconds of matrix products at the chip's peak rate."""
        return sum(share.seconds for share in self.computing)

    @property
    def memory(self) -> float:
        """Seconds of reading and writing memory: as scheduled; without a schedule at the memory's peak rate."""
        return self.traffic or self.moving.seconds

    @property
    def lower(self) -> float:
        """The step if everything overlaps: the longest of compute, memory and communication, and never more than the
        walk, which has some collectives smaller, as a compiler makes them: a reduce-scatter of an all-reduce."""
        longest = max(self.compute, self.memory, self.communication)
        return longest if self.walked is None else min(longest, self.walked)

    @property
    def upper(self) -> float:
        """The step if compute and memory overlap and no communication does; never less than the walk, in which an
        instruction's products and bytes overlap with no other's."""
        return max(self.walked or 0.0, max(self.compute, self.memory) + self.communication)

    @property
    def bound(self) -> str:
        """The largest part: `compute`, `memory`, `communication`, or `nothing`."""
        times = {"compute": self.compute, "memory": self.memory, "communication": self.communication}
        return max(times, key=lambda name: times[name]) if self.lower else "nothing"

    def utilisation(self, seconds: float) -> float | None:
        """Return the model FLOPs utilisation of a step of so many seconds; None if the model's FLOPs are not given."""
        if self.model_flops is None or not seconds:
            return None
        return self.model_flops / (seconds * self.peak_flops_per_s)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation; None if the model's FLOPs are not given."""
        return self.utilisation(self.seconds)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second; None where their number was not given."""
        return None if self.tokens is None or not self.seconds else self.tokens / self.seconds


def step_time(
    target: str | Machine,
    *,
    flops: float | Mapping[str, float],
    hbm_bytes: float = 0.0,
    collectives: Iterable[Collective] = (),
    dtype: str = "bfloat16",
    model_flops: float | None = None,
    tokens: float | None = None,
    walked: float | None = None,
    products: float | None = None,
    traffic: float | None = None,
    accuracy: Accuracy | None = None,
) -> StepTime:
    """Return the time of a step on a machine. `flops` are one device's (of `dtype`, or element type → FLOPs) with loops
    counted, `hbm_bytes` its memory traffic. The collectives have `seconds` (see `with_seconds`) and `count`;
    `model_flops` and `tokens` are as for `cost_of`. Raises TargetError for an unknown machine or an element type
    without a rate; ShardvizError for a number below 0."""
    machine = machine_of(target)
    chip, per_chip = machine.chip, machine.chip.devices_per_chip
    each = dict(flops) if isinstance(flops, Mapping) else {dtype: float(flops)}
    for name, value in (*each.items(), ("hbm_bytes", hbm_bytes), ("model_flops", model_flops), ("tokens", tokens)):
        if value is not None and not value >= 0:
            raise ShardvizError(f"{name}: expected 0 or more, not {value!r}")
    chip.needs("hbm_bytes_per_s")
    computing = []
    for kind, count in each.items():
        rate = chip.flops(kind) / per_chip
        text = f"{format_flops(count)} of {kind} / {format_flops(rate)}/s{_as_other(chip, kind)}"
        computing.append(Share(count / rate, text))
    width = chip.needs("hbm_bytes_per_s") / per_chip
    return StepTime(
        computing=tuple(computing),
        moving=Share(hbm_bytes / width, f"{format_bytes(hbm_bytes)} / {format_rate(width)}"),
        communication=sum(one.total_seconds or 0.0 for one in collectives),
        peak_flops_per_s=chip.flops(next(iter(each), dtype)) * machine.num_chips,
        model_flops=model_flops,
        tokens=tokens,
        walked=walked,
        products=products,
        traffic=traffic,
        accuracy=accuracy,
    )


def _as_other(chip: Chip, dtype: str) -> str:
    """Return that products of a type are counted at another type's rate, as for float32 on a TPU; empty if not."""
    rate = chip.rate_of(dtype)
    if rate == family(dtype):
        return ""
    rounds = chip.kind == "tpu" and dtype == "float32"
    passes = " at JAX's default precision; 'high' takes 3 times as long, 'highest' 6" if rounds else ""
    return f" (the rate of {rate}{passes})"


@dataclass(frozen=True)
class Knee:
    """The bend of a roofline: below this many FLOPs per byte on one device, transferring the bytes takes longer than
    the FLOPs, to `HBM` or over the links of the mesh axis with this name."""

    name: str
    bytes_per_s: float
    intensity: float
    formula: str


def roofline(mesh: Any, target: str | Machine, *, dtype: str = "bfloat16") -> tuple[Knee, ...]:
    """Return the knees of the roofline: of memory, and of the links of each mesh axis with more than one device.

    The bandwidth of an axis is the W of a large all-gather along it, as in *How to Scale Your Model*, part 5 (C / W_ICI
    = 2550 for one axis of v5p). Raises TargetError as `collective_seconds`.
    """
    place = Placement.of(mesh, target)
    machine = place.machine
    peak = machine.chip.flops(dtype) / machine.chip.devices_per_chip
    widths = {"HBM": machine.chip.needs("hbm_bytes_per_s") / machine.chip.devices_per_chip}
    for name, size in place.mesh.shape.items():
        if size > 1:
            widths[name] = gather_rate((name,), place, machine)
    rate = f"{format_flops(peak)}/s"
    return tuple(
        Knee(name, width, peak / width, f"{rate} / {format_rate(width)} = {format_number(peak / width)} FLOP/B")
        for name, width in widths.items()
    )


def gather_rate(axes: Sequence[Axis], place: Placement, machine: Machine) -> float:
    """Return the bytes per second that a device receives in a large all-gather along mesh axes, without latency."""
    rate = collective_seconds("all-gather", _LARGE, tuple(axes), place, machine).bytes_per_s
    assert rate is not None  # of more than one device, bytes bound the time
    return rate


# docs.jax.dev, "GPU memory allocation": JAX sets aside 75 % of a GPU's memory when it starts.
_GPU_FRACTION = 0.75


@dataclass(frozen=True)
class Fit:
    """Whether a program fits a device's memory: the bytes that it needs on one device, the bytes that a device has for
    a program, and their source."""

    needed: float
    usable: float
    machine: Machine
    source: str

    @property
    def fits(self) -> bool:
        return self.needed <= self.usable

    def __bool__(self) -> bool:
        return self.fits

    @property
    def share(self) -> str:
        """The share of memory that a program may use by default; empty if that is all."""
        if self.machine.chip.kind != "gpu":
            return ""
        part = format_bytes(_GPU_FRACTION * self.usable)
        return (
            f"JAX takes {_GPU_FRACTION:.0%} of a GPU's memory ({part}) unless XLA_PYTHON_CLIENT_MEM_FRACTION says "
            "otherwise"
        )

    @property
    def over_share(self) -> bool:
        """Whether it fits only if JAX is configured to use more than its default share."""
        return bool(self.share) and _GPU_FRACTION * self.usable < self.needed <= self.usable


def fits(needed: float, target: str | Machine) -> Fit:
    """Return whether the peak bytes of a compiler's plan fit a device of a machine. Raises TargetError for an unknown
    machine or unknown memory (`cpu`); ShardvizError for bytes below 0."""
    machine = machine_of(target)
    if not needed >= 0:
        raise ShardvizError(f"needed {needed!r}: expected 0 bytes or more")
    chip = machine.chip
    name = "hbm_usable_bytes" if chip.hbm_usable_bytes else "hbm_bytes"
    return Fit(needed, chip.needs(name) / chip.devices_per_chip, machine, chip.source(name))
