"""A function traced once: its arguments with names, its results, its constraints, and its jaxpr.

The trace holds global shapes only, so that any plan over a mesh with the same axis names can use it.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from shardviz import _jax
from shardviz.errors import ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.program.meshes import abstract_mesh
from shardviz.records import Frame
from shardviz.source import innermost, is_differentiated


@dataclass(frozen=True)
class Argument:
    """One array of the function's arguments or results.

    Attributes:
        name: its tree path, such as `params['layers']['wq']`.
        shape: its global shape.
        dtype: its element type's name.
        donated: whether its buffer may be reused for a result.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    donated: bool = False


@dataclass(frozen=True)
class Constraint:
    """A `with_sharding_constraint` of the program: the shape and spec that it asks for, and its line."""

    shape: tuple[int, ...]
    spec: Spec
    source: Frame | None


@dataclass(frozen=True)
class Callback:
    """A call to Python while the program runs: the primitive, whether it only reports (`jax.debug`), and its line."""

    name: str
    reports: bool
    source: Frame | None


@dataclass(frozen=True, eq=False)
class Traced:
    """What tracing found.

    Attributes:
        name: the function's name.
        arguments, outputs: every array, in the order of the flat program.
        in_tree, out_tree: pytrees of names: the tuple of positional arguments, the keyword ones, and the result.
        constraints: the sharding constraints inside.
        callbacks: the calls to Python inside.
        closed: the closed jaxpr.
        differentiated: whether the program has a backward pass; what is neither forward nor backward then is the
            update.
    """

    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    in_tree: tuple[tuple[Any, ...], dict[str, Any]]
    out_tree: Any
    constraints: tuple[Constraint, ...]
    callbacks: tuple[Callback, ...]
    closed: Any
    differentiated: bool


@dataclass(frozen=True, eq=False)
class Call:
    """A function with its arguments made abstract, ready to be traced."""

    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str


def call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> Call:
    """Checks the arguments and makes them abstract, so that nothing is kept alive and nothing is allocated.

    Args:
        fn: a function, or one that `jax.jit` has wrapped.
        args, kwargs: what to call it with: arrays, `ShapeDtypeStruct`s or numbers in pytrees, or static values.
        options: `static_argnums`, `static_argnames`, `donate_argnums`, `donate_argnames`, as for `jax.jit`.

    Raises:
        TraceError: if `fn` is not callable, or an argument is no array and not static.
    """
    if not callable(fn):
        raise TraceError(f"expected a function, not {fn!r}")
    name = getattr(fn, "__name__", None) or type(fn).__name__
    jitted = hasattr(fn, "trace") and hasattr(fn, "lower")
    options = {k: v for k, v in options.items() if v not in (None, ())}
    static = _static_places(fn, options, args)
    if not jitted or options:
        try:
            fn = jax.jit(fn, keep_unused=True, **options)
        except (TypeError, ValueError) as error:
            raise TraceError(f"{name}: {error}") from error
    names = options.get("static_argnames") or ()
    names = (names,) if isinstance(names, str) else names
    abstract = tuple(a if i in static else _abstract(f"argument {i}", a, jitted) for i, a in enumerate(args))
    keyword = {k: a if k in names else _abstract(k, a, jitted) for k, a in kwargs.items()}
    return Call(fn, abstract, keyword, name)


def _static_places(fn: Any, options: dict[str, Any], args: tuple[Any, ...]) -> set[int]:
    import inspect

    numbers = options.get("static_argnums", ())
    numbers = (numbers,) if isinstance(numbers, int) else numbers
    places = {n % len(args) if args else n for n in numbers}
    names = options.get("static_argnames", ())
    names = (names,) if isinstance(names, str) else names
    if names:
        try:
            parameters = list(inspect.signature(fn).parameters)
        except (TypeError, ValueError):
            return places
        places |= {parameters.index(n) for n in names if n in parameters}
    return places


def _abstract(name: str, tree: Any, lenient: bool) -> Any:
    """The tree with a ShapeDtypeStruct for every array; a jitted function's own static arguments are let through."""

    def leaf(path: Any, x: Any) -> Any:
        if isinstance(x, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type)
        if isinstance(x, np.ndarray | np.generic):
            return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))
        if hasattr(x, "aval"):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False))
        if isinstance(x, bool | int | float | complex) or lenient:
            return x
        if hasattr(x, "shape") and hasattr(x, "dtype"):
            return jax.ShapeDtypeStruct(x.shape, x.dtype)
        where = name + jax.tree_util.keystr(path)
        raise TraceError(
            f"{where} is a {type(x).__name__}, {_short(x)}: expected an array, a jax.ShapeDtypeStruct or a number. "
            "If it is a setting and not data, name its argument in static_argnums or static_argnames"
        )

    return jax.tree_util.tree_map_with_path(leaf, tree)


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


def trace(call: Call, mesh: DeviceMesh | None) -> Traced:
    """Traces under a mesh, or without one.

    Raises:
        TraceError: with what the function raised as its cause.
    """
    context = jax.sharding.use_abstract_mesh(abstract_mesh(mesh)) if mesh is not None else contextlib.nullcontext()
    try:
        with context:
            traced = call.fn.trace(*call.args, **call.kwargs)
    except ShardvizError:
        raise
    except Exception as error:  # the person's function may raise anything at all
        raise TraceError(_what_happened(call, error, mesh)) from error
    argument_names, result_names = _jax.names_of(traced)
    info = jax.tree.leaves(traced.args_info)
    ins = tuple(
        Argument(name or f"argument {i}", tuple(a.shape), str(a.dtype), bool(a.donated))
        for i, (name, a) in enumerate(zip(argument_names, info, strict=True))
    )
    out_leaves, out_tree = jax.tree.flatten(traced.out_info)
    outs = tuple(
        Argument(_result(name, i), tuple(a.shape), str(a.dtype))
        for i, (name, a) in enumerate(zip(result_names, out_leaves, strict=True))
    )
    found = tuple(
        Constraint(tuple(shape), Spec(tuple(_entry(e) for e in spec)), _frame(source))
        for shape, spec, source in _jax.constraints(traced.jaxpr.jaxpr)
    )
    in_tree = jax.tree.unflatten(jax.tree.structure(traced.args_info), [a.name for a in ins])
    return Traced(
        call.name,
        ins,
        outs,
        in_tree,
        jax.tree.unflatten(out_tree, [o.name for o in outs]),
        found,
        tuple(Callback(name, reports, _frame(info)) for name, reports, info in _jax.callbacks(traced.jaxpr.jaxpr)),
        traced.jaxpr,
        is_differentiated(_jax.name_stacks(traced.jaxpr.jaxpr)),
    )


def _entry(entry: Any) -> tuple[str, ...]:
    """An entry of a constraint's spec; a dimension left unconstrained asks for nothing."""
    return (entry,) if isinstance(entry, str) else tuple(entry) if isinstance(entry, tuple) else ()


def _result(name: str | None, index: int) -> str:
    return name or f"result[{index}]"


def _frame(source_info: Any) -> Frame | None:
    found = _jax.user_frame(source_info)
    return None if found is None else Frame(*found)


def needs_mesh(error: TraceError) -> bool:
    """Whether a trace without a mesh failed for want of one, so that the plan's mesh may mend it."""
    return "mesh" in str(error.__cause__).lower()


def _what_happened(call: Call, error: BaseException, mesh: DeviceMesh | None) -> str:
    frames = [Frame(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
    frame = innermost(reversed(frames))
    where = f" at {frame.short} ({frame.function})" if frame else ""
    text = str(error).strip().split("\n\n")[0]
    under = f" on the mesh {mesh}" if mesh is not None and "mesh" in text.lower() else ""
    return f"{call.name} raised {type(error).__name__}{where} while it was traced{under}: {text}"


def check_constraints(traced: Traced, mesh: DeviceMesh) -> None:
    """Raises unless every constraint inside the program can be met on `mesh`.

    Raises:
        SpecError: naming the constraint's line, and what would do.
    """
    for constraint in traced.constraints:
        where = (
            f"with_sharding_constraint at {constraint.source.short}"
            if constraint.source
            else "with_sharding_constraint"
        )
        try:
            check_spec(where, constraint.shape, constraint.spec, mesh)
        except SpecError as error:
            raise SpecError(
                f"{error} (the array there has shape {constraint.shape})", argument=where, dimension=error.dimension
            ) from None
