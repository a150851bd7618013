"""Rules about a device's memory. `findings.BRIEFS` describes each in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardviz.costs.step_cost import KEPT
from shardviz.diagnose.case import Case, and_others, at_line, by_hand, nbytes, quoted_axes, severity, total_bytes
from shardviz.diagnose.feeding import pairs
from shardviz.diagnose.policy import GRAVE, HELPS, LARGE, MOSTLY, SLIGHT, SMALL_BYTES
from shardviz.diagnose.specs import free, further, over_all
from shardviz.notation import Spec
from shardviz.notation.spec import axes_size
from shardviz.records import Finding, Suggestion, Value
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.collectives import axes_words
from shardviz.records.groups import grouped
from shardviz.records.paths import segments
from shardviz.records.phases import phase

_POLICIES = "dots_saveable", "nothing_saveable"
_OF_A_CHECKPOINT = "reduce_precision"
"""The operation that `jax.checkpoint` applies to an array that it keeps."""


def padded(case: Case) -> Iterator[Finding]:
    """Find dimensions of intermediates that do not divide by their axes, one finding per size and axes."""
    report, mesh = case.report, case.report.mesh
    large = [v for v in report.intermediates if not v.manual and nbytes(v) >= SLIGHT * case.held_bytes]
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
        where = at_line(v.source) + and_others(rows)
        at = next(((a.name, i) for a in case.arguments for i, n in enumerate(a.shape) if n == size), None)
        change = by_hand(v.source, f"make it {better:,} long, or {size // count * count:,}")
        if at is not None:
            change = Suggestion(kind="pad", target=at[0], dimension=at[1], size=better)
        yield Finding(
            f"padded:{size}:{axes_words(dim)}",
            severity(share >= LARGE and nbytes(v) >= GRAVE * case.held_bytes),
            f"Dimension {d} of {v.label or 'an intermediate'}{where}, {size:,} long, is sharded {count} ways "
            f"along {quoted_axes(dim)}, which do not divide it: {share:.1%} of each such array is padding, "
            f"{format_bytes(wasted)} of {format_bytes(v.bytes_per_device)} on each device; {better:,} would divide.",
            why="all shards have the same shape, so the last ones hold padding, and take as long as the others",
            source=v.source,
            value=v.name,
            axes=dim,
            numbers={"bytes": nbytes(v), "wasted_bytes": wasted, "size": float(better)},
            suggestions=(change,),
        )


def kept_whole(case: Case) -> Iterator[Finding]:
    """Find large activations kept for the backward pass and replicated along an axis that divides them, by line."""
    report, mesh = case.report, case.report.mesh
    kept: list[tuple[tuple[Any, ...], Value]] = []
    for v in (r.value for r in report.residuals if r.takes_memory and r.value.spec is not None):
        axes = (a for a, n in mesh.shape.items() if n > 1 and a not in v.manual and further(v, a, mesh) is not None)
        if nbytes(v) >= LARGE * case.held_bytes and (axis := next(axes, None)) is not None:
            made, spec = _kept_intermediate(case, v), further(v, axis, mesh) or Spec()
            stacked = 0 if made is None else len(v.shape) - len(made.shape)
            inner = None if any(spec.dims[:stacked]) else Spec(spec.dims[stacked:])
            kept.append(((v.source, axis, inner), v))
    for (source, axis, inner), values in grouped(kept).items():
        size, total, made = mesh.shape[axis], total_bytes(values), _kept_intermediate(case, values[0])
        if report.memory is not None and total > report.memory.temporaries:
            continue  # the compiler's plan does not keep it
        saved, where = total * (1 - 1 / size), f" (line {source.short})" if source else ""
        name, called = ("", "") if made is None else (made.name, made.label)
        suggestion = Suggestion(kind="constrain", target=name, spec=inner, source=source, called=called or "the value")
        copy = format_bytes(total) if len(values) == 1 else f"{len(values)} arrays of {format_bytes(total)} together"
        yield Finding(
            f"kept-whole:{values[0].name}:{axis}",
            severity(case.cost is not None and case.cost.needs.fits is False),
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


def _kept_intermediate(case: Case, v: Value) -> Value | None:
    """Return the intermediate that is kept: the array itself, or one slice of a loop's stack."""
    of_line = (o for o in case.report.intermediates if o.source == v.source and o.dtype == v.dtype and o.shape)
    alike = [o for o in of_line if v.shape[-len(o.shape) :] == o.shape and phase(o.name_stack) != "backward"]
    return max(reversed(alike), key=lambda o: len(o.shape), default=None)


def kept_dominates(case: Case) -> Iterator[Finding]:
    """Find activations kept for the backward pass that exceed all arguments."""
    report = case.report
    traced, rows = report.residual_bytes, [r for r in report.residuals if r.takes_memory]
    kept, planned = traced, ""
    if report.memory is not None:
        kept, planned = min(traced, report.memory.temporaries), "compiler's plan keeps less: all its temporaries are"
    elif case.cost is not None and case.cost.needs.margin:
        kept, planned = case.cost.needs.parts.get(KEPT, 0.0), "estimate of the memory holds less of it at once:"
    if not kept or kept <= case.argument_bytes or kept < SMALL_BYTES:
        return
    heaviest = max(rows, key=lambda r: nbytes(r.value))
    value, runs, made = heaviest.value, heaviest.layers or 1, _kept_intermediate(case, heaviest.value)
    stacked = f", stacked over {plural(runs, 'run')} of a loop" if runs > 1 else ""
    layered = any((r.layers or 1) > 1 for r in rows)  # else nothing tells the layers to apply a policy to
    layered |= any(r.kind == "recomputed" or r.value.op == _OF_A_CHECKPOINT for r in report.residuals)
    text = f"put jax.checkpoint(layer, policy=jax.checkpoint_policies.{_POLICIES[-1]}) in place of a layer's function"
    tried = tuple(Suggestion(kind="checkpoint", policy=name) for name in _POLICIES)
    yield Finding(
        "kept-dominates",
        severity(case.cost is not None and case.cost.needs.fits is False),
        f"The forward pass keeps {format_bytes(kept)} on each device for the backward pass, more than all arguments "
        f"({format_bytes(case.argument_bytes)})."
        if kept == traced
        else f"The forward pass as traced keeps {format_bytes(traced)} on each device for the backward pass. The "
        f"{planned} {format_bytes(kept)}, more than all arguments ({format_bytes(case.argument_bytes)}).",
        why=f"most of it is {format_bytes(value.bytes_per_device)}{at_line(value.source)}{stacked}; with "
        "jax.checkpoint around each layer, only what enters a layer is kept, and the rest is computed again",
        source=value.source,
        value="" if made is None else made.name,
        numbers={"bytes": kept, "argument_bytes": case.argument_bytes},
        suggestions=tried if layered else (by_hand(value.source, text),),
    )


def too_much(case: Case) -> Iterator[Finding]:
    """Find a program that does not fit a machine, unless the machine's own compiler reported so already."""
    report, cost = case.report, case.cost
    if cost is None or cost.needs.usable is None or (over := cost.needs.total - cost.needs.usable) <= 0:
        return
    if report.memory is not None and report.memory.fits and cost.machine.text == report.target:
        return
    own = any(d.rule == "does-not-fit" for d in report.diagnostics)
    changes = _enough(case, over)
    saved = sum(size for _, size in changes)
    missing = f"would not be enough ({format_bytes(over - saved)} would be missing)"
    reach = "would make it fit" if saved >= over else missing
    listed = "; ".join(f"{change.words} ({format_bytes(size)} less)" for change, size in changes)
    yield Finding(
        "too-much",
        "note" if own else "error" if cost.needs.fits is False and cost.needs.sure else "warning",
        f"The program takes {cost.needs.text} on each device of {cost.machine.text}, which has "
        f"{format_bytes(cost.needs.usable)} usable: {format_bytes(over)} too much.{_holder(case, cost.needs.total)}",
        why=f"{'This' if len(changes) == 1 else 'Together these'} {reach}: {listed}" if changes else cost.needs.verdict,
        numbers={
            "bytes": cost.needs.total,
            "usable_bytes": cost.needs.usable,
            "over_bytes": over,
            "saved_bytes": saved,
        },
        suggestions=tuple(change for change, _ in changes),
    )


def _holder(case: Case, total: float) -> str:
    """Return the argument that takes most of the memory, and the axes along which it is replicated."""
    for name, arrays in grouped((segments(v.name)[0], v) for v in case.arguments).items():
        if (size := total_bytes(arrays)) > MOSTLY * total:
            axes = [a for a, n in case.report.mesh.shape.items() if n > 1 and all(free(v, a) for v in arrays)]
            where = f", replicated along {quoted_axes(axes)}" if axes else ""
            return f" {name} takes {format_bytes(size)} of it{where}."
    return ""


def _enough(case: Case, over: float) -> list[tuple[Suggestion, float]]:
    """Return the fewest changes that save `over` bytes per device; only changes whose saving the report implies."""
    report = case.report
    options: list[tuple[Suggestion, float]] = []
    axes = sorted((a for a, size in report.mesh.shape.items() if size > 1), key=lambda a: -report.mesh.shape[a])
    for v in case.arguments:
        if (spec := over_all(v, axes, report.mesh)) is not None:
            saved = nbytes(v) - case.shard_bytes(v.shape, v.dtype, spec)
            options.append((Suggestion(kind="argument", target=v.name, spec=spec), max(0.0, saved)))
    for finding in kept_whole(case):
        options += [(suggestion, finding.numbers["saved_bytes"]) for suggestion in finding.suggestions]
    if report.memory is not None and report.memory.outputs > report.memory.aliased:
        options += [
            (Suggestion(kind="donate", target=a.name), nbytes(a))
            for a, r in pairs(case)
            if not a.donated and a.shard_shape == r.shard_shape
        ]
    changes, saved = [], 0.0
    for change, size in sorted(options, key=lambda option: -option[1]):
        if saved >= over or size < HELPS * over:
            break
        changes.append((change, size))
        saved += size
    return changes
