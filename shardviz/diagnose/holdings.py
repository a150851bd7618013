"""Rules about replicated arrays that could be sharded, and about padding.

`brief.BRIEFS` describes each in a sentence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shardviz.costs.batch import inputs_of
from shardviz.diagnose.case import Case, and_others, at_line, by_hand, nbytes, quoted_axes, severity, total_bytes
from shardviz.diagnose.policy import GRAVE, LARGE, SLIGHT, SMALL_BYTES
from shardviz.diagnose.specs import free, further
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axes_size, axis_name
from shardviz.records import Finding, Frame, Suggestion, Value
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.collectives import axes_words
from shardviz.records.groups import grouped
from shardviz.records.phases import phase


def whole_activation(case: Case) -> Iterator[Finding]:
    """Find the forward pass's intermediates that hold the whole batch on every device although the batch is sharded.

    One finding per batch, about the largest such array, if it takes a twentieth of the arguments and kept activations.
    """
    report = case.report
    taken_in_all = case.argument_bytes + report.residual_bytes
    inputs = {
        v.shape[0]: v.spec.dims[0] for v in inputs_of(report) if v.shape and v.spec is not None and v.spec.dims[0]
    }
    if not inputs:
        return
    forward = any(phase(v.name_stack) == "forward" for v in report.intermediates)
    wanted = "forward" if forward else "update"  # without a backward pass every operation is in phase "update"
    values = [
        v for v in report.intermediates if v.shape and v.spec is not None and v.source is not None and not v.manual
    ]
    values = [v for v in values if phase(v.name_stack) == wanted]
    for size, axes in inputs.items():
        names = {axis_name(a) for a in axes}
        of_batch = [v for v in values if v.shape[0] == size and not names & _first(v)]
        whole = [v for v in of_batch if all(free(v, name) for name in names)]
        v = max(whole, key=lambda v: (nbytes(v), bool(v.label)), default=None)
        if v is None or nbytes(v) < max(GRAVE * taken_in_all, SMALL_BYTES):
            continue
        many = axes_size(axes, report.mesh)
        taken = nbytes(v)
        saved = taken * (1 - 1 / many)
        first = next(each for each in of_batch if "float" in each.dtype or each is v)
        lines = {each.source for each in whole if nbytes(each) >= SMALL_BYTES} - {v.source}
        others = f", and so are arrays of {plural(len(lines), 'other line')}" if lines else ""
        where = at_line(v.source)
        yield Finding(
            f"whole-activation:{v.source.short if v.source else v.name}",
            "warning",
            f"{v.label or 'An activation'}{where} is replicated along {quoted_axes(axes)}, "
            f"along which the batch is sharded{others}: {format_bytes(taken)} on each of the "
            f"{plural(many, 'device')}; sharded too, it would take {format_bytes(saved)} less on each.",
            why="a constraint asks for it, an operation cannot run along a sharded batch, or the other operand uses "
            "the same axes for another dimension; each device works on the whole batch there",
            source=v.source,
            value=v.name,
            axes=axes,
            numbers={"bytes": taken, "saved_bytes": saved, "size": float(many)},
            suggestions=tuple(
                dict.fromkeys(case.constraint(each, _by_batch(each.spec, axes), each.source) for each in (first, v))
            ),
        )


def _first(v: Value) -> set[str]:
    return {axis_name(a) for a in v.spec.dims[0]} if v.spec is not None and v.spec.dims else set()


def _by_batch(spec: Spec | None, axes: tuple[Axis, ...]) -> Spec:
    """Return the spec with these axes on the first dimension and on no other."""
    names = {axis_name(a) for a in axes}
    dims = () if spec is None else spec.dims
    kept = [tuple(a for a in dim if axis_name(a) not in names) for dim in dims]
    return Spec(((*kept[0], *axes), *kept[1:]) if kept else (axes,))


def padded(case: Case) -> Iterator[Finding]:
    """Find dimensions of intermediates that do not divide by their axes, one finding per size and axes.

    A warning if a tenth of a large array is padding; nothing below a hundredth.
    """
    report, mesh = case.report, case.report.mesh
    taken_in_all = case.argument_bytes + report.residual_bytes
    large = [v for v in report.intermediates if not v.manual and nbytes(v) >= SLIGHT * taken_in_all]
    uneven = grouped(
        ((size, dim), (nbytes(v), d, v))
        for v in large
        for d, (size, dim) in enumerate(zip(v.shape, v.spec.dims if v.spec is not None else (), strict=False))
        if size > axes_size(dim, mesh) and size % axes_size(dim, mesh)  # single slices of an array are none
    )
    for (size, dim), rows in uneven.items():
        most, d, v = max(rows, key=lambda row: row[0])
        count = axes_size(dim, mesh)
        better = -(-size // count) * count
        share = 1 - size / better
        wasted = most * share
        if share < SLIGHT:
            continue
        at = next(((a.name, i) for a in case.arguments for i, n in enumerate(a.shape) if n == size), None)
        pad = () if at is None else (Suggestion(kind="pad", target=at[0], dimension=at[1], size=better),)
        code = by_hand(v.source, f"make it {better:,} long, or {size // count * count:,}")
        others = and_others(rows)
        where = at_line(v.source)
        yield Finding(
            f"padded:{size}:{axes_words(dim)}",
            severity(share >= LARGE and nbytes(v) >= GRAVE * taken_in_all),
            f"Dimension {d} of {v.label or 'an intermediate'}{where}{others}, {size:,} long, is sharded {count} ways "
            f"along {quoted_axes(dim)}, which do not divide it: {share:.1%} of each such array is padding, "
            f"{format_bytes(wasted)} of {format_bytes(v.bytes_per_device)} on each device; {better:,} would divide.",
            why="all shards have the same shape, so the last ones hold padding, and take as long as the others",
            source=v.source,
            value=v.name,
            axes=dim,
            numbers={"bytes": nbytes(v), "wasted_bytes": wasted, "size": float(better)},
            suggestions=pad or (code,),
        )


def kept_whole(case: Case) -> Iterator[Finding]:
    """Find large activations that are kept for the backward pass and replicated along an axis that divides them.

    The threshold is a tenth of the arguments and kept activations. One finding per source line.
    """
    report = case.report
    taken_in_all = case.argument_bytes + report.residual_bytes
    over = case.cost is not None and case.cost.needs.fits is False
    kept: dict[tuple[Frame | None, str, Spec | None], list[Value]] = defaultdict(list)
    for residual in report.residuals:
        v = residual.value
        if not residual.takes_memory or nbytes(v) < LARGE * taken_in_all or v.spec is None:
            continue
        for axis, size in report.mesh.shape.items():
            spec = further(v, axis, report.mesh) if size > 1 and axis not in v.manual else None
            if spec is not None:
                kept_value = _kept_intermediate(case, v)
                stacked = 0 if kept_value is None else len(v.shape) - len(kept_value.shape)
                inner = None if any(spec.dims[:stacked]) else Spec(spec.dims[stacked:])
                kept[v.source, axis, inner].append(v)
                break
    for (source, axis, inner), values in kept.items():
        size, name = report.mesh.shape[axis], made_name(case, values[0])
        called = next((v.label for v in report.intermediates if v.name == name), "") or "the value"
        suggestion = Suggestion(kind="constrain", target=name, spec=inner, source=source, called=called)
        total = total_bytes(values)
        if report.memory is not None and total > report.memory.temporaries:
            continue  # the compiler's plan does not keep it
        saved = total * (1 - 1 / size)
        where = f" (line {source.short})" if source else ""
        copy = format_bytes(total) if len(values) == 1 else f"{len(values)} arrays of {format_bytes(total)} together"
        yield Finding(
            f"kept-whole:{values[0].name}:{axis}",
            severity(over),
            f"What the forward pass keeps for the backward pass{where} is replicated on the "
            f"{plural(size, 'device')} along {axis!r}, {copy} on each; sharded along {axis!r}, it would take "
            f"{format_bytes(saved)} less on each.",
            why="nothing that the array is computed from is sharded along the axis; sharded where it is kept, it is "
            "gathered where it is used, which communicates as much once in each pass",
            source=source,
            value=name,
            axes=(axis,),
            numbers={"bytes": total, "saved_bytes": saved, "size": float(size)},
            suggestions=() if inner is None else (suggestion,),
        )


def _candidates(case: Case, v: Value) -> list[Value]:
    return [
        other
        for other in case.report.intermediates
        if other.source == v.source
        and phase(other.name_stack) != "backward"
        and other.dtype == v.dtype
        and v.shape[-len(other.shape) :] == other.shape
        and other.shape
    ]


def _kept_intermediate(case: Case, v: Value) -> Value | None:
    """Return the intermediate that is kept: the array itself, or one slice of a loop's stack."""
    candidates = _candidates(case, v)
    return max(reversed(candidates), key=lambda other: len(other.shape), default=None)


def made_name(case: Case, v: Value) -> str:
    kept_value = _kept_intermediate(case, v)
    return "" if kept_value is None else kept_value.name
