"""Writing a program under a plan as a file of `jax.export`, without devices: mesh, specs and donation go into it."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Sequence
from keyword import iskeyword
from pathlib import Path
from typing import Any

import jax
import jax.export
from jax.extend import core as jex_core
from jax.sharding import NamedSharding

from shardviz import _jax
from shardviz.errors import ShardvizError, SpecError, TraceError
from shardviz.notation import Spec
from shardviz.notation.spec import axis_name, axis_text
from shardviz.program.meshes import abstract_mesh
from shardviz.program.trace import Traced
from shardviz.program.trees import plain
from shardviz.records import PlanRecord

_ROOT = re.compile(r"\w+")
PLATFORMS = ("cpu", "tpu", "cuda", "rocm")


def export(traced: Traced, bound: PlanRecord, platforms: Sequence[str] = ("cpu",)) -> Any:
    """A program under a plan as a `jax.export.Exported`.

    Args:
        traced: the program. A flax.nnx object becomes a dictionary of its arrays; new values of arguments that are
            changed in place become a second result, a tuple.
        bound: the plan: outputs whose spec is None are left to the compiler that the file meets.
        platforms: for which platforms, such as `("cpu", "tpu", "cuda")`.

    Raises:
        ShardvizError: for a platform that JAX does not know.
        TraceError: if it has no jaxpr any more (it was exported or lowered before), it calls back to Python, or JAX
            cannot export it.
    """
    if traced.closed is None:
        raise TraceError(
            f"{traced.name} was lowered before, so it has no function to export under another plan; export the "
            "function itself, or keep the file that it came from"
        )
    platforms = (platforms,) if isinstance(platforms, str) else tuple(platforms)
    if not platforms or any(p not in PLATFORMS for p in platforms):
        raise ShardvizError(f"platforms={platforms!r}: expected some of {', '.join(map(repr, PLATFORMS))}")
    for call in traced.callbacks:
        if not call.reports:
            where = f" at {call.source.short}" if call.source else ""
            raise TraceError(
                f"{traced.name} calls {call.name}{where}, and a call to Python cannot be written to a file"
            )
    mesh = abstract_mesh(bound.mesh)
    closed = _jax.on_mesh(traced.closed, mesh)
    run = jex_core.jaxpr_as_fun(closed)
    order, in_tree = _plain(traced.in_tree)
    out_order, tree = _plain((traced.out_tree, (0,) * len(traced.updates)) if traced.updates else traced.out_tree)

    def fn(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(order, jax.tree.leaves((args, kwargs)), strict=True))
        found = run(*(given[i] for i in range(len(given))))
        return jax.tree.unflatten(tree, [found[i] for i in out_order])

    fn.__name__ = fn.__qualname__ = traced.name
    if (signature := _signature(traced)) is not None:
        fn.__signature__ = signature  # type: ignore[attr-defined]  # JAX names the arguments by it
    placed = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, _spec(bound.in_specs[argument.name])))
        for a, argument in zip(closed.in_avals, traced.arguments, strict=True)
    ]
    args, kwargs = jax.tree.unflatten(in_tree, [placed[i] for i in order])
    outs = [bound.out_specs[o.name] for o in traced.outputs]
    shardings = [None if s is None else NamedSharding(mesh, _spec(s)) for s in outs]
    chosen = None if all(s is None for s in shardings) else jax.tree.unflatten(tree, [shardings[i] for i in out_order])
    try:
        with _jax.under(mesh):
            jitted = jax.jit(fn, out_shardings=chosen, keep_unused=True)
            return jax.export.export(jitted, platforms=platforms)(*args, **kwargs)
    except Exception as error:  # JAX has many reasons, each in its own words
        raise TraceError(f"{traced.name} cannot be exported: {error}") from error


def _plain(tree: Any) -> tuple[list[int], Any]:
    """(the number that each leaf has in a tree, in the order of the plain tree, and the plain tree's structure)."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.flatten(plain(jax.tree.unflatten(structure, range(len(leaves)))))


def _signature(traced: Traced) -> inspect.Signature | None:
    """The names of the function's own arguments, which the file keeps; None where they do not tell."""
    positional, keyword = traced.in_tree
    roots = []
    for tree in positional:
        found = {_ROOT.match(name) for name in jax.tree.leaves(tree)}
        names = {m[0] for m in found if m}
        roots.append(names.pop() if len(names) == 1 else "")
    every = [*roots, *keyword]
    if not all(name.isidentifier() and not iskeyword(name) for name in every) or len(set(every)) != len(every):
        return None
    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in roots]
    return inspect.Signature(parameters + [kinds(name, kinds.KEYWORD_ONLY) for name in keyword])


def _spec(spec: Spec) -> Any:
    if parts := [axis for axis in spec.axes if not isinstance(axis, str)]:
        raise SpecError(f"{spec}: jax.export cannot write a part of a mesh axis, {axis_text(parts[0])}")
    return _jax.partition_spec(spec.entries(), [axis_name(axis) for axis in spec.unreduced], ())


def _unregistered(exported: Any) -> str:
    """What to do about the pytree types among the arguments and results that JAX cannot write; empty if it can."""
    found = _jax.unregistered((exported.in_tree, exported.out_tree))
    if not found:
        return ""
    lines = []
    for kind in found:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            lines.append(f"jax.export.register_namedtuple_serialization({name}, serialized_name={name!r})")
        else:
            lines.append(
                f"jax.export.register_pytree_node_serialization({name}, serialized_name={name!r}, "
                "serialize_auxdata=..., deserialize_auxdata=...)"
            )
    return (
        "jax.export has not been told how to write types of its arguments and results; tell it, before writing and "
        "wherever the file is read:\n  " + "\n  ".join(lines)
    )


def write(exported: Any, path: str | os.PathLike[str] | None, vjp_order: int = 0) -> bytes:
    """An export as the bytes of a file, written to `path` if there is one.

    Args:
        exported: a `jax.export.Exported`.
        path: where to; None for nowhere.
        vjp_order: how many orders of the derivative to put in.

    Raises:
        ShardvizError: for an order below 0, a type of pytree that cannot be written, a derivative that there is not, or
            a folder that is not there.
    """
    if isinstance(vjp_order, bool) or not isinstance(vjp_order, int) or vjp_order < 0:
        raise ShardvizError(f"vjp_order={vjp_order!r}: expected 0, 1, 2, ...")
    try:
        data = bytes(exported.serialize(vjp_order=vjp_order))
    except ImportError as error:
        raise ShardvizError(f"{error}: pip install flatbuffers") from error
    except Exception as error:  # a pytree type that is not registered, a function that has no derivative
        why = _unregistered(exported) or str(error)
        raise TraceError(f"{exported.fun_name} cannot be written: {why}") from error
    if path is not None:
        try:
            Path(path).write_bytes(data)
        except OSError as error:
            raise ShardvizError(f"{path} cannot be written: {error}") from error
    return data
