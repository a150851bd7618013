"""Rules about what each device holds and could share with others.

| rule | what it says |
|---|---|
| `kept-whole` | what is kept for the backward pass lies whole along an axis that could shard it |
| `whole-activation` | what is made inside lies whole along the axes that shard the batch |
| `padded` | a dimension of what is made inside does not divide by its axes, so that devices hold padding |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shardviz.costs.batch import inputs_of
from shardviz.diagnose.case import (
    Case,
    and_others,
    at_line,
    by_hand,
    nbytes,
    quoted_axes,
    severity,
    total_bytes,
)
from shardviz.diagnose.specs import free, further
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axes_size, axis_name
from shardviz.records import Finding, Frame, Suggestion, Value
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.collectives import axes_words
from shardviz.records.groups import grouped
from shardviz.records.phases import phase

_SHARE = 0.05
_KEPT = 0.1


def whole_activation(case: Case) -> Iterator[Finding]:
    """What the forward pass makes of the whole batch on every device, though the batch comes in sharded.

    One finding for each batch, with the largest such array, if that is a twentieth of what a device holds, or more.
    """
    report = case.report
    held = case.argument_bytes + report.residual_bytes
    inputs = {
        v.shape[0]: v.spec.dims[0] for v in inputs_of(report) if v.shape and v.spec is not None and v.spec.dims[0]
    }
    if not inputs:
        return
    forward = any(phase(v.name_stack) == "forward" for v in report.intermediates)
    wanted = "forward" if forward else "update"  # a program without a backward pass is all of one
    values = [
        v for v in report.intermediates if v.shape and v.spec is not None and v.source is not None and not v.manual
    ]
    values = [v for v in values if phase(v.name_stack) == wanted]
    for size, axes in inputs.items():
        names = {axis_name(a) for a in axes}
        of_batch = [v for v in values if v.shape[0] == size and not names & _first(v)]
        whole = [v for v in of_batch if all(free(v, name) for name in names)]
        v = max(whole, key=lambda v: (nbytes(v), bool(v.label)), default=None)
        if v is None or nbytes(v) < max(_SHARE * held, 2**20):
            continue
        many = axes_size(axes, report.mesh)
        taken = nbytes(v)
        saved = taken * (1 - 1 / many)
        first = next(each for each in of_batch if "float" in each.dtype or each is v)
        lines = {each.source for each in whole if nbytes(each) >= 2**20} - {v.source}
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
            mends=tuple(
                dict.fromkeys(case.constraint(each, _by_batch(each.spec, axes), each.source) for each in (first, v))
            ),
        )


def _first(v: Value) -> set[str]:
    """The axes that shard the first dimension."""
    return {axis_name(a) for a in v.spec.dims[0]} if v.spec is not None and v.spec.dims else set()


def _by_batch(spec: Spec | None, axes: tuple[Axis, ...]) -> Spec:
    """The spec with these axes on the first dimension and on no other."""
    names = {axis_name(a) for a in axes}
    dims = () if spec is None else spec.dims
    kept = [tuple(a for a in dim if axis_name(a) not in names) for dim in dims]
    return Spec(((*kept[0], *axes), *kept[1:]) if kept else (axes,))


def padded(case: Case) -> Iterator[Finding]:
    """Dimensions of what is made inside that do not divide by what shards them, each size and its axes once.

    A warning where a tenth or more of a large array is padding; nothing where that is less than a hundredth.
    """
    report, mesh = case.report, case.report.mesh
    held = case.argument_bytes + report.residual_bytes
    large = [v for v in report.intermediates if not v.manual and nbytes(v) >= 0.01 * held]
    uneven = grouped(
        ((size, dim), (nbytes(v), d, v))
        for v in large
        for d, (size, dim) in enumerate(zip(v.shape, v.spec.dims if v.spec is not None else (), strict=False))
        if size % axes_size(dim, mesh)
    )
    for (size, dim), rows in uneven.items():
        most, d, v = max(rows, key=lambda row: row[0])
        ways = axes_size(dim, mesh)
        better = -(-size // ways) * ways
        share = 1 - size / better
        wasted = most * share
        if share < 0.01:
            continue
        at = next(((a.name, i) for a in case.arguments for i, n in enumerate(a.shape) if n == size), None)
        pad = () if at is None else (Suggestion(kind="pad", target=at[0], dimension=at[1], size=better),)
        code = by_hand(v.source, f"make it {better:,} long, or {size // ways * ways:,}")
        others = and_others(rows)
        where = at_line(v.source)
        yield Finding(
            f"padded:{size}:{axes_words(dim)}",
            severity(share >= 0.1 and nbytes(v) >= _SHARE * held),
            f"Dimension {d} of {v.label or 'an intermediate'}{where}{others}, {size:,} long, is sharded {ways} ways "
            f"along {quoted_axes(dim)}, which do not divide it: {share:.1%} of each such array is padding, "
            f"{format_bytes(wasted)} of {format_bytes(v.bytes_per_device)} on each device; {better:,} would divide.",
            why="all shards have the same shape, so the last ones hold padding, and take as long as the others",
            source=v.source,
            value=v.name,
            axes=dim,
            numbers={"bytes": nbytes(v), "wasted_bytes": wasted, "size": float(better)},
            mends=pad or ((code,) if size >= ways else ()),
        )


def kept_whole(case: Case) -> Iterator[Finding]:
    """What is kept for the backward pass, a tenth of what a device holds or more, whole along an axis that divides it;
    what one line makes as one finding."""
    report = case.report
    held = case.argument_bytes + report.residual_bytes
    over = case.cost is not None and case.cost.needs.fits is False
    kept: dict[tuple[Frame | None, str, Spec | None], list[Value]] = defaultdict(list)
    for residual in report.residuals:
        v = residual.value
        if not residual.takes_memory or nbytes(v) < _KEPT * held or v.spec is None:
            continue
        for axis, size in report.mesh.shape.items():
            spec = further(v, axis, report.mesh) if size > 1 and axis not in v.manual else None
            if spec is not None:
                stacked = len(v.shape) - len(_inside(case, v))
                inner = None if any(spec.dims[:stacked]) else Spec(spec.dims[stacked:])
                kept[v.source, axis, inner].append(v)
                break
    for (source, axis, inner), values in kept.items():
        size, name = report.mesh.shape[axis], made_name(case, values[0])
        called = next((v.label for v in report.intermediates if v.name == name), "") or "the value"
        mend = Suggestion(kind="constrain", target=name, spec=inner, source=source, called=called)
        total = total_bytes(values)
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
            mends=() if inner is None else (mend,),
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


def _inside(case: Case, v: Value) -> tuple[int, ...]:
    """The shape of one slice of what a loop stacks, or the shape itself."""
    candidates = _candidates(case, v)
    return candidates[0].shape if candidates else v.shape


def made_name(case: Case, v: Value) -> str:
    """The name of the intermediate that is kept."""
    candidates = _candidates(case, v)
    return candidates[-1].name if candidates else ""
