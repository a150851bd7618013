"""Rules about a device's memory: what dominates it, whether it is enough, and whose plan it is.

| rule | what it says |
|---|---|
| `kept-dominates` | most of the memory holds what the backward pass needs; what checkpoint policies would drop |
| `too-much` | the program does not fit a machine, and the shortest list of changes that would |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardviz.diagnose.case import Case, by_hand, nbytes, severity, total_bytes
from shardviz.diagnose.feeding import pairs
from shardviz.diagnose.holdings import kept_whole, made_name
from shardviz.diagnose.specs import over_all
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.records import Finding, Product, Residual, Suggestion
from shardviz.records.amounts import format_bytes, format_flops, format_seconds, plural


def kept_dominates(case: Case) -> Iterator[Finding]:
    """What is kept for the backward pass, where it is more than all arguments, by what checkpoint policies would
    keep."""
    report = case.report
    kept = report.residual_bytes
    if not kept or kept <= case.argument_bytes or kept < 2**20:
        return
    layers = _layers(case)
    policies = {name: each for name, each in _policies(case, layers).items() if each[0] > 0.05 * kept}
    most, least = ("", "") if layers.looped else ("at most ", "at least ")
    savings = "; ".join(
        f"{name} would keep {most}{format_bytes(kept - saved)} ({least}{format_bytes(saved)} less) and recompute "
        f"{_again(case, flops)}"
        for name, (saved, flops) in policies.items()
    )
    heaviest = max((r for r in report.residuals if r.takes_memory), key=lambda r: nbytes(r.value))
    over = case.cost is not None and case.cost.needs.fits is False
    numbers = {"bytes": kept, "argument_bytes": case.argument_bytes, "layers": float(layers.count)}
    for name, (saved, flops) in policies.items():
        numbers |= {f"{name}_saved_bytes": saved, f"{name}_flops": flops}
    mends = [Suggestion(kind="checkpoint", policy=name) for name in policies]
    if policies and not layers.tried:
        savings += ". Nothing here tries that: no loop and no jax.checkpoint of the function says where a layer begins"
        policy = list(policies)[-1]
        text = f"put jax.checkpoint(layer, policy=jax.checkpoint_policies.{policy}) in place of a layer's function"
        mends = [by_hand(heaviest.value.source, text)]
    why = f"most of it is {_named(heaviest, layers)}"
    if savings:
        why += f". With jax.checkpoint around each layer, {savings}"
    elif layers.count == 1:
        why += (
            ". No line runs for several layers, so what jax.checkpoint would save depends on where it stands: around "
            "the whole function, the backward pass would recompute everything before it begins, and save nothing"
        )
    yield Finding(
        "kept-dominates",
        severity(over),
        f"The forward pass keeps {format_bytes(kept)} on each device for the backward pass, more than all arguments "
        f"({format_bytes(case.argument_bytes)}).",
        why=why,
        source=heaviest.value.source,
        value=made_name(case, heaviest.value),
        numbers=numbers,
        mends=tuple(mends),
    )


@dataclass(frozen=True)
class _Layers:
    """What of the kept values is made again and again, layer by layer: `rows`, stacked by a loop (`looped`), or made by
    one line for one layer after the other, `count` of them. `entry` are bytes of what enters all layers, which a
    checkpoint around each keeps: at most the largest of what each makes, times their number. A policy can be tried
    where a loop or a jax.checkpoint says where a layer begins."""

    rows: Sequence[Residual] = ()
    entry: float = 0.0
    products: Sequence[Product] = ()
    count: int = 1
    looped: bool = False
    tried: bool = False


_OF_A_CHECKPOINT = "reduce_precision"
"""What `jax.checkpoint` does to an array that it keeps."""


def _layers(case: Case) -> _Layers:
    report = case.report
    rows = [r for r in report.residuals if r.takes_memory]
    forward = [p for p in report.products if p.phase == "forward"]
    held = lambda r: nbytes(r.value)  # noqa: E731
    if stacked := [r for r in rows if (r.layers or 1) > 1]:
        inner = [p for p in forward if p.count != 1]
        return _Layers(stacked, max(map(held, stacked)), inner, looped=True, tried=True)
    kind = lambda r: (r.value.source, r.value.op, r.value.shape, r.value.dtype)  # noqa: E731
    alike = Counter(map(kind, rows))
    often: Counter[int] = Counter()  # how many layers: as often as the operations are run that make most of a layer
    for r in {kind(r): r for r in rows}.values():
        often[alike[kind(r)]] += round(held(r))
    count = max((n for n in often if n > 1), key=lambda n: (often[n], -n), default=1)
    if count == 1:
        return _Layers()
    again = [r for r in rows if alike[kind(r)] > 1]
    lines = Counter((p.source, p.shard, p.dtype) for p in forward)
    inner = [p for p in forward if lines[p.source, p.shard, p.dtype] > 1]
    own = any(r.kind == "recomputed" or r.value.op == _OF_A_CHECKPOINT for r in report.residuals)
    return _Layers(again, count * max(map(held, again)), inner, count, tried=own)


def _policies(case: Case, layers: _Layers) -> dict[str, tuple[float, float]]:
    """Checkpoint policy → bytes that it would not keep, and FLOPs of matrix products that it would do again.

    Both around each layer, of which what enters it is kept. `dots_saveable` keeps the results of the forward pass's
    matrix products besides; `nothing_saveable` does that pass again. Empty where nothing is made layer by layer: then
    it hangs on where the checkpoints are set.
    """
    if not layers.rows:
        return {}
    report = case.report
    whole = total_bytes(r.value for r in layers.rows)
    dots = sum(p.shard[0] * p.shard[1] * p.shard[3] * itemsize(p.dtype) * (p.count or 1) for p in layers.products)
    work = report.cost.work if report.cost is not None else ()
    flops = {phase: sum(w.dot_flops for w in work if w.phase == phase) for phase in ("forward", "rematerialised")}
    left = max(0.0, flops["forward"] - flops["rematerialised"])
    forward = (p for p in report.products if p.phase == "forward")
    convolutions = max(0.0, flops["forward"] - sum(p.step_flops for p in forward))
    return {
        "dots_saveable": (max(0.0, whole - layers.entry - dots), convolutions),
        "nothing_saveable": (max(0.0, whole - layers.entry), left),
    }


def _again(case: Case, flops: float) -> str:
    if not flops:
        return "no matrix product"
    seconds = case.seconds_of(flops)
    return format_flops(flops) + (f" of matrix products ({format_seconds(seconds)})" if seconds is not None else "")


def _named(residual: Residual, all_layers: _Layers) -> str:
    v = residual.value
    at = f" of {v.source.short}" if v.source else ""
    layers = residual.layers or 1
    stacked = f", stacked over {plural(layers, 'run')} of a loop" if layers > 1 else ""
    if all_layers.count > 1:
        stacked = f", and the like for each of {all_layers.count} layers"
    return f"{format_bytes(v.bytes_per_device)}{at}{stacked}"


def too_much(case: Case) -> Iterator[Finding]:
    """A program that does not fit a machine: by its own compiler's plan (which says so itself), or by what is known."""
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
    told = "; ".join(f"{change.words} ({format_bytes(size)} less)" for change, size in changes)
    yield Finding(
        "too-much",
        "note" if own else "error" if cost.needs.fits is False and cost.needs.sure else "warning",
        f"The program takes {cost.needs.text} on each device of {cost.machine.text}, which has "
        f"{format_bytes(cost.needs.usable)} usable: {format_bytes(over)} too much.",
        why=f"{'This' if len(changes) == 1 else 'Together these'} {reach}: {told}" if changes else cost.needs.verdict,
        numbers={"bytes": total, "usable_bytes": cost.needs.usable, "over_bytes": over, "saved_bytes": saved},
        mends=tuple(change for change, _ in changes),
    )


def _enough(case: Case, over: float) -> list[tuple[Suggestion, float]]:
    """The fewest changes that save so many bytes on a device, of those whose saving follows from the report."""
    report = case.report
    options: list[tuple[Suggestion, float]] = []
    layers = _layers(case)
    axes = sorted((a for a, size in report.mesh.shape.items() if size > 1), key=lambda a: -report.mesh.shape[a])
    for v in case.arguments:
        spec = over_all(v, axes, report.mesh)
        if spec is not None:
            shard = math.prod(shard_shape(v.shape, spec, report.mesh)) * itemsize(v.dtype)
            change = Suggestion(kind="argument", target=v.name, spec=spec)
            options.append((change, max(0.0, nbytes(v) - shard)))
    for finding in kept_whole(case):
        options += [(mend, finding.numbers["saved_bytes"]) for mend in finding.mends]
    if report.memory is not None and report.memory.outputs > report.memory.aliased:
        options += [
            (Suggestion(kind="donate", target=a.name), nbytes(a))
            for a, r in pairs(case)
            if not a.donated and a.shard_shape == r.shard_shape
        ]
    options += [
        (Suggestion(kind="checkpoint", policy=name), saved)
        for name, (saved, _) in list(_policies(case, layers).items())[-1:]
        if saved and layers.tried
    ]
    changes, saved = [], 0.0
    for change, size in sorted(options, key=lambda option: -option[1]):
        if saved >= over or size < 0.02 * over:
            break
        changes.append((change, size))
        saved += size
    return changes
