"""What stands around a call and decides what it traces to: JAX's settings, and the places where code looks for a mesh.

There are two such places. `jax.set_mesh` and `use_abstract_mesh` fill the one that `jax.sharding.get_abstract_mesh`
reads; `with mesh:` fills `thread_resources.env.physical_mesh`, which older libraries read. A mesh without devices can
stand in both: `Placed` is one for the second, whose devices have numbers and are of no use otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh

from shardviz._jax.shardings import trace_context

SET_MESH = "jax.set_mesh"
WITH_MESH = "with mesh:"
PLACES = frozenset({SET_MESH, WITH_MESH})
"""The places where code looks for a mesh, by what fills them."""


def filled_places() -> frozenset[str]:
    """The places that hold a mesh here and now."""
    from jax._src import mesh as mesh_lib

    found = set()
    if not (mesh_lib.get_abstract_mesh().empty and mesh_lib.get_concrete_mesh().empty):
        found.add(SET_MESH)
    if not mesh_lib.thread_resources.env.physical_mesh.empty:
        found.add(WITH_MESH)
    return frozenset(found)


def settings() -> dict[str, Any]:
    """JAX's settings that a trace depends on, such as `jax_default_matmul_precision`, as they hold here."""
    from jax._src import config

    return {n: config.config_states[n].value for n in trace_context() if n in config.config_states}


@contextlib.contextmanager
def under_settings(wanted: Mapping[str, Any]) -> Iterator[None]:
    """Under it, the settings are those; on this thread."""
    from jax._src import config

    with contextlib.ExitStack() as stack:
        for name, value in wanted.items():
            state = config.config_states[name]
            if state.value != value:
                stack.enter_context(state(value))
        yield


@contextlib.contextmanager
def under(mesh: AbstractMesh, places: Collection[str] = (SET_MESH,)) -> Iterator[None]:
    """Under it, `mesh` stands in these places, and nothing in the others, whatever stands there around it."""
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
class _Device:
    """A device of a mesh without devices."""

    id: int
    platform: str = "cpu"
    device_kind: str = "cpu"
    process_index: int = 0
    num_cores: int = 1


class Placed(Mesh):
    """A `jax.sharding.Mesh` with an abstract mesh's axes, and devices that are none."""

    _internal_device_list = None  # pyright: ignore[reportAssignmentType]  # as an AbstractMesh has it


@functools.lru_cache(maxsize=64)
def placed(mesh: AbstractMesh) -> Placed:
    """The `Placed` of an abstract mesh, always the same one, as JAX knows meshes by identity."""
    count = math.prod(mesh.axis_sizes)  # a mesh of no axes is one device, of which JAX says that its size is 0
    devices = np.empty(count, object)
    devices[:] = [_Device(i) for i in range(count)]
    found = object.__new__(Placed)
    found.__dict__.update(
        devices=devices.reshape(mesh.axis_sizes),
        axis_names=mesh.axis_names,
        axis_types=mesh.axis_types,
        size=mesh.size,
        abstract_mesh=mesh,
    )
    return found
