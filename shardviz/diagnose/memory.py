"""Rules about a device's memory.

| rule | meaning |
|---|---|
| `kept-dominates` | activations kept for the backward pass take most of the memory |
| `too-much` | the program does not fit a machine; lists the fewest changes that would make it fit |
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardviz.costs.step_cost import KEPT
from shardviz.diagnose.case import Case, at_line, by_hand, nbytes, quoted_axes, severity, total_bytes
from shardviz.diagnose.feeding import pairs
from shardviz.diagnose.holdings import kept_whole, made_name
from shardviz.diagnose.policy import LARGEST, SMALL_BYTES
from shardviz.diagnose.specs import free, over_all
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.records import Finding, Suggestion
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.groups import grouped
from shardviz.records.paths import segments

_POLICIES = "dots_saveable", "nothing_saveable"
_OF_A_CHECKPOINT = "reduce_precision"
"""The operation that `jax.checkpoint` applies to an array that it keeps."""


def kept_dominates(case: Case) -> Iterator[Finding]:
    """Find activations kept for the backward pass that exceed all arguments.

    Checkpoint policies are suggested if a loop or a `jax.checkpoint` marks the layers.
    """
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
    value, runs = heaviest.value, heaviest.layers or 1
    stacked = f", stacked over {plural(runs, 'run')} of a loop" if runs > 1 else ""
    layered = any((r.layers or 1) > 1 for r in rows)
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
        value=made_name(case, value),
        numbers={"bytes": kept, "argument_bytes": case.argument_bytes},
        suggestions=tried if layered else (by_hand(value.source, text),),
    )


def too_much(case: Case) -> Iterator[Finding]:
    """Find a program that does not fit a machine, unless the machine's own compiler reported so already."""
    report, cost = case.report, case.cost
    if cost is None or cost.needs.usable is None:
        return
    total = cost.needs.total
    over = total - cost.needs.usable
    if over <= 0:
        return
    fits_by_own = report.memory is not None and report.memory.fits
    if fits_by_own and cost.machine.text == report.target:
        return
    own = any(d.rule == "does-not-fit" for d in report.diagnostics)
    changes = _enough(case, over)
    saved = sum(size for _, size in changes)
    reach = (
        "would make it fit" if saved >= over else f"would not be enough ({format_bytes(over - saved)} would be missing)"
    )
    listed = "; ".join(f"{change.words} ({format_bytes(size)} less)" for change, size in changes)
    yield Finding(
        "too-much",
        "note" if own else "error" if cost.needs.fits is False and cost.needs.sure else "warning",
        f"The program takes {cost.needs.text} on each device of {cost.machine.text}, which has "
        f"{format_bytes(cost.needs.usable)} usable: {format_bytes(over)} too much.{_holder(case, total)}",
        why=f"{'This' if len(changes) == 1 else 'Together these'} {reach}: {listed}" if changes else cost.needs.verdict,
        numbers={"bytes": total, "usable_bytes": cost.needs.usable, "over_bytes": over, "saved_bytes": saved},
        suggestions=tuple(change for change, _ in changes),
    )


def _holder(case: Case, total: float) -> str:
    """Return the argument that takes most of the memory, and the axes along which it is replicated."""
    for name, arrays in grouped((segments(v.name)[0], v) for v in case.arguments).items():
        if (size := total_bytes(arrays)) > LARGEST * total:
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
        spec = over_all(v, axes, report.mesh)
        if spec is not None:
            shard = math.prod(shard_shape(v.shape, spec, report.mesh)) * itemsize(v.dtype)
            change = Suggestion(kind="argument", target=v.name, spec=spec)
            options.append((change, max(0.0, nbytes(v) - shard)))
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
        if saved >= over or size < 0.02 * over:
            break
        changes.append((change, size))
        saved += size
    return changes
