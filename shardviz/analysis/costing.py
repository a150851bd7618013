"""What a report's step costs on a machine, whichever machine it was compiled for, or none.

    cost_of(report, "tpu v5p:8x8x8", tokens=512 * 4096, model_flops=6 * 70e9 * 512 * 4096)

Collectives, FLOPs and memory are the report's, seconds are the cost model's. A number that the report's level does not
have is left out of the sums and said to be not known; a number that is only a lower bound says so.
"""

from __future__ import annotations

import math

from shardviz.analysis.step_cost import Needs, StepCost
from shardviz.analysis.targeting import other_size
from shardviz.cost import Chip, Fit, Machine, Placement, fits, step_time, with_seconds
from shardviz.cost.amounts import bytes_text
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.records import Collective
from shardviz.report import Report

__all__ = ["StepCost", "cost_of"]


def cost_of(
    report: Report,
    target: str | Machine,
    *,
    tokens: float | None = None,
    model_flops: float | None = None,
    dtype: str | None = None,
    hbm_bytes: float | None = None,
    exact: bool = True,
    as_run: bool | None = None,
) -> StepCost:
    """What a report's step costs on a machine.

    Args:
        report: of any level, compiled for this machine, for another, or for none.
        target: the machine, such as `tpu v5p:8x8x8` or `gpu h100:32x8`.
        tokens: tokens (or samples) of the whole step, for tokens a second.
        model_flops: FLOPs of the whole step that the model needs (6 x parameters x tokens, say), for its utilisation.
        dtype: the element type at whose rate matrix products are counted; if not given, the floating type that most
            bytes of the arguments have.
        hbm_bytes: what one device reads and writes of its memory, where you know it better than the report.
        exact: False drops the factor (N-1)/N on rings, as *How to Scale Your Model* does.
        as_run: count the collectives of the target's optimised program (combined, in other element types, turned into
            reduce-scatters), not the partitioner's; if not given, wherever the report has them for this machine.

    Returns:
        The cost. At level `propagated` FLOPs are not counted: then `upper` is None, and `lower` is what communication
        and memory alone take.

    Raises:
        MeshError: if the machine has another number of devices than the report's mesh; the message has what would fit.
        TargetError: if there is no such machine, or it has no speed (`cpu`).
        ShardvizError: if `report` is no Report, a number is below 0, or `as_run` is asked of a report that was not
            compiled for this machine.
    """
    if not isinstance(report, Report):
        raise ShardvizError(
            f"cost(report={type(report).__name__}): expected a Report, such as program.partition(plan) gives"
        )
    machine = Machine.of(target)
    machine.chip.needs("hbm_bytes_per_s")
    mesh = report.mesh
    if mesh.size != machine.size:
        other = _target_of(machine.chip, mesh.size)
        raise MeshError(other_size(mesh, machine) + (f"; a target that would do: {other}" if other else ""))
    place = Placement.of(mesh, machine)
    own = report.target == machine.text and bool(report.target_collectives)
    if as_run and not own:
        raise ShardvizError(
            f"as_run=True: this report is for {report.target}, level {report.level}; the collectives as {machine.text} "
            f"runs them are in a report of program.compile(plan, target={machine.text!r})"
        )
    as_run = own if as_run is None else as_run
    found = tuple(t.collective for t in report.target_collectives) if as_run else report.collectives
    timed, partitioned = (
        tuple(with_seconds(c, place, machine, exact=exact) for c in each) for each in (found, report.collectives)
    )
    flops = None if report.cost is None else report.cost.dot_flops
    counted_as = dtype or _dtype(report)
    floor, formula = _least_traffic(report, machine)
    known = hbm_bytes is not None
    step = step_time(
        machine,
        flops=flops or 0.0,
        hbm_bytes=floor if hbm_bytes is None else hbm_bytes,
        collectives=timed,
        dtype=counted_as,
        model_flops=model_flops,
        tokens=tokens,
    )
    needs = _needs(report, machine)
    return StepCost(
        report.program,
        report.level,
        report.target,
        place,
        timed,
        step,
        flops,
        counted_as,
        step.hbm_bytes,
        known,
        "given" if known else formula,
        needs,
        exact,
        as_run,
        _seconds(partitioned) if as_run else None,
        _levels(report, flops, known, needs, as_run),
        report.source,
    )


def _dtype(report: Report) -> str:
    """The floating type of most bytes of the arguments."""
    sizes: dict[str, float] = {}
    for value in report.arguments or report.outputs:
        if "float" in value.dtype:
            sizes[value.dtype] = sizes.get(value.dtype, 0.0) + (value.bytes_per_device or 0.0)
    return max(sizes, key=lambda name: sizes[name]) if sizes else "bfloat16"


def _held(report: Report) -> tuple[float, float]:
    """Bytes on one device of arguments and of outputs, those that are known."""
    if report.memory is not None:
        return float(report.memory.arguments), float(report.memory.outputs)
    ins, outs = (sum(v.bytes_per_device or 0.0 for v in values) for values in (report.arguments, report.outputs))
    return ins, outs


def _least_traffic(report: Report, machine: Machine) -> tuple[float, str]:
    """Bytes that one device cannot but read and write: arguments and outputs once, what is kept in between twice.

    Of temporaries a byte of the plan is taken to be written and read once; it may be, of several values, more often.
    """
    ins, outs = _held(report)
    kept, what = report.residual_bytes, "kept for the backward pass"
    if report.memory is not None and report.target == machine.text and report.memory.temporaries > kept:
        kept, what = float(report.memory.temporaries), "temporaries"
    text = f"arguments {bytes_text(ins)} + outputs {bytes_text(outs)}"
    if kept:
        text += f" + 2 x {what} {bytes_text(kept)}"
    return ins + outs + 2 * kept, text


def _needs(report: Report, machine: Machine) -> Needs:
    plan = report.memory
    if plan is None:
        ins, _ = _held(report)
        parts = _some({"arguments": ins, "kept for the backward pass": report.residual_bytes})
        fit = _fit(ins, machine)
        too_much = fit is not None and not fit.fits
        verdict = "its arguments alone are too much" if too_much else "no compiler has planned its memory"
        fits, plan_of = (False if too_much else None), ""
    else:
        parts = _some(
            {
                "arguments": float(plan.arguments),
                "outputs": float(plan.outputs - plan.aliased),
                "temporaries": float(plan.temporaries),
                "constants and other": float(max(0, plan.takes - plan.set_aside)),
            }
        )
        fit, plan_of = _fit(sum(parts.values()), machine), plan.target
        fits = None if fit is None else fit.fits
        verdict = f"by the plan of the compiler for {plan.target}; that for {machine.text} may make another"
        if report.target == machine.text:
            verdict = "the compiler's own plan"
            fits = fits if plan.fits is None else plan.fits
    usable, source = (None, "") if fit is None else (fit.usable, fit.source)
    return Needs(parts, plan is not None, plan_of, usable, fits, verdict, source)


def _some(parts: dict[str, float]) -> dict[str, float]:
    return {what: size for what, size in parts.items() if size}


def _fit(needed: float, machine: Machine) -> Fit | None:
    """Whether so many bytes fit; None where the chip's memory is not known."""
    try:
        return fits(needed, machine)
    except TargetError:
        return None


def _seconds(collectives: tuple[Collective, ...]) -> float | None:
    """Of all in a step; None unless the time and the count of all are known."""
    times = [None if c.seconds is None or c.count is None else c.seconds * c.count for c in collectives]
    return None if None in times else math.fsum(t for t in times if t is not None)


def _levels(report: Report, flops: float | None, hbm_known: bool, needs: Needs, as_run: bool) -> dict[str, str]:
    program = "partitioned" if report.level == "compiled" else report.level
    where = {
        "collectives": f"optimised program of the compiler for {report.target}" if as_run else f"{program} program",
        "FLOPs": "not counted at this level" if flops is None else "matrix products of the partitioned program",
        "HBM traffic": "given" if hbm_known else "a lower bound",
        "memory": f"the plan of the compiler for {needs.plan_of}" if needs.complete else "a lower bound; no plan yet",
    }
    if report.cost is not None and report.cost.unknown_loops:
        where["FLOPs"] += f"; loops with unknown trip count, counted once: {report.cost.unknown_loops}"
    return where


def _target_of(chip: Chip, size: int) -> str:
    """A machine of that chip with so many devices, the most cube-like one; empty where there is none."""
    if chip.kind == "gpu":
        sizes = [(size // chip.domain_size, chip.domain_size)] if size % chip.domain_size == 0 else [(1, size)]
    else:
        chips = size // chip.devices_per_chip if size % chip.devices_per_chip == 0 else 0
        sizes = sorted(_boxes(chips, chip.ici_axes), key=lambda box: (sum(box), box))
    for each in sizes:
        try:
            return Machine(chip, each).text
        except TargetError:
            continue
    return ""


def _boxes(chips: int, axes: int) -> list[tuple[int, ...]]:
    """Every box of so many chips, sizes in rising order."""
    if axes == 1:
        return [(chips,)] if chips else []
    divisors = [d for d in range(1, chips + 1) if chips % d == 0] if chips <= 1 << 16 else []
    found = {tuple(sorted((d, *rest))) for d in divisors for rest in _boxes(chips // d, axes - 1)}
    return sorted(found)
