"""A mesh on a machine: which device stands where, and which links each mesh axis rides on.

>>> from shardviz.notation import DeviceMesh
>>> print(placement(DeviceMesh.of("data=4,model=8"), Machine.of("tpu v5e:8x4")))
data=4,model=8 on tpu v5e:8x4: 32 chips in a slice of 8x4 (no axis wraps around), 8 hosts; placed as by mesh_utils
  data   4  line of 4 along y; crosses hosts (2)
  model  8  line of 8 along x; crosses hosts (4)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

from shardviz.costs.device_order import device_order
from shardviz.costs.machine import Machine
from shardviz.costs.routes import Route, route
from shardviz.errors import MeshError, TargetError
from shardviz.notation import Axis, DeviceMesh
from shardviz.notation.spec import axis_text

_MOST_KNOWN = 4096
_T = TypeVar("_T")


@dataclass(frozen=True)
class AxisPath:
    """What one mesh axis rides on.

    Attributes:
        name: the mesh axis.
        size: devices along it.
        route: the links: axes of the torus, ring or line, slices, NVLink domains.
    """

    name: str
    size: int
    route: Route

    def __str__(self) -> str:
        crosses = f"; crosses hosts ({self.route.hosts})" if self.route.hosts > 1 and self.route.size > 1 else ""
        return f"{self.route}{crosses}"


@dataclass(frozen=True)
class Placement:
    """A mesh on a machine.

    Attributes:
        mesh: the mesh.
        machine: the machine.
        order: for each place of the mesh, in row-major order, the place in the machine's list of devices.
        chosen: the order is the mesh's own; else it is what JAX's `mesh_utils` would choose.
    """

    mesh: DeviceMesh
    machine: Machine
    order: tuple[int, ...]
    chosen: bool

    def groups(self, axes: Sequence[Axis]) -> np.ndarray:
        """The groups of devices along mesh axes: integers, groups x members, places in the machine's list (read only).

        Raises:
            MeshError: if the mesh has no such axis, or the part is none of it.
        """
        return self.once(("groups", *axes), lambda: _frozen(np.asarray(self.order)[groups_along(axes, self.mesh)]))

    def route(self, axes: Sequence[Axis]) -> Route:
        """What the groups along mesh axes are joined by, the axes taken together."""
        return self.once(("route", *axes), lambda: route(self.machine, self.groups(axes)))

    def once(self, key: Hashable, reckon: Callable[[], _T]) -> _T:
        """What `reckon` gave for this key the first time: to look a large placement up elsewhere takes longer."""
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = reckon()
        return found

    @cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}

    @classmethod
    def of(cls, mesh: Any, target: str | Machine) -> Placement:
        """The placement of whatever describes a mesh, on a target; a `Placement` is returned as it is.

        A `jax.sharding.Mesh` of the machine's own kind of devices keeps their order.

        Raises:
            TargetError: as `placement`, or if a placement is on another machine.
            MeshError: if it describes no mesh.
        """
        machine = Machine.of(target)
        if isinstance(mesh, Placement):
            if mesh.machine != machine:
                raise TargetError(f"the mesh is placed on {mesh.machine.text}, the target is {machine.text}; give one")
            return mesh
        platform = None
        if not isinstance(mesh, str | dict | DeviceMesh):
            try:
                platform = next(iter(mesh.devices.flat)).platform
            except (AttributeError, ValueError, StopIteration):  # an AbstractMesh has no devices, and says so so
                platform = None
        return placement(DeviceMesh.of(mesh), machine, platform is not None and platform == machine.chip.kind)

    @property
    def paths(self) -> tuple[AxisPath, ...]:
        """What each mesh axis rides on."""
        return tuple(AxisPath(n, s, self.route((n,))) for n, s in zip(self.mesh.names, self.mesh.sizes, strict=True))

    def device_ids(self) -> tuple[int, ...]:
        """JAX's id of the device at each place of the mesh."""
        return tuple(self.machine.ids()[list(self.order)].tolist())

    def __str__(self) -> str:
        how = "placed in the mesh's own order" if self.chosen else "placed as by mesh_utils"
        wide = max((len(name) for name in self.mesh.names), default=0)
        digits = max((len(str(size)) for size in self.mesh.sizes), default=0)
        rows = [f"  {path.name:<{wide}}  {path.size:>{digits}}  {path}" for path in self.paths]
        return "\n".join([f"{self.mesh} on {self.machine}; {how}", *rows])


@lru_cache(maxsize=256)
def placement(mesh: DeviceMesh, machine: Machine, keep_order: bool = False) -> Placement:
    """Puts a mesh on a machine.

    A mesh that says its devices' order (`device_ids`, JAX's ids or 0, 1, ... in the machine's list) keeps it; one that
    does not gets the order that `jax.experimental.mesh_utils` would choose. Slices are where the mesh says
    (`data=2*4`), or else run through its first axes. With `keep_order`, as with a mesh's own `in_order`, a mesh that
    lists no ids has that of the ids, 0, 1, 2, ...

    Raises:
        TargetError: if the machine has another number of devices, or its slices cannot lie as the mesh says.
    """
    if machine.chip.kind == "cpu":
        return Placement(mesh, machine, tuple(mesh.ids().tolist()), bool(mesh.device_ids or mesh.in_order))
    if mesh.device_ids or mesh.in_order or keep_order:
        if mesh.size != machine.size:
            device_order(machine, mesh.sizes, (1,) * len(mesh.sizes))  # raises, and says what there is
        return Placement(mesh, machine, _own_order(mesh, machine), True)
    order = device_order(machine, mesh.sizes, _slices(mesh, machine))
    return Placement(mesh, machine, tuple(order.ravel().tolist()), False)


def _own_order(mesh: DeviceMesh, machine: Machine) -> tuple[int, ...]:
    where = {int(ident): place for place, ident in enumerate(machine.ids())}
    if not mesh.device_ids:
        return tuple(where[ident] for ident in sorted(where))
    if set(mesh.device_ids) == set(where):
        return tuple(where[ident] for ident in mesh.device_ids)
    if sorted(mesh.device_ids) == list(range(machine.size)):  # several slices, counted through
        return mesh.device_ids
    strange = next(ident for ident in mesh.device_ids if ident not in where)
    raise TargetError(
        f"mesh {mesh.text}: {machine.text} has no device {strange}; its ids are {machine.ids()[:4].tolist()} ... "
        f"{machine.ids().max()}"
    )


def _slices(mesh: DeviceMesh, machine: Machine) -> tuple[int, ...]:
    """The number of slices along each mesh axis."""
    factors = mesh.dcn
    if machine.chip.kind == "gpu":
        return factors if factors is not None and mesh.slice_ids else (1,) * len(mesh.sizes)
    if mesh.slice_ids:
        if factors is None:
            raise TargetError(
                f"mesh {mesh.text}: its slices are no blocks of the mesh; give the order of its devices with "
                "devices=[...] as well"
            )
        return factors
    left, found = machine.num_slices, []
    for size in mesh.sizes:
        found.append(int(np.gcd(size, left)))
        left //= found[-1]
    return tuple(found) if left == 1 else (1,) * len(mesh.sizes)


def _frozen(table: np.ndarray) -> np.ndarray:
    table.setflags(write=False)
    return table


def groups_along(axes: Sequence[Axis], mesh: DeviceMesh) -> np.ndarray:
    """The groups along mesh axes, which may be parts of axes: integers, groups x members, places of the mesh.

    >>> groups_along(("b",), DeviceMesh.of("a=2,b=2")).tolist()
    [[0, 1], [2, 3]]
    >>> groups_along((("b", 1, 2),), DeviceMesh.of("b=4")).tolist()
    [[0, 2], [1, 3]]

    Raises:
        MeshError: if the mesh has no such axis, or the part is none of it.
    """
    place = np.arange(mesh.size)
    member, leader, size = np.zeros_like(place), place.copy(), 1
    steps = dict(zip(mesh.names, np.cumprod((1, *mesh.sizes[:0:-1]))[::-1].tolist(), strict=True)) if mesh.names else {}
    for axis in axes:
        name, before, many = (axis, 1, mesh.shape.get(axis, 0)) if isinstance(axis, str) else axis
        whole = mesh.shape.get(name)
        if whole is None or before < 1 or many < 1 or whole % (before * many):
            have = ", ".join(f"{n}={s}" for n, s in mesh.shape.items()) or "none"
            raise MeshError(f"axes {axes!r}: the mesh has no axis {axis_text(axis)!r}; it has {have}")
        stride = steps[name] * (whole // (before * many))
        digit = place // stride % many
        member, leader, size = member * many + digit, leader - digit * stride, size * many
    if len(np.unique(leader)) * size != mesh.size:
        raise MeshError(f"axes {axes!r}: a place along an axis is named twice; name each once")
    return place[np.lexsort((member, leader))].reshape(-1, size)


def other_size(mesh: DeviceMesh, machine: Machine) -> str:
    """What is wrong where a mesh has not as many devices as a machine, and meshes that would do."""
    fitting = []
    for name, size in mesh.shape.items():
        rest = mesh.size // size
        if machine.size % rest == 0:
            fitting.append(",".join(f"{n}={machine.size // rest if n == name else s}" for n, s in mesh.shape.items()))
    if not fitting and len(mesh.names) > 1:
        first = max(d for d in range(1, math.isqrt(machine.size) + 1) if machine.size % d == 0)
        sizes = [machine.size // first, first] + [1] * (len(mesh.names) - 2)
        fitting.append(",".join(f"{n}={s}" for n, s in zip(mesh.names, sizes, strict=True)))
    would = f"; a mesh that would do: {' or '.join(fitting)}" if fitting else f"; make it {machine.size} devices"
    return f"the mesh {mesh} has {mesh.size} devices and the target {machine.text} has {machine.size}{would}"
