"""Files of `jax.export` and their contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from shardviz._jax.lowering import mlir_context
from shardviz._jax.mlir import ir


def read_export(data: bytes, *, any_type: bool = False) -> Any:
    """Read the `jax.export.Exported` in a file's bytes. With `any_type`, tuples replace pytree nodes whose type is not
    registered. Raises any Exception for other bytes."""
    from jax._src.export import _export

    registered = _export.deserialization_registry
    try:
        if any_type:
            _export.deserialization_registry = _AnyType()
        return jax.export.deserialize(bytearray(data))
    finally:
        _export.deserialization_registry = registered


class _AnyType(dict[str, Any]):
    """A replacement for the registry of pytree nodes, which returns a tuple type for every name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Any:
        return tuple, lambda _: None, lambda _, children: tuple(children)


def is_export_file(data: bytes) -> bool:
    """Return whether bytes begin as a file of `jax.export` does; or an Exception of any kind."""
    from jax._src.export import serialization_generated

    table = serialization_generated.Exported.GetRootAsExported(data, 0)
    return table.FunctionName() is not None and table.MlirModuleSerializedLength() > 0


def exported_module(artifact: bytes) -> ir.Module:
    """Return the StableHLO of an export, with the shardings of old versions converted to Shardy's. Raises any Exception
    if that fails."""
    from jax._src.lib import _jax as xla  # pyright: ignore[reportPrivateImportUsage]

    from shardviz._jax.mlir import PassManager

    with mlir_context():
        module = xla.mlir.deserialize_portable_artifact(artifact)
        passes = ["sdy-lift-inlined-meshes"]
        if "xla.sdy.meshes" in str(module.operation.attributes):
            passes.insert(0, "xla-sdy-round-trip-import-shardy-attrs")
        PassManager.parse(f"builtin.module({','.join(passes)})").run(module.operation)
        return module


def export_shardings(exported: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return an export's shardings of arguments and of results: for each a NamedSharding, an HLO sharding, or None."""
    shardings = []
    for way in ("in", "out"):
        named, hlo = getattr(exported, f"_{way}_named_shardings"), getattr(exported, f"{way}_shardings_hlo")
        shardings.append(tuple(n if n is not None else h for n, h in zip(named, hlo, strict=True)))
    return shardings[0], shardings[1]


def symbols_of(avals: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the symbolic dimensions in the shapes of abstract values."""
    from jax._src.export import shape_poly

    return tuple(shape_poly.all_dim_vars(avals))


def constraints_of(avals: Sequence[Any]) -> tuple[str, ...]:
    """Return the constraints of symbolic dimensions, as they were written."""
    for aval in avals:
        for dimension in aval.shape:
            if jax.export.is_symbolic_dim(dimension):
                return tuple(dict.fromkeys(c.debug_str for c in dimension.scope._explicit_constraints))
    return ()


def evaluated(dimension: Any, values: dict[str, int]) -> int:
    """Return the value of a dimension, which may be an expression such as `2*b + 1`, for values of its symbols."""
    return int(dimension._evaluate(dict[str, Any](values))) if jax.export.is_symbolic_dim(dimension) else int(dimension)


def refined(module: bytes) -> ir.Module:
    """Return a module of fixed argument shapes with all inner shapes fixed. Raises an Exception, caused by the
    assertion that does not hold."""
    from jax._src.interpreters import mlir

    with mlir_context():
        return mlir.refine_polymorphic_shapes(ir.Module.parse(module))
