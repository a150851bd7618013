"""Other orders of a mesh's devices on a machine, and the time of a step's collectives with each.

>>> from shardviz.costs.machine import Machine
>>> from shardviz.costs.placement import placement
>>> machine, mesh = Machine.of("tpu v5e:8x16"), DeviceMesh.of("data=8,model=16")
>>> [str(path.route) for path in placement(mesh, machine).paths]
['line of 8 along x', 'ring of 16 along y']
>>> [str(path.route) for path in placement(reordered(mesh, ROW_MAJOR), machine).paths]
['ring of 8 along y, 2 hops apart', 'line of 8 along x, line of 2 along y']
>>> machine, mesh = Machine.of("gpu h100:4x8"), DeviceMesh.of("data=4,model=8")
>>> [str(path.route) for path in placement(mesh, machine).paths]
['4 NVLink domains over the network', '8 in an NVLink domain']
>>> [str(path.route) for path in placement(exchanged(mesh, machine, "data", "model"), machine).paths]
['4 in an NVLink domain', '2 in an NVLink domain, 4 NVLink domains over the network']
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement, placement
from shardviz.costs.step_cost import StepCost, seconds_in
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.notation import DeviceMesh

MESH_UTILS, ROW_MAJOR = "mesh_utils", "row-major"


def reordered(mesh: DeviceMesh, order: str | Iterable[int]) -> DeviceMesh:
    """Return the mesh with another device order: `mesh_utils` (no order, so that JAX's `mesh_utils` chooses),
    `row-major` (device i at position i), or the ids, as numbers or as text: `0,1,3,2`, `[0,1,3,2]` or `[2,4]T(1,0)`.
    Raises MeshError if the text is not an order of this many devices."""
    text = order.strip() if isinstance(order, str) else ",".join(map(str, order))
    if text in ("", MESH_UTILS):
        return replace(mesh, device_ids=(), in_order=False)
    if text == ROW_MAJOR:
        return replace(mesh, device_ids=(), in_order=True)
    listed = text if text.startswith("[") else f"[{text}]"
    try:
        listing = DeviceMesh.of(f"places={mesh.size} devices={listed}")
    except MeshError as error:
        raise MeshError(
            f"order {text[:80]!r}: {error}. Type {MESH_UTILS}, {ROW_MAJOR}, the ids of the {mesh.size} devices with "
            "commas between them, or a transposed count such as [2,4]T(1,0)"
        ) from None
    return replace(mesh, device_ids=listing.device_ids, in_order=listing.in_order)


def exchanged(mesh: DeviceMesh, machine: Machine, one: str, other: str) -> DeviceMesh:
    """Return the mesh in the order that mesh_utils would choose if two of its axes were swapped.

    mesh_utils places the last axis first, so the position decides which axis gets the better links. Each swapped axis
    keeps its slices. Raises MeshError if the mesh has no such axis; TargetError if the machine has another number of
    devices, or no links (`cpu`).
    """
    if machine.chip.kind == "cpu":
        raise TargetError("target 'cpu': simulated devices have no links, so no order of theirs is better than another")
    for name in (one, other):
        if name not in mesh.names:
            raise MeshError(
                f"the mesh {mesh} has no axis {name!r}; it has {', '.join(map(repr, mesh.names)) or 'none'}"
            )
    at = list(range(len(mesh.names)))
    i, j = mesh.names.index(one), mesh.names.index(other)
    at[i], at[j] = at[j], at[i]
    factors = mesh.dcn or (1,) * len(at)
    sizes = {mesh.names[a]: (factors[a], mesh.sizes[a] // factors[a]) for a in at}
    order = np.asarray(placement(DeviceMesh.of(sizes), machine).order)
    order = order.reshape([mesh.sizes[a] for a in at]).transpose(at).ravel()
    ids = tuple((order if machine.num_slices > 1 else machine.ids()[order]).tolist())
    slices = tuple(machine.slices()[order].tolist()) if mesh.slice_ids else ()
    in_order = ids == tuple(range(mesh.size))
    return replace(mesh, device_ids=ids, slice_ids=slices, in_order=in_order)


@dataclass(frozen=True)
class Order:
    """A device order: `mesh_utils`, `row-major`, `own` (the mesh's, if it is no other), or the two swapped axes; the
    mesh in this order; the seconds of all collectives with known time and count, per step; whether the mesh has this
    order now; and the keys of equal orders."""

    key: str | tuple[str, str]
    mesh: DeviceMesh
    communication: float
    now: bool
    also: tuple[str | tuple[str, str], ...] = ()


def orders(cost: StepCost) -> tuple[Order, ...]:
    """Return the possible orders for a cost's mesh; equal orders are merged."""
    mesh, machine = cost.mesh, cost.machine
    several = [name for name, size in mesh.shape.items() if size > 1]
    options: list[tuple[str | tuple[str, str], DeviceMesh]] = [
        (MESH_UTILS, reordered(mesh, MESH_UTILS)),
        (ROW_MAJOR, reordered(mesh, ROW_MAJOR)),
        *((pair, exchanged(mesh, machine, *pair)) for pair in itertools.combinations(several, 2)),
        ("own", mesh),
    ]
    by_order: dict[tuple[int, ...], Order] = {}
    for key, other in options:
        try:
            place = Placement.of(other, machine)
        except ShardvizError:  # slices that are no blocks of the mesh need their own order
            continue
        now = place.order == cost.placement.order
        if (same := by_order.get(place.order)) is not None:
            also = same.also if key == "own" else (*same.also, key)
            by_order[place.order] = replace(same, also=also)
        else:
            by_order[place.order] = Order(key, other, _communication(cost, place), now)
    return tuple(by_order.values())


def _communication(cost: StepCost, place: Placement) -> float:
    """Return the seconds of a step's collectives with its mesh placed differently, without those of unknown time."""
    timed = ((seconds_in(cost.timed, c, place)[0], c.count) for c in cost.collectives)
    return sum(((seconds or 0.0) * (count or 0.0) for seconds, count in timed), 0.0)
