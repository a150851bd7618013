"""Plain functions, and functions wrapped by `jax.jit`, whose `in_shardings` and `out_shardings` become the plan.

The partitions of flax.linen's boxes, `nn.Partitioned` and `nn.LogicallyPartitioned`, become the plan too. Functions
wrapped by `equinox.filter_jit` are adapted here as well: arrays are traced, everything else in the arguments is static,
and results that are not arrays (such as a model's activation function) are dropped. Neither flax nor equinox is
imported unless the user's program has imported it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from shardviz import _jax
from shardviz.notation import DeviceMesh, Spec
from shardviz.tracing.call import (
    Brings,
    Call,
    JitOptions,
    abstract,
    jitted,
    name_of,
    own_specs,
    specs_of,
    without_shardings,
)
from shardviz.tracing.prefixes import expand
from shardviz.tracing.signature import tree_of_names


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Call | None:
    """Return a function, possibly wrapped by `jax.jit`, as a `Call`. The wrapper's static and donated arguments hold
    unless `options` override them, and its shardings become the function's own plan. Raises TraceError if an argument
    is neither an array nor static, or an option names no argument."""
    if not callable(fn):
        return None
    name = name_of(fn)
    wrapped = _jax.unwrap_jit(fn)
    kind, plain = ("function", fn) if wrapped is None else ("jit", wrapped.fn)
    if wrapped is not None:
        options = options or JitOptions(**wrapped.roles)
    elif hasattr(fn, "trace") and hasattr(fn, "lower"):  # wrapped by something that is like jax.jit
        args, kwargs = abstract(fn, args, kwargs, options)
        return Call(fn, args, kwargs, name, "jit", options)
    args, kwargs = abstract(plain, args, kwargs, options)
    fn = jitted(plain, name, options)
    mapped, own = _jax.shard_map_mesh(plain)
    call = Call(fn, args, kwargs, name, "shard_map" if mapped else kind, options)
    call = replace(call, keeps_unused=wrapped is not None and wrapped.keep_unused)
    brings = _brings(wrapped, call)
    if own is not None and brings.mesh is None:
        brings = replace(brings, mesh=DeviceMesh.of(own))
    return replace(call, args=without_shardings(args), kwargs=without_shardings(kwargs), brings=brings)


def _brings(wrapped: Any, call: Call) -> Brings:
    """Return the plan of the arguments' own shardings, overridden by those of the function's wrapper."""
    specs, mesh = own_specs(call.arrays)
    specs_from = "the arguments' own shardings"
    boxes = box_specs(call.dynamic)
    specs = tuple(s or box for s, (box, _) in zip(specs, boxes, strict=True))
    mesh = mesh or next((m for _, m in boxes if m is not None), None)
    out_specs = None
    if wrapped is not None:
        names, _ = tree_of_names(call.fn, call.args, {}, call.options.static_places(call.fn, len(call.args)))
        specs_here, theirs = specs_of(expand(f"in_shardings of {call.name}", wrapped.in_shardings, names))
        leaves, tree = jax.tree.flatten(wrapped.out_shardings, is_leaf=lambda s: s is None)
        flat_specs, out_mesh = specs_of(leaves)
        out_specs = tree.unflatten(flat_specs)
        mesh = theirs or out_mesh or mesh
        if any(g is not None for g in specs_here):
            positional = tuple(s if g is None else g for s, g in zip(specs, specs_here, strict=False))
            specs = positional + specs[len(positional) :]
            specs_from = f"{call.name}'s in_shardings"
    if mesh is None and (around := _jax.context_mesh()) is not None:
        mesh = DeviceMesh.of(around)
    return Brings(mesh, specs if any(s is not None for s in specs) else (), out_specs, specs_from)


def box_specs(tree: Any) -> list[tuple[Spec | None, DeviceMesh | None]]:
    """Return for each array in a tree the spec and mesh of the box around it; None without a box, or if its logical
    names have no rules, neither the box's own nor those of `nn.logical_axis_rules` around the call."""
    meta, spmd = sys.modules.get("flax.core.meta"), sys.modules.get("flax.linen.spmd")
    kind = getattr(meta, "AxisMetadata", ())

    def is_box(x):
        return isinstance(x, kind)

    specs: list[tuple[Spec | None, DeviceMesh | None]] = []
    for box in jax.tree.leaves(tree, is_leaf=is_box):
        spec = mesh = None
        if is_box(box) and hasattr(box, "get_partition_spec"):
            spec, mesh = box.get_partition_spec(), getattr(box, "mesh", None)
            if spmd is not None and isinstance(box, spmd.LogicallyPartitioned):
                rules = box.rules or spmd.get_logical_axis_rules()
                spec = spmd.logical_to_mesh_axes(tuple(spec), rules) if rules else None
        both = (None if spec is None else Spec.of(spec), None if mesh is None else DeviceMesh.of(mesh))
        specs += [both] * len(jax.tree.leaves(box))
    return specs


def adapt_equinox(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Call | None:
    """Return a function or method wrapped by `equinox.filter_jit` as a `Call`, with the wrapper's donation unless
    `options` donate more. Raises TraceError, SpecError as `adapt`."""
    if "equinox" not in sys.modules:
        return None
    wrapper, bound = fn, ()
    if type(fn).__module__.startswith("equinox.") and type(fn).__name__ == "Partial":  # a method, bound to its module
        wrapper, bound = fn.func, tuple(fn.args)
        kwargs = {**fn.keywords, **kwargs}
    if not (type(wrapper).__module__.startswith("equinox.") and type(wrapper).__name__ == "_JitWrapper"):
        return None
    args = (*bound, *args)
    if not options:
        donated = [i for i in range(len(args)) if (wrapper.donate_first if i == 0 else wrapper.donate_rest)]
        options = JitOptions(donate_argnums=tuple(donated))
    pure, (positional, keyword) = _pure(wrapper.__wrapped__, args, kwargs)
    call = adapt(pure, positional, keyword, options)
    return None if call is None else replace(call, kind="equinox")


def _pure(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], Any]:
    """Return the function of the arrays alone, and its arguments with None in place of other objects."""
    leaves, tree = jax.tree.flatten((args, kwargs))

    @functools.wraps(fn)
    def pure(*args: Any, **kwargs: Any) -> Any:
        arrays = iter(jax.tree.leaves((args, kwargs)))
        whole, named = tree.unflatten([next(arrays) if is_array(x) else x for x in leaves])
        out, out_tree = jax.tree.flatten(fn(*whole, **named))
        return out_tree.unflatten([x if is_array(x) else None for x in out])

    pure.__name__ = name_of(fn)
    return pure, tree.unflatten([x if is_array(x) else None for x in leaves])


def is_array(x: Any) -> bool:
    """Return whether `filter_jit` traces it: arrays, NumPy's included, and what stands for one; no Python number."""
    return isinstance(x, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)
