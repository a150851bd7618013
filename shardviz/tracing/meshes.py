"""JAX's meshes from plain data: `mesh(data=8, model=8)` is a `jax.sharding.AbstractMesh` with Auto axes."""

from __future__ import annotations

from typing import Any

from jax.sharding import AbstractMesh, AxisType

from shardviz.errors import MeshError
from shardviz.notation import DeviceMesh


def mesh(axes: Any = None, /, **sizes: int) -> AbstractMesh:
    """Return a device mesh without devices.

    Args:
        axes: a mesh in any form that `DeviceMesh.of` reads: a dict, text such as `"data=8,model=8:Explicit"`, a JAX
            mesh. An `AbstractMesh` has no devices, so it loses their order and slices (`"data=2*4"`); if they matter,
            use the text itself, or `DeviceMesh.of(text)`.
        sizes: alternatively the axes by name, `mesh(data=8, model=8)`; for names that are not Python identifiers use a
            dict.

    Returns:
        An `AbstractMesh`; its axes are Auto unless `axes` says otherwise.

    Raises:
        MeshError: if the axes are invalid, or given both ways.

    Examples:
        >>> import shardviz as sv
        >>> sv.mesh(data=4, model=2)
        AbstractMesh('data': 4, 'model': 2, axis_types=(Auto, Auto))
    """
    if axes is not None and sizes:
        raise MeshError("mesh: give the axes either as one argument or by name, not both")
    return abstract_mesh(DeviceMesh.of(sizes if axes is None else axes))


def abstract_mesh(mesh: DeviceMesh) -> AbstractMesh:
    """Return the `AbstractMesh` with the same axes, without the device order, which an AbstractMesh cannot have."""
    return AbstractMesh(mesh.sizes, mesh.names, axis_types=tuple(AxisType[t] for t in mesh.types))
