"""What a step's collectives would take with the mesh's devices in another order on the same machine."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from shardviz.analysis.step_cost import StepCost
from shardviz.cost import Placement, with_seconds
from shardviz.cost.orders import MESH_UTILS, ROW_MAJOR, exchanged, reordered
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.records import Collective


@dataclass(frozen=True)
class Order:
    """An order of the devices, and what it would mean.

    Attributes:
        key: `mesh_utils`, `row-major`, `own` (the mesh's, where it is none of the others), or two axes: those that
            stand in each other's place.
        mesh: the mesh in that order.
        communication: seconds of all collectives whose time and count are known, in a step.
        now: it is the mesh's order as it is.
        also: the keys of others that come to the same order.
    """

    key: str | tuple[str, str]
    mesh: DeviceMesh
    communication: float
    now: bool
    also: tuple[str | tuple[str, str], ...] = ()


def orders(cost: StepCost) -> tuple[Order, ...]:
    """The orders that may be chosen for a cost's mesh, those that come to the same as one."""
    mesh, machine = cost.mesh, cost.machine
    several = [name for name, size in mesh.shape.items() if size > 1]
    options: list[tuple[str | tuple[str, str], DeviceMesh]] = [
        (MESH_UTILS, reordered(mesh, MESH_UTILS)),
        (ROW_MAJOR, reordered(mesh, ROW_MAJOR)),
        *((pair, exchanged(mesh, machine, *pair)) for pair in itertools.combinations(several, 2)),
        ("own", mesh),
    ]
    found: dict[tuple[int, ...], Order] = {}
    for key, other in options:
        try:
            place = Placement.of(other, machine)
        except ShardvizError:  # slices that are no blocks of the mesh need their own order
            continue
        now = place.order == cost.placement.order
        if (same := found.get(place.order)) is not None:
            also = same.also if key == "own" else (*same.also, key)
            found[place.order] = replace(same, also=also)
        else:
            found[place.order] = Order(key, other, communication(cost, place), now)
    return tuple(found.values())


def communication(cost: StepCost, place: Placement) -> float:
    """Seconds of a cost's collectives in a step with its mesh placed otherwise; those of unknown time are left out."""
    times: dict[Collective, float | None] = {}
    total = 0.0
    for c in cost.collectives:
        alike = replace(
            c, name="", count=1, source=None, name_stack="", phase="", operand="", seconds=None, formula=None
        )
        if alike not in times:
            times[alike] = with_seconds(alike, place, cost.machine, exact=cost.exact).seconds
        seconds = times[alike]
        if seconds is not None and c.count is not None:
            total += seconds * c.count
    return total
