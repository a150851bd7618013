"""Rules about matrix products, as they are sharded.

| rule | what it says |
|---|---|
| `repeated-work` | the devices along an axis do the same matrix products |
| `conflict` | the contracted dimension of a product is sharded along different axes in its two operands |
| `small-tiles` | a product is sharded so finely that a device's part does not fill its matrix unit |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from shardviz.diagnose.case import Case, axes_said, moved_words, nbytes, severity
from shardviz.diagnose.specs import cut_further
from shardviz.records import Finding, Frame, Product
from shardviz.records.amounts import format_flops, format_seconds, plural

_LINES = 3


def repeated_work(case: Case) -> Iterator[Finding]:
    """For each mesh axis, the products that all devices along it do alike.

    A warning where they are a tenth of a device's FLOPs (at level `propagated` a half), nothing below a hundredth.
    """
    report = case.report
    for axis, size in report.mesh.shape.items():
        same = [p for p in report.products if axis in p.repeated]
        flops, share = _flops(case, same)
        if axis not in case.used_axes or share < 0.01 or not _as_counted(case):
            continue
        enough = 0.5 if report.level == "propagated" else 0.1  # the partitioner shares out more than Shardy does
        wasted = flops * (1 - 1 / size)
        seconds = case.flop_seconds(same)
        lost = None if seconds is None else seconds * (1 - 1 / size)
        more = {} if lost is None else {"seconds": lost, "share": lost / case.step if case.step else 0.0}
        time = f", {format_seconds(more['seconds'])} ({more['share']:.1%} of the step)" if more else ""
        lines = _lines(same)
        yield Finding(
            f"repeated-work:{axis}",
            severity(share >= enough),
            f"The {plural(size, 'device')} along {axis!r} repeat the same matrix products at {_said(lines)}: divided "
            f"among them, each would do {format_flops(wasted)} less in a step{time}.",
            why=f"neither operand nor the result is sharded along {axis!r} there",
            source=lines[0] if lines else None,
            value=case.known(same[0].value),
            axes=(axis,),
            numbers={"flops": flops, "saved_flops": wasted, "share_of_flops": share, "size": float(size), **more},
            mends=tuple(
                found
                for v in sorted(report.held, key=lambda v: -nbytes(v))[:3]
                if (found := cut_further(v, axis, report.mesh)) is not None
            ),
        )  # fmt: skip


def conflicts(case: Case) -> Iterator[Finding]:
    """Products whose operands have the contracted dimension sharded along different axes, so that one is resharded."""
    for lines, products in _by_line(p for p in case.report.products if p.left_axes and p.right_axes).items():
        p = products[0]
        moved = [
            c
            for c in case.report.collectives
            if c.source == p.source and c.kind != "all-reduce" and c.phase == p.phase and "dot_general" in c.read_by
            if "windowed" not in c.facts
        ]
        if not moved:
            continue
        numbers = case.moved(moved)
        grave = case.grave(numbers)
        yield Finding(
            f"conflict:{lines.short if lines else p.value}",
            severity(grave),
            f"A matrix product contracts a dimension that is sharded along {axes_said(p.left_axes)} in its left "
            f"operand and along {axes_said(p.right_axes)} in its right one, so one is resharded first: "
            f"{moved_words(numbers)}.",
            why="both operands must be sharded alike in the contracted dimension; then each device sums its part, and "
            "one all-reduce adds the parts",
            source=p.source,
            value=case.known(p.value),
            axes=tuple(dict.fromkeys((*p.left_axes, *p.right_axes))),
            numbers=numbers,
            mends=tuple(mend for c in moved for mend in case.constrained(c, c.after, argument=True)),
        )  # fmt: skip


def small_tiles(case: Case) -> Iterator[Finding]:
    """Products that were large enough for the matrix unit as a whole, and are not on one device."""
    if case.cost is None:
        return
    chip = case.cost.machine.chip
    tile = chip.matrix_unit
    if tile is None:
        return
    fill_of = _fill_of_any if chip.kind == "gpu" else _fill_of_all
    small = [p for p in case.report.products if fill_of(p, tile)[0] < 1.0]
    for line, products in _by_line(small).items():
        flops, share = _flops(case, products)
        if share < 0.01:
            continue
        p = min(products, key=lambda p: fill_of(p, tile)[0])
        fill, worst = fill_of(p, tile)
        what = ("", "rows", "entries to sum over", "columns")[worst]
        yield Finding(
            f"small-tiles:{line.short if line else p.value}",
            severity(share >= 0.05 and fill <= 0.5),
            f"A matrix product is sharded so finely that a device's part has {p.shard[worst]:,} {what} instead of "
            f"{p.whole[worst]:,}, and the matrix unit of {chip.name} takes {tile} at a time: at most {fill:.0%} of it "
            f"is used, for {share:.1%} of the step's FLOPs.",
            why="the unit takes as long for a part of a tile as for a whole one",
            source=p.source,
            value=case.known(p.value),
            numbers={"flops": flops, "share_of_flops": share, "size": float(p.shard[worst]), "tile": float(tile)},
        )


def _fill_of_all(p: Product, tile: int) -> tuple[float, int]:
    """The share of a tile that a device's part fills, and in which of its sizes, where rows, columns and what is summed
    over all have to fill it, as in a TPU's array of multipliers; 1 where it was no larger before it was cut."""
    fills = ((p.shard[i] / tile if p.whole[i] >= tile else 1.0, i) for i in (1, 2, 3))
    fill, worst = min(fills)
    return min(fill, 1.0), worst


def _fill_of_any(p: Product, tile: int) -> tuple[float, int]:
    """The same where rows or columns have to, whichever are more, as in an instruction of a GPU's tensor core."""
    worst = max((1, 3), key=lambda i: p.shard[i])
    whole = max(p.whole[1], p.whole[3])
    return (min(p.shard[worst] / tile, 1.0) if whole >= tile else 1.0), worst


def _as_counted(case: Case) -> bool:
    """Whether the report counts as many FLOPs as Shardy's products have; the partitioner may do with less."""
    cost = case.report.cost
    return cost is not None and sum(p.step_flops for p in case.report.products) <= 1.01 * cost.dot_flops


def _flops(case: Case, products: Iterable[Product]) -> tuple[float, float]:
    """FLOPs of products on one device in a step, and their share of all that the report counts."""
    flops = sum(p.step_flops for p in products)
    every = case.report.cost.dot_flops if case.report.cost is not None else 0.0
    return flops, flops / every if every else 0.0


def _by_line(products: Iterable[Product]) -> dict[Frame | None, list[Product]]:
    found: dict[Frame | None, list[Product]] = defaultdict(list)
    for p in products:
        found[p.source].append(p)
    return found


def _lines(products: Iterable[Product]) -> list[Frame]:
    """Their lines, those of most FLOPs first."""
    flops: dict[Frame, float] = defaultdict(float)
    for p in products:
        if p.source is not None:
            flops[p.source] += p.step_flops
    return sorted(flops, key=lambda frame: -flops[frame])


def _said(lines: list[Frame]) -> str:
    shown = ", ".join(line.short for line in lines[:_LINES])
    return (shown + (f" and {len(lines) - _LINES} more lines" if len(lines) > _LINES else "")) or "lines not known"
