"""What JAX's shardings and meshes hold, and the mesh of the call site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec


def partition_spec(
    entries: Sequence[Any], unreduced: Sequence[str], reduced: Sequence[str], kind: str = "sum"
) -> PartitionSpec:
    """A PartitionSpec; an entry `...` is `P.UNCONSTRAINED`.

    Raises:
        AttributeError: for a kind of partial results that this JAX does not have.
    """
    found = (PartitionSpec.UNCONSTRAINED if entry is ... else entry for entry in entries)
    said = {"unreduced": frozenset(unreduced), "reduced": frozenset(reduced)}
    if kind != "sum":
        said["unreduced_kind"] = getattr(jax.sharding.UnreducedKind, kind)  # pyright: ignore[reportAttributeAccessIssue]
    return PartitionSpec(*found, **said)


def op_sharding(data: bytes) -> Any:
    """XLA's `OpSharding` from its bytes."""
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    message = xla_client.OpSharding()
    message.ParseFromString(data)
    return message


def hlo_sharding_of(sharding: Any, rank: int | None) -> str | None:
    """The HLO text of a `jax.sharding.Sharding` that has no spec, such as a GSPMDSharding; None where it has none."""
    held = getattr(sharding, "_hlo_sharding", None)
    if held is None and hasattr(sharding, "_to_xla_hlo_sharding"):
        held = sharding._to_xla_hlo_sharding(rank or 0)
    return None if held is None else str(held)


def device_ids(sharding: Any) -> tuple[int, ...]:
    """The ids of a sharding's devices, in the order in which it counts them."""
    ordered = getattr(sharding, "_device_assignment", None)
    return tuple(int(d.id) for d in (sharding.device_set if ordered is None else ordered))


def context_mesh() -> Any:
    """The mesh of the call site: that of `jax.set_mesh`, of `use_abstract_mesh`, or of `with mesh:`; None without."""
    from jax._src import mesh as mesh_lib

    for mesh in (
        mesh_lib.get_concrete_mesh(),
        mesh_lib.get_abstract_mesh(),
        mesh_lib.thread_resources.env.physical_mesh,
    ):
        if not mesh.empty:
            return mesh
    return None


def trace_context() -> dict[str, Any]:
    """The settings and contexts that a trace depends on, by name, as the keys of JAX's own caches have them."""
    from jax._src import config

    return dict(zip(config.trace_context_names(), config.trace_context(), strict=True))


def mesh_device_ids(mesh: Any) -> tuple[int, ...]:
    """The numbers of a mesh's devices in order; empty for None and for an abstract mesh."""
    return tuple(int(d.id) for d in mesh.devices.flat) if isinstance(mesh, Mesh) else ()


def device_ids_of(sharding: Any) -> tuple[int, ...]:
    """As `device_ids`; empty for a sharding over an abstract mesh."""
    abstract = isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)
    return () if abstract else device_ids(sharding)
