"""Meshes with Explicit axes: the part of a plan that is in a program's types.

With Explicit axes a value's sharding is in its type, so the trace itself depends on the mesh's sizes and on how the
arguments are sharded along those axes. If an operation's result could be sharded in several ways, JAX refuses the
operation and asks for `out_sharding=`.

JAX writes a `sdy.sharding_constraint` after every operation whose type has a sharding. Shardy's passes remove it, so
`mark_types` first notes it on the operation.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from shardviz import _jax
from shardviz._jax.mlir import ir, sdy
from shardviz.errors import MeshError, SpecError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_name
from shardviz.stablehlo.module import CONSTRAINT, spec_of
from shardviz.tracing.call import Call


def explicit_axes(mesh: DeviceMesh) -> frozenset[str]:
    """Return the Explicit mesh axes. Raises MeshError if an axis is Manual."""
    for name, kind in zip(mesh.names, mesh.types, strict=True):
        if kind == "Manual":
            raise MeshError(
                f"mesh axis {name!r} is Manual: JAX has Manual axes only inside a shard_map; make the axis Auto or "
                "Explicit, and put what runs on single devices into jax.shard_map"
            )
    return frozenset(n for n, kind in zip(mesh.names, mesh.types, strict=True) if kind == "Explicit")


def in_types(specs: dict[str, Spec], mesh: DeviceMesh) -> tuple[Spec, ...]:
    """Return the arguments' specs restricted to Explicit axes. Raises SpecError for a part of such an axis."""
    axes = explicit_axes(mesh)
    if not axes:
        return ()
    specs_in_types = []
    for name, spec in specs.items():
        for axis in (*spec.axes, *spec.unreduced, *spec.reduced):
            if not isinstance(axis, str) and axis[0] in axes:
                raise SpecError(
                    f"{name} {spec}: a part of the Explicit mesh axis {axis[0]!r} cannot be in a type; use the whole "
                    "axis, split it in two, or make it Auto",
                    argument=name,
                )

        def keep(some):
            return tuple(a for a in some if axis_name(a) in axes)

        dims = tuple(map(keep, spec.dims))
        specs_in_types.append(Spec(dims, keep(spec.unreduced), keep(spec.reduced), spec.unreduced_kind))
    return tuple(specs_in_types)


def typed_arguments(call: Call, mesh: AbstractMesh, specs: tuple[Spec, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call's arguments with a sharding on every array, in flat order."""

    def typed(x: Any, spec: Spec) -> Any:
        if not isinstance(x, jax.ShapeDtypeStruct):
            return x
        sharding = NamedSharding(mesh, type_spec(spec))
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type, sharding=sharding)

    return call.filled(map(typed, call.arrays, specs))


def type_spec(spec: Spec) -> PartitionSpec:
    """Return JAX's spec of full axes."""
    return _jax.partition_spec(
        spec.entries(), tuple(map(axis_name, spec.unreduced)), tuple(map(axis_name, spec.reduced))
    )


_NOTE = "type_sharding"


def mark_types(module: ir.Operation) -> None:
    """Note on every operation the sharding of its result's type."""
    for op in _jax.walk(module, CONSTRAINT):
        maker = op.operands[0].owner
        if not isinstance(maker, ir.Block) and maker.location.attr == op.location.attr:
            maker.attributes[_NOTE] = op.attributes["sharding"]


def type_of(op: ir.Operation) -> Spec | None:
    """Return the spec that `mark_types` noted on an operation; None if there is none."""
    return spec_of(sdy.TensorShardingAttr(op.attributes[_NOTE])) if _NOTE in op.attributes else None
