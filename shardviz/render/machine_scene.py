"""Where the chips of a machine stand in a table: layers of a torus, or hosts of GPUs, with the mesh's places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardviz.costs.step_cost import StepCost
from shardviz.view.machine import place_of


@dataclass(frozen=True)
class Panel:
    """Chips that are drawn side by side.

    Attributes:
        title: what it is: `z = 0`, `slice 1, z = 0`, `host 3`.
        places: place of the mesh, row x column (y x x) x device of the chip.
        slice: its slice.
        z: its layer; 0 on GPUs.
    """

    title: str
    places: np.ndarray
    slice: int = 0
    z: int = 0


def panels(cost: StepCost, most: int | None = None) -> tuple[tuple[Panel, ...], int]:
    """The machine's layers (TPU: each z of each slice; GPU: each host) and how many were left out.

    Args:
        cost: whose machine and mesh.
        most: the most panels.
    """
    machine, where = cost.machine, place_of(cost.placement)
    found = []
    if machine.chip.kind == "tpu":
        x, y, z = machine.shape
        per_chip = machine.chip.devices_per_chip
        torus = np.empty((machine.num_slices, z, y, x, per_chip), int)
        at = machine.coords()
        torus[machine.slices(), at[:, 2], at[:, 1], at[:, 0], at[:, 3]] = where
        for s in range(machine.num_slices):
            for layer in range(z):
                names = [f"slice {s}"] if machine.num_slices > 1 else []
                names += [f"z = {layer}"] if z > 1 else []
                found.append(Panel(", ".join(names), torus[s, layer], s, layer))
    else:
        hosts, per_host = machine.topology
        rows = 2 if per_host % 2 == 0 and per_host > 4 else 1
        rows = max(rows, int(per_host**0.5)) if per_host > 16 and per_host % int(per_host**0.5) == 0 else rows
        table = where.reshape(hosts, rows, per_host // rows, 1)
        found = [Panel(f"host {h}", table[h]) for h in range(hosts)]
    shown = found if most is None else found[:most]
    return tuple(shown), len(found) - len(shown)
