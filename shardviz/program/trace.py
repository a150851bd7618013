"""A function traced once: its arguments with names, its results, its constraints, and its jaxpr.

The trace holds global shapes only, so that any plan over a mesh with the same axis names can use it.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import jax

from shardviz import _jax
from shardviz.errors import ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.program.adapters import Call
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
        mesh: the first mesh that a `shard_map`, a constraint or a nested `jit` inside stands on; None where none does.
        sized: whether the program holds shapes of single devices (in a `shard_map`'s body), so that it is another
            program on a mesh of other sizes.
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
    mesh: DeviceMesh | None = None
    sized: bool = False


def trace(call: Call, mesh: DeviceMesh | None) -> Traced:
    """Traces under a mesh, or without one.

    Raises:
        TraceError: with what the function raised as its cause.
    """
    try:
        with _jax.tracing_on(None if mesh is None else abstract_mesh(mesh)):
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
        next((DeviceMesh.of(m) for m in _jax.meshes(traced.jaxpr.jaxpr)), None),
        _jax.has_shard_map(traced.jaxpr.jaxpr),
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
