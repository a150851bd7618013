"""Functions of flax.nnx modules, optimizers, states: made pure, with every array under its attribute's name.

A module is split into its arrays, `model.layers[0].kernel`, and the rest; the function gets it merged again. What it
changes in place (parameters by the optimizer, batch statistics, counters of random keys) comes out as further outputs,
`updated.model.layers[0].kernel`. Arrays that two modules share are one argument, of the first.

flax is an extra: nothing here imports it before somebody who has imported it comes along.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from shardviz import _jax
from shardviz.errors import TraceError
from shardviz.notation import DeviceMesh
from shardviz.program.adapters import stages
from shardviz.program.adapters.call import Brings, Call, Options, name_of, own_specs, without_shardings
from shardviz.program.adapters.nnx_pure import Given, Lifted, pure_function, specs_by
from shardviz.program.nnx_state import is_object, partition, spec_meshes, spec_tree


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call | None:
    """A function of flax.nnx objects, wrapped by `nnx.jit`, `jax.jit` or not at all; also a module, or its method.

    An argument may be a function without parameters that makes such an object, `lambda: Model(rngs=nnx.Rngs(0))`; it
    is called by `nnx.eval_shape` only, which allocates nothing.

    Raises:
        TraceError: if an argument is no array and not static.
        SpecError: if `in_shardings` do not fit the arguments.
    """
    if "flax.nnx" not in sys.modules:
        return None
    fn = unstaged(fn)
    if isinstance(fn, jax.stages.Traced | jax.stages.Lowered | jax.stages.Compiled):
        return stages.adapt(fn, args, kwargs, options)
    given = _unwrapped(fn, args)
    if given is None:
        return None
    if given.how is not None:
        how = given.how
        options = options or Options(how.static_argnums, how.static_argnames, how.donate_argnums, how.donate_argnames)
    lifted = Lifted.of(given, kwargs, options)
    if lifted is None:
        return None
    name = name_of(given.fn)
    brings, pinned = _brings(name, given, lifted)
    given = replace(given, args=())  # or the function would keep a model alive
    pure = pure_function(given, lifted, _donated(given.fn, options), pinned)
    try:
        jitted = jax.jit(pure, keep_unused=True, **options.given())
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name}: {error}") from error
    positional, keyword = map(without_shardings, lifted.pure)
    return Call(jitted, positional, keyword, name, "nnx", options, brings, leaves=lifted.leaves)


def unstaged(fn: Any) -> Any:
    """The stage of `jax.jit` in a stage of `nnx.jit`; anything else as it is."""
    if type(fn).__module__.startswith("flax.nnx") and isinstance(
        inner := getattr(fn, "_inner_obj", None), jax.stages.Traced | jax.stages.Lowered | jax.stages.Compiled
    ):
        return inner
    return fn


def _unwrapped(fn: Any, args: tuple[Any, ...]) -> Given | None:
    while isinstance(fn, functools.partial) and not fn.keywords and _is_nnx_jit(fn.func):
        fn, args = fn.func, (*fn.args, *args)  # `nnx.jit` on a method, bound to its module
    if _is_nnx_jit(fn):
        jitted: Any = fn
        how = _jax.unwrap_jit(jitted.jitted_fn)
        if how is None:
            return None
        inner: Any = how.fn
        first = getattr(fn, "partial_args", ())
        args = (first, *args) if isinstance(first, list) else (*first, *args)  # jit_partial's are one list
        graph = type(fn).__name__ == "JitWrapped"
        out = how.out_shardings  # graph mode: (arguments, keyword arguments, result); tree mode: (result, updates)
        out = (out[2] if graph else out[0]) if isinstance(out, tuple | list) else None
        return Given(_method(inner.f, args), args, how, True, graph, how.in_shardings, out)
    how = _jax.unwrap_jit(fn)
    if how is not None:
        return Given(how.fn, args, how, in_shardings=how.in_shardings, out_shardings=how.out_shardings)
    if is_object(fn) and callable(fn):
        return Given(_named_first("model", type(fn).__name__, type(fn).__call__), (fn, *args))
    if inspect.ismethod(fn) and is_object(fn.__self__):
        return Given(_named_first("model", fn.__name__, fn.__func__), (fn.__self__, *args))
    if not callable(fn) or hasattr(fn, "lower"):  # wrapped by something else, such as jax.pmap
        return None
    return Given(fn, args)


def _method(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """A method with its module's parameter called as elsewhere."""
    try:
        first = next(iter(inspect.signature(fn).parameters), "")
    except (TypeError, ValueError):
        return fn
    is_method = first == "self" and args and is_object(args[0])
    return _named_first("model", fn.__name__, fn) if is_method else fn


def _is_nnx_jit(fn: Any) -> bool:
    return hasattr(fn, "jitted_fn") and type(fn).__module__.startswith("flax.nnx")


def _named_first(first: str, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its first parameter, `self`, called otherwise: that is what tree paths begin with."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    own, *rest = inspect.signature(fn).parameters.values()
    call.__signature__ = inspect.Signature([own.replace(name=first), *rest])  # pyright: ignore
    call.__name__ = name
    return call


def _donated(fn: Any, options: Options) -> set[int | str]:
    """The numbers and names of the arguments whose buffers may be reused."""
    try:
        parameters = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        parameters = []
    numbers = {parameters.index(n) for n in options.donate_argnames if n in parameters}
    names = {parameters[n] for n in options.donate_argnums if n < len(parameters)}
    return {*options.donate_argnums, *options.donate_argnames, *numbers, *names}


def _brings(name: str, given: Given, lifted: Lifted) -> tuple[Brings, tuple[bool, ...]]:
    """The plan, and for each array whether `in_shardings` say how it is cut, so that its new value is cut alike."""
    own, mesh = own_specs(lifted.arrays)
    specs = list(own)
    for i, leaf in enumerate(lifted.leaves):
        if specs[i] is None and is_object(leaf.value):
            specs[i], theirs = partition(leaf.value)
            mesh = mesh or theirs
    whence = (
        "as the variable's own metadata says; where these are logical names, flax.nnx.logical_axis_rules around the "
        "call gives them mesh axes"
    )
    positional, _ = lifted.known
    prefix = given.in_shardings
    single = isinstance(spec_tree(prefix), tuple | list)
    asked, pinned = specs_by(f"{name}'s in_shardings", tuple(prefix) if single else prefix, positional)
    for i, spec in enumerate(asked):
        if pinned[i]:
            specs[i], whence = spec, f"{name}'s in_shardings"
    pinned += (False,) * (len(specs) - len(pinned))
    meshes = [*spec_meshes(given.in_shardings), *spec_meshes(given.out_shardings)]
    if meshes:
        mesh = DeviceMesh.of(meshes[0])
    elif mesh is None and (around := _jax.context_mesh()) is not None:
        mesh = DeviceMesh.of(around)
    known = tuple(specs) if any(s is not None for s in specs) else ()
    return Brings(mesh, known, None, whence), pinned
