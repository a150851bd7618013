"""The sharding facts in a file of `jax.export`, as plain data: arguments, results, symbolic dimensions, platforms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jax.sharding import NamedSharding

from shardviz import _jax
from shardviz.errors import ParseError
from shardviz.notation import DeviceMesh, Spec
from shardviz.stablehlo.module import argument_names, assertions, mesh_in
from shardviz.tracing.adapt.exported import call_of, mesh_of, names_of, result_names, symbol_constraints

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
    """The facts about sharding that `jax.export` recorded of a function."""

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
    """Return the record of an export. Raises ParseError if its module cannot be read."""
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
    return ExportedArray(name, tuple(map(str, aval.shape)), _jax.dtype_name(aval.dtype), spec, text, kept)


def rehearse(data: bytes, options: Mapping[str, str]) -> None:
    """Read a file as the kernel will, in a process that may crash, with `values` (JSON) for its symbols if it becomes a
    program. Raises any Exception; a `ParseError` with `UNREADABLE` if MLIR cannot read the file."""
    exported = _jax.read_export(data, any_type=True)
    record_of(exported, len(data))
    if "values" in options:
        call_of(exported, json.loads(options["values"]))
