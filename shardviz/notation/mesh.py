"""A device mesh as plain data: named axes with sizes, and the devices in mesh order.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> mesh.size, str(mesh)
(8, 'data=2,model=4')
>>> mesh.coordinates()[5].tolist()      # device 5 is data=1, model=1
[1, 1]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from shardviz.errors import MeshError

AXIS_TYPES = ("Auto", "Explicit", "Manual")


@dataclass(frozen=True)
class DeviceMesh:
    """Named mesh axes and the order of the devices.

    Attributes:
        names: the mesh axes' names, major to minor.
        sizes: the number of devices along each.
        types: `Auto`, `Explicit` or `Manual` for each; left empty they are all `Auto`.
        device_ids: the id of the device at each place of the mesh, in row-major order; empty means 0, 1, 2, ...
        process_ids: the process that each place's device belongs to, where it is known. Two meshes that differ only in
            this are equal.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    types: tuple[str, ...] = ()
    device_ids: tuple[int, ...] = ()
    process_ids: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes):
            raise MeshError(f"mesh: {len(self.names)} axis names {self.names} for {len(self.sizes)} sizes {self.sizes}")
        for name, size in zip(self.names, self.sizes, strict=True):
            if not isinstance(name, str) or not name:
                raise MeshError(f"mesh: an axis name must be a non-empty string, not {name!r}")
            if self.names.count(name) > 1:
                raise MeshError(f"mesh: two axes are named {name!r}; give each axis its own name")
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
                raise MeshError(f"mesh: axis {name!r} must have a whole number of devices, 1 or more, not {size!r}")
        object.__setattr__(self, "sizes", tuple(int(s) for s in self.sizes))
        object.__setattr__(self, "types", tuple(self.types) or ("Auto",) * len(self.names))
        if len(self.types) != len(self.names) or any(t not in AXIS_TYPES for t in self.types):
            raise MeshError(f"mesh: axis types must be one of {AXIS_TYPES} for each axis, not {self.types}")
        if self.device_ids:
            if len(set(self.device_ids)) != self.size or len(self.device_ids) != self.size:
                raise MeshError(
                    f"mesh: {self.size} places need {self.size} different device ids, not {len(self.device_ids)}"
                )
            if self.device_ids == tuple(range(self.size)):
                object.__setattr__(self, "device_ids", ())

        if self.process_ids and len(self.process_ids) != self.size:
            raise MeshError(f"mesh: {self.size} places need {self.size} process ids, not {len(self.process_ids)}")

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.sizes)

    @property
    def shape(self) -> dict[str, int]:
        """Axis name → size, in mesh order."""
        return dict(zip(self.names, self.sizes, strict=True))

    def ids(self) -> np.ndarray:
        """The device ids in mesh order, an integer array of length `size`."""
        return np.asarray(self.device_ids) if self.device_ids else np.arange(self.size)

    def coordinates(self) -> np.ndarray:
        """The place of every device on every axis: integers, device x axis, in mesh order (read only)."""
        return _coordinates(self.sizes)

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in zip(self.names, self.sizes, strict=True))

    @classmethod
    def of(cls, mesh: Any) -> DeviceMesh:
        """Reads a mesh from whatever describes one.

        Args:
            mesh: a `DeviceMesh`, a `jax.sharding.Mesh` or `AbstractMesh`, a mapping from axis name to size, or text
                such as `"data=8,model=4"`.

        Raises:
            MeshError: if it is none of these, or describes no mesh.
        """
        if isinstance(mesh, DeviceMesh):
            return mesh
        if isinstance(mesh, str):
            return cls.of(_parse(mesh))
        if isinstance(mesh, Mapping):
            return cls(tuple(mesh.keys()), tuple(mesh.values()))
        names, sizes = getattr(mesh, "axis_names", None), getattr(mesh, "axis_sizes", None)
        if names is None or sizes is None:
            raise MeshError(
                f"mesh: expected a jax Mesh or AbstractMesh, a dict such as {{'data': 8}} or text such as "
                f"'data=8,model=4', not {type(mesh).__name__}"
            )
        types = tuple(getattr(t, "name", str(t)) for t in getattr(mesh, "axis_types", None) or ())
        try:
            devices = list(np.asarray(mesh.devices).flat)
            ids = tuple(int(device.id) for device in devices)
        except (AttributeError, ValueError):  # an AbstractMesh has none, and says so with either
            return cls(tuple(names), tuple(sizes), types)
        hosts = tuple(int(getattr(device, "process_index", 0)) for device in devices)
        return cls(tuple(names), tuple(sizes), types, ids, hosts)


@lru_cache(maxsize=64)
def _coordinates(sizes: tuple[int, ...]) -> np.ndarray:
    count = math.prod(sizes)
    table = np.stack(np.unravel_index(np.arange(count), sizes), axis=1) if sizes else np.zeros((count, 0), int)
    table.setflags(write=False)
    return table


def _parse(text: str) -> dict[str, int]:
    axes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, size = (p.strip() for p in part.partition("="))
        if not equals or not size.isdecimal() or not name:
            raise MeshError(f"mesh {text!r}: expected axes as 'name=size', such as 'data=8,model=4', not {part!r}")
        if name in axes:
            raise MeshError(f"mesh {text!r}: two axes are named {name!r}; give each axis its own name")
        axes[name] = int(size)
    return axes
