"""The roofline of a step before it is painted: roofs, the program's place under each, and what that says in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardviz.costs import Knee
from shardviz.costs.step_cost import StepCost
from shardviz.notation import axis_name
from shardviz.records.amounts import format_flops, format_number, format_rate, format_seconds, plural

MOST = 6


@dataclass(frozen=True)
class Roof:
    """The roof of HBM or of the links of mesh axes, and the program under it.

    Attributes:
        knee: where it bends.
        axis: the mesh axis whose colour it has; None for HBM.
        intensity: FLOPs that the program does for each byte; None where it moves none, or the FLOPs are not known.
        attained: FLOPs a second that the roof allows it; None likewise.
        seconds: what its bytes take in a step.
        title: `model: 180 GB/s, knee at 2.55 k FLOPs a byte`.
        verdict: what the program's place says.
    """

    knee: Knee
    axis: str | None
    intensity: float | None
    attained: float | None
    seconds: float
    title: str
    verdict: str


@dataclass(frozen=True)
class Roofline:
    """All roofs of a step.

    Attributes:
        roofs: HBM first, then the axes that take longest.
        peak: FLOPs a second of one device.
        x, y: the limits of both axes: FLOPs a byte, and FLOPs a second.
        rate: the peak in words.
        left_out: what is not drawn, in words; empty where all is.
    """

    roofs: tuple[Roof, ...]
    peak: float
    x: tuple[float, float]
    y: tuple[float, float]
    rate: str
    left_out: str

    @property
    def text(self) -> str:
        """It in words."""
        return f"Roofline, {self.rate}. " + " ".join(f"{roof.title}: {roof.verdict}." for roof in self.roofs)


def roofline_of(cost: StepCost) -> Roofline:
    """The roofs of HBM and of the links that each mesh axis rides on.

    Bytes of an axis are its seconds x the bandwidth of its roof, so that a place says what the cost model says: left of
    the knee the bytes take longer than the FLOPs.
    """
    flops = cost.flops or 0.0
    times = {"HBM": cost.step.memory} | {m.label: m.seconds for m in cost.by("axes") if m.seconds}
    hbm, *links = cost.knees()
    counted = [k for k in links if times.get(k.name, 0.0) > cost.lower / 1000]
    knees = [hbm, *sorted(counted, key=lambda k: -times[k.name])[: MOST - 1]]
    rest = [name for name in times if name not in {k.name for k in knees}]
    roofs = tuple(_roof(cost, knee, times.get(knee.name, 0.0), flops) for knee in knees)
    peak = hbm.bytes_per_s * hbm.intensity
    marks = [r.knee.intensity for r in roofs] + [r.intensity for r in roofs if r.intensity]
    low, high = 10 ** math.floor(math.log10(min(marks)) - 0.6), 10 ** math.ceil(math.log10(max(marks)) + 0.4)
    floor = min([peak, *(r.attained for r in roofs if r.attained)])
    least = 10 ** math.floor(math.log10(min(floor, min(r.knee.attainable(low) for r in roofs) * 3)))
    left_out = f"{plural(len(rest), 'more sum')}: under a thousandth of the step" if rest else ""
    rate = f"peak {format_flops(peak)}/s of {cost.dtype}"
    return Roofline(roofs, peak, (low, high), (least, peak * 3), rate, left_out)


def _roof(cost: StepCost, knee: Knee, seconds: float, flops: float) -> Roof:
    at = flops / (seconds * knee.bytes_per_s) if seconds and flops else None
    first = axis_name(knee.name.split(",")[0].split(":")[0])
    verdict = "nothing moves"
    if at is not None:
        least = knee.name == "HBM" and not cost.hbm_exact
        some, long = ("at most ", "at least ") if least else ("", "")
        wins = "bytes take longer" if at < knee.intensity else "FLOPs take longer"
        wins += ", as far as is known" if least and at >= knee.intensity else ""
        verdict = f"{some}{format_number(at)} FLOPs a byte; {long}{format_seconds(seconds)}: {wins}"
    elif cost.flops is None and seconds:
        verdict = "the program's FLOPs are not known"
    return Roof(
        knee,
        first if first in cost.mesh.names and knee.name != "HBM" else None,
        at,
        None if at is None else knee.attainable(at),
        seconds,
        f"{knee.name}: {format_rate(knee.bytes_per_s)}, knee at {format_number(knee.intensity)} FLOPs a byte",
        verdict,
    )
