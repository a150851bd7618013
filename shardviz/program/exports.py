"""What an export is, as plain data: everything that `jax.export` wrote down of a function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from shardviz import _jax
from shardviz.errors import ParseError
from shardviz.notation import DeviceMesh, Spec
from shardviz.program import ready, symbols
from shardviz.program.adapt.exported import call_of, mesh_of
from shardviz.program.module import argument_names, assertions, custom_calls, mesh_in

UNREADABLE = "its StableHLO cannot be read"

CONVENTIONS: Mapping[int, str] = {
    1: "the module is MHLO as text",
    2: "the module is a portable StableHLO artifact",
    3: "the module may be for several platforms, told apart by its first argument",
    4: "StableHLO with its own compatibility guarantees",
    5: "functions of TensorFlow may be called from inside",
    6: "disabled safety checks are written down",
    7: "shapes are settled before compiling, and checked by assertions in the module",
    8: "the module says whether it uses shape polymorphism; only then are its shapes settled",
    9: "effects are written down; ordered ones pass a token from each to the next",
    10: "the module says whether it was lowered for Shardy or for GSPMD",
}
"""Calling-convention version → what came with it."""


@dataclass(frozen=True)
class ExportedArray:
    """An argument or a result of an export.

    Attributes:
        name: its name where the module tells, else its tree path.
        shape: each dimension as text: a number, or an expression of symbols.
        dtype: its element type's name.
        spec: how it is cut; None where the export says nothing, so that it is the compiler's choice.
        sharding: the same as the export has it, where it is an HLO sharding.
        kept: whether the module uses it.
    """

    name: str
    shape: tuple[str, ...]
    dtype: str
    spec: Spec | None = None
    sharding: str = ""
    kept: bool = True


@dataclass(frozen=True)
class CustomCall:
    """Calls by name into the run time, which the file itself does not define.

    Attributes:
        target: the name.
        count: how often it stands in the module.
        stable: whether JAX promises to keep what it means.
        allowed: whether the check for that was switched off for it when it was exported.
    """

    target: str
    count: int
    stable: bool
    allowed: bool = False


@dataclass(frozen=True)
class ExportRecord:
    """Everything that `jax.export` wrote down of a function.

    Attributes:
        name: the function's name.
        arguments, results: every array.
        in_tree, out_tree: their trees, as JAX writes them.
        mesh: the mesh of its shardings, where they have names.
        devices: for how many devices it was lowered.
        platforms: for which platforms.
        version: its calling convention.
        supported: the oldest and the newest calling convention that this JAX reads.
        symbols: the symbolic dimensions.
        constraints: what must hold of them.
        custom_calls: what it calls by name.
        ordered_effects, unordered_effects: side effects.
        vjp_order: how many orders of the derivative are inside; None for an export that was not read from a file, which
            has as many as are asked for.
        disabled_checks: the safety checks that were switched off.
        module_bytes: the size of its StableHLO.
        file_bytes: the size of the file; None for an export that was not read from one.
    """

    name: str
    arguments: tuple[ExportedArray, ...]
    results: tuple[ExportedArray, ...]
    in_tree: str
    out_tree: str
    mesh: DeviceMesh | None
    devices: int
    platforms: tuple[str, ...]
    version: int
    supported: tuple[int, int]
    symbols: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    custom_calls: tuple[CustomCall, ...] = ()
    ordered_effects: tuple[str, ...] = ()
    unordered_effects: tuple[str, ...] = ()
    vjp_order: int | None = 0
    disabled_checks: tuple[str, ...] = ()
    module_bytes: int = 0
    file_bytes: int | None = None

    @property
    def is_supported(self) -> bool:
        """Whether this JAX reads its calling convention."""
        return self.supported[0] <= self.version <= self.supported[1]

    @property
    def meaning(self) -> str:
        """What came with its calling convention; empty for one that is newer than this shardviz."""
        return CONVENTIONS.get(self.version, "")


def record_of(exported: Any, file_bytes: int | None = None) -> ExportRecord:
    """What an export is.

    Args:
        exported: a `jax.export.Exported`.
        file_bytes: the size of its file, if it was read from one.

    Raises:
        ParseError: if its module cannot be read.
    """
    try:
        module = _jax.exported_module(exported.mlir_module_serialized)
    except Exception as error:  # MLIR says in its own words what is wrong
        raise ParseError(f"{UNREADABLE}: {error}") from error
    with module.context:
        named = argument_names(module, len(exported.module_kept_var_idx))
        found = symbols.constraints(assertions(module), _jax.constraints_of(exported.in_avals))
        calls = custom_calls(module)
        mesh = mesh_of(exported) or mesh_in(module)
    allowed = {target for check in exported.disabled_safety_checks if (target := check.is_custom_call())}
    stable = _jax.stable_custom_calls()
    ins, outs = _jax.export_shardings(exported)
    kept = tuple(exported.module_kept_var_idx)
    names = ready.names(exported.in_tree, kept, named)
    return ExportRecord(
        exported.fun_name,
        tuple(
            _array(name, aval, cut, i in kept)
            for i, (name, aval, cut) in enumerate(zip(names, exported.in_avals, ins, strict=True))
        ),
        tuple(
            _array(name, aval, cut, True)
            for name, aval, cut in zip(ready.result_names(exported.out_tree), exported.out_avals, outs, strict=True)
        ),
        str(exported.in_tree),
        str(exported.out_tree),
        mesh,
        int(exported.nr_devices),
        tuple(exported.platforms),
        int(exported.calling_convention_version),
        _jax.calling_conventions(),
        _jax.symbols_of(exported.in_avals),
        tuple(c.text for c in found),
        tuple(
            CustomCall(target, count, target in stable, target in allowed or "ALL" in allowed)
            for target, count in sorted(calls.items())
        ),
        tuple(map(str, exported.ordered_effects)),
        tuple(map(str, exported.unordered_effects)),
        None if file_bytes is None else _orders(exported),
        tuple(map(str, exported.disabled_safety_checks)),
        len(exported.mlir_module_serialized),
        file_bytes,
    )


def _array(name: str, aval: Any, sharding: Any, kept: bool) -> ExportedArray:
    shape = tuple(map(str, aval.shape))
    if isinstance(sharding, jax.sharding.NamedSharding):
        return ExportedArray(name, shape, str(aval.dtype), Spec.of(sharding.spec, len(shape)), "", kept)
    return ExportedArray(name, shape, str(aval.dtype), None, "" if sharding is None else str(sharding), kept)


def _orders(exported: Any) -> int:
    """How many orders of the derivative a file holds."""
    found = 0
    while exported.has_vjp():
        exported = exported.vjp()
        found += 1
    return found


def rehearse(data: bytes, options: Mapping[str, str]) -> None:
    """Does with a file all that the kernel is about to do, in a process that may die of it.

    Args:
        data: the file.
        options: `values`, as JSON, for its symbolic dimensions, and `mesh`, as text, if it is to become a program.

    Raises:
        Exception: of any kind; a `ParseError` with `UNREADABLE` in it where MLIR cannot read it.
    """
    exported = _jax.read_export(data, any_type=True)
    record_of(exported, len(data))
    if "values" in options:
        mesh = DeviceMesh.of(options["mesh"]) if "mesh" in options else None
        call_of(exported, json.loads(options["values"]), mesh)
