"""A mesh on a machine: the position of each device, and the links that each mesh axis uses.

>>> placed = placement(DeviceMesh.of("data=4,model=8"), Machine.of("tpu v5e:8x4"))
>>> [str(path) for path in placed.paths]
['line of 4 along y; crosses hosts (2)', 'line of 8 along x; crosses hosts (4)']
>>> print(placed.device(5))
device 5
data 0, model 5
location: chip (5, 0), host 2
<BLANKLINE>
axis   group
data   5,13,…,29: line of 4 along y
model  0-7: line of 8 along x

A mesh without a device order gets the order of JAX's own `mesh_utils`. `create_device_mesh` gives the last mesh axis,
which communicates most, the most axes of the torus. It splits an axis of the torus only if it must, and has special
orders for some small slices, which differ between versions of JAX. Several slices are ordered as by
`create_hybrid_device_mesh`.

>>> device_order(Machine.of("tpu v4:4x4x4"), (16, 4))[:2, :].tolist()       # the last axis goes along x
[[0, 1, 4, 5], [16, 17, 20, 21]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from shardviz.caching import Memo
from shardviz.costs.machine import Machine, machine_of, natural
from shardviz.costs.routes import Route, route
from shardviz.display import Displayed
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.notation import Axis, DeviceMesh
from shardviz.notation.spec import axis_text
from shardviz.notation.tiling import digits, places
from shardviz.records.report import ReportRecord


@dataclass(frozen=True)
class AxisPath:
    """The links of one mesh axis of so many devices: axes of the torus, ring or line, slices, NVLink domains."""

    name: str
    size: int
    route: Route

    def __str__(self) -> str:
        crosses = f"; crosses hosts ({self.route.hosts})" if self.route.hosts > 1 and self.route.size > 1 else ""
        return f"{self.route}{crosses}"


@dataclass(frozen=True, repr=False)
class Placement(Memo, Displayed):
    """A mesh on a machine: for each place of the mesh, in row-major order, the place in the machine's list of devices.
    The order is the mesh's own (`chosen`), or what JAX's `mesh_utils` would choose."""

    mesh: DeviceMesh
    machine: Machine
    order: tuple[int, ...]
    chosen: bool

    def groups(self, axes: Sequence[Axis]) -> np.ndarray:
        """Return the groups of devices along mesh axes: integers, groups x members, positions in the machine's list,
        read only. Raises MeshError if the mesh has no such axis or part of an axis."""
        return self.once(("groups", *axes), lambda: _frozen(np.asarray(self.order)[groups_along(axes, self.mesh)]))

    def route(self, axes: Sequence[Axis]) -> Route:
        """Return the links of the groups along mesh axes taken together."""
        return self.once(("route", *axes), lambda: route(self.machine, self.groups(axes)))

    @classmethod
    def of(cls, mesh: Any, target: str | Machine) -> Placement:
        """Return the placement of a mesh in any form on a target. A `Placement` is returned unchanged; a
        `jax.sharding.Mesh` of the machine's own kind of devices keeps their order. Raises TargetError as `placement`,
        or for a placement on another machine; MeshError if `mesh` does not describe a mesh."""
        if isinstance(mesh, Placement):
            machine = machine_of(target, mesh.mesh.size)
            if mesh.machine != machine:
                raise TargetError(f"the mesh is placed on {mesh.machine.text}, the target is {machine.text}; give one")
            return mesh
        platform = None
        if not isinstance(mesh, str | dict | DeviceMesh):
            try:
                platform = next(iter(mesh.devices.flat)).platform
            except (AttributeError, ValueError, StopIteration):  # an AbstractMesh has no devices, and says so so
                platform = None
        over = DeviceMesh.of(mesh)
        machine = machine_of(target, over.size)
        return placement(over, machine, platform is not None and platform == machine.chip.kind)

    @property
    def paths(self) -> tuple[AxisPath, ...]:
        """The links of each mesh axis."""
        return tuple(AxisPath(n, s, self.route((n,))) for n, s in zip(self.mesh.names, self.mesh.sizes, strict=True))

    def device_ids(self) -> tuple[int, ...]:
        """Return JAX's id of the device at each position of the mesh."""
        return tuple(self.machine.ids()[list(self.order)].tolist())

    def processes(self) -> tuple[int, ...]:
        """Return the process (host) of the device at each position of the mesh."""
        return tuple(self.machine.processes()[list(self.order)].tolist())

    def device(self, place: int) -> PlacedDevice:
        """Return the device at a row-major position of the mesh: its place in the machine, and its group along each
        mesh axis. Raises MeshError if there is no such position."""
        if not 0 <= place < self.mesh.size:
            raise MeshError(f"place {place}: the mesh {self.mesh} has {self.mesh.size}; give 0 to {self.mesh.size - 1}")
        return PlacedDevice(self, place)


@dataclass(frozen=True, repr=False)
class PlacedDevice(Displayed):
    """One device of a mesh on a machine, by its place in the mesh, in row-major order."""

    placement: Placement
    place: int

    @property
    def id(self) -> int:
        return int(self.placement.machine.ids()[self.placement.order[self.place]])

    @property
    def coordinates(self) -> tuple[int, ...]:
        """Its place along each mesh axis."""
        return tuple(self.placement.mesh.coordinates()[self.place].tolist())


@lru_cache(maxsize=256)
def placement(mesh: DeviceMesh, machine: Machine, keep_order: bool = False) -> Placement:
    """Place a mesh on a machine.

    A mesh with a device order (`device_ids`, JAX's ids or 0, 1, ... in the machine's list) keeps it; any other mesh
    gets the order that `jax.experimental.mesh_utils` would choose. The mesh's text says which axes span slices
    (`data=2*4`); otherwise its first axes do. With `keep_order`, or if the mesh is `in_order`, a mesh without ids has
    the order 0, 1, 2, ... Raises TargetError if the machine has another number of devices, or its slices cannot be used
    as the mesh says.
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
    """Return the number of slices along each mesh axis."""
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
    slices, factors_of = machine.num_slices, []
    for size in mesh.sizes:
        factors_of.append(int(np.gcd(size, slices)))
        slices //= factors_of[-1]
    return tuple(factors_of) if slices == 1 else (1,) * len(mesh.sizes)


def _frozen(table: np.ndarray) -> np.ndarray:
    table.setflags(write=False)
    return table


def groups_along(axes: Sequence[Axis], mesh: DeviceMesh) -> np.ndarray:
    """Return the groups along mesh axes or parts of axes: integers, groups x members, positions of the mesh. Raises
    MeshError if the mesh has no such axis or part.

    >>> groups_along(("b",), DeviceMesh.of("a=2,b=2")).tolist()
    [[0, 1], [2, 3]]
    >>> groups_along((("b", 1, 2),), DeviceMesh.of("b=4")).tolist()
    [[0, 2], [1, 3]]
    """
    for axis in axes:
        name, before, many = (axis, 1, mesh.shape.get(axis, 0)) if isinstance(axis, str) else axis
        whole = mesh.shape.get(name)
        if whole is None or before < 1 or many < 1 or whole % (before * many):
            have = ", ".join(f"{n}={s}" for n, s in mesh.shape.items()) or "none"
            raise MeshError(f"axes {axes!r}: the mesh has no axis {axis_text(axis)!r}; it has {have}")
    member, along = digits(axes, mesh), places(axes, mesh)
    leader = np.arange(mesh.size) - along[member]
    if len(np.unique(leader)) * len(along) != mesh.size:
        raise MeshError(f"axes {axes!r}: a place along an axis is named twice; name each once")
    return np.lexsort((member, leader)).reshape(-1, len(along))


def placed(report: ReportRecord, target: str | Machine | None, asked: str) -> Placement:
    """Return a report's mesh on a machine with a known speed; None stands for the report's own machine. `asked` names
    the function in errors. Raises MeshError, which names what would fit, if the machine has another number of
    devices; TargetError for an unknown machine or one without a known speed (`cpu`); ShardvizError if `report` is not
    a report."""
    if not isinstance(report, ReportRecord):
        raise ShardvizError(
            f"{asked}(report={type(report).__name__}): expected a Report, such as program.partition(plan) gives"
        )
    mesh = report.mesh
    machine = machine_of(report.target if target is None else target, mesh.size)
    machine.chip.needs("hbm_bytes_per_s")
    if mesh.size != machine.size:
        other = natural(machine.chip, mesh.size)
        raise MeshError(other_size(mesh, machine) + (f"; a target that would do: {other.text}" if other else ""))
    return Placement.of(mesh, machine)


def other_size(mesh: DeviceMesh, machine: Machine) -> str:
    """Return the error for a mesh and a machine of different sizes, with meshes that would fit."""
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


def device_order(machine: Machine, sizes: Sequence[int], slices: Sequence[int] = ()) -> np.ndarray:
    """Return the devices in the order that JAX's `mesh_utils` would choose: integers of shape `sizes`, positions in the
    machine's list. `slices` is the number of slices (or NVLink domains) along each mesh axis; empty for 1 each. Raises
    TargetError if the machine has another number of devices or slices."""
    sizes, slices = tuple(sizes), tuple(slices) or (1,) * len(sizes)
    if math.prod(sizes) != machine.size:
        raise TargetError(
            f"a mesh of {' x '.join(map(str, sizes)) or 'no axes'} is {math.prod(sizes)} devices, but "
            f"{machine.text} has {machine.size}; make the axes' product {machine.size}, or take another target"
        )
    parts = machine.num_slices if machine.chip.kind == "tpu" else max(1, math.prod(slices))
    if math.prod(slices) != parts:
        raise TargetError(f"the mesh runs through {math.prod(slices)} slices, but {machine.text} has {parts}")
    inner = tuple(size // part for size, part in zip(sizes, slices, strict=True))
    one = machine.size // parts
    block = _slice_order(machine, inner) if machine.chip.kind == "tpu" else np.arange(one).reshape(inner)
    whole = np.arange(parts).reshape(slices)
    # slices are the major part of each axis
    both = whole.reshape([n for s in slices for n in (s, 1)]) * one + block.reshape([n for i in inner for n in (1, i)])
    return both.reshape(sizes)


def _slice_order(machine: Machine, sizes: tuple[int, ...]) -> np.ndarray:
    """Return the order within one slice, from JAX's `mesh_utils` called with objects that have the attributes it
    reads."""
    from jax.experimental import mesh_utils

    chip = machine.chip
    several = chip.devices_per_chip > 1 and chip.device_kind not in ("TPU v2", "TPU v3")
    kind = "TPU7x" if several else chip.device_kind  # of newer chips it knows no other with several devices

    def shown(place: int, at: list[int], process: int) -> SimpleNamespace:
        own = {"id": place, "coords": tuple(at[:3]), "core_on_chip": at[3], "process_index": process, "slice_index": 0}
        return SimpleNamespace(**own, platform="tpu", device_kind=kind)

    count = math.prod(sizes)
    coords, processes = machine.coords()[:count].tolist(), machine.processes()[:count].tolist()
    devices: Any = list(map(shown, range(count), coords, processes))
    if count == 1:  # a mesh of no axes too
        return np.zeros(sizes, int)
    mesh = mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    return np.array([device.id for device in mesh.flat]).reshape(sizes)
