"""A program mapped over a new dimension, which mesh axes may cut, inside sharding constraints too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from shardviz.errors import TraceError
from shardviz.program.call import Call
from shardviz.program.trace import Traced
from shardviz.program.transform import (
    SpecSource,
    Transformed,
    bring,
    dtype_of,
    dynamic_places,
    inner_of,
    merged,
    numbered,
    out_avals,
    parameters_of,
    rewrapped,
    roots_of,
)
from shardviz.program.trees import Changes, Place, spread


def vmap(
    call: Call, traced: Traced, in_axes: Any, out_axes: Any, axis_size: int, spmd_axis_name: str | Sequence[str] | None
) -> Transformed:
    """The call mapped over a new dimension of its arguments, as `jax.vmap` maps it.

    Args:
        call: the original, whose arguments are one example's.
        traced: its trace.
        in_axes: where each argument has the new dimension: an int, or a pytree prefix of the positional arguments with
            None for what is not mapped. Keyword arguments are mapped along dimension 0.
        out_axes: the same for the result.
        axis_size: the size of the new dimension.
        spmd_axis_name: the mesh axis or axes that cut the new dimension everywhere, constraints included.

    Raises:
        TraceError: if `in_axes`, `out_axes` or `axis_size` do not fit.
        SpecError: if an axis of `spmd_axis_name` cuts an argument already.
    """
    inner = inner_of(call, "vmap")
    if isinstance(axis_size, bool) or not isinstance(axis_size, int) or axis_size < 1:
        raise TraceError(f"vmap of {call.name}: axis_size is the number of examples, 1 or more, not {axis_size!r}")
    axes = () if spmd_axis_name is None else _plural(spmd_axis_name)
    roots, dynamic = roots_of(call), dynamic_places(call)
    given = tuple(in_axes) if isinstance(in_axes, tuple | list) else (in_axes,) * len(call.args)
    if len(given) != len(call.args):
        raise TraceError(
            f"vmap of {call.name}: in_axes has {len(given)} entries and there are {len(call.args)} positional "
            f"arguments, {', '.join(roots)}; give one entry for each, or one int for all"
        )
    places = {i: _places(f"vmap of {call.name}: in_axes for {roots[i]}", given[i], call.args[i]) for i in dynamic}
    static_names = set(call.options.static_argnames)
    keyed = {k: _places(f"vmap of {call.name}: {k}", 0, v) for k, v in call.kwargs.items() if k not in static_names}
    args = tuple(_stacked(a, places[i], axis_size) if i in places else a for i, a in enumerate(call.args))
    kwargs = {k: _stacked(v, keyed[k], axis_size) if k in keyed else v for k, v in call.kwargs.items()}
    if all(at is None for some in (*places.values(), *keyed.values()) for at in some):
        raise TraceError(f"vmap of {call.name}: in_axes maps no argument; give at least one an int")

    def run(*args: Any, **kwargs: Any) -> Any:
        fixed, changes = {k: v for k, v in kwargs.items() if k not in keyed}, Changes()

        def one(primals: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            return changes.apart(inner(*merged(args, dynamic, primals), **keywords, **fixed))

        mapped = jax.vmap(
            one,
            in_axes=(tuple(given[i] for i in dynamic), 0),
            out_axes=(out_axes, 0),
            axis_size=axis_size,
            spmd_axis_name=spmd_axis_name if spmd_axis_name is None else axes,
        )
        out, values = mapped(tuple(args[i] for i in dynamic), {k: kwargs[k] for k in keyed})
        return changes.together(out, values, lambda place: replace(place, follows=place.follows and _leads(ins, place)))

    own = numbered("in", (tuple(call.args[i] for i in dynamic), {k: call.kwargs[k] for k in keyed}))
    spots = [at for i in dynamic for at in places[i]] + [at for k in sorted(keyed) for at in keyed[k]]

    def put(sources: Any, spots: list[int | None]) -> list[SpecSource]:
        pairs = zip(jax.tree.leaves(sources), spots, strict=True)
        return [s if at is None else replace(s, dimension=at, axes=axes) for s, at in pairs]

    ins = tuple(put(own, spots))

    def outs(of: Traced) -> Any:
        avals = out_avals(of)
        spots = _places(f"vmap of {call.name}: out_axes", out_axes, avals)
        return jax.tree.unflatten(jax.tree.structure(avals), put(numbered("out", avals), spots))

    made = rewrapped(call, "vmap", run, args, kwargs, parameters_of(call), dict(call.names), donate=True)
    return bring(call, traced, made, ins, outs)


def _leads(ins: Sequence[SpecSource], place: Place) -> bool:
    """Whether an argument is mapped along dimension 0, as its new value is."""
    return place.number is not None and ins[place.number].dimension == 0


def _places(what: str, prefix: Any, tree: Any) -> list[int | None]:
    """For each leaf of a tree where the new dimension goes, counted from the front; None for not mapped.

    Raises:
        TraceError: if `prefix` is no prefix of the tree, or an axis is out of range.
    """
    try:
        places = spread(prefix, tree)
    except ValueError as error:
        raise TraceError(f"{what}: {prefix!r} is no int, None or pytree prefix of it: {error}") from error
    for at, leaf in zip(places, jax.tree.leaves(tree), strict=True):
        rank = len(np.shape(leaf)) + 1
        if at is not None and (isinstance(at, bool) or not isinstance(at, int) or not -rank <= at < rank):
            raise TraceError(
                f"{what}: {at!r} is no place for a new dimension of {dtype_of(leaf)}{list(np.shape(leaf))}; "
                f"there are {-rank} to {rank - 1}, and None for not mapped"
            )
    leaves = jax.tree.leaves(tree)
    return [None if at is None else at % (len(np.shape(x)) + 1) for at, x in zip(places, leaves, strict=True)]


def _stacked(tree: Any, places: list[int | None], size: int) -> Any:
    """The tree's arrays with the new dimension."""
    leaves, structure = jax.tree.flatten(tree)
    for n, (x, at) in enumerate(zip(leaves, places, strict=True)):
        if at is not None:
            shape = list(np.shape(x))
            shape.insert(at, size)
            weak = getattr(x, "weak_type", not hasattr(x, "dtype"))
            leaves[n] = jax.ShapeDtypeStruct(tuple(shape), dtype_of(x), weak_type=weak)
    return structure.unflatten(leaves)


def _plural(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
