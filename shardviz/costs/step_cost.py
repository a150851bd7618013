"""The cost of a report's step on a machine, whatever machine it was compiled for: times, memory, sources.

    cost_of(report, "tpu v5p:8x8x8", model_flops=6 * 70e9 * 512 * 4096)

Collectives, FLOPs and memory are the report's, seconds the cost model's. If no compiler counted them, memory and its
traffic are estimated from the program's listed schedule, as are the step's seconds. A number that the report's level
does not have is left out of the sums and shown as not known. Estimates and lower bounds are marked as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from shardviz.caching import Memo, cached_property
from shardviz.costs.accuracy import accuracy_of
from shardviz.costs.batch import Batch, batch_of
from shardviz.costs.collective import seconds_of, with_seconds
from shardviz.costs.footprint import fits_by_estimate, footprint, span_words
from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement, placed
from shardviz.costs.step import Fit, StepTime, fits, step_time
from shardviz.costs.timeline import TimedProgram, Timeline, each_task, timed_program, timeline_of
from shardviz.display import Displayed, paint
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.notation import DeviceMesh
from shardviz.records import Collective, Collectives, CollectiveTotal, sum_collectives, total_of
from shardviz.records.amounts import format_bytes
from shardviz.records.groups import summed
from shardviz.records.report import ReportRecord, host_bytes
from shardviz.records.values import donated_bytes, on_device, take_donated, unused_bytes

_Report = TypeVar("_Report", bound=ReportRecord)
KEPT, _OTHERS = "kept for the backward pass", "results and temporaries"
"""The parts of what an estimate says that a step makes."""
_PARTITIONED = "matrix products of the partitioned program"
_PRODUCTS = {"propagated": "matrix products as Shardy shards them"}
_MOST_RUNS = 2
COMBINED = "no time of its own: the schedule combines it with another"
_SENDS = "between slices the TPU compiler uses send and recv, so its HLO contains no collective for these transfers"


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The memory that a program needs on one device, as far as the report's level knows it.

    Attributes:
        parts: name → bytes, in display order.
        complete: whether it is a compiler's plan; otherwise an estimate, or only arguments and outputs.
        margin: for an estimate, the shares by which a compiler's plan may be below and above it; otherwise None.
        plan_of: the target whose compiler planned it; empty without a plan.
        usable: bytes of one device that a program may use; None if unknown.
        fits: whether it fits; None if unknown, or within an estimate's margin.
        sure: whether `fits` does not rest on an estimate: a plan decides it, or arguments and outputs alone are too
            much.
        verdict: the source of the verdict, in words.
        source: the source of `usable`.
        host: bytes of the host's memory for one device; in none of the parts.
        unused: tree path → bytes of the arguments that no result needs; in none of the parts.
    """

    parts: Mapping[str, float]
    complete: bool
    margin: tuple[float, float] | None
    plan_of: str
    usable: float | None
    fits: bool | None
    sure: bool
    verdict: str
    source: str
    host: float = 0.0
    unused: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Bytes in all, as far as they are known."""
        return sum(self.parts.values())

    @property
    def may_fit(self) -> bool:
        """Whether it fits as far as is known; within an estimate's margin, whether the estimate fits."""
        if self.fits is None:
            return self.usable is None or self.total <= self.usable
        return self.fits

    @property
    def text(self) -> str:
        """`60.1 GB` by a compiler's plan, `about 52.7 GB` by an estimate, `≥ 14.2 GB` of arguments and outputs."""
        return ("" if self.complete else "about " if self.margin else "≥ ") + format_bytes(self.total)


@dataclass(frozen=True, repr=False, kw_only=True)
class StepCost(Memo, Displayed):
    """The cost of a step on a machine. It displays itself: `print(cost)`, `cost.text(width)`, `cost.html()`,
    `cost.plot()`.

    Attributes:
        report: the step's report.
        placement: the mesh on the machine: the links of each mesh axis.
        collectives: the report's, each with `seconds` and `formula` as the step's schedule has them: the partitioner's,
            or with `as_run` those of the target's optimised program.
        step: the step's seconds, and those of compute, memory traffic and communication on one device.
        flops: one device's; None if the level does not count them.
        dtype: the element type whose rate applies to all or most of them.
        hbm_bytes: one device's memory traffic.
        hbm_exact: whether these bytes are counted; otherwise they are an estimate, or a lower bound if not `timed`.
        hbm_formula: how they were computed.
        needs: the memory that it needs.
        as_run: whether `collectives` are as the target's compiler runs them.
        partitioned: the partitioner's collectives. With `as_run`, each has its share of the seconds of the collectives
            that run in its place; otherwise they are `collectives`.
        levels: number → its source.
        timed: the program with its times, as used for the step's seconds; None without a schedule.
        tokens_are: the unit of the batch: `tokens` or `samples`.
        tokens_from: the source of their number: `512 x 4096, from argument tokens`, or `given`; empty if unknown.
    """

    _width: ClassVar[int | None] = 100

    report: ReportRecord
    placement: Placement
    collectives: tuple[Collective, ...]
    step: StepTime
    flops: float | None
    dtype: str
    hbm_bytes: float
    hbm_exact: bool
    hbm_formula: str
    needs: Needs
    as_run: bool = False
    partitioned: tuple[Collective, ...] = ()
    levels: Mapping[str, str] = field(default_factory=dict)
    timed: TimedProgram | None = field(default=None, compare=False)
    tokens_are: str = "tokens"
    tokens_from: str = ""

    @property
    def program(self) -> str:
        """The function's name."""
        return self.report.program

    @property
    def level(self) -> str:
        """The report's level: what collectives and FLOPs are from."""
        return self.report.level

    @cached_property
    def timeline(self) -> Timeline:
        """The step as it would run; errors as `sv.timeline`."""
        return timeline_of(self.report, self.machine)

    @property
    def rests_on(self) -> str:
        """The maker of the schedule that the step's seconds are walked in; empty without a schedule."""
        return "" if self.timed is None else self.timed.rests_on

    @property
    def notes(self) -> tuple[str, ...]:
        """What the timeline does not know, and its assumptions."""
        return () if self.timed is None else self.timed.notes

    @property
    def machine(self) -> Machine:
        return self.placement.machine

    @property
    def mesh(self) -> DeviceMesh:
        return self.placement.mesh

    @property
    def basis(self) -> str:
        """Which program the collectives are of: `propagated`, `partitioned`, or `as run` by the target."""
        return "as run" if self.as_run else "partitioned" if self.level == "compiled" else self.level

    @property
    def seconds(self) -> float | None:
        """The step's seconds, `step.seconds`; None if the FLOPs are unknown."""
        return self.step.seconds if self.complete else None

    @property
    def complete(self) -> bool:
        """Whether the FLOPs are known, without which the step's time is not."""
        return self.flops is not None and self.level != "notation"

    @property
    def lower(self) -> float:
        """The step's seconds if everything overlaps."""
        return self.step.lower

    @property
    def upper(self) -> float | None:
        """The step's seconds without overlap of communication and work on the chip; None if the FLOPs are unknown."""
        return self.step.upper if self.complete else None

    @property
    def bound(self) -> str:
        """The longest known part: `compute`, `memory`, `communication`, or `nothing`."""
        return self.step.bound

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation; None without `model_flops` or FLOPs."""
        return self.step.mfu if self.complete else None

    @property
    def busy(self) -> float | None:
        """The share of the peak FLOPs that all matrix products are, recomputed ones too."""
        return self.step.at_peak / self.seconds if self.seconds and self.step.at_peak else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens (or samples: `tokens_are`) a second; None without their number or FLOPs."""
        return self.step.tokens_per_s if self.complete else None

    @property
    def tokens_per_s_per_chip(self) -> float | None:
        """The same for one chip (not for one JAX device, where a chip is two)."""
        return None if self.tokens_per_s is None else self.tokens_per_s / self.machine.num_chips

    @property
    def unknown(self) -> tuple[Collective, ...]:
        """The collectives whose time or count is not known; no sum has them."""
        return tuple(c for c in self.collectives if c.total_seconds is None)

    @property
    def partitioned_seconds(self) -> float | None:
        """With `as_run`, the seconds of the partitioner's own collectives; None if unknown."""
        if not self.as_run:
            return None
        return total_of(with_seconds(c, self.placement, self.machine) for c in self.report.collectives).whole_seconds

    @property
    def total(self) -> CollectiveTotal:
        """All collectives in one sum."""
        return total_of(self.collectives)

    def by(self, key: str) -> tuple[CollectiveTotal, ...]:
        """Return the collectives summed, longest first.

        Args:
            key: `axes`, `source` (the line), `kind` or another key of `sum_collectives`.

        Raises:
            ShardvizError: for another key.
        """
        return sum_collectives(self.collectives, key, order="seconds")

    def compute_by_line(self) -> dict[tuple[str, int], float]:
        """Return (file, line) → seconds of its matrix products on one device in a step; empty if they are not
        counted."""
        if self.timed is not None and self.timed.products:
            done = ((t.entry and t.entry.source, n * t.products) for t, n in each_task(self.timed.tasks) if t.products)
            return summed(((source.file, source.line), seconds) for source, seconds in done if source is not None)
        chip = self.machine.chip

        def rate(dtype):
            return chip.flops(dtype if chip.rate_of(dtype) else self.dtype)

        return summed(
            ((work.source.file, work.source.line), work.dot_flops * chip.devices_per_chip / rate(work.dtype))
            for work in (self.report.cost.work if self.report.cost is not None else ())
            if work.source is not None and work.dot_flops
        )

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """Draw the mesh on its machine on the Axes `ax`, or on a new matplotlib figure's, and return the Axes."""
        return paint("plot", self, ax, dark=dark)


def cost_of(
    report: ReportRecord,
    target: str | Machine | None = None,
    *,
    tokens: float | bool | None = None,
    model_flops: float | None = None,
) -> StepCost:
    """Return the cost of a report's step on a machine.

    If the report was compiled for this machine, the collectives are those of its optimised program (combined, in other
    element types, turned into reduce-scatters). Between TPU slices that program sends and receives instead; the
    partitioner's collectives then count.

    Args:
        report: of any level, compiled for this machine, for another, or for none.
        target: the machine, such as `tpu v5p:8x8x8`, `gpu h100:32x8`, `v5p` (as many as the mesh has devices), `v5p-64`
            (a cloud's name) or `attached` (the devices that JAX sees here); the report's own if not given.
        tokens: tokens (or samples) per step, for tokens per second; False for none. If not given, they are guessed from
            the arguments: the dimensions of the array of token ids, or the first one of the samples; see `tokens_from`.
        model_flops: FLOPs per step that the model needs (6 x parameters x tokens, say), for its utilisation.

    Returns:
        The cost. Its `step.seconds` are walked in the report's schedule, as in `sv.timeline`. If the report has no
            FLOPs (level `notation`), `seconds` is None, and `lower` is the bound by communication and memory.

    Raises:
        MeshError: if the machine has another number of devices than the report's mesh; the message names what would
            fit.
        TargetError: for an unknown machine, or one without a known speed (`cpu`).
        ShardvizError: if `report` is not a report, or a number is below 0.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> cost = sv.cost(mlp.program.propagate(mlp.plan), "tpu v5e:2x4")
        >>> cost.step.bound, cost.step.lower <= cost.step.seconds
        ('communication', True)
    """
    place = placed(report, target, "cost")
    machine = place.machine
    as_run, between = _whose(report, place)
    program = timed_program(report, place)
    timed, partitioned = _timed(report, place, program, as_run)
    flops = None if report.cost is None else report.cost.dot_flops
    counted = flops_by_dtype(report, machine)
    batch = _batch(report, tokens)
    traffic, formula, exactly = _traffic(report, machine, program)
    schedule = "" if program is None else report.level if program.schedule == "listed" else "compiled"
    step = step_time(
        machine,
        flops=counted,
        hbm_bytes=traffic,
        collectives=timed,
        model_flops=model_flops,
        tokens=batch and batch.count,
        walked=program and program.seconds,
        products=program and program.products,
        traffic=program and program.traffic,
        accuracy=accuracy_of(machine.chip.kind, schedule, machine.hosts),
    )
    needs = _needs(report, machine)
    levels = _levels(report, flops, formula if exactly or program else "a lower bound", needs, as_run)
    if between:
        levels["collectives"] = f"partitioned program; {_SENDS}"
    return StepCost(
        report=report,
        placement=place,
        collectives=timed,
        step=step,
        flops=flops,
        dtype=next(iter(counted)),
        hbm_bytes=float(traffic),
        hbm_exact=exactly,
        hbm_formula=formula,
        needs=needs,
        as_run=as_run,
        partitioned=partitioned,
        levels=levels | _without_rate(report, machine, counted),
        timed=program,
        tokens_are=batch.what if batch else "tokens",
        tokens_from=batch.source if batch else "",
    )


cost = cost_of  # its name in `shardviz`


def timed(report: _Report) -> _Report:
    """Return the report with the seconds of its collectives on its own target; unchanged if that has no known speed."""
    try:
        place = placed(report, None, "cost")
    except (TargetError, MeshError):
        return report
    runs, partitioned = _timed(report, place, timed_program(report, place), _whose(report, place)[0])
    by_name = {run.name: run for run in runs}
    own = (replace(t, collective=by_name.get(t.collective.name, t.collective)) for t in report.target_collectives)
    return replace(report, collectives=Collectives(partitioned), target_collectives=tuple(own))


def untimed(report: _Report) -> _Report:
    """Return the report without seconds of its collectives."""
    if all(c.seconds is None and c.formula is None for c in report.collectives):
        return report
    return replace(report, collectives=Collectives(replace(c, seconds=None, formula=None) for c in report.collectives))


def _whose(report: ReportRecord, place: Placement) -> tuple[bool, bool]:
    """Return whether a step has the collectives of the target's program; and whether it has not because some go between
    its slices."""
    machine = place.machine
    own = report.target == machine.text and (report.level == "compiled" or bool(report.target_collectives))

    def crosses(c):
        return c.axes is None or place.route(c.axes).slices > 1

    slices = own and machine.num_slices > 1
    between = slices and any(crosses(c) for c in report.collectives if c.group_size != 1)
    return own and not between, between


def _timed(
    report: ReportRecord, place: Placement, program: TimedProgram | None, as_run: bool
) -> tuple[tuple[Collective, ...], tuple[Collective, ...]]:
    """Return the step's collectives and the report's own, with their seconds."""
    of_target = tuple(t.collective for t in report.target_collectives)
    runs = tuple(timed_in(program, c, place) for c in (of_target if as_run else report.collectives))
    return runs, _as_they_run(report, runs) if as_run else runs


def timed_in(program: TimedProgram | None, one: Collective, place: Placement) -> Collective:
    """Return a collective with its seconds on a machine, as the program's schedule runs it."""
    seconds, formula = seconds_in(program, one, place)
    return replace(one, seconds=seconds, formula=formula)


def seconds_in(program: TimedProgram | None, one: Collective, place: Placement) -> tuple[float | None, str]:
    """Return the seconds of one run of a collective and their formula, as the program's schedule runs it."""
    runs = {} if program is None else program.timing.runs
    if program is not None and program.schedule == "listed" and one.name not in runs and not one.conditional:
        return 0.0, COMBINED
    run = runs.get(one.name, one)
    seconds, formula = seconds_of(run, place, place.machine)
    differs = (run.kind, run.dtype) != (one.kind, one.dtype)
    return seconds, f"as {run.kind} of {run.dtype}: {formula}" if differs else formula


def shares(report: ReportRecord) -> dict[str, dict[str, float]]:
    """Return target collective → the report's collectives that it carries out → their shares of it, by bytes."""
    sizes = {c.name: c.assumed_bytes or 1.0 for c in report.collectives}
    parts = {}
    for run in report.target_collectives:
        own = {name: sizes[name] for name in run.stands_for if name in sizes}
        parts[run.collective.name] = {name: size / sum(own.values()) for name, size in own.items()}
    return parts


def _as_they_run(report: ReportRecord, timed: Iterable[Collective]) -> tuple[Collective, ...]:
    """Return the report's collectives, each with its share of the seconds of the target's collectives."""
    parts, by_name = shares(report), {run.name: run for run in timed}
    carried: dict[str, list[tuple[Collective, float]]] = {}
    for run, own in parts.items():
        for name, share in own.items():
            carried.setdefault(name, []).append((by_name[run], share))

    def timed_as(c: Collective) -> Collective:
        runs = carried.get(c.name)
        if runs is None or any(run.total_seconds is None for run, _ in runs):
            return replace(c, seconds=None, formula="not known, because the target runs others instead")
        seconds = sum((run.total_seconds or 0.0) * share for run, share in runs) / (c.count or 1)
        each = (
            f"{f'{share:.0%} of ' if share < 1 else ''}{run.name}: {run.formula}" for run, share in runs[:_MOST_RUNS]
        )
        return replace(c, seconds=seconds, formula="; ".join(each))

    return tuple(map(timed_as, report.collectives))


def _batch(report: ReportRecord, tokens: float | bool | None) -> Batch | None:
    """Return a step's tokens or samples: as given (False: none), or guessed."""
    if tokens is None:
        return batch_of(report)
    if tokens is True:
        raise ShardvizError("tokens=True: give their number, False for none, or leave it out to have it guessed")
    return None if tokens is False else Batch(tokens, "tokens", "given")


def flops_by_dtype(report: ReportRecord, machine: Machine) -> dict[str, float]:
    """Return element type → FLOPs of matrix products, most first. Types without a rate on the chip are added to the
    most frequent other type."""
    total = 0.0 if report.cost is None else report.cost.dot_flops
    work = [row for row in report.cost.work if row.dot_flops] if report.cost is not None else []
    by_dtype = summed((row.dtype, row.dot_flops) for row in work if machine.chip.rate_of(row.dtype))
    if not by_dtype:  # all at the rate of the floating type of most bytes of the arguments
        floats = (value for value in report.arguments or report.outputs if "float" in value.dtype)
        sizes = summed((value.dtype, value.bytes_per_device or 0.0) for value in floats)
        return {max(sizes, key=lambda name: sizes[name], default="bfloat16"): total}
    most = max(by_dtype, key=lambda name: by_dtype[name])
    by_dtype[most] += sum(row.dot_flops for row in work if not machine.chip.rate_of(row.dtype))
    return dict(sorted(by_dtype.items(), key=lambda item: -item[1]))


def _without_rate(report: ReportRecord, machine: Machine, counted: dict[str, float]) -> dict[str, str]:
    """Return which element types of products count as another because the chip has no rate for them."""
    work = report.cost.work if report.cost is not None else ()
    without = sorted({row.dtype for row in work if row.dot_flops and machine.chip.rate_of(row.dtype) is None})
    if not without:
        return {}
    return {"rates": f"{machine.chip.name} has none for {', '.join(without)}: counted as {next(iter(counted))}"}


def _held(report: ReportRecord) -> tuple[float, float]:
    if report.memory is not None:
        return float(report.memory.arguments), float(report.memory.outputs)
    kept = [v for v in report.outputs if not v.on_host]
    ins, outs = (sum(v.bytes_per_device or 0.0 for v in values) for values in (on_device(report.arguments), kept))
    return ins, outs


def _traffic(report: ReportRecord, machine: Machine, program: TimedProgram | None) -> tuple[float, str, bool]:
    """Return the memory traffic of one device in bytes, its formula, and whether it was counted."""
    if report.cost is not None and report.cost.hbm_bytes is not None and report.target == machine.text:
        return report.cost.hbm_bytes, f"optimised program of the compiler for {report.target}", True
    if program is not None:
        return program.hbm_bytes, "read and written by the fusions of the listed schedule", False
    ins, outs = _held(report)
    return ins + outs, f"arguments {format_bytes(ins)} + outputs {format_bytes(outs)}", False


def _needs(report: ReportRecord, machine: Machine) -> Needs:
    plan, (parts, margin) = report.memory, _parts(report, machine)
    sure = plan is not None
    needed = sum(parts.values())
    fit = _fit(needed, machine)
    if plan is not None:
        enough = None if fit is None else fit.fits
        verdict = f"by the plan of the compiler for {plan.target}; that for {machine.text} may make another"
        if report.target == machine.text:
            verdict = "the compiler's own plan"
            enough = enough if plan.fits is None else plan.fits
    elif too_much := _too_much_alone(report, machine):
        enough, sure, verdict = False, True, f"its {too_much} alone are too much"
    elif margin is not None:
        enough = None if fit is None else fits_by_estimate(needed, margin, fit.usable)
        verdict = f"an estimate: {span_words(needed)}"
    else:
        enough, verdict = None, "no compiler has planned its memory"
    unused = unused_bytes(report.arguments)
    beside = sum(unused.values())
    if fit is not None and enough is not False and fit.needed + beside > fit.usable:
        verdict += f"; not beside its unused arguments, {format_bytes(beside)}, where they are on the devices"
    if fit is not None and fit.over_share:
        verdict += f"; {fit.share}"
    usable, source = (None, "") if fit is None else (fit.usable, "; ".join(filter(None, (fit.source, fit.share))))
    return Needs(
        parts=parts,
        complete=plan is not None,
        margin=margin,
        plan_of="" if plan is None else plan.target,
        usable=usable,
        fits=enough,
        sure=sure,
        verdict=verdict,
        source=source,
        host=host_bytes(report),
        unused=unused,
    )


def _parts(report: ReportRecord, machine: Machine) -> tuple[dict[str, float], tuple[float, float] | None]:
    """Return the parts of the memory, and an estimate's margin. Without a compiler's plan the listed schedule is
    used."""
    if report.memory is not None or not report.schedule or report.scheduled:
        return memory_parts(report), None
    estimate = footprint(report, machine)
    kept = min(report.residual_bytes, estimate.made)
    sizes = {"arguments": estimate.arguments, KEPT: kept, _OTHERS: estimate.made - kept}
    return {what: size for what, size in sizes.items() if size}, estimate.margin


def _too_much_alone(report: ReportRecord, machine: Machine) -> str:
    """Return what alone exceeds a device's memory, whatever a compiler does; empty if it fits or is unknown."""
    ins = _held(report)[0]
    for what, size in (("arguments", ins), ("arguments and outputs", ins + _new_outputs(report))):
        fit = _fit(size, machine)
        if fit is not None and not fit.fits:
            return what
    return ""


def memory_parts(report: ReportRecord) -> dict[str, float]:
    """Return name → bytes that one device must hold, from a compiler's plan. Without a plan, they are the arguments and
    what the backward pass needs. Outputs may later reuse the latter's memory, so outputs without a donated argument
    count only as far as they exceed it."""
    plan = report.memory
    if plan is None:
        ins, kept = _held(report)[0], report.residual_bytes
        parts = {"arguments": ins, "outputs": max(0.0, _new_outputs(report) - kept), KEPT: kept}
    else:
        parts = {
            "arguments": float(plan.arguments),
            "outputs": float(plan.outputs - plan.aliased),
            "temporaries": float(plan.temporaries),
            "constants and other": float(max(0, plan.takes - plan.set_aside)),
        }
    return {what: size for what, size in parts.items() if size}


def _new_outputs(report: ReportRecord) -> float:
    """Return the bytes on one device of the outputs that reuse no donated argument's memory."""
    donated = donated_bytes(report.arguments)
    sizes = (value.bytes_per_device or 0.0 for value in report.outputs if not value.on_host)
    return sum(size for size in sizes if not take_donated(donated, size))


def _fit(needed: float, machine: Machine) -> Fit | None:
    """Return whether so many bytes fit; None if the chip's memory is unknown."""
    try:
        return fits(needed, machine)
    except TargetError:
        return None


def _levels(report: ReportRecord, flops: float | None, traffic: str, needs: Needs, as_run: bool) -> dict[str, str]:
    program = "partitioned" if report.level == "compiled" else report.level
    where = {
        "collectives": f"optimised program of the compiler for {report.target}" if as_run else f"{program} program",
        "FLOPs": "not counted at this level" if flops is None else _PRODUCTS.get(report.level, _PARTITIONED),
        "HBM traffic": traffic,
        "memory": f"the plan of the compiler for {needs.plan_of}"
        if needs.complete
        else "estimated: each array is held from where it is written until it is read last; no plan yet"
        if needs.margin
        else "arguments and outputs; no plan yet",
    }
    if report.cost is not None and report.cost.opaque:
        where["FLOPs"] += f"; at least: nobody says those of {', '.join(report.cost.opaque)}"
    if report.cost is not None and report.cost.unknown_loops:
        once = f"; loops with unknown trip count, counted once: {report.cost.unknown_loops}"
        where["FLOPs"] += once
        if report.cost.hbm_bytes is not None and traffic.startswith("optimised"):
            where["HBM traffic"] += once
    return where
