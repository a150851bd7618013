"""Files of `jax.export`: what one says of its function, as plain data, and how a program under a plan becomes one.

No devices are needed to write one: mesh, specs and names go into it. An `ExportRecord` holds what a file says of
sharding: arguments and results, symbolic dimensions and their constraints, platforms.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.export
from jax.extend import core as jex_core
from jax.sharding import NamedSharding

from shardviz import _jax
from shardviz.errors import ParseError, ShardvizError, SpecError, TraceError
from shardviz.files import write_whole
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_text
from shardviz.program.adapt.exported import call_of, mesh_of, names_of, result_names, symbol_constraints
from shardviz.program.explicit import type_spec
from shardviz.program.lower import with_constraints
from shardviz.program.meshes import abstract_mesh
from shardviz.program.module import argument_names, assertions, mesh_in
from shardviz.program.signature import signature_from
from shardviz.program.trace import Traced
from shardviz.program.trees import plain
from shardviz.records import PlanRecord

UNREADABLE = "its StableHLO cannot be read"


@dataclass(frozen=True)
class ExportedArray:
    """An argument or a result of an export."""

    name: str  # as the module tells, else its tree path
    shape: tuple[str, ...]  # each dimension as text: a number, or an expression of symbols
    dtype: str
    spec: Spec | None = None  # None where the export says nothing: the compiler's choice
    sharding: str = ""  # the same as the export has it, where it is an HLO sharding
    kept: bool = True  # the module uses it


@dataclass(frozen=True)
class ExportRecord:
    """What `jax.export` wrote down of a function, as far as its sharding is concerned."""

    name: str
    arguments: tuple[ExportedArray, ...]
    results: tuple[ExportedArray, ...]
    mesh: DeviceMesh | None  # that of its shardings, where they have names
    devices: int  # for how many it was lowered
    platforms: tuple[str, ...]
    symbols: tuple[str, ...] = ()  # the symbolic dimensions
    constraints: tuple[str, ...] = ()  # what must hold of them
    module_bytes: int = 0  # the size of its StableHLO
    file_bytes: int | None = None  # None for an export that was not read from a file


def record_of(exported: Any, file_bytes: int | None = None) -> ExportRecord:
    """What an export is. Raises ParseError if its module cannot be read."""
    try:
        module = _jax.exported_module(exported.mlir_module_serialized)
    except Exception as error:  # MLIR says in its own words what is wrong
        raise ParseError(f"{UNREADABLE}: {error}") from error
    with module.context:
        named = argument_names(module, len(exported.module_kept_var_idx))
        constraints = symbol_constraints(assertions(module), _jax.constraints_of(exported.in_avals))
        mesh = mesh_of(exported) or mesh_in(module)
    ins, outs = _jax.export_shardings(exported)
    kept = tuple(exported.module_kept_var_idx)
    names = names_of(exported.in_tree, kept, named)
    arguments = enumerate(zip(names, exported.in_avals, ins, strict=True))
    results = zip(result_names(exported.out_tree), exported.out_avals, outs, strict=True)
    return ExportRecord(
        exported.fun_name,
        tuple(_array(name, aval, cut, i in kept) for i, (name, aval, cut) in arguments),
        tuple(_array(name, aval, cut, True) for name, aval, cut in results),
        mesh,
        int(exported.nr_devices),
        tuple(exported.platforms),
        _jax.symbols_of(exported.in_avals),
        constraints,
        len(exported.mlir_module_serialized),
        file_bytes,
    )


def _array(name: str, aval: Any, sharding: Any, kept: bool) -> ExportedArray:
    named = isinstance(sharding, NamedSharding)
    spec, text = (Spec.of(sharding.spec, len(aval.shape)), "") if named else (None, str(sharding or ""))
    return ExportedArray(name, tuple(map(str, aval.shape)), str(aval.dtype), spec, text, kept)


def rehearse(data: bytes, options: Mapping[str, str]) -> None:
    """Does with a file what the kernel is about to, in a process that may die of it, with `values` (JSON) for its
    symbols if it is to become a program. Any Exception; a `ParseError` with `UNREADABLE` where MLIR cannot read it."""
    exported = _jax.read_export(data, any_type=True)
    record_of(exported, len(data))
    if "values" in options:
        call_of(exported, json.loads(options["values"]))


PLATFORMS = ("cpu", "tpu", "cuda", "rocm")


def export(traced: Traced, bound: PlanRecord, platforms: Sequence[str] = ("cpu",)) -> Any:
    """A program under a plan as a `jax.export.Exported`. Raises ShardvizError for a platform that JAX does not know;
    TraceError if it was exported before, calls back to Python, or cannot be exported."""
    if traced.closed is None:
        raise TraceError(
            f"{traced.name} was exported before, so it has no function to export under another plan; export the "
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
    closed = _jax.on_mesh(with_constraints(traced, bound), mesh)
    run = jex_core.jaxpr_as_fun(closed)
    order, in_tree = _plain(traced.in_tree)
    out_order, tree = _plain((traced.out_tree, (0,) * len(traced.updates)) if traced.updates else traced.out_tree)

    def fn(*args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(order, jax.tree.leaves((args, kwargs)), strict=True))
        results = run(*(arguments[i] for i in range(len(arguments))))
        return jax.tree.unflatten(tree, [results[i] for i in out_order])

    fn.__name__ = fn.__qualname__ = traced.name
    if (signature := signature_from(traced.in_tree)) is not None:
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


def _spec(spec: Spec) -> Any:
    if parts := [axis for axis in spec.axes if not isinstance(axis, str)]:
        raise SpecError(f"{spec}: jax.export cannot write a part of a mesh axis, {axis_text(parts[0])}")
    return type_spec(spec)


def _unregistered(exported: Any) -> str:
    """What to do about the pytree types among the arguments and results that JAX cannot write; empty if it can."""
    kinds = _jax.unregistered((exported.in_tree, exported.out_tree))
    if not kinds:
        return ""
    lines = []
    for kind in kinds:
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


def write(exported: Any, path: str | os.PathLike[str] | None) -> bytes:
    """An export as the bytes of a file, written to `path` if there is one. Raises ShardvizError for a type of pytree
    that cannot be written, or a missing folder."""
    try:
        data = bytes(exported.serialize())
    except ImportError as error:
        raise ShardvizError(f"{error}: pip install flatbuffers") from error
    except Exception as error:  # a pytree type that is not registered
        why = _unregistered(exported) or str(error)
        raise TraceError(f"{exported.fun_name} cannot be written: {why}") from error
    if path is not None:
        write_whole(path, data)
    return data
