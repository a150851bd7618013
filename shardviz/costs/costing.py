"""What a report's step costs on a machine, whichever machine it was compiled for, or none.

    cost_of(report, "tpu v5p:8x8x8", model_flops=6 * 70e9 * 512 * 4096)

Collectives, FLOPs and memory are the report's, seconds are the cost model's. A number that the report's level does not
have is left out of the sums and said to be not known; a number that is only a lower bound says so.

How many tokens or samples a step takes in, guessed from the program's arguments, with what the guess rests on.

What a batch is stands in no program. But what a step gets anew each time is mostly an array of whole numbers: token ids
(batch x sequence) or labels (one a sample); or, beside a model's parameters, arrays of floats whose first dimension is
the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardviz.costs.attached import machine_of
from shardviz.costs.collective import with_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement, other_size
from shardviz.costs.step import Fit, fits, step_time
from shardviz.costs.step_cost import Needs, StepCost
from shardviz.costs.topologies import natural
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.layouts import itemsize
from shardviz.records import Collective, Value, total_of
from shardviz.records.amounts import format_bytes
from shardviz.records.report import Report

_PARTITIONED = "matrix products of the partitioned program"
_SENDS = "between slices the TPU's compiler sends and receives, which none of its own collectives tells of"
_PRODUCTS = {"propagated": "matrix products as Shardy cuts them"}


def cost_of(
    report: Report,
    target: str | Machine,
    *,
    tokens: float | bool | None = None,
    model_flops: float | None = None,
    dtype: str | None = None,
    hbm_bytes: float | None = None,
    exact: bool = True,
    as_run: bool | None = None,
) -> StepCost:
    """What a report's step costs on a machine.

    Args:
        report: of any level, compiled for this machine, for another, or for none.
        target: the machine, such as `tpu v5p:8x8x8` or `gpu h100:32x8`; `attached` for the devices that JAX sees here.
        tokens: tokens (or samples) of the whole step, for tokens a second. If not given, they are guessed from the
            arguments: the dimensions of the array of token ids, or the first of the samples; `tokens_from` of the cost
            says which. False: none.
        model_flops: FLOPs of the whole step that the model needs (6 x parameters x tokens, say), for its utilisation.
        dtype: the element type at whose rate matrix products are counted; if not given, each product's own, or where
            the report does not tell, the floating type that most bytes of the arguments have.
        hbm_bytes: what one device reads and writes of its memory. If not given, what the target's optimised program
            does where the report has it, or a lower bound.
        exact: False drops the factor (N-1)/N on rings, as *How to Scale Your Model* does.
        as_run: count the collectives of the target's optimised program (combined, in other element types, turned into
            reduce-scatters), not the partitioner's; if not given, wherever the report has them all for this machine.
            Between TPU slices the optimised program sends and receives: with traffic there, the partitioner's count.

    Returns:
        The cost. Without FLOPs in the report (level `notation`) `upper` is None, and `lower` is what communication and
        memory alone take.

    Raises:
        MeshError: if the machine has another number of devices than the report's mesh; the message has what would fit.
        TargetError: if there is no such machine, or it has no speed (`cpu`).
        ShardvizError: if `report` is no Report, a number is below 0, or `as_run` is asked of a report that was not
            compiled for this machine, or of one with traffic between slices.
    """
    if not isinstance(report, Report):
        raise ShardvizError(
            f"cost(report={type(report).__name__}): expected a Report, such as program.partition(plan) gives"
        )
    machine = machine_of(target)
    machine.chip.needs("hbm_bytes_per_s")
    mesh = report.mesh
    if mesh.size != machine.size:
        other = natural(machine.chip, mesh.size)
        raise MeshError(other_size(mesh, machine) + (f"; a target that would do: {other.text}" if other else ""))
    place = Placement.of(mesh, machine)
    own = report.target == machine.text and (report.level == "compiled" or bool(report.target_collectives))
    between = own and any(_between_slices(c, place) for c in report.collectives)
    if as_run and not own:
        raise ShardvizError(
            f"as_run=True: this report is for {report.target}, level {report.level}; the collectives as {machine.text} "
            f"runs them are in a report of program.compile(plan, target={machine.text!r})"
        )
    if as_run and between:
        raise ShardvizError(f"as_run=True: {_SENDS}; leave as_run out, and the partitioner's collectives are counted")
    as_run = own and not between if as_run is None else as_run
    found = tuple(t.collective for t in report.target_collectives) if as_run else report.collectives
    timed = tuple(with_seconds(c, place, machine, exact=exact) for c in found)
    flops = None if report.cost is None else report.cost.dot_flops
    counted = _flops(report, machine, dtype)
    batch = _batch(report, tokens)
    traffic, how, known = _traffic(report, machine, hbm_bytes)
    step = step_time(
        machine,
        flops=counted,
        hbm_bytes=traffic,
        collectives=timed,
        model_flops=model_flops,
        tokens=batch and batch.count,
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
        next(iter(counted)),
        step.hbm_bytes,
        known,
        how,
        needs,
        exact,
        as_run,
        _seconds(with_seconds(c, place, machine, exact=exact) for c in report.collectives) if as_run else None,
        _levels(report, flops, how if known else "a lower bound", needs, as_run)
        | ({"collectives": f"partitioned program; {_SENDS}"} if between else {})
        | _without_rate(report, machine, dtype, counted),
        report.source,
        *((batch.what, batch.source) if batch else ()),
        counted=report.cost,
    )


def _between_slices(collective: Collective, place: Placement) -> bool:
    """Whether a collective crosses from one slice to another; one whose axes are not known may."""
    if place.machine.num_slices == 1 or collective.group_size == 1:
        return False
    return collective.axes is None or place.route(collective.axes).slices > 1


def _batch(report: Report, tokens: float | bool | None) -> Batch | None:
    """What a step takes in: as given (False: nothing), or guessed."""
    if tokens is None:
        return batch_of(report)
    if tokens is True:
        raise ShardvizError("tokens=True: give their number, False for none, or leave it out to have it guessed")
    return None if tokens is False else Batch(tokens, "tokens", "given")


def _flops(report: Report, machine: Machine, dtype: str | None) -> dict[str, float]:
    """Element type → FLOPs of matrix products, the most first; those of a type that the chip has no rate for count as
    most of the others do.
    """
    total = 0.0 if report.cost is None else report.cost.dot_flops
    if dtype is not None:
        return {dtype: total}
    found, rest = dict[str, float](), 0.0
    for row in report.cost.work if report.cost is not None else ():
        if row.dot_flops and machine.chip.rate_of(row.dtype):
            found[row.dtype] = found.get(row.dtype, 0.0) + row.dot_flops
        else:
            rest += row.dot_flops
    if not found:
        return {_dtype(report): total}
    most = max(found, key=lambda name: found[name])
    found[most] += rest
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _without_rate(report: Report, machine: Machine, dtype: str | None, counted: dict[str, float]) -> dict[str, str]:
    """Which element types of products are counted as another because the chip has no rate for them."""
    work = report.cost.work if report.cost is not None and dtype is None else ()
    without = sorted({row.dtype for row in work if row.dot_flops and machine.chip.rate_of(row.dtype) is None})
    if not without:
        return {}
    return {"rates": f"{machine.chip.name} has none for {', '.join(without)}: counted as {next(iter(counted))}"}


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


def _traffic(report: Report, machine: Machine, given: float | None) -> tuple[float, str, bool]:
    """Bytes that one device reads and writes, how they were found, and whether they are more than a lower bound."""
    if given is not None:
        return given, "given", True
    if report.cost is not None and report.cost.hbm_bytes is not None and report.target == machine.text:
        return report.cost.hbm_bytes, f"optimised program of the compiler for {report.target}", True
    return *_least_traffic(report, machine), False


def _least_traffic(report: Report, machine: Machine) -> tuple[float, str]:
    """Bytes that one device cannot but read and write: arguments and outputs once, what is kept in between twice.

    Of temporaries a byte of the plan is taken to be written and read once; it may be, of several values, more often.
    """
    ins, outs = _held(report)
    kept, what = report.residual_bytes, "kept for the backward pass"
    if report.memory is not None and report.target == machine.text and report.memory.temporaries > kept:
        kept, what = float(report.memory.temporaries), "temporaries"
    text = f"arguments {format_bytes(ins)} + outputs {format_bytes(outs)}"
    if kept:
        text += f" + 2 x {what} {format_bytes(kept)}"
    return ins + outs + 2 * kept, text


def _needs(report: Report, machine: Machine) -> Needs:
    plan, parts = report.memory, memory_parts(report)
    if plan is None:
        ins, _ = _held(report)
        fit = _fit(ins, machine)
        too_much = fit is not None and not fit.fits
        verdict = "its arguments alone are too much" if too_much else "no compiler has planned its memory"
        enough, plan_of = (False if too_much else None), ""
    else:
        fit, plan_of = _fit(sum(parts.values()), machine), plan.target
        enough = None if fit is None else fit.fits
        verdict = f"by the plan of the compiler for {plan.target}; that for {machine.text} may make another"
        if report.target == machine.text:
            verdict = "the compiler's own plan"
            enough = enough if plan.fits is None else plan.fits
    if fit is not None and fit.over_share:
        verdict += f"; {fit.share}"
    usable, source = (None, "") if fit is None else (fit.usable, "; ".join(filter(None, (fit.source, fit.share))))
    return Needs(parts, plan is not None, plan_of, usable, enough, verdict, source)


def memory_parts(report: Report) -> dict[str, float]:
    """What → bytes that one device must hold: by a compiler's plan, else arguments and what the backward pass needs."""
    plan = report.memory
    if plan is None:
        ins, _ = _held(report)
        parts = {"arguments": ins, "kept for the backward pass": report.residual_bytes}
    else:
        parts = {
            "arguments": float(plan.arguments),
            "outputs": float(plan.outputs - plan.aliased),
            "temporaries": float(plan.temporaries),
            "constants and other": float(max(0, plan.takes - plan.set_aside)),
        }
    return {what: size for what, size in parts.items() if size}


def _fit(needed: float, machine: Machine) -> Fit | None:
    """Whether so many bytes fit; None where the chip's memory is not known."""
    try:
        return fits(needed, machine)
    except TargetError:
        return None


def _seconds(collectives: Iterable[Collective]) -> float | None:
    """Of all in a step; None unless the time and the count of all are known."""
    return total_of(collectives).whole_seconds


def _levels(report: Report, flops: float | None, traffic: str, needs: Needs, as_run: bool) -> dict[str, str]:
    program = "partitioned" if report.level == "compiled" else report.level
    where = {
        "collectives": f"optimised program of the compiler for {report.target}" if as_run else f"{program} program",
        "FLOPs": "not counted at this level" if flops is None else _PRODUCTS.get(report.level, _PARTITIONED),
        "HBM traffic": traffic,
        "memory": f"the plan of the compiler for {needs.plan_of}" if needs.complete else "a lower bound; no plan yet",
    }
    if report.cost is not None and report.cost.unknown_loops:
        once = f"; loops with unknown trip count, counted once: {report.cost.unknown_loops}"
        where["FLOPs"] += once
        if report.cost.hbm_bytes is not None and traffic not in ("given", "a lower bound"):
            where["HBM traffic"] += once
    return where


_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (16, 32, 64))
"""Eight bits are weights of a quantised model, or pixels."""
_NAMED = ("token", "input_ids", "inputs")
_PIXELS = 3  # dimensions of an image: height, width, channels


@dataclass(frozen=True)
class Batch:
    """What a step takes in.

    Attributes:
        count: how many, on all devices together.
        what: `tokens` or `samples`.
        source: the sum, and the argument that it is from.
    """

    count: float
    what: str
    source: str


def batch_of(report: Report) -> Batch | None:
    """Tokens or samples of a step, from its arguments.

    Tokens are the product of the dimensions of the largest array of whole numbers (16 bits or more) with two dimensions
    or more, if it is not donated; of those with `token`, `input_ids` or `inputs` in their names where there are such.
    Labels of images (an array that has three dimensions more than they) and arrays of one dimension are one a sample.
    Scalars, PRNG keys, and what lies in the model (the argument of most arrays) never count.

    Where there are none, floats beside the model are samples by their first dimension, if all have two or four
    dimensions (or one) and agree. Arrays of a shape that the model has too, such as moments, are none.

    Args:
        report: of any level.

    Returns:
        The guess; None where there is nothing to rest it on.
    """
    model = _model(report.arguments)
    others = [v for v in report.arguments if not v.donated and len(v.shape) > 0 and _root(v) != model]
    found = [v for v in others if v.dtype in _INTEGERS and not _is_key(v)]
    if found:
        return _counted(found, others)
    if model is None:
        return None
    known = {v.shape for v in report.arguments if _root(v) == model}
    floats = [v for v in others if ("float" in v.dtype or v.dtype == "uint8") and v.shape not in known]
    batches = {v.shape[0] for v in floats}
    ranks = {len(v.shape) for v in floats}
    if len(batches) != 1 or not ranks & {2, 4} or not ranks <= {1, 2, 4}:
        return None
    return Batch(batches.pop(), "samples", f"the first dimension of argument {_largest(floats).name}")


def _counted(found: Sequence[Value], others: Sequence[Value]) -> Batch:
    """From arrays of whole numbers."""
    flat = [v for v in found if len(v.shape) > 1] or found
    named = [v for v in flat if any(name in v.name.lower() for name in _NAMED)]
    one = _largest(named or flat)
    rank = len(one.shape)
    pictures = any(v.shape[:rank] == one.shape and len(v.shape) == rank + _PIXELS for v in others)
    what = "samples" if pictures or rank == 1 else "tokens"
    sizes = " x ".join(map(str, one.shape))
    return Batch(
        math.prod(one.shape), what, f"{sizes}, from argument {one.name}" if rank > 1 else f"argument {one.name}"
    )


def _model(arguments: Sequence[Value]) -> str | None:
    """The argument of most arrays; of single ones, one that is donated. None where there is none or nothing else."""
    roots: dict[str, list[Value]] = {}
    for v in arguments:
        roots.setdefault(_root(v), []).append(v)
    if len(roots) < 2:
        return None

    def rank(name: str) -> tuple[int, bool, float]:
        arrays = roots[name]
        size = sum(math.prod(v.shape) * itemsize(v.dtype) for v in arrays)
        return len(arrays), any(v.donated for v in arrays), size

    found = max(roots, key=rank)
    many, donated, _ = rank(found)
    return found if many > 1 or donated else None


def _root(value: Value) -> str:
    """`params` of `params['layers']['wq']` and of `params.layers.wq`."""
    return value.name.split("[", 1)[0].split(".", 1)[0]


def _largest(values: Sequence[Value]) -> Value:
    return max(values, key=lambda v: math.prod(v.shape))


def _is_key(value: Value) -> bool:
    """Whether it is the two or four words of a PRNG key, or a batch of such."""
    return value.dtype == "uint32" and value.shape[-1] in (2, 4)
