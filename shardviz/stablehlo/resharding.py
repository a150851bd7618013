"""The collectives that change an array from one sharding to another, as Shardy chooses them.

They come from Shardy's pass `sdy-reshard-to-collectives`, which JAX's programs go through, so the steps are those of
the level `propagated`. XLA's partitioner may choose others.

>>> for step in moves((16, 8), ("x", None), (("y", "x"), None), {"x": 2, "y": 2}).steps:
...     print(step)
slice over y: dimension 0 is sharded; P('x', None) → P(('x', 'y'), None); 0 elements
collective-permute over x y; P(('x', 'y'), None) → P(('y', 'x'), None); 32 elements

Partial sums are added up first; where the result is sharded along their axes, Shardy makes a reduce-scatter of that.
Where dimensions do not divide, tiles of one sharding may lie across those of the next: neighbours' edges are then sent
along (a halo exchange, which XLA makes of collective-permutes).

Shardy knows named axes and orders of devices. Between meshes of other axes it is asked on a finer mesh that says both
shardings. Where there is none, or a sharding has no spec, the tiles alone say what is done.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardviz import _jax
from shardviz._jax.mlir import PassManager, ir
from shardviz.layouts import Layout, Moves, MoveStep, layout, shares
from shardviz.layouts.layout import data_keys
from shardviz.layouts.moves import in_order_of, kept_elements
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.sdy import axis as sdy_axis
from shardviz.notation.sdy import axis_lists
from shardviz.notation.spec import Axis, axis_part
from shardviz.notation.tiling import merge
from shardviz.stablehlo.graph import COLLECTIVES, kind_of
from shardviz.stablehlo.module import sdy_spec, spec_of

_PIPELINE = "builtin.module(func.func(sdy-reshard-to-collectives,canonicalize))"
_AXES = COLLECTIVES | {"sdy.all_slice": "slicing_axes"}


def moves(shape: Sequence[int], before: Any, after: Any, mesh: Any = None) -> Moves:
    """Return what moves when an array changes its sharding, and the collectives that move it.

    Args:
        shape: the array's global shape.
        before, after: the two shardings, in any form that `layout` reads.
        mesh: the mesh, if the shardings have none of their own.

    Raises:
        SpecError: if a sharding does not fit, or the change is impossible: from a sum to partial sums, or between
            different manual axes.
        MeshError: if the two are on different devices.

    Examples:
        >>> import shardviz as sv
        >>> [step.kind for step in sv.moves((16, 8), ("x", None), (None, "x"), {"x": 4}).steps]
        ['all-to-all']
    """
    return moves_between(layout(shape, before, mesh), layout(shape, after, mesh))


def moves_between(before: Layout, after: Layout) -> Moves:
    """Return the moves between two layouts of the same shape. Raises SpecError, MeshError as `moves`."""
    way = shares(before, after)
    steps = _shardys(way.before, way.after)
    return replace(way, steps=tuple(_by_tiles(way.before, way.after)) if steps is None else steps)


def _shardys(before: Layout, after: Layout) -> tuple[MoveStep, ...] | None:
    """Return the steps that Shardy takes; None if it cannot express them."""
    if before.spec is None or after.spec is None or before.maximal or after.maximal:
        return None
    if before.mesh.names != after.mesh.names or before.mesh.sizes != after.mesh.sizes:
        return _between_meshes(before, after)
    with _jax.mlir_context(), ir.Location.unknown():
        try:
            module = ir.Module.parse(_question(before, after))
            PassManager.parse(_PIPELINE).run(module.operation)
        except ir.MLIRError:  # parts of an axis that overlap, such as two of six and three of six
            return None
        *_, main = module.body.operations
        *operations, _ = (op.operation for op in main.regions[0].blocks[0].operations)
        if any(op.name not in _AXES for op in operations):
            return None
        steps = tuple(_read(operations, before, after))
    last = steps[-1].layout if steps else before
    arrives = last is not None and all(map(np.array_equal, (last.starts, last.stops), (after.starts, after.stops)))
    return steps if arrives else None  # the pass may leave a part of an axis, up to JAX 0.12


def _between_meshes(before: Layout, after: Layout) -> tuple[MoveStep, ...] | None:
    """Return the steps between meshes of other axes, on a finer mesh that expresses both shardings, in parts of the
    axes of `after`; None if there is no such mesh, as for 2 x 3 and 3 x 2 devices."""
    assert before.spec is not None and after.spec is not None
    bounds = {1, before.mesh.size}
    for cut in (before, after):
        named = itertools.chain(cut.mesh.names, cut.unreduced, *cut.spec.dims if cut.spec else ())
        bounds.update(itertools.chain(*(_span(axis, cut.mesh) for axis in named)))
    ends = list(itertools.pairwise(sorted(bounds)))
    if before.manual or after.manual or any(high % low for low, high in ends):
        return None
    names = {str(place): span for place, span in enumerate(ends)}

    def finer(cut: Layout) -> Layout:
        def inside(axes: Iterable[Axis]) -> tuple[str, ...]:
            spans = [_span(axis, cut.mesh) for axis in axes]
            return tuple(n for low, high in spans for n, (start, end) in names.items() if low <= start and end <= high)

        dims = tuple(map(inside, cut.spec.dims if cut.spec else ()))
        spec = Spec(dims, inside(cut.unreduced), unreduced_kind=cut.unreduced_kind)
        sizes = tuple(high // low for low, high in ends)
        return layout(cut.shape, spec, DeviceMesh(tuple(names), sizes, device_ids=tuple(cut.mesh.ids().tolist())))

    def parts(axes: Iterable[Axis]) -> tuple[Axis, ...]:
        axes_after = []
        for name, start, size in (axis_part(axis, mesh) for axis in axes):
            low = names[name][0] * start
            whole = next(n for n in after.mesh.names if _span(n, after.mesh)[0] <= low < _span(n, after.mesh)[1])
            axes_after.append((whole, low // _span(whole, after.mesh)[0], size))
        return merge(axes_after, after.mesh)

    def coarser(spec: Spec | None) -> Spec | None:
        return (
            None if spec is None else replace(spec, dims=tuple(map(parts, spec.dims)), unreduced=parts(spec.unreduced))
        )

    here = finer(before)
    mesh = here.mesh
    steps = _shardys(here, in_order_of(here, finer(after)))
    return steps and tuple(
        replace(s, axes=s.axes and parts(s.axes), before=coarser(s.before), after=coarser(s.after)) for s in steps
    )


def _span(axis: Axis, mesh: DeviceMesh) -> tuple[int, int]:
    """Return the products of all mesh sizes before an axis, and including it."""
    name, start, size = axis_part(axis, mesh)
    start *= math.prod(mesh.sizes[: mesh.names.index(name)])
    return start, start * size


def _question(before: Layout, after: Layout) -> str:
    """Return a module in which Shardy reshards an array after adding up its partial sums, without the sums that stay
    unreduced."""
    assert before.spec is not None and after.spec is not None
    kind = f"tensor<{'x'.join(map(str, (*before.shape, 'f32')))}>"
    summed = ", ".join(map(sdy_axis, _summed(before, after)))
    old, new = (sdy_spec(Spec(cut.spec.dims), len(cut.shape)) for cut in (before, after) if cut.spec)
    partial = f", unreduced={{{summed}}}" if summed else ""
    added = f"%1 = sdy.all_reduce {{{summed}}} %0 out_sharding=<@before, {old}> : {kind}" if summed else ""
    axes = ", ".join(f"{sdy_axis(name)}={size}" for name, size in before.mesh.shape.items())
    order = _order(before.mesh, after.mesh)
    to = f"sdy.mesh @after = <[{axes}], device_ids={order}>" if order else ""
    return f"""
sdy.mesh @before = <[{axes}]>
{to}
func.func @main(%0: {kind} {{sdy.sharding = #sdy.sharding<@before, {old}{partial}>}}) -> {kind} {{
  {added}
  %2 = sdy.reshard %{1 if summed else 0} <@{"after" if to else "before"}, {new}> : {kind}
  return %2 : {kind}
}}"""


def _summed(before: Layout, after: Layout) -> tuple[Axis, ...]:
    """Return the axes, or parts of axes, over which partial sums are added up."""
    parts: list[tuple[str, int, int]] = []
    others = sorted(axis_part(axis, after.mesh) for axis in after.unreduced)
    for name, start, size in (axis_part(axis, before.mesh) for axis in before.unreduced):
        end = start * size
        for other, low, count in others:
            if other == name and start <= low < end:
                parts.append((name, start, low // start))
                start = low * count
        parts.append((name, start, end // start))
    return merge((part for part in parts if part[2] > 1), before.mesh)


def _order(before: DeviceMesh, after: DeviceMesh) -> list[int]:
    """Return the position in one mesh of each device of the other; empty if the orders are equal."""
    old, new = before.ids(), after.ids()
    order = np.argsort(old)[np.searchsorted(np.sort(old), new)]
    return [] if (old == new).all() else order.tolist()


def _read(operations: list[Any], before: Layout, after: Layout) -> Iterator[MoveStep]:
    """Yield Shardy's operations as steps."""
    here = before
    for op in operations:
        attribute = _AXES[op.name]
        kind = "slice" if attribute == "slicing_axes" else kind_of(op.name)
        out = op.attributes["out_sharding"]
        spec = replace(spec_of(out), unreduced=after.unreduced, unreduced_kind=before.unreduced_kind)
        mesh = after.mesh if "@after" in str(out) else before.mesh
        there = in_order_of(before, layout(before.shape, spec, mesh))
        named = tuple(itertools.chain(*axis_lists(str(op.attributes[attribute])))) if attribute else ()
        axes = named or _exchanged(here, there)
        if kind == "reduce-scatter" and not _nested(here, there):  # the tiles of sums lie across each other
            summed = _added_up(here, there)
            yield _step("all-reduce", axes, here, summed)
            kind, here = "slice", summed
        yield _step(kind, axes, here, there)
        here = there
    wanted = in_order_of(before, after)
    if (
        here.tile_counts == wanted.tile_counts and (here.starts != wanted.starts).any()
    ):  # Shardy's pass leaves out some last permutes
        yield _step("collective-permute", _exchanged(here, wanted), here, wanted)


def _added_up(before: Layout, after: Layout) -> Layout:
    """Return the layout with the partial sums of another."""
    spec = None if before.spec is None else replace(before.spec, unreduced=after.unreduced)
    ids, sums, kind = after.partial_ids, after.partial_sums, after.unreduced_kind
    return replace(
        before, spec=spec, unreduced=after.unreduced, partial_ids=ids, partial_sums=sums, unreduced_kind=kind
    )


def _exchanged(before: Layout, after: Layout) -> tuple[Axis, ...]:
    """Return the axes of a permute: those of the dimensions whose axes change, or all axes if the device order
    changes."""
    assert before.spec is not None and after.spec is not None
    pairs = list(zip(before.spec.dims, after.spec.dims, strict=True))
    changed = [pair for pair in pairs if pair[0] != pair[1]] or pairs
    spans: dict[str, tuple[int, int]] = {}
    for axis in itertools.chain(*itertools.chain(*changed)):
        name, start, size = axis_part(axis, before.mesh)
        low, high = spans.get(name, (start, start * size))
        spans[name] = min(low, start), max(high, start * size)
    return merge(((name, low, high // low) for name, (low, high) in spans.items()), before.mesh)


def _step(kind: str, axes: tuple[Axis, ...] | None, before: Layout, after: Layout) -> MoveStep:
    """Return a step between two layouts, with the elements that a device receives."""
    count = before.partial_sums // after.partial_sums
    if kind == "all-reduce":
        elements = -(-2 * int(before.elements.max(initial=0)) * (count - 1) // count)
    elif kind == "reduce-scatter":
        elements = int(after.elements.max(initial=0)) * (count - 1)
    else:
        elements = int((after.elements - kept_elements(before, after)).max(initial=0))
    edges = kind in ("slice", "all-gather", "all-to-all") and not _nested(before, after)
    pairs = list(enumerate(zip(before.tile_counts, after.tile_counts, strict=True)))
    return MoveStep(
        kind="collective-permute" if kind == "slice" and edges else kind,
        axes=axes or None,
        gathered=tuple(d for d, (old, new) in pairs if new < old),
        sharded=tuple(d for d, (old, new) in pairs if new > old),
        before=before.spec,
        after=after.spec,
        elements=elements,
        edges=edges,
        layout=after,
    )


def _nested(before: Layout, after: Layout) -> bool:
    """Return whether in each dimension every larger tile consists of full smaller tiles, or is the full dimension."""
    tiles = [
        sorted((cut.tile_counts[d], cut.shard_shape[d]) for cut in (before, after)) for d in range(len(before.shape))
    ]
    return not any(few > 1 and few * large < many * small for (few, large), (many, small) in tiles)


def _by_tiles(before: Layout, after: Layout) -> Iterator[MoveStep]:
    """Yield the steps that axes do not express, from the tiles alone."""
    here = before
    if before.partial_sums != after.partial_sums:
        here = _added_up(before, after)
        yield _step("all-reduce", _summed(before, after), before, here)
    same = (before.starts == after.starts).all(axis=1) & (before.stops == after.stops).all(axis=1)
    if (same & (before.holds == after.holds)).all():
        return
    inside = ((before.starts <= after.starts) & (before.stops >= after.stops)).all(axis=1) & before.holds
    if (inside | ~after.holds).all():
        yield MoveStep(kind="slice", before=here.spec, after=after.spec, layout=after)
    elif before.tile_counts == after.tile_counts and before.replicas == after.replicas and _as_many(before, after):
        yield _step("collective-permute", None, here, after)
    else:
        size = math.prod(before.shape)
        whole = Spec(((),) * len(before.shape), after.unreduced, (), after.unreduced_kind)
        kind = "collective-broadcast" if before.maximal else "all-gather"
        received = size if before.maximal else size - int(before.elements.min(initial=size))
        there = None if before.manual else in_order_of(before, layout(before.shape, whole, after.mesh))
        yield MoveStep(kind=kind, before=here.spec, after=whole, elements=received, layout=there)
        if any(tile_counts > 1 for tile_counts in after.tile_counts) or after.maximal:
            yield MoveStep(kind="slice", before=whole, after=after.spec, layout=after)


def _as_many(before: Layout, after: Layout) -> bool:
    """Return whether every slice is on as many devices before as after, within each manual array."""
    tiles = max(1, math.prod(before.tile_counts))
    keys = [data_keys(cut)[cut.holds] % tiles + cut.manual_ids[cut.holds] * tiles for cut in (before, after)]
    return np.array_equal(np.sort(keys[0]), np.sort(keys[1]))
