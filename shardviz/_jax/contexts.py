"""The contents of JAX's shardings, and the context of a call: JAX's settings, and the places where code looks for a
mesh.

A trace depends on the context of the call. There are two places for a mesh. `jax.set_mesh` and `use_abstract_mesh` set
the one that `jax.sharding.get_abstract_mesh` reads; `with mesh:` sets `thread_resources.env.physical_mesh`, which older
libraries read. A mesh without devices can be set in both: for the second, `StandInMesh` has placeholder devices with
numbers.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

SET_MESH = "jax.set_mesh"
WITH_MESH = "with mesh:"
PLACES = frozenset({SET_MESH, WITH_MESH})
"""The places where code looks for a mesh, by the function that sets them."""


def _standing() -> tuple[Any, Any, Any]:
    """Return the current meshes of `jax.set_mesh`, of `use_abstract_mesh` and of `with mesh:`; empty ones if unset."""
    from jax._src import mesh as mesh_lib

    return mesh_lib.get_concrete_mesh(), mesh_lib.get_abstract_mesh(), mesh_lib.thread_resources.env.physical_mesh


def filled_places() -> frozenset[str]:
    """Return the places that currently hold a mesh."""
    concrete, abstract, physical = _standing()
    places = {SET_MESH: not (concrete.empty and abstract.empty), WITH_MESH: not physical.empty}
    return frozenset(place for place, is_filled in places.items() if is_filled)


def settings() -> dict[str, Any]:
    """Return the current values of JAX's settings that a trace depends on, such as `jax_default_matmul_precision`."""
    from jax._src import config

    states = config.config_states
    return {n: states[n].value for n in map(str, config.trace_context_names()) if n in states}


@contextlib.contextmanager
def under_settings(wanted: Mapping[str, Any]) -> Iterator[None]:
    """Set JAX's settings for this thread inside the context."""
    from jax._src import config

    with contextlib.ExitStack() as stack:
        for name, value in wanted.items():
            state = config.config_states[name]
            if state.value != value:
                stack.enter_context(state(value))
        yield


@contextlib.contextmanager
def under(mesh: AbstractMesh, places: Collection[str] = (SET_MESH,)) -> Iterator[None]:
    """Set the mesh in these places, and clear the others, inside the context."""
    from jax._src import config
    from jax._src import mesh as mesh_lib

    resources = mesh_lib.thread_resources
    physical = placed(mesh) if WITH_MESH in places else None
    stack, env, key = resources.stack, resources.env, config.mesh_context_manager.value
    resources.env = mesh_lib.ResourceEnv(physical or mesh_lib.empty_concrete_mesh)
    resources.stack = [resources.env]
    # JAX keeps traces by this; it has to know the mesh even where no code may, as a shard_map inside is traced for it
    config.mesh_context_manager.set_local((physical or mesh,))
    try:
        with contextlib.ExitStack() as stacked:
            if not mesh_lib.get_concrete_mesh().empty:
                stacked.enter_context(jax.set_mesh(None))
            # by way of none, as `use_abstract_mesh` by itself refuses a mesh of another size than that around it
            stacked.enter_context(jax.sharding.use_abstract_mesh(AbstractMesh((), ())))
            if SET_MESH in places:
                stacked.enter_context(jax.sharding.use_abstract_mesh(mesh))
            yield
    finally:
        resources.stack, resources.env = stack, env
        config.mesh_context_manager.set_local(key)


@dataclass(frozen=True)
class StandInDevice:
    """A placeholder for a device: in a mesh without devices, or as JAX's default device. It is also its own client,
    which can only compile, and whose version is the newest, so that kernels are written for the newest format."""

    id: int = 0
    platform: str = "cpu"
    device_kind: str = "cpu"
    num_cores: int = 1
    process_index: int = 0
    runtime_type: str = "compile_only_runtime"
    platform_version: str = ""

    @property
    def client(self) -> StandInDevice:
        return self


class StandInMesh(Mesh):
    """A `jax.sharding.Mesh` with an abstract mesh's axes and placeholder devices."""

    _internal_device_list = None  # pyright: ignore[reportAssignmentType]  # as an AbstractMesh has it
    is_multi_process = False  # pyright: ignore[reportAssignmentType]

    @property
    def local_devices(self) -> list[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return list(self.devices.flat)


@functools.lru_cache(maxsize=64)
def placed(mesh: AbstractMesh) -> StandInMesh:
    """Return the `StandInMesh` of an abstract mesh; always the same object, because JAX compares meshes by identity."""
    count = math.prod(mesh.axis_sizes)  # a mesh of no axes is one device, of which JAX says that its size is 0
    devices = np.empty(count, object)
    devices[:] = [StandInDevice(i) for i in range(count)]
    stand_in = object.__new__(StandInMesh)
    stand_in.__dict__.update(
        devices=devices.reshape(mesh.axis_sizes),
        axis_names=mesh.axis_names,
        axis_types=mesh.axis_types,
        size=mesh.size,
        abstract_mesh=mesh,
    )
    return stand_in


def partition_spec(
    entries: Sequence[Any], unreduced: Sequence[str], reduced: Sequence[str], kind: str = "sum"
) -> PartitionSpec:
    """Return a PartitionSpec, where `...` stands for `P.UNCONSTRAINED`. Raises AttributeError if this JAX lacks the
    kind of partial sums."""
    parts = (PartitionSpec.UNCONSTRAINED if entry is ... else entry for entry in entries)
    sums = {"unreduced": frozenset(unreduced), "reduced": frozenset(reduced)}
    if kind != "sum":
        sums["unreduced_kind"] = getattr(jax.sharding.UnreducedKind, kind)  # pyright: ignore[reportAttributeAccessIssue]
    return PartitionSpec(*parts, **sums)


def op_sharding(text: str) -> Any:
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    return xla_client.HloSharding.from_string(text).to_proto()


def hlo_sharding_of(sharding: Any, rank: int | None) -> str | None:
    """Return the HLO text of a `jax.sharding.Sharding` without a spec, such as a GSPMDSharding; None if it has no HLO
    text."""
    held = getattr(sharding, "_hlo_sharding", None)
    if held is None and hasattr(sharding, "_to_xla_hlo_sharding"):
        held = sharding._to_xla_hlo_sharding(rank or 0)
    return None if held is None else str(held)


def device_ids(sharding: Any) -> tuple[int, ...]:
    """Return the ids of a sharding's devices, in the sharding's order."""
    ordered = getattr(sharding, "_device_assignment", None)
    return tuple(int(d.id) for d in (sharding.device_set if ordered is None else ordered))


def context_mesh() -> Any:
    """Return the mesh of the call site: that of `jax.set_mesh`, of `use_abstract_mesh`, or of `with mesh:`; None if
    there is none."""
    return next((mesh for mesh in _standing() if not mesh.empty), None)
