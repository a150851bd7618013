"""Unwrapping of functions wrapped by `jax.jit`, `jax.pmap` and `jax.shard_map`, and their pickled form.

JAX's own pickle of a jitted function loses half of its parts, including those that `.trace` and `.lower` need.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax

from shardviz._jax.tracing import StandIn

_ROLES = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")


@dataclass(frozen=True)
class JitWrapping:
    """The arguments of `jax.jit`: the function, its shardings as given, and which arguments are static or donated
    (`roles`, in the form of `jax.jit`'s keyword arguments)."""

    fn: Callable[..., Any]
    in_shardings: Any
    out_shardings: Any
    roles: dict[str, Any]
    keep_unused: bool = False


def plain_function(fn: Any) -> Any:
    """Return the function that `jax.jit` wrapped; other functions unchanged."""
    wrapped = unwrap_jit(fn)
    return fn if wrapped is None else wrapped.fn


def unwrap_jit(fn: Any) -> JitWrapping | None:
    """Return what `jax.jit` wrapped; None for other functions, and for methods whose `self` is traced."""
    if inspect.ismethod(fn):
        whole = unwrap_jit(fn.__func__)
        return None if whole is None else _bound(whole, fn.__self__)
    inner, info = getattr(fn, "_fun", None), getattr(fn, "_jit_info", None)
    if inner is None or info is None:
        return None
    return JitWrapping(
        inner,
        jax.tree.unflatten(info.in_shardings_treedef, info.in_shardings_leaves),
        jax.tree.unflatten(info.out_shardings_treedef, info.out_shardings_leaves),
        {name: tuple(getattr(info, name)) for name in _ROLES},
        bool(info.keep_unused),
    )


def _bound(method: JitWrapping, own: Any) -> JitWrapping | None:
    try:
        first = next(iter(inspect.signature(method.fn).parameters), None)
    except (TypeError, ValueError):
        first = None
    roles = method.roles
    if 0 not in roles["static_argnums"] and first not in roles["static_argnames"]:
        return None
    numbers = {name: tuple(n - (n > 0) for n in roles[name] if n != 0) for name in ("static_argnums", "donate_argnums")}
    names = {"static_argnames": tuple(n for n in roles["static_argnames"] if n != first)}
    return replace(method, fn=types.MethodType(method.fn, own), roles=roles | numbers | names)


@dataclass(frozen=True)
class PmapWrapping:
    """The arguments of `jax.pmap`: the axis name, if any, pytree prefixes of dimensions and None, argument numbers, and
    the ids of the devices and the size, if given."""

    fn: Callable[..., Any]
    axis_name: Any
    in_axes: Any
    out_axes: Any
    static_argnums: tuple[int, ...]
    donate_argnums: tuple[int, ...]
    devices: tuple[int, ...] | None
    axis_size: int | None


def unwrap_pmap(fn: Any) -> PmapWrapping | None:
    """Return what `jax.pmap` wrapped, from the cells of its closures; None for other functions."""
    from jax._src import pmap

    if getattr(fn, "__globals__", None) is not vars(pmap):
        return None
    infer = _cells(fn).get("infer_params")
    if infer is None:
        return None
    cells = _cells(infer)
    static = cells["static_broadcasted_tuple"]
    dynamic = (i for i in itertools.count() if i not in static)
    donated = dict(zip(range(max(cells["donate_tuple"], default=-1) + 1), dynamic, strict=False))
    name = cells["axis_name"]
    return PmapWrapping(
        cells["wrapped_fun"].f,
        None if name == "_internal_pmap_axis_name" else name,
        cells["in_axes"],
        jax.tree.unflatten(cells["out_axes_tree"], cells["out_axes_flat"]),
        tuple(static),
        tuple(donated[i] for i in cells["donate_tuple"]),
        None if cells["devices"] is None else tuple(int(d.id) for d in cells["devices"]),
        cells["axis_size"],
    )


def pmapped_name(fn: Any) -> str | None:
    """Return the name of the function that `jax.pmap` wrapped, from the function that pmap jits; None for other
    functions."""
    inner = inspect.unwrap(fn)
    if getattr(getattr(inner, "__code__", None), "co_qualname", "") != "_cached_shard_map.<locals>._fun":
        return None
    fn = plain_function(_cells(inner)["fun"].f)
    while isinstance(fn, functools.partial):
        fn = plain_function(fn.func)
    return getattr(fn, "__name__", None)


def _cells(fn: Any) -> dict[str, Any]:
    """Return a closure's variables by name."""
    return dict(zip(fn.__code__.co_freevars, (cell.cell_contents for cell in fn.__closure__ or ()), strict=True))


def shard_map_mesh(fn: Any) -> tuple[bool, Any]:
    """Return whether a function is what `jax.shard_map` gives, and the mesh that it was given itself, or None."""
    inner = _cells(fn).get("fun") if inspect.isfunction(fn) else None
    if getattr(getattr(inner, "__code__", None), "co_qualname", "") != "_shard_map.<locals>.wrapped":
        return False, None
    mesh = _cells(inner).get("mesh")
    return True, mesh.own if isinstance(mesh, StandIn) else mesh


_JITTED = type(jax.jit(lambda: None))


def reduced(obj: Any) -> Any:
    """Return the pickle form of a jitted function: its name, or its parts; otherwise NotImplemented."""
    if type(obj) is not _JITTED:
        return NotImplemented
    module, name = getattr(obj, "__module__", ""), getattr(obj, "__qualname__", "")
    if module != "__main__" and module in sys.modules and _there(module, name) is obj:
        return _named, (module, name)
    wrapping = unwrap_jit(obj)
    if wrapping is None:
        return NotImplemented
    roles = wrapping.roles | {"keep_unused": wrapping.keep_unused}
    options = {name: value for name, value in roles.items() if value}
    for name in ("in_shardings", "out_shardings"):
        leaves = jax.tree.leaves(option := getattr(wrapping, name), is_leaf=lambda n: n is None)
        if any(type(leaf).__name__ != "UnspecifiedValue" for leaf in leaves):
            options[name] = option
    return functools.partial(jax.jit, **options), (wrapping.fn,)


def _named(module: str, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def _there(module: str, name: str) -> Any:
    try:
        return _named(module, name)
    except (AttributeError, ImportError):
        return None
